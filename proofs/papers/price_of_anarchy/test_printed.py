"""The price-of-anarchy paper's numbers: the computed column is what the code gives, and what tables show together."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from benchmarks.papers._router_map import finite_source
from dmodels.games.anarchy import poa_index
from proofs.papers import rows as papers

from .printed import SERVICE_S, TOKENS, column, computed, denominator_s, itl_s, load_sweep

ROWS = [row for name in ("claims", "table2", "table3", "table5") for row in papers.read(f"price_of_anarchy/{name}")]


@pytest.fixture(scope="module")
def numbers():
    return computed()


def test_every_computed_number_is_listed_and_every_listed_one_computed(numbers):
    assert {row["id"] for row in ROWS if row["computed"]} == set(numbers)


@pytest.mark.parametrize("row", [row for row in ROWS if row["computed"]], ids=lambda row: row["id"])
def test_the_row_says_what_the_code_gives(row, numbers):
    assert float(row["computed"]) == pytest.approx(numbers[row["id"]], rel=1e-3)


def test_the_plateau_is_mean_latency_over_a_third_of_a_second():
    """C = 16..96: (C / rps) / PoA-hat is 0.330 to 0.336 s, the cost model's value at 63 requests a worker: 0.330 s."""
    sweep = load_sweep()
    flat = (sweep["clients"] >= 16) & (sweep["clients"] <= 96)
    implied = (sweep["clients"] / sweep["rps"] / sweep["poa_hat"])[flat]
    assert implied.min() >= 0.3295 and implied.max() <= 0.3365 and denominator_s(63) == pytest.approx(0.330)
    worker = np.arange(126) % 2
    index = poa_index(np.full(126, 64 / 10.2), worker, np.ones((126, 2)))
    assert float(index.poa_hat) == pytest.approx(19.0, abs=0.05) and float(index.routing) == pytest.approx(1.0)


def test_ttft_at_saturation_is_not_that_of_a_fifo_queue():
    """From C = 192 on the printed P99 is 4 to 9 times FIFO's; by Little's law P99 / mean TTFT is then 5 to 12."""
    think, sweep = TOKENS * itl_s(), load_sweep()
    for clients, p99, rps in zip(sweep["clients"], sweep["ttft_p99_s"], sweep["rps"], strict=True):
        if clients >= 192:
            assert 4 < p99 / float(finite_source(int(clients), think, SERVICE_S)[1]) < 10
            assert 4.5 < p99 / (clients / rps - think) < 12.5


def test_no_trend_over_tau_or_omega_in_the_saturated_panels():
    """Table 6 (b), (c): Spearman over 16 cells, four tests at 5 % together. The nearest is (c): omega, p = 0.033."""
    grid = np.array([0.0, 0.3, 0.7, 1.0])
    for panel in "bc":
        cells = column("table6", "", f"{panel}_tau")
        for parameter in (np.repeat(grid, 4), np.tile(grid, 4)):
            assert stats.spearmanr(parameter, cells).pvalue > 0.05 / 4
    below = column("table6", "", "a_tau")
    assert np.ptp(below) <= 0.4 + 1e-9 and below.std(ddof=1) == pytest.approx(0.10, abs=0.01)
