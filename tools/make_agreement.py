"""Where may each closed form be trusted? Its error against the simulation, over load, slots, and the spread of lengths.

    python -m tools.make_agreement [requests per point]

Writes benchmarks/results/agreement.jsonl (every point), and the limits that `plan` flags by in
dmodels/catalog/data/agreement.csv: the highest load up to which a form stays within 10 % at each number of slots.
One instance, t(n) = 8 + 0.65 n ms, Poisson arrivals, lognormal output of 300 tokens; load is the share of what the
instance can serve with every slot taken. The forms of a plan (`models.instance.operate`) face prompts as well: 1,000
tokens in the mean, lognormal with a CV of 1, 20 us a token.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import jax
import numpy as np

from benchmarks import registry
from dmodels.core.hardware import SLO
from dmodels.core.records import float64
from dmodels.core.workload import Workload
from dmodels.models import queueing
from dmodels.models.instance import operate, step_table
from dmodels.models.latency import StepLaw
from dmodels.models.queueing import occupancy, ttft_quantile_s
from dmodels.models.traffic import requests_between
from dmodels.sim import arrivals, batching, estimate
from dmodels.sim.batching import TokenLaw, table
from dmodels.sim.fleet import closed_loop
from dmodels.sim.requests import Prefill

LAW = StepLaw(8e-3, 0.65e-3)
MEAN = 300.0
PROMPT = 1000.0
PROMPT_TOKEN_S = 20e-6
BATCHED_TOKENS = 8192
SLOTS = (4, 16, 64, 128)
LOADS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)
CVS = (0.5, 1.0, 2.0)
LIMITS = Path(__file__).parents[1] / "dmodels" / "catalog" / "data" / "agreement.csv"
NOTE = """\
# The highest load up to which a closed form stays within 10 % of the simulation, by slots and CV of the output
# length; 0: not even at a load of 0.3. Load: share of what the instance serves with all slots taken, 0.3 to 0.95.
# Made by tools/make_agreement.py; benchmarks/results/agreement.jsonl has all points.
"""
#: Form -> what it predicts.
FORMS = {
    "fluid_tpot": "mean TPOT by fluid occupancy",
    "chain_tpot": "mean TPOT by the birth-death chain",
    "erlang_wait_probability": "chance of waiting by Erlang C",
    "chain_wait_probability": "chance of waiting by the chain",
    "allen_cunneen_wait_mean": "mean wait by Allen-Cunneen",
    "chain_wait_mean": "mean wait by the chain",
    "mgc_ttft_p99": "P99 TTFT by the M/G/c tail",
    "chain_ttft_p99": "P99 TTFT by the chain",
    "plan_ttft_mean": "mean TTFT of a plan",
    "plan_ttft_p99": "P99 TTFT of a plan",
    "plan_tpot_mean": "mean TPOT of a plan",
    "plan_tpot_p99": "P99 TPOT of a plan",
    "plan_e2e_p99": "P99 E2E of a plan",
}


def tokens(key, mean: float, cv: float, count: int) -> np.ndarray:
    """Whole lognormal lengths."""
    s2 = np.log1p(cv * cv)
    with jax.enable_x64(True):
        normal = np.asarray(jax.random.normal(key, (count,), float))
    return np.maximum(1, np.rint(mean * np.exp(np.sqrt(s2) * normal - s2 / 2)))


def point(slots: int, load: float, cv: float, count: int, key) -> dict[str, tuple[float, float, float]]:
    """(predicted, simulated, half-width of the simulated) of every form."""
    key_arrivals, key_outputs = jax.random.split(key)
    output = tokens(key_outputs, MEAN, cv, count)
    iterations = output + 1.0
    mean, scv = iterations.mean(), iterations.var() / iterations.mean() ** 2
    rate = load * slots / (mean * table(LAW, slots)[-1])
    arrival = arrivals.poisson(key_arrivals, rate, count)
    served = batching.simulate(arrival, 100, output, LAW, slots)
    late = slice(count // 5, None)
    # closed forms, from rate, mean and spread alone
    fluid = min(float(queueing.fluid_occupancy(rate, mean, *LAW)), float(slots))
    step = LAW.iteration_s(fluid)
    busy = LAW.iteration_s(slots)  # who waits finds every slot taken: service at the full slots' pace
    offered = rate * mean * step
    chance = float(queueing.erlang_c(float(slots), offered))
    wait = float(queueing.wait_mean_s(rate, mean * busy, float(slots), scv))
    tail = wait / max(chance, 1e-300) * np.log(max(chance / 0.01, 1.0))
    with jax.enable_x64(True):
        pace = table(LAW, slots)[1:]
        chain = occupancy(rate, mean, pace, scv)
        chain_p, chain_wait, chain_tpot = map(float, (chain.wait_probability, chain.wait_mean_s, chain.tpot_mean_s))
        chain_p99 = float(ttft_quantile_s(0.99, rate, mean, pace, scv))
    first = 3 * step  # the iteration in progress, the prompt's, the first token's
    found = {
        "fluid_tpot": (step, estimate.batch_means(served.tpot_s[late])),
        "chain_tpot": (chain_tpot, estimate.batch_means(served.tpot_s[late])),
        "chain_wait_probability": (chain_p, estimate.batch_means(served.wait_s[late] > 1.5 * busy)),
        "chain_wait_mean": (chain_wait + step / 2, estimate.batch_means(served.wait_s[late])),
        "chain_ttft_p99": (chain_p99, estimate.batch_quantile(served.ttft_s[late], 0.99)),
        "erlang_wait_probability": (chance, estimate.batch_means(served.wait_s[late] > 1.5 * busy)),
        "allen_cunneen_wait_mean": (wait + step / 2, estimate.batch_means(served.wait_s[late])),
        "mgc_ttft_p99": (tail + first, estimate.batch_quantile(served.ttft_s[late], 0.99)),
    }
    return {name: (float(p), e.value, e.half_width) for name, (p, e) in found.items()}


@float64
def plan_point(slots: int, load: float, cv: float, count: int, key) -> dict[str, tuple[float, float, float]]:
    """(predicted, simulated, half-width of the simulated) of what `plan` says of one instance that computes prompts."""
    key_arrivals, key_outputs, key_inputs = jax.random.split(key, 3)
    output, prompt = tokens(key_outputs, MEAN, cv, count), tokens(key_inputs, PROMPT, 1.0, count)
    requests = requests_between(Workload(prompt, output, np.full(count, 1.0 / count), 0.0 * prompt, 1.0, 1.0))
    rungs = np.concatenate([np.arange(8.0), np.geomspace(8.0, 8192.0, 32)])
    extra = np.full_like(rungs, PROMPT_TOKEN_S * requests.prefill_tokens)
    full = LAW.iteration_s(rungs) + PROMPT_TOKEN_S * BATCHED_TOKENS
    steps = step_table(rungs, LAW.iteration_s(rungs), extra, requests.decode_steps, full)
    rate = load * float(np.interp(slots, rungs, np.asarray(steps.arrival_rps)))
    said = _operate(steps, requests, np.float64(rate), np.float64(slots))
    law = TokenLaw.tabulated(
        lambda n, t: LAW.iteration_s(n) + PROMPT_TOKEN_S * np.maximum(t - n, 0.0),
        slots,
        BATCHED_TOKENS + slots,
        points=BATCHED_TOKENS + slots + 1,
    )
    served = batching.simulate(
        arrivals.poisson(key_arrivals, rate, count),
        prompt,
        output,
        law,
        slots,
        chunk_tokens=BATCHED_TOKENS,
        prefill=Prefill.PACKED,
        emits=True,
    )
    late = slice(count // 5, None)
    tpot = served.tpot_s[late][np.isfinite(served.tpot_s[late])]  # answers of one token have none
    found = {
        "plan_ttft_mean": (said.ttft_mean_s, estimate.batch_means(served.ttft_s[late])),
        "plan_ttft_p99": (said.ttft_s, estimate.batch_quantile(served.ttft_s[late], 0.99)),
        "plan_tpot_mean": (said.tpot_mean_s, estimate.batch_means(tpot)),
        "plan_tpot_p99": (said.tpot_s, estimate.batch_quantile(tpot, 0.99)),
        "plan_e2e_p99": (said.e2e_s, estimate.batch_quantile(served.e2e_s[late], 0.99)),
    }
    return {name: (float(p), e.value, e.half_width) for name, (p, e) in found.items()}


@jax.jit
def _operate(steps, requests, rate, slots):
    return operate(steps, requests, rate, slots, SLO(percentile=0.99))


def loops(key, seconds: float = 4000.0):
    """Closed loop at one serial server: throughput against the formula, by clients over the knee and service CV."""
    think, knee = 5.5, 1 + 5.5 / 0.0526
    for cv in (0.0, 0.5, 1.0, 2.0):
        for ratio in (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.5, 2.0):
            clients = max(1, round(ratio * knee))
            key, key_think, key_service = jax.random.split(key, 3)
            rounds = int(seconds / think) + 40
            with jax.enable_x64(True):
                thinking = think * np.asarray(jax.random.exponential(key_think, (clients, rounds), float))
                service = np.full((clients, rounds), 0.0526)
                if cv:
                    gamma = jax.random.gamma(key_service, 1 / cv**2, (clients, rounds), float)
                    service = service * np.maximum(np.asarray(gamma) * cv**2, 1e-9)
            _, _, done = closed_loop.serial(thinking, service, until_s=seconds)
            measured = estimate.mean_of(
                np.histogram(done[np.isfinite(done)], np.linspace(200, seconds, 21))[0] / ((seconds - 200) / 20)
            )
            predicted = float(queueing.closed_loop_rps(float(clients), think, 0.0526))
            yield {
                "form": "closed_loop_rps",
                "clients_over_knee": ratio,
                "cv": cv,
                "predicted": predicted,
                "simulated": measured.value,
                "half_width": measured.half_width,
                "error_frac": predicted / measured.value - 1,
            }


def limits(rows):
    """The highest load up to which a form's error stays within 10 % (its own noise aside) from the lowest load on."""
    for form in FORMS:
        for slots in SLOTS:
            for cv in CVS:
                mine = sorted(
                    (r for r in rows if (r["form"], r["slots"], r["cv"]) == (form, slots, cv)), key=lambda r: r["load"]
                )
                good = 0.0
                for row in mine:
                    noise = row["half_width"] / row["simulated"] if row["simulated"] else np.inf
                    matters = row["simulated"] > 1e-3  # a chance below 0.1 %, a wait below a millisecond do not
                    if matters and (noise > 0.2 or abs(row["error_frac"]) > 0.1 + noise):
                        break  # wrong, or not known well enough to say
                    good = row["load"]
                yield form, slots, cv, good


