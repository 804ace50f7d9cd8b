"""The birth-death chain of three slots, state by state."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize

from dmodels.core.flags import Flag
from dmodels.models.queueing import occupancy, ttft_quantile_s

pytestmark = pytest.mark.usefixtures("op_by_op")

TIMES = np.array([0.02, 0.05, 0.03])
WORK, SCV = 40.0, 0.5


def chain(arrival_rps, work=WORK, times=TIMES, scv=SCV):
    """(p_0, p_1, p_2, those who wait, mean wait of one who does): with n in flight, n/(E t(n)) leave a second."""
    x = arrival_rps * work
    p = np.cumprod([1.0, *x * times / [1, 2, 3]])
    load = x * times[2] / 3
    waits = p[3] / (1 - load)  # p_3 + p_4 + ...
    total = p[:3].sum() + waits
    return *(p[:3] / total), waits / total, work * times[2] / 3 / (1 - load) * (1 + scv) / 2


@pytest.mark.parametrize("arrival_rps", [0.3, 1.5, 2.4])
def test_states_one_by_one(arrival_rps):
    p0, p1, p2, waits, theta = chain(arrival_rps)
    found = occupancy(arrival_rps, WORK, TIMES, SCV)
    busy = p1 + 2 * p2 + 3 * waits
    expected = [waits, waits * theta, busy, busy / (arrival_rps * WORK), 0]
    assert [float(v) for v in found] == pytest.approx(expected, rel=1e-12)
    assert p0 + p1 + p2 + waits == pytest.approx(1.0)


def test_at_and_above_capacity_everyone_waits_for_ever():
    """Three slots of 0.03 s an iteration: 100 iterations, 2.5 requests a second."""
    for arrival_rps in (2.5, 4.0):
        found = occupancy(arrival_rps, WORK, TIMES, SCV)
        assert [float(v) for v in found] == [1.0, math.inf, 3.0, 0.03, Flag.OVERLOAD]
        assert float(ttft_quantile_s(0.9, arrival_rps, WORK, TIMES, SCV)) == math.inf


def test_seven_hundred_of_a_thousand_slots_are_busy():
    """States of weights up to e^700: Poisson about the load."""
    found = occupancy(700.0, 100.0, np.full(1000, 0.01))
    assert float(found.in_flight_count) == pytest.approx(700.0) and 0 < float(found.wait_probability) < 1e-20


@pytest.mark.parametrize("unit", [1.0, 1000.0])
@pytest.mark.parametrize(("arrival_rps", "work"), [(0.3, WORK), (2.4, WORK), (1.0, 2.0)])
def test_first_tokens_are_late_by_the_states_they_find(arrival_rps, work, unit):
    """Who finds n takes (u + F) t(n + 1), u uniform; who waits takes F t(3) more than an exponential wait.

    Also where everything takes a thousand times as long.
    """
    *below, waits, theta = chain(arrival_rps, work)
    first = 1.5

    def late(t):
        served = sum(p * np.clip(first + 1 - t / step, 0, 1) for p, step in zip(below, TIMES, strict=True))
        return served + waits * math.exp(-max(t - first * 0.03, 0) / theta)

    q = np.array([0.05, 0.3, 0.6, 0.9, 0.99, 0.999])
    expected = [optimize.brentq(lambda t, q=q: late(t) - 1 + q, 0.0, 99.0, xtol=1e-15) for q in q]
    rates, times = np.full(len(q), arrival_rps), np.broadcast_to(TIMES, (len(q), 3))
    got = ttft_quantile_s(q, rates / unit, work, times * unit, SCV, first)
    np.testing.assert_allclose(got / unit, expected, rtol=1e-9)


def test_lengths_are_geometric_and_a_prompt_takes_an_iteration_unless_said():
    assert [float(v) for v in occupancy(1.5, WORK, TIMES)] == [float(v) for v in occupancy(1.5, WORK, TIMES, 1.0)]
    plain = float(ttft_quantile_s(0.9, 1.5, WORK, TIMES))
    assert plain == float(ttft_quantile_s(0.9, 1.5, WORK, TIMES, 1.0, 2.0))


def test_who_finds_a_state_slower_than_a_full_one_is_last():
    """One in flight, found by one in eleven or so: the second takes (u + 2) 0.5 s, far longer than any wait."""
    times = np.array([0.02, 0.5, 0.03])
    _, p1, *_ = chain(5.0, 1.0, times, 1.0)
    last = 0.5 * (3 - 0.01 / p1)  # a hundredth finds one and takes longer still
    assert p1 > 0.01 and float(ttft_quantile_s(0.99, 5.0, 1.0, times)) == pytest.approx(last, rel=1e-9)
