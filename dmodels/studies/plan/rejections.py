"""Why a layout is not an answer: what binds, what is there, what is needed, and the smallest change that would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dmodels.core.flags import Flag
from dmodels.core.units import GIB

from .designs import Layout
from .evaluate import sweep_instances

if TYPE_CHECKING:
    from .search import Priced

#: "Without load": so few requests a second that none meets another.
_IDLE_RPS = 1e-9


@dataclass(frozen=True)
class Rejection:
    """One layout that cannot serve all requests from one pool, however many instances there are."""

    layout: Layout
    binding: str
    have: str
    need: str
    fix: str
    excess: float  # need over have; the least excess is the nearest miss


def rejections(priced: Priced) -> list[Rejection]:
    """Every layout whose one-pool cell has no feasible size, nearest misses first, those short of memory last."""
    out = np.flatnonzero(~np.isfinite(priced.costs_usd_per_hour[:, 0]))
    if not out.size:
        return []
    k = len(priced.stages)
    one = np.ones((len(out), 1))
    idle = sweep_instances(_rows(priced.cells, out * k), one, _IDLE_RPS, priced.question.engine)
    found = [_why(priced, row, idle, i) for i, row in enumerate(out)]
    # more memory leads to another layout of this list, so where all fell it is the smallest fix of none but the last
    hopeless = all(r.binding.startswith("memory") for r in found)
    return sorted(found, key=lambda r: (r.binding.startswith("memory") and not hopeless, r.excess))


def _why(priced: Priced, row: int, idle, i: int) -> Rejection:
    asked, layout, at = priced.question, priced.layouts[row], row * len(priced.stages)
    if priced.admitted.none:
        limit, w = priced.admitted.limit_tokens, asked.workload
        shortest = float(np.min(w.input_tokens[np.asarray(w.weight_frac) > 0]))
        return Rejection(
            layout,
            "the model's context",
            f"{limit:,.0f} tokens",
            f"over {shortest:,.0f} tokens",
            "a model with a longer context",
            shortest / limit,
        )
    budget = float(priced.cells.budget_bytes[at, 0])
    longest = float(priced.cells.longest_bytes[at, 0])
    memory = float(asked.gpus[layout.gpu].memory_bytes)
    if budget <= 0:
        have, need = 0.9 * memory / GIB, 0.9 * memory / GIB - budget / GIB
        return Rejection(
            layout,
            "memory for weights",
            f"{have:.1f} GiB per GPU",
            f"{need:.1f} GiB per GPU",
            f"{_more_gpus(priced, row)}, or narrower weights",
            need / have,
        )
    if int(idle.flags[i, 0]) & Flag.NO_FIT:
        have, need = budget / GIB, longest / GIB
        tokens = float(priced.cells.requests.longest_tokens[at, 0])
        return Rejection(
            layout,
            "memory for KV",
            f"{have:.1f} GiB per GPU after weights",
            f"{need:.1f} GiB for a request of {tokens:,.0f} tokens",
            f"{_more_gpus(priced, row)}, or FP8 KV",
            max(need / have, 1.0),
        )
    misses = [
        (float(value[i, 0]) / bound, name, float(value[i, 0]), bound)
        for name, value, bound in (
            ("TTFT", idle.ttft_s, float(asked.slo.ttft_s)),
            ("TPOT", idle.tpot_s, float(asked.slo.tpot_s)),
            ("E2E", idle.e2e_s, float(asked.slo.e2e_s)),
        )
    ]
    excess, name, value, bound = max(misses)
    if excess > 1:
        fix = f"a {name} SLO of {_rounded_up_ms(value):g} ms, or more GPUs per instance"
        have, need = f"{1e3 * value:,.4g} ms", f"at most {1e3 * bound:,.4g} ms"
        return Rejection(layout, f"{name} without load", have, need, fix, excess)
    need = priced.instances[row, 0] * layout.gpus
    if not np.isfinite(need):
        return Rejection(layout, "rate", "4,194,304 instances", "more", "a lower rate", np.inf)
    return Rejection(
        layout,
        "GPU budget",
        f"{asked.max_gpus:,.0f} GPUs",
        f"{need:,.0f} GPUs",
        f"{need - asked.max_gpus:,.0f} more GPUs",
        need / max(asked.max_gpus, 1.0),
    )


def _more_gpus(priced: Priced, row: int) -> str:
    """The fewest GPUs an instance of the same GPU type and precision must have to hold model and longest request."""
    layout, k = priced.layouts[row], len(priced.stages)
    fits = [
        x.gpus
        for i, x in enumerate(priced.layouts)
        if (x.gpu, x.weights, x.kv) == (layout.gpu, layout.weights, layout.kv)
        and float(priced.cells.budget_bytes[i * k, 0]) >= float(priced.cells.longest_bytes[i * k, 0])
    ]
    return f"{min(fits)} GPUs per instance" if fits else "pipeline stages (--pp) or a GPU with more memory"


def _rounded_up_ms(seconds: float) -> float:
    """Milliseconds, rounded up to two significant digits, so that the fix does suffice."""
    ms = 1e3 * seconds
    unit = 10.0 ** (np.floor(np.log10(ms)) - 1)
    return float(np.ceil(ms / unit) * unit)


def _rows(cells, rows: np.ndarray):
    import jax

    return jax.tree.map(lambda leaf: leaf[rows], cells)
