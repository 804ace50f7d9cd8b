"""The auditor of what stands beside a plan: the fleet that runs, classes, regions, replays and what was rejected, each
table against the document, and each of the document's sums against its parts."""

from __future__ import annotations

import math
import re
from typing import Any

from tests.audit.commands import running_now
from tests.audit.findings import Findings, number, numbers
from tests.audit.shown import audit_text, terminal_tables
from tests.audit.tables import Columns, cells


def audit_plan_shown(document: Any, text: str) -> None:
    """Hold what a terminal shows of a plan against its document."""
    audit_text(document, text)
    findings, result = Findings(), document["result"]
    reasons: Columns = {"layout": "layout", "binds": "binding", "have": "have", "need": "need", "smallest fix": "fix"}
    cells("Layouts that cannot serve", text, result["rejections"][:8], reasons, findings)
    for name, auditor in BESIDE.items():
        if result.get(name):
            auditor(result[name], document, text, findings)
    for title, rows in terminal_tables(text).items():  # held by `audit_text` and, by hand, below
        if title.startswith(("Recommended pools", "Alternatives", "Sensitivity", "In short", "Replay of", "Now and")):
            findings.read[title] |= rows[0].keys()
    findings.all_read(terminal_tables(text))
    replays = (result.get("verification") or {}).get("replays") or [(result["recommended"] or {}).get("replay")]
    for one in filter(None, replays):
        _replay(one, text, findings)
    findings.end()


def _running(now: Any, document: Any, text: str, findings: Findings) -> None:
    """Sums of pools; the SLOs are kept where at least the rate is served."""
    for key in ("gpus", "usd_per_hour"):
        findings.same(f"{key} of what runs", now[key], sum(pool[key] for pool in now["pools"]))
    findings.same("whether what runs keeps the SLOs", now["keeps_slo"], now["serves_rps"] >= now["rate_rps"])
    asked = document["inputs"]["rate_rps"] * (1 - now["refused_frac"])
    findings.same("the rate that what runs is asked for", now["rate_rps"], asked, rel=1e-6)
    running_now(now, findings)
    for pool in now["pools"]:
        findings.same(f"GPUs of {pool['name']}", pool["gpus"], pool["instances"] * pool["layout"]["gpus"])
        price = document["inputs"]["price_usd_per_hour"].get(pool["layout"]["gpu"])
        if price is not None:
            findings.same(f"dollars of {pool['name']}", pool["usd_per_hour"], pool["gpus"] * price)
    shown: Columns = {"pool": "name", "servers": "instances", "GPUs": "gpus", "USD/h": "usd_per_hour"}
    shown["layout"] = lambda pool: _layout(pool["layout"], head=True)
    shown |= {"requests": _percent, "serves [req/s]": "serves_rps", "TTFT [ms]": "ttft_s", "TPOT [ms]": "tpot_s"}
    cells("What runs now", text, now["pools"], shown, findings)
    lines = [row[""] for row in _table("Now and the plan", text)]
    best = document["result"]["recommended"]
    told = [*(["refused"] if now["refused_frac"] else []), *(["gpus", "usd_per_hour"] if best else [])]
    findings.same("lines on now and the plan", len(lines), 2 + len(told))
    findings.same("whether it keeps the SLOs", lines[0].startswith("keeps"), now["keeps_slo"])
    findings.same("most that it serves", number(lines[1]), now["serves_rps"], rel=6e-4)
    for line, what in zip(lines[2:], told, strict=False):
        parts = [now["refused_frac"]] if what == "refused" else [now[what], best[what.replace("gpus", "fleet_gpus")]]
        found = [number(part) for part in re.findall(r"[\d,.e+-]+%?", line)]
        for shown_now, value in zip(found, parts, strict=True):
            findings.same(f"{what} in {line!r}", shown_now, value, rel=6e-3, most=0.0051)


