"""The benchmarks by name, their timing, and what each writes down: the machine, the versions, the commit.

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
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from pkgutil import iter_modules
from typing import NamedTuple

RESULTS = Path(__file__).parent / "results"

#: Packages whose versions are recorded where they are installed.
PACKAGES = ("dmodels", "jax", "jaxlib", "numpy", "scipy", "numba", "equinox", "optimistix", "cvxpy")


Row = Mapping[str, object]


class Case(NamedTuple):
    """A benchmark: `run(quick)` yields rows; `write(rows)` puts them beside the proofs, where a page shows them."""

    name: str
    what: str
    run: Callable[[bool], Iterable[Row]]
    peers: tuple[str, ...]
    write: Callable[[list[Row]], Path] | None


_CASES: dict[str, Case] = {}


def benchmark(*peers: str, name: str = "", write: Callable[[list[Row]], Path] | None = None):
    """Register a function of `quick` under its own name or `name`; its results go to results/<name>.jsonl."""

    def register(run: Callable[[bool], Iterable[Row]]):
        key = name or run.__name__
        _CASES[key] = Case(key, run.__doc__.splitlines()[0], run, peers, write)
        return run

    return register


def cases() -> dict[str, Case]:
    """Every benchmark by name."""
    for folder in ("speed", "papers", "accuracy"):
        for module in iter_modules([str(Path(__file__).parent / folder)]):
            if not module.name.startswith("_"):
                import_module(f"benchmarks.{folder}.{module.name}")
    return dict(sorted(_CASES.items()))


def text(row: Row) -> str:
    """One line of a row: names and four digits; what is nested is only recorded."""
    flat = {k: v for k, v in row.items() if not isinstance(v, Mapping)}
    return "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in flat.items())


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


def record(name: str, rows: Iterable[Row], *peers: str) -> Path:
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
