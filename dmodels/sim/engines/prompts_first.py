"""Steps of prompts alone, and of answers alone, compiled: SGLang (`policies.SGLang`)."""

from __future__ import annotations

from dmodels.core.compiled import NONE, UNCOUNTED, kernel

from .prompts import room, take
from .state import Engines, admit, blocks_for, decodes, hits, known, pop, remove

#: An answer's limit counts up to so many tokens (CLIP_MAX_NEW_TOKENS).
CLIP_TOKENS = 4096
#: Tokens of every answer that must fit after a retraction (RETRACT_DECODE_STEPS).
AHEAD_TOKENS = 20
#: Steps of answers until the ratio is at its least (NEW_TOKEN_RATIO_DECAY_STEPS).
DECAY_STEPS = 600


@kernel(**UNCOUNTED)
def schedule(e: Engines, k: int, now: float, visible: float) -> None:
    """Give tokens to instance k's requests; those that came after `visible` are not seen yet."""
    for at in range(e.running[k]):
        e.work.given[e.ids[k, at]] = 0
    if not _prompts(e, k, now, visible):
        _answers(e, k)


@kernel(**UNCOUNTED)
def _prompts(e: Engines, k: int, now: float, visible: float) -> bool:
    """Whether there is a step of prompts: first the one that was begun, then those that wait."""
    taken = 0.0
    for at in range(e.running[k]):
        who = e.ids[k, at]
        if decodes(e, who):
            taken += min(e.work.limit[who] - e.work.made[who], CLIP_TOKENS)
    total = room(e.cache, k) * e.rules.block_tokens - e.ratio[k] * taken
    chunk, most, given = e.rules.step_tokens, e.rules.prompt_tokens, 0
    if e.running[k] > 0 and not decodes(e, e.ids[k, e.running[k] - 1]):
        who = e.ids[k, e.running[k] - 1]
        ahead = known(e, who) - e.work.kept[who]
        want = min(ahead, chunk, int(total))
        need = blocks_for(e, e.work.kept[who] + want) - e.work.held[who]
        if want <= 0 or need > room(e.cache, k):
            return False
        if need > 0:
            take(e.cache, k, need)
            e.work.held[who] += need
        e.work.given[who] = given = want
        if want < ahead:
            return True
        total, chunk, most = total - want - min(e.work.limit[who], CLIP_TOKENS), chunk - want, most - want
    while e.waiting[k] > 0 and e.running[k] + e.leaving[k] < e.rules.slots and chunk > 0 and most > 0:
        who = e.first[k]
        if e.work.arrival[who] > visible:
            break
        found, unused = hits(e, k, who)
        ahead = known(e, who) - found * e.tokens
        answer = min(e.work.limit[who] - e.work.made[who], CLIP_TOKENS)
        if ahead + answer >= total - unused * e.tokens or (ahead >= most and given > 0):
            break
        if e.work.sent[who] > 0 and e.work.restarts[who] == 0:  # its cache came along: an answer at once
            admit(e, k, now, pop(e, k, NONE), found, blocks_for(e, known(e, who) - 1))
            total -= ahead + answer
            continue
        want = min(ahead, chunk)
        admit(e, k, now, pop(e, k, NONE), found, blocks_for(e, found * e.tokens + want) - found * e.cache.unit)
        e.work.given[who] = want
        given += want
        if want < ahead:
            break
        total, chunk, most = total - unused * e.tokens - want - answer, chunk - want, most - want
    return given > 0


@kernel(**UNCOUNTED)
def _answers(e: Engines, k: int) -> None:
    """A token for every answer; where there is no room the youngest are retracted."""
    if _missing(e, k, 1) > room(e.cache, k):
        _retract(e, k)
    else:
        decay = (e.rules.first_ratio - e.rules.least_ratio) / DECAY_STEPS
        e.ratio[k] = max(e.ratio[k] - decay, e.rules.least_ratio)
    for at in range(e.running[k]):
        who = e.ids[k, at]
        if decodes(e, who):
            need = blocks_for(e, e.work.kept[who] + 1) - e.work.held[who]
            if need > 0:
                take(e.cache, k, need)
                e.work.held[who] += need
            e.work.given[who] = 1


@kernel(**UNCOUNTED)
def _missing(e: Engines, k: int, tokens: int) -> int:
    """Blocks that the answers lack for so many tokens each."""
    found = 0
    for at in range(e.running[k]):
        who = e.ids[k, at]
        if decodes(e, who):
            found += blocks_for(e, e.work.kept[who] + tokens) - e.work.held[who]
    return found


@kernel(**UNCOUNTED)
def _retract(e: Engines, k: int) -> None:
    """Answers with the fewest tokens go, of equals the one with the longest prompt, until there is room ahead."""
    while True:
        victim, answers, made, limit = NONE, 0, 0, 0
        for at in range(e.running[k]):
            who = e.ids[k, at]
            if not decodes(e, who):
                continue
            answers, made, limit = answers + 1, made + e.work.made[who], limit + e.work.limit[who]
            if victim >= 0:
                other = e.ids[k, victim]
                few, long = e.work.made[who] - e.work.made[other], e.work.prompt[who] - e.work.prompt[other]
                if few > 0 or (few == 0 and long < 0):
                    continue
            victim = at
        if answers <= 1 or _missing(e, k, AHEAD_TOKENS) <= room(e.cache, k):
            e.ratio[k] = min(1.0, (made + AHEAD_TOKENS * answers) / (limit + 1.0))
            return
        remove(e, k, victim, False)
