"""The k cheapest assignments and the bottleneck assignment, against all permutations."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.solvers import bottleneck_assignment, ranked_assignments


def tables(seed, count=30):
    """Ties, forbidden pairs, square and wide."""
    rng = np.random.default_rng(seed)
    for k in range(count):
        n = int(rng.integers(1, 5))
        cost = rng.integers(0, 6, (n, n + int(rng.integers(0, 2)))).astype(float)
        if k % 2:
            cost[rng.random(cost.shape) < 0.3] = np.inf
        every = np.array(list(itertools.permutations(range(cost.shape[1]), n)))
        yield cost, every, cost[np.arange(n), every]


def test_the_cheapest_in_order_are_those_of_all_permutations():
    for cost, every, paid in tables(0):
        totals = np.sort(paid.sum(axis=1))
        totals = totals[np.isfinite(totals)]
        found = ranked_assignments(cost, 7)
        known = min(7, len(totals))
        np.testing.assert_allclose(found.value.cost[:known], totals[:known])
        columns = found.value.columns[:known]
        assert len({tuple(c) for c in columns}) == known and all((every == c).all(axis=1).any() for c in columns)
        assert found.certificate["next_cost"] == (totals[7] if len(totals) > 7 else np.inf)
        assert bool(found.flags & Flag.INFEASIBLE) == (known < 7) and (found.value.columns[known:] == -1).all()


def test_the_least_largest_cost_and_the_rows_that_prove_it():
    for cost, _, paid in tables(1):
        found = bottleneck_assignment(cost)
        least = paid.max(axis=1).min()
        assert found.value.cost == least and bool(found.flags) == np.isinf(least)
        rows = found.certificate["blocking_rows"]
        usable = (cost[rows] < least).any(axis=0).sum()
        assert usable < rows.sum()  # Hall: with cheaper pairs alone these rows do not all find a column
        if np.isfinite(least):
            assert cost[np.arange(len(cost)), found.value.columns].max() == least
            assert cost[np.arange(len(cost)), found.value.columns].sum() == paid[paid.max(axis=1) == least].sum(1).min()


@pytest.mark.parametrize("wrong", [np.zeros(3), np.zeros((3, 2)), [[np.nan]], "x"])
def test_mistakes_are_named(wrong):
    for solve in (bottleneck_assignment, lambda cost: ranked_assignments(cost, 2)):
        with pytest.raises(InputError, match="cost"):
            solve(wrong)
    with pytest.raises(InputError, match="count"):
        ranked_assignments([[1.0]], 0)
