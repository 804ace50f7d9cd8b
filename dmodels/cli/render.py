"""What commands print: tables for people, JSON with inputs, units in the keys, and the versions for programs."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import numpy as np

from dmodels.report.text import Table, cell

#: Version of the answers: a key that changes or goes raises it, a new key does not.
VERSION = 1


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: records as objects, arrays as lists, whole floats as ints, NaN and infinities as
    null."""
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, Enum):
        return plain(value.value)
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, int | float):
        number = float(value)
        if not math.isfinite(number):
            return None
        return int(value) if number.is_integer() and abs(number) < 2**53 else value
    if hasattr(value, "__array__"):
        return plain(np.asarray(value).tolist())
    return str(value)


def as_json(command: str, inputs: Mapping[str, Any], result: Any) -> str:
    """One JSON document: its schema, what was asked, what came out, and the version that answered."""
    from dmodels import __version__

    head = {"schema": f"dmodels.{command}/{VERSION}", "dmodels": __version__, "command": command}
    return json.dumps(head | {"inputs": plain(inputs), "result": plain(result)}, indent=2)


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
