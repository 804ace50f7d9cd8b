"""What routers cost, against every placement of a few requests; what is refused before anybody waits for it."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.games.routing import POLICIES
from dmodels.models.latency import LatencyCurve
from dmodels.studies import router_costs as study
from dmodels.studies.router_costs import grouped_game, router_costs


def curve(*a_s, b_s=0.5):
    """Seconds that grow by a_s with every request on a worker."""
    a = np.array(a_s)
    return LatencyCurve(a, np.full(a.shape, b_s), 0 * a, np.full(a.shape, 64.0), np.ones(a.shape))


def cost_s(where, prefixes, a_s, b_s, miss_s):
    """Of requests on workers: what each waits there, and a miss where another worker has its prefix."""
    held = [where.count(j) for j in range(len(a_s))]
    waits = sum(a_s[j] * held[j] + b_s for j in where)
    return waits + sum(miss_s for j, prefix in zip(where, prefixes, strict=True) if prefix % len(a_s) != j)


def test_groups_are_as_equal_as_they_can_be_and_cached_in_turn():
    game = grouped_game(11, 4, curve(1.0, 2.0, 3.0), 0.25)
    assert np.asarray(game.counts).tolist() == [3, 3, 3, 2] and float(game.omega) == 0.25
    assert np.asarray(game.overlap).tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]
    for requests, prefixes in ((0, 4), (11, 0), (10**9 + 1, 4), (11, 10_001)):
        told = f"requests = {requests}, prefixes = {prefixes}: accepted are whole numbers from 1, up to 1,000,000,000"
        with pytest.raises(InputError, match=f"{told} and 10,000"):
            grouped_game(requests, prefixes, curve(1.0), 0.25)


def test_costs_per_request_and_their_ratio_to_the_best_of_all_placements(monkeypatch):
    """Five requests of two prefixes on two workers; each draw of a policy is one of the 32 placements."""
    a_s, miss_s, prefixes = (1.0, 3.0), 0.7, (0, 0, 0, 1, 1)
    every = [cost_s(where, prefixes, a_s, 0.5, miss_s) for where in itertools.product(range(2), repeat=5)]
    game = grouped_game(5, 2, curve(*a_s), miss_s)
    found = router_costs(game, runs=40)
    assert float(found.price.optimum_s) == pytest.approx(min(every)) and list(found.policies) == list(POLICIES)
    drawn, flows = [], study.policy_flows

    def counted(game, name, rng, runs, tau):
        made = flows(game, name, rng, runs, tau=tau)
        drawn.append((name, runs, np.asarray(made)))
        return made

    monkeypatch.setattr(study, "policy_flows", counted)
    monkeypatch.setattr(study, "_MOST_NUMBERS", 7 * 4)  # seven draws of two prefixes and workers at a time
    again = router_costs(game, runs=40)
    for name, told in again.policies.items():
        parts = [(runs, made) for one, runs, made in drawn if one == name]
        assert [runs for runs, _ in parts] == [7, 7, 7, 7, 7, 5]
        costs = []
        for draw in np.concatenate([made for _, made in parts]):
            where = [j for group in draw for j in (0,) * int(group[0]) + (1,) * int(group[1])]
            costs.append(cost_s(where, prefixes, a_s, 0.5, miss_s))
        assert len(costs) == 40
        assert told.mean_s == pytest.approx(np.mean(costs) / 5) and told.worst_s == pytest.approx(max(costs) / 5)
        assert told.ratio == pytest.approx(np.mean(costs) / min(every))
        assert told.worst_ratio == pytest.approx(max(costs) / min(every))
    with pytest.raises(InputError, match="runs = 0: accepted are whole numbers from 1"):
        router_costs(game, runs=0)


def test_of_workers_that_are_alike_one_more_than_requests_is_kept():
    """Three requests on twelve workers: six quick and six slow, of each three with the one prefix."""
    a = np.repeat([1.0, 2.0], 6)
    held = np.tile([1.0, 0.0], 6)[None]
    game = grouped_game(3, 1, curve(*a), 0.5).replace(overlap=held)
    assert study._in_use(game).workers_count == 12  # three of each of four kinds
    many = grouped_game(2, 1, curve(*np.repeat(a, 3)), 0.5).replace(overlap=np.repeat(held, 3, axis=1))
    kept = study._in_use(many)
    kinds = list(zip(np.asarray(kept.curve.a_s).tolist(), np.asarray(kept.overlap)[0].tolist(), strict=True))
    assert {kind: kinds.count(kind) for kind in kinds} == dict.fromkeys(itertools.product((1.0, 2.0), (0.0, 1.0)), 3)
    with pytest.raises(InputError, match="workers = 10,001: would take too much memory; accepted are up to 10,000"):
        study._in_use(grouped_game(5, 1, curve(1.0), 0.5).replace(overlap=np.ones((1, 10_001))))


def most_accepted(error):
    """Runs that a refusal says would do."""
    return int(re.search(r"like runs = ([\d,]+)$", str(error))[1].replace(",", ""))


def test_as_many_runs_as_are_said_to_be_accepted_are():
    """Of a million requests; fewer where Dynamo draws anew in each, and fewer yet among more workers."""
    accepted = []
    for workers, tau in ((8, 0.0), (8, 0.5), (64, 0.5), (1, 0.5)):
        game = grouped_game(10**6, 2, curve(*np.arange(1.0, workers + 1.0)), 0.5)
        ask = lambda runs, game=game, tau=tau: study._affordable_boxes(game, game, runs, tau)
        asked = f"requests = 1,000,000, workers = {workers}, prefixes = 2, runs = 1,000,000: would"
        with pytest.raises(InputError, match=asked) as no:
            ask(10**6)
        most = most_accepted(no.value)
        assert 1 <= ask(most) <= 200_000
        with pytest.raises(InputError, match="would take about 10 min"):
            ask(most + 1)
        accepted.append(most)
    assert accepted[0] > 2 * accepted[1] > 4 * accepted[2] > 400
    # a run takes 30 ns for each request, with a temperature 80 more and 12 for each worker, in the ten minutes that are
    # left of the other policies, once each, and of a box of the search
    assert accepted == [19_964, 2_907, 677, 4_913]
    told = set()
    for requests in np.geomspace(1e6, 9e8, 60):
        game = grouped_game(int(requests), 2, curve(*np.ones(64)), 0.5)
        with pytest.raises(InputError, match="accepted is up to 10 min, like ") as no:
            study._affordable_boxes(game, game, 10**6, 0.5)
        told.add(str(no.value).partition(", like ")[2])
    assert {"runs = 1", "a tenth of the workers and of the requests"} < told and "runs = 0" not in told
    # a box of the search takes as many numbers as there are prefixes and pairs of workers
    wide = [grouped_game(10**4, prefixes, curve(*np.ones(n)), 0.5) for n, prefixes in ((500, 2), (1000, 2), (500, 6))]
    few, four, three = (study._affordable_boxes(game, game, 1, 0.0) for game in wide)
    assert (few / four, few / three) == pytest.approx((4.0, 3.0), rel=0.01)
    large = grouped_game(10**4, 6, curve(*np.ones(4000)), 0.5)  # one is a thousand runs
    with pytest.raises(InputError) as no:
        study._affordable_boxes(large, large, 10**8, 0.0)
    most = most_accepted(no.value)
    assert study._affordable_boxes(large, large, most, 0.0) >= 1
    wide = grouped_game(10**4, 1, curve(1.0), 0.5).replace(overlap=np.ones((1, 4001)))
    with pytest.raises(InputError, match=r"4,001 of them may be in use, which takes too much memory; .* up to 4,000"):
        study._affordable_boxes(wide, wide, 1, 0.0)
    more = wide.replace(overlap=np.ones((1, 6000)))  # 1,999 of which are never used
    with pytest.raises(InputError, match="workers = 6,000: 4,001 of them may be in use"):
        study._affordable_boxes(more, wide, 1, 0.0)
