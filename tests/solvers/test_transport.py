"""`transport` and `congestion_transport`: the replicated matrix, linear programmes and networks say the same."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment, linprog

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.tiered import interpreted
from dmodels.solvers import assign, congestion_transport, transport
from dmodels.solvers.transportation import _kernels


def slots_optimum(cost, marginal):
    """SciPy's optimum on the matrix with a column per slot, or None: the definition of the problem."""
    n = len(cost)
    slots = (cost[:, :, None] + marginal[None, :, :]).reshape(n, -1)
    if slots.shape[1] < n:
        return None
    try:
        rows, columns = linear_sum_assignment(slots)
    except ValueError:
        return None
    return slots[rows, columns].sum()


def scale_of(*arrays):
    return 1e-12 * sum(np.abs(a[np.isfinite(a)]).sum() for a in arrays) + 1e-300


def check_units(cost, marginal, solution, b=()):
    """One placement against the slots' optimum; its duals against the definition of the bound."""
    n, m = cost.shape
    u, v = solution.certificate["row_duals"][b], solution.certificate["column_duals"][b]
    columns, total = solution.value.columns[b], solution.value.cost[b]
    allowed, scale = np.isfinite(cost), scale_of(cost, marginal)
    best = slots_optimum(cost, marginal)
    if best is None:
        room = np.isfinite(marginal).sum(-1)
        assert solution.flags[b] == Flag.INFEASIBLE and np.isposinf(total) and (columns == -1).all()
        assert u.sum() + v @ room > 0 and (v <= 0).all() and (u[:, None] + v[None, :])[allowed].max(initial=0) <= 0
        return
    loads = np.bincount(columns, minlength=m)
    mine = cost[np.arange(n), columns].sum() + sum(marginal[j, : loads[j]].sum() for j in range(m))
    assert solution.flags[b] == 0
    np.testing.assert_array_equal(solution.value.loads[b], loads)
    assert abs(mine - best) <= scale and abs(total - best) <= scale
    assert ((cost - u[:, None] - v[None, :])[allowed] >= -scale).all()
    bound = u.sum() + np.minimum(marginal + v[:, None], 0).sum()
    assert abs(mine - bound) <= scale and abs(solution.certificate["gap"][b]) <= scale


