"""A fleet in plain Python: instances and requests are objects, every iteration is stepped through, the router looks.

It shares nothing with the compiled loops but the records of what is asked (`Pool`, `Event`, `Prefixes`) and the numbers
that a policy draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf, nan
from typing import Any

from dmodels.core.routing import RoutingPolicy
from dmodels.sim.fleet import Change, Pool
from dmodels.sim.requests import Prefill


@dataclass(eq=False)
class Request:
    number: int
    arrival: float
    prompt: int
    output: int
    cached: int
    believed: float  # total tokens
    draws: tuple[float, float] = (nan, nan)
    prefix: int = -1
    prefix_tokens: int = 0
    hits: int = 0
    todo: int = 0  # prompt tokens
    made: int = 0
    admitted: float = nan
    first: float = nan
    end: float = nan
    instance: int = -1
    lost: int = 0

    def work(self) -> int:
        return max(1, self.prompt - max(self.cached, self.hits))


@dataclass(eq=False)
class Instance:
    number: int
    pool: Pool
    seconds: Callable[[int, int, int], float]  # of (in flight, that decode, prompt tokens)
    remembered: int
    there: list[Request] = field(default_factory=list)  # in the order in which they came
    running: list[Request] = field(default_factory=list)
    given: dict[Request, int] = field(default_factory=dict)
    ends: float = inf
    factor: float = 1.0
    up: bool = True
    takes: bool = True
    kept: dict[int, int] = field(default_factory=dict)  # prefix -> the request that used it last

    def begin(self, now: float) -> None:
        """An iteration of who has a slot; prompts in the order of admission, as the pool shares a chunk."""
        self.running = self.there[: self.pool.slots]
        self.given, left = {}, self.pool.chunk_tokens
        for r in self.running:
            if math.isnan(r.admitted):
                r.admitted, r.todo = now, r.work()
            if r.todo > 0 and left > 0:
                self.given[r] = min(r.todo, left)
                if self.pool.prefill == Prefill.SHARED:
                    left = 0
                elif self.pool.prefill == Prefill.PACKED:
                    left -= self.given[r]
        answering = sum(r.todo == 0 for r in self.running)
        took = self.seconds(len(self.running), answering, sum(self.given.values()))
        self.ends = now + self.factor * took if self.running else inf

    def end(self, now: float) -> list[Request]:
        """Who is done."""
        for r in self.running:
            if r.todo == 0:
                r.made += 1
            elif r in self.given:
                r.todo -= self.given[r]
                r.made += r.todo == 0 and self.pool.emits
            if r.made == 1 and math.isnan(r.first):
                r.first = now
            if r.made == r.output:
                r.end = now
        done = [r for r in self.running if not math.isnan(r.end)]
        self.there = [r for r in self.there if r not in done]
        self.begin(now)
        return done


class Fleet:
    def __init__(self, pools, laws, requests, policy, *, spill=inf, events=(), remembered=1, weight=1.0, until=inf):
        self.pools, self.requests, self.policy, self.spill, self.weight = pools, requests, policy, spill, weight
        self.instances = []
        for pool, law in zip(pools, laws, strict=True):
            self.instances += [Instance(len(self.instances) + k, pool, law, remembered) for k in range(pool.instances)]
        self.events = sorted(events, key=lambda e: e.time_s)
        self.coming = [r for r in requests if not math.isnan(r.arrival)]
        self.turn = [0] * len(pools)
        self.homeless: list[Request] = []
        self.after: Callable[[Request], Request | None] = lambda r: None  # the next of a closed loop
        self.until, self.now = until, 0.0

    def of(self, p: int) -> list[Instance]:
        return [one for one in self.instances if one.pool is self.pools[p]]

    def run(self) -> Fleet:
        while True:
            soonest = min(self.instances, key=lambda one: one.ends)
            event = self.events[0].time_s if self.events else inf
            arrival = min((r.arrival for r in self.coming), default=inf)
            self.now = min(soonest.ends, event, arrival)
            if self.now == inf or self.now > self.until:
                return self
            if soonest.ends <= min(event, arrival):
                for r in soonest.end(self.now):
                    if (following := self.after(r)) is not None:
                        self.coming.append(following)
            elif event <= arrival:
                self.happen(self.events.pop(0))
            else:
                r = min(self.coming, key=lambda r: (r.arrival, r.number))
                self.coming.remove(r)
                self.route(r)
            for one in self.instances:  # all who came at this moment begin together
                if one.there and one.ends == inf:
                    one.begin(self.now)

    def happen(self, event: Any) -> None:
        one = self.instances[event.instance]
        if event.change == Change.DOWN and one.up:
            lost = sorted(one.there, key=lambda r: r.number)
            one.there, one.running, one.ends, one.kept = [], [], inf, {}
            one.up = one.takes = False
            for r in lost:
                r.admitted, r.first, r.made, r.hits, r.instance = nan, nan, 0, 0, -1
                r.lost += 1
                self.route(r)
        elif event.change == Change.SLOW:
            one.factor = event.value
        elif event.change == Change.DRAIN:
            one.takes = False
        elif event.change == Change.UP or (event.change == Change.OPEN and one.up):
            one.up = one.takes = True
            waiting, self.homeless = self.homeless, []
            for r in waiting:
                self.route(r)

    def full(self, p: int) -> float:
        """Requests without a slot, an instance."""
        beyond = [max(0, len(one.there) - one.pool.slots) for one in self.of(p)]
        return sum(beyond) / len(beyond)

    def route(self, r: Request) -> None:
        able = [p for p, pool in enumerate(self.pools) if r.believed <= pool.max_tokens]
        if not able:
            return
        target, mine = able[0], self.full(able[0])
        if mine > self.spill:
            target = next((p for p in able[1:] if self.full(p) <= self.spill and self.full(p) < mine), target)
        for p in range(target, len(self.pools)):
            if one := self.pick(p, r):
                if r.prompt + r.output <= one.pool.max_tokens:
                    self.enter(one, r)
                return
        self.homeless.append(r)

    def pick(self, p: int, r: Request) -> Instance | None:
        own, turn = self.of(p), self.turn[p] % len(self.of(p))
        if self.policy == RoutingPolicy.RANDOM:
            return self.drawn(own, r.draws[0])
        if self.policy == RoutingPolicy.POWER_OF_TWO:
            first = self.drawn(own, r.draws[0])
            if first is None:
                return None
            at = own.index(first)
            second = self.drawn(own[at + 1 :] + own[:at], r.draws[1])
            return second if second is not None and len(second.there) < len(first.there) else first
        able = [one for one in own[turn:] + own[:turn] if one.takes]
        if not able:
            return None
        one = min(able, key=lambda one: self.score(one, r))
        self.turn[p] = own.index(one) + 1
        return one

    @staticmethod
    def drawn(own: list[Instance], draw: float) -> Instance | None:
        """The one that the number names, or the next that takes requests."""
        at = min(len(own) - 1, int(draw * len(own)))
        return next((one for one in own[at:] + own[:at] if one.takes), None)

    def score(self, one: Instance, r: Request) -> float:
        hits = r.prefix_tokens if r.prefix in one.kept and r.prefix >= 0 else 0
        return {
            RoutingPolicy.ROUND_ROBIN: 0.0,
            RoutingPolicy.SHORTEST_QUEUE: float(len(one.there)),
            RoutingPolicy.DYNAMO: len(one.there) - self.weight * hits / r.prompt,
            RoutingPolicy.PROMPTS: float(sum(x.work() for x in one.there) + r.prompt - max(r.cached, hits)),
        }[self.policy]

    def enter(self, one: Instance, r: Request) -> None:
        if r.prefix >= 0:
            r.hits = r.prefix_tokens if r.prefix in one.kept else 0
            if r.prefix not in one.kept and len(one.kept) == one.remembered:
                del one.kept[min(one.kept, key=one.kept.__getitem__)]
            one.kept[r.prefix] = r.number
        r.instance = one.number
        one.there.append(r)
