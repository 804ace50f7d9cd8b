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

from typing import NamedTuple

import numpy as np

#: About so many instances stand for a larger pool.
_ALIKE = 16
#: Requests that percentiles are taken of, where there are so many: as many shares of a pool's as that takes.
_ENOUGH = 20_000


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
    from ._lindley_kernels import serve

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
        serve(*mine, *law, slots, float(budget_tokens), len(range(one, instances, groups)), *times)
        first[rows], end[rows] = times
    return Backlog(first, end)
