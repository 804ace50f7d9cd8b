"""A whole scenario: everything that `dmodels transfer` shows, in one answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmodels import catalog
from dmodels.control.netkv import POLICIES
from dmodels.core.answers import Answer
from dmodels.core.model import Model
from dmodels.core.records import float64
from dmodels.models.memory import kv_bytes_per_token, with_kv_dtype
from dmodels.models.traffic import read_trace
from dmodels.models.transfer import oblivious_loss
from dmodels.sim.network import (
    Arrivals,
    NetworkCluster,
    Profile,
    advertised_bytes_per_s,
    fabric_problems,
    poisson,
    window,
)

from .policies import (
    PolicyMetrics,
    Site,
    Staleness,
    TransferShare,
    Upgrade,
    compare_policies,
    stale_telemetry,
    transfer_share,
    upgrades,
)
from .scenario import TransferScenario


@dataclass(frozen=True)
class ObliviousChoice(Answer):
    """What a router loses that does not see the network, at one context: an `ObliviousLoss` in numbers."""

    context_tokens: float
    loses: float
    gap_s: float
    ratio: float
    ratio_limit: float
    crossover_bytes: float


@dataclass(frozen=True)
class TransferAnswer(Answer):
    """What the network costs, and what would help. A table is a list of records."""

    rows_in = "policies"
    kv_bytes_per_token: float
    tier_bytes_per_s: list[float]
    median_input_tokens: float
    problems: list[str]  # why the scenario cannot run as it is written
    share: list[TransferShare]  # of TTFT that the transfer takes, by context and tier
    policies: list[PolicyMetrics]
    upgrades: list[Upgrade]
    oblivious_choice: list[ObliviousChoice]  # by context
    staleness: list[Staleness]


@float64
def study(asked: TransferScenario) -> TransferAnswer:
    """Transfer share by context and tier, policies, upgrades, oblivious choices, staleness; problems."""
    record = catalog.model(asked.model.name)
    if asked.model.kv_dtype:
        record = with_kv_dtype(record, asked.model.kv_dtype)
    site, run = _site(asked, record), asked.simulation
    cluster, arrivals, per_token = site.cluster(), _arrivals(asked), site.kv_bytes_per_token
    background = np.asarray(asked.telemetry.background)
    options: dict[str, Any] = {
        "runs": run.runs,
        "ttft_slo_s": asked.traffic.ttft_slo,
        "warmup_s": run.warmup,
        "measure_s": run.measure,
        "background": background,
        "refresh_s": asked.telemetry.refresh,
        "until_s": run.warmup + run.measure + 600.0,
    }
    median = float(np.median(arrivals(0, cluster).input_tokens))
    shares = transfer_share(
        cluster,
        run.contexts,
        lambda n: asked.prefill.base + asked.prefill.per_token * n,
        congestion=background,
        layers=float(np.asarray(record.n_layers)),
    )
    rates, tiers = advertised_bytes_per_s(cluster), sorted({row.tier for row in shares})
    near, far = rates[int(tiers[0])], rates[int(tiers[-1])]
    return TransferAnswer(
        kv_bytes_per_token=per_token,
        tier_bytes_per_s=rates.tolist(),
        median_input_tokens=median,
        problems=[*fabric_problems(cluster.fabric), *_too_long(asked, per_token)],
        share=shares,
        policies=compare_policies(cluster, lambda k: arrivals(k, cluster), list(POLICIES), **options),
        upgrades=upgrades(site, arrivals, **options),
        oblivious_choice=[
            ObliviousChoice(n, *map(float, oblivious_loss(n * per_token, 0.0, 0.5, near, far))) for n in run.contexts
        ],
        staleness=stale_telemetry(
            cluster,
            median * per_token,
            congestion=background,
            std=asked.telemetry.std,
            correlation_time_s=asked.telemetry.correlation_time,
        ),
    )


def _site(asked: TransferScenario, record: Model) -> Site:
    f = asked.fabric
    fabric = {
        "pods": f.pods,
        "racks_per_pod": f.racks_per_pod,
        "servers_per_rack": f.servers_per_rack,
        "instances_per_server": f.instances_per_server,
        "tier_bytes_per_s": tuple(f.tiers),
        "tier_latency_s": tuple(f.latency),
        "host_ports": f.ports,
        "host_bytes_per_s": f.port,
        "rack_uplinks": f.rack_uplinks,
        "pod_uplinks": f.pod_uplinks,
    }
    fabric |= {} if f.nic is None else {"nic_bytes_per_s": f.nic}
    per_token = float(np.asarray(kv_bytes_per_token(record)))
    return Site(fabric, asked.pools.prefill_instances, per_token, asked.pools.kv_memory, asked.model.tp)


def _arrivals(asked: TransferScenario) -> Callable[[int, NetworkCluster], Arrivals]:
    """The requests of window k: cut out of a trace, or drawn from a bundled workload."""
    t, run = asked.traffic, asked.simulation
    profile = Profile(
        t.min_tokens,
        t.max_tokens,
        t.ttft_slo,
        t.rate,
        t.shared_prefix,
        prefill_base_s=asked.prefill.base,
        prefill_s_per_token=asked.prefill.per_token,
    )
    seconds = run.warmup + run.measure
    if t.trace:
        source = read_trace(t.trace)
        return lambda k, cluster: window(
            source, profile, t.rate, seconds, len(cluster.decode), position_frac=k / run.runs, seed=k
        )
    mix = catalog.workload(t.workload)
    parts = mix.input_tokens, mix.output_tokens, mix.weight_frac
    return lambda k, cluster: poisson(*parts, profile, t.rate, seconds, len(cluster.decode), seed=k)


def _too_long(asked: TransferScenario, per_token: float) -> list[str]:
    context, memory = max(asked.simulation.contexts), asked.pools.kv_memory
    if context * per_token <= memory:
        return []
    need = context * per_token
    return [f"a context of {context:g} tokens needs {need:.4g} B of KV memory; an instance has {memory:.4g} B"]
