"""What may be cut from a box of loads, and what equilibria in it can cost, in plain Python with whole numbers.

The conditions only ever shrink a box, so that the box which none of them shrinks is the same in whatever order they are
applied: a condition that cuts less than it could, or more, gives another one.
"""

from __future__ import annotations

from itertools import chain, combinations, product
from math import inf

import numpy as np
import pytest
from scipy.optimize import linprog

from dmodels.core.tiered import interpreted
from dmodels.games.anarchy import coarse_ceiling_s, program
from dmodels.games.routing import RoutingGame, boxes, kernels, smooth, tighten

pytestmark = pytest.mark.usefixtures("patience")


def drawn(seed: int, rising: bool):
    """Latencies by load (workers, requests), private costs (groups, workers), sizes of groups."""
    rng = np.random.default_rng(seed)
    groups, workers = int(rng.integers(1, 4)), int(rng.integers(2, 5))
    q = rng.integers(1, 5, groups)
    f = rng.integers(0, 12, (workers, q.sum())).astype(float)
    if rising:
        f = np.sort(f, axis=1)
        f[f >= rng.integers(8, 20)] = inf  # a memory that is full
    return f, rng.integers(0, 8, (groups, workers)).astype(float), q


def others(values, j):
    return [value for k, value in enumerate(values) if k != j]


def shrunk(f, c, q, lo, hi, subsets, tol=0.0):
    """The box which no condition shrinks, and its arcs; None where a worker, or a group, has nothing left. Who gains
    `tol` or less stays."""
    groups, workers, total = range(len(q)), range(len(lo)), int(sum(q))
    lo, hi = list(lo), list(hi)
    while True:
        before = lo.copy(), hi.copy()
        for j in workers:  # loads add up
            lo[j] = max(lo[j], total - sum(others(hi, j)))
            hi[j] = min(hi[j], total - sum(others(lo, j)))
        if any(a > b for a, b in zip(lo, hi, strict=True)):
            return None
        here = [min(f[j][n - 1] for n in range(max(lo[j], 1), max(hi[j], 1) + 1)) for j in workers]
        after = [max(f[k][n - 1] for n in range(min(lo[k] + 1, total), min(hi[k] + 1, total) + 1)) for k in workers]
        reach = [
            [min(others([a + x for a, x in zip(after, c[g], strict=True)], j)) - c[g][j] for j in workers]
            for g in groups
        ]
        arc = [[hi[j] > 0 and here[j] <= reach[g][j] + tol for j in workers] for g in groups]
        if not all(map(any, arc)):
            return None
        for j in workers:  # whoever sits at the fullest or emptiest of the loads is content
            mine = [g for g in groups if arc[g][j]]
            hi[j] = min(hi[j], sum(q[g] for g in mine))
            most = max((reach[g][j] for g in mine), default=-inf)
            content = lambda n, j=j, most=most: f[j][n - 1] <= most + tol
            while hi[j] >= max(lo[j], 1) and not content(hi[j]):
                hi[j] -= 1
            while 1 <= lo[j] <= hi[j] and not content(lo[j]):
                lo[j] += 1
        if any(a > b for a, b in zip(lo, hi, strict=True)):
            return None
        for k in workers:  # whoever surely sits elsewhere would rather not come
            tempted = [
                min(here[j] + c[g][j] - c[g][k] for g in groups if arc[g][j]) for j in workers if j != k and lo[j] >= 1
            ]
            for g in groups:
                if not arc[g][k] or q[g] > hi[k]:
                    tempted.append(
                        min([here[j] + c[g][j] for j in workers if arc[g][j] and j != k], default=inf) - c[g][k]
                    )
            stays = lambda n, k=k, tempted=tempted: n >= total or all(f[k][n] >= least - tol for least in tempted)
            while lo[k] <= hi[k] and not stays(lo[k]):
                lo[k] += 1
            while hi[k] >= lo[k] and not stays(hi[k]):
                hi[k] -= 1
        if any(a > b for a, b in zip(lo, hi, strict=True)):
            return None
        if subsets:  # those who can go nowhere else fit, and those who alone can come fill
            for some in chain.from_iterable(combinations(groups, n) for n in range(1, len(q) + 1)):
                need = sum(q[g] for g in some)
                inner = [j for j in workers if any(arc[g][j] for g in some)]
                outer = [j for j in workers if not any(arc[g][j] for g in groups if g not in some)]
                if need > sum(hi[j] for j in inner) or need < sum(lo[j] for j in outer):
                    return None
                for j in inner:
                    lo[j] = max(lo[j], need - sum(hi[k] for k in inner if k != j))
                for j in outer:
                    hi[j] = min(hi[j], need - sum(lo[k] for k in outer if k != j))
        if (lo, hi) == before:
            return lo, hi, arc, here, reach


