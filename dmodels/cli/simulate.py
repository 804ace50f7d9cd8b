"""Simulate a fleet, request by request: TTFT, TPOT, E2E and waiting, with confidence intervals.

A bundled workload is drawn at random and replicated until the intervals are narrow; a trace is replayed as it is (or
rescaled in time to --rate) and its intervals come from batches. --short-instances makes a second pool for requests of
at most --threshold tokens. Exit code 1: the fleet cannot keep up.
"""

from __future__ import annotations

from typing import Annotated

import typer

from dmodels.core.errors import InputError, unknown

from . import render, simulate_cluster
from .options import Json, quantity


def command(
    trace: Annotated[str | None, typer.Option(help="replay a trace file (Azure, Mooncake, BurstGPT or plain)")] = None,
    workload: Annotated[str, typer.Option(help="a bundled workload, if no trace is given")] = "azure-paper",
    rate: Annotated[str | None, typer.Option(help='arrivals, like "1000 req/s"; default: the workload\'s own')] = None,
    instances: Annotated[int, typer.Option(help="instances (of the long pool, if there are two)")] = 1,
    slots: Annotated[int, typer.Option(help="sequences that an instance runs at once")] = 16,
    short_instances: Annotated[int, typer.Option(help="instances of a pool for short requests")] = 0,
    short_slots: Annotated[int, typer.Option(help="sequences that a short instance runs at once")] = 128,
    threshold: Annotated[float, typer.Option(help="most total tokens of a short request")] = 8192,
    spill: Annotated[float, typer.Option(help="waiting requests an instance at which short ones go long")] = float(
        "inf"
    ),
    policy: Annotated[
        str,
        typer.Option(
            help="round-robin, random, power-of-two, jsq or cache-aware; with prefill instances phasor, reactive, "
            "freeness, queue-length, token-backlog or memory"
        ),
    ] = "jsq",
    prefill_instances: Annotated[int, typer.Option(help="instances that only prefill; the others only decode")] = 0,
    standby_instances: Annotated[int, typer.Option(help="instances that phasor and reactive give to either side")] = 0,
    iteration: Annotated[str, typer.Option(help="iteration time W,H: without sequences, and more for each")] = (
        "8 ms,0.65 ms"
    ),
    chunk: Annotated[int, typer.Option(help="prompt tokens that an iteration takes")] = 512,
    prefill: Annotated[str, typer.Option(help="prompts in an iteration: own, shared or packed")] = "own",
    percentile: Annotated[float, typer.Option(help="percentile to report")] = 0.99,
    precision: Annotated[float, typer.Option(help="half-width to reach, as a share of each value")] = 0.05,
    requests: Annotated[int | None, typer.Option(help="requests per replication, or of the trace")] = None,
    seed: Annotated[int, typer.Option(help="key of the random numbers")] = 0,
    json: Json = False,
    show_python: Annotated[
        bool, typer.Option("--show-python", help="print the library call instead of running it")
    ] = False,
) -> int:
    texts = iteration.split(",")
    if len(texts) != 2:
        raise InputError(f"--iteration {iteration!r}: accepted are two times W,H, like '8 ms,0.65 ms'")
    base, step = (quantity("iteration", text, "s") for text in texts)
    rate_rps = None if rate is None else quantity("rate", rate, "req/s")
    for name, value, low, high in (
        ("percentile", percentile, 0, 1),
        ("precision", precision, 0, 1),
        ("threshold", threshold, 0, float("inf")),
        ("instances", instances, 0, float("inf")),
        ("iteration", min(base, step + 1e-300), 0, float("inf")),
    ):
        if not low < value < high:
            raise InputError(f"--{name} {value:g}: accepted are numbers above {low} and below {high:g}")
    if short_instances < 0:
        raise InputError(f"--short-instances {short_instances}: accepted are whole numbers from 0")
    if requests is not None and requests < 1000:
        raise InputError(f"--requests {requests}: accepted are at least 1000, to tell warm-up from steady state")
    if prefill_instances or standby_instances:
        if trace or short_instances:
            raise InputError("--prefill-instances: accepted with a bundled --workload and one pool")
        return simulate_cluster.run(
            policy,
            workload,
            rate_rps,
            prefill_instances,
            instances,
            standby_instances,
            slots,
            (base, step),
            chunk,
            percentile,
            precision,
            requests,
            seed,
            json,
            show_python,
        )
    names = ("round-robin", "random", "power-of-two", "jsq", "cache-aware")
    if policy not in names:
        raise unknown("policy", policy, names)
    if prefill not in ("own", "shared", "packed"):
        raise unknown("prefill", prefill, ("own", "shared", "packed"))
    shape = f"{instances}, {slots}, StepLaw({base:g}, {step:g}), chunk_tokens={chunk}, "
    shape += f"prefill=Prefill.{prefill.upper()}"
    if show_python:
        print(
            _python(
                trace,
                workload,
                rate_rps,
                shape,
                short_instances,
                short_slots,
                threshold,
                spill,
                policy,
                percentile,
                precision,
                requests,
                seed,
            )
        )
        return 0

    import jax

    from dmodels.core.flags import Flag
    from dmodels.models.latency import StepLaw
    from dmodels.sim.fleet import POLICIES, Pool
    from dmodels.sim.requests import Prefill

    law, mode = StepLaw(base, step), Prefill[prefill.upper()]
    pools = [Pool(instances, slots, law, chunk_tokens=chunk, prefill=mode)]
    labels = ["all"]
    if short_instances:
        pools.insert(0, Pool(short_instances, short_slots, law, threshold, chunk, mode))
        labels = ["short", "long"]
    router, key = POLICIES[names.index(policy)], jax.random.key(seed)
    if trace:
        rate_rps, found = _replayed(trace, rate_rps, pools, router, key, spill, percentile, requests)
    else:
        from dmodels.catalog import workload as bundled
        from dmodels.sim.verify import measure

        traffic = bundled(workload, rate_rps)
        rate_rps = float(traffic.rate_rps)
        found = measure(
            traffic, pools, key, router, percentile=percentile, spill_queue=spill, count=requests, target_frac=precision
        )
    if json:
        inputs = {
            "trace": trace,
            "workload": None if trace else workload,
            "rate_rps": rate_rps,
            "pools": [dict(instances=p.instances, slots_count=p.slots, max_tokens=p.max_tokens) for p in pools],
            "policy": policy,
            "base_s": base,
            "per_sequence_s": step,
            "chunk_tokens": chunk,
            "prefill": prefill,
            "spill_queue_count": spill,
            "percentile": percentile,
            "precision_frac": precision,
            "seed": seed,
        }
        parts = zip(labels, found, strict=True)
        result = {label: {name: e._asdict() for name, e in part.items()} for label, part in parts}
        print(render.as_json("simulate", inputs, result))
    else:
        rows = [
            [label, name, e.value, e.low, e.high, e.samples, _note(e.flags)]
            for label, part in zip(labels, found, strict=True)
            for name, e in part.items()
        ]
        size = " + ".join(f"{p.instances} x {p.slots} slots" for p in pools)
        title = f"{trace or workload} at {rate_rps:.4g} req/s on {size}, {policy}"
        render.print_table(title, ["pool", "metric", "value", "95% low", "95% high", "samples", "note"], rows)
    return int(any(e.flags & Flag.OVERLOAD for part in found for e in part.values()))


