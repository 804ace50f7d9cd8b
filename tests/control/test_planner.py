"""Planners: the stability limit against eigenvalues, the limit cycle against simulation, invariants, and bursts."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmodels.control.planner import (
    Observation,
    TandemPools,
    anarchy_driven,
    best_response,
    planner,
    reactive,
    run,
    score,
    sla_target,
)
from tests.control.planner_stability import limit, measured_cycle, radius, relay_cycle, simulate

LEAKS, DELAYS = (0.0, 0.3, 0.5, 0.8, 0.95), (0, 1, 2, 3)
POOLS = TandemPools(prefill_rps=2.0, decode_rps=1.0)  # of 24 workers at 14 req/s: 7 to 8 prefill, 14 to 16 decode


@pytest.mark.parametrize("delay", DELAYS)
def test_the_stability_limit_is_where_a_mode_leaves_the_unit_circle(delay):
    for leak in LEAKS:
        edge = limit(leak, delay)
        assert radius(edge.gain, leak, delay) == pytest.approx(1.0, abs=1e-9)
        assert radius(0.99 * edge.gain, leak, delay) < 1.0 < radius(1.01 * edge.gain, leak, delay)
    assert limit(0.5, 0).gain == 0.5  # 1 - a
    assert limit(0.0, 0).period_s == pytest.approx(180.0)  # cos w = 1/2: six intervals


def test_at_saturation_every_gain_oscillates():
    assert limit(1.0).gain == 0.0
    assert all(radius(gain, 1.0, delay) > 1.0 for gain in (1e-4, 0.1, 1.0) for delay in DELAYS)
    x, _ = simulate(0.05, 1.0, 1.0, steps=400)
    assert np.abs(x[-40:]).max() > 2 * np.abs(x[:40]).max()


def linear_loop(leak, delay, steps=4000):
    """(workers too many, signal) of the planner that moves one worker at a time, around a split of 5,000 and 5,000."""
    control = planner(reactive(dead_band_s=0.0), grace=0.0, delay=delay)

    def step(carry, _):
        state, signal = carry
        over = state.prefill - 5000.0
        seen = Observation(0.0, jnp.maximum(signal, 0.0), jnp.maximum(-signal, 0.0))
        return (control.update(state, seen), leak * signal - over), (over, signal)

    return tuple(map(np.asarray, jax.lax.scan(step, (control.init(5001.0, 10_000.0), 0.0), None, steps)[1]))


@pytest.mark.parametrize("leak", LEAKS)
def test_the_limit_cycle_of_one_worker_at_a_time(leak):
    for delay in DELAYS:
        predicted = relay_cycle(1.0, leak, delay)
        seen = measured_cycle(*linear_loop(leak, delay))
        assert seen.period_s == pytest.approx(predicted.period_s, rel=0.2)
        assert seen.split_instances == pytest.approx(predicted.split_instances, rel=0.2, abs=1.0)
        assert seen.signal_s == pytest.approx(predicted.signal_s, rel=0.3, abs=1.0)


def cost(prefill, total, rate):
    """Convex, decreasing in each pool's own workers: the fourth powers of the utilisations."""
    return (rate / 2.0 / prefill) ** 4 + (rate / (total - prefill)) ** 4


def split_by_enumeration(total, rate):
    n = jnp.arange(1.0, 24.0)
    return n[jnp.argmin(jax.vmap(lambda k: cost(k, total, rate))(n))]


def walk(pressure, start, rate, total=24.0, steps=60, **options):
    control = planner(pressure, grace=0.0, **options)
    return np.asarray(run(control, POOLS, jnp.full(steps, rate), start, total).prefill_instances)


def test_the_repaired_planner_stops_at_a_split_that_no_swap_improves():
    for start in (2.0, 12.0, 22.0):
        end = walk(best_response(cost), start, 14.0)[-20:]
        assert np.ptp(end) == 0
        here = cost(end[-1], 24.0, 14.0)
        assert here <= min(cost(end[-1] + 1, 24.0, 14.0), cost(end[-1] - 1, 24.0, 14.0))
        assert end[-1] == split_by_enumeration(24.0, 14.0)


def test_giving_the_next_worker_to_the_larger_gain_cycles():
    # V = 1/(n + 1) for both pools, three workers: 1, 2, 1, 2, ... (proofs, POA-PL)
    gain = lambda n: 1.0 / (n + 1.0) - 1.0 / (n + 2.0)

    def greedy(prefill, total, seen):
        return jnp.where(gain(prefill) > gain(total - prefill), 1.0, -1.0)

    seen = walk(greedy, 1.0, 0.1, total=3.0, steps=8)
    assert seen.tolist() == [1, 2, 1, 2, 1, 2, 1, 2]
    potential = lambda prefill, total, rate: 1.0 / (prefill + 1.0) + 1.0 / (total - prefill + 1.0)
    assert np.ptp(walk(best_response(potential), 1.0, 0.1, total=3.0, steps=8)) == 0


