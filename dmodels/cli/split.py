"""How many GPUs for prefill and how many for decode: the selfish split, the best one, and whole workers.

The scenario is a TOML file with tables [model], [gpu], [parallel], [workload], [slo] and, if you like, [traffic].
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dmodels.core.errors import InputError
from dmodels.core.files import write_text

from . import render
from .options import Json, ShowPython, check_suffix


def command(
    scenario: Annotated[Path, typer.Argument(help="a TOML file; examples/split.toml is one", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="write the figures to this .png, .svg or .html file")] = None,
    json: Json = False,
    show_python: ShowPython = False,
) -> int:
    if out is not None:
        check_suffix("out", out, ".png", ".svg", ".html")
    asked = _schema()
    read = _read(scenario, asked)
    if show_python:
        print(_python(read))
        return 0
    from dmodels.core.flags import describe, usable
    from dmodels.studies.split import split

    answer = split(*_records(read), burst=read.traffic.burst)
    if out is not None:
        _draw(answer, out)
    infeasible = not usable(int(answer.whole.flags))
    if json:
        print(render.as_json("split", read.model_dump(), _plain(answer)))
        return int(infeasible)
    if infeasible:
        print(f"No split: {describe(int(answer.whole.flags))}.")
    _tables(answer)
    return int(infeasible)


def _schema() -> Any:
    from .scenario import Degree, GpuTable, ModelTable, SloTable, Table, TrafficTable, WorkloadTable

    class ParallelTable(Table):
        """[parallel]: tensor parallelism of one worker of each kind."""

        prefill_tp: Degree = 1
        decode_tp: Degree = 1

    class SplitScenario(Table):
        model: ModelTable
        gpu: GpuTable
        parallel: ParallelTable = ParallelTable()
        workload: WorkloadTable
        slo: SloTable
        traffic: TrafficTable = TrafficTable()

    return SplitScenario


def _read(path: Path, schema: Any) -> Any:
    from .scenario import read_scenario

    return read_scenario(path, schema)


def _records(read: Any):
    """(model, gpu, workload, slo, budget, prefill, decode) of a scenario."""
    from dmodels import SLO, Parallel, catalog
    from dmodels.core.workload import Workload
    from dmodels.models.traffic import read_trace

    w, rate = read.workload, read.traffic.rate
    if w.name is not None:
        traffic = catalog.workload(w.name, rate)
    elif w.trace is not None:
        traffic = Workload.from_trace(read_trace(w.trace), rate)
    elif rate is None:
        raise InputError("traffic.rate is missing: fixed lengths have no rate of their own")
    else:
        traffic = Workload.fixed(w.input_tokens, w.output_tokens, rate)
    return (
        catalog.model(read.model.name),
        catalog.gpu(read.gpu.name, read.gpu.file),
        traffic,
        SLO(ttft_s=read.slo.ttft, tpot_s=read.slo.tpot),
        float(read.gpu.count),
        Parallel(tp=read.parallel.prefill_tp),
        Parallel(tp=read.parallel.decode_tp),
    )


def _python(read: Any) -> str:
    w, rate = read.workload, read.traffic.rate
    if w.name is not None:
        traffic = f"catalog.workload({w.name!r}, {rate!r})"
    elif w.trace is not None:
        traffic = f"Workload.from_trace(read_trace({w.trace!r}), {rate!r})"
    else:
        traffic = f"Workload.fixed({w.input_tokens:g}, {w.output_tokens:g}, {rate!r})"
    return "\n".join(
        [
            "from dmodels import SLO, Parallel, catalog",
            "from dmodels.core.workload import Workload",
            "from dmodels.models.traffic import read_trace",
            "from dmodels.studies.split import split",
            "",
            f"answer = split(catalog.model({read.model.name!r}), catalog.gpu({read.gpu.name!r}, {read.gpu.file!r}),",
            f"               {traffic},",
            f"               SLO(ttft_s={read.slo.ttft:g}, tpot_s={read.slo.tpot:g}), {read.gpu.count},",
            f"               Parallel(tp={read.parallel.prefill_tp}), Parallel(tp={read.parallel.decode_tp}),",
            f"               burst={read.traffic.burst:g})",
        ]
    )


def _rows(answer: Any) -> list[list[Any]]:
    rows = []
    for name, value in (("equilibrium", answer.equilibrium.value), ("optimum", answer.optimum.value)):
        numbers = (value.prefill_gpus, value.decode_gpus, value.ttft_violation_frac, value.itl_violation_frac)
        rows.append([name, *map(float, numbers)])
    value = answer.whole.value
    if answer.whole.flags == 0:
        label = f"whole workers: {int(value.prefill_instances)} + {int(value.decode_instances)}"
        numbers = (value.prefill_gpus, value.decode_gpus, value.ttft_violation_frac, value.itl_violation_frac)
        rows.append([label, *map(float, numbers)])
    return rows


HEAD = ["split", "prefill [GPU]", "decode [GPU]", "TTFT misses", "ITL misses"]
PLANNERS = ["planner", "late requests", "workers moved", "worst wait [s]", "recovery [s]"]


def _tables(answer: Any) -> None:
    render.print_table("Prefill/decode split", HEAD, _rows(answer))
    for note in _notes(answer):
        print(note)
    if answer.scores:
        render.print_table("Planners on a ten-minute burst", PLANNERS, _planner_rows(answer))


def _planner_rows(answer: Any) -> list[list[Any]]:
    rows = []
    for name, s in answer.scores.items():
        rows.append([name, float(s.violation_frac), float(s.moves_count), float(s.worst_wait_s), float(s.recovery_s)])
    return rows


def _notes(answer: Any) -> list[str]:
    import numpy as np

    notes = list(answer.notes)
    if np.isfinite(answer.loss_frac):
        notes.append(f"The equilibrium costs {answer.loss_frac:.2%} more violations than the optimum.")
    if np.isfinite(answer.slope_gpus_per_rps) and answer.slope_gpus_per_rps:
        notes.append(f"One more request per second moves the optimum by {answer.slope_gpus_per_rps:+.3g} prefill GPUs.")
    return notes


def _plain(answer: Any) -> dict[str, Any]:
    """The result as JSON holds it, units in the keys."""

    def record(value):
        return {name: float(leaf) for name, leaf in vars(value).items()}

    certificate = answer.equilibrium.certificate
    return {
        "equilibrium": record(answer.equilibrium.value) | {"flags": int(answer.equilibrium.flags)},
        "equilibria_prefill_gpus": [float(x) for x in certificate["equilibria_gpus"] if x == x],
        "kkt_residual": float(certificate["kkt_residual"]),
        "optimum": record(answer.optimum.value),
        "whole_workers": record(answer.whole.value) | {"flags": int(answer.whole.flags)},
        "integrality_gap": float(answer.whole.certificate["integrality_gap"]),
        "loss_frac": answer.loss_frac,
        "optimum_slope_gpus_per_rps": answer.slope_gpus_per_rps,
        "planners": {name: {k: float(v) for k, v in s._asdict().items()} for name, s in answer.scores.items()},
        "notes": answer.notes,
    }


def _draw(answer: Any, out: Path) -> None:
    from dmodels.report.split_figures import figure

    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix != ".html":
        figure(answer).savefig(out, dpi=130)
        return
    from dmodels.report import html

    parts = [html.paragraph(note) for note in _notes(answer)]
    parts.append(html.table("Splits", HEAD, _rows(answer)))
    parts.append(html.picture(figure(answer), "Violation rates, marginals, and planners in a burst", 1))
    if answer.scores:
        parts.append(html.table("Planners on a ten-minute burst", PLANNERS, _planner_rows(answer)))
    write_text(out, html.page("Prefill/decode split", parts))
