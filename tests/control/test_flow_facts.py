"""Phasor's three rules beside a reading of them in plain Python, at every combination of small pools and edges."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dmodels.control.phasor import flow

pytestmark = pytest.mark.usefixtures("op_by_op")

FREENESS = (-1.0, -0.5, 0.0, 0.25, 0.5, 0.75, 0.875, 1.0, math.nan, math.inf)
POOLS = list(itertools.product((1.0, 2.0, 3.0, 4.0), (1.0, 2.0, 3.0, 4.0), (0.0, 1.0), (0.0, 1.0)))
GRID = [(*pool, *phi) for pool in POOLS for phi in itertools.product(FREENESS, FREENESS)]
RULE = flow.settings(0.5, 0.25, 3.0)


def left(phi, n):
    """Freeness of a pool of n once one has gone."""
    return 1 - (1 - phi) * n / (n - 1) if n > 1 else -math.inf


def promote(p, d, mixed, phi_p, phi_d):
    """(workers to prefill, workers to decode, change)."""
    if mixed >= 1 and phi_p < 0.5 * phi_d:
        return 1, 0, 1
    if mixed >= 1 and phi_d < 0.5 * phi_p:
        return 0, 1, -1
    if p >= 2 and left(phi_p, p) >= max(phi_d, 0):
        return -1, 0, 2
    if d >= 2 and left(phi_d, d) >= max(phi_p, 0):
        return 0, -1, -2
    return 0, 0, 0


def least(gains, gives):
    """theta = 1/2: y = (1/2/(n_g + 1) + 1/(n_v - 1))/(n_v/(n_v - 1) - 1/4 n_g/(n_g + 1))."""
    g, v = Fraction(int(gains)), Fraction(int(gives))
    return (Fraction(1, 2) / (g + 1) + 1 / (v - 1)) / (v / (v - 1) - g / (g + 1) / 4)


def transfer(p, d, _, phi_p, phi_d):
    if d >= 2 and phi_p < 0.5 * phi_d and phi_d >= least(p, d):
        return 1, -1, 1
    if p >= 2 and phi_d < 0.5 * phi_p and phi_p >= least(d, p):
        return -1, 1, -1
    return 0, 0, 0


def descend(p, d, _, phi_p, phi_d):
    """The larger utilisation falls by a quarter at least, from above 0."""
    busy_p, busy_d = (1 - phi_p) * p, (1 - phi_d) * d
    goal = 0.75 * max(busy_p / p, busy_d / d)
    for step in (1, -1):
        new_p, new_d = p + step, d - step
        if goal > 0 and min(new_p, new_d) >= 1 and max(busy_p / new_p, busy_d / new_d) <= goal:
            return step, -step, step
    return 0, 0, 0


@pytest.mark.parametrize("rule", [promote, transfer, descend])
def test_a_rule_at_every_edge(rule):
    p, d, mixed, wait, phi_p, phi_d = np.array(GRID).T
    state = flow.init(p, d, mixed)._replace(wait=wait)
    new, change = getattr(flow, rule.__name__)(state, phi_p, phi_d, RULE)
    expected = []
    for *pools, waits, a, b in GRID:
        ready = waits <= 0 and math.isfinite(a) and math.isfinite(b)
        to_p, to_d, move = rule(*pools, a, b) if ready else (0, 0, 0)
        after = 2.0 if move else max(waits - 1, 0)
        expected.append((pools[0] + to_p, pools[1] + to_d, pools[2] - to_p - to_d, after, float(move != 0), move))
    np.testing.assert_array_equal(np.stack([*new, change], axis=1), expected)


def test_exactly_at_the_least_freeness_a_worker_moves():
    for gains, gives in ((1.0, 3.0), (3.0, 2.0)):
        y = float(flow.y_crit(gains, gives, 0.5))
        assert y == pytest.approx(float(least(gains, gives)), rel=1e-12)
        assert int(flow.transfer(flow.init(gains, gives), 0.0, y, RULE)[1]) == 1
        assert int(flow.transfer(flow.init(gives, gains), y, 0.0, RULE)[1]) == -1


def test_pools_of_a_batch_begin_with_nothing_changed():
    state = flow.init(np.array([2.0, 3.0]), 4.0)
    assert [np.asarray(leaf).tolist() for leaf in state] == [[2.0, 3.0], [4.0, 4.0]] + [[0.0, 0.0]] * 3


def test_three_quarters_of_the_work_takes_three_quarters_of_the_workers():
    assert [float(flow.balanced_prefill(8.0, *loads)) for loads in ((3.0, 1.0), (0.0, 0.0))] == [6.0, 4.0]
    assert float(flow.drift_limit(0.5)) == pytest.approx(1 / 3)
    assert float(flow.without(0.5, 1.0)) == -math.inf
