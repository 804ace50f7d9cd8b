r"""SLO-constrained capacity: the largest closed-loop concurrency whose P99 TTFT and TPOT stay in budget (Phasor, 4.3).

Two answers to the same question, neither of which knows the other. The closed form walks along the throughput x: with
prompts routed by freeness prefill is an M/G/k queue, a decoder with n sequences steps in W + H n, and

$$N(x) = x\,(E[\text{wait}] + E[\text{prefill}]) + x\,E[O]\,t(n), \qquad n = \frac{x E[O]\,t(n)}{n_D},$$

which increases in x as TTFT and TPOT do, so the capacity is N at the largest x within both budgets and the KV memory:
one bisection. Where memory is what ends the growth of x, further clients wait for a decoder until TPOT is spent. The
simulation bisects over whole numbers of clients of `sim.cluster`, on the mean of P99s over replications with common
random numbers.

Read the rate beside the clients. By Little's law concurrency is rate times response time: where TTFT binds, a faster
decode pool serves the same rate with *fewer* clients in flight, and a slower one scores higher. So a ratio of
capacities is a ratio of costs only at equal response time.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.errors import InputError, unknown
from dmodels.core.files import csv_rows
from dmodels.core.flags import Flag
from dmodels.core.hardware import SLO
from dmodels.core.numerics import safe_divide
from dmodels.core.records import float64
from dmodels.models.queueing import erlang_c, fluid_occupancy, wait_mean_s
from dmodels.sim import cluster as sim


class Task(NamedTuple):
    """Lengths, lognormal with a coefficient of variation, and the budgets."""

    input_tokens: float
    output_tokens: float
    slo: SLO
    length_cv: float = 0.5


class Prompts(NamedTuple):
    """Seconds of a prompt on one prefill worker: base + linear l + square l^2. Qwen2.5-7B on a V100: 0.116 s at 1,024
    tokens, the reading of a FP16 weight pass (17 ms) for the shortest."""

    base_s: float = 0.010
    linear_s: float = 9.5e-5
    square_s: float = 8e-9

    def seconds(self, tokens):
        """Of prompts of so many tokens."""
        return np.maximum(0.017, self.base_s + self.linear_s * tokens + self.square_s * tokens**2)


class Capacity(NamedTuple):
    """The answer and what holds it there."""

    clients_count: float
    rate_rps: float
    ttft_s: float  # at the SLO's percentile, at capacity
    tpot_s: float
    binds: str  # "TTFT", "TPOT", "KV memory"
    flags: int


def tasks(length_cv: float = 0.5) -> dict[str, Task]:
    """The workloads of Phasor's Tables 1 and 3 by name."""
    text = Path(__file__).with_name("slo_workloads.csv").read_text(encoding="utf-8")
    return {
        row["name"]: Task(
            float(row["input_tokens"]),
            float(row["output_tokens"]),
            SLO(float(row["ttft_s"]), float(row["tpot_s"])),
            length_cv,
        )
        for row in csv_rows(text)
    }


def task(name: str, length_cv: float = 0.5) -> Task:
    """One of `tasks` by name."""
    known = tasks(length_cv)
    if name not in known:
        raise unknown("workload", name, known)
    return known[name]


@float64
def by_formula(job: Task, cluster: sim.Workers, prompts: Prompts = Prompts()) -> Capacity:  # noqa: B008 - constants
    """Closed form: one bisection over the throughput. Standby workers are not counted."""
    grid = (np.arange(200) + 0.5) / 200
    z = np.asarray(jax.scipy.special.ndtri(jnp.asarray(grid)))
    lengths = _lognormal(job.input_tokens, job.length_cv, z)
    service = prompts.seconds(lengths)
    mean, scv = float(service.mean()), float(service.var() / service.mean() ** 2)
    outputs = _lognormal(job.output_tokens, job.length_cv, z)
    output = float(outputs.mean())
    stay = float((outputs**2).mean()) / output  # of a sequence found on a decoder: long ones are there for longer
    room = min(cluster.slots, cluster.kv_blocks / ((lengths.mean() + stay) / cluster.block_tokens + 0.5))
    q = float(job.slo.percentile)
    spread = float(jax.scipy.special.ndtri(q)) * np.sqrt(2.0 / np.e)  # a request averages the occupancy over its life

    def at(x):
        wait = float(wait_mean_s(x, mean, float(cluster.prefill), scv))
        waits = float(erlang_c(float(cluster.prefill), x * mean))
        ttft = _quantile(q, waits, wait, service)
        n = float(fluid_occupancy(x / cluster.decode, output, *cluster.step))
        tpot = cluster.step.iteration_s(n + spread * np.sqrt(n)) if np.isfinite(n) else np.inf
        return x * (wait + mean) + cluster.decode * n, ttft, float(tpot), n

    low, high = 0.0, cluster.prefill / mean
    for _ in range(60):
        x = 0.5 * (low + high)
        _, ttft, tpot, n = at(x)
        fine = ttft <= float(job.slo.ttft_s) and tpot <= float(job.slo.tpot_s) and n <= room
        low, high = (x, high) if fine else (low, x)
    clients, ttft, tpot, n = at(low)
    _, ttft_over, tpot_over, _ = at(low * (1 + 1e-6) + 1e-9)
    names = {"TTFT": ttft_over > float(job.slo.ttft_s), "TPOT": tpot_over > float(job.slo.tpot_s)}
    binds = next((name for name, over in names.items() if over), "KV memory")
    infeasible = low < 1e-9
    if binds == "KV memory":  # more clients wait for a decoder, at the same throughput, until TPOT says stop
        shortest = float(np.quantile(outputs, 1 - q))  # a wait W adds W/o to a request's TPOT, most to a short one
        wait = (float(job.slo.tpot_s) - tpot) * shortest
        clients, tpot = clients + low * wait, float(job.slo.tpot_s)
    return Capacity(0.0 if infeasible else clients, low, ttft, tpot, binds, int(Flag.INFEASIBLE) if infeasible else 0)


