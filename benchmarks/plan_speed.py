"""Points per second of the full plan evaluation, beside the same formulas in plain NumPy and in a Python loop.

    python -m benchmarks.plan_speed [--points 10000000]

One point is one pool: a layout, a class of requests and a number of instances; out come occupancy, waits, percentiles
of TTFT, TPOT and E2E, and flags. Prints the ratio to each peer measured in the same run, the peak memory, and how cost
grows with the number of points.
"""

from __future__ import annotations

import argparse
import resource
import time

import jax
import numpy as np
from scipy.special import gammaincc, gammaln, ndtri

from benchmarks.registry import record
from dmodels import SLO, catalog
from dmodels.core.records import float64
from dmodels.models.traffic import GAP_WEIGHTS, LEVELS
from dmodels.studies.plan import Priced, price, question
from dmodels.studies.plan.evaluate import sweep_instances


def numpy_point(cells, row: int, instances: np.ndarray, rate_rps: float) -> dict[str, np.ndarray]:
    """`models.instance.operate` for one cell and many numbers of instances, written again in plain NumPy."""
    take = lambda leaf: np.asarray(leaf)[row, 0]
    steps, r, slo = (jax.tree.map(take, tree) for tree in (cells.steps, cells.requests, cells.slo))
    x = rate_rps * r.share_frac / instances
    slots = max(min(take(cells.slots_count), 256.0 * take(cells.dp)), 1.0)
    mean_at = lambda x: 1.0 / np.interp(x, steps.arrival_rps, 1.0 / steps.mean_step_s)
    n = np.minimum(x * r.output_tokens * mean_at(x), slots)
    over = (r.output_tokens > 0) & (x > np.interp(slots, steps.decode_count, steps.arrival_rps))
    at = lambda n: [np.interp(n, steps.decode_count, y) for y in (steps.alone_s, steps.extra_s)]
    alone, extra = at(n)
    decodes = r.output_tokens > 0
    full_alone, full_extra = at(slots) if decodes else (alone, extra)
    inertia = np.clip(1 - (at(n + np.sqrt(n))[0] - alone) / alone * np.sqrt(n), 1e-3, 1.0)
    busy = x * extra
    step = np.where(busy < 1, alone / np.maximum(1 - busy, 1e-12), np.inf)
    prompt = r.prefill_tokens
    one = extra + alone * prompt / 8192.0
    square, cube = (r.prefill_square / prompt**2, r.prefill_cube / prompt**3) if prompt > 0 else (1.0, 1.0)
    rho = x * one
    room = np.where(rho < 1, 1 / np.maximum(1 - rho, 1e-12), np.inf)
    wait1 = 0.5 * x * one**2 * square * room
    wait1_square = 2 * wait1**2 + x * one**3 * cube * room / 3
    service = r.output_tokens * step + alone + one
    load = x * service
    with np.errstate(all="ignore"):
        full_step = np.where(x * full_extra < 1, full_alone / (1 - x * full_extra), 1e300)
        full_service = r.output_tokens * full_step + full_alone + one
        room_left = slots - x * full_service
        stiff = np.clip(room_left / (slots - load), 1e-3, 1.0)
        c, a = stiff * slots, stiff * load
        log_b = c * np.log(a) - a - gammaln(c + 1) - np.log(gammaincc(c + 1, a))
        full = np.where(a < c, c / (a + (c - a) * np.exp(-log_b)), 1.0)
        queued = np.where(room_left > 0, full_service * (1 + r.output_scv) / 2 / room_left, np.inf)
        slot_wait = full * queued
        shared = 1 + 0.5 * busy
        wait1, wait1_square = wait1 * shared, wait1_square * shared**2
        wait = slot_wait + wait1
        second = 2 * slot_wait * queued + wait1_square + 2 * slot_wait * wait1
        p_wait = np.where(second > 0, np.minimum(2 * wait**2 / second, 1), 0.0)
        over = over | (rho >= 1) | (room_left <= 0)
        per_token = take(cells.pp) * (one / prompt if prompt > 0 else 0.0) + take(cells.transfer_s_per_token)
        fixed = take(cells.prompt_s) + (1 + take(cells.wait_steps)) * step
        prompts = np.multiply.outer(per_token * np.ones_like(x), r.prefill_edge_tokens)
        own = fixed[:, None] + step[:, None] * (LEVELS - 0.5) + prompts
        ttft = _sum_quantile(float(slo.percentile), p_wait, wait, own)
        answered = wait1 + 1.5 * step + one
        variance = wait1_square - wait1**2 + one**2 * (square - 1)
        stalls = step / alone
        backlog = x * extra * stalls * answered
        mean = (busy * step)[:, None] * r.gap_tokens + backlog[:, None]
        spread = (extra * square * stalls**2)[:, None] * mean + ((x * extra * stalls) ** 2 * variance)[:, None]
        seen = np.minimum(n + 1 / inertia, slots)
        crowd = np.minimum(seen + 3 * np.sqrt(n / inertia), slots)
        shared_s, crowded_s = at(seen)[0], at(crowd)[0]
        per_mate = np.where((crowd > seen) & decodes, (crowded_s - shared_s) / np.maximum(crowd - seen, 1e-300), 0.0)
        shared_s = shared_s if decodes else alone
        lifetimes = np.multiply.outer(inertia, r.gap_tokens / (r.gap_tokens @ GAP_WEIGHTS))
        swing = np.multiply.outer(per_mate * (crowd - seen) / 3, r.gap_tokens) ** 2 / (1 + lifetimes / 3)
        mates = per_mate * seen
        mean = np.maximum(mean + np.multiply.outer(mates, r.gap_tokens), 1e-9 * (shared_s - mates)[:, None])
        tpot = shared_s - mates + _mixture(float(slo.percentile), mean, spread + swing, r.gap_tokens)
        token_s = shared_s / (1 - busy)
        base = (wait * 0 + fixed + per_token * prompt + backlog)[:, None]
        e2e = _sum_quantile(float(slo.percentile), p_wait, wait, base + token_s[:, None] * r.output_edge_tokens)
    dead = np.where(over, np.inf, 0.0)
    return {"ttft_s": ttft + dead, "tpot_s": tpot + dead, "e2e_s": e2e + dead}


