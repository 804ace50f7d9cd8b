"""Phasor's Figures 1, 2 and 7, simulated: starvation of decoding, the batch law, and the divergence of queues.

Four prefill workers, lognormal prompts of 1,024 tokens on average, gamma arrivals with a CV of 3.0, 256 output tokens.
"""

from __future__ import annotations

import jax
import numpy as np

from benchmarks.papers._printed import verdicts
from dmodels.models.latency import StepLaw
from dmodels.sim import arrivals
from dmodels.sim.cluster import Signal, disaggregated
from dmodels.sim.estimate import mean_of
from dmodels.sim.fleet import Pool
from proofs.papers.rows import Printed

PREFILL_S_PER_TOKEN = 0.116 / 1024  # 116 ms for the average prompt before the burst (Figure 1)


def prompts(key, count: int) -> np.ndarray:
    """Lognormal lengths with mean 1,024 and sigma 0.8, whole."""
    with jax.enable_x64(True):
        normal = np.asarray(jax.random.normal(key, (count,), float))
    return np.maximum(1, np.rint(1024 * np.exp(0.8 * normal - 0.32)))


def in_system(times_in, times_out, grid) -> np.ndarray:
    """How many have come in but not gone out at each time of a grid."""
    return np.searchsorted(np.sort(times_in), grid, "right") - np.searchsorted(np.sort(times_out), grid, "right")


def burst(seed: int, low_rps: float, high_rps: float, start_s: float, stop_s: float, end_s: float):
    """Arrivals and prompts of a shock and its recovery."""
    key_arrivals, key_prompts = jax.random.split(jax.random.key(seed))
    count = int(2 * (low_rps * end_s + high_rps * (stop_s - start_s))) + 1000
    unit = arrivals.gamma(key_arrivals, 1.0, 3.0, count)
    when = arrivals.in_profile(unit, [0.0, start_s, stop_s], [low_rps, high_rps, low_rps])
    when = when[when < end_s]
    return when, prompts(key_prompts, count)[: when.size]


def starvation_rows(seeds: int = 20):
    """Figure 1: does an overloaded prefill stage drain the decoders?"""
    prefill_ms, decode = {"before": [], "burst": []}, {"before": [], "burst": [], "lowest": []}
    for seed in range(seeds):
        when, tokens = burst(seed, 5.0, 25.0, 90.0, 120.0, 240.0)
        # decoders at the pace that holds 48 requests in flight at 5 req/s: 37.5 ms a token
        stages = disaggregated.simulate(
            when,
            tokens,
            256,
            PREFILL_S_PER_TOKEN * tokens,
            4,
            Pool(4, 256, StepLaw(0.0375, 0.0)),
            signal=Signal.REQUESTS,
        )
        for name, (a, b) in {"before": (30, 90), "burst": (95, 125)}.items():
            mine = (when >= a) & (when < b)
            prefill_ms[name].append(1e3 * np.quantile(stages.ttft_s[mine], 0.9))
            decode[name].append(in_system(stages.ready_s, stages.end_s, np.arange(a, b, 0.1)).mean())
        decode["lowest"].append(in_system(stages.ready_s, stages.end_s, np.arange(95.0, 140.0, 0.1)).min())

    def figure(name, printed, values, rule, how):
        e = mean_of(np.array(values))
        return Printed(name, "Figure 1", printed, e.value, rule, how, low=e.low, high=e.high)

    how = "TTFT P90, 30 to 90 s; 116 ms is the prefill of one mean prompt without any wait"
    yield figure("prefill_before_ms", 116, prefill_ms["before"], "interval", how)
    yield figure("prefill_burst_ms", 900, prefill_ms["burst"], "above", "95 to 125 s")
    how = "decode pace set to hold 48 at 5 req/s"
    yield figure("decode_before", 48, decode["before"], "fitted relative 0.1", how)
    how = "what leaves a saturated prefill stage comes at its full rate, so decoders fill"
    yield figure("decode_burst", 16, decode["burst"], "below", how)
    yield figure("decode_burst_lowest", 16, decode["lowest"], "below", f"least in 95 to 140 s: {how}")


