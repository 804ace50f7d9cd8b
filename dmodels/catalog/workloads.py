"""Bundled workloads: quantile tables of public traces and the CDFs of total tokens that papers print.

Each is a CSV file in `data/workloads` whose `#` lines say where it comes from and carry single numbers,
`# key = value`. Columns `input_tokens,output_tokens,weight_frac` are a support, `upper_tokens,cumulative_frac` a CDF.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import numpy as np

from dmodels.core.errors import InputError, unknown
from dmodels.core.files import csv_rows, remarks
from dmodels.core.lengths import TotalsCdf
from dmodels.core.workload import Workload

_FOLDER = files("dmodels.catalog").joinpath("data", "workloads")


@cache
def workload_names() -> tuple[str, ...]:
    """Names of the bundled workloads, in alphabetical order."""
    stems = (entry.name.removesuffix(".csv") for entry in _FOLDER.iterdir() if entry.name.endswith(".csv"))
    return tuple(sorted(stem for stem in stems if "." not in stem))


def workload(name: str, rate_rps: float | None = None, prefix_hits: bool = False) -> Workload:
    """The bundled workload `name`, at its own arrival rate unless another is given.

    `prefix_hits=True` counts as cached what an unlimited prefix cache held when the trace was replayed; the default
    counts nothing as cached. Raises `InputError` for a workload without prefix data.

    >>> bool(workload("azure-conv").mean_input_tokens > 1000)
    True
    """
    columns, facts, _ = _table(_key(name))
    if prefix_hits and "cached_tokens" not in columns:
        have = ", ".join(one for one in workload_names() if "cached_tokens" in _table(one)[0])
        raise InputError(f"workload {name!r} has no prefix data; with prefix hits accepted are {have}")
    if "upper_tokens" in columns:
        found = Workload.from_cdf(_cdf(columns, facts), rate_rps=facts["rate_rps"])
    else:
        weight = columns["weight_frac"]
        cached = columns.get("cached_tokens", 0.0) if prefix_hits else 0.0
        found = Workload(
            columns["input_tokens"],
            columns["output_tokens"],
            weight / weight.sum(),
            cached,
            facts["rate_rps"],
            facts["arrival_cv"],
        )
    return found if rate_rps is None else found.at_rate(rate_rps)


def totals_cdf(name: str) -> TotalsCdf:
    """The CDF of total tokens of a workload that is given by one: "azure-paper", "lmsys-paper", "lmsys"."""
    columns, facts, _ = _table(_key(name))
    if "upper_tokens" not in columns:
        raise unknown("CDF", name, [n for n in workload_names() if "upper_tokens" in _table(n)[0]])
    return _cdf(columns, facts)


def workload_source(name: str) -> str:
    """Where a bundled workload comes from, in one line."""
    return _table(_key(name))[2]


def prefix_cache_sizes(name: str = "mooncake") -> dict[str, np.ndarray]:
    """Share of input tokens found in a shared prefix cache, by its size in blocks (least recently used out)."""
    return _table(f"{_key(name)}.prefix_cache")[0]


def _key(name: str) -> str:
    key = name.strip().lower().replace("_", "-") if isinstance(name, str) else ""
    if key not in workload_names():
        raise unknown("workload", str(name), workload_names())
    return key


def _cdf(columns: dict[str, np.ndarray], facts: dict[str, float]) -> TotalsCdf:
    return TotalsCdf(
        columns["upper_tokens"], columns["cumulative_frac"], facts["share_mean_frac"], facts["share_std_frac"]
    )


@cache
def _table(stem: str) -> tuple[dict[str, np.ndarray], dict[str, float], str]:
    """(columns, single numbers, source) of one file."""
    text = _FOLDER.joinpath(f"{stem}.csv").read_text(encoding="utf-8")
    notes = remarks(text)
    facts = {key: float(value) for key, eq, value in (note.partition(" = ") for note in notes) if eq and " " not in key}
    reader = csv_rows(text)
    numbers = np.array([list(row.values()) for row in reader], dtype=np.float64)
    numbers.flags.writeable = False
    return dict(zip(reader.fieldnames or (), numbers.T, strict=True)), facts, notes[0]
