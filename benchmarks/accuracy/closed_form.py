"""The closed forms of a plan against the simulator, cell by cell over what an instance may be and do.

A cell is one instance of a pool: a trace, model, GPU, layout, chunk and load that are drawn (with a fixed seed) from
the lists below, for one pool, the short or the long requests of two pools, or a worker of a prefill/decode split. Each
is served with the trace's own arrival times, scaled to the load, and with Poisson arrivals of the same requests, which
is what the closed forms assume. Every cell is listed, with what the plan says itself that it was not checked on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from benchmarks.accuracy.replay import traces
from benchmarks.registry import Row, benchmark
from dmodels import SLO
from dmodels.models.instance import Engine
from dmodels.models.traffic import Trace
from dmodels.sim.deployments import ServingFleet
from dmodels.sim.recordings import Recording, recorded
from dmodels.studies.plan import question
from dmodels.studies.plan.deployment import Pool
from dmodels.studies.plan.forecast import by_forms, by_recursion
from dmodels.studies.plan.machines import serving_pool
from dmodels.studies.plan.reach import MEAN_FRAC, PERCENTILE_FRAC, reach
from dmodels.studies.plan.search import deployment, sized
from dmodels.studies.plan.sizing import Priced, Ranked, price

MODELS = ("llama-3.1-8b", "llama-3.1-70b", "qwen3-30b-a3b")
GPUS = ("h100_sxm", "a100_80gb_sxm", "mi300x")
LAYOUTS = ((1, 1), (2, 1), (4, 1), (8, 1), (4, 2))  # tensor and pipeline parallelism
CHUNKS = (256, 512, 1024, 2048, 4096, 8192, 16384)
POOLS = ("all", "short", "long", "prefill", "decode")
LOADS = (0.3, 0.5, 0.7, 0.85, 0.95)
CELLS, QUICK = 100, 3
GRID = (MODELS, GPUS, LAYOUTS, CHUNKS, POOLS, LOADS, ("vllm",))
#: Ranks of attention data parallelism: under TensorRT-LLM they wait for each other's prompts.
RANKS = (
    ("deepseek-v3", "qwen3-30b-a3b", "gpt-oss-120b"),
    ("h200_sxm", "b200_sxm", "mi300x"),
    ((1, 1, 4), (1, 1, 8), (2, 1, 4), (1, 1, 16)),
    (2048, 8192, 16384),
    POOLS,
    LOADS,
    ("vllm", "trtllm"),
)
OF_RANKS = 40
#: Requests of the stream that a plan without a trace holds its formulas against.
FLAG_COUNT = 100_000
#: Poisson arrivals are so many requests, the trace's own lengths over and over: near saturation few do not settle.
_COUNT, _QUICK_COUNT = 2_000_000, 30_000
_NO_SLO = SLO(1e4, 1e3)


class Cell(NamedTuple):
    """One instance and what it serves."""

    trace: Trace
    model: str
    gpu: str
    layout: tuple[int, ...]
    chunk: int
    pool: str
    load: float
    backend: str


@benchmark(name="closed_form")
def closed_form(quick: bool) -> Iterator[Row]:
    """TTFT, TPOT and E2E of one instance by the closed forms and by the simulator, over a designed grid."""
    yield from _grid(quick, GRID, CELLS)


@benchmark(name="closed_form_ranks")
def closed_form_ranks(quick: bool) -> Iterator[Row]:
    """The same of expert models whose attention is data parallel."""
    yield from _grid(quick, RANKS, OF_RANKS)


def _grid(quick: bool, lists: tuple[tuple, ...], count: int) -> Iterator[Row]:
    rows = []
    for cell in drawn_cells(list(traces(quick)), lists, QUICK if quick else count):
        for row in compared(cell, _QUICK_COUNT if quick else _COUNT):
            rows.append(row)
            yield row
    for arrivals in ("own", "poisson"):
        yield summary(arrivals, [row for row in rows if row["arrivals"] == arrivals])


def drawn_cells(known: list[Trace], lists: tuple[tuple, ...], count: int) -> Iterator[Cell]:
    """Cells on which the instance fits, all values of every list about equally often."""
    rng = np.random.default_rng(2026)
    every = (known[:6], *lists)
    found, turn = 0, 0
    while found < count:
        orders = [rng.permutation(-(-count // len(values)) * len(values))[:count] % len(values) for values in every]
        for places in zip(*orders, strict=True):
            cell = Cell(*(values[int(k)] for values, k in zip(every, places, strict=True)))
            if found < count and _priced(cell, 1.0) is not None:
                found += 1
                yield cell
        turn += 1
        assert turn < 20, "hardly any cell fits"


def _priced(cell: Cell, rate_rps: float) -> tuple[Priced, int, Pool] | None:
    """(the question's table, the stage, its pool of one instance); None where no instance fits its requests."""
    tp, pp, dp = (*cell.layout, 1)[:3]
    total = cell.trace.input_tokens + cell.trace.output_tokens
    asked = question(
        cell.model,
        [cell.gpu],
        cell.trace,
        _NO_SLO,
        rate_rps=rate_rps,
        tp=(min(tp * dp, 8),),
        pp=(pp,),
        wide_ep=(tp * dp,) if tp * dp > 8 else (),
        backend=cell.backend,
        split=cell.pool in ("prefill", "decode"),
        thresholds_tokens=(float(np.median(total)),) if cell.pool in ("short", "long") else (),
        engine=Engine(max_num_batched_tokens=float(cell.chunk)),
    )
    priced = price(asked)
    stage = next(k for k, one in enumerate(priced.stages) if one.name == cell.pool)
    row = _row(priced, tp, dp)
    if row is None or not np.isfinite(priced.stable_instances[row, stage]):
        return None
    instances = np.where(np.isfinite(priced.instances), 1.0, np.inf)
    scheme = next(one for one in priced.schemes if stage in one.stages)
    if not np.isfinite(instances[row, list(scheme.stages)]).all():
        return None
    found = Ranked(scheme, (row,) * len(scheme.stages), 0.0)
    made = deployment(sized(replace(priced, instances=instances), [found]), found)
    return priced, stage, made.pools[scheme.stages.index(stage)]


def _row(priced: Priced, tp: int, dp: int) -> int | None:
    """The first layout with these degrees."""
    return next((k for k, layout in enumerate(priced.layouts) if (layout.tp, layout.dp) == (tp, dp)), None)


def compared(cell: Cell, poisson_count: int = _COUNT) -> Iterator[Row]:
    """The cell with both kinds of arrivals."""
    at_one = _priced(cell, 1.0)
    assert at_one is not None
    found = _priced(cell, cell.load / at_one[2].load_frac)
    assert found is not None
    priced, stage, pool = found
    row = priced.layouts.index(pool.layout)
    percentile = float(np.asarray(priced.cells.slo.percentile)[priced.cell(row, stage), 0])
    own = recorded(cell.trace, priced.question.rate_rps, float(priced.question.model.max_context_tokens))
    for arrivals, requests in (("own", own), ("poisson", _poisson(own, poisson_count))):
        # what the plan says itself: of a trace, its recursion; without one, the formulas, held against another stream
        flagged = reach(priced, [pool], _poisson(own, FLAG_COUNT, seed=2)).outside if arrivals == "poisson" else ()
        fleet = ServingFleet((serving_pool(priced, row, stage),))
        ready = requests.warm(pool.e2e_s)
        (mine,) = fleet.own(ready.requests())
        times = fleet.serve(0, mine, (1,))
        times = times.at(times.arrival_s >= ready.warm_s)
        (said,) = by_forms([pool])
        if arrivals == "own":
            (said,) = by_recursion(fleet, ready, (1,), [percentile])
        off = {}
        for name, seconds in (("ttft", times.ttft_s), ("tpot", times.tpot_s), ("e2e", times.e2e_s)):
            known = seconds[np.isfinite(seconds)]
            if not known.size or (cell.pool == "prefill" and name != "ttft"):
                continue
            predicted = said[name.upper()]
            off[f"{name}_mean_error"] = predicted.mean_s / float(known.mean()) - 1.0
            off[f"{name}_p99_error"] = predicted.percentile_s / float(np.quantile(known, percentile)) - 1.0
        off = {name: error for name, error in off.items() if np.isfinite(error)}
        within = {name: abs(e) <= (MEAN_FRAC if "mean" in name else PERCENTILE_FRAC) for name, e in off.items()}
        yield {
            **(cell._asdict() | {"trace": cell.trace.name, "layout": "x".join(map(str, cell.layout))}),
            "slots": pool.slots_count,
            "arrivals": arrivals,
            "requests": times.arrival_s.size,
            **off,
            "agrees": all(within.values()),
            "within": sum(within.values()),
            "metrics": len(within),
            "flagged": "; ".join(flagged),
        }


def _poisson(own: Recording, count: int, seed: int = 1) -> Recording:
    """The same requests, drawn anew, at the times of a Poisson stream."""
    rng, gap = np.random.default_rng(seed), own.period_s / own.size
    rows, when = rng.integers(0, own.size, count), np.cumsum(rng.exponential(gap, count))
    columns = (own.input_tokens[rows], own.output_tokens[rows], own.cached_tokens[rows])
    return Recording(when, *columns, max(count * gap, float(when[-1])), "Poisson")


def summary(arrivals: str, rows: list[Row]) -> Row:
    """How many cells agree in all of their metrics, and how many of the others the plan flags itself."""
    missed = [row for row in rows if not row["agrees"]]
    errors = {name: [abs(row[name]) for row in rows if name in row] for name in _METRICS}
    return {
        "arrivals": arrivals,
        "cells": len(rows),
        "agreeing": len(rows) - len(missed),
        "missed_flagged": sum(bool(row["flagged"]) for row in missed),
        "metrics": sum(row["metrics"] for row in rows),
        "metrics_within": sum(row["within"] for row in rows),
        **{f"median_{name}": float(np.median(values)) for name, values in errors.items() if values},
    }


_METRICS = tuple(f"{name}_{kind}_error" for name in ("ttft", "tpot", "e2e") for kind in ("mean", "p99"))