def _sum_quantile(q, p_wait, mean, edges):
    theta = np.where(p_wait > 0, mean / np.maximum(p_wait, 1e-300), 0.0)
    theta = np.maximum(np.where(np.isfinite(theta), theta, 0.0), 1e-12)
    edges = edges + 1e-9 * np.arange(edges.shape[1])  # equal edges: a step
    low, high = edges[:, 0].copy(), edges[:, -1] + theta * np.maximum(np.log(np.maximum(p_wait, 1e-300) / (1 - q)), 0)
    mass, width = np.diff(LEVELS), np.maximum(np.diff(edges, axis=1), 1e-15)
    for _ in range(40):
        t = 0.5 * (low + high)
        a, b = np.clip(t[:, None] - edges[:, :-1], 0, None), np.clip(t[:, None] - edges[:, 1:], 0, None)
        above = (width - (a - b)) / width
        waits = p_wait[:, None] * theta[:, None] / width * (np.exp(-b / theta[:, None]) - np.exp(-a / theta[:, None]))
        over = (mass * (above + waits)).sum(1) > 1 - q
        low, high = np.where(over, t, low), np.where(over, high, t)
    return high


def _mixture(q, mean, variance, gaps):
    shape = np.clip(mean**2 / np.maximum(variance, 1e-300), 1e-3, 1e6)
    root = 3 * np.sqrt(shape)
    a, b = root * np.cbrt(gaps / mean), root * (1 - 1 / (9 * shape))
    z, slack = ndtri(q), 0.1 + 0.02 * ndtri(q) ** 2
    low, high = np.maximum((b + z - slack) / a, 0).min(1), ((b + z + slack) / a).max(1)
    for _ in range(40):
        u = 0.5 * (low + high)
        z = np.clip(a * u[:, None] - b, -30, 30)
        over = (GAP_WEIGHTS / (1 + np.exp(1.5976 * z + 0.07056 * z**3))).sum(1) > 1 - q
        low, high = np.where(over, u, low), np.where(over, high, u)
    return high**3


def prepared() -> Priced:
    """The cells of a question that a planner asks: four GPU types, four TP degrees, precisions, all thresholds."""
    both = ("as published", "fp8")
    gpus, workload = ["h100", "h200", "b200", "mi300x"], catalog.workload("azure-conv", 200.0)
    return price(question("llama-3.1-70b", gpus, workload, SLO(2.0, 0.08), weights=both, kv=both))


@float64
def main() -> None:
    """Measure, print, record."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--points", type=int, default=10_000_000)
    most = options.parse_args().points
    priced = prepared()
    cells, asked = priced.cells, priced.question
    stable = np.where(np.isfinite(priced.stable_instances), priced.stable_instances, 1.0).reshape(-1, 1)
    rows = []
    width = 64
    run = lambda counts: sweep_instances(cells, counts, asked.rate_rps, asked.engine)
    run(np.ceil(stable * np.geomspace(1, 12, width)))  # compile
    while True:
        counts = stable * np.geomspace(1, 12, width)
        begin, cpu = time.perf_counter(), time.process_time()
        run(counts)
        wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
        rows.append(
            {
                "what": "dmodels",
                "points_count": counts.size,
                "points_per_s": counts.size / wall,
                "points_per_cpu_s": counts.size / cpu,
            }
        )
        if counts.size * 4 > most:
            break
        width *= 4
    rows[-1]["peak_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    counts = np.ceil(stable * np.geomspace(1.02, 12, 64))
    ours = run(counts)
    sample = np.arange(0, len(stable), max(len(stable) // 60, 1))
    begin = time.perf_counter()
    theirs = [numpy_point(cells, i, counts[i], asked.rate_rps) for i in sample]
    wall = time.perf_counter() - begin
    rows.append(
        {
            "what": "NumPy, a cell at a time",
            "points_count": counts.shape[1] * len(sample),
            "points_per_s": counts.shape[1] * len(sample) / wall,
        }
    )
    fits = (ours.flags[sample] & 3) == 0
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        other = np.stack([point[name] for point in theirs])
        error = np.abs(other / getattr(ours, name)[sample] - 1)[fits].max()
        print(f"largest difference from NumPy in {name}: {error:.2e}")
    begin, tried = time.perf_counter(), 0
    while time.perf_counter() - begin < 3.0:
        numpy_point(cells, int(sample[tried % len(sample)]), counts[0, tried % 64][None], asked.rate_rps)
        tried += 1
    rows.append({"what": "Python loop", "points_count": tried, "points_per_s": tried / (time.perf_counter() - begin)})
    best = max(row["points_per_s"] for row in rows if row["what"] == "dmodels")
    for row in rows:
        row["ours_over_this"] = best / row["points_per_s"]
        print("  ".join(f"{key}={value:,.4g}" if key != "what" else f"{value:24s}" for key, value in row.items()))
    record("plan_speed", rows)


if __name__ == "__main__":
    main()
