"""Every number of the token-budget paper: the computed column is what the code gives."""

from __future__ import annotations

import numpy as np
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
    else:  # an input of the paper, a choice of ours, or a recorded Monte Carlo run
        assert row["verdict"] == "input" or row["id"] == "azure_share" or row["id"].endswith("_misroute_pct")


def test_the_interval_of_an_estimate_is_that_of_an_average_with_forgetting():
    """50 ratios of CV 0.2 by weights 0.05 x 0.95^k: against draws."""
    rng = np.random.default_rng(0)
    for row in ROWS:
        if row["id"].endswith("_estimate"):
            true = next(float(r["printed"]) for r in ROWS if r["id"] == row["id"].replace("_estimate", "_true"))
            drawn = 0.05 * rng.normal(true, 0.2 * true, (20_000, 50)) @ 0.95 ** np.arange(50) + 0.95**50 * 4.0
            assert float(row["high"]) - float(row["low"]) == pytest.approx(2 * 1.96 * drawn.std(), rel=0.03)
