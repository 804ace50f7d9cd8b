r"""Steps of an instance in which requests decode and prompts are computed: prompts share a step, up to a token budget.

With p prompts of $\ell$ tokens per step (Little: p = n / E[O] where n requests decode at a time), Poisson arrivals
leave a share $1 - e^{-p}$ of the steps with any prompt, and a budget of B tokens (`max_num_batched_tokens`) makes
prompts take at least $p\,\ell/B$ of the steps:

$$f = \max(1 - e^{-p},\; p\,\ell/B), \qquad \bar t = t(n, 0) + f\,\big(t(n, \min(p\,\ell/f, B)) - t(n, 0)\big)$$

So what a step with a prompt costs once (launches without a captured graph, weights that are read anyway) is paid once
however many prompts share it. The open loop (`models.instance`), the closed loop (`serve`) and the simulators have
these steps.

The r ranks of attention data parallelism step together, B is the budget of all, and a rank computes whole prompts while
the others wait: a lone prompt takes its own time on one rank, though experts see its tokens alone. An engine that waits
for prompts of all ranks (`dp_wait_steps`) computes r at once, each of which pays its share of that step, and p/r such
groups come per step.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.numerics import safe_divide
from dmodels.core.records import Real

from .steps import Efficiency, Part, parts


def budget_of_ranks(prompt_tokens: Real, budget_tokens: Real, dp: Real) -> Real:
    """Prompt tokens of one step of all ranks, where one takes `budget_tokens`: of prompts beyond that a whole one each,
    as if the steps that it takes were one."""
    return jnp.where(dp > 1.0, dp * jnp.maximum(budget_tokens, prompt_tokens), budget_tokens)


class MixedSteps(NamedTuple):
    """An instance's steps under prompts of a mean length; all fields broadcast."""

    model: Model
    gpu: GPU
    parallel: Parallel
    context_tokens: Real  # of a request that decodes, in the mean
    prompt_tokens: Real  # new tokens of a prompt, in the mean
    attended_tokens: Real  # tokens that one of these attends to, in the mean
    budget_tokens: Real  # prompt tokens of one step at most, of all ranks
    efficiency: Efficiency
    draft_tokens: Real = 0.0

    @property
    def gathered(self) -> Real:
        """Prompts that the engine waits for, to compute them in one step: one a rank, or any that came."""
        waits = (self.parallel.dp > 1.0) & (self.efficiency.dp_wait_steps > 0.0)
        return jnp.where(waits, self.parallel.dp, 1.0)

    @property
    def budget_share(self) -> Real:
        """Whole budgets that one prompt takes."""
        return self.prompt_tokens / self.budget_tokens

    @property
    def own_steps(self) -> Real:
        """Steps that one prompt takes: at most a rank's share of the budget in each."""
        return jnp.maximum(self.parallel.dp * self.budget_share, 1.0)

    def alone(self, decoding: Real) -> Real:
        """t(n, 0): a step without prompts."""
        return self._computed(decoding, 0.0 * self.prompt_tokens)

    def full(self, decoding: Real) -> Real:
        """t(n, B): a step whose budget is full."""
        return self._computed(decoding, self.budget_tokens)

    def mixed(self, decoding: Real, prompts: Real) -> tuple[Real, Real]:
        """(f, the length of a step with prompts) where `prompts` come per step, p in the mean."""
        busy, tokens = self.shared(prompts)
        return busy, self._computed(decoding, tokens)

    def shared(self, prompts: Real) -> tuple[Real, Real]:
        """(f, prompt tokens of a step that has any) where `prompts` come per step, p in the mean.

        f above 1: more prompts than the steps have room for.
        """
        p = jnp.maximum(prompts, 1e-9)
        busy = jnp.maximum(-jnp.expm1(-p / self.gathered * self.own_steps), p * self.budget_share)
        return busy, jnp.minimum(p / busy * self.prompt_tokens, self.budget_tokens)

    def own(self, decoding: Real, prompts: Real) -> Real:
        """The steps of one prompt, which shares them with those that came meanwhile."""
        tokens = (self.gathered + prompts) * self.prompt_tokens / self.own_steps
        return self.own_steps * self._computed(decoding, jnp.minimum(tokens, self.budget_tokens))

    def at(self, decoding: Real, tokens: Real) -> Real:
        """t(n, w): a step that computes w prompt tokens, or their share of the step of a group."""
        return self.at_each(decoding, tokens)[1]

    def at_each(self, decoding: Real, *tokens: Real) -> tuple[Real, ...]:
        """t(n, 0), and `at` for each of `tokens`, traced once: a step is some 700 operations."""
        least = jnp.minimum(self.gathered * self.prompt_tokens, self.budget_tokens)
        groups = [jnp.where(self.gathered > 1.0, jnp.maximum(w, least), w) for w in tokens]
        several = jnp.stack(jnp.broadcast_arrays(0.0 * groups[0], *groups, 0.0 * decoding)[:-1])
        alone, *whole = jax.vmap(self._computed, (None, 0))(decoding, several)
        shares = (safe_divide(w, group, 0.0) for w, group in zip(tokens, groups, strict=True))
        return alone, *(alone + share * (one - alone) for share, one in zip(shares, whole, strict=True))

    def _computed(self, decoding: Real, tokens: Real) -> Real:
        """A step that computes these tokens itself: none, or a whole group or more."""
        return sum((part.seconds for part in self.parts(decoding, tokens).values()), 0.0)

    def parts(self, decoding: Real, tokens: Real) -> dict[str, Part]:
        """The operators of a step that computes w prompt tokens, in whole prompts of a rank as far as they go."""
        dp = self.parallel.dp
        fullest = jnp.maximum(tokens / dp, jnp.minimum(tokens, self.prompt_tokens / self.own_steps))
        return parts(
            self.model,
            self.gpu,
            self.parallel,
            decode_count=decoding,
            context_tokens=self.context_tokens,
            prefill_tokens=tokens,
            attended_tokens=self.attended_tokens,
            efficiency=self.efficiency,
            draft_tokens=self.draft_tokens,
            crowd=safe_divide(dp * fullest, tokens, 1.0),
        )
