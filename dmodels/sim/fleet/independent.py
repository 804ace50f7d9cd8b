"""Instances of a fleet that do not influence each other: each is served by itself, which is faster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dmodels.sim.batching import virtual_time, work
from dmodels.sim.requests import Prefill, Requests, Served

from .routing import Policy

if TYPE_CHECKING:
    from .simulation import Run


def serve(run: Run) -> Served:
    """The answers of `fleet.advance`, where routing looks at no load and iterations at no tokens."""
    rows, pool, size = run.fleet.requests, run.fleet.pools[0], len(run.fleet.instances)
    routed = rows["route_tokens"] <= pool["limit"]
    if run.policy == Policy.ROUND_ROBIN:
        decided = (np.cumsum(routed) - 1) % size
    else:
        decided = np.minimum(size - 1, (rows["draw"] * size).astype(np.int64))
    decided[~routed | (rows["prompt"] + rows["output"] > pool["limit"])] = -1
    columns = tuple(np.ascontiguousarray(rows[name]) for name in ("arrival", "prompt", "output", "cached"))
    todo = work(Requests(*columns), Prefill(pool["mode"]), int(pool["chunk"]))
    times = [np.full(rows.size, np.nan) for _ in range(3)]
    order = np.argsort(decided, kind="stable")
    edges = np.searchsorted(decided[order], np.arange(size + 1))
    for j in range(size):
        mine = order[edges[j] : edges[j + 1]]
        out = [np.empty(mine.size) for _ in range(3)]
        virtual_time.run(
            columns[0][mine],
            todo[mine],
            columns[2][mine],
            run.fleet.times[0],
            int(pool["mode"]),
            int(pool["chunk"]),
            int(pool["late"]),
            virtual_time.idle(int(pool["slots"])),
            0,
            True,
            *out,
        )
        for whole, part in zip(times, out, strict=True):
            whole[mine] = part
    return Served(columns[0], *times, columns[2], np.zeros(rows.size, np.int64), decided)
