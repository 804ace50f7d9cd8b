"""One run with a number of its own for every fact, as each load generator would write it: which fact lands where.

The documents are put together from what the tools' own sources say (named in each reader), not from the readers.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dmodels.formats.measurements import LatencyStats, LoadPoint, read_measurements

QUANTILES = (50, 90, 95, 99)


def stats(rng: np.random.Generator, mean: float) -> LatencyStats:
    """No two alike, and in the order of percentiles."""
    low, *high = np.sort(rng.uniform(0.5, 3.0, 4))
    return LatencyStats(mean, *(mean * float(f) for f in (low, *high)))


def run(rng: np.random.Generator) -> LoadPoint:
    """Numbers that go together, as `checked` asks; of the deployment, all that any tool states."""
    inputs, outputs, completed = (float(rng.integers(low, 3 * low)) for low in (400, 60, 50))
    ttft, tpot = stats(rng, rng.uniform(0.05, 0.4)), stats(rng, rng.uniform(0.01, 0.04))
    e2e = stats(rng, ttft.mean_s + (outputs - 1.0) * tpot.mean_s)
    duration = rng.uniform(5.0, 9.0) * e2e.mean_s
    rate = completed / duration
    return LoadPoint(
        **{"form": "", "where": "", "input_tokens": inputs, "output_tokens": outputs, "throughput_rps": rate},
        **{"ttft": ttft, "tpot": tpot, "e2e": e2e, "completed_count": completed, "duration_s": duration},
        failed_count=float(rng.integers(3, 20)),
        asked_rate_rps=1.1 * rate,
        max_concurrency_count=float(math.ceil(1.2 * rate * e2e.mean_s) + rng.integers(1, 9)),
        **{"model": "org/model-7b", "engine": "vllm", "release": "0.19.0", "gpu": "H100", "precision": "fp8"},
        **{"tp": 2, "pp": 3, "dp": 4, "ep": 8},
    )


#: What a file of each tool does not state, so that its point has the default.
SILENT = {
    "release": "",
    "gpu": "",
    "precision": "",
    **dict.fromkeys(("tp", "pp", "dp", "ep"), 0),
}


def in_ms(x: LoadPoint, e2e: str) -> dict[str, float]:
    """vLLM's names, which SGLang shares but for one."""
    found = {}
    for name, of in {"ttft": x.ttft, "tpot": x.tpot, e2e: x.e2e}.items():
        found |= {f"mean_{name}_ms": 1e3 * of.mean_s, f"median_{name}_ms": 1e3 * of.p50_s, f"std_{name}_ms": 1.0}
        found |= {f"p{q}_{name}_ms": 1e3 * getattr(of, f"p{q}_s") for q in QUANTILES[1:]}
    return found


def vllm(x: LoadPoint) -> tuple[Any, LoadPoint]:
    totals = {"total_input_tokens": x.input_tokens * x.completed_count}
    totals |= {"total_output_tokens": x.output_tokens * x.completed_count}
    document = {
        "backend": "vllm",
        "model_id": x.model,
        "request_rate": x.asked_rate_rps,
        "completed": x.completed_count,
    }
    document |= {"max_concurrency": x.max_concurrency_count, "duration": x.duration_s, "failed": x.failed_count}
    document |= totals | {"request_throughput": x.throughput_rps, "num_prompts": 9_999} | in_ms(x, "e2el")
    return document, replace(x, form="vllm-bench", **SILENT)


def sglang(x: LoadPoint) -> tuple[Any, LoadPoint]:
    """`tp_size` counts all GPUs of a stage; it does not say what failed."""
    document, _ = vllm(x)
    del document["model_id"], document["failed"]
    document |= in_ms(x, "e2e_latency") | {"backend": "sglang-oai"}
    info = {"model_path": x.model, "version": x.release, "quantization": "w8a8_fp8", "tp_size": x.tp * x.dp}
    info |= {"attn_dp_size": x.dp, "pp_size": x.pp, "ep_size": x.ep, "dp_size": 1, "enable_dp_attention": False}
    told = replace(x, form="sglang-bench", engine="sglang", failed_count=0.0, gpu="")
    return document | {"server_info": info}, told


