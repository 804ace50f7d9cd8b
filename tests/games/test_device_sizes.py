"""What the games' device programs are said to take: work by counting on fingers, room for what they hold, and how many
profiles are few enough; and what loops are said to take, by which they are shared by threads."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.games.anarchy import (
    IndexCost,
    RequestLog,
    enumeration,
    index_device,
    poa_index,
    price_of_anarchy,
    smooth,
    smoothness,
    windows,
)
from dmodels.games.resource import solve as split
from dmodels.games.routing import (
    RoutingGame,
    batches,
    best_response,
    chain,
    closed_loop,
    equilibria,
    logit_equilibria,
    policies,
    policy_flows,
    programs,
)
from dmodels.solvers.transportation.device import placement_work


def test_work_of_one_game_counted_on_fingers():
    """Ten requests of one group on two workers: ten arrivals and nine moves; 1,025 profiles fill two blocks."""
    moves = programs.response_work(1, 2, 10, 10)
    assert moves.device_bytes == 8 * 2 * (10 + 1) + 19 * 2 * 80  # the game once, and 2 x 5 numbers in and out
    assert (moves.flop64, moves.launches) == (19 * 32, 95)
    one, two = (programs.profile_work(2, 3, 5, profiles) for profiles in (1024, 1025))
    assert (one.device_bytes, two.device_bytes) == (168 + 3 * 16_384, 168 + 6 * 16_384)
    assert (one.flop64, two.flop64) == (73_728, 147_456) and (one.launches, two.launches) == (10, 20)
    least, more = programs.logit_work(1, 1, 1), programs.logit_work(2, 3, 4)
    assert (least.device_bytes, least.flop64, least.launches) == (4_400, 6_820, 2_200)
    assert (more.device_bytes, more.flop64, more.launches) == (337_920, 359_040, 2_200)
    placed, window = placement_work(10, 2, 3.0), index_device.window_work(10, 2, 3.0)
    assert window.device_bytes - placed.device_bytes == 4 * 160 + 120  # costs four times, and 12 bytes of each request
    assert window[1:] == placed._replace(registers=72)[1:]
    assert [work.registers for work in (moves, one, least)] == [32, 128, 40]  # of the widest kernels as compiled
    few, more = (split.equilibrium_work(games) for games in (2**18, 2**18 + 1))
    assert few.device_bytes == 5_760 and few.flop64 == 1_200  # thirty steps: 12 numbers in and out, 40 operations
    assert (few.launches, few.registers) == (300, 80) and more == few._replace(launches=600)


class Asked(Exception):
    """A program, or a loop, that is about to run."""


def asked(monkeypatch, module, call):
    """(bytes that a problem is said to take, bytes of it that are sent, the program)."""

    def stop(program, arrays, problem_bytes, shared=()):
        raise Asked(problem_bytes, sum(array.nbytes for array in arrays) / len(arrays[0]), program)

    monkeypatch.setattr(module, "in_chunks", stop)
    with pytest.raises(Asked) as seen:
        call()
    return seen.value.args


@pytest.mark.parametrize(("groups", "m", "each"), [(1, 1, 1), (1, 9, 1), (2, 3, 4), (3, 2, 9), (1, 2, 40)])
def test_chunks_have_room_for_what_games_hold(groups, m, each, monkeypatch):
    """At least once, and at most a few times over, also where one number is much larger than the others."""
    loads = groups * each
    game = RoutingGame(np.ones((2, m, loads)), np.zeros((2, groups, m)), 1.0, [each] * groups)
    moves, sent, _ = asked(monkeypatch, batches, lambda: best_response(game, backend="device"))
    assert sent == 8 * (m * loads + groups * m + groups)
    held = 8 * (2 * m * loads + groups * m * (m + 2))  # a flow, and every move's cost
    assert held < moves < 3 * held
    started, *_ = asked(monkeypatch, batches, lambda: best_response(game, np.zeros(loads, int), backend="device"))
    assert started == moves
    laws = 8 * groups * m * loads * (groups + loads)
    mixed, *_ = asked(monkeypatch, batches, lambda: logit_equilibria(game, 1.0))
    assert laws < mixed - moves < 3 * laws
    flows = 8 * 1024 * groups * m  # of a block of profiles
    listed, *_ = asked(monkeypatch, enumeration, lambda: enumeration.enumerated(game.arrays()))
    assert flows + moves < listed < 5 * flows + moves


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 60), (50, 3)])
def test_chunks_have_room_for_windows(n, m, monkeypatch):
    """Costs and steps of loads beside what is sent; paths between workers. As much where a log is cut on the device."""
    late, where, held = np.ones((2, n)), np.zeros((2, n), int), np.zeros((2, n, m))
    window, sent, _ = asked(monkeypatch, index_device, lambda: poa_index(late, where, held, backend="device"))
    assert sent == 12 * n + 8 * n * m
    least = sent + 8 * (2 * n * m + m * m)
    assert 2.5 * least < window < 4 * least  # some times over, in either precision
    columns = np.ones(2 * n), np.ones(2 * n), np.ones(2 * n), np.ones(2 * n), np.zeros(2 * n, int), np.zeros((2 * n, m))
    log = RequestLog(("",) * 2 * n, *columns, ("w",) * m, 2 * n)
    cut, *_ = asked(monkeypatch, index_device, lambda: windows(log, n, n, IndexCost(), backend="device"))
    assert cut == window


def test_as_many_profiles_as_are_said_to_be_accepted(monkeypatch):
    """2^24 where a device is asked for, 2^16 where it is left to dmodels: groups of s requests on two workers have
    s + 1 ways each, and on three (s + 1)(s + 2) / 2."""
    game = lambda m, *counts: RoutingGame(np.ones((m, sum(counts))), np.zeros((len(counts), m)), 1.0, counts)
    enumerates = lambda of, backend: enumeration.enumerates(of.arrays(), backend)
    assert enumerates(game(2, 4095, 4095), "device") and not enumerates(game(2, 1), "cpu")
    with pytest.raises(InputError, match=r"16781312 profiles in a game; .* are at most 16777216"):
        enumerates(game(2, 4095, 4096), "device")
    monkeypatch.setattr(enumeration, "takes_device", lambda backend, batch: True)
    assert enumerates(game(2, 255, 255), "auto") and not enumerates(game(2, 256, 256), "auto")
    assert enumerates(game(3, 360), "auto") and not enumerates(game(3, 361), "auto")  # 65,341 and 65,703
    few, many = ([1, 1], [5, 4])
    both = RoutingGame(np.ones((2, 3, 9)), np.zeros((2, 2, 3)), 1.0, [few, many])
    assert enumeration.profiles_count(both.arrays().counts, 3) == 21 * 15


def test_rounding_of_what_a_request_pays():
    """16 units in the last place of the dearest miss and of the latency where all are spread evenly, on host and
    device: they wait 2, 4, 6 and 7 s as they come, and no fifth has room."""
    unit = 2.0**-48
    f = np.array([[2.0, 6.0, np.inf, np.inf, np.inf], [4.0, 7.0, np.inf, np.inf, np.inf]])
    for c, total, pays in (
        ([[0.0, 0.0]], 1, 2.0),
        ([[0.0, -3.0]], 2, 7.0),
        ([[1.0, 0.5], [0.0, 8.0]], 4, 15.0),
        ([[0.0, 0.0]], 5, 7.0),
    ):
        c = np.array(c)
        assert equilibria.tolerance(f[:, :total], c, total) == pays * unit
    on_device = jax.jit(programs.tolerance)
    for total, pays in ((1, 10.0), (2, 12.0), (3, 14.0), (4, 15.0), (5, 15.0)):
        assert float(on_device(f, np.array([[1.0, 0.5], [0.0, -8.0]]), total)) == pays * unit


def test_a_search_that_may_look_at_as_much_as_it_likes(monkeypatch):
    """What is not said is 200,000 boxes, the cost of a miss in full, and whatever runs fastest here."""
    told = []
    searched = equilibria.search
    spy = lambda a, max_boxes: (told.append(max_boxes), searched(a, max_boxes))[1]
    monkeypatch.setattr(equilibria, "search", spy)
    monkeypatch.setattr("dmodels.games.anarchy.price.search", spy)
    game = RoutingGame(np.ones((1, 1)), np.zeros((1, 1)), 1.0)
    equilibria.nash_range(game)
    found = price_of_anarchy(game)
    assert told == [200_000] * 2 and float(found.worst_s) == 2.0 and not found.flags


def test_programs_of_what_is_not_said(monkeypatch):
    """The same function for the same settings, so that what is left out is what it is here."""
    game, late, where, held = (
        RoutingGame(np.ones((2, 1, 1)), np.zeros((2, 1, 1))),
        np.ones((2, 1)),
        np.zeros((2, 1), int),
        np.zeros((2, 1, 1)),
    )
    program = lambda module, call: asked(monkeypatch, module, call)[2]
    for module, short, long in (
        (batches, lambda: logit_equilibria(game, 1.0), lambda: logit_equilibria(game, 1.0, 1e-10, 20_000, 0.2)),
        (
            batches,
            lambda: best_response(game, backend="device"),
            lambda: best_response(game, None, 1_000_000, backend="device"),
        ),
        (
            index_device,
            lambda: poa_index(late, where, held, backend="device"),
            lambda: poa_index(late, where, held, None, False, backend="device"),
        ),
    ):
        assert program(module, short) is program(module, long)


#: Seconds of a loop of k games, cells or runs, of n requests or steps, on m workers; of one of each, at least and most.
LOOPS = {
    "clients": (chain, lambda k, n, m: closed_loop(np.zeros((1, m)), 2, 0.0, np.ones(k), RNG(0), steps=n), 1e-9, 1e-6),
    "policies": (policies, lambda k, n, m: policy_flows(alike((), n, m), "dynamo", RNG(0), k, tau=1.0), 1e-8, 1e-6),
    "equilibria": (equilibria, lambda k, n, m: equilibria.nash_range(alike((k,), n, m)), 1e-6, 1e-3),
    "play": (equilibria, lambda k, n, m: best_response(alike((k,), n, m), backend="cpu"), 1e-6, 1e-3),
    "smooth": (smooth, lambda k, n, m: smoothness(alike((k,), n, m)), 1e-9, 1e-6),
}
RNG = np.random.default_rng


def alike(batch, n, m):
    return RoutingGame(np.ones((*batch, m, n)), np.zeros((n, m)), 1.0)


@pytest.mark.parametrize(
    ("of", "steps", "workers"),
    [("clients", 2, 1), ("policies", 2, 1.13), ("equilibria", 1, 1), ("play", 1, 1), ("smooth", 4, 2)],
)
def test_what_loops_are_said_to_take(of, steps, workers, monkeypatch):
    """Twice as long for twice as many, and so for what a step looks at."""
    module, call, least, most = LOOPS[of]

    def stop(loop, count, work_s):
        raise Asked(count, work_s)

    def told(*asked):
        with pytest.raises(Asked) as seen:
            call(*asked)
        return seen.value.args

    monkeypatch.setattr(module, "share", stop)
    (count, one), (double, more), (_, longer), (_, wider) = told(3, 1, 1), told(6, 1, 1), told(3, 2, 1), told(3, 1, 2)
    assert (count, double) == (3, 6) and least < one / 3 < most
    assert (more / one, longer / one) == pytest.approx((2, steps)) and wider / one == pytest.approx(workers, rel=0.05)
