"""TaiChi's hybrid workers beside Phasor and its baselines, on the requests of Phasor's ablation.

The sliders (workers of either kind, chunks of decoders, watermark) are chosen by a grid on replications of their own,
by the share of requests that keep both SLOs; what is told comes from other replications. The other systems have no such
search: the paper gives their settings. SLOs are those of Phasor's Table 3; a step of a hybrid worker takes the longer
of reading the weights and its chunk of prompts (`sim.cluster.hybrid`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from benchmarks.papers import _phasor_capacity as capacity
from benchmarks.papers.phasor_tables import RATES, SYSTEMS, against, p99s
from benchmarks.registry import Row, benchmark
from dmodels.sim.cluster import Control, Hybrid, Workers
from dmodels.sim.estimate import mean_of

OTHERS = ("DistServe-like", "Splitwise-like", "Phasor")
#: Workers of the first kind, prompt tokens in a step of either, and the watermark.
SPLITS, CHUNKS, DECODE_CHUNKS, WATERMARKS = (3, 4, 5), (1024.0, 4096.0), (0.0, 128.0, 512.0), (0.8, 1.0)
#: Replications from here on are for the choice.
CHOICE = 1000


def kept(job: capacity.Task, run) -> float:
    """Share of requests after the first fifth that keep both SLOs."""
    skip = run.arrival_s.size // 5
    good = (run.ttft_s <= float(job.slo.ttft_s)) & ~(run.tpot_s > float(job.slo.tpot_s))
    return float(good[skip:].mean())


def sliders(job: capacity.Task, rate: float, count: int, replications: int) -> tuple[Workers, Hybrid]:
    """The setting of the grid that keeps most SLOs, on replications that are told of nowhere else."""
    best, found = -1.0, None
    for first, chunk, decode_chunk, watermark in product(SPLITS, CHUNKS, DECODE_CHUNKS, WATERMARKS):
        cluster = _in_time(Workers(first, 8 - first), job)
        control = Hybrid(chunk, decode_chunk, watermark, tpot_slo_s=float(job.slo.tpot_s))
        runs = [p99s(job, rate, cluster, control, CHOICE + r, count)[2] for r in range(replications)]
        share = float(np.mean([kept(job, run) for run in runs]))
        if share > best:
            best, found = share, (cluster, control)
    assert found is not None
    return found


def _in_time(cluster: Workers, job: capacity.Task) -> Workers:
    return cluster._replace(ttft_slo_s=float(job.slo.ttft_s))


@benchmark()
def phasor_hybrid(quick: bool) -> Iterator[Row]:
    """TaiChi's hybrid beside Phasor and its baselines: P99 over the static pool, and the share that keeps both SLOs."""
    replications, count = (2, 300) if quick else (12, 3000)
    for name, rate in RATES.items():
        job = capacity.task(name)
        hybrid = sliders(job, rate, count, 1 if quick else 2)
        systems: dict[str, tuple[Workers, Control | Hybrid]] = {other: SYSTEMS[other] for other in OTHERS}
        systems["TaiChi-like"] = hybrid
        found = {
            system: [p99s(job, rate, *setting, r, count) for r in range(replications)]
            for system, setting in systems.items()
        }
        values = {system: np.array([run[:2] for run in runs]) for system, runs in found.items()}
        for system, runs in found.items():
            ttft, e2e = (against(values["DistServe-like"][:, k], values[system][:, k]) for k in (0, 1))
            both = mean_of(np.array([kept(job, run[2]) for run in runs]))
            row = {"workload": name, "system": system, "ttft_p99": ttft[0], "ttft_ci": ttft[1]}
            row |= {"e2e_p99": e2e[0], "e2e_ci": e2e[1]}
            row |= {"slo_frac": both.value, "slo_ci": both.half_width}
            if system == "TaiChi-like":
                cluster, control = hybrid
                row |= {"prefill_workers": cluster.prefill, "chunk_tokens": control.chunk_tokens}
                row |= {"decode_chunk_tokens": control.decode_chunk_tokens, "watermark_frac": control.watermark_frac}
            yield row
