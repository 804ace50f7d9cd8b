"""Each reader on files that its tool wrote, from public repositories: copies in `samples`, or fields and numbers with
their source where there is no licence to copy. What a file says of itself elsewhere is the answer to hold against."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dmodels import catalog
from dmodels.core.errors import InputError
from dmodels.formats import table
from dmodels.formats.deployments import read_deployment, read_text
from dmodels.formats.measurements import files, llmd_report, read_measurements
from dmodels.formats.telemetry import observe, workload

SAMPLES = Path(__file__).parent / "samples"

#: nerdalert/vllm-bench-automation, vllm-benchmark-graphs/results.json at 13ee6ea: vLLM's bench serve of May 2025.
VLLM = {
    "date": "20250530-194738",
    "backend": "vllm",
    "model_id": "meta-llama/Llama-3.2-3B-Instruct",
    "tokenizer_id": "meta-llama/Llama-3.2-3B-Instruct",
    "num_prompts": 300,
    "gpu": "4xNVIDIA_L40S",
    "gateway": "kgateway",
    "request_rate": 10.0,
    "burstiness": 1.0,
    "max_concurrency": None,
    "duration": 35.84472489100017,
    "completed": 300,
    "total_input_tokens": 299700,
    "total_output_tokens": 80945,
    "request_throughput": 8.369432347779671,
    "request_goodput:": None,
    "output_throughput": 2258.212337970085,
    "total_token_throughput": 10619.275253401978,
    "mean_ttft_ms": 54.59561144333596,
    "median_ttft_ms": 52.868896000063614,
    "p99_ttft_ms": 98.69780922984769,
    "mean_tpot_ms": 13.710971568239172,
    "median_tpot_ms": 13.686303201518745,
    "p99_tpot_ms": 15.793261194984588,
    "mean_itl_ms": 13.73187330695019,
}
#: LambdaLabsML/vllm-benchmark, results/prompt_10/1xH100-80GB-SXM/Meta-Llama-3.1-8B-FP8_tp1_len2048.json at a4f9f43: of
#: September 2024, with the latencies of each request; steps come in tens, so ITL is not TPOT.
VLLM_DETAILED = {
    "date": "20240907-082634",
    "backend": "vllm",
    "model_id": "neuralmagic/Meta-Llama-3.1-8B-FP8",
    "tokenizer_id": "neuralmagic/Meta-Llama-3.1-8B-FP8",
    "best_of": 1,
    "use_beam_search": False,
    "num_prompts": 10,
    "request_rate": "inf",
    "duration": 1.0679055179934949,
    "completed": 10,
    "total_input_tokens": 1369,
    "total_output_tokens": 442,
    "request_throughput": 9.364124289561836,
    "mean_ttft_ms": 44.16175780061167,
    "mean_tpot_ms": 6.018531635219421,
    "mean_itl_ms": 50.32475644418607,
    "mean_latency_ms": 290.35341650014743,
    "input_lens": [13, 25, 27, 10, 329, 29, 399, 328, 4, 205],
    "output_lens": [120, 1, 1, 194, 0, 40, 0, 0, 6, 80],
    "ttfts": [0.0646, 0.0639, 0.0635, 0.0627, 0.0, 0.0624, 0.0, 0.0, 0.062, 0.0626],
}
#: TonyLi15/sglang-benchmark, benchmarks/results/agg_n100_in512_out128_c32.jsonl at 8864250: SGLang 0.5.5. The rate
#: is the bare word Infinity, as Python writes it; the engine's flags are 300, of which these count.
SGLANG = """{"tag": "agg_n100_in512_out128_c32", "backend": "sglang", "dataset_name": "random",
"request_rate": Infinity, "max_concurrency": 32, "random_input_len": 512, "random_output_len": 128, "server_info":
{"model_path": "Qwen/Qwen2.5-3B-Instruct", "tp_size": 1, "pp_size": 1, "dp_size": 1, "ep_size": 1,
"enable_dp_attention": false, "api_key": null, "cuda_graph_bs": [1, 2, 4], "internal_states": [{"tp_size": 1}],
"version": "0.5.5.post3"}, "duration": 1.9610086176544428, "completed": 100, "total_input_tokens": 26497,
"total_output_tokens": 6180, "total_output_tokens_retokenized": 6179, "request_throughput": 50.994166522128666,
"output_throughput": 3151.4394910675514, "mean_e2e_latency_ms": 557.9127527959645, "median_e2e_latency_ms": 522.7,
"mean_ttft_ms": 42.448918260633945, "median_ttft_ms": 37.13699756190181, "p99_ttft_ms": 64.62050763890147,
"mean_tpot_ms": 8.54356980120356, "p99_tpot_ms": 10.668267674951093, "mean_itl_ms": 8.477972767861118,
"concurrency": 28.450295820896617, "accept_length": null}"""
#: anud18/qwen36-vllm-aiperf-benchmark, results/nvfp4/5090/agent/c16/profile_export_aiperf.json at d254ffc: AIPerf 0.10,
#: which names models and clients elsewhere than the releases before.
AIPERF = {
    "schema_version": "1.3",
    "aiperf_version": "0.10.0",
    "request_throughput": {"unit": "requests/sec", "avg": 2.156207775934887},
    "request_latency": {"unit": "ms", "avg": 6726.664069072916, "p50": 6478.6263245, "p99": 18625.4480323},
    "request_count": {"unit": "requests", "avg": 96.0},
    "time_to_first_token": {"unit": "ms", "avg": 230.13715230208334, "p50": 177.785533, "p99": 687.6198782499999},
    "inter_token_latency": {"unit": "ms", "avg": 11.847342175364519, "p50": 12.245986588621273},
    "input_sequence_length": {"unit": "tokens", "avg": 3761.3125},
    "output_sequence_length": {"unit": "tokens", "avg": 543.6145833333334},
    "benchmark_duration": {"unit": "sec", "avg": 44.52261098},
    "input_config": {
        "models": {"items": [{"name": "qwen3.6-nvfp4"}]},
        "endpoint": {"urls": ["http://localhost:8000"], "type": "chat", "streaming": True},
        "phases": [
            {"name": "warmup", "type": "concurrency", "exclude_from_results": True, "requests": 16, "concurrency": 8},
            {"name": "profiling", "type": "concurrency", "requests": 96, "concurrency": 16},
        ],
    },
    "run_info": {"benchmark_id": "108f93f90b09"},
    "error_summary": [],
}
#: ray-project/llmperf-leaderboard, raw_data/summary/anyscale_70b.json at 23af37e.
LLMPERF = {
    "version": "2023-08-31",
    "name": "meta-llama-Llama-2-70b-chat-hf_550_150_summary",
    "model": "meta-llama/Llama-2-70b-chat-hf",
    "mean_input_tokens": 550,
    "mean_output_tokens": 150,
    "num_concurrent_requests": 5,
    "results_inter_token_latency_s_mean": 0.01583612777604942,
    "results_ttft_s_quantiles_p50": 0.21282956000001718,
    "results_ttft_s_quantiles_p99": 0.4745305190600024,
    "results_ttft_s_mean": 0.24890269464666667,
    "results_end_to_end_latency_s_quantiles_p50": 2.259533027999993,
    "results_end_to_end_latency_s_mean": 2.3546667737533324,
    "results_number_input_tokens_mean": 550.0,
    "results_number_input_tokens_min": "550",
    "results_number_output_tokens_mean": 146.94666666666666,
    "results_number_errors": 0,
    "results_error_code_frequency": "{}",
    "results_mean_output_throughput_token_per_s": 207.52121071152493,
    "results_num_completed_requests": 150,
    "results_num_completed_requests_per_min": 84.73327721639254,
}


def read(tmp_path, document):
    path = tmp_path / "file"
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    (point,) = read_measurements([path])
    return point


def test_vllm_bench_serve(tmp_path):
    point = read(tmp_path, VLLM)
    assert (point.form, point.model, point.engine) == ("vllm-bench", "meta-llama/Llama-3.2-3B-Instruct", "vllm")
    assert point.input_tokens == 999 and point.output_tokens * point.throughput_rps == pytest.approx(2258.2, rel=1e-3)
    assert point.ttft.mean_s == pytest.approx(0.0546, rel=1e-3) and point.asked_rate_rps == 10.0


def test_vllm_bench_serve_with_each_request(tmp_path):
    """Little's law on TTFT and TPOT gives what the file says of whole requests, 290 ms."""
    point = read(tmp_path, VLLM_DETAILED)
    assert point.output_tokens == pytest.approx(sum(VLLM_DETAILED["output_lens"]) / 10)
    assert point.concurrency_count / point.throughput_rps == pytest.approx(0.290, rel=0.1)


