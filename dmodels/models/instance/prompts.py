"""Prompts: what each adds to the steps, those in a backlog that share them, and those that fill them."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dmodels.core.numerics import clip, maximum, minimum, safe_divide
from dmodels.core.records import Real

from ..queueing import PackedSteps, SharedSteps, packed_steps, shared_steps
from ..traffic import LEVELS, Requests
from .batch import Batch, most_shared, noise
from .records import Engine
from .roofline import last_step_of

#: The level of a long prompt.
_LONG = LEVELS.tolist().index(0.98)


class Prompts(NamedTuple):
    """Prompts: those in a backlog share steps, `max_num_batched_tokens` to a step."""

    one: Real  # seconds of a mean prompt
    inside: Real  # seconds of one more token, up to the budget
    beyond: Real  # and of one beyond that
    longer: Real  # what tokens beyond the budget take more than others, in the mean
    filled: Real  # share of a step's budget that it takes, at most 1
    square: Real  # second moment of its time over the mean's square
    busy: Real


def prompts_of(requests: Requests, batch: Batch, x: Real, engine: Engine) -> Prompts:
    """Those of an instance to which x prompts a second go."""
    prompt, budget = requests.prefill_tokens, engine.max_num_batched_tokens
    one = batch.extra + batch.alone * (prompt / budget)
    # Tokens beyond the mean share the step up to the budget; those beyond that take full steps.
    inside, edges = batch.further, requests.prefill_edge_tokens
    most = minimum(batch.full_alone / budget, safe_divide(one, prompt, 0.0))
    beyond = jnp.where(budget > prompt, most, inside)
    over = maximum(edges - maximum(budget, prompt)[..., None], 0.0)
    longer = (beyond - inside) * (0.5 * (over[..., 1:] + over[..., :-1]) @ np.diff(LEVELS))
    # Of a prompt's time only what its own tokens take varies: as much as from the mean to a long prompt.
    long = edges[..., _LONG] - prompt
    own = safe_divide(off(prompt, budget, inside, beyond, edges[..., _LONG]) * prompt, long * one, 0.0)
    spread = safe_divide(requests.prefill_square, prompt**2, 1.0) - 1.0
    square = 1.0 + own**2 * spread
    # Prompts queue for full steps; a prefill worker's that find one under way share the next.
    turn = jnp.where(requests.output_tokens > 0, one, batch.turn)
    filled = minimum(prompt / budget, 1.0)
    return Prompts(one, inside, beyond, longer, filled, square, x * turn)


def off(prompt: Real, budget: Real, inside: Real, beyond: Real, tokens: Real) -> Real:
    """Seconds of a prompt of so many `tokens`, less those of the mean one."""
    edge = maximum(budget, prompt)
    return inside * (minimum(tokens, edge) - prompt) + beyond * maximum(tokens - edge, 0.0)


class Joint(NamedTuple):
    """Prompts that share steps, where the token budget has room for several; otherwise they fill them."""

    there: Real  # how far they share steps (`_sharing`)
    steps: SharedSteps
    packed: PackedSteps
    batch: Batch  # in these steps
    one_s: Real  # a step with one prompt
    alone_s: Real  # what the prompt adds to it
    wait: Real  # for what full steps leave over
    wait_square: Real


def joint_of(requests: Requests, batch: Batch, prompts: Prompts, x: Real, slots: Real, engine: Engine) -> Joint:
    """Steps with prompts lie on the line through the mean one and a full one."""
    prompt, budget, decodes = requests.prefill_tokens, engine.max_num_batched_tokens, requests.output_tokens > 0
    there = _sharing(requests, budget)
    came = maximum(x * batch.mean_step, 1e-6)
    several = minimum(came / -jnp.expm1(-came), budget / maximum(prompt, 1e-9))  # prompts in a step that has any
    mean = batch.alone + batch.extra * several  # such a step
    room = maximum(budget - several * prompt, 0.05 * budget)
    further = clip(safe_divide(batch.full_alone - mean, room) * prompt, 0.0, (mean - batch.alone) / several)
    further = jnp.where(decodes, further, batch.further * prompt)
    single = jnp.where(decodes, maximum(mean - batch.alone - (several - 1.0) * further, 0.0), batch.single)
    most = most_shared(prompt, budget, slots)
    crowds = safe_divide(requests.prefill_square, prompt**2, 1.0)
    # A lone request waits half a step as well, as the calibrated loop of one client does.
    going = jnp.where(decodes, 1.0, 0.0)
    shared = batch.alone + single, further, most, further**2 * (crowds - 1.0), crowds
    steps = shared_steps(x, *shared, bare_s=batch.alone, decoding=going)
    both, left, chance = jnp.where(decodes, there, 0.0), steps.left_over_s, steps.left_over_chance
    amplified = 1.0 / (1.0 - steps.carried) ** 2
    inside = batch._replace(
        amplified=mixed(both, amplified, batch.amplified),
        noise=mixed(both, noise(requests, amplified), batch.noise),
    )
    packed = packed_steps(
        x,
        bare_s=batch.alone,
        begun_s=minimum(batch.begun, batch.full_alone),
        full_s=batch.full_alone,
        budgets=prompt / budget,
        budgets_square=requests.prefill_square / budget**2,
        last=last_step_of(requests, budget),
        step_s=batch.mean_step,
        decoding=going,
        lasting_s=batch.lasting,
        answer_s=requests.decode_steps * batch.full_alone,
    )
    return Joint(
        there,
        steps,
        packed,
        inside,
        batch.alone + single,
        single,
        mixed(there, left, packed.left_over_s),
        mixed(there, safe_divide(2.0 * left**2, chance, 0.0), packed.left_over_square),
    )


def _sharing(requests: Requests, budget: Real) -> Real:
    """How far prompts share steps, rather than fill them: all where two like that of a typical token fit into one, none
    where it fills one."""
    typical = safe_divide(requests.prefill_square, requests.prefill_tokens * budget, 0.0)
    return jnp.where(requests.prefill_tokens > 0, clip(2.0 - 2.0 * typical, 0.0, 1.0), 0.0)


def mixed(share: Real, one: Real, other: Real) -> Real:
    """`share` of one, the rest of the other."""
    return share * one + (1.0 - share) * other
