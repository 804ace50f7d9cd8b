"""Instances of a fleet that do not influence each other: each is served by itself, which is faster."""

from __future__ import annotations

import numpy as np

from dmodels.core.compiled import NONE
from dmodels.sim.batching import virtual_time
from dmodels.sim.requests import Served

from .routing import ROUND_ROBIN
from .state import Simulation


def serve(run: Simulation) -> Served:
    """The answers of `fleet.advance`, where routing looks at no load and iterations at no tokens."""
    rows, pool, size = run.fleet.requests, run.fleet.pools[0], len(run.fleet.instances)
    routed = rows["route_tokens"] <= pool["limit"]
    if run.router.policy == ROUND_ROBIN:
        decided = (np.cumsum(routed) - 1) % size
    else:
        decided = np.minimum(size - 1, (rows["draw"] * size).astype(np.int64))
    decided[~routed | (rows["prompt"] + rows["output"] > pool["limit"])] = NONE
    columns = rows["arrival"], np.maximum(1, rows["prompt"] - rows["cached"]), rows["output"]
    instance = virtual_time.Instance(run.fleet.times[0], int(pool["mode"]), int(pool["chunk"]), int(pool["late"]))
    times = virtual_time.Times.unknown(rows.size)
    order = np.argsort(decided, kind="stable")
    edges = np.searchsorted(decided[order], np.arange(size + 1))
    for j in range(size):
        mine = order[edges[j] : edges[j + 1]]
        work, served = virtual_time.Work(*(x[mine] for x in columns)), virtual_time.Times.unknown(mine.size)
        virtual_time.run(work, instance, virtual_time.idle(int(pool["slots"])), 0, True, served)
        for whole, part in zip(times, served, strict=True):
            whole[mine] = part
    arrival, _, output = (np.ascontiguousarray(x) for x in columns)
    return Served(arrival, *times, output, np.zeros(rows.size, np.int64), decided)