def test_sglang_bench_serving(tmp_path):
    """Requests in flight by Little's law are those that the tool counted."""
    point = read(tmp_path, " ".join(SGLANG.splitlines()))
    assert (point.form, point.tp, point.dp, point.ep, point.release) == ("sglang-bench", 1, 1, 1, "0.5.5.post3")
    assert point.concurrency_count == pytest.approx(28.450295820896617) and point.asked_rate_rps == float("inf")


def test_aiperf_since_its_config_has_phases(tmp_path):
    point = read(tmp_path, AIPERF)
    assert (point.model, point.max_concurrency_count) == ("qwen3.6-nvfp4", 16.0)
    assert point.e2e.mean_s == pytest.approx(0.2301 + 542.6 * 0.011847, rel=0.02)


def test_aiperfs_first_release():
    """100 requests, of which 11 were cancelled; the summary and the log are of one run."""
    (point,) = read_measurements([SAMPLES / "aiperf_first_release.json"])
    assert (point.model, point.completed_count, point.failed_count) == ("openai/gpt-oss-20b", 89.0, 11.0)
    assert point.throughput_rps * point.duration_s == pytest.approx(89) and 80 < point.concurrency_count < 100
    (few,) = read_measurements([SAMPLES / "aiperf_first_release.jsonl"])
    assert (few.completed_count, few.failed_count, few.input_tokens) == (3.0, 1.0, 550.0)
    span_s = 1e-9 * (1759522428453473546 - 1759522419158355424)
    assert few.throughput_rps == pytest.approx(3 / span_s)
    assert few.ttft.mean_s == pytest.approx(2.948, rel=1e-3) and few.e2e.mean_s < 9.3


