"""Phasor, Appendix A: why one prefill queue runs away. Busiest and other queues by what the router's signal can see.

Four prefill workers, lognormal prompts, gamma arrivals (CV 3) that go from 20/s to 30.5/s between 300 s and 420 s (the
paper prints no rate; at this one the queues under memory are as long as printed). A signal is tokens in service + v x
tokens queued: v = 0 is memory in use, which queued prompts do not hold yet; v = 1 is a token backlog. Beside it queue
length, Phi (exact remaining seconds) and round robin, over replications with common random numbers. Printed: 36.2
against 15.1 under memory, 15.8 under the compute-aware rule.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np
from numba import njit

from benchmarks.registry import Row, benchmark
from dmodels.sim import arrivals
from dmodels.sim.cluster import Signal, prefill
from dmodels.sim.estimate import difference, mean_of
from dmodels.studies.capacity import Prompts

WINDOW_S = (300.0, 420.0)
VISIBLE = (0.0, 0.01, 0.05, 0.2, 0.5, 1.0)


@njit
def partly_seen(arrival, tokens, seconds, workers, visible):
    """(worker, end) of each prompt where the router sees tokens in service and a share of those queued."""
    n = arrival.size
    worker, start, end = np.empty(n, np.int64), np.empty(n), np.empty(n)
    free, oldest = np.zeros(workers), np.zeros(workers, np.int64)
    mine = np.full((workers, n), -1)
    count = np.zeros(workers, np.int64)
    for i in range(n):
        best, least = 0, np.inf
        for w in range(workers):
            while oldest[w] < count[w] and end[mine[w, oldest[w]]] <= arrival[i]:
                oldest[w] += 1
            score = 0.0
            for k in range(oldest[w], count[w]):
                score += tokens[mine[w, k]] * (1.0 if k == oldest[w] else visible)
            if score < least:
                best, least = w, score
        worker[i] = best
        start[i] = max(arrival[i], free[best])
        free[best] = end[i] = start[i] + seconds[i]
        mine[best, count[best]] = i
        count[best] += 1
    return worker, end


def queues(arrival, worker, end, workers=4):
    """Mean number of prompts at each worker within the window, in decreasing order."""
    inside = np.clip(np.minimum(end, WINDOW_S[1]) - np.maximum(arrival, WINDOW_S[0]), 0.0, None)
    return np.sort(np.bincount(worker, inside, workers) / (WINDOW_S[1] - WINDOW_S[0]))[::-1]


@benchmark()
def phasor_divergence(quick: bool) -> Iterator[Row]:
    """Why one prefill queue runs away: busiest and mean of the others for each signal, with 95 % intervals."""
    found: dict[str, list] = {}
    ttft: dict[str, list] = {}
    for r in range(3 if quick else 40):
        key = jax.random.fold_in(jax.random.key(0), r)
        unit = arrivals.gamma(key, 1.0, 3.0, 16_000)
        arrival = arrivals.in_profile(unit, [0.0, WINDOW_S[0], WINDOW_S[1]], [20.0, 30.5, 20.0])
        arrival = arrival[arrival < 460.0]
        rng = np.random.default_rng(r)
        tokens = np.maximum(16.0, np.rint(rng.lognormal(np.log(1024) - 0.32, 0.8, arrival.size)))
        seconds = Prompts().seconds(tokens)
        cases = {f"memory, {v:g} of the queue": partly_seen(arrival, tokens, seconds, 4, v) for v in VISIBLE}
        for name, signal in (("queue length", Signal.REQUESTS), ("Phi", Signal.WORK), ("round robin", Signal.TURN)):
            worker, _, end = prefill(arrival, tokens, seconds, 4, signal)
            cases[name] = worker, end
        for name, (worker, end) in cases.items():
            q = queues(arrival, worker, end)
            found.setdefault(name, []).append((q[0], q[1:].mean()))
            ttft.setdefault(name, []).append(np.quantile(end - arrival, 0.99))
    for name, pairs in found.items():
        busiest, others = (mean_of(x) for x in np.array(pairs).T)
        p99, gap = mean_of(ttft[name]), difference(ttft[name], ttft["Phi"])
        yield {
            "signal": name,
            "busiest": busiest.value,
            "busiest_ci": busiest.half_width,
            "others": others.value,
            "others_ci": others.half_width,
            "ttft_p99_s": p99.value,
            "ttft_p99_ci_s": p99.half_width,
            "over_phi_s": gap.value,
            "over_phi_ci_s": gap.half_width,
        }
