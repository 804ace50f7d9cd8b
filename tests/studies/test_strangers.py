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
from dmodels.games.routing import RoutingGame, policy_flows
from dmodels.models import pooling
from dmodels.models.cache import stack_distances
from dmodels.studies.place import PrefillBill, Tier, at_sizes, bill
from dmodels.studies.pools import pool_study
from dmodels.studies.split import split

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
    found = split(model, gpu, catalog.workload("azure-conv", 60.0), SLO(1.0, 0.02), 10.0, Parallel(), Parallel(), 1.6)
    costs = [float(a) + float(b) for a, b in zip(found.ttft_frac, found.itl_frac, strict=True)]
    each = (len(costs) - 1) // 10  # points of the curves from a whole GPU to the next
    workers = {prefill: costs[prefill * each] for prefill in range(1, 10)}
    assert float(found.whole.value.cost) == pytest.approx(min(workers.values()), rel=1e-9)
    assert workers[int(found.whole.value.prefill_instances)] == pytest.approx(min(workers.values()), rel=1e-9)
    assert (
        float(found.optimum.value.cost) <= min(*workers.values(), *map(float, found.ttft_frac + found.itl_frac)) + 1e-9
    )
    for name, course in found.courses.items():
        score, rates = found.scores[name], [float(r) for r in found.arrival_rps]
        late = [min(float(a) + float(b), 1.0) for a, b in zip(*course_frac(course), strict=True)]
        violated = sum(share * rate for share, rate in zip(late, rates, strict=True)) / sum(rates)
        assert float(score.violation_frac) == pytest.approx(violated, rel=1e-6)
        moves = sum(abs(float(b) - float(a)) for a, b in pairwise(course.prefill_instances))
        assert float(score.moves_count) == moves
        waits = [max(float(a), float(b)) for a, b in zip(course.prefill_wait_s, course.decode_wait_s, strict=True)]
        assert float(score.worst_wait_s) == pytest.approx(max(waits))
        bad = [k for k, share in enumerate(late) if share > 0]
        assert float(score.recovery_s) == (30.0 * (bad[-1] - bad[0] + 1) if bad else 0.0)


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
