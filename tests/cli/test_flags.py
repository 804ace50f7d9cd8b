"""Every option of every command, with a value of its own, is found again in the library call that is made: under the
parameter that it is documented to set, in base units. The call that is printed is the call that is made."""

from __future__ import annotations

import contextlib
import io
import math
import re
import shlex
from itertools import pairwise
from types import SimpleNamespace

import pytest

from dmodels import catalog
from dmodels.cli import COMMANDS, app, main
from dmodels.cli.plan_inputs import GpuTable, PlanInputs
from dmodels.cli.sweep_axes import read_axes
from dmodels.core.errors import InputError
from tests.audit.printed import arguments

INF = math.inf
#: Options that choose how the answer is shown or what is done beside it, which have tests of their own.
SHOWN = {"json", "show_python", "help", "out", "plot", "figure", "dashboard", "deploy", "device"}
#: Commands that make no call of one function, or take a whole scenario of another.
OTHERS = {"init", "report", "explore", "catalog", "formats", "claims", "completion"}
SERVER = "--model qwen3-8b --gpu h200_sxm --tp 2 --dp 4 --ep 8"
DTYPES = "--weight-dtype fp8 --kv-dtype fp4 --gpu-file own.csv"
MACHINE = {"model": "qwen3-8b", "gpu": "h200_sxm", "engine": "sglang", "precision": "fp8", "tp": 2, "dp": 4, "ep": 8}
RECORD = {"model.model.model.name": "qwen3-8b", "model.model.dtype": "fp8", "model.dtype": "fp4"}
RECORD |= {"model()": "with_kv_dtype", "model.model()": "with_weight_dtype"}
RECORD |= {"gpu.name": "h200_sxm", "gpu.file": "own.csv"}
FILES = {
    "t.csv": "time_s,input_tokens,output_tokens\n0,100,10\n1,100,10\n2,50,7\n",
    "own.csv": "name,memory_bytes\nh200_sxm,1.5e11\n",
    "split.toml": """
        model.name = "qwen3-8b"
        gpu = { name = "h200_sxm", count = 41 }
        parallel = { prefill_tp = 2, decode_tp = 4 }
        workload = { isl = 1234, osl = 56 }
        slo = { ttft = "1.5 s", tpot = "25 ms" }
        traffic = { rate = "7 req/s", burst = 1.75 }
    """,
    "place.toml": """
        model.name = "qwen3-8b"
        gpu.name = "h200_sxm"
        parallel.tp = 2
        trace.repair = true
        target = { hit_rate = 0.25, first_token = "0.75 s" }
        sharing = { workers = 8, link = "40 GB/s" }
        policy.decay = "30 s"
        [tiers]
        hbm = { size = "3 GiB", price = 1.5 }
        dram = { size = "5 GiB", bandwidth = "50 GB/s", latency = "7 us", price = 2.5 }
        ssd = { size = "11 GiB", bandwidth = "6 GB/s", latency = "90 us", price = 3.5 }
        remote = { size = "13 GiB", bandwidth = "2 GB/s", latency = "3 ms", price = 4.5 }
    """,
    "plan.toml": '[model]\nname = "qwen3-8b"\n',
    "sweep.toml": """
        model.name = "qwen3-8b"
        gpu.name = "h200_sxm"
        workload = { isl = 1234, osl = 56 }
        slo = { ttft = "1.5 s", tpot = "25 ms", e2e = "9 s", percentile = 0.95 }
        traffic.rate = "7 req/s"
        parallel = { tp = 2, pp = 3, dp = 4, ep = 8 }
        precision = { weights = "fp8", kv = "bf16" }
        engine = { backend = "sglang", max_num_seqs = 33, max_num_batched_tokens = 4096 }
    """,
}


def test_a_command_that_serves_has_no_answer_to_print(capsys):
    assert main(["explore", "plan.toml", "--json"]) == 2 and main(["explore", "plan.toml", "--show-python"]) == 2
    said = capsys.readouterr().err
    assert "--json" in said and "--show-python" in said


def pool(k: int, instances: int, slots: int, **more) -> dict:
    law = {"instances": instances, "slots": slots, "law.base_s": 9e-3, "law.per_sequence_s": 5e-4}
    return {f"pools[{k}].{name}": value for name, value in (law | more).items()}


def under(head: str, values: dict) -> dict:
    return {head + name if name == "()" else f"{head}.{name}": value for name, value in values.items()}


