"""As `test_certificates`, for the solvers beside matchings, shipments and loads: each answer is judged from the
question, by its certificate's definition or by enumeration, on ties, zeros, and what cannot be answered."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dmodels.core.flags import Flag
from dmodels.solvers import (
    all_affine_equilibria,
    assign,
    bottleneck_assignment,
    entropic_transport,
    mixed_equilibria,
    ranked_assignments,
    reassign,
)

INF = np.inf
COUNTS = [100, pytest.param(100_000, marks=pytest.mark.slow)]
INFEASIBLE, MULTIPLE = int(Flag.INFEASIBLE), int(Flag.NOT_UNIQUE)
TABLES = [
    lambda rng, *shape: rng.random(shape) - 0.3,
    lambda rng, *shape: rng.integers(0, 4, shape),
    lambda rng, *shape: np.zeros(shape),
    lambda rng, *shape: np.where(rng.random(shape) < 0.45, INF, rng.integers(0, 9, shape)),
    lambda rng, *shape: 10.0 ** rng.uniform(-12, 12, shape),
]


@pytest.mark.parametrize("count", COUNTS)
def test_assignments_after_changed_rows(count):
    """Dual prices prove each answer for the new costs, a Farkas ray that there is none; costs as from the start."""
    rng = np.random.default_rng(1)
    for k in range(count):
        n, m = rng.integers(1, 7, 2)
        kind, maximize = TABLES[k % 5], k % 3 == 0 and k % 5 != 3
        c = np.array(kind(rng, n, m))
        before = assign(c, maximize)
        for i in rng.integers(0, n, rng.integers(0, 3)):
            c[i] = kind(rng, m)
        s, sign = reassign(c, before, maximize), -1.0 if maximize else 1.0
        u, v = (sign * s.certificate[name] for name in ("row_duals", "column_duals"))
        large = np.abs(u)[:, None] + np.abs(v)
        if int(s.flags) == INFEASIBLE:
            assert (np.where(np.isfinite(c), u[:, None] + v, 0.0) <= 0).all() and u.sum() + v.sum() > 0
            continue
        assert int(s.flags) == 0
        assert (u[:, None] + v <= sign * c + 1e-11 * large).all()
        assert n == m or (np.asarray(v if n < m else u) <= 0).all()
        taken = np.flatnonzero(s.value.columns >= 0)
        chosen = s.value.columns[taken]
        assert len(taken) == min(n, m) == len(set(chosen.tolist()))
        paid, size = c[taken, chosen].sum(), np.abs(c[taken, chosen]).sum() + np.abs(u).sum() + np.abs(v).sum()
        assert paid == pytest.approx(s.value.cost, rel=1e-12, abs=1e-300)
        assert abs(sign * paid - u.sum() - v.sum()) <= 1e-9 * size


@pytest.mark.parametrize("count", COUNTS)
def test_ranked_and_bottleneck_assignments(count):
    """Against all injections of rows into columns."""
    rng = np.random.default_rng(2)
    ways = {(n, m): np.array(list(itertools.permutations(range(m), n))) for m in (2, 3, 4) for n in (1, 2, 3) if n <= m}
    shapes = list(ways)
    for k in range(count):
        n, m = shapes[k % len(shapes)]
        c = np.array(TABLES[k % 5](rng, n, m), float)
        pairs = c[np.arange(n), ways[n, m]]
        sums = np.sort(pairs.sum(1))
        sums, wanted = sums[np.isfinite(sums)], int(rng.integers(1, 5))
        s = ranked_assignments(c, wanted)
        found = s.value.cost[np.isfinite(s.value.cost)]
        np.testing.assert_allclose(
            found, sums[:wanted], rtol=1e-12, atol=1e-12 * np.abs(pairs[np.isfinite(pairs)]).max(initial=0)
        )
        listed = s.value.columns[: len(found)]
        assert len({tuple(row) for row in listed.tolist()}) == len(found)
        np.testing.assert_allclose(c[np.arange(n), listed].sum(1), found, rtol=1e-12)
        assert (int(s.flags) == INFEASIBLE) == (len(sums) < wanted) and (int(s.flags) & ~INFEASIBLE) == 0
        least = pairs.max(1).min()
        b = bottleneck_assignment(c)
        assert float(b.value.cost) == least and (int(b.flags) == INFEASIBLE) == (least == INF)
        rows = b.certificate["blocking_rows"]
        assert rows.sum() > (c[rows] < least).any(0).sum()  # Hall: too few cheaper columns
        if least < INF:
            assert c[np.arange(n), b.value.columns].max() == least


def test_a_row_that_no_longer_has_a_column_is_found():
    """The other row's cheapest column is the one that the emptied row held: no path may pass through there."""
    s = reassign([[INF, INF], [0.0, INF]], assign([[0.0, 9.0], [9.0, 9.0]]))
    assert int(s.flags) == INFEASIBLE and s.value.columns.tolist() == [-1, -1]


