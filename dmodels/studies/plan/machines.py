"""A plan's pools as the simulators take them, and the requests that they are replayed on.

The iteration law is the one that sized the plan: t(n, w) for n requests that decode and w prompt tokens
(`models.latency.mixed`). The simulators share this law with the closed forms, and no formula of a queue.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from dmodels.core.records import Real, float64, jit
from dmodels.models.instance import Engine, Roofline
from dmodels.models.latency import budget_of_ranks
from dmodels.sim.batching import TokenLaw
from dmodels.sim.deployments import ServingFleet, ServingPool
from dmodels.sim.recordings import Recording, drawn, recorded

from .designs import Cells, Instances, Role, Stage
from .layouts import in_precision
from .questions import Question
from .sizing import Priced

#: Requests of a sample of a trace on which fleets are compared, where it has more.
SAMPLE = 100_000


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
    asked, layout = priced.question, priced.layouts[row]
    model, efficiency = in_precision(asked.model, layout), priced.calibration.efficiency(layout)
    one = Instances(model, asked.gpus[layout.gpu], layout.as_parallel, efficiency)
    cell = jax.tree.map(lambda leaf: np.asarray(leaf)[priced.cell(row, stage), 0], priced.cells)
    return pool_of(one, priced.stages[stage], cell, asked.engine)


def pool_of(one: Instances, stage: Stage, cell: Cells, engine: Engine) -> ServingPool:
    """The pool of such instances, which the closed forms know by `cell`."""
    steps, requests = cell.steps, cell.requests
    prompt = max(float(requests.prefill_tokens), 1e-9)
    chunk = int(budget_of_ranks(prompt, engine.max_num_batched_tokens, float(cell.dp)))
    fitting = min(float(cell.slots_count), float(engine.max_num_seqs_count) * float(cell.dp))
    slots = max(int(fitting), 1)

    law = _law(
        Roofline(one.model, one.gpu, one.parallel, requests, one.efficiency, engine.max_num_batched_tokens),
        slots,
        chunk,
    )
    further = float(cell.pp) - 1.0 if stage.role != Role.DECODE else 0.0  # stages, after a prompt's own steps
    begun_s, token_s = _of_a_prompt(law, prompt, float(steps.extra_s[0]))
    return ServingPool(
        stage.name,
        law,
        slots,
        chunk_tokens=chunk,
        low_tokens=stage.low_tokens,
        high_tokens=stage.high_tokens,
        prefills=stage.role != Role.DECODE,
        decodes=stage.role != Role.PREFILL,
        fixed_s=float(cell.prompt_s) + further * begun_s,
        token_s=float(cell.transfer_s_per_token) + further * token_s,
        late_steps=float(cell.wait_steps) - 0.5,
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


def _law(roofline: Roofline, slots: int, chunk: int) -> TokenLaw:
    """t(n, w) of an instance under a stage's requests."""
    known = np.unique(np.minimum(np.concatenate([np.arange(9.0), np.geomspace(9.0, 2.0**17, 55)]), slots))
    counts = np.concatenate([known, np.full(64 - len(known), float(slots))])  # one shape: one program
    tokens = np.linspace(0.0, float(chunk), _TOKENS)
    computed = tokens if roofline.requests.prefill_tokens > 0 else 0.0 * tokens  # a decoder finds every prompt computed
    times = np.asarray(_grid(roofline, counts, computed))[: len(known)]
    every = np.arange(slots + 1.0)
    return TokenLaw(np.stack([np.interp(every, known, column) for column in times.T], axis=1), tokens, True)


@float64
@jit
def _grid(roofline: Roofline, counts: Real, tokens: Real) -> Real:
    """(counts, tokens): steps."""
    return jax.vmap(lambda n: jax.vmap(lambda w: roofline.steps.at(n, w))(tokens))(counts)
