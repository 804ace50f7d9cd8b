"""The errors of dmodels as the committed results hold them: the newest run of each benchmark, one line a comparison."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tools.make_agreement import FORMS

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


class Section(NamedTuple):
    """A part of the page: its results' file, how they were made, and where they end."""

    file: str
    protocol: str
    cannot_show: str


#: In the order of the page.
SECTIONS: dict[str, Section] = {
    "Serving rows": Section(
        "accuracy",
        "Measured TTFT and TPOT of public serving benchmarks, predicted by a calibration that did not see them: random "
        "folds, a pair of model and GPU left out, an architecture left out, a GPU left out; as a plan predicts, "
        "without the engine's release. Made by `python -m tools.make_calibration`.",
        "These are closed loops with fixed lengths, most of them on H100, H200 and Blackwell; nothing of AMD is in "
        "them. 214 rows of separate prefill and decode instances do not state their whole layout, nor whether steps "
        "were speculative: what they state fits runs whose TPOT differs 1.8 times. The lines with the layout stated "
        "leave them out. That some of them were speculative was told from the TPOT of rows beside them "
        "(`dmodels/fit/data/runs.csv`), those that are predicted included.",
    ),
    "Own measurements": Section(
        "ten_points",
        "A model and GPU that the calibration never saw, refitted on ten of its own rows: the other rows' mean error "
        "of each deployment, before and after. `python -m benchmarks ten_points`.",
        "The ten points come from the same sweep as the rows that are predicted: same machine, day and release.",
    ),
    "Maximum throughput": Section(
        "throughput",
        "Published maximum throughputs of TensorRT-LLM, none of which is in the calibration. `python -m benchmarks "
        "throughput`.",
        "A maximum says nothing of latencies, and the engine that reached it was tuned by its maker.",
    ),
    "Operators": Section(
        "operators",
        "Measured kernels of ten GPUs and three engines. New shapes: every tenth shape was held out of the fit, and is "
        "predicted here with the constants that plans use. The last rows leave a whole (GPU, engine) or a whole GPU "
        "out, for the kinds that every transformer has. `python -m benchmarks operators`.",
        "Kernels alone: no host, no scheduler, no contention.",
    ),
    "Memory": Section(
        "memory",
        "What engines log at their start beside what the memory model says: the room for the KV cache, and the "
        "weights. Four constants of the engines are medians over these same lines; what depends on model, layout and "
        "settings is not fitted. `python -m benchmarks memory`.",
        "Twelve lines of vLLM and SGLang; none of TensorRT-LLM. A log names its engine's version; later versions take "
        "other workspaces.",
    ),
    "Real servers": Section(
        "servers",
        "Request logs of real servers, replayed at their own times under the engine's own scheduler and the calibrated "
        "step (`dmodels simulate --replay`). No log is in the calibration. `python -m benchmarks servers`.",
        "One log of 300 requests far above capacity: waits there are made of throughput, so a small error of the steps "
        "is a greater one of TTFT. Its steps of 33 to 60 requests are 2 to 3 ms longer than those of 31 or 65, and no "
        "measured kernel of this GPU shows why. Nothing here is near an idle server, and nothing of more than one GPU.",
    ),
    "MLPerf": Section(
        "mlperf",
        "Public open-loop runs of MLPerf Inference v5.1 (H200, MI300X): GPUs that a plan asks at the run's rate beside "
        "those used, and percentiles of simulated servers at that rate. The factor of tuned servers comes from runs "
        "without the run's model, or without its submitter, whichever predicts it worse. LoadGen rejects a run that "
        "breaks an SLO: percentiles are those at the likeliest speed that keeps both at the rate. `python -m "
        "benchmarks mlperf`.",
        "A submission's rate is what it declared, not the most that it could serve, and its engine's settings are not "
        "published with its results. It runs as near to saturation as the limits allow, where one per cent of speed "
        "is a tenth of a latency, so that a run is valid says much of its percentiles: at the others' speed alone TTFT "
        "P99 is 82 % off in the median and TPOT P99 39 %. Prompts on MI300X wait twice as long as simulated. Lengths "
        "of Mixtral's data are assumed. Systems of mixed GPUs are left out.",
    ),
    "Closed form against simulator": Section(
        "agreement",
        "Closed forms of queues and latencies against the simulator that shares no formula with them, over loads, "
        "slots and variability of lengths. `python -m tools.make_agreement`.",
        "Both share the step law: what is wrong there does not show. Arrivals are Poisson.",
    ),
    "Closed form over engines' settings": Section(
        "closed_form",
        "One instance of a plan, over traces, models, GPUs, layouts, chunks of 256 to 16,384 tokens, kinds of pools "
        "and loads of 0.3 to 0.95, by the simulator beside the closed forms, with Poisson arrivals, and beside the "
        "recursion over a trace's own requests, with these. `python -m benchmarks closed_form`.",
        "Both share the step law, and the recursion also the scheduler's rule of budget and slots: it is close to the "
        "simulator in kind. Real arrivals come in bursts that no closed form of a steady state sees.",
    ),
    "Closed form with data-parallel attention": Section(
        "closed_form_ranks",
        "The same for expert models on four to sixteen ranks of data-parallel attention, under vLLM, whose ranks "
        "compute prompts as they come, and TensorRT-LLM, whose ranks wait for each other's. `python -m benchmarks "
        "closed_form_ranks`.",
        "Both share the step law, which takes every prompt as long as the mean one where it counts how many ranks have "
        "any. Without a trace, a plan whose SLOs the recursion does not find kept is sized by replays.",
    ),
    "Plans replayed": Section(
        "replay",
        "Plans replayed on the traces that they were made for, whole fleet, the traces' own times: GPUs beyond the "
        "smallest fleet that holds. `python -m benchmarks replay`.",
        "Traces are recordings: what users would do of longer waits is in none of them.",
    ),
}


