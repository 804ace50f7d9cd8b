"""Selection: three implementations agree, no policy picks an instance without room, bad input says what is wrong."""

import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels.control import congestion as cg
from dmodels.control.netkv import (
    POLICIES,
    Choice,
    DecodePool,
    NetKVRouter,
    Oracle,
    Scoring,
    choose,
    costs,
    dispatch,
    kernels,
    oracle_problems,
)
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.routing import RoutingPolicy
from dmodels.models.latency import NETKV_CURVE, BatchingCurve

GBIT = 1e9 / 8
RATES = np.array([450e9, 50 * GBIT, 25 * GBIT, 12.5 * GBIT])
LATENCY = np.array([1e-6, 5e-6, 10e-6, 20e-6])


def random_case(seed, n=16, decode=12, prefill=4):
    rng = np.random.default_rng(seed)
    oracle = Oracle(rng.integers(0, 4, (prefill, decode)), RATES, LATENCY, rng.uniform(0, 0.95, 4))
    count = lambda most: rng.integers(0, most, (n, decode)).astype(float)
    pool = DecodePool(rng.choice([0.0, 1e9, 1e10, 1e12], (n, decode)), count(4), count(65), count(5))
    hits = rng.choice([0.0, 0.5, 1.0], (n, decode)) * rng.uniform(0, 1, (n, decode))
    return oracle, rng.integers(0, prefill, n), rng.uniform(0, 2e10, n), hits, pool, rng.integers(0, 20, (prefill, 4))


@given(seed=st.integers(0, 10_000), policy=st.sampled_from(POLICIES), reserve=st.sampled_from([0.0, 1e9]))
def test_no_policy_picks_an_instance_without_room(seed, policy, reserve):
    oracle, source, kv, hits, pool, flying = random_case(seed)
    choice = choose(policy, oracle, source, kv, hits, pool, in_flight=flying, reserve_bytes=reserve)
    needs = kv[:, None] * (1 - hits) + reserve
    room = needs <= pool.free_bytes
    taken = choice.index >= 0
    assert (taken == room.any(1)).all()  # reachable: every tier has bandwidth
    assert room[np.flatnonzero(taken), choice.index[taken]].all()
    assert ((choice.flags[~taken] & int(Flag.INFEASIBLE)) > 0).all() and (choice.flags[taken] == 0).all()


EDGE = st.sampled_from([0.0, 0.3, 1.0, 1.5, 16.0, 63.0, 64.0, 65.0, np.nan, np.inf])
SIZE = st.one_of(EDGE, st.floats(0, 1e11))


@settings(max_examples=400)
@given(payload=SIZE, rate=SIZE, congestion=EDGE, flying=EDGE, latency=EDGE, queued=EDGE, batch=EDGE)
def test_the_compiled_law_is_the_jax_law(payload, rate, congestion, flying, latency, queued, batch):
    """Full and overfull tiers, dead ones, missing readings: the same seconds, and inf for what is not known."""
    pace = kernels.pace_s_per_byte(rate, congestion, flying, 16.0)
    compiled = kernels.post_prefill_s(payload, pace, latency, queued, batch, NETKV_CURVE)
    oracle = Oracle(np.array([[0]]), np.array([rate]), np.array([latency]), np.array([congestion]))
    with jax.enable_x64(True):
        state = DecodePool(np.array([np.inf]), np.array([queued]), np.array([batch]))
        traced = float(costs(oracle, 0, np.array([payload]), state, np.array([flying])).total_s[0])
    assert not math.isnan(compiled)
    assert compiled == pytest.approx(traced, rel=1e-12)
    if any(math.isnan(x) for x in (payload, latency, queued, batch)):
        assert math.isinf(compiled)


