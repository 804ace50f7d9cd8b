"""Numbers as people read them, the same on a terminal and on a page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np


def cell(value: Any) -> str:
    """A table cell: four significant digits, thousands separated, whole numbers whole.

    >>> cell(1234567.8), cell(1234.5), cell(0.123456), cell(3)
    ('1,234,568', '1,234', '0.1235', '3')
    """
    if isinstance(value, float | np.floating):
        number = float(value)
        if not math.isfinite(number):
            return "-" if math.isnan(number) else "inf"
        small = abs(number) < 1e4  # from there on four digits are not all of the whole number
        number = float(f"{number:.4g}") if small else number
        return f"{number:g}" if small and not number.is_integer() else f"{number:,.0f}"
    return f"{value:,}" if isinstance(value, int | np.integer) and not isinstance(value, bool) else str(value)


def ms(seconds: float) -> str:
    """Milliseconds, three digits, thousands separated.

    >>> ms(0.0809), ms(1.8734)
    ('80.9', '1,870')
    """
    return cell(float(f"{1e3 * float(seconds):.3g}"))


def share(part: float) -> str:
    """A percentage that is not shown as nothing where it is little.

    >>> share(0.25), share(0.000123)
    ('25%', '0.0123%')
    """
    return f"{100.0 * part:.3g}%"


#: Title, heads and rows: what terminal and page show alike.
Table = tuple[str, list[str], list[list[Any]]]


def table(title: str, items: Iterable[Any], columns: Mapping[str, str | Callable[[Any], Any]]) -> Table:
    """A row of each item, and per column a function of it or a field of it; `field:.1%` writes it in that format.

    >>> table("Tiers", [{"name": "HBM", "hit_frac": 0.5}], {"tier": "name", "hits": "hit_frac:.1%"})
    ('Tiers', ['tier', 'hits'], [['HBM', '50.0%']])
    """
    return title, list(columns), [[_value(item, column) for column in columns.values()] for item in items]


def _value(item: Any, column: str | Callable[[Any], Any]) -> Any:
    if callable(column):
        return column(item)
    name, _, form = column.partition(":")
    value = item[name] if isinstance(item, Mapping) else getattr(item, name)
    return format(value, form) if form else value


def milliseconds(seconds: float) -> float:
    """Milliseconds, four digits."""
    return float(f"{1e3 * float(seconds):.4g}")
