"""Deployments pass the published schemas, come back as the fleet that was written, and hold no secret."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from dmodels import catalog
from dmodels.core.errors import InputError
from dmodels.formats.deployments import FORMATS, joined, read_deployment, read_text, write_deployment
from dmodels.formats.deployments.documents import label, shell_words
from dmodels.formats.engines import ENGINES, command_line, server_of_words
from dmodels.formats.engines.dialect import split
from dmodels.formats.serving import Server, ServerPool, Serving

from . import schemas
from .fleets import KINDS, asked, deployment, fleet

MODELS = tuple(catalog.models())
#: What a format cannot deploy, and says so: KServe's presets and Ray Serve LLM start vLLM.
REFUSED = {("kserve", "sglang"), ("kserve", "trtllm"), ("ray", "sglang"), ("ray", "trtllm")}
CASES = [(name, engine, kind) for name in MODELS for engine in ENGINES for kind in KINDS]


def refused(form: str, engine: str, kind: str) -> bool:
    return (form, engine) in REFUSED or (form, engine, kind) == ("llm-d", "trtllm", "prefill/decode split")


def hold(form: str, name: str, engine: str, kind: str) -> int:
    """Write, hold against the schema, read, write again; how many files."""
    of = fleet(engine, name, kind)
    if refused(form, engine, kind):
        with pytest.raises(InputError, match=f"--deploy {form}"):
            write_deployment(of, form)
        return 0
    files = write_deployment(of, form)
    back = joined([read_text(text, where) for where, text in files.items()])
    assert write_deployment(back, form) == files
    assert [(p.name, p.server, p.replicas, p.gpu) for p in back.pools] == [
        (p.name, p.server, p.replicas, p.gpu) for p in of.pools
    ]
    assert back.threshold_tokens == of.threshold_tokens and back.name == of.name
    if form != "lines":
        for text in files.values():
            schemas.check(form, text)
    return len(files)


def test_every_model_engine_and_kind_of_plan_in_one_of_the_formats():
    forms = list(FORMATS)
    written = [hold(forms[i % len(forms)], *case) for i, case in enumerate(CASES)]
    assert len(written) == len(MODELS) * 9 and sum(written) > 500


@pytest.mark.parametrize("form", FORMATS)
def test_each_format_deploys_dense_sparse_and_latent_models(form):
    for name in ("llama-3.1-70b", "qwen3-235b-a22b", "deepseek-v3"):
        for engine in ENGINES:
            for kind in KINDS:
                hold(form, name, engine, kind)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_every_model_engine_and_kind_of_plan_in_every_format(form):
    files = [hold(form, *case) for case in CASES]
    cannot = sum(refused(form, engine, kind) for _, engine, kind in CASES)
    print(f"{form}: {len(CASES) - cannot} deployments in {sum(files)} files, {cannot} refused by name")
    assert files.count(0) == cannot


@pytest.mark.parametrize("form", [form for form in FORMATS if form != "lines"])
def test_the_schemas_refuse_an_unknown_field_and_a_wrong_type(form):
    text = next(iter(write_deployment(fleet("vllm", "llama-3.1-8b", KINDS[0]), form).values()))
    field = "min_replicas" if form == "ray" else "image" if form == "compose" else "replicas"
    with pytest.raises((AssertionError, ValueError)):
        schemas.check(form, text.replace(f"{field}: ", f"{field}s: ", 1))
    wrong = re.sub(rf"{field}: .*", f"{field}: [1]", text, count=1)
    with pytest.raises((AssertionError, ValueError)):
        schemas.check(form, wrong)


def test_samples_of_kserve_pass_its_schema_and_are_read():
    """Files of kserve/kserve; one of them is of a proposal whose fields the released types do not have."""
    gpus = {}
    for path in sorted(schemas.shared("write").glob("kserve-*.yaml")):
        text = path.read_text(encoding="utf-8")
        if "kv-cache-offloading" in path.name:
            with pytest.raises(AssertionError, match="'workload' was unexpected"):
                schemas.check("kserve", text)
            continue
        schemas.check("kserve", text)
        gpus[path.stem] = read_text(text, path.name).gpus
    assert gpus["kserve-inference_default"] == 2 and gpus["kserve-inference_pd_disaggregation"] == 3
    assert gpus["kserve-llm-inference-service-dp-ep-deepseek-r1-gpu-naive"] == 16


def test_samples_of_llm_d_are_read_with_their_roles():
    parts = read_text(schemas.shared("write", "llm-d-values-pd.yaml").read_text(encoding="utf-8"), "values")
    assert {pool.server.role: pool.replicas for pool in parts.pools} == {"prefill": 1, "decode": 1}
    assert parts.model == "facebook/opt-125m" and "--enforce-eager" in parts.pools[0].server.others
    model = "modelArtifacts: {name: org/m, labels: {llm-d.ai/model: chat}}\n"
    decode = "decode: {create: true, containers: [{modelCommand: vllmServe, args: []}]}\n"
    assert read_text(model + decode, "values").name == "chat"  # a stranger's file is called by the chart's own label
    assert read_text(model.replace("llm-d.ai/model", "app") + decode, "values").name == "deployment"


def test_a_recipe_of_dynamo_is_read_with_its_variables():
    """The worker of recipes/llama-3-70b/vllm/disagg-single-node of ai-dynamo/dynamo: a shell line, the model in env."""
    text = """
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: llama3-70b-disagg-sn}
spec:
  backendFramework: vllm
  services:
    Frontend: {componentType: frontend, replicas: 1}
    VllmPrefillWorker:
      componentType: worker
      subComponentType: prefill
      replicas: 2
      resources: {limits: {gpu: "2"}}
      extraPodSpec:
        mainContainer:
          env: [{name: MODEL_PATH, value: RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic}]
          command: [/bin/sh, -c]
          args: ["python3 -m dynamo.vllm --model $MODEL_PATH -tp 2 --is-prefill-worker --block-size 128"]
