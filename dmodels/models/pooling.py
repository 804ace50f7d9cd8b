"""One pool or several: what a fleet saves when short requests get instances of their own.

The model is that of arXiv:2604.09613 (token-budget pool routing). An instance with N slots takes t(N) = W + H N per
iteration and a request holds a slot for I = ceil(L_in / 512) + L_out iterations, so with tau(N) = t(N) / N

    mu = 1 / (E[I] tau(N))                                     requests per second and instance, all slots busy
    savings = 1 - [b_s tau(N_s) w + b_l tau(N_h) (1 - w)] / (b_h tau(N_h))

where w is the short share of the *work* (iterations), not of the requests, and b are headroom factors. Counts are
instances; an instance may be several GPUs (`models.cost`). Formulas broadcast and differentiate; those that find
thresholds work on the host.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag, flag_nonfinite, flag_where
from dmodels.core.numerics import ceil_div, safe_divide
from dmodels.core.records import Real, Record, float64, quantity
from dmodels.core.workload import Workload
from dmodels.solvers import breakpoints

from .memory import sequences_that_fit
from .traffic import CHUNK_TOKENS, between


class SlotEngine(Record):
    """An instance with so many slots: what it holds, and how fast it steps. Defaults: the paper's (Appendix A)."""

    base_s: Real = quantity(8e-3)  # W: an iteration without sequences
    per_sequence_s: Real = quantity(0.65e-3)  # H: more for every active sequence
    blocks_count: Real = quantity(65536.0)  # KV blocks of the instance
    block_tokens: Real = quantity(16.0)
    max_sequences_count: Real = quantity(128.0)  # the scheduler's cap


class Headroom(Record):
    """Factors by which each fleet is sized above its mean load; the paper's are 1.08, 1.05, 1.02 (its Section 4.3)."""

    single: Real = quantity(1.0)
    short: Real = quantity(1.0)
    long: Real = quantity(1.0)


#: The paper's headroom, plain numbers so that importing this module makes no arrays.
PAPER_HEADROOM = {"single": 1.08, "short": 1.05, "long": 1.02}


class Savings(NamedTuple):
    """What a split saves, by the paper's formulas and with whole instances."""

    ideal_frac: Real  # Eq. (7): alpha (1 - 1/rho)
    routed_frac: Real  # Eq. (8): with the long pool's own rate, no ceilings, no headroom
    realized_frac: Real  # with whole instances and headroom
    homo_instances_count: Real
    dual_instances_count: Real
    short_instances_count: Real
    long_instances_count: Real
    flags: Real


def slots_count(context_tokens: Real, engine: SlotEngine) -> Real:
    r"""$N_{seq}(B) = \min(128, \lfloor 65536 / \lceil B/16 \rceil \rfloor)$ (Appendix A): slots that each reserve B.

    >>> [float(slots_count(b, SlotEngine())) for b in (4096, 8192, 16384, 65536)]
    [128.0, 128.0, 64.0, 16.0]
    """
    blocks = ceil_div(context_tokens, engine.block_tokens)
    return jnp.minimum(engine.max_sequences_count, sequences_that_fit(engine.blocks_count, blocks))


def iteration_s(slots: Real, engine: SlotEngine) -> Real:
    """t(N) = W + H N, Eq. (9). 18.4 ms at 16 slots, 91.2 ms at 128."""
    return engine.base_s + engine.per_sequence_s * slots


def slot_s(slots: Real, engine: SlotEngine) -> Real:
    """tau(N) = t(N) / N: instance-seconds that one iteration of one request costs. Infinite without slots.

    >>> round(1e3 * float(slot_s(16.0, SlotEngine())), 4), round(1e3 * float(slot_s(128.0, SlotEngine())), 4)
    (1.15, 0.7125)
    """
    return safe_divide(iteration_s(slots, engine), jnp.asarray(slots))


def throughput_rps(slots: Real, iterations_count: Real, engine: SlotEngine) -> Real:
    r"""$\mu = N / E[S] = 1 / (E[I]\,\tau(N))$ requests per second of an instance whose slots are all busy (App. A).

    >>> round(float(throughput_rps(16.0, 290.0, SlotEngine())), 2)  # the paper: about 3.0
    3.0
    """
    return 1.0 / (iterations_count * slot_s(slots, engine))


