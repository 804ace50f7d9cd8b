"""A formula over a space as one compiled program that evaluates blocks of fixed shape.

A block is `rows` x `columns` points: the longest axis of the space lies along the columns and the product of all other
axes along the rows, as two nested maps. What depends on the rows alone is so computed once per row, not once per point.
A block may take its rows in turns: a core's cache holds what a turn computes, and one call serves many of them.
The axes' values are data, filled up to powers of two: new numbers never recompile, nor do a few more of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from threading import Lock
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.numerics import power_of_two
from dmodels.core.records import filled, float64

from .axes import Axis
from .formula import check_names, flagged, kept, named, nested


class Layout(NamedTuple):
    """What the compiled program depends on, besides the formula and the shapes of its data. Hashable."""

    rows: int  # of a block
    columns: int
    turn: int  # rows that are evaluated at once, a divisor of `rows`
    long_axis: int  # the axis along the columns
    outputs: tuple[str, ...] | None  # those to keep; None: all
    fixed: tuple[tuple[str, Any], ...]  # arguments that are no data: functions, text, switches
    bare: str  # name of an output that has none


class Program(NamedTuple):
    """A formula, what is fixed, and the data of its axes. Ships to other processes as it is."""

    function: Callable
    layout: Layout
    tables: tuple[dict[str, Any], ...]  # per axis: argument -> values, filled up along their leading axis
    constants: dict[str, Any]
    sizes: tuple[int, ...]  # of the axes, in the caller's order

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) of the whole space."""
        columns = self.sizes[self.layout.long_axis] if self.sizes else 1
        return int(np.prod(self.sizes, dtype=object)) // columns, columns

    @property
    def grid(self) -> tuple[int, int]:
        """How many blocks cover the rows, and the columns."""
        rows, columns = self.shape
        return -(-rows // self.layout.rows), -(-columns // self.layout.columns)

    @property
    def blocks_count(self) -> int:
        """Blocks of the whole space."""
        return self.grid[0] * self.grid[1]

    def window(self, block: int) -> tuple[slice, slice]:
        """The rows and columns of the space that a block covers."""
        down, across = divmod(block, self.grid[1])
        rows, columns = self.shape
        top, left = down * self.layout.rows, across * self.layout.columns
        return (
            slice(top, min(top + self.layout.rows, rows)),
            slice(left, min(left + self.layout.columns, columns)),
        )


def program(
    function: Callable,
    axes: Mapping[str, Axis],
    constants: Mapping[str, Any],
    outputs: tuple[str, ...] | None,
    block_points: int,
) -> Program:
    """Check the arguments against the formula's signature and lay the space out in blocks."""
    fixed: dict[str, Any] = {}
    bare = getattr(function, "__name__", "value")
    while isinstance(function, partial):
        if function.args:
            raise InputError("a partial with positional arguments; accepted are keywords")
        fixed = {**function.keywords, **fixed}
        function = function.func
        bare = getattr(function, "__name__", "value")
    given = [column for axis in axes.values() for column in axis.columns]
    check_names(bare, function, given, [*constants, *fixed])
    data = {}
    for name, value in constants.items():
        if isinstance(value, bool | str | None) or (callable(value) and not dataclasses.is_dataclass(value)):
            fixed[name] = value
        else:
            data[name] = _as_data(name, value)
    for name in [name for name, value in fixed.items() if not _hashable(value)]:
        data[name] = _as_data(name, fixed.pop(name))
    sizes = tuple(axis.size for axis in axes.values())
    long_axis = max(range(len(sizes)), key=lambda i: (sizes[i], i)) if sizes else 0
    across = sizes[long_axis] if sizes else 1
    rows, columns = _block_shape(int(np.prod(sizes, dtype=object)) // across, across, block_points)
    tables = tuple({name: filled(value) for name, value in axis.columns.items()} for axis in axes.values())
    layout = Layout(rows, columns, rows, long_axis, outputs, tuple(sorted(fixed.items())), bare)
    return Program(function, layout, tables, data, sizes)


@float64
def table(
    function: Callable,
    rows: Mapping[str, Any],
    columns: Mapping[str, Any],
    constants: Mapping[str, Any],
    block: tuple[int, int, int],
    least: tuple[int, int],
) -> Program:
    """The formula at all pairs of a row and a column, whose arguments are arrays or records with a leading axis.

    Blocks have a given shape (rows, columns, rows that are evaluated at once), and tables are filled up to `least`
    (rows, columns), so that all smaller spaces share one compiled program.
    """
    sizes = tuple(len(jax.tree.leaves(part)[0]) for part in (rows, columns))
    tables = jax.device_put(tuple(filled(dict(part), most) for part, most in zip((rows, columns), least, strict=True)))
    data = {name: _as_data(name, value) for name, value in constants.items()}
    return Program(function, Layout(*block, long_axis=1, outputs=None, fixed=(), bare="value"), tables, data, sizes)


@float64
def lowered(asked: Program) -> jax.stages.Lowered:
    """The program before compilation; its `out_info` has the shapes (rows, columns, ...) of a block's outputs."""
    return _lowered(asked.function, asked.layout, *_described(asked))


@float64
def evaluate(asked: Program, number: int) -> dict[str, np.ndarray]:
    """The outputs of one block on the host, cut to the part that lies in the space."""
    window = asked.window(number)
    return cut(window, compiled(asked)(*arguments(asked, window)))


@float64
def compiled(asked: Program) -> Callable:
    """The program, compiled once per formula, layout and shapes.

    It is called directly: jit's own cache is told apart by thread-local settings, so each thread would trace again.
    """
    with _COMPILING:
        return _compiled(asked.function, asked.layout, *_described(asked))


def _described(asked: Program) -> tuple:
    leaves, tree = jax.tree.flatten(arguments(asked, asked.window(0)))
    return tree, tuple((leaf.shape, leaf.dtype) for leaf in leaves)


@lru_cache
def _lowered(function, layout: Layout, tree, leaves: tuple) -> jax.stages.Lowered:
    described = jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(*leaf) for leaf in leaves])
    return block.lower(function, layout, *described)


