"""KV placement as a study: against a plain simulation of the same tiers, and answers that can be checked by hand."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import pairwise
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from dmodels import Parallel, Trace, catalog, read_trace
from dmodels.core.errors import InputError
from dmodels.models.cache import Eviction, leader, lost_hits, remaining_prefill_s, replay, stack_distances
from dmodels.models.latency import prefill_s
from dmodels.studies.place import PrefillBill, Tier, at_sizes, bill, place, study, use_of

GIB = 2.0**30
LLAMA, H100, TP4 = catalog.model("llama-3.1-70b"), catalog.gpu("h100_sxm"), Parallel(tp=4)
BLOCK = 160 / 1024  # GiB


def conversations(seed=0, count=40, turns=6):
    """Conversations of growing prompts behind one system prompt, interleaved; block ids are chained prefixes."""
    rng = np.random.default_rng(seed)
    texts = [[(0,)] for _ in range(count)]
    order = rng.permutation(np.repeat(np.arange(count), turns))
    requests = []
    for c in order:
        texts[c] += [(c, len(texts[c]) + k) for k in range(rng.integers(1, 4))]
        requests.append([hash(tuple(texts[c][: k + 1])) for k in range(len(texts[c]))])
    ids = np.unique([b for r in requests for b in r], return_inverse=True)[1].reshape(-1)
    sizes = np.array([len(r) for r in requests])
    tokens = sizes * 512.0 - rng.integers(0, 511, len(sizes))
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return Trace("chats", np.arange(len(sizes)) * 2.0, tokens, np.full(len(sizes), 100.0), 0.0, ids, starts)


TRACE = conversations()


def tiers(hbm=4.0, dram=10.0, ssd=20.0, **last):
    return [
        Tier("HBM", hbm * GIB, 13.4e12, 0.0, 375.0),
        Tier("DRAM", dram * GIB, 50e9, 2e-5, 5.0),
        Tier("SSD", ssd * GIB, 6e9, 1e-4, 0.12),
        *([Tier("remote", np.inf, **last)] if last else []),
    ]


_PREFILL = jax.jit(jax.vmap(lambda n, c: remaining_prefill_s(LLAMA, H100, TP4, n, c)))


def test_what_is_not_said_of_a_placement():
    """One worker, whose uses decay in a minute; no bound to meet."""
    few = conversations(count=12)
    plain = place(few, LLAMA, H100, TP4, tiers())
    said = {"target_hit_frac": None, "target_first_token_s": np.inf, "workers": 1, "link_bytes_per_s": None}
    assert plain.to_dict() == place(few, LLAMA, H100, TP4, tiers(), decay_s=60.0, **said).to_dict()


def computed_s(hits):
    """Seconds that each request (requests,) computes where so many of its blocks are found."""
    cached = np.minimum(hits * 512.0, TRACE.input_tokens - 1)
    return np.asarray(_PREFILL(TRACE.input_tokens - cached, cached))


@pytest.fixture(scope="module")
def answer():
    return place(TRACE, LLAMA, H100, TP4, tiers(), target_hit_frac=0.75, workers=4)


def test_tiers_serve_what_their_stack_says_and_latency_is_a_sum_over_requests(answer):
    distances = stack_distances(TRACE.block_ids, TRACE.block_starts)
    blocks = np.floor(np.array([4, 10, 20]) / BLOCK)
    tier = np.searchsorted(np.cumsum(blocks), distances)
    read = np.array([160 * 2**20 / 13.4e12, 2e-5 + 160 * 2**20 / 50e9, 1e-4 + 160 * 2**20 / 6e9, 0.0])
    load = np.add.reduceat(read[tier], TRACE.block_starts[:-1])
    hits = np.add.reduceat(tier < 3, TRACE.block_starts[:-1])
    compute = computed_s(hits)
    assert [row.served_frac for row in answer.tiers] == pytest.approx([(tier == k).mean() for k in range(3)])
    assert [row.read_s for row in answer.tiers] == pytest.approx(read[:3])
    assert answer.first_token_s == pytest.approx((load + compute).mean(), rel=1e-9)


READ = np.array([160 * 2**20 / 13.4e12, 2e-5 + 160 * 2**20 / 50e9, 1e-4 + 160 * 2**20 / 6e9, 0.0])


def requests_of(hit):
    """How many of the blocks (accesses,) of each request are found."""
    return np.add.reduceat(hit, TRACE.block_starts[:-1])


@pytest.fixture(scope="module")
def spared_s():
    """Seconds that a hit spares its request, in the mean."""
    found = np.isfinite(stack_distances(TRACE.block_ids, TRACE.block_starts))
    return float((computed_s(requests_of(False & found)) - computed_s(requests_of(found))).sum() / found.sum())


def test_each_curve_is_of_its_own_policy(answer, spared_s):
    """Of blocks that are forgotten once a minute; what is recomputed takes two FLOPs a parameter and token."""
    c, ids, starts = answer.curves, TRACE.block_ids, TRACE.block_starts
    distances, minutes = stack_distances(ids, starts), np.floor(TRACE.time_s / 60.0)
    assert (c.blocks[0], c.blocks[-1], c.replayed_blocks[-1]) == (1, len(np.unique(ids)), c.blocks[-1])
    assert 48 <= len(c.blocks) <= 64 and 16 <= len(c.replayed_blocks) <= 24  # in a plain loop, which takes its time
    for k in (0, len(c.replayed_blocks) // 2, -3):
        for name, policy in (("lfu", Eviction.LFU), ("kvbm", Eviction.KVBM)):
            hit = replay(ids, starts, c.replayed_blocks[k], policy, minutes).hit
            first = [list(np.append(row, False)).index(False) for row in np.split(hit, starts[1:-1])]  # that misses
            assert getattr(c, f"{name}_frac")[k] == pytest.approx(hit.mean())
            assert getattr(c, f"{name}_usable_frac")[k] == pytest.approx(sum(first) / len(ids))
    rng, middle = np.random.default_rng(5), len(c.blocks) // 2
    mixed = [(stack_distances(rng.permutation(ids)) <= c.blocks[middle]).mean() for _ in range(20)]
    assert c.shuffled_frac[middle] == pytest.approx(np.mean(mixed), abs=0.01)
    whole = sum(row.blocks_count for row in answer.tiers)
    told = [(c.blocks[k], c.prefill_s[k], c.recomputed_flop[k]) for k in (0, middle, -1)]
    for size, seconds, flop in (*told, (whole, None, answer.recomputed_flop)):
        hits = requests_of(distances <= size)
        again = (requests_of(np.isfinite(distances)) - hits).mean() * 512.0
        assert flop == pytest.approx(2 * 70.6e9 * again, rel=0.1)
        assert seconds is None or seconds == pytest.approx(computed_s(hits).mean(), rel=1e-9)
    np.testing.assert_allclose(c.lost_hits, lost_hits(ids, starts, c.blocks))
    np.testing.assert_allclose(c.lost_gpu_s, 4 * spared_s * c.lost_hits)


def test_a_tier_of_another_size_by_reading_block_after_block(answer, spared_s):
    """The others as they are: 25 blocks of HBM, 64 of DRAM, 128 of SSD."""
    distances, have = stack_distances(TRACE.block_ids, TRACE.block_starts), [25, 64, 128]
    for i, one in enumerate(answer.vary):
        for k in (0, 20, 45, -1):
            blocks = [*have[:i], one.bytes_[k] / (160 * 2**20), *have[i + 1 :]]
            tier = np.searchsorted(np.cumsum(blocks), distances)
            first = np.add.reduceat(READ[tier], TRACE.block_starts[:-1]) + computed_s(requests_of(tier < 3))
            told = (tier < 3).mean(), READ[tier].mean() + (tier == 3).mean() * spared_s, first.mean()
            assert (one.hit_frac[k], one.access_s[k], one.first_token_s[k]) == pytest.approx(told, rel=1e-9)


def test_hbm_leads_with_25_blocks_and_dram_and_ssd_follow(answer, spared_s):
    p, minutes = answer.promotion, np.floor(TRACE.time_s / 60.0)
    found = leader(TRACE.block_ids, TRACE.block_starts, 25, [64, 128], decay_steps=minutes)
    cost = found.tier_frac @ READ[:3] + (1 - found.tier_frac.sum(axis=1)) * spared_s
    least = found.bound_frac @ READ[:3] + (1 - found.bound_frac.sum()) * spared_s
    assert p.threshold.tolist() == [1, 2, 4, 8, 16, 32, 64] == found.threshold.tolist()
    np.testing.assert_allclose(p.hbm_frac, found.tier_frac[:, 0])
    np.testing.assert_allclose(p.access_s, cost)
    assert p.best == found.threshold[np.argmin(cost)]
    gains = [1 - value / cost[0] for value in (min(cost), cost[1], least)]
    assert (p.gain_frac, p.kvbm_gain_frac, p.bound_gain_frac) == pytest.approx(gains, abs=1e-12)


def test_where_reading_and_computing_cost_nothing_no_threshold_saves_anything():
    free = SimpleNamespace(blocks=np.array([25.0, 64.0, 128.0]), read_s=np.zeros(3), miss_s=0.0)
    p = study._promotion(TRACE, free, 60.0)
    assert p.access_s.tolist() == [0.0] * 7 and (p.gain_frac, p.kvbm_gain_frac, p.bound_gain_frac) == (0.0, 0.0, 0.0)


def test_more_workers_than_anybody_waits_for_are_refused_at_once():
    """Work grows as their square; ten minutes' are accepted."""
    with pytest.raises(InputError) as told:
        place(TRACE, LLAMA, H100, TP4, tiers(), workers=50_000)
    asked, minutes, fits = re.match(
        r"workers = ([\d,]+): would take about ([\d,]+) min; accepted is up to 10 min, like workers = ([\d,]+)$",
        str(told.value),
    ).groups()
    asked, minutes, fits = (int(number.replace(",", "")) for number in (asked, minutes, fits))
    assert asked == 50_000 > fits > 1000 and (asked / fits) ** 2 == pytest.approx(minutes / 10, rel=0.01)