def test_batched_choices_are_the_least_of_the_jax_costs():
    score = jax.jit(lambda *a, **limit: costs(*a, **limit).total_s)
    for seed in range(40):
        oracle, source, kv, hits, pool, flying = random_case(seed, n=4)
        choice = choose(RoutingPolicy.NETKV_FULL, oracle, source, kv, hits, pool, in_flight=flying)
        for r in range(4):
            row = DecodePool(*(x[r] for x in pool))
            total = np.asarray(score(oracle, source[r], kv[r] * (1 - hits[r]), row, flying[source[r]]))
            room = kv[r] * (1 - hits[r]) <= row.free_bytes
            if room.any():
                assert choice.cost[r] == pytest.approx(total[room].min(), rel=1e-12)
                assert choice.cost[r] == pytest.approx(total[choice.index[r]], rel=1e-12)
        link = float(np.median(oracle.tier_bandwidth_bytes_per_s)) / 2
        choice = choose(
            RoutingPolicy.NETKV_FULL, oracle, source, kv, hits, pool, in_flight=flying, destination_bytes_per_s=link
        )
        for r in np.flatnonzero(choice.index >= 0):  # what is on its way to the instance shares its link
            row = DecodePool(*(x[r] for x in pool))
            asked = (oracle, source[r], kv[r] * (1 - hits[r]), row, flying[source[r]])
            total = np.asarray(score(*asked, destination_bytes_per_s=link))
            assert choice.cost[r] == pytest.approx(total[choice.index[r]], rel=1e-12)


def test_what_is_not_known_is_never_chosen_over_what_is():
    """A worker of unknown memory, queue or hit, and a tier of unknown congestion, stand first in the list."""
    good = DecodePool(np.full(2, 1e12), np.zeros(2), np.zeros(2))
    oracle = Oracle(np.array([[2, 3]]), RATES, LATENCY, np.zeros(4))
    first = lambda x: np.array([np.nan, x])
    cases = [(oracle, 0.0, good._replace(**{n: first(1e12)})) for n in ("free_bytes", "queued", "batch")]
    cases += [(oracle, first(0.0), good), (oracle._replace(congestion=np.array([0, 0, np.nan, 0])), 0.0, good)]
    for where, hits, pool in cases:
        assert choose(RoutingPolicy.NETKV_FULL, where, 0, 1e9, hits, pool).index.tolist() == [1]


def test_the_ladder_uses_one_more_signal_at_each_rung():
    """Two candidates on tiers 2 and 3. Each rung flips on its own signal and on none above it."""
    pool = DecodePool(np.full(2, 1e12), np.zeros(2), np.zeros(2))
    idle = Oracle(np.array([[2, 3]]), RATES, np.zeros(4), np.zeros(4))
    busy = idle._replace(congestion=np.array([0, 0, 0.8, 0.0]))
    pick = lambda policy, oracle, flying, hits=(0.0, 0.0): int(
        choose(policy, oracle, 0, 1e10, np.array(hits), pool, in_flight=np.array([flying])).index[0]
    )
    none, two = [0, 0, 0, 0], [0, 0, 2, 0]
    assert [
        pick(p, busy, two) for p in (RoutingPolicy.NETKV_TOPO, RoutingPolicy.NETKV_STATIC, RoutingPolicy.NETKV_FULL)
    ] == [0, 1, 1]
    assert [
        pick(p, busy, none) for p in (RoutingPolicy.NETKV_TOPO, RoutingPolicy.NETKV_STATIC, RoutingPolicy.NETKV_FULL)
    ] == [0, 0, 1]
    assert (
        pick(RoutingPolicy.CACHE, idle, none, (0.0, 0.1)) == 1 == pick(RoutingPolicy.CACHE_LOAD, idle, none, (0.0, 0.1))
    )
    assert pick(RoutingPolicy.NETKV_TOPO, idle, none, (0.0, 0.1)) == 0
    loaded = pool._replace(batch=np.array([9.0, 1.0]))
    assert int(choose(RoutingPolicy.LOAD, idle, 0, 1e10, 0.0, loaded).index[0]) == 1
    # of equal prefixes the idler, by whatever little more load; of unequal ones the longer, whatever the load
    by_prefix = lambda batch, hits: int(
        choose(RoutingPolicy.CACHE, idle, 0, 1e10, np.array(hits), pool._replace(batch=np.array(batch))).index[0]
    )
    assert by_prefix([9.0, 8.0], (0.3, 0.3)) == 1 and by_prefix([0.0, 60.0], (0.30, 0.31)) == 1


