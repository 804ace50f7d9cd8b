"""Where the closed forms that size a fleet are off, which a plan finds out for itself.

They assume Poisson arrivals at each instance. A recursion over the very requests, or over a drawn stream where there is
no trace, agrees with the simulator at every chunk, load, split and burst that was tried (`python -m benchmarks
closed_form`), and costs so little that each recommended fleet is checked by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dmodels.models.traffic import burstiness
from dmodels.sim import arrivals
from dmodels.sim.recordings import Recording, drawn

from .deployment import Pool
from .forecast import Latencies, by_forms, by_recursion, in_turn, kept
from .machines import recording, serving_fleet
from .questions import Question
from .sizing import Priced

#: How far off a mean and a percentile may be.
MEAN_FRAC, PERCENTILE_FRAC = 0.10, 0.15
#: The share of that from which on a drawn stream tells: it is a sample, of 260 cells up to a quarter of that off.
_SAMPLED = 0.75
#: What the recursion was checked on.
CHUNK_TOKENS = (256.0, 16384.0)
#: Beyond this index of dispersion arrivals are no longer taken as Poisson.
_BURSTY = 2.0
#: Requests that are looked at.
_COUNT = 100_000


class Reach(NamedTuple):
    """What the recursion says of a fleet that the closed forms sized."""

    outside: tuple[str, ...]  # in words, where they are off, and what was never checked
    breaks: bool  # an SLO, by more than what they may be off


def reach(priced: Priced, pools: Sequence[Pool], requests: Recording | None = None) -> Reach:
    """How far the closed forms of the recommended pools go.

    `requests`: the trace by default, and without one a drawn stream of the workload.
    """
    asked, said = priced.question, []
    known = requests is None and asked.trace is not None
    if requests is None:
        requests = recording(asked) if known else drawn(asked.admitted.workload, 1, _COUNT)
    bar = 1.0 if known else _SAMPLED
    requests = requests.sampled(_COUNT)
    rows = [priced.layouts.index(pool.layout) for pool in pools]
    fleet = serving_fleet(priced, rows, [priced.stages.index(pool.stage) for pool in pools], in_turn(pools))
    ready = requests.warm(max(pool.e2e_s for pool in pools))
    shares = _percentiles(priced, pools)
    seen = by_recursion(fleet, ready, [pool.instances for pool in pools], shares)
    breaks = not kept(seen, asked.slo, 1.0 + PERCENTILE_FRAC)
    for label, by_form, found, share in zip(fleet.parts, by_forms(pools), seen, shares, strict=True):
        apart = _apart(by_form, found, f"P{100.0 * share:.4g}", bar)
        if apart:
            where = "" if label == "all" else f"pool {label}: "
            said.append(f"{where}{', '.join(apart)}{_why(asked, pools)}")
    chunk = float(asked.engine.max_num_batched_tokens)
    if not CHUNK_TOKENS[0] <= chunk <= CHUNK_TOKENS[1]:
        said.append(f"chunks of {chunk:,.0f} tokens, checked from {CHUNK_TOKENS[0]:,.0f} to {CHUNK_TOKENS[1]:,.0f}")
    return Reach(tuple(said), breaks)


def _percentiles(priced: Priced, pools: Sequence[Pool]) -> list[float]:
    """Those that the closed forms give: a stage of a split may have one of its own, the whole has the SLO's."""
    if in_turn(pools):
        return [float(priced.question.slo.percentile)]
    each = np.asarray(priced.cells.slo.percentile)
    return [float(each[priced.cell_of(pool), 0]) for pool in pools]


def _apart(by_form: Latencies, found: Latencies, percentile_name: str, bar: float) -> list[str]:
    """The metrics whose mean or percentile is off, in words, by more than a share `bar` of what they may be."""
    said = []
    for name, (mean, percentile) in found.items():
        off = {
            "mean": (by_form[name].mean_s, mean, bar * MEAN_FRAC),
            percentile_name: (by_form[name].percentile_s, percentile, bar * PERCENTILE_FRAC),
        }
        apart = {of: pair for of, (*pair, most) in off.items() if abs(pair[0] - pair[1]) > most * pair[1]}
        if apart:
            of = percentile_name if percentile_name in apart else "mean"
            formula, true = apart[of]
            said.append(f"{name} {of} {_ms(true)} ms by recursion over the arrivals ({_ms(formula)} by the formula)")
    return said


def _ms(seconds: float) -> str:
    value = 1e3 * seconds
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"


def _why(asked: Question, pools: Sequence[Pool]) -> str:
    """What the formulas do not see."""
    index, window_s = dispersion(asked, max(pool.ttft_mean_s for pool in pools))
    if index > _BURSTY:
        of = f"over {window_s:.3g} s" if window_s > 0 else "over short times"
        return f" (bursts: counts of arrivals {of} vary {index:.3g} times as much as the formula's Poisson stream)"
    if sum(pool.instances for pool in pools) > 1:
        return " (requests are routed by loads, by the formula at random)"
    return ""


def dispersion(asked: Question, scale_s: float) -> tuple[float, float]:
    r"""(index of dispersion of the arrivals at the planned rate, the window that it is greatest over).

    $I(w) = \mathrm{Var}\,N(w) / \mathrm{E}\,N(w)$, 1 for Poisson at every w; windows from a tenth of the queue's time
    scale `scale_s` to a hundred of them, as far as the trace has fifty. Without a trace, what independent gaps of the
    workload's CV tend to, $c^2$ (window 0).
    """
    if asked.trace is None or not asked.trace.duration_s > 0:
        return float(asked.workload.arrival_cv) ** 2, 0.0
    when = arrivals.replay(asked.trace.time_s, asked.rate_rps)
    windows = scale_s * np.geomspace(0.1, 100.0, 13)
    windows = windows[windows <= when[-1] / 50.0]
    if not windows.size:
        return float(asked.workload.arrival_cv) ** 2, 0.0
    found = burstiness(when, windows).dispersion_count
    k = int(np.argmax(found))
    return float(found[k]), float(windows[k])
