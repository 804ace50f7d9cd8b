"""Plans and simulated servers beside 54 public runs of MLPerf Inference v5.1, and the factor of tuned servers.

Two factors on the speed of steps, by the GPU's maker: with the one a plan's GPUs are those used (`dmodels.fit.tuned`,
which `--tuned` applies), with the other the simulator's TTFT P99 at the measured rate is the one measured. Close to
saturation a hundredth of speed is a tenth of a latency, so the second one is the sharper measure. Either is found
without the run's model, or without its submitter, whichever predicts the run worse: no run is judged by what it had a
part in. That a run is valid is known of it: LoadGen rejects one that breaks an SLO. So percentiles are those at the
likeliest speed among the speeds that keep both SLOs at its rate: the factor's, or the slowest that does.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from benchmarks.registry import Row, benchmark
from dmodels.core.hardware import Parallel
from dmodels.fit import tuned as shipped
from dmodels.fit.tuned import maker
from dmodels.sim.engines import Capacity
from dmodels.sim.requests import Served
from dmodels.studies.plan import price
from dmodels.studies.plan.search import by_formula
from dmodels.studies.servers import server

from ._mlperf_runs import SLOTS, STEP_TOKENS, UTILIZATION, Run, runs

#: Where the factor is kept.
FACTORS = Path(shipped.__file__).parent / "data" / "tuned.json"
#: A plan at so many times the rate has a whole number of GPUs that is as good as a fraction.
_MANY = 50.0
#: Speeds that are simulated, in those at which a plan's GPUs are those used: near the rate that a server can keep up
#: with, one per cent of speed moves the TTFT P99 by a third.
_SPEEDS = np.geomspace(0.82, 1.45, 39)
#: Of 80 %, in standard deviations.
_Z = 1.2816
#: Times that a run is simulated, with other requests each time. Of one time the TTFT P99 has 3 % of chance and more,
#: and the medians two points.
_DRAWS = 3

Found = TypeVar("Found")


def _write(rows: list[Row]) -> Path:
    """The factor that all runs say, for the package."""
    found = [row for row in rows if row["class"] == "factor"]
    makers = {
        str(row["maker"]): {name: round(float(row[name]), 4) for name in ("factor", "low", "high")}  # type: ignore[arg-type]
        | {"runs_count": row["runs"]}
        for row in found
    }
    document = {"source": "MLPerf Inference v5.1 servers", "makers": makers}
    FACTORS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return FACTORS


@benchmark(write=_write)
def mlperf(quick: bool) -> Iterator[Row]:
    """GPUs that a plan asks and latencies of simulated servers beside MLPerf's public runs on H200 and MI300X."""
    found, mixed = runs()
    found = found[:: 9 if quick else 1]
    asked = _asked(found)
    known = [np.log(a / run.gpus) for run, a in zip(found, asked, strict=True)]
    base = {name: float(np.exp(_centre(_of(found, known, name))[0])) for name in ("nvidia", "amd")}
    played = _once(found, lambda run: _played(run, base[maker(run.gpu)]))
    speeds = [_own_speed(run, grid) for run, grid in zip(found, played, strict=True)]
    judged = []
    for i, run in enumerate(found):
        factor, spread = _left_out(found, known, i)
        gpus = asked[i] / factor
        of_others = _left_out(found, speeds, i)[0]
        speed = max(of_others, _slowest(run, played[i]))
        simulated, unaware = _between(played[i], speed), _between(played[i], of_others)
        own = asked[i] / run.gpus
        row: Row = {
            "class": "run",
            "id": run.id,
            "submitter": run.submitter,
            "benchmark": run.benchmark,
            "gpu": run.gpu,
            "engine": run.engine,
            "gpus used": run.gpus,
            "gpus asked untuned": float(np.ceil(asked[i])),
            "gpus asked": float(np.ceil(gpus - 1e-9)),
            "asked/used": gpus / run.gpus,
            "factor": factor,
            "speed": speed,
            "covered": bool(np.exp(-_Z * spread) <= own / factor <= np.exp(_Z * spread)),
            "rate measured": run.rate_rps,
            "rate at SLO": run.rate_rps * run.gpus / gpus,
            "lengths known": run.lengths_known,
        }
        for name, measured in run.measured_s.items():
            told = {"measured": measured, "simulated": simulated[name], "at the others' speed": unaware[name]}
            row = {**row, **{f"{name} {how}": seconds for how, seconds in told.items()}}
        judged.append(row)
        yield row
    yield from _summary(judged, mixed)
    for name in ("all", "nvidia", "amd"):
        _, own, _, count = _centre(_of(found, known, name))
        common = _spread(_of(found, known, "all"))
        factor, spread = _factor(_of(found, known, name), common), own if name == "all" else common
        low, high = factor * np.exp(-_Z * spread), factor * np.exp(_Z * spread)
        speed = _factor(_of(found, speeds, name), _spread(_of(found, speeds, "all")))
        yield {
            "class": "factor",
            "maker": name,
            "factor": factor,
            "low": low,
            "high": high,
            "speed": speed,
            "runs": count,
        }


