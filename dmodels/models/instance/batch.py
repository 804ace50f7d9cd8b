"""The requests that decode at a time, their steps, and how their number swings."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.numerics import clip, maximum, minimum, safe_divide
from dmodels.core.records import Real

from ..traffic import LEVELS, Requests
from .ladder import UNBOUNDED_S, StepTable
from .records import Engine
from .roofline import Roofline


class Batch(NamedTuple):
    """The requests that decode at a time, and their steps."""

    count: Real  # n, of the fluid
    alone: Real  # t_0(n)
    extra: Real  # K(n)
    further: Real  # of one more prompt token in a step
    turn: Real  # of a prompt among as many as share a prefill worker's step at most
    single: Real  # what a prompt adds to a step that it has for itself
    begun: Real  # a step with prompts, but for their tokens
    full_alone: Real  # t(n, B): a step whose token budget is full
    lasting: Real  # the same where all steps have long been full, so that who decodes came from them
    full: tuple[Real, Real]  # the same with all slots taken
    busy: Real  # x K(n)
    mean_step: Real
    inertia: Real
    amplified: Real  # variance of what comes over that of a Poisson stream: during a prompt's stall more prompts come
    noise: Real  # the same of the number that decodes
    overload: Real

    @property
    def begets(self) -> Real:
        """1/(1 - x K): during a stall more prompts come."""
        return safe_divide(self.mean_step, self.alone, 0.0)


def batch_of(steps: Roofline | StepTable, requests: Requests, x: Real, slots: Real, engine: Engine) -> Batch:
    n, overload = steps.occupancy(x, requests.decode_steps, slots)
    spread_count = jnp.sqrt(n)
    alones, extras = jax.vmap(steps.times)(jnp.stack([n, n + spread_count]))
    alone, extra, (begun, full) = alones[0], extras[0], steps.filling(n)
    budgets = requests.prefill_tokens / engine.max_num_batched_tokens
    full = jnp.where(full < UNBOUNDED_S, full, alone + safe_divide(extra, budgets, 0.0))
    # Where requests decode K(n) knows how many prompts share a step; a prefill worker's steps take what came meanwhile.
    further = _further(requests.prefill_tokens, engine.max_num_batched_tokens, alone, extra, full)
    together = _shared(requests.prefill_tokens * further, alone + extra, x)
    together = clip(together, 1.0, most_shared(requests.prefill_tokens, engine.max_num_batched_tokens, slots))
    joint = (extra + (together - 1.0) * requests.prefill_tokens * further) / together
    turn = _turn_s(requests.prefill_tokens, engine.max_num_batched_tokens, alone, extra, full, slots)
    single, extra = extra, jnp.where(requests.output_tokens > 0, extra, minimum(joint, turn))
    crowd = requests.decode_steps * safe_divide(engine.max_num_batched_tokens, requests.prefill_tokens, 0.0)
    crowded = steps.full(minimum(crowd, slots))
    lasting = jnp.where(crowded < UNBOUNDED_S, maximum(crowded, full), full)
    # Own inertia of the batch: 1 where steps cost the same at any batch, less where a fuller batch is slower, so that
    # it fills further. A birth-death chain with departures n/(E t(n)) has the variance n/inertia about its fluid n.
    inertia = clip(1.0 - safe_divide(alones[1] - alone, alone, 0.0) * spread_count, 1e-3, 1.0)
    busy = x * extra
    amplified = safe_divide(1.0, 1.0 - busy) ** 2
    return Batch(
        n,
        alone,
        extra,
        further,
        turn,
        single,
        begun,
        full,
        lasting,
        steps.times(slots * _decoding(requests, engine)),
        busy,
        safe_divide(alone, 1.0 - busy),
        inertia,
        amplified,
        noise(requests, amplified),
        overload,
    )


def _decoding(requests: Requests, engine: Engine) -> Real:
    """Share of the steps of a request in its slot that decode: not its prompt's."""
    own = maximum(requests.prefill_tokens / engine.max_num_batched_tokens, 1.0)
    return requests.decode_steps / (requests.decode_steps + own)


#: Weights of `LEVELS` for the mean of one draw, and of the smaller of two, linear in between.
_ONE = 0.5 * (np.diff(LEVELS, append=1.0) + np.diff(LEVELS, prepend=0.0))
_SMALLER = 2.0 * _ONE * (1.0 - LEVELS) + (np.diff(LEVELS, prepend=0.0) ** 2 - np.diff(LEVELS, append=1.0) ** 2) / 3.0


def noise(requests: Requests, amplified: Real) -> Real:
    r"""Variance of the number that decodes over that of Poisson streams, $1 - \kappa + \kappa (1 - xK)^{-2}$.

    Of M/G/inf's variance the arrivals make a share $\kappa = E[\min(G_1, G_2)] / E[G]$ of two answers, 1 if all are of
    one length and one half if these are exponential; their lengths make the rest.
    """
    answers = maximum(requests.output_edge_tokens - 1.0, 1e-9)
    share = minimum(safe_divide(answers @ _SMALLER, answers @ _ONE, 0.5), 1.0)
    return 1.0 - share + share * amplified


def _further(prompt: Real, budget: Real, alone: Real, one: Real, full: Real) -> Real:
    """Seconds of one more token in a step that computes a prompt, up to the budget: what the step costs at least is
    paid already. Of prompts beyond the budget, a token's share of their time."""
    room = budget - prompt
    inside = safe_divide(full - alone - one, maximum(room, 1.0))
    most = safe_divide(one + alone * prompt / budget, prompt, 0.0)
    return clip(jnp.where(room > 0, inside, minimum(most, full / budget)), 0.0, most)


def _shared(further: Real, step: Real, x: Real) -> Real:
    """Prompts of a step that takes `step` with one and `further` for each more, k = x (step + (k - 1) further)."""
    room = 1.0 - x * further
    return jnp.where(room > 0, safe_divide(x * (step - further), room), 1e9)


def most_shared(prompt: Real, budget: Real, slots: Real) -> Real:
    """Prompts that a step has room for, at least one."""
    return maximum(minimum(safe_divide(budget, prompt, 1.0), slots), 1.0)


def _turn_s(prompt: Real, budget: Real, alone: Real, one: Real, full: Real, slots: Real) -> Real:
    """Seconds of a prompt in a prefill worker's steps when these hold as many as they can; `one`: what a prompt alone
    adds to the step."""
    together = most_shared(prompt, budget, slots)
    joint = (alone + one + (together - 1.0) * prompt * _further(prompt, budget, alone, one, full)) / together
    return jnp.where(budget > prompt, joint, full * prompt / budget)
