r"""The backlog of equal instances on the very requests of a trace: what a steady state cannot know of its bursts.

A trace says when work comes, so its waits need no law of arrivals: the backlog is Lindley's recursion over the trace.
Steps that carry prompts follow one another while prompts wait. Step j begins at $s_j \ge e_{j-1}$, computes what came
before, first come first served, up to the token budget and the free slots, and ends at $e_j = s_j + t(n, w_j)$. A
prompt that finds none waiting begins with the next step: at once where the instance is idle, else when the step under
way ends, which after several steps without prompts is a share u of t(n) later, u uniform. Between steps with prompts
decode is a fluid: n answers take 1/t(n) steps a second, and an answer of G gaps leaves after G of them. So the cost is
that of the requests and of their full budgets, whatever the number of steps.

A router that looks at loads keeps instances alike. So a large pool is as good as groups of some 16, each of which has
every k-th request of k groups, and a few of the groups tell its latencies: a large pool costs no more than a small one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dmodels.core.compiled import kernel
from dmodels.core.heaps import sift_down, sift_up

#: About so many instances stand for a larger pool.
_ALIKE = 16
#: Requests that percentiles are taken of, where there are so many: as many shares of a pool's as that takes.
_ENOUGH = 20_000
#: Steps of a sequence in [0, 1) that is evenly spread from any place on: what is left of a step that is met.
_GOLDEN = 0.6180339887498949


class StepGrid(NamedTuple):
    """Seconds of a step, t(n, w): n answers under way, w prompt tokens, linear in w."""

    times_s: np.ndarray  # (slots + 1, k)
    tokens: np.ndarray  # (k,) increasing from 0


class Backlog(NamedTuple):
    """(n,) requests of a trace; NaN: one that was not looked at."""

    first_token_s: np.ndarray
    end_s: np.ndarray


def trace_backlog(
    arrival_s: np.ndarray,
    prompt_tokens: np.ndarray,
    output_tokens: np.ndarray,
    steps: StepGrid,
    *,
    slots: int,
    budget_tokens: float,
    instances: int = 1,
    sample: int = _ENOUGH,
) -> Backlog:
    """When requests, in order of arrival, have their first token and their last from a pool of `instances`.

    prompt_tokens  (n,) to compute, at least 1; the step that computes the last one emits the first token
    slots          requests that an instance has in its steps at most
    budget_tokens  prompt tokens of a step at most
    sample         requests of a large pool that are looked at; the others' times are NaN

    >>> steps = StepGrid(np.array([[0.01, 0.03], [0.02, 0.04]]), np.array([0.0, 100.0]))
    >>> one = np.array([5.0]), np.array([50.0]), np.array([11.0])
    >>> alone = trace_backlog(*one, steps, slots=1, budget_tokens=100)
    >>> [round(float(x[0]), 3) for x in alone]  # an own step of 0.02 s and ten of 0.02 s
    [5.02, 5.22]
    """
    count = arrival_s.size
    first, end = np.full(count, np.nan), np.full(count, np.nan)
    law = np.ascontiguousarray(steps.times_s, np.float64), np.asarray(steps.tokens, np.float64)
    work = tuple(np.asarray(column, np.float64) for column in (arrival_s, prompt_tokens, output_tokens))
    groups = max(1, round(instances / _ALIKE))
    group = np.arange(count) % instances % groups
    wanted = min(groups, -(-sample * groups // max(count, 1)))
    for place in range(wanted):
        one = place * groups // wanted
        rows = np.flatnonzero(group == one)
        mine = tuple(np.ascontiguousarray(column[rows]) for column in work)
        times = np.full(rows.size, np.nan), np.full(rows.size, np.nan)
        _serve(*mine, *law, slots, float(budget_tokens), len(range(one, instances, groups)), *times)
        first[rows], end[rows] = times
    return Backlog(first, end)


@kernel
def _step_s(times: np.ndarray, tokens: np.ndarray, n: int, prompts: float) -> float:
    k = min(max(int(np.searchsorted(tokens, prompts)) - 1, 0), tokens.size - 2)
    part = (prompts - tokens[k]) / (tokens[k + 1] - tokens[k])
    return float(times[n, k] + part * (times[n, k + 1] - times[n, k]))


@kernel
def _serve(
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