def cut(f, c, q, lo, hi, rising, subsets, by_group, tol=0.0):
    """The shipped box, with the same answer."""
    lo, hi = np.array(lo), np.array(hi)
    arc, reach = np.zeros(c.shape, np.bool_), np.zeros(c.shape)
    here, after = np.zeros(len(lo)), np.zeros(len(lo))
    asked = f, c, q, lo, hi, rising, tol, subsets, by_group, arc, here, after, reach
    return (lo.tolist(), hi.tolist(), arc, here, reach) if interpreted(tighten.tighten)(*asked) else None


@pytest.mark.parametrize("subsets", [False, True])
@pytest.mark.parametrize("rising", [True, False])
def test_a_box_is_cut_to_what_no_condition_shrinks(rising, subsets):
    kept = 0
    for seed in range(80):
        f, c, q = drawn(seed, rising)
        rng = np.random.default_rng([seed, 1])
        lo = rng.integers(0, 2, len(f)) * (rng.random() < 0.5)
        hi = np.minimum(lo + rng.integers(0, 7, len(f)), q.sum())
        tol = (0.0, 1.0)[seed % 2]
        wanted = shrunk(f.tolist(), c.tolist(), q.tolist(), lo.tolist(), hi.tolist(), subsets, tol)
        for by_group in (False, True):
            told = cut(f, c, q, lo, hi, rising, subsets, by_group, tol)
            assert (told is None) == (wanted is None)
            if told:
                assert told[:2] == wanted[:2] and (told[2] == wanted[2]).all()
                assert told[3].tolist() == wanted[3] and told[4].tolist() == wanted[4]
        kept += wanted is not None
    assert 15 < kept < 75


def test_of_workers_that_are_alike_the_first_is_the_fullest():
    """The box that holds every vector in it whose loads do not rise from a worker to the next of its kind."""
    empty = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        kind = rng.integers(0, 2, 5)
        f, c = np.ones((5, 3)) * kind[:, None], np.zeros((2, 5))
        lo = rng.integers(0, 3, 5)
        hi = lo + rng.integers(0, 3, 5)
        every = np.array(list(product(*map(range, lo, hi + 1))))
        falls = [(every[:, i] >= every[:, j]) | (kind[i] != kind[j]) for j in range(5) for i in range(j)]
        every = every[np.logical_and.reduce(falls)]
        some = interpreted(boxes._in_order)(interpreted(boxes._twins)(f, c), lo, hi)
        assert some == (len(every) > 0)
        if some:
            assert (lo.tolist(), hi.tolist()) == (every.min(0).tolist(), every.max(0).tolist())
        empty += not some
    assert 5 < empty < 55


def test_a_rising_game_begins_with_the_loads_that_somebody_may_want():
    """The requests and one more in the cheapest places: nobody pays more than the dearest, and a difference of private
    costs."""
    small = 0
    for seed in range(60):
        f, c, q = drawn(seed, rising=True)
        total = int(q.sum())
        level = max(0.0, sorted(f.ravel())[total])
        most = []
        for j in range(len(f)):
            spread = max(0.0, *(c[g, k] - c[g, j] for g in range(len(q)) for k in range(len(f))))
            most.append(sum(x <= level + spread and x < inf for x in f[j]))
        enough = sum(most) >= total
        told = interpreted(tighten.largest_loads)(f, c, total, True).tolist()
        assert told == (most if enough else [total] * len(f))
        assert interpreted(tighten.largest_loads)(f, c, total, False).tolist() == [total] * len(f)
        lo, hi, *_ = interpreted(tighten.root_box)(f, c, q, True, 0.0)
        wanted = shrunk(f.tolist(), c.tolist(), q.tolist(), [0] * len(f), told, True)
        assert wanted is None or (lo.tolist(), hi.tolist()) == wanted[:2]
        small += enough and min(most) < total
    assert small > 20