def main(count: int) -> None:
    rows, key = [], jax.random.key(2026)
    for slots in SLOTS:
        for cv in CVS:
            for load in LOADS:
                key, here = jax.random.split(key)
                points = point(slots, load, cv, count, here) | plan_point(slots, load, cv, count, here)
                for form, (predicted, simulated, half) in points.items():
                    error = predicted / simulated - 1 if simulated else float("nan")
                    rows.append(
                        {
                            "form": form,
                            "slots": slots,
                            "load": load,
                            "cv": cv,
                            "requests": count,
                            "predicted": predicted,
                            "simulated": simulated,
                            "half_width": half,
                            "error_frac": error,
                        }
                    )
    loop_rows = list(loops(key))
    registry.record("agreement", [{"points": rows, "loops": loop_rows}])
    found = list(limits(rows))
    with LIMITS.open("w", newline="", encoding="utf-8") as out:
        out.write(NOTE)
        table_ = csv.writer(out, lineterminator="\n")
        table_.writerow(["form", "slots_count", "output_cv", "load_frac"])
        table_.writerows(found)
    print(f"wrote {LIMITS} and {registry.RESULTS / 'agreement.jsonl'}")


if __name__ == "__main__":
    main(int(float(sys.argv[1])) if len(sys.argv) > 1 else 800_000)
