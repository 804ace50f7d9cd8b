"""Is the network the bottleneck? Routers on one simulated cluster, with and without a look at the fabric.

Run it: python examples/08_network_or_scheduler.py
"""

import numpy as np

from dmodels.core.routing import RoutingPolicy
from dmodels.sim.network import Arrivals, netkv_cluster, simulate

draws = np.random.default_rng(0)
count = 300
prompt = draws.integers(2_000, 30_000, count)
arrivals = Arrivals(
    arrival_s=np.cumsum(draws.exponential(1 / 6.0, count)),
    prefill_s=0.05 + 68e-6 * prompt,
    input_tokens=prompt,
    output_tokens=draws.integers(100, 400, count),
)

for policy in (RoutingPolicy.ROUND_ROBIN, RoutingPolicy.NETKV_FULL):
    run = simulate(netkv_cluster(), arrivals, policy, seed=1)
    print(f"{policy.name:12s} TTFT mean {np.nanmean(run.ttft_s):.2f} s, transfer {np.nanmean(run.transfer_s):.2f} s")
