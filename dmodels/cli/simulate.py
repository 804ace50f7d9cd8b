"""Simulate a fleet, request by request: TTFT, TPOT, E2E and waiting, with confidence intervals.

Without options it plays a bundled workload at a rate that one instance serves. A bundled workload is drawn at random
and replicated until the intervals are narrow; a trace is replayed as it is (or rescaled in time to --rate) and its
intervals come from batches. --short-instances makes a second pool for requests of at most --threshold tokens;
--prefill-instances separates prefill from decode. Exit code 1: the fleet cannot keep up.
With --model and --gpu, or a saved --plan, servers run under their engine's own scheduler and the calibrated step;
--replay puts the log of a real one beside the simulation.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BeforeValidator, Field, model_validator

from dmodels.core.errors import MOST_S, InputError, check_work, unknown
from dmodels.report.text import cell, table

from . import render, simulate_server
from .calls import Code, call
from .command import Form, asks, check_output
from .schema import Degree, FileName, Rate, Seconds, Table, Wait, flag, several

#: --policy of a fleet -> the library's router.
ROUTERS = {
    "round-robin": "ROUND_ROBIN",
    "random": "RANDOM",
    "power-of-two": "POWER_OF_TWO",
    "jsq": "SHORTEST_QUEUE",
    "cache-aware": "DYNAMO",
    "prompt-tokens": "PROMPTS",
}
#: --policy with prefill instances -> (signal that prompts are routed by, who moves standby workers).
CONTROLS = {
    "phasor": ("WORK", "FREENESS"),
    "reactive": ("REQUESTS", "REACTIVE"),
    "freeness": ("WORK", "NONE"),
    "queue-length": ("REQUESTS", "NONE"),
    "token-backlog": ("TOKENS", "NONE"),
    "memory": ("MEMORY", "NONE"),
}
#: --policy with prefill instances under which every instance does both, these with larger chunks.
HYBRID = "taichi"
PREFILL = ("own", "shared", "packed")
#: Without options: a workload at a rate that one instance serves.
WORKLOAD, RATE_RPS = "azure-paper", 1.0
POLICY = (
    "round-robin, random, power-of-two, jsq, cache-aware or prompt-tokens [default: jsq]; with prefill instances "
    "phasor, reactive, freeness, queue-length, token-backlog, memory or taichi, where all instances prefill in chunks "
    "and decode, the others in quarters of --chunk [default: phasor]"
)
Instances = Annotated[int, Field(ge=0, le=100_000)]
Law = Annotated[tuple[Seconds, Wait], BeforeValidator(several)]
Share = Annotated[float, Field(gt=0, lt=1)]


class SimulateAsked(Table):
    """A fleet, what it is sent, and how sure the answer has to be."""

    trace: FileName | None = flag(None, "replay a trace file (Azure, Mooncake, BurstGPT, plain, or an access log)")
    workload: str | None = flag(None, f"a bundled workload [default: {WORKLOAD}]")
    rate_rps: Rate | None = flag(
        None,
        f'arrivals, like "1000 req/s"; default: that of the trace or workload; of neither, {RATE_RPS:g} req/s',
        "--rate",
    )
    instances: Annotated[int, Field(ge=1, le=100_000)] = flag(1, "instances (of the long pool, if there are two)")
    slots: Annotated[int, Field(ge=1, le=100_000)] = flag(16, "sequences that an instance runs at once")
    short_instances: Instances = flag(0, "instances of a pool for short requests")
    short_slots: Annotated[int, Field(ge=1, le=100_000)] = flag(128, "sequences that a short instance runs at once")
    threshold_tokens: Annotated[float, Field(gt=0, allow_inf_nan=False)] = flag(
        8192, "most total tokens of a short request", "--threshold"
    )
    spill_queue_count: Annotated[float, Field(ge=0)] = flag(
        float("inf"), "waiting requests an instance at which short ones go long", "--spill"
    )
    policy: str | None = flag(None, POLICY)
    prefill_instances: Instances = flag(0, "instances that only prefill; the others only decode")
    standby_instances: Instances = flag(0, "instances that phasor and reactive give to either side")
    iteration: Law = flag("8 ms,0.65 ms", "iteration time W,H: without sequences, and more for each")
    chunk_tokens: Degree = flag(512, "prompt tokens that an iteration takes", "--chunk")
    prefill: str = flag("own", "prompts in an iteration: own, shared or packed")
    percentile: Share = flag(0.99, "percentile to report")
    precision_frac: Share = flag(0.05, "half-width to reach, as a share of each value", "--precision")
    requests_count: Annotated[int, Field(ge=1000, le=20_000_000)] | None = flag(
        None, "requests per replication, or of the trace", "--requests"
    )
    steady: bool = flag(False, "of a trace, cut warm-up and end as if its load were steady")
    seed: Annotated[int, Field(ge=0, lt=2**32)] = flag(0, "key of the random numbers")
    server: simulate_server.ServerTable = simulate_server.ServerTable()

    @model_validator(mode="after")
    def _one_mode(self):
        if self.server.asked_for:
            slotted = {
                "slots",
                "iteration",
                "chunk_tokens",
                "prefill",
                "policy",
                "short_instances",
            } & self.model_fields_set
            if slotted or self.disaggregated:
                named = ", ".join(sorted(slotted)) or "prefill_instances"
                raise ValueError(f"{named}: accepted without --model and --plan, whose engine and memory say so")
        policies = (*CONTROLS, HYBRID) if self.disaggregated else tuple(ROUTERS)
        if self.disaggregated and (self.trace or self.short_instances):
            raise ValueError("--prefill-instances: accepted with a bundled --workload and one pool")
        if self.disaggregated and not self.prefill_instances:
            raise ValueError("--standby-instances: accepted with --prefill-instances from 1")
        if self.policy == HYBRID and self.standby_instances:
            raise ValueError("--standby-instances: accepted with --policy taichi is 0, every instance does both")
        if self.trace and self.workload:
            raise ValueError("--trace and --workload: give one of them")
        for name, value, known in (("policy", self.policy, policies), ("prefill", self.prefill, PREFILL)):
            if value is not None and value not in known:
                raise unknown(name, value, known)
        self._affordable()
        return self

    def _affordable(self) -> None:
        """Refuse what does not fit in memory, or what nobody would wait for; times are of one core of 2024."""
        most = max(self.instances * self.slots, self.short_instances * self.short_slots)
        if most > 100_000_000:
            raise ValueError(f"{most:,} slots in all: accepted are up to 100,000,000, like --slots 100")
        instances = self.instances + self.short_instances + self.prefill_instances + self.standby_instances
        if self.disaggregated:
            check_work(f"{instances:,} instances", 0.07 * instances, "5,000 in all")
        elif self.requests_count and not self.trace:
            replicated_s = 5 * (1e-6 + 0.6e-9 * instances)
            fits = f"--requests {int(MOST_S / replicated_s):,}".replace(",", "")
            asked = f"{self.requests_count:,} requests on {instances:,} instances"
            check_work(asked, self.requests_count * replicated_s, fits)

    @property
    def disaggregated(self) -> bool:
        """Whether prefill and decode have instances of their own."""
        return bool(self.prefill_instances or self.standby_instances)

    @property
    def traffic(self) -> str:
        """What arrives, by name."""
        return self.trace or self.workload or WORKLOAD

    @property
    def drawn_rps(self) -> float | None:
        """The rate of a bundled workload; None: its own."""
        return RATE_RPS if self.rate_rps is None and self.workload is None else self.rate_rps

    def workload_call(self) -> Code:
        """The bundled workload."""
        return call("dmodels:catalog.workload", self.traffic, self.drawn_rps, label="workload")

    def fleet(self) -> Code:
        """The library call for pools behind a router."""
        law = call("dmodels.models.latency:StepLaw", *self.iteration)
        how = {
            "chunk_tokens": self.chunk_tokens,
            "prefill": Code(f"dmodels.sim.requests:Prefill.{self.prefill.upper()}"),
        }
        pools = [call("dmodels.sim.fleet:Pool", self.instances, self.slots, law, **how)]
        if self.short_instances:
            short = self.short_instances, self.short_slots, law, self.threshold_tokens
            pools.insert(0, call("dmodels.sim.fleet:Pool", *short, **how))
        key = call("jax:random.key", self.seed)
        router = Code(f"dmodels.sim.fleet:RoutingPolicy.{ROUTERS[self.policy or 'jsq']}")
        same = {"count": self.requests_count, "spill_queue": self.spill_queue_count, "percentile": self.percentile}
        if self.trace:
            read = call("dmodels:read_trace", self.trace)
            replay = "dmodels.sim.replay:replay_trace"
            return call(replay, read, pools, key, router, rate_rps=self.rate_rps, stationary=self.steady, **same)
        target = self.precision_frac
        return call("dmodels.sim.verify:measure", self.workload_call(), pools, key, router, target_frac=target, **same)

    def cluster(self) -> Code:
        """The library call for prefill and decode apart, under Phasor's controller or a baseline."""
        machines = call(
            "dmodels.sim.cluster:Workers",
            prefill=self.prefill_instances,
            decode=self.instances,
            standby=self.standby_instances,
            step=call("dmodels.models.latency:StepLaw", *self.iteration),
            slots=self.slots,
            kv_blocks=self.slots,  # as everywhere in this command memory is counted in slots: a block a sequence
            block_tokens=1 << 40,
        )
        return call(
            "dmodels.sim.cluster:measure",
            self.workload_call(),
            machines,
            self.control(),
            call("jax:random.key", self.seed),
            prefill_iteration_s=sum(self.iteration),
            chunk_tokens=self.chunk_tokens,
            percentile=self.percentile,
            target_frac=self.precision_frac,
            count=self.requests_count,
        )

    def control(self) -> Code:
        """The library call for who routes prompts and moves work."""
        if self.policy == HYBRID:
            chunks = {"chunk_tokens": self.chunk_tokens, "decode_chunk_tokens": max(1, self.chunk_tokens // 4)}
            return call("dmodels.sim.cluster:Hybrid", **chunks)
        signal, flow = CONTROLS[self.policy or "phasor"]
        names = (Code(f"dmodels.sim.cluster:Signal.{signal}"), Code(f"dmodels.sim.cluster:Flow.{flow}"))
        return call("dmodels.sim.cluster:Control", *names, theta_frag=0.0)

    def inputs(self, rate_rps: float) -> dict[str, Any]:
        """What was asked, with what follows from it."""
        sizes = [(self.short_instances, self.short_slots, self.threshold_tokens)] * bool(self.short_instances)
        sizes += [(self.instances, self.slots, None)]
        pools = [{"instances": n, "slots_count": slots, "max_tokens": most} for n, slots, most in sizes]
        return self.model_dump(exclude={"iteration", "server"}) | {
            "workload": None if self.trace else self.traffic,
            "rate_rps": rate_rps,
            "policy": self.policy or ("phasor" if self.disaggregated else "jsq"),
            "pools": pools,
            "decode_instances": self.instances if self.disaggregated else 0,
            "slots_count": self.slots,
            "base_s": self.iteration[0],
            "per_sequence_s": self.iteration[1],
        }


Csv = Annotated[Path | None, typer.Option(help="with --model, --plan or --replay: write every request to this .csv")]


@asks(SimulateAsked)
def command(asked: SimulateAsked, form: Form, out: Csv = None) -> int:
    check_output("out", out, ".csv", ".txt")
    if asked.server.asked_for:
        return simulate_server.answer(asked, form, out)
    if out is not None:
        raise InputError("--out: accepted with --model, --plan or --replay, which know every request")
    if asked.disaggregated:
        made, parts = asked.cluster(), lambda found: {"all": found}
    else:
        made = asked.fleet()
        labels = ["short", "long"] if asked.short_instances else ["all"]
        parts = lambda found: dict(zip(labels, found.pools if asked.trace else found, strict=True))
    rate = lambda found: found.rate_rps if asked.trace else float(asked.workload_call().run().rate_rps)
    return form.give(
        made,
        lambda found: asked.inputs(rate(found)),
        lambda found: _result(asked, found, parts(found)),
        lambda found: _show(asked, parts(found), rate(found)),
        feasible=lambda found: not _overloaded(parts(found)),
        write=lambda found: _cut(asked, found),
    )


def _cut(asked: SimulateAsked, found: Any) -> None:
    """What of a trace does not count is said."""
    if asked.trace and found.cut_count:
        line = f"{found.cut_count:,} of {found.requests_count:,} requests left out as warm-up and end (--steady)"
        print(f"dmodels: {line}", file=sys.stderr)


def _overloaded(parts: dict[str, Any]) -> bool:
    from dmodels.core.flags import Flag

    return any(e.flags & Flag.OVERLOAD for part in parts.values() for e in part.values())


def _result(asked: SimulateAsked, found: Any, parts: dict[str, Any]) -> dict[str, Any]:
    from dmodels.core.flags import Flag

    if asked.disaggregated:
        return parts["all"] | {"flags": int(Flag.OVERLOAD) if _overloaded(parts) else 0}
    cut = {"cut_requests_count": found.cut_count} if asked.trace else {}
    return parts | cut


def _show(asked: SimulateAsked, parts: dict[str, Any], rate_rps: float) -> None:
    rows = [(label, name, e) for label, part in parts.items() for name, e in part.items()]
    columns = {
        "pool": lambda row: row[0],
        "metric": lambda row: row[1],
        "value": lambda row: row[2].value,
        "95% low": lambda row: row[2].low,
        "95% high": lambda row: row[2].high,
        "samples": lambda row: row[2].samples,
        "note": lambda row: ", ".join(_notes(row[2].flags)),
    }
    if asked.disaggregated:
        size = f"{asked.prefill_instances} prefill + {asked.instances} decode"
        size += f" + {asked.standby_instances} standby" if asked.standby_instances else ""
    else:
        size = f"{asked.short_instances} x {asked.short_slots} + " if asked.short_instances else ""
        size += f"{asked.instances} x {asked.slots} slots"
    policy = asked.policy or ("phasor" if asked.disaggregated else "jsq")
    render.show([table(f"{asked.traffic} at {cell(rate_rps)} req/s on {size}, {policy}", rows, columns)])
    for word, meaning in {word: told for row in rows for word, told in _notes(row[2].flags).items()}.items():
        print(f"{word}: {meaning}")


def _notes(flags: int) -> dict[str, str]:
    """What flags mean for an interval: in a word, and in words."""
    from dmodels.core.flags import Flag

    notes = {
        Flag.OVERLOAD: ("overload", "waits keep growing"),
        Flag.NOT_CONVERGED: ("wide", "the interval is not as narrow, or as sure, as asked"),
        Flag.EXTRAPOLATED: ("few", "few values beyond the percentile"),
        Flag.NONFINITE: ("none", "not a number"),
    }
    return dict(told for flag, told in notes.items() if flags & flag)
