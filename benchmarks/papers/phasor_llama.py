"""Phasor's Table 2 on its second model, Llama-3-8B, by what the sizes of the two models say.

Nothing of Llama-3-8B's pace is printed. Its sizes are public, and the cluster of Qwen2.5-7B (`Workers`, `Prompts`) is
scaled by them: matrix products and the weight pass by parameters, attention of prompts by layers times heads times
head size, what a sequence adds to a decode step partly by parameters and partly by the bytes of its cache, KV blocks by
what the weights leave of 32 GB over the bytes of a block. Arrival rates are as near to what 4+4 serve as Qwen's are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from benchmarks.papers import _phasor_capacity as capacity
from benchmarks.papers._printed import verdicts
from benchmarks.papers.phasor_capacity import REQUESTS, WORKLOADS, clients, ratio_row
from benchmarks.papers.phasor_tables import RATES, SYSTEMS, p99s
from dmodels.models.latency import StepLaw
from dmodels.sim.cluster import Workers
from proofs.papers.rows import Printed


class Sizes(NamedTuple):
    """Of a model in 16 bits."""

    params: float
    kv_bytes_per_token: float
    attention: float  # layers times heads times head size


QWEN = Sizes(7.62e9, 2 * 2 * 28 * 4 * 128, 28 * 28 * 128)
LLAMA = Sizes(8.03e9, 2 * 2 * 32 * 8 * 128, 32 * 32 * 128)
GPU_BYTES, GPU_BYTES_PER_S = 32e9, 900e9  # V100
TYPICAL_TOKENS = 1024  # of the context at which a sequence's part of a decode step is divided

#: Table 2, right numbers: P99 (L-S TTFT, S-L E2E, burst E2E) and capacity (S-L, L-S, burst) over DistServe's.
PRINTED = {
    "Splitwise-like": ("1.24", "1.15", "1.36", "0.90", "0.85", "0.92"),
    "Phasor": ("0.69", "0.93", "0.76", "1.52", "1.58", "1.78"),
    "w/o freeness": ("0.94", "0.97", "0.92", "1.36", "1.50", "1.46"),
    "w/o standby": ("0.75", "0.95", "0.84", "1.44", "1.53", "1.42"),
    "w/o de-frag": ("0.71", "0.98", "0.84", "1.30", "1.55", "1.62"),
}
TAILS = {"L-S": "ttft", "S-L": "e2e", "burst": "e2e"}
HOW = "pace and KV room follow from Qwen2.5-7B's by the models' sizes: none of Llama-3-8B is printed"


def llama(workers: Workers) -> Workers:
    """The same workers with the second model."""
    larger, wider = LLAMA.params / QWEN.params, LLAMA.kv_bytes_per_token / QWEN.kv_bytes_per_token
    reading_s = TYPICAL_TOKENS * QWEN.kv_bytes_per_token / GPU_BYTES_PER_S
    left = (GPU_BYTES - 2 * LLAMA.params) / (GPU_BYTES - 2 * QWEN.params)
    return workers._replace(
        step=StepLaw(
            workers.step.base_s * larger,
            (workers.step.per_sequence_s - reading_s) * larger + reading_s * wider,
        ),
        kv_blocks=np.floor(workers.kv_blocks * left / wider),
        block_transfer_s=workers.block_transfer_s * wider,
    )


def prompts() -> capacity.Prompts:
    """Prefill of the second model."""
    qwen, larger = capacity.Prompts(), LLAMA.params / QWEN.params
    return capacity.Prompts(qwen.base_s, qwen.linear_s * larger, qwen.square_s * LLAMA.attention / QWEN.attention)


def ceiling_rps(job: capacity.Task, workers: Workers, law: capacity.Prompts) -> float:
    """What prefill or decode of these workers serves at most, at mean lengths."""
    room = workers.kv_blocks * workers.block_tokens / (job.input_tokens + job.output_tokens)
    n = min(workers.slots, room)
    decode = workers.decode * n / (job.output_tokens * float(workers.step.iteration_s(n)))
    return min(workers.prefill / float(law.seconds(job.input_tokens)), decode)


def table2_llama_rows(quick: bool = False) -> Iterator[Printed]:
    """All thirty cells: three P99s and three capacities of five systems over the static one."""
    replications, count = (2, 300) if quick else (8, 2000)
    law, tails, most = prompts(), {}, {}
    systems = {name: (llama(SYSTEMS[name][0]), SYSTEMS[name][1]) for name in ("DistServe-like", *PRINTED)}
    for workload, metric in TAILS.items():
        job, static = capacity.task(workload), SYSTEMS["DistServe-like"][0]
        rate = RATES[workload] * ceiling_rps(job, llama(static), law) / ceiling_rps(job, static, capacity.Prompts())
        requests = 1200 if quick else REQUESTS.get(workload, 2400)
        for system, (workers, control) in systems.items():
            runs = (p99s(job, rate, workers, control, r, count, prompts=law) for r in range(replications))
            tails[workload, system] = np.array([run[0 if metric == "ttft" else 1] for run in runs])
            most[workload, system] = clients(workload, workers, control, replications, requests, prompts=law)
    for system, printed in PRINTED.items():
        name = system.replace(" ", "_").replace("/", "").lower()
        cells = [(w, f"{metric}_p99", tails) for w, metric in TAILS.items()] + [
            (w, "capacity", most) for w in WORKLOADS
        ]
        for (workload, what, found), shown in zip(cells, printed, strict=True):
            base, other = found[workload, "DistServe-like"], found[workload, system]
            told = f"{workload} {what.replace('_', ' ')} over DistServe, {system}, Llama-3-8B"
            yield ratio_row(f"{name}_{workload.lower()}_{what}", "Table 2 (right)", shown, base, other, told, HOW)


verdicts("phasor_llama", "phasor/table2_llama", "Phasor. Table 2, second model", __file__, table2_llama_rows)
