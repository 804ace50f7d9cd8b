"""Price of anarchy, equilibria and the index by the device programs: the host's answers."""

from __future__ import annotations

import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.games.anarchy import IndexCost, RequestLog, poa_index, price_of_anarchy, windows
from dmodels.games.anarchy import index as index_module
from dmodels.games.anarchy.enumeration import enumerated
from dmodels.games.routing import (
    RoutingGame,
    best_response,
    gain_s,
    logit_equilibria,
    logit_equilibrium,
    optimum,
    social_cost_s,
)

CURVES = ("rising", "ties", "any", "poles", "flat")


def games(rng, curves: str, batch: int, counts, m: int) -> RoutingGame:
    """Random games; ties in curves and overlaps, curves that fall, poles that leave too little room for some games."""
    groups, total = len(counts), int(np.sum(counts))
    f = np.cumsum(rng.random((batch, m, total)), -1)
    overlap = rng.random((batch, groups, m))
    if curves == "ties":
        f, overlap = np.cumsum(rng.integers(0, 3, f.shape), -1).astype(float), rng.integers(0, 3, overlap.shape) / 2
    if curves == "any":
        f = rng.random(f.shape)
    if curves == "poles":
        f = np.where(np.arange(total) < rng.integers(1, total + 1, (batch, m, 1)), f, np.inf)
    if curves == "flat":
        f, overlap = np.ones(f.shape), np.zeros(overlap.shape)
    return RoutingGame(f, overlap, rng.integers(0, 3, batch).astype(float), counts)


def check_prices(game: RoutingGame):
    found, known = (price_of_anarchy(game, backend=b) for b in ("device", "cpu"))
    np.testing.assert_array_equal(found.flags, known.flags)
    assert (found.certified == known.certified).all() and known.exact[known.certified].all()
    for name in ("lower", "upper", "stability_lower", "stability_upper", "worst_s", "best_s", "optimum_s"):
        np.testing.assert_allclose(getattr(found, name), getattr(known, name), rtol=1e-11, err_msg=name)


@pytest.mark.parametrize("curves", CURVES)
def test_prices_by_every_profile_are_those_of_branch_and_prune(curves):
    check_prices(games(np.random.default_rng(1), curves, 64, [2, 3], 3))


def test_prices_of_games_whose_groups_differ_in_size():
    rng = np.random.default_rng(2)
    counts = np.array([[1, 3], [3, 3]])[rng.integers(0, 2, 40)]
    f = np.cumsum(rng.random((40, 2, 6)), -1)
    check_prices(RoutingGame(f, rng.random((40, 2, 2)), 1.0, counts))
    check_prices(RoutingGame(f[0], rng.random((2, 2)), 1.0, counts[0]))  # one game, no batch
    check_prices(RoutingGame(f[:, :1], rng.random((40, 2, 1)), 1.0, counts))  # one worker


@pytest.mark.slow
@pytest.mark.parametrize("curves", CURVES)
@pytest.mark.parametrize(("counts", "m"), [([2, 3], 3), ([1, 1, 1, 1], 3), ([12, 9], 2), ([4, 1, 2], 2)])
def test_prices_of_five_thousand_games_each(curves, counts, m):
    """20 settings: 10^5 games."""
    check_prices(games(np.random.default_rng(len(counts) + m), curves, 5_000, counts, m))


def test_pigous_pair():
    """f = n and f = 2, two requests: the worst equilibrium costs 4, the optimum 3."""
    game = RoutingGame([[1.0, 2.0], [2.0, 2.0]], np.zeros((2, 2)))
    pair, found = price_of_anarchy(game, backend="device"), enumerated(game.arrays())
    assert float(pair.worst_s) == 4 and float(pair.optimum_s) == 3 and bool(pair.exact) and pair.boxes == 4
    assert [float(cost) for cost in found.nash[:4]] == [3, 4, 3, 4] and float(found.optimum_s) == 3
    assert found.nash.worst_flow.sum(0).tolist() == [2, 0] and found.profiles == 4
    assert found.nash.best_flow.sum(0).tolist() == found.optimum_flows[0].sum(0).tolist() == [1, 1]


def test_too_many_profiles_are_refused():
    with pytest.raises(InputError, match="profiles in a game; accepted"):
        price_of_anarchy(RoutingGame(np.ones((5, 512)), np.zeros((4, 5)), 1.0, [128] * 4), backend="device")


LARGE = pytest.mark.slow