@pytest.mark.parametrize("rising", [True, False])
def test_what_equilibria_of_a_box_can_cost(rising):
    """Of every request by itself, and of the loads with their sum; chords lie above a convex curve."""
    checked = 0
    for seed in range(90):
        f, c, q = drawn(seed, rising)
        n, total = len(f), int(q.sum())
        box = cut(f, c, q, [0] * n, [total] * n, rising, True, True)
        if box is None:
            continue
        lo, hi, arc, here, reach = box
        groups = range(len(q))
        ways = [[j for j in range(n) if arc[g, j]] for g in groups]
        dear = [max(f[j, max(lo[j], 1) - 1 : hi[j]], default=0.0) for j in range(n)]
        low = sum(q[g] * min(here[j] + c[g, j] for j in ways[g]) for g in groups)
        high = sum(q[g] * max(min(dear[j], reach[g, j]) + c[g, j] for j in ways[g]) for g in groups)
        cost = lambda j, m, f=f: m * f[j, m - 1] if m else 0.0
        curves = [[cost(j, m) for m in range(total + 1)] for j in range(n)]
        convex = all((np.diff(curve, 2) >= 0).all() for curve in curves if inf not in curve)
        if all(f[j, hi[j] - 1] < inf for j in range(n) if hi[j]):
            loads = [m for m in product(*(range(a, b + 1) for a, b in zip(lo, hi, strict=True))) if sum(m) == total]
            chord = [(cost(j, hi[j]) - cost(j, lo[j])) / max(hi[j] - lo[j], 1) for j in range(n)]
            line = lambda j, m, lo=lo, chord=chord, cost=cost: cost(j, lo[j]) + chord[j] * (m - lo[j])
            above = (
                0.0
                if convex
                else sum(max(max(cost(j, m) - line(j, m) for m in range(lo[j], hi[j] + 1)), 0.0) for j in range(n))
            )
            most = max(sum(line(j, m) for j, m in enumerate(load)) for load in loads) + above
            least = sum(min(cost(j, m) for m in range(lo[j], hi[j] + 1)) for j in range(n))
            if convex:
                least = min(sum(cost(j, m) for j, m in enumerate(load)) for load in loads)
            low = max(low, least + sum(q[g] * min(c[g, j] for j in ways[g]) for g in groups))
            high = min(high, most + sum(q[g] * max(c[g, j] for j in ways[g]) for g in groups))
        asked = f, c, q, np.array(lo), np.array(hi), rising, convex, arc, here, reach
        assert interpreted(boxes.bounds)(*asked) == pytest.approx((low, high))
        checked += lo != hi
    assert checked > 12


def bounded(f, c, q, lo, hi):
    """What is said of a box in which every group may sit wherever there is room, and nobody wants to move."""
    f, c, lo, hi = (np.array(values) for values in (f, c, lo, hi))
    rising = bool((f[:, 1:] >= f[:, :-1]).all())
    loads = np.arange(1, f.shape[1] + 1)
    finite = f[hi > 0]
    convex = bool((np.diff(np.c_[np.zeros(len(finite)), loads * finite], 2) >= 0).all())
    here = np.array([min(row[max(a, 1) - 1 : max(b, 1)]) for row, a, b in zip(f, lo, hi, strict=True)])
    arc, reach = np.tile(hi > 0, (len(c), 1)), np.full(c.shape, inf)
    return [interpreted(boxes.bounds)(f, c, q, lo, hi, rising, told, arc, here, reach) for told in {False, convex}]


def costs_of_all(f, c, q, lo, hi):
    """Of every way to seat the requests one by one with loads in the box."""
    owner = [g for g, size in enumerate(q) for _ in range(size)]
    for seats in product(range(len(f)), repeat=len(owner)):
        loads = [seats.count(j) for j in range(len(f))]
        if all(a <= n <= b for a, n, b in zip(lo, loads, hi, strict=True)):
            private = sum(c[g][j] for g, j in zip(owner, seats, strict=True))
            yield private + sum(n * f[j][n - 1] for j, n in enumerate(loads) if n)


