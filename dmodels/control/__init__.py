"""Controllers and routers, pure and live: who serves a request, and which pool a GPU works for.

Commands use `netkv` (with the network simulator), `planner` and `regime` (router logs). `phasor` and `token_budget` are
for live routers, and for the simulators that verify them; only proofs, tests and benchmarks use `adaptive` and
`congestion`.
"""
