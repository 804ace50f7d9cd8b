"""Studies that ask again with one thing changed, and what they say of tiers: which thing, and which answer."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import fields
from types import SimpleNamespace as Record

import numpy as np
import pytest

from dmodels import SLO, Trace
from dmodels.core.hardware import GPU
from dmodels.core.routing import RoutingPolicy
from dmodels.studies.place import game, notes
from dmodels.studies.place.sharing import routes, sharing
from dmodels.studies.place.study import Tier
from dmodels.studies.plan import sensitivities
from dmodels.studies.transfer import policies
from dmodels.studies.transfer.policies import PolicyMetrics, Site, upgrades

# --- transfer: what each upgrade changes ---


def links(cluster):
    """Rates of a port, a rack's and a pod's uplink, of the NIC, numbers of uplinks, bytes of a token."""
    fabric = cluster.fabric
    rates = np.asarray(fabric.link_bytes_per_s)[np.asarray(fabric.first)[:7]]
    return {
        "port": rates[1],
        "rack": rates[3],
        "pod": rates[5],
        "numbers": tuple(np.asarray(fabric.parallel)[1:].tolist()),
        "token": cluster.kv_bytes_per_token,
        "nic": np.asarray(fabric.link_bytes_per_s)[fabric.first[7]] if fabric.shared_nic else math.inf,
    }


@pytest.mark.parametrize("fabric", [{}, {"host_bytes_per_s": 50e9, "nic_bytes_per_s": 40e9, "pods": 4}])
def test_each_upgrade_changes_what_it_is_called_after(fabric, monkeypatch):
    seen, ttft = [], iter([2.0, 1.0, 1.5, 4.0, 2.0, 1.8, 0.5])

    def compared(cluster, arrivals, chosen, **options):
        assert options == {"runs": 3} and arrivals(5) == (5, cluster)
        seen.append((links(cluster), chosen))
        blank = dict.fromkeys((one.name for one in fields(PolicyMetrics)), 0.0)
        return [PolicyMetrics(**blank | {"ttft_mean_s": next(ttft), "policy": chosen[0].name})]

    monkeypatch.setattr(policies, "compare_policies", compared)
    rows = upgrades(Site(fabric), lambda k, cluster: (k, cluster), runs=3)
    (plain, policy), *others = seen
    assert [row.upgrade for row in rows] == [
        *("as it is", "NETKV_FULL instead of CACHE_LOAD", "KV cache in 8 bits", "host ports and NIC x2"),
        *("rack uplinks x2 speed", "pod uplinks x2 speed", "pod uplinks x2 number"),
    ]
    assert [row.ttft_saved_frac for row in rows] == pytest.approx([0.0, 0.5, 0.25, -1.0, 0.0, 0.1, 0.75])
    assert [row.policy for row in rows] == ["CACHE_LOAD", "NETKV_FULL", *["CACHE_LOAD"] * 5]
    assert policy == [RoutingPolicy.CACHE_LOAD]
    changed = [{name for name in plain if one[name] != plain[name]} for one, _ in others]
    nic = {"nic"} if fabric else set()
    assert changed == [set(), {"token"}, {"port"} | nic, {"rack"}, {"pod"}, {"numbers"}]
    for (one, _), names in zip(others[1:-1], changed[1:-1], strict=True):
        for name in names:
            assert one[name] == plain[name] * (0.5 if name == "token" else 2.0)
    *rest, pods = others[-1][0]["numbers"]
    assert (rest, pods) == ([*plain["numbers"][:-1]], 2 * plain["numbers"][-1])


# --- plan: one input at a time ---

BIG = GPU(80e9, 3e12, 1e15, peak_fp8_flop_per_s=2e15, price_usd_per_hour=2.0)


def test_one_input_at_a_time_by_its_factor(monkeypatch):
    """What a fake plan costs is a product of all inputs, each to a power of its own: each change is told apart."""
    asked = Record(gpus={"a": BIG, "b": BIG.replace(price_usd_per_hour=3.0)}, slo=SLO(2.0, 0.1), engine="engine")
    asked.margins = "margins"

    class Priced(Record):
        pass

    def replaced(one, **changes):
        return type(one)(**vars(one) | changes)

    def cost(inputs, outputs, rate, gpus, slo):
        dollars = [float(gpu.price_usd_per_hour) for gpu in gpus.values()]
        return inputs**2 * outputs**3 * rate**5 * dollars[0] ** 7 * dollars[1] ** 11 * slo.ttft_s**-2 * slo.tpot_s**-3

    class Cells(Record):
        def _replace(self, **changes):
            return Cells(**vars(self) | changes)

    def priced_of(question, lengths=(1.0, 1.0)):
        admitted = Record(refused_frac=0.01 * lengths[0])
        found = Priced(
            question=question, cells=Cells(slo=question.slo), rate_rps=10.0, calibration="c", strain="strain"
        )
        found.instances, found.lengths, found.admitted, found.costs_usd_per_hour = np.ones(1), lengths, admitted, None
        return found

    monkeypatch.setattr(sensitivities, "replace", replaced)
    monkeypatch.setattr(sensitivities, "with_lengths", lambda question, i, o: (question, (i, o)))
    monkeypatch.setattr(sensitivities, "price", lambda given, own: priced_of(*given) if own == "c" else None)

    def fewest(cells, rate, *asked_too):
        assert asked_too == ("engine", "margins", "strain")
        return Record(instances=np.array([rate, cells.slo.ttft_s, cells.slo.tpot_s]))

    monkeypatch.setattr(sensitivities, "fewest", fewest)

    def cheapest(priced, costs):
        rate, slo = 10.0, asked.slo
        if np.size(priced.instances) == 3:
            rate, ttft, tpot = priced.instances
            slo = SLO(ttft, tpot)
        worth = cost(*priced.lengths, rate, priced.question.gpus, slo)
        return [Record(usd_per_hour=worth, scheme=Record(name="one pool"))] if rate < 11.0 else []

    monkeypatch.setattr(sensitivities, "cheapest", cheapest)
    first = priced_of(asked)
    first.instances = np.zeros(3)
    first.instances[:] = 10.0, 2.0, 0.1
    found = sensitivities.sensitivity(Record(priced=first, question=asked))
    base = cost(1.0, 1.0, 10.0, asked.gpus, asked.slo)
    powers = {"request rate": 5, "input length": 2, "output length": 3, "price of a": 7, "price of b": 11}
    wanted = {(what, f): f**power for what, power in powers.items() for f in (0.8, 1.2)}
    wanted |= {(f"{name} SLO", f): f**-power for name, power in (("TTFT", 2), ("TPOT", 3)) for f in (0.5, 2.0)}
    wanted["request rate", 1.2] = math.inf
    assert {(one.what, one.factor): one.usd_per_hour / base for one in found} == pytest.approx(wanted)
    order = [(what, f) for f in (0.8, 1.2) for what in powers]  # request rate, lengths, prices
    assert [(one.what, one.factor) for one in found] == [
        *order,
        *((f"{name} SLO", f) for f in (0.5, 2.0) for name in ("TTFT", "TPOT")),
    ]
    assert {one.name for one in found if one.usd_per_hour < math.inf} == {"one pool"}
    assert [one.name for one in found if one.usd_per_hour == math.inf] == ["none"]
    assert {one.factor: one.refused_frac for one in found if one.what == "input length"} == pytest.approx(
        {0.8: 0.008, 1.2: 0.012}
    )


# --- tiers: sharing, the game, and words ---


def chats(seed):
    """A trace of interleaved chats behind one first block."""
    rng = np.random.default_rng(seed)
    texts = {c: [0, 10 * c + 1] for c in range(4)}
    rows = []
    for _ in range(14):
        text = texts[int(rng.integers(4))]
        text.append(1000 * text[1] + len(text))
        rows.append(list(text))
    ids, starts = np.array([b for row in rows for b in row]), np.cumsum([0, *map(len, rows)])
    tokens = np.diff(starts) * 512.0
    return rows, Trace("chats", np.arange(len(rows)) * 1.0, tokens, np.full(len(rows), 9.0), 0.0, ids, starts)


def hits_of(rows, room):
    """Of a least recently used cache: a request looks for all of its blocks, then uses them from the last to the first,
    so that its beginning stays longest."""
    held, found = OrderedDict(), []
    for row in rows:
        found += [block in held for block in row]
        for block in reversed(row):
            held[block] = True
            held.move_to_end(block)
        while len(held) > room:
            held.popitem(last=False)
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("room", [6, 13, 30])
def test_a_pool_and_caches_of_ones_own_block_by_block(seed, room):
    """Hits by plain caches; a prefill of one second but for what hits spare; reads of a pool mostly come from peers."""
    rows, trace = chats(seed)
    workers, peer_s, saved = 3, 0.25, 7.0
    costs = Record(spared=lambda used: used.sum(), of_tokens=lambda spared: (10.0 - 0.01 * spared, None))
    found = sharing(trace, float(room), workers, peer_s, costs, saved)
    assert (found.workers, found.size_blocks, found.peer_s) == (workers, room, peer_s)
    accesses, ways = len(trace.block_ids), routes(trace, workers)
    apart = lambda route, each: sum(
        sum(hits_of([row for row, at in zip(rows, route, strict=True) if at == w], each)) for w in range(workers)
    )
    pool = sum(hits_of(rows, room))
    counted = [pool, *(apart(route, room // workers) for route in ways.values())]
    assert [one.name for one in found.layouts] == ["one pool", *(f"own caches, {name}" for name in ways)]
    assert [one.hit_frac * accesses for one in found.layouts] == pytest.approx(counted)
    forever = [sum(hits_of(rows, 10**6)), *(apart(route, 10**6) for route in ways.values())]
    assert [one.ceiling_frac * accesses for one in found.layouts] == pytest.approx(forever)
    prefill = [10.0 - 0.01 * n for n in counted]
    later = [pool / len(rows) * (1 - 1 / workers) * peer_s, 0.0, 0.0]
    assert [one.first_token_s for one in found.layouts] == pytest.approx(
        [a + b for a, b in zip(prefill, later, strict=True)]
    )
    assert [one.saved_usd_per_hour for one in found.layouts] == pytest.approx(
        [saved * (prefill[-1] - p) for p in prefill]
    )
    for k, size in enumerate(found.blocks):
        told = [sum(hits_of(rows, int(size))), *(apart(route, int(size) // workers) for route in ways.values())]
        assert found.hit_frac[:, k] * accesses == pytest.approx(told)
    assert (found.blocks[0], found.blocks[-1]) == (workers, workers * len(np.unique(trace.block_ids)))
    for one, route in zip(found.layouts[1:], ways.values(), strict=True):  # the least at which it hits as often
        each = one.equal_blocks / workers
        if math.isinf(each):
            assert apart(route, 10**6) < pool
        elif pool:
            assert apart(route, int(each)) >= pool > apart(route, int(each) - 1)


def test_a_pooled_game_in_seconds_per_read(monkeypatch):
    """Each of its prices over all reads; a game that never settles is not asked what more memory would do."""
    _, trace = chats(1)
    state = Record(blocks=np.array([9.0, np.inf]), read_s=np.array([0.1, 0.2]), miss_s=5.0)
    asked = []

    def worth(played, iterations):
        assert iterations == 40
        asked.append(played)
        reads = played.arrays().demand.sum()
        side = lambda each: Record(social_s=each * reads, tier="tier")
        return Record(
            isolated_s=9.0 * reads,
            selfish=side(6.0),
            coordinated=side(5.0),
            bound_s=4.0 * reads,
            pooling_frac=1 / 3,
            coordination_frac=(0.1, 0.2),
            flags=len(asked) - 1,
        )

    monkeypatch.setattr(game, "value_of_sharing", worth)

    def risk(played, extra, start, together, plays):
        assert together and plays == 2 and played is asked[-1]  # at all workers at once
        return f"{extra:g} of {start}"

    monkeypatch.setattr(game, "at_risk", risk)
    one, two = game.pooled(trace, state, 2, 0.5, routes(trace, 2))
    assert (one.isolated_s, one.selfish_s, one.coordinated_s, one.bound_s) == pytest.approx((9.0, 6.0, 5.0, 4.0))
    assert (one.pooling_frac, one.coordination_frac, one.coordination_most_frac) == pytest.approx((1 / 3, 0.1, 0.2))
    assert (one.settled, one.risk) == (True, "1 of tier") and (two.settled, two.risk) == (False, "")
    played = asked[0].arrays()
    assert played.capacity == pytest.approx(np.array([[4.0, np.inf]] * 2))  # half of nine blocks each, rounded down
    assert (played.recompute == 5.0).all() and played.distance.tolist() == [[0.0, 0.5], [0.5, 0.0]]
    assert (played.access == [[0.1, 0.2]] * 2).all()
    assert game.pooled(chats(1)[1], state, 2, 0.5, {}) == []
    asked.clear()
    state.blocks = np.array([90.0, 290.0])
    (large,) = game.pooled(trace, state, 2, 0.5, {"in turn": routes(trace, 2)["requests in turn"]})
    assert large.risk == "15 of tier"  # a tenth of the largest tier of a worker, and what is left of a block


def told_of(**more):
    curves = Record(
        blocks=np.array([10.0, 1000.0]),
        lru_frac=np.array([0.2, 0.5]),
        shuffled_frac=np.array([0.1, 0.53]),
        lost_hits=np.array([0.25, 0.125]),
        lost_gpu_s=np.array([2e-3, 1e-3]),
    )
    use = Record(once_frac=0.5, once_blocks_frac=0.75, ceiling_frac=0.4, warm_frac=0.45)
    best = Record(best=2.0, gain_frac=0.125, kvbm_gain_frac=0.0625, bound_gain_frac=0.25)
    found = Record(**{"use": use, "curves": curves, "promotion": best, "sharing": None, "pooled": []} | more)
    tiers = [Tier("HBM", 1.0, 1.0), Tier("DRAM", 1.0, 1.0), Tier("SSD", 1.0, 1.0)]
    state = Record(read_s=np.array([1e-4, 3e-3, 4e-3]), miss_s=2e-3, blocks=np.array([9.0, 9.0, 0.0]))
    return notes.notes(found, tiers, state)


def test_sentences_on_tiers():
    first, che, slow, leader, lost = told_of()
    assert first.startswith("50.0% of the block accesses (75.0% of the blocks) are to blocks used once; an unlimited")
    assert "hits 40.0%, and 45.0% if blocks that are reused" in first
    assert "off by 10.0 points at 10 blocks: what was used comes back sooner than" in che
    assert slow.startswith("Reading a block from DRAM takes 3 ms, computing it again 2 ms: recomputing is faster, DRAM")
    assert "threshold 2 is best and takes 12.50% off the access latency of storing everything" in leader
    assert "(KVBM's threshold, 2, takes off 6.25%); no leader can take off more than 25.00%." in leader
    assert lost.endswith("costs others up to 0.25 hits (2 ms of prefill), at 10 blocks.")
    layouts = [Record(hit_frac=share) for share in (0.5, 0.4, 0.3)]
    shared = Record(layouts=layouts, memory_factor=2.5, workers=4)
    given = {"pooling_frac": 0.125, "coordination_frac": 0.01, "coordination_most_frac": 0.02, "risk": ""}
    games = [
        Record(name="in turn", settled=True, **given),
        Record(name="together", settled=False, **given | {"risk": "all is well"}),
    ]
    said = told_of(
        sharing=shared, pooled=games, promotion=Record(best=1.0, gain_frac=0.0, kvbm_gain_frac=0.0, bound_gain_frac=0.0)
    )
    assert (
        "4 workers' HBM hits 50.0%, caches of their own 40.0% with conversations kept together and 30.0% with"
        in said[3]
    )
    assert "which need 2.5 times the HBM for the pool's hits" in said[3]
    assert "As a game, in turn: pooling HBM and the tiers below saves 12.5% of the time of reads, central" in said[4]
    assert said[4].endswith("another 1.0% to 2.0%.")
    assert "(selfish placement never settles), central" in said[5] and said[5].endswith(
        "2.0%; a tenth more memory everywhere: all is well."
    )
    assert "HBM as leader: storing everything is best" in said[6]
    later = Record(
        blocks=np.array([10.0, 1000.0, 5e3]),
        lru_frac=np.array([0.2, 0.45, 0.5]),
        shuffled_frac=np.array([0.21, 0.471, 0.5]),
        lost_hits=np.array([0.25, 0.125, 0.5]),
        lost_gpu_s=np.array([2e-3, 1e-3, 4e-3]),
    )
    che, *_, lost = told_of(curves=later)[1:]
    assert che == (
        "Che's approximation is off by 2.1 points at 1,000 blocks: what was used comes back later than its popularity "
        "says, so size by the trace, not by popularities."
    )
    assert lost.endswith("0.5 hits (4 ms of prefill), at 5,000 blocks.")
    never = told_of(sharing=Record(layouts=layouts, memory_factor=math.inf, workers=4))
    assert "which need more than any HBM gives for" in never[3]


def test_what_no_memory_reaches_and_what_it_would_take():
    use, state = Record(ceiling_frac=0.4567), Record(distinct=100.0)
    tiers = [Tier("HBM", 1.0, 1.0, 0.0, 9.0), Tier("SSD", 1.0, 1.0, 0.0, 1.0), Tier("net", math.inf, 1.0)]
    weights = np.array([1.0, 2.0, 3.0]) * 2.0**30
    assert notes.beyond_ceiling(use, state, weights, tiers, 0.4567) == ""
    told = notes.beyond_ceiling(use, state, weights, tiers, 0.5)
    assert told == (
        "no memory reaches a hit rate of 50.0%: 54.3% of the block accesses are first uses, the ceiling is 45.7%; the "
        "smallest change is target.hit_rate = 0.456, which 200 GiB hold"
    )
