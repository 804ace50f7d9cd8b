"""How studies put their parts together, on parts made by hand: each figure where it belongs, and none changed."""

from __future__ import annotations

import math
from dataclasses import fields
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import xarray as xr

from dmodels import Parallel, Trace, Workload, catalog
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.formats.telemetry import Histogram
from dmodels.models import pooling
from dmodels.models.compression import Compression
from dmodels.sim.network import RAG, Profile, netkv_cluster
from dmodels.studies import pools, size
from dmodels.studies.place import game, study
from dmodels.studies.place.sharing import routes, sharing
from dmodels.studies.pools import pool_study
from dmodels.studies.sweep import DesignSweep
from dmodels.studies.transfer import TransferScenario, answer, policies
from dmodels.studies.watch import Compared, _compared


def seen_pool(name, **own):
    given = {"instances": 2, "share_frac": 1.0, "ttft_s": 4.0, "ttft_mean_s": 2.0, "tpot_mean_s": 0.05}
    return SimpleNamespace(name=name, **(given | {"decode_count": 10.0} | own))


SEEN = Histogram((1.0, 3.0), (2.0, 8.0, 0.0), 1.7)


def compared(*pools, split=False, ttft=SEEN):
    seen = SimpleNamespace(ttft_s=ttft, itl_s=Histogram((0.1,), (9.0, 0.0), 0.04), running_mean_count=33.0)
    rows = _compared(seen, SimpleNamespace(pools=pools), SimpleNamespace(split=split))
    return {row.name: (row.measured, row.predicted) for row in rows}


def test_what_is_seen_stands_beside_what_is_said_of_it():
    """One pool has a percentile; of several, means over their requests; a split's stages follow each other, and only
    one of them decodes."""
    one = compared(seen_pool("all"))
    assert one == {
        "TTFT, mean [s]": (1.7, 2.0),
        "TTFT, P99 [s]": (pytest.approx(1.0 + 2.0 * 7.9 / 8.0), 4.0),
        "time between tokens, mean [s]": (0.04, 0.05),
        "requests in flight": (33.0, 20.0),
    }
    long = {"share_frac": 0.25, "ttft_mean_s": 6.0, "tpot_mean_s": 0.09, "instances": 3, "decode_count": 4.0}
    two = compared(seen_pool("short", share_frac=0.75), seen_pool("long", **long))
    assert list(two) == ["TTFT, mean [s]", "time between tokens, mean [s]", "requests in flight"]
    assert [predicted for _, predicted in two.values()] == pytest.approx([3.0, 0.06, 32.0])
    stages = compared(seen_pool("prefill", tpot_mean_s=math.nan), seen_pool("decode", ttft_mean_s=0.5), split=True)
    assert [predicted for _, predicted in stages.values()] == [2.5, 0.05, 20.0]
    beyond = compared(seen_pool("all"), ttft=Histogram((1.0,), (98.0, 2.0), 0.9))  # its P99 is beyond every bound
    assert math.isnan(beyond["TTFT, P99 [s]"][0]) and math.isnan(
        compared(seen_pool("all"), ttft=None)["TTFT, mean [s]"][0]
    )
    assert Compared("x", 0.03, 0.02).ratio == Compared("x", 3.0, 2.0).ratio == 1.5 and math.isnan(
        Compared("x", 3.0, 0.0).ratio
    )


