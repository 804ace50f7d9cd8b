"""Loops of the routing game against every flow of a small one: the best move, arrivals in turn, loads that are given,
and the optimum where latencies step and fall."""

from __future__ import annotations

from itertools import product
from math import inf

import numpy as np
import pytest

from dmodels.core.tiered import interpreted
from dmodels.games.routing import RoutingGame, equilibria, kernels, optima, optimum, policies
from dmodels.models.latency import TableCurve

pytestmark = pytest.mark.usefixtures("patience")


def drawn(seed):
    """Latencies that may fall and end at a full memory, private costs, sizes of groups, a flow."""
    rng = np.random.default_rng(seed)
    groups, workers = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    q = rng.integers(1, 4, groups)
    f = rng.integers(0, 12, (workers, q.sum() + 1)).astype(float)
    if seed % 3 == 0:
        f[int(rng.integers(workers)), int(rng.integers(1, q.sum() + 1)) :] = inf
    x = np.array([rng.multinomial(size, np.ones(workers) / workers) for size in q])
    return f, rng.integers(0, 8, (groups, workers)).astype(float), q, x


def splits(size, workers):
    return [way for way in product(range(size + 1), repeat=workers) if sum(way) == size]


def flows(q, workers):
    return [np.array(x) for x in product(*(splits(size, workers) for size in q))]


def social(f, c, x):
    return sum(n * f[j, n - 1] for j, n in enumerate(x.sum(0)) if n) + (x * c).sum()


def test_the_move_that_gains_most():
    """The first of equals, and none below the rounding that is asked for."""
    for seed in range(160):
        f, c, _, x = drawn(seed)
        if seed >= 120:  # one request alone, on one of four workers that are faster with two
            rng = np.random.default_rng(seed)
            f = -np.sort(-rng.integers(0, 30, (4, 2)).astype(float), axis=1)
            c, x = rng.integers(0, 20, (1, 4)).astype(float), rng.permuted([[1, 0, 0, 0]], axis=1)
        n, gains = x.sum(0), {}
        assert interpreted(kernels.loads_of)(x).tolist() == n.tolist()
        assert interpreted(kernels.social_cost)(f, c, x) == social(f, c, x)
        for g, j, k in product(range(len(c)), range(len(f)), range(len(f))):
            if x[g, j] and j != k:
                pays, there = f[j, n[j] - 1] + c[g, j], f[k, n[k]] + c[g, k]
                gains[g, j, k] = pays - there if there < inf else -inf
        for tol in (0.0, 3.0):
            best, *move = interpreted(kernels.best_move)(f, c, x, n, tol)
            most = max(gains.values(), default=0.0)
            if most > tol:
                assert best == most and gains[tuple(move)] == most
                assert tuple(move)[:2] == min(way for way, gain in gains.items() if gain == most)[:2]
            else:
                assert (best, move) == (0.0, [-1, -1, -1])
        moved = x.copy()
        steps, settled = interpreted(kernels.respond)(f, c, moved, 0.0, 40)
        assert (moved.sum(1) == x.sum(1)).all() and (moved >= 0).all() and steps <= 40
        assert settled == (interpreted(kernels.best_move)(f, c, moved, moved.sum(0), 0.0)[1] == -1)
        assert (steps == 0) == (max(gains.values(), default=0.0) <= 0)
        for most in range(min(steps, 4) + 1):  # as many moves as are needed are enough, and fewer are not
            early = x.copy()
            assert interpreted(kernels.respond)(f, c, early, 0.0, most) == (most, settled and most == steps)
            assert most < steps or (early == moved).all()


def test_requests_that_come_in_turn_take_the_cheapest_worker():
    for seed in range(60):
        f, c, q, _ = drawn(seed)
        x, n = np.zeros(c.shape, int), np.zeros(len(f), int)
        for g, size in enumerate(q):
            for _ in range(size):
                pick = min(range(len(f)), key=lambda j, g=g: f[j, n[j]] + c[g, j])
                x[g, pick] += 1
                n[pick] += 1
        assert interpreted(kernels.greedy)(f, c, q).tolist() == x.tolist()


