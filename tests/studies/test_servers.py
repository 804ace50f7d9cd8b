"""Servers under their engine's scheduler: what memory leaves them, and what a log of one tells."""

from __future__ import annotations

import csv
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from dmodels import SLO, Trace, Workload, catalog
from dmodels.cli import main
from dmodels.core.errors import InputError
from dmodels.core.hardware import Parallel
from dmodels.fit.calibration import efficiency_for
from dmodels.formats.telemetry.request_log import read_requests
from dmodels.sim.engines import EngineLaw
from dmodels.sim.requests import Served
from dmodels.studies.plan import RequestClass, question
from dmodels.studies.servers import PoolOf, SplitServers, compare, comparison, of_plan, plan_together, play, server
from dmodels.studies.size import size
from tests.audit.asking import ask
from tests.audit.commands import audit
from tests.audit.terminal import audit_shown

HEAD = "request_id,arrival_s,input_tokens,output_tokens,first_token_s,end_s"


@pytest.fixture(scope="module")
def small():
    return server("llama-3.1-8b", "h100_sxm", Parallel(), max_num_seqs=16, max_num_batched_tokens=1024)


@pytest.fixture
def log(small, tmp_path):
    """Of a server whose steps take 1.3 times as long as the calibrated ones."""
    rng = np.random.default_rng(0)
    arrival = np.sort(rng.uniform(0.0, 3.0, 60))
    prompt, answer = rng.integers(50, 2000, 60), rng.integers(20, 90, 60)
    done = small.inside(arrival, prompt, answer, law=small.law.scaled(1.3))
    rows = zip(range(60), 100.0 + arrival, prompt, answer, 100.0 + done.first_token_s, 100.0 + done.end_s, strict=True)
    file = tmp_path / "requests.csv"
    file.write_text("\n".join([HEAD, *(",".join(map(str, row)) for row in rows)]))
    return file


def test_the_blocks_are_what_the_memory_leaves(small):
    """An H100 keeps 16 GB of weights of Llama 3.1 8B; a token of its cache takes 128 KiB."""
    tokens = small.policy.kv_blocks * small.policy.block_tokens
    free = 0.9 * 79.18 * 2**30 - 16.06e9
    assert 0.9 < tokens * 131072 / free < 1.0


@pytest.mark.parametrize("model", ["gemma-3-27b", "llama-3.1-8b"])
def test_a_cache_of_windows_holds_as_many_requests_of_4096_tokens_as_fit(model):
    """By the memory of one sequence; of those that are longer, windows keep a smaller part."""
    where = catalog.gpu("h200_sxm"), Parallel(tp=2.0)
    found = server(model, "h200_sxm", where[1], max_num_seqs=16, max_num_batched_tokens=1024)
    tokens = found.policy.kv_blocks * found.policy.block_tokens
    held = size(catalog.model(model), *where, 4096.0, batched_tokens=1024, max_sequences=16)
    assert tokens // 4096 == int(held.slots.slots_count) > 100


def test_how_far_a_law_is_from_a_log_is_a_share_of_its_duration():
    """From its first request to its last token, whenever that was: here 10 s, and 0.3 s and 0.1 s late."""
    arrival = np.array([100.0, 104.0])
    measured = Served(arrival, arrival, arrival + 1.0, np.array([103.0, 110.0]), np.array([5, 6]))
    late = measured._replace(first_token_s=measured.first_token_s + 0.3, end_s=measured.end_s + 0.1)
    asked = SimpleNamespace(inside=lambda *given, law: late)
    log = SimpleNamespace(input_tokens=np.array([9, 9]))
    assert comparison._apart(asked, log, measured, "law") == pytest.approx(math.sqrt((0.09 + 0.01) / 2) / 10)
    metrics = {one.name: one.measured_s for one in comparison._metrics(late, measured)}
    assert metrics["duration_s"] == pytest.approx(10.0)


def test_clients_wait_for_the_tokenizer_before_an_engine_sees_a_prompt(small):
    """Some milliseconds, by the calibration; it is admitted and answered as it would be without."""
    known_ms = float(efficiency_for("h100_sxm", "vllm", "bf16", "llama-3.1-8b", parallel=Parallel()).prompt_ms)
    asked = np.arange(3.0), np.full(3, 100), np.full(3, 5)
    seen, own = small.serve(*asked), small.inside(*asked)
    late_s = small.prompt_s
    assert 1.0 < known_ms < 100.0 and 1000.0 * late_s == pytest.approx(known_ms, rel=0.1)
    np.testing.assert_allclose(seen.first_token_s - own.first_token_s, late_s)
    np.testing.assert_allclose(seen.end_s - own.end_s, late_s)
    np.testing.assert_array_equal(seen.admitted_s, own.admitted_s)


