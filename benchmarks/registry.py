"""What every benchmark writes down beside its figures: the machine, the versions, the commit.

A result is one JSON object per line in `benchmarks/results/<name>.jsonl`, appended, never rewritten, so that two
commits or two machines can be compared years later.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
FIGURES = Path(__file__).parent / "figures"

#: Packages whose versions are recorded where they are installed.
PACKAGES = ("dmodels", "jax", "jaxlib", "numpy", "scipy", "numba", "equinox", "optimistix", "cvxpy")


def commit() -> str:
    """The short hash of the checked-out commit, with `+` if tracked files differ from it; "" outside a checkout."""
    run = {"cwd": Path(__file__).parent, "capture_output": True, "text": True}
    try:
        head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], check=True, **run).stdout.strip()
        dirty = subprocess.run(["git", "status", "--porcelain", "-uno"], check=True, **run).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head + ("+" if dirty else "")


def versions(*peers: str) -> dict[str, str]:
    """Installed versions of our packages and of the peers named."""
    found = {}
    for name in (*PACKAGES, *peers):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def device() -> dict[str, object]:
    """CPU model, usable cores, operating system, and the devices that JAX sees."""
    import jax

    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.split(":", 1)[1] for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].strip() if names else cpu
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    accelerators = sorted({d.device_kind for d in jax.devices() if d.platform != "cpu"})
    return {
        "cpu": cpu,
        "cores": cores,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "accelerators": accelerators,
    }


def record(name: str, rows: Iterable[Mapping], *peers: str) -> Path:
    """Append `rows` to results/<name>.jsonl, each with when, where, which versions and which commit."""
    facts = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "device": device(),
        "versions": versions(*peers),
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.jsonl"
    with path.open("a", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps({**row, **facts}, default=float) + "\n")
    return path


def interleaved(
    cases: Mapping[str, Callable[[], object]], repeats: int = 5, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Least seconds of each case over `repeats` rounds, after one warm-up call each; a round runs every case once.

    Interleaving lets noise from other work on the machine fall on all cases alike, and the minimum drops most of it.
    With `clock=time.process_time` they are CPU-seconds, summed over threads, which other work hardly disturbs.
    """
    for run in cases.values():
        run()
    best = dict.fromkeys(cases, float("inf"))
    for _ in range(repeats):
        for name, run in cases.items():
            start = clock()
            run()
            best[name] = min(best[name], clock() - start)
    return best


def show(title: str, rows: list[dict]) -> None:
    """Print rows of the same keys under their names."""
    print(f"\n{title}\n" + "  ".join(rows[0]))
    for row in rows:
        print("  ".join(f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values()))
