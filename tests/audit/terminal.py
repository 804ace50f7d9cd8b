"""What a terminal shows of any command's answer, held against the document of the same answer."""

from __future__ import annotations

from typing import Any

from tests.audit.beside import audit_plan_shown
from tests.audit.findings import Findings, number
from tests.audit.shown import terminal_tables
from tests.audit.tables import SHOWN, Columns, cells


def audit_shown(document: dict[str, Any], text: str) -> None:
    """Hold what a terminal shows against the document of the same answer; what has no auditor passes."""
    if document["command"] in ("plan", "report"):
        audit_plan_shown(document, text)
        return
    findings = Findings()
    known = (SHOWN | {"claims": claims, "watch": watch}).get(document["command"])
    if known is not None:
        known(document["inputs"], document["result"], text, findings)
        findings.all_read(terminal_tables(text))
    findings.end()


#: Word at the beginning of a line -> key of a claim.
CLAIM = {"holds if": "needs", "error": "error", "breaks": "counterexample", "smallest": "minimal"}
CLAIM |= {"verdict": "verdict", "decision": "means", "page": "page"}


def claims(inputs: Any, result: Any, text: str, findings: Findings) -> None:
    """Each part of a claim stands behind its own word."""
    if "check" not in result:
        heads: Columns = {"id": lambda one: one[0], "": lambda one: one[1]["verdict"].lower()}
        heads |= {"claim": lambda one: one[1]["says"], "where": lambda one: one[1]["where"]}
        cells("Claims", text, list(result.items()), heads, findings)
        return
    flat = " ".join(text.split())
    told = {word: "; ".join(result[key]) if key == "needs" else result[key] for word, key in CLAIM.items()}
    told |= {result["id"]: result["says"], "source": f"{result['source']}, {result['where']}"}
    told |= {"verdict": result["verdict"].lower(), "check": result["check"]["line"]}
    for word, said in told.items():
        findings.hold(not said or " ".join(f"{word} {said}".split()) in flat, f"{word} is not {said!r}: {flat}")


def watch(inputs: Any, result: Any, text: str, findings: Findings) -> None:
    """Demand, quantities and comparison; the mean of counts lies where their buckets do."""
    seen, tables = result["telemetry"], terminal_tables(text)
    lines = [row[""] for row in tables["Demand"]]
    hours = (seen["end_s"] - seen["start_s"]) / 3600
    pairs = lambda mean, most: (seen[mean], seen[most])
    told = [(hours,), (seen["replicas_count"],), (seen["requests_count"],), pairs("rate_rps", "peak_rps")]
    told += [(seen["arrival_cv"],), (seen["length_correlation"],), (seen["prefix_hit_frac"],)]
    told += [pairs("running_mean_count", "running_peak_count"), (seen["waiting_mean_count"],), (seen["kv_peak_frac"],)]
    findings.read["Demand"] |= {""}
    findings.same("lines on the demand", len(lines), len(told))
    for line, values in zip(lines, told, strict=False):
        for shown, value in zip(line.split(" and "), values, strict=True):
            if value is None:
                findings.same(f"nothing known in {line!r}", shown, "-")
            else:
                findings.same(f"demand, {line!r}", number(shown), value, rel=6e-3, most=0.501 * (value > 1000))
    units = {"prompt [tokens]": ("input_tokens", 1), "answer [tokens]": ("output_tokens", 1)}
    units |= {"TTFT [ms]": ("ttft_s", 1e3), "time between tokens [ms]": ("itl_s", 1e3), "E2E [ms]": ("e2e_s", 1e3)}
    title, rows = next(item for item in tables.items() if item[0].startswith("Seen"))
    findings.read[title] |= {"", "mean", "P50", "P90", "P99"}
    known = [name for name, (key, _) in units.items() if seen[key] is not None]
    findings.same("quantities seen", [row[""] for row in rows], known)
    for row in rows:
        key, unit = units[row[""]]
        if seen[key]["mean"] is not None:
            findings.same(f"mean of {row['']}", number(row["mean"]), unit * seen[key]["mean"], rel=6e-4)
        beyond = [row[p].startswith(">") for p in ("P50", "P90", "P99")]
        quantiles = [number(row[p].removeprefix("> ")) for p in ("P50", "P90", "P99") if row[p] != "-"]
        findings.ordered(f"quantiles of {row['']}", *quantiles)
        for share, shown, over in zip((0.5, 0.9, 0.99), (row["P50"], row["P90"], row["P99"]), beyond, strict=True):
            if shown != "-":
                _in_its_bucket(seen[key], share, number(shown.removeprefix("> ")) / unit, over, findings)
        findings.same(f"what is beyond the buckets of {row['']}", beyond, sorted(beyond))
    if result["fleet"] is not None:
        title = next(title for title in tables if title.startswith("The model beside"))
        head = next(iter(tables[title][0]))
        verdict = "keeps the SLOs" if result["fleet"]["keeps_slo"] else "does not keep the SLOs"
        findings.hold(head.startswith(f"{result['fleet']['name']}: {verdict}; at most "), head)
        most = number(head.split("at most ")[1].split()[0])
        findings.same("most that the fleet serves", most, result["fleet"]["serves_rps"], rel=6e-4)
        columns: Columns = {head: "name", "measured": "measured", "model": "predicted", "ratio": "ratio"}
        cells("The model beside", text, result["compared"], columns, findings)


def _in_its_bucket(seen: Any, share: float, value: float, beyond: bool, findings: Findings) -> None:
    """A quantile lies within the bounds of the bucket in which that share of all is reached; beyond the last, at it."""
    counts, bounds = seen["counts"], seen["bounds"]
    reached = next(k for k in range(len(counts)) if sum(counts[: k + 1]) >= share * sum(counts) * (1 - 1e-9))
    findings.same(f"whether P{100 * share:g} is beyond the buckets", beyond, reached >= len(bounds))
    low = bounds[min(reached, len(bounds)) - 1] if reached else 0.0
    high = bounds[min(reached, len(bounds) - 1)]
    told = f"P{100 * share:g} of {counts} up to {bounds}"
    findings.ordered(told, low * (1 - 6e-4), value, high * (1 + 6e-4))