@pytest.mark.parametrize("seed", range(3))
def test_a_course_is_the_queue_of_its_workers_counted_by_hand(seed):
    """Workers as decided; one that changes pools serves in neither for an interval. Late is who waits longer than the
    SLO, at a hundred thousand moments of an interval; the score counts requests."""
    rng = np.random.default_rng(seed)
    rates = rng.uniform(2.0, 30.0, 60)
    pools = TandemPools(2.0, 1.0, *rng.uniform(0.5, 20.0, 2), interval_s=30.0)
    wander = lambda prefill, total, seen: jnp.where(seen.prefill_wait_s > seen.decode_wait_s, 2.0, -1.0)
    course = run(planner(wander, step=2.0, grace=0.0), pools, jnp.asarray(rates), 9.0, 24.0)
    before, prompts, answers, late = 9.0, 0.0, 0.0, []
    for k, (rate, prefill) in enumerate(zip(rates, np.asarray(course.prefill_instances), strict=True)):
        moving = abs(prefill - before)
        serving, decoding = min(prefill, before), 24.0 - min(prefill, before) - moving
        came, read = rate * 30.0, 2.0 * serving * 30.0
        left = max(prompts + came - read, 0.0)
        written = 1.0 * decoding * 30.0
        waiting = max(answers + prompts + came - left - written, 0.0)
        waits = [(prompts, left, read / 30.0), (answers, waiting, written / 30.0)]
        assert float(course.prefill_wait_s[k]) == pytest.approx(left / (read / 30.0))
        assert float(course.decode_wait_s[k]) == pytest.approx(waiting / (written / 30.0))
        moments = np.linspace(0.0, 1.0, 100_001)
        share = [
            ((a + (b - a) * moments) / speed > slo).mean()
            for (a, b, speed), slo in zip(waits, (pools.ttft_wait_slo_s, pools.decode_wait_slo_s), strict=True)
        ]
        assert [float(course.ttft_violation_frac[k]), float(course.itl_violation_frac[k])] == pytest.approx(
            share, abs=2e-5
        )
        before, prompts, answers = prefill, left, waiting
        late.append(min(sum(share), 1.0))
    told = score(course, jnp.asarray(rates))
    assert float(told.violation_frac) == pytest.approx(sum(late * rates) / sum(rates), abs=1e-4)
    bad = [k for k, share in enumerate(late) if share > 0]
    assert float(told.recovery_s) == 30.0 * (bad[-1] - bad[0] + 1)
    assert float(told.moves_count) == np.abs(np.diff(np.asarray(course.prefill_instances))).sum() > 10


def test_delay_makes_the_reactive_planner_swing_wider():
    rate = 15.7  # 98 % of what 24 workers can serve: queues empty slowly, the loop is close to saturation
    swing = [np.ptp(walk(reactive(), 6.0, rate, steps=400, delay=d)[200:]) for d in (0, 3)]
    assert swing[1] > swing[0] and swing[1] >= 4


def test_grace_and_bounds_hold_on_any_course():
    rng = np.random.default_rng(0)
    rate = jnp.asarray(rng.uniform(0, 40, 200))
    course = run(planner(reactive(), delay=1, least=2.0), POOLS, rate, 8.0, 24.0)
    n = np.asarray(course.prefill_instances)
    assert n.min() >= 2 and n.max() <= 22 and np.abs(np.diff(n)).max() <= 1
    moved = np.diff(n)
    down = np.flatnonzero(moved < 0)  # decode was given a worker: nothing moves for three intervals, and then it may
    assert all((moved[k + 1 : k + 4] == 0).all() for k in down) and any(
        moved[k + 4] for k in down if k + 4 < len(moved)
    )
    assert np.all(np.asarray(course.ttft_violation_frac) <= 1)


def burst(steps=80):
    """Calm, then 1.75 times the rate for ten minutes, then calm."""
    rate = np.full(steps, 8.0)
    rate[20:40] = 14.0
    return jnp.asarray(rate)