@pytest.mark.parametrize("count", COUNTS)
def test_entropic_transport(count):
    """Sums of the plan, its optimality condition (a Gibbs plan of two potentials), and bounds on the exact optimum.
    Sinkhorn's sweeps are slow where it is cold and costs tie: there the flag says so, and the bounds hold all the same.
    """
    rng = np.random.default_rng(3)
    unfinished = 0
    for (n, m), kind in itertools.product(((3, 3), (2, 5)), TABLES[:3]):
        for heat in np.array_split(np.sort(10.0 ** rng.uniform(-1.5, 1, count // 6)), max(1, count // 6000)):
            c = np.array(kind(rng, len(heat), n, m), float)
            a, b = rng.random((len(c), n)) + 0.01, rng.random((len(c), m)) + 0.01
            a[rng.random(a.shape) < 0.1] = 0.0
            a[:, 0] += 0.1
            a, b = a / a.sum(1, keepdims=True), b / b.sum(1, keepdims=True)
            s = entropic_transport(c, a, b, heat, most_steps=2_000)
            certified = s.flags == 0
            assert (s.flags[~certified] == int(Flag.NOT_CONVERGED)).all()
            unfinished += int((~certified).sum())
            lower, upper = s.certificate["lower"], s.certificate["upper"]
            g = s.value["column_potentials"]
            dual = (a * (c - g[:, None]).min(2)).sum(1) + (b * g).sum(1)
            np.testing.assert_allclose(lower, dual, atol=1e-12)
            assert (lower <= upper + 1e-12).all()
            given = [part[certified] for part in (c, a, b, heat, *(s.value[name] for name in POTENTIALS))]
            _check_gibbs_plan(*given, s.value["plan"][certified], s.value["cost"][certified], lower[certified])
    assert unfinished <= 0.005 * count


POTENTIALS = ("row_potentials", "column_potentials")


def _check_gibbs_plan(c, a, b, heat, f, g, plan, cost, lower):
    assert (np.abs(plan.sum(2) - a) <= 3e-9).all() and (np.abs(plan.sum(1) - b) <= 3e-9).all()
    gibbs = a[:, :, None] * b[:, None] * np.exp((f[:, :, None] + g[:, None] - c) / heat[:, None, None])
    np.testing.assert_allclose(plan, np.where(a[:, :, None] > 0, gibbs, 0.0), rtol=1e-9, atol=1e-15)
    ratio = np.where(plan > 0, plan / np.where(plan > 0, a[:, :, None] * b[:, None], 1.0), 1.0)
    smooth = (plan * (c + heat[:, None, None] * np.log(ratio))).sum((1, 2))
    np.testing.assert_allclose(cost, smooth, atol=2e-7)
    assert ((plan * c).sum((1, 2)) >= lower - 1e-7).all()


@pytest.mark.parametrize("count", [60, pytest.param(100_000, marks=pytest.mark.slow)])
def test_mixed_equilibria(count):
    """No pure strategy gains, every pure equilibrium is listed, and mixes of what is joined are equilibria, too."""
    rng = np.random.default_rng(4)
    for k in range(count):
        n, m = ((2, 2), (2, 3))[k % 2]
        a, b = (np.array(TABLES[k % 3](rng, n, m), float) for _ in range(2))
        s = mixed_equilibria(a, b)
        x, y = s.value["row_strategies"], s.value["column_strategies"]
        assert int(s.flags) == 0 and len(x) >= 1

        def regret(p, q, a=a, b=b):
            return max((a @ q).max() - p @ a @ q, (p @ b).max() - p @ b @ q)

        assert all(regret(p, q) <= 1e-12 for p, q in zip(x, y, strict=True))
        np.testing.assert_allclose([x.sum(1), y.sum(1)], 1.0)
        pure = {(i, j) for i in range(n) for j in range(m) if a[i, j] == a[:, j].max() and b[i, j] == b[i].max()}
        assert pure == {
            (int(p.argmax()), int(q.argmax())) for p, q in zip(x, y, strict=True) if p.max() == q.max() == 1.0
        }
        for i, j in zip(*np.nonzero(s.certificate["joined"]), strict=True):
            assert regret((x[i] + x[j]) / 2, (y[i] + y[j]) / 2) <= 1e-12


@pytest.mark.parametrize("count", [60, pytest.param(100_000, marks=pytest.mark.slow)])
def test_all_equilibria_of_small_games(count):
    """Each listed point satisfies the conditions, what is joined too; a strictly monotone game has one; one that nobody
    can play is flagged; and no point of a grid that satisfies them is far from the hull of the joined ones."""
    rng = np.random.default_rng(5)
    for k in range(count):
        m, q = rng.normal(size=(2, 2)), rng.normal(size=2)
        kind = k % 4
        if kind == 0:
            m = m @ m.T + 0.2 * np.eye(2)
        elif kind == 1:
            m, q = np.zeros((2, 2)), -np.ones(2)
        elif kind == 2:
            m, q = rng.integers(-1, 2, (2, 2)).astype(float), rng.integers(-2, 2, 2).astype(float)
        room = -1.0 if k % 20 == 19 else 1.0
        s = all_affine_equilibria(m, q, ([[1.0, 1.0]], [room]), (0.0, 2.0))
        x, price = s.value["x"], s.value["multipliers"][:, 0]
        if room < 0:
            assert int(s.flags) & INFEASIBLE and len(x) == 0
            continue
        assert len(x) >= 1 and (kind or len(x) == 1) and bool(int(s.flags) & MULTIPLE) == (len(x) > 1)

        def wrong(z, lam, m=m, q=q):
            rest = z - np.clip(z - (m @ z + q + lam), 0.0, 2.0)
            return max(np.abs(rest).max(), abs(min(lam, 1.0 - z.sum())))

        assert all(wrong(z, lam) <= 1e-8 for z, lam in zip(x, price, strict=True))
        for i, j in zip(*np.nonzero(s.certificate["joined"]), strict=True):
            assert wrong((x[i] + x[j]) / 2, (price[i] + price[j]) / 2) <= 1e-8
        if kind == 1:
            np.testing.assert_allclose(np.sort(x[:, 0]), [0.0, 1.0], atol=1e-9)