def test_limits_are_those_of_a_rank():
    """Two ranks of attention take twice the requests and the prompt tokens of one, each into its own cache."""
    one, two = (
        server("qwen3-30b-a3b", "h200_sxm", Parallel(dp=ranks, ep=ranks), max_num_seqs=8, max_num_batched_tokens=512)
        for ranks in (1, 2)
    )
    assert (
        (two.policy.slots, two.policy.step_tokens) == (2 * one.policy.slots, 2 * one.policy.step_tokens) == (16, 1024)
    )
    assert two.policy.kv_blocks > 2 * one.policy.kv_blocks  # which keep half the experts each


def test_the_law_that_explains_a_log_is_found(small, log):
    found = compare(small, read_requests(log))
    assert found.slower == pytest.approx(1.3, rel=0.01)
    assert all(m.error_frac < 0 for m in found.metrics)
    # a log determines the steps that it has, of 16 requests and some prompt tokens, better than their parts
    laws = found.measured_law, found.simulated_law
    slow, calibrated = (one.base_s + 16 * one.per_request_s + 400 * one.per_prompt_token_s for one in laws)
    assert slow / calibrated == pytest.approx(1.3, rel=0.1)
    assert max(found.measured_law.apart_frac, found.simulated_law.apart_frac) < 0.02


def test_what_a_comparison_says_by_counting(small, log):
    """Each figure of the log and of its simulation, and how far the tokens of the laws lie from both."""
    requests = read_requests(log)
    found = compare(small, requests)
    prompts, answers = ([int(x) for x in column] for column in (requests.input_tokens, requests.output_tokens))
    both = {"measured": found.measured, "simulated": found.simulated}
    for side, seen in both.items():
        came, first, end = ([float(x) for x in column] for column in (seen.arrival_s, seen.first_token_s, seen.end_s))
        times = {
            "ttft": sorted(b - a for a, b in zip(came, first, strict=True)),
            "tpot": sorted((c - b) / (n - 1) for b, c, n in zip(first, end, answers, strict=True) if n > 1),
            "e2e": sorted(c - a for a, c in zip(came, end, strict=True)),
        }
        told = {metric.name: getattr(metric, f"{side}_s") for metric in found.metrics}
        assert len(told) == 10 and told["duration_s"] == pytest.approx(max(end) - min(came))
        for name, values in times.items():
            assert told[f"{name}_mean_s"] == pytest.approx(sum(values) / len(values))
            assert told[f"{name}_p50_s"] == pytest.approx((values[29] + values[30]) / 2)  # of sixty
            assert told[f"{name}_p99_s"] == pytest.approx(values[58] + 0.41 * (values[59] - values[58]))
        law = found.measured_law if side == "measured" else found.simulated_law
        straight = EngineLaw.straight(law.base_s, law.per_request_s, law.per_prompt_token_s)
        again = small.inside(seen.arrival_s, prompts, answers, law=straight)
        away = [float(x) - y for x, y in zip([*again.first_token_s, *again.end_s], [*first, *end], strict=True)]
        root = math.sqrt(sum(gap * gap for gap in away) / len(away))
        assert law.apart_frac == pytest.approx(root / (max(end) - min(came)), rel=1e-6)
    assert found.requests_count == 60 and all(
        m.error_frac == pytest.approx(m.simulated_s / m.measured_s - 1) for m in found.metrics
    )


def test_each_pool_plays_the_requests_that_are_its_own(small):
    """Of a total of 600 tokens at most, or more; all of a trace count, and 20,000 of traffic that is drawn."""
    rng = np.random.default_rng(4)
    prompts, answers = rng.integers(1, 6, 300) * 100.0, rng.integers(1, 6, 300) * 100.0
    trace = Trace("few", np.sort(rng.uniform(0.0, 600.0, 300)), prompts, answers)
    pools = [PoolOf("short", small, 0.0, 600.0), PoolOf("long", small, 600.0)]
    found = play(pools, trace)
    short = int((prompts + answers <= 600).sum())
    assert (prompts + answers == 600).any() and [one.arrival_s.size for _, one in found.served] == [short, 300 - short]
    assert [p["requests_count"].value for p in found.pools] == [short, 300 - short]
    assert (found.requests_count, found.cut_count) == (300, 0)
    assert found.rate_rps == pytest.approx(299 / (trace.time_s[-1] - trace.time_s[0]))
    drawn = play([PoolOf("all", small)], Workload.fixed(20.0, 2.0, 5.0))
    counted = drawn.pools[0]["requests_count"].value
    assert drawn.requests_count == 20_000 == counted + drawn.cut_count and 0 < drawn.cut_count < counted


