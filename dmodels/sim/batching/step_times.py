r"""How long one iteration takes, as the simulators read it: a table over requests in flight, and optionally tokens.

Accepted wherever a `law` is asked for: a `StepLaw` (W + H n), an array t[0..slots] (or t[1..slots]), a function
t(n), or a `TokenLaw`, which also looks at the tokens that an iteration processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dmodels.core.compiled import inline
from dmodels.core.errors import InputError
from dmodels.models.latency import StepLaw


class TokenLaw(NamedTuple):
    """An iteration's seconds on a grid of requests (rows, 0..slots) and tokens (columns), linear between columns.

    t(requests in flight, tokens processed), where a decoding request is a token and a prompt those of its chunk; or,
    with `decodes`, t(requests that decode, prompt tokens): then a prompt that waits for its turn costs nothing.
    """

    times_s: np.ndarray  # (slots + 1, k)
    tokens: np.ndarray  # (k,) increasing
    decodes: bool = False

    @classmethod
    def tabulated(
        cls, law: Callable[[Any, Any], Any], slots: int, max_tokens: float, points: int = 257, *, decodes: bool = False
    ) -> TokenLaw:
        """Tabulate a function of broadcasting arrays (requests, tokens); exact for laws that are linear in tokens."""
        tokens = np.linspace(0.0, max_tokens, points)
        times = np.asarray(law(np.arange(slots + 1.0)[:, None], tokens[None, :]), np.float64)
        return cls(np.broadcast_to(times, (slots + 1, points)).copy(), tokens, decodes)


def table(law: Any, slots: int) -> np.ndarray:
    """t(0), ..., t(slots) in seconds, float64; t(0) is never used.

    >>> [float(t) for t in table(StepLaw(8e-3, 1e-3), 2)]
    [0.008, 0.009000000000000001, 0.01]
    """
    counts = np.arange(slots + 1, dtype=np.float64)
    if isinstance(law, TokenLaw):
        raise InputError("law: t(n, tokens); accepted here: StepLaw, an array, or a function of n alone")
    if isinstance(law, StepLaw):
        times = np.asarray(law.iteration_s(counts), np.float64)
    elif callable(law):
        times = np.asarray(law(counts), np.float64)
    else:
        times = np.asarray(law, np.float64)
        if times.shape == (slots,):
            times = np.concatenate([times[:1], times])
    times = np.array(np.broadcast_to(times, (slots + 1,)) if times.ndim == 0 else times)
    if times.shape != (slots + 1,):
        raise InputError(f"law: {times.shape} times for {slots} slots; accepted: one time per count 0..{slots}")
    if not (np.isfinite(times[1:]).all() and (times[1:] > 0).all()):
        raise InputError(f"law: an iteration takes {np.nanmin(times[1:]):g} s; accepted: finite times above 0")
    return times


def token_table(law: Any, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """(times (slots + 1, k), tokens (k,)) of any law after checking it; k = 1 for one that is blind to tokens."""
    if not isinstance(law, TokenLaw):
        return table(law, slots)[:, None], np.zeros(1)
    times, tokens = np.asarray(law.times_s, np.float64), np.asarray(law.tokens, np.float64)
    if times.shape != (slots + 1, tokens.size) or tokens.size < 2 or not (np.diff(tokens) > 0).all():
        raise InputError(
            f"law: times {times.shape} over {tokens.size} token counts for {slots} slots; "
            "accepted: (slots + 1, k) over k >= 2 increasing counts"
        )
    used = times[0 if law.decodes else 1 :]  # an iteration of prompts alone decodes nothing
    if not (np.isfinite(used).all() and (used > 0).all()):
        raise InputError("law: an iteration takes no time or infinitely long; accepted: finite times above 0")
    return times, tokens


def token_tables(laws: Sequence[Any], slots: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """(times (laws, most slots + 1, k), tokens (laws, k)) of several laws; shorter grids go on in a straight line."""
    tables = [token_table(law, count) for law, count in zip(laws, slots, strict=True)]
    width = max(tokens.size for _, tokens in tables)
    times, grid = np.zeros((len(tables), max(slots) + 1, width)), np.zeros((len(tables), width))
    for row, columns, (own, tokens) in zip(times, grid, tables, strict=True):
        k = tokens.size
        step = tokens[-1] - tokens[-2] if k > 1 else 1.0
        rise = own[:, -1] - own[:, -2] if k > 1 else np.zeros(own.shape[0])
        ahead = np.arange(1, width - k + 1)
        columns[:] = np.concatenate([tokens, tokens[-1] + step * ahead])
        row[: own.shape[0]] = np.concatenate([own, own[:, -1:] + rise[:, None] * ahead], axis=1)
    return times, grid


@inline
def seconds(times, grid, decodes, n, decoding, prompts):
    """An iteration of n requests in flight, `decoding` of them, and so many prompt tokens: linear between the grid's
    columns and beyond the last ones."""
    if grid.size == 1:
        return times[n, 0]
    tokens = prompts if decodes else decoding + prompts
    n = decoding if decodes else n
    k = min(max(np.searchsorted(grid, tokens) - 1, 0), grid.size - 2)
    part = (tokens - grid[k]) / (grid[k + 1] - grid[k])
    return times[n, k] + part * (times[n, k + 1] - times[n, k])
