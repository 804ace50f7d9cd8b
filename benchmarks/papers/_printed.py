"""Printed and simulated numbers side by side, written as data beside the proofs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from scipy.special import stdtrit

from benchmarks.registry import Row, benchmark
from proofs.papers import rows as papers
from proofs.papers.rows import Printed


def made_by(title: str, script: str) -> str:
    """The first line of a file: what it holds, and what made it."""
    return f"{title}. Made by benchmarks/papers/{Path(script).name}"


def verdicts(name: str, path: str, title: str, script: str, rows: Callable[[bool], Iterable[Printed]]) -> None:
    """Register a benchmark that writes proofs/papers/<path>.csv; `rows(quick)` makes its rows."""

    def run(quick: bool) -> Iterator[Row]:
        for row in rows(quick):
            yield row.row()

    run.__doc__ = title
    benchmark(name=name, write=lambda found: papers.write(path, made_by(title, script), found))(run)


def one_run_more(values: np.ndarray) -> tuple[float, float, float]:
    """(mean, low, high): where one more run lies with 95 % (a prediction interval), by Student's t."""
    mean, n = values.mean(), values.size
    reach = stdtrit(n - 1, 0.975) * values.std(ddof=1) * np.sqrt(1 + 1 / n)
    return float(mean), float(mean - reach), float(mean + reach)
