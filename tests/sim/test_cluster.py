"""The prefill/decode cluster against a central queue, a step-by-step decoder and Little's law; roles may change."""

from __future__ import annotations

import heapq

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from dmodels.control.phasor import flow
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.workload import Workload
from dmodels.models.latency import StepLaw
from dmodels.sim import arrivals
from dmodels.sim.cluster import Control, Flow, Signal, Workers, control, measure, simulate, state
from dmodels.sim.cluster.records import Role

STILL = Control(flow=Flow.NONE, theta_frag=0.0)


def requests(n, seed=0, rate=20.0):
    rng = np.random.default_rng(seed)
    prompt = np.maximum(1, np.rint(rng.lognormal(6.5, 0.8, n)))
    output = np.maximum(1, np.rint(rng.lognormal(4.5, 0.8, n)))
    return np.cumsum(rng.exponential(1 / rate, n)), prompt, output, 1e-4 * prompt


def test_freeness_with_exact_remaining_work_is_a_central_queue():
    arrival, prompt, output, seconds = requests(3000, rate=50.0)
    run = simulate(arrival, prompt, output, seconds, Workers(4, 4), STILL)
    free, first = [0.0] * 4, []
    for a, s in zip(arrival, seconds, strict=True):
        begin = max(heapq.heappop(free), a)
        first.append(begin + s)
        heapq.heappush(free, begin + s)
    np.testing.assert_allclose(run.first_token_s, first, rtol=1e-12)


@njit
def decided(floor, rules, seen, now):
    return control.reassign(floor, rules, seen, now)


def test_the_loop_moves_whom_phasors_rule_moves():
    """Idle workers that all came from standby, at random freeness: as the rule that a live controller calls."""
    rng, seen = np.random.default_rng(0), set()
    rules = state.ControlRules(0, int(Flow.FREENESS), 0.62, 0.0, 0.05, 1.0, 4.0, 1.0)
    rule = jax.jit(lambda roles, phi: flow.promote(roles, *phi, flow.settings(theta=0.62)))
    for _ in range(200):
        counts = [int(rng.integers(1, 5)), int(rng.integers(1, 5)), int(rng.integers(0, 3))]
        workers = np.zeros(sum(counts), state.WORKER)
        workers["role"] = np.repeat(list(Role), counts)
        workers["head"], workers["locked"] = -1, 1.0
        lines, tally = np.zeros((len(workers), 1), np.int64), np.zeros(1, state.TALLY)
        floor = state.Floor(workers, np.zeros(1, state.REQUEST), lines, np.zeros(1, np.int64), tally)
        phi = rng.uniform(-0.5, 1.0, 2)
        decided(floor, rules, state.Seen(*counts[:2], *phi, 0.0, 0.0, 0.0), 10.0)
        after, change = rule(flow.init(*map(float, counts)), phi)
        found = [int((workers["role"] == role).sum()) for role in Role]
        assert found == [after.prefill, after.decode, after.mixed], (counts, phi)
        seen.add(int(change))
    assert seen == {-2, -1, 0, 1, 2}


def a_floor(prefill, decode, standby, waiting=0):
    """Idle workers that all came from standby and may leave from 1 s on; so many answers wait for a decoder."""
    counts = [prefill, decode, standby]
    workers = np.zeros(sum(counts), state.WORKER)
    workers["role"] = np.repeat(list(Role), counts)
    workers["head"], workers["locked"] = -1, 1.0
    tally = np.zeros(1, state.TALLY)
    tally["waiting_to"] = waiting
    return state.Floor(
        workers, np.zeros(9, state.REQUEST), np.zeros((len(workers), 1), np.int64), np.zeros(9, int), tally
    )


@pytest.mark.parametrize(
    "queue, waiting, before, after",
    [
        (4.01, 9, (2, 2, 1), (3, 2, 0)),  # prompts first
        (4.0, 5, (2, 2, 1), (2, 3, 0)),
        (4.0, 4, (2, 2, 1), (2, 1, 2)),  # neither is in need: a decoder goes, as prompts still wait
        (1.01, 0, (2, 2, 1), (2, 1, 2)),
        (1.0, 0, (2, 2, 1), (1, 2, 2)),
        (1.0, 0, (1, 2, 1), (1, 1, 2)),  # the last one of a kind stays
        (1.01, 0, (2, 1, 1), (2, 1, 1)),
        (4.01, 9, (2, 2, 0), (2, 2, 0)),  # nobody is there
    ],
)
def test_a_reactive_controller_looks_at_queues_alone(queue, waiting, before, after):
    """Prefill queues of more than four prompts, then more than four answers."""
    floor = a_floor(*before, waiting)
    rules = state.ControlRules(0, int(Flow.REACTIVE), 0.62, 0.0, 0.05, 7.0, 4.0, 1.0)
    came = decided(floor, rules, state.Seen(*before[:2], 0.0, 0.0, queue, 0.0, 0.0), 10.0)
    assert tuple(int((floor.workers["role"] == role).sum()) for role in Role) == after
    assert came == (after[0] > before[0] or after[1] > before[1])
    assert floor.tally["changes"][0] == (after != before)
    if came:  # it stays until it has cooled down
        (new,) = np.flatnonzero(floor.workers["locked"] == 17.0)
        assert new == before[0] + before[1]


