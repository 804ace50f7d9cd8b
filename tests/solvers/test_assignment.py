"""`assign` on the host: a stranger's optimum, and duals that prove it, over everything a caller may hand in."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.solvers import assign

SQUARE = [(1, 1), (2, 2), (3, 3), (5, 5), (8, 8), (13, 13)]
SHAPES = [*SQUARE, (1, 6), (6, 1), (3, 7), (7, 3), (9, 10), (12, 5), (0, 4), (4, 0)]


def stranger(cost, maximize=False):
    """SciPy's optimal total, or None where it finds no feasible matching."""
    try:
        rows, columns = linear_sum_assignment(cost, maximize)
    except ValueError as error:
        assert "infeasible" in str(error)
        return None
    return cost[rows, columns].sum()


def check(cost, maximize=False):
    """Every problem of a batch: feasible as SciPy says, as cheap, a matching, and proved by its duals."""
    solution = assign(cost, maximize)
    n, m = cost.shape[1:]
    sign = -1 if maximize else 1
    for b, c in enumerate(cost):
        u, v = solution.certificate["row_duals"][b], solution.certificate["column_duals"][b]
        columns, total = solution.value.columns[b], solution.value.cost[b]
        allowed = np.isfinite(c)
        best = stranger(c, maximize)
        slack = sign * (np.where(allowed, c, 0) - (u[:, None] + v[None, :]))[allowed]
        if best is None:  # Farkas: no pair that is allowed is worth more than 0, yet the whole is
            ray = -sign * (u[:, None] + v[None, :])[allowed]
            assert solution.flags[b] == Flag.INFEASIBLE and np.isposinf(sign * total) and (columns == -1).all()
            assert ray.min(initial=0) >= 0 and sign * (u.sum() + v.sum()) > 0
            continue
        scale = 1e-12 * max(1, n, m) * np.abs(c[allowed]).max(initial=np.finfo(float).tiny)
        matched = columns >= 0
        assert solution.flags[b] == 0
        assert matched.sum() == min(n, m) == len(set(columns[matched].tolist()))
        assert abs(total - best) <= scale
        assert abs(c[np.flatnonzero(matched), columns[matched]].sum() - best) <= scale
        assert abs(total - u.sum() - v.sum()) <= scale and abs(solution.certificate["gap"][b]) <= scale
        assert slack.min(initial=0) >= -scale and solution.certificate["reduced"][b] >= -scale
        larger = v if n < m else u
        assert n == m or (sign * larger).max(initial=0) <= scale
    return solution


KINDS = {
    "uniform": lambda rng, shape: rng.random(shape),
    "normal": lambda rng, shape: rng.normal(size=shape),
    "lognormal": lambda rng, shape: rng.lognormal(0, 8, shape),
    "huge": lambda rng, shape: 1e300 * rng.uniform(-1, 1, shape),
    "tiny": lambda rng, shape: 1e-300 * rng.uniform(-1, 1, shape),
    "offset": lambda rng, shape: 1e9 + rng.random(shape),
    "ties": lambda rng, shape: rng.integers(-2, 3, shape).astype(float),
    "constant": lambda rng, shape: np.full(shape, rng.normal()),
    "product": lambda rng, shape: (
        np.arange(1.0, shape[1] + 1)[:, None] * np.arange(1.0, shape[2] + 1)[None, :] + np.zeros(shape)
    ),
    "rank one": lambda rng, shape: rng.random((*shape[:2], 1)) * rng.random((shape[0], 1, shape[2])),
    "additive": lambda rng, shape: rng.random((*shape[:2], 1)) + rng.random((shape[0], 1, shape[2])),
    "replicated": lambda rng, shape: np.take(rng.random((*shape[:2], 3)), rng.integers(0, 3, shape[2]), axis=2),
    "replicated rows": lambda rng, shape: np.take(rng.random((shape[0], 2, shape[2])), rng.integers(0, 2, shape[1]), 1),
    "forbidden": lambda rng, shape: np.where(rng.random(shape) < rng.random(), np.inf, rng.random(shape)),
    "forbidden ties": lambda rng, shape: np.where(rng.random(shape) < 0.5, np.inf, rng.integers(0, 3, shape)),
    "whole": lambda rng, shape: rng.integers(-(2**53), 2**53, shape, endpoint=True).astype(float),
    "triangle": lambda rng, shape: np.where(np.tri(*shape[1:], dtype=bool), rng.random(shape), np.inf),
}


