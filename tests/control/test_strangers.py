"""Routers and pools against desks that do the sums one candidate at a time, in plain Python."""

from __future__ import annotations

import itertools
from itertools import product
from math import inf

import jax
import numpy as np
import pytest

from dmodels.control import congestion, phasor
from dmodels.control.netkv import (
    DecodePool,
    NetKVRouter,
    Oracle,
    burst_cost_s,
    choose,
    dispatch,
    joint_assignment,
    kernels,
    live_kernels,
)
from dmodels.control.phasor import flow
from dmodels.core.flags import Flag
from dmodels.core.routing import RoutingPolicy
from dmodels.core.tiered import interpreted
from dmodels.models.latency import BatchingCurve
from tests.control.desk import TIMED, Desk

CURVE = BatchingCurve(0.02, 5e-4, 8.0)


def a_desk(rng, sites=3, instances=5):
    """At random: near and far, full and empty."""
    draw = lambda *shape: rng.uniform(size=shape)
    return Desk(
        rng.integers(0, 4, (sites, instances)),
        np.array([4e11, 5e10, 2e10, 9e9]),
        np.array([0.0, 1e-3, 4e-3, 2e-2]),
        0.9 * draw(4),
        rng.integers(0, 6, (sites, 4)).astype(float),
        rng.choice([5e8, 6e9, 4e10], instances) * (0.5 + draw(instances)),
        *(rng.integers(low, high, instances) * 1.0 for low, high in ((0, 4), (3, 9), (0, 4))),
        CURVE,
        rng.choice([0.0, 4e8]),
        rng.uniform(0.1, 0.9),
        4.0,
        rng.choice([inf, 2e10]),
    )


def oracle(desk):
    return Oracle(desk.tiers, desk.rates, desk.late, desk.busy)


def pool(desk):
    return DecodePool(desk.free.copy(), desk.queued.copy(), desk.batch.copy(), desk.inbound.copy())


def limits(desk):
    return {
        "in_flight": desk.flying.copy(),
        "reserve_bytes": desk.reserve,
        "curve": CURVE,
        "cache_weight": desk.weight,
        "max_in_flight": desk.most,
        "destination_bytes_per_s": desk.port,
    }


def requests(rng, count, instances=5):
    hits = np.where(rng.random((count, instances)) < 0.6, rng.random((count, instances)), 0.0)
    hits[rng.random((count, instances)) < 0.1] = 1.0
    return rng.integers(0, 3, count), rng.uniform(1e8, 1.2e10, count), hits


PRICED = (*TIMED, RoutingPolicy.LOAD, RoutingPolicy.FREENESS, RoutingPolicy.CACHE, RoutingPolicy.CACHE_LOAD)


@pytest.mark.parametrize("policy", PRICED)
def test_decisions_are_the_cheapest_of_a_desk_that_prices_every_candidate(policy):
    """Each alone on the readings given, and in turn on what the earlier ones took."""
    check_decisions(policy, 12)


@pytest.fixture
def as_python(patience, monkeypatch):
    """The loops interpreted: nothing is compiled for a handful of decisions."""
    for name in ("choose_many", "dispatch_many", "burst_cost", "cheapest_on_tiers"):
        loop = interpreted(getattr(kernels, name))
        monkeypatch.setattr(kernels, name, lambda *asked, loop=loop, **out: loop(*asked, *out.values()))
    for name in ("decide", "note_serve"):
        monkeypatch.setattr(f"dmodels.control.netkv.router.{name}", interpreted(getattr(live_kernels, name)))


@pytest.mark.parametrize("policy", PRICED)
def test_decisions_as_python_takes_them(policy, as_python):
    check_decisions(policy, 3)