def test_aiperf_without_lengths_is_refused_by_name(tmp_path):
    """akamaslabs/vllm-benchmark, studies/26: prompts from a file, whose length AIPerf did not count."""
    with pytest.raises(InputError, match="aiperf states no input tokens"):
        read(tmp_path, {key: value for key, value in AIPERF.items() if key != "input_sequence_length"})


def test_llmperf(tmp_path):
    """Its summary says 207.5 tokens/s of all requests together."""
    point = read(tmp_path, LLMPERF)
    assert point.throughput_rps * point.output_tokens == pytest.approx(207.52, rel=1e-3)
    assert point.max_concurrency_count == 5 and 3 < point.concurrency_count < 5
    after_first_s = (2.35467 - 0.24890) / (146.947 - 1.0)
    assert point.tpot.mean_s == pytest.approx(after_first_s, rel=1e-4)


def test_an_example_of_llm_d():
    """Their own example: its fields are found, and its invented latencies (E2E as short as a token) are refused."""
    path = SAMPLES / "llmd_report.yaml"
    from dmodels.formats.deployments.documents import load

    (document,) = load(path.read_text(encoding="utf-8"), path.name)
    (point,) = llmd_report.read(document, path.name)
    assert (point.model, point.tp, point.ep, point.completed_count) == ("Qwen/Qwen3-0.6B", 8, 1, 500.0)
    assert catalog.gpu_facts(point.gpu)["name"] == "h100_sxm"
    assert point.ttft.p99_s == pytest.approx(0.05029489721637218) and point.asked_rate_rps == 10.0
    with pytest.raises(InputError, match="in another unit"):
        read_measurements([path])


