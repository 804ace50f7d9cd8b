"""The stages of a plan: who serves which requests with which budget, and what an instance holds of them."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest

from dmodels import SLO, Parallel, Workload, catalog
from dmodels.core.errors import InputError
from dmodels.core.records import float64, stack
from dmodels.models.instance import Engine
from dmodels.models.latency import Efficiency
from dmodels.models.memory import kv_bytes_per_token, kv_reserved_bytes, residents
from dmodels.sim.requests import Served
from dmodels.studies.plan import designs
from dmodels.studies.plan.designs import Instances, Kind, Layout, Role, Stage, cells, schemes
from dmodels.studies.plan.sizing import compressed, thresholds
from dmodels.studies.servers import PoolOf, SplitServers, play, playing, server

MIX = Workload(
    [100.0, 400.0, 900.0, 3000.0],
    [50.0, 200.0, 300.0, 10.0],
    [0.4, 0.3, 0.2, 0.1],
    [50.0, 0.0, 400.0, 0.0],
    rate_rps=5.0,
)
SLOS, ENGINE = SLO(1.0, 0.05, percentile=0.9), Engine()


def instances(*parallels):
    model, gpu = catalog.model("llama-3.1-8b"), catalog.gpu("h100_sxm")
    return Instances(
        *(stack(*column) for column in zip(*((model, gpu, p, Efficiency()) for p in parallels), strict=True))
    )


def test_each_scheme_serves_every_request_once_and_shares_out_the_budgets():
    stages, found = schemes([400.0, 2000.0], split=True)
    assert [s.kind for s in found] == [Kind.ONE_POOL, *2 * [Kind.TWO_POOLS], *4 * [Kind.SPLIT]]
    assert sorted(k for s in found for k in s.stages) == list(range(len(stages)))
    for scheme in found:
        mine = [stages[k] for k in scheme.stages]
        for total in (1.0, 400.0, 401.0, 2000.0, 5000.0):
            here = [s for s in mine if s.low_tokens < total <= s.high_tokens]
            assert [s.role for s in here] == ([Role.PREFILL, Role.DECODE] if scheme.in_turn else [Role.SERVE])
        if scheme.in_turn:  # both stages together may take the whole TTFT, and miss what one may
            assert sum(s.ttft_share for s in mine) == pytest.approx(1.0) and 0.5 <= mine[0].ttft_share < 1
            assert [s.percentile_share for s in mine] == [0.5, 0.5]
    assert not any(s.in_turn for s in schemes([], split=False)[1])


@float64
def sized(stages, workload, small, *parallels):
    """Each leaf as (layouts, stages)."""
    told = cells(instances(*parallels), workload, compressed(small), stages, SLOS, ENGINE)  # in the shape of a plan
    return {
        name: np.asarray(value).reshape(len(parallels), len(stages))
        for name, value in (
            ("slots", told.slots_count),
            ("longest", told.longest_bytes),
            ("prompt_s", told.prompt_s),
            ("transfer", told.transfer_s_per_token),
            ("ttft", told.slo.ttft_s),
            ("tpot", told.slo.tpot_s),
            ("q", told.slo.percentile),
            ("share", told.requests.share_frac),
            ("inputs", told.requests.input_tokens),
            ("outputs", told.requests.output_tokens),
            ("prefill", told.requests.prefill_tokens),
            ("wait_steps", told.wait_steps),
            ("dp", told.dp),
        )
    }


@float64
def held(parallel, inputs, outputs, weights):
    """Sequences that an instance holds of requests of these lengths."""
    model, gpu = catalog.model("llama-3.1-8b"), catalog.gpu("h100_sxm")
    limits = {"batched_tokens": ENGINE.max_num_batched_tokens, "max_sequences": ENGINE.max_num_seqs_count}
    asked = [np.asarray(x, float) for x in (inputs, outputs, weights)]
    return float(residents(model, gpu, parallel, *asked, **limits).count)


def test_cells_hold_the_requests_of_their_stage():
    """Means by hand over the four kinds of requests; a prefill worker keeps prompts, of which a token each answers."""
    parallels = Parallel(), Parallel(tp=2)
    stages, _ = schemes([600.0], split=True)
    told = sized(stages, MIX, MIX, *parallels)
    model, gpu = catalog.model("llama-3.1-8b"), catalog.gpu("h100_sxm")
    inputs, outputs, weights = (np.asarray(x) for x in (MIX.input_tokens, MIX.output_tokens, MIX.weight_frac))
    total, waits = inputs + outputs, Efficiency()
    for k, stage in enumerate(stages):
        here = (total > stage.low_tokens) & (total <= stage.high_tokens)
        share = weights[here].sum()
        mean = lambda x, here=here, share=share: float((weights * x)[here].sum() / share)
        assert told["share"][:, k] == pytest.approx(share)
        assert told["inputs"][:, k] == pytest.approx(mean(inputs), rel=1e-6)
        prefill, decode = stage.role == Role.PREFILL, stage.role == Role.DECODE
        assert told["outputs"][:, k] == pytest.approx(0.0 if prefill else mean(outputs), rel=1e-6)
        assert told["prefill"][:, k] == pytest.approx(
            0.0 if decode else mean(inputs - np.asarray(MIX.cached_tokens)), rel=1e-6
        )
        assert told["ttft"][:, k] == pytest.approx(stage.ttft_share)
        assert (told["tpot"][:, k] == (np.inf if prefill else 0.05)).all()
        assert told["q"][:, k] == pytest.approx(0.95 if prefill or decode else 0.9)
        assert told["prompt_s"][:, k] == pytest.approx(0.0 if decode else 1e-3 * float(waits.prompt_ms))
        assert told["wait_steps"][:, k] == pytest.approx(0.5 if prefill else float(waits.wait_steps))
        for row, parallel in enumerate(parallels):
            longest = float(total[here].max()) if not prefill else told["longest"][row, k] * 0
            own = np.ones(4) if prefill else outputs
            assert told["slots"][row, k] == pytest.approx(held(parallel, inputs, own, np.where(here, weights, 0.0)))
            if not prefill and not decode:
                limit = {"max_batched_tokens": ENGINE.max_num_batched_tokens}
                bytes_ = float(kv_reserved_bytes(model, longest, parallel.tp, **limit))
                assert told["longest"][row, k] == pytest.approx(bytes_)
            sent = float(kv_bytes_per_token(model, parallel.tp) / gpu.nic_bytes_per_s_per_gpu_oneway)
            assert told["transfer"][row, k] == pytest.approx(sent if prefill else 0.0)


def test_a_stage_that_compression_has_emptied_holds_its_mean_request():
    """Of the compressed workload no request is among the short ones, of the whole one in ten is."""
    whole = Workload([100.0, 140.0, 2000.0, 2000.0], [20.0, 60.0, 100.0, 100.0], [0.05, 0.05, 0.3, 0.6], rate_rps=5.0)
    small = Workload([2000.0] * 4, [100.0] * 4, [0.25] * 4, rate_rps=5.0)
    stages = [
        Stage("short", high_tokens=500.0),
        Stage("long", low_tokens=500.0),
        *[Stage("none", high_tokens=10.0)] * 9,
    ]
    told = sized(stages, whole, small, Parallel(), Parallel(tp=2))  # in the shape of the test above: one program
    assert told["slots"][0, 0] == held(Parallel(), [120.0], [40.0], [1.0])
    assert told["slots"][0, 1] == held(Parallel(), [2000.0], [100.0], [1.0]) < told["slots"][0, 0]
    assert told["share"][0, :3].tolist() == pytest.approx([0.1, 0.9, 0.0])


def test_layouts_are_named_by_what_is_split():
    plain, wide = Layout("h100_sxm"), Layout("h200_sxm", tp=2, pp=3, dp=4, ep=8, weights="fp8", kv="bf16")
    assert (plain.degrees, plain.gpus, str(plain)) == ("tp1", 1, "h100_sxm tp1pp1dp1ep1")
    assert (wide.degrees, wide.gpus) == ("tp2 pp3 dp4 ep8", 24)
    assert str(wide) == "h200_sxm tp2pp3dp4ep8 w=fp8 kv=bf16"
    one = wide.as_parallel
    assert [float(x) for x in (one.tp, one.pp, one.dp, one.ep)] == [2, 3, 4, 8]


@pytest.fixture(scope="module")
def small_server():
    return server("llama-3.1-8b", "h100_sxm", Parallel(), max_num_seqs=8, max_num_batched_tokens=512)


def test_a_server_is_started_as_vllm_where_nothing_is_said(monkeypatch):
    """With 256 sequences and 8,192 tokens a step; anything else is handed on."""
    given = lambda name, machine, efficiency, **limits: (name, machine.engine, limits)
    monkeypatch.setattr(playing, "hosted_server", given)
    monkeypatch.setattr(playing, "efficiencies_of", lambda hosted, *_, effects: hosted)
    limits = {"max_num_seqs": 256, "max_num_batched_tokens": 8192, "instances": 1}
    limits |= {"release": "", "utilization": None, "options": None}
    named = "llama-3.1-8b on h100_sxm (tp2pp1dp4ep8, {})".format
    wide = Parallel(tp=2, dp=4, ep=8)
    assert server("llama-3.1-8b", "h100_sxm", wide) == (named("vllm"), "vllm", limits)
    other = {"max_num_seqs": 7, "max_num_batched_tokens": 99, "instances": 3, "release": "1.2", "utilization": 0.8}
    other |= {"options": {"block_tokens": 8}}
    assert server("llama-3.1-8b", "h100_sxm", wide, backend="sglang", **other) == (named("sglang"), "sglang", other)


def test_what_is_played_is_every_request_in_its_own_pool(small_server):
    """Totals up to 1,000 in one pool, the others in another: each as if it served its own alone, at the rate asked."""
    from dmodels import Trace

    rng = np.random.default_rng(0)
    n = 300
    trace = Trace("t", np.sort(rng.uniform(0, 60, n)), rng.integers(20, 1500, n) * 1.0, rng.integers(1, 60, n) * 1.0)
    pools = [PoolOf("short", small_server, high_tokens=1000.0), PoolOf("long", small_server, low_tokens=1000.0)]
    for rate in (None, 8.0):
        told = play(pools, trace, rate_rps=rate)
        span = trace.time_s[-1] - trace.time_s[0]
        scale = 1.0 if rate is None else trace.rate_rps / rate
        assert told.rate_rps == pytest.approx((n - 1) / (span * scale))
        assert (told.requests_count, told.cut_count, told.labels) == (n, 0, ("short", "long"))
        total = trace.input_tokens + trace.output_tokens
        for k, mine in enumerate((total <= 1000, total > 1000)):
            prompts, done = told.served[k]
            assert prompts.tolist() == trace.input_tokens[mine].tolist()
            when = (trace.time_s - trace.time_s[0])[mine] * scale
            alone = small_server.serve(when, prompts, trace.output_tokens[mine])
            np.testing.assert_allclose(done.e2e_s, alone.e2e_s, rtol=1e-6, atol=1e-9)
            assert told.pools[k]["e2e_mean_s"].value == pytest.approx(float(np.mean(alone.e2e_s)), rel=0.02)
            assert told.pools[k]["requests_count"].value == mine.sum()
        assert told.restarts_count == sum(int(done.restarts.sum()) for _, done in told.served)
    few = play(pools[:1], trace, count=90)
    assert few.requests_count == 90 and len(few.served[0][0]) == int((total[:90] <= 1000).sum())
    work = Workload([200.0], [10.0], [1.0], rate_rps=4.0)
    for rate in (None, 9.0):
        drawn = play([PoolOf("all", small_server)], work, rate_rps=rate, count=3000, seed=3)
        assert drawn.rate_rps == pytest.approx(rate or 4.0, rel=0.06) and drawn.cut_count > 0
        assert drawn.requests_count == 3000 == len(drawn.served[0][0])


def test_a_split_sends_every_prompt_and_keeps_answers_of_one_token(small_server):
    """Alone: prefill, transfer of the prompt, the decoder's step; one token needs no decoder."""
    split = SplitServers((small_server, small_server), transfer_s_per_token=1e-4)
    done = split.serve(np.array([0.0, 50.0, 100.0]), np.array([400, 300, 300]), np.array([1, 1, 20]))
    first = small_server.serve(np.array([0.0, 50.0, 100.0]), np.array([400, 300, 300]), np.ones(3, int))
    sent = first.end_s + 1e-4 * np.array([400, 300, 300])
    np.testing.assert_allclose(done.end_s[:2], sent[:2])
    np.testing.assert_allclose(done.first_token_s[:2], sent[:2])
    after = small_server.inside(np.array([sent[2]]), np.array([300]), np.array([20]), sent=True)
    assert done.first_token_s[2] == pytest.approx(after.first_token_s[0])
    assert done.end_s[2] == pytest.approx(after.end_s[0])
    assert sent[2] < done.first_token_s[2] < done.end_s[2]


