"""The fleets that a plan was chosen from: one-pool fleets as points, and the front of each kind in cost and TTFT.

A scheme of two stages has more fleets than can be listed, but what it costs is a sum, and its TTFT is the worse pool's
(two pools) or a sum as well (prefill and decode): its front follows from the fronts of its stages, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from dmodels.core.flags import Flag
from dmodels.design.pareto import pareto_mask

from .evaluate import sweep_instances

if TYPE_CHECKING:
    from .search import Priced

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
    points_count: int

    @property
    def front(self) -> Front:
        """The front over all kinds."""
        return pruned(
            *(
                np.concatenate([getattr(x, name) for x in self.fronts.values()] or [np.zeros(0)])
                for name in ("ttft_s", "usd_per_hour")
            )
        )


def fleets(priced: Priced) -> Fleets:
    """All cells over 64 sizes each."""
    asked, k = priced.question, len(priced.stages)
    stable, chosen = priced.stable_instances.reshape(-1, 1), priced.instances.reshape(-1, 1)
    known = np.isfinite(stable)
    sizes = np.ceil(np.where(known, stable, 1.0) * _SIZES)
    counts = np.sort(np.concatenate([sizes, np.where(np.isfinite(chosen), chosen, sizes[:, :1])], 1), axis=1)
    point = sweep_instances(priced.cells, counts, priced.rate_rps, asked.engine)
    shape = (len(priced.layouts), k, counts.shape[1])
    gpus = np.array([x.gpus for x in priced.layouts], float)[:, None, None]
    counts, stable, ttft, flags = (
        x.reshape(*shape[:2], -1) for x in (counts, stable, point.ttft_s, np.where(known, point.flags, Flag.NO_FIT))
    )
    cost = counts * priced.prices_usd_per_hour[:, None, None]
    meets = (flags == 0) & (counts * gpus <= asked.max_gpus)
    stages = [pruned(ttft[:, s][meets[:, s]], cost[:, s][meets[:, s]]) for s in range(k)]
    kinds: dict[str, list[Front]] = {}
    for scheme in priced.schemes:
        join = _in_turn if scheme.in_turn else _side_by_side
        kinds.setdefault(scheme.kind, []).append(reduce(join, (stages[s] for s in scheme.stages)))
    fronts = {
        kind: pruned(np.concatenate([x.ttft_s for x in found]), np.concatenate([x.usd_per_hour for x in found]))
        for kind, found in kinds.items()
    }
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
    return Fleets(one, {kind: front for kind, front in fronts.items() if front.ttft_s.size}, int(counts.size))


def pruned(ttft_s: np.ndarray, usd_per_hour: np.ndarray) -> Front:
    """The front of these fleets.

    >>> pruned(np.array([1.0, 3.0, 2.0]), np.array([9.0, 5.0, 5.0])).ttft_s.tolist()
    [1.0, 2.0]
    """
    kept = pareto_mask(np.stack([ttft_s, usd_per_hour], axis=1))
    order = np.argsort(ttft_s[kept])
    return Front(ttft_s[kept][order], usd_per_hour[kept][order])


def _side_by_side(a: Front, b: Front) -> Front:
    """Each request goes to one of both: the TTFT is the worse one's."""
    ttft = np.union1d(a.ttft_s, b.ttft_s)
    return pruned(ttft, a.cost_within(ttft) + b.cost_within(ttft))


def _in_turn(a: Front, b: Front) -> Front:
    """Each request goes through both: TTFTs add up."""
    return pruned(np.add.outer(a.ttft_s, b.ttft_s).ravel(), np.add.outer(a.usd_per_hour, b.usd_per_hour).ravel())
