"""A whole scenario: everything that `dmodels transfer` shows, as lists of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dmodels import catalog
from dmodels.control.netkv import Policy
from dmodels.core.records import Real, float64
from dmodels.models.memory import kv_bytes_per_token, with_kv_dtype
from dmodels.models.traffic import read_trace
from dmodels.models.transfer import oblivious_loss
from dmodels.sim.network import Arrivals, Cluster, Profile, advertised_bytes_per_s, fabric_problems, poisson, window

from .policies import Site, compare_policies, stale_telemetry, transfer_share, upgrades
from .scenario import TransferScenario


@float64
def study(asked: TransferScenario) -> dict[str, Any]:
    """Lists of rows: transfer share by context and tier, policies, upgrades, oblivious choices, staleness; problems."""
    record = catalog.model(asked.model.name)
    if asked.model.kv_dtype:
        record = with_kv_dtype(record, asked.model.kv_dtype)
    per_token = float(np.asarray(kv_bytes_per_token(record)))
    f, run, t = asked.fabric, asked.simulation, asked.traffic
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
    if f.nic is not None:
        fabric["nic_bytes_per_s"] = f.nic
    site = Site(fabric, asked.pools.prefill_instances, per_token, asked.pools.kv_memory, asked.model.tp)
    cluster = site.cluster()
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
        make: Callable[[int, Cluster], Arrivals] = lambda k, c: window(
            source, profile, t.rate, seconds, len(c.decode), position_frac=k / run.runs, seed=k
        )
    else:
        mix = catalog.workload(t.workload)
        parts = mix.input_tokens, mix.output_tokens, mix.weight_frac
        make = lambda k, c: poisson(*parts, profile, t.rate, seconds, len(c.decode), seed=k)
    options: dict[str, Any] = {
        "runs": run.runs,
        "ttft_slo_s": t.ttft_slo,
        "warmup_s": run.warmup,
        "measure_s": run.measure,
        "background": np.asarray(asked.telemetry.background),
        "refresh_s": asked.telemetry.refresh,
        "until_s": seconds + 600.0,
    }
    problems = fabric_problems(cluster.fabric)
    policies = list(Policy)
    compared = compare_policies(cluster, lambda k: make(k, cluster), policies, **options)
    rates = advertised_bytes_per_s(cluster)
    longest = max(run.contexts) * per_token
    if longest > asked.pools.kv_memory:
        problems.append(
            f"a context of {max(run.contexts):g} tokens needs {longest:.4g} B of KV memory; an instance has "
            f"{asked.pools.kv_memory:.4g} B"
        )
    median = float(np.median(make(0, cluster).input_tokens))
    shares = transfer_share(
        cluster,
        run.contexts,
        lambda n: asked.prefill.base + asked.prefill.per_token * n,
        congestion=np.asarray(asked.telemetry.background),
        layers=float(np.asarray(record.n_layers)),
    )
    tiers = sorted({row["tier"] for row in shares})
    near, far = rates[int(tiers[0])], rates[int(tiers[-1])]
    lose: Callable[[Real], dict[str, Real]] = lambda n: oblivious_loss(n * per_token, 0.0, 0.5, near, far)._asdict()
    loss = [{"context_tokens": n} | {name: float(value) for name, value in lose(n).items()} for n in run.contexts]
    stale = stale_telemetry(
        cluster,
        median * per_token,
        congestion=np.asarray(asked.telemetry.background),
        std=asked.telemetry.std,
        correlation_time_s=asked.telemetry.correlation_time,
    )
    return {
        "kv_bytes_per_token": per_token,
        "tier_bytes_per_s": rates.tolist(),
        "median_input_tokens": median,
        "problems": problems,
        "share": shares,
        "policies": compared,
        "upgrades": upgrades(site, make, **options),
        "oblivious_choice": loss,
        "staleness": stale,
    }
