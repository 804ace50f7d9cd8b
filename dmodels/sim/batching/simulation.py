"""Continuous batching in one instance: what each request waits, when its first token comes, when its last.

Requests queue first come, first served. At the end of each iteration finished requests leave and waiting ones enter
while slots (and KV blocks) last; the next iteration takes t(n) seconds (or t(n, tokens)). A request spends
ceil(prompt/chunk) iterations in prefill and one per output token; see `Prefill` for how prompts share iterations.
"""

from __future__ import annotations

from typing import Any

from dmodels.core.errors import InputError
from dmodels.sim.requests import KVCache, Prefill, Requests, Served

from . import iterations, virtual_time
from . import step_times as laws


def simulate(
    arrival_s: Any,
    input_tokens: Any,
    output_tokens: Any,
    law: Any,
    slots: int,
    *,
    chunk_tokens: int = 512,
    prefill: Prefill = Prefill.OWN,
    cached_tokens: Any = 0,
    emits: bool = False,
    kv: KVCache | None = None,
) -> Served:
    """Serve requests that arrive at `arrival_s` (n,) on one instance with `slots`; exact, per-request answers.

    `law` is t(n) or t(n, tokens) as `dmodels.sim.laws` reads it. `emits`: the last prefill chunk also emits the first
    token, as real engines do; otherwise it comes an iteration later and a request takes ceil(L_in/C) + L_out iterations
    (arXiv:2604.09613, Appendix A). Prefix hits (`cached_tokens`) need no prefill but occupy memory.

    >>> from dmodels.models.latency import StepLaw
    >>> one = simulate([1.0], 600, 10, StepLaw(8e-3, 1e-3), slots=4)
    >>> [round(float(x[0]), 6) for x in (one.ttft_s, one.tpot_s, one.e2e_s)]
    [0.027, 0.009, 0.108]
    """
    requests = Requests.checked(arrival_s, input_tokens, output_tokens, cached_tokens)
    check_instance(slots, chunk_tokens)
    if kv is not None or isinstance(law, laws.TokenLaw):
        return iterations.simulate(requests, law, int(slots), int(chunk_tokens), prefill, emits=emits, kv=kv)
    n = requests.arrival_s.size
    if n >= 1 << virtual_time.ID_BITS:
        raise InputError(f"arrival_s: {n} requests in one call; accepted: fewer than 2**28 (dmodels.sim.study streams)")
    work = virtual_time.Work(requests.arrival_s, requests.prefill_tokens, requests.output_tokens)
    instance = virtual_time.Instance(laws.table(law, slots), int(prefill), int(chunk_tokens), 0 if emits else 1)
    times = virtual_time.Times.unknown(n)
    virtual_time.run(work, instance, virtual_time.idle(int(slots)), 0, True, times)
    return Served(requests.arrival_s, *times, requests.output_tokens)


def check_instance(slots: int, chunk_tokens: int) -> None:
    """Slots and chunk are whole numbers from 1."""
    for name, value in (("slots", slots), ("chunk_tokens", chunk_tokens)):
        if value != int(value) or value < 1:
            raise InputError(f"{name} = {value}; accepted: whole numbers from 1")
