"""llm-d modelservice: the values of a Helm release. One release serves one pool, or a prefill/decode split.

Schema: values.schema.json of llm-d-incubation/llm-d-modelservice. `vllmServe` writes the model, the port and the
parallelism of vLLM by itself; other engines are a `custom` command.
"""

from __future__ import annotations

from typing import Any

from dmodels.core.errors import InputError

from ..engines import ENGINES
from ..paths import at
from ..serving import DECODE, PREFILL, SERVE, Server, ServerPool, Serving
from .documents import (
    PORT,
    PRODUCT,
    command_and_args,
    count,
    dump,
    environment,
    from_annotations,
    gpu_limits,
    gpu_of,
    hosts,
    load,
    own_annotations,
    server_of,
)
from .machines import image, machine

#: Port of a decoder behind the sidecar that sends prompts to the prefill pool.
BEHIND_PROXY = 8200


def write(serving: Serving) -> dict[str, str]:
    """A values file for each release."""
    if serving.split:
        if serving.engine == "trtllm":
            raise InputError("--deploy llm-d: its proxy splits prefill and decode of vllm and sglang; not of trtllm")
        releases = {"values.yaml": [serving.pool(DECODE), serving.pool(PREFILL)]}
    elif len(serving.pools) == 1:
        releases = {"values.yaml": list(serving.pools)}
    else:
        releases = {f"values-{pool.name}.yaml": [pool] for pool in serving.pools}
    return {name: dump(serving, [_values(serving, pools)]) for name, pools in releases.items()}


def _values(serving: Serving, pools: list[ServerPool]) -> dict[str, Any]:
    first = pools[0]
    labels = {"llm-d.ai/inference-serving": "true", "llm-d.ai/model": serving.name}
    proxy: dict[str, Any] = {"enabled": serving.split}
    if serving.split:
        proxy |= {"targetPort": BEHIND_PROXY, "connector": "sglang" if serving.engine == "sglang" else "nixlv2"}
    return {
        "multinode": any(hosts(pool) > 1 for pool in pools),
        "modelArtifacts": {
            "name": serving.model,
            "uri": f"hf://{serving.model}",
            "authSecretName": "hf-token",
            "labels": labels | own_annotations(serving, *pools),
        },
        "accelerator": {"type": "nvidia" if machine(first.gpu).vendor == "nvidia" else "amd"},
        "routing": {"servicePort": PORT, "proxy": proxy},
        "decode": _role(serving, pools[0]),
        "prefill": _role(serving, pools[1]) if len(pools) > 1 else {"create": False},
    }


def _role(serving: Serving, pool: ServerPool) -> dict[str, Any]:
    x, span = pool.server, hosts(pool)
    parallelism = {"tensor": x.tp, "data": x.dp, "dataLocal": max(x.dp // span, 1), "workers": span}
    found: dict[str, Any] = {"create": True, "replicas": pool.replicas, "parallelism": parallelism}
    product = machine(pool.gpu).product
    if product:
        found["acceleratorTypes"] = {"labelKey": PRODUCT, "labelValues": [product]}
    return found | {"containers": [_container(serving, pool)]}


def _container(serving: Serving, pool: ServerPool) -> dict[str, Any]:
    server = pool.server
    found: dict[str, Any] = {"name": "server", "image": image(server.engine, pool.gpu)}
    if server.engine == "vllm":
        own = ("--tensor-parallel-size", "--data-parallel-size")  # the chart's
        arguments = [one for one in ENGINES["vllm"].write(server) if one.flag not in own]
        words = [word for one in arguments for word in one if word is not None]
        found |= {"modelCommand": "vllmServe", "args": [*words, *server.others]}
    else:
        found |= {"modelCommand": "custom"} | command_and_args(server)
    found["env"] = [one for one in environment(server) if one["name"] != "HF_TOKEN"]  # the chart's authSecretName
    behind = serving.split and server.role == DECODE
    found["ports"] = [{"containerPort": BEHIND_PROXY if behind else PORT, "name": "http", "protocol": "TCP"}]
    if not found["env"]:
        del found["env"]
    return found | {"resources": gpu_limits(pool), "mountModelVolume": True}


def read(text: str, where: str) -> Serving:
    """The pools of a values file."""
    pools, threshold, name = [], None, "deployment"
    for values in load(text, where):
        model = str(at(values, "modelArtifacts", "name") or "")
        labels = at(values, "modelArtifacts", "labels")
        own = from_annotations(labels)
        threshold = own["threshold"] or threshold
        name = own["service"] or str(at(labels, "llm-d.ai/model") or name)
        roles = [role for role in (DECODE, PREFILL) if at(values, role, "create") and at(values, role, "containers")]
        for role in roles:
            part = at(values, role)
            server = _server(part, model, f"{where}: {role}")
            if len(roles) == 1 and server.role == SERVE:
                called = own["pool"] or "all"
            else:
                server, called = Server(**{**vars(server), "role": role}), role
            gpu = gpu_of(labels, called, at(part, "acceleratorTypes", "labelValues", 0))
            replicas = count(at(part, "replicas") or 1, f"{where}: {role}.replicas", 1)
            pools.append(ServerPool(called, server, replicas, gpu))
    return Serving(name, tuple(pools), threshold)


def _server(part: Any, model: str, where: str) -> Server:
    one = at(part, "containers", 0)
    if at(one, "modelCommand") in ("custom", None) and at(one, "command"):
        return server_of(at(one, "command"), at(one, "args"), where, model)
    degrees = {}
    for flag, field in (("--tensor-parallel-size", "tensor"), ("--data-parallel-size", "data")):
        value = at(part, "parallelism", field)
        if value is not None:
            degrees[flag] = str(count(value, f"{where}.parallelism.{field}", 1))
    words = ["vllm", "serve", model or "model"]
    words += [word for flag, value in degrees.items() for word in (flag, value)]
    return server_of(words, at(one, "args"), where)
