r"""How many prefill and decode GPUs, at which clocks, serve a load within its SLOs for the fewest watts.

Prefill is an M/G/1 queue per worker (arrivals split evenly), its work bound by arithmetic, so time goes as 1/f. Decode
runs t(n) = W + H n, bound by memory, at the fixed point n = x t/(...) of `queueing.fluid_occupancy`; only
`decode_compute_frac` of it goes as 1/f. With power linear in the busy share a fleet's watts are

    sum over phases of  workers * P_idle + busy workers * D f^3,   busy workers = load * time factor(f)

so without clocks the smallest fleet that meets the SLOs is the best; with clocks, more workers that run slower can win.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.hardware import SLO
from dmodels.solvers.solution import Solution

from .energy import Power


class Load(NamedTuple):
    """What the split has to serve, for one worker at the nominal clock."""

    rate_rps: float
    prefill_s: float  # mean prefill time of a prompt
    prefill_scv: float  # of prefill times
    output_tokens: float
    base_s: float  # W
    per_sequence_s: float  # H
    slots_count: float = 256.0
    decode_compute_frac: float = 0.1


def split_metrics(
    load: Load, prefill: float, decode: float, prefill_clock: float, decode_clock: float, powers: tuple[Power, Power]
) -> dict[str, float]:
    """Mean TTFT (wait and prefill), TPOT, watts and J/token of one split; inf where there is no steady state."""
    inf = float("inf")
    service = load.prefill_s / prefill_clock
    rho = load.rate_rps / prefill * service
    ttft = service + rho / (1 - rho) * service * (1 + load.prefill_scv) / 2 if rho < 1 else inf
    slow = 1 - load.decode_compute_frac + load.decode_compute_frac / decode_clock
    x = load.rate_rps / decode * load.output_tokens
    room = 1 - x * load.per_sequence_s * slow
    tpot = load.base_s * slow / room if room > 0 else inf
    batch = x * tpot
    if batch > load.slots_count:
        tpot = inf
    watts = 0.0
    busy_d = min(1.0, batch)  # a worker with less than one sequence on average is idle part of the time
    for power, count, busy, clock in (
        (powers[0], prefill, min(rho, 1.0), prefill_clock),
        (powers[1], decode, busy_d, decode_clock),
    ):
        dynamic = float(power.active_w - power.idle_w) * clock ** float(power.clock_exponent)
        watts += count * (float(power.idle_w) + dynamic * busy)
    tokens = load.rate_rps * load.output_tokens
    return {
        "ttft_s": ttft,
        "tpot_s": tpot,
        "batch_count": batch,
        "prefill_busy_frac": rho,
        "watts_w": watts,
        "j_per_token": watts / tokens,
    }


def best_split(
    load: Load,
    powers: tuple[Power, Power],
    slo: SLO,
    most_gpus: int,
    clocks=(0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    workers: int | None = None,
) -> Solution:
    """The split of least watts with at most `most_gpus` (exactly `workers`, if given) on a grid of clocks.

    `slo` bounds mean TTFT and TPOT. All combinations are tried, watts fall apart into a prefill and a decode part, so
    each part is searched alone for every count: exact. Of clocks that draw the same, the one named first.
    certificate: the least watts of each part by its count.
    """
    if not (most_gpus >= 2 and load.rate_rps > 0 and all(0 < f for f in clocks)):
        raise InputError(
            f"most_gpus {most_gpus}, rate_rps {load.rate_rps}, clocks {clocks}; accepted: at least 2 "
            "GPUs, rates and clocks above 0"
        )
    if workers is not None and workers > most_gpus:
        raise InputError(f"workers {workers}: accepted is at most most_gpus = {most_gpus}")
    parts = [np.full(most_gpus + 1, np.inf), np.full(most_gpus + 1, np.inf)]
    chosen = [np.ones(most_gpus + 1), np.ones(most_gpus + 1)]
    for phase, bound in ((0, "ttft_s"), (1, "tpot_s")):
        off = Power(0.0, 0.0)
        mine = (powers[0], off) if phase == 0 else (off, powers[1])
        for count, clock in itertools.product(range(1, most_gpus), clocks):
            m = split_metrics(load, count, count, clock, clock, mine)
            if m[bound] <= float(getattr(slo, bound)) and m[bound] < np.inf and m["watts_w"] < parts[phase][count]:
                parts[phase][count], chosen[phase][count] = m["watts_w"], clock
    total = parts[0][:, None] + parts[1][None, :]
    count = np.arange(most_gpus + 1)
    used = count[:, None] + count[None, :]
    total = np.where(used <= most_gpus if workers is None else used == workers, total, np.inf)
    prefill, decode = np.unravel_index(np.argmin(total), total.shape)
    certificate = {"prefill_w": parts[0], "decode_w": parts[1]}
    if not np.isfinite(total[prefill, decode]):
        return Solution({}, certificate, np.int32(Flag.INFEASIBLE), total.size)
    clock_p, clock_d = float(chosen[0][prefill]), float(chosen[1][decode])
    value = {
        "prefill_gpus": int(prefill),
        "decode_gpus": int(decode),
        "prefill_clock_frac": clock_p,
        "decode_clock_frac": clock_d,
    } | split_metrics(load, prefill, decode, clock_p, clock_d, powers)
    return Solution(value, certificate, np.int32(0), total.size)