"""
    (pool,) = read_text(text, "deploy.yaml").pools
    assert (pool.server.model, pool.server.tp, pool.replicas) == ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", 2, 2)
    assert pool.server.role == "prefill" and pool.server.others == ("--block-size", "128")


def test_the_threshold_and_the_roles_are_in_the_files():
    two, apart = (fleet("vllm", "llama-3.1-70b", kind) for kind in KINDS[1:])
    for form in FORMATS:
        assert any("2048" in text for text in write_deployment(two, form).values()), form
        whole = "".join(write_deployment(apart, form).values())
        assert "kv_producer" in whole and "kv_consumer" in whole, form


@pytest.mark.parametrize("form", FORMATS)
def test_no_secret_is_written(form, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_" + "s" * 30)
    for text in write_deployment(fleet("vllm", "llama-3.1-8b", KINDS[0]), form).values():
        assert "hf_s" not in text


SECRET = "sk-0123456789"  # also as hf_...


@pytest.mark.parametrize("form", FORMATS)
def test_a_secret_in_a_file_that_is_read_is_not_written(form):
    """Keys on a command line, and tokens in the environment of a container."""
    line = f"vllm serve org/model --api-key {SECRET} more-{SECRET} --hf_token={SECRET} --tensor-parallel-size 2 --foo 1"
    env = [{"name": "HF_TOKEN", "value": SECRET}, {"name": "VLLM_API_KEY", "value": SECRET}]
    container = {"name": "a", "image": "i", "command": ["bash", "-c"], "args": [line], "env": env}
    manifest = {"kind": "Deployment", "spec": {"replicas": 2, "template": {"spec": {"containers": [container]}}}}
    for text in (line, json.dumps(manifest).replace('"kind": "Deployment"', "kind: Deployment")):
        of = read_text(text, "f")
        assert SECRET not in json.dumps(of.to_dict()) and of.pools[0].server.tp == 2
        assert of.pools[0].server.others == ("--foo", "1")
        of = replace(of, pools=tuple(replace(pool, gpu="h100_sxm") for pool in of.pools))
        for written in write_deployment(of, form).values():
            assert SECRET not in written


def test_hosts_of_compose_hold_every_server_once():
    """5 servers of 4 GPUs and 1 of 8, hosts of 8: four hosts, and no GPU twice."""
    big, small = (Server("vllm", "org/model", tp=n, max_model_len_tokens=n) for n in (8, 4))
    of = Serving("m", (ServerPool("short", small, 5, "h100_sxm"), ServerPool("long", big, 1, "h100_sxm")), 4)
    import yaml

    hosts, servers = 0, 0
    for text in write_deployment(of, "compose").values():
        document = yaml.safe_load(text)
        on = [
            d["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"] for d in document["services"].values()
        ]
        used = [int(number) for numbers in on for number in numbers]
        assert len(used) == len(set(used)) and max(used) < 8
        ports = [d["ports"][0].partition(":")[0] for d in document["services"].values()]
        assert len(ports) == len(set(ports))
        hosts += document["x-dmodels"]["hosts"]
        servers += document["x-dmodels"]["hosts"] * len(on)
    assert (hosts, servers) == (4, 6)


def test_a_server_over_two_hosts_is_refused_where_pods_are_on_one():
    of = fleet("vllm", "llama-3.1-70b", KINDS[0], gpu="gb200")
    for form in ("compose", "kubernetes", "keda"):
        with pytest.raises(InputError, match=r"one server of 8 gb200 spans 2 hosts of 4; accepted are lines, llm-d"):
            write_deployment(of, form)
    values = write_deployment(of, "llm-d")["values.yaml"]
    assert "multinode: true" in values and "workers: 2" in values and "nvidia.com/gpu: '4'" in values
    schemas.check("llm-d", values)


def test_autoscalers_hold_the_planned_load_between_the_plans_servers_and_the_slow_end():
    """Three servers; 96 GPUs at the slow end of the interval for 24 planned: up to twelve."""
    found = deployment(KINDS[0], "llama-3.1-70b", "b200_sxm", "h200_sxm")
    text = write_deployment(fleet("vllm", "llama-3.1-70b", KINDS[0]), "kubernetes")["kubernetes.yaml"]
    assert found.gpus == 24 and "minReplicas: 3" in text and "maxReplicas: 12" in text and "averageValue: '57'" in text


@pytest.mark.parametrize(
    "text, why",
    [
        ("services: [", "not YAML"),
        (
            "kind: Deployment\nspec: {replicas: -1, template: {spec: {containers: [{command: [vllm, serve, m]}]}}}",
            "from 1",
        ),
        ("kind: Deployment\nmetadata: {name: a}", "no server in it"),
        ("nginx -g daemon", "no line starts an engine"),
        (
            "vllm serve org/model --tensor-parallel-size two",
            "--tensor-parallel-size is 'two'; accepted are whole numbers",
        ),
        ("vllm serve org/model --gpu-memory-utilization 90", "accepted are shares above 0 up to 1"),
        ("vllm serve org/model --kv-transfer-config {}x", "accepted is an object in JSON"),
        ("trtllm-serve", "the command names no model"),
    ],
)
def test_a_file_that_is_none_is_one_line(text, why):
    with pytest.raises(InputError, match=re.escape(why)) as error:
        read_text(text, "f")
    assert "\n" not in str(error.value)


def test_several_files_are_one_deployment(tmp_path):
    of = fleet("vllm", "llama-3.1-70b", KINDS[1])
    for name, text in write_deployment(of, "llm-d").items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert len(list(tmp_path.iterdir())) == 2
    assert read_deployment([tmp_path]).pools == tuple(replace(p, max_replicas=0, target_requests=0) for p in of.pools)


def test_the_script_starts_what_it_says(tmp_path):
    """bash itself splits the lines into the words that were meant, the settings in place included."""
    of = fleet("trtllm", "deepseek-v3", KINDS[2])
    line = command_line(of.pools[0].server)
    shown = subprocess.run(
        ["bash", "-c", line.replace("trtllm-serve", "printf '%s\\n'", 1)], capture_output=True, text=True
    )
    words = shown.stdout.splitlines()
    assert words[0] == of.model and "--max_num_tokens" in words and words[-1].startswith("/dev/fd/")
    assert server_of_words(shell_words(line)) == of.pools[0].server


def test_labels_are_dns_names():
    for name in MODELS:
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", label(name)) and len(label(name)) <= 40
    assert label("GLM-4.5 Air!") == "glm-4-5-air" and label("4o") == "m-4o"


# arguments -------------------------------------------------------------------------------------------------------

ARGUMENTS = json.loads(Path(__file__).with_name("arguments.json").read_text(encoding="utf-8"))


def obeys(kind: dict, value: str | None) -> bool:
    if "choices" in kind and value not in kind["choices"]:
        return False
    match kind["type"]:
        case "switch":
            return value is None
        case "int":
            return value is not None and value.isdigit()
        case "float":
            return value is not None and 0.0 < float(value) <= 1.0
        case "json":
            return value is not None and isinstance(json.loads(value.removeprefix("<(echo '").removesuffix("')")), dict)
    return value is not None


@pytest.mark.parametrize("engine", ENGINES)
def test_every_argument_is_in_the_engines_own_table(engine):
    """The tables are taken from the engines' sources, of the versions that the images have."""
    table = ARGUMENTS[engine]["arguments"]
    from dmodels.formats.deployments.machines import IMAGES

    assert ARGUMENTS[engine]["version"] in IMAGES[engine]["nvidia"]
    seen = set()
    for name in MODELS:
        for kind in KINDS:
            for of in fleet(engine, name, kind).pools:
                for kv in ("", "fp8", "bf16"):
                    server = replace(of.server, kv_dtype=kv)
                    flags, plain = split(ENGINES[engine].arguments(server))
                    assert len(plain) == (0 if ENGINES[engine].model_flag else 1)
                    for flag, value in flags.items():
                        assert flag in table and obeys(table[flag], value), (flag, value)
                    seen |= set(flags)
    assert len(seen) >= 8