def test_use_and_curves_tell_the_same_trace(answer):
    use, c = answer.use, answer.curves
    _, uses = np.unique(TRACE.block_ids, return_counts=True)
    assert use.accesses_count == len(TRACE.block_ids) and use.blocks_count == len(uses)
    assert use.ceiling_frac == pytest.approx(1 - len(uses) / len(TRACE.block_ids))
    assert use.once_frac == pytest.approx((uses == 1).sum() / uses.sum()) and use.warm_frac == 1 - use.once_frac
    assert c.lru_frac[-1] == c.belady_frac[-1] == pytest.approx(use.ceiling_frac) == pytest.approx(c.lfu_frac[-1])
    assert np.all(c.belady_frac >= c.lru_frac) and np.all(np.diff(c.lru_frac) >= 0)
    np.testing.assert_array_equal(c.usable_frac, c.lru_frac)  # identifiers are chained
    assert np.all(c.kvbm_usable_frac <= c.kvbm_frac)
    assert np.all(np.diff(c.recomputed_flop) <= 1e-3 * c.recomputed_flop[0]) and c.recomputed_flop[-1] == 0
    assert np.all(np.diff(c.prefill_s) <= 1e-12)


def test_curves_go_from_a_five_thousandth_to_what_holds_everything():
    for most, first, last in ((50, 1, 50), (5000, 1, 5000), (20_000, 4, 20_000), (1, 1, 2)):  # a curve has two ends
        sizes = study._sizes(most)
        assert (sizes[0], sizes[-1]) == (first, last) and (np.diff(sizes) > 0).all()


