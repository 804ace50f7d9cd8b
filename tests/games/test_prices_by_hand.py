"""Every number of a price of anarchy in small games, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from dmodels.core.flags import Flag
from dmodels.games.anarchy import price as module
from dmodels.games.anarchy import price_of_anarchy
from dmodels.games.routing import NashRange, RoutingGame, best_response, nash_range, optima, optimum, worker_of_each


def check(p, **wanted):
    """All fields but the boxes, of one game."""
    told = {name: np.asarray(value).item() for name, value in p._asdict().items() if name != "boxes"}
    assert told == pytest.approx(wanted, nan_ok=True)


@pytest.mark.parametrize("paper_form", [False, True])
@pytest.mark.parametrize("branches", [0, 2000])
def test_three_requests_of_which_one_has_no_copy_on_the_second_worker(branches, paper_form, monkeypatch):
    """One on the first worker and two on the second pay 3 + 3 + 3, two and one 4 + 4 + 0; all on one of them more. It
    is 1 s more where the one without a copy sits on the second. Nobody gains by leaving 3 + 3 + 3, be it 9 or 10.
    The line below 0, 3, 8 and 12 is 7.5 at two requests, which is all that is known without a branch."""
    monkeypatch.setattr(optima, "BRANCHES", branches)
    monkeypatch.setattr(module, "smooth_prices", None)  # nothing is left to be bounded by theory
    game = RoutingGame([[3.0, 4.0, 4.0], [0.0, 3.0, 5.0]], [[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]], 1.0)
    hit = 3.0 * paper_form  # what three hits save
    worst, best, least, bound = 10.0 - hit, 9.0 - hit, 8.0 - hit, (8.0 if branches else 7.5) - hit
    check(
        price_of_anarchy(game, paper_form=paper_form),
        lower=worst / least,
        upper=worst / bound,
        certified=True,
        exact=branches > 0,
        stability_lower=best / least,
        stability_upper=best / bound,
        worst_s=worst,
        best_s=best,
        optimum_s=least,
        optimum_bound_s=bound,
        flags=int(Flag.OUT_OF_DOMAIN) * paper_form,
    )


@pytest.mark.parametrize("branches", [0, 2000])
def test_the_least_and_the_ends_of_the_equilibria_of_these_three(branches, monkeypatch):
    """What one of them gains by leaving 3 + 3 + 3 is -1 s or less at 9 in all; at 10 the one that misses gains 0."""
    monkeypatch.setattr(optima, "BRANCHES", branches)
    game = RoutingGame([[3.0, 4.0, 4.0], [0.0, 3.0, 5.0]], [[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]], 1.0)
    least, ends = optimum(game), nash_range(game)
    at = least.value.assignment.tolist()
    assert at[1] == 0 and sorted(at) == [0, 0, 1] and least.value.flow.tolist() == np.eye(2, dtype=int)[at].tolist()
    assert (least.value.cost_s, least.value.potential_s, least.steps) == (8.0, 3.0 + 4.0 + 0.0, 0)
    assert least.certificate["bound_s"] == pytest.approx(8.0 if branches else 7.5)
    assert least.certificate["gap_s"] == pytest.approx(0.0 if branches else 0.5, abs=1e-9)
    assert least.flags == (0 if branches else Flag.NOT_CONVERGED)
    assert [float(cost) for cost in ends.value[:4]] == [9.0, 10.0, 9.0, 10.0] and ends.flags == 0
    assert ends.value.best_flow.tolist() == [[0, 1], [1, 0], [0, 1]]
    assert ends.value.worst_flow.sum(0).tolist() == [1, 2] and ends.value.worst_flow[1].tolist() == [0, 1]
    assert ends.certificate["complete"] and ends.certificate["gain_s"] == 0.0 and ends.steps == 3
    again = best_response(game, worker_of_each(ends.value.worst_flow))
    assert (again.value.cost_s, again.value.potential_s, again.steps, again.flags) == (
        10.0,
        3.0 + 0.0 + 3.0 + 1.0,
        0,
        0,
    )
    assert again.certificate["gain_s"] == 0.0


ONE = dict.fromkeys(("lower", "upper", "stability_lower", "stability_upper"), 1.0)


def costs(*seconds):
    """Worst, best, optimum and its bound."""
    return dict(zip(("worst_s", "best_s", "optimum_s", "optimum_bound_s"), seconds, strict=True))


def test_what_rounding_decides_is_flagged_and_not_certified():
    """A latency of 1e-16 s beside a miss of 1 s."""
    game = RoutingGame(1e-16 * np.array([[1.0, 2.0], [1.0, 2.0]]), np.eye(2), 1.0)
    wanted = ONE | costs(*[2e-16] * 4) | {"certified": False, "exact": False, "flags": int(Flag.OUT_OF_DOMAIN)}
    check(price_of_anarchy(game), **wanted)


def test_without_room_there_is_no_price():
    """Three requests on two workers of one place."""
    none = dict.fromkeys(ONE, np.nan) | {"certified": False, "exact": False, "flags": int(Flag.OVERLOAD)}
    check(
        price_of_anarchy(RoutingGame([[1.0, np.inf, np.inf]] * 2, np.zeros((3, 2)), 0.0)), **none | costs(*[np.inf] * 4)
    )


CUT = ONE | {"certified": True, "exact": False, "flags": int(Flag.NOT_CONVERGED)}


def test_without_caches_a_short_search_is_held_to_what_parallel_workers_cost():
    """f(2) = 7 and f(1) = 3: 1 / (1 - (7 - 3) / (2 x 7)) = 7/5, and 16/13 on the other. One on each waits 5 + 3."""
    game = RoutingGame([[5.0, 8.0], [3.0, 7.0]], np.zeros((2, 2)), 0.0)
    check(price_of_anarchy(game, max_boxes=1), **CUT | costs(8.0, 8.0, 8.0, 8.0) | {"upper": 1.4})


def test_a_short_search_is_held_to_what_its_curves_allow(monkeypatch):
    """f = 4 up to four requests and then n, sixteen on four workers with copies here and there: 3/2. One has none and
    pays 2 s more than the 64 of all together."""
    monkeypatch.setattr(module, "UNKNOWNS", 0)
    held = (np.random.default_rng(0).random((16, 4)) < 0.4).astype(float)
    assert (held.max(1) == 0).sum() == 1
    game = RoutingGame(np.tile(np.maximum(np.arange(1.0, 17.0), 4.0), (4, 1)), held, 2.0)
    check(price_of_anarchy(game, max_boxes=2), **CUT | costs(66.0, 66.0, 66.0, 66.0) | {"upper": 1.5})


@pytest.mark.parametrize(("unknowns", "limit"), [(6_000, 10.0), (6_001, 20.0)])
def test_what_a_short_search_leaves_open_is_closed_by_a_programme_of_up_to_six_thousand_unknowns(
    unknowns, limit, monkeypatch
):
    """A search of the game above that found the dearer equilibrium alone, and bounds of 7 and 20 for what it did not
    look at. The cheaper one minimises the potential, 3 + 0 + 3; the programme knows both."""
    flow = np.array([[1, 1], [1, 0]])
    searched = lambda a, boxes: (NashRange(*map(np.array, (10.0, 10.0, 7.0, 20.0)), flow, flow), np.array(boxes))
    monkeypatch.setattr(module, "search", searched)
    monkeypatch.setattr(module, "unknowns_count", lambda *one: unknowns)
    game = RoutingGame([[3.0, 4.0, 4.0], [0.0, 3.0, 5.0]], [[1.0, 1.0], [1.0, 0.0]], 1.0, [2, 1])
    check(
        price_of_anarchy(game, max_boxes=2),
        lower=10 / 8,
        upper=limit / 8,
        certified=True,
        exact=limit == 10.0,
        stability_lower=9 / 8 if limit == 10.0 else 1.0,
        stability_upper=9 / 8,
        **costs(10.0, 9.0, 8.0, 8.0),
        flags=0 if limit == 10.0 else int(Flag.NOT_CONVERGED),
    )
    check(  # which the quickest search does not ask
        price_of_anarchy(game, max_boxes=1),
        lower=10 / 8,
        upper=20 / 8,
        certified=True,
        exact=False,
        stability_lower=1.0,
        stability_upper=10 / 8,
        **costs(10.0, 10.0, 8.0, 8.0),
        flags=int(Flag.NOT_CONVERGED),
    )


@pytest.mark.parametrize(
    ("f", "overlap", "limit"),
    [
        ([[1.0, 2.0, 3.0], [2.0, 2.0, 2.0]], 0.5, 5 / 2),  # lines
        ([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]], 1.0, 5 / 2),  # whose hits cost nothing
        ([[1.0, 2.0, 3.0 + 1e-14], [2.0, 2.0, 2.0]], 0.5, 5 / 2),  # but for rounding
        ([[1.0, 2.0, 3.0 + 1e-10], [2.0, 2.0, 2.0]], 0.5, np.inf),
        ([[3.0, 4.0, 5.0], [1.0, 3.0, 5.0]], 0.5, np.inf),  # which is below 0 at none
        ([[3.0, 4.0, 5.0], [1.0, 2.0 + 1e-10, 3.0 + 2e-10]], 0.5, np.inf),
        ([[3.0, 4.0, 5.0], [1.0, 2.0 + 1e-14, 3.0 + 2e-14]], 0.5, 5 / 2),
        ([[3.0, 4.0, 5.0], [3.0, 2.0, 1.0]], 0.5, np.inf),
        ([[3.0, 4.0, 5.0], [1.0, 2.0, np.inf]], 0.5, np.inf),
        ([[1.0, 2.0, 3.0], [2.0, 2.0, 2.0]], 1.5, np.inf),  # more than a whole prefix
        ([[1.0, 2.0, 3.0], [2.0, 2.0, 2.0]], None, 4 / 3),  # no misses: 1 x (2 - 1) of 2 x 2
        ([[1.0, 4.0, 4.0], [2.0, 2.0, 2.0]], None, 16 / 10),  # 1 x (4 - 1) of 2 x 4
        ([[1.0, 4.0, 4.0], [2.0, 2.0, 1.0]], None, np.inf),
    ],
)
@pytest.mark.parametrize("unit", [1.0, 2.0**-40, 2.0**40])
def test_what_theory_allows_where_a_search_said_nothing(f, overlap, limit, unit, monkeypatch):
    """All but the optimum may cost anything, as far as it has seen. Beside a game of which it has seen the whole."""
    omega = np.array([0.0, unit]) if overlap is None else unit
    held = np.zeros((3, 2)) if overlap is None else np.array([[overlap, 0.0], [0.0, 1.0], [overlap, overlap]])
    game = RoutingGame(unit * np.array(f), np.stack([held, 0 * held]), omega)
    seen, flow = optimum(game).value.cost_s, np.ones((2, 3, 2))
    searched = NashRange(seen, seen, seen, seen * [1e6, 1.0], flow, flow)
    monkeypatch.setattr(module, "search", lambda a, boxes: (searched, np.array([boxes, boxes])))
    assert price_of_anarchy(game, max_boxes=1).upper == pytest.approx([min(limit, 1e6), 1.0])
