"""Requests over instances of an engine: every step, every block."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from dmodels.core.compiled import UNCOUNTED, kernel
from dmodels.core.errors import InputError
from dmodels.sim.requests import Requests, Served

from . import in_flight, prompts_first
from .laws import EngineLaw, step_s
from .policies import Policy, Rule, SchedulerRules, SGLang, TensorRTLLM, VllmV1, rules
from .prompts import SharedPrompts
from .state import Engines, RequestStates, decodes, push, release, remember


class Balance(IntEnum):
    """Which instance a request goes to."""

    LEAST_LOADED = 0  # the fewest requests that wait or run
    ROUND_ROBIN = 1


def simulate(
    arrival_s: Any,
    input_tokens: Any,
    output_tokens: Any,
    law: EngineLaw,
    policy: Policy,
    *,
    instances: int = 1,
    balance: Balance = Balance.LEAST_LOADED,
    limit_tokens: Any = None,
    prefixes: SharedPrompts | None = None,
    sent: bool = False,
    priority: Any = None,
) -> Served:
    """When each request is admitted, answered and done under an engine's scheduler; exact for the law.

    `limit_tokens` are what an answer may have at most (default: what it has), which SGLang and TensorRT-LLM reserve;
    `prefixes` what prompts have in common, where the engine has a prefix cache. `sent`: requests arrive with the cache
    of their prompts, which a prefill worker computed; then vLLM computes the last prompt token again, and the others
    begin with the second token of the answer (the first is given out when the decoder takes the request). `priority`:
    whole numbers, of which vLLM serves the lowest first.

    >>> from dmodels.sim.engines import VllmV1
    >>> one = simulate([1.0], 600, 10, EngineLaw.straight(9e-3, 0.0), VllmV1(1000, step_tokens=512))
    >>> [round(float(x[0]), 6) for x in (one.ttft_s, one.tpot_s, one.e2e_s)]
    [0.018, 0.009, 0.099]
    """
    requests = Requests.checked(arrival_s, input_tokens, output_tokens)
    n = requests.arrival_s.size
    limit = requests.output_tokens if limit_tokens is None else np.broadcast_to(np.asarray(limit_tokens), (n,))
    limit = np.ascontiguousarray(np.maximum(limit, requests.output_tokens), np.int64)
    if instances < 1:
        raise InputError(f"instances = {instances}; accepted: whole numbers from 1")
    if priority is not None and not isinstance(policy, VllmV1):
        raise InputError(f"priority: {policy.name} serves in the order of arrival here; accepted with vllm")
    plain = rules(policy)._replace(by_priority=priority is not None)
    rank = np.zeros(n, np.int64) if priority is None else np.array(np.broadcast_to(priority, (n,)), np.int64)
    _fits(requests, limit, policy, plain)
    shared = SharedPrompts.none(n, plain.block_tokens) if prefixes is None else prefixes
    work = RequestStates.of(requests, limit, rank)
    if sent:
        again = isinstance(policy, VllmV1)  # vllm/v1/core/sched/scheduler.py, `_update_waiting_for_remote_kv`
        if not again and (requests.output_tokens < 2).any():
            raise InputError("sent: an answer of one token; accepted from two on, since the first came along")
        work.sent[:], work.made[:] = requests.input_tokens - again, 0 if again else 1
    own = shared.checked(requests.input_tokens, plain.block_tokens)
    engines = Engines.idle(plain, law, work, own, int(instances), int(policy.kv_blocks))
    place = np.zeros(n, np.int64)
    _serve(engines, place, int(balance))
    if np.isnan(work.end).any():
        raise RuntimeError(f"{int(np.isnan(work.end).sum())} of {n} requests never ended under {policy}")
    times = requests.arrival_s, work.admitted, work.first, work.end
    return Served(*times, requests.output_tokens, restarts=work.restarts, instance=place)


def _fits(requests: Requests, limit: np.ndarray, policy: Policy, plain: SchedulerRules) -> None:
    """Refuse what the engine would never admit."""
    answer = limit if plain.to_limit else requests.output_tokens
    extra = 0
    if isinstance(policy, SGLang):
        answer, extra = np.minimum(limit, prompts_first.CLIP_TOKENS), plain.block_tokens
        answer = np.maximum(answer, requests.output_tokens)
    most = int((requests.input_tokens + answer).max(initial=0)) + extra
    room = policy.kv_blocks * policy.block_tokens
    if -(-most // policy.block_tokens) > policy.kv_blocks:
        raise InputError(f"kv_blocks: room for {room:,} tokens; a request of {most:,} tokens never fits")
    if isinstance(policy, TensorRTLLM) and not policy.chunked:
        longest = int(requests.input_tokens.max(initial=0))
        if longest > policy.step_tokens:
            told = f"a prompt of {longest:,} tokens never fits unless chunked"
            raise InputError(f"step_tokens = {policy.step_tokens:,}: {told}")


@kernel(**UNCOUNTED)
def _serve(e: Engines, place: np.ndarray, balance: int) -> None:
    """Every arrival goes to an instance that has got as far as its time."""
    count = e.running.size
    turn = 0
    for who in range(e.work.arrival.size):
        now = e.work.arrival[who]
        best = turn
        if count > 1:
            for k in range(count):
                _advance(e, k, now)
            if balance == Balance.LEAST_LOADED:
                for k in range(count):
                    other = (turn + k) % count
                    if e.waiting[other] + e.running[other] < e.waiting[best] + e.running[best]:
                        best = other
        else:
            _advance(e, 0, now)
        place[who] = best
        push(e, best, who, False)
        turn = (turn + 1) % count
    for k in range(count):
        _advance(e, k, np.inf)


@kernel(**UNCOUNTED)
def _advance(e: Engines, k: int, time: float) -> None:
    """Run instance k up to `time`; a step that begins or ends then is left, so that who arrives then is seen."""
    while True:
        if not np.isnan(e.until_s[k]):
            if e.until_s[k] >= time:
                return
            _end_step(e, k)
        if e.running[k] + e.waiting[k] == 0:
            _free(e, k)
            e.ratio[k], e.until_s[k] = e.rules.first_ratio, np.nan
            return
        now, busy = e.until_s[k], True
        if np.isnan(now):
            now, busy = e.work.arrival[e.first[k]], False
            if now >= time:
                return
        visible = e.begun_s[k] if e.rules.overlap and busy else now
        if not _begin_step(e, k, now, visible):
            _free(e, k)  # nothing is in flight: what ended has left, who came is seen
            if not _begin_step(e, k, now, now):
                return


@kernel(**UNCOUNTED)
def _begin_step(e: Engines, k: int, now: float, visible: float) -> bool:
    """Whether there was anything to do."""
    if e.rules.rule == Rule.IN_FLIGHT:
        in_flight.schedule(e, k, now, visible)
    else:
        prompts_first.schedule(e, k, now, visible)
    answers, read, prompts, attended = 0, 0.0, 0.0, 0.0
    for at in range(e.running[k]):
        who = e.ids[k, at]
        given = e.work.given[who]
        if given == 0:
            continue
        if decodes(e, who):
            answers += 1
            read += e.work.kept[who] + 1
        else:
            prompts += given
            attended += given * (e.work.kept[who] + 0.5 * given)
    if answers + prompts == 0:
        return False
    e.begun_s[k] = now
    e.until_s[k] = now + step_s(e.law, answers, read, prompts, attended)
    return True


@kernel(**UNCOUNTED)
def _end_step(e: Engines, k: int) -> None:
    """Tokens are there; who has the last one leaves, under `overlap` when the next step ends."""
    now, left = e.until_s[k], 0
    _free(e, k)
    for at in range(e.running[k]):
        who = e.ids[k, at]
        if e.work.given[who] > 0:
            e.work.kept[who] += e.work.given[who]
            e.work.given[who] = 0
            remember(e, k, who)
            if e.work.kept[who] == e.work.prompt[who] + e.work.made[who]:
                e.work.made[who] += 1
                if e.work.made[who] == 1:
                    e.work.first[who] = now
                if e.work.made[who] == e.work.output[who]:
                    e.work.end[who] = now
                    e.done[k, e.leaving[k]] = who
                    e.leaving[k] += 1
                    continue
        e.ids[k, left] = who
        left += 1
    e.running[k] = left
    if not e.rules.overlap:
        _free(e, k)


@kernel(**UNCOUNTED)
def _free(e: Engines, k: int) -> None:
    """Those that ended give back what they hold."""
    for at in range(e.leaving[k]):
        release(e, k, e.done[k, at])
    e.leaving[k] = 0
