"""Deployments of every catalogue model, as a plan would recommend them, without its search."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

from dmodels import catalog
from dmodels.core.records import float64
from dmodels.formats.serving import Serving
from dmodels.models.instance import Engine
from dmodels.studies.plan import Deployment, Kind, Layout, Pool, serving
from dmodels.studies.plan.designs import Stage

ENGINES = ("vllm", "sglang", "trtllm")
KINDS = tuple(Kind)


@cache
def model(name: str):
    return catalog.model(name)


def layout(name: str, gpu: str) -> Layout:
    """Eight GPUs, split as engines split such a model; fewer where its heads want that."""
    of = model(name)
    experts, latent = float(of.n_moe_layers) > 0, float(of.n_mla_layers) > 0
    tp = next(n for n in (8, 4, 2, 1) if float(of.n_q_heads) % n == 0)
    if latent:
        return Layout(gpu, tp=1, dp=8, ep=8)
    return Layout(gpu, tp=tp, ep=tp if experts else 1)


def pool(stage: Stage, of: Layout, instances: int, context: float) -> Pool:
    nothing = dict.fromkeys(Pool.__dataclass_fields__, 0.0)
    known = {"stage": stage, "layout": of, "instances": instances, "longest_tokens": 7000.0, "slots_count": 400.0}
    return Pool(**nothing | known | {"context_tokens": context, "decode_count": 57.3})


def deployment(kind: Kind, name: str, gpu: str, other: str) -> Deployment:
    of, second = layout(name, gpu), layout(name, other)
    stages = {
        Kind.ONE_POOL: [(Stage("all"), of, 3)],
        Kind.TWO_POOLS: [(Stage("short", high_tokens=2048.0), second, 2), (Stage("long", low_tokens=2048.0), of, 5)],
        Kind.SPLIT: [(Stage("prefill", "prefill"), of, 2), (Stage("decode", "decode"), second, 3)],
    }[kind]
    context = float(model(name).max_context_tokens) or float("inf")
    pools = tuple(pool(stage, x, n, context) for stage, x, n in stages)
    return Deployment(kind, str(kind), pools, 40.0, 96.0)


def asked(engine: str, name: str, *gpus: str, checkpoint: str = ""):
    entry = catalog.models()[name]
    return SimpleNamespace(
        backend=engine,
        model_name=name,
        model=model(name),
        served_name=entry["hf_id"],
        checkpoint=checkpoint,
        engine=Engine(256.0, 8192.0),
        gpus={gpu: catalog.gpu(gpu) for gpu in gpus},
    )


@float64
def fleet(engine: str, name: str, kind: Kind, gpu: str = "b200_sxm", other: str = "h200_sxm") -> Serving:
    """A deployment to write; GPUs' memory is not looked at, so that any model is on the same GPUs."""
    return serving(deployment(kind, name, gpu, other), asked(engine, name))
