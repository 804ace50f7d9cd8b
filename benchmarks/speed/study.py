"""A study of 10^8 requests in bounded memory, interrupted on the way and resumed.

One instance of 16 slots on the token-budget paper's Azure workload at 80 % of what it can serve. A child process runs
the first part and is interrupted (SIGINT) when 30 % is done; then this process finishes from the checkpoint.
"""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import jax

from benchmarks.registry import Row, benchmark
from dmodels.catalog import workload
from dmodels.models.latency import StepLaw
from dmodels.sim import study


def run(count: int, checkpoint: Path):
    def progress(done: int, total: int) -> None:
        print(f"{done}/{total}", flush=True)

    return study.run(
        workload("azure-paper", 2.4),
        StepLaw(8e-3, 0.65e-3),
        16,
        jax.random.key(0),
        count,
        checkpoint=checkpoint,
        progress=progress,
    )


@benchmark()
def sim_study(quick: bool) -> Iterator[Row]:
    """A study of 10^8 requests in bounded memory, interrupted on the way and resumed."""
    count = 10**5 if quick else 10**8
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "study.npz"
        wall, done = time.perf_counter(), 0
        command = [sys.executable, "-m", __spec__.name, str(count), str(checkpoint)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for line in child.stdout:
            done = int(line.split("/")[0])
            if done >= 0.3 * count:
                child.send_signal(signal.SIGINT)
                break
        child.wait()
        found = run(count, checkpoint)
        wall = time.perf_counter() - wall
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    row = {
        "requests": count,
        "interrupted_at": done,
        "wall_s": wall,
        "cpu_s": cpu,
        "requests_per_cpu_s": count / cpu,
        "peak_memory_bytes": own.ru_maxrss * 1024,
    }
    yield row | {name: {"value": e.value, "low": e.low, "high": e.high} for name, e in found.items()}


if __name__ == "__main__":  # the child that will be interrupted
    run(int(sys.argv[1]), Path(sys.argv[2]))
