"""Write the JSON Schema of every command's answer to dmodels/cli/schemas.

What was asked has the schema of the question's model. What came out is described from documents that the command lines
below print, numbers with the unit that their name states: a key that one document lacks is optional, a value that one
has as null may be null. `tests/cli/conftest.py` holds every document that the tests print against what is written here.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "dmodels" / "cli" / "schemas"
sys.path.insert(0, str(ROOT))

PLAN = "plan --tp 4,8 --gpu h100,h200 --thresholds 2048 --rate '20 req/s'"
TRACE = "plan --tp 1 --gpu h100 --model llama-3.1-8b --no-split --rate '20 req/s' --trace {folder}/trace.csv"
SIMULATE = "simulate --rate '20 req/s' --instances 8 --requests 3000 --precision 0.5"
CLUSTER = "simulate --rate '20 req/s' --prefill-instances 2 --instances 3 --slots 64 --requests 1500 --precision 0.9"
SERVER = "simulate --model llama-3.1-8b --gpu h100_sxm"
STEP = "step --model llama-3.1-70b --gpu h100_sxm"
#: Command lines that show every part of an answer; {folder} has the files that `_files` writes.
SAMPLES = {
    "plan": [
        PLAN + " --verify",
        TRACE,
        PLAN + " --tpot '1 ms' --no-split",
        PLAN + " --no-split --gpus h100=32,h200=8 --max-gpus 64 --budget '900 $/h' --solve-for rate",
        PLAN + " --no-split --class 'chat: to 4000' --class 'jobs: from 4000, ttft 9 s, priority 1'",
        PLAN + " --no-split --region 'a: h100=8 at 2 $/h' --region 'b: h100=4,h200=4'",
        PLAN + " --from-deployment {folder}/serve.sh",
    ],
    "size": ["size --model llama-3.1-70b --gpu h100", "size --model qwen3-8b --gpu h100 --workload azure-conv"],
    "catalog": ["catalog", "catalog fabrics", "catalog workloads", "catalog h100_sxm", "catalog qwen3-8b"],
    "simulate": [
        SIMULATE,
        SIMULATE + " --trace {folder}/trace.csv",
        CLUSTER + " --policy reactive",
        SERVER + " --rate '5 req/s' --isl 500 --osl 100 --requests 1000",
        SERVER + " --replay {folder}/requests.csv",
    ],
    "transfer": ["transfer {folder}/transfer.toml"],
    "pools": ["pools", "pools --price '2 $/h'", "pools --trace {folder}/trace.csv"],
    "split": ["split examples/split.toml", "split {folder}/split.toml"],
    "place": ["place examples/place.toml", "place {folder}/place.toml"],
    "sweep": [
        "sweep examples/sweep.toml --axis tp=1,4 --axis rate=10,100",
        "sweep examples/sweep.toml --axis gpu=h100",
    ],
    "poa": ["poa {folder}/log.jsonl --window 25"],
    "route": ["route --runs 5", "route --runs 5 --requests 200"],
    "predict": ["predict {folder}/rows.csv"],
    "fit": ["fit {folder}/rows.csv --steps 1", "fit {folder}/points.csv --gpu l40s --tp 1 --steps 1"],
    "operators": ["fit operators {folder}/kernels"],
    "step": [STEP + " --tp 4", STEP + " --tp 1"],
    "formats": ["formats"],
    "watch": [
        "watch {folder}/metrics.txt --rate '2 req/s' --from-deployment {folder}/serve.sh",
        "watch {folder}/metrics.txt",
        "watch {folder}/busy.txt",
    ],
    "claims": ["claims", "claims TB-1 --no-run"],
}
#: Objects whose keys are names of the question or of the catalogue, not of the schema.
MAPS = {
    "plan": ["inputs.price_usd_per_hour", "inputs.asked.gpu.price"],
    "catalog": ["result", "result.*", "result.*.*"],
    "simulate": ["result", "result.*"],
    "split": ["result.planners"],
    "place": [],
    "sweep": ["inputs.axes", "inputs.base", "result.fell", "result.best[]", "result.pareto[]"],
    "poa": ["result.log.problems"],
    "route": ["result.policies"],
    "predict": ["result.predictions[]"],
    "fit": [
        *(f"result.errors.{when}" for when in ("before", "after", "held_out")),
        "result.efficiencies[]",
        "result.spread80",
    ],
    "claims": ["result"],
}
EVERYWHERE = ("added_gib", "router", "two_pools_usd_per_hour_by_threshold_tokens")


def documents(command: str, folder: Path) -> Iterator[dict[str, Any]]:
    """What the samples of a command print."""
    import shlex

    from dmodels.cli import main

    for line in SAMPLES[command]:
        text = io.StringIO()
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(io.StringIO()) as said:
            code = main([*shlex.split(line.format(folder=folder)), "--json"])
        if code not in (0, 1):
            raise SystemExit(f"{line}: {said.getvalue()}")
        yield json.loads(text.getvalue())


def schema(command: str, samples: list[dict[str, Any]]) -> dict[str, Any]:
    """The schema that all samples follow."""
    from dmodels.cli.schema import flags

    maps = set(MAPS.get(command, []))
    found = {name: _with_units(_merged([one[name] for one in samples], name, maps)) for name in ("inputs", "result")}
    question, inputs = _question(command), samples[0]["inputs"]
    asked = _asked(question)
    if "asked" in inputs:
        found["inputs"]["properties"]["asked"] = asked
    elif set(inputs) >= set(question.model_fields):  # what a study reads from its files may stand beside
        found["inputs"]["properties"] |= asked.get("properties", {})
    else:  # what the command made of the question: the words of the flags that are called alike
        _in_words(found["inputs"], {leaf.path[-1]: leaf.field.description or "" for leaf in flags(question)})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": samples[0]["schema"],
        "type": "object",
        "required": ["schema", "dmodels", "command", "inputs", "result"],
        "properties": {
            "schema": {"const": samples[0]["schema"]},
            "dmodels": {"type": "string", "description": "the version that answered"},
            "command": {},
            **found,
        },
    }


def _question(command: str) -> Any:
    """The model of what the command is asked."""
    from dmodels.cli import COMMANDS
    from dmodels.cli.calls import Code

    (name,) = (name for name in COMMANDS if name.split()[-1] == command)
    found = import_module(f"dmodels.cli.{name.replace(' ', '_')}").command.question
    return Code(found).run() if isinstance(found, str) else found


def _asked(question: Any) -> dict[str, Any]:
    """The schema of a question as it is printed: every field, whether it was given or not."""
    found = question.model_json_schema(by_alias=False, mode="serialization")
    return _flat(found, found.get("$defs", {}))


def _flat(part: Any, tables: dict[str, Any]) -> Any:
    """The schema with its tables in place, without what only pydantic and the flags need."""
    if isinstance(part, list):
        return [_flat(one, tables) for one in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _flat(tables[part["$ref"].rpartition("/")[2]], tables)
    left_out = ("$defs", "title", "flag", "default", "properties")
    found = {name: _flat(one, tables) for name, one in part.items() if name not in left_out}
    if found.get("type") == "number":
        found["type"] = ["number", "null"]  # a number that is not finite is null in JSON
    if "properties" in part:
        found["properties"] = {name: _flat(one, tables) for name, one in part["properties"].items()}
        found["required"] = list(found["properties"])
    return found


def _merged(values: list[Any], path: str, maps: set[str]) -> dict[str, Any]:
    from dmodels.core.units import unit_of

    kinds = sorted({_kind(value) for value in values})
    kinds = [kind for kind in kinds if not (kind == "integer" and "number" in kinds)]
    if kinds == ["null"]:  # no sample says what else it may be; a name with a unit does
        return {"type": ["number", "null"]} if unit_of(path.rpartition(".")[2]) else {}
    if "number" in kinds and "null" not in kinds:
        kinds = [*kinds, "null"]  # a number that is not finite is null in JSON
    if path.startswith("inputs.") and len(kinds) == 1 and kinds[0] in ("string", "number", "array"):
        kinds = [*kinds, "null"]  # most of what is asked may be left out
    found: dict[str, Any] = {"type": kinds[0] if len(kinds) == 1 else kinds}
    if "array" in kinds:
        items = [item for value in values if isinstance(value, list) for item in value]
        found["items"] = _merged(items, path + "[]", maps) if items else {}
    tables = [value for value in values if isinstance(value, dict)]
    if not tables:
        return found
    if path in maps or path.rpartition(".")[2] in EVERYWHERE:
        inner = [value for table in tables for value in table.values()]
        found["additionalProperties"] = _merged(inner, path + ".*", maps) if inner else True
        return found
    names = list(dict.fromkeys(name for table in tables for name in table))
    found["required"] = [name for name in names if all(name in table for table in tables)]
    found["properties"] = {
        name: _merged([table[name] for table in tables if name in table], f"{path}.{name}", maps) for name in names
    }
    return found


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    kinds = {int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return kinds[type(value)]


def _in_words(part: dict[str, Any], says: dict[str, str]) -> None:
    for name, inner in part.get("properties", {}).items():
        if name in says:
            inner["description"] = f"{says[name]} {inner.get('description', '')}".strip()
        _in_words(inner, says)


def _with_units(found: dict[str, Any], name: str = "") -> dict[str, Any]:
    """With the units that names state."""
    from dmodels.core.units import unit_of

    unit = unit_of(name) if "number" in found.get("type", ()) else ""
    inner = {key: _with_units(value, key) for key, value in found.get("properties", {}).items()}
    said = {"description": f"[{unit}]"} if unit not in ("", "1") else {}
    return found | ({"properties": inner} if inner else {}) | said


def _files(folder: Path) -> None:
    """Small inputs of the samples."""
    import numpy as np

    rng = np.random.default_rng(0)
    when = np.cumsum(rng.exponential(0.2, 2000))
    rows = zip(when, rng.integers(10, 900, 2000), rng.integers(5, 90, 2000), strict=True)
    text = "\n".join(["time_s,input_tokens,output_tokens", *(f"{a},{b},{c}" for a, b, c in rows)])
    (folder / "trace.csv").write_text(text)
    served = [f"{0.1 * k},{200 + k},{20 + k % 7},{0.1 * k + 0.05},{0.1 * k + 0.4}" for k in range(50)]
    head = "arrival_s,input_tokens,output_tokens,first_token_s,end_s"
    (folder / "requests.csv").write_text("\n".join([head, *served]))
    few = '[simulation]\nruns = 2\ncontexts = [4096, 65536]\n[traffic]\nrate = "4 req/s"\n'
    (folder / "transfer.toml").write_text(few)
    split = (ROOT / "examples" / "split.toml").read_text()
    (folder / "split.toml").write_text(split.replace("count = 40", "count = 6"))
    place = (ROOT / "examples" / "place.toml").read_text()
    data = ROOT / "examples" / "data"
    place = (
        place.replace("hit_rate = 0.15", "hit_rate = 0.99")
        .replace("workers = 8", "workers = 1")
        .replace('"data/', f'"{data}/')
    )
    (folder / "place.toml").write_text(place)
    log = [
        {"id": f"r{i}", "arrival": i / 20, "completion": i / 20 + 2, "worker": f"w{i % 3}", "latency": 2.0, "ttft": 0.1}
        for i in range(60)
    ]
    (folder / "log.jsonl").write_text("\n".join(map(json.dumps, [*log, {"id": "cut"}])))
    _kernels(folder / "kernels" / "h100_sxm" / "nccl")
    name = "vllm:request_{}_tokens"
    lines = ["vllm:num_requests_running 3", "vllm:num_requests_waiting 0", "vllm:kv_cache_usage_perc 0.2"]
    for part, mean in (("prompt", 800), ("generation", 150)):
        bucket = name.format(part)
        lines += [f'{bucket}_bucket{{le="{le}"}} 100' for le in (1000, "+Inf")]
        lines += [f"{bucket}_sum {100 * mean}", f"{bucket}_count 100"]
    for name, mean_s in (("time_to_first_token", 0.3), ("inter_token_latency", 0.02), ("e2e_request_latency", 3.0)):
        seconds = f"vllm:{name}_seconds"
        lines += [f'{seconds}_bucket{{le="{le}"}} 100' for le in (4.0, "+Inf")]
        lines += [f"{seconds}_sum {100 * mean_s}", f"{seconds}_count 100"]
    (folder / "metrics.txt").write_text("\n".join(lines) + "\n")
    (folder / "busy.txt").write_text(lines[0] + "\n")  # of engines that report no lengths
    line = "vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 4"
    head = "model,engine,input_tokens,output_tokens,throughput_rps,ttft_ms,tpot_ms"
    rows = [f"llama-3.1-8b,vllm,900,200,{n / (0.08 + 5.0 * n**0.2)},{60 + 8 * n},{24 + n}" for n in (1, 2, 4)]
    (folder / "points.csv").write_text("\n".join([head, *rows]))
    (folder / "serve.sh").write_text(f"# all: 6 x 4 h100_sxm (tp4)\n# all: start 6 of\n{line}\n")
    (folder / "rows.csv").write_text((data / "measured.csv").read_text())


def _kernels(folder: Path) -> None:
    """All-reduces as a ring would take them."""
    import numpy as np
    import pyarrow
    import pyarrow.parquet

    size = np.repeat(2 ** np.arange(8, 28), 12)
    ranks = np.tile([2, 4, 8], len(size) // 3)
    columns = {
        "kernel_source": ["NCCL"] * len(size),
        "op_name": ["all_reduce"] * len(size),
        "nccl_dtype": ["half"] * len(size),
        "num_gpus": ranks,
        "message_size": size + np.arange(len(size)),
        "latency": 0.01 + 4e-9 * size * (ranks - 1) / ranks,
    }
    folder.mkdir(parents=True)
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "nccl@2.27.parquet")


def main() -> None:
    TARGET.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        _files(Path(folder))
        for command in sys.argv[1:] or SAMPLES:
            found = schema(command, list(documents(command, Path(folder))))
            _write(command, found)
            if command == "plan":  # report answers the same, and explore, turned by sliders
                _write("report", json.loads(json.dumps(found).replace("dmodels.plan/", "dmodels.report/")))
                del found["properties"]["inputs"]["properties"]["asked"]
                found["properties"]["inputs"]["required"].remove("asked")
                _write("explore", json.loads(json.dumps(found).replace("dmodels.plan/", "dmodels.explore/")))


def _write(command: str, found: dict[str, Any]) -> None:
    found["title"] = f"The answer of `dmodels {command} --json`"
    found["properties"]["command"]["const"] = command
    (TARGET / f"{command}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
