"""How many sequences run at once: for one context length, and for a distribution of lengths."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag, flag_nonfinite, flag_where
from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.numerics import safe_divide
from dmodels.core.records import Real, Record, jit, quantity

from .activations import activation_bytes
from .budget import kv_budget_bytes, runtime_bytes
from .engines import VLLM, EngineMemory
from .kv import kv_bytes_per_token, kv_reserved_bytes, stage
from .weights import weight_bytes_per_gpu


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
    utilization: Real | None = None,
    block_tokens: Real = 16,
    batched_tokens: Real = 8192,
    max_sequences: Real = 256,
    engine: EngineMemory = VLLM,
) -> Slots:
    """Sequences of `context_tokens` tokens that one instance of tp * pp * dp GPUs holds at once.

    floor(budget / reserved) per attention rank, times dp. `max_sequences` sizes the sampler only; it is no cap.
    Flags: NO_FIT below one sequence; OUT_OF_DOMAIN for lengths or degrees that are not positive, and for tp that
    does not divide the query heads; EXTRAPOLATED beyond the context of the model's config.
    """
    asked = Parallel(tp, pp, dp, ep)
    parallel = Parallel(*(jnp.maximum(degree, 1.0) for degree in (asked.tp, asked.pp, asked.dp, asked.ep)))
    part = stage(model, parallel.pp)
    sequence = kv_reserved_bytes(part, context_tokens, parallel.tp, block_tokens, batched_tokens)
    budget = kv_budget_bytes(model, gpu, parallel, utilization, batched_tokens, max_sequences, engine=engine)
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
        activation_bytes=activation_bytes(model, parallel, batched_tokens, max_sequences, engine),
        runtime_bytes=runtime_bytes(gpu, parallel, engine),
        gpus=parallel.gpus,
        flags=flags,
    )


def sequences_that_fit(budget_bytes: Real, sequence_bytes: Real) -> Real:
    """floor(budget / bytes per sequence), 0 where the budget is negative.

    >>> int(sequences_that_fit(133.4e9, 48_128 * 8192.0))
    338
    """
    return jnp.floor(jnp.maximum(safe_divide(budget_bytes, sequence_bytes, otherwise=0.0), 0.0))


#: What engines ask of a layout (`out_of_domain`).
LAYOUT_RULE = "tp must divide the query heads, pp not exceed the layers, ep not tp * dp"


@jit
def out_of_domain(model: Model, p: Parallel) -> Real:
    """True where no engine runs the layout: a degree below 1 or broken, or query heads that tp does not divide."""
    bad = (p.tp < 1) | (p.pp < 1) | (p.dp < 1) | (p.ep < 1)
    for degree in (p.tp, p.pp, p.dp, p.ep):
        bad = bad | (degree != jnp.floor(degree))
    uneven = (model.n_q_heads > 0) & (jnp.mod(model.n_q_heads, jnp.maximum(p.tp, 1.0)) != 0)
    return bad | uneven | (p.pp > model.n_layers) | (p.ep > p.tp * p.dp)


def check_layout(model: Model, p: Parallel, what: str = "parallel") -> None:
    """Refuse a layout that is `out_of_domain`, of the workers that `what` names."""
    if bool(out_of_domain(model, p)):
        degrees = ", ".join(f"{name} {float(getattr(p, name)):g}" for name in ("tp", "pp", "dp", "ep"))
        raise InputError(f"{what} = {degrees}: no engine runs the layout: {LAYOUT_RULE}")


#: Nodes and weights of Gauss-Legendre on [-1, 1].
_NODES, _MASSES = (axis.tolist() for axis in np.polynomial.legendre.leggauss(8))


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
    to_limit: Real = 0.0,
) -> Footprint:
    r"""The footprint of a running sequence under a joint distribution of lengths, given by atoms on the last axis.

    A request that decodes o tokens is resident for o iterations, so a random instant sees it with weight
    proportional to $w\,o$ (length bias) and, within it, at a uniform point of its decode: $i + u\,o$ tokens,
    $u \sim U(0, 1)$. Moments over u by 8-point Gauss-Legendre, exact up to one block where the reserved bytes grow
    linearly with the tokens. Time in prefill is not counted. With `to_limit` it holds i + o tokens all the time.
    """
    i, o = jnp.asarray(input_tokens, float), jnp.asarray(output_tokens, float)
    w = jnp.ones_like(o) if weights is None else jnp.asarray(weights, float)
    seen = w * o / jnp.sum(w * o, axis=-1, keepdims=True)
    at = [i + jnp.maximum(0.5 * (1.0 + node), to_limit) * o for node in _NODES]
    held = [kv_reserved_bytes(model, tokens, tp, block_tokens, batched_tokens) for tokens in at]

    def mean_of(values: list[Real]) -> Real:  # a sum, which XLA fuses; an axis of its own for the nodes would be stored
        return sum(0.5 * mass * jnp.sum(seen * value, axis=-1) for mass, value in zip(_MASSES, values, strict=True))

    mean = mean_of(held)
    away = [value - mean[..., None] for value in held]
    variance = mean_of([x**2 for x in away])
    sd = jnp.sqrt(variance)
    alike = sd <= 1e-9 * mean  # what differs is rounding
    skewness = safe_divide(mean_of([x**3 for x in away]), jnp.where(alike, 0.0, variance * sd), otherwise=0.0)
    ends = kv_reserved_bytes(model, i + o, tp, block_tokens, batched_tokens)
    largest = jnp.max(jnp.where(seen > 0, ends, 0.0), axis=-1)
    return Footprint(mean, sd, largest, skewness)


class Residents(NamedTuple):
    """The requests that one instance runs at once under a mix of lengths."""

    count: Real  # of the whole instance, every attention rank's; 0 where the longest request does not fit
    budget_bytes: Real  # per GPU, for KV
    each: Footprint  # per GPU, of one of them


@jit
def residents(
    model: Model,
    gpu: GPU,
    parallel: Parallel,
    input_tokens: Real,
    output_tokens: Real,
    weights: Real | None = None,
    utilization: Real | None = None,
    block_tokens: Real = 16,
    batched_tokens: Real = 8192,
    probability: Real = 0.99,
    max_sequences: Real = 256,
    engine: EngineMemory = VLLM,
) -> Residents:
    """How many requests an instance runs at once, their lengths being atoms on the last axis (see `footprint`).

    `serve`, `predict`, `fit`, `plan` and `size` all ask here. A whole number per attention rank: as many as stay within
    the budget with `probability` (`sequences_by_normal`), and never fewer than fit whatever their lengths, the budget
    over the longest one's bytes. None where the longest does not fit: an engine refuses what its cache cannot hold, so
    the count is at least 1 exactly where `concurrent_sequences` finds room for the longest.
    """
    budget = kv_budget_bytes(model, gpu, parallel, utilization, batched_tokens, max_sequences, engine=engine)
    over_atoms = lambda leaf: jnp.asarray(leaf)[..., None] if jnp.ndim(leaf) else leaf
    part, tp, block, batched, limit = jax.tree.map(
        over_atoms, (stage(model, parallel.pp), parallel.tp, block_tokens, batched_tokens, engine.to_limit)
    )
    each = footprint(
        part, input_tokens, output_tokens, weights, tp, block_tokens=block, batched_tokens=batched, to_limit=limit
    )
    certain = sequences_that_fit(budget, each.max_bytes)
    likely = sequences_by_normal(budget, each, probability)
    return Residents(parallel.dp * jnp.where(certain >= 1, jnp.maximum(certain, likely), 0.0), budget, each)


def residents_of_length(
    model: Model,
    gpu: GPU,
    parallel: Parallel,
    isl: Real,
    osl: Real,
    utilization: Real | None = None,
    engine: EngineMemory = VLLM,
) -> Real:
    """The count of `residents` where every request has `isl` prompt and `osl` output tokens; all arguments broadcast.

    At 7,000 + 1,000 tokens, one H100 holds 5 requests of Gemma-3-27B, and two hold 2 of Llama-3.1-70B in BF16.
    """
    rank = max(map(jnp.ndim, jax.tree.leaves((model, gpu, parallel, isl, osl, utilization, engine))))
    prompt, answer = (jnp.reshape(x, (*jnp.shape(x), 1) if jnp.ndim(x) else (1,) * (rank + 1)) for x in (isl, osl))
    return residents(model, gpu, parallel, prompt, answer, utilization=utilization, engine=engine).count


def sequences_by_normal(budget_bytes: Real, one: Footprint, probability: Real = 0.99) -> Real:
    r"""Independent running sequences whose total stays within the budget with `probability` (of at least 0.5).

    The largest n with $n m + z s \sqrt{n} + \tfrac16 (z^2 - 1)\, \gamma s$ within the budget, quadratic in the root of
    n: the normal quantile and its first Cornish-Fisher correction for the skewness $\gamma$ of one footprint. The next
    terms are of order $s/\sqrt{n}$: good for tens of sequences; at few, `sequences_by_bernstein` is safe.
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