def test_a_transfer_scenario_without_a_word_is_the_papers_cluster_under_its_rag_workload(tmp_path):
    asked = TransferScenario()
    llama = catalog.model("llama-3-70b")
    mine, papers = answer._site(asked, llama).cluster(), netkv_cluster()
    for own, known in zip(jax.tree.leaves(mine), jax.tree.leaves(papers), strict=True):
        np.testing.assert_allclose(own, known, rtol=1e-12)
    bare = policies.Site().cluster()
    assert (bare.kv_bytes_per_token, bare.shards) == (80 * 8 * 128 * 2 * 2, 4) and bare.kv_memory_bytes == 180e9
    np.testing.assert_array_equal(bare.prefill, [0, 1, 2, 3])
    t, prefill = asked.traffic, asked.prefill
    assert (t.min_tokens, t.max_tokens, t.ttft_slo, t.shared_prefix) == (*RAG[:3], RAG.share_frac)
    assert (prefill.base, prefill.per_token) == (RAG.prefill_base_s, RAG.prefill_s_per_token)
    assert (t.workload, t.trace, t.rate) == ("mooncake", None, 6.0) and asked.pools.kv_memory == 180e9
    assert asked.telemetry.model_dump() == {"background": 0, "refresh": 1, "std": 0.05, "correlation_time": 60}
    contexts = [1024 * 2**k for k in (0, 2, 3, 4, 5, 6, 7)]
    assert asked.simulation.model_dump() == {"runs": 10, "warmup": 5, "measure": 15, "contexts": contexts}
    assert (asked.simulation.warmup, asked.simulation.measure) == (policies.WARMUP_S, policies.MEASURE_S) == (5.0, 15.0)
    slower = TransferScenario.model_validate({"fabric": {"tiers": ["450 GB/s", "40 Gbit/s", "9 Gbit/s", "9 Gbit/s"]}})
    assert slower.fabric.port is None and asked.fabric.port == 50e9
    stated = {"tiers": ["450 GB/s", "40 Gbit/s", "9 Gbit/s", "9 Gbit/s"], "port": "80 Gbit/s"}
    assert TransferScenario.model_validate({"fabric": stated}).fabric.port == 10e9


def test_a_fabric_is_built_as_it_is_written():
    """Each number in its place: no two of them are alike."""
    fabric = {"pods": 5, "racks_per_pod": 4, "servers_per_rack": 3, "instances_per_server": 2, "ports": 6}
    fabric |= {"tiers": ["400 GB/s", "80 Gbit/s", "40 Gbit/s", "8 Gbit/s"], "latency": ["1 ms", "2 ms", "3 ms", "4 ms"]}
    fabric |= {"port": "160 Gbit/s", "nic": "240 Gbit/s", "rack_uplinks": 7, "pod_uplinks": 9}
    pools = {"prefill_instances": 11, "kv_memory": "90 GB"}
    asked = TransferScenario.model_validate({"fabric": fabric, "pools": pools, "model": {"tp": 8}})
    site = answer._site(asked, catalog.model("llama-3-70b"))
    built = {"tier_bytes_per_s": (400e9, 10e9, 5e9, 1e9), "tier_latency_s": (1e-3, 2e-3, 3e-3, 4e-3)}
    built |= {"host_ports": 6, "host_bytes_per_s": 20e9, "nic_bytes_per_s": 30e9, "rack_uplinks": 7, "pod_uplinks": 9}
    built |= {name: fabric[name] for name in ("pods", "racks_per_pod", "servers_per_rack", "instances_per_server")}
    assert site.fabric.keys() == built.keys()
    assert all(site.fabric[name] == pytest.approx(wanted) for name, wanted in built.items())
    assert site[1:5] == (11, 80 * 8 * 128 * 2 * 2, 90e9, 8)
    assert "nic_bytes_per_s" not in answer._site(TransferScenario(), catalog.model("llama-3-70b")).fabric


