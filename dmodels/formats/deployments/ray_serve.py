"""Ray Serve LLM: a Serve config whose applications build OpenAI-compatible services of vLLM.

Fields: LLMConfig in python/ray/llm of ray-project/ray; a prefill/decode split has a builder of its own. Ray places the
workers of a server over hosts by itself.
"""

from __future__ import annotations

import json
from typing import Any

from dmodels.core.errors import InputError

from ..engines import ENGINES
from ..engines.dialect import split
from ..paths import at, entries
from ..serving import DECODE, PREFILL, Server, ServerPool, Serving
from .documents import count, dump, load
from .machines import gpu_of_ray, machine

_ONE, _SPLIT = "ray.serve.llm:build_openai_app", "ray.serve.llm:build_pd_openai_app"
#: Variables of an application in which a config keeps what it has no field for.
_OWN = {"gpu": "DMODELS_GPU", "pool": "DMODELS_POOL", "threshold": "DMODELS_THRESHOLD_TOKENS"}


def write(serving: Serving) -> dict[str, str]:
    """The Serve config."""
    if serving.engine != "vllm":
        raise InputError(
            f"--deploy ray: Ray Serve LLM runs vllm, not {serving.engine}; accepted with it are lines, compose, "
            "kubernetes, dynamo"
        )
    if serving.split:
        configs = {f"{role}_config": _config(serving, serving.pool(role)) for role in (PREFILL, DECODE)}
        applications = [{"name": serving.name, "import_path": _SPLIT, "route_prefix": "/", "args": configs}]
    else:
        several = len(serving.pools) > 1
        applications = [
            {
                "name": f"{serving.name}-{pool.name}" if several else serving.name,
                "import_path": _ONE,
                "route_prefix": f"/{pool.name}" if several else "/",
                "args": {"llm_configs": [_config(serving, pool)]},
            }
            for pool in serving.pools
        ]
    return {"serve.yaml": dump(serving, [{"applications": applications}])}


def _config(serving: Serving, pool: ServerPool) -> dict[str, Any]:
    own = {"gpu": pool.gpu, "pool": pool.name, "threshold": str(serving.threshold_tokens or "")}
    found: dict[str, Any] = {"model_loading_config": {"model_id": serving.model, "model_source": serving.model}}
    if machine(pool.gpu).ray:
        found["accelerator_type"] = machine(pool.gpu).ray
    flags = {one.flag: one.value for one in ENGINES["vllm"].write(pool.server)} | split(pool.server.others)[0]
    kwargs = {flag.lstrip("-").replace("-", "_"): _value(text) for flag, text in flags.items()}
    scaling: dict[str, Any] = {"min_replicas": pool.replicas, "max_replicas": max(pool.max_replicas, pool.replicas)}
    if pool.target_requests:
        scaling["target_ongoing_requests"] = pool.target_requests
    return found | {
        "engine_kwargs": kwargs,
        "deployment_config": {"autoscaling_config": scaling},
        "runtime_env": {"env_vars": {_OWN[key]: value for key, value in own.items() if value}},
    }


def _value(text: str | None) -> Any:
    """An argument of the command as a keyword of Python: switches are true."""
    if text is None:
        return True
    try:
        return json.loads(text)
    except ValueError:
        return text


def read(text: str, where: str) -> Serving:
    """The configs of the applications in a file."""
    pools, threshold, name = [], None, ""
    for document in (one for found in load(text, where) for one in _configs(found, where)):
        for application in entries(document, "applications") or [{"args": document}]:
            arguments = at(application, "args")
            single = at(arguments, "llm_configs")
            roles = {PREFILL: at(arguments, "prefill_config"), DECODE: at(arguments, "decode_config")}
            configs = [("", one) for one in single] if isinstance(single, list) else list(roles.items())
            for role, config in configs:
                if not isinstance(config, dict):
                    continue
                variables = at(config, "runtime_env", "env_vars")
                own = {key: str(at(variables, variable) or "") for key, variable in _OWN.items()}
                several = role or ("all" if len(configs) == 1 else str(at(config, "model_loading_config", "model_id")))
                pool = _pool(config, role, own, several, where)
                pools.append(pool)
                threshold = count(own["threshold"], "threshold", 1) if own["threshold"] else threshold
                called = str(at(application, "name") or "deployment")
                name = name or (called if role else called.removesuffix(f"-{pool.name}"))
    return Serving(name or "deployment", tuple(pools), threshold)


def _configs(document: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """The configs in a document: itself, or what a KubeRay RayService holds as text."""
    held = at(document, "spec", "serveConfigV2")
    return load(held, f"{where}: spec.serveConfigV2") if isinstance(held, str) else [document]


def _pool(config: dict[str, Any], role: str, own: dict[str, str], called: str, where: str) -> ServerPool:
    model = str(at(config, "model_loading_config", "model_source") or at(config, "model_loading_config", "model_id"))
    kwargs = at(config, "engine_kwargs")
    words = [model]
    for key, value in kwargs.items() if isinstance(kwargs, dict) else ():
        if value is False:
            continue
        text = [] if value is True else [json.dumps(value) if isinstance(value, dict | list) else str(value)]
        words += [f"--{str(key).replace('_', '-')}", *text]
    server = ENGINES["vllm"].server(words)
    server = Server(**{**vars(server), "role": role}) if role else server
    scaling = at(config, "deployment_config", "autoscaling_config")
    least = at(scaling, "min_replicas") if scaling else at(config, "deployment_config", "num_replicas")
    replicas = count(least or 1, f"{where}: min_replicas", 1)
    most = count(at(scaling, "max_replicas") or 0, f"{where}: max_replicas")
    target = count(at(scaling, "target_ongoing_requests") or 0, f"{where}: target_ongoing_requests")
    gpu = own["gpu"] or gpu_of_ray(str(at(config, "accelerator_type") or ""))
    return ServerPool(own["pool"] or called, server, replicas, gpu, most, target)
