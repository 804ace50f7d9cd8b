"""Whether plans keep their SLOs when the trace that they were made for is replayed, and what that costs in GPUs.

Each trace is planned for at several rates, models in turn, as a whole and by each of its halves; a plan is
replayed whole, all instances behind a router that looks at loads, on the trace's own times scaled to the planned rate.
Traces: two of production at Azure, one of Mooncake, and draws from the laws of production clients (ServeGen).
"""

from __future__ import annotations

import ast
import csv
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.registry import Row, benchmark
from dmodels import SLO, read_trace
from dmodels.models.traffic import Trace
from dmodels.studies.plan import Plan, Question, Stretch, by_formula, plan, question, replay, verify
from dmodels.studies.plan.machines import recording

MODELS = ("llama-3.1-8b", "llama-3.1-70b", "qwen3-30b-a3b")
RATES_RPS = (5.0, 20.0, 80.0, 300.0, 1000.0)
PROMISE = SLO(2.0, 0.08)
SLOW_PROMISE = SLO(5.0, 0.15)  # for prompts of 12,000 tokens in the mean


@benchmark(name="replay")
def plans_replayed(quick: bool) -> Iterator[Row]:
    """Plans replayed on their own trace and on the half that they were not made for, by formula and ensured."""
    rows = []
    for turn, trace in enumerate(traces(quick)):
        slo = SLOW_PROMISE if trace.layout == "mooncake" else PROMISE
        for place, rate in enumerate((20.0,) if quick else RATES_RPS):
            row = planned(trace, MODELS[(turn + place) % len(MODELS)], rate, slo)
            if row is not None:
                rows.append(row)
                yield row
    yield summary(rows)


def planned(trace: Trace, model: str, rate_rps: float, slo: SLO) -> Row | None:
    """The whole trace and both halves; None where no fleet holds even by the closed forms."""
    ask = lambda part: question(model, ["h100"], part, slo, rate_rps=rate_rps)
    whole = ask(trace)
    formula, ensured = by_formula(whole), plan(whole)
    if formula.best is None or ensured.best is None:
        return None
    checked = verify(formula)
    halves = [half(trace, k) for k in (0, 1)]
    crossed = {
        how: [_on_other(make(ask(halves[k])), ask(halves[1 - k]), _growth(halves, k)) for k in (0, 1)]
        for how, make in _WAYS.items()
    }
    no_more = [k for k in (0, 1) if _growth(halves, k) <= 1.0]
    found = ensured.ensured
    return {
        "trace": trace.name,
        "model": model,
        "rate_rps": rate_rps,
        "formula": formula.best.decomposition(),
        "formula_gpus": formula.best.gpus,
        "formula_smallest_gpus": checked.smallest_gpus,
        "formula_holds": checked.holds,
        "formula_holds_on_other_half": [held for held, _ in crossed["formula"]],
        "formula_holds_on_same_clock": [crossed["formula"][k][1] for k in no_more],
        "ensured": ensured.best.decomposition(),
        "ensured_gpus": ensured.best.gpus,
        "ensured_smallest_gpus": found.smallest_gpus if found else None,
        "ensured_holds": ensured.best.replayed.holds,
        "ensured_holds_on_other_half": [held for held, _ in crossed["ensured"]],
        "ensured_holds_on_same_clock": [crossed["ensured"][k][1] for k in no_more],
        "next_gpus": found.next_gpus if found else None,
        "next_holds_on_other_half": [held for held, _ in crossed["next"]],
        "next_holds_on_same_clock": [crossed["next"][k][1] for k in no_more],
        "other_half_rate": [_growth(halves, k) for k in (0, 1)],
    }


#: (start, span, clients) of the ServeGen draws.
_DRAWS = ((4e5, 7200.0, (2,)), (4e5, 7200.0, (1, 2)), (7e5, 4800.0, (1,)), (9e5, 7200.0, (1, 2)))
_WAYS = {"formula": by_formula, "ensured": plan, "next": lambda asked: plan(replace(asked, size_for=Stretch.NEXT))}


def _growth(halves: list[Trace], k: int) -> float:
    """How many times as many requests a second the other half brings, by the trace's own clock."""
    rates = [len(part) / part.duration_s for part in halves]
    return rates[1 - k] / rates[k]


def _on_other(made: Plan, other: Question, growth: float) -> tuple[bool | None, bool | None]:
    """Whether a plan keeps its SLOs on the half that it was not made for: at the planned rate, for which a calm half
    with one burst runs faster as a whole; and on the clock of the half planned on, where demand changes by `growth`."""
    if made.best is None:
        return None, None
    at_rate = recording(other)
    return tuple(replay(made.priced, made.best, seen).holds for seen in (at_rate, at_rate.faster(growth)))


