"""The price-of-anarchy paper's Experiment 2, its static counterfactuals, Remark 4, and the coupling of its three games.

Each is small: a detector on a simulated sweep, assignments priced by the paper's own cost model, fronts of the maps of
Experiment 4, and one game of planner, caches and requests listed placement by placement.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from benchmarks.papers import _load_spike as spike
from benchmarks.papers._printed import one_run_more, verdicts
from benchmarks.papers.price_of_anarchy import LOOP, LOOPS, MAP, mapped
from dmodels.design.pareto import pareto_mask
from dmodels.sim.estimate import mean_of
from proofs.papers.rows import Printed

GRID = (1, 4, 8, 16, 32, 64, 128, 256, 512)
RUNS = 5


def detector_rows(quick: bool = False) -> Iterator[Printed]:
    """Experiment 2: what the detector says at each concurrency, and the slopes of TTFT P99 across the knee."""
    printed_slopes = {"340b": ("0.012", "0.554"), "70b_5d": ("", "")}
    for fleet, thresholds, expected in (
        ("340b", (0.3, 2.0), {32: 1}),
        ("340b", (1.0, 10.0), {c: 0 for c in GRID if c <= 64} | {128: 2}),
        ("70b_5d", (0.3, 2.0), {c: 0 for c in GRID if c <= 64} | {128: 2}),
    ):
        tails = {}
        for clients in GRID if not quick else (32, 64, 128):
            runs = [spike.run(LOOPS[fleet], ((clients, 150),), thresholds, False, clients + k) for k in range(RUNS)]
            tails[clients] = np.array([spike.figures(course, 30, 150)["ttft_p99_s"] for course in runs])
            held = [course.regime[course.sampled_s > 30].astype(int) for course in runs]
            state, shown = float(np.bincount(np.concatenate(held)).argmax()), expected.get(clients, "")
            least, most = (float(pick(np.bincount(one).argmax() for one in held)) for pick in (min, max))
            key = f"{fleet}_theta{thresholds[0]}_c{clients}_regime"
            how = (
                f"most frequent after 30 s in {RUNS} runs, and its range over them; TTFT P99 "
                f"{tails[clients].mean():.3g} s; first come first served has no longer tail"
            )
            rule = "rounds" if shown != "" else ""
            what = "regime: 0 below, 1 transition, 2 saturated"
            yield Printed(key, "8.2", shown, state, rule, how, what, "1", min(least, state), max(most, state))
        if thresholds[0] == 0.3:
            for (low, high), shown in zip(((32, 64), (64, 128)), printed_slopes[fleet], strict=True):
                slope, *ends = one_run_more((tails[high] - tails[low]) / (high - low))
                rule, what = "relative 0.1" if shown else "", f"slope of TTFT P99 on [{low}, {high}]"
                how, key = f"no queue of this throughput has that tail; {LOOP}", f"{fleet}_slope_{low}_{high}"
                yield Printed(key, "8.2", shown, slope, rule, how, what, "s", *ends)


def assigned(policy: str, clients: int, workers: int, rng: np.random.Generator) -> np.ndarray:
    """Loads after assigning requests one by one."""
    loads = np.zeros(workers, int)
    for k in range(clients):
        j = k % workers
        if policy != "round robin":
            drawn = rng.integers(workers, size=1 if policy == "random" else 2)
            j = drawn[loads[drawn].argmin()]
        loads[j] += 1
    return loads


def static_rows(quick: bool = False) -> Iterator[Printed]:
    """Section 9.2: round robin, random and power of two over the best assignment, by the cost model of Section 6.4."""
    rng, draws = np.random.default_rng(0), 20 if quick else 400
    n = np.arange(64)
    total = n * (0.005 * n + 0.020 + 0.010 / (64.0 - n) ** 2 - 0.015)  # fully cached, as in the experiments
    excess = {}
    for workers, clients in itertools.product((2, 5), (8, 16, 32, 48, 64, 96)):
        even = np.array([clients // workers + (j < clients % workers) for j in range(workers)])
        for policy in ("round robin", "random", "power of two"):
            loads = np.array([assigned(policy, clients, workers, rng) for _ in range(draws)])
            cost = total[loads[(loads < 64).all(1)]].sum(1)
            mean = mean_of(100 * (cost / total[even].sum() - 1))
            excess[policy, workers, clients] = mean.value
            key, what = f"{policy}_{workers}_{clients}".replace(" ", "_"), f"{policy}, {workers} workers, C = {clients}"
            yield Printed(key, "9.2", "", mean.value, "", "", f"cost over the best, {what}", "%", mean.low, mean.high)
    how = "random and power of two; round robin loses nothing where cost depends on loads alone"
    moving = [value for (policy, _, _), value in excess.items() if policy != "round robin"]
    yield Printed("least_pct", "9.2", "0.3", min(moving), "relative 0.1", how, "least excess", "%")
    yield Printed(
        "largest_pct", "9.2", "10", max(moving), "relative 0.1", f"five workers, C = 8; {how}", "largest excess", "%"
    )
    two = max(value for (_, workers, _), value in excess.items() if workers == 2)
    yield Printed("largest_two_workers_pct", "9.2", "10", two, "relative 0.1", how, "largest excess, two workers", "%")


def frontier_rows(quick: bool = False) -> Iterator[Printed]:
    """Remark 4: do the Pareto fronts over (tau, omega) of the two loads share a setting?"""
    for fleet in ("340b", "70b"):
        fronts = {}
        for clients in (64, 128):
            found = mapped(fleet, clients)
            costs = np.stack([found["ttft_p99_s"], found["itl_p99_ms"], -found["rps"]], -1).reshape(-1, 3)
            fronts[clients] = set(np.flatnonzero(pareto_mask(np.round(costs, 4))))
            key, what = f"{fleet}_front_{clients}", f"settings on the front at C = {clients}"
            yield Printed(key, "Remark 4", "", float(len(fronts[clients])), "", MAP, what, "1")
        both = fronts[64] & fronts[128]
        how = f"one setting is best at both loads, so nothing is left to select; {MAP}"
        yield Printed(f"{fleet}_on_both", "Remark 4", "", float(len(both)), "", how, "settings on both fronts", "1")


GPUS, PREFIXES = 4, (0, 0, 0, 1)  # three requests share a prefix


class Coupled(NamedTuple):
    """What one setting of the coupled games comes to; costs are shares of the least cost of all states."""

    equilibria: int  # states that nobody leaves alone, planner included
    worst: float
    best: float
    led: float  # the planner first, for the worst that caches and requests may settle on
    separate: float  # the best split, the best caches and the best routing, each found without the others


def coupled(save: float, prefill: float, decode: float) -> Coupled:
    """Planner, caches and requests on four GPUs, by listing all states.

    A state is x prefill GPUs, the prefix that each of the other 4 - x workers keeps, and the worker of each of four
    requests. A request pays for its worker's load and for the prefill pool, where a cached prompt takes `save` less;
    a cache minimises the prefill of the requests on its worker; the planner the sum of all costs.
    """
    workers, count = GPUS - 1, len(PREFIXES)

    def costs(x, kept, at):
        where = [a % (GPUS - x) for a in at]
        work = [1 - save * (kept[j] == p) for j, p in zip(where, PREFIXES, strict=True)]
        return [decode * where.count(j) + prefill * sum(work) / x for j in where], work, where

    total = lambda state: sum(costs(*state)[0])

    def settled(state):
        """No cache and no request gains by itself."""
        x, kept, at = state
        paid, work, where = costs(*state)
        for j in range(GPUS - x):
            other = costs(x, (*kept[:j], 1 - kept[j], *kept[j + 1 :]), at)[1]
            mine = [i for i in range(count) if where[i] == j]
            if sum(other[i] for i in mine) < sum(work[i] for i in mine) - 1e-12:
                return False
        moves = itertools.product(range(count), range(GPUS - x))
        return all(costs(x, kept, (*at[:i], j, *at[i + 1 :]))[0][i] >= paid[i] - 1e-12 for i, j in moves)

    states = [
        (x, kept, at)
        for x in range(1, GPUS)
        for kept in itertools.product((0, 1), repeat=workers)
        for at in itertools.product(range(GPUS - x), repeat=count)
    ]
    least = min(map(total, states))
    followed = [state for state in states if settled(state)]
    stays = lambda state: total(state) <= min(total((x, *state[1:])) for x in range(1, GPUS)) + 1e-12
    joint = [total(state) / least for state in followed if stays(state)]
    led = min(max(total(state) for state in followed if state[0] == x) for x in range(1, GPUS))
    # each by itself: the split for even loads without hits, every cache the popular prefix, even loads
    even = lambda x: tuple(i % (GPUS - x) for i in range(count))
    blind = lambda x: sum(decode * even(x).count(j) for j in even(x)) + prefill * count * count / x
    x = min(range(1, GPUS), key=blind)
    separate = total((x, (0,) * workers, even(x)))
    worst, best = (max(joint), min(joint)) if joint else (np.nan, np.nan)
    return Coupled(len(joint), worst, best, led / least, separate / least)


def coupling_rows(quick: bool = False) -> Iterator[Printed]:
    """Figure 3: one fixed point of split, placement and routing; its price; how far three separate optima are off."""
    grid = list(itertools.product((0.25, 0.5, 0.9), (0.1, 0.3, 1.0, 3.0), (0.3, 1.0)))[:: 6 if quick else 1]
    found = [coupled(*point) for point in grid]
    how = f"{len(grid)} settings of what a hit saves, prefill and decode; all states listed"
    told = lambda key, value, what: Printed(key, "Figure 3", "", float(value), "", how, what, "1")
    yield told("exists_frac", np.mean([f.equilibria > 0 for f in found]), "share of settings with a joint equilibrium")
    yield told("worst_price", np.nanmax([f.worst for f in found]), "largest price of anarchy, all move alone")
    yield told("best_price", np.nanmax([f.best for f in found]), "largest price of stability")
    yield told("led_price", max(f.led for f in found), "largest price where the planner leads and the others settle")
    yield told("separate_worst", max(f.separate for f in found), "three separate optima over the joint one, largest")
    yield told("separate_mean", np.mean([f.separate for f in found]), "three separate optima over the joint one, mean")


TITLE = "The Price of Anarchy in Disaggregated Inference"
for path, title, make in (
    ("experiment2", "Experiment 2: the detector over concurrency", detector_rows),
    ("static", "Section 9.2: static counterfactuals", static_rows),
    ("remark4", "Remark 4: fronts over tau and omega at two loads", frontier_rows),
    ("coupling", "Figure 3: the three games coupled", coupling_rows),
):
    verdicts(f"anarchy_{path}", f"price_of_anarchy/{path}", f"{TITLE}. {title}", __file__, make)
