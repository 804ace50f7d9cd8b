"""`dmodels simulate --prefill-instances`: prefill and decode apart, under Phasor's controller or a baseline."""

from __future__ import annotations

from dmodels.core.errors import InputError, unknown

from . import render

#: --policy -> (signal that prompts are routed by, who moves standby workers), as names of `sim.cluster`.
POLICIES = {
    "phasor": ("WORK", "FREENESS"),
    "reactive": ("REQUESTS", "REACTIVE"),
    "freeness": ("WORK", "NONE"),
    "queue-length": ("REQUESTS", "NONE"),
    "token-backlog": ("TOKENS", "NONE"),
    "memory": ("MEMORY", "NONE"),
}


def run(
    policy: str,
    workload: str,
    rate_rps: float | None,
    prefill: int,
    decode: int,
    standby: int,
    slots: int,
    law_s: tuple[float, float],
    chunk: int,
    percentile: float,
    precision: float,
    requests: int | None,
    seed: int,
    json: bool,
    show_python: bool,
) -> int:
    """Replications of a bundled workload until intervals are narrow; a prompt takes ceil(tokens / chunk) iterations.

    Exit code 1 where the P99 of the second half of a run is more than twice that of the first: queues grow.
    """
    if policy not in POLICIES:
        raise unknown("policy", policy, POLICIES)
    if prefill < 1 or standby < 0:
        raise InputError(f"--prefill-instances {prefill}, --standby-instances {standby}; accepted: from 1, and from 0")
    count = requests or 4000
    signal, flow = POLICIES[policy]
    if show_python:
        print(_python(signal, flow, workload, rate_rps, prefill, decode, standby, slots, law_s, chunk, count, seed))
        return 0

    import jax
    import numpy as np

    from dmodels.catalog import workload as bundled
    from dmodels.core.flags import Flag
    from dmodels.models.latency import StepLaw
    from dmodels.sim import arrivals, cluster, lengths
    from dmodels.sim.cluster import Signal
    from dmodels.sim.estimate import replicate

    traffic = bundled(workload, rate_rps)
    rate_rps = float(traffic.rate_rps)
    # as everywhere in this command memory is counted in slots: one block for each sequence
    step = StepLaw(*law_s)
    machines = cluster.Workers(prefill, decode, standby, step, slots, kv_blocks=slots, block_tokens=1 << 40)
    control = cluster.Control(Signal[signal], cluster.Flow[flow], theta_frag=0.0)
    growing = []

    def once(key: jax.Array) -> dict[str, float]:
        key_when, key_what = jax.random.split(key)
        when = arrivals.gamma(key_when, rate_rps, float(traffic.arrival_cv), count)
        long = lengths.draw(key_what, traffic, count)
        seconds = np.ceil(np.maximum(1, long.input_tokens - long.cached_tokens) / chunk) * sum(law_s)
        served = cluster.simulate(when, long.input_tokens, long.output_tokens, seconds, machines, control)
        half, skip = count // 2, count // 5
        early, late = (np.quantile(part, percentile) for part in (served.ttft_s[:half], served.ttft_s[half:]))
        growing.append(late > 2 * early)
        out = {}
        for name in ("ttft_s", "tpot_s", "e2e_s"):
            values = getattr(served, name)[skip:]
            stem = name.removesuffix("_s")
            out[f"{stem}_mean_s"] = float(np.nanmean(values))
            out[f"{stem}_p{100 * percentile:g}_s"] = float(np.nanquantile(values, percentile))
        return out | {"role_changes_count": float(served.changes)}

    found = replicate(once, jax.random.key(seed), precision, at_most=64)
    overload = bool(np.mean(growing) > 0.5)
    if json:
        inputs = {
            "workload": workload,
            "rate_rps": rate_rps,
            "prefill_instances": prefill,
            "decode_instances": decode,
            "standby_instances": standby,
            "slots_count": slots,
            "policy": policy,
            "base_s": law_s[0],
            "per_sequence_s": law_s[1],
            "chunk_tokens": chunk,
            "percentile": percentile,
            "precision_frac": precision,
            "seed": seed,
            "requests_count": count,
        }
        print(
            render.as_json(
                "simulate",
                inputs,
                {name: e._asdict() for name, e in found.items()} | {"flags": int(Flag.OVERLOAD) if overload else 0},
            )
        )
    else:
        rows = [[name, e.value, e.low, e.high, e.samples] for name, e in found.items()]
        size = f"{prefill} prefill + {decode} decode" + (f" + {standby} standby" if standby else "")
        title = f"{workload} at {rate_rps:.4g} req/s on {size}, {policy}" + ("; waits keep growing" if overload else "")
        render.print_table(title, ["metric", "value", "95% low", "95% high", "samples"], rows)
    return int(overload)


def _python(signal, flow, workload, rate_rps, prefill, decode, standby, slots, law_s, chunk, count, seed) -> str:
    return "\n".join(
        [
            "import jax",
            "import numpy as np",
            "from dmodels.catalog import workload",
            "from dmodels.models.latency import StepLaw",
            "from dmodels.sim import arrivals, cluster, lengths",
            "from dmodels.sim.cluster import Signal",
            "",
            f"traffic = workload({workload!r}, {rate_rps})",
            f"when_key, what_key = jax.random.split(jax.random.key({seed}))",
            f"when = arrivals.gamma(when_key, float(traffic.rate_rps), float(traffic.arrival_cv), {count})",
            f"long = lengths.draw(what_key, traffic, {count})",
            f"seconds = np.ceil((long.input_tokens - long.cached_tokens).clip(1) / {chunk}) * {sum(law_s)}",
            f"machines = cluster.Workers({prefill}, {decode}, {standby}, StepLaw{law_s}, {slots}, "
            f"kv_blocks={slots}, block_tokens=1 << 40)",
            f"control = cluster.Control(Signal.{signal}, cluster.Flow.{flow}, theta_frag=0.0)",
            "served = cluster.simulate(when, long.input_tokens, long.output_tokens, seconds, machines, control)",
            "print(np.quantile(served.ttft_s, 0.99))",
        ]
    )