def test_requests_of_a_scenario_fill_its_windows(monkeypatch):
    """Drawn of a workload, or cut out of a trace: a window of ten further on each."""
    traffic = {"rate": "4 req/s", "ttft_slo": "3 s", "min_tokens": 2048.0, "max_tokens": 8192.0, "shared_prefix": 0.5}
    times = {"simulation": {"runs": 10, "warmup": "4 s", "measure": "9 s"}}
    times["prefill"] = {"base": "10 ms", "per_token": "15.625 ms"}
    wanted = Profile(2048.0, 8192.0, 3.0, 4.0, 0.5, prefill_base_s=0.01, prefill_s_per_token=0.015625)
    there = SimpleNamespace(decode=np.arange(12))
    for name in ("window", "poisson"):
        monkeypatch.setattr(answer, name, lambda *given, **more: (given, more))
    given, more = answer._arrivals(TransferScenario.model_validate({"traffic": traffic, **times}))(3, there)
    assert given[3:] == (wanted, 4.0, 13.0, 12) and more == {"seed": 3}
    mix = catalog.workload("mooncake")
    for part, known in zip(given[:3], (mix.input_tokens, mix.output_tokens, mix.weight_frac), strict=True):
        np.testing.assert_array_equal(part, known)
    monkeypatch.setattr(answer, "read_trace", lambda path: f"the trace in {path}")
    asked = TransferScenario.model_validate({"traffic": traffic | {"trace": "own.csv"}, **times})
    given, more = answer._arrivals(asked)(3, there)
    assert given[0].endswith("own.csv") and given[1:] == (wanted, 4.0, 13.0, 12)
    assert more == {"position_frac": 0.3, "seed": 3}


@pytest.mark.parametrize(
    "table, wrong, why",
    [
        ("traffic", {"min_tokens": 9.0, "max_tokens": 8.0}, "min_tokens 9 is above max_tokens 8"),
        ("telemetry", {"background": [0.1, 0.2]}, "background has 2 entries; one number or four"),
        ("telemetry", {"refresh": "0 s"}, "refresh is 0; a time above 0"),
        ("pools", {"prefill_instances": 16}, "prefill_instances is 16 of 16 instances"),
    ],
)
def test_transfer_scenarios_that_are_none(table, wrong, why):
    with pytest.raises(ValueError, match=why):
        TransferScenario.model_validate({table: wrong})
    right = {"traffic": {"min_tokens": 8.0, "max_tokens": 8.0}}
    right["telemetry"] = {"background": [0.1] * 4, "refresh": "1 ms"}
    assert TransferScenario.model_validate(right | {"pools": {"prefill_instances": 15}})


def test_a_transfer_study_hands_its_scenario_on(monkeypatch):
    """Requests, congestion, time and memory as they are asked for, to every part of the study."""
    told = {}

    def kept(name):
        def part(*given, **options):
            told[name] = (given, options)
            return []

        return part

    for name in ("compare_policies", "upgrades", "stale_telemetry"):
        monkeypatch.setattr(answer, name, kept(name))
    asked = TransferScenario.model_validate(
        {
            "model": {"name": "llama-3-70b", "kv_dtype": "fp8"},
            "traffic": {"rate": "4 req/s", "ttft_slo": "3 s", "min_tokens": 2048.0, "max_tokens": 8192.0},
            "fabric": {"tiers": ["450 GB/s", "50 Gbit/s", "25 Gbit/s", "5 Gbit/s"], "port": "400 Gbit/s"},
            "telemetry": {
                "background": [0.0, 0.1, 0.2, 0.3],
                "refresh": "2 s",
                "std": 0.07,
                "correlation_time": "40 s",
            },
            "simulation": {"runs": 3, "warmup": "4 s", "measure": "9 s", "contexts": [2048, 2e6]},
            "prefill": {"base": "10 ms", "per_token": "20 us"},
        }
    )
    found = answer.study(asked)
    token = 80 * 8 * 128 * 2
    near, far = 4 * 25e9 / 8, 4 * 5e9 / 8  # four flows each; prefill instances have a rack of their own
    assert found.kv_bytes_per_token == token
    assert found.tier_bytes_per_s == pytest.approx([450e9, 4 * 400e9 / 8, near, far])
    options = told["compare_policies"][1]
    assert options == told["upgrades"][1] | {"background": options["background"]}
    assert options["background"].tolist() == [0.0, 0.1, 0.2, 0.3] and options["refresh_s"] == 2.0
    assert (options["runs"], options["ttft_slo_s"], options["warmup_s"], options["measure_s"]) == (3, 3.0, 4.0, 9.0)
    assert options["until_s"] == 13.0 + 600.0
    arrivals = told["compare_policies"][0][1]
    first, again, other = arrivals(0), arrivals(0), arrivals(1)
    assert first.input_tokens.tolist() == again.input_tokens.tolist() != other.input_tokens.tolist()
    assert (
        2048 <= first.input_tokens.min() and first.input_tokens.max() <= 8192 and 10.0 < first.arrival_s.max() <= 13.0
    )
    assert found.median_input_tokens == np.median(first.input_tokens)
    (_, bytes_), stale = told["stale_telemetry"]
    assert bytes_ == found.median_input_tokens * token
    assert (stale["std"], stale["correlation_time_s"], stale["congestion"].tolist()) == (0.07, 40.0, [0, 0.1, 0.2, 0.3])
    assert {row.context_tokens for row in found.share} == {2048.0, 2e6}
    assert all(row.prefill_s == pytest.approx(0.01 + 20e-6 * row.context_tokens) for row in found.share)
    assert found.problems == [
        f"a context of 2e+06 tokens needs {2e6 * token:.4g} B of KV memory; an instance has 1.8e+11 B"
    ]
    for row in found.oblivious_choice:  # half of the bytes over the far tier in place of all over the near one
        late = row.context_tokens * token * (0.5 / far - 1 / near)
        assert row.gap_s == pytest.approx(late) and row.ratio == pytest.approx(2.5) and row.loses


