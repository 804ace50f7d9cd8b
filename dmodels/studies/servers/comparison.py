"""The log of a real server beside its simulation, request by request, and the step law that would explain it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import optimize

from dmodels.core.answers import Answer
from dmodels.core.records import Floats
from dmodels.formats.telemetry.request_log import ServerLog
from dmodels.sim.engines import EngineLaw
from dmodels.sim.requests import Served

from .playing import SimulatedServer

#: Requests of a log that a law is explained on.
_EXPLAINED = 2_000


@dataclass(frozen=True)
class Metric(Answer):
    """A figure of the log beside the simulation's."""

    name: str
    simulated_s: float
    measured_s: float
    error_frac: float


@dataclass(frozen=True)
class StraightLaw(Answer):
    """W + H n + P w for n requests that decode and w prompt tokens in a step."""

    base_s: float
    per_request_s: float
    per_prompt_token_s: float
    apart_frac: float  # root mean square of first and last tokens' differences, over the duration


@dataclass(frozen=True)
class Compared(Answer):
    """A log beside its simulation."""

    internal = ("log", "simulated", "measured")

    metrics: tuple[Metric, ...]
    requests_count: int
    restarts_count: int  # that the simulated scheduler made
    measured_law: StraightLaw  # that would explain the log
    simulated_law: StraightLaw  # of the calibration, found in the same way in the simulation
    slower: float  # times the calibrated step, the law that comes closest to the log
    log: ServerLog
    simulated: Served
    measured: Served


def compare(asked: SimulatedServer, log: ServerLog) -> Compared:
    """The log's requests, at their own times, simulated beside what was measured."""
    measured = Served(log.arrival_s, log.scheduled_s, log.first_token_s, log.end_s, log.output_tokens)
    found = asked.inside(log.arrival_s, log.input_tokens, log.output_tokens)
    start = asked.law.seconds(1, 1000, 0, 0)
    more = min(64, asked.policy.slots) - 1
    full = asked.law.seconds(1 + more, 1000, 0, 0)
    prompt = (asked.law.seconds(1, 1000, 1000, 500) - start) / 1000.0
    first = np.array([start, max((full - start) / max(more, 1), 1e-6), max(prompt, 1e-7)])
    return Compared(
        metrics=_metrics(found, measured),
        requests_count=len(log.ids),
        restarts_count=int(found.restarts.sum()) if found.restarts is not None else 0,
        measured_law=_straight(asked, log, measured, first),
        simulated_law=_straight(asked, log, found, first),
        slower=_slower(asked, log, measured),
        log=log,
        simulated=found,
        measured=measured,
    )


def _metrics(simulated: Served, measured: Served) -> tuple[Metric, ...]:
    found = []
    for name in ("ttft", "tpot", "e2e"):
        mine, theirs = (_finite(getattr(served, f"{name}_s")) for served in (simulated, measured))
        if not theirs.size:
            continue
        for label, of in (("mean", np.mean), ("p50", np.median), ("p99", partial(np.quantile, q=0.99))):
            found.append(_metric(f"{name}_{label}_s", float(of(mine)), float(of(theirs))))
    spans = [float(served.end_s.max() - served.arrival_s[0]) for served in (simulated, measured)]
    return (*found, _metric("duration_s", *spans))


def _metric(name: str, simulated_s: float, measured_s: float) -> Metric:
    return Metric(name, simulated_s, measured_s, simulated_s / measured_s - 1.0 if measured_s else np.nan)


def _finite(values: Floats) -> Floats:
    kept: Floats = values[np.isfinite(values)]
    return kept


def _apart(asked: SimulatedServer, log: ServerLog, target: Served, law: EngineLaw) -> float:
    """How far a law's tokens are from the target's, over the duration: root mean square of first and last tokens."""
    kept = slice(0, _EXPLAINED)
    arrival, prompts, answers = (x[kept] for x in (target.arrival_s, log.input_tokens, target.output_tokens))
    found = asked.inside(arrival, prompts, answers, law=law)
    gaps = np.concatenate([found.first_token_s - target.first_token_s[kept], found.end_s - target.end_s[kept]])
    span = float(target.end_s[kept].max() - target.arrival_s[0])
    return float(np.sqrt(np.mean(gaps**2))) / span


def _straight(asked: SimulatedServer, log: ServerLog, target: Served, start: Floats) -> StraightLaw:
    """The straight law whose tokens come closest to the target's (Nelder and Mead's search)."""
    apart = lambda x: _apart(asked, log, target, EngineLaw.straight(*np.exp(x)))
    found = optimize.minimize(apart, np.log(start), method="Nelder-Mead", options={"maxfev": 160, "xatol": 1e-3})
    base, each, prompt = (float(x) for x in np.exp(found.x))
    return StraightLaw(base, each, prompt, float(found.fun))


def _slower(asked: SimulatedServer, log: ServerLog, measured: Served) -> float:
    """The factor on the calibrated law that comes closest to the log."""
    apart = lambda x: _apart(asked, log, measured, asked.law.scaled(float(np.exp(x))))
    found = optimize.minimize_scalar(
        apart, bounds=(np.log(0.25), np.log(4.0)), method="bounded", options={"xatol": 1e-3}
    )
    return float(np.exp(found.x))
