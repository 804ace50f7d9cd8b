"""The fronts behind the pictures, against every pair tried, and the recommendation's place on them."""

from __future__ import annotations

from types import SimpleNamespace as Record

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels import SLO, catalog
from dmodels.studies.plan import fleets, plan, question
from dmodels.studies.plan.limits import Limits

points = st.lists(st.tuples(*[st.integers(1, 30)] * 3), min_size=1, max_size=12)


@given(points, points, st.booleans(), st.sampled_from([20.0, np.inf]), st.booleans())
def test_the_front_of_two_stages_is_that_of_all_pairs_within_the_gpus(a, b, in_turn, limit, of_one_type):
    """In all, or, where both pools are of one type, of this type."""
    one, two = (np.array(x, float) for x in (a, b))
    parts = (x[fleets.pareto_mask(x)] for x in (one, two))
    kinds = Record(limits=Limits(40.0, {"a": limit}, 1, np.inf), gpus={"a": Record(price_usd_per_hour=3.0)})
    shared = fleets._shared(kinds, "a") if of_one_type else None
    limit = min(limit, 40.0) if of_one_type else limit
    joined = fleets._joined(*parts, in_turn, Limits(np.inf if of_one_type else limit, {}, 1, np.inf), shared)
    found = fleets.pruned(*joined[:, :2].T)
    times = (np.add if in_turn else np.maximum).outer(one[:, 0], two[:, 0])
    costs, gpus = (np.add.outer(one[:, i], two[:, i]) for i in (1, 2))
    every = fleets.pruned(times[gpus <= limit], costs[gpus <= limit])
    np.testing.assert_allclose(found.ttft_s, every.ttft_s)
    np.testing.assert_allclose(found.usd_per_hour, every.usd_per_hour)


@given(points, points, st.booleans(), st.sampled_from([2, 8]), st.sampled_from([24.0, np.inf]))
def test_pools_of_one_type_stand_in_the_same_nodes_and_others_do_not(a, b, in_turn, node, there):
    """Every pair by hand: whole nodes of both together for the price of their GPUs, or of each for its own price; for
    no more money than there is, to rounding."""
    one, two = (np.array(x, float) for x in (a, b))
    for shared in (True, False):
        nodes = fleets._Shared(there, 2.5) if shared else None
        pairs = set()
        for t, usd, n in one:
            for u, more, m in two:
                gpus = node * (np.ceil((n + m) / node) if shared else np.ceil(n / node) + np.ceil(m / node))
                cost = gpus * 2.5 if shared else usd + more
                if gpus <= there:
                    pairs.add((t + u if in_turn else max(t, u), cost, n + m))
        money = sorted(cost for _, cost, _ in pairs)[len(pairs) // 2] if pairs else 90.0  # what one of them costs
        found = fleets._joined(one, two, in_turn, Limits(there, {}, node, np.nextafter(money, 0.0)), nodes)
        pairs = {pair for pair in pairs if pair[1] <= money}
        beats = lambda y, x: y != x and all(p <= q for p, q in zip(y, x, strict=True))
        best = {x for x in pairs if not any(beats(y, x) for y in pairs)}
        assert {tuple(row) for row in found.tolist()} == best


@pytest.fixture(scope="module", params=[20.0, 200.0])
def answer(request):
    chat = catalog.workload("azure-conv", request.param)
    return plan(
        question(
            "llama-3.1-70b", ["h100", "h200"], chat, SLO(2.0, 0.08), tp=(2, 4, 8), thresholds_tokens=(1024.0, 4096.0)
        ),
        ensure=False,
    )


def test_the_cheapest_fleet_is_on_the_front_and_no_alternative_is_below(answer):
    front = answer.fleets.front
    best = answer.cheapest
    at = np.flatnonzero(np.isclose(front.usd_per_hour, best.usd_per_hour))
    assert at.size == 1 and front.ttft_s[at[0]] == pytest.approx(best.ttft_s) and at[0] == len(front.ttft_s) - 1
    for other in (answer.best, *answer.kinds, *answer.by_gpu):
        assert float(front.cost_within(1.000001 * other.ttft_s)) <= other.usd_per_hour * (1.0 + 1e-9)


def test_each_kind_ends_in_the_cheapest_of_its_kind(answer):
    for deployment in answer.kinds:
        own = answer.fleets.fronts[deployment.kind]
        assert own.usd_per_hour[-1] == pytest.approx(deployment.usd_per_hour)
        assert own.ttft_s[-1] == pytest.approx(deployment.ttft_s)


def test_no_fleet_that_keeps_the_slos_is_below_the_front(answer):
    one = answer.fleets.one_pool
    meets = one["meets"]
    assert (one["ttft_s"][meets] <= 2.0).all()
    assert (answer.fleets.front.cost_within(one["ttft_s"][meets]) <= one["usd_per_hour"][meets] * (1 + 1e-12)).all()


def test_fleets_beyond_the_gpus_there_are_do_not_count():
    chat = catalog.workload("azure-conv", 20.0)
    few = plan(
        question(
            "llama-3.1-70b",
            ["h100", "h200"],
            chat,
            SLO(2.0, 0.08),
            tp=(2, 4, 8),
            max_gpus=20.0,
            thresholds_tokens=(1024.0, 4096.0),
        ),
        ensure=False,
    )
    one = few.fleets.fronts["one pool"]
    assert one.ttft_s.size > 0 and (one.usd_per_hour <= 20.0 * 3.59 + 1e-9).all()
    assert (few.fleets.one_pool["gpus"][few.fleets.one_pool["meets"]] <= 20.0).all()