def test_a_reactive_controller_has_no_cool_down():
    floor, rules = a_floor(2, 2, 2, 9), state.ControlRules(0, int(Flow.REACTIVE), 0.62, 0.0, 0.05, 7.0, 4.0, 1.0)
    for k in (1, 2):
        assert decided(floor, rules, state.Seen(1 + k, 2, 0.0, 0.0, 9.0, 0.0, 0.0), 10.0)
        assert [int((floor.workers["role"] == role).sum()) for role in Role] == [2 + k, 2, 2 - k]


@njit
def moved(floor, machine, source, place, target, now):
    freed = [(np.inf, 0, 0.0)]
    control.move(floor, machine, (source, place, target), freed, now)
    return freed[1]


@pytest.mark.parametrize("place, joined", [(0, 1), (1, 1), (2, 2), (3, 2)])
def test_who_moves_misses_the_step_that_runs_and_nobody_else(place, joined):
    """Of four sequences on a decoder the first two take part in its step. The blocks of who goes are freed a tenth of a
    second each later; a decoder that is left by its last one has no step any more."""
    floor = a_floor(1, 2, 0)
    machine = state.Machine(0.02, 1e-3, 4, 100.0, 0.1, 0.4)
    floor = floor._replace(lines=np.array([[0] * 4, [5, 6, 7, 8], [4, 0, 0, 0]]))
    floor.requests["blocks"] = np.arange(9.0)
    here, there = floor.workers[1:2], floor.workers[2:3]
    here["batch"], here["joined"], here["used"], here["step_at"] = 4, 2, 26.0, 3.0
    there["batch"], there["joined"], there["used"], there["step_at"] = 1, 1, 4.0, 9.0
    goes, stay = 5 + place, [i for i in (5, 6, 7, 8) if i != 5 + place]
    when, worker, blocks = moved(floor, machine, 1, place, 2, 2.0)
    assert (when, worker, blocks) == (pytest.approx(2.0 + 0.1 * goes), 1, goes)
    assert floor.lines[1, :3].tolist() == stay and floor.lines[2, :2].tolist() == [4, goes]
    assert (here["batch"][0], here["joined"][0], here["used"][0], here["step_at"][0]) == (3, joined, 26.0, 3.0)
    assert (there["batch"][0], there["joined"][0], there["used"][0], there["step_at"][0]) == (2, 1, 4.0 + goes, 9.0)
    assert floor.tally["moved"][0] == goes
    for _ in range(3):
        assert here["step_at"][0] == 3.0
        moved(floor, machine, 1, 0, 0, 2.0)
    assert here["step_at"][0] == np.inf and here["batch"][0] == here["joined"][0] == 0


def test_roles_cool_down_and_are_taken_back_to_the_instant():
    """Half a second between changes; who came at 10 s with a second to stay goes at 11 s and not before."""
    rules = state.ControlRules(0, int(Flow.FREENESS), 0.5, 0.0, 0.05, 0.5, 4.0, 1.0)
    roles = lambda floor: [int((floor.workers["role"] == role).sum()) for role in Role]
    seen = lambda prefill, decode, *phi: state.Seen(prefill, decode, *phi, 0.0, 0.0, 0.0)
    floor = a_floor(1, 1, 2)
    assert decided(floor, rules, seen(1, 1, 0.49, 1.0), 10.0) and roles(floor) == [2, 1, 1]
    assert floor.tally["quiet_until"][0] == 10.5 and floor.workers["locked"].tolist() == [1.0, 1.0, 10.5, 1.0]
    assert not decided(floor, rules, seen(2, 1, 1.0, 0.49), 10.49) and roles(floor) == [2, 1, 1]
    assert decided(floor, rules, seen(2, 1, 1.0, 0.49), 10.5) and roles(floor) == [2, 2, 0]
    floor = a_floor(2, 1, 0)
    floor.workers["locked"] = 0.0, 11.0, 0.0  # the first was there from the beginning
    for now, left in ((10.99, [2, 1, 0]), (11.0, [1, 1, 1]), (20.0, [1, 1, 1])):
        assert not decided(floor, rules, seen(left[0] if now > 15 else 2, 1, 1.0, 1.0), now) and roles(floor) == left
    for phi, moved in (((0.5, 1.0), False), ((0.4999, 1.0), True), ((1.0, 0.5), False), ((1.0, 0.4999), True)):
        assert decided(a_floor(1, 1, 1), rules, seen(1, 1, *phi), 10.0) == moved
    # one fewer of three would have a freeness of 1 - 0.4 x 3 / 2: enough where the others have no more
    for own, other, left in ((0.6, 0.4, 2), (0.6, 0.4001, 3), (1 / 3, -1.0, 2), (0.33, -1.0, 3)):
        floor = a_floor(3, 1, 0)
        decided(floor, rules, seen(3, 1, own + 1e-12, other), 10.0)
        assert roles(floor)[0] == left, (own, other)
        floor = a_floor(1, 3, 0)
        decided(floor, rules, seen(1, 3, other, own + 1e-12), 10.0)
        assert roles(floor)[1] == left, (own, other)


