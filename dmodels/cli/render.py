"""What commands print: tables for people, JSON with inputs, units in the keys, and the versions for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dmodels.core.answers import plain
from dmodels.report.text import Table, cell

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Grid

#: Version of the answers: a key that changes or goes raises it, a new key does not.
VERSION = 1


def whole(value: Any) -> Any:
    """Plain data with whole floats as ints, which is shorter and the same number."""
    if isinstance(value, dict):
        return {name: whole(one) for name, one in value.items()}
    if isinstance(value, list):
        return [whole(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def as_json(command: str, inputs: Mapping[str, Any], result: Any) -> str:
    """One JSON document: its schema, what was asked, what came out, and the version that answered."""
    from dmodels import __version__

    head = {"schema": f"dmodels.{command}/{VERSION}", "dmodels": __version__, "command": command}
    return json.dumps(head | {"inputs": whole(plain(inputs)), "result": whole(plain(result))}, indent=2)


def say(sentences: Iterable[str]) -> None:
    """Sentences on stdout, a line each; on a terminal lines end between words."""
    import shutil
    import sys
    import textwrap

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for told in sentences:
        print(textwrap.fill(told, width, break_long_words=False, break_on_hyphens=False) if width else told)


def show(tables: Iterable[Table]) -> None:
    """Tables on stdout. Numbers align right; nothing is cut when stdout is not a terminal."""
    import sys

    from rich.console import Console

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 200, markup=False)
    for table in tables:
        for grid in fitted(table, console):
            with console.capture() as text:  # rich itself ends the program where the reader of a pipe has gone
                console.print(grid)
            print(text.get(), end="")


#: A table of more rows is not turned: its reader compares rows.
_FEW_ROWS = 12


def fitted(table: Table, console: Console) -> list[Grid]:
    """The table as wide as the console: as it is, or with lines broken between words. Few rows become columns, as many
    beside each other as fit, in a file and where that takes fewer lines; of many rows, where words would be cut, the
    columns come in turn, each time behind the first."""
    title, head, rows = table
    whole = _grid(title, head, rows)
    if _width(whole, console) <= console.width or not rows or len(head) < 3:
        return [whole]
    broken = _broken(whole, console)
    if len(rows) > _FEW_ROWS:
        return [broken] if broken else _in_turn(title, head, rows, console)
    ways = [*([[broken]] if broken and console.is_terminal else []), _turned_beside(title, head, rows, console)]
    return min(ways, key=lambda grids: sum(len(console.render_lines(grid)) for grid in grids))


def _broken(grid: Grid, console: Console) -> Grid | None:
    """The table with lines broken between words, those most that are longest; None where words would be cut."""
    texts = [[str(column.header), *map(str, column.cells)] for column in grid.columns]
    most = [max(map(len, column)) for column in texts]
    widths = [max(len(word) for text in column for word in [*text.split(), "-"]) for column in texts]
    for _ in range(room := console.width - 3 * len(widths) - 1 - sum(widths)):
        widths[max(range(len(widths)), key=lambda i: most[i] / widths[i])] += 1
    for column, width in zip(grid.columns, widths, strict=True):
        column.width = width
    return grid if room >= 0 else None


def _turned_beside(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]], console: Console) -> list[Grid]:
    for beside in range(len(rows), 0, -1):
        parts = [rows[i : i + beside] for i in range(0, len(rows), beside)]
        grids = [_turned(title if i == 0 else "", head, part) for i, part in enumerate(parts)]
        if beside == 1 or all(_width(grid, console) <= console.width for grid in grids):
            return grids
    raise AssertionError("a row alone is always shown")


def _in_turn(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]], console: Console) -> list[Grid]:
    grids: list[Grid] = []
    columns = [0]
    for i in range(1, len(head)):
        wider = _columns(title, head, rows, [*columns, i])
        if len(columns) == 1 or _width(wider, console) <= console.width:
            columns.append(i)
            continue
        grids.append(_columns(title, head, rows, columns))
        title, columns = "", [0, i]
    return [*grids, _columns(title, head, rows, columns)]


def _columns(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]], kept: Sequence[int]) -> Grid:
    return _grid(title, [head[i] for i in kept], [[row[i] for i in kept] for row in rows])


def _grid(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> Grid:
    from rich.table import Table as Grid

    grid = Grid(title=title or None, title_justify="left", title_style="bold", header_style="bold")
    for i, name in enumerate(head):
        right = all(isinstance(row[i], int | float | np.number) for row in rows)
        grid.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in rows:
        grid.add_row(*map(cell, row))
    return grid


def _turned(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> Grid:
    names = [head[0], *(cell(row[0]) for row in rows)]
    return _grid(
        title,
        names,
        [
            [name, *(cell(row[i]) for row in rows)]
            for i, name in enumerate(head)
            if i and any(cell(row[i]) for row in rows)
        ],
    )


def _width(grid: Grid, console: Console) -> int:
    """Of its columns, not its title, which wraps."""
    return int(grid.__rich_measure__(console, console.options.update(width=100_000)).maximum)
