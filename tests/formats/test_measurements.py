"""Reports of load generators become points in seconds; a wrong unit, a broken file and a missing field are said."""

from __future__ import annotations

import copy
import gzip
import json
import math

import pytest

from dmodels.core.errors import InputError
from dmodels.formats.measurements import FORMATS, measured_files, read_measurements

from . import schemas

#: One run told in each format: 100 requests of 512 + 128 tokens in 50 s, TTFT 80 ms, TPOT 12 ms, E2E 1.604 s.
VLLM = {
    **{"date": "20261101-101010", "endpoint_type": "vllm", "backend": "vllm", "label": None, "num_prompts": 100},
    **{"model_id": "meta-llama/Llama-3.1-8B-Instruct", "tokenizer_id": "meta-llama/Llama-3.1-8B-Instruct"},
    **{"request_rate": "inf", "burstiness": 1.0, "max_concurrency": 4, "duration": 50.0, "completed": 100, "failed": 0},
    **{
        "total_input_tokens": 51200,
        "total_output_tokens": 12800,
        "request_throughput": 2.0,
        "output_throughput": 256.0,
    },
    **{"mean_ttft_ms": 80.0, "median_ttft_ms": 78.0, "std_ttft_ms": 9.0, "p99_ttft_ms": 120.0},
    **{"mean_tpot_ms": 12.0, "median_tpot_ms": 11.9, "std_tpot_ms": 0.5, "p99_tpot_ms": 13.5},
    **{"mean_itl_ms": 12.0, "median_itl_ms": 11.9, "p99_itl_ms": 20.0, "mean_e2el_ms": 1604.0, "p99_e2el_ms": 1900.0},
}
DETAILED = {"input_lens": [512] * 100, "output_lens": [128] * 100, "ttfts": [0.08] * 100, "itls": [[0.012] * 127] * 100}
SGLANG = {
    **{key: VLLM[key] for key in ("duration", "completed", "total_input_tokens", "total_output_tokens")},
    **{key: value for key, value in VLLM.items() if key.endswith(("ttft_ms", "tpot_ms", "itl_ms"))},
    **{"backend": "sglang", "dataset_name": "random", "request_rate": 2.0, "max_concurrency": 4, "tag": None},
    **{"request_throughput": 2.0, "mean_e2e_latency_ms": 1604.0, "p99_e2e_latency_ms": 1900.0, "concurrency": 3.2},
    "server_info": {"model_path": "Qwen/Qwen3-8B", "tp_size": 8, "attn_dp_size": 4, "ep_size": 8, "version": "0.5.23"},
}


def distribution(mean, **more):
    percentiles = {f"p{q:02d}": mean for q in (1, 5, 10, 25, 50, 75, 90, 95, 99)}
    return {"mean": mean, "median": mean, "std_dev": 0.0, "count": 100, "percentiles": percentiles, **more}


