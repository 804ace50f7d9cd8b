"""What every solver returns: an answer, and the evidence with which someone who distrusts the solver can check it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax


@partial(jax.tree_util.register_dataclass, data_fields=("value", "certificate", "flags", "steps"), meta_fields=())
@dataclass(frozen=True, slots=True, eq=False, repr=False, init=False)
class Solution:
    """Arrays only, so that it passes through `jit` and `vmap`. (No `equinox.Module`: for one small problem, making
    one of these takes longer than solving it.)

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

    def __init__(self, value: Any, certificate: dict[str, Any], flags: Any, steps: Any) -> None:
        for_value, for_certificate, for_flags, for_steps = _SETTERS
        for_value(self, value)
        for_certificate(self, certificate)
        for_flags(self, flags)
        for_steps(self, steps)

    def __repr__(self) -> str:
        from .printed import printed

        return printed(self)


#: What writes the fields of a frozen record, in half the time of the `__init__` that a dataclass generates.
_SETTERS = tuple(Solution.__dict__[name].__set__ for name in ("value", "certificate", "flags", "steps"))
