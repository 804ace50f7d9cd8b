"""A design space: one pool sized at every point of named axes, to a file and a figure.

The scenario is a TOML file with tables [model], [gpu], [workload], [slo] and, if you like, [traffic], [parallel],
[precision] and [engine]. Axes: model, gpu, tp, pp, dp, ep, weights, kv, workload, input_tokens, output_tokens, rate,
ttft, tpot, e2e, percentile, price, slowdown, and instances (then the pool is evaluated at that size, not sized).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dmodels.core.errors import InputError, unknown
from dmodels.core.units import UNITS, parse, unit_of

from . import render
from .options import Json, ShowPython, check_suffix

#: What a person types -> the argument that it means.
AXES = {
    name: name
    for name in (
        "model",
        "gpu",
        "tp",
        "pp",
        "dp",
        "ep",
        "weights",
        "kv",
        "workload",
        "input_tokens",
        "output_tokens",
        "percentile",
        "slowdown",
        "instances",
    )
}
AXES |= {
    "isl": "input_tokens",
    "osl": "output_tokens",
    "rate": "rate_rps",
    "ttft": "ttft_s",
    "tpot": "tpot_s",
    "e2e": "e2e_s",
    "price": "price_usd_per_hour",
}
#: Arguments whose values are names; the others are numbers.
_NAMES = ("model", "gpu", "weights", "kv", "workload")
_WHOLE = ("tp", "pp", "dp", "ep", "instances")
_PLOTS = ("pareto", "heatmap", "curves")


def command(
    scenario: Annotated[Path, typer.Argument(help="a TOML file; examples/sweep.toml is one", show_default=False)],
    axis: Annotated[list[str], typer.Option(help="like tp=1,2,4,8 or rate=10:10000:log:64; may be repeated")],
    out: Annotated[Path | None, typer.Option(help="write the result: .nc, .zarr, .parquet or .csv")] = None,
    plot: Annotated[str | None, typer.Option(help="draw a figure: pareto, heatmap or curves")] = None,
    figure: Annotated[Path | None, typer.Option(help="the figure's file, .png or .svg [default: beside --out]")] = None,
    output: Annotated[str, typer.Option(help="the output that the figure shows and the table ranks by")] = (
        "cost_usd_per_mtoken"
    ),
    top: Annotated[int, typer.Option(help="rows of the table")] = 10,
    json: Json = False,
    show_python: ShowPython = False,
) -> int:
    axes = _axes(axis)
    if plot is not None and plot not in _PLOTS:
        raise unknown("plot", plot, _PLOTS)
    if plot is not None and figure is None and out is None:
        raise InputError(f"--plot {plot}: a file is missing; accepted is --figure sweep.png, or --out")
    if top < 1:
        raise InputError(f"--top {top}: accepted are whole numbers from 1")
    read = _read(scenario)
    base = _base(read)
    if show_python:
        print(_python(read, base, axes))
        return 0
    from dmodels.design.select import best, explain, pareto
    from dmodels.studies.sweep import sweep_designs

    options = {} if out is None else {"out": out}
    ds = sweep_designs(_scenario(read, base), axes, **options)
    if output not in ds:
        raise unknown("output", output, map(str, ds.data_vars))
    told = explain(ds)
    ends = {} if "tokens_per_s" not in output else {"maximize": output}
    ranked = best(ds, **(ends or {"minimize": output}), within_frac=float("inf")).isel(point=slice(top))
    objectives = {"minimize": "ttft_s"} if output != "ttft_s" else {"minimize": "tpot_s"}
    front = pareto(ds, **(objectives | ends if ends else {"minimize": [output, objectives["minimize"]]}))
    if json:
        inputs = {"scenario": str(scenario), "axes": axes, "base": base}
        print(render.as_json("sweep", inputs, _result(ds, told, ranked, front, out)))
    else:
        _print(axes, output, told, ranked, front)
    if plot is not None:
        _draw(ds, plot, output, figure or out.with_suffix(".png"))
    return 0 if told.feasible_count else 1


def _axes(given: list[str]) -> dict[str, list]:
    axes: dict[str, list] = {}
    for text in given:
        name, equals, values = text.partition("=")
        name = name.strip()
        if not equals:
            raise InputError(f"--axis {text!r}: accepted is NAME=VALUES, like tp=1,2,4,8")
        if name not in AXES and name not in AXES.values():
            raise unknown("axis", name, AXES)
        argument = AXES.get(name, name)
        if argument in axes:
            raise InputError(f"--axis {name}: given twice; accepted is one axis with all its values")
        axes[argument] = _values(name, argument, values)
    return axes


def _values(name: str, argument: str, text: str) -> list:
    """The values that a person means by `1,2,4`, `10:10000:log:64` or `0.5 s:4 s:lin:8`."""
    if not text.strip():
        raise InputError(f"--axis {name}: is empty; accepted are values like 1,2,4 or 10:10000:log:64")
    if argument in _NAMES:
        return [part.strip().replace("as-published", "as published") for part in text.split(",") if part.strip()]
    if ":" not in text:
        values = [_number(name, argument, part) for part in text.split(",") if part.strip()]
    else:
        import numpy as np

        parts = text.split(":")
        if len(parts) != 4 or parts[2].strip() not in ("log", "lin") or not parts[3].strip().isdigit():
            raise InputError(f"--axis {name}={text}: accepted is LOW:HIGH:log:COUNT or LOW:HIGH:lin:COUNT")
        low, high, count = _number(name, argument, parts[0]), _number(name, argument, parts[1]), int(parts[3])
        if not low < high or count < 2 or (parts[2].strip() == "log" and low <= 0):
            raise InputError(f"--axis {name}={text}: accepted are LOW below HIGH (above 0 for log) and COUNT from 2")
        space = np.geomspace if parts[2].strip() == "log" else np.linspace
        values = [float(v) for v in space(low, high, count)]
        if argument in _WHOLE:
            values = sorted({float(round(v)) for v in values})
    if len(set(values)) < len(values):
        raise InputError(f"--axis {name}={text}: a value stands twice; accepted are distinct values")
    return values


def _number(name: str, argument: str, text: str) -> float:
    unit = unit_of(argument)
    try:
        value = float(text)
    except ValueError:
        if unit not in UNITS or unit == "1":
            raise InputError(f"--axis {name}: {text.strip()!r} is not a number; accepted are numbers") from None
        try:
            value = parse(text, unit)
        except InputError as error:
            raise InputError(f"--axis {name}: {error}") from None
    whole = argument in _WHOLE
    if not 0 < value < float("inf") or (whole and value != int(value)) or (argument == "percentile" and value >= 1):
        kind = "whole numbers from 1" if whole else "shares below 1" if argument == "percentile" else "positive numbers"
        raise InputError(f"--axis {name}: {text.strip()} is out of range; accepted are {kind}")
    return value


def _read(path: Path) -> Any:
    from pydantic import Field

    from .scenario import Degree, EngineTable, ModelTable, Rate, Seconds, Table, WorkloadTable, read_scenario

    class GpuTable(Table):
        name: str
        file: str | None = None

    class SloTable(Table):
        ttft: Seconds | None = None
        tpot: Seconds | None = None
        e2e: Seconds | None = None
        percentile: float = Field(0.99, gt=0, lt=1)

    class TrafficTable(Table):
        rate: Rate | None = None

    class ParallelTable(Table):
        tp: Degree = 1
        pp: Degree = 1
        dp: Degree = 1
        ep: Degree = 1

    class PrecisionTable(Table):
        weights: str = "as published"
        kv: str = "as published"

    class SweepScenario(Table):
        model: ModelTable
        gpu: GpuTable
        workload: WorkloadTable
        slo: SloTable = SloTable()
        traffic: TrafficTable = TrafficTable()
        parallel: ParallelTable = ParallelTable()
        precision: PrecisionTable = PrecisionTable()
        engine: EngineTable = EngineTable()

    return read_scenario(path, SweepScenario)


def _base(read: Any) -> dict[str, Any]:
    w = read.workload
    found = {
        "model": read.model.name,
        "gpu": read.gpu.name,
        "workload": w.name,
        "input_tokens": w.input_tokens,
        "output_tokens": w.output_tokens,
        **read.parallel.model_dump(),
        **read.precision.model_dump(),
        "rate_rps": read.traffic.rate,
        "ttft_s": read.slo.ttft,
        "tpot_s": read.slo.tpot,
        "e2e_s": read.slo.e2e,
        "percentile": read.slo.percentile,
    }
    return {name: value for name, value in found.items() if value is not None}


def _scenario(read: Any, base: dict[str, Any]) -> Any:
    from dmodels.core.workload import Workload
    from dmodels.models.instance import Engine
    from dmodels.models.traffic import read_trace
    from dmodels.studies.sweep import Scenario

    trace = None if read.workload.trace is None else Workload.from_trace(read_trace(read.workload.trace))
    engine = Engine(float(read.engine.max_num_seqs), float(read.engine.max_num_batched_tokens))
    return Scenario(base, trace, engine, read.engine.backend, read.gpu.file)


def _rows(points, names: list[str]) -> list[dict[str, Any]]:
    count = points.sizes["point"]
    return [
        {name: points[name].values[i] if points[name].ndim else points[name].item() for name in names}
        for i in range(count)
    ]


def _result(ds, told, ranked, front, out) -> dict[str, Any]:
    names = [*map(str, ds.coords), *map(str, ds.data_vars)]
    return {
        "points_count": told.points_count,
        "feasible_count": told.feasible_count,
        "fell": {flag.name.lower(): count for flag, count in told.fell.items()},
        "best": _rows(ranked, names),
        "pareto": _rows(front, names),
        "file": None if out is None else str(out),
    }


def _print(axes, output, told, ranked, front) -> None:
    print(told)
    shown = dict.fromkeys([*axes, output, "instances", "gpus", "cost_usd_per_hour", "ttft_s", "tpot_s"])
    names = [name for name in shown if name in ranked]
    heads = [f"{name} [{unit}]" if (unit := unit_of(name)) not in ("", "1") else name for name in names]
    cells = [
        [row[name].item() if hasattr(row[name], "item") else row[name] for name in names]
        for row in _rows(ranked, names)
    ]
    if cells:
        render.print_table(f"the best points by {output}", heads, cells)
        print(f"{front.sizes['point']:,} points are on the front of {output} against TTFT")


def _draw(ds, plot: str, output: str, path: Path) -> None:
    import sys

    from dmodels.report import style, sweep_figures

    check_suffix("figure", path, ".png", ".svg", ".pdf")
    style.save(style.paper(getattr(sweep_figures, plot)(ds, output)), path)
    print(f"figure: {path}", file=sys.stderr)


def _python(read: Any, base: dict[str, Any], axes: dict[str, list]) -> str:
    w, e = read.workload, read.engine
    traffic = "None" if w.trace is None else f"Workload.from_trace(read_trace({w.trace!r}))"
    return "\n".join(
        [
            "from dmodels.core.workload import Workload",
            "from dmodels.models.instance import Engine",
            "from dmodels.models.traffic import read_trace",
            "from dmodels.studies.sweep import Scenario, sweep_designs",
            "",
            f"scenario = Scenario({base!r}, {traffic},",
            f"                    Engine({e.max_num_seqs}, {e.max_num_batched_tokens}), {e.backend!r},",
            f"                    {read.gpu.file!r})",
            f"ds = sweep_designs(scenario, {axes!r})",
        ]
    )
