"""Prefill and decode apart, measured: replications of a workload until the intervals are narrow."""

from __future__ import annotations

import jax
import numpy as np

from dmodels.core.flags import Flag
from dmodels.core.workload import Workload

from .. import arrivals, lengths
from ..estimate import Estimate, replicate
from .records import Control, Hybrid, Workers
from .simulation import simulate


def measure(
    workload: Workload,
    machines: Workers,
    control: Control | Hybrid,
    key: jax.Array,
    *,
    prefill_iteration_s: float,
    chunk_tokens: float = 512,
    percentile: float = 0.99,
    target_frac: float = 0.05,
    count: int = 4000,
    at_most: int = 64,
) -> dict[str, Estimate]:
    """Mean and percentile of TTFT, TPOT and E2E, and role changes, over replications of `count` requests.

    A prompt takes ceil(tokens / chunk_tokens) iterations. The first fifth of a run is warm-up. OVERLOAD: in most runs
    the time to the first token, or to the last, grew from third to third as it does without end (1 : 3 : 5).
    """
    growing = []

    def once(key: jax.Array) -> dict[str, float]:
        key_when, key_what = jax.random.split(key)
        when = arrivals.gamma(key_when, float(workload.rate_rps), float(workload.arrival_cv), count)
        long = lengths.draw(key_what, workload, count)
        chunks = np.ceil(np.maximum(1, long.input_tokens - long.cached_tokens) / chunk_tokens)
        served = simulate(when, long.input_tokens, long.output_tokens, chunks * prefill_iteration_s, machines, control)
        growing.append(_grows(served.ttft_s) or _grows(served.e2e_s))
        out = {}
        for name in ("ttft", "tpot", "e2e"):
            values = getattr(served, f"{name}_s")[count // 5 :]
            values = values[~np.isnan(values)]  # answers of one token have no TPOT
            out[f"{name}_mean_s"] = float(values.mean()) if len(values) else np.nan
            out[f"{name}_p{100 * percentile:g}_s"] = float(np.quantile(values, percentile)) if len(values) else np.nan
        return out | {"role_changes_count": float(served.changes)}

    found = replicate(once, key, target_frac, at_most=at_most)
    bad = int(Flag.OVERLOAD) if np.mean(growing) > 0.5 else 0
    return {name: e._replace(flags=e.flags | bad) for name, e in found.items()}


def _grows(waited_s: np.ndarray) -> bool:
    first, second, third = (np.nanmean(part) for part in np.array_split(waited_s, 3))
    return bool(third > 1.3 * second > 1.69 * first)
