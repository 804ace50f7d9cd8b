"""A study of 10^8 requests in bounded memory, interrupted on the way and resumed.

    python benchmarks/sim_study.py [requests]

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
from pathlib import Path

import jax

from dmodels.catalog import workload
from dmodels.models.latency import StepLaw
from dmodels.sim import study

try:
    from benchmarks import registry
except ModuleNotFoundError:  # run as a script
    import registry


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


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "study.npz"
        wall = time.perf_counter()
        command = [sys.executable, __file__, str(count), str(checkpoint)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        done = 0
        for line in child.stdout:
            done = int(line.split("/")[0])
            if done >= 0.3 * count:
                child.send_signal(signal.SIGINT)
                break
        child.wait()
        print(f"interrupted at {done} of {count} requests, exit code {child.returncode}")
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
    row |= {name: {"value": e.value, "low": e.low, "high": e.high} for name, e in found.items()}
    registry.record("sim_study", [row])
    print(f"{count} requests: {wall:.0f} s, {cpu:.0f} CPU-seconds, {own.ru_maxrss / 1024:.0f} MiB at most")
    for name, e in found.items():
        print(f"  {name}: {e.value:.5g} ({e.low:.5g} to {e.high:.5g})")


if __name__ == "__main__":
    requests = int(float(sys.argv[1])) if len(sys.argv) > 1 else 10**8
    if len(sys.argv) > 2:  # the child that will be interrupted
        run(requests, Path(sys.argv[2]))
    else:
        main(requests)
