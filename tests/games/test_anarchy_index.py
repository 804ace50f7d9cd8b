"""PoA-hat: identical to the Hungarian on the replicated matrix, and what it does and does not measure."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from dmodels.core.flags import Flag
from dmodels.games.anarchy import IndexCost, calibrated_cost, poa_index


def the_papers_way(latency, worker, overlap, capacity=64):
    """Section 6.4: replicate each worker's column up to its capacity and run the Hungarian."""
    m = overlap.shape[1]
    n = np.bincount(worker, minlength=m)
    cost = 0.005 * n + 0.020 + 0.010 / (capacity - n) ** 2.0 - 0.015 * overlap
    matrix = np.repeat(cost, capacity, axis=1)
    return latency.sum() / matrix[linear_sum_assignment(matrix)].sum()


@settings(max_examples=40)
@given(seed=st.integers(0, 2**31), n=st.sampled_from([1, 8, 126, 300]), m=st.integers(1, 6), prefixes=st.booleans())
def test_identical_to_the_replicated_matrix(seed, n, m, prefixes):
    rng = np.random.default_rng(seed)
    worker = rng.integers(0, m, (2, n))
    if (np.apply_along_axis(np.bincount, 1, worker, minlength=m) == 64).any():
        return  # the formula divides by zero there
    overlap = rng.uniform(size=(5, m))[rng.integers(0, 5, (2, n))] if prefixes else rng.uniform(size=(2, n, m))
    latency = rng.exponential(3.0, (2, n))
    index = poa_index(latency, worker, overlap)
    ours = [the_papers_way(latency[b], worker[b], overlap[b]) for b in range(2)]
    np.testing.assert_allclose(index.poa_hat, ours, rtol=1e-12)
    assert ((index.flags & int(Flag.INFEASIBLE)) != 0).all() == (n > 64 * m)
    np.testing.assert_allclose(index.poa_hat, index.misfit * index.routing, rtol=1e-12)


@pytest.mark.parametrize("aware", [False, True])
def test_workers_of_their_own_by_trying_every_assignment(aware):
    """Curves, places and caches of each worker; at the loads as they are, or as every assignment would make them."""
    for seed in range(25):
        rng = np.random.default_rng(seed)
        n, m = int(rng.integers(1, 5)), int(rng.integers(2, 4))
        a, b, d, beta = (rng.uniform(0, 1, m), rng.uniform(0.5, 2, m), rng.uniform(0, 3, m), rng.uniform(0.5, 2, m))
        places, weight = rng.integers(2, 6, m).astype(float), rng.uniform(0, 0.4)
        worker, latency, overlap = rng.integers(0, m, n), rng.uniform(1, 9, n), rng.uniform(size=(n, m))
        overlap = overlap[[0] * n] if seed % 3 == 0 else overlap
        if (np.bincount(worker, minlength=m) >= places).any():
            continue
        f = lambda j, k, a=a, b=b, d=d, beta=beta, places=places: a[j] * k + b[j] + d[j] / (places[j] - k) ** beta[j]
        costs = {}
        for profile in product(range(m), repeat=n):
            loads = np.bincount(profile if aware else worker, minlength=m)
            mine = np.bincount(profile, minlength=m)
            if (mine >= places).any() if aware else (mine > places).any():
                continue
            costs[profile] = sum(f(j, loads[j]) - weight * overlap[i, j] for i, j in enumerate(profile))
        told = poa_index(latency, worker, overlap, IndexCost(a, b, d, beta, places, weight), aware, backend="cpu")
        assert float(told.optimum_s) == pytest.approx(min(costs.values()))
        assert float(told.model_s) == pytest.approx(costs[tuple(worker)])
        assert (
            float(told.observed_s) == pytest.approx(sum(latency))
            and told.loads.tolist() == np.bincount(worker, minlength=m).tolist()
        )
        assert float(told.poa_hat) == pytest.approx(sum(latency) / min(costs.values())) and told.flags == 0
        assert float(told.routing) == pytest.approx(costs[tuple(worker)] / min(costs.values()))
        assert float(told.misfit) == pytest.approx(sum(latency) / costs[tuple(worker)])


def test_the_pole_is_flagged():
    """At 64 requests the formula divides by zero; past it, it falls again: f(65) > f(66)."""
    at = poa_index(np.ones(64), np.zeros(64, int), np.zeros((64, 2)))
    assert np.isnan(at.poa_hat) and int(at.flags) & Flag.OUT_OF_DOMAIN
    past = [poa_index(np.ones(n), np.zeros(n, int), np.zeros((n, 1))) for n in (65, 66)]
    assert all(int(p.flags) & Flag.OUT_OF_DOMAIN for p in past)
    assert past[0].model_s / 65 > past[1].model_s / 66


