"""Engines' schedulers in plain Python, one instance, one step after the other: the oracle of `dmodels.sim.engines`.

Slow and literal: requests are objects, queues are lists, the cache is an ordered dictionary of what is in the blocks.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from dmodels.sim.engines import Capacity, SGLang, TensorRTLLM, VllmV1


@dataclass(eq=False)
class Request:
    index: int
    arrival: float
    prompt: int
    output: int
    limit: int
    contents: list
    rank: int = 0
    sent: int = 0  # prompt tokens whose cache came along
    kept: int = 0
    made: int = 0
    given: int = 0
    blocks: int = 0
    sharing: dict = field(default_factory=dict)  # place in the prompt -> content
    seen: int = 0
    restarts: int = 0
    admitted: float = math.nan
    first: float = math.nan
    end: float = math.nan

    @property
    def known(self):
        return self.prompt + self.made

    @property
    def decodes(self):
        return self.made > 0 and self.known - self.kept == 1


class Engine:
    def __init__(self, policy, law, requests, content_tokens, by_priority=False):
        self.by_priority = by_priority
        self.p, self.law, self.coming = policy, law, list(requests)
        self.content_tokens = content_tokens
        self.unit = content_tokens // policy.block_tokens
        self.free = policy.kv_blocks
        self.users: dict = {}
        self.unused: OrderedDict = OrderedDict()
        self.queue: list = []
        self.running: list = []
        self.done: list = []
        self.begun = -math.inf
        self.ratio = getattr(policy, "first_ratio", 0.0)

    # memory
    @property
    def room(self):
        return self.free + self.unit * len(self.unused)

    def need(self, tokens):
        return math.ceil(tokens / self.p.block_tokens)

    def take(self, request, blocks):
        blocks = max(blocks, 0)
        self.free -= blocks
        request.blocks += blocks
        while self.free < 0:
            content, _ = self.unused.popitem(last=False)
            del self.users[content]
            self.free += self.unit

    def hits(self, request):
        found = []
        for content in request.contents[: (request.known - 1) // self.content_tokens]:
            if content not in self.users:
                break
            found.append(content)
        return found

    def there(self, request, found):
        """Tokens that are in memory when a request starts: what it shares, or what came along and is not lost."""
        return max(self.content_tokens * len(found), 0 if request.restarts else request.sent)

    def give_back(self, request):
        own = request.blocks
        for place in sorted(request.sharing, reverse=True):
            content = request.sharing[place]
            own -= self.unit
            self.users[content] -= 1
            if not self.users[content]:
                self.unused[content] = True
        self.free += own
        request.blocks = request.kept = request.seen = 0
        request.sharing = {}

    def start(self, request, now, found, blocks):
        self.queue.remove(request)
        for place, content in enumerate(found):
            self.unused.pop(content, None)
            self.users[content] += 1
            request.sharing[place] = content
        request.blocks = self.unit * len(found)
        self.take(request, blocks)
        request.seen, request.kept = len(found), self.there(request, found)
        if math.isnan(request.admitted):
            request.admitted = now
            if request.made:
                request.first = now
        self.running.append(request)

    def stop(self, request, front):
        self.running.remove(request)
        self.give_back(request)
        request.given = 0
        request.restarts += 1
        self.queue.insert(0 if front else len(self.queue), request)
        self.sort()

    def sort(self):
        if self.by_priority:
            self.queue.sort(key=self.order)

    @staticmethod
    def order(request):
        return request.rank, request.arrival, request.index

    # schedulers
    def in_flight(self, now, visible):
        p, budget, preempted = self.p, self.p.step_tokens, False
        for request in list(self.running):
            if request not in self.running or budget == 0:
                continue
            want = min(request.known - request.kept, budget)
            while request in self.running and self.need(request.kept + want) - request.blocks > self.room:
                victim = max(self.running, key=self.order) if self.by_priority else self.running[-1]
                budget += victim.given
                self.stop(victim, front=True)
                preempted = True
            if request not in self.running:
                break
            else:
                self.take(request, self.need(request.kept + want) - request.blocks)
                request.given = want
                budget -= want
        if preempted and isinstance(p, VllmV1):
            return
        to_limit = isinstance(p, TensorRTLLM) and p.capacity == Capacity.GUARANTEED_NO_EVICT
        whole_step = isinstance(p, TensorRTLLM) and not p.chunked
        while self.queue and budget and len(self.running) + len(self.done) < p.slots:
            seen = [r for r in self.queue if r.arrival <= visible]
            if not seen or not (self.by_priority or seen[0] is self.queue[0]):
                return
            request = seen[0]
            found = self.hits(request)
            kept = self.there(request, found)
            want = request.known - kept
            if want > budget and whole_step and budget < p.step_tokens:
                return
            want = min(want, budget)
            room = self.room - self.unit * sum(content in self.unused for content in found)
            tokens = request.known if isinstance(p, TensorRTLLM) else kept + want
            if to_limit:
                room -= sum(self.need(r.prompt + r.limit) - r.blocks for r in self.running)
                must = request.prompt + request.limit
            else:
                must = request.known if isinstance(p, TensorRTLLM) or p.whole_prompt else tokens
            if self.need(must) - self.unit * len(found) > room:
                return
            self.start(request, now, found, self.need(tokens) - self.unit * len(found))
            request.given = want
            budget -= want

    def prompts(self, now, visible):
        p = self.p
        total = self.room * p.block_tokens
        total -= self.ratio * sum(min(r.limit - r.made, 4096) for r in self.running if r.decodes)
        chunk, most, given = p.step_tokens, p.prompt_tokens, 0
        begun = [r for r in self.running if not r.decodes]
        if begun:
            request = begun[0]
            ahead = request.known - request.kept
            want = min(ahead, chunk, int(total))
            if want <= 0 or self.need(request.kept + want) - request.blocks > self.room:
                return False
            self.take(request, self.need(request.kept + want) - request.blocks)
            request.given = given = want
            if want < ahead:
                return True
            total -= want + min(request.limit, 4096)
            chunk, most = chunk - want, most - want
        while self.queue and chunk > 0 and most > 0 and len(self.running) + len(self.done) < p.slots:
            request = self.queue[0]
            if request.arrival > visible:
                break
            found = self.hits(request)
            idle = self.content_tokens * sum(content in self.unused for content in found)
            kept = self.content_tokens * len(found)
            ahead, answer = request.known - kept, min(request.limit - request.made, 4096)
            if ahead + answer >= total - idle or (ahead >= most and given):
                break
            if request.sent and not request.restarts:
                self.start(request, now, found, self.need(request.known - 1))
                total -= ahead + answer
                continue
            want = min(ahead, chunk)
            self.start(request, now, found, self.need(kept + want) - self.unit * len(found))
            request.given = want
            given += want
            if want < ahead:
                break
            total -= idle + want + answer
            chunk, most = chunk - want, most - want
        return given > 0

    def answers(self):
        p = self.p
        deciding = [r for r in self.running if r.decodes]
        lack = lambda ahead: sum(self.need(r.kept + ahead) - r.blocks for r in deciding)
        if lack(1) > self.room:
            while len(deciding) > 1 and lack(20) > self.room:
                order = {r: at for at, r in enumerate(self.running)}
                victim = min(deciding, key=lambda r: (r.made, -r.prompt, -order[r]))
                deciding.remove(victim)
                self.stop(victim, front=False)
            made, limit = sum(r.made for r in deciding), sum(r.limit for r in deciding)
            self.ratio = min(1.0, (made + 20 * len(deciding)) / (limit + 1))
        else:
            least = p.first_ratio * p.least_ratio
            self.ratio = max(self.ratio - (p.first_ratio - least) / 600, least)
        for request in deciding:
            self.take(request, self.need(request.kept + 1) - request.blocks)
            request.given = 1

    def schedule(self, now, visible):
        for request in self.running:
            request.given = 0
        if not isinstance(self.p, SGLang):
            self.in_flight(now, visible)
        elif not self.prompts(now, visible):
            self.answers()
        busy = [r for r in self.running if r.given]
        if not busy:
            return None
        decoding = [r for r in busy if r.decodes]
        new = [r for r in busy if not r.decodes]
        tokens = sum(r.given for r in new)
        read = sum(r.kept + 1 for r in decoding) / max(len(decoding), 1)
        attended = sum(r.given * (r.kept + r.given / 2) for r in new) / max(tokens, 1)
        return self.law.seconds(len(decoding), read, tokens, attended)

    def free_done(self):
        for request in self.done:
            self.give_back(request)
        self.done = []

    def finish(self, now):
        self.free_done()
        for request in list(self.running):
            if not request.given:
                continue
            request.kept += request.given
            request.given = 0
            full = min(request.kept, request.prompt) // self.content_tokens
            while request.seen < min(full, len(request.contents)):
                content = request.contents[request.seen]
                if content not in self.users:
                    self.users[content] = 1
                    request.sharing[request.seen] = content
                request.seen += 1
            if request.kept == request.known:
                request.made += 1
                if request.made == 1:
                    request.first = now
                if request.made == request.output:
                    request.end = now
                    self.running.remove(request)
                    self.done.append(request)
        if not self.p.overlap:
            self.free_done()

    def run(self):
        now, busy = -math.inf, False
        while self.coming or self.queue or self.running:
            if not self.queue and not self.running:
                self.free_done()
                self.ratio = getattr(self.p, "first_ratio", 0.0)
                if not (busy and self.coming[0].arrival <= now):
                    now, busy = max(now, self.coming[0].arrival), False
            while self.coming and self.coming[0].arrival <= now:
                self.queue.append(self.coming.pop(0))
            self.sort()
            took = self.schedule(now, self.begun if self.p.overlap and busy else now)
            if took is None:
                self.free_done()
                took = self.schedule(now, now)
            assert took is not None
            self.begun, now, busy = now, now + took, True
            self.finish(now)


def simulate(
    arrival_s,
    input_tokens,
    output_tokens,
    law,
    policy,
    limit_tokens,
    contents,
    content_tokens,
    priority=None,
    *,
    sent=False,
):
    """(admitted, first token, end, restarts) of each request."""
    rows = zip(arrival_s, input_tokens, output_tokens, limit_tokens, contents, strict=True)
    everyone = [
        Request(i, float(a), int(p), int(o), int(m), list(c[: p // content_tokens]))
        for i, (a, p, o, m, c) in enumerate(rows)
    ]
    for request, rank in zip(everyone, [] if priority is None else priority, strict=priority is not None):
        request.rank = int(rank)
    for request in everyone if sent else []:  # vLLM computes the last token again, others have the first answer token
        again = isinstance(policy, VllmV1)
        request.sent, request.made = request.prompt - again, int(not again)
    Engine(policy, law, everyone, content_tokens, priority is not None).run()
    return tuple(np.array([getattr(r, name) for r in everyone]) for name in ("admitted", "first", "end", "restarts"))
