"""The live routers in an asyncio gateway on loopback, with a fake engine that answers late and out of order.

Nothing lost, doubled or attributed to the wrong request; every decision is that of the pure functions on the same
feedback in the same order.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmodels.control import phasor
from dmodels.control import token_budget as tb
from dmodels.control.netkv import NetKVRouter
from dmodels.control.phasor import PhasorRouter
from dmodels.control.token_budget import TokenBudgetRouter
from dmodels.core.errors import InputError

POOLS = tb.pools([4096], [8192, 65536], [600, 600])
GAINS = tb.settings(gamma=1.0, miss_frac=0.02)
WORKERS, SECONDS_PER_TOKEN = 8, 1e-4
RATIOS = (4.5, 3.5, 2.0)


async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One JSON line per request; answers with usage.prompt_tokens after a random delay, so out of order."""

    async def answer(message):
        await asyncio.sleep(message["delay_s"])
        writer.write(json.dumps({"id": message["id"], "prompt_tokens": message["tokens"]}).encode() + b"\n")

    tasks = set()
    while line := await reader.readline():
        task = asyncio.create_task(answer(json.loads(line)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    writer.close()


async def gateway(rate_rps: float, seconds: float) -> list[tuple]:
    """The log of the router, in its own order: ("sent", id, ...) and ("answered", id, ...)."""
    rng = random.Random(0)
    server = await asyncio.start_server(engine, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
    budget, prefill, log, open_requests = TokenBudgetRouter(POOLS, GAINS), PhasorRouter([1.0] * WORKERS, 0.4), [], {}
    total = int(rate_rps * seconds)

    async def feedback():
        for _ in range(total):
            line = await reader.readline()
            message = json.loads(line)
            category, size, pool, worker, cost = open_requests.pop(message["id"])  # KeyError: doubled or unknown
            budget.queued[pool] -= 1
            budget.on_response(category, size, message["prompt_tokens"])
            prefill.update(worker, cost, 1)
            log.append(("answered", message["id"], category, size, message["prompt_tokens"], worker, cost))

    listening = asyncio.create_task(feedback())
    start = time.perf_counter()
    for i in range(total):
        ahead = start + i / rate_rps - time.perf_counter()
        if ahead > 0.002:
            await asyncio.sleep(ahead)
        elif i % 16 == 0:
            await asyncio.sleep(0)
        category = rng.randrange(3)
        tokens = max(1, int(rng.lognormvariate(7.0, 1.0)))
        size = max(1, int(tokens * RATIOS[category] * rng.lognormvariate(0.0, 0.15)))
        output = rng.randrange(16, 1024)
        queued = tuple(budget.queued)
        sent = budget.route(category, size, output)
        cost = sent.total_tokens * SECONDS_PER_TOKEN
        worker = prefill.route(cost)
        budget.queued[sent.pool] += 1
        open_requests[i] = (category, size, sent.pool, worker, cost)
        log.append(("sent", i, category, size, output, queued, sent, worker, cost))
        message = {"id": i, "tokens": tokens, "delay_s": rng.expovariate(20.0)}
        writer.write(json.dumps(message).encode() + b"\n")
    await asyncio.wait_for(listening, 60)
    writer.close()
    server.close()
    assert not open_requests and budget.queued == [0, 0] and prefill.queued_count == [0] * WORKERS
    return log


def replay(log: list[tuple]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(pools, totals, workers) that the pure functions choose, scanned over the same events."""
    sent = [event[0] == "sent" for event in log]
    column = lambda k, answered: np.array([e[answered if e[0] == "answered" else k] for e in log], float)
    queued = jnp.array([e[5] if e[0] == "sent" else (0, 0) for e in log], float)
    events = (
        jnp.array(sent),
        jnp.asarray(column(2, 2)).astype(jnp.int32),
        jnp.asarray(column(3, 3)),
        jnp.asarray(column(4, 4)),
        queued,
        jnp.asarray(column(7, 5)).astype(jnp.int32),
        jnp.asarray(column(8, 6)),
    )
    pool = phasor.workers(WORKERS, 1.0, 0.4)

    def step(states, event):
        budget, prefill = states
        is_sent, category, size, number, waiting, worker, cost = event
        choice = tb.route(budget, category, size, number, waiting, POOLS, GAINS)
        routed, chosen = phasor.route(prefill, cost, pool)
        learned = tb.update(budget, category, size, number, GAINS)
        relieved = phasor.update(prefill, worker, cost, 1.0)
        pick = lambda a, b: jax.tree.map(lambda x, y: jnp.where(is_sent, x, y), a, b)
        return (pick(budget, learned), pick(routed, relieved)), (choice.pool, choice.total_tokens, chosen)

    start = (tb.init(3, GAINS), phasor.init(WORKERS))
    _, out = jax.jit(lambda e: jax.lax.scan(step, start, e))(events)
    return tuple(np.asarray(x)[sent] for x in out)


def check(log: list[tuple], total: int) -> None:
    sent = [e for e in log if e[0] == "sent"]
    answered = [e for e in log if e[0] == "answered"]
    assert [e[1] for e in sent] == list(range(total))
    assert sorted(e[1] for e in answered) == list(range(total))  # none lost, none twice
    order = {(e[0], e[1]): k for k, e in enumerate(log)}
    assert all(order["answered", i] > order["sent", i] for i in range(total))
    by_id = {e[1]: e for e in sent}
    assert all(by_id[e[1]][2:4] == e[2:4] for e in answered)  # feedback reached its own request
    assert [e[1] for e in answered] != sorted(e[1] for e in answered)  # and did come out of order
    pools, totals, workers = replay(log)
    np.testing.assert_array_equal(pools, [e[6].pool for e in sent])
    np.testing.assert_array_equal(totals, [e[6].total_tokens for e in sent])
    np.testing.assert_array_equal(workers, [e[7] for e in sent])


def test_a_short_run():
    check(asyncio.run(gateway(500.0, 1.0)), 500)


@pytest.mark.slow
def test_two_thousand_requests_a_second_for_twenty_seconds():
    check(asyncio.run(gateway(2000.0, 20.0)), 40_000)


def test_requests_of_unknown_cost_spread_as_others_do():
    router = PhasorRouter([121e12] * 4, 0.4)
    assert sorted(router.route(math.nan) for _ in range(4)) == [0, 1, 2, 3]  # though none was known
    known = PhasorRouter([121e12] * 4, 0.4)
    for _ in range(100):
        known.route(1e12), known.route(math.inf)
    assert max(known.queued_count) - min(known.queued_count) <= 1 and sum(known.queued_count) == 200


def test_a_cost_that_is_not_known_counts_as_the_mean_of_those_that_are():
    """Of 1, 3 and a negative one, which is none: 4/3; of nothing known, and of nothing but none, one FLOP."""
    router = PhasorRouter([10.0], 1.0)
    for flop in (1.0, 3.0, -5.0, math.nan):
        router.route(flop)
    assert router.queued_flop == pytest.approx([4.0 + 4.0 / 3.0]) and router.queued_count == [4]
    assert router.freeness() == pytest.approx([1.0 - 16.0 / 30.0])
    for known in ([], [0.0]):
        idle = PhasorRouter([10.0], 1.0)
        for flop in (*known, math.inf, math.inf):
            idle.route(flop)
        assert idle.queued_flop == [2.0]


@pytest.mark.parametrize("reading", ["free_bytes", "queued", "batch", "hit"])
def test_a_candidate_of_unknown_state_gets_no_more_than_its_share(reading):
    router = NetKVRouter(np.full((1, 8), 2), [450e9, 6.25e9, 3.125e9, 1.5625e9])
    router.observe_network([0.0, 0.0, 0.2, 0.2])
    router.observe(range(8), free_bytes=180e9, queued=0, batch=0)
    hit = np.zeros(8)
    if reading == "hit":
        hit[0] = math.nan
    else:
        router.observe(0, **({"free_bytes": 180e9, "queued": 0, "batch": 0} | {reading: math.nan}))
    chosen = np.bincount([router.route(0, 2.5e9, hit) for _ in range(400)], minlength=8)
    assert chosen[0] <= 1.1 * chosen.mean()


@pytest.mark.parametrize("peak", [0.0, math.nan, -1.0, math.inf])
def test_a_worker_without_a_speed_is_refused(peak):
    with pytest.raises(InputError, match="finite numbers above 0"):
        PhasorRouter([121e12, peak], 0.4)
