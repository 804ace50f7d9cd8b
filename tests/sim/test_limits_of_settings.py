"""Clusters and engines at the very ends of what is accepted, and just beyond; defaults as the engines' sources say."""

from __future__ import annotations

from inspect import signature

import jax
import numpy as np
import pytest

from dmodels import Workload
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.models.latency import StepLaw
from dmodels.sim.cluster import Control, Flow, Hybrid, Signal, Workers, measure, measured, simulate
from dmodels.sim.cluster.measured import _grows
from dmodels.sim.cluster.records import Role
from dmodels.sim.engines import Balance, EngineLaw, SGLang, TensorRTLLM, VllmV1
from dmodels.sim.engines import simulate as simulate_engine
from dmodels.sim.engines.policies import POLICIES, Capacity, rules
from dmodels.sim.fleet import Change

STILL, BOTH = Control(flow=Flow.NONE, theta_frag=0.0), Workers(1, 1)


def of(record, **changes):
    return record._replace(**changes)


@pytest.mark.parametrize(
    "cluster, control, refused",
    [
        (BOTH, STILL, ""),
        (of(BOTH, kv_blocks=7.0), STILL, ""),  # 100 and 10 tokens in blocks of 16
        (of(BOTH, kv_blocks=6.0), STILL, "a request needs 7"),
        (of(BOTH, kv_blocks=np.inf), STILL, "a finite number"),
        (of(BOTH, slots=1), STILL, ""),
        *((of(BOTH, **{name: 0}), STILL, "at least one of each") for name in ("prefill", "decode", "slots")),
        (of(BOTH, standby=-1), STILL, "standby from 0"),
        (Workers(2, 0, 3, slots=4), STILL, "^prefill 2, decode 0, standby 3, slots 4; accepted: at least one of"),
        (BOTH, of(STILL, theta_flow=0.001), ""),
        *((BOTH, of(STILL, theta_flow=x), "theta_flow") for x in (0.0, 1.0)),
        *((BOTH, of(STILL, theta_frag=x), "theta_frag") for x in (-0.1, 1.0)),
        (BOTH, of(STILL, epoch_s=0.0), "epoch_s"),
        (BOTH, Hybrid(1, 0, 1.0), ""),
        (BOTH, Hybrid(1, 1, 0.001, 1e-9, 1e-9, 0.5), ""),
        (BOTH, Hybrid(0.9), "chunk_tokens 0.9"),
        (BOTH, Hybrid(5, 0.9), "from 1 or 0"),
        (BOTH, Hybrid(5, -1), "from 1 or 0"),
        *((BOTH, Hybrid(watermark_frac=x), "watermark_frac") for x in (0.0, 1.001)),
        *((BOTH, of(Hybrid(), **{name: 0.0}), f"{name} 0.0") for name in ("tpot_slo_s", "back_frac", "epoch_s")),
        (of(BOTH, standby=1), Hybrid(), "accepted with Hybrid is 0"),
    ],
)
def test_clusters_and_their_controllers(cluster, control, refused):
    asked = [0.0, 0.0], 100, 10, 0.1, cluster, control
    if refused:
        with pytest.raises(InputError, match=refused):
            simulate(*asked)
    else:
        assert np.isfinite(simulate(*asked).end_s).all()


def test_clusters_begin_with_the_settings_of_the_papers():
    """Phasor's decoders and thresholds, TaiChi's chunks: who says nothing gets what is written out here."""
    assert Workers(1, 2) == Workers(1, 2, 0, StepLaw(0.025, 0.35e-3), 256, 14_800.0, 16, 1e-5, 0.4)
    assert Control() == Control(Signal.WORK, Flow.FREENESS, 0.62, 0.168, 0.05, 1.0, 4.0, True)
    assert Hybrid() == Hybrid(2048.0, 256.0, 0.9, 0.1, 0.9, 0.05)
    assert [[int(one) for one in kind] for kind in (Signal, Flow, Role)] == [[0, 1, 2, 3, 4], [0, 1, 2], [0, 1, 2]]
    assert [[int(one) for one in kind] for kind in (Balance, Capacity, Change)] == [[0, 1], [0, 1], [0, 1, 2, 3, 4]]
    asked = {name: one.default for name, one in signature(measure).parameters.items() if one.default is not one.empty}
    assert asked == {"chunk_tokens": 512, "percentile": 0.99, "target_frac": 0.05, "count": 4000, "at_most": 64}