def guidellm(x: LoadPoint) -> tuple[Any, LoadPoint]:
    """Of requests seconds, of tokens milliseconds; what failed has distributions of its own."""

    def of(s: LatencyStats, unit: float) -> dict[str, Any]:
        percentiles = {f"p{q}": unit * getattr(s, f"p{q}_s") for q in QUANTILES} | {"p50": 9e9}
        return {"mean": unit * s.mean_s, "median": unit * s.p50_s, "percentiles": percentiles}

    both = lambda good: {"successful": good, "errored": {"mean": 1e9}, "total": {"mean": 1e8}}
    metrics = {
        "request_totals": {"successful": x.completed_count, "errored": x.failed_count, "total": 1e6},
        "requests_per_second": both({"mean": 3 * x.throughput_rps}),  # over buckets of time
        "request_latency": both(of(x.e2e, 1.0)),
        "prompt_token_count": both({"mean": x.input_tokens}),
        "output_token_count": both({"mean": x.output_tokens}),
        "time_to_first_token_ms": both(of(x.ttft, 1e3)),
        "inter_token_latency_ms": both(of(x.tpot, 1e3)),
        "time_per_output_token_ms": both({"mean": 77.0}),
    }
    strategy = {"type_": "concurrent", "streams": x.max_concurrency_count, "rate": x.asked_rate_rps}
    one = {"config": {"strategy": strategy}, "duration": x.duration_s, "metrics": metrics}
    spec = {"config": {"spec": {"backend": {"model": x.model}}}}
    return {"metadata": {"version": 2}, "benchmarks": [one]} | spec, replace(x, form="guidellm", engine="", **SILENT)


def aiperf(x: LoadPoint) -> tuple[Any, LoadPoint]:
    unit = {"us": 1e6, "ms": 1e3, "sec": 1.0}

    def of(s: LatencyStats, name: str) -> dict[str, Any]:
        percentiles = {f"p{q}": unit[name] * getattr(s, f"p{q}_s") for q in QUANTILES}
        return {"unit": name, "avg": unit[name] * s.mean_s, "min": 0.0, "std": 5.0, **percentiles}

    document = {
        "request_throughput": {"unit": "requests/sec", "avg": x.throughput_rps},
        "time_to_first_token": of(x.ttft, "us"),
        "inter_token_latency": of(x.tpot, "ms"),
        "request_latency": of(x.e2e, "sec"),
        "request_count": {"avg": x.completed_count},
        "error_request_count": {"avg": x.failed_count},
        "input_sequence_length": {"avg": x.input_tokens},
        "output_sequence_length": {"avg": x.output_tokens},
        "benchmark_duration": {"unit": "ms", "avg": 1e3 * x.duration_s},
        "input_config": {"loadgen": {"concurrency": x.max_concurrency_count}, "endpoint": {"model_names": [x.model]}},
    }
    return document, replace(x, form="aiperf", engine="", asked_rate_rps=math.nan, **SILENT)


def inference_perf(x: LoadPoint) -> tuple[Any, LoadPoint]:
    of = lambda s: {"mean": s.mean_s, "median": s.p50_s} | {f"p{q}": getattr(s, f"p{q}_s") for q in QUANTILES[1:]}
    latency = {"time_to_first_token": of(x.ttft), "time_per_output_token": of(x.tpot), "request_latency": of(x.e2e)}
    latency |= {"inter_token_latency": of(x.e2e), "normalized_time_per_output_token": of(x.ttft)}
    done = {"count": x.completed_count, "prompt_len": {"mean": x.input_tokens}, "latency": latency}
    done |= {"output_len": {"mean": x.output_tokens}, "throughput": {"requests_per_sec": x.throughput_rps}}
    load = {"requested_rate": x.asked_rate_rps, "achieved_rate": 1e9, "concurrency": x.max_concurrency_count}
    document = {"load_summary": load | {"count": 1e6}, "successes": done, "failures": {"count": x.failed_count}}
    document["benchmark_time_seconds"] = x.duration_s
    return document, replace(x, form="inference-perf", model="", engine="", **SILENT)