GUIDELLM = {
    "metadata": {"version": 2, "guidellm_version": "0.8.0"},
    "config": {"spec": {"backend": {"kind": "openai_http", "model": "meta-llama/Llama-3.1-8B-Instruct"}}},
    "benchmarks": [
        {
            "config": {"strategy": {"type_": "concurrent", "streams": 4}},
            "duration": 50.0,
            "metrics": {
                "request_totals": {"successful": 100, "errored": 0, "incomplete": 0, "total": 100},
                "requests_per_second": {"successful": distribution(2.0)},
                "request_latency": {"successful": distribution(1.604)},
                "prompt_token_count": {"successful": distribution(512.0)},
                "output_token_count": {"successful": distribution(128.0)},
                "time_to_first_token_ms": {"successful": distribution(80.0)},
                "time_per_output_token_ms": {"successful": distribution(12.5)},
                "inter_token_latency_ms": {"successful": distribution(12.0)},
            },
        }
    ],
}
AIPERF = {
    "schema_version": "1.4",
    "request_throughput": {"unit": "requests/sec", "avg": 2.0},
    "request_latency": {"unit": "ms", "avg": 1604.0, "p50": 1600.0, "p99": 1900.0},
    "request_count": {"unit": "requests", "avg": 100.0},
    "time_to_first_token": {"unit": "ms", "avg": 80.0, "p50": 78.0, "p99": 120.0},
    "inter_token_latency": {"unit": "ms", "avg": 12.0, "p50": 11.9, "p99": 13.5},
    "input_sequence_length": {"unit": "tokens", "avg": 512.0},
    "output_sequence_length": {"unit": "tokens", "avg": 128.0},
    "benchmark_duration": {"unit": "sec", "avg": 50.0},
    "input_config": {"loadgen": {"concurrency": 4}, "endpoint": {"model_names": ["Qwen/Qwen3-8B"]}},
}
SECONDS = {"mean": 0.0, "median": 0.0, "p90": 0.0, "p95": 0.0, "p99": 0.0}
INFERENCE_PERF = {
    "benchmark_time_seconds": 50.0,
    "load_summary": {"requested_rate": 2.0, "achieved_rate": 2.0, "count": 100},
    "failures": {"count": 0},
    "successes": {
        "count": 100,
        "prompt_len": {"mean": 512.0},
        "output_len": {"mean": 128.0},
        "throughput": {"requests_per_sec": 2.0},
        "latency": {
            "time_to_first_token": dict.fromkeys(SECONDS, 0.08),
            "time_per_output_token": dict.fromkeys(SECONDS, 0.012),
            "request_latency": dict.fromkeys(SECONDS, 1.604),
        },
    },
}
LLMPERF = {
    **{"version": "2023-08-31", "name": "run", "model": "meta-llama/Llama-3.1-8B-Instruct"},
    **{"num_concurrent_requests": 4, "results_num_completed_requests_per_min": 120.0, "results_number_errors": 0},
    **{"results_num_completed_requests": 100, "results_number_input_tokens_mean": 512.0},
    **{"results_number_output_tokens_mean": 128.0, "results_ttft_s_mean": 0.08, "results_ttft_s_quantiles_p99": 0.12},
    **{"results_end_to_end_latency_s_mean": 1.604, "results_inter_token_latency_s_mean": 0.0125},
}
LLM_D = {
    "version": "0.2.1",
    "run": {"uid": "a"},
    "scenario": {
        "stack": [
            {
                "metadata": {"label": "decode", "cfg_id": "c"},
                "standardized": {
                    **{"kind": "inference_engine", "tool": "vllm", "tool_version": "0.19.0", "role": "replica"},
                    **{"replicas": 1, "model": {"name": "meta-llama/Llama-3.1-8B-Instruct"}},
                    "accelerator": {"model": "H100", "count": 2, "parallelism": {"tp": 2, "dp": 1, "ep": 1, "pp": 1}},
                },
                "native": {},
            }
        ],
        "load": {
            "metadata": {"cfg_id": "l"},
            "standardized": {
                **{"tool": "vllm-benchmark", "tool_version": "0.19.0", "source": "random", "concurrency": 4},
                "input_seq_len": {"distribution": "fixed", "value": 512},
            },
            "native": {},
        },
    },
    "results": {
        "request_performance": {
            "aggregate": {
                "requests": {
                    "total": 100,
                    "failures": 0,
                    "input_length": {"units": "count", "mean": 512.0},
                    "output_length": {"units": "count", "mean": 128.0},
                },
                "latency": {
                    "time_to_first_token": {"units": "ms", "mean": 80.0, "p50": 78.0, "p99": 120.0},
                    "time_per_output_token": {"units": "ms/token", "mean": 12.0},
                    "request_latency": {"units": "s", "mean": 1.604},
                },
                "throughput": {"request_rate": {"units": "queries/s", "mean": 2.0}},
            }
        }
    },
}
CSV = """input_tokens,output_tokens,throughput_rps,ttft_ms,tpot_ms,e2e_s,concurrency,tp,gpu
512,128,2,80,12,1.604,4,2,h100_sxm
"""
TOLD = {
    "vllm.json": VLLM,
    "vllm-detailed.json": VLLM | DETAILED,
    "sglang.jsonl": SGLANG,
    "guidellm.json": GUIDELLM,
    "profile_export_aiperf.json": AIPERF,
    "stage_0.json": INFERENCE_PERF,
    "llmperf.json": LLMPERF,
    "report.json": LLM_D,
    "points.csv": CSV,
}


