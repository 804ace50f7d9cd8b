"""A fleet that runs already, beside the plan: what it can serve within the SLOs, by replays, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import numpy as np

from dmodels.core.answers import Answer
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.hardware import SLO
from dmodels.core.precision import Precision
from dmodels.core.records import float64
from dmodels.fit.points import nearest_model
from dmodels.formats.serving import DECODE, PREFILL, Server, ServerPool, Serving
from dmodels.models.cost import fleet_cost
from dmodels.models.instance import Engine
from dmodels.models.memory import engine_memory
from dmodels.sim.deployments import ServingFleet, ServingPool
from dmodels.sim.recordings import Recording
from dmodels.sim.requests import Served

from .calibration import ModelId, calibrated
from .designs import Instances, Kind, Layout, Stage, cells, schemes
from .ensure import Running, Verdict
from .evaluate import sweep_instances
from .layouts import chosen_gpus, in_precision, instances
from .machines import SAMPLE, pool_of, recording
from .questions import Question
from .replaying import quantile
from .sizing import compressed
from .stretches import borne

#: Growths of the rate between which the most that a fleet serves is looked for, then between two of them again.
_GROWTHS, _CLOSER = 10.0 ** (np.arange(-15, 16) / 5.0), 64
#: How many times as large a split's other pool is where it is to be no limit.
_AMPLE = 8


@dataclass(frozen=True)
class ExistingPool(Answer):
    """One pool of the fleet at the rate asked about, and the most that it serves."""

    name: str
    layout: Layout
    instances: int
    gpus: int
    usd_per_hour: float
    share_frac: float  # of the requests
    serves_rps: float  # of its own requests, within the SLOs, where a split's other pool is no limit; 0: none
    ttft_s: float  # at the SLO's percentile, at the rate asked about, of a decoder what it adds; inf: queues grow
    tpot_s: float  # nan: it only computes prompts
    ttft_mean_s: float
    tpot_mean_s: float
    decode_count: float  # requests that decode at a time, per server


@dataclass(frozen=True)
class Existing(Answer):
    """The fleet. `serves_rps` counts requests of all pools."""

    derived = ("gpus", "usd_per_hour", "keeps_slo")
    name: str
    engine: str
    pools: tuple[ExistingPool, ...]
    source: str  # of the requests that are replayed
    rate_rps: float  # asked about, less what the model's context refuses
    serves_rps: float
    refused_frac: float  # of the requests asked about: longer than the model's or any server's context

    @property
    def gpus(self) -> int:
        """GPUs of all pools."""
        return sum(pool.gpus for pool in self.pools)

    @property
    def usd_per_hour(self) -> float:
        """Price of all pools."""
        return sum(pool.usd_per_hour for pool in self.pools)

    @property
    def keeps_slo(self) -> bool:
        """Whether the rate asked about is served within the SLOs."""
        return self.serves_rps >= self.rate_rps


@float64
def existing(asked: Question, fleet: Serving) -> Existing:
    """What a fleet that was read (`formats.deployments.read_deployment`) can serve of what is asked about."""
    _same_model(asked, fleet)
    pools = [replace(pool, gpu=_gpu(asked, pool)) for pool in fleet.pools]
    kind, threshold = _kind(fleet)
    stages, ways = schemes([float(threshold)] if threshold else [], kind == Kind.SPLIT)
    stages_of = next([stages[i] for i in way.stages] for way in ways if way.kind == kind)
    if len(stages_of) != len(pools):
        raise InputError(
            f"--from-deployment {fleet.name}: {len(pools)} pools; accepted are one, two with a threshold on tokens, "
            "or a prefill/decode split"
        )
    machines = [_machine(asked, *pair) for pair in zip(_ordered(pools, kind), stages_of, strict=True)]
    context = max((pool.server.max_model_len_tokens or np.inf) for pool in pools)
    taken = asked.admitted
    beyond = np.asarray(taken.workload.weight_frac)[np.asarray(taken.workload.total_tokens) > context].sum()
    refused = taken.refused_frac + (1.0 - taken.refused_frac) * float(beyond)
    requests = recording(asked).sampled(SAMPLE)
    running, rate = _running(asked.slo, machines, kind == Kind.SPLIT), taken.rate_rps
    growth, each = _borne(running, requests, machines)
    seen, lasts_s = _served(running, requests, _counts(machines)), requests.period_s
    found = tuple(_pool(*own, asked.slo, rate, lasts_s) for own in zip(machines, each, seen, strict=True))
    return Existing(fleet.name, fleet.engine, found, requests.source, rate, growth * rate, refused)


def _same_model(asked: Question, fleet: Serving) -> None:
    try:
        name = nearest_model(fleet.model)
    except InputError:
        name = fleet.model
    if name != asked.model_name and fleet.model not in (asked.served_name, asked.checkpoint):
        raise InputError(f"--from-deployment serves {fleet.model}; accepted is a plan of it: --model {name}")


def _gpu(asked: Question, pool: ServerPool) -> str:
    if pool.gpu:
        return pool.gpu
    if len(asked.gpus) == 1:
        return next(iter(asked.gpus))
    raise InputError(f"--from-deployment: pool {pool.name} names no GPU; --gpu NAME (one) adds it")


def _kind(fleet: Serving) -> tuple[Kind, int | None]:
    """How the pools share the requests; two pools without a threshold part at the shorter one's context."""
    if fleet.split:
        return Kind.SPLIT, None
    if len(fleet.pools) < 2:
        return Kind.ONE_POOL, None
    threshold = fleet.threshold_tokens
    contexts = [pool.server.max_model_len_tokens for pool in fleet.pools]
    if threshold is None and None not in contexts and len(set(contexts)) == 2:
        threshold = min(context for context in contexts if context is not None)
    return (Kind.TWO_POOLS, threshold) if threshold else (Kind.ONE_POOL, None)