def test_no_placement_of_a_box_is_outside_its_bounds_and_simple_ones_reach_them():
    """Latencies with peaks, in units small and large. With the same private costs everywhere the highest cost is one
    of a placement where loads have two values each or everyone costs the same at any load; a single load vector has one
    cost. A worker that holds nobody changes nothing, however slow it is said to be."""
    rng, wide = np.random.default_rng(3), 0
    for k in range(240):
        workers, q = int(rng.integers(1, 4)), rng.integers(1, 3, int(rng.integers(1, 3)))
        total, kind = int(q.sum()), ("any", "width one", "same at any load", "one load vector")[k % 4]
        at = rng.multinomial(total, np.ones(workers) / workers)  # the box is around it
        lo, hi = np.maximum(at - rng.integers(0, 3, workers), 0), np.minimum(at + rng.integers(0, 3, workers), total)
        f = rng.integers(0, 9, (workers, total)) * (1.0 / 16, 1.0, 4.0)[k % 3]
        if kind == "width one":
            lo = np.maximum(at - rng.integers(0, 2, workers), 0)
            hi = np.minimum(lo + 1, total)
        elif kind == "same at any load":
            f = np.repeat(f[:, :1], total, axis=1)
        elif kind == "one load vector":
            lo = hi = at
        c = np.tile(rng.integers(0, 4, len(q))[:, None], workers).astype(float)
        if kind == "any":
            c = rng.integers(0, 4, c.shape).astype(float)
        every = list(costs_of_all(f.tolist(), c.tolist(), q.tolist(), lo.tolist(), hi.tolist()))
        said = bounded(f, c, q, lo, hi)
        for low, high in said:
            assert low <= min(every) + 1e-9 and high >= max(every) - 1e-9
            assert kind == "any" or high == pytest.approx(max(every))
            assert kind != "one load vector" or low == pytest.approx(min(every))
        idle = np.vstack([f, np.full(total, inf)]), np.c_[c, np.zeros(len(q))], q, np.r_[lo, 0], np.r_[hi, 0]
        assert bounded(*idle) == said
        wide += min(every) < max(every)
    assert wide > 50


@pytest.mark.parametrize(
    "f, q, lo, hi, ends",
    [
        ([[3.0]], [1], [1], [1], (3.0, 3.0)),  # one request, one worker
        ([[3.0], [5.0]], [1], [0, 0], [1, 1], (3.0, 5.0)),  # one request, two workers
        ([[0.0, 0.0], [0.0, 0.0]], [2], [0, 0], [2, 2], (0.0, 0.0)),  # nothing costs anything
        ([[2.0, 2.0], [2.0, 2.0]], [2], [0, 0], [2, 2], (4.0, 4.0)),  # all places are alike
        ([[1.0, 9.0], [1.0, 9.0]], [1, 1], [0, 0], [2, 2], (2.0, 18.0)),  # apart, or together
    ],
)
def test_the_smallest_boxes_cost_what_their_placements_do(f, q, lo, hi, ends):
    private = np.zeros((len(q), len(f)))
    every = list(costs_of_all(f, private.tolist(), q, lo, hi))
    assert (min(every), max(every)) == ends
    assert all(said == ends for said in bounded(f, private, q, lo, hi))


def equilibria(f, c, q):
    """(flow, cost) of every pure equilibrium, by trying every way to split the groups."""
    workers = range(len(f))
    ways = [[w for w in product(range(size + 1), repeat=len(f)) if sum(w) == size] for size in q.tolist()]
    for x in map(np.array, product(*ways)):
        n = x.sum(0)
        pays = lambda g, j, n=n: f[j, n[j] - 1] + c[g, j]
        if all(
            pays(g, j) <= f[k, n[k]] + c[g, k]
            for g, j in np.argwhere(x).tolist()
            for k in workers
            if k != j and n[k] < f.shape[1]
        ):
            yield x, float(sum(x[g, j] * pays(g, j) for g, j in np.argwhere(x).tolist()))


