r"""Steps of an instance in which requests decode and prompts are computed: prompts share a step, up to a token budget.

With p prompts of $\ell$ tokens per step and rank (Little: p = n / E[O] where n requests decode at a time), Poisson
arrivals leave a share $1 - e^{-p}$ of the steps with any prompt, and a budget of B tokens (`max_num_batched_tokens`)
makes prompts take at least $p\,\ell/B$ of the steps:

$$f = \max(1 - e^{-p},\; p\,\ell/B), \qquad \bar t = t(n, 0) + f\,\big(t(n, \min(p\,\ell/f, B)) - t(n, 0)\big)$$

So what a step with a prompt costs once (launches without a captured graph, weights that are read anyway) is paid once
however many prompts share it. The open loop (`models.instance`) and the closed loop (`serve`) have these steps.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.records import Real

from .steps import Efficiency, step


class MixedSteps(NamedTuple):
    """An instance's steps under prompts of a mean length; all fields broadcast."""

    model: Model
    gpu: GPU
    parallel: Parallel
    context_tokens: Real  # of a request that decodes, in the mean
    prompt_tokens: Real  # new tokens of a prompt, in the mean
    attended_tokens: Real  # tokens that one of these attends to, in the mean
    budget_tokens: Real  # prompt tokens of one step and rank at most
    efficiency: Efficiency
    draft_tokens: Real = 0.0

    @property
    def budget_share(self) -> Real:
        """Whole budgets that one prompt takes."""
        return self.prompt_tokens / self.budget_tokens

    def alone(self, decoding: Real) -> Real:
        """t(n, 0): a step without prompts."""
        return self.at(decoding, 0.0 * self.prompt_tokens)

    def full(self, decoding: Real) -> Real:
        """t(n, B): a step whose budget is full."""
        return self.at(decoding, self.budget_tokens)

    def mixed(self, decoding: Real, prompts: Real) -> tuple[Real, Real]:
        """(f, the length of a step with prompts) where `prompts` come per step and rank, p in the mean."""
        busy, tokens = self.shared(prompts)
        return busy, self.at(decoding, tokens)

    def shared(self, prompts: Real) -> tuple[Real, Real]:
        """(f, prompt tokens per rank of a step that has any) where `prompts` come per step and rank, p in the mean.

        f above 1: more prompts than the steps have room for.
        """
        p = jnp.maximum(prompts, 1e-9)
        busy = jnp.maximum(-jnp.expm1(-p), p * self.budget_share)
        return busy, jnp.minimum(p / busy * self.prompt_tokens, self.budget_tokens)

    def own(self, decoding: Real, prompts: Real) -> Real:
        """The steps of one prompt, which shares them with those that came meanwhile."""
        tokens = jnp.minimum((1.0 + prompts) * self.prompt_tokens, self.budget_tokens)
        return jnp.maximum(self.budget_share, 1.0) * self.at(decoding, tokens)

    def at_each(self, decoding: Real, *tokens: Real) -> tuple[Real, ...]:
        """`at` for each of `tokens`, traced once: a step is some 700 operations."""
        several = jnp.stack(jnp.broadcast_arrays(*tokens, 0.0 * decoding)[:-1])
        return tuple(jax.vmap(self.at, (None, 0))(decoding, several))

    def at(self, decoding: Real, tokens: Real) -> Real:
        """t(n, w): a step in which every rank computes w prompt tokens."""
        place = (self.model, self.gpu, self.parallel)
        new = self.parallel.dp * tokens
        return step(
            *place,
            decode_count=decoding,
            context_tokens=self.context_tokens,
            prefill_tokens=new,
            attended_tokens=self.attended_tokens,
            efficiency=self.efficiency,
            draft_tokens=self.draft_tokens,
        ).total_s
