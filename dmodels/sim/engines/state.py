"""Instances of an engine between two steps, and what their requests hold; compiled. Rows of arrays are instances."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dmodels.core.compiled import NONE, UNCOUNTED, inline, kernel
from dmodels.sim.requests import Requests

from .laws import EngineLaw
from .policies import SchedulerRules
from .prompts import Cache, SharedPrompts, leave, take, unchain


class RequestStates(NamedTuple):
    """What requests (n,) bring, and what became of them."""

    arrival: np.ndarray
    prompt: np.ndarray
    output: np.ndarray
    limit: np.ndarray  # answer tokens that a request may have; what it has is not known before
    kept: np.ndarray  # tokens in the cache
    made: np.ndarray  # answer tokens
    held: np.ndarray  # blocks, of its own and of contents that it uses
    given: np.ndarray  # tokens in the step that runs
    seen: np.ndarray  # full blocks of the prompt that are computed
    behind: np.ndarray  # the next one in the queue
    admitted: np.ndarray
    first: np.ndarray
    end: np.ndarray
    restarts: np.ndarray
    sent: np.ndarray  # prompt tokens whose cache another engine computed and sends along
    rank: np.ndarray  # the lowest is served first, where the scheduler looks at it

    @classmethod
    def of(cls, requests: Requests, limit: np.ndarray, rank: np.ndarray) -> RequestStates:
        """Nothing is served yet."""
        n = requests.arrival_s.size
        columns: list[Any] = [requests.arrival_s, requests.input_tokens, requests.output_tokens, limit]
        columns += [np.zeros(n, np.int64) for _ in range(6)]
        columns += [np.full(n, np.nan) for _ in range(3)]
        columns += [np.zeros(n, np.int64) for _ in range(2)]
        columns += [rank]
        return cls(*columns)


class Engines(NamedTuple):
    """All instances, and the rules that they share."""

    rules: SchedulerRules
    law: EngineLaw
    work: RequestStates
    cache: Cache
    content: np.ndarray  # of `SharedPrompts`
    start: np.ndarray
    tokens: int
    mine: np.ndarray  # (blocks of all prompts,) whether the request uses the shared block of this content
    ids: np.ndarray  # (instances, slots) that run, in the order of their admission
    running: np.ndarray  # (instances,) how many
    first: np.ndarray  # of the queue; -1: empty
    last: np.ndarray
    waiting: np.ndarray
    done: np.ndarray  # (instances, slots) that ended in the last step and still hold their place
    leaving: np.ndarray  # (instances,) how many
    begun_s: np.ndarray  # when the last step began
    until_s: np.ndarray  # when it ends; nan: none runs
    ratio: np.ndarray  # `new_token_ratio`

    @classmethod
    def idle(
        cls,
        rules: SchedulerRules,
        law: EngineLaw,
        work: RequestStates,
        prefixes: SharedPrompts,
        instances: int,
        kv_blocks: int,
    ) -> Engines:
        """So many instances with nothing to do."""
        contents = int(prefixes.content.max(initial=-1)) + 1
        cache = Cache.empty(instances, kv_blocks, contents, prefixes.tokens // rules.block_tokens)
        ints: Any = lambda fill: np.full(instances, fill, np.int64)
        slots = min(rules.slots, work.arrival.size)
        place: Any = lambda: np.zeros((instances, slots), np.int64)
        used = np.zeros(prefixes.content.size, np.bool_)
        shared = (prefixes.content, prefixes.start, prefixes.tokens, used)
        queue = (place(), ints(0), ints(NONE), ints(NONE), ints(0), place(), ints(0))
        clock = (np.full(instances, -np.inf), np.full(instances, np.nan))
        return cls(rules, law, work, cache, *shared, *queue, *clock, np.full(instances, rules.first_ratio))


@inline
def blocks_for(e: Engines, tokens: int) -> Any:
    """Blocks that so many tokens fill."""
    return (tokens + e.rules.block_tokens - 1) // e.rules.block_tokens


@inline
def known(e: Engines, who: int) -> Any:
    """Tokens of a request that are known: its prompt and its answer so far."""
    return e.work.prompt[who] + e.work.made[who]


@inline
def decodes(e: Engines, who: int) -> Any:
    """Whether all but its newest token is computed."""
    return e.work.made[who] > 0 and known(e, who) - e.work.kept[who] == 1


@inline
def present(e: Engines, who: int, found: int) -> Any:
    """Tokens that a waiting request need not compute: `found` shared blocks of it, or what was sent along, once."""
    sent = e.work.sent[who] if e.work.restarts[who] == 0 else 0
    return max(found * e.tokens, sent)


@inline
def before(e: Engines, one: int, other: int) -> Any:
    """Whether a request is served before another one: the lower rank first, of one rank who came first."""
    return e.work.rank[one] < e.work.rank[other] or (e.work.rank[one] == e.work.rank[other] and one < other)


@kernel(**UNCOUNTED)
def push(e: Engines, k: int, who: int, front: bool) -> None:
    """To the end of the queue, or before all others; by priority, to its place."""
    ahead = NONE if front or e.waiting[k] == 0 else e.last[k]
    if e.rules.by_priority and e.waiting[k] > 0 and (front or before(e, who, ahead)):
        ahead, at = NONE, e.first[k]
        for _ in range(e.waiting[k]):
            if before(e, who, at):
                break
            ahead, at = at, e.work.behind[at]
    if ahead < 0:
        e.work.behind[who] = e.first[k] if e.waiting[k] > 0 else NONE
        e.first[k] = who
    else:
        e.work.behind[who] = e.work.behind[ahead]
        e.work.behind[ahead] = who
    if e.waiting[k] == 0 or ahead == e.last[k]:
        e.last[k] = who
    e.waiting[k] += 1


@kernel(**UNCOUNTED)
def pop(e: Engines, k: int, ahead: int) -> int:
    """The request that waits behind another one (-1: the first) leaves the queue."""
    who = e.first[k] if ahead < 0 else e.work.behind[ahead]
    if ahead < 0:
        e.first[k] = e.work.behind[who]
    else:
        e.work.behind[ahead] = e.work.behind[who]
    if who == e.last[k]:
        e.last[k] = ahead
    e.waiting[k] -= 1
    return int(who)


@kernel(**UNCOUNTED)
def hits(e: Engines, k: int, who: int) -> tuple[int, int]:
    """(blocks of a prompt that are in the cache from its beginning, those of them that nobody uses)."""
    most = (known(e, who) - 1) // e.tokens  # one token at least is computed
    found, unused = 0, 0
    for at in range(e.start[who], e.start[who + 1]):
        if found == most or e.cache.users[k, e.content[at]] < 0:
            break
        found += 1
        unused += e.cache.users[k, e.content[at]] == 0
    return found, unused


@kernel(**UNCOUNTED)
def admit(e: Engines, k: int, now: float, who: int, found: int, blocks: int) -> None:
    """A request that left the queue runs, with `found` shared blocks and so many of its own."""
    for at in range(e.start[who], e.start[who] + found):
        c = e.content[at]
        if e.cache.users[k, c] == 0:
            unchain(e.cache, k, c)
        e.cache.users[k, c] += 1
        e.mine[at] = True
    take(e.cache, k, blocks)
    e.work.seen[who], e.work.kept[who] = found, present(e, who, found)
    e.work.held[who] = blocks + found * e.cache.unit
    if np.isnan(e.work.admitted[who]):
        e.work.admitted[who] = now
        if e.work.made[who] > 0:  # its first token came along
            e.work.first[who] = now
    e.ids[k, e.running[k]] = who
    e.running[k] += 1


@kernel(**UNCOUNTED)
def release(e: Engines, k: int, who: int) -> None:
    """All blocks of a request; what is in them stays as long as no block is needed."""
    own = e.work.held[who]
    for back in range(e.work.seen[who]):
        at = e.start[who] + e.work.seen[who] - 1 - back
        if e.mine[at]:
            leave(e.cache, k, e.content[at])
            e.mine[at] = False
            own -= e.cache.unit
    e.cache.free[k] += own
    e.work.held[who] = e.work.kept[who] = e.work.seen[who] = 0


@kernel(**UNCOUNTED)
def remember(e: Engines, k: int, who: int) -> None:
    """Full blocks of its prompt that were computed can be used by others, unless they were there before."""
    full = min(e.work.kept[who], e.work.prompt[who]) // e.tokens
    while e.work.seen[who] < min(full, e.start[who + 1] - e.start[who]):
        at = e.start[who] + e.work.seen[who]
        if e.cache.users[k, e.content[at]] < 0:
            e.cache.users[k, e.content[at]] = 1
            e.mine[at] = True
        e.work.seen[who] += 1


@kernel(**UNCOUNTED)
def remove(e: Engines, k: int, place: int, front: bool) -> None:
    """A request that runs gives way and will be computed again; to the front or to the end of the queue."""
    who = e.ids[k, place]
    for later in range(place + 1, e.running[k]):
        e.ids[k, later - 1] = e.ids[k, later]
    e.running[k] -= 1
    release(e, k, who)
    e.work.given[who] = 0
    e.work.restarts[who] += 1
    push(e, k, who, front)