def test_an_engines_metrics_as_sglangs_manual_shows_them():
    """11,228 requests, an overloaded engine: 162 run, 2,826 wait, the mean TTFT is minutes."""
    seen = observe([SAMPLES / "sglang_metrics.txt"])
    assert (seen.requests_count, seen.running_mean_count, seen.waiting_mean_count) == (11228.0, 162.0, 2826.0)
    assert seen.ttft_s.mean == pytest.approx(2.3518979474117756e6 / 11008) and seen.kv_peak_frac == 0.28
    assert seen.itl_s.mean == pytest.approx(0.1171, rel=1e-3) and 0.075 < seen.itl_s.quantile(0.5) < 0.1
    assert seen.input_tokens is None


#: From the tests of vllmComposer, a public router: an engine of early 2025 that had served 6,226 requests.
VLLM_METRICS = """
vllm:gpu_cache_usage_perc{model_name="mymodelname"} 0.0
vllm:cpu_prefix_cache_hit_rate{model_name="mymodelname"} -1.0
vllm:time_per_output_token_seconds_sum{model_name="mymodelname"} 6772.65311050415
vllm:time_per_output_token_seconds_bucket{le="0.025",model_name="mymodelname"} 99.0
vllm:time_per_output_token_seconds_bucket{le="0.05",model_name="mymodelname"} 138458.0
vllm:time_per_output_token_seconds_bucket{le="+Inf",model_name="mymodelname"} 147223.0
vllm:e2e_request_latency_seconds_count{model_name="mymodelname"} 6226.0
vllm:request_prompt_tokens_sum{model_name="mymodelname"} 3.928691e+06
vllm:request_prompt_tokens_bucket{le="500.0",model_name="mymodelname"} 1345.0
vllm:request_prompt_tokens_bucket{le="1000.0",model_name="mymodelname"} 6186.0
vllm:request_prompt_tokens_bucket{le="20000.0",model_name="mymodelname"} 6226.0
vllm:request_prompt_tokens_bucket{le="+Inf",model_name="mymodelname"} 6226.0
vllm:request_generation_tokens_sum{model_name="mymodelname"} 124321.0
vllm:request_generation_tokens_bucket{le="1.0",model_name="mymodelname"} 1466.0
vllm:request_generation_tokens_bucket{le="20.0",model_name="mymodelname"} 5676.0
vllm:request_generation_tokens_bucket{le="5000.0",model_name="mymodelname"} 6226.0
vllm:request_generation_tokens_bucket{le="+Inf",model_name="mymodelname"} 6226.0
vllm:request_params_n_bucket{le="+Inf",model_name="mymodelname"} 6226.0
"""


def test_an_engines_metrics_as_vllm_writes_them(tmp_path):
    path = tmp_path / "metrics"
    path.write_text(VLLM_METRICS, encoding="utf-8")
    seen = observe([path])
    assert seen.requests_count == 6226.0 and seen.input_tokens.mean == pytest.approx(631.0, rel=1e-4)
    assert seen.output_tokens.mean == pytest.approx(19.97, rel=1e-3) and 500 < seen.input_tokens.quantile(0.5) < 1000
    assert seen.itl_s.mean == pytest.approx(0.046, rel=1e-3)  # under its earlier name
    taken = workload(seen, 3.0)
    assert float(taken.weight_frac @ taken.output_tokens) == pytest.approx(19.97, rel=0.02)


def pools_of(text: str) -> list[tuple]:
    found = read_text(text, "file").pools
    return [(p.name, p.replicas, p.server.engine, p.server.model, p.server.tp, p.max_replicas) for p in found]