def instances_count(load: Real) -> Real:
    """Whole instances that carry `load` instances' worth of work; rounding noise of 1e-12 does not buy another one."""
    return jnp.ceil(load * (1.0 - 1e-12))


def ideal_savings(short_frac: Real, rho: Real) -> Real:
    r"""$\alpha (1 - 1/\rho)$, Eq. (7): right only where the long pool is as fast as the single one was.

    >>> round(float(ideal_savings(0.8, 4.0)), 3)
    0.6
    """
    return short_frac * (1.0 - 1.0 / rho)


def routed_savings(short_frac: Real, rho_short: Real, rho_long: Real) -> Real:
    r"""$1 - \alpha/\rho_s - (1 - \alpha)/\rho_l$, $\rho = \mu_{pool} / \mu_{single}$: Eq. (8) over the single fleet.

    Negative, i.e. the split costs more, iff $\rho_l < (1 - \alpha) / (1 - \alpha/\rho_s)$ (`break_even_rho_long`).
    """
    return 1.0 - short_frac / rho_short - (1.0 - short_frac) / rho_long


def break_even_rho_long(short_frac: Real, rho_short: Real) -> Real:
    """The long pool's relative rate below which splitting costs more (without ceilings)."""
    return safe_divide(1.0 - short_frac, 1.0 - short_frac / rho_short)


def work_savings(
    work_frac: Real, slots_short: Real, slots_single: Real, engine: SlotEngine, headroom: Headroom | None = None
) -> Real:
    r"""$1 - [b_s \tau(N_s) w + b_l \tau(N_h)(1-w)] / (b_h \tau(N_h))$: the exact law, w = short share of iterations.

    With equal headroom it is w (1 - tau_s/tau_h), at most 1 - 0.7125/1.15 = 38 % for 128 against 16 slots. Without any
    short traffic (w = 0) the paper's unequal headroom alone "saves" 1 - 1.02/1.08 = 5.6 %.

    >>> round(float(work_savings(1.0, 128.0, 16.0, SlotEngine())), 4)
    0.3804
    """
    b = Headroom() if headroom is None else headroom
    short = b.short * slot_s(slots_short, engine) * work_frac
    long = b.long * slot_s(slots_single, engine) * (1.0 - work_frac)
    return 1.0 - (short + long) / (b.single * slot_s(slots_single, engine))


def savings(
    short_frac: Real,
    single_rps: Real,
    short_rps: Real,
    long_rps: Real,
    arrival_rps: Real = 1.0,
    headroom: Headroom | None = None,
) -> Savings:
    r"""Fleets and savings from the rates of one instance in each pool, Eqs. (6) to (8), with ceilings and headroom.

    `short_frac` is alpha; `single_rps`, `short_rps`, `long_rps` are mu of the single, short and long pool *for the
    requests that each gets*. A pool that gets no requests needs no instance.

    >>> s = savings(0.917, 3.0, 13.5, 0.37, 1000.0)
    >>> round(float(s.ideal_frac), 3), round(float(s.routed_frac), 3), float(s.dual_instances_count)
    (0.713, 0.123, 293.0)
    """
    b = Headroom() if headroom is None else headroom
    alpha, single, short, long, arrival = (
        jnp.asarray(x, jnp.result_type(float)) for x in (short_frac, single_rps, short_rps, long_rps, arrival_rps)
    )
    bad = (alpha < 0) | (alpha > 1) | (single <= 0) | (arrival < 0)
    bad = bad | ((alpha > 0) & ~(short > 0)) | ((alpha < 1) & ~(long > 0))
    # a pool without requests may have any rate, even 0: it carries no load
    single_load, short_load, long_load = (
        safe_divide(share, rate, 0.0)
        for share, rate in ((jnp.ones_like(single), single), (alpha, short), (1.0 - alpha, long))
    )
    homo = instances_count(b.single * arrival * single_load)
    short_count = instances_count(b.short * arrival * short_load)
    long_count = instances_count(b.long * arrival * long_load)
    dual = short_count + long_count
    ideal = jnp.where(bad, jnp.nan, alpha - single * short_load)
    routed = jnp.where(bad, jnp.nan, 1.0 - single * (short_load + long_load))
    realized = jnp.where(bad, jnp.nan, 1.0 - safe_divide(dual, homo, 1.0))
    flags = flag_where(bad, Flag.OUT_OF_DOMAIN) | flag_nonfinite(ideal, routed, realized)
    return Savings(ideal, routed, realized, homo, dual, short_count, long_count, flags)