@lru_cache
def _compiled(function, layout: Layout, tree, leaves: tuple) -> Callable:
    return _lowered(function, layout, tree, leaves).compile(_WIDE_VECTORS)


_COMPILING = Lock()

#: XLA uses half of AVX-512 unless asked, and a block consists of exponentials and quotients.
_WIDE_VECTORS = {"xla_cpu_prefer_vector_width": 512}


def cut(
    window: tuple[slice, slice], outputs: Mapping[str, Any], names: Iterable[str] | None = None
) -> dict[str, np.ndarray]:
    """Of these outputs (None: all), of a block that begins where the window does, the part that lies in it."""
    down, across = window
    high, wide = down.stop - down.start, across.stop - across.start
    return {name: np.asarray(outputs[name])[:high, :wide] for name in names or outputs}


def arguments(asked: Program, window: tuple[slice, slice]) -> tuple:
    """The data of a block that begins where the window does, and need not go on below it."""
    down, across = window
    corner = np.array([down.start, across.start, down.stop], np.int64)
    return corner, np.array(asked.sizes, np.int64), asked.tables, asked.constants


@partial(jax.jit, static_argnums=(0, 1))
def block(function, layout: Layout, corner, sizes, tables, constants) -> dict[str, Any]:
    """All outputs of the formula over one block, name -> (rows, columns, ...), flags among them.

    `corner`: its first row and column, and the row that it ends before; further rows of its shape may be left at 0.
    """
    columns = corner[1] + jnp.arange(layout.columns, dtype=jnp.int64)
    inner = _at(tables[layout.long_axis], columns) if tables else {}

    def point(down, across):
        values = nested(dict(layout.fixed) | constants | down | across)
        return kept(flagged(named(function(**values), layout.bare)), layout.outputs)

    by_columns = jax.vmap(point, (None, 0), axis_size=layout.columns)

    def turn(first):
        rows, outer, stride = first + jnp.arange(layout.turn, dtype=jnp.int64), {}, jnp.int64(1)
        for place in reversed(range(len(tables))):
            if place != layout.long_axis:
                outer |= _at(tables[place], (rows // stride) % sizes[place])
                stride = stride * sizes[place]
        return jax.vmap(by_columns, (0, None), axis_size=layout.turn)(outer, inner)

    if layout.turn == layout.rows:
        return turn(corner[0])
    kinds = jax.eval_shape(turn, corner[0])
    nothing = {name: jnp.zeros((layout.rows, *kind.shape[1:]), kind.dtype) for name, kind in kinds.items()}

    def one_more(k, found):
        there = k * layout.turn
        put = lambda whole, part: jax.lax.dynamic_update_slice_in_dim(whole, part, there, 0)
        return jax.tree.map(put, found, turn(corner[0] + there))

    return jax.lax.fori_loop(0, -((corner[0] - corner[2]) // layout.turn), one_more, nothing)


def _at(table: dict[str, Any], index) -> dict[str, Any]:
    """The entries of an axis at these places, its last beyond its end."""
    return jax.tree.map(lambda leaf: jnp.take(jnp.asarray(leaf), index, axis=0, mode="clip"), table)


def _as_data(name: str, value: Any) -> Any:
    """Numbers as float64 arrays, records as they are."""
    if isinstance(value, int | float | np.generic):
        return np.float64(value)
    leaves = jax.tree.leaves(value)
    if not leaves or not all(isinstance(leaf, np.ndarray | np.generic | jax.Array | int | float) for leaf in leaves):
        raise InputError(f"{name} = {value!r}: accepted are numbers, records, functions and text")
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64) if isinstance(leaf, int | float) else leaf, value)


def _block_shape(down: int, across: int, points: int) -> tuple[int, int]:
    """Rows and columns of a block, powers of two: 64 columns for small spaces, and for large ones what wastes least."""
    columns = min(64, power_of_two(across))
    rows = min(max(1, points // columns), power_of_two(down))
    if down * across <= points or rows * columns < 4096:
        return rows, columns
    splits = [(rows, columns), *((max(1, points // c), c) for c in (32, 64, 128, 256, 512))]
    evaluated = lambda split: -(-down // split[0]) * split[0] * (-(-across // split[1]) * split[1])
    return min(splits, key=lambda split: (evaluated(split), -split[0] * split[1], abs(split[1] - 64)))


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