def test_prompts_and_clients_of_a_cluster():
    for times in ([0.1, 0.0], [0.1, -1.0], [0.1, np.inf], [np.nan, 0.1]):
        with pytest.raises(InputError, match="prefill above 0"):
            simulate([0.0, 0.0], 100, 10, times, BOTH, STILL)
    with pytest.raises(InputError, match="finite seconds"):
        simulate([0.0], 100, 10, 0.1, BOTH, STILL, virtual_s=np.nan)
    for clients in (0, 2):
        assert np.isfinite(simulate([0.0, 0.0], 100, 10, 0.1, BOTH, STILL, clients=clients).end_s).all()
    for clients in (-1, 3):
        with pytest.raises(InputError, match="0 to the number of requests, 2"):
            simulate([0.0, 0.0], 100, 10, 0.1, BOTH, STILL, clients=clients)


def test_a_wait_without_end_grows_as_one_to_three_to_five():
    """By a third of its run a queue without end has waits of 1, then of 3, then of 5."""
    ramp = np.arange(300.0)
    assert _grows(ramp) and not _grows(np.full(300, 7.0)) and not _grows(ramp[::-1])
    steps = lambda *means: np.repeat(means, 100)
    assert _grows(steps(1.0, 1.31, 1.71)) and not _grows(steps(1.0, 1.29, 2.0)) and not _grows(steps(1.0, 2.0, 2.5))
    for unit in (1e-3, 1e3):
        assert _grows(unit * steps(1.0, 1.31, 1.71)) and not _grows(unit * steps(1.0, 1.29, 2.0))
    holes = ramp.copy()
    holes[::3] = np.nan
    assert _grows(holes)


def test_a_prompt_that_is_all_cached_still_takes_an_iteration():
    """Of half a second, though none of its three tokens is left for a chunk."""
    work = Workload.fixed(3.0, 1.0, 0.1, 3.0).replace(arrival_cv=np.float64(0.0))
    found = measure(work, BOTH, STILL, jax.random.key(0), prefill_iteration_s=0.5, chunk_tokens=1, count=100)
    assert found["ttft_mean_s"].value == pytest.approx(0.5) == found["e2e_p99_s"].value


@pytest.mark.parametrize("growing", [4, 5])
def test_a_cluster_is_overloaded_in_which_most_runs_grow(growing, monkeypatch):
    """Of eight runs more than half, by the times to first tokens or else to last ones."""
    told = iter([True, False, True] + [True] * (growing - 2) + [False, False] * (8 - growing))
    monkeypatch.setattr(measured, "_grows", lambda waited_s: next(told))
    work = Workload.fixed(1000.0, 3.0, rate_rps=0.4).replace(arrival_cv=np.float64(0.0))
    asked = {"prefill_iteration_s": 1.0, "count": 100, "target_frac": 1.0}
    found = measure(work, BOTH, STILL, jax.random.key(0), **asked)
    assert {one.samples for one in found.values()} == {8}
    assert {bool(one.flags & Flag.OVERLOAD) for one in found.values()} == {growing == 5}


