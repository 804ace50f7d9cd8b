"""The setting under which NetKV's tables are redone, in one place. The paper prints part of it; the rest is chosen.

Printed: 2 pods x 2 racks x 2 servers x 8 GPUs, TP=4, tiers 4:2:1, 64 sequences a batch, 5 + 15 s windows, TTFT SLOs.
Implied: prefill fills one rack; iteration time from the TBTs; 6.09 req/s at 100 % from the goodputs; no prefill queue.
Chosen: (50, 25, 12.5) Gbit/s per flow, four flows a transfer, ECMP over 64 and 128 uplinks drawn apart up and down,
ports that do not bind, a scheduler that sees running batches only (with requests on their way counted, CLA* puts 34
instead of the printed 32.0 % on tier 2), prefill 0.05 s + 68 us/token, 1K to 128K prompts, one instance in 12 holds
the prefix of 24 % of the requests. The trace is Mooncake's conversation trace (12,031 requests; the paper's has 23K).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from dmodels.core.routing import RoutingPolicy
from dmodels.models.traffic import read_trace
from dmodels.sim.network import CHATBOT, LONG_CONTEXT, RAG, Profile, netkv_cluster, window
from dmodels.studies.transfer import compare_policies

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


def compare(policies, profile: Profile = RAG, load=1.0, runs: int = 40, cluster=None, arrivals=None, **options):
    """Rows of `compare_policies` in the paper's setting; `arrivals` are further options of the windows."""
    cluster = cluster or netkv_cluster()
    source = windows(profile, load, runs, len(cluster.decode), **(arrivals or {}))
    options = {"sees_inbound": False} | options
    found = compare_policies(cluster, source, policies, runs=runs, ttft_slo_s=profile.ttft_slo_s, **options)
    return [vars(row) for row in found]