def _ordered(pools: list[ServerPool], kind: Kind) -> list[ServerPool]:
    if kind == Kind.SPLIT:
        roles = {pool.server.role: pool for pool in pools}
        if set(roles) != {PREFILL, DECODE}:
            raise InputError(f"--from-deployment: roles {', '.join(sorted(roles))}; a split has prefill and decode")
        return [roles[PREFILL], roles[DECODE]]
    return sorted(pools, key=lambda pool: pool.server.max_model_len_tokens or np.inf)


class _Machine(NamedTuple):
    """A pool as the simulators take it."""

    pool: ServerPool
    layout: Layout
    serving: ServingPool
    price: float  # USD/h, of a server
    share_frac: float  # of the requests
    life_s: float  # of a request of an idle fleet
    overloaded: bool  # at the rate asked about


def _machine(asked: Question, pool: ServerPool, stage: Stage) -> _Machine:
    gpus = asked.gpus if pool.gpu in asked.gpus else chosen_gpus([pool.gpu])
    layout, engine = _layout(asked, pool), _engine(asked, pool.server)
    model = in_precision(asked.model, layout)
    model_id = ModelId(asked.model_name, asked.architecture)
    calibration = calibrated(model_id, [model], [layout], gpus, pool.server.engine, own=asked.measured)
    records, taken = instances([model], gpus, [layout], calibration.efficiency), asked.admitted
    memory = engine_memory(pool.server.engine)
    batch = cells(records, taken.workload, compressed(taken.workload), [stage], asked.slo, engine, memory=memory)
    counts = pool.replicas * np.array([[1.0, 1e3]])
    now = sweep_instances(batch, counts, taken.rate_rps, engine)
    one = Instances(model, gpus[pool.gpu], layout.as_parallel, calibration.efficiency(layout))
    return _Machine(
        pool,
        layout,
        pool_of(one, stage, jax.tree.map(lambda leaf: np.asarray(leaf)[0, 0], batch), engine),
        price=float(fleet_cost(1, layout.gpus, float(gpus[pool.gpu].price_usd_per_hour)).usd_per_hour),
        share_frac=float(batch.requests.share_frac[0, 0]),
        life_s=float(now.e2e_s[0, 1]),
        overloaded=bool(now.flags[0, 0] & int(Flag.OVERLOAD)),
    )


