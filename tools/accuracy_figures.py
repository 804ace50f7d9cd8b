"""The errors of dmodels as the committed results hold them: the newest run of each benchmark, one line a comparison."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"


class Figure(NamedTuple):
    """One comparison: absolute relative errors, and how many measured values an 80 % interval held."""

    section: str
    name: str
    count: int
    median_frac: float
    p90_frac: float | None = None
    covered_frac: float | None = None  # of 80 %
    commit: str = ""

    @property
    def key(self) -> str:
        """By which releases are compared."""
        return f"{self.section}: {self.name}"


#: Sections, in the order of the page: (result file, protocol, what these comparisons cannot show).
SECTIONS: dict[str, tuple[str, str, str]] = {
    "Serving rows": (
        "accuracy",
        "Measured TTFT and TPOT of public serving benchmarks, predicted by a calibration that did not see them: random "
        "folds, a pair of model and GPU left out, an architecture left out, a GPU left out; as a plan predicts, "
        "without "
        "the engine's release. Made by `python -m tools.make_calibration`.",
        "These are closed loops with fixed lengths, most of them on H100, H200 and Blackwell; nothing of AMD is in "
        "them.",
    ),
    "Maximum throughput": (
        "throughput",
        "Published maximum throughputs of TensorRT-LLM, none of which is in the calibration. `python -m benchmarks "
        "throughput`.",
        "A maximum says nothing of latencies, and the engine that reached it was tuned by its maker.",
    ),
    "Operators": (
        "operators",
        "Measured kernels that were held out of the fit of the laws of operators.",
        "Kernels alone: no host, no scheduler, no contention.",
    ),
    "Memory": (
        "memory",
        "KV blocks that engines' logs report beside those that the memory model leaves.",
        "A log names its engine's version; later versions take other workspaces.",
    ),
    "Real servers": (
        "servers",
        "Request logs of real servers, replayed at their own times under the engine's own scheduler and the calibrated "
        "step (`dmodels simulate --replay`). No log is in the calibration. `python -m benchmarks servers`.",
        "One log of 300 requests far above capacity: waits there are made of throughput, so a small error of the steps "
        "is a greater one of TTFT. Nothing here is near an idle server, and nothing of more than one GPU.",
    ),
    "MLPerf": (
        "mlperf",
        "Public open-loop runs of MLPerf Inference v5.1 (H200, MI300X): GPUs that a plan asks at the run's rate beside "
        "those used, and percentiles of simulated servers at that rate. The factor of tuned servers comes from runs "
        "without the run's model, or without its submitter, whichever predicts it worse. `python -m benchmarks "
        "mlperf`.",
        "A submission's rate is what it declared, not the most that it could serve, and its engine's settings are not "
        "published with its results. Near saturation TPOT grows several times as fast as the speed of a step falls, so "
        "latencies there test the speed to a hundredth. Lengths of Mixtral's data are assumed. Systems of mixed GPUs"
        " are "
        "left out.",
    ),
    "Closed form against simulator": (
        "agreement",
        "Closed forms of queues and latencies against the simulator that shares no formula with them, over loads, "
        "slots "
        "and variability of lengths. `python -m tools.make_agreement`.",
        "Both share the step law: what is wrong there does not show. Arrivals are Poisson.",
    ),
    "Closed form against replayed traces": (
        "replay",
        "Plans replayed on the traces that they were made for, whole fleet, the traces' own times. `python -m "
        "benchmarks "
        "replay`.",
        "Traces are recordings: what users would do of longer waits is in none of them.",
    ),
}


def figures() -> list[Figure]:
    """Every comparison of every section that has results."""
    found = []
    for section, (file, _, _) in SECTIONS.items():
        rows = list(newest(RESULTS / f"{file}.jsonl"))
        if rows:
            found += [
                figure._replace(section=section, commit=rows[0].get("commit", "")) for figure in _READ[file](rows)
            ]
    return found


def newest(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a benchmark's last run."""
    if not path.is_file():
        return
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    yield from (row for row in rows if row.get("when") == rows[-1].get("when"))


def _serving(rows: list[dict[str, Any]]) -> Iterator[Figure]:
    for row in rows:
        if row.get("use") != "plan" and any(other.get("use") == "plan" for other in rows):
            continue
        if "protocol" not in row or set(row) >= {"class"}:
            continue
        covered = row.get("coverage") or [[None] * 2] * 2
        for metric, level in zip(("ttft", "tpot"), covered, strict=True):
            e = row[metric]
            name = f"{metric.upper()}, left out: {row['protocol']}"
            yield Figure("", name, e["count"], e["median"], e["p90"], level[0])


def _throughput(rows: list[dict[str, Any]]) -> Iterator[Figure]:
    for row in rows:
        if row["class"] == "all":
            yield Figure("", "output tokens per second and GPU", row["rows"], row["median error"])


def _servers(rows: list[dict[str, Any]]) -> Iterator[Figure]:
    for name in ("ttft_mean_s", "ttft_p99_s", "tpot_mean_s", "tpot_p99_s", "duration_s"):
        errors = [abs(row["error"]) for row in rows if row["metric"] == name]
        if errors:
            yield Figure("", name, len(errors), float(np.median(errors)), float(np.quantile(errors, 0.9)))


def _mlperf(rows: list[dict[str, Any]]) -> Iterator[Figure]:
    for row in rows:
        if row["class"] in ("all", "lengths known"):
            label, count = row["class"], row["runs"]
            yield Figure("", f"GPUs asked and used, {label}", count, row["median gpu error"], None, row["covered"])
            yield Figure("", f"TTFT P99 at the measured rate, {label}", count, row["median ttft p99 error"])
            yield Figure("", f"TPOT P99 at the measured rate, {label}", count, row["median tpot p99 error"])


def _agreement(rows: list[dict[str, Any]]) -> Iterator[Figure]:
    points = [point for row in rows for point in row["points"] if point.get("shown", True)]
    for form in sorted({point["form"] for point in points}):
        errors = np.array([abs(p["error_frac"]) for p in points if p["form"] == form])
        errors = errors[np.isfinite(errors)]
        if errors.size:
            yield Figure("", form, errors.size, float(np.median(errors)), float(np.quantile(errors, 0.9)))


def _plain(rows: list[dict[str, Any]]) -> Iterator[Figure]:
    """Of a benchmark whose rows state their class, count, and median error."""
    for row in rows:
        if "median error" in row:
            name, count = str(row.get("class", "all")), int(row.get("rows", row.get("count", 0)))
            yield Figure("", name, count, row["median error"], row.get("p90 error"), row.get("covered"))


_READ = {
    "accuracy": _serving,
    "throughput": _throughput,
    "operators": _plain,
    "memory": _plain,
    "servers": _servers,
    "mlperf": _mlperf,
    "agreement": _agreement,
    "replay": _plain,
}
