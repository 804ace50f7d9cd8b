"""Where KV blocks live: hit rate and latency by tier size, what to buy for a target, what sharing HBM is worth.

The scenario is a TOML file with tables [model], [gpu], [parallel], [tiers.*] and, if you like, [trace], [target],
[sharing] and [policy]. The trace is a Mooncake log: JSON lines with timestamp, input_length, output_length, hash_ids.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dmodels.core.errors import InputError
from dmodels.core.files import write_text
from dmodels.report.text import Table, cell, ms, table

from . import render
from .command import Form, Out, asks, check_output
from .place_scenario import PlaceAsked


@asks(PlaceAsked, scenario="a TOML file; examples/place.toml is one", only=("trace.file",), batches=True)
def command(asked: PlaceAsked, form: Form, scenario: Path, out: Out = None) -> int:
    check_output("out", out, ".png", ".svg", ".html")
    if asked.trace.file is None:
        raise InputError(f"{scenario}: trace.file is missing; give it there or as --trace")
    return form.give(
        asked.call(),
        lambda answer: asked.model_dump(),
        _result,
        _show,
        feasible=lambda answer: answer.feasible,
        write=lambda answer: _draw(answer, out),
    )


TIERS = {
    "tier": "tier",
    "size [GiB]": "size_gib",
    "blocks": "blocks_count",
    "read a block [ms]": lambda row: 1e3 * row.read_s,
    "serves": "served_frac",
    "price [$/GiB]": "usd_per_gib",
}
BUY = {
    "buy": "name",
    "GiB": lambda row: ", ".join(f"{gib:,.4g} {tier}" for tier, gib in row.added_gib.items()) or "nothing",
    "price [$]": "usd",
    "hit rate": "hit_frac",
    "first token [ms]": lambda row: 1e3 * row.first_token_s,
    "saves [$/h]": "saved_usd_per_hour",
    "paid back [h]": "payback_h",
}
LAYOUTS = {
    "layout": "name",
    "hit rate": "hit_frac",
    "first token [ms]": lambda row: 1e3 * row.first_token_s,
    "ceiling": "ceiling_frac",
    "blocks for the pool's hits": "equal_blocks",
    "saves [$/h]": "saved_usd_per_hour",
}
POOLED = {
    "requests": "name",
    "alone [ms]": lambda row: 1e3 * row.isolated_s,
    "pool, each for itself [ms]": lambda row: 1e3 * row.selfish_s,
    "pool, run centrally [ms]": lambda row: 1e3 * row.coordinated_s,
    "no less than [ms]": lambda row: 1e3 * row.bound_s,
    "pooling saves": "pooling_frac:.1%",
    "central placement saves": lambda row: f"{row.coordination_frac:.1%} to {row.coordination_most_frac:.1%}",
}


def _by_size(answer: Any) -> Table:
    """Usable hits, at every second size at which policies were replayed, and the largest."""
    import numpy as np

    c, gib = answer.curves, answer.tiers[0].block_mib / 1024
    at = {size: (int(np.searchsorted(c.blocks, size)), k) for k, size in enumerate(c.replayed_blocks)}
    columns = {
        "blocks": lambda size: size,
        "GiB": lambda size: size * gib,
        "optimum": lambda size: c.belady_frac[at[size][0]],
        "LRU": lambda size: c.usable_frac[at[size][0]],
        "KVBM": lambda size: c.kvbm_usable_frac[at[size][1]],
        "LFU": lambda size: c.lfu_usable_frac[at[size][1]],
        "Che, shuffled": lambda size: c.shuffled_frac[at[size][0]],
        "recomputed [TFLOP/request]": lambda size: c.recomputed_flop[at[size][0]] / 1e12,
        "prefill [ms]": lambda size: 1e3 * c.prefill_s[at[size][0]],
    }
    return table("By cache size", np.unique(np.r_[c.replayed_blocks[::2], c.replayed_blocks[-1]]), columns)


def _tables(answer: Any) -> list[Table]:
    found = [table("Tiers as they are", answer.tiers, TIERS), _by_size(answer)]
    if answer.purchases:
        found.append(table("What to buy", [*([answer.mix] if answer.mix else []), *answer.purchases], BUY))
    if answer.sharing is not None:
        found.append(table(f"HBM of {answer.sharing.workers} workers", answer.sharing.layouts, LAYOUTS))
    if answer.pooled:
        found.append(table("The pool as a game: mean read of a block used before", answer.pooled, POOLED))
    return found


def _summary(answer: Any) -> str:
    limited = sum(row.served_frac for row in answer.tiers if row.size_gib != float("inf"))
    return (
        f"{answer.use.requests_count:,} requests, {answer.use.accesses_count:,} block accesses: {limited:.1%} hit in "
        f"memory of limited size, mean access {ms(answer.access_s)} ms, first token "
        f"{cell(1e3 * answer.first_token_s)} ms (load and prefill, no queue)."
    )


def _notes(answer: Any) -> list[str]:
    return [*answer.notes, *([f"Infeasible: {answer.problem}."] if answer.problem else [])]


def _show(answer: Any) -> None:
    render.say([_summary(answer)])
    render.show(_tables(answer))
    render.say(_notes(answer))


def _result(answer: Any) -> dict[str, Any]:
    """The result as JSON holds it, units in the keys."""
    names = ("feasible", "problem", "use", "tiers", "access_s", "first_token_s", "recomputed_flop", "curves", "vary")
    names += ("promotion", "purchases", "sharing", "pooled", "notes")
    return {name: getattr(answer, name) for name in names} | {"cheapest": answer.mix}


def _draw(answer: Any, out: Path | None) -> None:
    if out is None:
        return
    from dmodels.report import html, place_figures, style

    if out.suffix.lower() != ".html":
        style.save(place_figures.figure(answer), out)
        return
    drawn = html.drawn(answer, place_figures.drawings(answer))
    notes = [_summary(answer), *_notes(answer)]
    write_text(out, html.report("Where KV blocks live", notes, drawn, _tables(answer)))