def test_the_command_prints_simulated_beside_measured(log, tmp_path, capsys):
    """With --out, request by request; how the engine was started is read from the log's meta.json."""
    (tmp_path / "meta.json").write_text(
        json.dumps({"engine_kwargs": {"model": "llama-3.1-8b", "max_num_seqs": 16, "max_num_batched_tokens": 1024}})
    )
    out = tmp_path / "requests_out.csv"
    assert main(["simulate", "--replay", str(log), "--gpu", "h100_sxm", "--json", "--out", str(out)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["inputs"]["servers"][0]["slots_count"] == 16
    assert document["result"]["slower"] == pytest.approx(1.3, rel=0.01)
    lines = out.read_text().splitlines()
    assert len(lines) == 61 and lines[0].startswith("request_id,arrival_s,input_tokens")
    each = [[float(x) if x else math.nan for x in line.split(",")] for line in lines[1:]]
    rows = [dict(zip(lines[0].split(","), row, strict=True)) for row in each]
    measured = [line.split(",") for line in log.read_text().splitlines()[1:]]
    for row, (_, came, prompt, answer, first, end) in zip(rows, measured, strict=True):
        assert (row["input_tokens"], row["output_tokens"]) == (float(prompt), float(answer))
        assert row["measured_ttft_s"] == pytest.approx(float(first) - float(came), rel=1e-4)
        assert row["measured_e2e_s"] == pytest.approx(float(end) - float(came), rel=1e-4)
    means = {metric["name"]: metric for metric in document["result"]["metrics"]}
    for side in ("simulated", "measured"):
        for name in ("ttft", "tpot", "e2e"):
            mean = np.nanmean([row[f"{side}_{name}_s"] for row in rows])
            assert means[f"{name}_mean_s"][f"{side}_s"] == pytest.approx(mean, rel=1e-4)
    assert main(["simulate", "--replay", str(log), "--gpu", "h100_sxm"]) == 0
    audit_shown(document, capsys.readouterr().out)


def test_a_server_is_simulated_on_traffic_and_drowns_beyond_its_capacity(tmp_path):
    """Request by request, too: a wait, the first token, and the rest of the answer follow each other."""
    out = tmp_path / "out.csv"
    fleet = ["simulate", "--model", "llama-3.1-8b", "--gpu", "h100_sxm", "--isl", "500", "--osl", "100"]
    answers = []
    for load in (["--rate", "20 req/s", "--requests", "2000"], ["--rate", "300 req/s", "--requests", "4000"]):
        found = ask([*fleet, *load, "--out", out])
        audit(found.document)
        audit_shown(found.document, found.text)
        assert found.status == len(answers) and found.document["inputs"]["rate_rps"] == pytest.approx(
            float(load[1].split()[0]), rel=0.1
        )
        answers.append(found.document["result"])
    calm, drowned = answers
    with out.open() as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 4000 and max(float(row["wait_s"]) for row in rows) > 1.0
    for row in rows:
        wait, ttft, tpot, e2e = (float(row[f"{name}_s"]) for name in ("wait", "ttft", "tpot", "e2e"))
        assert wait < ttft < e2e and e2e - ttft == pytest.approx(tpot * (int(row["output_tokens"]) - 1), rel=1e-3)
        assert (row["pool"], row["input_tokens"], row["output_tokens"]) == ("all", "500", "100")
    assert calm["all"]["ttft_p99_s"]["value"] < 0.5 < drowned["all"]["ttft_p99_s"]["value"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--model", "llama-3.1-8b"], "--model and --gpu"),
        (["--gpu", "h100_sxm"], "--model"),
        (["--tp", "2"], "without one"),
        (["--replay", "nowhere.jsonl", "--model", "llama-3.1-8b"], "--gpu"),
        (["--replay", "nowhere.jsonl", "--gpu", "h100"], "nowhere.jsonl"),
        (["--model", "llama-3.1-8b", "--gpu", "h100", "--slots", "4"], "slots"),
        (["--model", "llama-3.1-70b", "--gpu", "l4"], "memory"),
        (["--model", "llama-3.1-70b", "--gpu", "h100", "--tp", "3"], "tp 3"),
        (["--model", "llama-3.1-8b", "--gpu", "h100", "--backend", "orca"], "orca"),
        (["--plan", "nowhere.json", "--model", "llama-3.1-8b"], "plan"),
        (["--out", "x.csv"], "--out"),
    ],
)
def test_mistakes_are_one_line(given, said, capsys):
    assert main(["simulate", *given]) == 2
    found = capsys.readouterr().err
    assert said in found and found.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no requests"),
        (HEAD + "\na,0,10,5,1,2\nb,1,10,5,0.5,2", "first token before"),
        (HEAD + "\na,0,10,0,1,2", "0 tokens"),
        (HEAD + "\na,0,ten,5,1,2", "no number"),
        ("arrival_s,input_tokens\n0,1", "output_tokens"),
        ('{"queued_ts": 1', "requests.csv:1: not JSON"),
        (HEAD + "\na,0,10,5,80,320", "in milliseconds"),
        (HEAD + f"\n{'x' * 200_000},0,10,5,1,2", "no table"),
    ],
)
def test_a_log_that_cannot_be_one_is_refused(text, said, tmp_path):
    file = tmp_path / "requests.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=said):
        read_requests(file)