def trial(kind: str, seed: int, problems: int) -> None:
    rng = np.random.default_rng([seed, *kind.encode()])
    for n, m in SHAPES:
        cost = KINDS[kind](rng, (problems, n, m))
        check(cost)
        check(np.where(np.isposinf(cost), -np.inf, cost), maximize=True)


@pytest.mark.parametrize("kind", KINDS)
def test_optimum_is_scipys_and_the_duals_prove_it(kind):
    trial(kind, seed=0, problems=8)


@pytest.mark.parametrize("kind", KINDS)
def test_one_problem_is_a_batch_of_one(kind):
    """A single matrix takes a shorter way through the host: the same answer, certificate and flag come out of it."""
    rng = np.random.default_rng([3, *kind.encode()])
    for n, m in SHAPES:
        cost = KINDS[kind](rng, (1, n, m))
        if cost.size and rng.random() < 0.1:
            cost[0, 0, 0] = np.nan
        alone, batch = assign(cost[0]), assign(cost)
        for ours, theirs in zip(jax.tree.leaves(alone), jax.tree.leaves(batch), strict=True):
            np.testing.assert_array_equal(ours, theirs[0])
            assert np.shape(ours) == theirs.shape[1:] and ours.dtype == theirs.dtype


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("kind", KINDS)
def test_optimum_is_scipys_and_the_duals_prove_it_at_length(kind, seed):
    """17 kinds, 16 seeds, 14 shapes, 25 problems, least and greatest: 190,400 instances."""
    trial(kind, seed=1 + seed, problems=25)


@given(st.integers(1, 6), st.integers(1, 6), st.data())
def test_any_matrix_of_floats(n, m, data):
    entries = st.floats(-1e6, 1e6) | st.just(np.inf) | st.sampled_from([0.0, 1.0, -1.0, 1e-300])
    cost = data.draw(st.lists(entries, min_size=n * m, max_size=n * m))
    check(np.reshape(cost, (1, n, m)))


