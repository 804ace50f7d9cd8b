"""What every solver returns: an answer, and the evidence with which someone who distrusts the solver can check it."""

from __future__ import annotations

from typing import Any, NamedTuple


class Solution(NamedTuple):
    """Arrays only, so that it passes through `jit` and `vmap`. (A tuple: for one small problem, making a dataclass or
    an `equinox.Module` takes longer than solving it.)

    value        the answer: a record, or a mapping of arrays
    certificate  arrays from which the answer can be checked without this code (duals and gap, residuals, ...)
    flags        int32 mask of `core.flags.Flag`, one per problem; 0 is a certified answer
    steps        iterations that were used, one per problem

    It prints as a person reads it: why it stopped, the answer, and what the evidence means.
    """

    value: Any
    certificate: dict[str, Any]
    flags: Any
    steps: Any

    def __repr__(self) -> str:
        from .printed import printed

        return printed(self)
