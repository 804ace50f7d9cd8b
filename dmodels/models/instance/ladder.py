"""Step times at a ladder of decode counts."""

from __future__ import annotations

import jax.numpy as jnp

from dmodels.core.numerics import clip, minimum, safe_divide, summed
from dmodels.core.records import Real, Record, quantity


class StepTable(Record):
    """Step times of an instance at a ladder of decode counts, linear in between.

    With 40 rungs, geometric above 8, it follows the roofline within 1 % (0.1 % but for its knee) and a point of a
    sweep costs a few dozen operations, whatever the roofline costs. Rungs lie on the last axis.
    """

    decode_count: Real = quantity()  # (..., k) increasing from 0
    alone_s: Real = quantity()  # (..., k) a step without prompts
    extra_s: Real = quantity()  # (..., k) what a mean prompt adds to a step
    arrival_rps: Real = quantity()  # (..., k) the arrivals that keep so many decoding: n / (E[O] t_0 + n K)
    mean_step_s: Real = quantity()  # (..., k) then: t_0 + n K / E[O]
    full_s: Real = quantity()  # (..., k) a step whose token budget is full: no step takes longer
    begun_s: Real = quantity()  # (..., k) a step with prompts, less what their tokens take: on the line to a full one

    def full(self, n: Real) -> Real:
        """t(n, B) at n requests decoding: prompts fill the budget B."""
        return _piecewise_linear(n, self.decode_count, self.full_s)[0]

    def filling(self, n: Real) -> tuple[Real, Real]:
        """(a step with prompts but for their tokens, a full step) at n requests decoding."""
        return _piecewise_linear(n, self.decode_count, self.begun_s, self.full_s)

    def times(self, n: Real) -> tuple[Real, Real]:
        """(t_0, K) at n requests decoding."""
        return _piecewise_linear(n, self.decode_count, self.alone_s, self.extra_s)

    def occupancy(self, x: Real, decode_steps: Real, slots: Real) -> tuple[Real, Real]:
        """Requests that decode at x arrivals a second, and whether `slots` are too few for them.

        If a mean step takes a + b n, then n = x E[G] (a + b n), so that the steps a second, (1 - x E[G] b)/a, are what
        is linear in x.
        """
        (most,) = _piecewise_linear(slots, self.decode_count, self.arrival_rps)
        (steps_per_s,) = _piecewise_linear(x, self.arrival_rps, safe_divide(1.0, self.mean_step_s, 0.0))
        mean_step = safe_divide(1.0, steps_per_s, 1e300)
        return minimum(x * decode_steps * mean_step, slots), (decode_steps > 0) & (x > most)


#: Seconds of a full step where nothing bounds it.
UNBOUNDED_S = 1e30


def step_table(
    decode_count: Real,
    alone_s: Real,
    extra_s: Real,
    decode_steps: Real,
    full_s: Real = UNBOUNDED_S,
    begun_s: Real | None = None,
) -> StepTable:
    """A `StepTable` of measured or computed step times at a ladder of decode counts (last axis, from 0).

    Without `begun_s` a step with prompts takes no more than their tokens do.
    """
    n = decode_count
    arrivals = n / (decode_steps * alone_s + n * extra_s + 1e-300)
    mean_step = alone_s + n * extra_s * safe_divide(1.0, decode_steps, 0.0)
    begun_s = alone_s if begun_s is None else begun_s
    return StepTable(n, alone_s, extra_s, arrivals, mean_step, full_s + 0.0 * mean_step, begun_s + 0.0 * mean_step)


def _piecewise_linear(at: Real, knots: Real, *heights: Real) -> tuple[Real, ...]:
    """The lines through (knots, heights), for each of `heights`: a sum of clipped ramps, without any search.

    Beyond the last knot the last line goes on.
    """
    widths = jnp.diff(knots, axis=-1)
    slopes = tuple(safe_divide(jnp.diff(height, axis=-1), widths, 0.0) for height in heights)
    ends = jnp.concatenate([widths[..., :-1], jnp.full_like(widths[..., -1:], jnp.inf)], -1)

    def climb(knot: Real, width: Real, *slope: Real) -> tuple[tuple[Real, ...], tuple[()]]:
        run = clip(at - knot, 0.0, width)
        return tuple(run * s for s in slope), ()

    # the 39 ramps of a roofline's table in three turns
    climbed, _ = summed(climb, knots[..., :-1], ends, *slopes, unroll=13)
    return tuple(height[..., 0] + run for height, run in zip(heights, climbed, strict=True))
