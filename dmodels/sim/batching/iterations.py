"""One instance, iteration by iteration, compiled: limited memory, preemption, and laws that depend on tokens.

Where memory or tokens matter, a request's end is not known at admission, so every iteration is stepped through; the
cost is one pass over the requests in flight. `virtual_time` is for everything else.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.core.compiled import kernel
from dmodels.core.errors import InputError
from dmodels.sim.requests import KVCache, Prefill, Requests, Served

from . import step_times as laws
from .step_times import seconds
from .virtual_time import TIE_S, Times


def simulate(
    requests: Requests, law, slots: int, chunk_tokens: int, prefill: Prefill, *, emits: bool, kv: KVCache | None
) -> Served:
    """`batching.simulate` for a `TokenLaw` and for limited memory (`kv`)."""
    times, tokens = laws.token_table(law, slots)
    n = requests.arrival_s.size
    blocks, block_tokens, reserve = kv if kv is not None else (0, 16, False)
    if kv is not None and n:
        most = int((requests.input_tokens + requests.output_tokens).max())
        if -(-most // block_tokens) > blocks:
            raise InputError(f"kv: {blocks} blocks of {block_tokens} tokens; a request of {most} tokens never fits")
    served, preemptions = Times.unknown(n), np.zeros(n, np.int64)
    decodes = isinstance(law, laws.TokenLaw) and bool(law.decodes)
    engine = _Engine(times, tokens, decodes, slots, chunk_tokens, mode=int(prefill), emits=bool(emits))
    memory = _Memory(kv is not None, int(blocks), int(block_tokens), bool(reserve))
    _run(requests, engine, memory, served, preemptions)
    return Served(requests.arrival_s, *served, requests.output_tokens, preemptions)


class _Engine(NamedTuple):
    times: np.ndarray  # (slots + 1, k) seconds of an iteration
    tokens: np.ndarray  # (k,) processed in it
    decodes: bool  # of `TokenLaw`
    slots: int
    chunk: int
    mode: int  # a `Prefill`
    emits: bool


class _Memory(NamedTuple):
    limited: bool
    blocks: int
    block_tokens: int
    reserve: bool


@kernel
def _run(requests, engine, memory, served, preemptions):
    arrival, prompt, output, cached = requests
    times, grid, decodes, slots, chunk, mode, emits = engine
    limited, free, block, reserve = memory
    admitted, first, end = served
    total = arrival.size
    ids = np.empty(slots, np.int64)  # in order of admission
    todo = np.empty(slots, np.int64)  # prompt tokens ahead
    kept = np.empty(slots, np.int64)  # tokens in memory
    held = np.empty(slots, np.int64)  # blocks
    share = np.empty(slots, np.int64)  # prompt tokens in this iteration
    made = np.zeros(total, np.int64)
    again = np.empty(total, np.int64)  # preempted requests wait here, the next one last
    waiting = 0
    n = 0
    i = 0  # next request of the queue proper
    now = 0.0
    while i < total or waiting > 0 or n > 0:
        if n == 0 and waiting == 0:
            now = max(now, arrival[i])

        preempted = False
        if limited and not reserve:
            place = 0
            while place < n:
                if todo[place] <= 0:
                    need = (kept[place] + block) // block
                    while n > place and need > held[place] + free:
                        n -= 1
                        free += held[n]
                        preemptions[ids[n]] += 1
                        again[waiting] = ids[n]
                        waiting += 1
                        preempted = True
                    if place < n:
                        free -= need - held[place]
                        held[place] = need
                place += 1

        while n < slots and not preempted:
            if waiting > 0:
                who = again[waiting - 1]
            elif i < total and arrival[i] <= now + TIE_S:
                who = i
            else:
                break
            tokens_held = prompt[who] + made[who]
            need = 0
            if limited:
                need = ((prompt[who] + output[who] if reserve else tokens_held) + block - 1) // block
                if need > free:
                    break
            if waiting > 0:
                waiting -= 1
            else:
                i += 1
                admitted[who] = now
            free -= need
            ids[n], held[n], kept[n] = who, need, tokens_held
            todo[n] = max(1, tokens_held - cached[who])
            n += 1

        decoding = prompts = 0
        budget = chunk
        for k in range(n):
            if todo[k] <= 0:
                share[k] = 0
                decoding += 1
                continue
            if mode == Prefill.OWN:
                share[k] = min(todo[k], chunk)
            else:
                share[k] = min(todo[k], budget)
                budget = budget - share[k] if mode == Prefill.PACKED else 0
            prompts += share[k]
        now += seconds(times, grid, decodes, n, decoding, prompts)

        left = 0
        for k in range(n):
            emitted = False
            if todo[k] <= 0:
                kept[k] += 1
                emitted = True
            elif share[k] > 0:
                todo[k] -= share[k]
                emitted = emits and todo[k] <= 0
            who = ids[k]
            if emitted:
                made[who] += 1
                if made[who] == 1:
                    first[who] = now
                if made[who] == output[who]:
                    end[who] = now
                    free += held[k]
                    continue
            if left != k:
                ids[left], todo[left], kept[left], held[left] = who, todo[k], kept[k], held[k]
            left += 1
        n = left
