"""Step times of an instance from its hardware, exact and differentiable."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.numerics import clip, maximum, minimum, safe_divide
from dmodels.core.records import Real

from ..latency import Efficiency, MixedSteps, budget_of_ranks
from ..queueing import LastStep, last_step, packed_frac, partial_fill
from ..traffic import LEVELS, Requests
from .ladder import StepTable, step_table


class Lone(NamedTuple):
    """Prompts that have their steps for themselves."""

    last: LastStep  # what their last step has room for beyond
    over_tokens: Real  # E[(w - mean)+] of their lengths w


class Roofline(NamedTuple):
    """The step times themselves: the exact counterpart of a `StepTable`, for single points and derivatives."""

    model: Model
    gpu: GPU
    parallel: Parallel
    requests: Requests
    efficiency: Efficiency
    max_num_batched_tokens: Real = 8192.0

    @property
    def budget_tokens(self) -> Real:
        """Prompt tokens of one step at most, of all ranks."""
        return budget_of_ranks(self.requests.prefill_tokens, self.max_num_batched_tokens, self.parallel.dp)

    @property
    def steps(self) -> MixedSteps:
        """The steps under these requests' mean prompt."""
        r = self.requests
        cached = r.input_tokens - r.prefill_tokens
        return MixedSteps(
            self.model,
            self.gpu,
            self.parallel,
            context_tokens=r.context_tokens,
            prompt_tokens=r.prefill_tokens,
            attended_tokens=safe_divide(r.prefill_square, 2.0 * r.prefill_tokens, 0.0) + cached,
            budget_tokens=self.budget_tokens,
            efficiency=self.efficiency,
        )

    @property
    def lone(self) -> Lone:
        edges = self.requests.prefill_edge_tokens
        over = maximum(edges - jnp.expand_dims(self.requests.prefill_tokens, -1), 0.0)
        return Lone(last_step_of(self.requests, self.budget_tokens), 0.5 * (over[..., 1:] + over[..., :-1]) @ _SHARES)

    def times(self, n: Real, lone: Lone | None = None) -> tuple[Real, Real]:
        """(t_0, K) at n requests decoding, which begin n / E[G] prompts per step; these share it, or fill several.

        `lone` is `self.lone` in the shape of n.
        """
        law, r, lone = self.steps, self.requests, self.lone if lone is None else lone
        n = self._decoding(n)
        begun = maximum(safe_divide(n, r.decode_steps, 0.0), 1e-6)
        alone, first, full = self._landmarks(n, lone)
        filled = begun * law.budget_share

        def closer(_: Real, busy: Real) -> Real:
            step_s = alone + busy * (first - alone) + minimum(filled, 1.0) * (full - first)
            fill = partial_fill(begun / step_s, alone, first, full, law.budget_share, lone.last)
            return packed_frac(begun, step_s, alone, first + fill.share * (full - first), law.budget_share, fill)

        busy = jax.lax.fori_loop(0, 4, closer, law.shared(begun)[0] + 0.0 * first)
        share = minimum(filled / busy, 1.0)
        mixed = law.at(n, share * self.budget_tokens)
        # bent steps: no more in the mean than at the mean, and of unequal prompts less, as on the line
        mixed = jnp.where(self._in_whole_prompts, minimum(mixed, first + share * (full - first)), mixed)
        # exactly nothing where no prompts come: a rounding error would pass for stalls, of any shape
        return alone, jnp.where(r.prefill_tokens > 0, busy * (mixed - alone) / begun, 0.0)

    def filling(self, n: Real, lone: Lone | None = None) -> tuple[Real, Real]:
        """(a step with prompts but for their tokens, a full step): on the line through a lone prompt's last step."""
        _, begun, full = self._landmarks(self._decoding(n), self.lone if lone is None else lone)
        return begun, full

    @property
    def _in_whole_prompts(self) -> Real:
        """Whether ranks take whole prompts as they come: then a step is bent at a mean one's tokens."""
        return (self.parallel.dp > 1.0) & (self.steps.gathered <= 1.0)

    def _landmarks(self, n: Real, lone: Lone) -> tuple[Real, Real, Real]:
        """A step without prompts, with prompts but for their tokens, and full."""
        share = clip(1.0 - lone.last.gap, 1e-3, 0.75)
        budget, prompt = self.budget_tokens, self.requests.prefill_tokens
        at = jnp.where(self._in_whole_prompts, prompt, share * budget)
        alone, least, part, full = self.steps.at_each(n, 1e-6 * prompt, at, budget)
        over = lone.over_tokens  # of the longer prompts beyond the mean, and of the shorter below it
        bent = part - safe_divide(over, prompt, 0.0) * (part - least)
        bent += safe_divide(over, budget - prompt, 0.0) * (full - part)
        part = jnp.where(self._in_whole_prompts, bent, part)
        return alone, clip((part - share * full) / (1.0 - share), alone, full), full

    def full(self, n: Real) -> Real:
        """t(n, B): prompts fill the budget."""
        return self.steps.full(self._decoding(n))

    def _decoding(self, n: Real) -> Real:
        """Of n requests, those that decode: a prefill worker decodes nothing, whatever it holds."""
        return jnp.where(self.requests.output_tokens > 0, n, 0.0)

    def occupancy(self, x: Real, decode_steps: Real, slots: Real) -> tuple[Real, Real]:
        r"""The n in [0, slots] with $n (1 - x K(n)) = x\,E[G]\,t_0(n)$, and whether there is none.

        The residual increases and is nearly linear, so after Picard's step from 0 four secant steps, kept inside the
        interval, leave a relative error under 1e-3 even at the kinks of a roofline; Newton steps, the last one from the
        frozen root, remove it and carry the derivatives (implicit function theorem: a bare iteration would lose them).
        """

        def residual(n: Real) -> Real:  # negative where more requests arrive than leave
            alone, extra = self.times(n)
            return n * (1.0 - x * extra) - x * decode_steps * alone

        old = jnp.zeros_like(slots + x * decode_steps)
        alone, extra = jax.vmap(self.times)(jnp.stack([old, slots + old]))
        f_old, f_full = -x * decode_steps * alone + jnp.stack([old, slots + old]) * (1.0 - x * extra)
        new = clip(safe_divide(-f_old, 1.0 - x * extra[0]), 0.0, slots)
        none = f_full < 0

        def secant(_: Real, pair: tuple[Real, Real, Real]) -> tuple[Real, Real, Real]:
            old, f_old, new = pair
            f_new = residual(new)
            back = f_new * safe_divide(jnp.abs(new - old), jnp.abs(f_new - f_old), 0.0)
            return new, f_new, clip(new - back, 0.0, slots)

        _, _, new = jax.lax.fori_loop(0, 4, secant, (old, f_old, new))

        def newton(root: Real) -> Real:
            f, slope = jax.jvp(residual, (root,), (jnp.ones_like(root),))
            polished = root - f / jax.lax.stop_gradient(jnp.where(slope > 0, slope, 1.0))
            return jnp.where(none, slots, clip(polished, 0.0, slots))

        # twice, because derivatives are those where the last step begins
        return newton(jax.lax.stop_gradient(newton(jnp.where(none, slots, new)))), none

    def table(self, most_count: float = 8192.0) -> StepTable:
        """The step times at a ladder of decode counts up to `most_count`; a new last axis."""
        rungs = np.concatenate([np.arange(8.0), np.geomspace(8.0, most_count, 32)])
        wide = jax.tree.map(lambda leaf: jnp.asarray(leaf)[..., None], self)
        wanted = np.expand_dims(rungs, tuple(range(np.ndim(self.requests.context_tokens))))
        n = wanted + 0.0 * wide.requests.context_tokens
        lone = jax.tree.map(lambda leaf: leaf[..., None], self.lone)
        (alone, extra), (begun, full) = wide.times(n, lone), wide.filling(n, lone)
        return step_table(n, alone, extra, wide.requests.decode_steps, full, begun)


#: Of `LEVELS`, the requests between two.
_SHARES = np.diff(LEVELS)


def last_step_of(requests: Requests, budget: Real) -> LastStep:
    return last_step(requests.prefill_edge_tokens / jnp.expand_dims(budget, -1), LEVELS)
