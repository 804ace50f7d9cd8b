"""KServe's LLMInferenceService (serving.kserve.io/v1alpha2): a service for each pool, or one with a prefill part.

Fields: pkg/apis/serving/v1alpha2/llm_inference_service_types.go of kserve/kserve. Its presets start vLLM and append
VLLM_ADDITIONAL_ARGS to the command.
"""

from __future__ import annotations

import shlex
from typing import Any

from dmodels.core.errors import InputError

from ..engines import ENGINES
from ..paths import at, entries
from ..serving import DECODE, PREFILL, Server, ServerPool, Serving
from .documents import (
    PRODUCT,
    count,
    dump,
    environment,
    from_annotations,
    gpu_limits,
    gpu_of,
    hosts,
    load,
    node_selector,
    own_annotations,
    server_of,
)

#: The variable whose words the presets append to `vllm serve`.
ARGUMENTS = "VLLM_ADDITIONAL_ARGS"


def write(serving: Serving) -> dict[str, str]:
    """The services."""
    if serving.engine != "vllm":
        raise InputError(
            f"--deploy kserve: its presets start vllm, not {serving.engine}; accepted with it are lines, compose, "
            "kubernetes, dynamo"
        )
    if serving.split:
        spec = _workload(serving.pool(DECODE)) | {"prefill": _workload(serving.pool(PREFILL))}
        documents = [_document(serving, [serving.pool(DECODE), serving.pool(PREFILL)], spec, serving.name)]
    else:
        several = len(serving.pools) > 1
        documents = [
            _document(serving, [pool], _workload(pool), f"{serving.name}-{pool.name}" if several else serving.name)
            for pool in serving.pools
        ]
    return {"llminferenceservice.yaml": dump(serving, documents)}


def _document(serving: Serving, pools: list[ServerPool], spec: dict[str, Any], name: str) -> dict[str, Any]:
    return {
        "apiVersion": "serving.kserve.io/v1alpha2",
        "kind": "LLMInferenceService",
        "metadata": {"name": name, "annotations": own_annotations(serving, *pools)},
        "spec": {
            "model": {"uri": f"hf://{serving.model}", "name": serving.model},
            **spec,
            "router": {"scheduler": {}, "route": {}, "gateway": {}},
        },
    }


def _workload(pool: ServerPool) -> dict[str, Any]:
    x, span = pool.server, hosts(pool)
    parallelism: dict[str, Any] = {"tensor": x.tp}
    parallelism |= {"pipeline": x.pp} if x.pp > 1 else {}
    parallelism |= {"data": x.dp, "dataLocal": max(x.dp // span, 1)} if x.dp > 1 else {}
    parallelism |= {"expert": True} if x.ep > 1 else {}
    own = ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size", "--enable-expert-parallel")
    arguments = [one for one in ENGINES["vllm"].write(x) if one.flag not in own]
    words = [word for one in arguments for word in one if word is not None]
    variables = [{"name": ARGUMENTS, "value": shlex.join([*words, *x.others])}]
    variables += [one for one in environment(x) if one["name"] != "HF_TOKEN"]
    pod = {**node_selector(pool), "containers": [{"name": "main", "env": variables, "resources": gpu_limits(pool)}]}
    found: dict[str, Any] = {"replicas": pool.replicas, "parallelism": parallelism, "template": pod}
    return found | {"worker": pod} if span > 1 else found


def read(text: str, where: str) -> Serving:
    """The pools of the services in a file."""
    pools, threshold, service = [], None, ""
    for document in load(text, where):
        if at(document, "kind") != "LLMInferenceService":
            continue
        spec, name = at(document, "spec"), str(at(document, "metadata", "name"))
        told = at(document, "metadata", "annotations")
        own = from_annotations(told)
        threshold, service = own["threshold"] or threshold, own["service"] or service or name
        model = str(at(spec, "model", "name") or at(spec, "model", "uri") or "")
        split = isinstance(at(spec, "prefill"), dict)
        if split:
            pools.append(_pool(at(spec, "prefill"), PREFILL, model, told, f"{where}: {name}.prefill", PREFILL))
        called = DECODE if split else own["pool"] or name
        pools.append(_pool(spec, called, model, told, f"{where}: {name}", DECODE if split else ""))
    return Serving(service or "deployment", tuple(pools), threshold)


def _pool(part: Any, name: str, model: str, told: Any, where: str, role: str) -> ServerPool:
    one = at(part, "template", "containers", 0)
    more: Any = next((v for v in entries(one, "env") if at(v, "name") == ARGUMENTS), {})
    flags = {"tensor": "--tensor-parallel-size", "pipeline": "--pipeline-parallel-size", "data": "--data-parallel-size"}
    words = ["vllm", "serve", model or "model"]
    for field, flag in flags.items():
        value = at(part, "parallelism", field)
        if value is not None:
            words += [flag, str(count(value, f"{where}.parallelism.{field}", 1))]
    words += ["--enable-expert-parallel"] * (at(part, "parallelism", "expert") is True)
    try:
        words += shlex.split(str(at(more, "value") or ""))
    except ValueError as error:
        raise InputError(f"{where}: {ARGUMENTS}: {error}") from None
    command, args = at(one, "command"), at(one, "args")
    server = server_of(command, args, where, model) if command else server_of(words, args, where)
    if role:
        server = Server(**{**vars(server), "role": role})
    gpu = gpu_of(told, name, at(part, "template", "nodeSelector", PRODUCT))
    return ServerPool(name, server, count(at(part, "replicas") or 1, f"{where}: replicas", 1), gpu)
