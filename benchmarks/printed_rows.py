"""Rows of printed and simulated numbers with their verdict, written as data beside the proofs."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

HEAD = ("id", "where", "printed", "simulated", "verdict", "how")


def write(paper: str, name: str, title: str, rows: Iterable[tuple], script: str) -> Path:
    """proofs/papers/<paper>/simulated/<name>.csv, and the same rows on stdout."""
    path = Path(__file__).parents[1] / "proofs" / "papers" / paper / "simulated" / f"{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as out:
        out.write(f"# {title}. Made by benchmarks/{Path(script).name}\n")
        table = csv.writer(out, lineterminator="\n")
        table.writerow(HEAD)
        for row in rows:
            cells = [f"{cell:.4g}" if isinstance(cell, float) else cell for cell in row]
            table.writerow(cells)
            print(*cells, sep="  ")
    return path
