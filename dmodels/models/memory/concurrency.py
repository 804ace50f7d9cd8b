"""How many sequences run at once: for one context length, and for a distribution of lengths."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri

from dmodels.core.flags import Flag, flag_nonfinite, flag_where
from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.numerics import safe_divide
from dmodels.core.records import Real, Record, jit, quantity

from .kv import kv_bytes_per_token, kv_reserved_bytes, stage
from .weights import activation_bytes, kv_budget_bytes, runtime_bytes, weight_bytes_per_gpu


class Slots(eqx.Module):
    """Sequences that fit in one instance, and where the memory of its fullest GPU goes."""

    slots_count: Real  # of the whole instance: every attention rank's
    kv_bytes_per_token: Real  # per GPU, of a long sequence
    sequence_bytes: Real  # per GPU, reserved for one sequence
    budget_bytes: Real  # per GPU, for KV; negative: what is missing
    free_bytes: Real  # per GPU, of the budget left when all slots are taken
    weight_bytes: Real  # per GPU
    activation_bytes: Real  # per GPU
    runtime_bytes: Real  # per GPU
    gpus: Real  # of the instance
    flags: Real


@jit  # one program, where a hundred small ones would be compiled for each new shape
def concurrent_sequences(
    model: Model,
    gpu: GPU,
    context_tokens: Real,
    tp: Real = 1,
    pp: Real = 1,
    dp: Real = 1,
    ep: Real = 1,
    utilization: Real = 0.9,
    block_tokens: Real = 16,
    batched_tokens: Real = 8192,
    max_sequences: Real = 256,
) -> Slots:
    """Sequences of `context_tokens` tokens that one instance of tp * pp * dp GPUs holds at once.

    floor(budget / reserved) per attention rank, times dp. `max_sequences` sizes the logits buffer only; it is no cap.
    Flags: NO_FIT below one sequence; OUT_OF_DOMAIN for lengths or degrees that are not positive, and for tp that
    does not divide the query heads; EXTRAPOLATED beyond the context of the model's config.
    """
    asked = Parallel(tp, pp, dp, ep)
    parallel = Parallel(*(jnp.maximum(degree, 1.0) for degree in (asked.tp, asked.pp, asked.dp, asked.ep)))
    part = stage(model, parallel.pp)
    sequence = kv_reserved_bytes(part, context_tokens, parallel.tp, block_tokens, batched_tokens)
    budget = kv_budget_bytes(model, gpu, parallel, utilization, batched_tokens, max_sequences)
    slots = sequences_that_fit(budget, sequence)
    bad = out_of_domain(model, asked) | (context_tokens * jnp.ones_like(parallel.tp) < 1)
    beyond = (model.max_context_tokens > 0) & (context_tokens > model.max_context_tokens)
    flags = (
        flag_where(slots < 1, Flag.NO_FIT)
        | flag_where(bad, Flag.OUT_OF_DOMAIN)
        | flag_where(beyond, Flag.EXTRAPOLATED)
        | flag_nonfinite(budget, sequence, slots)
    )
    return Slots(
        slots_count=slots * parallel.dp,
        kv_bytes_per_token=kv_bytes_per_token(part, parallel.tp),
        sequence_bytes=sequence,
        budget_bytes=budget,
        free_bytes=budget - slots * sequence,
        weight_bytes=weight_bytes_per_gpu(model, parallel).total_bytes,
        activation_bytes=activation_bytes(model, parallel.tp, batched_tokens, max_sequences),
        runtime_bytes=runtime_bytes(parallel),
        gpus=parallel.gpus,
        flags=flags,
    )


def sequences_that_fit(budget_bytes: Real, sequence_bytes: Real) -> Real:
    """floor(budget / bytes per sequence), 0 where the budget is negative.

    >>> int(sequences_that_fit(133.4e9, 48_128 * 8192.0))
    338
    """
    return jnp.floor(jnp.maximum(safe_divide(budget_bytes, sequence_bytes, otherwise=0.0), 0.0))


def out_of_domain(model: Model, p: Parallel) -> Real:
    """True where no engine runs the layout: a degree below 1 or broken, or query heads that tp does not divide."""
    bad = (p.tp < 1) | (p.pp < 1) | (p.dp < 1) | (p.ep < 1)
    for degree in (p.tp, p.pp, p.dp, p.ep):
        bad = bad | (degree != jnp.floor(degree))
    uneven = (model.n_q_heads > 0) & (jnp.mod(model.n_q_heads, jnp.maximum(p.tp, 1.0)) != 0)
    return bad | uneven | (p.pp > model.n_layers) | (p.ep > p.tp * p.dp)


class Footprint(Record):
    """KV bytes per GPU of one sequence seen at a random instant: its moments, and the largest."""

    mean_bytes: Real = quantity()
    sd_bytes: Real = quantity()
    max_bytes: Real = quantity()
    skewness: Real = quantity(0.0)  # third central moment over sd cubed


@jit
def footprint(
    model: Model,
    input_tokens: Real,
    output_tokens: Real,
    weights: Real | None = None,
    tp: Real = 1,
    block_tokens: Real = 16,
    batched_tokens: Real = 8192,
) -> Footprint:
    r"""The footprint of a running sequence under a joint distribution of lengths, given by atoms on the last axis.

    A request that decodes o tokens is resident for o iterations, so a random instant sees it with weight
    proportional to $w\,o$ (length bias) and, within it, at a uniform point of its decode: $i + u\,o$ tokens,
    $u \sim U(0, 1)$. Moments over u by 8-point Gauss-Legendre, exact up to one block where the reserved bytes grow
    linearly with the tokens. Time in prefill is not counted.
    """
    i, o = jnp.asarray(input_tokens, float), jnp.asarray(output_tokens, float)
    w = jnp.ones_like(o) if weights is None else jnp.asarray(weights, float)
    seen = w * o / jnp.sum(w * o, axis=-1, keepdims=True)
    nodes, mass = np.polynomial.legendre.leggauss(8)
    at = [i + 0.5 * (1.0 + float(node)) * o for node in nodes]
    held = jnp.stack([kv_reserved_bytes(model, tokens, tp, block_tokens, batched_tokens) for tokens in at])
    weight = 0.5 * mass.reshape((8,) + (1,) * seen.ndim) * seen[None]
    mean = jnp.sum(weight * held, axis=(0, -1))
    away = held - mean[None, ..., None]
    variance = jnp.sum(weight * away**2, axis=(0, -1))
    third = jnp.sum(weight * away**3, axis=(0, -1))
    skewness = safe_divide(third, variance**1.5, otherwise=0.0)
    ends = kv_reserved_bytes(model, i + o, tp, block_tokens, batched_tokens)
    largest = jnp.max(jnp.where(seen > 0, ends, 0.0), axis=-1)
    return Footprint(mean, jnp.sqrt(variance), largest, skewness)


def occupancy_bytes(sequences: Real, one: Footprint, probability: Real = 0.99) -> Real:
    r"""KV bytes per GPU that `sequences` independent running sequences stay below with `probability`.

    $n m + z s \sqrt{n} + \tfrac16 (z^2 - 1)\, \gamma s$: the normal quantile and its first Cornish-Fisher correction
    for the skewness $\gamma$ of one footprint; the next terms are of order $s/\sqrt{n}$. An approximation for many
    sequences (tens); at few, `sequences_by_bernstein` is safe.
    """
    z = ndtri(probability)
    return sequences * one.mean_bytes + z * jnp.sqrt(sequences) * one.sd_bytes + _skew_bytes(z, one)


def sequences_by_normal(budget_bytes: Real, one: Footprint, probability: Real = 0.99) -> Real:
    """Independent running sequences whose total stays within the budget with `probability` (of at least 0.5).

    The largest n with `occupancy_bytes(n, one, probability)` <= budget: a quadratic in the square root of n.
    """
    z, m = ndtri(probability), one.mean_bytes
    b = jnp.maximum(budget_bytes - _skew_bytes(z, one), 0.0)
    root = (-z * one.sd_bytes + jnp.sqrt((z * one.sd_bytes) ** 2 + 4.0 * m * b)) / (2.0 * m)
    return jnp.floor(root**2)


def _skew_bytes(z: Real, one: Footprint) -> Real:
    return (z**2 - 1.0) / 6.0 * one.skewness * one.sd_bytes


def sequences_by_bernstein(budget_bytes: Real, one: Footprint, probability: Real = 0.99) -> Real:
    r"""As `sequences_by_normal`, but guaranteed at every n by Bernstein's inequality, hence fewer.

    $P(S \ge n m + t) \le \exp(-t^2 / (2 n s^2 + \tfrac23 c t))$ with $c = \max - m$. The largest n with
    $n m + a + \sqrt{a^2 + 2 n s^2 l} \le B$, $l = -\ln(1 - p)$, $a = c\,l/3$.
    """
    m, tail = one.mean_bytes, -jnp.log1p(-probability)
    a = (one.max_bytes - m) * tail / 3.0
    room = jnp.maximum(budget_bytes - 2.0 * a, 0.0)  # B - 2a < 0: not even n = 0 passes
    half = m * (room + a) + one.sd_bytes**2 * tail
    n = (half - jnp.sqrt(jnp.maximum(half**2 - m**2 * room * (room + 2.0 * a), 0.0))) / m**2
    return jnp.floor(n)
