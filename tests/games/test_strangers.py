"""Router logs, static policies, whole and shared splits, risks and pools, against counting by hand."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from dmodels.core.errors import TraceError
from dmodels.core.flags import Flag
from dmodels.core.routing import RoutingPolicy
from dmodels.games.anarchy import driver, log_from_rows, poa_index, windows
from dmodels.games.placement import (
    PlacementGame,
    at_risk,
    best_response_dynamics,
    isolated_s,
    pure_equilibrium,
    rises,
    value_of_sharing,
)
from dmodels.games.placement.hierarchy import not_hierarchical
from dmodels.games.resource import (
    Alone,
    Exponential,
    Game,
    Logistic,
    Multiplied,
    Power,
    Starved,
    equilibrium,
    explain,
    integer_split,
    social_optimum,
)
from dmodels.games.routing import POLICIES, RoutingGame, counterfactuals, policy_flows
from tests.games.placement_brute import draw, truth

NAMES = {
    "id": ("id", "request_id", "REQ_ID "),
    "arrival": ("arrival", "arrival_s", "arrival_time", "start", "start_s"),
    "completion": ("completion", "completion_s", "completion_time", "end", "end_s", "finish"),
    "worker": ("worker", "worker_id", "decode_worker", "decode_worker_id"),
    "latency": ("latency", "latency_s", "e2e", "e2e_s", "e2e_latency"),
    "ttft": ("ttft", "ttft_s", "Time_To_First_Token"),
    "overlap": ("overlap", "overlaps", "overlap_score", "overlap_scores"),
    "prefix": ("prefix", "prefix_hashes", "hash_ids", "blocks", "block_hashes"),
}


def a_log(seed):
    """(rows as some router writes them, the requests that they are, what is wrong by kind)."""
    rng = np.random.default_rng(seed)
    rows, requests, wrong = [], [], Counter()
    for k in range(int(rng.integers(5, 40))):
        name, worker = f"r{k}", str(rng.choice(["w2", "w10", "w3"]))
        arrival, took = float(rng.uniform(0, 50)), float(rng.uniform(0, 9))
        one = {"id": name, "worker": worker, "arrival": arrival, "completion": arrival + took}
        fact = one | {"latency": took, "ttft": math.nan, "overlap": {}}
        style = rng.integers(5)
        if style == 1:
            del one["completion"]
            one["latency"] = took
        elif style == 2:
            del one["arrival"]
            one["latency"] = took
        elif style == 3:  # another clock
            fact["latency"] = one["latency"] = took + 5.0
            wrong["clock skew"] += 1
        if rng.random() < 0.5:
            fact["ttft"] = one["ttft"] = took / 2
        fault = rng.choice(["", "", "", "id", "worker", "number", "before", "share", "row"])
        if fault == "id" and requests:
            one["id"] = requests[0]["id"]
        one = {rng.choice(NAMES[key]): rng.choice([value, str(value)]) for key, value in one.items()}
        fact["overlap"] = {"w2": 0.25, "w10": 0.5}
        one[rng.choice(NAMES["overlap"])] = rng.choice(['{"w2": 0.25, "w10": 0.5, "w99": 1}', "[0.25, 0, 0.5]"])
        kinds = {"id": "duplicated id", "worker": "missing field", "number": "bad number", "share": "bad number"}
        if fault == "worker":
            one = {key: value for key, value in one.items() if key not in NAMES["worker"]}
        elif fault == "number":
            one = {key: "soon" if key in (*NAMES["arrival"], *NAMES["latency"]) else v for key, v in one.items()}
        elif fault == "share":
            one = {key: "[2]" if key in NAMES["overlap"] else value for key, value in one.items()}
        elif fault == "before" and style in (0, 4):
            one = {key: -1.0 if key in NAMES["completion"] else value for key, value in one.items()}
            kinds["before"] = "completion before arrival"
        elif fault == "row":
            one, kinds["row"] = "}{", "unreadable"
        rows.append(one)
        if fault in kinds and not (fault == "id" and not requests):
            wrong["clock skew"] -= style == 3
            wrong[kinds[fault]] += 1
        else:
            requests.append(fact)
    return rows, requests, wrong


def test_logs_of_any_router_hold_the_requests_that_were_written():
    """Under any name, as numbers or text, with either time left out; what is wrong is counted by kind."""
    for seed in range(60):
        rows, requests, wrong = a_log(seed)
        if not requests:
            with pytest.raises(TraceError, match="usable"):
                log_from_rows(iter(rows))
            continue
        requests.sort(key=lambda r: r["completion"])
        ends = [r["completion"] for r in requests]
        wrong["gap"] = sum(b - a > 4.0 for a, b in itertools.pairwise(ends))
        log = log_from_rows(iter(rows), workers=["w2", "w3", "w10"], limit=5, gap_s=4.0)
        assert log.ids == tuple(r["id"] for r in requests) and log.rows_count == len(rows)
        for name in ("arrival", "completion", "latency", "ttft"):
            np.testing.assert_allclose(getattr(log, f"{name}_s"), [r[name] for r in requests], atol=1e-9)
        assert [log.workers[w] for w in log.worker] == [r["worker"] for r in requests]
        told = [[r["overlap"].get(w, 0.0) for w in ("w2", "w3", "w10")] for r in requests]
        np.testing.assert_array_equal(log.overlap, told)
        assert dict(log.problems) == {kind: count for kind, count in wrong.items() if count}
        assert len(log.reports) == min(5, sum(wrong.values())) and not log.notices
        seen = sorted({r["worker"] for r in requests}, key=lambda name: int(name[1:]))
        if len(seen) < 3 or "duplicated id" in log.problems:
            continue
        assert log_from_rows(iter(rows), gap_s=4.0).workers == tuple(seen)
        few = log_from_rows(iter(rows), workers=["w3"], gap_s=1e9)
        assert few.problems["unknown worker"] == sum(r["worker"] != "w3" for r in requests)


def test_what_is_known_of_caches():
    """A share of the chosen worker's alone; blocks replayed by caches that never forget; or nothing."""
    base = {"completion": 9.0, "worker": "b"}
    own = log_from_rows(iter([base | {"arrival": 1.0, "overlap": 0.3}, base | {"arrival": 0.0, "worker": "a"}]))
    assert own.overlap.tolist() == [[0.0, 0.3], [0.0, 0.0]] and len(own.notices) == 1
    assert (
        "chosen worker only" in own.notices[0]
        and "no overlap" in log_from_rows(iter([base | {"latency": 1}])).notices[0]
    )
    wrong = log_from_rows(iter([base | {"arrival": 1.0, "overlap": [0.1, 0.2]}]))
    assert wrong.problems == {"overlap of another length": 1} and wrong.overlap.tolist() == [[0.0]]
    rng = np.random.default_rng(0)
    rows, held = [], {"a": set(), "b": set()}
    expected = {}
    for k in range(60):
        blocks = [int(x) for x in rng.integers(0, 4, int(rng.integers(1, 5)))]
        worker = str(rng.choice(["a", "b"]))
        for w, cache in held.items():
            run = len(list(itertools.takewhile(lambda block, cache=cache: block in cache, blocks)))
            expected[k, w] = run / len(blocks)
        held[worker].update(blocks)
        told = rng.choice([" ".join(map(str, blocks)), str(blocks)])
        rows.append(
            {"id": k, "arrival": k, "completion": k + rng.uniform(0, 20), "worker": worker, "prefix": str(told)}
        )
    log = log_from_rows(iter(rows[i] for i in rng.permutation(60)))
    assert [list(row) for row in log.overlap] == [[expected[int(i), w] for w in "ab"] for i in log.ids]


