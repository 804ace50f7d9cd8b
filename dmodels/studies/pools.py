"""One pool or several, for a workload: what each threshold saves, by the paper's formula and exactly, and why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from dmodels.core.answers import Answer
from dmodels.core.errors import InputError
from dmodels.core.records import Real, float64
from dmodels.core.workload import Workload
from dmodels.models import pooling
from dmodels.models.compression import Compression, compressed
from dmodels.models.cost import fleet_cost
from dmodels.models.pooling import Headroom, Savings, SlotEngine, Thresholds
from dmodels.models.traffic import LengthClass, between, split, whole

#: What another pool has to save to be worth a line, as a share of the instances.
_WORTH_FRAC = 1e-3


@dataclass(frozen=True)
class PoolStudy(Answer):
    """Arrays have one entry per threshold; `best` one per number of pools, from two on while one more saves 0.1 %."""

    rows_in = "threshold_tokens"
    context_tokens: float  # of the single pool, and of the last pool of every split
    rate_rps: float
    slots_single: float
    everything: LengthClass
    threshold_tokens: np.ndarray
    short: LengthClass
    slots_short: np.ndarray
    savings: Savings  # whole instances, headroom
    law_frac: np.ndarray  # exact, without ceilings and with equal headroom
    paged_frac: np.ndarray  # the same law if KV pages are given out on demand, at mean occupancy
    best: tuple[Thresholds, ...]
    forgiving_tokens: tuple[float, float]  # thresholds around the best that keep 80 % of what it saves
    usd_per_year: np.ndarray  # of the split fleet; nan without a price
    single_usd_per_year: float
    compressed_frac: np.ndarray  # requests whose prompts are compressed to fit the short pool; 0 without a compressor
    compressed_instances_count: np.ndarray  # of the split fleet then, compressors included
    notes: tuple[str, ...]  # sentences that a planner can check against the numbers


@float64
def pool_study(
    workload: Workload,
    threshold_tokens: Any = None,
    rate_rps: float | None = None,
    context_tokens: float | None = None,
    engine: SlotEngine | None = None,
    headroom: Headroom | None = None,
    pools_count: int = 3,
    gpus_per_instance: float = 1.0,
    price_usd_per_hour: float = float("nan"),
    compression: Compression | None = None,
) -> PoolStudy:
    """Sizes the single pool and every two-pool split, and finds the best thresholds of up to `pools_count` pools.

    With `compression` also every split whose borderline prompts are compressed into the short pool.

    `context_tokens` defaults to the smallest power of two that holds the longest request, or to what an instance holds
    where that is less; thresholds default to the powers of two from 1,024 below it. Instances are those of `engine`
    (default: the paper's A100 pair).
    """
    engine = SlotEngine() if engine is None else engine
    headroom = Headroom() if headroom is None else headroom
    every = whole(workload)
    longest = float(every.max_total_tokens)
    held = float(engine.blocks_count * engine.block_tokens)
    wide = max(longest, min(2.0 ** np.ceil(np.log2(longest)), held))
    context = wide if context_tokens is None else float(context_tokens)
    if not context >= longest:
        raise InputError(f"context_tokens = {context:g}: accepted is at least {longest:,.0f}, the longest request")
    rate = float(workload.rate_rps) if rate_rps is None else float(rate_rps)
    if not (np.isfinite(rate) and rate > 0):
        raise InputError(f"rate_rps = {rate:g}: accepted are positive rates")
    if pools_count < 2:
        raise InputError(f"pools_count = {pools_count}: accepted are whole numbers from 2")
    single = float(pooling.slots_count(context, engine))
    if single < 1:
        what = "the longest request" if context_tokens is None else "context_tokens"
        told = f"accepted is at most {held:,.0f}, what an instance holds (blocks_count)"
        raise InputError(f"{what} = {context:,.0f} tokens: {told}")
    thresholds = _thresholds(threshold_tokens, context)
    short, long = split(workload, thresholds)
    slots = np.asarray(pooling.slots_count(thresholds, engine))
    fleets: dict[str, Any] = {"slots_single": single, "arrival_rps": rate, "engine": engine, "headroom": headroom}
    shares = short.request_frac, short.work_frac, every.iterations_count
    saved = Savings(*(np.asarray(x) for x in pooling.split_savings(*shares, slots_short=slots, **fleets)))
    if compression is None:
        shrunk = [(0.0, float(count)) for count in saved.dual_instances_count]
    else:
        shrunk = [_compressed(workload, *at, compression, fleets) for at in zip(thresholds, slots, strict=True)]
    law = np.asarray(pooling.work_savings(short.work_frac, slots, single, engine))
    best = _worth_it(pooling.thresholds_by_count(workload, pools_count, context, engine))
    forgiving = _forgiving(workload, context, float(best[0].threshold_tokens[0]), engine)
    price = float(price_usd_per_hour)
    study = PoolStudy(
        context_tokens=context,
        rate_rps=rate,
        slots_single=single,
        everything=every,
        threshold_tokens=thresholds,
        short=short,
        slots_short=slots,
        savings=saved,
        law_frac=law,
        paged_frac=_paged(every, short, long, engine),
        best=best,
        forgiving_tokens=forgiving,
        usd_per_year=fleet_cost(saved.dual_instances_count, gpus_per_instance, price).usd_per_year,
        single_usd_per_year=float(fleet_cost(float(saved.homo_instances_count), gpus_per_instance, price).usd_per_year),
        compressed_frac=np.array([share for share, _ in shrunk]),
        compressed_instances_count=np.array([fleet for _, fleet in shrunk]),
        notes=(),
    )
    return replace(study, notes=tuple(_notes(study, engine, headroom, pools_count)))


def _worth_it(by_count: tuple[Thresholds, ...]) -> tuple[Thresholds, ...]:
    """Two pools, and more while each saves something; what another saves falls with their number."""
    more = np.diff([found.saved_frac for found in by_count[1:]]) >= _WORTH_FRAC
    return by_count[1 : 2 + int(np.argmin(np.append(more, False)))]


def _compressed(
    workload: Workload, threshold: float, slots: float, compression: Compression, fleets: dict[str, Any]
) -> tuple[float, float]:
    """(share of the requests compressed, instances of the split fleet with its compressors)."""
    found = compressed(workload, float(threshold), compression)
    short, every = between(found.workload, -np.inf, threshold), whole(found.workload)
    shares = short.request_frac, short.work_frac, every.iterations_count
    pools = pooling.split_savings(*shares, slots_short=slots, **fleets).dual_instances_count
    busy = found.compressors_per_rps * fleets["arrival_rps"] * float(compression.instances_per_compressor)
    return found.compressed_frac, float(pools + pooling.instances_count(jnp.asarray(busy)))


def _thresholds(given: Any, context: float) -> np.ndarray:
    if given is None:
        return 2.0 ** np.arange(10, np.ceil(np.log2(context))) if context > 1024 else np.array([context / 2])
    values = np.unique(np.atleast_1d(np.asarray(given, np.float64)))
    if not (np.isfinite(values).all() and (values >= 1).all() and (values <= context).all()):
        told = ", ".join(f"{x:g}" for x in values)
        raise InputError(f"thresholds = {told}: accepted are 1 to {context:g}, the context")
    return values


def _paged(every: LengthClass, short: LengthClass, long: LengthClass, engine: SlotEngine) -> np.ndarray:
    """The law with as many sequences per instance as their mean pages allow, instead of C_max reserved for each.

    Never positive: work at mean holding h costs W h / K + H until the cap binds, which is convex in h, and the whole's
    h is the work-weighted mean of the parts' (Jensen).
    """
    kv_tokens = float(engine.blocks_count * engine.block_tokens)

    def price(part: LengthClass) -> Real:
        held = np.where(part.held_tokens > 0, part.held_tokens, 1.0)
        return pooling.slot_s(jnp.clip(jnp.asarray(kv_tokens / held), 1.0, engine.max_sequences_count), engine)

    cost = short.work_frac * price(short) + (1.0 - short.work_frac) * price(long)
    return np.round(np.asarray(1.0 - cost / price(every)), 12) + 0.0  # no -0.0 from rounding


def _forgiving(
    workload: Workload, context: float, best: float, engine: SlotEngine, kept_frac: float = 0.8
) -> tuple[float, float]:
    """The widest run of thresholds around the best one, on a grid of 2 %, whose exact saving is `kept_frac` of its."""
    grid = np.unique(np.append(np.round(np.geomspace(min(64.0, context), context, 350)), best))
    work = between(workload, -np.inf, grid).work_frac
    saved = np.asarray(
        pooling.work_savings(work, pooling.slots_count(grid, engine), pooling.slots_count(context, engine), engine)
    )
    at = int(np.searchsorted(grid, best))
    good = saved >= kept_frac * saved[at]
    low = at - int(np.argmin(np.append(good[: at + 1][::-1], False))) + 1
    high = at + int(np.argmin(np.append(good[at:], False))) - 1
    return float(grid[low]), float(grid[high])


def _notes(s: PoolStudy, engine: SlotEngine, headroom: Headroom, pools_count: int) -> list[str]:
    """Sentences that a planner can check against the table."""
    top = int(np.lexsort((s.law_frac, s.savings.realized_frac))[-1])  # of equal fleets the one with less work
    name = f"{s.threshold_tokens[top]:,.0f}"
    share = 1.0 - float(pooling.slot_s(s.slots_short[top], engine) / pooling.slot_s(s.slots_single, engine))
    lines = [
        f"Of these thresholds {name} is best: below it are {float(s.short.request_frac[top]):.1%} of the requests and "
        f"{float(s.short.work_frac[top]):.1%} of the work, and work in {s.slots_short[top]:.0f} slots costs "
        f"{share:.1%} less than in {s.slots_single:.0f}.",
        f"Eq. (7) of the paper says {float(s.savings.ideal_frac[top]):.1%}: it counts requests, and takes the long "
        "pool to be as fast as the single one was.",
    ]
    low, high = s.forgiving_tokens
    if s.best[0].saved_frac > 0:
        lines.append(
            f"Any threshold from {low:,.0f} to {high:,.0f} keeps 80 % of what the best one, "
            f"{s.best[0].threshold_tokens[0]:,.0f}, saves."
        )
    if len(s.best) + 1 < pools_count:
        lines.append(f"More than {len(s.best) + 1} pools: another saves less than {_WORTH_FRAC:.1%} of the instances.")
    unequal = float(pooling.work_savings(0.0, 1.0, 1.0, engine, headroom))
    if unequal:
        lines.append(
            f"Headroom of {float(headroom.single):g} for one pool against {float(headroom.long):g} for the "
            f"long one alone makes {unequal:.1%}, whatever the traffic."
        )
    if s.savings.realized_frac[top] <= 0:
        lines.append("No threshold here saves an instance; keep one pool.")
    elif not bool(pooling.ceiling_is_safe(s.law_frac[top], float(s.savings.homo_instances_count))):
        lines.append("In so small a fleet whole instances decide; a split pays reliably once it saves one or more.")
    if s.compressed_frac.any():
        fewest = int(np.argmin(s.compressed_instances_count))
        lines.append(
            f"With prompts compressed, {s.threshold_tokens[fewest]:,.0f} is best: {s.compressed_frac[fewest]:.1%} of "
            f"the requests lose part of their prompt, and {s.compressed_instances_count[fewest]:,.0f} instances, "
            f"compressors included, stand against {s.savings.dual_instances_count.min():,.0f} without."
        )
    lines.append(
        f"All this counts slots that reserve the whole context. With pages given out on demand a running "
        f"sequence holds {float(s.everything.held_tokens):,.0f} tokens on average, and the split at {name} "
        + (f"costs {-s.paged_frac[top]:.1%} more." if s.paged_frac[top] < -5e-4 else "saves nothing.")
    )
    return lines
