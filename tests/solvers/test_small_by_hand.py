"""Small solvers by trying everything: classes on a line, roots of one variable, and a device's limits on paper."""

from __future__ import annotations

from itertools import combinations_with_replacement

import jax.numpy as jnp
import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.records import float64
from dmodels.solvers import breakpoints
from dmodels.solvers.bracket import chandrupatla, polished, sign_changes
from dmodels.solvers.roofline import ACCELERATORS, DeviceWork, expected


def paid(price, reached, ends):
    """Each class pays the price of its upper end for what it holds; an empty class pays nothing, whatever the price."""
    held = np.diff([0.0, *(reached[j] for j in ends)])
    return sum(price[j] * mass if mass > 0 else 0.0 for j, mass in zip(ends, held, strict=True))


def test_classes_on_a_line_by_trying_all_ends():
    infeasible = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n, classes = int(rng.integers(1, 7)), int(rng.integers(1, 5))
        price, reached = rng.integers(0, 9, n).astype(float), np.cumsum(rng.integers(0, 4, n)).astype(float)
        price[rng.random(n) < 0.15] = np.inf
        found = breakpoints.solve(price, reached, classes)
        for fewer in range(1, classes + 1):  # the rows of fewer classes are their answers
            ends = [(*ends, n - 1) for ends in combinations_with_replacement(range(n), fewer - 1)]
            least = min(paid(price, reached, one) for one in ends)
            assert found.certificate["potential"][fewer - 1, -1] == least
            index = breakpoints.breaks(price, reached, found.certificate["potential"][:fewer])
            assert index[-1] == n - 1 and (np.diff(index) >= 0).all()
            assert least == np.inf or paid(price, reached, index) == least
        assert found.value["cost"] == least and bool(found.flags & Flag.INFEASIBLE) == (least == np.inf)
        assert found.value["index"].shape == (classes,) and found.certificate["potential"].shape == (classes, n)
        infeasible += least == np.inf
    assert 0 < infeasible < 30


@pytest.mark.parametrize(
    "asked, why",
    [
        (([], [], 1), "accepted: equal"),
        (([1.0], [1.0, 2.0], 1), "accepted: equal"),
        (([[1.0]], [[1.0]], 1), "accepted: equal"),
        (([1.0], [1.0], 0), "whole numbers from 1"),
        (([1.0, 1.0], [2.0, 1.0], 1), "finite and nondecreasing"),
        (([1.0], [np.inf], 1), "finite and nondecreasing"),
        (([np.nan], [1.0], 1), "must not hold NaN"),
    ],
)
def test_lines_that_are_none(asked, why):
    with pytest.raises(InputError, match=why):
        breakpoints.solve(*asked)


def test_roots_to_the_last_digits_in_few_steps():
    """Of steep, flat and kinked functions; at an end of the bracket; with the derivative of the implicit function."""
    right = jnp.array([0.2, 1.0, 3.0, 4.999, 0.0, 5.0])

    def function(x):
        away = x - right
        return jnp.where(right < 1.0, away**3 + 1e-3 * away, jnp.where(right > 4.0, jnp.expm1(9 * away), away))

    low, high = jnp.zeros(6), jnp.full(6, 5.0)
    root = float64(lambda: chandrupatla(function, low, high, function(low), function(high)))()
    np.testing.assert_allclose(root, right, rtol=1e-12, atol=1e-12)
    found = polished(lambda x: x**2 - 2.0, jnp.asarray(2.0**0.5), jnp.asarray(2 * 2.0**0.5))
    assert float(found) == pytest.approx(2.0**0.5)


def test_cells_in_which_a_sign_changes():
    """A zero counts as not above zero: with the cell before or after it, whichever rises or falls there, and once."""
    for values, cells in (
        ([1.0, -1.0, 1.0, 1.0], [0, 1]),
        ([-1.0, -1.0, 2.0, 3.0], [1]),
        ([1.0, 0.0, -1.0, 1.0], [0, 2]),
        ([1.0, 2.0, 3.0, 1.0], []),
    ):
        for most in (1, 5):
            where, there = sign_changes(jnp.array(values), most)
            assert where.shape == there.shape == (most,)
            assert np.asarray(where)[np.asarray(there)].tolist() == cells[:most]
            assert (np.asarray(where)[~np.asarray(there)] == len(values) - 2).all()


def test_what_a_device_should_reach_by_its_data_sheet():
    """Four fifths of the bandwidth, a third of the arithmetic, 5 us a launch that the whole batch waits for."""
    sheets = {"H200": (132, 4.8e12, 34e12, 67e12), "H100": (132, 3.35e12, 34e12, 67e12)}
    assert [gpu.name for gpu in ACCELERATORS] == list(sheets)
    for gpu in ACCELERATORS:
        count, memory, double, single = sheets[gpu.name]
        told = lambda gpu=gpu, n=10**9, **work: expected(DeviceWork(**({"device_bytes": 1.0} | work)), n, gpu)
        assert told(device_bytes=1e6).per_s == pytest.approx(0.8 * memory / 1e6, rel=1e-3)
        assert told(flop64=1e6, flop32=2e6).per_s == pytest.approx(1 / (3 * (1e6 / double + 2e6 / single)), rel=1e-3)
        both = told(device_bytes=1e6, n=1000, launches=4.0)
        assert both.per_s == pytest.approx(1 / (1e6 / (0.8 * memory) + 4 * 5e-6 / 1000)) and both.bound == "memory"
        assert told(device_bytes=1e6, n=10, launches=4.0).bound == "launches"
        assert told(registers=64).occupancy_frac == 0.5 and told(registers=72).occupancy_frac == 28 / 64
        chain = told(warps=4, registers=64, chain_cycles=1.8e6)  # 32 warps fit: eight problems a multiprocessor
        assert chain.bound == "latency" and chain.per_s == pytest.approx(8 * count / 1e-3, rel=1e-2)
        assert told(warps=4, registers=64, chain_cycles=1.8e6, n=16).per_s == pytest.approx(16 / 1e-3, rel=1e-2)
