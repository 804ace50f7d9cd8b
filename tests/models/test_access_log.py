"""Gateways' access logs, and Parquet and Arrow files, as traces."""

from __future__ import annotations

import gzip
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from dmodels.core.errors import TraceError
from dmodels.models.traffic import read_trace

SAMPLES = Path(__file__).parents[1] / "formats" / "samples"
START = 1_760_000_000
#: Arrival after START [s], prompt and completion tokens.
REQUESTS = [(0.0, 812, 133), (0.25, 4000, 20), (3.5, 17, 900)]


def at(seconds: float) -> str:
    return (datetime.fromtimestamp(START, UTC) + timedelta(seconds=seconds)).isoformat()


def litellm(seconds, prompt, answer, **more):
    row = {"request_id": "r", "startTime": at(seconds), "endTime": at(seconds + 9), "model": "m", "status": "success"}
    return row | {"prompt_tokens": prompt, "completion_tokens": answer, "metadata": "{}"} | more


def envoy(seconds, prompt, answer, **more):
    """The fields of Envoy AI Gateway's default log (envoyproxy/ai-gateway, docs on access logs)."""
    row = {"start_time": at(seconds).replace("+00:00", "Z"), "method": "POST", "response_code": 200, "duration": "4211"}
    usage = {"gen_ai.usage.input_tokens": str(prompt), "gen_ai.usage.output_tokens": str(answer)}
    return row | {"upstream_host": "10.0.0.7:8000", "session.id": "-"} | usage | more


