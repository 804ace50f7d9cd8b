"""NetKV's tables from the trace beside the project, in the setting of benchmarks/papers/_netkv_setting.py."""

import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.core.routing import RoutingPolicy
from dmodels.core.units import gbit_per_s
from dmodels.models.traffic import Trace, read_trace
from dmodels.sim.network import CHATBOT, LONG_CONTEXT, RAG, Profile, netkv_cluster, poisson, window
from dmodels.studies.transfer import compare_policies, tune_cache_weight

LADDER = (RoutingPolicy.ROUND_ROBIN, RoutingPolicy.CACHE_LOAD, RoutingPolicy.NETKV_TOPO, RoutingPolicy.NETKV_FULL)


@pytest.fixture(scope="module")
def trace(shared_data):
    return read_trace(shared_data / "mooncake_conversation.jsonl")


def rows(trace, load=1.0, cluster=None, runs=20, policies=LADDER, profile=RAG, **options):
    cluster = cluster or netkv_cluster()
    cut = lambda k: window(trace, profile, RAG.capacity_rps * load, 20.0, 12, position_frac=k / runs, seed=k)
    options = {"sees_inbound": False} | options
    return {r.policy: vars(r) for r in compare_policies(cluster, cut, policies, runs=runs, **options)}


def test_profiles_take_prompts_of_their_lengths_and_much_as_many_tokens_a_second(trace):
    profiles = (CHATBOT, RAG, LONG_CONTEXT)
    takes = [
        [n for n in (1, 1023, 1024, 8192, 8193, 16384, 16385, 131072, 131073) if p.low_tokens <= n <= p.high_tokens]
        for p in profiles
    ]
    assert takes == [[1, 1023, 1024, 8192], [1024, 8192, 8193, 16384, 16385, 131072], [16385, 131072, 131073]]
    inside = [
        trace.input_tokens[(trace.input_tokens >= p.low_tokens) & (trace.input_tokens <= p.high_tokens)]
        for p in profiles
    ]
    tokens_per_s = [p.capacity_rps * of.mean() for p, of in zip(profiles, inside, strict=True)]
    assert tokens_per_s == pytest.approx([tokens_per_s[1]] * 3, rel=0.15)


def test_every_prompt_has_a_profile_and_long_context_begins_where_no_chat_is():
    """Of the lengths that the paper prints: up to 8K, 1K to 128K, and beyond 16K without end."""
    lengths = np.array([1, 1023, 1024, 8192, 8193, 16384, 16385, 131072, 131073, 1e7])
    takes = [(lengths >= p.low_tokens) & (lengths <= p.high_tokens) for p in (CHATBOT, RAG, LONG_CONTEXT)]
    assert [lengths[fits].tolist() for fits in takes] == [
        lengths[:4].tolist(),
        lengths[2:8].tolist(),
        lengths[6:].tolist(),
    ]
    assert np.any(takes, axis=0).all() and not (takes[0] & takes[2]).any()
    assert [p.ttft_slo_s for p in (CHATBOT, RAG, LONG_CONTEXT)] == [2.0, 5.0, 10.0]
    assert [p.capacity_rps for p in (CHATBOT, RAG, LONG_CONTEXT)] == [23.3, 6.09, 2.18]


def test_table_6_transfers_within_10_percent_and_shares_within_5_points(trace):
    at = rows(trace, runs=40)
    for policy, transfer, tier_2 in (("CACHE_LOAD", 0.835, 0.320), ("NETKV_FULL", 0.620, 0.689)):
        assert at[policy]["transfer_mean_s"] == pytest.approx(transfer, rel=0.10)
        assert at[policy]["tier_2_frac"] == pytest.approx(tier_2, abs=0.05)
        assert at[policy]["tier_0_frac"] == at[policy]["tier_1_frac"] == 0
    ttft = [
        at[p.name]["ttft_mean_s"]
        for p in (RoutingPolicy.ROUND_ROBIN, RoutingPolicy.CACHE_LOAD, RoutingPolicy.NETKV_FULL)
    ]
    np.testing.assert_allclose(ttft, [1.963, 1.808, 1.592], rtol=0.05)  # from 18.9 %, 11.8 % and Table IV


def test_table_2_order_and_transfers_hold_at_every_load(trace):
    printed = {1.0: (0.993, 0.835, 0.620), 2.0: (1.194, 1.018, 0.733), 2.5: (1.246, 1.091, 0.816)}
    for load, transfers in printed.items():
        at = rows(trace, load, runs=40, policies=[LADDER[i] for i in (0, 1, 3)])
        ours = [at[p.name]["transfer_mean_s"] for p in (LADDER[0], LADDER[1], LADDER[3])]
        np.testing.assert_allclose(ours, transfers, rtol=0.10)
        ttft, slo, tbt = ([r[n] for r in at.values()] for n in ("ttft_mean_s", "slo_frac", "tbt_mean_s"))
        assert ttft[0] > ttft[1] > ttft[2] and slo[0] < slo[1] < slo[2]
        assert tbt[2] == max(tbt) and max(tbt) - min(tbt) < 0.5e-3


