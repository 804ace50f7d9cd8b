"""KV transfer between prefill and decode: its share of TTFT, which policy and which upgrade pay, stale telemetry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from dmodels.report.text import table

from . import render
from .calls import Code, call
from .command import Form, asks, check_output

SCENARIO = "scenario file (TOML); an empty one is NetKV's cluster under RAG"
Column = str | Callable[[Any], Any]
Figures = Annotated[Path | None, typer.Option(help="write the figures to this file (png, pdf or svg)")]


@asks("dmodels.studies.transfer:TransferScenario", scenario=SCENARIO)
def command(asked: Any, form: Form, out: Figures = None) -> int:
    check_output("out", out, ".png", ".pdf", ".svg")
    return form.give(
        _call(asked),
        lambda answer: asked.model_dump(),
        lambda answer: answer.to_dict(),
        _show,
        feasible=lambda answer: not answer.problems and any(row.served_frac for row in answer.policies),
        write=lambda answer: _draw(answer, asked, out),
    )


def _call(asked: Any) -> Code:
    given = asked.model_dump(exclude_defaults=True)
    return call(
        "dmodels.studies.transfer:study", call("dmodels.studies.transfer:TransferScenario.model_validate", given)
    )


def _percent(name: str) -> Column:
    return lambda row: 100 * getattr(row, name)


SHARE: dict[str, Column] = {
    "context": "context_tokens",
    "tier": "tier",
    "prefill s": "prefill_s",
    "transfer s": "transfer_s",
    "share %": _percent("share_frac"),
    "layer by layer %": _percent("pipelined_share_frac"),
}
POLICIES: dict[str, Column] = {
    "policy": "policy",
    "served %": _percent("served_frac"),
    "SLO %": _percent("slo_frac"),
    "TTFT s": "ttft_mean_s",
    "TTFT +- s": "ttft_se_s",
    "P99 s": "ttft_p99_s",
    "transfer s": "transfer_mean_s",
    "TBT ms": lambda row: 1e3 * row.tbt_mean_s,
    "tier 2 %": _percent("tier_2_frac"),
    "tier 3 %": _percent("tier_3_frac"),
    "saved %": _percent("ttft_vs_first_frac"),
    "saved +- %": _percent("ttft_vs_first_se_frac"),
}
UPGRADES: dict[str, Column] = {
    "change": "upgrade",
    "served %": _percent("served_frac"),
    "TTFT s": "ttft_mean_s",
    "transfer s": "transfer_mean_s",
    "TTFT saved %": _percent("ttft_saved_frac"),
}
STALENESS: dict[str, Column] = {
    "tiers": lambda row: f"{row.fast_tier} or {row.slow_tier}",
    "hit on the slower": "far_hit_frac",
    "order of bandwidths": "bandwidth_tolerance",
    "order of costs": "cost_tolerance",
    "regret at twice s": "regret_at_twice_s",
    "refresh s": "refresh_s",
}


def _show(answer: Any) -> None:
    render.say(f"problem: {sentence}" for sentence in answer.problems)
    least = min(row.served_frac for row in answer.policies)
    if least < 1:
        render.say([f"note: as few as {100 * least:.3g} % of the requests are served; means are over those alone"])
    share = "Share of TTFT: KV sent after prefill, or layer by layer; one transfer at a time"
    render.show(
        [
            table(share, answer.share, SHARE),
            table("Policies on the same requests and the same ECMP draws", answer.policies, POLICIES),
            table("Which upgrade pays: each change alone", answer.upgrades, UPGRADES),
            table("How stale telemetry may be, for a prompt of median length", answer.staleness, STALENESS),
        ]
    )


def _draw(answer: Any, asked: Any, out: Path | None) -> None:
    if out is None:
        return
    from dmodels.report import style, transfer_figures

    rates = answer.tier_bytes_per_s
    tiers = sorted({row.tier for row in answer.share})
    ratio = rates[tiers[-2]] / rates[tiers[-1]] if len(tiers) > 1 and rates[tiers[-1]] > 0 else 1.0
    noise = asked.telemetry.std, asked.telemetry.correlation_time
    sheet = transfer_figures.overview(answer.share, answer.policies, answer.upgrades, ratio, *noise)
    style.save(sheet, out)
