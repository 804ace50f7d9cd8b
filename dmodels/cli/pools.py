"""One pool or several: what a split at a threshold on total tokens saves, by the paper's formula and exactly."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from dmodels.core.units import counted
from dmodels.report.text import cell, table

from . import render
from .calls import Code, call
from .command import Form, asks
from .schema import Degree, FileName, Positive, Price, Rate, Seconds, Table, flag, several

Law = Annotated[tuple[Seconds, Seconds], BeforeValidator(several)]
Factors = Annotated[tuple[Positive, Positive, Positive], BeforeValidator(several)]
Compressor = Annotated[tuple[Positive, Positive, float], BeforeValidator(several)]


class PoolsAsked(Table):
    """Traffic, instances, and the thresholds to try."""

    trace: FileName | None = flag(None, "traffic: a trace file (Azure, Mooncake, BurstGPT, plain, or an access log)")
    workload: str | None = flag(None, "traffic: a bundled workload [default: azure-paper]")
    rate_rps: Rate | None = flag(None, 'arrivals, like "1000 req/s"; default: the workload\'s own', "--rate")
    thresholds: Annotated[list[float], BeforeValidator(several), Field(min_length=1)] | None = flag(
        None, "total tokens, like 4096,8192; default: powers of two"
    )
    context_tokens: float | None = flag(
        None, "tokens of the single pool's context; default: what fits all", "--context"
    )
    pools: Annotated[int, Field(ge=2)] = flag(
        3, "look for the best thresholds of up to this many pools, while each saves 0.1 % more"
    )
    headroom: Factors = flag("1.08,1.05,1.02", "sizing factors: single, short, long pool")
    iteration: Law = flag("8 ms,0.65 ms", "iteration time W,H: without sequences, and more for each")
    blocks_count: Positive = flag(65536, "KV blocks of 16 tokens per instance", "--blocks")
    max_sequences_count: Annotated[float, Field(gt=0, le=1e6)] = flag(
        128, "the scheduler's cap on running sequences", "--max-sequences"
    )
    gpus_per_instance: Degree = flag(2, "GPUs per instance", "--gpus")
    price_usd_per_hour: Price | None = flag(None, 'price of one GPU, like "2.21 $/h"', "--price")
    compress: Compressor | None = flag(
        None,
        "prompts just above a threshold: least share that remains, tokens/s of a compressor, its price in instances",
    )
    repair: bool = flag(False, "mend the trace: sort it, drop unreadable lines and empty requests")

    @model_validator(mode="after")
    def _one_traffic(self):
        if self.trace and self.workload:
            raise ValueError("--trace and --workload: give one of them")
        return self

    @property
    def traffic(self) -> str:
        """What arrives, by name."""
        return self.trace or self.workload or "azure-paper"

    def call(self) -> Code:
        """The library call."""
        if self.trace:
            read = call("dmodels:read_trace", self.trace, repair=self.repair or None)
            workload = call("dmodels:Workload.from_trace", read)
        else:
            workload = call("dmodels:catalog.workload", self.traffic)
        limits = self.blocks_count, 16, self.max_sequences_count
        return call(
            "dmodels.studies.pools:pool_study",
            workload,
            threshold_tokens=self.thresholds,
            rate_rps=self.rate_rps,
            context_tokens=self.context_tokens,
            engine=call("dmodels.models.pooling:SlotEngine", *self.iteration, *limits),
            headroom=call("dmodels.models.pooling:Headroom", *self.headroom),
            pools_count=self.pools,
            gpus_per_instance=self.gpus_per_instance,
            price_usd_per_hour=self.price_usd_per_hour,
            compression=self.compress and call("dmodels.models.compression:Compression", *self.compress),
        )

    def inputs(self, study: Any) -> dict[str, Any]:
        """What was asked, with what follows from it."""
        return self.model_dump(exclude={"iteration"}) | {
            "workload": None if self.trace else self.traffic,
            "rate_rps": study.rate_rps,
            "context_tokens": study.context_tokens,
            "headroom": dict(zip(("single", "short", "long"), self.headroom, strict=True)),
            "base_s": self.iteration[0],
            "per_sequence_s": self.iteration[1],
        }


@asks(PoolsAsked)
def command(asked: PoolsAsked, form: Form) -> int:
    made = asked.call()
    notices = lambda: [line for value in made.values() for line in getattr(value, "notices", ())]
    return form.give(
        made, lambda study: asked.inputs(study) | {"notices": notices()}, _result, lambda study: _show(study, asked)
    )


def _rows(study) -> list[dict]:
    s = study.savings
    columns = {
        "threshold_tokens": study.threshold_tokens,
        "slots_count": study.slots_short,
        "request_frac": study.short.request_frac,
        "work_frac": study.short.work_frac,
        "short_instances": s.short_instances_count,
        "long_instances": s.long_instances_count,
        "fleet_instances": s.dual_instances_count,
        "paper_eq7_frac": s.ideal_frac,
        "paper_eq8_frac": s.routed_frac,
        "exact_frac": study.law_frac,
        "with_headroom_and_ceilings_frac": s.realized_frac,
        "paged_frac": study.paged_frac,
        "compressed_frac": study.compressed_frac,
        "compressed_instances": study.compressed_instances_count,
        "fleet_usd_per_year": study.usd_per_year,
        "flags": s.flags,
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _best(study) -> list[dict]:
    return [
        {
            "pools_count": len(b.threshold_tokens),
            "threshold_tokens": b.threshold_tokens,
            "slots_count": b.slots_count,
            "work_frac": b.work_frac,
            "exact_frac": b.saved_frac,
        }
        for b in study.best
    ]


def _result(study) -> dict:
    single = {
        "context_tokens": study.context_tokens,
        "slots_count": study.slots_single,
        "fleet_instances": float(study.savings.homo_instances_count),
        "fleet_usd_per_year": study.single_usd_per_year,
    }
    return {
        "single": single,
        "thresholds": _rows(study),
        "best": _best(study),
        "forgiving_tokens": study.forgiving_tokens,
        "reasons": study.notes,
    }


SPLITS = {
    "threshold": "threshold_tokens",
    "slots": "slots_count",
    "requests": "request_frac:.1%",
    "work": "work_frac:.1%",
    "short": "short_instances",
    "long": "long_instances",
    "instances": "fleet_instances",
    "saved: Eq. 7": "paper_eq7_frac:.1%",
    "exact": "exact_frac:.1%",
    "with headroom": "with_headroom_and_ceilings_frac:.1%",
    "if paged": "paged_frac:z.1%",
}
BEST = {
    "pools": "pools_count",
    "contexts": lambda row: " / ".join(f"{t:,.0f}" for t in row["threshold_tokens"]),
    "slots": lambda row: " / ".join(f"{n:.0f}" for n in row["slots_count"]),
    "work": lambda row: " / ".join(f"{w:.1%}" for w in row["work_frac"]),
    "saved: exact": "exact_frac:.1%",
}


def _show(study, asked: PoolsAsked) -> None:
    instances = float(study.savings.homo_instances_count)
    priced = asked.price_usd_per_hour is not None
    money = f", {study.single_usd_per_year:,.0f} $/year" if priced else ""
    title = (
        f"{asked.traffic} at {cell(study.rate_rps)} req/s. One pool of {study.context_tokens:,.0f} tokens: "
        f"{study.slots_single:.0f} slots, {counted(int(instances), 'instance')} = "
        f"{counted(int(instances) * asked.gpus_per_instance, 'GPU')}{money}"
    )
    shrunk = {"compressed": "compressed_frac:.1%", "instances then": "compressed_instances"} if asked.compress else {}
    columns = SPLITS | shrunk | ({"$/year": "fleet_usd_per_year"} if priced else {})
    render.show([table(title, _rows(study), columns), table("Best thresholds, of all", _best(study), BEST)])
    render.say(f"- {note}" for note in study.notes)