def check_decisions(policy, count):
    for seed in range(count):
        rng = np.random.default_rng(seed)
        desk = a_desk(rng)
        sites, sizes, hits = requests(rng, 9)
        asked = policy, oracle(desk), sites, sizes, hits, pool(desk)
        alone = choose(*asked, **limits(desk))
        for r, (site, size, hit) in enumerate(zip(sites, sizes, hits, strict=True)):
            prices = {j: desk.price(policy, site, j, size, hit[j]) for j in desk.roomy(size, hit)}
            check(alone.index[r], alone.cost[r], prices)
            assert bool(alone.flags[r] & Flag.INFEASIBLE) == (not prices)
        own = pool(desk), DecodePool(*(column[::-1].copy() for column in pool(desk)))  # each on readings of its own
        both = DecodePool(*map(np.stack, zip(*own, strict=True)))
        many = choose(*asked[:2], sites[:2], sizes[:2], hits[:2], both, **limits(desk))
        each = [choose(*asked[:2], sites[r], sizes[r], hits[r], own[r], **limits(desk)) for r in range(2)]
        assert [many.index.tolist(), many.cost.tolist()] == [[one[k].item() for one in each] for k in range(2)]
        together, after, flying = dispatch(*asked, **limits(desk))
        intents = []
        for r, (site, size, hit) in enumerate(zip(sites, sizes, hits, strict=True)):
            prices = {j: desk.price(policy, site, j, size, hit[j]) for j in desk.roomy(size, hit)}
            j = check(together.index[r], together.cost[r], prices)
            if j >= 0:
                desk.take(site, j, size, hit[j])
                intents.append((site, j, pytest.approx(size * (1 - hit[j]))))
        assert [tuple(intent)[:3] for intent in together.intents] == intents
        np.testing.assert_allclose(after.free_bytes, desk.free, atol=1.0)
        for told, own in zip((after.queued, after.batch, after.inbound, flying), leftover(desk), strict=True):
            np.testing.assert_array_equal(told, own)


def leftover(desk):
    return desk.queued, desk.batch, desk.inbound, desk.flying


def check(index, cost, prices):
    """The chosen one, which no other undercuts."""
    if not prices:
        assert index == -1 and cost == inf
        return -1
    assert cost == pytest.approx(min(prices.values()), rel=1e-9) == pytest.approx(prices[int(index)], rel=1e-9)
    return int(index)


def test_round_robin_goes_on_behind_the_last_one_that_took_a_request():
    for seed in range(12):
        rng = np.random.default_rng(seed)
        desk, turn = a_desk(rng), 0
        sites, sizes, hits = requests(rng, 12)
        told, *_ = dispatch(RoutingPolicy.ROUND_ROBIN, oracle(desk), sites, sizes, hits, pool(desk), **limits(desk))
        for r, (site, size, hit) in enumerate(zip(sites, sizes, hits, strict=True)):
            open_to_it = desk.roomy(size, hit)
            j = next((j % 5 for j in range(turn, turn + 5) if j % 5 in open_to_it), -1)
            assert told.index[r] == j
            if j >= 0:
                desk.take(site, j, size, hit[j])
                turn = j + 1


def test_turns_as_python_takes_them(as_python):
    test_round_robin_goes_on_behind_the_last_one_that_took_a_request()


@pytest.mark.parametrize("seed", range(8))
def test_the_joint_optimum_by_trying_every_placement(seed):
    check_joint_optimum(seed)


@pytest.mark.parametrize("seed", range(3))
def test_the_joint_optimum_as_python_finds_it(seed, as_python):
    check_joint_optimum(seed)


def check_joint_optimum(seed):
    """Four requests on four instances: every transfer shares its tier with the others of the burst, not with itself."""
    rng = np.random.default_rng(seed)
    desk = a_desk(rng, sites=2, instances=4)
    desk.port, site = inf, 1
    _, sizes, hits = requests(rng, 4, instances=4)
    asked = oracle(desk), site, sizes, hits, pool(desk)
    known = {"in_flight": desk.flying.copy(), "curve": CURVE, "max_in_flight": desk.most}
    told = joint_assignment(*asked, reserve_bytes=desk.reserve, **known)
    before, costs = desk.flying.copy(), {}
    for places in product(*(desk.roomy(size, hit) for size, hit in zip(sizes, hits, strict=True))):
        desk.flying = before.copy()
        for tier in {desk.tiers[site, j] for j in places}:
            desk.flying[site, tier] += sum(desk.tiers[site, j] == tier for j in places) - 1
        costs[places] = sum(
            desk.price(RoutingPolicy.NETKV_FULL, site, j, size, hit[j])
            for j, size, hit in zip(places, sizes, hits, strict=True)
        )
    if not costs:
        assert told.flags & Flag.INFEASIBLE and told.value.cost_s == inf
        return
    chosen = tuple(int(j) for j in told.value.index)
    assert told.value.cost_s == pytest.approx(min(costs.values())) == pytest.approx(costs[chosen])
    for places, cost in itertools.islice(costs.items(), 8):
        assert burst_cost_s(*asked, places, **known) == pytest.approx(cost)
    counts = [sum(desk.tiers[site, j] == tier for j in chosen) for tier in range(4)]
    assert told.value.tier_counts.tolist() == counts
    filled = {j: sum(s * (1 - h[j]) for i, s, h in zip(chosen, sizes, hits, strict=True) if i == j) for j in chosen}
    over = any(size > desk.free[j] - desk.reserve for j, size in filled.items())
    assert bool(told.flags & Flag.OVERLOAD) == over


