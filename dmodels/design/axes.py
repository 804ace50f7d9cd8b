"""The axes of a design space: numbers, named records, and lists of points.

An axis is data. `grid` varies one argument over numbers, `choice` over named records (GPUs, models, SLOs), `zipped`
several arguments together, row by row. Axes multiply: a space is their product.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.records import stack
from dmodels.core.units import UNITS, parse, unit_of


@dataclass(frozen=True, eq=False)
class Axis:
    """One dimension of a space. `columns`: argument -> values along the axis (arrays or records, leading axis n)."""

    columns: dict[str, Any]
    labels: dict[str, np.ndarray]  # coordinate -> what a person reads along the axis

    @property
    def size(self) -> int:
        """Points along the axis."""
        return len(next(iter(self.labels.values())))


@dataclass(frozen=True, eq=False)
class Grid:
    """Numbers, or text with units, for one argument."""

    values: tuple

    def axis(self, name: str) -> Axis:
        """The axis of argument `name`, whose suffix gives the unit of text."""
        values = _numbers(name, self.values)
        return Axis({name: values}, {name: values})


@dataclass(frozen=True, eq=False)
class Choice:
    """Named alternatives for one argument: records of one kind, or numbers."""

    names: tuple  # of text, or of numbers
    records: Any  # a list of records or numbers, or one batched record with a leading axis

    def axis(self, name: str) -> Axis:
        """The axis of argument `name`; its coordinate is the alternatives' names."""
        if not self.names:
            raise InputError(f"axis {name!r} is empty; accepted is at least one alternative")
        twice = [option for option, times in Counter(self.names).items() if times > 1]
        if twice:
            raise InputError(f"axis {name!r} holds {twice[0]!r} twice; accepted are distinct names")
        values = _stacked(name, self.records) if isinstance(self.records, list) else self.records
        for leaf in jax.tree.leaves(values):
            if np.shape(leaf)[:1] != (len(self.names),):
                raise InputError(
                    f"axis {name!r}: {len(self.names)} names for leaves of shape {np.shape(leaf)}; accepted is "
                    f"a leading axis of {len(self.names)}"
                )
        if all(isinstance(option, int | float | np.number) for option in self.names):
            return Axis({name: values}, {name: np.array(self.names, np.float64)})
        text = [str(option) for option in self.names]
        return Axis({name: values}, {name: np.array(text, dtype=f"<U{max(map(len, text))}")})


@dataclass(frozen=True, eq=False)
class Zipped:
    """Arguments that vary together, one row per point."""

    columns: dict[str, Any]

    def axis(self, name: str) -> Axis:
        """A dimension called `name` whose coordinates are the columns."""
        if not self.columns:
            raise InputError(f"axis {name!r} is empty; accepted is at least one column")
        parts = {}
        for column, values in self.columns.items():
            if isinstance(values, Choice):
                parts[column] = values.axis(column)
            elif len(values) and not isinstance(values[0], int | float | str | np.generic):
                records = list(values)
                parts[column] = Axis({column: _stacked(column, records)}, {column: np.arange(len(records))})
            else:
                numbers = _numbers(column, tuple(values), repeats=True)
                parts[column] = Axis({column: numbers}, {column: numbers})
        sizes = {column: part.size for column, part in parts.items()}
        if len(set(sizes.values())) > 1:
            raise InputError(f"axis {name!r}: columns of lengths {sizes}; accepted are equal lengths")
        return Axis(
            {column: part.columns[column] for column, part in parts.items()},
            {column: part.labels[column] for column, part in parts.items()},
        )


def grid(*values) -> Grid:
    """Numbers for one argument: `grid(1, 2, 4)`, `grid(np.geomspace(10, 1e4, 64))`, `grid("10 ms", "1 s")`.

    Text is read in the unit that the argument's name states. Order is kept; a number may stand only once.
    """
    flat = []
    for value in values:
        flat += [value] if isinstance(value, str) or np.ndim(value) == 0 else list(np.asarray(value).ravel())
    return Grid(tuple(flat))


def choice(options: Any, names: Sequence[str | float] | None = None) -> Choice:
    """Named alternatives for one argument: `choice({"A100": a100, "H100": h100})`, or a batched record and names."""
    if names is not None:
        return Choice(tuple(names), options)
    if not isinstance(options, Mapping):
        raise InputError(
            f"choice of {type(options).__name__}: accepted is a mapping from names to records or numbers, "
            "or a batched record with names"
        )
    return Choice(tuple(options), list(options.values()))


def zipped(table: Mapping[str, Sequence] | Sequence[Mapping]) -> Zipped:
    """Points one by one: a mapping from arguments to equally long columns, a list of rows, or a data frame."""
    if isinstance(table, Mapping):
        return Zipped(dict(table))
    if hasattr(table, "columns") and hasattr(table, "__getitem__"):  # a data frame
        return Zipped({str(column): list(table[column]) for column in table.columns})
    rows = list(table)
    names = list(rows[0]) if rows else []
    for place, row in enumerate(rows):
        if set(row) != set(names):
            raise InputError(f"row {place} of a table has {sorted(row)}; accepted: {sorted(names)}, as in row 0")
    return Zipped({name: [row[name] for row in rows] for name in names})


def _numbers(name: str, values: tuple, repeats: bool = False) -> np.ndarray:
    if not values:
        raise InputError(f"axis {name!r} is empty; accepted is at least one number")
    unit = unit_of(name.rpartition(".")[2])
    found = []
    for value in values:
        if isinstance(value, str):
            if unit not in UNITS:
                raise InputError(f"axis {name!r}: {value!r} is text, and the name states no unit; accepted are numbers")
            value = parse(value, unit)
        try:
            found.append(float(value))
        except (TypeError, ValueError):
            raise InputError(
                f"axis {name!r}: {value!r} is not a number; accepted are numbers, or choice({{name: record}})"
            ) from None
        if math.isnan(found[-1]):
            raise InputError(f"axis {name!r}: NaN; accepted are numbers")
    numbers = np.array(found)
    if not repeats and len(np.unique(numbers)) < len(numbers):
        places, counts = np.unique(numbers, return_counts=True)
        raise InputError(f"axis {name!r} holds {places[counts > 1][0]:g} twice; accepted are distinct values")
    return numbers


def _stacked(name: str, records: list) -> Any:
    """Alternatives as one batched value; they must be of one kind, with leaves of matching shapes."""
    kinds = {type(record).__name__ for record in records}
    if all(isinstance(record, int | float | np.generic) for record in records):
        return np.array(records, np.float64)
    if len({jax.tree.structure(record) for record in records}) > 1:
        raise InputError(f"axis {name!r} mixes {', '.join(sorted(kinds))}; accepted are records of one kind")
    if not all(
        isinstance(leaf, np.ndarray | np.generic | float | int | jax.Array)
        for record in records
        for leaf in jax.tree.leaves(record)
    ):
        raise InputError(f"axis {name!r} holds {', '.join(sorted(kinds))}; accepted are records and numbers")
    try:
        return stack(*records)
    except ValueError:
        shapes = sorted({str(tuple(np.shape(leaf) for leaf in jax.tree.leaves(record))) for record in records})
        raise InputError(
            f"axis {name!r}: leaves of shapes {' and '.join(shapes)}; accepted are shapes that broadcast"
        ) from None