def openai(seconds, prompt, answer, **more):
    """Responses of /v1/chat/completions, one a line."""
    usage = {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": START + seconds, "usage": usage} | more


def responses(seconds, prompt, answer):
    """Responses of /v1/responses, in which a part of each prompt was cached."""
    usage = {"input_tokens": prompt, "input_tokens_details": {"cached_tokens": 16}, "output_tokens": answer}
    return {"object": "response", "created_at": START + seconds, "status": "completed", "usage": usage}


def aiperf(seconds, prompt, answer):
    metrics = {"input_sequence_length": {"value": prompt}, "output_sequence_length": {"value": answer}}
    return {"metadata": {"request_start_ns": int((START + seconds) * 1e9)}, "metrics": metrics, "error": None}


STYLES = {one.__name__: one for one in (litellm, envoy, openai, responses, aiperf)}


def write(folder, rows, name="access.jsonl"):
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("style", STYLES)
def test_each_style_is_the_same_trace(style, tmp_path):
    """Rows in the order in which requests ended; the trace is in the order in which they came."""
    path = write(tmp_path, [STYLES[style](*REQUESTS[i]) for i in (1, 0, 2)])
    trace = read_trace(path)
    assert trace.layout == "access-log" and trace.time_s.tolist() == pytest.approx([0.0, 0.25, 3.5], abs=1e-6)
    assert trace.input_tokens.tolist() == [812, 4000, 17] and trace.output_tokens.tolist() == [133, 20, 900]
    assert np.all(np.asarray(trace.cached_tokens) == (16.0 if style == "responses" else 0.0))


def test_what_litellm_and_aiperf_wrote():
    """A payload and a spend log of litellm's own tests, one request each; a log of AIPerf, one of four cancelled."""
    for name in ("litellm_payload.json", "litellm_spend_log.json"):
        trace = read_trace(SAMPLES / name)
        assert (trace.input_tokens.tolist(), trace.output_tokens.tolist()) == ([10], [20])
    trace = read_trace(SAMPLES / "aiperf_first_release.jsonl")
    assert trace.input_tokens.tolist() == [550] * 3 and trace.output_tokens.tolist() == [193, 193, 241]
    assert trace.duration_s == pytest.approx(1e-9 * (1759522419159213055 - 1759522419158355424), abs=1e-6)
    assert trace.notices == ("left out 1 request that failed",)


@pytest.mark.parametrize("unit", [1.0, 1e3, 1e6, 1e9])
def test_units_of_time_are_told_by_their_size(unit, tmp_path):
    rows = [openai(0, p, a) | {"created": int((START + s) * unit)} for s, p, a in REQUESTS]
    trace = read_trace(write(tmp_path, rows))
    assert trace.duration_s == pytest.approx(3.0 if unit == 1.0 else 3.5, abs=1e-3)
    assert any("whole seconds" in notice for notice in trace.notices) == (unit == 1.0)


def test_failed_requests_are_left_out_and_counted(tmp_path):
    rows = [envoy(*one) for one in REQUESTS]
    rows += [envoy(1, "-", "-", response_code=503), envoy(2, "-", "-", response_code="0")]
    trace = read_trace(write(tmp_path, rows))
    assert len(trace) == 3 and trace.notices == ("left out 2 requests that failed",)


@pytest.mark.parametrize(
    "rows, why",
    [
        ([litellm(*REQUESTS[0]), litellm(0, 5, None)], "row 2: states no completion tokens; accepted: completion_tok"),
        ([envoy(0, "-", 5)], "row 1: states no prompt tokens; accepted: prompt_tokens, usage.prompt_tokens"),
        ([openai(0, 5, 5) | {"usage": None, "status": "ok"}], "row 1: states no prompt tokens"),
        ([litellm(0, "many", 5)], "row 1: prompt_tokens = 'many'; accepted: a whole number from 0"),
        ([litellm(0, 2.5, 5)], "row 1: prompt_tokens = 2.5"),
        ([litellm(0, -1, 5)], "row 1: prompt_tokens = -1"),
        ([litellm(0, 5, 0)], "completion tokens = 0; accepted: at least 1 token"),
        ([litellm(0, 5, 5, startTime="yesterday")], "row 1: startTime = 'yesterday'; accepted: a date like 2026-"),
        ([litellm(0, 5, 5, startTime=12.5)], "row 1: startTime = 12.5; accepted: a date like"),
        ([openai(0, 5, 5), openai(0, 5, 5, created=START * 1000)], "row 2: created = 1760000000000 is in ms, the rows"),
        ([litellm(0, 5, 5), litellm(0, 5, 5, startTime=START)], "row 2: startTime = 1760000000 is in s, the rows"),
        ([litellm(0, 5, 5, status="failure")], "no request that was served (1 failed)"),
        ([litellm(0, 5, 5), [1]], "row 2: [1] is not an object"),
    ],
)
def test_what_is_missing_is_refused_by_name(rows, why, tmp_path):
    with pytest.raises(TraceError) as error:
        read_trace(write(tmp_path, rows))
    assert why in str(error.value) and "\n" not in str(error.value)


def test_repair_drops_what_cannot_be_used(tmp_path):
    rows = [litellm(*one) for one in REQUESTS] + [litellm(0, 5, None), litellm(0, 0, 5)]
    trace = read_trace(write(tmp_path, rows), repair=True)
    assert len(trace) == 3 and [notice.split()[:2] for notice in trace.notices] == [["dropped", "1"]] * 2


def test_lists_tables_and_packed_logs_are_read(tmp_path):
    rows = [litellm(*one) for one in REQUESTS]
    expected = read_trace(write(tmp_path, rows))
    listed = tmp_path / "list.json"
    listed.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    table = tmp_path / "spend.csv"
    table.write_text(
        "startTime,prompt_tokens,completion_tokens,status\n"
        + "".join(f"{row['startTime']},{row['prompt_tokens']},{row['completion_tokens']},success\n" for row in rows)
    )
    packed = tmp_path / "access.jsonl.gz"
    packed.write_bytes(gzip.compress((tmp_path / "access.jsonl").read_bytes()))
    pa = pytest.importorskip("pyarrow")
    with pa.CompressedOutputStream(str(tmp_path / "access.jsonl.zst"), "zstd") as out:
        out.write((tmp_path / "access.jsonl").read_bytes())
    for path in (listed, table, packed, tmp_path / "access.jsonl.zst"):
        trace = read_trace(path)
        assert trace.time_s.tolist() == expected.time_s.tolist(), path
        assert trace.input_tokens.tolist() == expected.input_tokens.tolist(), path


PLAIN = {"time_s": [0.0, 0.25, 3.5], "input_tokens": [812, 4000, 17], "output_tokens": [133, 20, 900]}
AZURE = {
    "TIMESTAMP": [
        np.datetime64("2025-10-09T08:53:20.000", "ns") + np.timedelta64(int(1e9 * s)) for s, _, _ in REQUESTS
    ],
    "ContextTokens": PLAIN["input_tokens"],
    "GeneratedTokens": PLAIN["output_tokens"],
}
MOONCAKE = {
    "timestamp": [0, 250, 3500],
    "input_length": PLAIN["input_tokens"],
    "output_length": PLAIN["output_tokens"],
    "hash_ids": [[1, 2], [1, 2, 3, 4, 5, 6, 7, 8], [9]],
}
GATEWAY = {
    "startTime": [datetime.fromisoformat(at(s)) for s, _, _ in REQUESTS],
    "usage": [{"prompt_tokens": p, "completion_tokens": a} for _, p, a in REQUESTS],
}


@pytest.mark.parametrize("kind", ["parquet", "arrow", "arrows"])
@pytest.mark.parametrize("columns", [PLAIN, AZURE, MOONCAKE, GATEWAY], ids=["plain", "azure", "mooncake", "gateway"])
def test_parquet_and_arrow_are_traces(columns, kind, tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    table, path = pa.table(columns), tmp_path / f"trace.{kind}"
    if kind == "parquet":
        pq.write_table(table, path)
    else:
        make = pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream
        with make(str(path), table.schema) as writer:
            writer.write_table(table)
    trace = read_trace(path)
    assert trace.time_s.tolist() == pytest.approx([0.0, 0.25, 3.5], abs=1e-6)
    assert trace.input_tokens.tolist() == [812, 4000, 17] and trace.output_tokens.tolist() == [133, 20, 900]
    assert (trace.block_ids is not None) == ("hash_ids" in columns)


def test_columns_that_are_no_trace_are_one_line(tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    path = tmp_path / "t.parquet"
    for columns, why in (
        ({"a": [1]}, "columns 'a' are unknown"),
        ({"time_s": [], "input_tokens": [], "output_tokens": []}, "no row"),
        (PLAIN | {"input_tokens": [1, None, 3]}, "line 2: input_tokens = None; accepted: a whole number"),
        (PLAIN | {"input_tokens": ["a", "b", "c"]}, "line 1: input_tokens = 'a'"),
    ):
        pq.write_table(pa.table(columns), path)
        with pytest.raises(TraceError, match=why):
            read_trace(path)
    pq.write_table(pa.table(PLAIN), path)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(TraceError, match="not a file of columns that can be read"):
        read_trace(path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TraceError, match=r"needs pyarrow: pip install 'dmodels\[io\]'"):
        read_trace(path)


@pytest.fixture
def served(tmp_path):
    rng = np.random.default_rng(2)
    came = np.cumsum(rng.exponential(0.2, 300)).tolist()
    log = write(tmp_path, [litellm(s, int(rng.integers(50, 3000)), int(rng.integers(5, 300))) for s in came])
    return log, pytest.approx(299 / (came[-1] - came[0]), rel=1e-6)


@pytest.mark.slow
def test_a_simulation_replays_an_access_log(served, capsys):
    from dmodels.cli import main

    log, rate = served
    assert main(["simulate", "--trace", str(log), "--instances", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["inputs"]["rate_rps"] == rate


@pytest.mark.slow
def test_a_plan_takes_an_access_log(served, capsys):
    from dmodels.cli import main

    log, rate = served
    ask = ["--model", "llama-3.1-8b", "--gpu", "h100_sxm", "--tp", "1", "--no-split", "--no-sensitivity", "--no-ensure"]
    assert main(["plan", "--trace", str(log), *ask, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["result"]["recommended"]["fleet_gpus"] == 1 and answer["inputs"]["rate_rps"] == rate