@pytest.mark.parametrize("tier", [-1, 4])
def test_a_tier_or_a_source_that_does_not_exist_is_refused_by_its_number(tier):
    pool = DecodePool(np.full(3, 1e12), np.zeros(3), np.zeros(3))
    tiers = np.array([[2, tier, 3]])
    bad = Oracle(tiers, RATES, np.zeros(4), np.zeros(4))
    with pytest.raises(InputError, match=f"^tier_map: tier {tier}; accepted: 0..3$"):
        choose(RoutingPolicy.LOAD, bad, 0, 1e9, 0.0, pool)
    with pytest.raises(InputError, match=f"^tier_map: tier {tier}; accepted: 0..3$"):
        NetKVRouter(tiers, RATES)
    assert [f"tier_map holds tier {tier}; accepted: 0..3"] == oracle_problems(bad)
    four = Oracle(np.full((4, 3), 2), RATES, np.zeros(4), np.zeros(4))
    with pytest.raises(InputError, match=f"^source: instance {tier}; accepted: 0..3$"):
        choose(RoutingPolicy.LOAD, four, [2, tier, 3], 1e9 * np.ones(3), 0.0, pool)


def test_freeness_goes_by_free_memory_per_request():
    """Llumnix: 12 GB free for three requests are less than 9 GB for two; queued requests count; idle counts as one."""
    idle = Oracle(np.array([[2, 3]]), RATES, np.zeros(4), np.zeros(4))
    pick = lambda free, queued, batch: int(
        choose(RoutingPolicy.FREENESS, idle, 0, 1e9, 0.0, DecodePool(*map(np.array, (free, queued, batch)))).index[0]
    )
    assert pick([12e9, 9e9], [0.0, 0.0], [3.0, 2.0]) == 1
    assert pick([12e9, 9e9], [0.0, 1.0], [3.0, 2.0]) == 0
    assert pick([3e9, 5e9], [0.0, 0.0], [0.0, 2.0]) == 0
    assert pick([0.5e9, 2e9], [0.0, 0.0], [0.0, 9.0]) == 1  # no room for the request


def test_a_burst_spreads_by_the_integer_rule_of_equation_4():
    """Six equal transfers from one source over tiers of 2:1: shares (n+1)/B equalise, so 4 near and 2 far."""
    oracle = Oracle(np.array([[2, 2, 3, 3]]), RATES, np.zeros(4), np.zeros(4))
    pool = DecodePool(np.full(4, 1e15), np.zeros(4), np.zeros(4))
    choice, after, flying = dispatch(RoutingPolicy.NETKV_STATIC, oracle, np.zeros(6, int), np.full(6, 1e11), 0.0, pool)
    assert flying[0].tolist() == [0, 0, 4, 2]
    assert after.batch.sum() == 6 and after.free_bytes.sum() == 4e15 - 6e11
    assert [i.payload_bytes for i in choice.intents] == [1e11] * 6
    assert pool.batch.sum() == 0  # inputs stay as they are


def test_round_robin_takes_turns_and_skips_the_full():
    oracle = Oracle(np.array([[3, 3, 3]]), RATES, LATENCY, np.zeros(4))
    pool = DecodePool(np.array([1e12, 0.0, 1e12]), np.zeros(3), np.zeros(3))
    choice, *_ = dispatch(RoutingPolicy.ROUND_ROBIN, oracle, np.zeros(4, int), np.full(4, 1e9), 0.0, pool)
    assert choice.index.tolist() == [0, 2, 0, 2]


def test_decisions_side_by_side_take_turns_in_their_order():
    oracle = Oracle(np.array([[3, 3, 3]]), RATES, LATENCY, np.zeros(4))
    pool = DecodePool(np.array([1e12, 0.0, 1e12]), np.zeros(3), np.zeros(3))
    choice = choose(RoutingPolicy.ROUND_ROBIN, oracle, np.zeros(7, int), np.full(7, 1e9), 0.0, pool)
    assert choice.index.tolist() == [0, 2, 2, 0, 2, 2, 0]  # 1 is full, and its turn is the next one's
    assert choice.cost.tolist() == [0.0] * 7  # nothing is compared


