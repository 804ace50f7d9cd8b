"""Questions of a planner, each answered by one call: a frozen record with `to_dict()` (`dmodels.core.answers`).

plan        what to deploy: `dmodels plan`, `report` and `explore` (`explore` holds the dials)
size        what fits on one instance: `dmodels size`
pools       one pool or several: `dmodels pools`
split       GPUs for prefill and for decode: `dmodels split`
sweep       a pool sized over named axes: `dmodels sweep`
place       tiers of KV cache, and what sharing them is worth: `dmodels place`
transfer    KV transfer, its policies and upgrades: `dmodels transfer`
router_log  the price of anarchy in a router's log: `dmodels poa`
"""