def test_where_nics_bind_netkv_loses_to_round_robin_until_it_sees_the_destination(trace):
    """50 Gbit/s per instance and no prefix hits: Eq. (4) sees no NIC and crowds the pod."""
    nothing_shared = RAG._replace(share_frac=0.0)
    gain = {}
    for rate, aware in ((800, False), (50, False), (50, True)):
        cluster = netkv_cluster(nic_bytes_per_s=gbit_per_s(rate))
        at = rows(trace, 0.5, cluster, profile=nothing_shared, destination_aware=aware)
        gain[rate, aware] = 1 - at["NETKV_FULL"]["ttft_mean_s"] / at["ROUND_ROBIN"]["ttft_mean_s"]
    assert gain[800, False] > 0.08
    assert gain[50, False] < -0.05
    assert gain[50, True] > gain[50, False] + 0.04


def test_the_cache_weight_is_tuned_on_windows_of_its_own(trace):
    cut = lambda k: window(trace, RAG, 5.0, 20.0, 12, position_frac=0.9 + k / 40, seed=k)
    best, means = tune_cache_weight(netkv_cluster(), cut, runs=4)
    assert means[[0.1, 0.3, 0.5, 0.7, 0.9].index(best)] == min(means)
    assert max(means) / min(means) < 1.15  # the paper too finds a flat optimum


def test_windows_keep_rate_lengths_and_bounds(trace):
    cut = window(trace, RAG, 10.0, 60.0, 12, position_frac=0.3)
    assert len(cut.arrival_s) == 600 and (np.diff(cut.arrival_s) >= 0).all()
    assert cut.arrival_s[-1] == pytest.approx(60.0, abs=2.0)
    assert cut.input_tokens.min() >= 1024 and cut.input_tokens.max() <= 131072
    assert ((cut.hit_frac > 0).sum(1) <= 1).all() and (cut.hit_frac > 0).any(1).mean() == pytest.approx(0.24, abs=0.06)
    own = window(trace, RAG, 10.0, 60.0, 12, own_blocks=True)
    assert own.hit_frac is None and len(own.block_starts) == 601
    with pytest.raises(InputError, match="what the trace has"):
        window(trace, RAG, 1000.0, 60.0, 12)


def test_poisson_draws_only_prompts_in_bounds_at_the_asked_rate():
    cut = poisson(
        np.array([100.0, 2000.0, 5000.0]), np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.25, 0.25]), RAG, 50.0, 100.0, 12
    )
    assert set(np.unique(cut.input_tokens)) == {2000.0, 5000.0}
    assert len(cut.arrival_s) == pytest.approx(5000, abs=300)
    assert (cut.input_tokens == 2000).mean() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("own", [False, True])
def test_a_window_of_a_trace_is_its_requests_at_the_rate(own):
    """Those whose prompts the profile takes, from a place on, as often as asked; prefill by their length."""
    rng = np.random.default_rng(0)
    n = 400
    prompts, starts = rng.integers(10, 3000, n).astype(float), np.arange(n + 1) * 2
    when = np.sort(3.0 * rng.integers(0, 200, n))
    trace = Trace("t", when, prompts, rng.integers(0, 50, n).astype(float), 0.0, rng.integers(0, 90, 2 * n), starts)
    profile = Profile(100.0, 2000.0, 2.0, 10.0, prefill_base_s=0.2, prefill_s_per_token=1e-3)
    found = window(trace, profile, 4.0, 20.0, 6, position_frac=0.5, own_blocks=own)
    fits = np.flatnonzero((prompts >= 100) & (prompts <= 2000))
    begin = int(0.5 * (len(fits) - 80))
    mine = fits[begin : begin + 80]
    np.testing.assert_array_equal(found.input_tokens, prompts[mine])
    np.testing.assert_array_equal(found.output_tokens, np.maximum(trace.output_tokens[mine], 1))
    np.testing.assert_allclose(found.prefill_s, 0.2 + 1e-3 * prompts[mine])
    assert (np.diff(found.arrival_s) >= 0).all() and 0 <= found.arrival_s[0] <= found.arrival_s[-1] <= 79 / 4.0
    assert found.arrival_s[-1] > 0.95 * 79 / 4.0
    if own:
        assert found.block_starts.tolist() == list(range(0, 161, 2))
        assert [list(found.block_ids[2 * k : 2 * k + 2]) for k in range(80)] == [
            list(trace.block_ids[2 * i : 2 * i + 2]) for i in mine
        ]
    else:
        held = found.hit_frac > 0
        assert held.sum(1).max() == 1 and held.any(1).mean() == pytest.approx(0.24, abs=0.15)
        assert (found.hit_frac[held] >= 0.2).all() and (found.hit_frac[held] <= 0.8).all()