@pytest.mark.parametrize("seed", range(10))
def test_a_live_router_that_knows_all_is_the_desk_through_arrivals_landings_and_new_readings(seed):
    check_live(seed)


@pytest.mark.parametrize("seed", range(2))
def test_a_live_router_as_python_runs_it(seed, as_python):
    check_live(seed)


def check_live(seed):
    rng = np.random.default_rng(seed)
    desk = a_desk(rng)
    desk.flying[:] = 0.0
    desk.port, opened = inf, np.zeros(5, int)
    live = NetKVRouter(
        desk.tiers, desk.rates, desk.late, reserve_bytes=desk.reserve, curve=CURVE, max_in_flight=desk.most, seed=seed
    )
    live.observe_network(desk.busy)
    live.observe(np.arange(5), desk.free, desk.queued, desk.batch)
    under_way = []
    for site, size, hit in zip(*requests(rng, 60), strict=True):
        event = rng.random()
        if event < 0.2 and under_way:
            one, j = under_way.pop(int(rng.integers(len(under_way))))
            live.landed(one, j)
            desk.flying[one, desk.tiers[one, j]] -= 1
        elif event < 0.3 and opened.any():
            j = int(rng.choice(np.flatnonzero(opened)))
            live.finished(j)
            opened[j] -= 1
        elif event < 0.4:
            j = int(rng.integers(5))
            desk.free[j], desk.queued[j], desk.batch[j] = rng.uniform(0, 5e10), rng.integers(0, 4), rng.integers(0, 9)
            live.observe(j, desk.free[j], desk.queued[j], desk.batch[j])
        elif event < 0.45:
            desk.busy = 0.9 * rng.random(4)
            live.observe_network(desk.busy)
        else:
            chosen = live.route(int(site), size, hit)
            prices = {j: desk.price(RoutingPolicy.NETKV_FULL, site, j, size, hit[j]) for j in desk.roomy(size, hit)}
            if not prices:
                assert chosen == -1
                continue
            assert prices[chosen] == pytest.approx(min(prices.values()), rel=1e-9)
            desk.take(site, chosen, size, hit[chosen])
            under_way.append((int(site), chosen))
            opened[chosen] += 1
        assert live.open_requests.tolist() == opened.tolist()


class Pools:
    """Phasor's roles moved by hand: workers of three kinds, and the epoch of the last change."""

    def __init__(self, prefill, decode, mixed):
        self.n = {"p": prefill, "d": decode, "m": mixed}
        self.epoch, self.last, self.changes = 0, -inf, 0

    def free(self, load, **more):
        """Freeness of both pools after a change: 1 less load per worker."""
        return {k: 1 - load[k] / (self.n[k] + more.get(k, 0)) if self.n[k] + more.get(k, 0) else -inf for k in "pd"}

    def promote(self, load, theta):
        """Standby workers to the poorer pool; back from a pool that stays the freer, and free, without one."""
        phi = self.free(load)
        for k, other in ("pd", "dp"):
            if self.n["m"] >= 1 and phi[k] < theta * phi[other]:
                return {k: 1, "m": -1}
        for k, other in ("pd", "dp"):
            if self.n[k] >= 2 and self.free(load, **{k: -1})[k] >= max(phi[other], 0.0):
                return {k: -1, "m": 1}
        return {}

    def transfer(self, load, theta):
        """The trigger, where even a taker on the edge of it would not send the worker back."""
        phi = self.free(load)
        for k, other in ("pd", "dp"):
            if self.n[other] >= 2 and phi[k] < theta * phi[other]:
                edge = {k: (1 - theta * phi[other]) * self.n[k], other: load[other]}
                then = self.free(edge, **{k: 1, other: -1})
                if then[other] >= theta * then[k] - 1e-12:
                    return {k: 1, other: -1}
        return {}

    def descend(self, load, margin):
        """Whatever lowers the larger utilisation by the margin."""
        worst = lambda phi: 1 - min(phi.values())
        for k, other in ("pd", "dp"):
            goal = (1 - margin) * worst(self.free(load))
            if self.n[other] >= 2 and goal > 0 and worst(self.free(load, **{k: 1, other: -1})) <= goal:
                return {k: 1, other: -1}
        return {}

    def step(self, rule, load, setting, cool):
        moved = getattr(self, rule)(load, setting) if self.epoch - self.last >= cool else {}
        for k, by in moved.items():
            self.n[k] += by
        if moved:
            self.last, self.changes = self.epoch, self.changes + 1
        self.epoch += 1
        return moved