def batch_rows():
    """Figure 2: a law t(B) = base + slope x tokens through its two printed points, and what it implies."""
    for batch in (6, 8):
        base = (122.8e-6 - 42.8e-6) / (1 / 1024 - 1 / (1024 * batch))
        slope = 122.8e-6 - base / 1024
        name = f"through_batch_{batch}"
        how = f"122.8 us alone, 42.8 us at a batch of {batch}"
        yield Printed(f"{name}_base_ms", "Figure 2", "", 1e3 * base, "tuned", how)
        yield Printed(f"{name}_slope_us", "Figure 2", "", 1e6 * slope, "tuned", f"an endless batch; {how}")
        gain = 100 * ((base / (1024 * 8) + slope) / (base / (1024 * 16) + slope) - 1)
        how = "throughput at a batch of 16 over 8; which batch has 42.8 us is not said"
        yield Printed(f"{name}_gain_beyond_8_pct", "Figure 2", 21, gain, "relative 0.1", how)
    flops = 2 * 7.62e9 / 42.8e-6 / 1e12
    how = "2 N per token at 42.8 us on a V100 that peaks at 125: impossible"
    yield Printed("implied_tflops", "Figure 2", 125, flops, "below", how, unit="TFLOP/s")


def divergence_rows(seeds: int = 80):
    """Figure 7: queues of four prefill workers on the plateau of a burst (300 to 420 s), by what the router sees."""
    capacity = 4 / 0.116
    found = {}
    for signal in (Signal.MEMORY, Signal.TOKENS, Signal.WORK, Signal.REQUESTS):
        rows = []
        for seed in range(seeds):
            when, tokens = burst(seed, 0.75 * capacity, 0.91 * capacity, 240.0, 420.0, 430.0)
            worker, _, end = disaggregated.prefill(when, tokens, PREFILL_S_PER_TOKEN * tokens, 4, signal)
            grid = np.arange(300.0, 420.0, 0.25)
            queue = np.sort([in_system(when[worker == w], end[worker == w], grid).mean() for w in range(4)])
            peaks = [in_system(when[worker == w], end[worker == w], grid).max() for w in range(4)]
            rows.append((queue[-1], queue[:-1].mean(), max(peaks), np.sort(peaks)[:-1].mean()))
        found[signal] = np.array(rows)
    printed = {Signal.MEMORY: (36.2, 15.1, 46, 19), Signal.WORK: (15.8, 15.8)}
    names = ("busiest", "others", "busiest_peak", "others_peak")
    for signal, values in found.items():
        for k, name in enumerate(names if signal is Signal.MEMORY else names[:2]):
            shown, e = printed[signal][k] if signal in printed else "", mean_of(values[:, k])
            how = (
                f"{'most on the plateau, ' if 'peak' in name else ''}mean of {seeds} bursts; the trace is not published"
            )
            rule, key = "" if shown == "" else "interval", f"{signal.name.lower()}_{name}"
            yield Printed(key, "Figure 7", shown, e.value, rule, how, low=e.low, high=e.high)
    busiest, others = found[Signal.MEMORY][:, :2].T
    skew = float(busiest.mean() / others.mean())
    reach = mean_of((busiest - skew * others) / others.mean()).half_width  # of a ratio of two means
    how = "busiest over others; the signal cannot see the queue, but the trace is not published"
    yield Printed("skew_memory", "Figure 7", 2.4, skew, "interval", how, low=skew - reach, high=skew + reach)


for number, title, make in (
    (1, "starvation", lambda quick: starvation_rows(2 if quick else 20)),
    (2, "a batch law", lambda quick: batch_rows()),
    (7, "queue divergence", lambda quick: divergence_rows(2 if quick else 80)),
):
    where = f"phasor/simulated/figure{number}"
    verdicts(f"phasor_figure{number}", where, f"Phasor. Figure {number}: {title}", __file__, make)