@pytest.mark.parametrize("cost", [[2.0, 0.5, 1.0, 0.5], [0.25, 0.5], [3.0, 3.0, 3.0], [7.0]])
@pytest.mark.parametrize("by_range", [True, False])
def test_a_draw_takes_each_worker_for_its_share_of_all_numbers(cost, by_range):
    """e^(-cost / tau) of the sum, in their order, tau in seconds or in ranges of the costs; at 0 the first of the
    cheapest."""
    cost, draw = np.array(cost), interpreted(policies._draw)
    spread = np.ptp(cost) or 1.0
    assert all(draw(cost, 0.0, u, by_range) == cost.argmin() for u in (0.0, 0.5, 0.999))
    for tau in (0.3, 2.0):
        weight = np.exp(-cost / (tau * (spread if by_range else 1.0)))
        ends = np.cumsum(weight) / weight.sum()
        told = [draw(cost, tau, (k + 0.5) / 100, by_range) for k in range(100)]
        assert told == [int(np.searchsorted(ends, (k + 0.5) / 100)) for k in range(100)]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_cheapest_and_the_dearest_flow_at_given_loads(sign):
    """On allowed arcs only; none where they leave a load unfilled."""
    missing = 0
    for seed in range(80):
        _, c, q, x = drawn(seed)
        allowed = np.random.default_rng(seed).random(c.shape) < 0.7
        loads = x.sum(0)
        fits = [(y * c).sum() for y in flows(q, len(loads)) if (y.sum(0) == loads).all() and not y[~allowed].any()]
        feasible, total, y = interpreted(kernels.flow_at_loads)(c, allowed, q, loads, sign)
        assert feasible == bool(fits)
        if fits:
            assert total == sign * min(sign * cost for cost in fits) == (y * c).sum()
            assert (y.sum(1) == q).all() and (y.sum(0) == loads).all() and not y[~allowed].any()
        missing += not fits
    assert 10 < missing < 70


def test_the_convex_curve_below_and_its_steps():
    """The greatest one: at every load the lowest chord; equal to the curve where that is convex."""
    for seed in range(60):
        f, *_ = drawn(seed)
        f = np.where(f < inf, f, 9.0)
        step, convex = optima.convex_marginals(f)
        for j, row in enumerate(f):
            curve = [n * row[n - 1] if n else 0.0 for n in range(row.size + 1)]
            chord = lambda a, b, n, curve=curve: curve[a] + (curve[b] - curve[a]) * (n - a) / max(b - a, 1)
            last = range(row.size + 1)
            below = [min(chord(a, b, n) for a in last for b in last if a <= n <= b) for n in last]
            assert np.cumsum(step[j]) == pytest.approx(below[1:])
            assert np.cumsum(optima.marginals(row)) == pytest.approx(curve[1:])
            assert convex[j] == (np.diff(curve, 2) >= -1e-9).all()
    full = optima.marginals(np.array([1.0, 2.0, inf, 3.0]))
    assert full.tolist() == [1.0, 3.0, inf, inf]


def test_the_optimum_where_latencies_step_by_trying_every_flow():
    """With its bound; as many answers as no convex flow would give."""
    bent = 0
    for seed in range(30):
        f, _, q, _ = drawn(3 * seed + 1)
        overlap = np.random.default_rng(seed).integers(0, 3, (len(q), len(f))) / 2.0
        found = optimum(RoutingGame(TableCurve(f), overlap, 5.0, q), backend="cpu")
        c = 5.0 * (1 - overlap)
        least = min(social(f, c, x) for x in flows(q, len(f)))
        assert float(found.value.cost_s) == pytest.approx(least) and found.flags == 0
        assert float(found.certificate["bound_s"]) == pytest.approx(least) and found.certificate["gap_s"] < 1e-8
        bent += not optima.convex_marginals(f)[1].all()
    assert bent > 20


@pytest.mark.parametrize(
    "f",
    [
        [[4.0, 6.0, 9.0, 11.0], [10.0, 1.0, 8.0, 3.0], [8.0, 7.0, 6.0, 4.0]],  # all on the second: one load is left
        [[6.0, 9.0, 3.0, 9.0, 6.0], [6.0, 2.0, 4.0, 7.0, 3.0], [3.0, 10.0, 4.0, 5.0, 3.0]],
        [[3.0, 8.0, 8.0, 0.0, 3.0], [11.0, 2.0, 9.0, 4.0, 6.0], [8.0, 0.0, 2.0, 3.0, 3.0]],
    ],
)
def test_the_optimum_where_the_loads_beside_it_are_dear(f):
    """Of alike requests, as many as latencies are told: by every way to split them."""
    f = np.array(f)
    least = min(sum(n * f[j, n - 1] for j, n in enumerate(way) if n) for way in splits(f.shape[1], 3))
    found = optimum(RoutingGame(f, np.zeros((1, 3)), 0.0, [f.shape[1]]), backend="cpu")
    assert float(found.value.cost_s) == least == pytest.approx(float(found.certificate["bound_s"])) and not found.flags


