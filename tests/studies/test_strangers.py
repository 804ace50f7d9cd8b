"""Studies against second implementations: slow, obvious, in plain Python, on cases small enough to count by hand."""

from __future__ import annotations

import math
import os
from collections import OrderedDict
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels import SLO, Parallel, Trace, Workload, catalog
from dmodels.control.netkv import POLICIES, DecodePool, Oracle, dispatch
from dmodels.core.records import float64
from dmodels.core.routing import RoutingPolicy
from dmodels.games.resource import social_optimum
from dmodels.games.routing import RoutingGame, policy_flows
from dmodels.models import pooling
from dmodels.models.cache import stack_distances
from dmodels.models.latency import NETKV_CURVE
from dmodels.sim.network import Arrivals, netkv_cluster, simulate
from dmodels.studies.place import PrefillBill, Tier, at_sizes, bill
from dmodels.studies.pools import pool_study
from dmodels.studies.split import at_rate, split
from dmodels.studies.transfer import compare_policies
from dmodels.studies.transfer.policies import standard_error

QUICK = 500 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 25
requests = st.lists(
    st.tuples(st.integers(1, 6000), st.integers(1, 900), st.integers(1, 9)),
    min_size=4,
    max_size=4,
    unique_by=lambda x: x[0] + x[1],
)