def test_a_context_may_fill_an_instance_and_not_be_larger():
    """Of several the longest counts: 1,000 tokens of 64 bytes."""
    asked = SimpleNamespace(simulation=SimpleNamespace(contexts=[1000.0, 10.0]))
    asked.pools = SimpleNamespace(kv_memory=64_000.0)
    assert answer._too_long(asked, 64.0) == []
    asked.pools.kv_memory = 63_999.0
    (told,) = answer._too_long(asked, 64.0)
    assert told == "a context of 1000 tokens needs 6.4e+04 B of KV memory; an instance has 6.4e+04 B"


@pytest.fixture(scope="module")
def pooled():
    """A price, compressors, unequal headroom."""
    return pool_study(
        Workload([500.0, 4000.0, 20000.0], [100.0, 100.0, 100.0], [0.5, 0.25, 0.25], rate_rps=400.0),
        [3000.0],
        headroom=pooling.Headroom(**pooling.PAPER_HEADROOM),
        gpus_per_instance=2,
        price_usd_per_hour=2.21,
        compression=Compression(0.5, 20_000.0, 3.0),
        pools_count=2,
    )


def test_sentences_on_pools_say_what_the_table_says(pooled):
    s, notes = pooled, " ".join(pooled.notes)
    realized, law = np.asarray(s.savings.realized_frac), s.law_frac
    top = max(range(len(law)), key=lambda k: (realized[k], law[k]))
    cost = lambda slots: float(pooling.slot_s(slots, pooling.SlotEngine()))
    assert s.notes[0] == (
        f"Of these thresholds {s.threshold_tokens[top]:,.0f} is best: below it are {s.short.request_frac[top]:.1%} of "
        f"the requests and {s.short.work_frac[top]:.1%} of the work, and work in {s.slots_short[top]:.0f} slots costs "
        f"{1 - cost(s.slots_short[top]) / cost(s.slots_single):.1%} less than in {s.slots_single:.0f}."
    )
    assert f"Eq. (7) of the paper says {float(s.savings.ideal_frac[top]):.1%}: it counts requests" in notes
    low, high = s.forgiving_tokens
    best = s.best[0].threshold_tokens[0]
    assert (
        low <= best <= high and f"from {low:,.0f} to {high:,.0f} keeps 80 % of what the best one, {best:,.0f}" in notes
    )
    assert "Headroom of 1.08 for one pool against 1.02 for the long one alone makes 5.6%, whatever" in notes
    fewest = int(np.argmin(s.compressed_instances_count))
    assert (s.compressed_frac > 0).any() and (
        f"With prompts compressed, {s.threshold_tokens[fewest]:,.0f} is best: {s.compressed_frac[fewest]:.1%} of the "
        f"requests lose part of their prompt, and {s.compressed_instances_count[fewest]:,.0f} instances, compressors "
        f"included, stand against {min(s.savings.dual_instances_count):,.0f} without." in notes
    )
    assert f"holds {float(s.everything.held_tokens):,.0f} tokens on average, and the split at" in s.notes[-1]
    worse = s.paged_frac[top] < -5e-4
    assert s.notes[-1].endswith(f"costs {-s.paged_frac[top]:.1%} more." if worse else "saves nothing.")
    assert (s.paged_frac <= 0).all() and "No threshold here" not in notes


