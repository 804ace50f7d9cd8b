"""The routing game: requests choose workers whose latency grows with load; equilibria, optima and simple policies.

`dmodels route` uses `game`, `policies` and `chain`; `stochastic` (logit routers) is used by the ledger.
"""

from __future__ import annotations

from .batches import logit_equilibria
from .chain import closed_loop
from .equilibria import NashRange, best_response, greedy_arrival, nash_range
from .game import (
    Profile,
    RoutingArrays,
    RoutingGame,
    flow,
    flow_gain_s,
    gain_s,
    overload_flag,
    paper_cost_s,
    potential,
    social_cost_s,
    sums,
    worker_of_each,
)
from .optima import (
    convex_marginals,
    hull,
    least_potential_flow,
    marginal_cost_game,
    marginals,
    optimum,
    optimum_flows,
)
from .policies import POLICIES, counterfactuals, policy_flows
from .stochastic import GibbsLoads, gibbs_loads, gibbs_profiles, logit_equilibrium

__all__ = [
    "POLICIES",
    "GibbsLoads",
    "NashRange",
    "Profile",
    "RoutingArrays",
    "RoutingGame",
    "best_response",
    "closed_loop",
    "convex_marginals",
    "counterfactuals",
    "flow",
    "flow_gain_s",
    "gain_s",
    "gibbs_loads",
    "gibbs_profiles",
    "greedy_arrival",
    "hull",
    "least_potential_flow",
    "logit_equilibria",
    "logit_equilibrium",
    "marginal_cost_game",
    "marginals",
    "nash_range",
    "optimum",
    "optimum_flows",
    "overload_flag",
    "paper_cost_s",
    "policy_flows",
    "potential",
    "social_cost_s",
    "sums",
    "worker_of_each",
]