def test_a_worker_with_something_left_to_do_leaves_later():
    """The last of those that came goes: at once where it is idle, else it takes nothing new and is counted no more."""
    rules = state.ControlRules(0, int(Flow.REACTIVE), 0.62, 0.0, 0.05, 7.0, 4.0, 1.0)
    for place, busy, queue in ((1, "count", 1.0), (3, "batch", 2.0)):
        floor = a_floor(2, 2, 0)
        floor.workers[busy][place] = 1
        assert not decided(floor, rules, state.Seen(2, 2, 0.0, 0.0, queue, 0.0, 0.0), 10.0)
        assert floor.workers["role"].tolist() == [0, 0, 1, 1] and floor.tally["changes"][0] == 1
        assert floor.workers["draining"].tolist() == [int(k == place) for k in range(4)]
        assert floor.workers["locked"].tolist() == [float(k != place) for k in range(4)]


def test_a_lone_sequence_takes_a_step_for_each_token():
    run = simulate([1.0], [100], [11], [0.5], Workers(1, 1, step=StepLaw(0.02, 0.001)), STILL)
    assert run.first_token_s[0] == 1.5 and run.end_s[0] == pytest.approx(1.5 + 10 * 0.021)
    assert run.tpot_s[0] == pytest.approx(0.021)


@pytest.mark.parametrize("blocks, before, beside", [(7.0, 0.0, 0.0), (8.0, 1 / 8, 1.0), (15.0, 1 / 15, 1 / 8)])
def test_what_is_seen_of_a_lone_sequence(blocks, before, beside):
    """Seven blocks, read until 0.1 s and decoded until 0.328 s. What is left over when as many of them as fit are there
    is stranded; at one instant the controller looks first."""
    run = simulate([0.0], [100], [10], [0.1], Workers(1, 1, kv_blocks=blocks), STILL)
    assert run.epoch_s == pytest.approx(0.05 * np.arange(7)) and run.end_s[0] == pytest.approx(0.1 + 9 * 0.02535)
    assert run.batch.tolist() == [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]
    assert run.queues.tolist() == [[0.0, 0.0], [1.0, 0.0], [1.0, 0.0], *[[0.0, 0.0]] * 4]
    assert run.stranded_frac == pytest.approx([0.0, before, before, *[beside] * 4])
    assert run.worker.tolist() == [0] and (run.changes, run.moved_blocks) == (0, 0.0)


def by_steps(ready, left, base, step, slots):
    """One decoder, one step at a time: sequences that are ready join at the next step's start."""
    order, now, active, end, k = np.argsort(ready, kind="stable"), 0.0, [], np.zeros(len(ready)), 0
    left = left.copy()
    while k < len(order) or active:
        if not active and ready[order[k]] > now:
            now = ready[order[k]]
        while k < len(order) and ready[order[k]] <= now and len(active) < slots:
            active.append(order[k])
            k += 1
        now += base + step * len(active)
        for i in list(active):
            left[i] -= 1
            if left[i] == 0:
                end[i] = now
                active.remove(i)
    return end


@settings(max_examples=20)
@given(seed=st.integers(0, 1000), slots=st.integers(1, 5))
def test_a_decoder_against_its_steps(seed, slots):
    arrival, prompt, output, seconds = requests(60, seed, rate=4.0)
    output = output % 40 + 2
    run = simulate(arrival, prompt, output, seconds, Workers(2, 1, slots=slots), STILL)
    expected = by_steps(run.first_token_s, output.astype(int) - 1, 0.025, 0.35e-3, slots)
    np.testing.assert_allclose(run.end_s, expected, rtol=1e-9)


