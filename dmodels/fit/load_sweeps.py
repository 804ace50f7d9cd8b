"""What a load sweep says by itself: the law of its steps, where it saturates, and where it contradicts itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dmodels.core.answers import Answer
from dmodels.core.errors import InputError

from .curves import fit_linear
from .knee import bracket, knee
from .rows import Row

#: Fewest loads of a sweep.
FEWEST = 3
#: Against the point before, at a lower load: throughput this much lower, or a latency this much lower, is no noise.
FALLS = 0.85


@dataclass(frozen=True)
class LoadSweep(Answer):
    """Points of one deployment and workload under several loads; (low, high) are 95 % intervals."""

    name: str
    concurrency_count: tuple[float, ...]
    throughput_rps: tuple[float, ...]
    ttft_s: tuple[float, ...]
    tpot_s: tuple[float, ...]
    step_base_s: float  # W of TPOT = W + H n
    step_base_interval_s: tuple[float, float]
    step_per_sequence_s: float  # H
    step_per_sequence_interval_s: tuple[float, float]
    knee_count: float  # requests in flight at which it saturates; nan: not to be seen in these loads
    knee_interval_count: tuple[float, float]
    ceiling_rps: float
    ttft_jump_count: tuple[float, float]  # loads between which TTFT jumps; (inf, inf): it does not
    contradictions: tuple[str, ...]


def load_sweeps(rows: Sequence[Row]) -> tuple[LoadSweep, ...]:
    """The sweeps among measured rows: alike but for the load, at three loads or more."""
    groups: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in rows:
        lengths = tuple(round(np.log(length) / 0.1) for length in (row.isl, row.osl))
        groups[(row.model_path, row.system, row.backend, row.decode._replace(batch=np.inf), *lengths)].append(row)
    found = (sorted(group, key=lambda row: row.concurrency) for group in groups.values())
    return tuple(_sweep(group) for group in found if len({row.concurrency for row in group}) >= FEWEST)


def _sweep(rows: list[Row]) -> LoadSweep:
    load, ttft, tpot = (np.array([getattr(row, name) for row in rows]) for name in ("concurrency", "ttft_s", "tpot_s"))
    rate = load / (ttft + np.maximum(np.array([0.9 * row.osl for row in rows]) - 1.0, 0.0) * tpot)
    line = fit_linear(load, tpot)
    first, said = rows[0], []
    for (n, m), (a, b) in zip(pairwise(load), pairwise(rate), strict=True):
        if b < FALLS * a:
            said.append(f"throughput falls from {a:.3g} to {b:.3g} req/s between {n:.3g} and {m:.3g} in flight")
    for name, values in (("TTFT", ttft), ("TPOT", tpot)):
        for (n, m), (a, b) in zip(pairwise(load), pairwise(values), strict=True):
            if b < FALLS * a:
                change = f"from {1e3 * a:.4g} to {1e3 * b:.4g} ms"
                said.append(f"{name} falls {change} between {n:.3g} and {m:.3g} in flight: warm-up or other traffic?")
    top, interval, ceiling = _saturation(load, rate, said)
    return LoadSweep(
        name=f"{first.model_path} on {first.system}, {first.backend}, tp{first.decode.tp:g}dp{first.decode.dp:g}",
        concurrency_count=tuple(load.tolist()),
        throughput_rps=tuple(rate.tolist()),
        ttft_s=tuple(ttft.tolist()),
        tpot_s=tuple(tpot.tolist()),
        step_base_s=line.values["base_s"],
        step_base_interval_s=line.interval("base_s"),
        step_per_sequence_s=line.values["per_sequence_s"],
        step_per_sequence_interval_s=line.interval("per_sequence_s"),
        knee_count=top,
        knee_interval_count=interval,
        ceiling_rps=ceiling,
        ttft_jump_count=bracket(load, ttft),
        contradictions=tuple(said),
    )


def _saturation(load: np.ndarray, rate: np.ndarray, said: list[str]) -> tuple[float, tuple[float, float], float]:
    try:
        found = knee(load, rate)
    except InputError:
        return np.nan, (np.nan, np.nan), np.nan
    said += found.warnings
    return found.clients, (found.low, found.high), found.ceiling_rps
