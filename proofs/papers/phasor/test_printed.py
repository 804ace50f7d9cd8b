"""Phasor's numbers: the computed column is what the code gives, and each verdict is right."""

from pathlib import Path

import pytest

from dmodels.core.files import csv_rows

from ..rounding import rounds_to
from .printed import computed

VERDICTS = {"follows", "does not follow", "input", "unprinted"}


def _rows():
    for name in ("energy", "calibration", "gains"):
        text = Path(__file__).with_name(f"{name}.csv").read_text(encoding="utf-8")
        assert text.startswith("# Phasor.")
        yield from csv_rows(text)


ROWS = list(_rows())


@pytest.fixture(scope="module")
def numbers():
    return computed()


def test_ids_are_unique_and_every_computed_number_is_listed(numbers):
    ids = [row["id"] for row in ROWS]
    assert len(set(ids)) == len(ids) and set(numbers) <= set(ids) and {row["verdict"] for row in ROWS} == VERDICTS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_the_row_says_what_the_code_gives(row, numbers):
    number = numbers.get(row["id"])
    if number is not None:
        assert float(row["computed"]) == pytest.approx(number, rel=1e-4)
    if row["verdict"] == "follows":
        assert rounds_to(number, row["printed"])
    elif row["verdict"] == "does not follow":
        assert not rounds_to(number, row["printed"]) and row["arithmetic"]
    else:
        assert (row["verdict"] == "input") == (number is None)


@pytest.mark.parametrize("name", ["table2", "table5"])
def test_simulated_tables_carry_an_interval_and_the_verdict_that_it_gives(name):
    rows = list(csv_rows(Path(__file__).with_name(f"{name}.csv").read_text(encoding="utf-8")))
    assert len(rows) >= 15
    for row in rows:
        printed, value, reach = (float(row[k]) for k in ("printed", "simulated", "half_width"))
        inside = abs(value - printed) <= reach + 0.005
        same = (printed - 1) * (value - 1) > 0 and abs(value - 1) > reach
        expected = "within the interval" if inside else "same side of 1" if same else "does not reproduce"
        assert row["verdict"] == expected
