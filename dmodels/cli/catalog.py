"""What is in the catalogue: `gpus`, `models`, `fabrics`, `workloads`, or one GPU or model by name, with sources."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dmodels.core.errors import InputError, unknown
from dmodels.core.units import GIB, TFLOPS, unit_of

from . import render
from .options import Json, ShowPython


def command(
    what: Annotated[str, typer.Argument(help="gpus, models, fabrics, workloads, a name, or a config.json")] = "",
    gpu_file: Annotated[str | None, typer.Option(help="your own GPUs and prices: CSV, TOML, JSON or YAML")] = None,
    json: Json = False,
    show_python: ShowPython = False,
) -> int:
    from dmodels import catalog

    lists = {
        "gpus": (lambda: catalog.gpus(gpu_file), "catalog.gpus()", _gpus),
        "models": (_sized_models, "{name: catalog.model(name) for name in catalog.models()}", _models),
        "fabrics": (catalog.fabrics, "catalog.fabrics()", _fabrics),
        "workloads": (_workload_facts, "{n: catalog.workload(n) for n in catalog.workload_names()}", _workloads),
    }
    if what in lists or not what:
        chosen = [what] if what else ["gpus", "models"]
        if show_python:
            print("\n".join(["from dmodels import catalog", *(lists[name][1] for name in chosen)]))
            return 0
        found = {name: lists[name][0]() for name in chosen}
        if json:
            print(render.as_json("catalog", {"what": what or "gpus, models", "gpu_file": gpu_file}, found))
        else:
            for name in chosen:
                lists[name][2](found[name])
        return 0
    return _one(what, gpu_file, json, show_python)


def _one(name: str, gpu_file: str | None, json: bool, show_python: bool) -> int:
    """One GPU, model or fabric, whichever has the name."""
    from dmodels import catalog

    finders = (
        (lambda: catalog.gpu_facts(name, gpu_file), f"catalog.gpu_facts({name!r})"),
        (lambda: _model_facts(name), f"catalog.model({name!r})"),
    )
    for find, python in finders:
        try:
            facts = find()
        except InputError as error:
            if "is unknown" not in str(error):
                raise
            continue
        if show_python:
            print(f"from dmodels import catalog\n{python}")
        elif json:
            print(render.as_json("catalog", {"what": name, "gpu_file": gpu_file}, facts))
        else:
            rows = [[key, _cell(value), unit_of(key)] for key, value in facts.items() if value not in ("", ())]
            render.print_table(str(facts["name"]), ["", "value", "unit"], rows)
        return 0
    raise unknown("GPU or model", name, [*catalog.gpus(gpu_file), *catalog.models()])


def _cell(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else render.cell(value)


def _gpus(table: dict[str, dict[str, Any]]) -> None:
    head = ["GPU", "GiB", "HBM TB/s", "BF16 TFLOP/s", "FP8", "FP4", "scale-up GB/s", "NIC Gbit/s", "domain", "W", "$/h"]
    keys = (
        ("memory_bytes", GIB),
        ("hbm_bytes_per_s", 1e12),
        ("peak_flop_per_s", TFLOPS),
        ("peak_fp8_flop_per_s", TFLOPS),
        ("peak_fp4_flop_per_s", TFLOPS),
        ("nvlink_bytes_per_s_oneway", 1e9),
        ("nic_bytes_per_s_per_gpu_oneway", 1e9 / 8),
        ("gpus_per_node", 1),
        ("tdp_w", 1),
        ("price_usd_per_hour", 1),
    )
    rows = [[name, *(facts[k] / u if k in facts else "-" for k, u in keys)] for name, facts in table.items()]
    render.print_table("GPUs (dense rates; links one direction, per GPU; approximate list prices)", head, rows)


def _models(table: dict[str, dict[str, Any]]) -> None:
    head = ["model", "parameters, 1e9", "active", "weights GiB", "KV bytes/token", "context", "Hugging Face id"]
    rows = [
        [
            name,
            facts["params_count"] / 1e9,
            facts["active_params_count"] / 1e9,
            facts["weight_bytes"] / GIB,
            facts["kv_bytes_per_token"],
            facts["max_context_tokens"],
            facts["hf_id"],
        ]
        for name, facts in table.items()
    ]
    render.print_table("Models (KV bytes per token of a long sequence, at tp = 1)", head, rows)


def _fabrics(table: dict[str, dict[str, Any]]) -> None:
    rows = [
        [name, f["bytes_per_s_oneway"] / 1e9, f["latency_s"] * 1e6, f["scope"], f["source"], f["date"]]
        for name, f in table.items()
    ]
    render.print_table("Fabrics", ["fabric", "GB/s one way", "latency us", "per", "source", "date"], rows)


def _workloads(table: dict[str, dict[str, Any]]) -> None:
    rows = [[n, f["mean_input_tokens"], f["mean_output_tokens"], f["rate_rps"], f["source"]] for n, f in table.items()]
    render.print_table("Workloads", ["workload", "mean input tokens", "mean output", "req/s", "source"], rows)


def _workload_facts() -> dict[str, dict[str, Any]]:
    from dmodels import catalog

    found = {}
    for name in catalog.workload_names():
        traffic = catalog.workload(name)
        found[name] = {
            "mean_input_tokens": float((traffic.weight_frac * traffic.input_tokens).sum()),
            "mean_output_tokens": float((traffic.weight_frac * traffic.output_tokens).sum()),
            "rate_rps": float(traffic.rate_rps),
            "source": catalog.workload_source(name),
        }
    return found


def _sized_models() -> dict[str, dict[str, Any]]:
    from dmodels import catalog

    return {name: _sizes(catalog.model(name)) | facts for name, facts in catalog.models().items()}


def _model_facts(name: str) -> dict[str, Any]:
    from dmodels import catalog

    known = catalog.models()
    found = catalog.model_name(name)
    record = catalog.model(name)
    fields = {key: float(value) for key, value in vars(record).items() if float(value)}
    return {"name": found} | known.get(found, {"source": str(name)}) | _sizes(record) | fields


def _sizes(model) -> dict[str, float]:
    from dmodels.core.records import float64
    from dmodels.models.memory import kv_bytes_per_token, weight_bytes

    return {
        "params_count": float(model.params_count),
        "active_params_count": float(model.active_params_count),
        "weight_bytes": float(float64(weight_bytes)(model)),
        "kv_bytes_per_token": float(float64(kv_bytes_per_token)(model)),
        "max_context_tokens": float(model.max_context_tokens),
    }
