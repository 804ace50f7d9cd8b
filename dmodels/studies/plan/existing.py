"""A fleet that runs already, beside the plan: what it can serve within the SLOs, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dmodels.core.answers import Answer
from dmodels.core.errors import InputError
from dmodels.core.precision import Precision
from dmodels.core.records import float64
from dmodels.fit.points import nearest_model
from dmodels.formats.serving import DECODE, PREFILL, Server, ServerPool, Serving
from dmodels.models.cost import fleet_cost
from dmodels.models.instance import Engine, Operating
from dmodels.models.memory import engine_memory

from .calibration import ModelId, calibrated
from .designs import Kind, Layout, Stage, cells, schemes
from .evaluate import COLUMNS, sweep_instances
from .layouts import chosen_gpus, in_precision, instances
from .questions import Question
from .sizing import compressed

#: Growths of the rate between which the most that a fleet serves is looked for, then looked for again.
_GROWTHS = np.geomspace(1e-3, 1e3, COLUMNS)


@dataclass(frozen=True)
class ExistingPool(Answer):
    """One pool of the fleet at the rate asked about, and the most that it serves."""

    name: str
    layout: Layout
    instances: int
    gpus: int
    usd_per_hour: float
    share_frac: float  # of the requests
    serves_rps: float  # of its own requests, within the SLOs; 0: none
    ttft_s: float  # at the SLO's percentile, at the rate asked about; inf: queues grow
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
    tried = [[stages[i] for i in way.stages] for way in ways if way.kind == kind]  # a split: each share of the TTFT
    if len(tried[0]) != len(pools):
        raise InputError(
            f"--from-deployment {fleet.name}: {len(pools)} pools; accepted are one, two with a threshold on tokens, "
            "or a prefill/decode split"
        )
    ordered = _ordered(pools, kind)
    found = [[_pool(asked, pool, stage) for pool, stage in zip(ordered, way, strict=True)] for way in tried]
    best = max(found, key=lambda way: min(pool.serves_rps / max(pool.share_frac, 1e-12) for pool in way))
    context = max((pool.server.max_model_len_tokens or np.inf) for pool in pools)
    taken = asked.admitted
    beyond = np.asarray(taken.workload.weight_frac)[np.asarray(taken.workload.total_tokens) > context].sum()
    refused = taken.refused_frac + (1.0 - taken.refused_frac) * float(beyond)
    serves = min(pool.serves_rps / max(pool.share_frac, 1e-12) for pool in best)
    return Existing(fleet.name, fleet.engine, tuple(best), taken.rate_rps, float(serves), refused)


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


def _pool(asked: Question, pool: ServerPool, stage: Stage) -> ExistingPool:
    gpus = asked.gpus if pool.gpu in asked.gpus else chosen_gpus([pool.gpu])
    layout, engine = _layout(asked, pool), _engine(asked, pool.server)
    model = in_precision(asked.model, layout)
    model_id = ModelId(asked.model_name, asked.architecture)
    calibration = calibrated(model_id, [model], [layout], gpus, pool.server.engine, own=asked.measured)
    records = instances([model], gpus, [layout], calibration.efficiency)
    taken = asked.admitted.workload
    memory = engine_memory(pool.server.engine)
    batch = cells(records, taken, compressed(taken), [stage], asked.slo, engine, memory=memory)

    def at(growths: np.ndarray) -> Operating:
        return sweep_instances(batch, (pool.replicas / growths)[None], asked.admitted.rate_rps, engine)

    def most(growths: np.ndarray) -> tuple[float, float]:
        """The last growth that is served, and the next."""
        kept = np.flatnonzero(np.asarray(at(growths).flags)[0] == 0)
        if not kept.size:
            return 0.0, float(growths[0])
        last = int(kept[-1])
        return float(growths[last]), float(growths[min(last + 1, len(growths) - 1)])

    low, high = most(_GROWTHS)
    low = most(np.linspace(low, high, COLUMNS))[0] if low else 0.0
    now = Operating(*(float(np.asarray(value)[0, 0]) for value in at(np.ones(1))))
    share = float(batch.requests.share_frac[0, 0])
    price = float(gpus[pool.gpu].price_usd_per_hour)
    return ExistingPool(
        name=pool.name,
        layout=layout,
        instances=pool.replicas,
        gpus=pool.gpus,
        usd_per_hour=float(fleet_cost(pool.replicas, layout.gpus, price).usd_per_hour),
        share_frac=share,
        serves_rps=low * asked.admitted.rate_rps * share,
        ttft_s=now.ttft_s,
        tpot_s=float("nan") if stage.role == PREFILL else now.tpot_s,
        ttft_mean_s=now.ttft_mean_s,
        tpot_mean_s=float("nan") if stage.role == PREFILL else now.tpot_mean_s,
        decode_count=now.decode_count,
    )


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