@pytest.mark.parametrize("rate_rps, says", [(20.0, "No threshold"), (80.0, "In so small a fleet"), (105.0, "")])
def test_a_tenth_of_the_instances_is_surely_saved_once_it_is_one(rate_rps, says):
    """By the law the split takes 9.35 % less, so one of eleven; whole instances may save one of nine, and need not."""
    traffic = Workload([500.0, 4000.0, 20_000.0], [100.0] * 3, [0.5, 0.25, 0.25], rate_rps=rate_rps)
    found = pool_study(traffic, [3000.0], pools_count=2)
    fewer = float(found.savings.homo_instances_count - found.savings.dual_instances_count[0])
    assert found.law_frac[0] == pytest.approx(0.0935, abs=5e-5) and fewer == (0 if says == "No threshold" else 1)
    assert found.compressed_frac.tolist() == [0.0] and "compressed" not in " ".join(found.notes)
    assert found.compressed_instances_count.tolist() == found.savings.dual_instances_count.tolist()
    told = {one for one in ("No threshold", "In so small a fleet") if one in " ".join(found.notes)}
    assert told == ({says} if says else set())


def test_thresholds_are_the_powers_of_two_below_the_context(pooled):
    assert pooled.context_tokens == 32_768
    assert pools._thresholds(None, 32_768.0).tolist() == [1024, 2048, 4096, 8192, 16_384]
    np.testing.assert_allclose(pooled.usd_per_year, pooled.savings.dual_instances_count * 2 * 2.21 * 8760)
    assert pools._thresholds(None, 512.0).tolist() == [256.0]
    assert pools._thresholds(None, 1024.0).tolist() == [512.0] and pools._thresholds(None, 1025.0).tolist() == [1024.0]
    assert pools._thresholds([300, 200, 300], 512.0).tolist() == [200.0, 300.0]
    assert pools._thresholds([1.0, 512.0], 512.0).tolist() == [1.0, 512.0]
    for wrong in (0.5, 600.0, math.nan):
        with pytest.raises(InputError, match=f"thresholds = {wrong:g}: accepted are 1 to 512, the context"):
            pools._thresholds(wrong, 512.0)


def test_one_more_pool_while_it_saves_a_thousandth():
    by_count = lambda *saved: tuple(SimpleNamespace(saved_frac=s) for s in saved)
    kept = lambda *saved: [one.saved_frac for one in pools._worth_it(by_count(*saved))]
    assert kept(0.0, 0.2) == [0.2]
    assert kept(0.0, 0.2, 0.3, 0.302, 0.3025) == [0.2, 0.3, 0.302]
    assert kept(0.0, 0.2, 0.2005, 0.4) == [0.2] and kept(0.0, 0.25, 0.3, 0.5) == [0.25, 0.3, 0.5]


