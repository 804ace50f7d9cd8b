"""Which formulas are changed, and which files of tests may notice."""

from __future__ import annotations

#: The closed forms, the laws of the games and of the controllers. Solvers and simulators are no formulas: they are
#: tested against strangers; compiled kernels are read by numba from their file, so they cannot be served changed.
TARGETS = (
    "core/numerics",
    "models/batching_curve",
    "models/burstiness",
    "models/concurrency",
    "models/cost",
    "models/curves",
    "models/energy",
    "models/energy_split",
    "models/freeness",
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
    "models/queueing",
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
    "games/violation",
    "control/adaptive",
    "control/congestion",
    "control/netkv",
    "control/phasor",
    "control/phasor_flow",
    "control/planner",
    "control/planner_stability",
    "control/regime",
    "control/token_budget",
    "control/token_budget_bounds",
    "control/token_budget_threshold",
)
#: Folders and files of tests that are watched.
WATCHED = ("tests/test_docstrings.py", "tests/models", "tests/control", "tests/core", "tests/games", "proofs")
