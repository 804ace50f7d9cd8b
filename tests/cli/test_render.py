"""Tables on terminals of any width: nothing is cut, and wide tables of few rows are turned."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from dmodels.cli.render import fitted

WIDE = (
    "Pools",
    ["pool", *(f"a column {i}" for i in range(9))],
    [["prefill", *range(100_000, 100_009)], ["decode", *range(200_000, 200_009)], ["together", *range(9)]],
)


def shown(table, width):
    out = io.StringIO()
    console = Console(file=out, width=width)
    for grid in fitted(table, console):
        console.print(grid)
    return out.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_every_value_is_shown_whole_at_every_width(width):
    text = shown(WIDE, width)
    assert max(map(len, text.splitlines())) <= width and "…" not in text
    for row in WIDE[2]:
        for value in row[1:]:
            assert (f"{value:,}") in text
    assert text.count("Pools") == 1


def test_a_table_that_fits_stays_as_it_is():
    title, head, rows = WIDE
    text = shown((title, head[:3], [row[:3] for row in rows]), 80)
    assert [line for line in text.splitlines() if "prefill" in line and "100,001" in line]


def test_a_table_of_many_rows_is_not_turned():
    many = ("Catalogue", ["name", "memory", "bandwidth"], [[f"gpu{i}" + "x" * 40, i, i] for i in range(20)])
    assert len(fitted(many, Console(file=io.StringIO(), width=40))) == 1


def test_a_row_of_a_turned_table_without_any_value_is_left_out():
    title, head, _ = WIDE
    table = (title, head, [["together", *([""] * 8), 7]])
    assert "a column 3" not in shown(table, 60) and "a column 8" in shown(table, 60)