def made_sweep(output):
    """Six points of one axis; one is infeasible, and one says only a warning."""
    columns = {
        output: [5.0, 1.0, 4.0, 2.0, 3.0, 6.0],
        "ttft_s": [1.0, 9.0, 2.0, 4.0, 5.0, 0.5],
        "tpot_s": [0.3, 0.1, 0.2, 0.4, 0.5, 0.6],
    }
    flags = np.array([0, int(Flag.OVERLOAD), 0, int(Flag.EXTRAPOLATED), 0, 0], np.int32)
    data = {name: ("tp", values) for name, values in columns.items()} | {"flags": ("tp", flags)}
    return DesignSweep(xr.Dataset(data, {"tp": np.arange(6.0)}), output, 3, None)


def test_a_sweeps_best_points_and_front():
    """The least cost or the most tokens first; the front against TTFT, and that of TTFT against TPOT."""
    order = lambda rows: [row["tp"] for row in rows]
    cheap = made_sweep("cost_usd_per_hour")
    assert order(cheap.best) == [3.0, 4.0, 2.0] and cheap.best[0]["cost_usd_per_hour"] == 2.0
    assert order(cheap.pareto) == [3.0, 2.0, 0.0, 5.0]  # the cheapest first
    fast = made_sweep("gpu_tokens_per_s")
    assert order(fast.best) == [5.0, 0.0, 2.0] and order(fast.pareto) == [5.0]
    first = made_sweep("ttft_s")
    assert order(first.best) == [5.0, 0.0, 2.0] == order(first.pareto)
    assert order(DesignSweep(cheap.points, cheap.output, 2, None).best) == [3.0, 4.0]
    assert order(DesignSweep(cheap.points, cheap.output, 1, None).best) == [3.0]
    assert (cheap.points_count, cheap.feasible_count) == (6, 5)
    assert cheap.fell == {"overload": 1, "extrapolated": 1} and len(cheap.to_dataframe()) == 6


def chained(rows):
    """A trace whose requests use these blocks."""
    ids, starts = np.array([b for row in rows for b in row]), np.cumsum([0, *map(len, rows)])
    tokens = np.diff(starts) * 512.0
    return Trace("few", np.arange(len(rows)) * 1.0, tokens, np.full(len(rows), 9.0), 0.0, ids, starts)


@pytest.mark.parametrize("seed", range(5))
def test_rereads_by_a_plain_loop(seed):
    """Of every worker, also of those that ask for nothing; first uses are no reads."""
    rng = np.random.default_rng(seed)
    rows = [rng.integers(0, 9, int(rng.integers(0, 5))).tolist() for _ in range(12)]
    trace, route = chained(rows), rng.integers(0, 3, 12)
    names = sorted({block for row in rows for block in row})
    wanted, seen = np.zeros((5, len(names))), set()
    for row, worker in zip(rows, route, strict=True):
        for block in row:
            wanted[worker, names.index(block)] += block in seen
            seen.add(block)
    np.testing.assert_array_equal(game.rereads(trace, route, 5), wanted)


def test_nothing_is_shared_where_nothing_is_used_again():
    state = SimpleNamespace(blocks=np.ones(2))
    trace = chained([[0, 1], [2]])
    assert game.pooled(trace, state, 2, 1e-3, {"in turn": np.array([0, 1])}) == []
    bill = SimpleNamespace(spared=lambda used: used, of_tokens=lambda tokens: (1.0, 0.0))
    shared = sharing(trace, 4.0, 2, 1e-3, bill, 100.0)
    assert shared.memory_factor == 1 and not shared.hit_frac.any()  # no more memory is needed than the pool's
    assert all((x.hit_frac, x.equal_blocks, x.saved_usd_per_hour) == (0, 0, 0) for x in shared.layouts)


def test_conversations_are_told_apart_by_their_second_block():
    """Those that share it go to one worker, whatever comes before and after; one block stands for itself."""
    rows = [[0, 5, 7], [1, 5], [0, 6], [0, 6, 8, 9], [3], [3], [2, 3, 4]]
    found = routes(chained(rows), 1000)
    together = found["conversations kept together"].tolist()
    assert together[0] == together[1] and together[2] == together[3] and together[4] == together[5] == together[6]
    assert len(set(together)) == 3 and found["requests in turn"].tolist() == list(range(7))
    assert routes(chained(rows), 3)["requests in turn"].tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert max(routes(chained(rows), 2)["conversations kept together"]) <= 1
    assert routes(chained([*rows, []]), 1000)["conversations kept together"].tolist() == [*together, 0]  # of no block