def test_engines_begin_with_their_own_settings():
    """vLLM: max_num_seqs 256 and max_num_batched_tokens 8,192 of a server on an H100, blocks of 16. SGLang: chunks of
    8,192, 16,384 tokens of prompts at most, ratios 0.7 and 0.14 of it. TensorRT-LLM: 2,048 requests, 8,192, 32."""
    assert VllmV1(9) == VllmV1(9, 256, 8192, 16, True, True) and VllmV1(9).name == "vllm"
    assert SGLang(9) == SGLang(9, 2048, 8192, 1, 16384, 0.7, 0.14, True)
    assert TensorRTLLM(9) == TensorRTLLM(9, 2048, 8192, 32, Capacity.GUARANTEED_NO_EVICT, False, True)
    assert {name: kind(9).name for name, kind in POLICIES.items()} == {name: name for name in POLICIES}
    assert rules(SGLang(9)).least_ratio == pytest.approx(0.7 * 0.14)
    for kind in POLICIES.values():
        for field in ("kv_blocks", "slots", "step_tokens", "block_tokens"):
            assert rules(kind(9)._replace(**{field: 1}))
            with pytest.raises(InputError, match=f"{kind(9).name}: {field} = 0"):
                rules(kind(9)._replace(**{field: 0}))
    for wrong in ({"first_ratio": -0.1}, {"first_ratio": 1.1}, {"least_ratio": 1.1}, {"least_ratio": -0.1}):
        with pytest.raises(InputError, match="accepted: 0 to 1"):
            rules(SGLang(9, **wrong))
    assert rules(SGLang(9, first_ratio=1.0, least_ratio=0.0)).least_ratio == 0.0


@pytest.mark.parametrize(
    "policy, most",
    [
        (VllmV1(10), 160),
        (TensorRTLLM(5), 160),
        (SGLang(160), 159),  # it keeps one place more
        (SGLang(10, block_tokens=16), 144),
    ],
)
def test_the_longest_request_that_an_engine_admits(policy, most):
    law = EngineLaw.straight(1.0, 0.0)
    assert np.isfinite(simulate_engine([0.0], most - 9, 9, law, policy).end_s).all()
    with pytest.raises(InputError, match=f"a request of {most + 1 + 160 - most} tokens never fits"):
        simulate_engine([0.0], most - 8, 9, law, policy)
    with pytest.raises(InputError, match="instances = 0"):
        simulate_engine([0.0], 1, 1, law, policy, instances=0)


def test_an_answers_limit_needs_room_where_it_is_set_aside_alone():
    """100 tokens of prompt and 9 of answer, which might be 900, in memory for 160: but for TensorRT-LLM, which sets
    the limit aside unless it evicts, and SGLang, which counts on up to 4,096, engines find room on the way."""
    law, asked = EngineLaw.straight(1.0, 0.0), ([0.0], 100, 9)
    for policy in (VllmV1(10), TensorRTLLM(5, capacity=Capacity.MAX_UTILIZATION)):
        assert simulate_engine(*asked, law, policy, limit_tokens=900).end_s.tolist() == [9.0]
    for policy, most in ((TensorRTLLM(5), "1,000"), (SGLang(160), "1,001")):
        with pytest.raises(InputError, match=f"kv_blocks: room for 160 tokens; a request of {most} tokens never fits"):
            simulate_engine(*asked, law, policy, limit_tokens=900)


def test_in_turn_is_in_turn_whoever_is_busy():
    """The first is still at work when the third comes, on the one of two that is its turn or on the idle one."""
    law, asked = EngineLaw.straight(1.0, 0.0), ([0.0, 1.0, 5.0], 10, [9, 1, 1])
    for balance, where in ((Balance.ROUND_ROBIN, [0, 1, 0]), (Balance.LEAST_LOADED, [0, 1, 1])):
        assert simulate_engine(*asked, law, VllmV1(99), instances=2, balance=balance).instance.tolist() == where


def test_a_prompt_that_is_not_cut_fits_a_step():
    law = EngineLaw.straight(1.0, 0.0)
    whole = TensorRTLLM(100, step_tokens=64)
    assert simulate_engine([0.0], 64, 2, law, whole).ttft_s[0] == 1.0
    with pytest.raises(InputError, match="a prompt of 65 tokens never fits unless chunked"):
        simulate_engine([0.0], 65, 2, law, whole)
    assert simulate_engine([0.0], 65, 2, law, whole._replace(chunked=True)).ttft_s[0] == 2.0
