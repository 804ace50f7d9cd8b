"""Certificates of 10^5 instances per solver, recomputed without it (matchings: `test_assignment`): ties, zeros, what is
forbidden, infeasible or unbounded. An answer without a flag is proved by its duals or residuals, no answer by a ray."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmodels.core.flags import Flag, usable
from dmodels.solvers import (
    affine_equilibria,
    congestion_transport,
    elastic_wardrop,
    marginal_cost_tolls,
    transport,
    variational_equilibria,
)
from dmodels.solvers.wardrop import wardrop

INF = np.inf
COSTS = {
    "uniform": lambda rng, *shape: rng.random(shape) - 0.3,
    "ties": lambda rng, *shape: rng.integers(0, 4, shape).astype(float),
    "zeros": lambda rng, *shape: np.zeros(shape),
    "few": lambda rng, *shape: np.where(rng.random(shape) < 0.55, INF, rng.integers(0, 9, shape)),
    "wide": lambda rng, *shape: 10.0 ** rng.uniform(-12, 12, shape),
}
COUNTS = [60, pytest.param(20_000, marks=pytest.mark.slow)]  # of each of five kinds, in three sizes


def infeasible(s):
    return (s.flags & int(Flag.INFEASIBLE)) != 0


def proved(c, s, bound, size):
    """`bound` (k,) of duals u and v is valid for c (k, n, m), and the cost where there is an optimum; `size` is the sum
    of the magnitudes in it. A ray has u + v <= 0 on what is allowed, and a bound above 0."""
    u, v = s.certificate["row_duals"], s.certificate["column_duals"]
    none = infeasible(s)
    assert (s.flags[~none] == 0).all() and (s.value.cost[none] == INF).all()
    tolerance = 1e-11 * (np.abs(u)[..., None] + np.abs(v)[:, None] + 1e-300)
    limit = np.where(none[:, None, None], 0.0, np.where(np.isfinite(c), c, INF))
    allowed = np.isfinite(c)
    excess = np.where(allowed, u[..., None] + v[:, None] - limit, -INF)
    assert (excess <= tolerance + 1e-11 * np.where(allowed, np.abs(c), 0)).all()
    assert (bound[none] > 0).all()
    assert (np.abs(bound - s.value.cost)[~none] <= 1e-9 * size[~none] + 1e-300).all()


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("kind", COSTS)
def test_shipments(kind, count):
    rng = np.random.default_rng([2, *kind.encode()])
    for n, m in ((6, 3), (5, 5), (4, 9)):
        c = COSTS[kind](rng, count // 3, n, m)
        supply, room = rng.integers(0, 5, (len(c), n)).astype(float), rng.integers(0, 14, (len(c), m)).astype(float)
        room[rng.random(room.shape) < 0.1] = INF
        s = transport(c, room, supply)
        u, v = s.certificate["row_duals"], s.certificate["column_duals"]
        assert (v <= 0).all()
        with np.errstate(invalid="ignore"):
            priced = np.where(v < 0, room * v, 0.0)
        size = (supply * np.abs(u)).sum(-1) + np.abs(priced).sum(-1)
        proved(c, s, (supply * u).sum(-1) + priced.sum(-1), size)
        found = ~infeasible(s)
        flow = s.value.flow[found]
        np.testing.assert_allclose(flow.sum(-1), supply[found], rtol=1e-12)
        assert (flow >= 0).all() and (flow.sum(-2) <= room[found] * (1 + 1e-12)).all()
        paid = np.where(flow > 0, flow * np.where(flow > 0, c[found], 0.0), 0.0).sum((-1, -2))
        np.testing.assert_allclose(s.value.cost[found], paid, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("kind", COSTS)
def test_placements_under_congestion(kind, count):
    """min sum c + sum g(n): the bound is sum u + sum over slots of min(marginal + v, 0)."""
    rng = np.random.default_rng([3, *kind.encode()])
    for n, m in ((6, 3), (5, 5), (9, 2)):
        c = COSTS[kind](rng, count // 3, n, m)
        slots = np.sort(rng.integers(0, 9, (len(c), m, n)), axis=-1).astype(float)
        slots[rng.random(slots.shape[:2]) < 0.2, n // 2 :] = INF
        s = congestion_transport(c, slots)
        u, v = s.certificate["row_duals"], s.certificate["column_duals"]
        none = infeasible(s)
        base = np.where(np.isfinite(slots), np.where(none[:, None, None], 0.0, slots), INF)
        used = np.minimum(base + v[..., None], 0.0)
        proved(c, s, u.sum(-1) + used.sum((-1, -2)), np.abs(u).sum(-1) + np.abs(v).sum(-1) * n)
        x = s.value.columns[~none]
        load = (x[..., None] == np.arange(m)).sum(-2)
        paid = np.take_along_axis(c[~none], x[..., None], -1).sum((-1, -2))
        crowd = np.where(np.arange(n) < load[..., None], slots[~none], 0.0).sum((-1, -2))
        np.testing.assert_allclose(s.value.cost[~none], paid + crowd, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("count", [300, pytest.param(100_000, marks=pytest.mark.slow)])
def test_affine_games(count):
    """M x + q with one shared row: definite, of zeros, with ties; no room at all; costs that fall for ever."""
    rng = np.random.default_rng(4)
    n = 3
    square, skew = rng.normal(size=(2, count, n, n))
    m = square @ square.transpose(0, 2, 1) / n + 0.1 * np.eye(n) + 0.5 * (skew - skew.transpose(0, 2, 1))
    q, a, b = 3 * rng.normal(size=(count, n)), rng.uniform(0, 1, (count, n)), rng.uniform(0.5, 2, count)
    kind = rng.choice(6, count, p=[0.23, 0.23, 0.23, 0.23, 0.04, 0.04])
    q[kind == 1] = 0.0
    m[kind == 2], q[kind == 2] = np.round(m[kind == 2]) + np.eye(n) * 3, np.round(q[kind == 2])
    a[kind == 3] = 1.0
    b[kind == 4] = -0.5  # a >= 0 and x >= 0
    m[kind == 5], q[kind == 5], a[kind == 5] = 0.0, -1.0 - rng.random((int((kind == 5).sum()), n)), 0.0
    s = affine_equilibria(m, q, (a[:, None], b[:, None]), (0, INF))
    ok = usable(s.flags)
    assert ok[kind < 4].all() and not ok[kind > 3].any() and infeasible(s)[kind == 4].all()
    x, lam = s.value.x[ok], s.value.multipliers[ok][..., 0]
    force = np.einsum("kij,kj->ki", m[ok], x) + q[ok] + a[ok] * lam[:, None]
    size = 1.0 + np.abs(q[ok]).max(-1)
    left = b[ok] - (a[ok] * x).sum(-1)
    assert (np.abs(np.minimum(x, force)).max(-1) <= 1e-9 * size).all()
    assert (np.abs(np.minimum(lam, left)) <= 1e-9 * size).all()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 11))
def test_100_000_games_of_any_costs(seed):
    """As affine games, with sinh-like forces beside them, some in units of 1e-8 to 1e8: 20,000 in each run."""
    rng, count, n = np.random.default_rng(seed), 20_000, 3
    square, skew = rng.normal(size=(2, count, n, n))
    m = square @ square.transpose(0, 2, 1) / n + 0.05 * np.eye(n) + 0.5 * (skew - skew.transpose(0, 2, 1))
    q, a, b = 3 * rng.normal(size=(count, n)), rng.uniform(0, 1, (count, n)), rng.uniform(0.5, 2, count)
    steep, curved = 10.0 ** rng.uniform(-1, 1, (count, n)), rng.integers(0, 3, (count, n)).astype(float)
    kind = rng.choice(6, count, p=[0.3, 0.25, 0.2, 0.15, 0.05, 0.05])
    q[kind == 1], m[kind == 1] = np.round(q[kind == 1]), np.round(m[kind == 1]) + 3 * np.eye(n)
    q[kind == 2] = 0.0
    unit = np.where(kind == 3, 10.0 ** rng.uniform(-8, 8, count), 1.0)
    b[kind == 4] = -0.5  # no room
    m[kind == 5], curved[kind == 5], a[kind == 5] = 0.0, 0.0, 0.0  # costs fall for ever
    q[kind == 5] = -1.0 - rng.random((int((kind == 5).sum()), n))

    def force(x, p):
        m, q, steep, curved, unit = p
        return unit * (m @ x + q + curved * steep * (jnp.exp(steep * (x - 1.0)) - jnp.exp(-steep * x)))

    params = (m, q, steep, curved, unit), a, b
    game = lambda x, p: force(x, p[0]), lambda x, p: p[1] @ x - p[2], ([0.0] * n, [INF] * n)
    s = variational_equilibria(*game, params=params, samples=8)
    ok = usable(s.flags)
    assert ok[kind < 4].mean() > 0.998 and not ok[kind > 3].any() and infeasible(s)[kind == 4].all()
    x, lam, left = s.value.x, s.value.multipliers[..., 0], b - (a * s.value.x).sum(-1)
    up, down = curved * steep * np.exp(steep * (x - 1.0)), curved * steep * np.exp(-steep * x)
    lam = lam / unit
    rest = np.einsum("kij,kj->ki", m, x) + q + up - down + a * lam[:, None]
    size = 1.0 + np.einsum("kij,kj->ki", np.abs(m), np.abs(x)) + np.abs(q) + up + down + a * np.abs(lam)[:, None]
    assert (np.abs(np.minimum(x, rest / size)) <= 1e-9)[ok].all()
    assert (np.abs(np.minimum(lam / size.max(-1), left)) <= 1e-9)[ok].all()


@pytest.mark.parametrize("count", [300, pytest.param(100_000, marks=pytest.mark.slow)])
def test_loads_on_parallel_servers(count):
    """Latencies a x + b + d x^3 with zeros and ties, servers that are full, too much demand: Wardrop's two conditions,
    the same for those who may stay away, and for users who pay marginal costs."""
    rng = np.random.default_rng(5)
    a, b, d = (rng.integers(0, 4, (count, 4)) / 2.0 for _ in range(3))
    a[rng.random(count) < 0.3] += 0.1 * rng.random(4)
    room = np.where(rng.random((count, 4)) < 0.3, rng.integers(1, 4, (count, 4)), INF)
    demand = rng.uniform(0.2, 12, count)

    def latency(x):
        return a * x + b + d * x**3

    def check(s, paid, loads, used_up, ok):
        most = np.where(loads > 1e-8 * demand[:, None], paid, -INF).max(-1)
        least = np.where(loads < room * (1 - 1e-9), paid, INF).min(-1)
        assert (loads >= 0).all() and (loads <= room * (1 + 1e-9)).all()
        np.testing.assert_allclose(loads.sum(-1)[ok], used_up[ok], rtol=1e-9)
        assert (most <= least + 2e-6 * np.maximum(np.abs(most), 1e-3))[ok].all()

    with jax.enable_x64(True):
        willing = lambda r: 6.0 - jnp.minimum(r, 12.0) / 2
        s, t, e = jax.jit(
            lambda: (
                wardrop(latency, demand, room),
                marginal_cost_tolls(latency, demand, room),
                elastic_wardrop(latency, willing, demand, room),
            )
        )()
        ok = np.asarray(s.flags) == 0
        fits = demand < room.sum(-1)
        assert (ok == fits).all()
        assert ((np.asarray(s.flags) & int(Flag.OVERLOAD)) != 0).tolist() == (~fits).tolist()
        check(s, latency(np.asarray(s.value["loads"])), np.asarray(s.value["loads"]), demand, ok)
        loads = np.asarray(t.value["loads"])
        tolls = loads * (a + 3 * d * loads**2)
        np.testing.assert_allclose(t.value["tolls"], tolls, rtol=1e-9, atol=1e-12)
        check(t, latency(loads) + tolls, loads, demand, np.asarray(t.flags) == 0)
        served, okay = np.asarray(e.value["served"]), np.asarray(e.flags) == 0
        loads = np.asarray(e.value["loads"])
        check(e, latency(loads), loads, served, okay)
        some = okay & (served > 1e-6) & (served < demand * (1 - 1e-6))
        np.testing.assert_allclose(np.asarray(e.value["level"])[some], (6.0 - served / 2)[some], rtol=1e-6)