def figures() -> list[Figure]:
    """Every comparison of every section that has results."""
    found = []
    for name, section in SECTIONS.items():
        rows = list(newest(RESULTS / f"{section.file}.jsonl"))
        if rows:
            read = _READ[section.file](rows)
            found += [figure._replace(section=name, commit=rows[0].get("commit", "")) for figure in read]
    return found


def remarks(section: Section) -> str:
    """What the results say that is no error of a value."""
    rows = list(newest(RESULTS / f"{section.file}.jsonl"))
    return _REMARKS[section.file](rows) if rows and section.file in _REMARKS else ""


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
    metrics = {
        "ttft_mean_s": "mean TTFT",
        "ttft_p99_s": "P99 TTFT",
        "tpot_mean_s": "mean TPOT",
        "tpot_p99_s": "P99 TPOT",
        "duration_s": "duration of the whole log",
    }
    for name, said in metrics.items():
        errors = [abs(row["error"]) for row in rows if row["metric"] == name]
        if errors:
            yield _spread(said, errors)


def _mlperf(rows: list[dict[str, Any]]) -> Iterator[Figure]:
    for row in rows:
        if row["class"] in ("all", "every log once", "lengths known"):
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
            yield _spread(FORMS[form], list(errors))


def _ten_points(rows: list[dict[str, Any]]) -> Iterator[Figure]:
    own = [row for row in rows if row.get("points")]
    for metric in ("ttft", "tpot"):
        for when in ("before", "after"):
            errors = [row[f"{metric} mean {when}"] for row in own]
            yield _spread(f"{metric.upper()}, {when} its ten points", errors)


