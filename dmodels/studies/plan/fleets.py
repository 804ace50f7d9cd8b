"""The fleets that a plan was chosen from: one-pool fleets as points, and the front of each kind in cost and TTFT.

A scheme of two stages has more fleets than can be listed, but what it costs is a sum, and its TTFT is the worse pool's
(two pools) or a sum as well (prefill and decode): its front follows from the fronts of its stages, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dmodels.core.flags import Flag
from dmodels.design.pareto import pareto_mask

from .evaluate import sweep_instances
from .limits import Limits, in_nodes, whole
from .margins import flags as margin_flags
from .questions import Question
from .sizing import Priced

#: Sizes of each pool that are looked at: multiples of the fewest instances that keep up, and the plan's own size.
_SIZES = np.geomspace(1.0, 12.0, 63)


@dataclass(frozen=True)
class Front:
    """Fleets that keep the SLOs and that no other costs less and is as quick as; TTFT rises, cost falls."""

    ttft_s: np.ndarray
    usd_per_hour: np.ndarray

    def cost_within(self, ttft_s: np.ndarray) -> np.ndarray:
        """USD/h of the cheapest fleet of at most that TTFT; inf: there is none."""
        place = np.searchsorted(self.ttft_s, ttft_s, "right")
        return np.concatenate([[np.inf], self.usd_per_hour])[place]


@dataclass(frozen=True)
class Fleets:
    """One-pool fleets, arrays of layouts by sizes, and a `Front` for each kind of scheme, as far as one is feasible."""

    one_pool: dict[str, np.ndarray]
    fronts: dict[str, Front]

    @property
    def front(self) -> Front:
        """The front over all kinds."""
        return pruned(
            *(
                np.concatenate([getattr(x, name) for x in self.fronts.values()] or [np.zeros(0)])
                for name in ("ttft_s", "usd_per_hour")
            )
        )


def points_count(priced: Priced) -> int:
    """Cells and sizes that `fleets` looks at."""
    return int(priced.instances.size * (_SIZES.size + 1))


def fleets(priced: Priced) -> Fleets:
    """All cells over 64 sizes each."""
    asked, k = priced.question, len(priced.stages)
    stable, chosen = priced.stable_instances.reshape(-1, 1), priced.instances.reshape(-1, 1)
    known = np.isfinite(stable)
    sizes = np.ceil(np.where(known, stable, 1.0) * _SIZES)
    counts = np.sort(np.concatenate([sizes, np.where(np.isfinite(chosen), chosen, sizes[:, :1])], 1), axis=1)
    point = sweep_instances(priced.cells, counts, priced.rate_rps, asked.engine)
    own = (priced.cells, counts, priced.rate_rps, asked.engine)
    kept = margin_flags(*own, asked.margins, priced.strain) if asked.margins.any else point.flags
    shape = (len(priced.layouts), k, counts.shape[1])
    limits, gpus = asked.limits, priced.instance_gpus[:, None, None]
    counts, stable, ttft, flags = (
        x.reshape(*shape[:2], -1) for x in (counts, stable, point.ttft_s, np.where(known, point.flags, Flag.NO_FIT))
    )
    bought = in_nodes(limits.node_gpus, counts, gpus)
    cost = bought * priced.gpu_prices_usd_per_hour[:, None, None]
    there = np.array([limits.of(x.gpu) for x in priced.layouts])[:, None, None]
    meets = (flags == 0) & (kept.reshape(flags.shape) == 0) & (bought <= there) & (cost <= limits.budget_usd_per_hour)
    # a pool of fewer GPUs has its use, too, where they are limited: it leaves more to the other
    sizes = np.stack([ttft, cost, counts * gpus if limits.any else np.zeros_like(cost)], -1)
    types = [x.gpu if limits.any else "" for x in priced.layouts]
    of_type = {gpu: np.array([x == gpu for x in types]) for gpu in dict.fromkeys(types)}
    kinds: dict[str, list[np.ndarray]] = {}
    for scheme in priced.schemes:
        each = [{gpu: _least(sizes[own, s][meets[own, s]]) for gpu, own in of_type.items()} for s in scheme.stages]
        kinds.setdefault(scheme.kind, []).extend(_whole(each, scheme.in_turn, asked))
    fronts = {kind: pruned(*np.concatenate(found)[:, :2].T) for kind, found in kinds.items()}
    one = {
        "instances": counts[:, 0],
        "gpus": counts[:, 0] * gpus[:, 0],
        "usd_per_hour": cost[:, 0],
        "ttft_s": ttft[:, 0],
        "flags": flags[:, 0],
        "meets": meets[:, 0],
        "usable": (flags[:, 0] & int(Flag.NO_FIT | Flag.OVERLOAD)) == 0,
        "user_tokens_per_s": 1.0 / point.tpot_mean_s.reshape(shape)[:, 0],
        "gpu_tokens_per_s": point.tokens_per_s.reshape(shape)[:, 0] / gpus[:, 0],
    }
    yields = np.stack([one["user_tokens_per_s"], one["gpu_tokens_per_s"]], axis=-1)
    hidden = np.where(one["usable"][..., None], -yields, np.inf)
    one["throughput_front"] = pareto_mask(hidden.reshape(-1, 2)).reshape(one["usable"].shape)
    return Fleets(one, {kind: front for kind, front in fronts.items() if front.ttft_s.size})


def pruned(ttft_s: np.ndarray, usd_per_hour: np.ndarray) -> Front:
    """The front of these fleets.

    >>> pruned(np.array([1.0, 3.0, 2.0]), np.array([9.0, 5.0, 5.0])).ttft_s.tolist()
    [1.0, 2.0]
    """
    kept = pareto_mask(np.stack([ttft_s, usd_per_hour], axis=1))
    order = np.argsort(ttft_s[kept])
    return Front(ttft_s[kept][order], usd_per_hour[kept][order])


def _whole(stages: list[dict[str, np.ndarray]], in_turn: bool, asked: Question) -> list[np.ndarray]:
    """The fleets of a scheme, from those of each of its stages on each GPU type."""
    if len(stages) == 1:
        return list(stages[0].values())
    pairs = [(one, a, two, b) for one, a in stages[0].items() for two, b in stages[1].items()]
    return [
        _joined(a, b, in_turn, asked.limits, _shared(asked, one) if one == two else None) for one, a, two, b in pairs
    ]


class _Shared(NamedTuple):
    """The nodes of one GPU type, which both pools stand in."""

    gpus: float  # that there are
    price_usd_per_hour: float  # of a GPU


def _shared(asked: Question, gpu: str) -> _Shared:
    """Of all types at once ("") where nothing is limited."""
    return _Shared(asked.limits.of(gpu), float(asked.gpus[gpu].price_usd_per_hour) if gpu else 0.0)


def _joined(a: np.ndarray, b: np.ndarray, in_turn: bool, limits: Limits, nodes: _Shared | None) -> np.ndarray:
    """Two pools as one fleet; rows of (TTFT, USD/h, GPUs) that no other row is below in all.

    A request that goes through both in turn has the sum of their TTFTs; if to one of both, the worse one counts.
    """
    node = limits.node_gpus
    times = np.add.outer(a[:, 0], b[:, 0]) if in_turn else np.maximum.outer(a[:, 0], b[:, 0])
    cost, used = (np.add.outer(x, y) for x, y in zip(a.T[1:], b.T[1:], strict=True))
    bought = whole(node, used) if nodes else np.add.outer(whole(node, a[:, 2]), whole(node, b[:, 2]))
    if nodes and node > 1:
        cost = bought * nodes.price_usd_per_hour
    joined = np.stack([times, cost, used], -1).reshape(-1, 3)
    there = nodes.gpus if nodes else limits.max_gpus
    return _least(joined[(bought.ravel() <= there) & (joined[:, 1] <= limits.budget_usd_per_hour)])


def _least(fleets: np.ndarray) -> np.ndarray:
    return fleets[pareto_mask(fleets if fleets[:, 2].any() else fleets[:, :2])]