def test_dynamo_takes_tensorrt_llm_under_its_own_names():
    from dmodels.formats.deployments.dynamo import arguments

    table = ARGUMENTS["dynamo.trtllm"]["arguments"]
    for kind in KINDS:
        for of in fleet("trtllm", "deepseek-v3", kind).pools:
            flags, plain = split(arguments(of.server))
            assert not plain and all(obeys(table[flag], value) for flag, value in flags.items())


@pytest.mark.parametrize("name", ["llama-3.1-70b", "gpt-oss-120b", "deepseek-r1-nvfp4"])
def test_no_line_asks_for_more_context_than_the_model_or_the_memory_has(name):
    from dmodels.core.records import float64
    from dmodels.formats.engines import refusals

    from .fleets import model

    of = fleet("vllm", name, KINDS[0]).pools[0].server
    gpu, context = catalog.gpu("b200_sxm"), int(float(model(name).max_context_tokens))
    assert float64(refusals)(of, model(name), gpu) == []
    beyond = float64(refusals)(replace(of, max_model_len_tokens=context + 1), model(name), gpu)
    assert f"a context of {context + 1:,} tokens exceeds the model's {context:,}" in beyond
    small = float64(refusals)(replace(of, tp=1, dp=1, ep=1), model(name), catalog.gpu("l4"))
    assert any("no memory for a cache" in why for why in small)
    assert shlex.split(command_line(of))[0] == "vllm" and asked("vllm", name).served_name == of.model


@pytest.mark.parametrize("engine", ENGINES)
def test_every_layout_that_a_plan_tries_is_one_that_the_engine_starts(engine):
    """Memory aside, which sizing looks at: heads, experts, layers and the engine's own rules."""
    from dmodels.formats.engines import refusals
    from dmodels.studies.plan.layouts import layouts

    from .fleets import model

    tried = 0
    for name in MODELS:
        for x in layouts(model(name), {"h100_sxm": catalog.gpu("h100_sxm")}, pp=(1, 2), wide_ep=(16,), backend=engine):
            server = Server(engine, "org/model", x.tp, x.pp, x.dp, x.ep, max_num_batched_tokens=8192)
            assert refusals(server, model(name)) == [], (name, x)
            tried += 1
    assert tried > 100