def written(tmp_path, name, document):
    path = tmp_path / name
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", TOLD)
def test_one_run_is_the_same_point_in_every_format(name, tmp_path):
    (point,) = read_measurements([written(tmp_path, name, TOLD[name])])
    assert point.form in FORMATS and measured_files(tmp_path / name)
    assert (point.input_tokens, point.output_tokens) == (512, 128)
    assert point.throughput_rps == pytest.approx(2.0)
    assert point.ttft.mean_s == pytest.approx(0.080) and point.tpot.mean_s == pytest.approx(0.012)
    assert point.e2e.mean_s == pytest.approx(1.604) and point.concurrency_count == pytest.approx(3.208)
    if not name.startswith("stage"):
        assert point.max_concurrency_count == 4


def test_every_format_of_the_table_is_told_above():
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        told = {p.form for n, d in TOLD.items() for p in read_measurements([written(Path(folder), n, d)])}
    assert told == set(FORMATS)


def test_what_the_file_says_of_the_deployment(tmp_path):
    (point,) = read_measurements([written(tmp_path, "s.jsonl", SGLANG)])
    assert (point.tp, point.dp, point.ep, point.engine, point.release) == (2, 4, 8, "sglang", "0.5.23")
    for asked, precision in (("fp8", "fp8"), ("modelopt_fp4", "fp4"), ("awq_marlin", "int4"), (None, "")):
        loaded = SGLANG | {"server_info": SGLANG["server_info"] | {"quantization": asked}}
        (point,) = read_measurements([written(tmp_path, "q.jsonl", loaded)])
        assert point.precision == precision
    (point,) = read_measurements([written(tmp_path, "r.json", LLM_D)])
    assert (point.gpu, point.tp, point.engine, point.release) == ("H100", 2, "vllm", "0.19.0")
    (point,) = read_measurements([written(tmp_path, "v.json", VLLM)])
    assert (point.gpu, point.tp, point.engine) == ("", 0, "vllm") and math.isinf(point.asked_rate_rps)


