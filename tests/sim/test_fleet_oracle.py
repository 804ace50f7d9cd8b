"""The compiled fleet against one in plain Python: any policy, kind of prefill, law, failure, prefix and closed loop."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from dmodels.sim import fleet
from dmodels.sim.batching import TokenLaw
from dmodels.sim.fleet import POLICIES, Change, Event, Pool, Prefixes, RoutingPolicy, closed_loop
from dmodels.sim.requests import Prefill
from tests.sim import fleet_oracle as oracle


def laws(rng, slots: int, chunk: int, looks_at_tokens: bool):
    """(as the simulator takes it, as a function of who is in flight, who answers, and prompt tokens)."""
    base, each, token = rng.uniform(0.01, 0.03), rng.uniform(1e-4, 4e-3), rng.uniform(1e-6, 3e-5)
    if not looks_at_tokens:
        return (lambda n: base + each * n), (lambda n, answering, prompts: base + each * n)
    decodes = bool(rng.integers(2))
    law = TokenLaw.tabulated(lambda n, t: base + each * n + token * t, slots, slots * chunk, 3, decodes=decodes)
    if decodes:
        return law, lambda n, answering, prompts: base + each * answering + token * prompts
    return law, lambda n, answering, prompts: base + each * n + token * (answering + prompts)


def traffic(rng, n: int, rate: float):
    prompt = np.clip(np.rint(rng.lognormal(6.0, 1.0, n)), 1, 6000)
    output = np.where(rng.random(n) < 0.1, 1, np.maximum(1, np.rint(rng.lognormal(2.5, 0.9, n))))
    return np.cumsum(rng.exponential(1 / rate, n) * rng.choice([0.1, 1.0, 3.0], n)), prompt, output


def asked(rng, tokens: bool, prefill: Prefill):
    """Pools that grow in context, what serves them, and the same for the oracle."""
    limits = [np.inf] if rng.random() < 0.5 else [900.0, 2500.0, 5000.0][: int(rng.integers(2, 4))]
    pools, plain = [], []
    for limit in limits:
        slots, chunk = int(rng.integers(1, 5)), int(rng.choice([64, 512]))
        law, seconds = laws(rng, slots, chunk, tokens)
        pools.append(Pool(int(rng.integers(1, 5)), slots, law, limit, chunk, prefill, bool(rng.integers(2))))
        plain.append(seconds)
    return pools, plain


def same(served, requests):
    for name in ("arrival", "admitted", "first", "end"):
        told = getattr(served, {"first": "first_token_s"}.get(name, f"{name}_s"))
        np.testing.assert_allclose(told, [getattr(r, name) for r in requests], rtol=0, atol=1e-8, err_msg=name)
    assert served.instance.tolist() == [r.instance for r in requests]
    assert served.restarts.tolist() == [r.lost for r in requests]


def troubles(rng, instances: int, until: float):
    pick = lambda most: int(rng.integers(most))
    times = rng.uniform(0, until, pick(9))
    return [Event(float(t), Change(pick(len(Change))), pick(instances), rng.uniform(0.5, 3)) for t in times]


@pytest.mark.parametrize("tokens", [False, True], ids=["t(n)", "t(n, tokens)"])
@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.name)
def test_a_fleet_request_by_request(policy, tokens):
    lost = spilled = 0
    for seed in range(10):
        rng = np.random.default_rng([seed, policy.number, tokens])
        pools, plain = asked(rng, tokens, Prefill(int(rng.integers(3))))
        n = 90
        arrival, prompt, output = traffic(rng, n, rng.uniform(5, 60))
        total = prompt + output
        believed = total if rng.random() < 0.5 else total * rng.uniform(0.5, 1.5, n)
        cached = np.floor(prompt * rng.choice([0.0, 0.4]))
        spill = float(rng.choice([np.inf, 0.0, 1.5]))
        events = troubles(rng, sum(pool.instances for pool in pools), arrival[-1]) if seed % 2 else []
        prefixes, remembered = None, 1
        ids, own = rng.integers(-1, 6, n), np.floor(prompt * rng.uniform(0.2, 0.9, n))
        if rng.random() < 0.6:
            remembered = int(rng.integers(1, 4))
            prefixes = Prefixes(ids, own, remembered)
        weight, key = rng.uniform(0.5, 9.0), jax.random.key(seed)
        served = fleet.simulate(
            *(arrival, prompt, output, pools, policy),
            **{"key": key, "cached_tokens": cached, "route_tokens": believed, "spill_queue": spill},
            **{"events": events, "prefixes": prefixes, "cache_weight": weight},
        )
        with jax.enable_x64(True):
            draws = np.asarray(jax.random.uniform(key, (2, n), float))
        whole = (column.astype(int) for column in (prompt, output, cached))
        rows = zip(arrival, *whole, believed, zip(*draws, strict=True), strict=True)
        requests = [oracle.Request(i, *row) for i, row in enumerate(rows)]
        if prefixes is not None:
            for r in requests:
                r.prefix, r.prefix_tokens = int(ids[r.number]), int(own[r.number])
        slow = oracle.Fleet(
            pools, plain, requests, policy, spill=spill, events=events, remembered=remembered, weight=weight
        ).run()
        same(served, slow.requests)
        lost += sum(r.lost for r in requests)
        for r in requests:
            first = next((pool for pool in pools if r.believed <= pool.max_tokens), None)
            spilled += r.instance >= 0 and slow.instances[r.instance].pool is not first
    assert lost and spilled


@pytest.mark.parametrize("policy", [RoutingPolicy.SHORTEST_QUEUE, RoutingPolicy.RANDOM, RoutingPolicy.PROMPTS])
def test_clients_in_a_closed_loop_request_by_request(policy):
    for seed in range(6):
        rng = np.random.default_rng([seed, policy.number])
        pools, plain = asked(rng, bool(seed % 2), Prefill(int(rng.integers(3))))
        clients, rounds = int(rng.integers(1, 9)), 12
        n, think = clients * rounds, rng.exponential(0.5, (clients, rounds))
        _, prompt, output = traffic(rng, n, 1.0)
        prompt = np.minimum(prompt, pools[-1].max_tokens - output)
        until, key = float(rng.choice([np.inf, 6.0])), jax.random.key(seed)
        shape = (clients, rounds)
        lengths = prompt.reshape(shape), output.reshape(shape)
        served = closed_loop.simulate(think, *lengths, pools, policy, until_s=until, key=key)
        with jax.enable_x64(True):
            draws = np.asarray(jax.random.uniform(key, (2, n), float))
        requests = [
            oracle.Request(i, np.nan, int(p), int(o), 0, p + o, tuple(draws[:, i]))
            for i, (p, o) in enumerate(zip(prompt, output, strict=True))
        ]
        for c in range(clients):
            requests[c * rounds].arrival = think[c, 0]
        slow = oracle.Fleet(pools, plain, requests, policy, until=until)

        def after(r, slow=slow, think=think, rounds=rounds):
            if (r.number + 1) % rounds == 0:
                return None
            following = slow.requests[r.number + 1]
            following.arrival = r.end + think[r.number // rounds, r.number % rounds + 1]
            return following

        slow.after = after
        slow.run()
        asked_then = [r.arrival if r.arrival <= until else np.nan for r in requests]
        for r, arrival in zip(requests, asked_then, strict=True):
            r.arrival = arrival
        np.testing.assert_allclose(served.arrival_s, asked_then, rtol=0, atol=1e-8)
        np.testing.assert_allclose(served.end_s, [r.end for r in requests], rtol=0, atol=1e-8)
        if until == np.inf:
            same(served, requests)