def _asked(found: list[Run]) -> list[float]:
    """GPUs that a plan for such servers asks at each run's rate, without the factor."""

    def of(run: Run) -> float:
        asked = run.question(_MANY)
        best = by_formula(replace(asked, tuned=True), price(asked).calibration).best
        return best.gpus / _MANY if best is not None else float("nan")

    return _once(found, of)


def _once(found: list[Run], of: Callable[[Run], Found]) -> list[Found]:
    """What is found of each run; equal questions are asked once."""
    known: dict[tuple[object, ...], Found] = {}
    keys = [(r.benchmark, r.gpu, r.engine, r.gpus, round(r.rate_rps / r.gpus, 1), round(r.tokens)) for r in found]
    for key, run in zip(keys, found, strict=True):
        if key not in known:
            known[key] = of(run)
    return [known[key] for key in keys]


def _of(found: list[Run], logs: Sequence[float], name: str) -> list[tuple[Run, float]]:
    """The runs of a maker, or of all, with their logarithms."""
    return [(run, x) for run, x in zip(found, logs, strict=True) if name in ("all", maker(run.gpu))]


def _centre(known: list[tuple[Run, float]]) -> tuple[float, float, int, int]:
    """(mean logarithm, spread from run to run, models, runs): means over submitters, of them over models.

    Runs of one submitter share a system and a recipe, so a submitter counts once in its model, and a model once.
    """
    logs: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run, own in known:
        if np.isfinite(own):
            logs[run.benchmark][run.submitter].append(float(own))
    if not logs:
        return 0.0, 0.5, 0, 0
    centre = float(np.mean([np.mean([np.mean(own) for own in of.values()]) for of in logs.values()]))
    every = np.array([x for of in logs.values() for own in of.values() for x in own])
    return centre, float(np.sqrt(np.mean((every - centre) ** 2))), len(logs), int(every.size)


def _factor(known: list[tuple[Run, float]], spread: float) -> float:
    """exp of the mean logarithm c of n models, drawn to no factor as far as their disagreement s explains it:
    c (1 - s^2 / (n c^2)), 0 where that is negative."""
    centre, _, models, _ = _centre(known)
    doubt = spread**2 / max(models, 1)
    return float(np.exp(centre * max(0.0, 1.0 - doubt / centre**2))) if centre else 1.0


def _left_out(found: list[Run], logs: Sequence[float], i: int) -> tuple[float, float]:
    """(factor, spread) for a run without its model or without its submitter, whichever is further from the run.

    Runs are as far from their maker's factor for one maker as for another: two runs that are left tell no spread.
    """
    one, tried = found[i], []
    for same in ("benchmark", "submitter"):
        others = [
            (run, own)
            for run, own in zip(found, logs, strict=True)
            if getattr(run, same) != getattr(one, same) and np.isfinite(own)
        ]
        alike = [pair for pair in others if maker(pair[0].gpu) == maker(one.gpu)]
        if alike:
            spread = _spread(others)
            factor = _factor(alike, spread)
            tried.append((abs(logs[i] - np.log(factor)), factor, spread))
    return max(tried)[1:] if tried else (1.0, 0.5)


def _spread(known: list[tuple[Run, float]]) -> float:
    """Of the logarithms about their makers' factors: root mean square, every model counted once."""
    apart: dict[tuple[str, str], list[float]] = defaultdict(list)
    for name in ("nvidia", "amd"):
        own = [pair for pair in known if maker(pair[0].gpu) == name]
        centre = _centre(own)[0]
        for run, value in own:
            apart[name, run.benchmark].append((value - centre) ** 2)
    return float(np.sqrt(np.mean([np.mean(values) for values in apart.values()])))


