"""One pool or several: what a split at a threshold on total tokens saves, by the paper's formula and exactly."""

from __future__ import annotations

from typing import Annotated

import typer

from dmodels.core.errors import InputError

from . import render
from .options import Json, quantity


def command(
    trace: Annotated[
        str | None, typer.Option(help="traffic: a trace file (Azure, Mooncake, BurstGPT or plain)")
    ] = None,
    workload: Annotated[str, typer.Option(help="traffic: a bundled workload, if no trace is given")] = "azure-paper",
    rate: Annotated[str | None, typer.Option(help='arrivals, like "1000 req/s"; default: the workload\'s own')] = None,
    thresholds: Annotated[str | None, typer.Option(help="total tokens, like 4096,8192; default: powers of two")] = None,
    context: Annotated[
        float | None, typer.Option(help="tokens of the single pool's context; default: what fits all")
    ] = None,
    pools: Annotated[int, typer.Option(help="look for the best thresholds of up to this many pools")] = 3,
    headroom: Annotated[str, typer.Option(help="sizing factors: single, short, long pool")] = "1.08,1.05,1.02",
    iteration: Annotated[
        str, typer.Option(help="iteration time W,H: without sequences, and more for each")
    ] = "8 ms,0.65 ms",
    blocks: Annotated[float, typer.Option(help="KV blocks of 16 tokens per instance")] = 65536,
    max_sequences: Annotated[float, typer.Option(help="the scheduler's cap on running sequences")] = 128,
    gpus: Annotated[int, typer.Option(help="GPUs per instance")] = 2,
    price: Annotated[str | None, typer.Option(help='price of one GPU, like "2.21 $/h"')] = None,
    repair: Annotated[
        bool, typer.Option(help="mend the trace: sort it, drop unreadable lines and empty requests")
    ] = False,
    json: Json = False,
    show_python: Annotated[
        bool, typer.Option("--show-python", help="print the library call instead of running it")
    ] = False,
) -> int:
    base, step = _list("iteration", iteration, lambda text: quantity("iteration", text, "s"), 2)
    factors = _list("headroom", headroom, _number, 3)
    limits = None if thresholds is None else _list("thresholds", thresholds, _number)
    rate_rps = None if rate is None else quantity("rate", rate, "req/s")
    dollars = float("nan") if price is None else quantity("price", price, "USD/h")
    for name, value in (
        ("blocks", blocks),
        ("max-sequences", max_sequences),
        ("gpus", gpus),
        ("headroom", min(factors)),
        ("iteration", min(base, step)),
    ):
        if not value > 0:
            raise InputError(f"--{name} {value:g}: accepted are positive numbers")
    if show_python:
        print(
            _python(
                trace,
                workload,
                limits,
                rate_rps,
                context,
                (base, step, blocks, max_sequences),
                factors,
                pools,
                gpus,
                dollars,
                repair,
            )
        )
        return 0

    from dmodels.catalog import workload as bundled
    from dmodels.core.workload import Workload
    from dmodels.models.pooling import Engine, Headroom
    from dmodels.models.traffic import read_trace
    from dmodels.studies.pools import pool_study

    read = read_trace(trace, repair=repair) if trace else None
    if read:
        for notice in read.notices:
            typer.echo(f"dmodels: {read.name}: {notice}", err=True)
    traffic = Workload.from_trace(read, rate_rps) if read else bundled(workload)
    engine = Engine(base, step, blocks, 16, max_sequences)
    study = pool_study(traffic, limits, rate_rps, context, engine, Headroom(*factors), pools, gpus, dollars)
    if json:
        inputs = {
            "trace": trace,
            "workload": None if trace else workload,
            "rate_rps": study.rate_rps,
            "context_tokens": study.context_tokens,
            "headroom": dict(zip(("single", "short", "long"), factors, strict=True)),
            "base_s": base,
            "per_sequence_s": step,
            "blocks_count": blocks,
            "max_sequences_count": max_sequences,
            "gpus_per_instance": gpus,
            "price_usd_per_hour": dollars,
            "notices": read.notices if read else (),
        }
        print(render.as_json("pools", inputs, _result(study)))
    else:
        _show(study, trace or workload, gpus)
    return 0


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
        "reasons": study.reasons,
    }


def _show(study, name: str, gpus: int) -> None:
    homo = float(study.savings.homo_instances_count)
    priced = study.single_usd_per_year == study.single_usd_per_year
    head = [
        "threshold",
        "slots",
        "requests",
        "work",
        "short",
        "long",
        "instances",
        "saved: Eq. 7",
        "exact",
        "with headroom",
        "if paged",
    ] + ["$/year"] * priced
    rows = [
        [
            row["threshold_tokens"],
            row["slots_count"],
            *(f"{row[k]:.1%}" for k in ("request_frac", "work_frac")),
            row["short_instances"],
            row["long_instances"],
            row["fleet_instances"],
            *(
                f"{row[k]:.1%}"
                for k in ("paper_eq7_frac", "exact_frac", "with_headroom_and_ceilings_frac", "paged_frac")
            ),
        ]
        + [row["fleet_usd_per_year"]] * priced
        for row in _rows(study)
    ]
    money = f", {study.single_usd_per_year:,.0f} $/year" if priced else ""
    render.print_table(
        f"{name} at {study.rate_rps:,.4g} req/s. One pool of {study.context_tokens:,.0f} tokens: "
        f"{study.slots_single:.0f} slots, {homo:,.0f} instances = {homo * gpus:,.0f} GPUs{money}",
        head,
        rows,
    )
    best = [
        [
            b["pools_count"],
            " / ".join(f"{t:,.0f}" for t in b["threshold_tokens"]),
            " / ".join(f"{n:.0f}" for n in b["slots_count"]),
            " / ".join(f"{w:.1%}" for w in b["work_frac"]),
            f"{b['exact_frac']:.1%}",
        ]
        for b in _best(study)
    ]
    render.print_table("Best thresholds, of all", ["pools", "contexts", "slots", "work", "saved: exact"], best)
    for reason in study.reasons:
        print(f"- {reason}")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{text!r}: accepted is a number") from None


def _list(name: str, text: str, one, count: int | None = None) -> list[float]:
    values = [one(part.strip()) for part in text.split(",")]
    if count is not None and len(values) != count:
        raise InputError(f"--{name} {text!r}: accepted are {count} values with commas between them")
    return values


def _python(trace, workload, limits, rate, context, engine, factors, pools, gpus, dollars, repair) -> str:
    source = f"Workload.from_trace(read_trace({trace!r}, repair={repair}))" if trace else f"workload({workload!r})"
    price = "float('nan')" if dollars != dollars else repr(dollars)
    base, step, blocks, cap = engine
    return "\n".join(
        [
            "from dmodels import Workload, read_trace" if trace else "from dmodels.catalog import workload",
            "from dmodels.models.pooling import Engine, Headroom",
            "from dmodels.studies.pools import pool_study",
            "",
            f"engine = Engine({base!r}, {step!r}, {blocks!r}, 16, {cap!r})",
            f"headroom = Headroom({', '.join(map(repr, factors))})",
            f"traffic = {source}",
            f"arguments = ({limits!r}, {rate!r}, {context!r}, engine, headroom, {pools!r}, {gpus!r}, {price})",
            "study = pool_study(traffic, *arguments)",
        ]
    )
