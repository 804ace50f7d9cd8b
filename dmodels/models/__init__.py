"""Closed forms of one instance, one pool and one link: vectorized, differentiable, in float64.

What a plan asks first: `memory` (what fits), `traffic` (requests, as classes or as a trace), `latency` (seconds of a
step, of a closed loop), `instance` (percentiles of one instance under load) on `queueing`, `transfer` (moving a cache),
`cache` (hit rates), `pooling` (thresholds by length) and `cost`. Import from these families and modules; each names in
its own docstring what it offers.

No command reaches these; the ledger of claims, the live routers of `control` and the reference do: `energy` (joules per
token), `freeness` and `freeness_fit` (Phasor's unit), `migration` (moving a running request), `multiplexing` (servers
that a shared line needs), `operators` (seconds of single kernels), `router` (a KV router's costs and draws).
"""
