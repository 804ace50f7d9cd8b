"""Experiments 2 and 3 of the price-of-anarchy paper request by request: a closed loop with router and controller.

Clients ask, wait for one serial prefill server, decode on the worker that Dynamo's router (Eq. (1), (2)) chose at
arrival, and ask again. A worker caches every prompt template that it has served, as the paper says ("all blocks remain
in HBM throughout"); a cached prompt takes a share of the prefill off. Every 5 s the detector reads the P99 of TTFT of
the requests whose first token came since, and under `adaptive` sets tau and omega for what comes next (Table 2).
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from benchmarks.papers._router_map import Deployment
from dmodels.control import adaptive, regime

POLL_S, BLOCKS = 5.0, 24.0  # 128 prompt and 256 output tokens in blocks of 16
STAGGER_S = 10.0  # over which the clients of a phase begin, so that they do not ask all at once


class Course(NamedTuple):
    """Requests in the order of asking, and the controller's samples."""

    asked_s: np.ndarray
    ttft_s: np.ndarray
    itl_s: np.ndarray
    latency_s: np.ndarray
    done_s: np.ndarray
    sampled_s: np.ndarray
    regime: np.ndarray


def run(fleet: Deployment, phases, thresholds_s, adapt: bool, seed: int, saves_frac: float = 0.0) -> Course:
    """`phases` are (clients, seconds); the controller switches parameters only if `adapt`."""
    rng = np.random.default_rng(seed)
    settings, params = adaptive.table_2(), regime.detector(1.0, *thresholds_s)
    tau_of, omega_of = np.asarray(settings.tau), np.asarray(settings.omega)
    state, now, tau, omega = adaptive.init(), 0, 0.0, 1.0
    ends = np.cumsum([seconds for _, seconds in phases])
    waiting, started, busy = [], 0, [[] for _ in range(fleet.workers_count)]
    kept = np.zeros((fleet.workers_count, fleet.prefixes_count), bool)
    free, poll, first, rows, samples = 0.0, POLL_S, [], [], []
    phase, clock = 0, 0.0
    while clock < ends[-1]:
        while started < phases[phase][0]:  # clients of this phase that have not begun
            heapq.heappush(waiting, (clock + STAGGER_S * rng.random(), started))
            started += 1
        clock, client = waiting[0] if waiting else (ends[phase], -1)
        if clock >= min(poll, ends[phase]):
            clock = min(poll, ends[phase])
            if clock == poll:
                seen = [ttft for at, ttft in first if clock - POLL_S < at <= clock]
                first = [(at, ttft) for at, ttft in first if at > clock]
                state, now = regime.update(state, np.quantile(seen, 0.99) if seen else np.nan, params)
                now = int(now)
                samples.append((clock, now))
                tau, omega = (tau_of[now], omega_of[now]) if adapt else (0.0, 1.0)
                poll += POLL_S
            if clock >= ends[phase] and phase + 1 < len(phases):
                phase += 1
                started = min(started, phases[phase][0])
            continue
        heapq.heappop(waiting)
        if client >= phases[phase][0]:
            continue  # this client is no longer wanted
        for load in busy:
            while load and load[0] <= clock:
                heapq.heappop(load)
        prefix = int(rng.integers(fleet.prefixes_count))
        cost = omega * fleet.request_blocks * ~kept[:, prefix] + BLOCKS * np.array([len(load) for load in busy])
        above = (cost - cost.min()) / max(np.ptp(cost), 1e-12)  # costs over their range, as Dynamo's code does
        weight = np.exp(-above / tau) if tau else above == 0.0
        j = int(np.searchsorted(np.cumsum(weight) / weight.sum(), rng.random(), side="right"))
        service = fleet.prefill_s * (1 - saves_frac * kept[j, prefix]) * rng.gamma(4.0, 0.25)
        kept[j, prefix] = True
        free = max(free, clock) + service
        itl = float(fleet.step.iteration_s(len(busy[j]) + 1.0))
        done = free + fleet.output_tokens * itl
        heapq.heappush(busy[j], done)
        heapq.heappush(waiting, (done, client))
        first.append((free, free - clock))
        rows.append((clock, free - clock, itl, done - clock, done))
    return Course(*np.transpose(rows), *np.transpose(samples))


def figures(course: Course, begin_s: float, end_s: float) -> dict[str, float]:
    """What Tables 7 and 8 print of one phase: requests that ended in it."""
    inside = (course.done_s > begin_s) & (course.done_s <= end_s)
    return {
        "ttft_p99_s": float(np.quantile(course.ttft_s[inside], 0.99)),
        "itl_p99_ms": 1e3 * float(np.quantile(course.itl_s[inside], 0.99)),
        "rps": float(inside.sum() / (end_s - begin_s)),
        "latency_s": float(course.latency_s[inside].mean()),
    }
