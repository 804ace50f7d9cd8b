"""A desk that prices decode instances one at a time, in plain Python: what routers and simulators are held against."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from dmodels.core.routing import RoutingPolicy
from dmodels.models.latency import BatchingCurve

TIMED = (RoutingPolicy.NETKV_TOPO, RoutingPolicy.NETKV_STATIC, RoutingPolicy.NETKV_FULL)


@dataclass
class Desk:
    """One prefill site's view of D decode instances: readings in lists, one request at a time."""

    tiers: np.ndarray  # (sites, instances)
    rates: np.ndarray  # of a tier, idle
    late: np.ndarray
    busy: np.ndarray  # share that others take
    flying: np.ndarray  # (sites, tiers)
    free: np.ndarray
    queued: np.ndarray
    batch: np.ndarray
    inbound: np.ndarray
    curve: BatchingCurve
    reserve: float = 0.0
    weight: float = 0.5
    most: float = 16.0
    port: float = inf

    def first_token_s(self, j):
        """Those queued who find no slot wait for a step each; then comes a step with the request in it, if it can be.

        Steps grow with the sequences in them.
        """
        step_s = lambda sequences: self.curve.base_s + self.curve.per_sequence_s * sequences
        slots, seconds = int(self.curve.max_batch - self.batch[j]), 0.0
        for place in range(int(self.queued[j])):
            if place >= slots:
                seconds += step_s(self.batch[j])
        return seconds + step_s(self.batch[j] + 1 if slots > 0 else self.curve.max_batch)

    def transfer_s(self, policy, site, j, size):
        """Bytes at an equal share of what the tier has left, or of the port behind it if that is less."""
        tier = self.tiers[site, j]
        left = self.rates[tier] * (1.0 - self.busy[tier] if policy == RoutingPolicy.NETKV_FULL else 1.0)
        share = left if policy == RoutingPolicy.NETKV_TOPO else left / (1 + min(self.flying[site, tier], self.most))
        if policy != RoutingPolicy.NETKV_TOPO:
            share = min(share, self.port / (1 + self.inbound[j]))
        return self.late[tier] + (size / share if size else 0.0)

    def price(self, policy, site, j, size, hit):
        """What a policy holds against an instance."""
        if policy in TIMED:
            return self.transfer_s(policy, site, j, size * (1 - hit)) + self.first_token_s(j)
        if policy == RoutingPolicy.LOAD:
            return self.first_token_s(j)
        if policy == RoutingPolicy.FREENESS:
            return -self.free[j] / max(1.0, self.queued[j] + self.batch[j])
        miss, load = 1 - hit, (self.queued[j] + self.batch[j]) / self.curve.max_batch
        if policy == RoutingPolicy.CACHE:  # a millionth part of load, which only breaks ties
            return miss + 1e-6 * (load - miss)
        return self.weight * miss + (1 - self.weight) * load

    def roomy(self, size, hits):
        return [j for j in range(len(self.free)) if size * (1 - hits[j]) <= self.free[j] - self.reserve]

    def take(self, site, j, size, hit):
        """The request's memory, its transfer, and its place."""
        self.free[j] -= size * (1 - hit)
        self.flying[site, self.tiers[site, j]] += 1
        self.inbound[j] += 1
        if self.batch[j] < self.curve.max_batch:
            self.batch[j] += 1
        else:
            self.queued[j] += 1