def _running(slo: SLO, machines: Sequence[_Machine], in_turn: bool) -> Running:
    fleet = ServingFleet(tuple(one.serving for one in machines), in_turn)
    return Running(fleet, slo, max(one.life_s for one in machines))


def _counts(machines: Sequence[_Machine]) -> list[int]:
    return [one.pool.replicas for one in machines]


def _borne(running: Running, requests: Recording, machines: Sequence[_Machine]) -> tuple[float, list[float]]:
    """Growths of the rate at which replays still keep the SLOs: of all pools together, and of each."""
    if not running.fleet.in_turn:
        each = [_most(_running(running.slo, [one], False), requests, _counts([one])) for one in machines]
        return min(each), each
    counts = _counts(machines)
    ample = [[n if j == k else _AMPLE * n for j, n in enumerate(counts)] for k in range(len(machines))]
    return _most(running, requests, counts), [_most(running, requests, more) for more in ample]


def _most(running: Running, requests: Recording, instances: Sequence[int]) -> float:
    """The largest growth of the rate that so many instances bear, to a hundredth; 0: none."""
    last = borne(running, requests, instances, _GROWTHS) - 1
    if last < 0:
        return 0.0
    closer = np.linspace(_GROWTHS[last], _GROWTHS[min(last + 1, len(_GROWTHS) - 1)], _CLOSER)
    return float(closer[max(borne(running, requests, instances, closer) - 1, 0)])


def _served(running: Running, requests: Recording, counts: Sequence[int]) -> list[Served]:
    """What each pool makes of its requests; of a decoder's time to the first token what it adds to the one before."""
    verdict = Verdict(running, requests)
    served = [verdict.counted(verdict.served(k, counts)) for k in range(len(verdict.own))]
    if not running.fleet.in_turn:
        return served
    first = verdict.counted(verdict.first(counts[0]))
    return [first, served[0]._replace(arrival_s=first.end_s)]


def _pool(machine: _Machine, growth: float, served: Served, slo: SLO, rate_rps: float, lasts_s: float) -> ExistingPool:
    pool, q, tpot_s = machine.pool, float(slo.percentile), served.tpot_s[np.isfinite(served.tpot_s)]
    endless, decodes = machine.overloaded, machine.serving.decodes
    return ExistingPool(
        name=pool.name,
        layout=machine.layout,
        instances=pool.replicas,
        gpus=pool.gpus,
        usd_per_hour=pool.replicas * machine.price,
        share_frac=machine.share_frac,
        serves_rps=growth * rate_rps * machine.share_frac,
        ttft_s=math.inf if endless else quantile(served.ttft_s, q),
        tpot_s=quantile(tpot_s, q) if decodes else math.nan,
        ttft_mean_s=math.inf if endless else _mean(served.ttft_s),
        tpot_mean_s=_mean(tpot_s) if decodes else math.nan,
        decode_count=float((served.end_s - served.first_token_s).sum()) / lasts_s / pool.replicas,
    )


def _mean(seconds: np.ndarray) -> float:
    return float(seconds.mean()) if seconds.size else 0.0


def _layout(asked: Question, pool: ServerPool) -> Layout:
    """The layout of a server. Its weights are the published ones, unless it rounds them or names another checkpoint."""
    x = pool.server
    weights = Precision.FP8 if x.quantization == "fp8" else Precision.AS_PUBLISHED
    if x.model == asked.checkpoint and len(asked.weights) == 1:
        weights = Precision(asked.weights[0])
    kv = Precision(x.kv_dtype) if x.kv_dtype in ("fp8", "bf16") else Precision.AS_PUBLISHED
    return Layout(pool.gpu, x.tp, x.pp, x.dp, x.ep, weights=weights, kv=kv)


def _engine(asked: Question, server: Server) -> Engine:
    """The engine's limits, of one rank; where the file is silent, those asked about."""
    seqs, batched = server.max_num_seqs_count, server.max_num_batched_tokens
    return Engine(
        float(asked.engine.max_num_seqs_count if seqs is None else seqs),
        float(asked.engine.max_num_batched_tokens if batched is None else batched),
    )
