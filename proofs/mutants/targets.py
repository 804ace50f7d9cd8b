"""Which formulas are changed, and which files of tests may notice."""

from __future__ import annotations

#: The closed forms, the laws of the games and of the controllers. Solvers, searches and simulators are no formulas:
#: they are tested against strangers. The live routers repeat the controllers' laws and are replayed against them.
#: Compiled kernels are read by numba from their file, so they cannot be changed in memory.
TARGETS = (
    "core/numerics",
    "models/batching_curve",
    "models/burstiness",
    "models/che",
    "models/concurrency",
    "models/cost",
    "models/curves",
    "models/energy",
    "models/energy_split",
    "models/eviction_externality",
    "models/freeness",
    "models/freeness_fit",
    "models/hbm_leader",
    "models/instance",
    "models/kv",
    "models/latency",
    "models/latency_laws",
    "models/latency_serving",
    "models/latency_terms",
    "models/migration",
    "models/multiplexing",
    "models/network_choice",
    "models/occupancy",
    "models/pooling",
    "models/precision",
    "models/prefix_cache",
    "models/queueing",
    "models/requests",
    "models/router",
    "models/saturation",
    "models/staleness",
    "models/stalls",
    "models/transfer",
    "models/transfer_paths",
    "models/weights",
    "models/workload",
    "games/anarchy_bounds",
    "games/anarchy_queues",
    "games/placement_networks",
    "games/queueing",
    "games/resource_game",
    "games/violation",
    "control/adaptive",
    "control/congestion",
    "control/netkv",
    "control/phasor",
    "control/phasor_baselines",
    "control/phasor_flow",
    "control/planner",
    "control/planner_stability",
    "control/regime",
    "control/token_budget",
    "control/token_budget_bounds",
    "control/token_budget_threshold",
)
#: Folders and files of tests that are watched: of the pages on routing and placement those that enter a target. What is
#: about searches only would notice nothing.
WATCHED = (
    "tests/test_docstrings.py", "tests/models", "tests/control", "tests/core", "tests/games",
    *(f"proofs/{about}" for about in ("token_budget", "token_budget_control", "netkv", "phasor", "papers", "resource")),
    *(f"proofs/routing/prop_{claim}.py" for claim in (
        "cb", "e1", "e10", "e2", "naor", "new1", "new14", "new18", "new27", "new3", "new4", "new6", "np", "p32o", "p42",
        "p42c", "p43", "r3",
    )),
    *(f"proofs/placement/prop_{claim}.py" for claim in ("c", "new24", "p23", "p5_externality", "p5_leader")),
)  # fmt: skip
