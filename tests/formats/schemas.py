"""The published schemas of what is written, as strict as they come: an unknown field is an error.

Kubernetes' own come from the package kubernetes-validate, Compose's from compose-spec, llm-d's from the folder of
shared formats. Those of custom resources are the fields of their published types that concern a deployment, each with
where it is written down; what they embed of Kubernetes is taken from the former.
"""

from __future__ import annotations

import json
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry, Resource

#: Where the shared formats lie: beside the checkout.
SHARED = next(
    (p for p in (Path(__file__).resolve().parents[n] / "shared" / "formats" for n in (2, 3, 4)) if p.is_dir()),
    Path("/nowhere"),
)
KUBERNETES = "1.37"


def shared(*parts: str) -> Path:
    """A shared file, or a skipped test that says so."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"!!! the folder of shared formats with {'/'.join(parts)} is not there: NOT CHECKED !!!")
    return path


@lru_cache(maxsize=1)
def _kubernetes() -> tuple[Path, Registry]:
    package = pytest.importorskip("kubernetes_validate", reason="!!! kubernetes-validate is missing: NOT CHECKED !!!")
    root = Path(package.__file__).parent / "kubernetes-json-schema"
    folder = next(f for f in root.iterdir() if f.name.startswith(f"v{KUBERNETES}") and f.name.endswith("-strict"))
    text = (folder / "_definitions.json").read_text(encoding="utf-8")
    definitions = Resource.from_contents(json.loads(text))
    return folder, Registry().with_resource("_definitions.json", definitions).crawl()


@cache
def kubernetes(kind: str, version: str) -> Any:
    """The validator of a Kubernetes kind."""
    folder, registry = _kubernetes()
    group = version.split("/")
    short = f"{group[0].split('.')[0]}-{group[1]}" if len(group) > 1 else version
    schema = json.loads((folder / f"{kind.lower()}-{short}.json").read_text(encoding="utf-8"))
    return jsonschema.Draft202012Validator(schema, registry=registry)


@cache
def validator(name: str) -> Any:
    """The validator of one of the resources below."""
    _, registry = _kubernetes()
    return jsonschema.Draft202012Validator(RESOURCES[name](), registry=registry)


def unnamed_container() -> dict[str, Any]:
    """A container whose name the operator states."""
    container = _kubernetes()[1].contents("_definitions.json")["$defs"]["io.k8s.api.core.v1.Container"]
    text = json.dumps({key: value for key, value in container.items() if key != "required"})
    return json.loads(text.replace('"#/$defs/', '"_definitions.json#/$defs/'))


@lru_cache(maxsize=1)
def llm_d() -> Any:
    """The validator of llm-d's values."""
    schema = json.loads(shared("write", "llm-d-modelservice.values.schema.json").read_text(encoding="utf-8"))
    return jsonschema.Draft7Validator(strict(schema))