def _classes(apart: Any, document: Any, text: str, findings: Findings) -> None:
    """Every request is in one class; a fleet of all classes is the fleets of each."""
    shares = apart["shares"]
    findings.same("shares of the classes", sum(one["share_frac"] for one in shares), 1.0, rel=1e-6)
    if all(one["best"] for one in shares):
        findings.same("dollars of all classes", apart["usd_per_hour"], sum(one["usd_per_hour"] for one in shares))
        findings.same("GPUs of all classes", apart["gpus"], sum(one["best"]["bought_gpus"] for one in shares))
    of = lambda key: lambda one: 1e3 * one["requests"]["slo"][key]
    shown: Columns = {"class": lambda one: one["requests"]["name"], "requests": _percent, **_FLEET}
    shown |= {"TTFT SLO [ms]": of("ttft_s"), "TPOT SLO [ms]": of("tpot_s")}
    whole = apart["usd_per_hour"]
    shown["cost"] = lambda one: _digits(one["usd_per_hour"] / whole) if apart["gpus"] is not None else None
    shown["probability"] = _chance
    cells("Each class of requests with", text, shares, shown, findings)


def _chance(one: Any) -> str | None:
    """Rounded down to hundredths: from 0.975 on the model cannot tell."""
    sure = one["keeps_slos_probability"]
    if not sure:
        return None if sure is None else "below 0.5"
    return ("at least " if sure >= 0.975 else "") + f"{math.floor(100 * sure + 1e-9) / 100:g}"


def _by_priority(found: Any, document: Any, text: str, findings: Findings) -> None:
    """The fleet holds where every class is within its bound."""
    findings.same("GPUs by priority", found["gpus"], found["instances"] * found["layout"]["gpus"])
    kept = all(one["by_priority_s"] <= one["bound_s"] * (1 + 1e-9) for one in found["kept"])
    findings.same("whether priorities hold", found["holds"], kept)
    shown: Columns = {"class": "name", "priority": "priority", "metric": "metric", "SLO [ms]": "bound_s"}
    shown |= {"by priority [ms]": "by_priority_s", "first come first served [ms]": "in_order_s"}
    cells("All classes on", text, found["kept"], shown, findings)
    (told,) = re.findall(r"One fleet by priority: (.*?)\.(?: |$)", " ".join(text.split()))
    size = rf"([\d,]+) x {found['layout']['gpus']} {found['layout']['gpu']} \("
    findings.same("instances by priority, in words", number(re.search(size, told)[1]), found["instances"])
    findings.same("whether they hold, in words", found["holds"], "keep every class's SLOs" in told)


def _regions(found: Any, document: Any, text: str, findings: Findings) -> None:
    """Together they serve what they say, for the sum of their prices; alone, the cheapest comes first."""
    costs = [one["usd_per_hour"] for one in found["alone"] if one["usd_per_hour"] is not None]
    findings.ordered("dollars of regions alone", *costs)
    if found["together"]:
        served = min(sum(one["share_frac"] for one in found["together"]), 1.0)
        findings.same("what regions serve together", found["served_frac"], served)
        dollars = sum(one["usd_per_hour"] for one in found["together"])
        findings.same("dollars of regions together", found["usd_per_hour"], dollars)
    rows = found["together"] or found["alone"]
    cells("Regions, by the closed forms", text, rows, {"region": "region", "traffic": _percent, **_FLEET}, findings)