def _note(flags: int) -> str:
    """What a flag means for an interval."""
    from dmodels.core.flags import Flag

    notes = {
        Flag.OVERLOAD: "waits keep growing",
        Flag.NOT_CONVERGED: "not as narrow, or as sure, as asked",
        Flag.EXTRAPOLATED: "few values beyond the percentile",
        Flag.NONFINITE: "not a number",
    }
    return "; ".join(text for flag, text in notes.items() if flags & flag)


def _replayed(trace, rate_rps, pools, router, key, spill, percentile, requests):
    """The rate and the metrics of a trace's requests, played back."""
    import numpy as np
    import typer

    from dmodels.models.traffic import read_trace
    from dmodels.sim import arrivals, fleet
    from dmodels.sim.verify import trace_metrics

    read = read_trace(trace)
    for notice in read.notices:
        typer.echo(f"dmodels: {read.name}: {notice}", err=True)
    when = arrivals.replay(read.time_s, rate_rps, requests)
    again = np.arange(when.size) % len(read)
    inputs = np.maximum(1, read.input_tokens[again])
    outputs = np.maximum(1, read.output_tokens[again])
    cached = np.minimum(np.broadcast_to(read.cached_tokens, len(read))[again], inputs)
    served = fleet.simulate(when, inputs, outputs, pools, router, key=key, cached_tokens=cached, spill_queue=spill)
    found = [trace_metrics(part, percentile) for part in fleet.by_pool(served, pools)]
    return (when.size - 1) / float(when[-1] - when[0]), found


def _python(
    trace,
    workload,
    rate_rps,
    shape,
    short,
    short_slots,
    threshold,
    spill,
    policy,
    percentile,
    precision,
    requests,
    seed,
) -> str:
    law = shape.split(", ", 2)[2]
    pools = [f"Pool({shape})"]
    if short:
        law, rest = law.split("), ", 1)
        pools.insert(0, f"Pool({short}, {short_slots}, {law}), {threshold:g}, {rest})")
    names = {"jsq": "SHORTEST_QUEUE", "cache-aware": "DYNAMO"}
    router = f"RoutingPolicy.{names.get(policy, policy.upper().replace('-', '_'))}"
    lines = [
        "import jax",
        "from dmodels.sim.fleet import Pool, RoutingPolicy",
        "from dmodels.models.latency import StepLaw",
        "from dmodels.sim.requests import Prefill",
        "",
        f"pools = [{', '.join(pools)}]",
        f"key = jax.random.key({seed})",
    ]
    spilling = f', spill_queue=float("{spill}")' if spill == float("inf") else f", spill_queue={spill:g}"
    if trace:
        lines[1:1] = [
            "from dmodels.models.traffic import read_trace",
            "from dmodels.sim import arrivals, fleet",
            "from dmodels.sim.verify import trace_metrics",
        ]
        lines += [
            f"trace = read_trace({trace!r})",
            f"when = arrivals.replay(trace.time_s, {rate_rps}, {requests})",
            "again = range(len(when)) if len(when) == len(trace) else [i % len(trace) for i in range(len(when))]",
            "served = fleet.simulate(when, trace.input_tokens[again], trace.output_tokens[again], pools,",
            f"                        {router}, key=key{spilling})",
            f"print(trace_metrics(served, {percentile}))",
        ]
    else:
        lines[1:1] = ["from dmodels.catalog import workload", "from dmodels.sim.verify import measure"]
        lines += [
            f"print(measure(workload({workload!r}, {rate_rps}), pools, key, {router}, percentile={percentile},",
            f"              target_frac={precision}, count={requests}{spilling}))",
        ]
    return "\n".join(lines)