def test_a_cluster_may_have_one_tier():
    oracle = Oracle(np.zeros((1, 2), int), RATES[2:3], np.zeros(1), np.zeros(1))
    pool = DecodePool(np.full(2, 1e12), np.array([0.0, 0.0]), np.array([9.0, 3.0]))
    choice, _, flying = dispatch(RoutingPolicy.NETKV_FULL, oracle, np.zeros(3, int), np.full(3, 1e9), 0.0, pool)
    assert choice.index.tolist() == [1, 1, 1] and flying.tolist() == [[3.0]]


def test_the_destination_term_avoids_incast():
    oracle = Oracle(np.array([[2, 2]]), RATES, LATENCY, np.zeros(4))
    pool = DecodePool(np.full(2, 1e12), np.zeros(2), np.zeros(2), np.array([3.0, 0.0]))
    assert choose(RoutingPolicy.NETKV_FULL, oracle, 0, 1e10, 0.0, pool).index[0] == 0
    aware = choose(RoutingPolicy.NETKV_FULL, oracle, 0, 1e10, 0.0, pool, destination_bytes_per_s=RATES[2])
    assert aware.index[0] == 1


def test_faults_of_an_oracle_are_sentences():
    bad = Oracle(np.array([[1, 2, 3]]), np.array([1e9, 0.0, 1e9, 1e9]), LATENCY, np.array([0, 0, 1.0, -0.1]))
    found = oracle_problems(bad)
    assert len(found) == 3 and "disconnected" in found[0] and "congestion 1" in found[1] and "-0.1" in found[2]
    assert not oracle_problems(Oracle(np.array([[2]]), RATES, LATENCY, np.zeros(4)))
    assert oracle_problems(Oracle(np.zeros((1, 0), int), RATES, LATENCY, np.zeros(4)))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, -1.0])
def test_what_is_no_rate_no_latency_and_no_share_is_a_fault_each(number):
    """But for a latency that never ends, which is one."""
    tier, bad = np.array([[0]]), np.array([number])
    said = ["bandwidth", "latency", "congestion"]
    broken = [Oracle(tier, *(bad if word == other else np.array([0.5]) for other in said)) for word in said]
    for word, problems in zip(said, map(oracle_problems, broken), strict=True):
        assert len(problems) == (0 if (word, number) == ("latency", math.inf) else 1)
        assert all(f"tier 0 has {word} {number:g}" in problem for problem in problems)


def test_dead_tiers_are_infeasible_and_flagged():
    pool = DecodePool(np.full(1, 1e12), np.zeros(1), np.zeros(1))
    for congestion, rate in ((1.0, RATES), (0.0, np.zeros(4))):
        oracle = Oracle(np.array([[3]]), rate, LATENCY, np.full(4, congestion))
        choice: Choice = choose(RoutingPolicy.NETKV_FULL, oracle, 0, 1e9, 0.0, pool)
        assert choice.index[0] == -1 and choice.flags[0] & Flag.INFEASIBLE and math.isinf(choice.cost[0])
    huge = choose(RoutingPolicy.LOAD, oracle, 0, 1e13, 0.0, pool)
    assert huge.flags[0] & Flag.NO_FIT


