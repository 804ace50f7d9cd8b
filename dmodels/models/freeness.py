r"""Virtual freeness of Phasor: headroom of a prefill worker in time, of a decode worker in space, both without unit.

$\Phi = 1 - U/C$, at most 1, negative where the budget is exceeded (Phasor, Eq. (1) and (2)):

    prefill  U = sum over the queue of alpha l^2 + beta P_m l,   C = P_peak * T_SLO      (FLOP over FLOP)
    decode   U = blocks in use + blocks stranded,                C = blocks of the KV pool

The paper divides blocks by the 32 GB of the whole GPU; in one unit, and with the weights taken off, Phi_S spans
[0, 1]. Read its way it cannot fall below 0.475, so a trigger at 0.168 would never fire.
"""

from __future__ import annotations

import jax.numpy as jnp

from dmodels.core.numerics import safe_divide
from dmodels.core.records import Real, Record, quantity


class PrefillCost(Record):
    """alpha l^2 + beta P_m l + base, FLOP or FLOP-equivalents."""

    alpha: Real = quantity()  # per token squared: attention
    beta: Real = quantity()  # per token, of the reference model
    scale: Real = quantity(1.0)  # P_m: parameters over the reference model's; on the linear term only, as printed
    base_flop: Real = quantity(0.0)  # what the shortest prompt costs (weights are read once); the paper has none


def prefill_cost_flop(tokens: Real, cost: PrefillCost) -> Real:
    """Virtual load of one prompt.

    >>> printed = PrefillCost(4.25e-5 * 1e12, 6.80e-3 * 1e12)       # Table 4, if its unit is TFLOP
    >>> round(float(prefill_cost_flop(1024.0, printed)) / 121e12, 3)   # the text says 0.116 s
    0.426
    """
    return cost.alpha * tokens**2 + cost.beta * cost.scale * tokens + cost.base_flop


def prefill_freeness(queued_flop: Real, peak_flop_per_s: Real, slo_s: Real) -> Real:
    r"""$\Phi_T = 1 - U/(P_{peak} T_{SLO})$ in $(-\infty, 1]$.

    First come first served with exact costs: Phi_T >= 0 *after* a dispatch iff the request's wait plus its prefill is
    within the SLO.
    """
    return 1.0 - queued_flop / (peak_flop_per_s * slo_s)


def freeness_after(queued_flop: Real, request_flop: Real, peak_flop_per_s: Real, slo_s: Real) -> Real:
    r"""$\Phi(w) - u_r/C_w$: freeness once worker w has the request, what a router should maximise.

    Between equal workers the order is that of Phi. Between unequal ones Phi before dispatch sends a request to an idle
    slow worker past a fast one with a little work: with speeds 1 and 10, 5 units of work and 1 queued on the fast one,
    it ends at 5.0 s instead of 0.6.
    """
    return prefill_freeness(queued_flop + request_flop, peak_flop_per_s, slo_s)


def decode_freeness(used_blocks: Real, stranded_blocks: Real, total_blocks: Real) -> Real:
    """Phi_S; all three in blocks of the KV pool. In [0, 1] when used + stranded <= total."""
    return 1.0 - (used_blocks + stranded_blocks) / total_blocks


def requests_that_fit(free_blocks: Real, request_blocks: Real) -> Real:
    """How many requests of k blocks a worker with f free blocks takes: floor(f/k)."""
    return jnp.floor(free_blocks / request_blocks)


def stranded_blocks(free_blocks: Real, request_blocks: Real) -> Real:
    r"""H_frag, made exact: free blocks that no request of k blocks can use, $f - k\lfloor f/k\rfloor$.

    It depends on the request as much as on the worker: 10 free blocks strand 1 for k = 3, none for k = 5, all for 11.
    """
    return free_blocks - request_blocks * requests_that_fit(free_blocks, request_blocks)


def expected_stranded_blocks(free_blocks: Real, request_blocks: Real, weight_frac: Real) -> Real:
    """H_frag for a distribution of request sizes (last axis) with weights that sum to 1."""
    each = stranded_blocks(jnp.asarray(free_blocks)[..., None], request_blocks)
    return jnp.sum(weight_frac * each, axis=-1)


def scattered_requests(free_blocks: Real, request_blocks: Real) -> Real:
    r"""Requests of k blocks lost because free blocks lie on different workers (last axis):
    $\lfloor\sum f/k\rfloor - \sum\lfloor f/k\rfloor$.

    What moving KV states can win back, at most. Less than the number of workers: four workers with 3 free blocks each
    and k = 4 lose 3 requests.
    """
    together = jnp.floor(jnp.sum(free_blocks, axis=-1) / request_blocks)
    return together - jnp.sum(requests_that_fit(free_blocks, jnp.asarray(request_blocks)[..., None]), axis=-1)


def fragmentation_frac(free_blocks: Real, request_blocks: Real) -> Real:
    """Share of all free blocks (last axis: workers) that is stranded; 0 where nothing is free."""
    lost = jnp.sum(stranded_blocks(free_blocks, jnp.asarray(request_blocks)[..., None]), axis=-1)
    return safe_divide(lost, jnp.sum(free_blocks, axis=-1), 0.0)


def starvation_service_s(batch: Real, step_s: Real, output_tokens: Real, workers: Real) -> Real:
    r"""Prefill service time from which decode starves below `batch` sequences: $n = x\,E[O]\,t(n)$ at
    $x = m/S$ gives $S = m\,E[O]\,t(n)/n$.

    m prefill workers that are busy emit m/S requests a second however long their queues are, so a backlog alone keeps
    decode *fuller* than before; only slower service empties it. Decode at 48 sequences falls under 16 in a burst only
    if S rises (m / arrival rate before) by the same factor: the paper's scissor needs prefill at a third of its rate.
    """
    return workers * output_tokens * step_s / batch
