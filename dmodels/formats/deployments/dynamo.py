"""NVIDIA Dynamo's DynamoGraphDeployment (nvidia.com/v1alpha1): a graph for each pool, or one with both roles.

Fields: deploy/operator/api/v1alpha1 of ai-dynamo/dynamo. Its workers take the engines' own arguments, those of
TensorRT-LLM under names of Dynamo's (components/src/dynamo/trtllm/backend_args.py).
"""

from __future__ import annotations

import json
from typing import Any

from dmodels.core.errors import InputError

from ..engines import ENGINES
from ..engines.dialect import Flags, dashed, degree, split, stated, without_secrets
from ..engines.trtllm import from_settings, settings
from ..paths import at, entries
from ..serving import DECODE, PREFILL, SERVE, Server, ServerPool, Serving
from .documents import (
    PRODUCT,
    count,
    dump,
    from_annotations,
    gpu_of,
    hosts,
    load,
    node_selector,
    own_annotations,
    shell_words,
    words_of,
)
from .machines import DYNAMO_IMAGES, machine

_MODULES = {"vllm": "dynamo.vllm", "sglang": "dynamo.sglang", "trtllm": "dynamo.trtllm"}


def write(serving: Serving) -> dict[str, str]:
    """The graphs."""
    if serving.split:
        documents = [_graph(serving, list(serving.pools), serving.name)]
    else:
        several = len(serving.pools) > 1
        documents = [
            _graph(serving, [pool], f"{serving.name}-{pool.name}" if several else serving.name)
            for pool in serving.pools
        ]
    return {"dynamographdeployment.yaml": dump(serving, documents)}


def _graph(serving: Serving, pools: list[ServerPool], name: str) -> dict[str, Any]:
    image = DYNAMO_IMAGES[serving.engine]
    services: dict[str, Any] = {
        "Frontend": {"componentType": "frontend", "replicas": 1, "extraPodSpec": {"mainContainer": {"image": image}}}
    }
    for pool in pools:
        services[pool.name] = _worker(pool, image)
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": name, "annotations": own_annotations(serving, *pools)},
        "spec": {"backendFramework": serving.engine, "services": services},
    }


def _worker(pool: ServerPool, image: str) -> dict[str, Any]:
    x, span = pool.server, hosts(pool)
    if machine(pool.gpu).vendor != "nvidia":
        raise InputError(f"--deploy dynamo: its images have no build for {pool.gpu}; accepted there is kubernetes")
    found: dict[str, Any] = {"componentType": "worker"}
    if x.role != SERVE:
        found["subComponentType"] = x.role
    found |= {"envFromSecret": "hf-token", "replicas": pool.replicas}
    each = {"gpu": str(x.gpus // span)}
    found |= {"resources": {"limits": each, "requests": each}, "sharedMemory": {"size": "80Gi"}}
    if span > 1:
        found["multinode"] = {"nodeCount": span}
    main = {"image": image, "command": ["python3", "-m", _MODULES[x.engine]], "args": arguments(x)}
    return found | {"extraPodSpec": {**node_selector(pool), "mainContainer": main}}


def arguments(server: Server) -> list[str]:
    """What Dynamo's worker of an engine takes."""
    x = server
    if x.engine == "trtllm":
        spoken = stated(
            {
                "--model": x.model,
                "--tensor-parallel-size": x.tp * x.dp,
                "--pipeline-parallel-size": degree(x.pp),
                "--expert-parallel-size": degree(x.ep),
                "--max-seq-len": x.max_model_len_tokens,
                "--max-batch-size": x.max_num_seqs_count,
                "--max-num-tokens": x.max_num_batched_tokens,
                "--free-gpu-memory-fraction": x.memory_frac,
                "--override-engine-args": json.dumps({"enable_chunked_prefill": True} | settings(x)),
            }
        )
        words = [word for one in spoken for word in one if word is not None]
    else:
        spoken = [one for one in ENGINES[x.engine].write(x) if one.flag != "--disaggregation-mode"]
        name = "--model" if x.engine == "vllm" else "--model-path"
        words = [name, x.model, *(word for one in spoken for word in one if word is not None)]
    if x.role != SERVE:
        words += ["--disaggregation-mode", x.role]
    return [*words, *x.others]


def read(text: str, where: str) -> Serving:
    """The workers of the graphs in a file."""
    pools, threshold, service = [], None, ""
    for document in load(text, where):
        if at(document, "kind") != "DynamoGraphDeployment":
            continue
        told = at(document, "metadata", "annotations")
        own = from_annotations(told)
        name = str(at(document, "metadata", "name"))
        threshold, service = own["threshold"] or threshold, own["service"] or service or name
        services = at(document, "spec", "services")
        for called, part in services.items() if isinstance(services, dict) else ():
            if at(part, "componentType") in ("frontend", "planner", "epp"):
                continue
            place = f"{where}: {name}.{called}"
            found = _server(part, place)
            if found is None:
                continue
            role = at(part, "subComponentType")
            if role in (PREFILL, DECODE):
                found = Server(**{**vars(found), "role": role})
            gpu = gpu_of(told, str(called), at(part, "extraPodSpec", "nodeSelector", PRODUCT))
            replicas = count(at(part, "replicas") or 1, f"{place}.replicas", 1)
            pools.append(ServerPool(str(called), found, replicas, gpu))
    return Serving(service or "deployment", tuple(pools), threshold)


def _server(part: Any, where: str) -> Server | None:
    main = at(part, "extraPodSpec", "mainContainer")
    words = [*words_of(at(main, "command"), where), *words_of(at(main, "args"), where)]
    if any(" " in word and "dynamo." in word for word in words):
        try:
            words = shell_words(next(word for word in words if "dynamo." in word))
        except ValueError as error:
            raise InputError(f"{where}: {error}") from None
    engine = next((name for name, module in _MODULES.items() if module in words), None)
    if engine is None:
        return None
    words = _expanded(words[words.index(_MODULES[engine]) + 1 :], main, part)
    flags, plain = split(without_secrets(words))
    flags = dashed(flags)
    role = flags.pop("--disaggregation-mode", None)
    role = PREFILL if flags.pop("--is-prefill-worker", "") is None else role
    model = flags.pop("--model", None) or flags.pop("--model-path", None)
    if not model:
        raise InputError(f"{where}: the worker names no model; accepted: --model NAME")
    if engine == "trtllm":
        found = _trtllm(flags)
    else:
        found = ENGINES[engine].read(flags)
    if role in (PREFILL, DECODE):
        found["role"] = role
    left = [word for flag, value in flags.items() for word in (flag, value) if word is not None]
    return Server(engine, model, **found, others=tuple([*plain, *left]))


def _trtllm(flags: dict[str, str | None]) -> dict[str, Any]:
    given = Flags(flags)
    more = given.settings("--override-engine-args")
    return from_settings(
        more,
        whole=given.whole("--tensor-parallel-size", default=1),
        pp=given.whole("--pipeline-parallel-size", default=1),
        ep=given.whole("--expert-parallel-size", default=1),
        max_model_len_tokens=given.whole("--max-seq-len"),
        max_num_seqs_count=given.whole("--max-batch-size"),
        max_num_batched_tokens=given.whole("--max-num-tokens"),
        memory_frac=given.share("--free-gpu-memory-fraction"),
    )


def _expanded(words: list[str], main: Any, part: Any) -> list[str]:
    """Words with the variables that the file itself states: recipes name the model in one."""
    known = {str(at(one, "name")): at(one, "value") for one in [*entries(part, "envs"), *entries(main, "env")]}
    return [str(known.get(word.strip("${}"), word)) if word.startswith("$") else word for word in words]
