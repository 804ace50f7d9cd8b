"""The setting under which NetKV's tables are redone, in one place. The paper prints part of it; the rest is chosen.

Printed: 2 pods x 2 racks x 2 servers x 8 GPUs, TP=4, tiers 4:2:1, 64 sequences a batch, 5 + 15 s windows, TTFT SLOs.
Implied: prefill fills one rack; iteration time from the TBTs; 6.09 req/s at 100 % from the goodputs; no prefill queue.
Matched to RAG's transfer times, which are tuned for that (`_netkv_verdicts.MATCHED`): (50, 25, 12.5) Gbit/s per flow,
four flows a transfer, ECMP over 64 and 128 uplinks drawn apart up and down, ports that do not bind, a scheduler that
sees running batches only (with requests on their way counted, CLA* puts 34 instead of the printed 32.0 % on tier 2),
prefill 0.05 s + 68 us/token, 1K to 128K prompts, one instance in 12 holds the prefix of 24 % of the requests.
The trace is Mooncake's conversation trace (12,031 requests; the paper's has 23K).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from scipy import stats

from dmodels.core.routing import RoutingPolicy
from dmodels.models.traffic import read_trace
from dmodels.sim.network import CHATBOT, LONG_CONTEXT, RAG, Profile, netkv_cluster, window
from dmodels.studies.transfer.policies import averaged, by_window, standard_error

PROFILES = {"chatbot": CHATBOT, "rag": RAG, "long": LONG_CONTEXT}
LADDER = (RoutingPolicy.CACHE_LOAD, RoutingPolicy.NETKV_TOPO, RoutingPolicy.NETKV_STATIC, RoutingPolicy.NETKV_FULL)
PRINTED = Path(__file__).parents[2] / "proofs" / "papers" / "netkv"


@cache
def trace():
    """The conversation trace beside the project."""
    return read_trace(Path(__file__).parents[3] / "shared" / "data" / "mooncake_conversation.jsonl")


def windows(profile: Profile = RAG, load: float = 1.0, runs: int = 40, pool: int = 12, seconds: float = 20.0, **more):
    """Window k of `runs` windows spread over the trace."""
    rate = profile.capacity_rps * load
    return lambda k: window(trace(), profile, rate, seconds, pool, position_frac=k / runs, seed=k, **more)


#: Metrics whose intervals are recorded.
UNSURE = (
    *("ttft_mean_s", "ttft_p99_s", "tbt_mean_s", "slo_frac", "goodput_rps", "transfer_mean_s"),
    *(f"tier_{tier}_frac" for tier in range(4)),
)


def compare(policies, profile: Profile = RAG, load=1.0, runs: int = 40, cluster=None, arrivals=None, **options):
    """Rows of `averaged` in the paper's setting; `arrivals` are further options of the windows.

    `reach` has the half-width of each metric's interval (95 %), `reach_against` that of its paired difference from each
    other policy.
    """
    cluster, policies = cluster or netkv_cluster(), list(policies)
    source = windows(profile, load, runs, len(cluster.decode), **(arrivals or {}))
    options = {"sees_inbound": False} | options
    found = by_window(cluster, source, policies, runs=runs, ttft_slo_s=profile.ttft_slo_s, **options)
    weight = found[0]["requests_count"] / found[0]["requests_count"].sum()
    reach = lambda values: float(stats.t.ppf(0.975, runs - 1) * standard_error(values, weight))
    rows = []
    for row, mine in zip(averaged(policies, found), found, strict=True):
        against = {
            other.name: {name: reach(mine[name] - theirs[name]) for name in UNSURE}
            for other, theirs in zip(policies, found, strict=True)
            if theirs is not mine
        }
        rows.append(vars(row) | {"reach": {name: reach(mine[name]) for name in UNSURE}, "reach_against": against})
    return rows