@pytest.mark.parametrize("count", [64, pytest.param(10_000, marks=LARGE)])
@pytest.mark.parametrize("curves", CURVES)
def test_best_responses_are_the_hosts_move_by_move(curves, count):
    """10^5 and more in the slow runs: five kinds of curves, two starts."""
    rng = np.random.default_rng(3)
    game = games(rng, curves, count, [3, 2], 3)
    some = rng.integers(1, [4, 3], (count, 2))  # and other games fewer requests than one of them
    some[0] = [3, 2]
    begun = np.broadcast_to([0, 0, 1, 2, 2], (count, 5))
    for one, start in ((game.replace(counts=some), None), (game, None), (game, begun)):
        found, known = (best_response(one, start, backend=b) for b in ("device", "cpu"))
        np.testing.assert_array_equal(found.value.flow, known.value.flow)
        np.testing.assert_array_equal(found.steps, known.steps)
        np.testing.assert_array_equal(found.flags, known.flags)
    stable = found.flags == 0
    assert (gain_s(game, found.value.flow)[stable] < 1e-12).all()
    cut = best_response(game, np.zeros(5, int), max_steps=1, backend="device")
    np.testing.assert_array_equal(cut.steps <= 1, True)


@pytest.mark.parametrize("count", [32, pytest.param(25_000, marks=LARGE)])
@pytest.mark.parametrize("curves", ["rising", "ties", "poles", "flat"])
def test_optima_are_the_hosts(curves, count):
    game = games(np.random.default_rng(4), curves, count, [3, 2], 3)
    found, known = (optimum(game, backend=b) for b in ("device", "cpu"))
    np.testing.assert_array_equal(found.flags, known.flags)
    np.testing.assert_allclose(found.value.cost_s, known.value.cost_s, rtol=1e-11)
    np.testing.assert_allclose(social_cost_s(game, found.value.flow), known.value.cost_s, rtol=1e-11)


def test_logit_equilibria_are_those_of_one_game_at_a_time():
    rng = np.random.default_rng(5)
    game = games(rng, "rising", 3, [2, 3], 3)
    tau = np.array([0.2, 1.0, np.inf])
    found = logit_equilibria(game, tau)
    assert (found.flags == 0).all() and (found.certificate["residual"] <= 1e-10).all()
    for b in range(3):
        one = RoutingGame(game.curve.values_s[b], game.overlap[b], game.omega[b], game.counts)
        known = logit_equilibrium(one, tau[b])
        np.testing.assert_allclose(found.value["probability"][b], known.value["probability"], atol=1e-9)
        assert float(found.value["mean_cost_s"][b]) == pytest.approx(known.value["mean_cost_s"], rel=1e-9)
    np.testing.assert_allclose(found.value["probability"][2], 1 / 3, atol=1e-12)
    cut = logit_equilibria(game, tau, max_steps=2)  # nobody has a reason to prefer a worker in the third: one look
    assert cut.steps.tolist() == [2, 2, 1] and (cut.flags & Flag.NOT_CONVERGED > 0).tolist() == [True, True, False]
    for tau in (0.0, np.ones((2, 2))):
        with pytest.raises(InputError, match="tau"):
            logit_equilibria(game, tau)
    others = logit_equilibria(game.replace(counts=np.array([[1, 4], [2, 3], [4, 1]])), np.array([0.2, 1.0, np.inf]))
    np.testing.assert_allclose(others.value["probability"][1], found.value["probability"][1], atol=1e-9)
    for counts in ([[2, 3], [4, 1], [2, 4]], [[0, 5], [2, 3], [1, 4]]):
        with pytest.raises(InputError, match="counts"):
            logit_equilibria(game.replace(counts=np.array(counts)), 1.0)


def binomial_loads(p: np.ndarray, others: list[int]) -> np.ndarray:
    """The law (games, workers, loads) of the requests on a worker, by one trial after another."""
    law = np.zeros((*p.shape[::2], sum(others) + 1))
    law[..., 0] = 1.0
    for group, size in enumerate(others):
        for _ in range(size):
            moved = p[:, group, :, None] * law
            law -= moved
            law[..., 1:] += moved[..., :-1]
    return law