def summary(rows: list[Row]) -> Row:
    """Counts over all plans."""
    over = lambda how: [r[f"{how}_gpus"] / r[f"{how}_smallest_gpus"] for r in rows if r[f"{how}_smallest_gpus"]]
    crossed = lambda how, where: [held for r in rows for held in r[f"{how}_holds_on_{where}"] if held is not None]
    found: dict[str, object] = {"plans": len(rows)}
    for how in _WAYS:
        found |= {
            f"{how}_missed_on_other_half": sum(not held for held in crossed(how, "other_half")),
            f"{how}_halves": len(crossed(how, "other_half")),
            f"{how}_missed_on_same_clock": sum(not held for held in crossed(how, "same_clock")),
            f"{how}_same_clock_halves": len(crossed(how, "same_clock")),
        }
    for how in ("formula", "ensured"):
        factors = over(how) or [float("nan")]
        found |= {
            f"{how}_missed": sum(not r[f"{how}_holds"] for r in rows),
            f"{how}_over_20_percent": sum(x > 1.2 + 1e-9 for x in factors),
            f"{how}_mean_factor": float(np.mean(factors)),
            f"{how}_largest_factor": max(factors),
        }
    return found


def half(trace: Trace, k: int) -> Trace:
    """The first or second half of the requests."""
    middle = len(trace) // 2
    kept = slice(middle, None) if k else slice(middle)
    columns = (trace.input_tokens[kept], trace.output_tokens[kept])
    return Trace(trace.name, trace.time_s[kept] - trace.time_s[kept][0], *columns)


def traces(quick: bool) -> Iterator[Trace]:
    """The files of the folder that DMODELS_TRACES names; with `quick`, the bundled five minutes alone."""
    root = Path(__file__).parents[2]
    if quick:
        yield read_trace(root / "examples" / "data" / "azure_conv_5min.csv")
        return
    folder = Path(os.environ.get("DMODELS_TRACES", root.parent / "shared" / "data"))
    for name in ("azure_2023_code.csv", "azure_2023_conv.csv", "mooncake_conversation.jsonl"):
        yield read_trace(folder / name)
    for start_s, span_s, clients in _DRAWS:
        yield servegen(folder / "servegen", start_s, span_s, clients)


def servegen(folder: Path, start_s: float, span_s: float, clients: tuple[int, ...]) -> Trace:
    """A draw from the published laws of clients: gaps by window of 600 s, lengths from the histograms of the client (of
    client 2 where it has none)."""
    rng, found = np.random.default_rng(0), []
    for client in clients:
        table = folder / f"m-small_chunk-{client}-dataset.json"
        lengths = json.loads((table if table.exists() else folder / "m-small_chunk-2-dataset.json").read_text())
        with (folder / f"m-small_chunk-{client}-trace.csv").open() as lines:
            windows = [row for row in csv.reader(lines) if start_s <= float(row[0]) < start_s + span_s]
        for begin, rate, _, family, shape, _ in windows:
            if float(rate) > 0:
                when = _gaps(rng, family, float(shape or 1.0), float(rate))
                found.append(np.stack([float(begin) + when, *_lengths(rng, lengths, float(begin), when.size)]))
    time_s, inputs, outputs = np.concatenate(found, axis=1)
    order = np.argsort(time_s, kind="stable")
    name = f"ServeGen m-small clients {clients} from {start_s:g} s"
    return Trace(name, time_s[order] - time_s.min(), inputs[order], outputs[order])


def _gaps(rng: np.random.Generator, family: str, shape: float, rate_rps: float, window_s: float = 600.0) -> np.ndarray:
    """Arrivals of a window."""
    count = int(3 * window_s * rate_rps + 50)
    drawn = {"Gamma": rng.gamma, "Weibull": lambda k, size: rng.weibull(k, size)}.get(family)
    gaps = rng.exponential(1.0, count) if drawn is None else drawn(shape, size=count)
    times = np.cumsum(gaps / gaps.mean() / rate_rps)
    return times[times < window_s]


def _lengths(rng: np.random.Generator, table: dict, begin_s: float, count: int) -> list[np.ndarray]:
    """Independent lengths from the last histograms before `begin_s` that are not empty, or the first."""
    known = [int(key) for key, row in table.items() if row["input_tokens"] != "{}"]
    at = max((key for key in known if key <= begin_s), default=min(known))
    columns = []
    for name in ("input_tokens", "output_tokens"):
        histogram = ast.literal_eval(table[str(at)][name])
        share = np.array(list(histogram.values()), float)
        drawn = rng.choice(np.array(list(histogram), float), count, p=share / share.sum())
        columns.append(np.maximum(drawn, 1.0))
    return columns
