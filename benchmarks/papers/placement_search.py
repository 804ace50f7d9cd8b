"""DistServe's placement search beside the plan's: phase by phase for one instance, or both pools for the rate asked.

DistServe (Zhong et al., 2024, Algorithm 1) takes, for prefill and for decode alone, the parallelism with the most
goodput per GPU of one instance, and then as many instances as the rate needs. Both searches here price the same cells:
the layouts, SLOs and calibration of `dmodels.plan`. Goodput of an instance is the largest rate that one keeps within
its SLO, on a grid of 5 %. Lengths and SLOs are near those of DistServe's three tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

import dmodels
from benchmarks.registry import Row, benchmark
from dmodels.studies.plan import margins
from dmodels.studies.plan.sizing import Priced

#: task -> (input, output tokens), TTFT and TPOT SLO (s)
TASKS = {"chat": ((755, 200), 1.0, 0.1), "code": ((171, 98), 0.2, 0.1), "summary": ((1738, 91), 5.0, 0.1)}
MODELS = ("llama-3.1-8b", "llama-3.1-70b")
RATES_RPS = np.geomspace(0.05, 400.0, 185)  # 5 % apart


class Found(NamedTuple):
    """A split: its price, and the layout of each phase."""

    usd_per_hour: float
    layouts: tuple[str, ...]


def goodput_rps(priced: Priced) -> np.ndarray:
    """(layouts, stages): the largest rate that one instance keeps within its SLOs; 0 if there is none."""
    asked = priced.question
    most = np.zeros(priced.instances.shape)
    for rate in RATES_RPS:
        found = margins.fewest(priced.cells, float(rate), asked.engine, asked.margins, priced.strain)
        most[np.asarray(found.instances).reshape(most.shape) <= 1] = rate
    return most


def phase_by_phase(priced: Priced) -> Found:
    """DistServe's choice: the most goodput per dollar in each phase, over the ways to share the TTFT between them."""
    per_usd = goodput_rps(priced) / priced.prices_usd_per_hour[:, None]
    splits = []
    for scheme in priced.schemes:
        if scheme.in_turn:
            rows = [int(np.argmax(per_usd[:, stage])) for stage in scheme.stages]
            score = 1 / sum(1 / max(per_usd[row, k], 1e-12) for row, k in zip(rows, scheme.stages, strict=True))
            splits.append((score, rows, scheme.stages))
    _, rows, stages = max(splits, key=lambda entry: entry[0])
    return Found(float(sum(priced.costs_usd_per_hour[rows, list(stages)])), _names(priced, rows))


def together(priced: Priced) -> Found:
    """The cheapest split at the rate asked, all pairs of layouts tried."""
    costs = priced.costs_usd_per_hour
    found = []
    for scheme in priced.schemes:
        if scheme.in_turn:
            rows = [int(np.argmin(costs[:, stage])) for stage in scheme.stages]
            found.append(Found(float(sum(costs[rows, list(scheme.stages)])), _names(priced, rows)))
    return min(found)


def _names(priced: Priced, rows: list[int]) -> tuple[str, ...]:
    return tuple(f"TP{priced.layouts[row].tp} PP{priced.layouts[row].pp} {priced.layouts[row].gpu}" for row in rows)


@benchmark()
def placement_search(quick: bool) -> Iterator[Row]:
    """DistServe's placement search beside the plan's: price of both splits and of the cheapest fleet, by rate."""
    for model in MODELS[: 1 if quick else None]:
        for task, (lengths, ttft, tpot) in TASKS.items():
            for rate in (20.0,) if quick else (2.0, 10.0, 50.0, 250.0):
                answer = dmodels.plan(
                    model, "h100_sxm", lengths, rate, ttft=ttft, tpot=tpot, percentile=0.9, split=True, ensure=False
                )
                apart, joint = phase_by_phase(answer.priced), together(answer.priced)
                yield {
                    "model": model,
                    "task": task,
                    "rate_rps": rate,
                    "distserve_usd_per_hour": apart.usd_per_hour,
                    "distserve": " | ".join(apart.layouts),
                    "split_usd_per_hour": joint.usd_per_hour,
                    "split": " | ".join(joint.layouts),
                    "cheapest_usd_per_hour": answer.formula_usd_per_hour,
                }