@pytest.mark.parametrize("ttft", [True, False])
def test_windows_of_a_log_one_by_one(ttft):
    """Latency over the least that the cost model allows; and 0 base seconds, quantiles and times as one reads them."""
    rng = np.random.default_rng(4)
    rows = [
        {"id": k, "arrival": (at := float(rng.uniform(0, 30))), "completion": at + float(rng.uniform(0.5, 3))}
        | {"worker": int(rng.integers(3)), "overlap": [float(x) for x in rng.random(3)]}
        | ({"ttft": float(rng.uniform(0, 0.5))} if ttft or k % 2 else {})
        for k in range(70)
    ]
    log = log_from_rows(iter(rows))
    for size, step, base in ((16, None, None), (9, 4, 0.7), (70, 1, None), (500, None, 0.2)):
        told = windows(log, size, step, base_s=base)
        size = min(size, 70)
        starts = range(0, 70 - size + 1, step or size // 2)
        assert len(told.start_s) == len(starts)
        idle = np.sort(log.latency_s)
        idle = base or idle[3] + 0.45 * (idle[4] - idle[3])  # 0.05 x 69 = 3.45
        for k, start in enumerate(starts):
            cut = slice(start, start + size)
            one = poa_index(log.latency_s[cut], log.worker[cut], log.overlap[cut])
            assert (told.start_s[k], told.end_s[k]) == (log.completion_s[cut][0], log.completion_s[cut][-1])
            assert told.index.poa_hat[k] == pytest.approx(float(one.poa_hat))
            assert told.index.loads[k].tolist() == np.bincount(log.worker[cut], minlength=3).tolist()
            model = sum(
                0.005 * n + 0.020 + 0.010 / (64.0 - n) ** 2 - 0.015 * log.overlap[i, log.worker[i]]
                for i in range(start, start + size)
                for n in [told.index.loads[k][log.worker[i]]]
            )
            assert told.index.model_s[k] == pytest.approx(model) and told.index.misfit[k] == pytest.approx(
                log.latency_s[cut].sum() / model
            )
            assert told.constant[k] == pytest.approx(idle / (model / size))
            assert told.queueing[k] == pytest.approx(log.latency_s[cut].mean() / idle)
            assert told.routing[k] == pytest.approx(float(one.poa_hat) / (log.latency_s[cut].sum() / model))
            signal = np.sort((log.ttft_s if ttft else log.latency_s)[cut])
            place = 0.99 * (size - 1)
            low = int(place)
            high = signal[min(low + 1, size - 1)]
            assert told.ttft_p99_s[k] == pytest.approx(signal[low] + (place - low) * (high - signal[low]))
    base = told._replace(routing=np.array([1.0, 1.3, 1.1, 1.2, np.nan]), queueing=np.array([1.2, 1.1, 1.4, 1.2, 1.5]))
    assert driver(base) == ["constant", "routing", "queue", "routing", "queue"]
    assert driver(base, plateau=2.0) == ["constant"] * 5


def in_order(order, f, miss, omega, policy, weight):
    """Where each request goes if they arrive in this order."""
    n, m = [0] * len(f), len(f)
    places = {}
    for i, request in enumerate(order):
        if policy == RoutingPolicy.ROUND_ROBIN:
            j = i % m
        else:
            score = {
                RoutingPolicy.SHORTEST_QUEUE: lambda j: n[j],
                RoutingPolicy.CACHE: lambda j, r=request: (miss[r][j], n[j]),
                RoutingPolicy.DYNAMO: lambda j, r=request: f[j][n[j]] + weight * miss[r][j],
                RoutingPolicy.MARGINAL_COST: lambda j, r=request: (
                    sum([f[j][n[j]]] * (n[j] + 1)) - sum([f[j][n[j] - 1]] * n[j]) + omega * miss[r][j]
                ),
            }[policy]
            j = min(range(m), key=score)
        places[request] = j
        n[j] += 1
    return tuple(places[r] for r in sorted(order))


@pytest.mark.parametrize(
    "policy",
    [
        RoutingPolicy.ROUND_ROBIN,
        RoutingPolicy.SHORTEST_QUEUE,
        RoutingPolicy.CACHE,
        RoutingPolicy.DYNAMO,
        RoutingPolicy.MARGINAL_COST,
    ],
)
def test_static_policies_request_by_request(policy):
    """Four unlike requests in some order: where one of the 24 orders puts them, and not always the same one."""
    seen = set()
    for seed in range(12):
        rng = np.random.default_rng(seed)
        f = np.cumsum(rng.uniform(0.1, 1, (3, 4)), 1)
        overlap, omega = rng.choice([0.0, 0.4, 0.9], (4, 3)), float(rng.uniform(0, 3))
        game, weight = RoutingGame(f, overlap, omega), (None if seed % 2 else 0.5)
        x = policy_flows(game, policy, rng, router_omega=weight)[0]
        told = tuple(int(row.argmax()) for row in x)
        assert (x.sum(1) == 1).all()
        weight = omega if weight is None else weight
        orders = itertools.permutations(range(4))
        every = {in_order(order, f, 1 - overlap, omega, policy, weight) for order in orders}
        assert told in every
        seen.add(len(every) > 1)
        shares = counterfactuals(game, rng, runs=3)
        cost = lambda places, f=f, o=overlap, w=omega: sum(
            f[j][places.count(j) - 1] + w * (1 - o[i][j]) for i, j in enumerate(places)
        )
        least = min(map(cost, itertools.product(range(3), repeat=4)))
        assert set(shares) == set(POLICIES) and all(len(r) == 3 for r in shares.values())
        assert all(any(r == pytest.approx(cost(e) / least) for e in every) for r in shares[policy])
    assert True in seen


@pytest.mark.parametrize("normalized", [True, False])
def test_a_warm_router_draws_by_its_costs(normalized):
    """One request: shares proportional to e^(-cost/tau), tau in units of the costs' range or in seconds."""
    f, overlap, tau = np.array([[0.2], [0.5], [0.9]]), np.array([[0.0, 1.0, 0.5]]), 0.7
    cost = f[:, 0] + 2.0 * (1 - overlap[0])
    scale = np.ptp(cost) if normalized else 1.0
    weights = np.exp(-cost / (tau * scale))
    game, runs = RoutingGame(f, overlap, 5.0), 20_000
    x = policy_flows(game, "dynamo", np.random.default_rng(0), runs, router_omega=2.0, tau=tau, normalized=normalized)
    share = weights / weights.sum()
    np.testing.assert_allclose(x[:, 0].mean(0), share, atol=5 * np.sqrt(share.max() / runs))


def games(seed, count):
    """Small splits of all families: convex and not, with and without starvation."""
    rng = np.random.default_rng(seed)
    u = rng.uniform
    for _ in range(count):
        prefill = [
            Exponential(u(0.1, 0.6), u(0.3, 1)),
            Logistic(u(2, 8), u(0.5, 2), u(0.3, 1)),
            Power(u(1, 5), u(1, 3)),
        ]
        own = [Exponential(u(0.1, 0.6)), Logistic(u(2, 8), u(0.5, 2))][rng.integers(2)]
        hungry = [Exponential(u(0.1, 1), u(0.2, 0.6)), Power(u(1, 5), u(1, 2), 0.5)][rng.integers(2)]
        decode = [Alone(own), Starved(own, hungry), Multiplied(own, hungry)][rng.integers(3)]
        yield Game(
            prefill[rng.integers(3)],
            decode,
            u(6, 20),
            u(0.5, 2),
            u(0.5, 2),
            float(rng.integers(1, 3)),
            float(rng.integers(1, 4)),
        )


def on_a_grid(game, cells=2000):
    """(x, weighted rates, own savings) at points of the budget line, savings by differences of the rates themselves."""
    total, h = float(game.budget_gpus), 1e-5
    x = np.linspace(0, total, cells + 1)
    ttft, itl = np.asarray(game.prefill(x)), np.asarray(game.decode(total - x, x))
    saved_p = (np.asarray(game.prefill(x - h)) - np.asarray(game.prefill(x + h))) / (2 * h)
    saved_d = (np.asarray(game.decode(total - x - h, x)) - np.asarray(game.decode(total - x + h, x))) / (2 * h)
    return x, ttft, itl, float(game.prefill_weight) * saved_p, float(game.decode_weight) * saved_d


def test_splits_of_all_families_on_a_fine_grid():
    """Equal savings where they change sign, corners, the cheapest stable one; rates, cost and multiplier there."""
    several = 0
    for game in games(0, 24):
        total, told = float(game.budget_gpus), equilibrium(game)
        x, ttft, itl, saved_p, saved_d = on_a_grid(game)
        cost = float(game.prefill_weight) * ttft + float(game.decode_weight) * itl
        gap, cell = saved_d - saved_p, x[1]
        rises_at = [k for k in range(len(x) - 1) if gap[k] < 0 < gap[k + 1]]
        falls_at = [k for k in range(len(x) - 1) if gap[k] > 0 > gap[k + 1]]
        corners = [k for k, held in ((0, gap[0] >= 0), (len(x) - 1, gap[-1] <= 0)) if held]
        stable = [(cost[k], x[k]) for k in (*rises_at, *corners)]
        v = told.value
        at, weights = float(v.prefill_gpus), (float(game.prefill_weight), float(game.decode_weight))
        least = min(stable)
        assert any(abs(at - place) <= 2 * cell and c <= least[0] + 1e-3 for c, place in stable)
        assert float(v.decode_gpus) == pytest.approx(total - at)
        near = lambda values, at=at, x=x: float(np.interp(at, x, values))
        assert float(v.ttft_violation_frac) == pytest.approx(near(ttft), abs=1e-4)
        assert float(v.itl_violation_frac) == pytest.approx(near(itl), abs=1e-4)
        assert float(v.cost) == pytest.approx(weights[0] * near(ttft) + weights[1] * near(itl), abs=3e-4)
        saved = [near(saved_p), near(saved_d)]
        assert float(v.multiplier) == pytest.approx(max(saved), abs=2e-3)
        names = "marginal_prefill", "marginal_decode"
        assert [float(told.certificate[n]) for n in names] == pytest.approx(saved, abs=2e-3)
        assert float(told.certificate["kkt_residual"]) < 1e-6
        count = len(rises_at) + len(falls_at) + len(corners)
        assert float(told.certificate["equilibria_count"]) == count or game.convex
        several += count > 1
        if not game.convex:
            listed = np.asarray(told.certificate["equilibria_gpus"])
            found = sorted(x[k] for k in (*rises_at, *falls_at, *corners))
            assert listed[np.isfinite(listed)] == pytest.approx(found, abs=2 * cell)
            assert (count > 1) <= bool(told.flags & Flag.NOT_UNIQUE)
            said = " ".join(explain(game, told))
            assert (f"{count} equilibria" in said) == (count > 1)
            alike = x[cost <= float(v.cost) + 1e-6]
            low, high = (float(told.certificate[f"alike_{end}_gpus"]) for end in ("low", "high"))
            assert low <= at + 1e-9 and high >= at - 1e-9
            width = total / 64
            assert alike.min() - 1e-6 <= low <= alike.min() + 1.1 * width or low == pytest.approx(at)
            assert alike.max() - 1.1 * width <= high <= alike.max() + 1e-6 or high == pytest.approx(at)
        best = social_optimum(game)
        assert (
            float(best.value.cost) == pytest.approx(cost.min(), abs=1e-5)
            and float(best.value.cost) <= cost.min() + 1e-9
        )
        assert float(best.certificate["gap"]) <= 1e-12 and 0 <= float(best.certificate["slope"]) <= 1e-6
        assert float(best.certificate["largest_cost"]) == pytest.approx(cost.max(), rel=0.05)
    assert several >= 2


def test_whole_splits_by_counting():
    """Workers of so many GPUs: the cheapest, what each number of prefill workers costs, and where no swap helps."""
    for game in games(1, 20):
        whole, total = integer_split(game), float(game.budget_gpus)
        p, d = int(game.prefill_worker_gpus), int(game.decode_worker_gpus)
        cost = {}
        for n in range(1, int(total // p) + 1):
            if (k := int((total - n * p) // d)) >= 1:
                rates = float(game.prefill(1.0 * n * p)), float(game.decode(1.0 * k * d, 1.0 * n * p))
                cost[n] = (float(game.prefill_weight) * rates[0] + float(game.decode_weight) * rates[1], k, *rates)
        listed = np.asarray(whole.certificate["cost_by_prefill"])
        assert {n + 1 for n in np.flatnonzero(np.isfinite(listed))} == set(cost)
        assert [listed[n - 1] for n in cost] == pytest.approx([c[0] for c in cost.values()])
        v, n = whole.value, int(whole.value.prefill_instances)
        assert cost[n][0] <= min(c[0] for c in cost.values()) + 1.1e-6
        assert (float(v.cost), int(v.decode_instances)) == (pytest.approx(cost[n][0]), cost[n][1])
        tenths = integer_split(game.replace(budget_gpus=0.3, prefill_worker_gpus=0.1, decode_worker_gpus=0.1))
        assert int(tenths.value.prefill_instances + tenths.value.decode_instances) == 3  # 0.3 - 0.1 is less than 0.2
        assert [float(v.prefill_gpus), float(v.decode_gpus)] == [n * p, cost[n][1] * d]
        assert [float(v.ttft_violation_frac), float(v.itl_violation_frac)] == pytest.approx(cost[n][2:])
        stable = {k for k in cost if all(cost[k][0] <= cost[o][0] for o in (k - 1, k + 1) if o in cost)}
        assert {k + 1 for k in np.flatnonzero(whole.certificate["swap_stable"])} == stable
        gap = float(whole.certificate["integrality_gap"])
        assert gap == pytest.approx(cost[n][0] - float(social_optimum(game).value.cost), abs=1e-9) and gap >= -1e-9


def extremes(arrays):
    """(worst equilibrium, best equilibrium, optimum) by looking at every placement."""
    t = truth(*arrays)
    social = t.social[t.stable]
    ends = (social.max(), social.min()) if social.size else (math.nan, math.nan)
    return *ends, t.social.min()


def grown(arrays, worker, tier, extra):
    demand, access, capacity, *rest = arrays
    capacity = capacity.copy()
    capacity[worker, tier] += extra
    return (demand, access, capacity, *rest)


def test_more_memory_before_and_after_by_every_placement():
    """One block more in each tier of each worker, in turn or everywhere; and what all would pay alone."""
    rng, paradoxes = np.random.default_rng(7), 0
    for k in range(24):
        arrays = draw(rng, 3, 2, sizes=bool(rng.integers(2)))
        if k % 2:  # three in a row, a place each at most, as where the paradox is known
            rooms = rng.integers(0, 2, (3, 1)).astype(float)
            rates, hops = rng.integers(0, 3, (3, 2)).astype(float), np.abs(np.subtract.outer(*[np.arange(3.0)] * 2))
            if k == 1:
                rates, rooms = np.array([[0.0, 2.0], [1.0, 1.0], [1.0, 0.0]]), np.array([[0.0], [1.0], [1.0]])
            arrays = rates, np.zeros((3, 1)), rooms, hops, np.full(2, 4.0), np.ones(2)
        game, (n, tiers) = PlacementGame(*arrays), arrays[2].shape
        extra = float(arrays[5].max())
        before = extremes(arrays)
        alone = lambda a: sum(
            truth(a[0][[i]], a[1][[i]], a[2][[i]], np.zeros((1, 1)), *a[4:]).cost.min() for i in range(len(a[0]))
        )
        assert isolated_s(game).sum() == pytest.approx(alone(arrays))
        after = {(i, t): grown(arrays, i, t, extra) for i in range(n) for t in range(tiers)}
        told = {(r.worker, r.tier): r for r in rises(game)}
        assert list(told) == list(after)
        for place, bigger in after.items():
            pairs = list(zip(before, extremes(bigger), strict=True))
            found = told[place]
            for given, expected in zip((found.worst_s, found.best_s, found.optimum_s), pairs, strict=True):
                np.testing.assert_allclose(given, expected, atol=1e-9)
            worse = pairs[0][1] > pairs[0][0] + 1e-9
            assert found.paradox == worse
            paradoxes += worse
        if math.isnan(before[0]):
            continue
        risk = at_risk(game)
        assert list(zip(risk.worker, risk.tier, strict=True)) == list(after)
        worst = [math.inf if math.isnan(w := extremes(a)[0]) else w for a in after.values()]
        np.testing.assert_allclose(risk.after_s, worst, atol=1e-9)
        assert risk.before_s == pytest.approx(before[0], abs=1e-9)
        np.testing.assert_allclose(risk.ceiling_s, [alone(a) for a in after.values()], atol=1e-9)
        assert risk.exact and risk.at_risk == any(w > before[0] * (1 + 1e-9) for w in worst) != risk.safe
        both = arrays
        for i in range(n):
            both = grown(both, i, 0, 2.0)
        one = at_risk(game, 2.0, together=True)
        assert one.worker.tolist() == [-1] * tiers and one.tier.tolist() == list(range(tiers))
        worst = extremes(both)[0]
        assert one.after_s[0] == pytest.approx(math.inf if math.isnan(worst) else worst, abs=1e-9)
    assert paradoxes >= 1


def test_a_shared_pool_by_every_placement():
    """Alone, selfish, together: each is what it says, and the text has the same shares."""
    for seed in range(10):
        arrays = draw(np.random.default_rng(seed), 3, 2)
        game, t = PlacementGame(*arrays), truth(*arrays)
        s = value_of_sharing(game, iterations=3)
        number = {x.astype(np.int8).tobytes(): k for k, x in enumerate(t.tiers)}
        selfish, together = number[s.selfish.tier.tobytes()], number[s.coordinated.tier.tobytes()]
        assert t.stable[selfish] == (not s.flags)
        assert s.selfish.social_s == pytest.approx(t.social[selfish], abs=1e-9)
        assert s.selfish.cost_s == pytest.approx(t.cost[selfish], abs=1e-9)
        assert s.coordinated.social_s == pytest.approx(t.social[together], abs=1e-9)
        for i in range(len(arrays[0])):  # nobody alone can make it cheaper for all
            others = (np.delete(t.tiers, i, 1) == np.delete(t.tiers[together], i, 0)).all((1, 2))
            assert t.social[others].min() >= t.social[together] - 1e-9
        assert s.bound_s <= t.social.min() + 1e-9
        shares = [1 - s.selfish.social_s / s.isolated_s if s.isolated_s else 0.0]
        paid = s.selfish.social_s
        shares += [1 - least / paid if paid else 0.0 for least in (s.coordinated.social_s, s.bound_s)]
        words = [
            float(word) for word in str(s).replace(")", "").split() if word.replace(".", "", 1).lstrip("-").isdigit()
        ]
        assert words == pytest.approx([100 * x for x in shares], abs=0.051)
        assert [s.pooling_frac, *s.coordination_frac] == pytest.approx(shares)


def test_the_nearest_to_an_equilibrium_by_every_placement():
    """What each worker could save, over what it would then pay; of several equilibria the cheapest, but where a theorem
    finds one without looking at all."""
    none, several, two = 0, 0, np.ones((2, 2))
    for seed in range(24):
        arrays = draw(np.random.default_rng(1000 + seed), 3, 3)
        if seed == 0:  # two workers, three blocks, a place in each of two tiers
            rates = np.tile([2.0, 3.0, 4.0], (2, 1))
            arrays = rates, np.tile([1.0, 2.0], (2, 1)), two, 2.0 - 2.0 * np.eye(2), np.full(3, 5.0), np.ones(3)
        game, t = PlacementGame(*arrays), truth(*arrays)
        s = pure_equilibrium(game)
        k = {x.astype(np.int8).tobytes(): k for k, x in enumerate(t.tiers)}[s.value.tier.tobytes()]
        np.testing.assert_allclose(s.certificate["gain_s"], t.gain[k], atol=1e-9)
        paid = [(c, c - g) for c, g in zip(t.cost[k], t.gain[k], strict=True)]
        factor = max(c / least if least > 1e-12 else (math.inf if c > 1e-12 else 1.0) for c, least in paid)
        assert s.certificate["factor"] == pytest.approx(factor)
        assert s.certificate["exists"] == int(t.stable.any()) == int(t.stable[k])
        none += not t.stable.any()
        if t.stable.any() and not_hierarchical(game):
            assert t.social[k] == pytest.approx(t.social[t.stable].min(), abs=1e-9)
            several += np.ptp(t.social[t.stable]) > 1e-6
        play = best_response_dynamics(game, worth_frac=0.2)
        at = {x.astype(np.int8).tobytes(): k for k, x in enumerate(t.tiers)}[play.value.tier.tobytes()]
        if not play.flags:
            assert (t.gain[at] <= 0.2 * t.cost[at] + 1e-9).all()
    assert none >= 1 and several >= 1
