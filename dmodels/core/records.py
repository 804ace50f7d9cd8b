"""What a record is: a frozen pytree of float64 leaves, without a name and without behaviour.

float64 by construction: under `jit` with default integers the KV cache of one 64K-token Llama-3-70B sequence,
5 * 2**32 bytes, is int32 and wraps to exactly 0. So a record converts on construction, on the host, to NumPy
float64 (traced values and JAX arrays pass through), and importing dmodels never touches `jax.config`.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

import numpy as np
import numpy.typing as npt

from .answers import in_html, plain
from .errors import InputError
from .names import unsearched
from .schedule import in_order
from .tables import frame

with unsearched():
    import equinox as eqx
    import jax

if TYPE_CHECKING:
    import pandas as pd

#: A float64 number or array, on the host or traced. A name for readers: `float`, NumPy and JAX arrays have operators
#: and meaning in common but no static type, and a union of them types almost no expression.
Real = Any

#: A float64 array on the host.
Floats = npt.NDArray[np.float64]

#: What a leaf is on the host: an array, or a single number.
HOST = np.ndarray | np.generic

T = TypeVar("T")
P = ParamSpec("P")

in_order(jax.__version_info__)


def _real(value: Any) -> Real:
    """float64 on the host; a traced or device array as it is.

    A single number is a scalar, no array without axes: JAX keeps such arrays by identity across its precisions, so that
    a record that a program in float64 has closed over would be handed to one in float32.
    """
    if isinstance(value, jax.Array | jax.core.Tracer) or not isinstance(
        value, int | float | np.ndarray | np.generic | list | tuple | bool
    ):
        return value  # traced, or a placeholder that JAX puts in while it handles a pytree
    return np.asarray(value, np.float64)[()]


def quantity(
    default: Any = dataclasses.MISSING,
    *,
    at_least: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> Any:
    """A field of a record: a float64 leaf, with an optional default and the range that a single number must be in."""
    bounds = {"at least": at_least, "above": above, "below": below}
    metadata = {"bounds": {word: bound for word, bound in bounds.items() if bound is not None}}
    if default is dataclasses.MISSING:
        return eqx.field(converter=_real, metadata=metadata)
    return eqx.field(converter=_real, default=default, metadata=metadata)


_HOLDS: dict[str, Callable[[Any, float], Any]] = {"at least": operator.ge, "above": operator.gt, "below": operator.lt}


def _check_bounds(record: str, field: dataclasses.Field[Any], value: np.ndarray | np.generic) -> None:
    """Refuse a single number outside the bounds of its field (NaN is). In a batch a bad point must not fail the rest:
    formulas flag it."""
    bounds = field.metadata.get("bounds", {})
    if value.ndim == 0 and not all(_HOLDS[word](value, bound) for word, bound in bounds.items()):
        accepted = " and ".join(f"{word} {bound:g}" for word, bound in bounds.items())
        raise InputError(f"{record} {field.name} = {value:g}: accepted are numbers {accepted}")


class Record(eqx.Module):
    """Base of all records. Leaves broadcast; a catalogue is a record whose leaves have shape (n,)."""

    def __check_init__(self) -> None:
        for name, field in self.__dataclass_fields__.items():
            value = getattr(self, name)
            if isinstance(value, str):
                raise InputError(
                    f"{type(self).__name__} {name} = {value!r}: accepted are numbers in base units; "
                    'dmodels.parse("80 ms", "s") reads text'
                )
            if isinstance(value, HOST):
                _check_bounds(type(self).__name__, field, value)

    def __getitem__(self, index: Any) -> Self:
        """The record at `index` of a batched record."""
        at: Self = jax.tree.map(lambda leaf: leaf[index], self)
        return at

    @property
    def shape(self) -> tuple[int, ...]:
        """The common shape of the leaves."""
        return np.broadcast_shapes(*(np.shape(leaf) for leaf in jax.tree.leaves(self)))

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Name -> value of every field: None, bool, int, float, str, list or dict throughout."""
        return {field.name: plain(getattr(self, field.name)) for field in dataclasses.fields(self)}

    def to_dataframe(self) -> pd.DataFrame:
        """A row for each place of the leaves, units in the names."""
        parts = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))
        leaves = {name: np.asarray(value) for name, value in parts if not isinstance(value, Record)}
        shape = np.broadcast_shapes((1,), *(leaf.shape for leaf in leaves.values()))
        columns = {name: np.broadcast_to(leaf, shape).ravel().tolist() for name, leaf in leaves.items()}
        return frame([dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)])

    def _repr_html_(self) -> str:
        """For notebooks."""
        return in_html(type(self).__name__, self.to_dict())

    def __repr__(self) -> str:
        shown = (f"{field.name}={_shown(getattr(self, field.name))}" for field in dataclasses.fields(self))
        return f"{type(self).__name__}({', '.join(shown)})"


def _shown(value: Any) -> str:
    """A leaf as a reader wants it: numbers as they are, many of them by their range.

    >>> _shown(np.float64(0.08)), _shown(np.arange(3.0)), _shown(np.arange(100.0))
    ('0.08', '[0, 1, 2]', '<100 from 0 to 99>')
    """
    if isinstance(value, jax.core.Tracer) or not isinstance(value, np.ndarray | np.generic | jax.Array):
        return repr(value)
    values = np.asarray(value)
    if values.ndim == 0:
        return f"{values.item():.12g}" if values.dtype.kind == "f" else str(values.item())
    if values.size == 0 or values.dtype.kind != "f":
        return f"<{values.dtype} of shape {values.shape}>"
    if values.ndim == 1 and values.size <= 4:
        return "[" + ", ".join(f"{x:.12g}" for x in values.tolist()) + "]"
    size = " x ".join(map(str, values.shape))
    return f"<{size} from {np.nanmin(values):.6g} to {np.nanmax(values):.6g}>"


def stack(*records: T) -> T:
    """Records of one kind as one batched record: `stack(fast, slow)` has leaves of shape (2,)."""
    batch: T = jax.tree.map(lambda *leaves: np.stack(np.broadcast_arrays(*leaves)), *records)
    return batch


def filled(rows: T, least: int = 1) -> T:
    """`rows`, the last repeated up to a power of two and to `least`: many sizes then share few compiled programs."""

    def fill(leaf: Any) -> Any:
        leaf = np.asarray(leaf)
        full = max(least, 1 << max(0, len(leaf) - 1).bit_length())
        return leaf[np.minimum(np.arange(full), len(leaf) - 1)]

    full: T = jax.tree.map(fill, rows)
    return full


def jit(function: Callable[P, T]) -> Callable[P, T]:
    """`jax.jit`, with the signature kept for type checkers and editors."""
    compiled: Callable[P, T] = jax.jit(function)
    return compiled


def traced(*trees: Any) -> bool:
    """Whether JAX is transforming a function over any of these values."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trees))


def on_host(tree: T) -> T:
    """The same with NumPy arrays; as it is, where it is traced."""
    return tree if traced(tree) else jax.tree.map(np.asarray, tree)


def float64(function: Callable[P, T]) -> Callable[P, T]:
    """Run an entry point in float64, whatever the caller's `jax.config` says, and change nothing for the caller."""

    @wraps(function)
    def scoped(*args: P.args, **kwargs: P.kwargs) -> T:
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return scoped