@float64
def draw(job: Task, key: jax.Array, count: int, prompts: Prompts = Prompts()) -> tuple[np.ndarray, ...]:  # noqa: B008
    """(input tokens, output tokens, prefill seconds) of so many requests."""
    z = np.asarray(jax.random.normal(key, (2, count), float))
    inputs, outputs = (
        np.maximum(1.0, np.rint(_lognormal(mean, job.length_cv, row)))
        for mean, row in zip((job.input_tokens, job.output_tokens), z, strict=True)
    )
    return inputs, outputs, prompts.seconds(inputs)


def by_simulation(
    job: Task,
    cluster: sim.Workers,
    control: sim.Control,
    key: jax.Array,
    *,
    requests: int = 4000,
    replications: int = 4,
    most_clients: int = 4096,
    prompts: Prompts = Prompts(),  # noqa: B008
    believed_alpha: float = 1.0,
) -> Capacity:
    """Bisection over clients on the simulation; the first third of each run is warm-up. The router reckons with
    `believed_alpha` times the quadratic term of a prompt's seconds.

    P99s are means over replications, whose requests are the same for every number of clients. NOT_CONVERGED: even
    `most_clients` (or all requests of a run) are within budget. INFEASIBLE: not even one client is.
    """
    if requests < 300 or replications < 1:
        raise InputError(f"requests {requests}, replications {replications}; accepted: from 300, and from 1")
    draws = [draw(job, jax.random.fold_in(key, r), requests, prompts) for r in range(replications)]
    q = float(job.slo.percentile)
    skip = requests // 3

    def at(clients):
        out = []
        for inputs, outputs, seconds in draws:
            believed = seconds + (believed_alpha - 1.0) * prompts.square_s * inputs**2
            start = np.zeros(requests)
            first = np.arange(clients) * (job.output_tokens * cluster.step.base_s / max(clients, 1))
            start[:clients], start[clients:] = first, first[-1]  # spaced over one life, so that all do not come at once
            lengths = inputs, outputs, seconds
            run = sim.simulate(start, *lengths, cluster, control, clients=clients, virtual_s=believed)
            done = np.sort(run.end_s)
            rate = (requests - 2 * skip) / (done[requests - skip] - done[skip])
            out.append((np.quantile(run.ttft_s[skip:], q), np.nanquantile(run.tpot_s[skip:], q), rate))
        return np.mean(out, axis=0)

    def fine(found):
        return found[0] <= float(job.slo.ttft_s) and found[1] <= float(job.slo.tpot_s)

    limit = min(most_clients, requests // 4)
    low, high, best = 0, limit + 1, None
    step = 8  # look for an upper end by doubling: large runs are slow
    while step <= limit and high > limit:
        found = at(step)
        low, best, high = (step, found, high) if fine(found) else (low, best, step)
        step *= 2
    while high - low > max(1, low // 64):  # to 1.6 %, less than the noise of a P99
        middle = (low + high) // 2
        found = at(middle)
        low, best, high = (middle, found, high) if fine(found) else (low, best, middle)
    if best is None:
        return Capacity(0.0, 0.0, np.nan, np.nan, "TTFT", int(Flag.INFEASIBLE))
    over = at(min(high, limit))
    binds = "TTFT" if over[0] > float(job.slo.ttft_s) else "TPOT"
    flags = int(Flag.NOT_CONVERGED) if high > limit else 0
    return Capacity(float(low), float(best[2]), float(best[0]), float(best[1]), binds, flags)


def _lognormal(mean: float, cv: float, z: np.ndarray) -> np.ndarray:
    """Values at standard normal points."""
    s2 = np.log1p(cv**2)
    return mean * np.exp(np.sqrt(s2) * z - s2 / 2)


def _quantile(q: float, waits: float, wait: float, service: np.ndarray) -> float:
    """Quantile of wait + service: exponential wait with an atom at 0, and equally likely values of the service."""
    if not np.isfinite(wait):
        return np.inf
    scale = float(safe_divide(wait, waits, 0.0))
    low, high = float(service.min()), float(service.max()) + 40.0 * scale + 1e-9
    for _ in range(60):
        t = 0.5 * (low + high)
        gap = t - service
        beyond = np.where(gap < 0, 1.0, waits * np.exp(-np.maximum(gap, 0.0) / max(scale, 1e-300)))
        low, high = (t, high) if beyond.mean() > 1 - q else (low, t)
    return high
