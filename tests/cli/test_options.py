"""Options in their order, what each takes and what it is where it is left out; and where values of each kind end."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import get_args, get_origin

import pytest
from pydantic import TypeAdapter, ValidationError
from typer.models import ArgumentInfo

from dmodels.cli import COMMANDS, fit, fit_operators, place_scenario, plan_inputs, pools, route, schema, simulate, step


def told(parameter: inspect.Parameter) -> str:
    """NAMES KIND = DEFAULT; "..." where it may be given again, "!" where it must be."""
    (kind, option), default = get_args(parameter.annotation), parameter.default
    several = [one for one in (kind, *get_args(kind)) if get_origin(one) is list]
    kind = get_args(several[0])[0] if several else (*get_args(kind), kind)[0]
    given = [name for name in (option.default, *(option.param_decls or ())) if isinstance(name, str)]
    names = " ".join(given) or f"--{parameter.name.replace('_', '-')}"
    names = parameter.name.upper() if isinstance(option, ArgumentInfo) else names
    stated = {None: "", inspect.Parameter.empty: "!"}
    end = f" = {default}" if isinstance(default, list | dict) or default not in stated else stated[default]
    return f"{names} {kind.__name__}{'...' * bool(several)}{end}"


@pytest.mark.parametrize("name", COMMANDS)
def test_options_come_in_this_order_and_are_this_where_they_are_left_out(name):
    answered = "--json bool = False; --show-python bool = False"
    batches = f"--device str = auto; {answered}"
    machine = (
        "--model str = ; --gpu str = ; --engine str = ; --precision str = ; --tp int = 0; --dp int = 0; --ep int = 0"
    )
    slo = "--ttft --ttft-p99 str = 2 s; --tpot --tpot-p99 str = 80 ms; --e2e --e2e-p99 str; --percentile str = 0.99"
    dtypes = "--weight-dtype str; --kv-dtype str"
    looks = "--sensitivity bool = True; --ensure/--no-ensure bool; --verify bool = False"
    options = {
        "init": "KIND str = plan; --out Path; --force bool = False",
        "plan": f"""
            --model str = llama-3.1-70b; --gpu str = h100_sxm,h200_sxm; --gpu-file str; --gpus str = {{}};
            --node-gpus int = 1; --region str... = []; --workload str; --trace str; --isl float; --osl float;
            --telemetry str; --prefix-hits/--no-prefix-hits bool = False; --cached-share str = 0.0;
            --repair/--no-repair bool = False; --rate str; {slo}; --class str... = [];
            --tp str = 1,2,4,8; --pp str = 1; --wide-ep str = 16,32; --weights str = as-published;
            --kv str = as-published; --checkpoint str; --thresholds str; --split/--no-split bool = True;
            --max-gpus float = inf; --budget str; --headroom str = 0.0; --spare int = 0; --confidence str = 0.5;
            --size-for str = trace; --backend str = vllm; --max-num-seqs int = 256;
            --max-num-batched-tokens int = 8192; --calibration str; --measured str... = []; --measured-tp int = 0;
            --tuned/--no-tuned bool = False; --solve-for str; {looks}; --out Path; --deploy str;
            --from-deployment Path...; {batches}
        """,
        "report": f"SCENARIO Path!; --calibration str; --out Path; {looks}; {batches}",
        "explore": "SCENARIO Path!; --calibration str; --port int = 8765; --device str = auto",
        "size": f"""
            --model str!; --gpu str!; --tp int = 1; --pp int = 1; --dp int = 1; --ep int = 1; --context int = 8192;
            --workload str; {dtypes}; --utilization float; --block-tokens int = 16; --batched-tokens int = 8192;
            --max-num-seqs int; --backend str = vllm; --release str = ; --gpu-file str; {answered}
        """,
        "step": f"""
            --model str!; --gpu str!; --tp int = 1; --dp int = 1; --ep int = 1; --input float = 2000;
            --output float = 500; --concurrency float; --backend str = vllm; {dtypes}; --gpu-file str;
            --calibration str; --out Path; {answered}
        """,
        "catalog": f"WHAT str = ; --gpu-file str; {answered}",
        "simulate": f"""
            --trace str; --workload str; --rate str; --instances int = 1; --slots int = 16;
            --short-instances int = 0; --short-slots int = 128; --threshold float = 8192; --spill float = inf;
            --policy str; --prefill-instances int = 0; --standby-instances int = 0;
            --iteration str = 8 ms,0.65 ms; --chunk int = 512; --prefill str = own; --percentile float = 0.99;
            --precision float = 0.05; --requests int; --steady/--no-steady bool = False; --seed int = 0;
            --model str; --gpu str; --tp int = 1; --dp int = 1; --ep int = 1; --backend str = vllm;
            --max-num-seqs int; --max-num-batched-tokens int; {dtypes}; --utilization float = 0.9;
            --isl float; --osl float; --gpu-file str; --calibration str; --plan str; --replay str; --out Path;
            {answered}
        """,
        "transfer": f"SCENARIO Path!; --out Path; {answered}",
        "pools": f"""
            --trace str; --workload str; --rate str; --thresholds str; --context float; --pools int = 3;
            --headroom str = 1.08,1.05,1.02; --iteration str = 8 ms,0.65 ms; --blocks float = 65536;
            --max-sequences float = 128; --gpus int = 2; --price str; --compress str;
            --repair/--no-repair bool = False; {answered}
        """,
        "split": f"SCENARIO Path!; --out Path; {batches}",
        "place": f"SCENARIO Path!; --trace str; --out Path; {batches}",
        "sweep": f"""
            SCENARIO Path!; --calibration str; --axis str...!; --out Path; --plot str; --figure Path;
            --output str = cost_usd_per_mtoken; --top int = 10; {batches}
        """,
        "poa": f"""
            LOG str!; --window int = 512; --step int; --worker str...; --capacity float = 64.0;
            --calibrate/--no-calibrate bool = False; --load-aware/--no-load-aware bool = False; --baseline str;
            --limit int = 20; --plot Path; {batches}
        """,
        "route": f"""
            --requests int = 64; --workers int = 2; --prefixes int = 5; --a str = 5 ms; --b str = 20 ms;
            --d str = 10 ms; --saturation str = 64; --beta float = 2.0; --omega str = 15 ms; --tau float = 0.0;
            --runs int = 200; --seed int = 0; {answered}
        """,
        "predict": f"{machine}; ROWS str!; --calibration str; --tuned/--no-tuned bool = False; --out Path; {batches}",
        "fit": f"{machine}; ROWS str...!; --steps int = 15; --out Path; {batches}",
        "fit operators": f"FOLDER str!; --kind str = []; --out Path; {batches}",
        "watch": f"""
            FILES str...!; --hours float = 6.0; --gpu str = ; --rate str; {slo}; --from-deployment Path...;
            --dashboard Path; {answered}
        """,
        "formats": answered,
        "claims": f"NAME str = ; --verdict str = ; --run/--no-run bool = True; {answered}",
        "completion": "SHELL str!",
    }
    command = import_module(f"dmodels.cli.{name.replace(' ', '_')}").command
    found = [told(p) for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "ctx"]
    assert found == " ".join(options[name].split()).split("; ")


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_typed_without_a_name_is_explained_and_its_default_only_where_there_is_one(name):
    transfer = "scenario file (TOML); an empty one is NetKV's cluster under RAG"
    explained = {
        "init": "of which command: plan, split, place, sweep",
        **{kind: f"a TOML file; examples/{kind}.toml is one" for kind in ("split", "place", "sweep")},
        **dict.fromkeys(("report", "explore"), "a TOML file; examples/plan.toml is one"),
        "transfer": transfer,
        "catalog": "gpus, models, fabrics, workloads, a name, or a config.json",
        "poa": "request log: .csv, .jsonl, .parquet",
        "predict": "CSV with id, model_path, system, isl, osl ..., or a load generator's report",
        "fit": "reports of load generators, or CSV tables of rows",
        "fit operators": "with <gpu>/<engine>/<table>@<release>.parquet, or the public database's",
        "watch": "Prometheus' answers (JSON), scrapes (text), or http://HOST:PORT",
        "claims": "a claim's id, such as TB-1; without it, all are listed",
        "completion": "one of bash, zsh, fish",
    }
    command = import_module(f"dmodels.cli.{name.replace(' ', '_')}").command
    made = [get_args(p.annotation)[-1:] for p in inspect.signature(command, eval_str=True).parameters.values()]
    found = [(one.help, one.show_default) for (one,) in filter(None, made) if isinstance(one, ArgumentInfo)]
    assert found == ([(explained[name], name == "init")] if name in explained else [])


def test_kinds_of_values_begin_and_end_where_they_mean_something():
    """What is accepted with what it is in base units, and what is not."""
    inf, nan = float("inf"), float("nan")
    whole = {1: 1, "3": 3}, [0, -1, "1.5", "x"]
    lists = {"1,2": [1, 2], "4": [4], 4: [4]}
    for kind, (accepted, refused) in {
        schema.Seconds: ({"2 ms": 2e-3, 1e-9: 1e-9, 60.0: 60.0}, [0, "0 s", "-1 s", "2 req/s"]),
        schema.Wait: ({"2 ms": 2e-3, 0: 0.0, 0.5: 0.5}, [-1e-9, "2 GB"]),
        schema.Rate: ({"6 req/min": 0.1, 1e-9: 1e-9}, [0, "2 s"]),
        schema.Price: ({"2.5 $/h": 2.5, 1e-9: 1e-9}, [0, "2 s"]),
        schema.Positive: ({1e-9: 1e-9, "7": 7.0}, [0, inf, nan]),
        schema.Tokens: ({1: 1.0, "1.5": 1.5}, [0.99, inf, nan]),
        schema.Degree: whole,
        schema.Degrees: (lists, ["", ",", "0", "1,0", []]),
        schema.DegreesOrNone: (lists | {"0": [0], "0,16": [0, 16]}, ["", ",", "-1", []]),
        schema.Names: ({"a, b,": ["a", "b"], "a": ["a"]}, ["", ",", []]),
        schema.PrecisionName: ({"FP8": "fp8", "as-published": "as published"}, [8]),
        plan_inputs.Precisions: ({"FP8,bf16": ["fp8", "bf16"]}, ["", []]),
        plan_inputs.Thresholds: ({"0.5,2048": [0.5, 2048.0], "": []}, ["0", "1,-1"]),
        plan_inputs.Counts: ({"a=0, b = 3": {"a": 0, "b": 3}, "": {}}, ["a=-1", "a", "=1", "a=b"]),
        simulate.Instances: ({0: 0, 100_000: 100_000}, [-1, 100_001]),
        simulate.Law: ({"1 ms,0 ms": (1e-3, 0.0)}, ["0 ms,1 ms", "1 ms", "1 ms,1 ms,1 ms"]),
        simulate.Share: ({1e-9: 1e-9, 0.999: 0.999}, [0, 1]),
        pools.Law: ({"1 ms,2 ms": (1e-3, 2e-3)}, ["1 ms,0 ms", "0 ms,1 ms"]),
        pools.Factors: ({"1,2,3": (1.0, 2.0, 3.0)}, ["1,2", "0,1,1", "1,0,1", "1,1,0"]),
        pools.Compressor: ({"0.5,9,-1": (0.5, 9.0, -1.0)}, ["0,9,1", "1,0,1", "1,9"]),
        route.Times: ({"1 ms,0 ms": [1e-3, 0.0]}, ["", "-1 ms"]),
        route.Counts: ({"0.5,2": [0.5, 2.0]}, ["", "0", "inf"]),
        route.NotNegative: ({0: 0.0, 2: 2.0}, [-1e-9, inf]),
        place_scenario.Size: ({"1 KiB": 1024.0, 0: 0.0}, [-1, "1 s"]),
        place_scenario.Speed: ({"1 GB/s": 1e9, 1e-9: 1e-9}, [0, "1 GB"]),
        place_scenario.Price: ({0: 0.0, 0.12: 0.12}, [-1e-9]),
        step.Tokens: ({1e-9: 1e-9, 500: 500.0}, [0, inf]),
        fit.Wide: ({0: 0, 8: 8}, [-1, 1.5]),
        fit_operators.Kinds: ({"gemm, moe": ["gemm", "moe"], "": []}, [3]),
    }.items():
        reader = TypeAdapter(kind)
        for given, value in accepted.items():
            assert (reader.validate_python(given), given) == (value, given)
        for given in refused:
            with pytest.raises(ValidationError):
                pytest.fail(f"{kind} is {reader.validate_python(given)}")


def test_a_share_is_a_number_or_per_cent():
    read = TypeAdapter(schema.Annotated[float, schema.Percent]).validate_python
    assert [read(text) for text in ("20 %", "0.5%", "0.2", 0.3, " 7 % ")] == [0.2, 0.005, 0.2, 0.3, 0.07]
    for wrong in ("%", "1.2.3 %", "-5 %", "x %"):
        with pytest.raises(ValidationError, match="valid number, unable to parse"):
            read(wrong)
