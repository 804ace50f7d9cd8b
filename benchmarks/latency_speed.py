"""Predictions per second: TTFT and TPOT of closed-loop serving points, and single steps, in float64 on the CPU.

python -m benchmarks.latency_speed
"""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.registry import record
from dmodels import catalog
from dmodels.core.hardware import Parallel
from dmodels.core.records import stack
from dmodels.models.latency import iteration_s, serve

POINTS = 1_000_000
CHUNK = 50_000
MODELS = ("llama-3.1-70b", "gpt-oss-120b", "deepseek-r1", "qwen3-32b")
GPUS = ("h100_sxm", "h200_sxm", "b200_sxm")


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(0)
    models = stack(*map(catalog.model, MODELS))
    gpus = stack(*map(catalog.gpu, GPUS))
    batch = (models[rng.integers(0, len(MODELS), CHUNK)], gpus[rng.integers(0, len(GPUS), CHUNK)])
    tp = Parallel(2.0 ** rng.integers(0, 4, CHUNK))
    ranges = ((100, 9000), (50, 2000), (1, 300))
    isl, osl, clients = (jnp.asarray(rng.uniform(low, high, CHUNK)) for low, high in ranges)

    @jax.jit
    def one(model, gpu, layout, isl, osl, clients):
        s = serve(model, gpu, layout, isl, osl, clients)
        return s.ttft_s, s.tpot_s

    @jax.jit
    def single(model, gpu, layout, isl, osl, clients):
        return iteration_s(model, gpu, layout, clients, isl + osl / 2.0)

    rows = []
    for name, function in (("closed loop (TTFT and TPOT)", one), ("one step", single)):
        jax.block_until_ready(function(*batch, tp, isl, osl, clients))
        times, cpu = [], []
        for _ in range(3):
            start, busy = time.perf_counter(), time.process_time()
            for _ in range(POINTS // CHUNK):
                out = function(*batch, tp, isl, osl, clients)
            jax.block_until_ready(out)
            times.append(time.perf_counter() - start)
            cpu.append(time.process_time() - busy)
        rate, per_core = POINTS / min(times), POINTS / min(cpu)
        print(f"{name:<30} {rate / 1e6:6.2f} million a second, {per_core / 1e6:6.2f} million a CPU-second")
        rows.append({"case": name, "points": POINTS, "per_s": rate, "per_cpu_s": per_core})
    record("latency_speed", rows)


if __name__ == "__main__":
    main()
