"""Phasor's numbers: the computed column is what the code gives."""

from __future__ import annotations

import pytest

from proofs.papers import rows as papers

from .printed import computed

ROWS = [row for name in ("energy", "calibration", "gains", "settings") for row in papers.read(f"phasor/{name}")]


@pytest.fixture(scope="module")
def numbers():
    return computed()


def test_every_computed_number_is_listed(numbers):
    assert set(numbers) <= {row["id"] for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_the_row_says_what_the_code_gives(row, numbers):
    if row["id"] in numbers:
        assert float(row["computed"]) == pytest.approx(numbers[row["id"]], rel=1e-4)
    else:
        assert row["verdict"] in ("input", "not computed")


@pytest.mark.parametrize("name", ["table2", "table2_llama", "table5", "capacity", "panorama"])
def test_simulated_ratios_carry_an_interval(name):
    rows = [row for row in papers.read(f"phasor/{name}") if row["rule"] == "interval"]
    assert len(rows) >= 14 and all(row["low"] and row["high"] for row in rows)