def test_the_report_above_passes_llm_ds_schema():
    import jsonschema

    schema = json.loads(schemas.shared("read", "br_v0_2_1_json_schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(LLM_D)


def test_a_report_of_guidellm():
    """GuideLLM's own test fixture: two requests each at 2 and at 4 a second."""
    first, second = read_measurements([schemas.shared("read", "guidellm_report_v2.json")])
    assert (first.asked_rate_rps, second.asked_rate_rps) == (2.0, 4.0)
    assert first.ttft.mean_s == pytest.approx(0.011481, rel=1e-4) and first.e2e.mean_s == pytest.approx(
        0.019789, rel=1e-4
    )
    assert (first.input_tokens, first.output_tokens, first.completed_count) == (71.5, 8.0, 2.0)


def test_a_report_of_inference_perf():
    """inference-perf's own golden file: three requests in 2.48 s."""
    (point,) = read_measurements([schemas.shared("read", "inference_perf_lifecycle.yaml")])
    assert point.throughput_rps == pytest.approx(3 / 2.48) and point.ttft.p99_s == pytest.approx(0.0398)
    assert point.output_tokens == pytest.approx(160 / 3) and point.asked_rate_rps == 1.0


#: How to put a latency into the other unit: (file, where it stands, whether it is multiplied by 1,000).
UNITS = [
    ("vllm.json", ("mean_ttft_ms",)),
    ("vllm.json", ("mean_tpot_ms",)),
    ("vllm.json", ("mean_e2el_ms",)),
    ("vllm.json", ("duration",)),
    ("sglang.jsonl", ("mean_ttft_ms",)),
    ("sglang.jsonl", ("mean_tpot_ms",)),
    ("llmperf.json", ("results_ttft_s_mean",)),
    ("llmperf.json", ("results_end_to_end_latency_s_mean",)),
    ("stage_0.json", ("successes", "latency", "time_to_first_token", "mean")),
    ("stage_0.json", ("successes", "latency", "time_per_output_token", "mean")),
    ("stage_0.json", ("successes", "latency", "request_latency", "mean")),
    ("profile_export_aiperf.json", ("time_to_first_token", "avg")),
    ("profile_export_aiperf.json", ("inter_token_latency", "avg")),
    ("guidellm.json", ("benchmarks", 0, "metrics", "inter_token_latency_ms", "successful", "mean")),
    ("report.json", ("results", "request_performance", "aggregate", "latency", "time_to_first_token", "mean")),
]


@pytest.mark.parametrize("factor", [1000.0, 0.001])
@pytest.mark.parametrize("name, path", UNITS)
def test_milliseconds_in_a_field_of_seconds_are_noticed(name, path, factor, tmp_path):
    wrong = copy.deepcopy(TOLD[name])
    *way, last = path
    at = wrong
    for key in way:
        at = at[key]
    at[last] *= factor
    with pytest.raises(InputError, match=r"unit|accepted are the same to a factor of 2"):
        read_measurements([written(tmp_path, name, wrong)])


@pytest.mark.parametrize("factor", [1000.0, 0.001])
def test_a_whole_file_in_the_other_unit_is_noticed(factor, tmp_path):
    wrong = {key: value * factor if key.endswith("_ms") else value for key, value in VLLM.items()}
    with pytest.raises(InputError, match="unit"):
        read_measurements([written(tmp_path, "v.json", wrong)])


def request(i, phase="profiling", **more):
    start = 1_700_000_000_000_000_000 + i * 500_000_000
    metrics = {
        "input_sequence_length": {"value": 512, "unit": "tokens"},
        "output_sequence_length": {"value": 128, "unit": "tokens"},
        "time_to_first_token": {"value": 80.0 + i % 3, "unit": "ms"},
        "inter_token_latency": {"value": 12.0, "unit": "ms"},
        "request_latency": {"value": 1604.0, "unit": "ms"},
    }
    meta = {"conversation_id": f"c{i}", "turn_index": 0, "request_start_ns": start, "benchmark_phase": phase}
    return {
        "metadata": meta | {"request_end_ns": start + 1_604_000_000, "was_cancelled": False},
        "metrics": metrics,
    } | more


def test_a_log_of_requests_counts_those_that_were_measured(tmp_path):
    """99 requests half a second apart, the last ends 1.604 s later; warm-up and failures do not count."""
    rows = [request(i) for i in range(99)] + [request(0, "warmup"), request(5, error={"code": 500})]
    text = "\n".join(json.dumps(row) for row in rows)
    (point,) = read_measurements([written(tmp_path, "profile_export.jsonl", text)])
    assert (point.completed_count, point.failed_count) == (99, 1)
    assert point.throughput_rps == pytest.approx(99 / (49.0 + 1.604))
    assert point.ttft.mean_s == pytest.approx(0.081) and point.ttft.p50_s == pytest.approx(0.081)


def test_packed_files_and_several_lines(tmp_path):
    path = tmp_path / "sweep.jsonl.gz"
    faster = SGLANG | {"max_concurrency": 8, "request_throughput": 3.5, "duration": 28.6}
    path.write_bytes(gzip.compress("\n".join(json.dumps(row) for row in (SGLANG, faster)).encode()))
    assert [p.max_concurrency_count for p in read_measurements([path])] == [4, 8]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match="broken gzip"):
        read_measurements([path])


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "empty; accepted are vllm-bench"),
        ('{"a": 1}', "'a' is of no known format; accepted are vllm-bench"),
        ('{"a": 1', "not JSON"),
        ("[1, 2]", "'1' is of no known format"),
        ("a,b\n1,2\n", "a document is 'a,b 1,2'; accepted are objects"),
        ("input_tokens,throughput_rps\n1,1\n", "no column 'output_tokens'"),
        (CSV.replace("tp,", "tp_size,"), "column 'tp_size' is unknown"),
        (CSV.replace("512", "many"), "line 2: input_tokens is 'many'"),
        (json.dumps(VLLM | {"mean_ttft_ms": "fast"}), "mean_ttft_ms is 'fast'; accepted is a number"),
        (json.dumps(VLLM | {"completed": 0, "request_throughput": 0.0}), "throughput is 0; accepted are positive"),
        (
            json.dumps(AIPERF | {"time_to_first_token": {"unit": "days", "avg": 1}}),
            "time_to_first_token.unit is 'days'",
        ),
        (json.dumps(LLM_D | {"version": "0.1"}), "version is '0.1'; accepted is 0.2"),
        (json.dumps(GUIDELLM | {"benchmarks": [3]}), "benchmarks[0] is '3'"),
    ],
)
def test_mistakes_are_one_line(text, why, tmp_path):
    path = written(tmp_path, "f", text)
    with pytest.raises(InputError) as error:
        read_measurements([path])
    assert why in str(error.value) and "\n" not in str(error.value)
