"""Reasons, not exceptions: a bit mask that travels with every batched result.

Under `vmap` one bad point must not fail the batch, and a number that is wrong must not look right. So every
formula and solver that can leave its domain returns a mask beside its value; 0 means "nothing to say".
"""

from __future__ import annotations

from enum import IntFlag
from typing import Any

import jax.numpy as jnp
import numpy as np

from .records import Real


class Flag(IntFlag):
    """Why a point is not (or not surely) an answer."""

    NO_FIT = 1  # the memory does not hold it
    OVERLOAD = 2  # arrivals exceed what can be served
    SLO_MISS = 4  # served, but slower than promised
    OUT_OF_DOMAIN = 8  # inputs outside the formula's domain (negative length, load past a pole, ...)
    NOT_CONVERGED = 16  # an iteration stopped before its tolerance
    NONFINITE = 32  # NaN or inf where a number was due
    INFEASIBLE = 64  # constraints that nothing satisfies
    NOT_UNIQUE = 128  # an answer, but not shown to be the only one
    EXTRAPOLATED = 256  # outside the data or the load range on which the model was checked
    FIRST_ORDER_ONLY = 512  # first-order conditions and samples hold; convexity or a search that proves it is missing


MEANINGS: dict[Flag, str] = {
    Flag.NO_FIT: "does not fit in memory",
    Flag.OVERLOAD: "arrivals exceed capacity",
    Flag.SLO_MISS: "misses an SLO",
    Flag.OUT_OF_DOMAIN: "input outside the formula's domain",
    Flag.NOT_CONVERGED: "iteration did not converge",
    Flag.NONFINITE: "not a finite number",
    Flag.INFEASIBLE: "constraints cannot be met",
    Flag.NOT_UNIQUE: "uniqueness is not guaranteed",
    Flag.EXTRAPOLATED: "outside the range on which the model was checked",
    Flag.FIRST_ORDER_ONLY: "first-order only: convexity is not known",
}

#: Flags that say the value is usable, only with care.
WARNINGS = Flag.NOT_UNIQUE | Flag.EXTRAPOLATED | Flag.FIRST_ORDER_ONLY


def flag_where(condition: Any, flag: Flag) -> Any:
    """int32 mask: `flag` where `condition` holds, else 0. Masks join with `|`. On the host it stays there."""
    if isinstance(condition, np.ndarray | np.generic):
        return np.where(condition, np.int32(int(flag)), np.int32(0))
    return jnp.where(condition, jnp.int32(int(flag)), jnp.int32(0))


def flag_nonfinite(*values: Real) -> Any:
    """`Flag.NONFINITE` where any of `values` (broadcast together) is NaN or infinite."""
    bad = jnp.zeros((), bool)
    for value in values:
        bad = bad | ~jnp.isfinite(value)
    return flag_where(bad, Flag.NONFINITE)


def describe(mask: int) -> str:
    """The reasons in a mask, in words: describe(3) == "does not fit in memory; arrivals exceed capacity"."""
    return "; ".join(text for flag, text in MEANINGS.items() if int(mask) & flag) or "ok"


def usable(mask: Real) -> Real:
    """True where no flag but a warning is raised (NumPy or JAX arrays)."""
    return (np.bitwise_and(mask, ~int(WARNINGS)) if isinstance(mask, np.ndarray | int) else mask & ~int(WARNINGS)) == 0
