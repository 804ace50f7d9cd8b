"""What an auditor found: figures that contradict each other."""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from typing import Any


class Findings:
    """Contradictions in one answer, each in a line."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.read: dict[str, set[str]] = defaultdict(set)  # columns of tables that were held against something

    def hold(self, true: bool, what: str) -> None:
        """Note `what` unless it is true."""
        if not true:
            self.found.append(what)

    def same(self, what: str, shown: Any, expected: Any, rel: float = 1e-9, most: float = 0.0) -> None:
        """Note a figure that differs from what others say by more than `rel`, or `most` where that is more."""
        if isinstance(shown, int | float) and isinstance(expected, int | float):
            ok = math.isclose(shown, expected, rel_tol=rel, abs_tol=most)
        else:
            ok = shown == expected
        self.hold(ok, f"{what}: shown {shown!r}, by the other figures {expected!r}")

    def ordered(self, what: str, *values: float, rel: float = 1e-9) -> None:
        """Note values that fall."""
        pairs = itertools.pairwise(values)
        self.hold(all(a <= b + rel * abs(b) for a, b in pairs), f"{what}: {values} are not in order")

    def all_read(self, tables: dict[str, list[dict[str, str]]]) -> None:
        """Note columns that nothing was held against."""
        for title, rows in tables.items():
            left = {head for row in rows[:1] for head in row} - self.read[title]
            self.hold(not left, f"{title}: nobody has looked at {sorted(left)}")

    def end(self) -> None:
        """Fail with all that was noted."""
        assert not self.found, "\n".join(self.found)


def number(text: str) -> float:
    """A number as people write it: '1,419', '$251,412', '11.1%', '$1.2 M'."""
    plain = text.strip().lstrip("$").replace(",", "")
    if plain.endswith("%"):
        return float(plain[:-1]) / 100.0
    return float(plain[:-2]) * 1e6 if plain.endswith(" M") else float(plain)


def last_digit(text: str) -> float:
    """Half a unit of the last digit that a number shows: how far it may lie from what was rounded."""
    digits = re.sub(r"[$,% M]", "", text)
    unit = 10.0 ** -len(digits.partition(".")[2]) * (0.01 if "%" in text else 1e6 if "M" in text else 1.0)
    return 0.501 * unit


def numbers(text: str) -> list[float]:
    """Every number in a text."""
    return [number(found) for found in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]