@pytest.mark.parametrize("n", [64, 200])
@pytest.mark.parametrize("kind", ["uniform", "ties", "replicated", "product", "forbidden"])
def test_larger_problems(kind, n):
    rng = np.random.default_rng(n)
    check(KINDS[kind](rng, (2, n, n)))
    check(KINDS[kind](rng, (2, n, n + n // 4)))


@pytest.mark.parametrize("n", [3, 8, 33, 700])
@pytest.mark.parametrize("spread", [1.0, 1e-200, 1e9])
def test_products_are_paired_in_opposite_order(n, spread):
    """The rearrangement inequality (Hardy, Littlewood and Polya, *Inequalities*, 1934, section 10.2)."""
    rng = np.random.default_rng(n)
    asked, taken = spread * rng.random(n), rng.random(n)
    solution = assign(np.outer(asked, taken))
    np.testing.assert_allclose(solution.value.cost, np.sort(asked) @ np.sort(taken)[::-1], rtol=1e-12)
    assert solution.flags == 0 and solution.steps == 0  # nothing is searched for


@pytest.mark.parametrize("change", [-0.05, 0.05, np.inf])
def test_a_product_with_some_entries_changed(change):
    rng = np.random.default_rng(5)
    cost = rng.random((200, 9, 1)) * rng.random((200, 1, 9))
    for c in cost:
        c.reshape(-1)[rng.integers(81, size=3)] += change
    check(cost)


@pytest.mark.parametrize("largest", [9, 2**31, 2**53])
@pytest.mark.parametrize("shape", [(6, 6), (5, 9), (9, 5), (60, 60)])
def test_integers_are_solved_in_integers(largest, shape):
    """Costs up to 2**53: float64 sums of them round, so the reference adds Python integers along SciPy's matching."""
    rng = np.random.default_rng(largest % 997)
    cost = rng.integers(-largest, largest, (6, *shape), endpoint=True)
    solution = assign(cost)
    assert solution.value.cost.dtype == np.int64
    for b, c in enumerate(cost):
        rows, columns = linear_sum_assignment(c)
        best = sum(int(c[i, j]) for i, j in zip(rows, columns, strict=True))
        u, v = (solution.certificate[name][b].astype(object) for name in ("row_duals", "column_duals"))
        assert int(solution.value.cost[b]) <= best <= int(solution.value.cost[b]) + 64 * (largest >= 2**53)
        assert sum(u) + sum(v) == int(solution.value.cost[b]) and solution.certificate["gap"][b] == 0
        assert min((c.astype(object) - u[:, None] - v[None, :]).ravel()) >= 0


def test_whole_floats_up_to_2_to_the_53_are_exact_too():
    rng = np.random.default_rng(3)
    whole = rng.integers(-(2**53), 2**53, (20, 30, 30))
    floats = assign(whole.astype(float))
    integers = assign(whole)
    np.testing.assert_array_equal(floats.value.columns, integers.value.columns)
    np.testing.assert_array_equal(floats.value.cost, integers.value.cost.astype(float))


def test_integers_beyond_the_exact_range_are_flagged():
    cost = np.ones((2, 2, 2), np.int64)
    cost[1, 0, 0] = 2**60
    solution = assign(cost)
    assert solution.flags.tolist() == [0, Flag.OUT_OF_DOMAIN] and solution.value.columns[1].tolist() == [-1, -1]


# What SciPy's own tests of linear_sum_assignment hold as facts.
@pytest.mark.parametrize(
    ("cost", "matched"),
    [
        ([[400, 150, 400], [400, 450, 600], [300, 225, 300]], [150, 400, 300]),  # square
        ([[400, 150, 400, 1], [400, 450, 600, 2], [300, 225, 300, 3]], [150, 2, 300]),  # rectangular
        ([[10, 10, 8], [9, 8, 1], [9, 7, 4]], [10, 1, 7]),
        ([[10, 10, 8, 11], [9, 8, 1, 1], [9, 7, 4, 10]], [10, 1, 4]),
        ([[10, np.inf, np.inf], [np.inf, np.inf, 1], [np.inf, 7, np.inf]], [10, 1, 7]),
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_known_small_problems(cost, matched, sign):
    cost = sign * np.array(cost, float)
    for c, expected in ((cost, sign * np.array(matched)), (cost.T, np.sort(sign * np.array(matched)))):
        solution = assign(c, maximize=sign < 0)
        rows = np.flatnonzero(solution.value.columns >= 0)
        chosen = c[rows, solution.value.columns[rows]]
        assert chosen.sum() == expected.sum() == solution.value.cost and solution.flags == 0


def test_matrix_of_zeros_costs_nothing():
    for n in (1, 2, 5, 40):
        assert assign(np.zeros((n, n))).value.cost == 0


def test_identity_is_avoided():
    solution = assign(np.eye(12))
    assert solution.value.cost == 0 and (solution.value.columns != np.arange(12)).all()


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (2, 0, 4), (2, 4, 0), (0, 3, 3)])
def test_empty_problems_cost_nothing(shape):
    solution = assign(np.empty(shape))
    assert solution.value.columns.shape == shape[:-1] and (solution.value.columns == -1).all()
    assert solution.value.cost.shape == shape[:-2] and (solution.value.cost == 0).all() and (solution.flags == 0).all()
    assert solution.certificate["column_duals"].shape == (*shape[:-2], shape[-1])


def test_nan_stays_in_its_problem():
    cost = np.random.default_rng(0).random((5, 4, 4))
    clean = assign(cost)
    cost[1, 2, 3], cost[3, 0, 0] = np.nan, -np.inf
    solution = assign(cost)
    assert solution.flags.tolist() == [0, Flag.NONFINITE, 0, Flag.NONFINITE, 0]
    assert (solution.value.columns[[1, 3]] == -1).all() and np.isnan(solution.value.cost[[1, 3]]).all()
    for b in (0, 2, 4):
        assert solution.value.cost[b] == clean.value.cost[b]


def test_infeasible_stays_in_its_problem():
    cost = np.random.default_rng(0).random((3, 4, 4))
    cost[1, :3, 1:] = np.inf
    solution = assign(cost)
    assert solution.flags.tolist() == [0, Flag.INFEASIBLE, 0] and np.isposinf(solution.value.cost[1])


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint16, np.int32, np.uint64, np.float16, np.float32])
def test_every_real_dtype(dtype):
    cost = np.array([[[0, 1, 1], [1, 0, 1], [1, 1, 0]], [[1, 0, 0], [0, 0, 1], [1, 0, 1]]], dtype)
    solution = assign(cost)
    assert solution.value.cost.tolist() == [0, 0] and solution.value.columns[1].tolist() == [2, 0, 1]


def test_leading_axes_are_a_batch_and_views_do_not_matter():
    cost = np.random.default_rng(0).random((2, 3, 5, 4))
    solution = assign(cost)
    assert solution.value.columns.shape == (2, 3, 5) and solution.certificate["row_duals"].shape == (2, 3, 5)
    np.testing.assert_array_equal(assign(np.asfortranarray(cost)).value.columns, solution.value.columns)
    np.testing.assert_array_equal(assign(cost[::-1, :, ::-1]).value.cost, solution.value.cost[::-1])


def test_the_input_is_left_as_it_was():
    cost = np.random.default_rng(0).random((4, 6, 6))
    before = cost.copy()
    assign(cost, maximize=True)
    np.testing.assert_array_equal(cost, before)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (np.zeros(3), "shape"),
        (np.zeros((2, 2), complex), "dtype"),
        (np.array([["a", "b"]]), "dtype"),
        ([[1, 2], [3]], "cost has rows of several lengths"),
    ],
)
def test_bad_input_is_refused_in_one_line(bad, says):
    with pytest.raises(InputError, match=says) as error:
        assign(bad)
    assert "\n" not in str(error.value)


