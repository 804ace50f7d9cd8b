"""A plan's pools as the simulators take them, and the requests that they are replayed on.

The iteration law is the one that sized the plan: t_0(n) for n requests that decode, and K(n) for a mean prompt, spread
over its tokens. The simulators share this law with the closed forms, and no formula of a queue.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from dmodels.sim.batching import TokenLaw
from dmodels.sim.deployments import ServingFleet, ServingPool
from dmodels.sim.recordings import Recording, drawn, recorded

from .designs import Role
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
    chunk = int(asked.engine.max_num_batched_tokens)
    fitting = min(float(cells.slots_count[at, 0]), float(asked.engine.max_num_seqs_count) * float(cells.dp[at, 0]))
    slots = max(int(fitting), 1)

    def seconds(n: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        alone = np.interp(n, steps.decode_count, steps.alone_s)
        slope = np.interp(n, steps.decode_count, steps.extra_s) / prompt
        return np.asarray(np.maximum(alone + slope * tokens, 1e-9))

    law = TokenLaw.tabulated(seconds, slots, chunk, 2, decodes=True)
    own_s = float(steps.extra_s[0]) / prompt if own.role != Role.DECODE else 0.0
    return ServingPool(
        own.name,
        law,
        slots,
        chunk_tokens=chunk,
        low_tokens=own.low_tokens,
        high_tokens=own.high_tokens,
        prefills=own.role != Role.DECODE,
        decodes=own.role != Role.PREFILL,
        fixed_s=float(cells.prompt_s[at, 0]),
        token_s=float(cells.transfer_s_per_token[at, 0]) + (float(cells.pp[at, 0]) - 1.0) * own_s,
        late_steps=float(cells.wait_steps[at, 0]) - 0.5,
    )