def llmperf(x: LoadPoint) -> tuple[Any, LoadPoint]:
    """Of the time after the first token it has no distribution."""
    document = {"model": x.model, "num_concurrent_requests": x.max_concurrency_count}
    document |= {"results_num_completed_requests": x.completed_count, "results_number_errors": x.failed_count}
    document["results_num_completed_requests_per_min"] = 60 * x.throughput_rps
    document |= {"results_number_input_tokens_mean": x.input_tokens, "results_inter_token_latency_s_mean": 5.0}
    document["results_number_output_tokens_mean"] = x.output_tokens
    for name, s in (("ttft_s", x.ttft), ("end_to_end_latency_s", x.e2e)):
        document[f"results_{name}_mean"] = s.mean_s
        document |= {f"results_{name}_quantiles_p{q}": getattr(s, f"p{q}_s") for q in QUANTILES}
    told = replace(x, form="llmperf", tpot=LatencyStats(x.tpot.mean_s), engine="", **SILENT)
    return document, replace(told, duration_s=math.nan, asked_rate_rps=math.nan)


def llm_d(x: LoadPoint) -> tuple[Any, LoadPoint]:
    """The first component with an accelerator is the engine; what did not end did not succeed."""

    def of(s: LatencyStats, units: str) -> dict[str, Any]:
        scale = 1e3 if units.startswith("ms") else 1.0
        return {"units": units, "mean": scale * s.mean_s} | {f"p{q}": scale * getattr(s, f"p{q}_s") for q in QUANTILES}

    parallelism = {"tp": x.tp, "pp": x.pp, "dp": x.dp, "ep": x.ep}
    own = {"tool": x.engine, "tool_version": x.release, "model": {"name": x.model}}
    own["accelerator"] = {"model": x.gpu, "parallelism": parallelism}
    other = {"accelerator": {"model": "L4"}, "tool": "sglang"}
    load = {"rate_qps": x.asked_rate_rps, "concurrency": x.max_concurrency_count}
    load |= {"input_seq_len": {"value": 9.0}, "output_seq_len": {"value": 8.0}}
    requests = {"total": x.completed_count + x.failed_count + 2, "failures": x.failed_count, "incomplete": 2}
    requests |= {"input_length": {"mean": x.input_tokens}, "output_length": {"mean": x.output_tokens}}
    latency = {"time_to_first_token": of(x.ttft, "ms"), "time_per_output_token": of(x.tpot, "s/token")}
    latency["request_latency"] = of(x.e2e, "s")
    aggregate = {"requests": requests, "latency": latency, "throughput": {"request_rate": {"mean": x.throughput_rps}}}
    document = {"version": "0.2.1", "run": {}, "results": {"request_performance": {"aggregate": aggregate}}}
    stack = [{"standardized": part} for part in ({"kind": "gateway"}, own, other)]
    document["scenario"] = {"stack": stack, "load": {"standardized": load}}
    return document, replace(x, form="llm-d-report", precision="", duration_s=math.nan)


def table(x: LoadPoint) -> tuple[Any, LoadPoint]:
    """Everything; TTFT in both units, of which milliseconds count, the others in one each."""
    prefixes = {"": "mean_s", "median_": "p50_s", "p90_": "p90_s", "p95_": "p95_s", "p99_": "p99_s"}
    cells: dict[str, Any] = {"input_tokens": x.input_tokens, "Output_Tokens": x.output_tokens}
    for prefix, field in prefixes.items():
        cells |= {f"{prefix}ttft_ms": 1e3 * getattr(x.ttft, field), f"{prefix}ttft_s": 5e3}
        cells |= {f"{prefix}tpot_s": getattr(x.tpot, field), f"{prefix}e2e_ms": 1e3 * getattr(x.e2e, field)}
    cells |= {"throughput_rps": x.throughput_rps, "completed": x.completed_count, "failed": x.failed_count}
    cells |= {"duration_s": x.duration_s, "request_rate_rps": x.asked_rate_rps, "concurrency": x.max_concurrency_count}
    words = ("model", "engine", "release", "gpu", "precision", "tp", "pp", "dp", "ep")
    cells |= {name: getattr(x, name) for name in words}
    return f"{','.join(cells)}\n# a remark\n{','.join(map(str, cells.values()))}\n", replace(x, form="csv")


