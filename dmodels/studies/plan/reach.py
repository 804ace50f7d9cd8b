"""Where the closed forms have been checked, and where a plan lies outside of that.

They were compared with the simulator for Poisson arrivals at each instance, 4 to 128 slots and answers whose lengths
vary with a coefficient of 0.5 to 2 (`tools/make_agreement.py`), and over chunks of 256 to 16,384 tokens, models, GPUs,
layouts and traces (`python -m benchmarks closed_form`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dmodels.models.traffic import burstiness, requests_between
from dmodels.sim import arrivals

from .deployment import Pool
from .designs import Role
from .questions import Question

#: What was checked.
CHUNK_TOKENS, SLOTS, OUTPUT_CV = (256.0, 16384.0), (4.0, 128.0), (0.5, 2.0)
#: Beyond this index of dispersion arrivals are no longer taken as Poisson.
_BURSTY = 2.0


def outside(asked: Question, pools: Sequence[Pool]) -> tuple[str, ...]:
    """In words, what of the question and of the recommended pools the closed forms were not checked on."""
    said = []
    index, window_s = dispersion(asked, max(pool.ttft_mean_s for pool in pools))
    if index > _BURSTY:
        of = f"over {window_s:.3g} s" if window_s > 0 else "over short times"
        said.append(f"burst: counts of arrivals {of} vary {index:.3g} times as much as the formula's Poisson stream")
    if not CHUNK_TOKENS[0] <= float(asked.engine.max_num_batched_tokens) <= CHUNK_TOKENS[1]:
        chunk = float(asked.engine.max_num_batched_tokens)
        said.append(f"chunk: {chunk:,.0f} tokens, checked from {CHUNK_TOKENS[0]:,.0f} to {CHUNK_TOKENS[1]:,.0f}")
    for pool in pools:
        if pool.stage.role == Role.PREFILL:
            continue
        name = pool.stage.name
        if not SLOTS[0] <= pool.slots_count <= SLOTS[1] and pool.decode_count > SLOTS[1]:
            said.append(f"slots: {pool.decode_count:,.0f} in flight in pool {name}, checked up to {SLOTS[1]:,.0f}")
        requests = requests_between(asked.admitted.workload, pool.stage.low_tokens, pool.stage.high_tokens)
        cv = math.sqrt(max(float(requests.output_scv), 0.0))
        if not OUTPUT_CV[0] <= cv <= OUTPUT_CV[1]:
            said.append(f"answers: lengths vary by {cv:.2g} of their mean in pool {name}, checked from 0.5 to 2")
    return tuple(said)


def dispersion(asked: Question, scale_s: float) -> tuple[float, float]:
    r"""(index of dispersion of the arrivals at the planned rate, the window that it is greatest over).

    $I(w) = \mathrm{Var}\,N(w) / \mathrm{E}\,N(w)$, 1 for Poisson at every w; windows from a tenth of the queue's time
    scale `scale_s` to a hundred of them, as far as the trace has fifty. Without a trace, what independent gaps of the
    workload's CV tend to, $c^2$ (window 0).
    """
    if asked.trace is None or not asked.trace.duration_s > 0:
        return float(asked.workload.arrival_cv) ** 2, 0.0
    when = arrivals.replay(asked.trace.time_s, asked.rate_rps)
    windows = scale_s * np.geomspace(0.1, 100.0, 13)
    windows = windows[windows <= when[-1] / 50.0]
    if not windows.size:
        return float(asked.workload.arrival_cv) ** 2, 0.0
    found = burstiness(when, windows).dispersion_count
    k = int(np.argmax(found))
    return float(found[k]), float(windows[k])
