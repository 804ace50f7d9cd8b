"""Feasible sets, fronts, the best with ties, and explanations."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dmodels import grid, sweep
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag, flag_where
from dmodels.design import _pareto_kernels
from dmodels.design.pareto import pareto_mask
from dmodels.design.select import best, explain, feasible, nearest_feasible, pareto

values = st.one_of(st.sampled_from([0.0, 1.0, 2.0, np.inf, np.nan]), st.floats(-3, 3, width=16))
tables = st.integers(1, 5).flatmap(
    lambda k: arrays(np.float64, st.tuples(st.integers(0, 40), st.just(k)), elements=values)
)


def dominated(costs):
    """By the definition, all pairs."""
    finite = np.isfinite(costs).all(1)
    worse = [
        [finite[j] and (costs[j] <= costs[i]).all() and (costs[j] < costs[i]).any() for j in range(len(costs))]
        for i in range(len(costs))
    ]
    return np.array(worse, bool).reshape(len(costs), len(costs)).any(1) | ~finite


@given(tables)
def test_the_front_is_what_no_other_point_dominates(costs):
    np.testing.assert_array_equal(pareto_mask(costs, equals=True), ~dominated(costs))
    once = pareto_mask(costs)
    assert not (once & dominated(costs)).any()
    assert len(np.unique(costs[once], axis=0)) == once.sum() == len(np.unique(costs[~dominated(costs)], axis=0))
    first = [i for i in np.flatnonzero(~dominated(costs)) if not (costs[:i] == costs[i]).all(1).any()]
    np.testing.assert_array_equal(np.flatnonzero(once), first)


SHAPES = ["uniform", "sphere", "whole numbers", "one column equal", "mostly the dearest"]


@pytest.mark.parametrize("objectives, shape", [*product([2, 3, 4, 5], SHAPES), (4, "two values"), (5, "two values")])
def test_large_fronts_agree_with_all_pairs(objectives, shape):
    """3,000 points divide several times; fronts from a handful of points to all of them."""
    rng = np.random.default_rng(objectives)
    costs = rng.random((3000, objectives))
    if shape in ("sphere", "two values"):
        costs = -np.abs(rng.normal(size=costs.shape))
        costs /= np.linalg.norm(costs, axis=1, keepdims=True)
        if shape == "two values":  # most have the greater one
            costs[:, 1] = rng.random(3000) < 0.7
    elif shape == "whole numbers":
        costs = np.floor(6 * costs)
    elif shape == "one column equal":
        costs[:, objectives // 2] = 1.0
    elif shape == "mostly the dearest":
        costs[rng.random(costs.shape) < 0.7] = 1.0
    no_dearer = np.ones((3000, 3000), bool)  # (j, i): j costs no more than i, whatever is counted
    for column in costs.T:
        no_dearer &= column[:, None] <= column
    np.testing.assert_array_equal(pareto_mask(costs, equals=True), ~(no_dearer & ~no_dearer.T).any(0))


@pytest.mark.parametrize("objectives", [3, 4])
def test_few_pairs_are_compared_however_many_points_are_on_the_front(objectives, monkeypatch):
    """Of the first objective 256 to a point; of the others none where two are left to tell, else a part of the front
    that grows as a logarithm does."""
    pairs = {"front_of_sorted": 0, "covered_by_all_pairs": 0}
    for name in pairs:
        kernel = getattr(_pareto_kernels, name)

        def counted(points, *others, name=name, kernel=kernel):
            pairs[name] += len(points) * len(others[0] if others else points)
            return kernel(points, *others)

        monkeypatch.setattr(_pareto_kernels, name, counted)
    compared = []
    for count in (4000, 16_000):
        costs = -np.abs(np.random.default_rng(0).normal(size=(count, objectives)))
        pairs.update(dict.fromkeys(pairs, 0))
        assert pareto_mask(costs / np.linalg.norm(costs, axis=1, keepdims=True)).all()
        assert 128 * count < pairs["front_of_sorted"] <= 256 * count
        compared.append(pairs["covered_by_all_pairs"] / count)
    assert compared == [0, 0] if objectives == 3 else 100 < compared[0] < compared[1] < 1.6 * compared[0] < 500


@pytest.mark.slow
@pytest.mark.parametrize("objectives", [2, 3, 4, 5])
def test_a_million_points_agree_with_a_library(objectives):
    moocore = pytest.importorskip("moocore")
    costs = np.random.default_rng(0).random((10**6, objectives))
    np.testing.assert_array_equal(pareto_mask(costs), moocore.is_nondominated(costs))


def cost(gpus, load_frac):
    wait = load_frac / gpus / (1.0 - load_frac / 4.0)
    flags = flag_where(gpus < load_frac, Flag.OVERLOAD) | flag_where(wait > 1.0, Flag.SLO_MISS)
    flags = flags | flag_where(load_frac > 2.5, Flag.EXTRAPOLATED)
    return {
        "cost_usd_per_hour": 3.0 * gpus,
        "low_usd_per_hour": 2.5 * gpus,
        "high_usd_per_hour": 3.6 * gpus,
        "wait_s": wait,
        "flags": flags,
    }


@pytest.fixture(scope="module")
def ds():
    return sweep(cost, gpus=grid(1, 2, 3, 4), load_frac=grid(0.5, 2.0, 3.0))


def test_flagged_points_are_never_chosen_and_warnings_do_not_forbid(ds):
    np.testing.assert_array_equal(feasible(ds), [[1, 0, 0], [1, 0, 0], [1, 0, 0], [1, 1, 0]])
    assert list(best(ds.sel(load_frac=[2.0, 3.0]), "cost_usd_per_hour").gpus) == [4.0]
    crowded = sweep(cost, gpus=grid(20.0, 30.0), load_frac=grid(3.0))
    assert best(crowded, "cost_usd_per_hour").flags.item() == Flag.EXTRAPOLATED
    nothing = best(ds.sel(load_frac=[3.0]), "cost_usd_per_hour")
    assert nothing.sizes["point"] == 0


def test_ties_and_intervals_are_kept_beside_the_best(ds):
    assert list(best(ds, "cost_usd_per_hour").gpus) == [1.0]
    assert list(best(ds, "cost_usd_per_hour", within_frac=1.0).gpus) == [1.0, 2.0]
    two = ds.sel(gpus=[3.0, 4.0])
    # the interval of 4 GPUs starts at 10 USD/h and that of 3 reaches 10.8: they cannot be told apart
    ends = ("low_usd_per_hour", "high_usd_per_hour")
    assert sorted(best(two, "cost_usd_per_hour", interval=ends).gpus.values.tolist()) == [3.0, 4.0, 4.0]
    assert list(best(ds, maximize="cost_usd_per_hour").gpus.values) == [4.0, 4.0]  # two loads tie


def test_the_most_has_ties_and_intervals_as_the_least_has(ds):
    """The most is 12 USD/h, 10 to 14.4; of 3 GPUs 9, which 7.5 to 10.8 holds."""
    most = lambda **how: best(ds, maximize="cost_usd_per_hour", **how).gpus.values.tolist()
    assert most(within_frac=0.3) == most(within_frac=0.25) == [4.0, 4.0, 3.0] and most(within_frac=0.2) == [4.0, 4.0]
    for ends in (("low_usd_per_hour", "high_usd_per_hour"), ("high_usd_per_hour", "low_usd_per_hour")):
        assert most(interval=ends) == [4.0, 4.0, 3.0]


def test_the_front_of_a_dataset_keeps_its_labels(ds):
    front = pareto(ds, minimize=["cost_usd_per_hour", "wait_s"])
    assert list(front.gpus) == [1.0, 2.0, 3.0, 4.0] and set(front.load_frac.values) == {0.5}
    assert (np.diff(front.wait_s) < 0).all()
    assert list(pareto(ds, maximize="cost_usd_per_hour", minimize="wait_s").gpus.values[:1]) == [4.0]
    with pytest.raises(InputError, match="wait_s"):
        pareto(ds, minimize="wait")


def test_explain_counts_each_reason(ds):
    told = explain(ds)
    assert (told.points_count, told.feasible_count) == (12, 5)
    # load 2 overloads 1 GPU; load 3 overloads 1 and 2; waits over 1 s: load 2 on 1..3 and load 3 on all
    assert told.fell == {Flag.OVERLOAD: 3, Flag.SLO_MISS: 7, Flag.EXTRAPOLATED: 4}
    assert told.alone == {Flag.OVERLOAD: 0, Flag.SLO_MISS: 4, Flag.EXTRAPOLATED: 0}
    assert "5 of 12 points" in str(told) and "misses an SLO" in str(told)


def test_the_nearest_feasible_point_changes_as_little_as_it_can(ds):
    near = nearest_feasible(ds, gpus=2.0, load_frac=2.0)
    assert near.attrs["changed"] == ["load_frac"] and (near.gpus, near.load_frac) == (2.0, 0.5)
    near = nearest_feasible(ds, gpus=4.0, load_frac=3.0)
    assert (near.gpus, near.load_frac) == (4.0, 2.0)
    flags = xr.DataArray(np.full((4, 4), int(Flag.OVERLOAD), np.int32), {"a": range(4), "b": range(4)}, ("a", "b"))
    flags[1, 1] = flags[0, 3] = 0
    near = nearest_feasible(xr.Dataset({"flags": flags}), a=0, b=0)
    assert near.attrs["changed"] == ["b"]  # one choice made otherwise, however far, before two
    assert nearest_feasible(ds.sel(load_frac=[3.0]), gpus=1.0, load_frac=3.0) is None
    with pytest.raises(InputError, match="gpus"):
        nearest_feasible(ds, gpu=4.0, load_frac=3.0)


def test_not_a_number_is_never_the_best():
    ds = xr.Dataset({"x": ("a", [np.nan, 2.0, 1.0]), "flags": ("a", np.zeros(3, np.int32))}, {"a": [0, 1, 2]})
    assert list(best(ds, "x").a) == [2] and list(best(ds, maximize="x").a) == [1]
    assert list(pareto(ds, "x").a) == [2]


def test_however_far_ties_reach_none_is_infeasible():
    ds = xr.Dataset({"x": ("a", [3.0, 1.0, 2.0, np.nan]), "flags": ("a", [0, int(Flag.NO_FIT), 0, 0])}, {"a": range(4)})
    assert list(best(ds, "x", within_frac=np.inf).a) == [2, 0]
    assert list(best(ds, maximize="x", within_frac=np.inf).a) == [0, 2]