def test_empty_pools_and_wrong_shapes_raise_one_line():
    pool = DecodePool(np.ones(2), np.ones(2), np.ones(2))
    with pytest.raises(InputError, match="at least one decode"):
        choose(RoutingPolicy.LOAD, Oracle(np.zeros((1, 0), int), RATES, LATENCY, np.zeros(4)), 0, 1.0, 0.0, pool)
    oracle = Oracle(np.array([[2, 3]]), RATES, LATENCY, np.zeros(4))
    with pytest.raises(InputError, match="source: instance 1"):
        choose(RoutingPolicy.LOAD, oracle, 1, 1.0, 0.0, pool)
    for asked, said in (
        ((1.0, 0.0, pool._replace(queued=np.ones(3))), r"queued: shape \(3,\); accepted: one number per .* \(2\)"),
        ((np.ones(4), np.zeros((3, 2)), pool), r"hit_frac: 3 rows; accepted: 1 or one per request \(4\)"),
        ((np.ones(4), 0.0, pool._replace(batch=np.ones((3, 2)))), r"pool: 3 rows; accepted: 1 or one .* \(4\)"),
    ):
        with pytest.raises(InputError, match=said):
            choose(RoutingPolicy.LOAD, oracle, 0, *asked)
    with pytest.raises(InputError, match=r"in_flight: shape \(1, 3\); accepted: \(1, 4\)"):
        choose(RoutingPolicy.LOAD, oracle, 0, 1.0, 0.0, pool, in_flight=np.zeros((1, 3)))
    with pytest.raises(InputError, match=f"policy: {RoutingPolicy.RANDOM}; accepted: {', '.join(POLICIES)}$"):
        choose(RoutingPolicy.RANDOM, oracle, 0, 1.0, 0.0, pool)


def test_autoregression_forecasts_better_than_the_last_reading():
    rng = np.random.default_rng(0)
    x = np.empty(6000)
    x[0] = 0.0
    for t in range(1, len(x)):
        x[t] = 0.7 * x[t - 1] + rng.normal(0, 0.05)
    x = np.clip(0.4 + x, 0, 0.99)

    def step(state, reading):
        state = cg.ar1_update(state, reading, 0.01)
        return state, (cg.ar1_forecast(state, 5.0), cg.ar1_coefficient(state))

    _, (forecast, phi) = jax.lax.scan(step, cg.ar1_init(x[0]), x)
    forecast, late = np.asarray(forecast), slice(1000, len(x) - 5)
    error = lambda f: np.sqrt(np.mean((f - x[1005:]) ** 2))
    assert error(forecast[late]) < 0.8 * error(x[late])
    assert np.asarray(phi)[-1] == pytest.approx(0.7, abs=0.1)


def test_smoothing_cuts_white_noise_to_its_known_share():
    x = np.random.default_rng(1).normal(0.5, 0.05, 20_000)
    step = lambda s, r: ((n := cg.smoothing_update(s, r, 0.2)), cg.smoothing_forecast(n))
    _, level = jax.lax.scan(step, cg.smoothing_init(x[0]), x)
    assert np.asarray(level)[100:].var() == pytest.approx(0.05**2 * 0.2 / 1.8, rel=0.1)


NO_FIT, DEAD, WRONG = (int(f) for f in (Flag.NO_FIT | Flag.INFEASIBLE, Flag.INFEASIBLE, Flag.OUT_OF_DOMAIN))


def oracle(*tiers, rate=1.0, congestion=0.0):
    """One prefill instance, a decode instance on each of `tiers`, of two."""
    return Oracle(np.array([tiers]), np.array([rate, rate]), np.zeros(2), np.array([congestion, congestion]))


def pool(*free_bytes):
    free = np.array(free_bytes, float)
    return DecodePool(free, np.zeros(free.shape), np.zeros(free.shape))


def test_a_sound_oracle_has_no_problem_and_an_unknown_tier_is_named():
    assert oracle_problems(oracle(0, 1)) == [] == oracle_problems(oracle(0, 1, rate=0.5, congestion=0.99))
    (above,), (below,) = oracle_problems(oracle(0, 2)), oracle_problems(oracle(-1, 1))
    assert "tier 2" in above and "tier -1" in below
    assert len(oracle_problems(oracle(0, rate=0.0))) == 1 == len(oracle_problems(oracle(1, congestion=1.0)))


def flags(kv_bytes, hits, free, **asked):
    return choose(RoutingPolicy.NETKV_FULL, oracle(0, 1, **asked), 0, kv_bytes, hits, pool(*free)).flags.tolist()