@pytest.mark.parametrize("rule", ["promote", "transfer", "descend"])
def test_roles_as_moved_by_hand(rule):
    step = jax.jit(getattr(flow, rule))
    fired = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        prefill, decode, mixed = (int(x) for x in rng.integers(1, 6, 3))
        params = flow.settings(rng.uniform(0.3, 0.9), rng.uniform(0.02, 0.3), float(rng.integers(1, 4)))
        pools, state = Pools(prefill, decode, mixed), flow.init(prefill, decode, mixed)
        for _ in range(25):
            load = {"p": rng.uniform(0.05, 1.5) * pools.n["p"], "d": rng.uniform(0.05, 1.5) * pools.n["d"]}
            phi = pools.free(load)
            state, change = step(state, phi["p"], phi["d"], params)
            setting = params.margin if rule == "descend" else params.theta
            moved = pools.step(rule, load, setting, params.cool_steps)
            assert [float(x) for x in state[:3]] == [pools.n[k] for k in "pdm"]
            signed = moved.get("p", 0) - moved.get("d", 0)
            named = {1: 1, -1: -1}.get(signed, signed // 2) if rule != "promote" else signed
            if rule == "promote" and moved.get("m") == 1:
                named = 2 if moved.get("p") else -2
            assert int(change) == named and float(state.changes) == pools.changes
            fired += bool(moved)
    assert fired > 15


def test_an_autoregression_from_sums_over_all_readings():
    """Mean and moments as weighted sums; the share of a deviation that survives a step is their ratio."""
    rng = np.random.default_rng(3)
    x, gain = np.clip(0.4 + 0.1 * rng.standard_normal(40).cumsum() * 0.3, 0.0, 1.0), 0.2
    state = congestion.ar1_init(x[0])
    level = congestion.smoothing_init(x[0])
    for t in range(1, len(x)):
        state, level = congestion.ar1_update(state, x[t], gain), congestion.smoothing_update(level, x[t], gain)
        aged = lambda t: gain * (1 - gain) ** np.arange(t - 1, -1, -1)
        mean = [x[0]] + [(1 - gain) ** s * x[0] + aged(s) @ x[1 : s + 1] for s in range(1, t + 1)]
        now, before = x[1 : t + 1] - mean[1:], x[:t] - mean[1:]
        survives = min(max(float(aged(t) @ (now * before)) / float(aged(t) @ now**2), 0.0), 1.0)
        assert float(congestion.smoothing_forecast(level)) == pytest.approx(min(mean[-1], 0.999))
        for steps in (1, 3):
            expected = mean[-1] + (x[t] - mean[-1]) * survives**steps
            assert float(congestion.ar1_forecast(state, steps)) == pytest.approx(
                min(max(expected, 0.0), 0.999), abs=1e-6
            )


def test_prompts_to_the_prefill_worker_that_would_have_most_to_spare():
    """Unequal workers, some closed, progress of any size, costs that are not known: each worker as two numbers."""
    route = jax.jit(phasor.route, static_argnames="before")
    for seed in range(6):
        rng = np.random.default_rng(seed)
        peak, slo, before = rng.uniform(1, 4, 4), rng.uniform(0.2, 1, 4), bool(seed % 2)
        pool = phasor.workers(4, peak, slo)
        state, load, count = phasor.init(4), [0.0] * 4, [0] * 4
        for _ in range(40):
            opened = rng.random(4) < (0.7 if rng.random() < 0.8 else 0.0)
            if rng.random() < 0.7:
                cost = float(rng.choice([rng.uniform(0, 3), np.nan, -1.0]))
                state, chosen = route(state, cost, pool._replace(open=opened * 1.0), before=before)
                cost = max(cost, 0.0) if np.isfinite(cost) else 0.0
                late = [(load[w] + (0.0 if before else cost)) / (peak[w] * slo[w]) for w in range(4)]
                able = [w for w in range(4) if opened[w]]
                expected = min(able, key=lambda w: late[w]) if able else -1
                assert int(chosen) == expected
                if able:
                    load[expected], count[expected] = load[expected] + cost, count[expected] + 1
            else:
                w, flop, done = int(rng.integers(4)), rng.uniform(-1, 2), int(rng.integers(-1, 3))
                state = phasor.update(state, w, flop, done)
                count[w] = max(count[w] - max(done, 0), 0)
                load[w] = max(load[w] - max(flop, 0.0), 0.0) if count[w] else 0.0
            assert state.queued_count.tolist() == count
            np.testing.assert_allclose(state.queued_flop, load, atol=1e-12)
            free = [1 - load[w] / (peak[w] * slo[w]) for w in range(4)]
            np.testing.assert_allclose(phasor.freeness(state, pool), free)
