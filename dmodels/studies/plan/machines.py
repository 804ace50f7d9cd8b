"""A plan's pools as the simulators take them, and the requests that they are replayed on.

The iteration law is the one that sized the plan: t(n, w) for n requests that decode and w prompt tokens
(`models.latency.mixed`). The simulators share this law with the closed forms, and no formula of a queue.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from dmodels.core.records import Real, float64, jit
from dmodels.models.instance import Roofline
from dmodels.models.latency import budget_of_ranks
from dmodels.models.traffic import Requests
from dmodels.sim.batching import TokenLaw
from dmodels.sim.deployments import ServingFleet, ServingPool
from dmodels.sim.recordings import Recording, drawn, recorded

from .designs import Role
from .layouts import in_precision
from .questions import Question
from .sizing import Priced


def recording(asked: Question, seed: int = 0, count: int = 20_000) -> Recording:
    """The trace that was asked about, or, without one, `count` requests drawn from the workload."""
    if asked.trace is not None:
        return recorded(asked.trace, asked.rate_rps, float(asked.model.max_context_tokens), seed)
    return drawn(asked.admitted.workload, seed, count)


def serving_fleet(priced: Priced, rows: Sequence[int], stages: Sequence[int], in_turn: bool) -> ServingFleet:
    """The fleet of a scheme with these layouts."""
    pools = (serving_pool(priced, row, stage) for row, stage in zip(rows, stages, strict=True))
    return ServingFleet(tuple(pools), in_turn)


def serving_pool(priced: Priced, row: int, stage: int) -> ServingPool:
    """The pool of a (layout, stage) pair of a plan."""
    at, asked, own = priced.cell(row, stage), priced.question, priced.stages[stage]
    cells = priced.cells
    steps, requests = (jax.tree.map(lambda leaf: np.asarray(leaf[at, 0]), x) for x in (cells.steps, cells.requests))
    prompt = max(float(requests.prefill_tokens), 1e-9)
    chunk = int(budget_of_ranks(prompt, asked.engine.max_num_batched_tokens, float(cells.dp[at, 0])))
    fitting = min(float(cells.slots_count[at, 0]), float(asked.engine.max_num_seqs_count) * float(cells.dp[at, 0]))
    slots = max(int(fitting), 1)

    law = _law(priced, row, requests, slots, chunk)
    further = float(cells.pp[at, 0]) - 1.0 if own.role != Role.DECODE else 0.0  # stages, after a prompt's own steps
    begun_s, token_s = _of_a_prompt(law, prompt, float(steps.extra_s[0]))
    return ServingPool(
        own.name,
        law,
        slots,
        chunk_tokens=chunk,
        low_tokens=own.low_tokens,
        high_tokens=own.high_tokens,
        prefills=own.role != Role.DECODE,
        decodes=own.role != Role.PREFILL,
        fixed_s=float(cells.prompt_s[at, 0]) + further * begun_s,
        token_s=float(cells.transfer_s_per_token[at, 0]) + further * token_s,
        late_steps=float(cells.wait_steps[at, 0]) - 0.5,
    )


def _of_a_prompt(law: TokenLaw, mean_tokens: float, mean_s: float) -> tuple[float, float]:
    """(seconds, seconds a token) of a prompt in an idle engine, on the line through the mean one, which takes `mean_s`,
    that rises like a step up to the full budget; prompts that fill several take so much a token."""
    budget, full_s = law.tokens[-1], law.times_s[0, -1]
    if mean_tokens >= 0.9 * budget:
        return 0.0, mean_s / mean_tokens
    rise = (full_s - np.interp(mean_tokens, law.tokens, law.times_s[0])) / (budget - mean_tokens)
    rise = min(float(rise), mean_s / mean_tokens)
    return mean_s - rise * mean_tokens, rise


#: Numbers of prompt tokens at which a step is tabulated, from none to the whole budget.
_TOKENS = 129


def _law(priced: Priced, row: int, requests: Requests, slots: int, chunk: int) -> TokenLaw:
    """t(n, w) of a layout under a stage's requests."""
    asked, layout = priced.question, priced.layouts[row]
    place = in_precision(asked.model, layout), asked.gpus[layout.gpu], layout.as_parallel
    efficiency, budget = priced.calibration.efficiency(layout), asked.engine.max_num_batched_tokens
    roofline = Roofline(*place, requests, efficiency, budget)
    known = np.unique(np.minimum(np.concatenate([np.arange(9.0), np.geomspace(9.0, 2.0**17, 55)]), slots))
    counts = np.concatenate([known, np.full(64 - len(known), float(slots))])  # one shape: one program
    tokens = np.linspace(0.0, float(chunk), _TOKENS)
    computed = tokens if requests.prefill_tokens > 0 else 0.0 * tokens  # a decoder finds every prompt computed
    times = np.asarray(_grid(roofline, counts, computed))[: len(known)]
    every = np.arange(slots + 1.0)
    return TokenLaw(np.stack([np.interp(every, known, column) for column in times.T], axis=1), tokens, True)


@float64
@jit
def _grid(roofline: Roofline, counts: Real, tokens: Real) -> Real:
    """(counts, tokens): steps."""
    return jax.vmap(lambda n: jax.vmap(lambda w: roofline.steps.at(n, w))(tokens))(counts)
