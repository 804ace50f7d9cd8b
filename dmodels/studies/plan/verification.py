"""A plan's closed forms beside a simulation that does not contain them.

The simulator knows the iteration law t(n, tokens), the lengths and the arrivals; it knows no queueing formula. Random
routing gives each instance Poisson arrivals of its own, which is what the formulas assume; so one instance is simulated
exactly, iteration by iteration. A router that looks at queues does better than both.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from dmodels.core.records import float64
from dmodels.core.workload import Workload
from dmodels.models.traffic import condition
from dmodels.sim import arrivals, batching, estimate, lengths
from dmodels.sim.batching import TokenLaw
from dmodels.sim.requests import Prefill, Served
from dmodels.sim.verify import Row, against, steady

from .deployment import Pool
from .search import Plan


class Verified(NamedTuple):
    """One pool of a deployment: predictions beside measurements with their 95 % intervals."""

    scheme: str
    pool: Pool
    rows: list[Row]


class _Simulated(NamedTuple):
    """One instance as the simulator takes it."""

    workload: Workload  # at the rate of one instance
    law: TokenLaw
    fixed_s: float  # host time and KV transfer of a prompt, which the simulator does not have
    late_steps: float  # steps that an engine takes to see a prompt and to send its first token: neither has it


@float64
def verify(answer: Plan, key: jax.Array, requests_count: int = 8_000, at_most: int = 12) -> list[Verified]:
    """Simulate one instance of each pool of the best deployment of each kind, the recommended one first.

    In independent runs of `requests_count` requests, up to `at_most` of them while intervals are wider than 5 %.
    """
    found = []
    for i, (scheme, pool) in enumerate((d.name, pool) for d in answer.kinds for pool in d.pools):
        q = 1.0 - (1.0 - float(answer.question.slo.percentile)) * pool.stage.percentile_share
        predicted = {"ttft_mean_s": pool.ttft_mean_s, "ttft_slo_s": pool.ttft_s}
        if pool.stage.role != "prefill":
            predicted |= {"tpot_mean_s": pool.tpot_mean_s, "tpot_slo_s": pool.tpot_s, "decode_count": pool.decode_count}
        one = _simulated(answer, pool)

        def run(key: jax.Array, one: _Simulated = one, pool: Pool = pool, q: float = q) -> dict[str, float]:
            served = _serve(answer, one, pool, key, requests_count)
            kept, _ = steady(served)
            return _metrics(served.at(kept), one, q)

        measured = estimate.replicate(run, jax.random.fold_in(key, i), 0.05, min(6, at_most), at_most)
        found.append(Verified(scheme, pool, against(predicted, measured)))
    return found


def _simulated(answer: Plan, pool: Pool) -> _Simulated:
    asked, priced = answer.question, answer.priced
    at = priced.cell(priced.layouts.index(pool.layout), priced.stages.index(pool.stage))
    steps = jax.tree.map(lambda leaf: np.asarray(leaf[at, 0]), priced.cells.steps)
    prompt = max(float(priced.cells.requests.prefill_tokens[at, 0]), 1e-9)
    slots = int(pool.slots_count)

    def seconds(n: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        alone = np.interp(n, steps.decode_count, steps.alone_s)
        slope = np.interp(n, steps.decode_count, steps.extra_s) / prompt
        return np.asarray(np.maximum(alone + slope * (tokens - n), 1e-9))

    law = TokenLaw.tabulated(seconds, slots, float(asked.engine.max_num_batched_tokens) + slots, points=2049)
    part = condition(priced.admitted.workload, pool.stage.low_tokens, pool.stage.high_tokens)
    part = part.at_rate(float(part.rate_rps) / pool.instances)
    if pool.stage.role == "prefill":
        part = part.replace(output_tokens=np.ones_like(part.output_tokens))
    if pool.stage.role == "decode":
        part = part.replace(cached_tokens=part.input_tokens)
    transfer = float(priced.cells.transfer_s_per_token[at, 0]) * float(priced.cells.requests.prefill_tokens[at, 0])
    late_steps = float(priced.cells.wait_steps[at, 0]) - 0.5
    return _Simulated(part, law, float(priced.cells.prompt_s[at, 0]) + transfer, late_steps)


def _serve(answer: Plan, one: _Simulated, pool: Pool, key: jax.Array, count: int) -> Served:
    key_arrivals, key_lengths = jax.random.split(key)
    when = arrivals.poisson(key_arrivals, float(one.workload.rate_rps), count)
    long = lengths.draw(key_lengths, one.workload, count)
    return batching.simulate(
        when,
        long.input_tokens,
        np.maximum(long.output_tokens, 1),
        one.law,
        int(pool.slots_count),
        chunk_tokens=int(answer.question.engine.max_num_batched_tokens),
        prefill=Prefill.PACKED,
        cached_tokens=long.cached_tokens,
        emits=True,
    )


def _metrics(served: Served, one: _Simulated, percentile: float) -> dict[str, float]:
    gaps = served.tpot_s[np.isfinite(served.tpot_s)]
    fixed_s = one.fixed_s + (one.late_steps * float(np.average(gaps)) if gaps.size else 0.0)
    span = float(served.arrival_s[-1] - served.arrival_s[0])
    found = {
        "ttft_mean_s": float(served.ttft_s.mean()) + fixed_s,
        "ttft_slo_s": float(np.quantile(served.ttft_s, percentile)) + fixed_s,
        "decode_count": float((served.end_s - served.first_token_s).sum()) / span,
    }
    if gaps.size:
        found |= {"tpot_mean_s": float(np.average(gaps)), "tpot_slo_s": float(np.quantile(gaps, percentile))}
    return found
