"""What commands print: tables for people, JSON with inputs, units in the keys, and the version for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dmodels.report.text import cell


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: arrays as lists, whole floats as ints, NaN and infinities as null."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        number = float(value)
        if not math.isfinite(number):
            return None
        return int(number) if number.is_integer() and abs(number) < 2**53 else number
    return value if isinstance(value, str) or value is None else str(value)


def as_json(command: str, inputs: Mapping[str, Any], result: Any) -> str:
    """One JSON document: what was asked, what came out, and the version that answered."""
    from dmodels import __version__

    document = {"dmodels": __version__, "command": command, "inputs": plain(inputs), "result": plain(result)}
    return json.dumps(document, indent=2)


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table on stdout. Numbers align right; nothing is cut when stdout is not a terminal."""
    import sys

    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    numeric = [all(isinstance(row[i], int | float | np.number) for row in rows) for i in range(len(head))]
    for name, right in zip(head, numeric, strict=True):
        table.add_column(name, justify="right" if right else "left")
    for row in rows:
        table.add_row(*(cell(value) for value in row))
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else 200, soft_wrap=False, markup=False).print(table)