def test_what_a_rejection_says():
    """Dead links reject everybody; no room is named where what must move fits no instance."""
    dead = {"rate": 0.0}
    assert flags([10.0], [0.0, 0.5], (4.0, 5.0), **dead) == [DEAD]  # 5 bytes fit 5
    assert flags([10.1], [0.0, 0.5], (4.0, 5.0), **dead) == [NO_FIT] == flags([10.0], [0.0, 0.5], (5.0, 4.0), **dead)
    assert flags([10.0, 20.0], [0.0, 0.5], (4.0, 5.0)) == [0, NO_FIT]
    kept = [
        choose(RoutingPolicy.LOAD, oracle(0, 1), 0, [3.0], 0.0, pool(4.0, 5.0), reserve_bytes=reserve).flags.tolist()
        for reserve in (2.0, 2.1)
    ]
    assert kept == [[0], [NO_FIT]]  # what is kept free counts
    dead_and_alive = Oracle(np.array([[0], [1]]), np.array([0.0, 1.0]), np.zeros(2), np.zeros(2))
    burst, after, _ = dispatch(RoutingPolicy.NETKV_FULL, dead_and_alive, [0, 1, 0, 1], [9.0] * 4, 0.0, pool(20.0))
    assert (burst.flags.tolist(), after.free_bytes.tolist()) == ([DEAD, 0, DEAD, 0], [2.0])  # room when it was asked
    burst, after, _ = dispatch(RoutingPolicy.NETKV_FULL, dead_and_alive, [1, 0], [9.0] * 2, 0.5, pool(14.0))
    assert (burst.flags.tolist(), after.free_bytes.tolist()) == ([0, DEAD], [9.5])  # what is there already takes none


def test_each_of_many_pools_answers_for_itself():
    both = DecodePool(*(np.array(x) for x in ([[5.0, 1.0], [1.0, 20.0]], np.zeros((2, 2)), np.zeros((2, 2)))))
    many = choose(RoutingPolicy.NETKV_FULL, oracle(0, 1, rate=0.0), 0, [10.0, 10.0], [0.0, 0.0], both)
    assert many.flags.tolist() == [NO_FIT, DEAD]
    own = DecodePool(both.free_bytes, np.array([0.0, 3.0]), np.array([[0.0, 9.0]]))  # what is the same in all, once
    told = own._replace(queued=np.tile([0.0, 3.0], (2, 1)), batch=np.tile([0.0, 9.0], (2, 1)))
    one, other = (choose(RoutingPolicy.LOAD, oracle(0, 1), 0, [1.0, 1.0], 0.0, state) for state in (own, told))
    assert one.index.tolist() == other.index.tolist() == [0, 0] and one.cost.tolist() == other.cost.tolist()


@pytest.mark.parametrize(
    "kv_bytes, hits, congestion",
    [(np.inf, 0.0, 0.0), (-1.0, 0.0, 0.0), (1.0, -0.1, 0.0), (1.0, 1.1, 0.0), (1.0, 0.0, 1.0)],
)
def test_inputs_outside_the_domain_are_flagged(kv_bytes, hits, congestion):
    found = choose(
        RoutingPolicy.NETKV_FULL, oracle(0, 1, congestion=congestion), 0, [kv_bytes], [0.5, hits], pool(9.0, 9.0)
    )
    assert int(found.flags[0]) & WRONG


def test_the_first_instance_gets_its_intent_too():
    choice, after, _ = dispatch(RoutingPolicy.NETKV_FULL, oracle(0, 1), 0, [10.0, 99.0], [0.4, 0.0], pool(50.0, 0.0))
    (intent,) = choice.intents  # the second request fits nowhere
    assert (intent.source, intent.destination, intent.payload_bytes) == (0, 0, pytest.approx(6.0))
    assert choice.index.tolist() == [0, -1] and after.free_bytes.tolist() == [44.0, 0.0]


