"""Whole deployments: pools that share the requests by length, or that every request passes in turn.

Each pool is a fleet of equal instances; what a request costs outside of their iterations (host time, KV transfer) is
added to its times. Nothing flows back from decode to prefill, so the two are simulated one after the other, exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from dmodels.core.routing import RoutingPolicy
from dmodels.models import queueing

from . import fleet
from .fleet import Pool
from .requests import Prefill, Requests, Served

#: What a router does that sends each request to the instance with the fewest.
LEAST_LOADED = RoutingPolicy.SHORTEST_QUEUE


class ServingPool(NamedTuple):
    """Equal instances, and the requests that are theirs: those of a total in (low_tokens, high_tokens]."""

    name: str
    law: Any  # of an iteration
    slots: int
    chunk_tokens: int
    low_tokens: float = 0.0
    high_tokens: float = np.inf
    prefills: bool = True
    decodes: bool = True
    fixed_s: float = 0.0  # host time of a prompt
    token_s: float = 0.0  # of a prompt token outside the iterations: KV transfer, further stages of a pipeline
    late_steps: float = 0.0  # iterations that the engine takes to see a prompt and to send its first token

    def slower(self, factor: float) -> ServingPool:
        """The same with every time of its own longer by a factor."""
        law = self.law._replace(times_s=factor * self.law.times_s)
        return self._replace(law=law, fixed_s=factor * self.fixed_s, token_s=factor * self.token_s)

    def own(self, requests: Requests) -> Requests:
        """Those of `requests` that this pool serves."""
        total = requests.input_tokens + requests.output_tokens
        mine = (total > self.low_tokens) & (total <= self.high_tokens)
        return requests.at(mine)

    def serve(
        self,
        requests: Requests,
        instances: int,
        policy: RoutingPolicy = LEAST_LOADED,
        key: jax.Array | None = None,
        *,
        give_up: Callable[[Served], bool] | None = None,
    ) -> Served:
        """All of `requests` on so many instances behind a router. A prefill worker answers with one token, and a
        decoder finds every prompt computed. `give_up` sees times that are too short by what is added to them here."""
        if policy == LEAST_LOADED:  # more instances than requests stay empty
            instances = min(int(instances), max(requests.arrival_s.size, 1))
        served = fleet.simulate(
            requests.arrival_s,
            requests.input_tokens,
            requests.output_tokens if self.decodes else np.ones_like(requests.output_tokens),
            Pool(
                int(instances),
                self.slots,
                self.law,
                chunk_tokens=self.chunk_tokens,
                prefill=Prefill.PACKED,
                emits=True,
            ),
            policy,
            key=key,
            cached_tokens=requests.cached_tokens if self.prefills else requests.input_tokens,
            give_up=give_up,
        )
        return self._sent(requests, served)

    def backlog(self, requests: Requests, instances: int, *, all_of_them: bool = False) -> Served:
        """The same behind a router that looks at loads, by recursion over the requests: decode is a fluid
        (`models.queueing.trace_backlog`). Of large pools a sample is enough; the others' times are NaN."""
        times = queueing.trace_backlog(
            requests.arrival_s,
            requests.prefill_tokens if self.prefills else np.ones(requests.arrival_s.size),
            requests.output_tokens if self.decodes else np.ones(requests.arrival_s.size),
            queueing.StepGrid(self.law.times_s, self.law.tokens),
            slots=self.slots,
            budget_tokens=self.chunk_tokens,
            instances=int(instances),
            **({"sample": requests.arrival_s.size} if all_of_them else {}),
        )
        outputs = requests.output_tokens if self.decodes else np.ones_like(requests.output_tokens)
        unknown = np.full(requests.arrival_s.size, np.nan)
        return self._sent(requests, Served(requests.arrival_s, unknown, times.first_token_s, times.end_s, outputs))

    def _sent(self, requests: Requests, served: Served) -> Served:
        """With what a request costs outside of the iterations."""
        gaps = served.tpot_s[np.isfinite(served.tpot_s)]
        fixed = self.fixed_s + (self.late_steps * float(gaps.mean()) if gaps.size else 0.0)
        late = fixed + self.token_s * requests.prefill_tokens
        return served._replace(first_token_s=served.first_token_s + late, end_s=served.end_s + late)


class ServingFleet(NamedTuple):
    """Pools that share the requests, or, `in_turn`, prefill workers and decoders that every request passes."""

    pools: tuple[ServingPool, ...]
    in_turn: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        """What is measured by itself: every pool, or the whole where a request passes all."""
        return ("all",) if self.in_turn else tuple(pool.name for pool in self.pools)

    def own(self, requests: Requests) -> list[Requests]:
        """The requests of each part."""
        return [requests] if self.in_turn else [pool.own(requests) for pool in self.pools]

    def serve(
        self,
        part: int,
        own: Requests,
        instances: Sequence[int],
        policy: RoutingPolicy = LEAST_LOADED,
        key: jax.Array | None = None,
        *,
        prefilled: Served | None = None,
        give_up: Callable[[Served], bool] | None = None,
    ) -> Served:
        """A part's requests on `instances` of each pool; `prefilled` is the work of its prefill workers, if known.

        A split's first token is the decoder's: its time includes the transfer of the KV cache and the wait there.
        """
        if not self.in_turn:
            return self.pools[part].serve(own, instances[part], policy, key, give_up=give_up)
        first = self.pools[0].serve(own, instances[0], policy, key) if prefilled is None else prefilled
        order = np.argsort(first.end_s, kind="stable")
        came = own.arrival_s[order]
        late = None if give_up is None else lambda seen: give_up(seen._replace(arrival_s=came))
        decode = lambda there: self.pools[1].serve(there, instances[1], policy, key, give_up=late)
        return _in_turn(own, first, order, decode)

    def backlog(self, part: int, own: Requests, instances: Sequence[int]) -> Served:
        """The same behind routers that look at loads, by recursion over the requests (`ServingPool.backlog`)."""
        if not self.in_turn:
            return self.pools[part].backlog(own, instances[part])
        first = self.pools[0].backlog(own, instances[0], all_of_them=True)
        order = np.argsort(first.end_s, kind="stable")
        return _in_turn(own, first, order, lambda there: self.pools[1].backlog(there, instances[1]))


def _in_turn(own: Requests, first: Served, order: np.ndarray, decode: Callable[[Requests], Served]) -> Served:
    """Who is prefilled first comes to the decoders first."""
    decoded = decode(own.at(order)._replace(arrival_s=first.end_s[order]))
    back = np.argsort(order, kind="stable")
    times = decoded.first_token_s[back], decoded.end_s[back]
    return Served(own.arrival_s, first.admitted_s, *times, own.output_tokens)
