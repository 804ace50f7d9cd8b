"""What is in the catalogue: `gpus`, `models`, `fabrics`, `workloads`, or one GPU or model by name, with sources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dmodels.core.errors import InputError, unknown
from dmodels.core.units import GIB, TFLOPS, unit_of
from dmodels.report.text import Table as Shown
from dmodels.report.text import cell, table

from . import render
from .calls import call
from .command import Form, asks
from .schema import FileName, Table, flag


class CatalogAsked(Table):
    """Which entries of the catalogue."""

    what: str = flag("", "gpus, models, fabrics, workloads, a name, or a config.json", argument=True)
    gpu_file: FileName | None = flag(None, "your own GPUs and prices: CSV, TOML, JSON or YAML")


@asks(CatalogAsked)
def command(asked: CatalogAsked, form: Form) -> int:
    if asked.what and asked.what not in LISTS:
        return _one(asked, form)
    chosen = [asked.what] if asked.what else ["gpus", "models"]
    calls = {name: call(LISTS[name][0], asked.gpu_file if name == "gpus" else None) for name in chosen}
    form.quiet()
    if form.show_python:
        print("\n".join(code.python(name) for name, code in calls.items()))
        return 0
    found = {name: LISTS[name][1](code.run()) for name, code in calls.items()}
    if form.json:
        print(render.as_json("catalog", {"what": ", ".join(chosen), "gpu_file": asked.gpu_file}, found))
    else:
        render.show(LISTS[name][2](found[name]) for name in chosen)
    return 0


def _one(asked: CatalogAsked, form: Form) -> int:
    """One GPU or model, whichever has the name."""
    from dmodels import catalog

    name = asked.what
    gpu, model = call("dmodels.catalog:gpu_facts", name, asked.gpu_file), call("dmodels.catalog:model", name)
    for code, facts_of in ((gpu, dict), (model, lambda record: _model_facts(name, record))):
        try:
            facts = facts_of(code.run())
        except InputError as error:
            if "is unknown" not in str(error):
                raise
            continue
        form.quiet()
        if form.show_python:
            print(code.python("found"))
        elif form.json:
            print(render.as_json("catalog", asked.model_dump(), facts))
        else:
            rows = [[key, _cell(value), unit_of(key)] for key, value in facts.items() if value not in ("", ())]
            render.show([(str(facts["name"]), ["", "value", "unit"], rows)])
        return 0
    raise unknown("GPU or model", name, [*LISTS, *catalog.gpus(asked.gpu_file), *catalog.models()])


def _cell(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else cell(value)


def _gpus(found: dict[str, dict[str, Any]]) -> Shown:
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
    rows = [[name, *(facts[k] / u if k in facts else "-" for k, u in keys)] for name, facts in found.items()]
    return "GPUs (dense rates; links one direction, per GPU; approximate list prices)", head, rows


def _models(found: dict[str, dict[str, Any]]) -> Shown:
    columns = {
        "model": lambda item: item[0],
        "parameters, 1e9": lambda item: item[1]["params_count"] / 1e9,
        "active": lambda item: item[1]["active_params_count"] / 1e9,
        "weights GiB": lambda item: item[1]["weight_bytes"] / GIB,
        "KV bytes/token": lambda item: item[1]["kv_bytes_per_token"],
        "context": lambda item: item[1]["max_context_tokens"],
        "Hugging Face id": lambda item: item[1]["hf_id"],
    }
    return table("Models (KV bytes per token of a long sequence, at tp = 1)", found.items(), columns)


def _fabrics(found: dict[str, dict[str, Any]]) -> Shown:
    rows = [
        [name, f["bytes_per_s_oneway"] / 1e9, f["latency_s"] * 1e6, f["scope"], f["source"], f["date"]]
        for name, f in found.items()
    ]
    return "Fabrics", ["fabric", "GB/s one way", "latency us", "per", "source", "date"], rows


def _workloads(found: dict[str, dict[str, Any]]) -> Shown:
    rows = [[n, f["mean_input_tokens"], f["mean_output_tokens"], f["rate_rps"], f["source"]] for n, f in found.items()]
    return "Workloads", ["workload", "mean input tokens", "mean output", "req/s", "source"], rows


def _workload_facts(names: list[str]) -> dict[str, dict[str, Any]]:
    from dmodels import catalog

    found = {}
    for name in names:
        traffic = catalog.workload(name)
        found[name] = {
            "mean_input_tokens": float((traffic.weight_frac * traffic.input_tokens).sum()),
            "mean_output_tokens": float((traffic.weight_frac * traffic.output_tokens).sum()),
            "rate_rps": float(traffic.rate_rps),
            "source": catalog.workload_source(name),
        }
    return found


def _sized_models(known: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    from dmodels import catalog

    return {name: _sizes(catalog.model(name)) | facts for name, facts in known.items()}


def _model_facts(name: str, record: Any) -> dict[str, Any]:
    from dmodels import catalog

    known = catalog.models()
    found = catalog.model_name(name)
    fields = {key: float(value) for key, value in vars(record).items() if float(value)}
    return {"name": found} | known.get(found, {"source": str(name)}) | _sizes(record) | fields


def _sizes(model: Any) -> dict[str, float]:
    from dmodels.core.records import float64
    from dmodels.models.memory import kv_bytes_per_token, weight_bytes

    return {
        "params_count": float(model.params_count),
        "active_params_count": float(model.active_params_count),
        "weight_bytes": float(float64(weight_bytes)(model)),
        "kv_bytes_per_token": float(float64(kv_bytes_per_token)(model)),
        "max_context_tokens": float(model.max_context_tokens),
    }


#: What is listed: the library call, what is told of its value, and as which table.
LISTS: dict[str, tuple[str, Callable[[Any], Any], Callable[[Any], Shown]]] = {
    "gpus": ("dmodels.catalog:gpus", dict, _gpus),
    "models": ("dmodels.catalog:models", _sized_models, _models),
    "fabrics": ("dmodels.catalog:fabrics", dict, _fabrics),
    "workloads": ("dmodels.catalog:workload_names", _workload_facts, _workloads),
}