def _closed_form(rows: list[dict[str, Any]]) -> Iterator[Figure]:
    for arrivals, said in (("poisson", "Poisson arrivals"), ("own", "the trace's own arrivals")):
        cells = [row for row in rows if row.get("arrivals") == arrivals and "agrees" in row]
        for metric in ("ttft", "tpot"):
            for kind, name in (("mean", "mean"), ("p99", "P99")):
                errors = [abs(row[f"{metric}_{kind}_error"]) for row in cells if f"{metric}_{kind}_error" in row]
                if errors:
                    yield _spread(f"{metric.upper()} {name}, {said}", errors)


def _cells_said(rows: list[dict[str, Any]]) -> str:
    parts = [
        f"{row['agreeing']} of {row['cells']} cells with {said} have every mean within 10 % and every P99 within 15 %; "
        f"of the others the plan flags {row['missed_flagged']} itself."
        for arrivals, said in (("poisson", "Poisson arrivals"), ("own", "the trace's own"))
        for row in rows
        if row.get("arrivals") == arrivals and "agreeing" in row
    ]
    return " ".join(parts)


def _replay(rows: list[dict[str, Any]]) -> Iterator[Figure]:
    for how, name in (("formula", "by the closed forms alone"), ("ensured", "as recommended")):
        pairs = [(row[f"{how}_gpus"], row[f"{how}_smallest_gpus"]) for row in rows if row.get(f"{how}_smallest_gpus")]
        yield _spread(f"GPUs, {name}", [abs(planned / smallest - 1.0) for planned, smallest in pairs])
    pairs = [(row["next_gpus"], row["ensured_smallest_gpus"]) for row in rows if row.get("next_gpus")]
    yield _spread("GPUs, for another stretch", [planned / smallest - 1.0 for planned, smallest in pairs])


def _misses_said(rows: list[dict[str, Any]]) -> str:
    counted = rows[-1]
    said = [
        f"Of {counted['plans']} plans {counted['ensured_missed']} miss an SLO when their own trace is replayed "
        f"({counted['formula_missed']} by the closed forms alone)."
    ]
    for how, name in (("ensured", "Planned on one half of a trace"), ("next", "With `--size-for next`")):
        said.append(
            f"{name} and replayed on the other, {counted[f'{how}_missed_on_other_half']} of {counted[f'{how}_halves']} "
            f"miss at the planned rate, and {counted[f'{how}_missed_on_same_clock']} of "
            f"{counted[f'{how}_same_clock_halves']} on one clock, where the other half brings no more requests."
        )
    return " ".join(said)


def _spread(name: str, errors: list[float]) -> Figure:
    return Figure("", name, len(errors), float(np.median(errors)), float(np.quantile(errors, 0.9)))


#: Kinds of kernels that every transformer has: for these the page also says what a relative's constants give.
_COMMON = ("gemm", "moe", "context_attention", "generation_attention", "context_mla", "generation_mla", "all_reduce")


def _operators(rows: list[dict[str, Any]]) -> Iterator[Figure]:
    for row in rows:
        kind, protocol = row["class"].split(", ", 1)
        if protocol == "new shapes" or kind in _COMMON:
            name = f"{kind.replace('_', ' ')}, {protocol}"
            yield Figure("", name, row["rows"], row["median error"], row["p90 error"])


def _plain(rows: list[dict[str, Any]]) -> Iterator[Figure]:
    """Of a benchmark whose rows state their class, count, and median error."""
    for row in rows:
        if "median error" in row:
            name, count = str(row.get("class", "all")), int(row.get("rows", row.get("count", 0)))
            yield Figure("", name, count, row["median error"], row.get("p90 error"), row.get("covered"))


_READ = {
    "accuracy": _serving,
    "ten_points": _ten_points,
    "throughput": _throughput,
    "operators": _operators,
    "memory": _plain,
    "servers": _servers,
    "mlperf": _mlperf,
    "agreement": _agreement,
    "closed_form": _closed_form,
    "closed_form_ranks": _closed_form,
    "replay": _replay,
}
_REMARKS = {"closed_form": _cells_said, "closed_form_ranks": _cells_said, "replay": _misses_said}