def test_decoders_go_on_with_what_prefill_workers_send_in_its_order():
    """A token of a prompt takes 10 ms to send; answers of one token are the workers' own."""
    asked, prompts, answers = np.arange(4.0), np.array([300, 100, 100, 50]), np.array([2, 5, 1, 3])
    calls = []

    def serve(came, inputs, outputs):
        calls.append((came.tolist(), inputs.tolist(), outputs.tolist()))
        return Served(came, came + 0.5, came + 1.0, came + 1.0, outputs, restarts=np.array([1, 0, 0, 2]))

    def inside(came, inputs, outputs, sent):
        assert sent
        calls.append((came.tolist(), inputs.tolist(), outputs.tolist()))
        return Served(came, came, came + 0.25, came + 1.0 * outputs, outputs, restarts=np.array([10, 20, 30]))

    fleet = SplitServers((SimpleNamespace(serve=serve), SimpleNamespace(inside=inside)), 0.01)
    done = fleet.serve(asked, prompts, answers)
    there = [4.0, 3.0, 4.0, 4.5]  # the second is there before the first
    assert calls == [([0, 1, 2, 3], [300, 100, 100, 50], [1] * 4), ([3.0, 4.0, 4.5], [100, 300, 50], [5, 2, 3])]
    assert done.first_token_s.tolist() == [4.25, 3.25, there[2], 4.75] and done.end_s.tolist() == [6.0, 8.0, 4.0, 7.5]
    assert done.restarts.tolist() == [21, 10, 0, 32] and done.admitted_s.tolist() == [0.5, 1.5, 2.5, 3.5]
    assert done.arrival_s.tolist() == asked.tolist() and done.output_tokens.tolist() == answers.tolist()


