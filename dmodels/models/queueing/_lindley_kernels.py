"""The loop over a trace's requests; see `lindley`."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmodels.core.compiled import kernel
from dmodels.core.heaps import sift_down, sift_up

#: Steps of a sequence in [0, 1) that is evenly spread from any place on: what is left of a step that is met.
_GOLDEN = 0.6180339887498949


@kernel
def _step_s(times: np.ndarray, tokens: np.ndarray, n: int, prompts: float) -> float:
    k = min(max(int(np.searchsorted(tokens, prompts)) - 1, 0), tokens.size - 2)
    part = (prompts - tokens[k]) / (tokens[k + 1] - tokens[k])
    return float(times[n, k] + part * (times[n, k + 1] - times[n, k]))


@kernel
def serve(
    arrival: np.ndarray,
    prompt: np.ndarray,
    output: np.ndarray,
    times: np.ndarray,
    tokens: np.ndarray,
    slots: int,
    budget: float,
    instances: int,
    first: np.ndarray,
    end: np.ndarray,
) -> None:
    """Every request joins the instance with the fewest."""
    count = arrival.size
    now = np.zeros(instances)  # up to which an instance's state is known
    made = np.zeros(instances)  # steps
    begin = np.full(instances, np.inf)  # of the next step with prompts
    decoding = np.zeros(instances, np.int64)
    leaves = np.empty((instances, slots))  # a heap: `made` at which an answer ends
    whose = np.empty((instances, slots), np.int64)
    head = np.full(instances, -1)  # who waits for a step, in order
    tail = np.full(instances, -1)
    waiting = np.zeros(instances, np.int64)
    ended = np.full(instances, -np.inf)  # the last step with prompts
    due = np.full(instances, np.inf)  # when an instance next begins such a step or ends an answer: it is left alone
    after = np.full(count, -1)
    todo = prompt.copy()
    state = (now, made, begin, decoding, leaves, whose, head, waiting, ended)
    turn = 0
    for i in range(count):
        for k in range(instances):
            if due[k] <= arrival[i]:
                _advance(k, arrival[i], state, arrival, todo, output, after, times, tokens, slots, budget, first, end)
                due[k] = min(begin[k], _next_end(k, state, times))
        best = k = turn
        for _ in range(instances):
            if waiting[k] + decoding[k] < waiting[best] + decoding[best]:
                best = k
            k = k + 1 if k + 1 < instances else 0
        turn = best + 1 if best + 1 < instances else 0
        if head[best] < 0:
            head[best] = i
            n = decoding[best]
            if n < slots:
                step = times[n, 0] if n > 0 else 0.0
                begin[best] = arrival[i] + (i * _GOLDEN) % 1.0 * step
                if ended[best] > arrival[i]:
                    begin[best] = ended[best]
                elif ended[best] + step > arrival[i]:
                    begin[best] = ended[best] + step
                due[best] = min(due[best], begin[best])
        else:
            after[tail[best]] = i
        tail[best] = i
        waiting[best] += 1
    for k in range(instances):
        _advance(k, np.inf, state, arrival, todo, output, after, times, tokens, slots, budget, first, end)


@kernel
def _advance(
    k: int,
    until: float,
    state: Any,
    arrival: np.ndarray,
    todo: np.ndarray,
    output: np.ndarray,
    after: np.ndarray,
    times: np.ndarray,
    tokens: np.ndarray,
    slots: int,
    budget: float,
    first: np.ndarray,
    end: np.ndarray,
) -> None:
    """Everything of instance k that begins up to `until`."""
    now, made, begin, decoding, leaves, whose, head, waiting, ended = state
    while True:
        _decode(k, min(begin[k], until), state, end, times, slots)
        if begin[k] >= until:
            return
        # a step with prompts: those that came, as far as slots and budget go
        start, n = begin[k], decoding[k]
        room, prompts, i, admitted = budget, 0.0, head[k], 0
        while i >= 0 and room > 0.0 and n + admitted < slots and arrival[i] <= start + 1e-9:
            share = min(todo[i], room)
            todo[i] -= share
            room -= share
            prompts += share
            admitted += 1
            i = after[i]
        length = _step_s(times, tokens, n, prompts)
        done = start + length
        while decoding[k] > 0 and leaves[k, 0] <= made[k] + 1.0:
            end[whose[k, 0]] = start + max(leaves[k, 0] - made[k], 0.0) * length
            _pop(leaves[k], whose[k], decoding[k])
            decoding[k] -= 1
        now[k] = ended[k] = done
        made[k] += 1.0
        while head[k] >= 0 and todo[head[k]] <= 0.0:
            i = head[k]
            head[k] = after[i]
            waiting[k] -= 1
            first[i] = done
            if output[i] > 1.0:
                sift_up(leaves[k], whose[k], 0, decoding[k], made[k] + output[i] - 1.0, i)
                decoding[k] += 1
            else:
                end[i] = done
        begin[k] = done if head[k] >= 0 and decoding[k] < slots else np.inf


@kernel
def _decode(k: int, until: float, state: Any, end: np.ndarray, times: np.ndarray, slots: int) -> None:
    """Answers go on, without prompts; a slot that frees lets the next prompt begin."""
    now, made, begin, decoding, leaves, whose, head, _, _ = state
    while now[k] < until:
        n = decoding[k]
        if n == 0:
            if until < np.inf:
                now[k] = until
            return
        gone = _next_end(k, state, times)
        if gone > until:
            made[k] += (until - now[k]) / times[n, 0]
            now[k] = until
            return
        made[k], now[k] = max(leaves[k, 0], made[k]), max(gone, now[k])
        while decoding[k] > 0 and leaves[k, 0] <= made[k] + 1e-9:
            end[whose[k, 0]] = now[k]
            _pop(leaves[k], whose[k], decoding[k])
            decoding[k] -= 1
        if head[k] >= 0 and begin[k] == np.inf:
            begin[k] = now[k]
            until = now[k]


@kernel
def _next_end(k: int, state: Any, times: np.ndarray) -> float:
    """When the next answer of instance k ends if no prompt comes; inf where there is none."""
    now, made, _, decoding, leaves, _, _, _, _ = state
    n = decoding[k]
    return now[k] + (leaves[k, 0] - made[k]) * times[n, 0] if n > 0 else np.inf


@kernel
def _pop(keys: np.ndarray, ids: np.ndarray, size: int) -> None:
    """Without the least."""
    keys[0], ids[0] = keys[size - 1], ids[size - 1]
    sift_down(keys, ids, 0, size - 1, 0)