def test_a_placement_hands_its_parts_on(monkeypatch):
    """Eight heads on sixteen GPUs are held twice: a block of HBM is 320 MiB, and below it 160. A request a second on
    sixteen GPUs of 2 USD/h spares 32 USD/h for each second."""
    seen = {}

    def kept(name, given):
        def part(*asked):
            seen[name] = asked
            return given

        monkeypatch.setattr(study, name, part)

    trace = chained([[0, 1], [0, 1, 2], [0, 1]])
    model, gpu = catalog.model("llama-3.1-70b"), catalog.gpu("h100_sxm").replace(price_usd_per_hour=2.0)
    state = SimpleNamespace(blocks=np.array([12.0, 64.0, 128.0]), read_s=np.array([1.0, 2.0, 3.0]), access_s=0.25)
    state.tier_frac, state.first_token_s, state.recomputed_flop = np.array([0.5, 0.25, 0.125]), 0.75, 9e9
    fakes = {"PrefillBill": "costs", "bill": state, "use_of": "use", "_curves": "curves", "_promotion": "promotion"}
    fakes |= {"_vary": ["vary"], "sharing": "shared", "pooled": ["game"], "routes": "ways", "purchases": ["bought"]}
    fakes |= {"beyond_ceiling": "", "cheapest": ("mix", "why"), "notes": ["a note"]}
    for name, given in fakes.items():
        kept(name, given)
    tiers = [study.Tier(*row) for row in (("HBM", 4 * 2.0**30, 1e12, 0.0, 375.0), ("DRAM", 2.0**35, 1e11, 1e-5, 5.0))]
    given = trace, model, gpu, Parallel(tp=16), tiers
    found = study.place(*given, 0.5, 2.0, 3, decay_s=7.0)
    weights = [320 * 2.0**20, 160 * 2.0**20]
    assert [(row.tier, row.size_gib, row.usd_per_gib) for row in found.tiers] == [("HBM", 4, 375), ("DRAM", 32, 5)]
    assert [(row.blocks_count, row.block_mib) for row in found.tiers] == [(12, 320), (64, 160)]
    assert [(row.read_s, row.served_frac) for row in found.tiers] == [(1.0, 0.5), (2.0, 0.25)]
    assert (found.access_s, found.first_token_s, found.recomputed_flop) == (0.25, 0.75, 9e9)
    assert (found.use, found.curves, found.vary, found.promotion) == ("use", "curves", ["vary"], "promotion")
    assert (found.purchases, found.mix, found.sharing, found.pooled) == (["bought"], "mix", "shared", ["game"])
    assert (found.problem, found.notes, found.feasible) == ("why", ["a note"], False)
    distances = seen["bill"][2]
    assert np.isfinite(distances).tolist() == [False, False, True, True, False, True, True]
    assert seen["bill"][0] is tiers and seen["bill"][1].tolist() == weights and seen["bill"][3] == "costs"
    assert seen["PrefillBill"][0] is trace and seen["PrefillBill"][2:] == (model, gpu, given[3])
    assert (
        seen["_curves"][0] is trace and seen["_curves"][2:] == ("costs", 7.0) and seen["_promotion"][1:] == (state, 7.0)
    )
    usd = 16 * 2.0 * trace.rate_rps
    assert seen["purchases"][:2] == (state, tiers) and seen["purchases"][3:] == (0.5, usd)
    assert seen["cheapest"][:2] == (state, tiers) and seen["cheapest"][3:] == (0.5, 2.0, usd)
    peer_s = 320 * 2.0**20 / float(gpu.nvlink_bytes_per_s_oneway)
    assert seen["sharing"] == (trace, 12.0, 3, pytest.approx(peer_s), "costs", usd)
    assert seen["routes"] == (trace, 3) and seen["pooled"] == (trace, state, 3, pytest.approx(peer_s), "ways")
    assert seen["notes"][1:] == (tiers, state)
    study.place(*given, workers=2, link_bytes_per_s=2.0**20)
    assert seen["sharing"][2:4] == (2, 320.0)
    study.place(chained([[0, 1]]), *given[1:], 0.5)  # one request has no rate
    assert seen["purchases"][3:] == (0.5, 0.0) and seen["cheapest"][3:] == (0.5, math.inf, 0.0)
    for name in ("purchases", "cheapest"):
        kept(name, None)
    kept("beyond_ceiling", "too much")
    seen.clear()
    none = study.place(*given, 0.875)
    assert (none.problem, none.purchases, none.mix) == ("too much", [], None) and seen["beyond_ceiling"][4] == 0.875
    assert (none.sharing, none.pooled) == (None, []) and "purchases" not in seen
    alone = study.place(*given)
    assert (alone.problem, alone.purchases, alone.mix, alone.feasible) == ("", [], None, True)


