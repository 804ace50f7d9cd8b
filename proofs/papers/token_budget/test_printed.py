"""Every number of the token-budget paper: the computed column is what the code gives."""

from __future__ import annotations

import pytest

from proofs.papers import rows as papers

from .printed import computed

NAMES = ("calibration", "dollars", "figure6", "fleets", "memory", "throughput")
ROWS = [row for name in NAMES for row in papers.read(f"token_budget/{name}")]


@pytest.fixture(scope="module")
def numbers():
    return computed()


def test_every_computed_number_is_listed(numbers):
    assert len(ROWS) > 80 and set(numbers) <= {row["id"] for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_the_row_says_what_the_code_gives(row, numbers):
    if row["id"] in numbers:
        assert float(row["computed"]) == pytest.approx(numbers[row["id"]], rel=1e-5)
    else:  # an input of the paper, or a recorded Monte Carlo run
        assert row["verdict"] == "input" or row["id"].endswith("_misroute_pct")
