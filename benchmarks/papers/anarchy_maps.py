"""The price-of-anarchy paper's Experiments 3 and 4 beyond its tables: every fleet, every map, other courses of load.

Experiment 4: PoA-hat, the true price, TTFT P99, ITL P99 and throughput over tau and omega, for the three fleets at both
loads, and what Sections 8.3 and 8.4 say of them in words. Experiment 3: the third fleet of Section 8.5, and static
against adaptive on a ramp, on short bursts and on an overload.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from benchmarks.papers import _load_spike as spike
from benchmarks.papers._printed import verdicts
from benchmarks.papers._router_map import router_map
from benchmarks.papers.price_of_anarchy import FLEETS, LOOP, LOOPS, MAP, PARAMETERS, SPIKE, THRESHOLDS_S, index
from dmodels.sim import estimate
from proofs.papers.rows import Printed

NAMES = {"340b": "340B 1P/2D", "70b": "70B 1P/2D", "70b_5d": "70B 1P/5D"}
LOADS = (64, 128)
UNITS = {"poa_hat": "1", "poa": "1", "ttft_p99_s": "s", "itl_p99_ms": "ms", "rps": "req/s"}
QUEUE = f"the queue alone; what is above it is one run's noise or not in the model; {MAP}"


def maps(fleet: str, clients: int) -> dict[str, np.ndarray]:
    """Maps over tau (rows) and omega (columns) of the five quantities."""
    deployment = FLEETS[fleet]
    found = router_map(clients, PARAMETERS, PARAMETERS, deployment)
    return {
        "poa_hat": index(clients / found.throughput_rps, deployment.workers_count, found.hit_frac),
        "poa": found.poa,
        "ttft_p99_s": found.ttft_p99_s,
        "itl_p99_ms": 1e3 * found.itl_p99_s,
        "rps": found.throughput_rps,
    }


def cell_rows(quick: bool = False) -> Iterator[Printed]:
    """Every cell of every map of Experiment 4; Table 6 prints three of the thirty."""
    for fleet, clients in itertools.product(FLEETS, LOADS):
        for quantity, values in maps(fleet, clients).items():
            cells = itertools.product(PARAMETERS, PARAMETERS)
            for (tau, omega), value in zip(cells, np.broadcast_to(values, (4, 4)).ravel(), strict=True):
                key = f"{fleet}_c{clients}_{quantity}_tau{tau}_omega{omega}"
                what = f"{quantity}, {NAMES[fleet]}, C = {clients}, tau {tau}, omega {omega}"
                yield Printed(key, "Experiment 4", "", float(value), "", "", what, UNITS[quantity])


def said_rows(quick: bool = False) -> Iterator[Printed]:
    """What Sections 8.3 and 8.4 say of the maps in words: means, deviations, spreads, ranges."""
    found = {(fleet, clients): maps(fleet, clients) for fleet in FLEETS for clients in LOADS}
    means = {
        ("340b", 64): ("18.7", "0.10", ""),
        ("70b", 64): ("7.47", "0.08", ""),
        ("70b_5d", 64): ("14.93", "0.06", ""),
        ("70b_5d", 128): ("57.8", "10.6", "2.0"),
    }
    for (fleet, clients), (mean, deviation, spread) in means.items():
        cells, at = found[fleet, clients]["poa_hat"], f"{fleet}_c{clients}"
        where = "Section 8.3" if clients == 64 else "Section 8.4"
        what = f"PoA-hat over the 16 cells, {NAMES[fleet]}, C = {clients}"
        rule = "fitted relative 0.1" if at == "340b_c64" else "relative 0.1"
        yield Printed(f"{at}_mean", where, mean, float(cells.mean()), rule, QUEUE, f"mean of {what}", "1")
        value = float(cells.std(ddof=1))
        yield Printed(f"{at}_deviation", where, deviation, value, "relative 0.1", QUEUE, f"deviation of {what}", "1")
        if spread:
            value = float(cells.max() / cells.min())
            how = f"largest over least of {what}"
            yield Printed(f"{at}_spread", where, spread, value, "relative 0.1", QUEUE, how, "1")
    for fleet, printed in (("340b", "37"), ("70b", "58"), ("70b_5d", "")):
        below, above = (found[fleet, clients]["poa_hat"].std() for clients in LOADS)
        rule, what = "relative 0.1" if printed else "", f"deviation at C = 128 over C = 64, {NAMES[fleet]}"
        yield Printed(f"{fleet}_growth", "Section 8.4", printed, float(above / below), rule, QUEUE, what, "1")
    for fleet, low, high in (("340b", 19, 23), ("70b", 11, 13), ("70b_5d", "", "")):
        for end, values in (("least", np.min), ("largest", np.max)):
            value = float(values([found[fleet, c]["itl_p99_ms"] for c in LOADS]))
            rule, printed = (f"fitted range {low} {high}", f"{low}-{high}") if low else ("", "")
            yield Printed(f"{fleet}_itl_{end}", "Section 8.3", printed, value, rule, MAP, f"{end} ITL P99", "ms")
    for fleet, clients in found:
        cells = found[fleet, clients]
        gain = float(cells["ttft_p99_s"].mean(0)[0] / cells["ttft_p99_s"].mean(0)[-1])
        key, what = f"{fleet}_c{clients}_ttft_gain_of_omega", "TTFT P99 at omega 0 over 1, mean over tau"
        printed, rule = ("1", "relative 0.1") if (fleet, clients) == ("340b", 128) else ("", "")
        how = f"the paper: invariant on the 340B; a full hit is assumed to save half of prefill in every fleet; {MAP}"
        yield Printed(key, "Section 8.4", printed, gain, rule, how, f"{what}, {NAMES[fleet]}, C = {clients}", "1")


COURSES = {
    "ramp": ((32, 60), (64, 60), (96, 60), (128, 60), (96, 60), (64, 60), (32, 60)),
    "bursts": ((32, 90), (128, 30)) * 4,
    "overload": ((32, 60), (256, 120), (32, 120)),
}
METRICS = {"ttft_p99_s": "s", "latency_s": "s", "rps": "req/s"}


def courses_rows(quick: bool = False) -> Iterator[Printed]:
    """Section 8.5: the 70B on 1P/2D, then static against adaptive on other courses, paired by seed."""
    seeds = range(2 if quick else 6)
    at = lambda fleet, phases, adapt: [
        spike.run(LOOPS[fleet], phases, THRESHOLDS_S[fleet], adapt, seed) for seed in seeds
    ]
    column = lambda runs, name, *window: np.array([spike.figures(run, *window)[name] for run in runs])
    static, adaptive = (at("70b", SPIKE, adapt) for adapt in (False, True))
    for name, runs, poa, ttft in (("static", static, "23.1", "25.9"), ("adaptive", adaptive, "10.7", "3.4")):
        for key, printed, values in (
            ("poa_hat", poa, index(column(runs, "latency_s", 120, 300), 2, 1.0)),
            ("ttft_p99_s", ttft, column(runs, "ttft_p99_s", 120, 300)),
        ):
            value, what = estimate.mean_of(np.asarray(values)), f"{key}, {name}, saturated, 70B 1P/2D"
            told = f"70b_{name}_{key}", "Section 8.5", printed, value.value, "relative 0.1", LOOP, what
            yield Printed(*told, "s" if key.endswith("_s") else "1", value.low, value.high)
    fired = [run.sampled_s[(run.regime > 0) & (run.sampled_s > 120)].min(initial=np.inf) - 120 for run in adaptive]
    value, how = estimate.mean_of(np.array(fired)), f"EWMA and hysteresis alone, 5 s samples; {LOOP}"
    what = "seconds until the switch, 70B 1P/2D"
    yield Printed(
        "70b_switch_s", "Section 8.5", "48.6", value.value, "relative 0.1", how, what, "s", value.low, value.high
    )
    for fleet, (course, phases) in itertools.product(("340b", "70b_5d"), COURSES.items()):
        end = sum(seconds for _, seconds in phases)
        static, adaptive = (at(fleet, phases, adapt) for adapt in (False, True))
        for name, unit in METRICS.items():
            before, after = (column(runs, name, 30, end) for runs in (static, adaptive))
            for kind, values, of in (("static", before, unit), ("adaptive_over_static", after / before, "1")):
                value, what = estimate.mean_of(values), f"{name}, {NAMES[fleet]}, {course}, {kind.replace('_', ' ')}"
                told = f"{fleet}_{course}_{name}_{kind}", "Section 8.5", "", value.value, "", LOOP, what, of
                yield Printed(*told, value.low, value.high)


TITLE = "The Price of Anarchy in Disaggregated Inference"
for path, title, make in (
    ("experiment4_maps", "Experiment 4: every map over tau and omega", cell_rows),
    ("experiment4", "Experiment 4: what Sections 8.3 and 8.4 say of the maps", said_rows),
    ("experiment3", "Experiment 3: the third fleet, and other courses of load", courses_rows),
):
    verdicts(f"anarchy_{path}", f"price_of_anarchy/{path}", f"{TITLE}. {title}", __file__, make)