def test_planners_scored_on_a_burst():
    rate = burst()
    wanted = {
        "one": planner(reactive(), delay=1),
        "sla": planner(sla_target(2.0, 1.0), step=24.0, grace=0.0),
        "anarchy": planner(anarchy_driven(cost, split_by_enumeration), step=24.0, grace=0.0),
    }
    scores = {name: score(run(p, POOLS, rate, 4.0, 24.0), rate) for name, p in wanted.items()}
    late = {name: float(s.violation_frac) for name, s in scores.items()}
    assert late["sla"] < 0.5 * late["one"] and late["anarchy"] < 0.5 * late["one"]
    assert float(scores["sla"].recovery_s) < float(scores["one"].recovery_s)
    still = run(planner(reactive(), step=0.0), POOLS, rate, 8.0, 24.0)  # the right split from the start
    assert float(score(still, rate).violation_frac) == 0.0
    low = score(run(wanted["sla"], POOLS, rate, 4.0, 24.0, forecast=1.3), rate)
    assert float(low.violation_frac) == pytest.approx(late["sla"])  # a ratio: a common forecast error cancels


def test_work_is_conserved():
    rate = burst()
    course = run(planner(reactive(), step=0.0), POOLS, rate, 6.0, 24.0)
    left = np.asarray(course.prefill_wait_s) * 2.0 * 6.0
    served = 30.0 * np.asarray(rate) - np.diff(left, prepend=0.0)
    assert served.max() <= 30.0 * 2.0 * 6.0 + 1e-9  # capacity
    assert served.sum() + left[-1] == pytest.approx(30.0 * float(rate.sum()))


def test_a_planner_acts_on_what_it_saw_so_many_intervals_ago():
    for delay in (0, 1, 2):
        rule = planner(lambda prefill, total, seen: seen.prefill_wait_s, delay=delay)
        state, course = rule.init(4.0, 8.0), []
        for wait_s in (1.0, 0.0, 0.0, 0.0):
            state = rule.update(state, Observation(0.0, wait_s, 0.0))
            course.append(float(state.prefill))
        assert course == [4.0] * delay + [5.0] * (4 - delay)


def test_a_planner_rests_after_it_gave_decode_a_worker_and_keeps_one_in_each_pool():
    rule = planner(lambda prefill, total, seen: seen.prefill_wait_s, grace=2.0)
    at = rule.init(2.0, 4.0)
    course = []
    for push in (0.0, 1.0, 1.0, -1.0, 1.0, 1.0, 1.0, 1.0):
        at = rule.update(at, Observation(0.0, push, 0.0))
        course.append((float(at.prefill), float(at.grace)))
    assert course == [(2, 0), (3, 0), (3, 0), (2, 2), (2, 1), (2, 0), (3, 0), (3, 0)]


def test_the_reactive_planner_in_and_out_of_its_dead_band():
    wait = lambda prefill_s, decode_s: Observation(0.0, prefill_s, decode_s)
    plain, steep = reactive(dead_band_s=0.5), reactive(gain=2.0)
    assert [float(plain(1.0, 2.0, wait(p, d))) for p, d in ((0.5, 0.0), (0.6, 0.0), (0.0, 0.6), (0.2, 0.2))] == [
        0.0,
        1.0,
        -1.0,
        0.0,
    ]
    assert [float(steep(1.0, 2.0, wait(p, d))) for p, d in ((3.0, 1.0), (0.0, 1.5))] == [4.0, -3.0]


def test_the_repaired_planner_goes_where_it_is_cheaper_by_one():
    here = Observation(4.0, 0.0, 0.0)
    go = lambda cost, at: float(best_response(lambda p, total, rate: cost(p))(at, 8.0, here))
    valley = lambda p: (p - 3.0) ** 2
    assert [go(valley, at) for at in (1.0, 3.0, 6.0)] == [1.0, 0.0, -1.0]
    assert go(lambda p: -((p - 3.0) ** 2), 3.0) == 1.0  # as good both ways: prefill


def test_the_anarchy_driven_planner_goes_all_the_way_or_nowhere():
    here = Observation(4.0, 0.0, 0.0)
    push = anarchy_driven(lambda p, total, rate: abs(p - 3.0), lambda total, rate: 3.0)
    assert [float(push(at, 8.0, here)) for at in (1.0, 3.0, 5.0)] == [2.0, 0.0, -2.0]
    rare = anarchy_driven(lambda p, total, rate: 1e-3 * (10.0 + abs(p - 3.0)), lambda total, rate: 3.0, threshold=1.15)
    assert [float(rare(at, 8.0, here)) for at in (1.0, 2.0, 5.0)] == [2.0, 0.0, -2.0]  # 20 % more of one in a hundred
    for price, moves in ((1.04, 0.0), (1.06, 2.0)):  # unless told otherwise, a twentieth too much is too much
        dear = anarchy_driven(lambda p, total, rate, x=price: jnp.where(p == 3.0, 1.0, x), lambda total, rate: 3.0)
        assert float(dear(1.0, 8.0, here)) == moves
    for least, moves in ((1e-5, 2.0), (1e-7, 0.0)):  # twice as dear; of less than one in a million nobody can tell
        twice = anarchy_driven(
            lambda p, total, rate, x=least: x * jnp.where(p == 3.0, 1.0, 2.0), lambda total, rate: 3.0, 1.5
        )
        assert float(twice(1.0, 8.0, here)) == moves
    # one in a million more than nothing counts as twice nothing
    something = anarchy_driven(lambda p, total, rate: jnp.where(p == 3.0, 0.0, 1e-6), lambda total, rate: 3.0, 1.9)
    assert float(something(1.0, 8.0, here)) == 2.0


