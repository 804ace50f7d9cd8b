"""Printed and simulated numbers side by side, written as data beside the proofs."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from benchmarks.registry import Row, benchmark

PAPERS = Path(__file__).parents[2] / "proofs" / "papers"
HEAD = ("id", "where", "printed", "simulated", "verdict", "how")


def write(path: str, title: str, script: str, rows: Iterable[Row]) -> Path:
    """proofs/papers/<path>.csv under a line that says what made it."""
    file = PAPERS / f"{path}.csv"
    rows = list(rows)
    with file.open("w", newline="", encoding="utf-8") as out:
        out.write(f"# {title}. Made by benchmarks/papers/{Path(script).name}\n")
        table = csv.DictWriter(out, rows[0].keys(), lineterminator="\n")
        table.writeheader()
        table.writerows({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    return file


def verdicts(name: str, path: str, title: str, script: str, rows: Callable[[bool], Iterable[tuple]]) -> None:
    """Register a benchmark whose rows are (id, where, printed, simulated, verdict, how); `rows(quick)` makes them."""

    def run(quick: bool) -> Iterator[Row]:
        for row in rows(quick):
            yield dict(zip(HEAD, row, strict=True))

    run.__doc__ = title
    benchmark(name=name, write=lambda found: write(path, title, script, found))(run)