def split_savings(
    request_frac: Real,
    work_frac: Real,
    iterations_count: Real,
    slots_short: Real,
    slots_single: Real,
    arrival_rps: Real,
    engine: SlotEngine,
    headroom: Headroom | None = None,
    slots_long: Real | None = None,
) -> Savings:
    """`savings` with every rate from the timing model: the whole path from a trace's class shares to instances.

    `request_frac`, `work_frac`: short share of requests and of iterations; `iterations_count`: E[I] over all requests.
    """
    slots_long = slots_single if slots_long is None else slots_long
    alpha, work = jnp.asarray(request_frac), jnp.asarray(work_frac)
    short_mean = safe_divide(work * iterations_count, alpha, 1.0)
    long_mean = safe_divide((1.0 - work) * iterations_count, 1.0 - alpha, 1.0)
    return savings(
        alpha,
        throughput_rps(slots_single, iterations_count, engine),
        throughput_rps(slots_short, short_mean, engine),
        throughput_rps(slots_long, long_mean, engine),
        arrival_rps,
        headroom,
    )


def ceiling_is_safe(saved_frac: Real, load_instances: Real) -> Real:
    """True where whole instances cannot make a split of true saving `saved_frac` cost more than one pool.

    Two ceilings add less than 2, one is saved: the split needs at most 1 - s x + 1 instances more, none if s x >= 1.
    """
    return saved_frac * load_instances >= 1.0


class Thresholds(NamedTuple):
    """The best thresholds on total tokens for a number of pools."""

    threshold_tokens: np.ndarray  # (pools,) upper context of each pool; the last is the single pool's
    slots_count: np.ndarray
    work_frac: np.ndarray
    saved_frac: float  # of instances, no ceilings, equal headroom


def best_thresholds(
    workload: Workload,
    pools_count: int,
    context_tokens: float,
    engine: SlotEngine | None = None,
    chunk_tokens: float = CHUNK_TOKENS,
) -> Thresholds:
    """Contexts of `pools_count` pools that need the fewest instances, over *all* thresholds (`thresholds_by_count`)."""
    return thresholds_by_count(workload, pools_count, context_tokens, engine, chunk_tokens)[-1]


@float64
def thresholds_by_count(
    workload: Workload,
    pools_count: int,
    context_tokens: float,
    engine: SlotEngine | None = None,
    chunk_tokens: float = CHUNK_TOKENS,
) -> tuple[Thresholds, ...]:
    r"""The best contexts of one pool, of two, ... of `pools_count`, or of as many as can differ in their slots.

    With A(B) the work of requests up to B, the fleet is proportional to $\sum_j \tau(N(B_j)) (A(B_j) - A(B_{j-1}))$,
    $B_k$ = `context_tokens`. The price depends on B through the whole number N(B) only, so the longest context of each
    N dominates every other with that N: those are the candidates. For two pools and N = K/B without rounding the best
    is the threshold that maximises $\phi(B)(B_H - B)$, whatever W, H and K.
    """
    engine = SlotEngine() if engine is None else engine
    slots_single = float(slots_count(context_tokens, engine))
    if not slots_single >= 1:
        held = float(engine.blocks_count * engine.block_tokens)
        raise InputError(f"context_tokens = {context_tokens:g}: accepted is at most {held:g}, what an instance holds")
    most = min(float(engine.max_sequences_count), float(engine.blocks_count))
    slots = np.arange(np.floor(most), slots_single - 1, -1)
    longest = np.unique(np.floor(engine.blocks_count / slots)) * engine.block_tokens
    candidates = np.append(longest[longest < context_tokens], context_tokens)
    slots = np.asarray(slots_count(candidates, engine))
    price = np.asarray(slot_s(slots, engine))
    reached = between(workload, -np.inf, candidates, chunk_tokens).work_frac
    reached[-1] = 1.0
    potential = breakpoints.solve(price, reached, min(pools_count, max(len(price), 2))).certificate["potential"]
    found = []
    for rows in range(1, len(potential) + 1):
        index = breakpoints.breaks(price, reached, potential[:rows])
        share = np.diff(reached[index], prepend=0.0)
        found.append(
            Thresholds(candidates[index], slots[index], share, float(1.0 - potential[rows - 1, -1] / price[-1]))
        )
    return tuple(found)
