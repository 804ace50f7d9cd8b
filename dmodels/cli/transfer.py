"""KV transfer between prefill and decode: its share of TTFT, which policy and which upgrade pay, stale telemetry."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import render
from .options import Json


def command(
    scenario: Annotated[Path, typer.Argument(help="scenario file (TOML); an empty one is NetKV's cluster under RAG")],
    out: Annotated[Path | None, typer.Option(help="write the figures to this file (png, pdf or svg)")] = None,
    json: Json = False,
    show_python: Annotated[bool, typer.Option("--show-python", help="print the library calls instead")] = False,
) -> int:
    from dmodels.studies.transfer import TransferScenario

    from .scenario import read_scenario

    asked = read_scenario(scenario, TransferScenario)
    if show_python:
        print(_python(scenario))
        return 0
    from dmodels.studies.transfer import study

    answer = study(asked)
    if json:
        print(render.as_json("transfer", asked.model_dump(), answer))
    else:
        _show(answer)
    if out is not None:
        import io

        from dmodels.core.errors import InputError
        from dmodels.report.transfer_figures import overview

        kind = out.suffix.lstrip(".").lower()
        if kind not in ("png", "pdf", "svg"):
            raise InputError(f"--out {out}: a file that ends in .png, .pdf or .svg is accepted")
        rates = answer["tier_bytes_per_s"]
        tiers = sorted({row["tier"] for row in answer["share"]})
        ratio = rates[tiers[-2]] / rates[tiers[-1]] if len(tiers) > 1 and rates[tiers[-1]] > 0 else 1.0
        sheet = overview(
            answer["share"],
            answer["policies"],
            answer["upgrades"],
            ratio,
            asked.telemetry.std,
            asked.telemetry.correlation_time,
        )
        image = io.BytesIO()
        sheet.savefig(image, format=kind, dpi=130)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(image.getvalue())
    return 1 if answer["problems"] or all(row["served_frac"] == 0 for row in answer["policies"]) else 0


def _show(answer: dict) -> None:
    for sentence in answer["problems"]:
        print(f"problem: {sentence}")
    least = min(row["served_frac"] for row in answer["policies"])
    if least < 1:
        print(f"note: as few as {100 * least:.3g} % of the requests are served; means are over those alone")
    render.print_table(
        "Share of TTFT: KV sent after prefill, or layer by layer; one transfer at a time",
        ["context", "tier", "prefill s", "transfer s", "share %", "layer by layer %"],
        [
            [
                r["context_tokens"],
                r["tier"],
                r["prefill_s"],
                r["transfer_s"],
                100 * r["share_frac"],
                100 * r["pipelined_share_frac"],
            ]
            for r in answer["share"]
        ],
    )
    percent = lambda row, *names: [100 * row[name] for name in names]
    render.print_table(
        "Policies on the same requests and the same ECMP draws",
        [
            "policy",
            "served %",
            "SLO %",
            "TTFT s",
            "+-",
            "P99 s",
            "transfer s",
            "TBT ms",
            "tier 2 %",
            "tier 3 %",
            "saved %",
            "+- ",
        ],
        [
            [
                r["policy"],
                *percent(r, "served_frac", "slo_frac"),
                r["ttft_mean_s"],
                r["ttft_se_s"],
                r["ttft_p99_s"],
                r["transfer_mean_s"],
                1e3 * r["tbt_mean_s"],
                *percent(r, "tier_2_frac", "tier_3_frac", "ttft_vs_first_frac", "ttft_vs_first_se_frac"),
            ]
            for r in answer["policies"]
        ],
    )
    render.print_table(
        "Which upgrade pays: each change alone",
        ["change", "served %", "TTFT s", "transfer s", "TTFT saved %"],
        [
            [
                r["upgrade"],
                *percent(r, "served_frac"),
                r["ttft_mean_s"],
                r["transfer_mean_s"],
                *percent(r, "ttft_saved_frac"),
            ]
            for r in answer["upgrades"]
        ],
    )
    render.print_table(
        "How stale telemetry may be, for a prompt of median length",
        ["tiers", "hit on the slower", "order of bandwidths", "order of costs", "regret at twice s", "refresh s"],
        [
            [
                f"{r['fast_tier']} or {r['slow_tier']}",
                r["far_hit_frac"],
                r["bandwidth_tolerance"],
                r["cost_tolerance"],
                r["regret_at_twice_s"],
                r["refresh_s"],
            ]
            for r in answer["staleness"]
        ],
    )


def _python(path: Path) -> str:
    return "\n".join(
        [
            "import tomllib",
            "from pathlib import Path",
            "",
            "from dmodels.studies.transfer import TransferScenario",
            "from dmodels.studies.transfer import study",
            "",
            f"asked = TransferScenario(**tomllib.loads(Path({str(path)!r}).read_text(encoding='utf-8')))",
            "answer = study(asked)     # share, policies, upgrades, staleness: lists of rows",
        ]
    )