def test_what_is_not_said_is_as_if_it_were_written_out():
    """A pool that is full to the byte, links and tiers that are busy, hits against load: each number would be seen."""
    case = Oracle(np.array([[2, 3, 3]]), RATES, LATENCY, np.array([0.0, 0.0, 0.5, 0.0]))
    state = DecodePool(np.array([1e9, 1e12, 1e9]), np.array([0.0, 2.0, 0.0]), np.array([9.0, 64.0, 2.0]))
    written = {
        "in_flight": np.zeros((1, 4)),
        "reserve_bytes": 0.0,
        "curve": BatchingCurve(0.01248, 0.000115, 64.0),
        "cache_weight": 0.5,
        "max_in_flight": 16.0,
        "destination_bytes_per_s": math.inf,
    }
    for policy in (RoutingPolicy.CACHE_LOAD, RoutingPolicy.NETKV_FULL):
        asked = policy, case, 0, np.full(3, 1e9), 0.0, state
        told = state._replace(inbound=np.zeros(3))
        one, other = choose(*asked), choose(*asked[:-1], told, **written)
        assert one.index.tolist() == other.index.tolist() and one.cost.tolist() == other.cost.tolist()
        (one, after, flying), (other, later, flown) = dispatch(*asked), dispatch(*asked[:-1], told, **written)
        assert one.index.tolist() == other.index.tolist() and one.cost.tolist() == other.cost.tolist()
        assert [x.tolist() for x in (*after, flying)] == [x.tolist() for x in (*later, flown)]
    assert one.intents[0] == (0, 2, 1e9, 0)  # of no more priority than any other
    plain = Scoring(0), Scoring(0, written["curve"], 0.0, 0.5, 16.0, math.inf)
    assert plain[0] == plain[1]
    brim = state._replace(free_bytes=np.full(3, 1e9))  # of which not a byte is kept free
    unsaid = costs(case, 0, np.full(3, 1e9), brim)
    said = costs(case, 0, np.full(3, 1e9), brim, np.zeros(4), 0.0, written["curve"], math.inf)
    assert np.isfinite(unsaid.total_s).all() and unsaid.total_s.tolist() == said.total_s.tolist()
    crowded, wide = {"in_flight": np.full((1, 4), 20.0)}, RATES[3] * 20
    cost = lambda **more: float(choose(RoutingPolicy.NETKV_FULL, case, 0, 1e9, 0.0, state, **more).cost[0])
    assert cost(**crowded) == cost(**written | crowded) != cost(**written | crowded | {"max_in_flight": 17.0})
    assert cost() == cost(destination_bytes_per_s=wide) < cost(destination_bytes_per_s=wide / 1000)


def test_a_live_router_as_it_comes_draws_keeps_nothing_free_and_forgets_nothing():
    def chosen(**asked):
        live = NetKVRouter([[2, 2, 2, 2]], RATES, **asked)
        blind = [live.route(0, 1e9, now_s=9e9) for _ in range(12)]
        live.observe([0, 1, 2, 3], 1e9, 0.0, [3.0, 3.0, 1.0, 3.0])  # full with this one request
        live.observe_network(np.zeros(4))
        return [*blind, live.route(0, 1e9, now_s=9e9), live.route(0, 1e9, now_s=9e9)]

    curve = BatchingCurve(0.01248, 0.000115, 64.0)
    own = chosen()
    assert own == chosen(
        tier_latency_s=0.0, reserve_bytes=0.0, curve=curve, max_in_flight=16.0, max_age_s=math.inf, seed=0
    )
    assert own[12] == 2 != own[13] and own[:12] != chosen(seed=1)[:12]


@pytest.mark.parametrize("policy", [RoutingPolicy.CACHE, RoutingPolicy.NETKV_FULL])
def test_hits_that_all_requests_share_are_those_of_each(policy):
    case = Oracle(np.zeros((1, 3), int), RATES, LATENCY, np.zeros(4))
    state = DecodePool(np.full(3, 1e12), np.zeros(3), np.zeros(3))
    kv, shared = np.linspace(1e9, 4e9, 5), np.array([0.25, 0.75, 0.5])
    one, each = (choose(policy, case, 0, kv, hits, state) for hits in (shared, np.tile(shared, (5, 1))))
    assert one.index.tolist() == each.index.tolist() == [1] * 5 and one.cost.tolist() == each.cost.tolist()
    both = [dispatch(policy, case, 0, kv, hits, state) for hits in (shared, np.tile(shared, (5, 1)))]
    assert both[0][0].cost.tolist() == both[1][0].cost.tolist()
    assert [np.array_equal(a, b) for a, b in zip(both[0][1], both[1][1], strict=True)] == [True] * 4
