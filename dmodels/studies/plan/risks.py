"""What could go wrong with a plan: distance from saturation, bursts, the loss of an instance, stale readings.

Every number comes from the closed forms that sized the plan, at other rates. Near and past saturation a steady state
is not reached in the time looked at: there the backlog is that of a Brownian queue, and what is left of it drains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np

from dmodels.core.answers import Answer
from dmodels.core.records import float64
from dmodels.models.instance import Operating
from dmodels.models.queueing import backlog_s, work_variance_s
from dmodels.models.transfer import refresh_interval_s

from .deployment import Pool
from .designs import Kind, Role
from .evaluate import COLUMNS, saturated, sweep_instances
from .search import Plan
from .sizing import Priced

#: Bursts that are asked about: factors on the rate.
BURSTS = (1.1, 1.25, 1.5, 2.0)
#: Shares of the saturating rate at which a pool is looked at, closer where latency bends.
_LOADS = np.concatenate([np.linspace(0.02, 0.9, 48), np.linspace(0.905, 0.999, 16)])

#: Load at which the mean wait tells the randomness of a pool's work.
_HEAVY = 0.99


@dataclass(frozen=True)
class PoolLoad(Answer):
    """One pool from idle to saturation. Arrays run over `load_frac`, the share of the rate at which it saturates."""

    pool: Pool
    load_frac: np.ndarray
    ttft_s: np.ndarray  # at the percentile of the SLO
    tpot_s: np.ndarray
    work_variance_s: float  # of the work that arrives in a second at saturation: how fast a backlog may grow
    in_flight_count: np.ndarray  # per instance: requests that decode, or that a prefill worker holds (Little's law)
    operating_frac: float  # the plan's own load
    knee_frac: float  # where load / TTFT is greatest
    ttft_bound_s: float  # this pool's share of the SLO
    tpot_bound_s: float

    @property
    def growth(self) -> float:
        """Factor on the rate at which the pool saturates."""
        return 1.0 / self.operating_frac


@dataclass(frozen=True)
class Grown(Answer):
    """All pools at a higher rate, held for `duration_s`."""

    factor: float  # on the rate
    ttft_s: float  # at the end, of the worst pool (of both stages of a split)
    tpot_s: float  # inf where a pool saturates
    saturates: bool
    drain_s: float  # until the backlog is gone, at the plan's own rate; inf: never
    keeps_slo: bool


@dataclass(frozen=True)
class Lost(Answer):
    """One instance of a pool gone, its requests on the others."""

    pool: Pool
    after: Grown | None  # None: there is no other
    spare_usd_per_hour: float  # one instance more


@dataclass(frozen=True)
class Stale(Answer):
    """How old the readings of requests in flight may be by which a router picks an instance of a pool."""

    pool: Pool
    herd_s: float  # at this age the prompts sent to whoever looked emptiest use up its room to the TTFT SLO
    memory_s: float  # at this age counts have drifted by one standard deviation


@dataclass(frozen=True)
class Risks(Answer):
    """All of it, of the recommended deployment."""

    loads: tuple[PoolLoad, ...]
    burst_s: float
    bursts: tuple[Grown, ...]
    losses: tuple[Lost, ...]
    stale: tuple[Stale, ...]

    @property
    def first(self) -> PoolLoad:
        """The pool that saturates first."""
        return max(self.loads, key=lambda load: load.operating_frac)


@float64
def risks(answer: Plan, burst_s: float = 60.0, bursts: Sequence[float] = BURSTS) -> Risks:
    """The risks of `answer.best`; `burst_s` is how long a burst lasts, `bursts` are its factors on the rate."""
    pools = answer.best.pools
    found = loads(answer)
    every = np.ones(len(pools))
    factors = [float(b) * every for b in bursts]
    lost = [every + (x.instances > 1) * np.eye(len(pools))[i] / max(x.instances - 1, 1) for i, x in enumerate(pools)]
    point = _at(answer.priced, pools, np.stack([every, *factors, *lost], 1))
    grown = [_grown(answer, found, point, i + 1, column, burst_s) for i, column in enumerate([*factors, *lost])]
    return Risks(
        found,
        float(burst_s),
        tuple(grown[: len(factors)]),
        tuple(
            Lost(pool, after if pool.instances > 1 else None, pool.usd_per_hour / pool.instances)
            for pool, after in zip(pools, grown[len(factors) :], strict=True)
        ),
        tuple(
            _stale(answer, load, point.prefill_busy_frac[i, 0], point.decode_count[i, 0])
            for i, load in enumerate(found)
            if load.pool.instances > 1
        ),
    )


@float64
def loads(answer: Plan) -> tuple[PoolLoad, ...]:
    """Each recommended pool from idle to saturation."""
    pools, slo = answer.best.pools, answer.priced.cells.slo
    top = np.array([[1.0 / pool.load_frac] for pool in pools])
    point = _at(answer.priced, pools, top * _LOADS)
    rates = [answer.priced.rate_rps * pool.request_share_frac / pool.instances for pool in pools]
    prompts = top * _LOADS * np.array(rates)[:, None] * point.ttft_mean_s
    prefill = np.array([[pool.stage.role == Role.PREFILL] for pool in pools])
    in_flight = np.where(prefill, prompts, point.decode_count)
    heavy = int(np.argmin(np.abs(_LOADS - _HEAVY)))
    waits = point.ttft_mean_s[:, heavy] - point.ttft_mean_s[:, 0]
    return tuple(
        PoolLoad(
            pool,
            load_frac=_LOADS,
            ttft_s=point.ttft_s[i],
            tpot_s=point.tpot_s[i],
            work_variance_s=work_variance_s(float(waits[i]), float(_LOADS[heavy])),
            in_flight_count=in_flight[i],
            operating_frac=pool.load_frac,
            knee_frac=knee(_LOADS, point.ttft_s[i]),
            ttft_bound_s=float(slo.ttft_s[at, 0]),
            tpot_bound_s=float(slo.tpot_s[at, 0]),
        )
        for i, (pool, at) in enumerate(zip(pools, map(answer.priced.cell_of, pools), strict=True))
    )


def knee(load_frac: np.ndarray, latency_s: np.ndarray) -> float:
    r"""The load of most power $\rho / T(\rho)$: beyond it 1 % more load costs more than 1 % more latency.

    Kleinrock, "Power and deterministic rules of thumb for probabilistic problems", ICC 1979: of M/M/1, half.

    >>> rho = np.linspace(0.01, 0.99, 99)
    >>> round(knee(rho, 1.0 / (1.0 - rho)), 3)
    0.5
    """
    return float(load_frac[np.argmax(np.where(np.isfinite(latency_s), load_frac / latency_s, -np.inf))])


def _at(priced: Priced, pools: Sequence[Pool], factors: np.ndarray) -> Operating:
    """Pools at their own rates times `factors` (pools, n); host arrays (pools, n).

    Rows of COLUMNS factors fill the blocks of the engine.
    """
    count, n = factors.shape
    rows = -(-n // COLUMNS)
    padded = np.concatenate([factors, np.repeat(factors[:, -1:], rows * COLUMNS - n, 1)], 1).reshape(-1, COLUMNS)
    at = np.repeat([priced.cell_of(pool) for pool in pools], rows)
    cells = jax.tree.map(lambda leaf: np.asarray(leaf)[at], priced.cells)
    instances = np.repeat([float(pool.instances) for pool in pools], rows)[:, None] / padded
    point = sweep_instances(cells, instances, priced.rate_rps, priced.question.engine)
    return Operating(*(np.asarray(leaf).reshape(count, -1)[:, :n] for leaf in point))


def _grown(
    answer: Plan, found: tuple[PoolLoad, ...], point: Operating, column: int, factors: np.ndarray, duration_s: float
) -> Grown:
    """Column `column` of `point`: each pool at its factor on the rate."""
    q = float(answer.question.slo.percentile)
    ttft, tpot, drain = [], [], 0.0
    over = saturated(point)[:, column]
    for i, (load, g) in enumerate(zip(found, factors, strict=True)):
        reached = load.pool.ttft_s + backlog_s(q, g / load.growth, load.work_variance_s, duration_s)
        ttft.append(reached if over[i] else min(reached, float(point.ttft_s[i, column])))
        if over[i]:
            beyond, room = g - load.growth, load.growth - 1.0
            drain = max(drain, duration_s * max(beyond, 0.0) / room if room > 0 else np.inf)
        tpot.append(float(point.tpot_s[i, column]) if load.pool.stage.role != Role.PREFILL else 0.0)
    whole = sum(ttft) if answer.best.kind == Kind.SPLIT else max(ttft)
    kept = bool((point.flags[:, column] == 0).all())
    return Grown(float(factors.max()), float(whole), float(max(tpot)), bool(over.any()), float(drain), kept)


def _stale(answer: Plan, load: PoolLoad, busy_frac: float, decode_count: float) -> Stale:
    pool = load.pool
    rate = answer.priced.rate_rps * pool.request_share_frac
    work_s = busy_frac * pool.instances / rate  # what one prompt adds to an instance's steps
    herd = (load.ttft_bound_s - pool.ttft_mean_s) / (rate * work_s) if work_s > 0 else np.inf
    alive_s = pool.ttft_mean_s + decode_count * pool.instances / rate  # Little's law
    alive_s = min(alive_s, answer.best.seen(pool, "E2E"))  # routed by loads, requests may live less than by the formula
    spread = np.sqrt(max(decode_count, 1.0))  # of M/G/infinity, whose counts forget at the rate 1 / alive_s or faster
    return Stale(pool, float(max(herd, 0.0)), float(refresh_interval_s(spread, spread, alive_s, 1.0)))