@pytest.mark.parametrize("role", [Role.SERVE, Role.PREFILL, Role.DECODE])
def test_memory_is_asked_for_by_the_lengths_of_a_stage_alone(role):
    """Totals are 150, 600, 1200 and 3010: of 150 to 1200 the two in the middle count; a prompt leaves no answer."""
    inputs, outputs, weights = designs._support(MIX, Stage("middle", role, 150.0, 1200.0), SimpleNamespace())
    assert weights.tolist() == [0.0, 0.3, 0.2, 0.0] and inputs.tolist() == [100.0, 400.0, 900.0, 3000.0]
    assert outputs.tolist() == ([1.0] * 4 if role == Role.PREFILL else [50.0, 200.0, 300.0, 10.0])
    alike = SimpleNamespace(share_frac=0.1, input_tokens=160.0, output_tokens=0.4)  # compression left nothing there
    inputs, outputs, weights = designs._support(MIX, Stage("narrow", role, 150.0, 160.0), alike)
    assert weights.sum() == pytest.approx(1.0) and set(inputs) == {160.0} and set(outputs) == {1.0}


@pytest.mark.parametrize("first", [100.5, 101.0])
def test_thresholds_leave_requests_on_both_sides_and_so_do_those_said_to_be_accepted(first):
    """Totals are `first` to 900; the longest has no weight."""
    work = SimpleNamespace(total_tokens=np.array([first, 300.0, 900.0, 5000.0]), weight_frac=[0.2, 0.5, 0.3, 0.0])
    ask = lambda *tokens: thresholds(SimpleNamespace(admitted=SimpleNamespace(workload=work), thresholds_tokens=tokens))
    assert ask(100.0, 101.0, 500.0, 899.0, 900.0, 2000.0) == [101.0, 500.0, 899.0] and ask() == []
    with pytest.raises(InputError, match="threshold 2,000 tokens: leaves a pool empty") as no:
        ask(2000.0, 5000.0)
    least, beyond = map(float, re.search(r"accepted are (\d+) to below (\d+)$", str(no.value)).groups())
    assert ask(least, beyond - 1.0) == [least, beyond - 1.0]
    for outside in (least - 1.0, beyond):
        with pytest.raises(InputError):
            ask(outside)
