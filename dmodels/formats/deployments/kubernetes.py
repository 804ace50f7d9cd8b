"""Kubernetes: a Deployment, a Service and an autoscaler for each pool (apps/v1, v1, autoscaling/v2; or KEDA's).

The autoscaler holds the requests in flight per server that the plan was computed with, between the plan's servers and
those that it would need with steps at the slow end of their interval.
"""

from __future__ import annotations

from typing import Any

from dmodels.core.errors import InputError

from ..paths import at, entries
from ..serving import ServerPool, Serving
from .documents import (
    PORT,
    PRODUCT,
    container,
    count,
    dump,
    from_annotations,
    gpu_of,
    load,
    node_selector,
    on_one_host,
    own_annotations,
    server_of,
)
from .machines import image

#: Engine -> its gauge of requests in flight.
RUNNING = {"vllm": "vllm:num_requests_running", "sglang": "sglang:num_running_reqs"}
#: Where KEDA asks for it: the address of Prometheus in most installations.
PROMETHEUS = "http://prometheus-server.monitoring.svc:80"


def write(serving: Serving) -> dict[str, str]:
    """Deployments, Services and HorizontalPodAutoscalers; the latter read the gauge through a Prometheus adapter."""
    return {"kubernetes.yaml": dump(serving, _documents(serving, _hpa, "kubernetes"))}


def write_keda(serving: Serving) -> dict[str, str]:
    """Deployments, Services and KEDA ScaledObjects, which ask Prometheus."""
    return {"keda.yaml": dump(serving, _documents(serving, _scaled_object, "keda"))}


def _documents(serving: Serving, autoscaler: Any, form: str) -> list[dict[str, Any]]:
    on_one_host(serving, form)
    found = []
    for pool in serving.pools:
        found += [_deployment(serving, pool), _service(serving, pool)]
        if pool.max_replicas and pool.server.engine in RUNNING:
            found.append(autoscaler(serving, pool))
    return found


def _name(serving: Serving, pool: ServerPool) -> str:
    return f"{serving.name}-{pool.name}"


def _labels(serving: Serving, pool: ServerPool) -> dict[str, str]:
    return {"app.kubernetes.io/name": serving.name, "app.kubernetes.io/component": pool.name}


def _deployment(serving: Serving, pool: ServerPool) -> dict[str, Any]:
    labels = _labels(serving, pool)
    pod = {
        **node_selector(pool),
        "containers": [
            container(serving, pool, "server", image(pool.server.engine, pool.gpu))
            | {"volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}
        ],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": _name(serving, pool), "labels": labels, "annotations": own_annotations(serving, pool)},
        "spec": {
            "replicas": pool.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _service(serving: Serving, pool: ServerPool) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": _name(serving, pool), "labels": _labels(serving, pool)},
        "spec": {
            "selector": _labels(serving, pool),
            "ports": [{"name": "http", "port": PORT, "targetPort": PORT, "protocol": "TCP"}],
        },
    }


def _hpa(serving: Serving, pool: ServerPool) -> dict[str, Any]:
    metric = {"name": RUNNING[pool.server.engine].replace(":", "_")}
    target = {"type": "AverageValue", "averageValue": str(pool.target_requests)}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": _name(serving, pool)},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": _name(serving, pool)},
            "minReplicas": pool.replicas,
            "maxReplicas": pool.max_replicas,
            "metrics": [{"type": "Pods", "pods": {"metric": metric, "target": target}}],
        },
    }


def _scaled_object(serving: Serving, pool: ServerPool) -> dict[str, Any]:
    query = f'sum({RUNNING[pool.server.engine]}{{pod=~"{_name(serving, pool)}-.*"}})'
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": _name(serving, pool)},
        "spec": {
            "scaleTargetRef": {"name": _name(serving, pool)},
            "minReplicaCount": pool.replicas,
            "maxReplicaCount": pool.max_replicas,
            "triggers": [
                {
                    "type": "prometheus",
                    "metadata": {
                        "serverAddress": PROMETHEUS,
                        "query": query,
                        "threshold": str(pool.target_requests),
                    },
                }
            ],
        },
    }


def read(text: str, where: str) -> Serving:
    """The pools of Deployments whose containers start an engine, with the bounds of their autoscalers."""
    documents = load(text, where)
    bounds: dict[str, tuple[int, int]] = {}
    for document in documents:
        spec, name = at(document, "spec"), str(at(document, "spec", "scaleTargetRef", "name"))
        if at(document, "kind") == "HorizontalPodAutoscaler":
            target = at(spec, "metrics", 0, "pods", "target", "averageValue")
            bounds[name] = _bounds(at(spec, "maxReplicas"), target, where)
        elif at(document, "kind") == "ScaledObject":
            target = at(spec, "triggers", 0, "metadata", "threshold")
            bounds[name] = _bounds(at(spec, "maxReplicaCount"), target, where)
    pools, threshold, service = [], None, ""
    for document in documents:
        if at(document, "kind") not in ("Deployment", "StatefulSet"):
            continue
        name, pod = str(at(document, "metadata", "name")), at(document, "spec", "template", "spec")
        told = at(document, "metadata", "annotations")
        own = from_annotations(told)
        server = None
        for one in entries(pod, "containers"):
            try:
                server = server_of(at(one, "command"), at(one, "args"), f"{where}: {name}", image=at(one, "image"))
            except InputError as error:
                if "starts no engine" not in str(error):
                    raise
        if server is None:
            continue
        threshold, service = own["threshold"] or threshold, own["service"] or service
        replicas = count(at(document, "spec", "replicas") or 1, f"{where}: {name}: spec.replicas", 1)
        most, target = bounds.get(name, (0, 0))
        called = own["pool"] or name
        gpu = gpu_of(told, called, at(pod, "nodeSelector", PRODUCT))
        pools.append(ServerPool(called, server, replicas, gpu, most, target))
    return Serving(service or "deployment", tuple(pools), threshold)


def _bounds(most: Any, target: Any, where: str) -> tuple[int, int]:
    return count(most or 0, f"{where}: maxReplicas"), count(target or 0, f"{where}: averageValue")