def _replay(found: Any, text: str, findings: Findings) -> None:
    """A promise holds where what was measured is within its bound; the interval holds what was measured."""
    gpus = sum(count * each for count, each in zip(found["instances"], found["gpus_each"], strict=True))
    findings.same(f"GPUs of the replay of {found['name']}", found["gpus"], gpus)
    gpus, counts = found["gpus"], found["instances"]
    told = f"Replay of {found['name']} ({gpus:,} GPU{'s' * (gpus > 1)}, {' + '.join(f'{n:,}' for n in counts)} instance"
    bounded: Columns = {"pool": "pool", "SLO": "metric", "bound [ms]": lambda one: _ms(one["bound_s"])}
    rows = found["promises"]
    for one in rows:
        what = f"{one['metric']} of {one['pool']} in the replay of {found['name']}"
        if one["measured_s"] is not None and one["bound_s"] is not None and not found["overloaded"]:
            findings.same(f"whether {what} holds", one["holds"], one["measured_s"] <= one["bound_s"])
            share, few = found["percentile"], 5 / found["requests_count"] + 1e-3
            findings.hold(one["holds"] or one["kept_frac"] <= share + few, f"{what} is kept by {one['kept_frac']}")
            findings.hold(not one["holds"] or one["kept_frac"] >= share - few, f"{what} is kept by {one['kept_frac']}")
        if one["measured_s"]:
            findings.ordered(f"{what}, and in its worst window", one["measured_s"], one["worst_s"], rel=0.01)
            if one["predicted_s"] is not None:
                findings.same(f"error of {what}", one["error_frac"], one["predicted_s"] / one["measured_s"] - 1)
        if None not in (one["low_s"], one["high_s"]):
            findings.ordered(f"interval of {what}", one["low_s"], one["measured_s"], one["high_s"])
    columns = bounded | {"begins [s]": "worst_start_s", "closed form [ms]": lambda one: _ms(one["predicted_s"])}
    cells(told, text, rows, columns, findings)
    for line, one in zip(_table(told, text), rows, strict=False):
        held = line["verdict"].startswith("holds")
        findings.same(f"the verdict {line}", held or line["verdict"] == "no bound", one["holds"])
        shown = {head.split(" [ms]")[0]: cell for head, cell in line.items()}
        worst = next(cell for head, cell in shown.items() if head.startswith("worst "))
        findings.same(f"the worst of {line}", number(worst), _ms(one["worst_s"]))
        if one["bound_s"] is not None:
            findings.same(f"how many keep {line}", number(line["kept"]), one["kept_frac"], most=5.1e-5)
        if one["error_frac"] is not None:
            findings.same(f"the error of {line}", number(line["its error"].lstrip("+")), one["error_frac"], most=0.0051)
        if one["low_s"] is not None:
            ends = [_ms(one["low_s"]), _ms(one["high_s"])]
            findings.same(f"the interval of {line}", numbers(line["95 % interval"]), ends)


def _table(title: str, text: str) -> list[dict[str, str]]:
    return next((rows for head, rows in terminal_tables(text).items() if title in head), [])


def _digits(value: float) -> float:
    return float(f"{value:.3g}")


def _percent(one: Any) -> float:
    return _digits(one["share_frac"])


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else _digits(1e3 * seconds)


def _layout(layout: Any, head: bool = False) -> str:
    """'tp2pp1dp1ep1', or with the GPU before it and what is not as published behind it."""
    degrees = "".join(f"{name}{layout[name]}" for name in ("tp", "pp", "dp", "ep"))
    return f"{layout['gpu']} {degrees}" if head else degrees


def _fleet(one: Any) -> str | None:
    """'one pool: 3 x 2 h100_sxm (tp2pp1dp1ep1, all)'."""
    if not one["best"]:
        return None
    parts = [
        f"{p['instances']} x {p['layout']['gpus']} {p['layout']['gpu']} ({_layout(p['layout'])}, {p['stage']['name']})"
        for p in one["best"]["pools"]
    ]
    return f"{one['best']['name']}: {' + '.join(parts)}"


_FLEET: Columns = {
    "fleet": _fleet,
    "GPUs": lambda one: one["best"] and one["best"]["bought_gpus"],
    "USD/h": lambda one: one["usd_per_hour"] if one["best"] else "infeasible",
}
BESIDE = {"running_now": _running, "classes": _classes, "by_priority": _by_priority, "regions": _regions}
