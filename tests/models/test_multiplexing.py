"""Servers that a shared line needs."""

from __future__ import annotations

from dmodels.models.multiplexing import multiplexed_savings, servers_count


def test_one_server_is_enough_for_a_twentieth_of_its_load():
    """M/M/1: an arrival waits with the probability that the server is busy, so one is enough up to the allowance."""
    assert [float(servers_count(load, 0.1)) for load in (0.0, 0.05, 0.0999, 0.11)] == [0.0, 1.0, 1.0, 2.0]


def test_a_stable_line_has_more_servers_than_load_however_long_one_may_wait():
    assert [float(servers_count(load, 1.0)) for load in (2.5, 3.0, 3.5)] == [3.0, 4.0, 4.0]


def test_two_servers_at_load_one_make_a_third_wait():
    """C(2, 1) = 1/3 exactly: allowed a third, two are enough; at load 0.3 one of one server is busy too often."""
    assert float(servers_count(1.0, 1.0 / 3.0)) == 2.0
    assert float(servers_count(1.0, 0.3333)) == 3.0
    assert [float(servers_count(0.3, p)) for p in (0.1, 0.3)] == [2.0, 1.0]


def test_nothing_to_serve_is_nothing_saved():
    assert float(multiplexed_savings(0.5, 2.0, 0.0)) == 0.0