def test_an_unknown_backend_is_refused():
    with pytest.raises(InputError, match="accepted are auto, cpu, device, pallas, xla"):
        assign(np.zeros((2, 2)), backend="fpga")


@pytest.mark.parametrize("n", [100, 200, 400, 800])
def test_or_library_family(n):
    """Whole costs uniform in 1..100, as those of Beasley's assignment problems (J. Opl. Res. Soc. 41, 1990) are said to
    be. His optima (305 for n = 100, up to 1,552 for n = 800) belong to his files: they say nothing of another draw.

    What holds of every draw ceil(100 U): each matching costs at least 100 times what it costs in U, and less than n
    more. So the optimum lies between 100 Z and 100 Z + n, where Z, U's own optimum, tends to pi**2 / 6.
    """
    uniform = np.random.default_rng(n).random((n, n))
    cost = np.ceil(100 * uniform).astype(int)
    solution, z = assign(cost), stranger(uniform)
    assert solution.value.cost == stranger(cost) and solution.certificate["gap"] == 0 and solution.flags == 0
    assert max(n, 100 * z) <= solution.value.cost < 100 * z + n
    assert z == pytest.approx(np.pi**2 / 6, rel=0.2)


@pytest.mark.parametrize("shape", [(2, 2), (3, 2, 2), (2, 3)])
def test_a_total_above_the_largest_number_is_no_answer(shape):
    assert (np.asarray(assign(np.full(shape, 1e308)).flags) == Flag.NONFINITE).all()
    assert (np.asarray(assign(np.full(shape, 8e307)).flags) == 0).all()
