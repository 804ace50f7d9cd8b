r"""Prompts that fill steps: an engine computes a backlog of prompt tokens in order, at most a budget of them in a step.

In budgets: prompts bring b, in steps of $t_0$ without prompts and $s + (F - s) w$ with a share w of the budget, F when
full. Of all steps a share f has prompts. What comes is computed, so $E[w] = x b E[L]$, and $E[L] = t_0 + f (s - t_0) +
(F - s) E[w]$. A run of steps with prompts begins where one comes in a step without, and ends after a partial step in
which none comes: $P e^{-x t_p} = (1 - f)(1 - e^{-x t_0})$ for the share P of partial steps, which are full to a share u
and take $t_p = s + (F - s) u$. With $f - E[w] = (1 - u) P$ all shares follow from u alone.

Only full steps leave something over, $R' = R + A - 1 + I$ (A what comes in a step, I what the next one has room for
beyond), and the mean squares give

$$E[R] = \frac{E[(A - 1)^2] - E[I^2]}{2 (1 - x b F)}.$$

F is that of the requests that decode on average. While steps stay full they become those of full steps, which take
$F' > F$: a backlog of the time T has $F + (F' - F)\,T/(T + a)$ beside answers of the time a, in the room $1 - x b F$.

Exact but for u, which is what a lone prompt leaves for its last step, and half where several come, and for partial
steps of one length. An engine that has nothing to decode stands still until a prompt comes: there runs begin, and the
same balances hold over the steps with prompts.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dmodels.core.numerics import maximum, minimum, safe_divide
from dmodels.core.records import Real, jit


class LastStep(NamedTuple):
    """What the last step of a prompt that has its steps for itself has room for beyond, in budgets."""

    gap: Real  # in the mean
    gap_square: Real


def last_step(edge_budgets: Real, levels: Real) -> LastStep:
    """Of prompts whose lengths in budgets have the quantiles `edge_budgets` (..., k) at `levels`, uniform in between.

    >>> levels = np.linspace(0.0, 1.0, 4)
    >>> found = last_step(np.full(4, 0.25), levels), last_step(np.linspace(0.0, 3.0, 4), levels)
    >>> [round(float(one.gap), 2) for one in found]
    [0.75, 0.5]
    """
    high = edge_budgets[..., 1:]
    low = minimum(edge_budgets[..., :-1], high - 1e-6 * (1.0 + high))  # of equal edges, just below
    upper, lower = _gaps_below(high), _gaps_below(low)
    each = ((above - below) / (high - low) for above, below in zip(upper, lower, strict=True))
    return LastStep(*(gap @ np.diff(levels) for gap in each))


def _gaps_below(length: Real) -> tuple[Real, Real]:
    """Integrals of ceil(z) - z, and of its square, from 0 to `length`."""
    whole = jnp.floor(length)
    rest = 1.0 - (length - whole)
    return 0.5 * whole + 0.5 * (1.0 - rest**2), (whole + 1.0 - rest**3) / 3.0


class Fill(NamedTuple):
    """How partial steps are filled."""

    share: Real  # u
    gap_square: Real  # mean of (1 - u)^2


def partial_fill(arrival_rps: Real, bare_s: Real, begun_s: Real, full_s: Real, budgets: Real, last: LastStep) -> Fill:
    """Of partial steps: a lone prompt's last one, or several prompts'.

    They follow a bare step where a run begins, which is the share e^(-x t_p) of them, and else one of their own kind.
    """
    x, span = arrival_rps, full_s - begun_s
    bare = minimum(x * bare_s, 30.0)
    first = safe_divide(bare, -jnp.expm1(-bare), 1.0)  # prompts that came in a bare step, if any did
    share = 1.0 - last.gap
    for _ in range(3):
        came = minimum(x * (begun_s + share * span), 30.0)
        several = came + jnp.exp(-came) * first  # prompts in a partial step
        came = several * -jnp.expm1(-2.0 * (several - 1.0))  # a Poisson number, if not none, has this mean
        lone = safe_divide(came, jnp.expm1(came), 1.0)
        beside = safe_divide(came * jnp.expm1(came), jnp.expm1(came) - came, 2.0)  # prompts, where there are several
        more = minimum(budgets * beside, 0.5)
        share = lone * (1.0 - last.gap) + (1.0 - lone) * more
    return Fill(share, lone * last.gap_square + (1.0 - lone) * (1.0 - more) ** 2 * (4.0 / 3.0))


def packed_frac(came: Real, step_s: Real, bare_s: Real, partial_s: Real, budgets: Real, fill: Fill) -> Real:
    """Share f of the steps with prompts where `came` come in a mean step, of `step_s`; above 1: more than have room.

    >>> two = Fill(0.5, 0.25)  # prompts of one and a half budgets take two steps each
    >>> round(float(packed_frac(1e-6, 0.01, 0.01, 0.02, 1.5, two)) / 1e-6, 3)
    2.0
    """
    filled = came * budgets
    runs = (1.0 - fill.share) * -jnp.expm1(-came * bare_s / step_s) * jnp.exp(came * partial_s / step_s)
    return jnp.where(filled < 1.0, (filled + runs) / (1.0 + runs), filled)


class PackedSteps(NamedTuple):
    """What a prompt waits for."""

    left_over_s: Real  # what full steps left over before it came, in the mean
    left_over_square: Real
    own_s: Real  # its own tokens
    met_s: Real  # the rest of the step that it comes in, who came in that before it, the room in its last step: mean
    met_variance_s2: Real
    filled: Real  # prompts that came later and fit in its last step


def _lasting_room(room: Real, slower: Real, tail_s: Real, answer_s: Real) -> Real:
    """What full steps leave free, as backlogs find it: less by `slower` in those that outlast an answer.

    A backlog of M/G/1's tail lasts `tail_s`/room^2: steps have slowed down as far as that is of it and an answer.
    """
    slower = maximum(slower, 0.0)
    found, least = room, maximum(0.1 * room, room - slower)
    for _ in range(4):
        lasts = tail_s / found**2
        found = maximum(room - slower * safe_divide(lasts, lasts + answer_s, 0.0), least)
    return found


@jit
def packed_steps(
    arrival_rps: Real,
    bare_s: Real,
    begun_s: Real,
    full_s: Real,
    budgets: Real,
    budgets_square: Real,
    last: LastStep,
    step_s: Real,
    decoding: Real,
    lasting_s: Real | None = None,
    answer_s: Real = 0.0,
) -> PackedSteps:
    """Prompts of so many `budgets`, with a mean square, in steps of `bare_s` without, from `begun_s` to `full_s` with.

    step_s    a mean step, of an engine that has requests to decode
    decoding  1 if it has; 0 if it stands still without prompts
    lasting_s a full step of a backlog that has lasted for `answer_s`, an answer: by then all who decode came from it

    >>> one = LastStep(0.0, 0.0)  # M/D/1 at load 0.5: a wait of half a service
    >>> found = packed_steps(5.0, 0.0, 0.0, 0.1, 1.0, 1.0, one, 0.1, 0.0)
    >>> round(float(found.left_over_s + found.own_s + found.met_s), 2)
    0.15
    """
    x, b = arrival_rps, budgets
    fill = partial_fill(x, jnp.where(decoding > 0, bare_s, 0.0), begun_s, full_s, b, last)
    u, gap = fill.share, 1.0 - fill.share
    partial = begun_s + u * (full_s - begun_s)
    room = maximum(1.0 - x * b * full_s, 1e-9)
    grown = jnp.exp(minimum(x * partial, 30.0))
    # steps a second: none, partial, full
    busy = minimum(packed_frac(x * step_s, step_s, bare_s, partial, b, fill), 1.0)
    none = jnp.where(decoding > 0, (1.0 - busy) / step_s, 0.0)
    idle = room / (1.0 + x * grown * gap * begun_s)  # share of the time that an engine stands still
    some = jnp.where(decoding > 0, none * -jnp.expm1(-x * bare_s), x * idle) * grown
    whole = maximum(x * b - u * some, 0.0)
    squares, cubes = (none * bare_s**k + some * partial**k + whole * full_s**k for k in (2.0, 3.0))
    computed = whole + some * (1.0 - 2.0 * gap + fill.gap_square)
    tail_s = 0.5 * full_s * safe_divide(budgets_square, b, 0.0)  # of M/G/1's tail, but for 1/room
    slow = _lasting_room(room, x * b * ((full_s if lasting_s is None else lasting_s) - full_s), tail_s, answer_s)
    left = maximum(x * budgets_square + (x * b) ** 2 * squares - computed, 0.0) / (2.0 * slow)
    rest = 0.5 * squares  # a step of length A is met for a share of the time, its rest is U A
    each = x * b * full_s  # seconds of full steps that come in a second
    decay = tail_s / slow
    chance = minimum(safe_divide(left * full_s**2, decay, 0.0), 1.0)
    # its last step is as a lone prompt's where nothing is ahead of it, and ends anywhere else
    nothing = (1.0 - chance) * jnp.exp(-x * rest)
    gap = nothing * last.gap + (1.0 - nothing) * 0.5
    gap_square = nothing * last.gap_square + (1.0 - nothing) / 3.0
    # who comes later may fill what its last step has room for
    later = x * (rest + (left * full_s + maximum(b - 1.0, 0.0) + x * b * rest) * full_s) * minimum(b, gap)
    filled = gap * -jnp.expm1(-safe_divide(later, gap, 0.0))
    last_s = gap * begun_s + filled * (full_s - begun_s)
    varies = cubes * (1.0 + each + each**2) / 3.0 + x * budgets_square * full_s**2 * rest - (rest * (1.0 + each)) ** 2
    varies += (safe_divide(gap_square, gap**2, 1.0) - 1.0) * last_s**2
    return PackedSteps(
        left * full_s**2,
        2.0 * left * full_s**2 * decay,
        full_s * b,
        rest * (1.0 + each) + last_s,
        maximum(varies, 0.0),
        safe_divide(filled, b, 0.0),
    )