def searched(f, c, q, best, worst, anchor, most, tol=0.0):
    rising = bool((f[:, 1:] >= f[:, :-1]).all())
    convex = bool((np.diff(np.c_[np.zeros(len(f)), f * np.arange(1, f.shape[1] + 1)], 2) >= 0).all())
    return interpreted(boxes.enumerate_nash)(f, c, q, rising, convex, tol, best, worst, anchor, most)


@pytest.mark.parametrize("kind", ["any", "rising", "alike"])
def test_a_search_finds_all_equilibria_and_one_that_is_cut_short_leaves_none_out(kind):
    """From two equilibria that are known; on as few boxes as are allowed, it says what those not looked at may cost."""
    cut, improved, most_boxes = 0, 0, 0
    for seed in range(24):
        rng = np.random.default_rng([seed, len(kind)])
        workers, q = int(rng.integers(2, 4)), rng.integers(1, 4, int(rng.integers(1, 4)))
        f = rng.integers(0, 9, (workers, q.sum())).astype(float)
        c = rng.integers(0, 6, (len(q), workers)).astype(float)
        if kind != "any":
            f = np.sort(f, axis=1)
        if kind == "alike":  # two workers in both, or only in their latencies, or only when nobody is there
            f[-1] = f[0] if seed % 3 != 1 else f[0, 0]
            c[:, -1] = c[:, 0] if seed % 3 != 2 else c[:, -1]
        found = list(equilibria(f, c, q))
        costs = [cost for _, cost in found]
        least, dearest = min(costs), max(costs)
        x, known = found[int(rng.integers(len(found)))]
        whole = searched(f, c, q, known, known, x, 10**6)
        assert (whole.best, whole.worst, whole.floor, whole.ceiling) == (least, dearest, least, dearest)
        for flow, cost in ((whole.best_flow, least), (whole.worst_flow, dearest)):
            if cost == known:
                assert (flow == -1).all()  # there is no better one than that which is known
            else:
                assert any((flow == y).all() and cost == paid for y, paid in found)
                improved += 1
        for most in (1, 2, 3, 6):
            told = searched(f, c, q, known, known, x, most)
            assert told.floor <= least <= told.best <= known <= told.worst <= dearest <= told.ceiling
            assert {told.best, told.worst} <= {*costs} and told.boxes <= min(2 * most - 1, whole.boxes)
            closed = told.floor == told.best and told.ceiling == told.worst
            assert closed or told.boxes >= most
            cut += not closed
            most_boxes += told.boxes == 2 * most - 1
    assert cut > 5 and improved > 5 and most_boxes > 5


@pytest.mark.parametrize("each", [0.0, 3.0])
def test_where_everybody_pays_the_same_anywhere_one_look_is_enough(each):
    for workers in (1, 3):
        alike = np.full((workers, 4), each), np.zeros((2, workers)), np.array([3, 1])
        x = np.zeros((2, workers), int)
        x[:, 0] = alike[2]
        found = searched(*alike, 4 * each, 4 * each, x, 100)
        assert found[:4] == (4 * each,) * 4 and found.boxes == 1


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_search_has_room_for_all_halves_of_halves(workers):
    """Nothing is known and everything is at rest: halves are put by until nothing is left to be halved."""
    total = 300
    flat = np.ones((workers, total)), np.zeros((1, workers)), np.array([total])
    found = searched(*flat, inf, -inf, np.array([[total, *[0] * (workers - 1)]]), 10**6)
    assert found[:4] == (total,) * 4 and (found.boxes > 8) == (workers > 1)


def hull(values: list[float], n: int) -> float:
    """The least concave curve above values, at n: the highest chord over it."""
    chords = [values[n]]
    for a in range(n):
        for b in range(n + 1, len(values)):
            chords.append(values[a] + (values[b] - values[a]) * (n - a) / (b - a))
    return max(chords)


