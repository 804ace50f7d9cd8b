"""`dmodels.plan`: a capacity plan in one call, from what people have at hand."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from dmodels import catalog
from dmodels.core.errors import InputError, check_number, unknown
from dmodels.core.hardware import SLO
from dmodels.core.units import parse
from dmodels.core.workload import Workload
from dmodels.models.traffic import Trace, read_trace

from . import solve
from .margins import Margins
from .questions import Question, question
from .search import Plan


def plan(
    model: str | Path = "llama-3.1-70b",
    gpus: str | Sequence[str] | Mapping[str, float] = ("h100_sxm", "h200_sxm"),
    workload: str | Path | Trace | Workload | tuple[float, float] = "azure-conv",
    rate: str | float | None = None,
    *,
    ttft: str | float = 2.0,
    tpot: str | float = 0.08,
    e2e: str | float | None = None,
    percentile: float = 0.99,
    headroom: float = 0.0,
    spare: int = 0,
    confidence: float = 0.5,
    ensure: bool | None = None,
    **options: Any,
) -> Plan:
    """What to deploy: how many GPUs, of which kind, split how.

    `model`: a catalogue name, a Hugging Face id or a config.json. `gpus`: types to choose from, or how many there are
    of each. `workload`: the name of a bundled one, a trace or its file, or (input tokens, output tokens). `rate` is in
    req/s and times are in seconds, or text with a unit ("20 req/s", "80 ms"); a trace and a bundled workload have a
    rate of their own. `headroom`, `spare` and `confidence` are what the fleet keeps in hand, `ensure` as in
    `dmodels.studies.plan.plan`, and other options are those of its `Question`.
    """
    inventory = dict(gpus) if isinstance(gpus, Mapping) else None
    rate_rps = None if rate is None else _in(rate, "rate", "req/s")
    whole_s = math.inf if e2e is None else _in(e2e, "e2e", "s")
    check_number("percentile", percentile, 0.5, 1.0, "shares from 0.5 to below 1, like 0.99")
    slo = SLO(_in(ttft, "ttft", "s"), _in(tpot, "tpot", "s"), whole_s, percentile)
    traffic, name = _traffic(workload, rate_rps)
    given: dict[str, Any] = {
        "rate_rps": rate_rps,
        "inventory": inventory,
        "workload_name": name,
        "margins": Margins(headroom, spare, confidence),
    }
    own = list(inspect.signature(plan).parameters)[:-1]
    every = dict.fromkeys([*own, *inspect.signature(question).parameters, *(one.name for one in fields(Question))])
    known = [name for name in every if name in own or name not in {*given, "slo", "options"}]  # it has its own names
    for option in options:
        if option not in known:
            raise unknown("option", option, known)
    if not isinstance(gpus, str | Mapping | Sequence):
        raise InputError(f"gpus = {gpus!r}: accepted are names of types, or how many there are of each")
    chosen = gpus if isinstance(gpus, str) else list(gpus)
    return solve.plan(question(model, chosen, traffic, slo, **given, **options), ensure)


def _in(value: str | float, name: str, unit: str) -> float:
    """In the unit; text has one of its own."""
    if isinstance(value, str):
        try:
            return float(parse(value, unit))
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name} = {value!r:.80}: accepted is a number in {unit}, or text with a unit") from None


def _traffic(workload: Any, rate_rps: float | None) -> tuple[Workload | Trace, str]:
    if isinstance(workload, Trace | Workload):
        return workload, getattr(workload, "name", "workload")
    if isinstance(workload, tuple | list):
        if len(workload) != 2:
            raise InputError(f"workload = {workload}: accepted is (input tokens, output tokens)")
        if rate_rps is None:
            raise InputError("rate: is missing; fixed lengths have no rate of their own")
        isl, osl = (_in(given, "workload", "token") for given in workload)
        return Workload.fixed(isl, osl, rate_rps), f"ISL {isl:g} / OSL {osl:g}"
    if not isinstance(workload, str | Path):
        raise InputError(f"workload = {workload!r:.80}: accepted are a name, a trace or its file, or two lengths")
    if Path(workload).suffix:
        return read_trace(workload), Path(workload).name
    return catalog.workload(str(workload), rate_rps), str(workload)