@pytest.mark.parametrize(
    "f, c, blurred",
    [
        ([[1e6, 2e6], [1e6, 3e6]], [[0.0, 1e-10]], True),  # sums of a million have no room for that
        ([[1e6, 2e6], [1e6, 3e6]], [[0.0, 1e-3]], False),
        ([[1e6, 2e6], [1e6, 3e6]], [[0.5, 0.5]], False),  # ties are ties
        ([[1e6, 2e6], [1e6, 3e6]], [[2.0, 1.0], [7.0, 7.0 + 1e-10]], True),
        ([[1.0, 1.0 + 1e-13], [1.0, 2.0]], [[0.0, 1.0]], False),
        ([[1.0, 1.0 + 1.2e-14], [1.0, 2.0]], [[0.0, 0.0]], True),
        ([[1.0, 1.0 + 5e-15], [1.0, 2.0]], [[0.0, 0.0]], False),  # the rounding of the numbers themselves
        ([[1.0, inf], [2.0, inf]], [[0.0, 1.0]], False),
    ],
)
@pytest.mark.parametrize("scale", [1.0, 2.0**-60])
def test_costs_that_sums_cannot_tell_apart(f, c, blurred, scale):
    """Two requests, alike where one row of private costs is given; whatever the unit."""
    c = scale * np.array([*c, *c][:2])
    game = RoutingGame(scale * np.array(f), np.zeros_like(c), 1.0).arrays()
    told = equilibria.blurred(game._replace(cost=np.broadcast_to(c, game.cost.shape)))
    assert told.tolist() == [blurred]


def test_of_a_batch_each_game_is_told_by_its_own_costs():
    """Latencies or private costs of each, and two requests in all."""
    sharp, fine = [[1.0, 2.0], [1.0, 2.0]], [[1.0, 1.0 + 1.2e-14], [1.0, 2.0]]
    game = RoutingGame(np.array([sharp, fine, sharp, fine]), np.zeros((2, 2)), 1.0).arrays()
    assert equilibria.blurred(game).tolist() == [False, True, False, True]
    near = np.array([[[0.0, 1.0]] * 2, [[0.0, 1e-10]] * 2, [[0.0, 1e-10]] * 2])
    game = RoutingGame([[1e6, 2e6], [1e6, 3e6]], np.zeros((3, 2, 2)), 1.0).arrays()
    assert equilibria.blurred(game._replace(cost=near)).tolist() == [False, True, True]


@pytest.mark.parametrize(
    "f, rising, convex",
    [
        ([[1.0, 2.0, 3.0]], True, True),
        ([[1.0, 1.0, 4.0], [2.0, 2.0, 2.0]], True, True),  # 1, 2, 12 in all
        ([[0.0, 1.0, 1.0]], True, False),  # 0, 2, 3
        ([[1.0, 2.0, 3.0], [0.0, 1.0, 1.0]], True, False),
        ([[0.0, 1.0, 1.0], [1.0, 2.0, 3.0]], True, False),
        ([[2.0, 1.0, 1.0]], False, False),
        ([[1.0, 2.0, inf], [1.0, inf, inf]], True, True),
        ([[inf, inf, inf]], True, True),
        ([[0.1 * k + 0.02 for k in range(1, 60)]], True, True),  # but for rounding
    ],
)
def test_which_curves_rise_and_whose_sums_are_convex(f, rising, convex):
    f = np.array(f)
    assert interpreted(equilibria.shape_of)(f, f.shape[1]) == (rising, convex)
    longer = np.c_[f, np.zeros(len(f))]  # of which the last load does not occur
    assert interpreted(equilibria.shape_of)(longer, f.shape[1]) == (rising, convex)


def test_groups_that_are_alike_are_one_and_get_their_own_back():
    """Those without requests are none."""
    c = np.array([[1.0, 2.0, 0.0], [3.0, 4.0, 0.0], [1.0, 2.0, 0.0], [1.0, 2.0, 5.0], [3.0, 4.0, 0.0]])
    q = np.array([2, 0, 3, 1, 4])
    rows, sizes, into = interpreted(equilibria.merge)(c, q)
    assert rows.tolist() == c[[0, 3, 4]].tolist() and sizes.tolist() == [5, 1, 4] and into.tolist() == [0, -1, 0, 1, 2]
    flow, out = np.array([[1, 0, 4], [0, 1, 0], [2, 2, 0]]), np.full((5, 3), 7)
    interpreted(equilibria.split)(flow, q, into, out)
    assert out.tolist() == [[1, 0, 1], [0, 0, 0], [0, 0, 3], [0, 1, 0], [2, 2, 0]] and flow[0].tolist() == [1, 0, 4]
    dear = interpreted(equilibria._at_costliest)(rows, sizes)
    assert dear.tolist() == [[0, 5, 0], [0, 0, 1], [0, 4, 0]]