@pytest.mark.parametrize("s", [1.0, 1.2, 3.0])
def test_what_nobody_gains_by_going_to_a_known_place_bounds(s):
    """Every request pays at most what its place in a placement would cost a newcomer, and no more than its group pays
    anywhere; the worst loads of a box by trying all."""
    checked = 0
    for seed in range(30):
        f, c, q = drawn(seed, rising=False)
        f, c = (costs / (1.0, 16.0)[seed % 2] for costs in (f, c))  # in a unit of which none is a whole one
        n, total = len(f), int(q.sum())
        box = cut(f, c, q, [0] * n, [total] * n, False, True, True)
        if box is None:
            continue
        lo, hi, arc, _, reach = box
        rng = np.random.default_rng(seed)
        place = np.array([rng.multinomial(size, np.ones(n) / n) for size in q])
        most, private = interpreted(smooth.cost_ceilings)(f, c, q, np.array(lo), np.array(hi), arc, reach)
        dear = [max(f[j, max(lo[j], 1) - 1 : hi[j]], default=0.0) for j in range(n)]
        for g in range(len(q)):
            ways = [j for j in range(n) if arc[g, j]]
            assert most[g] == max(min(dear[j], reach[g, j]) + c[g, j] for j in ways)
            private -= q[g] * min(c[g, j] for j in ways)
        assert private == pytest.approx(0.0)
        private = float(rng.integers(0, 5))

        def term(j, m, f=f, c=c, most=most, place=place, total=total):
            here = f[j, m - 1] if m else 0.0
            late = max(here, f[j, min(m, total - 1)])
            paid = sum(place[g, j] * min(late + c[g, j], most[g]) for g in range(len(most)) if place[g, j])
            return s * paid - (s - 1) * m * here

        curves = [[term(j, m) for m in range(lo[j], hi[j] + 1)] for j in range(n)]
        loads = [
            m for m in product(*(range(b - a + 1) for a, b in zip(lo, hi, strict=True))) if sum(m) + sum(lo) == total
        ]
        worst = max(sum(hull(curve, m) for curve, m in zip(curves, load, strict=True)) for load in loads)
        told = interpreted(smooth.smooth_ceiling)(f, c, place, (np.array(lo), np.array(hi)), (most, private), s)
        assert told == pytest.approx(worst - (s - 1) * private)
        checked += lo != hi
    assert checked > 4


def test_a_search_of_one_look_says_what_its_box_does():
    """From an equilibrium that is known: what each request and the loads may cost, and what nobody gains by a placement
    allows, once for all requests together and once with a sixth of what they pay; and rounding for each of them."""
    by_sixth, tol = 0, 0.25
    for seed in (*range(12), 140, 289, 360):
        rng = np.random.default_rng(seed)
        workers, q = int(rng.integers(2, 4)), rng.integers(1, 5, int(rng.integers(1, 4)))
        total = int(q.sum())
        f = np.sort(rng.integers(0, 12, (workers, total)).astype(float), axis=1)
        c = rng.integers(0, 8, (len(q), workers)).astype(float)
        largest = interpreted(tighten.largest_loads)(f, c, total, True)
        box = cut(f, c, q, [0] * workers, largest, True, True, True)
        x = interpreted(kernels.greedy)(f, c, q)
        interpreted(kernels.respond)(f, c, x, 0.0, 40)
        known = interpreted(kernels.social_cost)(f, c, x)
        lo, hi, arc, here, reach = map(np.array, box)
        convex = bool((np.diff(np.c_[np.zeros(workers), f * np.arange(1, total + 1)], 2) >= 0).all())
        low, high = interpreted(boxes.bounds)(f, c, q, lo, hi, True, convex, arc, here, reach)
        paid = interpreted(smooth.cost_ceilings)(f, c, q, lo, hi, arc, reach)
        one, sixth = (interpreted(smooth.smooth_ceiling)(f, c, x, (lo, hi), paid, s) + total * tol for s in (1.0, 1.2))
        told = searched(f, c, q, known, known, x, 1, tol)
        if box[0] == box[1] or (low >= known - tol and high <= known + tol):
            assert (told.floor, told.ceiling) == pytest.approx((known, known))
        else:
            assert (told.floor, told.ceiling) == pytest.approx((min(low, known), max(min(high, one, sixth), known)))
            by_sixth += known < sixth < min(one, high) - 1e-6
        assert told.boxes == 1
    assert by_sixth > 1


