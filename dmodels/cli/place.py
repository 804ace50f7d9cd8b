"""Where KV blocks live: hit rate and latency by tier size, what to buy for a target, what sharing HBM is worth.

The scenario is a TOML file with tables [model], [gpu], [parallel], [tiers.*] and, if you like, [trace], [target],
[sharing] and [policy]. The trace is a Mooncake log: JSON lines with timestamp, input_length, output_length, hash_ids.
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
    scenario: Annotated[Path, typer.Argument(help="a TOML file; examples/place.toml is one", show_default=False)],
    trace: Annotated[Path | None, typer.Option(help="a Mooncake trace, instead of the scenario's")] = None,
    out: Annotated[Path | None, typer.Option(help="write the figures to this .png, .svg or .html file")] = None,
    json: Json = False,
    show_python: ShowPython = False,
) -> int:
    if out is not None:
        check_suffix("out", out, ".png", ".svg", ".html")
    from .place_scenario import PlaceScenario
    from .scenario import read_scenario

    read = read_scenario(scenario, PlaceScenario)
    if trace is None and read.trace.file is None:
        raise InputError(f"{scenario}: trace.file is missing; give it there or as --trace")
    path = str(trace if trace is not None else scenario.parent / read.trace.file)
    if show_python:
        print(_python(read, path))
        return 0
    answer = _answer(read, path)
    if out is not None:
        _draw(answer, out)
    if json:
        print(render.as_json("place", read.model_dump() | {"trace": {"file": path}}, _plain(answer)))
    else:
        _tables(answer)
    return int(not answer.feasible)


def _answer(read: Any, path: str) -> Any:
    from dmodels import Parallel, catalog
    from dmodels.models.traffic import read_trace
    from dmodels.studies.place import Tier, place

    gpu = catalog.gpu(read.gpu.name, read.gpu.file)
    tiers = [Tier("HBM", read.tiers.hbm.size, float(gpu.hbm_bytes_per_s) * read.parallel.tp, 0.0, read.tiers.hbm.price)]
    for name in ("dram", "ssd", "remote"):
        tier = getattr(read.tiers, name)
        if tier is not None:
            label = "remote" if name == "remote" else name.upper()
            tiers.append(Tier(label, tier.size, tier.bandwidth, tier.latency, tier.price))
    return place(
        read_trace(path, repair=read.trace.repair),
        catalog.model(read.model.name),
        gpu,
        Parallel(tp=read.parallel.tp),
        tiers,
        read.target.hit_rate,
        float("inf") if read.target.first_token is None else read.target.first_token,
        read.sharing.workers,
        read.sharing.link,
        read.policy.decay,
    )


def _python(read: Any, path: str) -> str:
    tiers = [
        f'    Tier("HBM", {read.tiers.hbm.size!r}, float(gpu.hbm_bytes_per_s) * {read.parallel.tp}, 0.0, '
        f"{read.tiers.hbm.price!r}),"
    ]
    for name, tier in (("DRAM", read.tiers.dram), ("SSD", read.tiers.ssd), ("remote", read.tiers.remote)):
        if tier is not None:
            size = 'float("inf")' if tier.size == float("inf") else repr(tier.size)
            tiers.append(f"    Tier({name!r}, {size}, {tier.bandwidth!r}, {tier.latency!r}, {tier.price!r}),")
    bound = 'float("inf")' if read.target.first_token is None else repr(read.target.first_token)
    return "\n".join(
        [
            "from dmodels import Parallel, catalog, read_trace",
            "from dmodels.studies.place import place",
            "from dmodels.studies.place import Tier",
            "",
            f"gpu = catalog.gpu({read.gpu.name!r}, {read.gpu.file!r})",
            "tiers = [",
            *tiers,
            "]",
            f"trace = read_trace({path!r}, repair={read.trace.repair})",
            f"answer = place(trace, catalog.model({read.model.name!r}), gpu, Parallel(tp={read.parallel.tp}), tiers,",
            f"               target_hit_frac={read.target.hit_rate!r},",
            f"               target_first_token_s={bound}, workers={read.sharing.workers},",
            f"               link_bytes_per_s={read.sharing.link!r}, decay_s={read.policy.decay!r})",
        ]
    )


TIERS = ["tier", "size [GiB]", "blocks", "read a block [ms]", "serves", "price [$/GiB]"]
SIZES = [
    "blocks",
    "GiB",
    "optimum",
    "LRU",
    "KVBM",
    "LFU",
    "Che, shuffled",
    "recomputed [TFLOP/request]",
    "prefill [ms]",
]
BUY = ["buy", "GiB", "price [$]", "hit rate", "first token [ms]", "saves [$/h]", "paid back [h]"]
LAYOUTS = ["layout", "hit rate", "first token [ms]", "ceiling", "blocks for the pool's hits", "saves [$/h]"]
POOLED = [
    "requests",
    "alone [ms]",
    "pool, each for itself [ms]",
    "pool, run centrally [ms]",
    "no less than [ms]",
    "pooling saves",
    "central placement saves",
]


def _tier_rows(answer: Any) -> list[list[Any]]:
    return [
        [row["tier"], row["size_gib"], row["blocks_count"], 1e3 * row["read_s"], row["served_frac"], row["usd_per_gib"]]
        for row in answer.tiers
    ]


def _size_rows(answer: Any) -> list[list[Any]]:
    """Usable hits, at every second size at which policies were replayed, and the largest."""
    import numpy as np

    c, gib = answer.curves, answer.tiers[0]["block_mib"] / 1024
    at = {size: k for k, size in enumerate(c.replayed_blocks)}
    rows = []
    for size in np.unique(np.r_[c.replayed_blocks[::2], c.replayed_blocks[-1]]):
        i, k = int(np.searchsorted(c.blocks, size)), at[size]
        rows.append(
            [
                size,
                size * gib,
                c.belady_frac[i],
                c.usable_frac[i],
                c.kvbm_usable_frac[k],
                c.lfu_usable_frac[k],
                c.shuffled_frac[i],
                c.recomputed_flop[i] / 1e12,
                1e3 * c.prefill_s[i],
            ]
        )
    return rows


def _buy_rows(answer: Any) -> list[list[Any]]:
    rows = [*([answer.mix] if answer.mix else []), *answer.purchases]
    return [
        [
            row.name,
            ", ".join(f"{gib:,.4g} {tier}" for tier, gib in row.added_gib.items()) or "nothing",
            row.usd,
            row.hit_frac,
            1e3 * row.first_token_s,
            row.saved_usd_per_hour,
            row.payback_h,
        ]
        for row in rows
    ]


def _layout_rows(answer: Any) -> list[list[Any]]:
    return [
        [row.name, row.hit_frac, 1e3 * row.first_token_s, row.ceiling_frac, row.equal_blocks, row.saved_usd_per_hour]
        for row in answer.sharing.layouts
    ]


def _pooled_rows(answer: Any) -> list[list[Any]]:
    return [
        [
            row.name,
            *(1e3 * value for value in (row.isolated_s, row.selfish_s, row.coordinated_s, row.bound_s)),
            f"{row.pooling_frac:.1%}",
            f"{row.coordination_frac:.1%} to {row.coordination_most_frac:.1%}",
        ]
        for row in answer.pooled
    ]


def _sections(answer: Any) -> list[tuple[str, list[str], list[list[Any]]]]:
    found = [("Tiers as they are", TIERS, _tier_rows(answer)), ("By cache size", SIZES, _size_rows(answer))]
    if answer.purchases:
        found.append(("What to buy", BUY, _buy_rows(answer)))
    if answer.sharing is not None:
        found.append((f"HBM of {answer.sharing.workers} workers", LAYOUTS, _layout_rows(answer)))
    if answer.pooled:
        found.append(("The pool as a game: mean read of a block used before", POOLED, _pooled_rows(answer)))
    return found


def _summary(answer: Any) -> str:
    limited = sum(row["served_frac"] for row in answer.tiers if row["size_gib"] != float("inf"))
    return (
        f"{answer.use.requests_count:,} requests, {answer.use.accesses_count:,} block accesses: {limited:.1%} hit in "
        f"memory of limited size, mean access {1e3 * answer.access_s:.3g} ms, first token "
        f"{1e3 * answer.first_token_s:.4g} ms (load and prefill, no queue)."
    )


def _tables(answer: Any) -> None:
    print(_summary(answer))
    for title, head, rows in _sections(answer):
        render.print_table(title, head, rows)
    for note in answer.notes:
        print(note)
    if answer.problem:
        print(f"Infeasible: {answer.problem}.")


def _plain(answer: Any) -> dict[str, Any]:
    """The result as JSON holds it, units in the keys."""
    sharing = answer.sharing
    return {
        "feasible": answer.feasible,
        "problem": answer.problem,
        "use": answer.use._asdict(),
        "tiers": answer.tiers,
        "access_s": answer.access_s,
        "first_token_s": answer.first_token_s,
        "recomputed_flop": answer.recomputed_flop,
        "curves": answer.curves._asdict(),
        "vary": [one._asdict() for one in answer.vary],
        "promotion": answer.promotion._asdict(),
        "purchases": [one._asdict() for one in answer.purchases],
        "cheapest": None if answer.mix is None else answer.mix._asdict(),
        "sharing": None
        if sharing is None
        else sharing._asdict() | {"layouts": [one._asdict() for one in sharing.layouts]},
        "pooled": [one._asdict() for one in answer.pooled],
        "notes": answer.notes,
    }


def _draw(answer: Any, out: Path) -> None:
    from dmodels.report import html, place_figures, style

    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix != ".html":
        style.save(place_figures.figure(answer), out)
        return

    parts = [html.paragraph(_summary(answer), "answer")]
    if answer.problem:
        parts.append(html.paragraph(f"Infeasible: {answer.problem}."))
    parts += [html.paragraph(note) for note in answer.notes]
    made = [
        html.picture(style.figure(lambda axes, draw=draw: draw(answer, axes)), draw.__doc__.rstrip("."), number)
        for number, draw in enumerate(place_figures.drawings(answer))
    ]
    parts.append(html.pictures(made))
    parts += [html.table(*section) for section in _sections(answer)]
    write_text(out, html.page("Where KV blocks live", parts))
