"""A fleet request by request: three instances behind a shortest-queue router, one of which fails and comes back.

Run it: python examples/09_simulate_a_fleet.py
"""

import numpy as np

from dmodels.models.latency import StepLaw
from dmodels.sim.fleet import Change, Event, Pool, RoutingPolicy, simulate

draws = np.random.default_rng(0)
count = 5_000
arrival_s = np.cumsum(draws.exponential(1 / 12.0, count))
prompt = np.ceil(draws.lognormal(6.5, 0.8, count))
answer = np.ceil(draws.lognormal(5.0, 0.6, count))
pool = Pool(instances=3, slots=64, law=StepLaw(8e-3, 0.65e-3))

for name, events in (("all up", ()), ("one fails", (Event(100.0, Change.DOWN, 0), Event(200.0, Change.UP, 0)))):
    served = simulate(arrival_s, prompt, answer, pool, RoutingPolicy.SHORTEST_QUEUE, events=events)
    print(
        f"{name:10s} TTFT P99 {np.quantile(served.ttft_s, 0.99):6.2f} s, "
        f"requests started over: {int((served.restarts > 0).sum())}"
    )