@pytest.mark.parametrize(
    ("requests", "power", "s"),
    [(8, 1, 1.0), (6, 1.2, 1.1), (8, 1.5, 1.25), (8, 2, 1.5), (8, 3, 2.0), (10, 4, 3.0), (12, 6, 5.0), (24, 14, 10.0)],
)
def test_what_coarse_equilibria_of_two_alike_workers_cost_at_most(requests, power, s):
    """f = n^power, half of the requests on each in the optimum: by that s of those that are tried which says least."""
    pays = [float(n) ** power for n in range(requests + 1)]
    late = [pays[min(n + 1, requests)] for n in range(requests + 1)]
    curve = [s * requests / 2 * late[n] - (s - 1) * n * pays[n] for n in range(requests + 1)]
    worst = max(hull(curve, n) + hull(curve, requests - n) for n in range(requests + 1))
    told = coarse_ceiling_s(RoutingGame([pays[1:]] * 2, np.ones((1, 2)), 0.0, [requests]))
    assert float(told) == pytest.approx(worst)


def programmed(f, c, q, lo, hi, arc, reach, most):
    """(floor, ceiling) by a programme put together unknown by unknown: p(j, k) and y(g, j, k)."""
    groups, workers = range(len(q)), range(len(f))
    paid = lambda j, k: f[j, k - 1] if k else 0.0
    p = {(j, k): i for i, (j, k) in enumerate((j, k) for j in workers for k in range(lo[j], hi[j] + 1))}
    some = [(g, j, k) for g in groups for j, k in p if arc[g, j] and k and paid(j, k) <= reach[g, j]]
    y = {one: len(p) + i for i, one in enumerate(some)}
    size, equal, right, above = len(p) + len(y), [], [], []

    def row(entries, to=None):
        line = np.zeros(size)
        for at, value in entries:
            line[at] += value
        (above if to is None else equal).append(line)
        if to is not None:
            right.append(to)

    for j in workers:
        row([(i, 1.0) for (w, _), i in p.items() if w == j], 1.0)
    for (j, k), i in p.items():
        row([(i, -k)] + [(at, 1.0) for (_, w, load), at in y.items() if (w, load) == (j, k)], 0.0)
    for (g, j, k), at in y.items():
        row([(at, 1.0), (p[j, k], -min(q[g], k))])
    for g in groups:
        row([(at, 1.0) for (h, _, _), at in y.items() if h == g], q[g])
        for t in workers:  # nobody gains by going to t
            line = [(at, paid(j, k) + c[g, j]) for (h, j, k), at in y.items() if h == g]
            for k in range(lo[t], hi[t] + 1):
                late = min(paid(t, min(k + 1, int(sum(q)))) + c[g, t], most[g])
                line.append((p[t, k], -q[g] * late))
                if (g, t, k) in y:
                    line += [(y[g, t, k], late), (y[g, t, k], -paid(t, k) - c[g, t])]
            row(line)
    pay = np.zeros(size)
    for (g, j, k), at in y.items():
        pay[at] = paid(j, k) + c[g, j]
    solved = [linprog(sense * pay, np.array(above), np.zeros(len(above)), np.array(equal), right) for sense in (1, -1)]
    return [sense * of.fun if of.status == 0 else -sense * inf for sense, of in zip((1, -1), solved, strict=True)]


@pytest.mark.parametrize("coarse", [False, True])
def test_the_programme_of_equilibria_unknown_by_unknown(coarse):
    checked = 0
    for seed in range(9):
        f, c, q = drawn(seed, rising=False)
        n, total = len(f), int(q.sum())
        if len(np.unique(c, axis=0)) < len(c):
            continue  # alike groups become one
        box = [0] * n, [total] * n, np.ones(c.shape, bool), np.full(c.shape, inf)
        most = np.full(len(q), inf)
        if not coarse:
            found = cut(f, c, q, *box[:2], False, True, True)
            if found is None:
                continue
            box = (*found[:3], found[4])
            most = interpreted(smooth.cost_ceilings)(f, c, q, *map(np.array, box))[0]
        told = program.solve_program(program.programme(f, c, q, coarse)).value
        assert [told["floor_s"], told["ceiling_s"]] == pytest.approx(programmed(f, c, q, *box, most), abs=1e-6)
        checked += 1
    assert checked > 3
