"""What one routing decision costs: token budgets, Phasor and NetKV, live and in batches.

Max-min filling is sequential and irregular: the compiled loop wins, by forty times on large problems, so the simulator
is a loop. Independent decisions are one fused expression, on which JAX (`netkv.costs` under vmap) is the faster, up to
four times; it does no filtering by memory, and a burst in which each decision changes what the next one sees is a loop
again.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.registry import Row, benchmark, interleaved
from dmodels.control.netkv import DecodePool, NetKVRouter, Oracle, choose, costs
from dmodels.control.phasor import PhasorRouter
from dmodels.control.token_budget import TokenBudgetRouter, pools, settings
from dmodels.core.routing import RoutingPolicy
from dmodels.sim.network import max_min_rates

CALLS = 20_000
RATES = np.array([450e9, 25e9, 12.5e9, 6.25e9])


def live():
    """name -> a function that makes CALLS decisions."""
    for count, where in (
        (2, pools([8192], [8192, 65536], 64)),
        (6, pools([2**k for k in range(10, 15)], [2**k for k in range(10, 16)], 64)),
    ):
        router = TokenBudgetRouter(where, settings(miss_frac=0.01))
        router.on_response("prose", 9000, 2000)

        def dispatch(router=router):
            for i in range(CALLS):
                router.route("prose", 1000 + 7 * (i & 8191), 256)

        def learn(router=router):
            for i in range(CALLS):
                router.on_response("prose", 9000 + (i & 511), 2000)

        yield f"token budget: dispatch, {count} pools", dispatch
        yield f"token budget: feedback, {count} pools", learn
    for count in (8, 64, 1024, 10_000):
        prefill = PhasorRouter([121e12] * count, 0.4)

        def route(prefill=prefill):
            for _ in range(CALLS):
                prefill.update(prefill.route(1e12), 1e12, 1)

        yield f"Phasor: route and finish, {count} workers", route
    for count in (1024, 10_000):
        decode = NetKVRouter(np.random.default_rng(0).integers(0, 4, (8, count)), RATES)
        decode.observe_network([0.0, 0.0, 0.2, 0.2])
        decode.observe(np.arange(count), 1e18, 0, 0)
        hits = np.random.default_rng(1).random(count)

        def send(decode=decode, hits=hits):
            for _ in range(CALLS):
                decode.route(0, 2.5e9, hits)

        yield f"NetKV: route, {count} candidates", send


@benchmark()
def token_budget_dispatch(quick: bool) -> Iterator[Row]:
    """Microseconds of one live decision: token budgets, Phasor and NetKV, over up to 10,000 candidates."""
    for name, seconds in interleaved(dict(live()), 1 if quick else 9).items():
        yield {"case": name, "us_per_call": 1e6 * seconds / CALLS}


def fill_in_jax(capacity, path):
    """Progressive filling of one problem as a `while_loop`: all links at once, one bottleneck a step."""
    uses = jnp.zeros((path.shape[0], capacity.shape[0])).at[jnp.arange(path.shape[0])[:, None], path].set(1.0)

    def step(state):
        rate, left, free = state
        count = free @ uses
        share = jnp.where(count > 0, left / jnp.maximum(count, 1.0), jnp.inf)
        least = share.min()
        frozen = free * (uses @ jnp.where(share <= least, 1.0, 0.0) > 0)
        return rate + frozen * least, jnp.maximum(left - least * (frozen @ uses), 0.0), free - frozen

    start = (jnp.zeros(path.shape[0]), capacity, jnp.ones(path.shape[0]))
    return jax.lax.while_loop(lambda s: s[2].sum() > 0, step, start)[0]


def filling(batch: int, flows: int, links: int) -> dict[str, float]:
    """Problems per second of both engines on the same random problems, four links a flow."""
    rng = np.random.default_rng(0)
    capacity = rng.uniform(1, 4, (batch, links))
    path = np.argsort(rng.random((batch, flows, links)), -1)[..., :4]
    many = jax.jit(jax.vmap(fill_in_jax))
    np.testing.assert_allclose(many(capacity, path), max_min_rates(capacity, path), rtol=1e-9)
    took = interleaved(
        {
            "numba": lambda: max_min_rates(capacity, path),
            "jax": lambda: jax.block_until_ready(many(capacity, path)),
        }
    )
    return {f"{name}_per_s": batch / seconds for name, seconds in took.items()}


def deciding(pool: int, count: int) -> dict[str, float]:
    """Decisions per second of the three scorers over a pool of `pool` candidates."""
    rng = np.random.default_rng(0)
    oracle = Oracle(rng.integers(1, 4, (8, pool)), RATES, np.full(4, 1e-5), np.full(4, 0.2))
    state = DecodePool(np.full(pool, 1e15), np.zeros(pool), rng.integers(0, 30, pool).astype(float))
    source, kv, hits = rng.integers(0, 8, count), rng.uniform(1e8, 1e10, count), rng.uniform(0, 1, (count, pool))
    best = jax.jit(jax.vmap(lambda s, k, h: costs(oracle, s, k * (1 - h), state).total_s.argmin()))
    live = NetKVRouter(oracle.tier_map, RATES, 1e-5)
    live.observe_network(oracle.congestion)
    live.observe(np.arange(pool), *state[:3])
    few = min(count, 200)
    one_by_one = lambda: [live.route(source[r], kv[r], hits[r]) for r in range(few)]
    compiled = lambda: choose(RoutingPolicy.NETKV_FULL, oracle, source, kv, hits, state)
    assert (compiled().index == np.asarray(best(source, kv, hits))).all()
    assert live.route(source[0], kv[0], hits[0]) == compiled().index[0]
    took = interleaved(
        {
            "numba": compiled,
            "jax": lambda: jax.block_until_ready(best(source, kv, hits)),
            "python": one_by_one,
        }
    )
    return {f"{name}_per_s": (few if name == "python" else count) / seconds for name, seconds in took.items()}


@benchmark()
def netkv_engine(quick: bool) -> Iterator[Row]:
    """Max-min rates and NetKV's decisions per second by the compiled loop, by JAX and in plain Python."""
    with jax.enable_x64(True):
        sizes = ((1, 20, 40), (64, 20, 40), (1024, 20, 40), (64, 200, 200))
        for batch, flows, links in sizes[:1] if quick else sizes:
            what = f"max-min rates, {flows} flows, {links} links, batch {batch}"
            yield {"what": what} | filling(batch, flows, links)
        for pool, count in ((12, 200),) if quick else ((12, 50_000), (192, 5_000)):
            yield {"what": f"decisions over {pool} candidates"} | deciding(pool, count)