def test_a_purchase_meets_the_target_and_one_block_less_does_not(answer):
    distances = stack_distances(TRACE.block_ids, TRACE.block_starts)
    have = sum(row.blocks_count for row in answer.tiers)
    ssd = next(row for row in answer.purchases if row.name == "SSD alone")
    blocks = have + round(ssd.added_gib["SSD"] / BLOCK)
    assert (distances <= blocks).mean() >= 0.75 > (distances <= blocks - 1).mean()
    assert ssd.usd == pytest.approx(0.12 * ssd.added_gib["SSD"])
    assert [row.name for row in answer.purchases] == ["SSD alone", "DRAM alone", "HBM alone"]
    assert answer.mix.usd == pytest.approx(ssd.usd) and answer.mix.added_gib == pytest.approx(ssd.added_gib)
    for row in (*answer.purchases, answer.mix):  # what it brings is what the larger tiers are said to do
        bought = [t._replace(size_bytes=t.size_bytes + row.added_gib.get(t.name, 0.0) * GIB) for t in tiers()]
        there = place(TRACE, LLAMA, H100, TP4, bought)
        assert (row.access_s, row.first_token_s) == pytest.approx((there.access_s, there.first_token_s))
        assert row.hit_frac == pytest.approx(sum(t.served_frac for t in there.tiers if t.tier != "remote"))
    # four GPUs are spared what each request computes less, from its first missing block on
    hits = [np.add.reduceat(distances <= size, TRACE.block_starts[:-1]) for size in (have, blocks)]
    before_s, after_s = (computed_s(count).mean() for count in hits)
    saved = ssd.saved_usd_per_hour
    assert saved == pytest.approx((before_s - after_s) * TRACE.rate_rps * 4 * float(H100.price_usd_per_hour), rel=1e-6)
    assert saved > 0 and ssd.payback_h == pytest.approx(ssd.usd / saved)