def test_a_deployment_of_the_gateway_api():
    (pool,) = read_deployment([SAMPLES / "gpu_deployment.yaml"]).pools
    assert (pool.name, pool.replicas, pool.server.model, pool.server.tp) == ("vllm-qwen3-32b", 3, "Qwen/Qwen3-32B", 1)
    assert "--enable-lora" in pool.server.others and "hf-token" not in str(pool)


def test_a_container_whose_image_starts_the_engine():
    """As most public manifests are: arguments only, for the entry point of vLLM's image."""
    text = """
kind: Deployment
metadata: {name: vllm-llama}
spec:
  replicas: 3
  template:
    spec:
      containers:
        - name: vllm
          image: docker.io/vllm/vllm-openai:v0.11.0@sha256:0123
          args: [--model=meta-llama/Llama-3.1-8B-Instruct, --enable-prefix-caching, -tp, "2"]
        - name: sidecar
          image: nginx:latest
"""
    assert pools_of(text) == [("vllm-llama", 3, "vllm", "meta-llama/Llama-3.1-8B-Instruct", 2, 0)]


def test_services_of_compose_whose_command_is_a_line():
    text = """
services:
  vllm:
    image: vllm/vllm-openai:latest
    command: >
      --model meta-llama/Llama-3.1-8B-Instruct
      --max-model-len 8192 --gpu-memory-utilization 0.85 --port 8000
    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 1, capabilities: [gpu]}]}}}
  ocr:
    image: vllm/vllm-openai:latest
    command: serve zai-org/GLM-OCR --port 8000
  litellm_proxy:
    image: ghcr.io/berriai/litellm:main-latest
    command: --config /app/config.yaml
"""
    found = pools_of(text)
    assert [one[:4] for one in found] == [
        ("vllm", 1, "vllm", "meta-llama/Llama-3.1-8B-Instruct"),
        ("ocr", 1, "vllm", "zai-org/GLM-OCR"),
    ]


def test_rays_own_example_and_a_ray_service():
    """Two models behind one ingress; and the same kind of config as text in KubeRay's resource."""
    text = (SAMPLES / "ray_llm_config.yaml").read_text(encoding="utf-8")
    first, second = pools_of(text)
    assert first == ("qwen-0.5b", 1, "vllm", "Qwen/Qwen2.5-0.5B-Instruct", 1, 2) and second[0] == "qwen-1.5b"
    held = "\n".join("    " + line for line in text.splitlines())
    service = f"apiVersion: ray.io/v1\nkind: RayService\nmetadata: {{name: s}}\nspec:\n  serveConfigV2: |\n{held}\n"
    assert pools_of(service) == [first, second]


@pytest.mark.parametrize("row", table(), ids=lambda row: row.name)
def test_the_guide_has_a_page_with_commands_for_every_format(row):
    """Its head is made from the table; its blocks are run by the tests of the guide, and name the options that read and
    write the format."""
    page = (Path(__file__).parents[2] / "docs" / "formats" / f"{row.name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"<!-- the format {row.name} -->\n")
    said = " ".join(block for block in page.split("```") if block.startswith("console"))
    ways = [way.split() for way in f"{row.read_by}, {row.written_by}".split(", ") if way.strip()]
    used = [words for words in ways if f"$ dmodels {words[1]} " in said]
    assert used and "$ dmodels" in said
    assert not row.written_by or "--deploy" not in row.written_by or f"--deploy {row.name} --out" in said


def test_every_page_is_of_a_format():
    pages = {path.stem for path in (Path(__file__).parents[2] / "docs" / "formats").glob("*.md")}
    assert pages == {row.name for row in table()} | {"index"}


def test_documents_may_hold_pythons_own_words():
    """NaN, Infinity: not JSON, but what json.dumps writes."""
    assert files.parsed('{"a": NaN, "b": -Infinity, "c": [1]}', "") == {"a": None, "b": None, "c": [1]}
