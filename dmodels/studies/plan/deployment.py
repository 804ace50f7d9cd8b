"""What a plan recommends: pools of instances, with what each costs and how it will run."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dmodels.core.answers import Answer
from dmodels.core.units import HOURS_PER_YEAR, counted
from dmodels.models.cost import fleet_cost

from .calibration import Confidence
from .designs import Kind, Layout, Role, Stage
from .limits import Part, bought
from .promises import Replayed


@dataclass(frozen=True)
class Pool(Answer):
    """Equal instances behind one queue: `instances` x `layout.gpus` GPUs."""

    derived = ("gpus", "usd_per_hour", "usd_per_year", "max_model_len_tokens")
    stage: Stage
    layout: Layout
    instances: int
    price_usd_per_hour: float  # of one GPU
    request_share_frac: float
    longest_tokens: float
    context_tokens: float  # that the model's config allows and memory holds; inf: neither limits it
    ttft_s: float  # at the SLO's percentile, of this stage
    ttft_mean_s: float
    tpot_s: float
    tpot_mean_s: float
    e2e_s: float
    decode_count: float  # requests that decode at a time, per instance
    slots_count: float  # requests that fit, per instance
    tokens_per_s: float  # output tokens, whole pool
    binding: str  # what one instance less would break
    confidence: Confidence
    load_frac: float  # of the rate at which it saturates
    extrapolated: tuple[str, ...]  # latencies whose formula was not within 10 % of the simulation at such a load

    @property
    def gpus(self) -> int:
        """GPUs of the pool."""
        return self.instances * self.layout.gpus

    @property
    def usd_per_hour(self) -> float:
        """Price of the pool."""
        return float(fleet_cost(self.instances, self.layout.gpus, self.price_usd_per_hour).usd_per_hour)

    @property
    def usd_per_year(self) -> float:
        """The same for 8,760 hours."""
        return float(fleet_cost(self.instances, self.layout.gpus, self.price_usd_per_hour).usd_per_year)

    @property
    def max_model_len_tokens(self) -> int:
        """The context to configure: the stage's threshold, or the longest request rounded up to 1,024 tokens.

        Never beyond the model's own context and the memory's: an engine that is asked for more does not start.
        """
        top = self.stage.high_tokens
        top = top if math.isfinite(top) else 1024 * math.ceil(self.longest_tokens / 1024)
        return int(min(top, self.context_tokens))


@dataclass(frozen=True)
class Deployment(Answer):
    """Pools that together serve every request."""

    derived = (
        *("gpus", "bought_gpus", "usd_per_hour", "usd_per_year", "ttft_s", "tpot_s", "e2e_s", "tokens_per_s"),
        "router",
    )
    kind: Kind
    name: str
    pools: tuple[Pool, ...]
    gpus_low: float  # GPUs if steps were as fast, and as slow, as the calibration's 80 % interval allows; inf: none
    gpus_high: float
    replayed: Replayed | None = None  # where its instances were chosen by replays
    node_gpus: int = 1  # GPUs are bought by whole nodes of so many

    @property
    def in_turn(self) -> bool:
        """Whether each request passes all pools, rather than one of them."""
        return self.kind == Kind.SPLIT

    @property
    def gpus(self) -> int:
        """GPUs of all pools."""
        return sum(pool.gpus for pool in self.pools)

    @property
    def usd_per_hour(self) -> float:
        """Price of what is bought."""
        prices = {pool.layout.gpu: pool.price_usd_per_hour for pool in self.pools}
        return sum(float(fleet_cost(1, count, prices[gpu]).usd_per_hour) for gpu, count in self._bought.items())

    @property
    def usd_per_year(self) -> float:
        """The same for 8,760 hours."""
        return float(HOURS_PER_YEAR * self.usd_per_hour)

    @property
    def bought_gpus(self) -> int:
        """GPUs of all pools in whole nodes."""
        return sum(self._bought.values())

    @property
    def parts(self) -> list[Part]:
        """Instances of each layout."""
        return [(pool.layout.gpu, pool.instances, pool.layout.gpus) for pool in self.pools]

    @property
    def _bought(self) -> dict[str, int]:
        return bought(self.node_gpus, self.parts)

    @property
    def ttft_s(self) -> float:
        """TTFT that the SLO's percentile of requests meets: the worst pool's; over a split's two stages, the sum.

        As this and `tpot_s` and `e2e_s` were in the replay, where there is one, and otherwise by the closed form.
        """
        return self._over_pools("ttft_s")

    @property
    def e2e_s(self) -> float:
        """The same of the whole request."""
        return self._over_pools("e2e_s")

    @property
    def tpot_s(self) -> float:
        """TPOT that the SLO's percentile of requests meets: the worst pool's."""
        if self.replayed is not None and math.isfinite(seen := self.replayed.at("TPOT")):
            return seen
        return max(pool.tpot_s for pool in self.pools if pool.stage.role != Role.PREFILL)

    @property
    def tokens_per_s(self) -> float:
        """Output tokens a second of all pools."""
        return sum(pool.tokens_per_s for pool in self.pools)

    def decomposition(self) -> str:
        """Where the GPUs come from: '24 GPUs = 3 instances x 8 (tp8pp1dp1ep8)'."""
        parts = (
            f"{p.instances} x {p.layout.gpus} {p.layout.gpu} ({p.layout.parallel}, {p.stage.name})" for p in self.pools
        )
        return f"{counted(self.gpus, 'GPU')} = " + " + ".join(parts)

    @property
    def router(self) -> dict[str, float | str]:
        """Parameters of the router that sends requests to the pools."""
        if self.kind == Kind.TWO_POOLS:
            threshold = self.pools[0].stage.high_tokens
            return {"policy": "token budget", "threshold_tokens": threshold, "spill_when_queue_exceeds_s": 0.1}
        return {"policy": "least requests in flight"}

    def seen(self, pool: Pool, metric: str) -> float:
        """A pool's TTFT, TPOT or E2E at the SLO's percentile: as replayed, or by the closed form where the replay has
        none of its own (a split's stages)."""
        by_formula = {"TTFT": pool.ttft_s, "TPOT": pool.tpot_s, "E2E": pool.e2e_s}[metric]
        promises = () if self.replayed is None else self.replayed.promises
        return next((p.measured_s for p in promises if (p.pool, p.metric) == (pool.stage.name, metric)), by_formula)

    def _over_pools(self, field: str) -> float:
        if self.replayed is not None and math.isfinite(seen := self.replayed.at(field[:-2].upper())):
            return seen
        values = [getattr(pool, field) for pool in self.pools]
        return float(np.sum(values) if self.in_turn else np.max(values))
