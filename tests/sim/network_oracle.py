"""The flow simulator in plain Python, on trees with one link of each kind, so that every path is known.

Rates are filled anew from nothing after every event, caches are ordered dictionaries, iterations are counted one by
one. Where several instances are as cheap the run's own choice is taken, if it is one of them.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from math import inf

import numpy as np

from dmodels.core.routing import RoutingPolicy
from tests.control.desk import Desk

EPS = 1e-9


@dataclass(eq=False)
class Request:
    number: int
    ready: float
    site: int
    prompt: float
    output: int
    hits: list[float] | None
    blocks: list[int]
    choice: int = -1
    tier: int = -1
    hit: float = 0.0
    sent: float = math.nan
    landed: float = math.nan
    first: float = math.nan
    step: float = math.nan
    end: float = math.nan
    private: float = 0.0  # tokens outside of the cache
    pinned: list[int] = field(default_factory=list)
    made: int = 0
    left: float = 0.0  # bytes of each shard
    path: list = field(default_factory=list)


class Instance:
    def __init__(self):
        self.private, self.pins, self.idle = 0.0, Counter(), OrderedDict()
        self.line: list[Request] = []
        self.batch: list[Request] = []
        self.ends, self.inbound = inf, 0

    def held(self, block):
        return self.pins[block] > 0 or block in self.idle

    def blocks(self):
        return sum(count > 0 for count in self.pins.values()) + len(self.idle)


def fill(capacity, flows):
    """Max-min rates: all rise together until a link is full, whose flows then stay."""
    rate, open_, left = dict.fromkeys(flows, 0.0), set(flows), dict(capacity)
    while open_:
        load = Counter(link for flow in open_ for link in flow[0].path)
        rise = min(left[link] / count for link, count in load.items())
        for flow in open_:
            rate[flow] += rise
        for link, count in load.items():
            left[link] -= rise * count
        full = {link for link in load if left[link] <= 1e-12 * capacity[link]}
        open_ -= {flow for flow in open_ if full & set(flow[0].path)}
    return rate


class Network:
    def __init__(self, cluster, arrivals, policy, chosen, options):
        self.cluster, self.policy, self.chosen = cluster, policy, chosen
        self.o = {"background_step_s": 1.0, "refresh_s": 1.0, "max_in_flight": 16.0, "cache_weight": 0.5} | options
        self.background = np.atleast_2d(self.o.get("background", np.zeros(4)))
        fabric = cluster.fabric
        self.place = [
            tuple(int(x[i]) for x in (fabric.server, fabric.rack, fabric.pod)) for i in range(fabric.instances)
        ]
        self.speed = [float(fabric.link_bytes_per_s[fabric.first[k]]) for k in (0, 1, 3, 5)]
        self.nic = float(fabric.link_bytes_per_s[fabric.first[7]]) if fabric.shared_nic else inf
        self.sites = [int(i) for i in cluster.prefill]
        self.homes = [int(i) for i in cluster.decode]
        self.instances = [Instance() for _ in self.homes]
        self.flying = np.zeros((len(self.sites), 4))
        self.capacity_tokens = cluster.kv_memory_bytes / cluster.kv_bytes_per_token
        self.requests = self.jobs(arrivals)
        self.moving: dict[Request, list] = {}
        self.carried = 0.0
        self.now, self.turn = 0.0, 0

    def jobs(self, arrivals):
        found, free = [], [0.0] * len(self.sites)
        for i, (a, s, p, o) in enumerate(zip(*arrivals[:4], strict=True)):
            site = i % len(self.sites)
            begin = max(float(a), free[site]) if self.o.get("serial_prefill") else float(a)
            free[site] = begin + float(s)
            hits = None if arrivals.hit_frac is None else [float(x) for x in arrivals.hit_frac[i]]
            own = slice(*arrivals.block_starts[i : i + 2]) if arrivals.block_ids is not None else slice(0, 0)
            blocks = [] if arrivals.block_ids is None else [int(b) for b in arrivals.block_ids[own]]
            found.append(Request(i, begin + float(s), site, float(p), int(o), hits, blocks))
        return found

    def apart(self, site, j):
        here, there = self.place[self.sites[site]], self.place[self.homes[j]]
        return sum(a != b for a, b in zip(here, there, strict=True))

    def way(self, site, j):
        """Links as (kind, place, direction)."""
        here, there, tier = self.place[self.sites[site]], self.place[self.homes[j]], self.apart(site, j)
        if tier == 0:
            return [("nvlink", here[0])]
        path = [("port", self.sites[site], "out"), ("port", self.homes[j], "in")]
        if self.nic < inf:
            path += [("nic", self.sites[site], "out"), ("nic", self.homes[j], "in")]
        if tier >= 2:
            path += [("rack", here[1], "up"), ("rack", there[1], "down")]
        if tier >= 3:
            path += [("pod", here[2], "up"), ("pod", there[2], "down")]
        return path

    def share_at(self, now):
        return self.background[min(int(now / self.o["background_step_s"] + EPS), len(self.background) - 1)]

    def links(self):
        level = self.share_at(self.now)
        kinds = {"nvlink": 0, "port": 1, "nic": 1, "rack": 2, "pod": 3}
        speed = lambda kind: self.nic if kind == "nic" else self.speed[kinds[kind]]
        every = {link for r in self.moving for link in r.path}
        return {link: speed(link[0]) * (1 - level[kinds[link[0]]]) for link in every}

    def rates(self):
        flows = [(r, shard) for r in self.moving for shard in range(self.cluster.shards)]
        rate = fill(self.links(), flows)
        return {r: rate[r, 0] for r in self.moving}

    def run(self):
        jobs = sorted(self.requests, key=lambda r: r.ready)  # stable
        step = self.o["background_step_s"]
        while jobs or self.moving or any(x.batch or x.line for x in self.instances):
            rates = self.rates()
            times = [self.now + r.left / rates[r] for r in self.moving]
            times += [x.ends for x in self.instances] + [jobs[0].ready if jobs else inf]
            if self.moving or jobs:
                times.append((int(self.now / step + EPS) + 1) * step)
            later = min(times)
            for r in self.moving:
                r.left -= rates[r] * (later - self.now)
                self.carried += rates[r] * (later - self.now) * len(r.path) * self.cluster.shards
            self.now = later
            for r in [r for r in self.moving if r.left <= 0.01]:
                del self.moving[r]
                self.flying[r.site, r.tier] -= 1
                self.land(r)
                self.keep(r)
            for j, x in enumerate(self.instances):
                if x.ends <= self.now + EPS:
                    self.boundary(j)
            while jobs and jobs[0].ready <= self.now:
                self.decide(jobs.pop(0))
        return self

    def land(self, r):
        x = self.instances[r.choice]
        r.sent, r.landed = self.now, self.now + float(self.cluster.fabric.tier_latency_s[r.tier])
        x.inbound -= 1
        x.line.append(r)
        if not x.batch:
            x.ends = max(x.line[0].landed, self.now)

    def boundary(self, j):
        """An iteration ends: those who have all their tokens leave, whoever has landed joins, the next begins."""
        x, curve = self.instances[j], self.cluster.curve
        for r in list(x.batch):
            r.made += 1
            if r.made == max(r.output, 1):
                r.end = self.now
                x.batch.remove(r)
                x.private -= r.private
                for block in reversed(r.pinned):
                    x.pins[block] -= 1
                    if x.pins[block] == 0:
                        x.idle[block] = True
        fresh = []
        while x.line and x.line[0].landed <= self.now + EPS and len(x.batch) < curve.max_batch:
            fresh.append(x.line.pop(0))
            x.batch.append(fresh[-1])
        step = curve.base_s + curve.per_sequence_s * len(x.batch)
        for r in fresh:
            r.first, r.step = self.now + step, step
        x.ends = self.now + step if x.batch else (x.line[0].landed if x.line else inf)

    def room(self, x):
        """The oldest blocks that nobody uses go, until memory holds the rest."""
        while x.private + x.blocks() * self.cluster.block_tokens > self.capacity_tokens + 1e-6:
            if not x.idle:
                return False
            x.idle.popitem(last=False)
        return True

    def pin(self, x, r, block):
        x.idle.pop(block, None)
        x.pins[block] += 1
        r.pinned.append(block)

    def keep(self, r):
        """Blocks of the prompt go into the cache, as far as there is room for them."""
        x, size = self.instances[r.choice], self.cluster.block_tokens
        for n in range(len(r.pinned), len(r.blocks)):
            tokens = min(size, r.prompt - n * size)
            if not x.held(r.blocks[n]):
                x.private += size - tokens
                fits = self.room(x)
                x.private -= size - tokens
                if not fits:
                    return
            self.pin(x, r, r.blocks[n])
            r.private -= tokens
            x.private -= tokens

    def prefix(self, x, r):
        return next((n for n, block in enumerate(r.blocks) if not x.held(block)), len(r.blocks))

    def desk(self, r):
        """What the scheduler sees."""
        c, o = self.cluster, self.o
        whole = [self.speed[0], *(rate * c.shards for rate in np.minimum.accumulate(self.speed[1:]))]
        whole = [min(rate, self.speed[1], self.nic) if k else rate for k, rate in enumerate(whole)]
        readings = o.get("readings")
        if readings is None:
            read = self.share_at(int(self.now / o["refresh_s"]) * o["refresh_s"])
        else:
            read = readings[min(int(self.now / o["refresh_s"]), len(readings) - 1)]
        pinned = lambda x: sum(n > 0 for n in x.pins.values()) * c.block_tokens
        column = lambda f: np.array([float(f(x)) for x in self.instances])
        return Desk(
            np.array([[self.apart(s, j) for j in range(len(self.homes))] for s in range(len(self.sites))]),
            np.array(whole),
            np.asarray(c.fabric.tier_latency_s),
            np.asarray(read, float),
            self.flying.copy(),
            column(lambda x: (self.capacity_tokens - x.private - pinned(x)) * c.kv_bytes_per_token),
            column(lambda x: len(x.line)),
            column(lambda x: len(x.batch) + (x.inbound if o.get("sees_inbound", True) else 0)),
            column(lambda x: x.inbound),
            c.curve,
            (c.reserve_tokens + r.output) * c.kv_bytes_per_token,
            o["cache_weight"],
            o["max_in_flight"],
            whole[1] if o.get("destination_aware") else inf,
        )

    def decide(self, r):
        desk, size = self.desk(r), r.prompt * self.cluster.kv_bytes_per_token
        hits = r.hits
        if hits is None:
            hits = [min(self.prefix(x, r) * self.cluster.block_tokens / r.prompt, 1.0) for x in self.instances]
        able = desk.roomy(size, hits)
        told = int(self.chosen[r.number])
        if not able:
            assert told == -1
            return
        if self.policy == RoutingPolicy.ROUND_ROBIN:
            pool = len(self.homes)
            assert told == next(j % pool for j in range(self.turn, self.turn + pool) if j % pool in able)
            self.turn = told + 1
        else:
            price = {j: desk.price(self.policy, r.site, j, size, hits[j]) for j in able}
            assert told in price and price[told] <= min(price.values()) + 1e-9 * abs(price[told]) + 1e-12
        x = self.instances[told]
        r.choice, r.tier, r.hit = told, self.apart(r.site, told), hits[told]
        r.private = r.prompt * (1 - r.hit) + r.output
        x.private += r.private
        x.inbound += 1
        if r.hits is None:
            for block in r.blocks[: self.prefix(x, r)]:
                self.pin(x, r, block)
            self.room(x)
        payload = size * (1 - r.hit)
        if payload <= 0:
            self.land(r)
            return
        self.flying[r.site, r.tier] += 1
        r.left, r.path = payload / self.cluster.shards, self.way(r.site, told)
        self.moving[r] = []