def _played(run: Run, base: float) -> dict[float, dict[str, float]]:
    """Percentiles at the run's own rate, simulated with steps so many times as fast as calibrated."""
    in_flight = {"chunked": True, "capacity": Capacity.MAX_UTILIZATION}
    made = server(
        run.model,
        run.gpu,
        Parallel(run.tp, 1, 1, 1),
        backend=run.engine,
        weight_dtype="fp8",
        kv_dtype="fp8",
        utilization=UTILIZATION,
        max_num_seqs=SLOTS,
        max_num_batched_tokens=STEP_TOKENS,
        instances=max(1, min(2, run.gpus // run.tp)),
        options=in_flight if run.engine == "trtllm" else {},
    )
    share = made.instances * run.tp / run.gpus
    count = int(np.clip(300.0 * run.rate_rps * share, 400, 9_000))
    drawn = [run.requests(count, seed) for seed in range(_DRAWS)]
    found = {}
    for speed in (base * _SPEEDS).tolist():
        faster = replace(made, law=made.law.scaled(1.0 / speed))
        told = [_percentiles(faster.serve(when / share, prompts, answers)) for when, prompts, answers in drawn]
        found[speed] = {name: float(np.exp(np.mean([np.log(one[name]) for one in told]))) for name in told[0]}
    return found


def _percentiles(done: Served) -> dict[str, float]:
    return {
        f"{metric}_p{q}": float(np.nanquantile(getattr(done, f"{metric}_s"), q / 100.0))
        for metric in ("ttft", "tpot")
        for q in (50, 90, 99)
    }


def _slowest(run: Run, grid: dict[float, dict[str, float]]) -> float:
    """The least speed at which the simulated run keeps both SLOs at P99, within what was simulated."""
    speeds = np.geomspace(min(grid), max(grid), 200)
    keeps = [
        at["ttft_p99"] <= float(run.slo.ttft_s) and at["tpot_p99"] <= float(run.slo.tpot_s)
        for at in (_between(grid, float(speed)) for speed in speeds)
    ]
    return float(speeds[int(np.argmax(keeps))] if any(keeps) else speeds[-1])


def _own_speed(run: Run, grid: dict[float, dict[str, float]]) -> float:
    """The logarithm of the speed at which the simulated TTFT P99 is the measured one, within what was simulated."""
    speeds = sorted(grid, reverse=True)
    times = np.maximum.accumulate([grid[speed]["ttft_p99"] for speed in speeds])
    return float(np.interp(np.log(run.measured_s["ttft_p99"]), np.log(times), np.log(speeds)))


def _between(grid: dict[float, dict[str, float]], speed: float) -> dict[str, float]:
    """Percentiles at a speed between those simulated, their logarithms in a straight line."""
    speeds = sorted(grid)
    return {
        name: float(np.exp(np.interp(np.log(speed), np.log(speeds), [np.log(grid[s][name]) for s in speeds])))
        for name in grid[speeds[0]]
    }


def _summary(judged: list[Row], mixed: list[str]) -> Iterator[Row]:
    """Over all runs, and by benchmark and GPU. A run entered for two accuracy targets is listed twice with one log."""
    classes: dict[str, list[Row]] = defaultdict(list)
    logs = set()
    for row in judged:
        classes["all"].append(row)
        log = (row["id"], row["benchmark"], row["ttft_p99 measured"], row["tpot_p99 measured"])
        if log not in logs:
            logs.add(log)
            classes["every log once"].append(row)
        classes["lengths known" if row["lengths known"] else "lengths assumed"].append(row)
        classes[f"{row['benchmark']} on {row['gpu']} ({row['engine']})"].append(row)
    for name, own in classes.items():
        far = lambda metric, how="simulated", own=own: float(
            np.median([abs(row[f"{metric} {how}"] / row[f"{metric} measured"] - 1.0) for row in own])
        )
        yield {
            "class": name,
            "runs": len(own),
            "median gpu error": float(np.median([abs(row["gpus asked"] / row["gpus used"] - 1.0) for row in own])),
            "median gpu error untuned": float(
                np.median([abs(row["gpus asked untuned"] / row["gpus used"] - 1.0) for row in own])
            ),
            "covered": float(np.mean([row["covered"] for row in own])),
            "median ttft p99 error": far("ttft_p99"),
            "median tpot p99 error": far("tpot_p99"),
            "median ttft p99 error, validity unknown": far("ttft_p99", "at the others' speed"),
            "median tpot p99 error, validity unknown": far("tpot_p99", "at the others' speed"),
            "mixed systems left out": len(mixed),
        }
