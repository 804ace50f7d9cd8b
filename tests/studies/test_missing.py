"""What a purchase lacks, by placing instances into nodes one by one; and traffic without its longest requests."""

from __future__ import annotations

import math
import re
from types import SimpleNamespace as Record

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels import Workload
from dmodels.studies.plan import Tail
from dmodels.studies.plan.limits import Limits, bought
from dmodels.studies.plan.rejections import beyond_limits
from dmodels.studies.plan.tail import costly, without_longest

parts = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 9), st.sampled_from([1, 2, 3, 4, 8, 16])),
    min_size=1,
    max_size=2,
)
PRICES = {"a": 2.5, "b": 0.75}


def nodes(node, own):
    """Nodes for instances (count, GPUs of each), the widest first, each into the first node with room for it; an
    instance wider than a node has whole ones of its own."""
    room: list[int] = []
    whole = 0
    for each in sorted((each for count, each in own for _ in range(count)), reverse=True):
        if each > node:
            whole += math.ceil(each / node)
            continue
        at = next((k for k, left in enumerate(room) if left >= each), None)
        if at is None:
            room.append(node)
            at = len(room) - 1
        room[at] -= each
    return whole + len(room)


@settings(max_examples=150)
@given(parts, st.sampled_from([1, 2, 4, 8]))
def test_nodes_are_as_many_as_instances_fill(found, node):
    """Pools of one type share nodes where their sizes nest; otherwise each has its own."""
    told = bought(node, found)
    assert told.keys() == {gpu for gpu, *_ in found}
    for gpu, gpus in told.items():
        own = [(count, each) for name, count, each in found if name == gpu]
        together, apart = nodes(node, own), sum(nodes(node, [one]) for one in own)
        assert node * together <= gpus <= node * apart and gpus % node == 0
        sizes = [each for _, each in own]
        nest = all(node % each == 0 for each in sizes) and max(sizes) % min(sizes) == 0
        assert gpus == node * (together if nest else apart) or (not nest and max(sizes) > node)


@settings(max_examples=150)
@given(parts, st.sampled_from([1, 8]), st.integers(1, 60), st.integers(0, 60), st.integers(5, 200), st.integers(0, 7))
def test_what_is_missing_makes_a_fleet_possible_and_less_does_not(found, node, most, there, money, which):
    """GPUs in all, of type a, dollars: those that are limited, and with what the fix names no more is missing."""
    limits = Limits(
        most if which & 1 else math.inf,
        {"a": float(there)} if which & 2 else {},
        node,
        float(money) if which & 4 else math.inf,
    )
    gpus = bought(node, found)
    cost = sum(count * PRICES[gpu] for gpu, count in gpus.items())
    if limits.allow(found, cost):
        assert sum(gpus.values()) <= limits.max_gpus and cost <= limits.max_usd_per_hour * (1 + 1e-9)
        return
    asked = Record(limits=limits, gpus={name: Record(price_usd_per_hour=price) for name, price in PRICES.items()})
    told = beyond_limits(asked, "the fleet", found)
    more = {"GPU": 0.0, "a": 0.0, "$": 0.0}
    for part in told.fix.split(" and "):
        amount = float(re.search(r"[\d,.]+", part)[0].replace(",", ""))
        more["$" if "$" in part else "a" if " a GPU" in part else "GPU"] += amount
    richer = limits._replace(
        max_gpus=limits.max_gpus + more["GPU"],
        inventory={name: count + more["a"] for name, count in limits.inventory.items()},
        max_usd_per_hour=limits.max_usd_per_hour + more["$"],
    )
    assert richer.allow(found, cost), told.fix
    for name, step in (("GPU", 1.0), ("a", 1.0), ("$", 0.02)):
        if more[name]:
            less = {
                "GPU": richer._replace(max_gpus=richer.max_gpus - step),
                "a": richer._replace(inventory={"a": richer.inventory.get("a", 0.0) - step}),
                "$": richer._replace(max_usd_per_hour=richer.max_usd_per_hour - step),
            }[name]
            assert not less.allow(found, cost), (name, told.fix)
    short = more["GPU"] or more["a"]
    assert told.binding == ("GPU budget" if short else "money") and told.is_limit and told.excess > 1
    have, need = (float(re.search(r"[\d,.]+", text)[0].replace(",", "")) for text in (told.have, told.need))
    assert have < need and need == pytest.approx(
        cost if not short else gpus["a"] if "a GPU" in told.need else sum(gpus.values()), abs=0.006
    )
    ratios = [gpus.get("a", 0) / max(there, 1.0)] * bool(more["a"]) + [sum(gpus.values()) / most] * bool(more["GPU"])
    assert told.excess == pytest.approx(max(ratios) if short else cost / money)


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=8),
    st.sampled_from([0.0, 0.05, 0.1, 0.3, 0.7]),
)
def test_the_longest_are_left_out_as_far_as_whole_lengths_go(rows, share):
    prompts, answers, weights = (np.array(column, float) for column in zip(*rows, strict=True))
    whole = Workload(prompts, answers, weights / weights.sum(), rate_rps=12.0)
    short, left, beyond = without_longest(whole, share)
    lengths = sorted({a + b for a, b, _ in rows}, reverse=True)
    out, threshold = 0, math.inf
    for length in lengths:
        own = sum(w for a, b, w in rows if a + b == length)
        if (out + own) / weights.sum() > share * (1 + 1e-9):
            break
        out, threshold = out + own, length
    assert left == pytest.approx(out / weights.sum()) and beyond == threshold
    assert float(short.rate_rps) == pytest.approx(12.0 * (1 - left))
    kept = [(a, b) for a, b, _ in rows if a + b < threshold]
    assert list(zip(short.input_tokens.tolist(), short.output_tokens.tolist(), strict=True)) == kept
    assert float(np.sum(short.weight_frac)) == pytest.approx(1.0)
    mean = sum(w * (a + b) for a, b, w in rows if a + b < threshold) / sum(w for a, b, w in rows if a + b < threshold)
    assert float(short.mean_input_tokens + short.mean_output_tokens) == pytest.approx(mean)


def test_three_pools_of_a_type_share_nodes_where_all_of_them_fill_these():
    """As the fleets of several classes may: 16 GPUs are two nodes of eight, 2 and 4 a third, and 3 leave a gap."""
    of = lambda *sizes: bought(8, [("a", 1, each) for each in sizes])
    assert of(16, 2, 4) == {"a": 24} and of(4, 4, 3) == {"a": 24} and of(4, 4) == of(8) == {"a": 8}


def test_a_share_that_is_just_what_was_asked_for_is_left_out_however_it_is_rounded():
    """0.1 + 0.2 is a little over 0.3 in floating point."""
    whole = Workload([1.0, 2.0, 3.0], [1.0] * 3, [0.7, 0.2, 0.1], rate_rps=10.0)
    assert without_longest(whole, 0.3)[1] == pytest.approx(0.3) and without_longest(whole, 0.299)[1] == 0.1


def test_long_requests_are_worth_a_word_from_a_quarter_of_the_money_and_five_times_their_share():
    for share, cost, said in ((0.01, 0.25, True), (0.01, 0.249, False), (0.06, 0.3, True), (0.06, 0.299, False)):
        assert bool(costly([Tail(share, 9e3, 50.0, cost)])) == said
    # of several the one with which least is left to pay, and few requests are
    few, many = Tail(0.01, 9e4, 60.0, 0.4), Tail(0.05, 3e4, 50.0, 0.5)
    assert costly([few, many]) is many and costly([few, Tail(0.1, 1e4, 59.0, 0.6)]) is few and costly([]) is None