def test_a_saved_plan_is_simulated(tmp_path, capsys):
    asked = ["--isl", "1000", "--osl", "200", "--rate", "20 req/s", "--gpu", "h100_sxm", "--tp", "1"]
    assert main(["plan", *asked, "--model", "llama-3.1-8b", "--no-split", "--no-sensitivity", "--json"]) == 0
    file = tmp_path / "answer.json"
    file.write_text(capsys.readouterr().out)
    planned = json.loads(file.read_text())["result"]["recommended"]["pools"][0]
    assert main(["simulate", "--plan", str(file), "--requests", "2000", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["inputs"]["servers"][0]["instances"] == planned["pool_instances"]
    assert document["inputs"]["rate_rps"] == pytest.approx(20, rel=0.1)
    assert document["result"]["all"]["ttft_p99_s"]["value"] <= 2.0


def test_a_saved_split_is_simulated():
    """Prefill workers' TTFT, the transfer of 128 KiB a token (32 layers, 8 heads of 128, keys and values of two bytes)
    and the decoder's step; no prompt stalls an answer there."""
    pool = {"name": "all", "gpu": "h100_sxm", "layout": "tp1pp1dp1ep1", "weights": "as published", "kv": "as published"}
    roles = ({"role": "prefill", "pool_instances": 4}, {"role": "decode", "pool_instances": 2})
    inputs = {"model": "llama-3.1-8b", "backend": "vllm", "max_num_seqs_count": 256, "max_num_batched_tokens": 8192}
    best = {"pools": [pool | role for role in roles], "router": {}}
    saved = {"command": "plan", "result": {"recommended": best}, "inputs": inputs | {"asked": {"gpu": {}}}}
    (whole,) = of_plan(saved)
    workers, decoders = whole.server.parts
    assert (workers.instances, decoders.instances) == (4, 2)
    seconds = whole.server.transfer_s_per_token
    assert seconds == pytest.approx(131_072 / float(catalog.gpu("h100_sxm").nic_bytes_per_s_per_gpu_oneway))
    when, prompts, answers = np.arange(200) / 10.0, np.full(200, 4000), np.full(200, 100)
    answers[::10] = 1  # these never meet a decoder
    first, both = workers.serve(when, prompts, np.ones(200)), whole.server.serve(when, prompts, answers)
    sent = first.ttft_s + 4000 * seconds
    step = decoders.law.seconds(16, 4100, 2, 4000)  # two more are seen after the next one, and each takes one
    assert both.ttft_s[::10] == pytest.approx(sent[::10])
    assert (both.ttft_s[answers > 1] > sent[answers > 1]).all() and (both.ttft_s < sent + 3 * step).all()
    assert np.nanmax(both.tpot_s) < 1.05 * step


def test_what_a_split_makes_of_requests_one_by_one():
    """A prompt takes a second for its place and is sent at 10 ms a token; who is sent first is decoded first."""
    seen = []

    class Workers:
        def serve(self, arrival, prompts, answers):
            seen.append(answers.tolist())
            late = arrival + 1.0
            return Served(arrival, arrival + 0.25, late, late, answers, restarts=np.array([1, 0, 0, 2]))

    class Decoders:
        def inside(self, arrival, prompts, answers, *, sent):
            seen.append((arrival.tolist(), prompts.tolist(), answers.tolist(), sent))
            first = arrival + np.array([0.5, 0.25, 0.125])
            return Served(arrival, arrival, first, first + answers, answers, restarts=np.array([4, 8, 16]))

    prompts, answers = [900, 100, 100, 100], [5, 1, 7, 3]
    done = SplitServers((Workers(), Decoders()), 0.01).serve([0.0, 1.0, 2.0, 3.0], prompts, answers)
    # sent at 1, 2, 3 and 4 s, and there at 10, 3, 4 and 5 s; the second has its only token
    assert seen == [[1, 1, 1, 1], ([4.0, 5.0, 10.0], [100, 100, 900], [7, 3, 5], True)]
    assert done.first_token_s.tolist() == [10.125, 3.0, 4.5, 5.25] and done.end_s.tolist() == [15.125, 3.0, 11.5, 8.25]
    assert (done.arrival_s.tolist(), done.output_tokens.tolist()) == ([0, 1, 2, 3], answers)
    assert done.admitted_s.tolist() == [0.25, 1.25, 2.25, 3.25] and done.restarts.tolist() == [17, 0, 4, 10]


def test_no_server_in_stages_is_simulated():
    with pytest.raises(InputError, match="pp = 2: accepted is 1, the engines' schedulers are simulated of one stage"):
        server("llama-3.1-8b", "h100_sxm", Parallel(pp=2))


def test_no_server_without_room_for_a_cache_is_simulated():
    told = r"^llama-3.1-70b on h100_sxm \(tp1pp1dp1ep1, vllm\): no memory is left for the KV cache; `dmodels size` says"
    with pytest.raises(InputError, match=told):
        server("llama-3.1-70b", "h100_sxm", Parallel(), max_num_seqs=16, max_num_batched_tokens=1024)


def test_answers_of_one_token_have_no_time_for_each_further_one():
    """And the others are as long as they were: four seconds of which each takes one, and half as long simulated."""
    arrival, ones = np.arange(4.0), np.ones(4)
    measured = Served(arrival, arrival, arrival + 1.0, arrival + 1.0, ones)
    simulated = Served(arrival, arrival, arrival + 0.5, arrival + 0.5, ones)
    found = {x.name: (x.simulated_s, x.measured_s, x.error_frac) for x in comparison._metrics(simulated, measured)}
    same = (0.5, 1.0, -0.5)
    assert found == {
        **{f"{name}_{of}_s": same for name in ("ttft", "e2e") for of in ("mean", "p50", "p99")},
        "duration_s": (3.5, 4.0, pytest.approx(-0.125)),
    }


def test_one_fleet_by_priority_keeps_each_class_to_its_own_slo():
    """Every second, four long jobs come ahead of a chat: one instance serves the chat first, or nobody in time."""
    seconds, answers = np.arange(240) // 5 * 1.0, np.tile([400.0] * 4 + [20.0], 48)
    inputs = np.tile([6000.0] * 4 + [200.0], 48)
    labels = np.tile(["jobs"] * 4 + ["chat"], 48)
    trace = Trace("bursts", seconds, inputs, answers, labels=labels)
    chat = RequestClass("chat", SLO(1.5, 1.0), label="chat")
    jobs = RequestClass("jobs", SLO(600.0, 1.0), label="jobs", priority=1)
    asked = question("llama-3.1-8b", ["l40s"], trace, SLO(2.0, 0.1), tp=(1,))
    found = plan_together(asked, [chat, jobs])
    assert found.holds and all(x.by_priority_s <= x.bound_s for x in found.kept)
    assert found.in_order_instances is None or found.in_order_instances >= found.instances
    seen = {(x.name, x.metric): x for x in found.kept}
    assert seen["chat", "TTFT"].by_priority_s <= seen["chat", "TTFT"].in_order_s
    if found.instances > 1:
        fewer = plan_together(asked, [chat, jobs], 0.99 * found.usd_per_hour)
        assert not fewer.holds and any(x.by_priority_s > x.bound_s for x in fewer.kept)


def test_how_far_a_law_is_off_is_told_as_a_share_of_what_the_log_lasts():
    """First tokens 3 s late and last ones 4 s early, of a log from 10 to 60 s: 3.54 s of 50. The first 2,000 count."""
    arrival = np.linspace(10.0, 50.0, 2001)
    target = Served(arrival, arrival, arrival + 1.0, arrival + 2.0, np.full(2001, 9.0))
    target.end_s[1990] = 60.0
    target.end_s[2000] = 90.0
    log = type("Log", (), {"input_tokens": np.arange(2001.0)})

    class Asked:
        def inside(self, when, prompts, answers, law):
            assert law == "law" and when.size == prompts.size == answers.size == 2000
            assert (prompts[-1], answers[-1], when[0]) == (1999.0, 9.0, 10.0)
            return Served(when, when, target.first_token_s[:2000] + 3.0, target.end_s[:2000] - 4.0, answers)

    assert comparison._apart(Asked(), log, target, "law") == pytest.approx(math.sqrt(12.5) / 50.0)
