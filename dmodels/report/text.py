"""Numbers as people read them, the same on a terminal and on a page."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def cell(value: Any) -> str:
    """A table cell: four significant digits, thousands separated, whole numbers whole.

    >>> cell(1234567.0), cell(0.123456), cell(3)
    ('1,234,567', '0.1235', '3')
    """
    if isinstance(value, float | np.floating):
        number = float(value)
        if not math.isfinite(number):
            return "-" if math.isnan(number) else "inf"
        if number.is_integer() or abs(number) >= 10_000:
            return f"{number:,.0f}"
        return f"{number:.4g}"
    return f"{value:,}" if isinstance(value, int | np.integer) and not isinstance(value, bool) else str(value)


def share(part: float) -> str:
    """A percentage that is not shown as nothing where it is little.

    >>> share(0.25), share(0.000123)
    ('25%', '0.0123%')
    """
    return f"{100.0 * part:.3g}%"
