"""How many GPUs for prefill and how many for decode: the selfish split, the best one, and whole workers.

The scenario is a TOML file with tables [model], [gpu], [parallel], [workload], [slo] and, if you like, [traffic].
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from dmodels.core.files import write_text
from dmodels.report.text import Table as Shown
from dmodels.report.text import share, table

from . import render
from .calls import Code, call
from .command import Form, Out, asks, check_output
from .plan_inputs import traffic_call
from .schema import Degree, GpuTable, ModelTable, Seconds, Table, TrafficTable, WorkloadTable


class CountedGpu(GpuTable):
    """[gpu]: what kind and how many."""

    count: Annotated[int, Field(ge=1, le=1_000_000)]


class ParallelTable(Table):
    """[parallel]: tensor parallelism of one worker of each kind."""

    prefill_tp: Degree = 1
    decode_tp: Degree = 1


class SloTable(Table):
    """[slo]: bounds that requests should keep."""

    ttft: Seconds
    tpot: Seconds


class BurstTable(TrafficTable):
    """[traffic]: the arrival rate, and how much higher a burst is."""

    burst: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 1.5


class SplitAsked(Table):
    """The whole file."""

    model: ModelTable
    gpu: CountedGpu
    parallel: ParallelTable = ParallelTable()
    workload: WorkloadTable
    slo: SloTable
    traffic: BurstTable = BurstTable()

    def call(self) -> Code:
        """The library call."""
        return call(
            "dmodels.studies.split:split",
            call("dmodels:catalog.model", self.model.name),
            call("dmodels:catalog.gpu", self.gpu.name, self.gpu.file),
            traffic_call(self.workload, self.traffic.rate)[0],
            call("dmodels:SLO", ttft_s=self.slo.ttft, tpot_s=self.slo.tpot),
            budget_gpus=self.gpu.count,
            prefill=call("dmodels:Parallel", tp=self.parallel.prefill_tp),
            decode=call("dmodels:Parallel", tp=self.parallel.decode_tp),
            burst=self.traffic.burst,
        )


@asks(SplitAsked, scenario="a TOML file; examples/split.toml is one", batches=True)
def command(asked: SplitAsked, form: Form, out: Out = None) -> int:
    check_output("out", out, ".png", ".svg", ".html")
    return form.give(
        asked.call(),
        lambda answer: asked.model_dump(),
        _result,
        _show,
        feasible=_feasible,
        write=lambda answer: _draw(answer, out),
    )


def _feasible(answer: Any) -> bool:
    from dmodels.core.flags import usable

    return bool(usable(int(answer.whole.flags)))


def _late(frac: float) -> str:
    """A share of late requests; what nobody can measure is not told digit by digit."""
    return share(frac) if frac >= 1e-5 or frac == 0 else "under 0.001%"


def _tables(answer: Any) -> list[Shown]:
    found = [("equilibrium", answer.equilibrium.value), ("optimum", answer.optimum.value)]
    whole = answer.whole.value
    if answer.whole.flags == 0:
        found.append((f"whole workers: {int(whole.prefill_instances)} + {int(whole.decode_instances)}", whole))
    heads = {
        "prefill [GPU]": "prefill_gpus",
        "decode [GPU]": "decode_gpus",
        "TTFT misses": "ttft_violation_frac",
        "ITL misses": "itl_violation_frac",
    }
    rows = []
    for name, value in found:
        numbers = [float(getattr(value, key)) for key in heads.values()]
        rows.append([name, *numbers[:2], *map(_late, numbers[2:])])
    tables: list[Shown] = [("Prefill/decode split", ["split", *heads], rows)]
    if answer.scores:
        columns = {
            "planner": lambda item: item[0],
            "late requests": lambda item: _late(float(item[1].violation_frac)),
            "workers moved": lambda item: float(item[1].moves_count),
            "worst wait [s]": lambda item: float(item[1].worst_wait_s),
            "recovery [s]": lambda item: float(item[1].recovery_s),
        }
        tables.append(table("Planners on a ten-minute burst", answer.scores.items(), columns))
    return tables


def _notes(answer: Any) -> list[str]:
    import numpy as np

    from dmodels.core.flags import describe

    notes = [] if _feasible(answer) else [f"No split: {describe(int(answer.whole.flags))}."]
    notes += answer.notes
    if np.isfinite(answer.loss_frac):
        notes.append(f"The equilibrium costs {answer.loss_frac:.2%} more violations than the optimum.")
    if np.isfinite(answer.slope_gpus_per_rps) and answer.slope_gpus_per_rps:
        notes.append(f"One more request per second moves the optimum by {answer.slope_gpus_per_rps:+.3g} prefill GPUs.")
    return notes


def _show(answer: Any) -> None:
    render.say(_notes(answer))
    render.show(_tables(answer))


def _result(answer: Any) -> dict[str, Any]:
    """The result as JSON holds it, units in the keys."""
    certificate = answer.equilibrium.certificate
    return {
        "equilibrium": vars(answer.equilibrium.value) | {"flags": answer.equilibrium.flags},
        "equilibria_prefill_gpus": [float(x) for x in certificate["equilibria_gpus"] if x == x],
        "kkt_residual": certificate["kkt_residual"],
        "optimum": vars(answer.optimum.value),
        "whole_workers": vars(answer.whole.value) | {"flags": answer.whole.flags},
        "integrality_gap": answer.whole.certificate["integrality_gap"],
        "loss_frac": answer.loss_frac,
        "optimum_slope_gpus_per_rps": answer.slope_gpus_per_rps,
        "planners": answer.scores,
        "notes": answer.notes,
    }


def _draw(answer: Any, out: Path | None) -> None:
    if out is None:
        return
    from dmodels.report import html, split_figures, style

    if out.suffix.lower() == ".html":
        drawn = html.drawn(answer, split_figures.DRAWINGS)
        write_text(out, html.report("Prefill/decode split", _notes(answer), drawn, _tables(answer)))
    else:
        style.save(split_figures.figure(answer), out)