def strict(schema: Any) -> Any:
    """The schema, in which an object has no fields but those that it lists."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: value if key == "labels" else strict(value) for key, value in schema.items()}
    listed = isinstance(schema.get("properties"), dict) and schema["properties"]
    return (
        made | {"additionalProperties": False} if listed and schema.get("additionalProperties") is not False else made
    )


def fields(required: tuple[str, ...] = (), **known: Any) -> dict[str, Any]:
    return {"type": "object", "properties": known, "required": list(required), "additionalProperties": False}


def embedded(name: str) -> dict[str, Any]:
    return {"$ref": f"_definitions.json#/$defs/io.k8s.{name}"}


TEXT, WHOLE, FLAG = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
COUNT, FROM_ZERO = {"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 0}
TEXTS = {"type": "object", "additionalProperties": TEXT}
ANYTHING = {"type": "object"}
NAMED = embedded("apimachinery.pkg.apis.meta.v1.ObjectMeta")
POD = embedded("api.core.v1.PodSpec")
VARIABLES = {"type": "array", "items": embedded("api.core.v1.EnvVar")}


def resource(version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return fields(
        ("apiVersion", "kind", "metadata", "spec"),
        apiVersion={"const": version},
        kind={"const": kind},
        metadata=NAMED,
        spec=spec,
    )


# pkg/apis/serving/v1alpha2/llm_inference_service_types.go of kserve/kserve
_WORKLOAD = {
    "replicas": FROM_ZERO,
    "scaling": ANYTHING,
    "parallelism": fields(tensor=COUNT, pipeline=COUNT, data=COUNT, dataLocal=COUNT, dataRPCPort=COUNT, expert=FLAG),
    "labels": TEXTS,
    "annotations": TEXTS,
    "template": POD,
    "worker": POD,
    "kvCacheOffloading": fields(("cpuBytesToUse",), cpuBytesToUse=COUNT, evictionPolicy=TEXT, secondaryTiers={}),
}
KSERVE = resource(
    "serving.kserve.io/v1alpha2",
    "LLMInferenceService",
    fields(
        ("model",),
        model=fields(("uri",), uri=TEXT, name=TEXT, lora=ANYTHING),
        storageInitializer=fields(enabled=FLAG),
        router=fields(
            route=fields(http=ANYTHING),
            gateway=fields(refs={"type": "array"}),
            ingress=fields(refs={"type": "array"}),
            scheduler=fields(
                pool=ANYTHING, labels=TEXTS, annotations=TEXTS, template=POD, config=ANYTHING, replicas=WHOLE
            ),
        ),
        prefill=fields(**_WORKLOAD),
        baseRefs={"type": "array", "items": fields(name=TEXT)},
        **_WORKLOAD,
    ),
)

# deploy/operator/api/v1alpha1/{dynamographdeployment,dynamocomponentdeployment}_types.go, common.go of ai-dynamo/dynamo
_AMOUNT = fields(cpu=TEXT, memory=TEXT, gpu=TEXT, gpuType=TEXT, custom=TEXTS)


def _dynamo() -> dict[str, Any]:
    pod = fields(
        mainContainer=unnamed_container(),
        nodeSelector=TEXTS,
        affinity=embedded("api.core.v1.Affinity"),
        tolerations={"type": "array", "items": embedded("api.core.v1.Toleration")},
        volumes={"type": "array", "items": embedded("api.core.v1.Volume")},
        terminationGracePeriodSeconds=WHOLE,
    )
    component = fields(
        annotations=TEXTS,
        labels=TEXTS,
        serviceName=TEXT,
        componentType=TEXT,
        subComponentType=TEXT,
        dynamoNamespace=TEXT,
        globalDynamoNamespace=FLAG,
        resources=fields(requests=_AMOUNT, limits=_AMOUNT, claims={"type": "array"}),
        envs=VARIABLES,
        envFromSecret=TEXT,
        volumeMounts={"type": "array", "items": fields(name=TEXT, mountPoint=TEXT, useAsCompilationCache=FLAG)},
        ingress=ANYTHING,
        modelRef=fields(("name",), name=TEXT, revision=TEXT),
        sharedMemory=fields(disabled=FLAG, size=TEXT),
        extraPodMetadata=fields(annotations=TEXTS, labels=TEXTS),
        extraPodSpec=pod,
        livenessProbe=embedded("api.core.v1.Probe"),
        readinessProbe=embedded("api.core.v1.Probe"),
        replicas=FROM_ZERO,
        multinode=fields(("nodeCount",), nodeCount={"type": "integer", "minimum": 2}),
        scalingAdapter=fields(enabled=FLAG),
        eppConfig=ANYTHING,
        checkpoint=ANYTHING,
    )
    spec = fields(
        annotations=TEXTS,
        labels=TEXTS,
        priorityClassName=TEXT,
        pvcs={"type": "array", "items": fields(create=FLAG, name=TEXT, storageClass=TEXT, size=TEXT)},
        services={"type": "object", "additionalProperties": component, "maxProperties": 25},
        envs=VARIABLES,
        backendFramework={"enum": ["sglang", "vllm", "trtllm"]},
        restart=ANYTHING,
        topologyConstraint=ANYTHING,
        experimental=ANYTHING,
    )
    return resource("nvidia.com/v1alpha1", "DynamoGraphDeployment", spec)


# apis/keda/v1alpha1/scaledobject_types.go of kedacore/keda
KEDA = resource(
    "keda.sh/v1alpha1",
    "ScaledObject",
    fields(
        ("scaleTargetRef", "triggers"),
        scaleTargetRef=fields(("name",), name=TEXT, apiVersion=TEXT, kind=TEXT, envSourceContainerName=TEXT),
        pollingInterval=WHOLE,
        initialCooldownPeriod=WHOLE,
        cooldownPeriod=WHOLE,
        idleReplicaCount=WHOLE,
        minReplicaCount=WHOLE,
        maxReplicaCount=WHOLE,
        advanced=ANYTHING,
        fallback=ANYTHING,
        triggers={
            "type": "array",
            "items": fields(
                ("type", "metadata"),
                type=TEXT,
                name=TEXT,
                useCachedMetrics=FLAG,
                metadata=TEXTS,
                authenticationRef=ANYTHING,
                metricType=TEXT,
            ),
        },
    ),
)

# python/ray/llm/_internal/serve/core/configs/llm_config.py and python/ray/serve/schema.py of ray-project/ray
_ACCELERATORS = (
    "V100 P100 T4 P4 K80 A10G L4 L40S A100 H100 H200 H20 B200 A100-40G A100-80G AMD-Instinct-MI300X-OAM "
    "AMD-Instinct-MI325X-OAM"
)
_LLM_CONFIG = fields(
    ("model_loading_config",),
    runtime_env=ANYTHING,
    model_loading_config=fields(("model_id",), model_id=TEXT, model_source=TEXT, tokenizer_source=TEXT),
    llm_engine={"const": "vLLM"},
    engine_kwargs=ANYTHING,
    accelerator_type={"enum": _ACCELERATORS.split()},
    placement_group_config=ANYTHING,
    lora_config=ANYTHING,
    deployment_config=fields(
        name=TEXT,
        num_replicas={},
        ray_actor_options=ANYTHING,
        max_ongoing_requests=COUNT,
        max_queued_requests=WHOLE,
        user_config={},
        autoscaling_config=fields(
            min_replicas=FROM_ZERO,
            initial_replicas=FROM_ZERO,
            max_replicas=COUNT,
            target_ongoing_requests={"type": "number", "exclusiveMinimum": 0},
        ),
    ),
    experimental_configs=ANYTHING,
    log_engine_metrics=FLAG,
    callback_config=ANYTHING,
)
RAY = fields(
    ("applications",),
    applications={
        "type": "array",
        "items": {
            "allOf": [
                fields(("import_path",), name=TEXT, import_path=TEXT, route_prefix=TEXT, args={}, runtime_env=ANYTHING),
                {
                    "if": {"properties": {"import_path": {"const": "ray.serve.llm:build_pd_openai_app"}}},
                    "then": {
                        "properties": {
                            "args": fields(
                                ("prefill_config", "decode_config"),
                                prefill_config=_LLM_CONFIG,
                                decode_config=_LLM_CONFIG,
                            )
                        }
                    },
                    "else": {
                        "properties": {
                            "import_path": {"const": "ray.serve.llm:build_openai_app"},
                            "args": fields(("llm_configs",), llm_configs={"type": "array", "items": _LLM_CONFIG}),
                        }
                    },
                },
            ]
        },
    },
)

RESOURCES = {
    "LLMInferenceService": lambda: KSERVE,
    "DynamoGraphDeployment": _dynamo,
    "ScaledObject": lambda: KEDA,
    "ray": lambda: RAY,
}


def check(form: str, text: str) -> None:
    """Hold the text of a file against its schema."""
    import yaml

    if form == "compose":
        compose = pytest.importorskip("compose_spec", reason="!!! compose-spec is missing: NOT CHECKED !!!")
        compose.PyCompose.from_yaml(text).validate()
        return
    for document in yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        of = {"llm-d": llm_d, "ray": lambda: validator("ray")}.get(form)
        if of is None:
            kind = document["kind"]
            made = validator(kind) if kind in RESOURCES else kubernetes(kind, document["apiVersion"])
        else:
            made = of()
        error = next(made.iter_errors(document), None)
        assert error is None, f"{form}: {'.'.join(map(str, error.absolute_path))}: {error.message[:200]}"
