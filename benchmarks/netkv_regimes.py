"""Where NetKV's gain comes from and where it ends: every setting that the text leaves open, one at a time.

The NIC decides most. Eq. (4) counts a source's transfers per tier. It sees neither the source's NIC, which all tiers
share, nor the destination's, on which transfers of several sources meet: when NICs bind, a faster tier gains nothing,
and the four instances within the pod are crowded. Round robin, which spreads evenly, then wins unless there are prefix
hits to be had. The destination term repairs most of it.

    python -m benchmarks.netkv_regimes
"""

from __future__ import annotations

import numpy as np

from benchmarks.netkv_setting import Policy, compare, table
from benchmarks.registry import record
from dmodels.core.units import gbit_per_s
from dmodels.sim.network import RAG, netkv_cluster

POLICIES = (Policy.ROUND_ROBIN, Policy.CACHE_LOAD, Policy.NETKV_TOPO, Policy.NETKV_STATIC)
STEADY = {"warmup_s": 60.0, "measure_s": 180.0, "runs": 6, "arrivals": {"seconds": 240.0}}


def cases() -> dict[str, dict]:
    """Name -> options of `compare` that differ from the setting."""
    nic = lambda rate: netkv_cluster(nic_bytes_per_s=gbit_per_s(rate))
    base = netkv_cluster()
    return {
        "as set": {},
        **{f"NIC {rate} Gbit/s per instance": {"cluster": nic(rate)} for rate in (800, 400, 200, 100, 50)},
        "NIC 50 Gbit/s, half the load": {"cluster": nic(50), "load": 0.5},
        "NIC 50 Gbit/s, no prefix hits": {"cluster": nic(50), "profile": RAG._replace(share_frac=0.0)},
        "NIC 50, no hits, half the load": {"cluster": nic(50), "profile": RAG._replace(share_frac=0.0), "load": 0.5},
        "long runs (60 + 180 s), 100 %": STEADY,
        "long runs (60 + 180 s), 250 %": STEADY | {"load": 2.5},
        "one flow per transfer": {"cluster": base._replace(shards=1)},
        "sixteen flows per transfer": {"cluster": base._replace(shards=16)},
        "a quarter of the uplinks": {"cluster": netkv_cluster(rack_uplinks=16, pod_uplinks=32)},
        "spine fixes the way down": {"cluster": netkv_cluster(aligned=True)},
        "ports of 50 Gbit/s": {"cluster": netkv_cluster(host_bytes_per_s=gbit_per_s(50))},
        "KV cache in 8 bits": {"cluster": base._replace(kv_bytes_per_token=163840.0)},
        "requests on their way count as batch": {"sees_inbound": True},
        "counter capped at 1": {"max_in_flight": 1.0},
        "destination term, NIC 50, no prefix hits": {
            "destination_aware": True,
            "cluster": nic(50),
            "profile": RAG._replace(share_frac=0.0),
        },
        "destination term added": {"destination_aware": True, "cluster": nic(200)},
        "destination term added, NIC 50": {"destination_aware": True, "cluster": nic(50)},
        "timestamps not spread over their 3 s": {"arrivals": {"tick_s": 1e-9}},
        "no prefix hits": {"profile": RAG._replace(share_frac=0.0)},
        "all prompts of at most 32K": {"profile": RAG._replace(high_tokens=32768.0)},
        "background 40 % on all links": {"background": 0.4},
        "background 40 % within pods only": {"background": np.array([0, 0, 0.4, 0])},
    }


def run(runs: int = 20) -> list[dict]:
    rows = []
    for name, options in cases().items():
        rows += [{"case": name} | r for r in compare(POLICIES, **({"runs": runs} | options))]
    return rows


def main() -> None:
    rows = run()
    names = list(dict.fromkeys(r["case"] for r in rows))
    at = {(r["case"], r["policy"]): r for r in rows}
    cut = lambda case, a, b: 100 * (1 - at[case, b.name]["ttft_mean_s"] / at[case, a.name]["ttft_mean_s"])
    rr, cla, topo, static = POLICIES
    head = [
        "case",
        "RR transfer ms",
        "CLA*",
        "topo",
        "static",
        "topo vs CLA* %",
        "static vs CLA* %",
        "static vs RR %",
        "counter %",
        "tier 2 CLA*",
        "static",
    ]
    table(
        "What the text leaves open",
        head,
        [
            [
                name,
                *(1e3 * at[name, p.name]["transfer_mean_s"] for p in POLICIES),
                cut(name, cla, topo),
                cut(name, cla, static),
                cut(name, rr, static),
                cut(name, topo, static),
                at[name, cla.name]["tier_2_frac"],
                at[name, static.name]["tier_2_frac"],
            ]
            for name in names
        ],
    )
    record("netkv_regimes", rows)


if __name__ == "__main__":
    main()