@pytest.mark.parametrize("count", [200, pytest.param(25_000, marks=LARGE)])
@pytest.mark.parametrize("curves", ["rising", "ties", "any", "flat"])
def test_logit_equilibria_answer_their_own_expected_costs(curves, count):
    """Against loads that are summed trial by trial here: every request's mix is its softmax, and the mean cost that of
    these loads. 10^5 games in the slow runs; the host's solver takes some 50 ms for each of them."""
    rng = np.random.default_rng(9)
    sizes = [3, 2]
    game = games(rng, curves, count, sizes, 3)
    tau = 10.0 ** rng.uniform(0, 2, count)
    found = logit_equilibria(game, tau, max_steps=1000)
    solved = found.flags == 0
    assert solved.mean() > 0.98  # the coldest may cycle, and say so
    p, a, mean = found.value["probability"], game.arrays(), np.zeros(count)
    for group in range(len(sizes)):
        others = [size - (g == group) for g, size in enumerate(sizes)]
        pays = (binomial_loads(p, others) * a.f).sum(-1) + a.cost[:, group]
        weight = np.exp(-(pays - pays.min(-1, keepdims=True)) / tau[:, None])
        response = weight / weight.sum(-1, keepdims=True)
        np.testing.assert_allclose(p[solved, group], response[solved], atol=2e-10)
        mean += sizes[group] * (p[:, group] * pays).sum(-1)
    np.testing.assert_allclose(found.value["mean_cost_s"][solved], mean[solved], rtol=1e-11)


def request_windows(rng, kind: str, count: int, n: int, m: int):
    overlap = rng.random((count, n, m))
    if kind == "prefixes":
        overlap = rng.random((3, m))[rng.integers(0, 3, (count, n))]
    return rng.exponential(2.0, (count, n)), rng.integers(0, m, (count, n)), overlap


def check_index(found, known):
    np.testing.assert_array_equal(found.flags, known.flags)
    np.testing.assert_array_equal(found.loads, known.loads)
    for name in ("poa_hat", "observed_s", "model_s", "optimum_s", "misfit", "routing"):
        np.testing.assert_allclose(getattr(found, name), getattr(known, name), rtol=1e-10, err_msg=name)


COSTS = [
    IndexCost(),  # room enough
    IndexCost(capacity=8.0),  # places for all, and none to spare; a worker with 8 or more is past its pole
    IndexCost(capacity=7.5, d_s=0.0),  # fewer places than requests
    IndexCost(a_s=[0.1, 0.2, 0.0], cache_s=0.3, capacity=[4.0, 64.0, 9.0]),
    IndexCost(a_s=1e-3, b_s=1.0, cache_s=0.9),  # to the cache, whatever the company
]


@pytest.mark.parametrize("aware", [False, True], ids=["frozen", "load-aware"])
@pytest.mark.parametrize("kind", ["distinct", "prefixes"])
def test_the_index_of_windows_is_the_hosts(kind, aware):
    data = request_windows(np.random.default_rng(6), kind, 24, 24, 3)
    data[2][0] = [0.0, 1.0, 0.0]  # all to one worker
    for cost in COSTS:
        check_index(*(poa_index(*data, cost, aware, backend=b) for b in ("device", "cpu")))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["distinct", "prefixes"])
@pytest.mark.parametrize("aware", [False, True], ids=["frozen", "load-aware"])
def test_the_index_of_many_windows_is_the_hosts(aware, kind):
    """10^5 windows."""
    for n, m, count in ((24, 3, 6200), (512, 8, 5), (1, 1, 60)):
        data = request_windows(np.random.default_rng(n), kind, count, n, m)
        for cost in COSTS if m == 3 else [IndexCost(capacity=n // m + 1.0)] * 4:
            check_index(*(poa_index(*data, cost, aware, backend=b) for b in ("device", "cpu")))


@pytest.mark.parametrize(("count", "step"), [(200, 8), pytest.param(100_015, 1, marks=LARGE)])
def test_windows_of_a_log_are_cut_on_the_device(count, step):
    """Windows of 16 requests that share some with the next."""
    rng = np.random.default_rng(7)
    latency, worker, overlap = (a[0] for a in request_windows(rng, "distinct", 1, count, 3))
    end = np.cumsum(rng.exponential(1.0, count))
    log = RequestLog(
        tuple(map(str, range(count))),
        end - latency,
        end,
        latency,
        np.full(count, np.nan),
        worker,
        overlap,
        tuple("abc"),
        count,
    )
    found, known = (windows(log, 16, step, backend=b) for b in ("device", "cpu"))
    check_index(found.index, known.index)
    np.testing.assert_array_equal(found.ttft_p99_s, known.ttft_p99_s)


@pytest.mark.parametrize("aware", [False, True], ids=["frozen", "load-aware"])
def test_windows_that_are_proved_never_see_the_host(aware, monkeypatch):
    seen = []
    solver = index_module.host_sums
    monkeypatch.setattr(index_module, "host_sums", lambda *given: (seen.append(len(given[0])), solver(*given))[1])
    latency, worker, overlap = request_windows(np.random.default_rng(8), "distinct", 24, 24, 3)
    overlap[5, 0, 0] = np.nan
    poa_index(latency, worker, overlap, load_aware=aware, backend="device")
    assert seen == [1]
