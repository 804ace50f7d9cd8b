"""Held-out error of the laws of operators: shapes, (GPU, engine) pairs and GPUs that the constants never saw.

    python -m benchmarks.operators ../shared/data/operators [--write] [KIND ...]

refits on the folder's tables and prints the error by operator, GPU and number format; `--write` makes the constants
that ship with dmodels (dmodels/fit/data/operators.json).
"""

from __future__ import annotations

import sys
from pathlib import Path

from dmodels.fit.operators.coefficients import FILE, dump
from dmodels.fit.operators.refit import PROTOCOLS, Refit, refit


def table(found: Refit, *by: str) -> list[dict]:
    """The summary, printed."""
    rows = found.summary(*by)
    print("\n" + " | ".join([*by, "rows", *(f"{p} median, P90" for p in PROTOCOLS)]))
    for row in rows:
        cells = [
            f"{100 * row[f'{p}_median']:.1f}, {100 * row[f'{p}_p90']:.1f} %" if row[f"{p}_count"] else "-"
            for p in PROTOCOLS
        ]
        print(" | ".join([*(str(row[name]) for name in by), str(row["shapes_count"]), *cells]))
    return rows


def main(folder: str, *options: str) -> None:
    write = "--write" in options
    kinds = tuple(option for option in options if not option.startswith("--"))
    found = refit(Path(folder), kinds, lambda line: print(line, file=sys.stderr))
    table(found, "kind")
    table(found, "kind", "gpu")
    table(found, "kind", "engine", "dtype")
    if write:
        FILE.write_text(dump(found.coefficients), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