def test_a_bound_on_latency_buys_faster_memory(answer):
    bound = answer.mix.first_token_s * 0.9
    found = place(TRACE, LLAMA, H100, TP4, tiers(), target_hit_frac=0.75, target_first_token_s=bound)
    assert found.feasible and found.mix.usd > answer.mix.usd
    assert found.mix.first_token_s <= bound and found.mix.hit_frac >= 0.75
    single = [row.usd for row in found.purchases if row.first_token_s <= bound]
    assert not single or found.mix.usd <= min(single) * (1 + 1e-9)
    impossible = place(TRACE, LLAMA, H100, TP4, tiers(), target_hit_frac=0.75, target_first_token_s=1e-3)
    assert not impossible.feasible and impossible.mix is None
    told = re.search(
        r"to the first token to (\S+) s: with every block in HBM it is (\S+) s, for first uses are computed anyway; "
        r'the smallest change is target.first_token = "(\S+) ms"$',
        impossible.problem,
    )
    asked, fastest, change = map(float, told.groups())
    assert asked == 1e-3 and change == pytest.approx(1e3 * fastest, rel=1e-3)
    enough = place(TRACE, LLAMA, H100, TP4, tiers(), target_hit_frac=0.75, target_first_token_s=1e-3 * change)
    assert enough.feasible and enough.mix.first_token_s > 0.999e-3 * change


