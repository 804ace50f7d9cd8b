"""A design space: one pool sized at every point of named axes, to a file and a figure.

The scenario is a TOML file with tables [model], [gpu], [workload], [slo] and, if you like, [traffic], [parallel],
[precision] and [engine]. Axes: model, gpu, tp, pp, dp, ep, weights, kv, workload, input_tokens, output_tokens, rate,
ttft, tpot, e2e, percentile, price, slowdown, and instances (then the pool is evaluated at that size, not sized).

Sizes are those of the closed forms, for Poisson arrivals and random routing; `dmodels plan` replays arrivals where that
takes fewer GPUs, or more.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import Field

from dmodels.core.errors import InputError, unknown
from dmodels.core.precision import Precision
from dmodels.core.units import counted
from dmodels.report.text import table

from . import render
from .calls import Code, call
from .command import Form, asks, check_output
from .plan_inputs import engine_call
from .schema import (
    CalibrationTable,
    Degree,
    EngineTable,
    GpuTable,
    ModelTable,
    PrecisionName,
    Seconds,
    Table,
    TrafficTable,
    WorkloadTable,
)
from .sweep_axes import read_axes

_PLOTS = ("pareto", "heatmap", "curves")
_AXIS = "like tp=1,2,4,8 or rate=10:10000:log:64; may be repeated"
_OUTPUT = "the output that the figure shows and the table ranks by"


class SloTable(Table):
    """[slo]: bounds that a share `percentile` of requests keeps; none is needed."""

    ttft: Seconds | None = None
    tpot: Seconds | None = None
    e2e: Seconds | None = None
    percentile: float = Field(0.99, gt=0, lt=1)


class ParallelTable(Table):
    """[parallel]: the layout, where it is not an axis."""

    tp: Degree = 1
    pp: Degree = 1
    dp: Degree = 1
    ep: Degree = 1


class PrecisionTable(Table):
    """[precision]: of weights and KV cache, where they are not axes."""

    weights: PrecisionName = Precision.AS_PUBLISHED
    kv: PrecisionName = Precision.AS_PUBLISHED


class SweepAsked(Table):
    """The whole file."""

    model: ModelTable
    gpu: GpuTable
    workload: WorkloadTable
    slo: SloTable = SloTable()
    traffic: TrafficTable = TrafficTable()
    parallel: ParallelTable = ParallelTable()
    precision: PrecisionTable = PrecisionTable()
    engine: EngineTable = EngineTable()
    measured: CalibrationTable = CalibrationTable()

    def base(self) -> dict[str, Any]:
        """The point that the axes go out from."""
        w, slo = self.workload, self.slo
        found = {
            "model": self.model.name,
            "gpu": self.gpu.name,
            "workload": w.name,
            "input_tokens": w.input_tokens,
            "output_tokens": w.output_tokens,
            **self.parallel.model_dump(),
            **self.precision.model_dump(),
            "rate_rps": self.traffic.rate,
            "ttft_slo_s": slo.ttft,
            "tpot_slo_s": slo.tpot,
            "e2e_slo_s": slo.e2e,
            "percentile": slo.percentile,
        }
        return {name: value for name, value in found.items() if value is not None}

    def call(self, axes: dict[str, list], output: str, top: int, out: Path | None) -> Code:
        """The library call."""
        trace = self.workload.trace
        scenario = call(
            "dmodels.studies.sweep:Scenario",
            self.base(),
            trace and call("dmodels:Workload.from_trace", call("dmodels:read_trace", trace)),
            engine_call(self.engine),
            self.engine.backend,
            gpu_file=self.gpu.file,
            measured=self.measured.calibration and call("dmodels.fit.refit:read_own", self.measured.calibration),
            label="scenario",
        )
        return call(
            "dmodels.studies.sweep:sweep_designs",
            scenario,
            axes,
            output=output,
            top=top,
            out=None if out is None else str(out),
        )


@asks(SweepAsked, scenario="a TOML file; examples/sweep.toml is one", only=("measured.calibration",), batches=True)
def command(
    asked: SweepAsked,
    form: Form,
    scenario: Path,
    axis: Annotated[list[str], typer.Option(help=_AXIS)],
    out: Annotated[Path | None, typer.Option(help="write the result: .nc, .zarr, .parquet, .arrow or .csv")] = None,
    plot: Annotated[str | None, typer.Option(help="draw a figure: pareto, heatmap or curves")] = None,
    figure: Annotated[Path | None, typer.Option(help="the figure's file, .png or .svg [default: beside --out]")] = None,
    output: Annotated[str, typer.Option(help=_OUTPUT)] = "cost_usd_per_mtoken",
    top: Annotated[int, typer.Option(help="rows of the table", min=1)] = 10,
) -> int:
    axes = read_axes(axis)
    check_output("out", out, folder=out is not None and out.suffix == ".zarr")
    picture = _picture(plot, figure, out, axes)
    return form.give(
        asked.call(axes, output, top, out),
        lambda answer: {"scenario": str(scenario), "axes": axes, "base": asked.base()},
        lambda answer: answer.to_dict(),
        lambda answer: _show(answer, axes, asked.base()),
        feasible=lambda answer: answer.feasible_count > 0,
        write=lambda answer: _draw(answer, plot, picture),
    )


def _picture(plot: str | None, figure: Path | None, out: Path | None, axes: dict[str, list]) -> Path | None:
    """The file of the figure; what cannot be drawn is known before anything is computed."""
    if plot is None:
        if figure is not None:
            raise InputError(f"--figure {figure}: --plot is missing; accepted are {', '.join(_PLOTS)}")
        return None
    if plot not in _PLOTS:
        raise unknown("plot", plot, _PLOTS)
    if figure is None and out is None:
        raise InputError(f"--plot {plot}: a file is missing; accepted is --figure sweep.png, or --out")
    if plot == "heatmap" and len(axes) < 2:
        raise InputError(f"--plot heatmap: needs two axes; {len(axes)} given, which --plot curves draws")
    if plot == "curves" and all(isinstance(values[0], str) for values in axes.values()):
        raise InputError(f"--plot curves: needs an axis of numbers; given are {', '.join(axes)}")
    path = figure or out.with_suffix(".png")
    check_output("figure", path, ".png", ".svg", ".pdf")
    return path


def _show(answer: Any, axes: dict[str, list], base: dict[str, Any]) -> None:
    print(answer.explanation)
    if not answer.best:
        print("Of every point: " + ", ".join(f"{name} = {value}" for name, value in base.items() if name not in axes))
        return
    shown = dict.fromkeys([*axes, answer.output, "instances", "gpus", "cost_usd_per_hour", "ttft_s", "tpot_s"])
    heads = {answer.label(name): name for name in shown if name in answer.best[0]}
    by = answer.label(answer.output).partition(" [")[0]
    render.show([table(f"the best points by {by}", answer.best, heads)])
    print(f"{counted(len(answer.pareto), 'point')} on the front of {by} against TTFT")


def _draw(answer: Any, plot: str | None, path: Path | None) -> None:
    if path is None or plot is None:
        return
    from dmodels.report import style, sweep_figures

    style.save(style.paper(getattr(sweep_figures, plot)(answer.to_xarray(), answer.output)), path)
    print(f"figure: {path}", file=sys.stderr)
