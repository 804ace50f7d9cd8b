"""Deployments, written for the tools that start them and read back as the fleet that runs.

A format is a module with `write(serving)`, {file name: text}, and `read(text, where)`, a `Serving`; `FORMATS` lists it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, cast

from dmodels.core import files
from dmodels.core.errors import InputError, unknown

from ..serving import ROLES, ServerPool, Serving

__all__ = ["FORMATS", "DeploymentFormat", "joined", "read_deployment", "read_text", "write_deployment"]


class DeploymentFormat(NamedTuple):
    """A row of the table of formats."""

    module: str
    title: str
    sign: str  # text that only such a file contains
    writer: str = "write"


#: Name -> format. The first whose sign is in a file reads it.
FORMATS = {
    "llm-d": DeploymentFormat("llmd", "llm-d modelservice: Helm values", "modelArtifacts:"),
    "kserve": DeploymentFormat("kserve", "KServe LLMInferenceService v1alpha2", "kind: LLMInferenceService"),
    "dynamo": DeploymentFormat("dynamo", "NVIDIA DynamoGraphDeployment v1alpha1", "kind: DynamoGraphDeployment"),
    "ray": DeploymentFormat("ray_serve", "Ray Serve LLM config", "model_loading_config"),
    "keda": DeploymentFormat(
        "kubernetes", "Kubernetes Deployment, Service, KEDA ScaledObject", "keda.sh", "write_keda"
    ),
    "kubernetes": DeploymentFormat("kubernetes", "Kubernetes Deployment, Service, HPA", "kind: Deployment"),
    "compose": DeploymentFormat("compose", "Docker Compose", "services:"),
    "lines": DeploymentFormat("lines", "command lines of vllm, sglang, trtllm-serve", ""),
}


def write_deployment(serving: Serving, form: str) -> dict[str, str]:
    """{file name: text} of a deployment in one of `FORMATS`."""
    if form not in FORMATS:
        raise unknown("deployment format", form, FORMATS)
    row = FORMATS[form]
    write = getattr(import_module(f".{row.module}", __name__), row.writer)
    return cast("Callable[[Serving], dict[str, str]]", write)(serving)


def read_deployment(paths: Iterable[str | Path]) -> Serving:
    """What the files of one deployment start; a folder stands for the files in it."""
    found = [f for path in paths for f in (sorted(Path(path).iterdir()) if Path(path).is_dir() else [Path(path)])]
    if not found:
        raise InputError("deployment: no file; accepted are those that `dmodels plan --deploy` writes, and their like")
    return joined([read_text(files.read_text(path), path.name) for path in found])


def read_text(text: str, where: str) -> Serving:
    """What the text of one file starts."""
    row = next(row for row in FORMATS.values() if row.sign in text)
    read = import_module(f".{row.module}", __name__).read
    return cast("Callable[[str, str], Serving]", read)(text, where)


def joined(parts: Iterable[Serving]) -> Serving:
    """The parts of a deployment as one: pools of one name that start the same server add up."""
    whole, *rest = parts
    for part in rest:
        pools = {pool.name: pool for pool in whole.pools}
        for pool in part.pools:
            known = pools.get(pool.name)
            if known is not None and replace(known, replicas=1) != replace(pool, replicas=1):
                raise InputError(f"deployment: two files start different servers called {pool.name}; accepted is one")
            replicas = pool.replicas + (known.replicas if known else 0)
            pools[pool.name] = replace(pool, replicas=replicas)
        threshold = whole.threshold_tokens or part.threshold_tokens
        whole = replace(whole, pools=tuple(pools.values()), threshold_tokens=threshold)
    return replace(whole, pools=tuple(sorted(whole.pools, key=_order)))


def _order(pool: ServerPool) -> tuple[int, float]:
    """Prefill before decode, short before long."""
    return ROLES.index(pool.server.role), pool.server.max_model_len_tokens or math.inf
