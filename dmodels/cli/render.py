"""What commands print: tables for people, JSON with inputs, units in the keys, and the versions for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dmodels.core.answers import plain
from dmodels.report.text import Table, cell

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


def show(tables: Iterable[Table]) -> None:
    """Tables on stdout. Numbers align right; nothing is cut when stdout is not a terminal."""
    import sys

    from rich.console import Console
    from rich.table import Table as Grid

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 200, soft_wrap=False, markup=False)
    for title, head, rows in tables:
        grid = Grid(title=title, title_justify="left", title_style="bold", header_style="bold")
        for i, name in enumerate(head):
            right = all(isinstance(row[i], int | float | np.number) for row in rows)
            grid.add_column(name, justify="right" if right else "left")
        for row in rows:
            grid.add_row(*map(cell, row))
        with console.capture() as text:  # rich itself ends the program where the reader of a pipe has gone
            console.print(grid)
        print(text.get(), end="")