def tier(k: int, name: str, gib: float, rate: float, late: float, price: float) -> dict:
    told = {"name": name, "size_bytes": gib * 2**30, "latency_s": late, "usd_per_gib": price}
    return under(f"tiers[{k}]", told | ({"read_bytes_per_s": rate} if rate else {}))


SLO = {"ttft_s": 1.5, "tpot_s": 0.025, "e2e_s": 9.0, "percentile": 0.95}
TRAFFIC = {"input_tokens": 1234, "output_tokens": 56, "rate_rps": 7}
#: Command line -> arguments of the library call.
CASES: dict[str, dict] = {
    f"size {SERVER.replace('--dp 4', '--dp 4 --pp 3')} {DTYPES} --context 4000 --workload mooncake --utilization 0.8 "
    "--block-tokens 32 --batched-tokens 4096 --max-num-seqs 77 --backend sglang --release 0.5": {
        **RECORD,
        **under("parallel", {"tp": 2, "pp": 3, "dp": 4, "ep": 8}),
        "context_tokens": 4000,
        "workload.name": "mooncake",
        "utilization": 0.8,
        "block_tokens": 32,
        "batched_tokens": 4096,
        "max_sequences": 77,
        "backend": "sglang",
        "release": "0.5",
    },
    "size --model qwen3-8b --gpu h200_sxm": {  # what its help says are the defaults
        **under("parallel", {"tp": 1, "pp": 1, "dp": 1, "ep": 1}),
        "context_tokens": 8192,
        "block_tokens": 16,
        "batched_tokens": 8192,
        "backend": "vllm",
    },
    'pools --workload mooncake --rate "7 req/s" --thresholds 2048,4096 --context 9000 --pools 4 --headroom 1.3,1.2,1.1 '
    '--iteration "9 ms,0.5 ms" --blocks 1000 --max-sequences 60 --gpus 3 --price "2.5 $/h" --compress 0.5,2000,0.1': {
        "workload.name": "mooncake",
        "rate_rps": 7,
        "threshold_tokens": [2048, 4096],
        "context_tokens": 9000,
        "pools_count": 4,
        **under("headroom", {"single": 1.3, "short": 1.2, "long": 1.1}),
        **under("engine", {"base_s": 9e-3, "per_sequence_s": 5e-4, "blocks_count": 1000, "block_tokens": 16}),
        "engine.max_sequences_count": 60,
        "gpus_per_instance": 3,
        "price_usd_per_hour": 2.5,
        **under("compression", {"keep_frac": 0.5, "tokens_per_s": 2000, "instances_per_compressor": 0.1}),
    },
    "pools --trace t.csv --repair": {  # the rest as in the paper's fleet: A100-80GB, 65,536 blocks, 128 sequences
        "workload.trace.path": "t.csv",
        "workload.trace.repair": True,
        **under("headroom", {"single": 1.08, "short": 1.05, "long": 1.02}),
        **under("engine", {"base_s": 8e-3, "per_sequence_s": 6.5e-4, "blocks_count": 65536}),
        "engine.max_sequences_count": 128,
        "gpus_per_instance": 2,
    },
    'route --requests 12 --workers 2 --prefixes 3 --a "1 ms,2 ms" --b "3 ms,4 ms" --d "5 ms,6 ms" --saturation 70,80 '
    '--beta 1.5 --omega "9 ms" --tau 0.25 --runs 11 --seed 13': {
        **under("game", {"requests": 12, "prefixes": 3, "miss_s": 9e-3}),
        **under("game.curve", {"a_s": [1e-3, 2e-3], "b_s": [3e-3, 4e-3], "d_s": [5e-3, 6e-3]}),
        **under("game.curve", {"n_sat": [70, 80], "beta": [1.5, 1.5]}),
        "tau": 0.25,
        "runs": 11,
        "seed": 13,
    },
    "poa t.csv --window 31 --step 7 --worker x --worker y --capacity 17 --calibrate --load-aware "
    '--baseline "55 ms" --limit 3': {
        "path": "t.csv",
        "window": 31,
        "step": 7,
        "workers": ["x", "y"],
        "capacity": 17,
        "calibrate": True,
        "load_aware": True,
        "baseline_s": 0.055,
        "limit": 3,
    },
    f"step {SERVER} {DTYPES} --input 1234 --output 56 --concurrency 9 --backend sglang --calibration own.json": {
        **RECORD,
        **under("parallel", {"tp": 2, "dp": 4, "ep": 8}),
        "input_tokens": 1234,
        "output_tokens": 56,
        "concurrency": 9,
        "backend": "sglang",
        "name": "qwen3-8b",
        "architecture": "qwen3",
        "gpu_name": "h200_sxm",
        "effects()": "read",
        "effects.path": "own.json",
    },
    'simulate --workload mooncake --rate "7 req/s" --instances 3 --slots 5 --short-instances 4 --short-slots 9 '
    '--threshold 2048 --spill 6 --policy random --iteration "9 ms,0.5 ms" --chunk 256 --prefill shared '
    "--percentile 0.95 --precision 0.1 --requests 5000 --seed 3": {
        "()": "measure",
        "workload.name": "mooncake",
        "workload.rate_rps": 7,
        **pool(0, 4, 9, max_tokens=2048, chunk_tokens=256, prefill="Prefill.SHARED"),
        **pool(1, 3, 5, chunk_tokens=256, prefill="Prefill.SHARED"),
        "policy": "RoutingPolicy.RANDOM",
        "spill_queue": 6,
        "target_frac": 0.1,
        "percentile": 0.95,
        "count": 5000,
        "key.seed": 3,
    },
    'simulate --rate "7 req/s" --instances 3 --slots 5 --prefill-instances 2 --standby-instances 1 '
    '--policy reactive --iteration "9 ms,0.5 ms" --chunk 256 --percentile 0.95 --precision 0.1 --requests 5000 '
    "--seed 3": {
        **under("machines", {"prefill": 2, "decode": 3, "standby": 1, "slots": 5, "kv_blocks": 5}),
        **under("machines.step", {"base_s": 9e-3, "per_sequence_s": 5e-4}),
        "control.signal": "Signal.REQUESTS",
        "control.flow": "Flow.REACTIVE",
        "control.theta_frag": 0,
        "target_frac": 0.1,
        "count": 5000,
        "key.seed": 3,
        "prefill_iteration_s": 9.5e-3,
        "chunk_tokens": 256,
        "percentile": 0.95,
    },
    "simulate --policy taichi --prefill-instances 2 --chunk 3": {  # of which a quarter is none
        "control()": "Hybrid",
        "control.chunk_tokens": 3,
        "control.decode_chunk_tokens": 1,
        **under("workload", {"name": "azure-paper", "rate_rps": 1}),
    },
    'simulate --trace t.csv --rate "7 req/s" --steady --iteration "9 ms,0.5 ms" --slots 5 --requests 2000 --seed 4': {
        "()": "replay_trace",
        "trace.path": "t.csv",
        "rate_rps": 7,
        "stationary": True,
        "count": 2000,
        "key.seed": 4,
        **pool(0, 1, 5, chunk_tokens=512, prefill="Prefill.OWN"),
        "policy": "RoutingPolicy.SHORTEST_QUEUE",
        "spill_queue": INF,
        "percentile": 0.99,
    },
    f"simulate {SERVER} {DTYPES} --backend sglang --max-num-seqs 33 --max-num-batched-tokens 4096 --utilization 0.8 "
    '--isl 1234 --osl 56 --rate "7 req/s" --instances 3 --requests 5000 --percentile 0.95 --seed 3 --steady '
    "--calibration own.json": {
        **under("pools[0].server", {"model": "qwen3-8b", "gpu": "h200_sxm", "backend": "sglang", "instances": 3}),
        **under("pools[0].server", {"max_num_seqs": 33, "max_num_batched_tokens": 4096, "utilization": 0.8}),
        **under("pools[0].server", {"weight_dtype": "fp8", "kv_dtype": "fp4", "gpu_file": "own.csv"}),
        **under("pools[0].server.parallel", {"tp": 2, "dp": 4, "ep": 8}),
        "pools[0].server.effects.path": "own.json",
        **under("traffic", TRAFFIC),
        "count": 5000,
        "percentile": 0.95,
        "seed": 3,
        "stationary": True,
    },
    f'simulate {SERVER} --trace t.csv --rate "7 req/s" --instances 3': {
        **under("traffic", {"()": "read_trace", "path": "t.csv"}),
        "rate_rps": 7,
        "pools[0].label": "all",
        "pools[0].server.instances": 3,
    },
    f'simulate {SERVER} --workload mooncake --rate "7 req/s"': {
        **under("traffic", {"()": "catalog.workload", "name": "mooncake", "rate_rps": 7}),
    },
    f"predict rows.csv {SERVER} --engine sglang --precision fp8 --tuned": {
        "path": "rows.csv",
        **under("machine", MACHINE),
        "tuned": True,
    },
    "predict rows.csv --calibration own.json": {"path": "rows.csv", "effects()": "read", "effects.path": "own.json"},
    f"fit rows.csv more.csv {SERVER} --engine sglang --precision fp8 --steps 5": {
        "paths": ["rows.csv", "more.csv"],
        **under("machine", MACHINE),
        "max_steps": 5,
    },
    "fit operators tables --kind gemm,moe": {"folder": "tables", "kinds": ["gemm", "moe"]},
    'watch a.json b.json --hours 3 --gpu h200_sxm --rate "7 req/s" --ttft "1.5 s" --tpot "25 ms" --e2e "9 s" '
    "--percentile 0.95 --from-deployment run.sh": {
        "files": ["a.json", "b.json"],
        "hours": 3,
        "gpu": "h200_sxm",
        "rate_rps": 7,
        **under("slo", SLO),
        "deployment": ["run.sh"],
    },
    "split split.toml": {
        "model.name": "qwen3-8b",
        "gpu.name": "h200_sxm",
        "budget_gpus": 41,
        "prefill.tp": 2,
        "decode.tp": 4,
        **under("workload", TRAFFIC),
        **under("slo", {"ttft_s": 1.5, "tpot_s": 0.025}),
        "burst": 1.75,
    },
    "place place.toml --trace t.csv": {
        "trace.path": "t.csv",
        "trace.repair": True,
        "model.name": "qwen3-8b",
        "gpu.name": "h200_sxm",
        "parallel.tp": 2,
        **tier(0, "HBM", 3, 0, 0, 1.5),
        # each GPU of a worker reads its part
        **under("tiers[0].read_bytes_per_s", {"()": "mul", "a": "float(gpu.hbm_bytes_per_s)", "b": 2}),
        **tier(1, "DRAM", 5, 50e9, 7e-6, 2.5),
        **tier(2, "SSD", 11, 6e9, 90e-6, 3.5),
        **tier(3, "remote", 13, 2e9, 3e-3, 4.5),
        "target_hit_frac": 0.25,
        "target_first_token_s": 0.75,
        "workers": 8,
        "link_bytes_per_s": 40e9,
        "decay_s": 30,
    },
    "sweep sweep.toml --axis tp=1,2 --calibration own.json": {
        "scenario.measured()": "read_own",
        "scenario.measured.path": "own.json",
    },
    "report plan.toml --calibration own.json": {"asked.measured()": "read_own", "asked.measured.path": "own.json"},
    "sweep sweep.toml --axis tp=1,2 --axis rate=10:1000:log:3 --output gpus --top 5": {
        "scenario.base": {
            "model": "qwen3-8b",
            "gpu": "h200_sxm",
            "input_tokens": 1234,
            "output_tokens": 56,
            **{"tp": 2, "pp": 3, "dp": 4, "ep": 8, "weights": "fp8", "kv": "bf16", "rate_rps": 7},
            **{"ttft_slo_s": 1.5, "tpot_slo_s": 0.025, "e2e_slo_s": 9, "percentile": 0.95},
        },
        **under("scenario.engine", {"max_num_seqs_count": 33, "max_num_batched_tokens": 4096}),
        "scenario.backend": "sglang",
        "axes": {"tp": [1, 2], "rate_rps": [10, 100, 1000]},
        "output": "gpus",
        "top": 5,
    },
    "plan --model qwen3-8b --gpu h200_sxm,l40s --gpus h200_sxm=16,l40s=24 --node-gpus 8 --workload mooncake "
    '--prefix-hits --rate "7 req/s" --ttft "1.5 s" --tpot "25 ms" --e2e "9 s" --percentile 0.95 --tp 2,4 --pp 1,3 '
    "--wide-ep 0,16 --weights fp8 --kv bf16 --checkpoint a/b --thresholds 2048,4096 --no-split --max-gpus 40 "
    '--budget "90 $/h" --headroom 0.3 --spare 2 --confidence 0.8 --size-for next --backend sglang --max-num-seqs 33 '
    "--max-num-batched-tokens 4096 --tuned --ensure": {
        "asked.model": "qwen3-8b",
        "asked.gpus": ["h200_sxm", "l40s"],
        "asked.inventory": {"h200_sxm": 16, "l40s": 24},
        "asked.node_gpus": 8,
        **under("asked.workload", {"()": "catalog.workload", "name": "mooncake", "rate_rps": 7, "prefix_hits": True}),
        **under("asked.slo", SLO),
        "asked.workload_name": "mooncake",
        **under("asked", {"tp": [2, 4], "pp": [1, 3], "wide_ep": [16], "weights": ["fp8"], "kv": ["bf16"]}),
        **under("asked", {"checkpoint": "a/b", "thresholds_tokens": [2048, 4096], "split": False, "tuned": True}),
        **under("asked", {"max_gpus": 40, "max_usd_per_hour": 90, "size_for": "next", "backend": "sglang"}),
        **under("asked.margins", {"headroom_frac": 0.3, "spare_count": 2, "confidence": 0.8}),
        **under("asked.engine", {"max_num_seqs_count": 33, "max_num_batched_tokens": 4096}),
        "ensure": True,
    },
    'plan --isl 1234 --osl 56 --cached-share 0.25 --rate "7 req/s" --calibration own.json --gpu-file own.csv '
    "--solve-for rate": {
        **under("asked.asked.workload", TRAFFIC | {"cached_tokens": 1234 / 4}),
        "asked.asked.workload_name": "ISL 1234 / OSL 56",
        "asked.asked.measured()": "read_own",
        "asked.asked.measured.path": "own.json",
        "asked.asked.gpu_file": "own.csv",
        **under("asked", {"()": "at_limit", "target": "rate", "ensure": None}),
        "ensure": None,
    },
    'plan --trace t.csv --repair --class "jobs: from 8000, ttft 60 s" --class "chat: to 8000, tpot 30 ms" --region '
    '"east: h100_sxm=32 at 2.1 $/h, l40s=4" --measured m.json --measured-tp 4 --backend trtllm --gpu h100_sxm': {
        **under("asked.asked.workload", {"()": "read_trace", "path": "t.csv", "repair": True}),
        "asked.asked.workload_name": "t.csv",
        **under("asked.asked.slo.classes.classes[0]", {"name": "jobs", "low_tokens": 8000, "high_tokens": INF}),
        **under(
            "asked.asked.slo.classes.classes[0].slo", {"ttft_s": 60, "tpot_s": 0.08, "e2e_s": INF, "percentile": 0.99}
        ),
        **under("asked.asked.slo.classes.classes[1]", {"name": "chat", "low_tokens": 0, "high_tokens": 8000}),
        **under(
            "asked.asked.slo.classes.classes[1].slo", {"ttft_s": 2, "tpot_s": 0.03, "e2e_s": INF, "percentile": 0.99}
        ),
        **under("asked.asked.slo.classes", {"()": "with_others", "traffic.path": "t.csv", "slo.ttft_s": 2}),
        **under("asked.asked.measured", {"()": "own_calibration", "paths": ["m.json"]}),
        **under("asked.asked.measured.machine", {"model": "llama-3.1-70b", "gpu": "h100_sxm", "engine": "trtllm"}),
        "asked.asked.measured.machine.tp": 4,
        **under("asked.regions[0]", {"name": "east", "inventory": {"h100_sxm": 32, "l40s": 4}}),
        "asked.regions[0].price_usd_per_hour": {"h100_sxm": 2.1},
    },
    'plan --trace t.csv --class "late: team=nightly, ttft 60 s, e2e 90 s, percentile 0.9, priority 3"': {
        "asked.workload.class_column": "team",
        **under("asked.slo.classes.classes[0]", {"name": "late", "label": "nightly", "priority": 3}),
        **under("asked.slo.classes.classes[0].slo", {"ttft_s": 60, "tpot_s": 0.08, "e2e_s": 90, "percentile": 0.9}),
    },
    "plan --telemetry a.json --no-sensitivity --verify --from-deployment run.sh": {
        "asked.workload()": "read_workload",
        "asked.workload.path": "a.json",
        "asked.workload_name": "a.json",
        **under("asked", {"tp": [1, 2, 4, 8], "pp": [1], "wide_ep": [16, 32], "split": True, "backend": "vllm"}),
        "asked.gpus": ["h100_sxm", "h200_sxm"],
        **under("asked.slo", {"ttft_s": 2, "tpot_s": 0.08, "e2e_s": INF, "percentile": 0.99}),
        **under("asked.engine", {"max_num_seqs_count": 256, "max_num_batched_tokens": 8192}),
    },
}
#: Options that name a file which is read at once, so that no call is printed without it; and where the call runs.
ELSEWHERE = {"simulate": {"server__plan", "server__replay"}}


