"""One instance in plain Python, one iteration after the other: the oracle of the fast simulators.

Slow and literal on purpose. It shares no loop and no recursion with them: requests are objects, time is a running sum.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dmodels.sim.requests import KVCache, Prefill, Requests, Served

_TIE_S = 1e-9


@dataclass
class _Request:
    index: int
    arrival_s: float
    prompt: int
    cached: int
    output: int
    todo: int = 0  # prompt tokens still to prefill
    made: int = 0  # output tokens emitted
    kept: int = 0  # tokens whose keys and values are, or after prefill will be, in memory
    blocks: int = 0
    times: dict = field(default_factory=dict)
    preemptions: int = 0


def simulate(
    requests: Requests,
    t: Callable[[int, int], float],
    slots: int,
    chunk_tokens: int = 512,
    prefill: Prefill = Prefill.OWN,
    emits: bool = False,
    kv: KVCache | None = None,
    decodes: bool = False,
) -> Served:
    """The answers of `batching.simulate`, with the law as a function of (requests in flight, tokens processed), or,
    with `decodes`, of (requests that decode, prompt tokens)."""
    everyone = [
        _Request(i, float(a), int(p), int(c), int(o)) for i, (a, p, o, c) in enumerate(zip(*requests, strict=True))
    ]
    coming, queue, active = deque(everyone), deque(), []
    free = kv.blocks if kv else 0
    now = 0.0

    def blocks_for(tokens: int) -> int:
        return -(-tokens // kv.block_tokens) if kv else 0

    def preempt_last() -> None:
        nonlocal free
        victim = active.pop()
        free += victim.blocks
        victim.blocks = 0
        victim.preemptions += 1
        queue.appendleft(victim)

    while coming or queue or active:
        if not queue and not active:
            now = max(now, coming[0].arrival_s)
        while coming and coming[0].arrival_s <= now + _TIE_S:
            queue.append(coming.popleft())

        # 1. tokens to come need memory: the oldest requests first, the youngest give way
        preempted = False
        if kv and not kv.reserve:
            place = 0
            while place < len(active):
                request = active[place]
                if request.todo <= 0:
                    need = blocks_for(request.kept + 1)
                    while need > request.blocks + free and len(active) > place:
                        preempt_last()
                        preempted = True
                    if place < len(active):
                        free -= need - request.blocks
                        request.blocks = need
                place += 1

        # 2. admission, first come, first served
        while queue and len(active) < slots and not preempted:
            request = queue[0]
            held = request.prompt + request.made
            need = blocks_for(request.prompt + request.output if kv and kv.reserve else held)
            if kv and need > free:
                break
            queue.popleft()
            free -= need
            request.blocks = need
            request.kept = held
            request.todo = max(1, held - request.cached)
            request.times.setdefault("admitted", now)
            active.append(request)

        # 3. who prefills how much in this iteration
        share = {}
        budget = chunk_tokens
        for request in active:
            if request.todo <= 0:
                continue
            if prefill == Prefill.OWN:
                share[request.index] = min(request.todo, chunk_tokens)
            elif prefill == Prefill.SHARED:
                share[request.index] = min(request.todo, chunk_tokens)
                break
            elif budget > 0:
                share[request.index] = min(request.todo, budget)
                budget -= share[request.index]
        decoding = [r for r in active if r.todo <= 0]
        prompts = sum(share.values())
        now += t(len(decoding), prompts) if decodes else t(len(active), len(decoding) + prompts)

        # 4. what the iteration brought
        finished = []
        for request in active:
            if request.index in share:
                request.todo -= share[request.index]
                if request.todo > 0 or not emits:
                    continue
            elif request.todo > 0:
                continue
            else:
                request.kept += 1
            request.made += 1
            request.times.setdefault("first", now)
            if request.made == request.output:
                request.times["end"] = now
                finished.append(request)
        for request in finished:
            free += request.blocks
            active.remove(request)

    def column(name: str) -> np.ndarray:
        return np.array([r.times[name] for r in everyone], np.float64)

    return Served(
        requests.arrival_s,
        column("admitted"),
        column("first"),
        column("end"),
        requests.output_tokens,
        np.array([r.preemptions for r in everyone], np.int64) if kv else None,
    )
