"""Every number of the token-budget paper: the computed column is what the code gives, and the verdict is right."""

from pathlib import Path

import pytest

from dmodels.core.files import csv_rows

from ..rounding import rounds_to
from .printed import computed

VERDICTS = {"follows", "does not follow", "simulated", "measured", "input", "unprinted", "at least"}


def rows():
    for path in sorted(Path(__file__).parent.glob("*.csv")):
        text = path.read_text(encoding="utf-8")
        assert text.startswith("# arXiv:2604.09613v1")
        yield from csv_rows(text)


ROWS = list(rows())


@pytest.fixture(scope="module")
def numbers():
    return computed()


def test_ids_are_unique_and_verdicts_known():
    ids = [row["id"] for row in ROWS]
    assert len(set(ids)) == len(ids) > 80 and {row["verdict"] for row in ROWS} <= VERDICTS


def test_every_computed_number_is_listed(numbers):
    assert set(numbers) <= {row["id"] for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_the_row_says_what_the_code_gives(row, numbers):
    number = numbers.get(row["id"])
    if number is not None:
        assert float(row["computed"]) == pytest.approx(number, rel=1e-5)
    if row["verdict"] == "follows":
        assert number is not None and rounds_to(number, row["printed"])
    elif row["verdict"] == "does not follow":
        assert number is not None and not rounds_to(number, row["printed"]) and row["arithmetic"]
    elif row["verdict"] == "at least":
        assert number > float(row["printed"])