def test_replicas_in_proportion_to_what_the_forecast_needs():
    """Four requests a second: two prefill workers of 2/s, eight decoders of 1/2: of ten workers two, of twenty four."""
    push = sla_target(2.0, 0.5)
    assert [float(push(1.0, total, Observation(4.0, 0.0, 0.0))) for total in (10.0, 20.0)] == [1.0, 3.0]
    # however little comes; nothing needs no prefill
    assert [float(push(1.0, 20.0, Observation(rate, 0.0, 0.0))) for rate in (1e-6, 0.0)] == [3.0, -1.0]


def test_a_planner_of_a_full_system_is_never_stable():
    for leak in (1.0, 1.5):
        assert tuple(limit(leak)) == (0.0, math.inf)


def test_the_relay_swings_by_its_describing_function():
    """4 kappa/(pi A) = 1/2."""
    assert float(relay_cycle(0.3, 0.5)[2]) == pytest.approx(2.4 / math.pi)


def test_a_cycle_is_counted_between_upward_crossings_of_its_mean():
    """The second half: 0, 2 and 5 are the last below; twice; once."""
    measured = lambda *x: measured_cycle(np.array([9.0] * len(x) + [*x]), np.zeros(2 * len(x)), 1.0)
    assert measured(0.0, 1.0, 0.5, 1.0, 0.0, 0.5, 1.0, 0.0)[:2] == (2.5, 0.5)
    assert measured(0.0, 1.0, 0.0, 1.0)[0] == 2.0 and measured(0.0, 0.0, 1.0, 1.0)[0] == math.inf


@pytest.mark.parametrize("delay", [0, 2])
def test_a_planner_by_doing_what_it_says(delay):
    """Whole workers, at most three at a time, two kept in each pool, none for four intervals after decode was given
    one: in plain Python, on wishes at random."""
    rng = np.random.default_rng(delay)
    wishes = rng.uniform(-5, 5, 60)
    rule = planner(lambda prefill, total, seen: seen.prefill_wait_s, delay=delay, least=2.0, step=3.0, grace=4.0)
    update, state = jax.jit(rule.update), rule.init(6.0, 12.0)
    have, wait = 6, 0
    for k, wish in enumerate(wishes):
        known = wishes[k - delay] if k >= delay else 0.0
        wanted = max(-3, min(3, round(float(known)))) if wait <= 0 else 0
        before, have = have, max(2, min(10, have + wanted))
        wait = 4 if have < before else max(wait - 1, 0)
        state = update(state, Observation(0.0, float(wish), 0.0))
        assert float(state.prefill) == have and float(state.grace) == wait


def test_where_planners_go():
    """12 req/s at 2 req/s a prefill worker and 3 a decode worker: 6 and 4 of every 10. A gap of waits moves one."""
    seen = Observation(12.0, 2.0, 0.5)
    assert float(sla_target(2.0, 3.0)(5.0, 20.0, seen)) == 12 - 5
    assert float(reactive()(5.0, 20.0, seen)) == 1 and float(reactive(dead_band_s=2.0)(5.0, 20.0, seen)) == 0
    assert float(reactive(decode_weight=6.0)(5.0, 20.0, seen)) == -1
    assert float(reactive(gain=1.0)(5.0, 20.0, seen)) == 1.5  # a second of either counts the same
    assert [float(reactive()(5.0, 20.0, seen._replace(prefill_wait_s=1.0 + gap))) for gap in (0.0, 0.01)] == [0, 1]
    assert float(reactive(gain=4.0)(5.0, 20.0, seen)) == 6
    split = anarchy_driven(lambda prefill, total, rate: abs(prefill - 8.0) + 1.0, lambda total, rate: 8.0)
    assert float(split(5.0, 20.0, seen)) == 3 and float(split(8.0, 20.0, seen)) == 0
    patient = anarchy_driven(lambda prefill, total, rate: abs(prefill - 8.0) + 1.0, lambda total, rate: 8.0, 4.5)
    assert float(patient(5.0, 20.0, seen)) == 0  # a price of 4
