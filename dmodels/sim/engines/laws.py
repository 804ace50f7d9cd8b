r"""How long a step takes that knows what its tokens attend to: the calibrated step, tabulated.

$$t = T(n, w) + A_{w>0}\!\left(n, \tfrac1n\sum_i c_i\right) + \sum_j w_j\,P\!\left(a_j\right)$$

for n requests that decode with contexts $c_i$, and prompts of $w_j$ new tokens, w in all, that attend to $a_j$ tokens
in the mean. T has the matrices, experts, collectives and launches, A the attention of answers (in steps without and
with prompts), P that of prompts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.compiled import inline
from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.records import Floats, Real, float64, jit
from dmodels.models.latency import Efficiency, Part, parts

#: Points of the tables.
_COUNTS, _TOKENS, _CONTEXTS = 48, 64, 40
#: Parts of a step that depend on what tokens attend to.
_ATTENTION = ("attention of decodes", "attention of prompts")


class EngineLaw(NamedTuple):
    """Tables of a step; linear between their points and beyond the last ones."""

    counts: Floats  # (i,) requests that decode, from 0
    tokens: Floats  # (j,) prompt tokens, from 0
    contexts: Floats  # (k,) tokens in the cache, from 0
    step_s: Floats  # (i, j) without attention
    decode_s: Floats  # (2, i, k) attention of the answers of a step, without and with prompts
    prompt_s: Floats  # (k,) attention of one prompt token

    @classmethod
    def straight(cls, base_s: float, per_request_s: float, per_prompt_token_s: float = 0.0) -> EngineLaw:
        """W + H n for n requests that decode, and so much more for each prompt token.

        >>> round(EngineLaw.straight(8e-3, 1e-3).seconds(10, 500, 0, 0), 6)
        0.018
        """
        ends = np.array([0.0, 1.0])
        times = base_s + per_request_s * ends[:, None] + per_prompt_token_s * ends[None, :]
        return cls(ends, ends, ends, times, np.zeros((2, 2, 2)), np.zeros(2))

    @classmethod
    def of(
        cls,
        model: Model,
        gpu: GPU,
        parallel: Parallel,
        efficiency: Efficiency,
        *,
        slots: int,
        step_tokens: int,
        longest_tokens: int,
    ) -> EngineLaw:
        """The law of an instance that runs up to `slots` requests and computes up to `step_tokens` prompt tokens."""
        counts, tokens = _grid(slots, _COUNTS), _grid(step_tokens, _TOKENS)
        contexts = _grid(longest_tokens, _CONTEXTS)
        tables = _tables(model, gpu, parallel, efficiency, counts, tokens, contexts)
        return cls(counts, tokens, contexts, *(np.array(table) for table in tables))

    def seconds(self, decoding: float, mean_context: float, prompt_tokens: float, attended_tokens: float) -> float:
        """A step in which so many decode, and of the prompts every token attends to `attended_tokens` in the mean."""
        return float(step_s(self, decoding, decoding * mean_context, prompt_tokens, prompt_tokens * attended_tokens))

    def scaled(self, factor: float) -> EngineLaw:
        """The same with every time longer by a factor."""
        return self._replace(
            step_s=factor * self.step_s, decode_s=factor * self.decode_s, prompt_s=factor * self.prompt_s
        )


def _grid(most: int, points: int) -> Floats:
    """0, 1, 2, ... and then in equal ratios up to `most`."""
    close = np.arange(min(9, most + 1), dtype=float)
    far = np.round(np.geomspace(9.0, most, points - 9)) if most > 9 else np.zeros(0)
    found: Floats = np.unique(np.concatenate([close, far, [max(most, 1)]]))
    return found


@float64
@jit
def _tables(
    model: Model, gpu: GPU, parallel: Parallel, efficiency: Efficiency, counts: Real, tokens: Real, contexts: Real
) -> tuple[Real, Real, Real]:
    """(steps without attention, attention of answers, attention of a prompt token)."""

    def at(n: Real, context: Real, w: Real, attended: Real) -> dict[str, Part]:
        return parts(
            model,
            gpu,
            parallel,
            decode_count=n,
            context_tokens=context,
            prefill_tokens=w,
            attended_tokens=attended,
            efficiency=efficiency,
        )

    def rest(n: Real, w: Real) -> Real:
        return sum(part.seconds for name, part in at(n, 0.0, w, 0.0).items() if name not in _ATTENTION)

    def over(f: Callable[[Real, Real], Real], a: Real, b: Real) -> Any:
        return jax.vmap(lambda x: jax.vmap(lambda y: f(x, y))(b))(a)

    steps = over(rest, counts, tokens)
    answers = jax.vmap(lambda w: over(lambda n, c: at(n, c, w, 0.0)[_ATTENTION[0]].seconds, counts, contexts))(
        jnp.array([0.0, 1.0])
    )
    prompts = jax.vmap(lambda a: at(0.0, 0.0, 1.0, a)[_ATTENTION[1]].seconds)(contexts)
    # the smooth maximum of two zeros is no exact zero
    return steps, jnp.where(counts[:, None] * contexts[None, :] > 0, answers, 0.0), prompts


@inline
def _place(grid: Floats, value: float) -> Any:
    """(row, share of the way to the next one)."""
    k = int(min(max(int(np.searchsorted(grid, value)) - 1, 0), grid.size - 2))
    return k, (value - grid[k]) / (grid[k + 1] - grid[k])


@inline
def _between(table: Floats, i: int, a: float, j: int, b: float) -> Any:
    low = table[i, j] + b * (table[i, j + 1] - table[i, j])
    high = table[i + 1, j] + b * (table[i + 1, j + 1] - table[i + 1, j])
    return low + a * (high - low)


@inline
def step_s(law: EngineLaw, decoding: float, read_tokens: float, prompt_tokens: float, attended: float) -> Any:
    """Seconds of a step: `read_tokens` are all contexts together, `attended` all that prompt tokens attend to."""
    i, a = _place(law.counts, float(decoding))
    j, b = _place(law.tokens, float(prompt_tokens))
    found = _between(law.step_s, i, a, j, b)
    if decoding > 0:
        k, c = _place(law.contexts, read_tokens / decoding)
        found += _between(law.decode_s[int(prompt_tokens > 0)], i, a, k, c)
    if prompt_tokens > 0:
        k, c = _place(law.contexts, attended / prompt_tokens)
        found += prompt_tokens * (law.prompt_s[k] + c * (law.prompt_s[k + 1] - law.prompt_s[k]))
    return found
