"""Matchings, shipments and loads in units from 1e-15 to 1e15: right or flagged, never wrong with "ok"."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from dmodels.solvers import assign, transport
from dmodels.solvers.wardrop import wardrop

COUNTS = [200, pytest.param(10_000, marks=pytest.mark.slow)]


def decades(rng, *shape):
    return 10.0 ** rng.uniform(-15, 15, shape)


@pytest.mark.parametrize("count", COUNTS)
def test_matchings_and_shipments_in_other_units(count):
    """Costs times a power of two and amounts times another scale everything exactly; times any numbers, to rounding."""
    rng = np.random.default_rng(6)
    c = rng.random((count, 6, 4)) - 0.2
    supply, room = rng.random((count, 6)), rng.random((count, 4)) * 3
    worth, amount = decades(rng, 2, count)
    for plain, scaled, unit in (
        (assign(c), assign(c * worth[:, None, None]), worth),
        (
            transport(c, room, supply),
            transport(c * worth[:, None, None], room * amount[:, None], supply * amount[:, None]),
            worth * amount,
        ),
    ):
        size = np.abs(c).max((1, 2)) * 6
        ok = scaled.flags == 0
        assert (scaled.flags == plain.flags).all()
        assert (np.abs(scaled.value.cost[ok] / unit[ok] - plain.value.cost[ok]) <= 1e-12 * size[ok]).all()


@pytest.mark.parametrize("count", COUNTS)
def test_loads_in_other_units(count):
    """Latencies and loads in any unit, and servers that differ by up to 30 decades: water-filling by hand."""
    rng = np.random.default_rng(7)
    slope, base, demand = rng.random((count, 4)) + 0.05, rng.random((count, 4)), rng.uniform(0.1, 5, count)
    time, load = decades(rng, 2, count)
    slope[: count // 2] *= decades(rng, count // 2, 4)
    order = np.argsort(base, axis=1)
    b, width = np.take_along_axis(base, order, 1), np.take_along_axis(1 / slope, order, 1)
    levels = (demand[:, None] + np.cumsum(b * width, 1)) / np.cumsum(width, 1)  # were the first k servers used
    level = np.min(levels, axis=1)  # the least of these is the true one
    exact = np.maximum(level[:, None] - base, 0.0) / slope
    with jax.enable_x64(True):
        a = slope * (time / load)[:, None]
        latency = lambda x: a * x + base * time[:, None]
        s = jax.jit(lambda: wardrop(latency, demand * load, np.full((count, 4), np.inf)))()
    ok, found = np.asarray(s.flags) == 0, np.asarray(s.value["loads"]) / load[:, None]
    np.testing.assert_allclose(np.asarray(s.value["level"])[ok] / time[ok], level[ok], rtol=1e-9)
    wrong = (np.abs(found - exact) > 1e-7 * demand[:, None] + 1e-13 / slope).any(1)
    assert not (wrong & ok).any()
    assert ok[count // 2 :].all() and ok.mean() > 0.5