TOOLS = (vllm, sglang, guidellm, aiperf, inference_perf, llmperf, llm_d, table)


def same(point: LoadPoint, told: LoadPoint) -> None:
    """Every field but where it stands."""
    flat = lambda of: {k: vars(v) if isinstance(v, LatencyStats) else v for k, v in vars(of).items() if k != "where"}
    for name, value in flat(told).items():
        words = isinstance(value, str)
        assert flat(point)[name] == (value if words else pytest.approx(value, nan_ok=True)), name


def read(folder, document: Any) -> list[LoadPoint]:
    path = folder / "report"
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return read_measurements([path])


@pytest.mark.parametrize("tool", TOOLS)
def test_every_fact_lands_where_it_belongs(tool, tmp_path):
    for seed in range(3):
        document, told = tool(run(np.random.default_rng(seed)))
        (point,) = read(tmp_path, document)
        same(point, told)
        assert "report" in point.where


def test_facts_that_a_file_leaves_out(tmp_path):
    """Each as its tool means it when the field is not there, or holds another kind of value."""
    x = run(np.random.default_rng(9))
    document, told = vllm(x)
    for change, expected in (
        ({"request_rate": "inf"}, {"asked_rate_rps": math.inf}),
        ({"failed": None}, {"failed_count": 0.0}),
        ({"backend": "openai-chat", "max_concurrency": None}, {"engine": "", "max_concurrency_count": math.nan}),
        ({"backend": "tensorrt-llm"}, {"engine": "trtllm"}),
    ):
        same(*read(tmp_path, document | change), replace(told, **expected))
    document, told = sglang(x)
    info = document["server_info"]
    older = {"attn_dp_size": None, "dp_size": x.dp, "enable_dp_attention": True}
    for change, expected in (
        ({"request_rate": "trace"}, {"asked_rate_rps": math.nan}),
        ({"request_rate": None}, {"asked_rate_rps": math.inf}),
        ({"server_info": info | older}, {}),
        ({"server_info": info | older | {"enable_dp_attention": False}}, {"tp": x.tp * x.dp, "dp": 1}),
        ({"server_info": info | {"quantization": "gptq_marlin"}}, {"precision": "int4"}),
        ({"server_info": info | {"quantization": "petit_nvfp4"}}, {"precision": "fp4"}),
        ({"server_info": None}, {"model": "", "release": "", **SILENT}),
    ):
        same(*read(tmp_path, document | change), replace(told, **expected))
    document, told = llm_d(x)
    aggregate = document["results"]["request_performance"]["aggregate"]
    for name in ("input_length", "output_length"):
        del aggregate["requests"][name]
    del aggregate["latency"]["request_latency"]
    document["scenario"]["load"]["standardized"] |= {"concurrency": {"stages": []}}
    document["scenario"]["load"]["standardized"]["output_seq_len"]["value"] = x.output_tokens
    (point,) = read(tmp_path, document)
    lengths = {"input_tokens": 9.0, "e2e": LatencyStats(), "max_concurrency_count": math.nan}
    same(point, replace(told, **lengths))


