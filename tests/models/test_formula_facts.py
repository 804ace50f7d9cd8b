"""Values of the closed forms that follow from what they mean, each known without them."""

from __future__ import annotations

import math

import numpy as np

from dmodels.models import curves, kv, migration, staleness
from dmodels.models.multiplexing import servers_count


def test_a_stable_line_has_more_servers_than_load_however_long_one_may_wait():
    assert [float(servers_count(load, 1.0)) for load in (2.5, 3.0, 3.5)] == [3.0, 4.0, 4.0]


def test_two_servers_at_load_one_make_a_third_wait():
    """C(2, 1) = 1/3 exactly: allowed a third, two are enough; at load 0.3 one of one server is busy too often."""
    assert float(servers_count(1.0, 1.0 / 3.0)) == 2.0
    assert float(servers_count(1.0, 0.3333)) == 3.0
    assert [float(servers_count(0.3, p)) for p in (0.1, 0.3)] == [2.0, 1.0]


def test_one_kv_head_is_held_by_every_gpu():
    """Multi-query attention: nothing to split."""
    assert [float(kv.heads_per_gpu(1.0, tp)) for tp in (1.0, 8.0)] == [1.0, 1.0]


def test_one_head_of_a_linear_layer_is_held_whole():
    from dmodels.core.model import Model

    model = Model(10, 8, 64, n_linear_layers=10, linear_state_bytes=8.0, n_linear_heads=1.0)
    assert [float(kv.state_bytes(model, tp)) for tp in (1.0, 4.0)] == [80.0, 80.0]


def test_who_sends_nothing_and_starts_ahead_is_first_whatever_is_read():
    """No payload, half a second ahead of one second of transfer."""
    assert math.isinf(float(staleness.cost_staleness_tolerance(0.0, 1.0, 0.5, 0.5, 0.0, 0.5)))


def test_a_line_beside_a_pole_stays_a_line():
    """f = n + 1 and f = 1/(4 - n), one worker each: the first is finite for every number of requests."""
    both = curves.as_curve([curves.affine(1.0, 1.0), curves.LatencyCurve(0.0, 0.0, 1.0, 4.0)])
    table = curves.latency_table(both, 5)
    np.testing.assert_allclose(table, [[2, 3, 4, 5, 6], [1 / 3, 1 / 2, 1, math.inf, math.inf]])
    np.testing.assert_array_equal(curves.latency_table(curves.affine(0.0, 0.0), 3), np.zeros(3))
    np.testing.assert_array_equal(curves.latency_table(curves.affine(2.0, -2.0), 3), [0.0, 2.0, 4.0])


def test_an_empty_cache_is_moved_at_once():
    moved = migration.precopy_rounds(0.0, 1e9, 5e8, 3.0)
    assert [float(x) for x in moved[:4]] == [3.0, 0.0, 0.0, 0.0]
