"""What the per-request greedy loses against the joint optimum of a burst: the bound that the paper leaves open.

Bursts of n requests leave one prefill instance of the paper's cluster at once; lengths from the conversation trace,
hits as in the setting. Costs of both by Eq. (4) with every transfer of the burst sharing its tier.

    python -m benchmarks.netkv_burst
"""

from __future__ import annotations

import numpy as np

from benchmarks.netkv_setting import Policy, table, trace
from benchmarks.registry import record
from dmodels.control.netkv import Oracle, Pool, burst_cost_s, dispatch, joint_assignment
from dmodels.sim.network import advertised_bytes_per_s, netkv_cluster

SIZES = (2, 4, 8, 16, 32)
POLICIES = (Policy.ROUND_ROBIN, Policy.CACHE_LOAD, Policy.NETKV_TOPO, Policy.NETKV_STATIC, Policy.NETKV_FULL)


def run(bursts: int = 60, share: float = 0.24) -> list[dict]:
    """Mean excess of each policy over the optimum, by size of the burst."""
    cluster, rng = netkv_cluster(), np.random.default_rng(0)
    tier = cluster.fabric.tier(cluster.prefill[:, None], cluster.decode[None, :])
    rates, tokens = advertised_bytes_per_s(cluster), trace().input_tokens
    rows = []
    for n in SIZES:
        excess = {p.name: [] for p in POLICIES}
        for _ in range(bursts):
            level = np.array([0.0, 0.0, *rng.uniform(0, 0.6, 2)])
            oracle = Oracle(tier, rates, cluster.fabric.tier_latency_s, level)
            pool = Pool(np.full(12, 1e15), np.zeros(12), rng.integers(0, 30, 12).astype(float))
            kv = rng.choice(tokens, n) * cluster.kv_bytes_per_token
            hits = np.where(rng.random((n, 12)) < share / 12, rng.uniform(0.2, 0.8, (n, 12)), 0.0)
            best = joint_assignment(oracle, 0, kv, hits, pool).value.cost_s
            for policy in POLICIES:
                chosen, *_ = dispatch(policy, oracle, np.zeros(n, int), kv, hits, pool)
                excess[policy.name].append(burst_cost_s(oracle, 0, kv, hits, pool, chosen.index) / best - 1)
        for name, values in excess.items():
            mean, p95 = float(np.mean(values)), float(np.percentile(values, 95))
            rows.append({"burst": n, "policy": name, "excess_mean_frac": mean, "excess_p95_frac": p95})
    return rows


def main() -> None:
    rows = run()
    shown = [[r["burst"], r["policy"], 100 * r["excess_mean_frac"], 100 * r["excess_p95_frac"]] for r in rows]
    table("Excess over the joint optimum", ["burst", "policy", "mean %", "P95 %"], shown)
    record("netkv_burst", rows)


if __name__ == "__main__":
    main()
