"""Intervals hold what their operations can give and little more; roots and least values of functions that are known."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from dmodels.solvers.interval import RULES, all_roots, least_values

#: Operation -> what it is, and where its operands may lie.
ONE = {
    **{"neg": (np.negative, -5, 5), "square": (np.square, -5, 5), "abs": (np.abs, -5, 5), "exp": (np.exp, -5, 5)},
    **{"exp2": (np.exp2, -5, 5), "log": (np.log, 0.01, 5), "log1p": (np.log1p, -0.9, 5), "expm1": (np.expm1, -5, 5)},
    **{"tanh": (np.tanh, -5, 5), "sqrt": (np.sqrt, 0, 5), "logistic": (lambda x: 1 / (1 + np.exp(-x)), -5, 5)},
    **{"copy": (np.positive, -5, 5), "stop_gradient": (np.positive, -5, 5), "reshape": (np.positive, -5, 5)},
}
TWO = {
    **{"add": (np.add, -5, 5), "add_any": (np.add, -5, 5), "sub": (np.subtract, -5, 5), "mul": (np.multiply, -5, 5)},
    **{"max": (np.maximum, -5, 5), "min": (np.minimum, -5, 5), "pow": (np.power, 0.1, 3), "div": (np.divide, 0.2, 5)},
}
TRUTHS = {"gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal, "eq": np.equal}


def cells(rng, low, high, count=200):
    """Wide and narrow ones, points, and some that begin or end at 0."""
    ends = np.sort(rng.uniform(low, high, (2, count)), axis=0)
    ends[1, ::4] = ends[0, ::4]
    if low < 0:
        ends[0, 1::8], ends[1, 1::8] = 0.0, np.abs(ends[1, 1::8])
    return ends[0], ends[1]


def held(told, tries, loose):
    """Bounds hold every try, and are next to the least and the largest of them, which the ends give."""
    (low, high), least, most = told, tries.min(0), tries.max(0)
    assert (low <= least).all() and (most <= high).all()
    room = loose + 1e-14 * (np.abs(least) + np.abs(most))
    assert (least - low <= room).all() and (high - most <= room).all()


@pytest.mark.parametrize("name", [*ONE, *TWO])
def test_what_an_operation_can_give_over_cells(name):
    rng = np.random.default_rng(len(name))
    function, low, high = (ONE | TWO)[name]
    operands = [cells(rng, low, high) for _ in range(1 + (name in TWO))]
    if name == "div":
        operands[0] = cells(rng, -5, 5)
    inner = lambda a, b, share: np.clip(a + share * (b - a), a, b)
    lines = [[a, *(inner(a, b, k / 8) for k in range(1, 8)), b, np.clip(0.0, a, b)] for a, b in operands]
    tries = [function(*x) for x in itertools.product(*lines)]
    held(RULES[name]({}, *operands), np.stack(tries), 1e-300 if name != "exp" else 1e-14)


@pytest.mark.parametrize("power", [-3, -2, -1, 1, 2, 3, 5])
def test_whole_powers_over_cells(power):
    low, high = cells(np.random.default_rng(0), *((-5, 5) if power > 0 else (0.2, 5)))
    ends = [low**power, high**power] + [np.where((low <= 0) & (high >= 0), 0.0, low**power)] * (power > 0)
    held(RULES["integer_pow"]({"y": power}, (low, high)), np.stack(ends), 1e-300)


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")  # the callers of operations silence them
def test_over_nothing_is_not_known():
    """A quotient whose divisor may be 0, and a power of what may be negative."""
    low, high = RULES["div"]({}, (1.0, 2.0), (np.array([-1.0, 0.0, 0.5]), np.array([1.0, 2.0, 2.0])))
    assert np.isneginf(low[0]) and np.isposinf(high[:2]).all() and low[2] == pytest.approx(0.5) and high[2] < 4.1
    low, high = RULES["pow"](
        {}, (np.array([-1.0, 0.0, 0.0]), np.array([2.0, 2.0, 2.0])), (np.array([1.5, 0.5, -1.0]),) * 2
    )
    assert np.isnan(low).tolist() == np.isnan(high).tolist() == [True, False, True]
    assert low[1] == pytest.approx(0.0, abs=1e-300) and high[1] == pytest.approx(2**0.5)


@pytest.mark.parametrize("name", TRUTHS)
def test_what_is_sure_and_what_is_possible(name):
    """Of all pairs of whole numbers in two cells, all or some."""
    spans = [(a, b) for a in range(4) for b in range(a, 4)]
    for x, y in itertools.product(spans, spans):
        pairs = [TRUTHS[name](a, b) for a in range(x[0], x[1] + 1) for b in range(y[0], y[1] + 1)]
        told = RULES[name]({}, tuple(map(np.float64, x)), tuple(map(np.float64, y)))
        assert (bool(told[0]), bool(told[1])) == (all(pairs), any(pairs)), (x, y)


def test_truths_joined_and_cases_chosen():
    spans = [(0.0, 0.0), (0.0, 1.0), (1.0, 1.0)]
    values = {span: {0.0, 1.0} & set(span) for span in spans}
    for x, y in itertools.product(spans, spans):
        for name, join in (("and", min), ("or", max)):
            found = [join(a, b) for a in values[x] for b in values[y]]
            assert tuple(map(float, RULES[name]({}, x, y))) == (min(found), max(found))
    cases = [(2.0, 3.0), (-1.0, 2.5)]
    for which in spans:
        chosen = [cases[int(k)] for k in values[which]]
        told = RULES["select_n"]({}, which, *cases)
        assert tuple(map(float, told)) == (min(a for a, _ in chosen), max(b for _, b in chosen))


@pytest.mark.parametrize("roots", [[0.0, 1.0], [0.125, 0.3, 0.3001, 0.875], [-2.0, 0.5, 3.0], [1 / 3], [-1.0]])
def test_every_root_of_a_polynomial_once(roots):
    """At ends and edges of cells, close together, none: within rounding, and proved to be all."""

    def function(x):
        out = 1.0
        for root in roots:
            out = out * (x - root)
        return out

    found = all_roots(function, 0.0, 1.0)
    assert found.complete
    np.testing.assert_allclose(found.roots, [r for r in roots if 0 <= r <= 1], atol=1e-13)


def test_a_root_that_only_touches_is_left_in_doubt():
    found = all_roots(lambda x: (x - 0.3) ** 2 * (x - 0.8), 0.0, 1.0)
    np.testing.assert_allclose(found.roots, [0.8], atol=1e-13)
    assert (
        not found.complete and (found.doubtful[:, 0] <= 0.3 + 1e-9).all() and (found.doubtful[:, 1] >= 0.3 - 1e-9).all()
    )


def waves(x, often, steep):
    return jnp.cos(often * x) + steep * (x - 1.0) ** 2


@pytest.mark.parametrize("more", [{}, {"most": 40}, {"rounds": 3}, {"cells": 4, "rounds": 60}])
def test_least_values_are_between_a_bound_and_what_is_attained(more):
    """Of waves in a bowl, beside a fine table: proved to be next to each other; below where the search is cut short."""
    rng = np.random.default_rng(1)
    count = 1003 if not more else 60  # more than are laid out at once
    often, steep, total = rng.uniform(0.5, 20, count), rng.uniform(0, 2, count), rng.uniform(0.5, 3, count)
    known = 1.0 + steep  # at 0
    known[::5] = -50.0
    floor, best, where = least_values(waves, total, known, (often, steep), **more)
    x = total * np.linspace(0, 1, 2001)[:, None]
    table = (np.cos(often * x) + steep * (x - 1.0) ** 2).min(0)
    near = (often**2 + 2 * steep) * (total / 2000) ** 2 / 8 + 1e-9  # the curvature over half a step
    free = known > 0
    assert (
        (floor <= best).all() and (floor[free] <= table[free]).all() and (best[free] >= table[free] - near[free]).all()
    )
    np.testing.assert_allclose(
        np.cos(often * where) + steep * (where - 1.0) ** 2, np.where(free, best, np.nan), atol=1e-12
    )
    assert ((where >= 0) & (where <= total))[free].all()
    assert (best[~free] == -50).all() and (floor[~free] == -50).all() and np.isnan(where[~free]).all()
    largest = 1.0 + steep * np.maximum(1.0, (total - 1.0) ** 2)
    tight = best - floor <= 1.01e-9 * largest
    assert tight.all() if "most" not in more and more.get("rounds") != 3 else not tight.all()
    assert (best[free & tight] <= table[free & tight] + 1e-9).all() and (floor > -60).all()