@pytest.mark.parametrize("flow", list(Flow))
@pytest.mark.parametrize("signal", list(Signal))
def test_everyone_is_served_whatever_the_controller(flow, signal):
    arrival, prompt, output, seconds = requests(1500, 1, rate=40.0)
    cluster = Workers(2, 2, 4, kv_blocks=1000.0, slots=40)
    run = simulate(arrival, prompt, output, seconds, cluster, Control(signal, flow, epoch_s=0.1, cool_s=0.3))
    assert np.isfinite(run.end_s).all() and (run.end_s >= run.first_token_s).all()
    assert (run.first_token_s >= arrival + seconds * (1 - 1e-12)).all()
    assert (run.changes > 0) == (flow != Flow.NONE)
    assert run.stranded_frac.min() >= 0 and run.stranded_frac.max() <= 1


def test_closed_loop_keeps_its_clients_in_flight():
    """Little's law: in-flight requests, by the time integral, are the clients."""
    _, prompt, output, seconds = requests(2000, 2)
    run = simulate(np.zeros(2000), prompt, output, seconds, Workers(3, 3), STILL, clients=50)
    order = np.argsort(run.end_s)
    last = run.end_s[order[-60]]  # while requests are left to come
    overlap = np.minimum(run.end_s, last) - np.minimum(run.arrival_s, last)
    assert overlap.sum() / last == pytest.approx(50, rel=1e-9)


def test_moving_sequences_makes_room_for_large_ones():
    """Small sequences spread evenly, then requests of nearly a whole decoder: with moves they wait less."""
    rng = np.random.default_rng(3)
    n = 400
    large = rng.random(n) < 0.1
    prompt, output = np.where(large, 4000, 300), np.where(large, 50, 400)
    arrival = np.cumsum(rng.exponential(0.35, n))
    cluster = Workers(4, 4, kv_blocks=400.0)
    runs = [
        simulate(arrival, prompt, output, 1e-5 * prompt, cluster, Control(flow=Flow.NONE, theta_frag=t))
        for t in (0.0, 0.9)
    ]
    waits = [(r.end_s - r.first_token_s)[large].mean() for r in runs]
    assert runs[0].moved_blocks == 0 and runs[1].moved_blocks > 0 and waits[1] < waits[0]


def test_queues_diverge_only_under_a_signal_that_cannot_see_them():
    """Memory in use ignores what waits: one queue runs away in bursts (CV 3). Counting the queue keeps them even."""
    _, prompt, _, seconds = requests(4000, 4)
    arrival = arrivals.gamma(jax.random.key(0), 3.9 / seconds.mean(), 3.0, 4000)
    skew = {}
    for signal in (Signal.MEMORY, Signal.TOKENS, Signal.REQUESTS, Signal.WORK):
        run = simulate(arrival, prompt, np.ones(4000), seconds, Workers(4, 1), STILL._replace(signal=signal))
        queue = np.sort(run.queues[:, :4].mean(axis=0))
        skew[signal] = queue[-1] / queue[:-1].mean()
    assert skew.pop(Signal.MEMORY) > 1.25 and max(skew.values()) < 1.15  # 1.4 to 1.9 and up to 1.06 over other keys


def test_mistakes_name_the_field():
    with pytest.raises(InputError, match="kv_blocks"):
        simulate([0.0], [1000], [10], [0.1], Workers(1, 1, kv_blocks=10.0), STILL)
    with pytest.raises(InputError, match="clients"):
        simulate([0.0], [10], [10], [0.1], Workers(1, 1), STILL, clients=2)
    with pytest.raises(InputError, match="epoch_s"):
        simulate([0.0], [10], [10], [0.1], Workers(1, 1), Control(epoch_s=0.0))


def test_a_run_is_measured_behind_its_first_fifth_and_the_cache_spares_prefill():
    """Prompts by clockwork, each a second longer in prefill than the last one came: of 1,000 the k-th waits k seconds.

    1,000 of 1,500 tokens cached: one iteration of two seconds for 500, so the first token is 2 + k seconds late.
    """
    work = Workload([1500.0], [1.0], [1.0], rate_rps=1.0, arrival_cv=0.0, cached_tokens=[1000.0])
    asked = {"prefill_iteration_s": 2.0, "chunk_tokens": 512, "count": 1000, "at_most": 8, "target_frac": 1.0}
    found = measure(work, Workers(1, 1), STILL, jax.random.key(0), **asked)
    late = 2.0 + np.arange(200.0, 1000.0)
    assert found["ttft_mean_s"].value == pytest.approx(late.mean()) == found["e2e_mean_s"].value
    assert found["ttft_p99_s"].value == pytest.approx(np.quantile(late, 0.99))
    assert found["ttft_mean_s"].flags & Flag.OVERLOAD and found["role_changes_count"].value == 0.0
    work = work.replace(rate_rps=0.4)
    light = measure(work, Workers(1, 1), STILL, jax.random.key(0), **asked | {"count": 100})
    assert light["ttft_mean_s"].value == pytest.approx(2.0) and light["ttft_mean_s"].flags == 0
