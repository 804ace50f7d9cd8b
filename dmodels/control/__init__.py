"""Controllers and routers, pure and live: who serves a request, and which pool a GPU works for.

Commands use `netkv` (with the network simulator), `planner`, `phasor` and `token_budget` (with the simulators) and
`regime` (router logs). Only proofs, tests and benchmarks use `adaptive` and `congestion`.
"""