@pytest.fixture
def here(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)


def printed(line: str) -> dict:
    """The arguments of the call that `line` prints."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        assert main([*shlex.split(line), "--show-python"]) == 0, line
    return arguments(told.getvalue())


def alike(found, expected) -> bool:
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(alike(found[k], x) for k, x in expected.items())
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(alike, found, expected))
    number = isinstance(expected, int | float) and not isinstance(expected, bool)
    return math.isclose(found, expected, rel_tol=1e-12) if number else found == expected


@pytest.mark.parametrize("line", CASES, ids=lambda line: " ".join(line.split()[:2]))
def test_options_are_the_arguments_that_they_are_said_to_be(line, here):
    found = printed(line)
    wrong = {name: (found.get(name), value) for name, value in CASES[line].items() if not alike(found.get(name), value)}
    assert not wrong, f"(made, asked): {wrong}"


def test_no_option_is_forgotten():
    for name in COMMANDS.keys() - OTHERS:
        there = {
            p.name: [*p.opts, *p.secondary_opts]
            for p in app.click_command(name).params
            if p.param_type_name == "option"
        }
        asked = " ".join(line for line in CASES if line.startswith(f"{name} "))
        silent = {key for key, opts in there.items() if not any(f"{opt} " in f"{asked} " for opt in opts)}
        assert silent <= SHOWN | ELSEWHERE.get(name, set()), name


#: Command -> what is typed behind it without a name: "?" may be missing, "..." there may be more; and the options of
#: those that take a scenario or nothing that is computed, "!" must be there.
TYPED = {
    "init": "kind? --out --force --no-force",
    "report": "scenario --calibration --out --sensitivity --no-sensitivity --ensure --no-ensure --verify --no-verify",
    "explore": "scenario --calibration --port",
    "catalog": "what? --gpu-file",
    "transfer": "scenario --out",
    "split": "scenario --out",
    "place": "scenario --trace --out",
    "sweep": "scenario --calibration --axis! --out --plot --figure --output --top",
    "poa": "log",
    "predict": "rows",
    "fit": "rows...",
    "fit operators": "folder",
    "watch": "files...",
    "formats": "",
    "claims": "name? --verdict --run --no-run",
    "completion": "shell",
} | dict.fromkeys(("plan", "size", "step", "simulate", "pools", "route"), "")
#: Commands that compute batches, of which one can say where; all that answer do so as JSON or as Python, too.
BATCHES = {"plan", "report", "explore", "split", "place", "sweep", "poa", "predict", "fit", "fit operators"}
NO_ANSWER = {"init", "explore", "completion"}


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_typed_behind_a_command(name):
    there = {"argument": set(), "option": set()}
    for one in app.click_command(name).params:
        if one.param_type_name == "argument":
            there["argument"].add(one.name + "?" * (not one.required) + "..." * (one.nargs < 0))
        else:
            there["option"] |= {text + "!" * one.required for text in (*one.opts, *one.secondary_opts)}
    asked = TYPED[name].split()
    assert there["argument"] == {word for word in asked if not word.startswith("--")}
    form = ({"--device"} if name in BATCHES else set()) | (set() if name in NO_ANSWER else {"--json", "--show-python"})
    assert there["option"] & {"--device", "--json", "--show-python"} == form
    if name in OTHERS or "scenario" in asked:
        assert there["option"] - form == {word for word in asked if word.startswith("--")}


#: Option -> a word of its help, where none is in its name, or a neighbour's help has that, too.
MEANT = {
    **{"--a": "per request", "--b": "idle", "--d": "scale", "--beta": "order", "--saturation": "at the pole"},
    **{"--omega": "miss", "--tau": "temperature", "--tp": "tensor", "--pp": "pipeline", "--dp": "data parallel"},
    **{"--ep": "expert", "--wide-ep": "experts", "--isl": "fixed input", "--osl": "fixed output", "--rate": "req/s"},
    **{"--ttft": "first token", "--tpot": "per output token", "--e2e": "whole request", "--backend": "engine"},
    **{
        "--axis": "rate=10:10000",
        "--baseline": "idle",
        "--budget": "cost",
        "--calibrate": "fit a, b",
        "--slots": "runs",
    },
    **{"--capacity": "places", "--checkpoint": "load", "--chunk": "prompt tokens", "--class": "SLOs of their own"},
    **{"--concurrency": "in flight", "--confidence": "probability", "--context": "tokens", "--device": "computed"},
    **{"--ensure": "replays", "--force": "over a file", "--from-deployment": "what runs", "--hours": "how far back"},
    **{
        "--headroom": "more load|sizing factors",
        "--input": "prompt",
        "--output": "answer|ranks",
        "--kind": "operators",
    },
    **{
        "--kv-dtype": "bf16, fp8 or fp4",
        "--weight-dtype": "int4",
        "--limit": "bad rows",
        "--max-num-seqs": "batch|most s",
    },
    **{"--max-num-batched-tokens": "tokens in a step", "--out": "write|file", "--percentile": "share of|to report"},
    **{"--plot": "draw|over time", "--policy": "round-robin", "--precision": "half-width|of the weights"},
    **{"--prefill": "own, shared", "--region": "place", "--release": "0.20", "--repair": "mend", "--replay": "log of"},
    **{
        "--runs": "per policy",
        "--seed": "random",
        "--sensitivity": "one input at a time",
        "--show-python": "library call",
    },
    **{"--solve-for": "tightest", "--spare": "less in each pool", "--spill": "go long", "--step": "between windows"},
    **{"--telemetry": "Prometheus", "--threshold": "short request", "--thresholds": "total tokens", "--top": "rows"},
    **{"--utilization": "share of GPU", "--verdict": "refuted", "--verify": "exit 1", "--model": "Hugging Face"},
    **{
        "--gpu": "GPU types|GPU, like|was measured|of the fleet",
        "--gpu-file": "your own",
        "--gpus": "of each|per inst",
    },
    **{"--node-gpus": "whole nodes", "--prefix-hits": "off the prompts", "--cached-share": "share of"},
    **{
        "--measured": "load generator",
        "--measured-tp": "tensor",
        "--deploy": "for a tool",
        "--block-tokens": "KV block",
    },
    **{"--batched-tokens": "one iteration", "--short-instances": "of a pool", "--short-slots": "at once"},
    **{"--prefill-instances": "only prefill", "--standby-instances": "either side"},
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_an_option_is_its_own(name):
    """A word of its name or what that means is in it; no two that stand beside each other could be exchanged."""
    told = [(p.opts[0], p.help) for p in app.click_command(name).params if p.param_type_name == "option"]

    def fits(option: str, says: str) -> bool:
        begins = "|".join(rf"\b{part[:5]}" for part in option[2:].split("-"))
        return re.search(MEANT.get(option, f"(?i){begins}"), says) is not None

    assert not [(option, says) for option, says in told if not fits(option, says)]
    beside = [(a[0], b[0]) for a, b in pairwise(told) if fits(a[0], b[1]) and fits(b[0], a[1])]
    assert not beside


def test_documents_state_what_was_asked(here, handed):
    def told(line: str, **answer) -> dict:
        """The inputs that the document states, of an answer of which only `answer` is known."""
        assert main(shlex.split(line)) == 0
        return handed.inputs(SimpleNamespace(**answer))

    lines = {line.split()[0]: line for line in reversed(CASES)}  # the first of each
    size = told(lines["size"])
    sized = {"model": "qwen3-8b", "parallel": "tp2pp3dp4ep8", "weight_dtype": "fp8", "kv_dtype": "fp4"}
    assert size.items() >= (sized | {"gpu": "h200_sxm", "utilization_frac": 0.8, "max_num_seqs": 77}).items()
    plain = told("size --model qwen3-8b --gpu h200_sxm")
    assert (plain["weight_dtype"], plain["kv_dtype"]) == ("as published", "as published")
    assert plain["max_num_seqs"] == 1024  # vLLM's default of GPUs from 70 GiB on
    pools = told(lines["pools"], rate_rps=7.0, context_tokens=9000.0)
    paid = {"rate_rps": 7, "context_tokens": 9000, "base_s": 9e-3, "per_sequence_s": 5e-4, "workload": "mooncake"}
    assert all(alike(pools[name], value) for name, value in paid.items())
    assert pools["headroom"] == {"single": 1.3, "short": 1.2, "long": 1.1}
    step = told(lines["step"])
    assert (step["model"], step["gpu"], step["parallel"]) == ("qwen3-8b", "h200_sxm", "tp2pp1dp4ep8")
    fleet = told(lines["simulate"])
    short, long = fleet["pools"]
    assert short == {"instances": 4, "slots_count": 9, "max_tokens": 2048}
    assert long == {"instances": 3, "slots_count": 5, "max_tokens": None}
    stated = {"policy": "random", "base_s": 9e-3, "per_sequence_s": 5e-4, "decode_instances": 0, "rate_rps": 7}
    assert all(alike(fleet[name], value) for name, value in stated.items())
    shared = told("size --model qwen3-8b --gpu h100_sxm --tp 4 --pp 2 --backend sglang")
    # SGLang sets half a GiB aside, 1.5 MiB a token of a step, 2 MiB for each of 512 sequences on four GPUs, and 128 MiB
    # for each of eight
    aside = (512 + 1.5 * 8192 + 2 * 512 + 128 * 8) * 2**20
    assert alike(shared["utilization_frac"], 1 - aside / float(catalog.gpu("h100_sxm").memory_bytes))
    apart = told(next(line for line in CASES if "--standby" in line))
    assert (apart["prefill_instances"], apart["decode_instances"], apart["standby_instances"]) == (2, 3, 1)
    default = told('simulate --rate "7 req/s" --prefill-instances 2')
    assert default["policy"] == "phasor" and default["workload"] == "azure-paper"
    assert told('simulate --rate "7 req/s"')["policy"] == "jsq"


def test_axes_as_they_are_typed():
    typed = [
        "tp=1,2",
        "rate=10:1000:log:3",
        "ttft=0.5 s:2 s:lin:4",
        "tpot=20 ms,40 ms",
        "isl=10:20:lin:2",
        "pp=1:4:log:9",
    ]
    read = read_axes([*typed, "weights=as-published,fp8", "percentile=0.9,0.99", "price=2.5"])
    expected = {
        "tp": [1, 2],
        "rate_rps": [10, 100, 1000],
        "ttft_slo_s": [0.5, 1.0, 1.5, 2.0],
        "tpot_slo_s": [0.02, 0.04],
        "input_tokens": [10, 20],
        "pp": [1, 2, 3, 4],  # whole numbers, each once
        "weights": ["as published", "fp8"],
        "percentile": [0.9, 0.99],
        "price_usd_per_hour": [2.5],
    }
    assert list(read) == list(expected) and all(alike(read[name], values) for name, values in expected.items())
    for twice in (["e2e=1 s", "e2e_slo_s=2 s"], ["tp=1", "tp=2"], ["rate=1", "rate_rps=2"]):
        with pytest.raises(InputError, match="given twice"):
            read_axes(twice)
    for wrong in ("rate=10:10:lin:4", "rate=10:20:lin:1", "rate=0:20:log:3", "isl=1:2:lin:x", "tp=1:4:log:2000000"):
        with pytest.raises(InputError):
            read_axes([wrong])


def test_what_there_is_may_be_chosen_from():
    """Of an inventory, or of all regions, every type once; names that are given count alone."""
    named = lambda **given: list(GpuTable(**given).name)
    assert named() == ["h100_sxm", "h200_sxm"]
    assert named(inventory="l40s=4,h100_sxm=32") == ["l40s", "h100_sxm"]
    regions = ["east: h100_sxm=32 at 2.1 $/h, l40s=16", {"name": "west", "inventory": {"mi300x": 8, "l40s": 1}}]
    assert named(regions=regions) == ["h100_sxm", "l40s", "mi300x"]
    assert named(inventory="a100_80=1", regions=regions) == ["a100_80", "h100_sxm", "l40s", "mi300x"]
    assert named(name="h200_sxm", inventory="l40s=4") == ["h200_sxm"]


def test_points_measured_on_one_of_several_gpus_name_none():
    for names, gpu in (("l40s", "l40s"), ("l40s,h100_sxm", None)):
        asked = PlanInputs(gpu={"name": names}, measured={"files": ["m.json"]})
        words = str(asked.measured.call(asked))
        assert ("l40s" in words) == (gpu is not None) and "h100_sxm" not in words