COSTS = {
    "uniform": lambda rng, shape: rng.random(shape),
    "ties": lambda rng, shape: rng.integers(0, 3, shape).astype(float),
    "same rows": lambda rng, shape: np.take(rng.random((2, shape[1])), rng.integers(0, 2, shape[0]), axis=0),
    "one favourite": lambda rng, shape: rng.random(shape) + 3 * np.arange(shape[1])[None, :],
    "constant": lambda rng, shape: np.full(shape, -2.5),
    "signed huge": lambda rng, shape: 1e200 * rng.normal(size=shape),
    "tiny": lambda rng, shape: 1e-200 * rng.normal(size=shape),
    "forbidden": lambda rng, shape: np.where(rng.random(shape) < 0.4, np.inf, rng.random(shape)),
    "staircase": lambda rng, shape: np.where(
        np.abs(np.arange(shape[0])[:, None] * shape[1] // shape[0] - np.arange(shape[1])[None, :]) > 1,
        np.inf,
        rng.random(shape),
    ),
}
MARGINALS = {
    "free": lambda rng, m, k: np.zeros((m, k)),
    "linear": lambda rng, m, k: np.broadcast_to(rng.random((m, 1)) * np.arange(1, 2 * k, 2)[None, :], (m, k)).copy(),
    "uniform": lambda rng, m, k: np.sort(rng.random((m, k)), axis=-1),
    "steps": lambda rng, m, k: np.sort(rng.integers(-2, 3, (m, k)), axis=-1).astype(float),
    "pole": lambda rng, m, k: np.where(
        np.arange(k)[None, :] < rng.integers(0, k + 1, (m, 1)), 1 / (k + 1.0 - np.arange(k)[None, :]), np.inf
    ),
}


def trial(kind: str, congestion: str, seed: int, problems: int) -> None:
    rng = np.random.default_rng([seed, *kind.encode(), *congestion.encode()])
    for _ in range(problems):
        n, m, k = rng.integers(1, 25), rng.integers(1, 7), rng.integers(1, 12)
        cost, marginal = COSTS[kind](rng, (n, m)), MARGINALS[congestion](rng, m, k)
        if "huge" in kind or "tiny" in kind:
            marginal = marginal * np.abs(cost).max()
        check_units(cost, marginal, congestion_transport(cost, marginal))
        capacity = np.isfinite(marginal).sum(-1) if congestion == "pole" else rng.integers(0, 2 * n // m + 2, m)
        slots = np.where(np.arange(capacity.max(initial=0))[None, :] < capacity[:, None], 0.0, np.inf)
        check_units(cost, slots, transport(cost, capacity))


@pytest.mark.parametrize("congestion", MARGINALS)
@pytest.mark.parametrize("kind", COSTS)
def test_placements_are_the_hungarians_on_slots(kind, congestion):
    trial(kind, congestion, seed=0, problems=12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
@pytest.mark.parametrize("congestion", MARGINALS)
@pytest.mark.parametrize("kind", COSTS)
def test_placements_are_the_hungarians_on_slots_at_length(kind, congestion, seed):
    trial(kind, congestion, seed, problems=100)


@given(st.data(), st.integers(1, 7), st.integers(1, 4), st.integers(0, 5))
def test_any_small_placement(data, n, m, k):
    entry = st.floats(-100, 100) | st.sampled_from([np.inf, 0.0, 1.0])
    cost = np.reshape(data.draw(st.lists(entry, min_size=n * m, max_size=n * m)), (n, m))
    slots = np.reshape(data.draw(st.lists(entry, min_size=m * k, max_size=m * k)), (m, k))
    marginal = np.sort(slots, axis=-1)
    check_units(cost, marginal, congestion_transport(cost, marginal))


@pytest.mark.parametrize("kind", COSTS)
def test_more_rows_than_a_sample(kind):
    """From 64 rows on prices are first found on samples; capacities that fit exactly, with room, and not at all."""
    rng = np.random.default_rng([9, *kind.encode()])
    for n, m in ((64, 2), (100, 6), (190, 5)):
        for room in (-1, 0, n // 4):
            capacity = rng.multinomial(n + room, np.full(m, 1 / m))
            cost = COSTS[kind](rng, (n, m))
            slots = np.where(np.arange(capacity.max())[None, :] < capacity[:, None], 0.0, np.inf)
            check_units(cost, slots, transport(cost, capacity))


def test_samples_that_mislead():
    """Rows that are all alike but for those which samples of every 4th, 16th, ... row see: prices start far off."""
    n, m = 3000, 4
    cost = np.random.default_rng(12).random((n, m)) + np.where(np.arange(n) % 4 == 0, 0, 5)[:, None] * np.arange(m)
    capacity = np.full(m, n // m)
    s = transport(cost, capacity)
    u, v = s.certificate["row_duals"], s.certificate["column_duals"]
    assert s.flags == 0 and (s.value.loads == capacity).all() and (cost - u[:, None] - v).min() >= -1e-12
    assert cost[np.arange(n), s.value.columns].sum() == pytest.approx(u.sum() + v @ capacity, rel=1e-12)


@pytest.mark.parametrize("room", [0, 900])
@pytest.mark.parametrize("kind", ["uniform", "ties", "one favourite", "clusters", "clusters apart", "forbidden"])
def test_only_a_core_of_many_rows_moves(kind, room):
    """At this size most rows are never touched by a path: the duals prove that they need not be."""
    rng = np.random.default_rng([20, *kind.encode()])
    n, m = 12_000, 6
    if kind.startswith("clusters"):
        cost = np.take(rng.random((9, m)), rng.integers(0, 9, n), axis=0)
        cost += 1e-6 * kind.count("apart") * rng.random((n, m))
    else:
        cost = COSTS[kind](rng, (n, m))
    cost[:, 0] = np.where(np.isinf(cost).all(1), 1.0, cost[:, 0])
    capacity = np.full(m, n // m) + room
    s = transport(cost, capacity)
    u, v = s.certificate["row_duals"], s.certificate["column_duals"]
    loads = np.bincount(s.value.columns, minlength=m)
    assert s.flags == 0 and (loads <= capacity).all() and (s.value.loads == loads).all()
    assert (cost - u[:, None] - v).min() >= -1e-12 and v.max() <= 0
    total = cost[np.arange(n), s.value.columns].sum()
    assert total == pytest.approx(u.sum() + v @ capacity, rel=1e-12) == pytest.approx(float(s.value.cost), rel=1e-12)


def test_one_window_is_a_batch_of_one():
    """A single problem takes a shorter way through the host: the same answer, certificate and flag come out of it."""
    rng = np.random.default_rng(21)
    for kind, room in (("uniform", 30), ("uniform", 0), ("one favourite", 5), ("ties", 0), ("forbidden", -1)):
        cost, capacity = COSTS[kind](rng, (150, 3)), np.full(3, 50 + room)
        alone, batch = transport(cost, capacity), transport(cost[None], capacity)
        for ours, theirs in zip(jax.tree.leaves(alone), jax.tree.leaves(batch), strict=True):
            np.testing.assert_array_equal(ours, theirs[0])
            assert np.shape(ours) == theirs.shape[1:] and ours.dtype == theirs.dtype


def test_no_limit_and_no_room():
    """inf is no limit, 0 is no room, a capacity above n is as good as none."""
    rng = np.random.default_rng(10)
    cost = rng.random((4, 90, 3)) + np.arange(3.0)
    s = transport(cost, [np.inf, 0, 5])
    assert (s.value.loads[:, 1] == 0).all() and (s.certificate["column_duals"][:, 0] == 0).all()
    np.testing.assert_array_equal(s.value.cost, transport(cost, [1e18, 0, 5]).value.cost)
    np.testing.assert_allclose(
        s.value.cost,
        np.minimum(cost[..., 0], cost[..., 2]).sum(1) + np.where(s.value.loads[:, 2] > 5, np.nan, 0.0),
        rtol=1e-12,
    )
    assert (s.flags == 0).all() and (s.certificate["gap"] <= 1e-12 * s.value.cost).all()


def test_what_the_fast_loop_leaves_is_solved_by_the_other():
    """One batch: solved, NaN, -inf, a row with nowhere to go, too little room, and a negative capacity."""
    cost = np.random.default_rng(11).random((6, 80, 4))
    cost[1, 7, 2], cost[2, 0, 0], cost[3, 5] = np.nan, -np.inf, np.inf
    capacity = np.full((6, 4), 22.0)
    capacity[4], capacity[5, 1] = 19, -1
    s = transport(cost, capacity)
    bad = [Flag.NONFINITE, Flag.NONFINITE, Flag.INFEASIBLE, Flag.INFEASIBLE, Flag.OUT_OF_DOMAIN]
    assert s.flags.tolist() == [0, *bad] and (s.value.columns[1:] == -1).all()
    assert np.isposinf(s.value.cost[3:5]).all() and np.isnan(s.value.cost[[1, 2, 5]]).all()
    assert (s.certificate["row_duals"][3:5].sum(1) + s.certificate["column_duals"][3:5] @ [22, 22, 22, 22] > 0)[0]


def linear_programme(cost, capacity, supply):
    """HiGHS on the transportation problem itself; None where it is infeasible."""
    n, m = cost.shape
    allowed = np.isfinite(cost).ravel()
    limits = np.where(np.isinf(capacity), 1e9, capacity)
    found = linprog(
        np.where(allowed, cost.ravel(), 0),
        A_eq=np.kron(np.eye(n), np.ones((1, m))),
        b_eq=supply,
        A_ub=np.kron(np.ones((1, n)), np.eye(m)),
        b_ub=limits,
        bounds=[(0, None if a else 0) for a in allowed],
    )
    assert found.status in (0, 2)
    return found.fun if found.status == 0 else None


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("kind", COSTS)
def test_shipments_are_the_linear_programmes(kind, whole):
    rng = np.random.default_rng([*kind.encode(), whole])
    for _ in range(8):
        n, m = rng.integers(1, 12), rng.integers(1, 6)
        cost = COSTS[kind](rng, (n, m))
        size = np.abs(cost[np.isfinite(cost)]).max(initial=0) or 1.0
        cost = cost / size  # HiGHS has absolute tolerances
        supply, capacity = rng.integers(0, 9, n) * 1.0, rng.integers(0, 1 + 12 * n // m, m) * 1.0
        if not whole:
            supply, capacity = supply * 0.37, capacity * 0.61
        if rng.random() < 0.2:
            capacity[0] = np.inf
        best = linear_programme(cost, capacity, supply)
        solution = transport(cost, capacity, supply)
        u, v = solution.certificate["row_duals"], solution.certificate["column_duals"]
        bound = supply @ u + sum(c * d for c, d in zip(capacity, v, strict=True) if d != 0)
        if best is None:
            assert solution.flags == Flag.INFEASIBLE and bound > 0
            assert (u[:, None] + v[None, :])[np.isfinite(cost)].max(initial=0) <= 0
            continue
        flow, tol = solution.value.flow, 1e-12 * (1 + supply.sum())
        assert solution.flags == 0 and (flow >= 0).all() and (flow[np.isinf(cost)] == 0).all()
        np.testing.assert_allclose(flow.sum(1), supply, atol=tol)
        assert (flow.sum(0) <= capacity + tol).all()
        assert not whole or (flow == np.round(flow)).all()
        assert solution.value.cost == pytest.approx(best, abs=1e-7 * (1 + supply.sum()))
        assert solution.value.cost == pytest.approx(bound, abs=10 * tol)
        assert (cost - u[:, None] - v[None, :] >= -tol).all() and (v <= 0).all()


MANY_COLUMNS = {
    "uniform": lambda rng, n, m: rng.random((n, m)),
    "ties": lambda rng, n, m: rng.integers(0, 3, (n, m)) * 1.0,
    "products": lambda rng, n, m: np.outer(rng.random(n), rng.random(m)),
    "equal rows": lambda rng, n, m: np.take(rng.random((5, m)), rng.integers(0, 5, n), axis=0),
    "forbidden": lambda rng, n, m: np.where(rng.random((n, m)) < 0.5, np.inf, rng.random((n, m))),
}


def many_columns(kind: str, rng, n: int, m: int, whole: bool, check) -> None:
    """One problem with about as many columns as rows, some empty, with and without spare room, and `check`."""
    cost, supply = MANY_COLUMNS[kind](rng, n, m), rng.integers(0, 9, n) * 1.0
    capacity = 1.0 * rng.multinomial(int(supply.sum()) + rng.choice([0, 0, 2, m]), rng.dirichlet(np.full(m, 0.7)))
    if not whole:
        supply, capacity = supply * 0.37, capacity * 0.37
    solution = transport(cost, capacity, supply)
    u, v = solution.certificate["row_duals"], solution.certificate["column_duals"]
    allowed, bound = np.isfinite(cost), supply @ u + capacity @ v
    best = check(cost, capacity, supply)
    assert v.max() <= 0
    if solution.flags == Flag.INFEASIBLE:
        assert bound > 0 and (u[:, None] + v)[allowed].max(initial=0) <= 0 and best is None
        return
    assert (cost - u[:, None] - v)[allowed].min(initial=0) >= -1e-11
    flow, tol = solution.value.flow, 1e-11 * (1 + supply.sum())
    assert solution.flags == 0 and (flow >= 0).all() and (flow[~allowed] == 0).all()
    np.testing.assert_allclose(flow.sum(1), supply, rtol=0, atol=tol)
    assert (flow.sum(0) <= capacity + tol).all() and (not whole or (flow == np.round(flow)).all())
    assert (flow * np.where(allowed, cost, 0)).sum() == pytest.approx(bound, abs=tol)
    assert best is None or solution.value.cost == pytest.approx(best, abs=1e-7 * (1 + supply.sum()))


@pytest.mark.parametrize("kind", MANY_COLUMNS)
def test_many_columns_are_the_linear_programme(kind):
    rng = np.random.default_rng([30, *kind.encode()])
    for n, m in ((1, 6), (9, 9), (24, 30), (40, 25), (6, 60), (3, 80)):
        for whole in (True, False):
            many_columns(kind, rng, n, m, whole, linear_programme)


@pytest.mark.slow
@pytest.mark.parametrize("kind", MANY_COLUMNS)
def test_many_columns_are_proved_by_their_duals(kind):
    """20,000 problems of each kind: the duals alone show what is optimal and what has no answer."""
    rng = np.random.default_rng([31, *kind.encode()])
    for _ in range(20_000):
        n, m = rng.integers(1, 40, 2) if rng.random() < 0.7 else rng.integers((1, 40), (6, 120))
        many_columns(kind, rng, n, m, bool(rng.integers(2)), lambda *problem: None)


def test_units_on_many_columns_of_some_places():
    """Columns of 0, 1, 2 and more places, and all of one: SciPy on the matrix with a column per place."""
    rng = np.random.default_rng(32)
    for n, m in ((12, 12), (30, 18), (25, 40)):
        for kind in MANY_COLUMNS:
            cost = MANY_COLUMNS[kind](rng, n, m)
            for capacity in (rng.integers(0, 4, m), np.ones(m, int)):
                slots = np.where(np.arange(4) < capacity[:, None], 0.0, np.inf)
                check_units(cost, slots, transport(cost, capacity))


def test_crumbs_of_rounding_do_not_keep_the_loop_going():
    """Few columns whose capacities and supplies differ by rounding only: an answer or a flag, after bounded work."""
    rng = np.random.default_rng(33)
    for _ in range(200):
        n, m = 70, 2
        supply = rng.integers(0, 5, n) * 0.37 * 10.0 ** rng.integers(-15, 15)
        capacity = rng.dirichlet(np.ones(m)) * supply.sum()
        cost = rng.normal(size=(n, m)) * 10.0 ** rng.integers(-8, 8, (n, 1))
        s = transport(cost, capacity, supply)
        u, v = s.certificate["row_duals"], s.certificate["column_duals"]
        assert s.flags == 0 or s.flags == Flag.NOT_CONVERGED
        if s.flags == 0:
            terms = np.abs(supply * u).sum() + np.abs(capacity * v).sum() + np.abs(cost * s.value.flow).sum()
            assert abs((cost * s.value.flow).sum() - supply @ u - capacity @ v) <= 1e-9 * terms


def test_identical_rows_collapse_to_supplies():
    """Prefix groups: 4 groups of identical rows cost as much as their 200 rows one by one."""
    rng = np.random.default_rng(5)
    group, capacity = rng.random((4, 6)), np.full(6, 40)
    sizes = np.array([17, 83, 60, 40])
    grouped = transport(group, capacity, sizes)
    single = transport(np.repeat(group, sizes, axis=0), capacity)
    assert grouped.value.cost == pytest.approx(float(single.value.cost), rel=1e-12)
    np.testing.assert_array_equal(grouped.value.flow.sum(1), sizes)


def test_many_rows_few_columns_agree_with_the_assignment_solver():
    rng = np.random.default_rng(6)
    cost = rng.random((3, 512, 5)) + np.arange(5)[None, None, :]
    capacity = np.array([64, 100, 128, 128, 100])
    solution = transport(cost, capacity)
    hungarian = assign(np.repeat(cost, capacity, axis=2))
    np.testing.assert_allclose(solution.value.cost, hungarian.value.cost, rtol=1e-12)
    assert (solution.flags == 0).all()


def test_large_problem_is_proved_by_its_duals():
    rng = np.random.default_rng(7)
    n, m = 20_000, 16
    cost = rng.random((n, m)) + np.linspace(0, 1, m)[None, :]
    capacity = np.full(m, n // m)
    solution = transport(cost, capacity)
    u, v = solution.certificate["row_duals"], solution.certificate["column_duals"]
    assert (cost - u[:, None] - v[None, :]).min() >= -1e-12 and v.max() <= 0
    assert np.bincount(solution.value.columns, minlength=m).tolist() == capacity.tolist()
    assert cost[np.arange(n), solution.value.columns].sum() == pytest.approx(u.sum() + v @ capacity, rel=1e-12)


def test_batches_broadcast():
    rng = np.random.default_rng(8)
    cost, capacity = rng.random((4, 1, 6, 3)), rng.integers(2, 5, (5, 3))
    solution = transport(cost, capacity)
    assert solution.value.columns.shape == (4, 5, 6) and solution.value.loads.shape == (4, 5, 3)
    for a in range(4):
        for b in range(5):
            assert solution.value.cost[a, b] == transport(cost[a, 0], capacity[b]).value.cost
    marginal = np.sort(rng.random((5, 3, 6)), axis=-1)
    assert congestion_transport(cost, marginal).value.cost.shape == (4, 5)
    assert congestion_transport(cost, marginal[0]).value.cost.shape == (4, 1)
    assert transport(cost, capacity[0], np.ones((4, 7, 6))).value.flow.shape == (4, 7, 6, 3)
    with pytest.raises(InputError, match="do not broadcast"):
        transport(cost, capacity[0], np.ones((7, 1, 6)))


def test_bad_problems_are_flagged_one_by_one():
    cost = np.ones((6, 3, 2))
    cost[1, 0, 0], cost[2, 0, 0] = np.nan, -np.inf
    capacity = np.full((6, 2), 2.0)
    capacity[3, 0], capacity[4, 1], capacity[5] = -1, np.nan, 1
    solution = transport(cost, capacity)
    bad = [0, Flag.NONFINITE, Flag.NONFINITE, Flag.OUT_OF_DOMAIN, Flag.NONFINITE, Flag.INFEASIBLE]
    assert solution.flags.tolist() == bad
    assert (solution.value.columns[1:] == -1).all()
    assert np.isfinite(solution.value.cost).tolist() == [True] + [False] * 5
    supply = np.ones((3, 3))
    supply[1, 0], supply[2, 1] = -1, np.inf
    assert transport(np.ones((3, 2)), [4, 4], supply).flags.tolist() == [0, Flag.OUT_OF_DOMAIN, Flag.NONFINITE]


def test_congestion_that_is_not_convex_is_flagged():
    rising, falling = [[1.0, 2.0, 3.0], [1.0, 1.0, 1.0]], [[1.0, 2.0, 1.5], [1.0, 1.0, 1.0]]
    solution = congestion_transport(np.zeros((2, 3, 2)), np.array([rising, falling]))
    assert solution.flags.tolist() == [0, Flag.OUT_OF_DOMAIN] and np.isnan(solution.value.cost[1])
    after_inf = congestion_transport(np.zeros((3, 2)), [[1.0, np.inf, 2.0], [1.0, 1.0, 1.0]])
    assert after_inf.flags == Flag.OUT_OF_DOMAIN
    assert congestion_transport(np.zeros((3, 2)), [[1.0, np.nan, 2.0], [1.0, 1.0, 1.0]]).flags & Flag.NONFINITE


def test_rounding_of_differences_is_not_mistaken_for_nonconvexity():
    """g(k) = 0.1 k has constant increments up to rounding, which sometimes falls."""
    marginal = np.diff(0.1 * np.arange(300.0))[None, :].repeat(2, axis=0)
    assert (np.diff(marginal) < 0).any()
    solution = congestion_transport(np.random.default_rng(0).random((40, 2)), marginal)
    assert solution.flags == 0 and solution.certificate["gap"] < 1e-12


def test_one_capacity_for_all_columns():
    cost = np.random.default_rng(1).random((7, 3))
    assert transport(cost, 3).value.cost == transport(cost, [3, 3, 3]).value.cost


def test_pigou_like_split():
    """Ten rows, a constant-cost column (10 each) and one with total cost k**2: marginals 2k - 1 reach 10 at k = 5."""
    marginal = np.stack([np.full(10, 10.0), 2 * np.arange(1, 11) - 1.0])
    solution = congestion_transport(np.zeros((10, 2)), marginal)
    assert solution.value.loads.tolist() == [5, 5] and solution.value.cost == 75


@pytest.mark.parametrize("n", [0, 3])
@pytest.mark.parametrize("m", [0, 2])
@pytest.mark.parametrize("first", [False, True])
def test_empty_problems(n, m, first, patience, monkeypatch):
    if first:  # in a process: answered before anything is compiled, by a loop that reads nothing beyond an array's end
        monkeypatch.setattr(_kernels, "ship_many", interpreted(_kernels.ship_many))
    solution = transport(np.zeros((n, m)), np.full(m, 5))
    assert transport(np.zeros((4, n, m)), np.full(m, 5)).flags.tolist() == [int(solution.flags)] * 4
    assert transport(np.zeros((n, m)), np.full(m, 5.0), np.full(n, 1.0)).flags == solution.flags
    assert solution.flags == (Flag.INFEASIBLE if n and not m else 0)
    assert solution.value.columns.shape == (n,) and (solution.value.cost == 0 or n)
    assert congestion_transport(np.zeros((n, m)), np.zeros((m, 0))).flags == (Flag.INFEASIBLE if n else 0)


def test_a_row_that_is_one_unit_cannot_be_split():
    solution = transport(np.zeros((3, 2)), [1.7, 1.9])
    assert solution.flags == Flag.INFEASIBLE
    assert transport(np.zeros((3, 2)), [1.7, 1.9], np.ones(3)).flags == 0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: transport(np.zeros((3, 2)), [1, 1, 1]), "capacity has 3 entries"),
        (lambda: transport(np.zeros((3, 2)), [1, 1], [1, 1]), "supply has 2 entries"),
        (lambda: transport(np.zeros(3), [1]), "cost has shape"),
        (lambda: congestion_transport(np.zeros((3, 2)), np.zeros((3, 4))), "marginal has 3 rows"),
        (lambda: congestion_transport(np.zeros((3, 2)), np.zeros(2)), "marginal has shape"),
        (lambda: transport(np.array([["a"]]), [1]), "cost has dtype"),
        (lambda: transport(np.zeros((1, 2)), [1, 1], [[1], [1, 2]]), "supply has rows of several lengths"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, says):
    with pytest.raises(InputError, match=says) as error:
        call()
    assert "\n" not in str(error.value)


def test_a_total_above_the_largest_number_is_no_answer():
    """One problem, a batch, and rows of any size."""
    huge = np.full((4, 2), 1e308)
    for found in (transport(huge, [2, 2]), transport(huge[None], [2, 2]), transport(huge, [9.0, 9.0], [1.0, 2, 3, 4])):
        assert (np.asarray(found.flags) == Flag.NONFINITE).all()
    assert int(transport(np.full((4, 2), 4e307), [2, 2]).flags) == 0