def instances(mix: list[tuple[int, int, int]], context: int, rate: Fraction, factor: Fraction, whole: int) -> int:
    """Instances for the requests of `mix` (input, output, weight) among `whole`: each holds one of the slots that
    reserve `context` tokens until its prompt has passed in chunks of 512 and its answer token by token."""
    if not mix:
        return 0
    slots = min(128, 65536 * 16 // context)
    iteration = Fraction(8, 1000) + slots * Fraction(65, 100_000)
    seconds = sum(weight * (math.ceil(prompt / 512) + answer) * iteration for prompt, answer, weight in mix)
    busy = rate * seconds / whole  # slots, by Little's law
    return math.ceil(factor * busy / slots)


@settings(max_examples=QUICK)
@given(requests, st.integers(0, 4), st.integers(20, 20_000))
def test_pools_by_counting_slots(mix, place, rate):
    totals = sorted({prompt + answer for prompt, answer, _ in mix})
    threshold, context = totals[min(place, len(totals) - 2)], 8192
    prompts, answers, weights = (np.array(column, float) for column in zip(*mix, strict=True))
    workload = Workload(prompts, answers, weights / weights.sum(), rate_rps=float(rate))
    headroom = pooling.Headroom(**pooling.PAPER_HEADROOM)
    study = pool_study(workload, [threshold], context_tokens=context, headroom=headroom, pools_count=2)
    whole = int(weights.sum())
    short = [x for x in mix if x[0] + x[1] <= threshold]
    long = [x for x in mix if x[0] + x[1] > threshold]
    factors = [Fraction(f, 100) for f in (108, 105, 102)]
    one = instances(mix, context, Fraction(rate), factors[0], whole)
    two = instances(short, threshold, Fraction(rate), factors[1], whole)
    two += instances(long, context, Fraction(rate), factors[2], whole)
    # a fleet that is a whole number to the last digit may be rounded up
    assert abs(float(study.savings.homo_instances_count) - one) <= (1 if one > 1e6 else 0)
    assert abs(float(study.savings.dual_instances_count[0]) - two) <= (1 if two > 1e6 else 0)
    share = sum(weight for *_, weight in short) / whole
    assert float(study.short.request_frac[0]) == pytest.approx(share)


def course_frac(course):
    return course.ttft_violation_frac, course.itl_violation_frac


def test_splits_and_planners_by_trying_and_counting():
    model, gpu = catalog.model("llama-3.1-8b"), catalog.gpu("h100_sxm")
    found = split(model, gpu, catalog.workload("azure-conv", 70.0), SLO(1.0, 0.02), 10.0, Parallel(), Parallel(), 1.6)
    costs = [float(a) + float(b) for a, b in zip(found.ttft_frac, found.itl_frac, strict=True)]
    each = (len(costs) - 1) // 10  # points of the curves from a whole GPU to the next
    workers = {prefill: costs[prefill * each] for prefill in range(1, 10)}
    assert float(found.whole.value.cost) == pytest.approx(min(workers.values()), rel=1e-9, abs=1e-9)
    assert workers[int(found.whole.value.prefill_instances)] == pytest.approx(min(workers.values()), rel=1e-9, abs=1e-9)
    assert (
        float(found.optimum.value.cost) <= min(*workers.values(), *map(float, found.ttft_frac + found.itl_frac)) + 1e-9
    )
    np.testing.assert_allclose(found.arrival_rps, [70.0] * 20 + [112.0] * 20 + [70.0] * 60)  # ten minutes in fifty
    there = lambda rate: float(float64(social_optimum)(at_rate(found.game, rate)).value.prefill_gpus)
    assert found.slope_gpus_per_rps == pytest.approx((there(71.0) - there(69.0)) / 2.0, rel=1e-3)
    counted = 0
    for name, course in found.courses.items():
        score, rates = found.scores[name], [float(r) for r in found.arrival_rps]
        late = [min(float(a) + float(b), 1.0) for a, b in zip(*course_frac(course), strict=True)]
        violated = sum(share * rate for share, rate in zip(late, rates, strict=True)) / sum(rates)
        assert float(score.violation_frac) == pytest.approx(violated, rel=1e-6)
        moves = sum(abs(float(b) - float(a)) for a, b in pairwise(course.prefill_instances))
        assert float(score.moves_count) == moves
        waits = [max(float(a), float(b)) for a, b in zip(course.prefill_wait_s, course.decode_wait_s, strict=True)]
        assert float(score.worst_wait_s) == pytest.approx(max(waits))
        counted += _late_where_waits_are_long(course)
        bad = [k for k, share in enumerate(late) if share > 0]
        assert float(score.recovery_s) == (30.0 * (bad[-1] - bad[0] + 1) if bad else 0.0)

    assert counted > 0


def test_who_goes_by_the_price_goes_where_the_burst_is_kept_up_with():
    """One split alone violates no SLO, tried one by one; it violates none afterwards either, so it stays."""
    model, gpu = catalog.model("llama-3.1-8b"), catalog.gpu("h100_sxm")
    found = split(model, gpu, catalog.workload("azure-conv", 40.0), SLO(1.0, 0.02), 10.0, Parallel(), Parallel(), 2.9)
    costs = {n: float(float64(at_rate(found.game, 116.0).cost)(float(n))) for n in range(1, 10)}
    best = min(costs, key=costs.get)
    assert min(cost for n, cost in costs.items() if n != best) > costs[best] + 0.01
    course = [float(n) for n in found.courses["price-driven"].prefill_instances]
    assert set(course[:20]) == {float(best) - 1} and set(course[21:]) == {float(best)}


def _late_where_waits_are_long(course) -> int:
    """In both pools those are late whose wait is beyond the SLO of the first token, 1 s; a wait grows and falls evenly
    over an interval in which workers stay. Returns in how many intervals some answers are late,
    and some are not."""
    workers, counted = list(map(float, course.prefill_instances)), 0
    for waits, late in zip((course.prefill_wait_s, course.decode_wait_s), course_frac(course), strict=True):
        for k in range(2, len(workers)):
            if len(set(workers[k - 2 : k + 1])) == 1:
                low, high = sorted(map(float, waits[k - 1 : k + 1]))
                beyond = (high - max(low, 1.0)) / (high - low) if high > max(low, 1.0) else float(low > 1.0)
                assert float(late[k]) == pytest.approx(beyond, abs=1e-6)
                counted += 0 < beyond < 1 and waits is course.decode_wait_s
    return counted


def test_planners_have_the_workers_of_the_curves():
    """What a worker serves, read off the courses' queues, is what the curves say that it takes to serve them at all;
    planners that know the cost end where it is least. Workers of two GPUs."""
    model, gpu, rate, gpus = catalog.model("llama-3.1-8b"), catalog.gpu("h100_sxm"), 90.0, 12
    slo, worker = SLO(1.0, 0.02), Parallel(tp=2)
    found = split(model, gpu, catalog.workload("azure-conv", rate), slo, float(gpus), worker, worker, 2.0)
    assert found.arrival_rps.tolist() == [rate] * 20 + [2.0 * rate] * 20 + [rate] * 60  # ten minutes of 30 s each
    read, written = [], []
    for course in found.courses.values():
        prefill = np.asarray(course.prefill_instances)
        serving = np.minimum(prefill[1:], prefill[:-1]), gpus / 2 - np.maximum(prefill[1:], prefill[:-1])
        prompts, answers = np.asarray(course.prefill_wait_s), np.asarray(course.decode_wait_s)
        calm = (prompts[1:] == 0) & (prompts[:-1] == 0)  # what arrives comes to decode
        for rates, wait, workers, told in (
            (read, prompts, serving[0], prompts[1:] > 0),
            (written, answers, serving[1], calm & (answers[1:] > 0)),
        ):
            before = np.append(workers[:1], workers[:-1])
            busy = 30.0 * workers + wait[1:] * workers - wait[:-1] * before  # seconds of workers for 30 s of arrivals
            rates += (found.arrival_rps[1:] * 30.0 / busy)[told].tolist()
    for rates, curve in ((read, found.ttft_frac), (written, found.itl_frac[::-1])):
        assert rates and max(rates) == pytest.approx(min(rates), rel=1e-6)
        least = found.prefill_gpus[np.argmax(curve < 0.999)]  # GPUs with which not all are late
        assert 2.0 * rate / rates[0] == pytest.approx(least, abs=0.1)
    costs = np.asarray(found.whole.certificate["cost_by_prefill"])
    for name in ("best response", "price-driven"):
        assert costs[int(found.courses[name].prefill_instances[-1]) - 1] <= 1.05 * costs.min() + 1e-3


@settings(max_examples=QUICK)
@given(st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=4), min_size=1, max_size=12), st.integers(0, 9**3 - 1))
def test_tiers_by_moving_blocks_about(blocks, sizes):
    """Tiers that hand on what they push out, and take back to the front what is used, are one stack: counted."""
    capacity = [sizes % 9, sizes // 9 % 9, sizes // 81]
    chained = [[hash(tuple(row[: k + 1])) for k in range(len(row))] for row in blocks]  # prefixes
    stacks: list[OrderedDict] = [OrderedDict() for _ in capacity]
    served = [0, 0, 0]
    for row in chained:
        for block in row:
            at = next((k for k, stack in enumerate(stacks) if block in stack), None)
            if at is not None:
                served[at] += 1
                del stacks[at][block]
            carried = block
            for stack, room in zip(stacks, capacity, strict=True):
                stack[carried] = True
                if len(stack) <= room:
                    break
                carried, _ = stack.popitem(last=False)
    ids = np.unique([b for row in chained for b in row], return_inverse=True)[1].reshape(-1)
    starts = np.cumsum([0, *map(len, chained)])
    tokens = np.diff(starts) * 512.0
    trace = Trace("few", np.arange(len(tokens)) * 1.0, tokens, np.full(len(tokens), 10.0), 0.0, ids, starts)
    model, gpu = catalog.model("llama-3.1-8b"), catalog.gpu("h100_sxm")
    distances = np.asarray(stack_distances(ids), float)
    tiers = [Tier(name, 100.0 * room, 1e9) for name, room in zip("abc", capacity, strict=True)]
    state = bill(tiers, np.full(3, 100.0), distances, PrefillBill(trace, distances, model, gpu, Parallel()))
    np.testing.assert_allclose(state.tier_frac * len(ids), served, atol=1e-9)
    assert float(at_sizes(state, state.blocks[None]).hit_frac[0]) == pytest.approx(sum(served) / len(ids))


@given(st.integers(0, 10**6), st.integers(2, 4), st.integers(1, 9))
def test_routers_by_doing_what_they_say(seed, workers, count):
    """Latencies that are whole numbers, so that ties are ties."""
    rng = np.random.default_rng(seed)
    table = np.cumsum(rng.integers(1, 9, (workers, count + 1)), axis=1).astype(float)
    overlap = rng.integers(0, 5, (count, workers)) / 4.0
    omega = float(rng.integers(0, 9))
    game = RoutingGame(table, overlap, omega)
    order = np.random.default_rng(seed).permutation(count)
    latency = lambda j, n: float(table[j, n - 1]) if n else 0.0
    miss = lambda i, j: 1.0 - overlap[i, j]
    wants = {
        "round robin": lambda i, j, held, turn: (j - turn) % workers,
        "shortest queue": lambda i, j, held, turn: held[j],
        "cache affine": lambda i, j, held, turn: (miss(i, j), held[j]),
        "dynamo": lambda i, j, held, turn: latency(j, held[j] + 1) + omega * miss(i, j),
        # what all on the worker pay with the request, less what they paid before
        "marginal cost": lambda i, j, held, turn: (
            (held[j] + 1) * latency(j, held[j] + 1) - held[j] * latency(j, held[j]) + omega * miss(i, j)
        ),
    }
    for name, want in wants.items():
        held, chosen = [0] * workers, np.zeros((count, workers), int)
        for turn, i in enumerate(order):
            pick = min(range(workers), key=lambda j: (want(i, j, held, turn), j))
            held[pick] += 1
            chosen[i, pick] += 1
        flows = policy_flows(game, name, np.random.default_rng(seed))[0]
        np.testing.assert_array_equal(flows, chosen, err_msg=name)


def exact(number) -> Fraction:
    return Fraction(float(number))


def transfer_wants(policy, tiers, request, worker, flying):
    """What a policy of `dmodels transfer` wants least, as its paper says: `worker` is (free, queued, batch),
    `tiers` (bytes a second, latency, congestion) of its tier."""
    (size, hit), (free, queued, batch), (rate, latency, congestion) = request, worker, tiers
    base, each, most = (Fraction(x) for x in NETKV_CURVE)
    blocked = max(queued - max(most - batch, 0), 0)  # those before it that find no slot, an iteration each
    serve = blocked * (base + each * batch) + base + each * min(batch + 1, most)
    load = (queued + batch) / most
    match policy:
        case RoutingPolicy.LOAD:
            return serve
        case RoutingPolicy.FREENESS:  # free memory for each request there, the most
            return -free / max(queued + batch, 1)
        case RoutingPolicy.CACHE:
            return 1 - hit, load
        case RoutingPolicy.CACHE_LOAD:
            return (1 - hit) / 2 + load / 2
    shared = 1 if policy is RoutingPolicy.NETKV_TOPO else flying + 1
    left = 1 - congestion if policy is RoutingPolicy.NETKV_FULL else 1
    return size * (1 - hit) * shared / (rate * left) + latency + serve


@given(st.integers(0, 10**6), st.sampled_from(POLICIES))
def test_transfer_policies_by_doing_what_they_say(seed, policy):
    """A burst, request after request: each takes memory, a slot or a place in the queue, and a share of its tier."""
    rng = np.random.default_rng(seed)
    prefills, workers, count = 2, int(rng.integers(1, 6)), 8
    tier_map = rng.integers(0, 3, (prefills, workers))
    rates, late = rng.integers(1, 9, 3) * 1e9, rng.integers(0, 4, 3) / 64.0
    congestion = rng.integers(0, 4, 3) / 4.0
    free, queued, batch = rng.integers(0, 40, workers) * 1e9, rng.integers(0, 6, workers), rng.integers(58, 66, workers)
    source, size = rng.integers(0, prefills, count), rng.integers(1, 12, count) * 1e9
    hits = rng.integers(0, 4, (count, workers)) / 4.0
    pool = DecodePool(free, queued.astype(float), batch.astype(float))
    oracle = Oracle(tier_map, rates, late, congestion)
    found = dispatch(policy, oracle, source, size, hits, pool)[0].index
    state = [[exact(x) for x in column] for column in (free, queued, batch)]
    flying, turn = [[0] * 3 for _ in range(prefills)], 0
    for r, pick in enumerate(found):
        needs = [exact(size[r]) * (1 - exact(hits[r, j])) for j in range(workers)]
        there = [j for j in range(workers) if needs[j] <= state[0][j]]
        if policy is RoutingPolicy.ROUND_ROBIN:
            expected = min(there, key=lambda j: (j - turn) % workers, default=-1)
            assert pick == expected
        else:
            wants = {}
            for j in there:
                tier, worker = tier_map[source[r], j], [column[j] for column in state]
                reading = exact(rates[tier]), exact(late[tier]), exact(congestion[tier])
                request = exact(size[r]), exact(hits[r, j])
                wants[j] = transfer_wants(policy, reading, request, worker, flying[source[r]][tier])
            assert (pick < 0) == (not wants)
            if wants:
                least = min(wants.values())
                alike = wants[pick] == least or (isinstance(least, Fraction) and wants[pick] - least < 1e-12 * least)
                assert alike, (pick, wants)
        if pick < 0:
            continue
        turn = (pick + 1) % workers
        state[0][pick] -= needs[pick]
        state[2 if state[2][pick] < 64 else 1][pick] += 1
        flying[source[r]][tier_map[source[r], pick]] += 1


def test_transfer_policies_are_compared_by_counting_requests():
    """Means over all requests that arrived in the windows; a gain is that of the sums of seconds."""
    cluster, policies = netkv_cluster(), (RoutingPolicy.CACHE_LOAD, RoutingPolicy.NETKV_FULL)

    def arrivals(k):
        rng = np.random.default_rng(k)
        n = 60 + 40 * k
        when = np.sort(rng.uniform(0.0, 4.0, n))
        return Arrivals(when, rng.uniform(0.1, 0.5, n), rng.integers(500, 9000, n) * 1.0, rng.integers(5, 60, n) * 1.0)

    options = {"warmup_s": 1.0, "measure_s": 2.0, "ttft_slo_s": 0.6}
    rows = compare_policies(cluster, arrivals, policies, runs=2, **options)
    first = None
    for row, policy in zip(rows, policies, strict=True):
        runs = [simulate(cluster, arrivals(k), policy, seed=k) for k in (0, 1)]
        seen = [
            (float(ttft), float(sent), int(tier))
            for run in runs
            for when, ttft, sent, tier in zip(run.arrival_s, run.ttft_s, run.transfer_s, run.tier, strict=True)
            if 1.0 <= when < 3.0
        ]
        first = first or seen
        assert row.policy == policy.name and row.requests_count == len(seen)
        assert row.ttft_mean_s == pytest.approx(math.fsum(t for t, *_ in seen) / len(seen))
        assert row.transfer_mean_s == pytest.approx(math.fsum(t for _, t, _ in seen) / len(seen))
        assert row.slo_frac == pytest.approx(sum(t <= 0.6 for t, *_ in seen) / len(seen))
        assert row.tier_3_frac == pytest.approx(sum(tier == 3 for *_, tier in seen) / len(seen))
        gain = 1.0 - math.fsum(t for t, *_ in seen) / math.fsum(t for t, *_ in first)
        assert row.ttft_vs_first_frac == pytest.approx(gain, abs=1e-12)


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=2, max_size=12))
def test_the_error_of_a_mean_over_windows(values):
    """Of windows that weigh the same, the textbook's s / sqrt(n); one that weighs nothing changes nothing."""
    n = len(values)
    error = float(np.std(values, ddof=1) / np.sqrt(n))
    assert standard_error(np.array(values), np.full(n, 1 / n)) == pytest.approx(error, rel=1e-9, abs=1e-9)
    more = standard_error(np.array([*values, 7e3]), np.append(np.full(n, 1 / n), 0.0))
    assert more == pytest.approx(error, rel=1e-9, abs=1e-9)
    assert math.isnan(standard_error(np.array(values[:1]), np.ones(1)))