def test_use_by_counting():
    trace = chained([[0, 1], [0, 2], [0, 1, 3]])
    distances = np.array([np.inf, np.inf, 2, np.inf, 2, 3, np.inf])
    use = study.use_of(trace, distances)
    counted = {"requests_count": 3, "accesses_count": 7, "blocks_count": 4, "once_frac": 2 / 7, "once_blocks_frac": 0.5}
    counted |= {"ceiling_frac": 3 / 7, "warm_frac": 5 / 7}
    assert {one.name: getattr(use, one.name) for one in fields(use)} == pytest.approx(counted)


@pytest.mark.parametrize("field", ["size_bytes", "latency_s", "usd_per_gib"])
def test_tiers_may_hold_cost_and_wait_nothing_but_not_less(field):
    of = lambda value: study.Tier("HBM", **({"size_bytes": 1.0, "read_bytes_per_s": 1.0} | {field: value}))
    study._check([of(0.0)], None, 1.0, 1)
    for wrong in (-0.5, math.nan):
        with pytest.raises(InputError, match=rf"tiers.HBM.{field} = {wrong}: accepted are numbers from 0"):
            study._check([of(wrong)], None, 1.0, 1)


@pytest.mark.parametrize(
    "given, why",
    [
        ((-0.1, 1.0, 1), "target_hit_frac = -0.1: accepted are numbers from 0 to 1"),
        ((None, 0.0, 1), "target_first_token_s = 0.0: accepted are seconds above 0"),
        ((None, 1.0, 1.5), "workers = 1.5: accepted are whole numbers from 1"),
    ],
)
def test_what_placement_cannot_be_asked(given, why):
    with pytest.raises(InputError, match=why):
        study._check([study.Tier("HBM", 1.0, 1.0)], *given)
    for target in (0.0, 1.0, None):
        study._check([study.Tier("HBM", 1.0, 1.0)], target, 1.0, 1)


@pytest.mark.parametrize(
    "flags, budget, why",
    [
        (Flag.OUT_OF_DOMAIN | Flag.NO_FIT, 0.0, "no engine runs the layout"),
        (Flag.NO_FIT, 0.0, "weights, activations and runtime alone exceed the usable memory"),
        (Flag.NO_FIT, -1.0, "weights, activations and runtime alone exceed the usable memory"),
        (Flag.NO_FIT, 1.0, "the KV cache of one sequence of 12,345 tokens exceeds what the weights leave"),
        (0, 1.0, "memory for the KV cache"),
    ],
)
def test_what_limits_an_instance_in_words(flags, budget, why):
    assert size._binds(SimpleNamespace(flags=int(flags), budget_bytes=budget), 12_345.0).startswith(why)
