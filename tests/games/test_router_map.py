"""Experiment 4 as a model: flat below saturation, hits matter at it, and the queue is the finite-source queue."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.papers._router_map import Deployment, finite_source, router_map
from dmodels.games.routing import RoutingGame, closed_loop, gibbs_loads
from dmodels.models.latency import affine
from dmodels.models.queueing import closed_loop_rps


def test_finite_source_is_the_exact_queue():
    """Two clients, Z = S = 1: 0.8 requests/s, mean response 1.5; P99 against the mixture by hand for one client."""
    mean, _, rate = finite_source(2, 1.0, 1.0)
    assert (float(mean), float(rate)) == pytest.approx((1.5, 0.8))
    assert float(finite_source(1, 3.0, 1.0)[1]) == pytest.approx(np.log(100.0))
    for clients in (16, 106, 128, 512):
        exact = float(closed_loop_rps(clients, 5.5, 1 / 19))
        assert float(finite_source(clients, 5.5, 1 / 19)[2]) == pytest.approx(exact)


def test_the_chain_has_the_gibbs_law():
    """omega = 0, raw temperature in blocks: loads as under e^(-Phi/tau) with f(k) = blocks x (k - 1)."""
    blocks, tau, clients = 2.0, 3.0, 6
    law, _ = closed_loop(np.zeros((1, 3)), clients, 0.0, tau, np.random.default_rng(0), blocks, False, 400_000)
    exact = gibbs_loads(RoutingGame(affine(np.full(3, blocks), 0.0), np.zeros((clients, 3))), tau).load_probability
    np.testing.assert_allclose(law, exact, atol=0.01)


def test_router_parameters_do_not_matter_below_saturation_where_hits_save_nothing():
    """The paper's central finding: at C = 64 throughput and ITL are the same in all 16 cells."""
    below = router_map(64, deployment=Deployment(hit_saves_frac=0.0, prefill_s=1 / 19))
    assert np.ptp(below.throughput_rps) / below.throughput_rps.mean() < 1e-3
    assert np.ptp(below.itl_p99_s) / below.itl_p99_s.mean() < 0.02
    assert (below.poa >= 1 - 1e-12).all() and (below.poa < 1.01).all()


def test_hits_relieve_the_prefill_server_at_saturation():
    at = router_map(128)
    assert at.ttft_p99_s[0, 3] < 0.5 * at.ttft_p99_s[0, 0]  # tau 0: omega 1 against 0
    assert (np.diff(at.hit_frac[:, 3]) < 0).all()  # temperature costs hits
    assert at.throughput_rps[0, 0] == pytest.approx(19.0, rel=0.02)