def test_rates_of_guidellm(tmp_path):
    """One stream by definition, or a schedule of arrivals without clients; what has no request is left out, and where
    the run has no length its own rate counts."""
    x = run(np.random.default_rng(4))
    document, told = guidellm(replace(x, max_concurrency_count=1.0))
    (one,) = document["benchmarks"]
    kinds = []
    for strategy, clients in (
        ({"type_": "synchronous"}, 1.0),
        ({"type_": "poisson", "rate": 7.0, "max_concurrency": 99}, math.nan),
        ({"type_": "throughput", "streams": 5}, math.nan),
    ):
        kinds.append((one | {"config": {"strategy": strategy}}, clients, strategy.get("rate", math.nan)))
    metrics = one["metrics"] | {"requests_per_second": {"successful": {"mean": x.throughput_rps}}}
    none = metrics | {"request_totals": {"successful": 0, "errored": 4}}
    unknown = {"duration": None, "metrics": metrics, "config": {"strategy": {"type_": "throughput"}}}
    rows = [*(row for row, *_ in kinds[1:]), one | {"metrics": none}, one | unknown]
    older = {"metadata": {"version": 1}, "args": {"model": x.model}}
    found = read(tmp_path, older | {"benchmarks": rows})
    for point, (_, clients, rate) in zip(found, kinds[1:], strict=False):
        same(point, replace(told, max_concurrency_count=clients, asked_rate_rps=rate))
    assert [point.where.rpartition(": ")[2] for point in found] == [f"benchmarks[{k}]" for k in (0, 1, 3)]
    same(found[2], replace(told, max_concurrency_count=math.nan, asked_rate_rps=math.nan, duration_s=math.nan))
    from dmodels.formats.measurements import guidellm as reader

    (point,) = reader.read(older | {"benchmarks": [kinds[0][0]]}, "f")  # as many in flight as no single client has
    same(point, replace(told, max_concurrency_count=1.0, asked_rate_rps=math.nan))


def test_clients_and_models_of_three_generations_of_aiperf(tmp_path):
    document, told = aiperf(run(np.random.default_rng(5)))
    profiling = {"name": "profiling", "concurrency": told.max_concurrency_count}
    since = {"phases": [{"name": "warmup", "concurrency": 2}, profiling], "models": {"items": [{"name": "a"}]}}
    before = {"perf_analyzer": {"stimulus": {"concurrency": told.max_concurrency_count}}, "model_names": ["b"]}
    for config, model in ((since, "a"), (before, "b")):
        same(*read(tmp_path, document | {"input_config": config}), replace(told, model=model))
    early = {("ttft" if key == "time_to_first_token" else key): value for key, value in document.items()}
    same(*read(tmp_path, {"records": early, "input_config": document["input_config"]}), told)


def test_a_log_of_aiperf_by_hand(tmp_path):
    """Four requests of several units and one without streaming: means, quantiles between ranks, the span in seconds."""
    rows, ends = [], []
    for i, (ttft_ms, itl_us, e2e_s) in enumerate([(80.0, 9000.0, 2.0), (120.0, None, 3.0), (60.0, 12000.0, 2.5)]):
        start = 1_000_000_000 * (10 + 4 * i)
        metrics = {"time_to_first_token": {"value": ttft_ms, "unit": "ms"}}
        metrics |= {"request_latency": {"value": e2e_s, "unit": "s"}, "input_sequence_length": {"value": 100 + i}}
        metrics |= {"output_sequence_length": {"value": 200 + 10 * i}}
        if itl_us is not None:
            metrics["inter_token_latency"] = {"value": itl_us, "unit": "us"}
        meta = {"request_start_ns": start, "credit_phase": "profiling"} | ({"request_end_ns": start} if i == 0 else {})
        rows.append({"metadata": meta, "metrics": metrics})
        ends.append(start + (e2e_s * 1e9 if i else 0))
    rows.append({"metadata": rows[0]["metadata"] | {"was_cancelled": True}, "metrics": rows[0]["metrics"]})
    rows.append({"metadata": rows[0]["metadata"] | {"benchmark_phase": "warmup"}, "metrics": rows[0]["metrics"]})
    rows.append({"metadata": rows[0]["metadata"], "metrics": None})
    del rows[1]["metrics"]["input_sequence_length"], rows[2]["metrics"]["output_sequence_length"]
    (point,) = read(tmp_path, "\n\n".join(map(json.dumps, rows)))
    span = (max(ends) - 10e9) / 1e9
    assert (point.completed_count, point.failed_count, point.duration_s) == (3, 1, pytest.approx(span))
    assert point.throughput_rps == pytest.approx(3 / span)
    assert (point.input_tokens, point.output_tokens) == (101, 205)  # of those that say
    assert [vars(point.ttft)[f"p{q}_s"] for q in QUANTILES] == pytest.approx([0.080, 0.112, 0.116, 0.1192])
    assert point.ttft.mean_s == pytest.approx(0.26 / 3) and point.tpot.mean_s == pytest.approx(0.0105)
    assert point.e2e.mean_s == pytest.approx(2.5)