def test_it_is_no_upper_bound_on_the_price_of_anarchy():
    """Pigou's pair at its worst equilibrium, both on f = n: frozen optimum 4, true optimum 3, index 1 < 4/3."""
    n = np.array([2.0, 0.0])
    latency, cost = np.array([2.0, 2.0]), IndexCost([1.0, 0.0], [0.0, 2.0], 0.0, 2.0, 64.0, 0.0)
    assert n @ (n * [1, 0] + [0, 2]) == 4
    frozen = poa_index(latency, np.zeros(2, int), np.zeros((2, 2)), cost)
    aware = poa_index(latency, np.zeros(2, int), np.zeros((2, 2)), cost, load_aware=True)
    assert float(frozen.poa_hat) == pytest.approx(1.0) and float(aware.poa_hat) == pytest.approx(4 / 3)


def test_at_a_wardrop_equilibrium_it_is_one_whatever_the_price():
    """100 requests on f = n, 100 f = 100: at n = 100 the true ratio is 4/3, the index 1."""
    cost = IndexCost([1.0, 0.0], [0.0, 100.0], 0.0, 2.0, 200.0, 0.0)
    latency, worker = np.full(100, 100.0), np.zeros(100, int)
    assert float(poa_index(latency, worker, np.zeros((100, 2)), cost).poa_hat) == pytest.approx(1.0)
    aware = poa_index(latency, worker, np.zeros((100, 2)), cost, load_aware=True)
    assert float(aware.poa_hat) == pytest.approx(4 / 3, rel=1e-4)


def test_calibration_recovers_the_model_that_made_the_latencies():
    rng = np.random.default_rng(0)
    worker, overlap = rng.integers(0, 3, (30, 60)), rng.uniform(size=(30, 60, 3))
    loads = np.stack([(worker == j).sum(-1) for j in range(3)], -1)
    own = np.take_along_axis(overlap, worker[..., None], -1)[..., 0]
    latency = 0.03 * np.take_along_axis(loads, worker, -1) + 2.0 + 0.5 * (1 - own)
    cost = calibrated_cost(latency, worker, overlap)
    np.testing.assert_allclose([cost.a_s, cost.b_s, cost.cache_s], [0.03, 2.5, 0.5], rtol=1e-9)
    np.testing.assert_allclose(poa_index(latency, worker, overlap, cost).misfit, 1.0, rtol=1e-9)


def test_leading_axes_broadcast_and_single_windows_are_scalars():
    index = poa_index([0.4, 0.4], [0, 0], np.zeros((2, 2)))
    assert index.poa_hat.shape == () and index.loads.tolist() == [2.0, 0.0]


def test_as_many_requests_as_places_fit_and_one_more_does_not():
    for count, flag in ((4, 0), (5, int(Flag.INFEASIBLE))):
        found = poa_index(np.ones(count), np.arange(count) % 2, np.zeros((count, 2)), IndexCost(d_s=0.0, capacity=2.0))
        assert int(found.flags) & int(Flag.INFEASIBLE) == flag
        assert float(found.optimum_s) == pytest.approx({4: 4 * 0.03, 5: 2 * 0.035 + 2 * 0.03}[count])


def test_one_latency_without_a_number_is_enough_for_a_flag():
    told = poa_index([[1.0, np.inf], [np.nan, 1.0], [1.0, 1.0]], np.array([[0, 1]] * 3), np.zeros((3, 2, 2)))
    assert told.flags.tolist() == [int(Flag.NONFINITE)] * 2 + [0]
    free = poa_index([1.0], [0], np.zeros((1, 1)), IndexCost(0.0, 0.0, 0.0))
    assert np.isnan(free.poa_hat) and np.isnan(free.routing) and int(free.flags) == Flag.NONFINITE


def test_costs_of_their_own_for_each_window_stay_on_the_host():
    """Two windows of the same two requests on one worker: 10 s and 20 s for each, as the company doubles the cost."""
    asked = np.ones((2, 2)), np.zeros((2, 2), int), np.zeros((2, 2, 3)), IndexCost(np.array([[5.0], [10.0]]), 0.0, 0.0)
    assert poa_index(*asked, backend="device").model_s.tolist() == [20.0, 40.0]
