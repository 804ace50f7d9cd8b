"""Steps that prompts and answers share, compiled: vLLM V1 and TensorRT-LLM (`policies` says what differs)."""

from __future__ import annotations

from dmodels.core.compiled import NONE, UNCOUNTED, kernel

from .prompts import room, take
from .state import Engines, admit, before, blocks_for, hits, known, pop, present, remove


@kernel(**UNCOUNTED)
def schedule(e: Engines, k: int, now: float, visible: float) -> None:
    """Give tokens to instance k's requests; those that came after `visible` are not seen yet."""
    budget, preempted = _running(e, k)
    if not preempted or e.rules.admits_after_preemption:
        _waiting(e, k, now, visible, budget)


@kernel(**UNCOUNTED)
def _running(e: Engines, k: int) -> tuple[int, bool]:
    """(tokens that are left, whether somebody gave way): those that run, in order; the last ones give way, or by
    priority the last of the least important, whose tokens of this step others may have then."""
    budget, preempted, place = e.rules.step_tokens, False, 0
    for at in range(e.running[k]):
        e.work.given[e.ids[k, at]] = 0
    while place < e.running[k] and budget > 0:
        who = e.ids[k, place]
        want = min(known(e, who) - e.work.kept[who], budget)
        need = blocks_for(e, e.work.kept[who] + want) - e.work.held[who]
        while need > room(e.cache, k) and e.running[k] > place:
            out = _least_important(e, k) if e.rules.by_priority else e.running[k] - 1
            budget += e.work.given[e.ids[k, out]]
            remove(e, k, out, True)
            preempted = True
            if out == place:
                return budget, preempted
            place -= out < place
        if place < e.running[k]:
            if need > 0:
                take(e.cache, k, need)
                e.work.held[who] += need
            e.work.given[who] = want
            budget -= want
        place += 1
    return budget, preempted


@kernel(**UNCOUNTED)
def _least_important(e: Engines, k: int) -> int:
    """The place of the request that all others go before."""
    found = 0
    for at in range(1, e.running[k]):
        if before(e, e.ids[k, found], e.ids[k, at]):
            found = at
    return found


@kernel(**UNCOUNTED)
def _waiting(e: Engines, k: int, now: float, visible: float, budget: int) -> None:
    """In the order of the queue, as long as tokens, places and blocks last."""
    promised, ahead = 0, NONE
    if e.rules.to_limit:
        for at in range(e.running[k]):
            who = e.ids[k, at]
            promised += blocks_for(e, e.work.prompt[who] + e.work.limit[who]) - e.work.held[who]
    while e.waiting[k] > 0 and e.running[k] + e.leaving[k] < e.rules.slots and budget > 0:
        who = e.first[k] if ahead < 0 else e.work.behind[ahead]
        if who < 0:
            break
        if e.work.arrival[who] > visible:
            if not e.rules.by_priority:
                break
            ahead = who
            continue
        found, unused = hits(e, k, who)
        want = known(e, who) - present(e, who, found)
        if want > budget:
            if not e.rules.chunked and budget < e.rules.step_tokens:
                break
            want = budget
        shared = found * e.cache.unit
        now_tokens = known(e, who) if e.rules.takes_prompt else present(e, who, found) + want
        must_fit = known(e, who) if e.rules.whole_prompt else now_tokens
        if e.rules.to_limit:
            must_fit = e.work.prompt[who] + e.work.limit[who]
        need = blocks_for(e, must_fit) - shared
        if need > room(e.cache, k) - unused * e.cache.unit - promised:
            break
        admit(e, k, now, pop(e, k, ahead), found, blocks_for(e, now_tokens) - shared)
        e.work.given[who] = want
        budget -= want
        if e.rules.to_limit:
            promised += blocks_for(e, must_fit) - e.work.held[who]