def test_the_cheapest_mix_is_no_dearer_than_a_search_over_a_grid():
    """Small tiers to start with, every mix of sizes in steps of 16 blocks, and prices that make the choice close."""
    now = [Tier("HBM", 1.0 * GIB, 13.4e12, 0.0, 40.0), Tier("DRAM", 2.0 * GIB, 20e9, 2e-5, 5.0),
           Tier("SSD", 5.0 * GIB, 4e9, 1e-4, 1.0)]  # fmt: skip
    bound = 0.6 * place(TRACE, LLAMA, H100, TP4, now).first_token_s
    found = place(TRACE, LLAMA, H100, TP4, now, target_hit_frac=0.6, target_first_token_s=bound)
    assert found.feasible and found.mix.first_token_s <= bound and found.mix.hit_frac >= 0.6
    state, weights = _state(now)
    added = np.stack(np.meshgrid(*[np.arange(0, 520, 16.0)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    at = at_sizes(state, state.blocks[None, :] + added)
    good = (at.hit_frac >= 0.6) & (at.first_token_s <= bound)
    prices = added @ (np.array([t.usd_per_gib for t in now]) * weights / GIB)
    assert good.any() and found.mix.usd <= prices[good].min() * (1 + 1e-9)
    assert found.mix.usd >= 0.8 * prices[good].min()  # and the search is not blind


def _state(now):
    from dmodels.models.cache import block_bytes, usable

    weights = np.array([float(block_bytes(LLAMA, 512.0, 4.0 if k == 0 else 1.0)) for k in range(3)])
    distances = stack_distances(TRACE.block_ids, TRACE.block_starts)
    costs = PrefillBill(TRACE, usable(distances, TRACE.block_starts), LLAMA, H100, TP4)
    return bill(now, weights, distances, costs), weights


def test_a_target_above_the_first_uses_is_infeasible_and_says_what_would_do(answer):
    found = place(TRACE, LLAMA, H100, TP4, tiers(), target_hit_frac=0.99)
    assert not found.feasible and not found.purchases
    share = float(found.problem.split("target.hit_rate = ")[1].split(",")[0])
    fixed = place(TRACE, LLAMA, H100, TP4, tiers(), target_hit_frac=share)
    assert fixed.feasible and f"{fixed.use.ceiling_frac:.1%}" in found.problem


def test_requests_in_turn_lose_what_a_pool_keeps(answer):
    pool, together, turn = answer.sharing.layouts
    assert pool.hit_frac > turn.hit_frac and pool.first_token_s < turn.first_token_s
    assert together.ceiling_frac > turn.ceiling_frac
    # kept together, only the system prompt is stored once per worker: at most 3 first uses more
    assert pool.ceiling_frac - together.ceiling_frac == pytest.approx(3 / len(TRACE.block_ids))
    # GPU time: prefill is first token less the reads from peers, of which there are none outside the pool
    rate = TRACE.rate_rps * 4 * float(H100.price_usd_per_hour)
    assert together.saved_usd_per_hour == pytest.approx((turn.first_token_s - together.first_token_s) * rate)
    assert pool.saved_usd_per_hour > (turn.first_token_s - pool.first_token_s) * rate and turn.saved_usd_per_hour == 0
    assert answer.sharing.memory_factor == pytest.approx(turn.equal_blocks / pool.equal_blocks)
    apart = [TRACE.block_ids[np.repeat(np.arange(len(TRACE)) % 4 == w, np.diff(TRACE.block_starts))] for w in range(4)]
    first = sum(len(np.unique(part)) for part in apart)
    assert turn.ceiling_frac == pytest.approx(1 - first / len(TRACE.block_ids))


def test_caches_of_equal_worth_hit_as_often_as_the_pool(answer):
    """At the size that is said to, and not with a block less in each; in turn and with conversations together."""
    pool = answer.sharing.layouts[0]
    for k, layout in enumerate(answer.sharing.layouts[1:], start=1):
        sizes = [BLOCK * (layout.equal_blocks - less) for less in (0, 4)]
        hits = [
            place(TRACE, LLAMA, H100, TP4, tiers(hbm=size), workers=4).sharing.layouts[k].hit_frac for size in sizes
        ]
        assert hits[0] >= pool.hit_frac > hits[1]


@pytest.mark.parametrize("workers", [2, 5])
def test_of_a_pool_all_but_one_read_in_so_many_go_to_a_peer(workers):
    """What a slow link adds to the first token, over what it adds to a read; on caches of one's own it adds nothing."""
    quick, slow = (
        place(TRACE, LLAMA, H100, TP4, tiers(), workers=workers, link_bytes_per_s=rate).sharing for rate in (1e12, 1e9)
    )
    hits = quick.layouts[0].hit_frac * len(TRACE.block_ids) / len(TRACE)
    later = [b.first_token_s - a.first_token_s for a, b in zip(quick.layouts, slow.layouts, strict=True)]
    reads = hits * (workers - 1) / workers
    assert later == pytest.approx([reads * (slow.peer_s - quick.peer_s), 0.0, 0.0])


def test_without_a_link_no_pool_answers_and_caches_of_ones_own_are_as_before(answer):
    """For ever: what lies at a peer cannot be read, so that the best pool is the caches apart."""
    none = place(TRACE, LLAMA, H100, TP4, tiers(), workers=4, link_bytes_per_s=0.0)
    first, before = ([one.first_token_s for one in found.sharing.layouts] for found in (none, answer))
    assert first == [np.inf, *before[1:]] and np.isfinite(before[0])
    assert all(game.selfish_s == pytest.approx(game.isolated_s) for game in none.pooled)


def test_the_pool_as_a_game_reads_what_was_used_before(answer):
    """Reads by a plain loop; alone, each worker keeps what it asks for most often, which is sorted by hand."""
    assert [row.name for row in answer.pooled] == ["conversations kept together", "requests in turn"]
    together, turn = answer.pooled
    seen, reads = set(), [Counter() for _ in range(4)]
    for i, (first, last) in enumerate(pairwise(TRACE.block_starts)):
        for block in TRACE.block_ids[first:last]:
            reads[i % 4][block] += block in seen
            seen.add(block)
    room = [int(size / 4 / BLOCK) for size in (4, 10, 20)]
    miss, times = _state(tiers())[0].miss_s, [row.read_s for row in answer.tiers]
    cost = 0.0
    for count in reads:
        often = sorted(count.values(), reverse=True)
        at = np.repeat([*times, miss], [*room, max(len(often) - sum(room), 0)])[: len(often)]
        cost += float(np.array(often) @ np.minimum(at, miss))
    assert turn.isolated_s == pytest.approx(cost / sum(sum(c.values()) for c in reads))
    for row in answer.pooled:
        assert 0 < row.bound_s <= row.coordinated_s <= row.selfish_s * (1 + 1e-12) <= row.isolated_s * (1 + 1e-9)
        assert row.pooling_frac == pytest.approx(1 - row.selfish_s / row.isolated_s)
        assert row.coordination_frac <= row.coordination_most_frac
    # kept together, workers share little but the system prompt, so that pooling is worth less
    assert together.pooling_frac < turn.pooling_frac


def test_without_a_link_a_pool_is_worth_nothing():
    alone = place(TRACE, LLAMA, H100, TP4, tiers(), workers=4, link_bytes_per_s=1e-6)
    assert [row.pooling_frac for row in alone.pooled] == pytest.approx([0.0, 0.0], abs=1e-12)
    assert [f"{row.pooling_frac:.1%}" for row in alone.pooled] == ["0.0%", "0.0%"]  # and not less


def test_networked_storage_computes_nothing_again():
    far = place(TRACE, LLAMA, H100, TP4, tiers(1.0, 0.0, 0.0, read_bytes_per_s=10e9, latency_s=1e-3))
    assert far.recomputed_flop == 0
    assert sum(row.served_frac for row in far.tiers) == pytest.approx(far.use.ceiling_frac)
    assert [one.tier for one in far.vary] == ["HBM", "DRAM", "SSD"]


def test_no_memory_at_all_and_traces_without_reuse():
    none = place(TRACE, LLAMA, H100, TP4, tiers(0.0, 0.0, 0.0), target_hit_frac=0.5, workers=2)
    assert [row.served_frac for row in none.tiers] == [0, 0, 0] and none.sharing.layouts[0].hit_frac == 0
    compute = np.mean([float(prefill_s(LLAMA, H100, TP4, n)) for n in TRACE.input_tokens[:1]])
    once = Trace("once", np.zeros(1), TRACE.input_tokens[:1], np.ones(1), 0.0, np.arange(3), np.array([0, 3]))
    found = place(once, LLAMA, H100, TP4, tiers(), target_hit_frac=0.0)
    assert found.use.ceiling_frac == 0 and found.first_token_s == pytest.approx(compute) and found.mix.usd == 0
    assert not place(once, LLAMA, H100, TP4, tiers(), target_hit_frac=0.1).feasible


def test_a_block_twice_in_its_first_request_is_no_hit():
    twice = Trace("twice", np.zeros(2), np.full(2, 1_500.0), np.ones(2), 0.0, np.array([7, 7, 8]), np.array([0, 2, 3]))
    found = place(twice, LLAMA, H100, TP4, tiers(), target_hit_frac=0.1)
    assert found.use.ceiling_frac == 0 and not found.feasible and found.use.accesses_count == 3


WRONG = {
    "tiers: none": {"tiers": []},
    "tiers.HBM.size_bytes = -1": {"tiers": [Tier("HBM", -1.0, 1.0)]},
    "tiers.HBM.read_bytes_per_s = 0": {"tiers": [Tier("HBM", 1.0, 0.0)]},
    "at most one unlimited tier": {"tiers": [Tier("a", np.inf, 1.0), Tier("b", 1.0, 1.0)]},
    "unlimited tier, the last": {"tiers": [Tier("a", 1.0, 1.0), Tier("b", np.inf, 1.0), Tier("c", 1.0, 1.0)]},
    "behind limited ones": {"tiers": [Tier("a", np.inf, 1.0)]},
    "target_hit_frac = 1.5": {"target_hit_frac": 1.5},
    "workers = 0": {"workers": 0},
}


@pytest.mark.parametrize("says", WRONG)
def test_mistakes_are_named(says):
    with pytest.raises(InputError, match=says.replace(".", r"\.")):
        place(TRACE, LLAMA, H100, TP4, **({"tiers": tiers()} | WRONG[says]))


def test_a_trace_without_blocks_is_refused():
    with pytest.raises(InputError, match="has no prefix blocks"):
        place(Trace("x", np.zeros(1), np.ones(1), np.ones(1)), LLAMA, H100, TP4, tiers())


def test_mooncakes_shares_by_a_plain_dictionary(shared_data):
    """Half of the accesses are never reused, three quarters of the blocks; a cold cache saturates at 36.6 %."""
    path = shared_data / "mooncake_conversation.jsonl"
    uses, hits = Counter(), 0
    for line in path.read_text().splitlines():
        ids = json.loads(line)["hash_ids"]
        hits += sum(block in uses for block in ids)  # an unlimited cache, empty at first
        uses.update(ids)
    once, accesses = sum(n == 1 for n in uses.values()), sum(uses.values())
    trace = read_trace(path)
    use = use_of(trace, stack_distances(trace.block_ids, trace.block_starts))
    assert (use.requests_count, use.accesses_count, use.blocks_count) == (12_031, accesses, len(uses))
    assert (accesses, len(uses), once, hits) == (288_500, 182_790, 138_646, 105_710)
    assert use.ceiling_frac == pytest.approx(hits / accesses, rel=1e-12) == pytest.approx(0.366, abs=5e-4)
    assert use.once_frac == pytest.approx(once / accesses, rel=1e-12) == pytest.approx(0.481, abs=5e-4)
    assert use.once_blocks_frac == pytest.approx(once / len(uses), rel=1e-12) == pytest.approx(0.758, abs=5e-4)
    assert use.warm_frac == pytest.approx(1 - once / accesses, rel=1e-12) == pytest.approx(0.519, abs=5e-4)


@pytest.mark.slow
def test_the_mooncake_trace(shared_data):
    """Nearly half the accesses are to blocks used once; 36.6 % is the ceiling; requests in turn hit a third of it."""
    trace = read_trace(shared_data / "mooncake_conversation.jsonl")
    found = place(trace, LLAMA, H100, TP4, tiers(320, 1024, 2048), target_hit_frac=0.34, workers=8)
    assert found.use.once_frac == pytest.approx(0.4806, abs=1e-4)
    assert found.use.ceiling_frac == pytest.approx(0.3664, abs=1e-4)
    assert found.sharing.layouts[2].ceiling_frac == pytest.approx(0.1363, abs=1e-4)
    assert found.feasible and found.mix.added_gib.keys() == {"SSD"}
    assert abs(found.promotion.gain_frac) < 0.01 and found.promotion.bound_gain_frac < 0.05


def test_a_prompt_that_is_all_in_the_cache_computes_its_last_token():
    """Two whole blocks twice: the second time 1,023 of 1,024 tokens are spared, or the first block alone."""
    twice = Trace("t", np.zeros(2), np.full(2, 1024.0), np.ones(2), 0.0, np.array([1, 2, 1, 2]), np.array([0, 2, 4]))
    spares = PrefillBill(twice, stack_distances(twice.block_ids, twice.block_starts), LLAMA, H100, TP4)
    assert [spares.cached_tokens(size).tolist() for size in (0, 1, 2, 9)] == [[0, 0], [0, 512], [0, 1023], [0, 1023]]
