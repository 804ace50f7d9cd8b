"""Laws of load sweeps: known curves are recovered, and a pole that the data do not place is said to be unplaced."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.fit import knee as knees
from dmodels.fit.curves import compare, curve, fit_closed_loop, fit_linear, fit_singular
from dmodels.fit.knee import bracket, knee
from dmodels.models.latency import singular_latency_s
from dmodels.models.queueing import closed_loop_rps
from proofs.papers.price_of_anarchy.printed import load_sweep

LOADS = np.array([1.0, 2, 4, 8, 16, 32, 48, 56, 60, 62])


@pytest.fixture(scope="module")
def paper():
    """Table 4 of the price-of-anarchy paper."""
    return load_sweep()


def test_a_line_is_recovered_with_its_interval():
    noise = np.exp(np.random.default_rng(0).normal(0, 0.02, LOADS.size))
    found = fit_linear(LOADS, (8e-3 + 0.65e-3 * LOADS) * noise)
    for name, true in (("base_s", 8e-3), ("per_sequence_s", 0.65e-3)):
        low, high = found.interval(name)
        assert low < true < high and high / low < 1.3
    assert found.sigma == pytest.approx(0.02, rel=0.6)


def test_a_pole_inside_the_data_is_found():
    noise = np.exp(np.random.default_rng(1).normal(0, 0.01, LOADS.size))
    found = fit_singular(LOADS, (0.004 * LOADS + 0.1 + 2.0 / (64.0 - LOADS)) * noise, beta=1.0)
    low, high = found.interval("n_sat")
    assert low < 64.0 < high and high - low < 2.0
    assert not found.warnings
    value = float(singular_latency_s(32.0, curve(found)))
    assert value == pytest.approx(0.004 * 32 + 0.1 + 2.0 / 32.0, rel=0.03)


def test_the_papers_rows_below_the_knee_do_not_place_the_pole(paper):
    below = paper["clients"] <= 96
    found = fit_singular(paper["clients"][below], paper["ttft_p99_s"][below], beta=1.0)
    assert any("not identified" in said for said in found.warnings)
    line = fit_linear(paper["clients"][below], paper["ttft_p99_s"][below])
    assert compare(found, line)[0]["law"] == "linear"
    upto = paper["clients"] <= 128
    pulled = fit_singular(paper["clients"][upto], paper["ttft_p99_s"][upto], beta=1.0)
    assert 128.0 <= pulled.values["n_sat"] < 129.0  # one more point, and the pole sits on it
    assert any("moves" in said for said in pulled.warnings)


def test_the_papers_knee_lies_where_its_latency_jumps(paper):
    below = paper["clients"] <= 96
    found = knee(paper["clients"][below], paper["rps"][below])
    low, high = bracket(paper["clients"], paper["ttft_p99_s"])
    assert (low, high) == (96.0, 128.0)
    assert found.low < high and low < found.high
    whole = knee(paper["clients"], paper["rps"])
    assert low < whole.clients <= high and whole.ceiling_rps == pytest.approx(18.0, rel=0.06)


def test_a_closed_loop_is_recovered_from_its_throughput():
    clients = np.geomspace(1.0, 512.0, 14)
    rates = np.asarray(closed_loop_rps(clients, 6.0, 0.05))
    found = fit_closed_loop(clients, rates)
    assert found.values["think_s"] == pytest.approx(6.0, rel=1e-3)
    assert found.values["service_s"] == pytest.approx(0.05, rel=1e-3)
    assert knee(clients, rates).clients == pytest.approx(121.0, rel=2e-3)


@pytest.mark.parametrize("most, far", [(56.0, True), (64.0, False)])
def test_a_knee_beyond_twice_the_loads_is_said_to_be_extrapolated(most, far):
    """At 121 clients; of measurements a thousandth above and below the law in turn nothing else is said."""
    clients = np.linspace(2.0, most, 14)
    found = knee(clients, np.asarray(closed_loop_rps(clients, 6.0, 0.05)) * (1.0 + 1e-3 * (-1.0) ** np.arange(14)))
    assert found.clients == pytest.approx(121.0, rel=0.05)
    assert [said.partition(",")[0] for said in found.warnings] == [f"the loads end at {most:g}"] * far


def test_a_shape_is_doubted_where_fewer_than_one_in_fifty_orders_have_so_few_runs(monkeypatch):
    """Two runs: 2 of the 126 orders of four and five signs; 2 of the 70 of four and four."""
    clients = np.geomspace(1.0, 512.0, 14)
    plain = fit_closed_loop(clients, np.asarray(closed_loop_rps(clients, 6.0, 0.05)))
    for below, doubted in ((5, True), (4, False)):
        signs = np.array([1.0] * 4 + [-1.0] * below)
        monkeypatch.setattr(knees, "fit_closed_loop", lambda x, y, signs=signs: replace(plain, residuals=0.01 * signs))
        assert bool(knees.knee(clients, clients).warnings) == doubted


@pytest.mark.parametrize("values", [[1.0, 2.0], [1.0, -2.0, 3.0, 4.0], [1.0, np.nan, 3.0, 4.0], [1.0, 0.0, 3.0, 4.0]])
def test_what_cannot_be_fitted_is_refused(values):
    with pytest.raises(InputError, match="load sweep"):
        fit_linear([1.0, 2.0, 3.0, 4.0], values)
