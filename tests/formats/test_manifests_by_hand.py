"""Manifests of random fleets as a cluster reads them: what each container is told to start, with how many GPUs, how
often, behind which port. Command lines are read by `tests.audit.launch_lines`, which shares nothing with the package.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from dmodels import catalog
from dmodels.core.errors import InputError
from dmodels.core.hardware import Parallel
from dmodels.core.records import float64
from dmodels.formats.deployments import FORMATS, joined, read_text, write_deployment
from dmodels.formats.deployments.documents import server_of, shell_words
from dmodels.formats.deployments.machines import MACHINES, gpu_of_product, gpu_of_ray, image
from dmodels.formats.engines import ENGINES, command_line, refusals, server_of_words
from dmodels.formats.engines.sglang import read as read_sglang
from dmodels.formats.serving import Server, ServerPool, Serving
from tests.audit.findings import Findings
from tests.audit.launch_lines import PROGRAMS, flags, meaning

FOLDER = Path(__file__).parent
#: GPU -> (label of its nodes as NVIDIA's feature discovery gives it, GPUs of a host, Ray's accelerator type).
GPUS = {
    "h100_sxm": ("NVIDIA-H100-80GB-HBM3", 8, "H100"),
    "h200_nvl": ("NVIDIA-H200-NVL", 4, "H200"),
    "gb200": ("NVIDIA-GB200", 4, None),
    "l40s": ("NVIDIA-L40S", 8, "L40S"),
    "mi300x": (None, 8, "AMD-Instinct-MI300X-OAM"),
    "mi355x": (None, 8, None),
}
AMD = {"mi300x", "mi355x"}
SPLIT = ("prefill", "decode")
#: How the engines call the share of memory and the formats of weights and cache.
NAMES = {
    "vllm": ("--gpu-memory-utilization", "--quantization", "--kv-cache-dtype", {"fp8": "fp8", "bf16": "bfloat16"}),
    "sglang": ("--mem-fraction-static", "--quantization", "--kv-cache-dtype", {"fp8": "fp8_e4m3", "bf16": "bf16"}),
    "trtllm": ("--kv_cache_free_gpu_memory_fraction", "", "", {"fp8": "fp8", "bf16": "bf16"}),
}


def server(rng: np.random.Generator, engine: str, role: str, gpu: str, one_host: bool) -> Server:
    """Any degrees that fit on a host, or on two."""
    pick = lambda *values: values[int(rng.integers(len(values)))]
    room = GPUS[gpu][1] * (1 if one_host else 2)
    while True:
        tp, pp, dp = pick(1, 2, 4, 8), pick(1, 1, 2), pick(1, 1, 2, 4)
        fits = tp * pp * dp <= room and (one_host or tp * pp * dp % GPUS[gpu][1] == 0 or tp * pp * dp <= GPUS[gpu][1])
        if fits and (engine != "trtllm" or 1 in (tp, dp)):
            break
    return Server(
        engine,
        f"org/Model-{rng.integers(99)}B",
        **{"tp": tp, "pp": pp, "dp": dp, "ep": pick(1, tp * dp)},
        quantization="" if engine == "trtllm" else pick("", "fp8"),
        kv_dtype=pick("", "fp8", "bf16"),
        max_model_len_tokens=int(rng.integers(1000, 9000)),
        max_num_seqs_count=int(rng.integers(10, 99)),
        max_num_batched_tokens=int(rng.integers(100, 999)),
        memory_frac=pick(None, 0.85),
        role=role,
        others=pick((), ("--chat_template" if engine == "trtllm" else "--chat-template", "/a $b/c's.jinja")),
    )


def fleet(rng: np.random.Generator, engine: str, kind: str, gpus: list[str], one_host: bool) -> Serving:
    """One pool, two by length, or prefill and decode; of one model."""
    roles = {"one": ["serve"], "two": ["serve", "serve"], "split": list(SPLIT)}[kind]
    names = {"one": ["all"], "two": ["short", "long"], "split": list(SPLIT)}[kind]
    pools = []
    for name, role in zip(names, roles, strict=True):
        gpu = gpus[int(rng.integers(len(gpus)))]
        of = server(rng, engine, role, gpu, one_host)
        of = replace(of, model=pools[0].server.model) if pools else of
        replicas = int(rng.integers(1, 5))
        pools.append(ServerPool(name, of, replicas, gpu, replicas + int(rng.integers(1, 9)), int(rng.integers(1, 99))))
    if kind == "two":
        short, long = sorted(p.server.max_model_len_tokens for p in pools)
        long += short == long
        pools = [
            replace(p, server=replace(p.server, max_model_len_tokens=n))
            for p, n in zip(pools, (short, long), strict=True)
        ]
    return Serving("my-model", tuple(pools), int(rng.integers(500, 4000)) if kind == "two" else None)


def told(line: str, of: Server) -> None:
    """A line starts the server: degrees, limits, role, formats, memory."""
    findings = Findings()
    found, said = meaning(line, of.engine, findings), flags(line, of.engine, findings)
    findings.end()
    assert found == {
        "model": of.model,
        "parallel": {"tp": of.tp, "pp": of.pp, "dp": of.dp},
        "experts": of.ep > 1,
        "role": of.role,
        "context_tokens": of.max_model_len_tokens,
        "seqs_of_a_rank": of.max_num_seqs_count,
        "tokens_of_a_step": of.max_num_batched_tokens,
    }
    for flag, value in zip(of.others[::2], of.others[1::2], strict=True):
        assert said[flag] == value
    share, weights, cache, caches = NAMES[of.engine]
    assert said.get(share) == (None if of.memory_frac is None else f"{of.memory_frac:.2f}")
    if of.engine == "trtllm":
        more = json.loads(said.get("--extra_llm_api_options", "<(echo '{}')")[len("<(echo '") : -2])
        assert more.get("kv_cache_config", {}).get("dtype") == caches.get(of.kv_dtype)
        assert "--enable_chunked_prefill" in said and more.get("enable_attention_dp", False) == (of.dp > 1)
        return
    assert said.get(weights) == (of.quantization or None) and said.get(cache) == caches.get(of.kv_dtype)


def spoken(words: list[str]) -> str:
    """For bash; a file of settings is written in place."""
    return " ".join(word if word.startswith("<(") else shlex.quote(word) for word in words)


def line_of(container: dict[str, Any]) -> str:
    """What a container starts, but for where it listens, which is the port that it names."""
    words = [*container["command"], *container["args"]]
    line = words[2].removeprefix("exec ") if words[:2] == ["bash", "-c"] else shlex.join(words)
    port = container["ports"][0]["containerPort"]
    assert line.endswith(f" --host 0.0.0.0 --port {port}")
    return line.removesuffix(f" --host 0.0.0.0 --port {port}")


def looked_at(container: dict[str, Any], pool: ServerPool) -> None:
    """GPUs, probe, image, and where a connector listens, of a Kubernetes container."""
    resource = "amd.com/gpu" if pool.gpu in AMD else "nvidia.com/gpu"
    gpus = pool.server.tp * pool.server.pp * pool.server.dp
    of_a_host = str(gpus if gpus <= GPUS[pool.gpu][1] else GPUS[pool.gpu][1])
    assert container["resources"] == {"limits": {resource: of_a_host}, "requests": {resource: of_a_host}}
    image = container.get("image", "")
    assert ("rocm" in image) == (pool.gpu in AMD) or not image
    if pool.server.engine == "sglang" and pool.gpu in AMD and image:
        assert image.endswith("mi30x" if pool.gpu == "mi300x" else "mi35x")
    connected = {v["name"] for v in container.get("env", ()) if "SIDE_CHANNEL" in v["name"]}
    assert len(connected) == 2 * (pool.server.engine == "vllm" and pool.server.role in SPLIT)


def on_nodes(pod: dict[str, Any], pool: ServerPool) -> None:
    label = GPUS[pool.gpu][0]
    assert pod.get("nodeSelector") == ({"nvidia.com/gpu.product": label} if label else None)


def kubernetes(files: dict[str, str], of: Serving) -> None:
    """Every pool has a Deployment, the Service that finds its pods, and an autoscaler that finds it."""
    ((file, text),) = files.items()
    by_kind: dict[str, dict[str, Any]] = {}
    for document in yaml.safe_load_all(text):
        by_kind.setdefault(document["kind"], {})[document["metadata"]["name"]] = document
    scalers = by_kind.get("HorizontalPodAutoscaler" if file == "kubernetes.yaml" else "ScaledObject", {})
    assert by_kind["Deployment"].keys() == by_kind["Service"].keys() == {f"my-model-{p.name}" for p in of.pools}
    gauge = {"vllm": "vllm:num_requests_running", "sglang": "sglang:num_running_reqs"}.get(of.engine)
    assert len(scalers) == (len(of.pools) if gauge else 0)
    for pool in of.pools:
        name = f"my-model-{pool.name}"
        spec, service = by_kind["Deployment"][name]["spec"], by_kind["Service"][name]["spec"]
        pod = spec["template"]["spec"]
        assert spec["replicas"] == pool.replicas
        labels = spec["template"]["metadata"]["labels"]
        assert service["selector"] == labels == spec["selector"]["matchLabels"] and pool.name in labels.values()
        (container,), (port,) = pod["containers"], service["ports"]
        assert port["port"] == port["targetPort"] == container["ports"][0]["containerPort"]
        assert container["readinessProbe"]["httpGet"] == {"path": "/health", "port": port["port"]}
        assert container["volumeMounts"][0]["name"] == pod["volumes"][0]["name"]
        told(line_of(container), pool.server)
        looked_at(container, pool)
        on_nodes(pod, pool)
        if gauge:
            scaler = scalers[name]["spec"]
            assert scaler["scaleTargetRef"]["name"] == name
            if file == "kubernetes.yaml":
                (metric,) = (one["pods"] for one in scaler["metrics"])
                least, most = scaler["minReplicas"], scaler["maxReplicas"]
                assert metric["metric"]["name"] == gauge.replace(":", "_")  # as the adapter names it
                target = metric["target"]["averageValue"]
            else:
                (trigger,) = (one["metadata"] for one in scaler["triggers"])
                least, most = scaler["minReplicaCount"], scaler["maxReplicaCount"]
                assert gauge in trigger["query"] and f'pod=~"{name}-' in trigger["query"]
                target = trigger["threshold"]
            assert (least, most, int(target)) == (pool.replicas, pool.max_replicas, pool.target_requests)


def compose(files: dict[str, str], of: Serving) -> None:
    """Over all hosts, every pool has its servers; on one, no GPU and no port is given twice."""
    started = dict.fromkeys((p.name for p in of.pools), 0)
    for file, text in files.items():
        document, taken, ports = yaml.safe_load(text), [], []
        hosts = int(re.search(r"run this file on (\d+) host", text)[1])
        assert len(files) == 1 or re.fullmatch(r"compose-\d\.yaml", file)
        for name, service in document["services"].items():
            (pool,) = (p for p in of.pools if p.name == name.rpartition("-")[0])
            outside, inside = service["ports"][0].split(":")
            words = [word.replace("$$", "$") for word in service["command"]]
            container = {"command": service["entrypoint"], "args": words, "ports": [{"containerPort": int(inside)}]}
            told(line_of(container), pool.server)
            assert ("rocm" in service["image"]) == (pool.gpu in AMD)
            if pool.gpu in AMD:
                numbers = service["environment"]["HIP_VISIBLE_DEVICES"].split(",")
            else:
                (device,) = service["deploy"]["resources"]["reservations"]["devices"]
                numbers = device["device_ids"]
            assert len(numbers) == pool.server.tp * pool.server.pp * pool.server.dp
            taken += [int(number) for number in numbers]
            ports.append(outside)
            started[pool.name] += hosts
            assert max(taken) < GPUS[pool.gpu][1]
        assert sorted(taken) == list(range(len(taken))) and len(set(ports)) == len(ports)
    assert started == {p.name: p.replicas for p in of.pools}


def llm_d(files: dict[str, str], of: Serving) -> None:
    """The chart starts vLLM with the degrees of its `parallelism`; one release a pool, or both roles of a split."""
    documents = [yaml.safe_load(text) for text in files.values()]
    split = of.pools[0].server.role in SPLIT
    assert len(documents) == (1 if split else len(of.pools))
    for pool in of.pools:
        document = documents[0] if split else documents[of.pools.index(pool)]
        part = document["prefill" if pool.server.role == "prefill" else "decode"]
        (container,), degrees = part["containers"], part["parallelism"]
        gpus, host = pool.server.tp * pool.server.pp * pool.server.dp, GPUS[pool.gpu][1]
        assert (part["replicas"], degrees["tensor"], degrees["data"]) == (pool.replicas, pool.server.tp, pool.server.dp)
        assert degrees["workers"] == max(1, gpus // host) and degrees["dataLocal"] == max(
            1, pool.server.dp // degrees["workers"]
        )
        assert document["multinode"] or gpus <= host
        behind = split and pool.server.role == "decode"
        proxy = document["routing"]["proxy"]
        assert proxy["enabled"] == split and document["routing"]["servicePort"] == 8000
        assert container["ports"][0]["containerPort"] == (proxy["targetPort"] if behind else 8000)
        if container["modelCommand"] == "vllmServe":
            words = ["vllm", "serve", document["modelArtifacts"]["name"], *container["args"]]
            words += ["--tensor-parallel-size", str(degrees["tensor"]), "--data-parallel-size", str(degrees["data"])]
            told(shlex.join(words), pool.server)
        else:
            told(line_of(container | {"ports": [{"containerPort": 8000}]}), pool.server)
        looked_at(container, pool)
        label = GPUS[pool.gpu][0]
        assert part.get("acceleratorTypes") == (
            {"labelKey": "nvidia.com/gpu.product", "labelValues": [label]} if label else None
        )
        first = of.pools[-1] if split else pool  # decode comes first
        assert document["accelerator"]["type"] == ("amd" if first.gpu in AMD else "nvidia")
        assert not split or proxy["connector"] == ("sglang" if of.engine == "sglang" else "nixlv2")
        assert split or document["prefill"] == {"create": False}


def kserve(files: dict[str, str], of: Serving) -> None:
    documents = list(yaml.safe_load_all(next(iter(files.values()))))
    split = of.pools[0].server.role in SPLIT
    for k, pool in enumerate(of.pools):
        document = documents[0 if split else k]
        spec = document["spec"]
        part = spec["prefill"] if pool.server.role == "prefill" else spec
        degrees, (container,) = part["parallelism"], part["template"]["containers"]
        assert document["metadata"]["name"] == ("my-model" if split or len(of.pools) == 1 else f"my-model-{pool.name}")
        words = ["vllm", "serve", spec["model"]["name"], *shlex.split(container["env"][0]["value"])]
        known = {"tensor": "--tensor-parallel-size", "pipeline": "--pipeline-parallel-size"}
        known["data"] = "--data-parallel-size"
        words += [word for name, flag in known.items() if name in degrees for word in (flag, str(degrees[name]))]
        words += ["--enable-expert-parallel"] * degrees.get("expert", False)
        told(shlex.join(words), pool.server)
        assert part["replicas"] == pool.replicas and spec["model"]["uri"] == f"hf://{of.pools[0].server.model}"
        hosts = max(1, pool.server.tp * pool.server.pp * pool.server.dp // GPUS[pool.gpu][1])
        assert ("worker" in part) == (hosts > 1)
        assert degrees.get("dataLocal", 1) == (max(1, pool.server.dp // hosts) if pool.server.dp > 1 else 1)
        looked_at(container, pool)
        on_nodes(part["template"], pool)


def dynamo(files: dict[str, str], of: Serving) -> None:
    documents = list(yaml.safe_load_all(next(iter(files.values()))))
    split = of.pools[0].server.role in SPLIT
    assert len(documents) == (1 if split else len(of.pools))
    for k, pool in enumerate(of.pools):
        document, x = documents[0 if split else k], pool.server
        services = document["spec"]["services"]
        assert services["Frontend"]["componentType"] == "frontend" and document["spec"]["backendFramework"] == x.engine
        worker = services[pool.name]
        gpus, host = x.tp * x.pp * x.dp, GPUS[pool.gpu][1]
        assert worker["replicas"] == pool.replicas and worker.get("subComponentType", "serve") == x.role
        assert worker["resources"] == {key: {"gpu": str(min(gpus, host))} for key in ("limits", "requests")}
        assert worker.get("multinode", {}).get("nodeCount", 1) == max(1, gpus // host)
        main = worker["extraPodSpec"]["mainContainer"]
        assert main["command"] == ["python3", "-m", f"dynamo.{x.engine}"]
        assert {"trtllm": "tensorrtllm"}.get(x.engine, x.engine) in main["image"]
        words, other = main["args"], len(x.others)
        if x.role in SPLIT:
            at = len(words) - other - 2
            assert words[at : at + 2] == ["--disaggregation-mode", x.role]
            words = words if x.engine == "sglang" else words[:at] + words[at + 2 :]
        if x.engine == "trtllm":
            words = [*as_trtllm(words[: len(words) - other]), *x.others]
        elif x.engine == "vllm":
            assert words[0] == "--model"
            words = words[1:]
        told(spoken([*PROGRAMS[x.engine], *words]), x)
        on_nodes(worker["extraPodSpec"], pool)


def as_trtllm(words: list[str]) -> list[str]:
    """Dynamo's names of TensorRT-LLM's arguments as those of `trtllm-serve`."""
    theirs = dict(zip(words[::2], words[1::2], strict=True))
    more = json.loads(theirs.pop("--override-engine-args"))
    assert more.pop("enable_chunked_prefill") is True
    names = {"--tensor-parallel-size": "--tp_size", "--pipeline-parallel-size": "--pp_size"}
    names |= {"--expert-parallel-size": "--ep_size", "--max-seq-len": "--max_seq_len"}
    names |= {"--max-batch-size": "--max_batch_size", "--max-num-tokens": "--max_num_tokens"}
    names["--free-gpu-memory-fraction"] = "--kv_cache_free_gpu_memory_fraction"
    found = [theirs.pop("--model"), *(word for flag, value in theirs.items() for word in (names[flag], value))]
    return [*found, "--enable_chunked_prefill", "--extra_llm_api_options", f"<(echo '{json.dumps(more)}')"]


def ray(files: dict[str, str], of: Serving) -> None:
    """Keywords of vLLM's engine are its arguments with underscores; autoscaling between the plan's bounds."""
    applications = yaml.safe_load(next(iter(files.values())))["applications"]
    split = of.pools[0].server.role in SPLIT
    for k, pool in enumerate(of.pools):
        one = applications[0 if split else k]
        arguments = one["args"]
        config = arguments[f"{pool.server.role}_config"] if split else arguments["llm_configs"][0]
        assert one["import_path"] == f"ray.serve.llm:build_{'pd_' if split else ''}openai_app"
        assert one["route_prefix"] == (f"/{pool.name}" if len(applications) > 1 else "/")
        assert len({a["name"] for a in applications}) == len(applications)
        assert config["model_loading_config"]["model_source"] == pool.server.model
        words = []
        for key, value in config["engine_kwargs"].items():
            words.append(f"--{key.replace('_', '-')}")
            word = f"{value:.2f}" if isinstance(value, float) else json.dumps(value, separators=(",", ":"))
            words += [] if value is True else [value if isinstance(value, str) else word]
        told(shlex.join(["vllm", "serve", pool.server.model, *words]), pool.server)
        scaling = config["deployment_config"]["autoscaling_config"]
        bounds = scaling["min_replicas"], scaling["max_replicas"], scaling["target_ongoing_requests"]
        assert bounds == (pool.replicas, pool.max_replicas, pool.target_requests)
        assert config.get("accelerator_type") == GPUS[pool.gpu][2]


def lines(files: dict[str, str], of: Serving) -> None:
    """A line a pool, in order, and how often to start it."""
    text = files["serve.sh"]
    started = [row for row in text.splitlines() if row and not row.startswith("#")]
    for row, pool in zip(started, of.pools, strict=True):
        told(row, pool.server)
        assert f"# {pool.name}: start {pool.replicas} of\n" in text
        gpus = pool.server.tp * pool.server.pp * pool.server.dp
        assert re.search(rf"^# {pool.name}: {pool.replicas} x {gpus} {pool.gpu} ", text, re.M)
    spans = [p for p in of.pools if p.server.tp * p.server.pp * p.server.dp > GPUS[p.gpu][1]]
    assert text.count("# each spans 2 hosts") == len(spans)


READERS = {"kubernetes": kubernetes, "keda": kubernetes, "compose": compose, "llm-d": llm_d, "kserve": kserve}
READERS |= {"dynamo": dynamo, "ray": ray, "lines": lines}
ONE_HOST = ("compose", "kubernetes", "keda")


def cases(form: str) -> list[tuple[str, str]]:
    engines = ["vllm"] if form in ("kserve", "ray") else list(ENGINES)
    found = [(engine, kind) for engine in engines for kind in ("one", "two", "split")]
    return [case for case in found if (form, *case) != ("llm-d", "trtllm", "split")]


@pytest.mark.parametrize("form", FORMATS)
def test_a_cluster_starts_what_was_planned_and_it_is_read_back(form):
    """Written, read by a stranger, and by the package: what runs is the fleet, but for what a format cannot hold."""
    for engine, kind in cases(form):
        for seed in range(4):
            rng = np.random.default_rng([seed, *form.encode(), *engine.encode(), *kind.encode()])
            amd = form != "dynamo" and engine != "trtllm"
            gpus = [gpu for gpu in GPUS if gpu not in AMD or amd]
            of = fleet(rng, engine, kind, gpus, form in ONE_HOST)
            if (form, engine) == ("dynamo", "trtllm"):  # whose workers know other arguments
                of = replace(of, pools=tuple(replace(p, server=replace(p.server, others=())) for p in of.pools))
            files = write_deployment(of, form)
            READERS[form](files, of)
            back = joined([read_text(text, name) for name, text in files.items()])
            scales = form == "ray" or (form in ("kubernetes", "keda") and engine != "trtllm")
            kept = of.pools if scales else [replace(p, max_replicas=0, target_requests=0) for p in of.pools]
            assert sorted(back.pools, key=lambda p: p.name) == sorted(kept, key=lambda p: p.name)
            assert (back.name, back.threshold_tokens) == (of.name, of.threshold_tokens)


#: Spellings of one server, engine by engine: documented synonyms, older flags, thousands, the order of words.
SPELLINGS = {
    "vllm": [
        "vllm serve org/m --tensor-parallel-size 2 --pipeline-parallel-size 4 --data-parallel-size 8 "
        "--max-model-len 8000 --max-num-seqs 64 --max-num-batched-tokens 2048 --quantization fp8 "
        "--gpu-memory-utilization 0.8",
        "vllm serve org/m -tp 2 -pp 4 -dp=8 --max_model_len=8k --max-num-seqs=64 --max-num-batched-tokens 2K -q fp8 "
        "--gpu_memory_utilization .8 --kv-cache-dtype auto",
        "A=1 exec python3 -m vllm.entrypoints.openai.api_server --model org/m --max-num-seqs 9 -tp 2 -pp 4 -dp 8 "
        "--max-model-len 8000 --max-num-seqs 64 --max-num-batched-tokens 2048 -q fp8 --gpu-memory-utilization 0.8",
    ],
    "sglang": [
        "python3 -m sglang.launch_server --model-path org/m --tp-size 16 --pp-size 2 --attn-dp-size 4 --ep-size 16 "
        "--context-length 4096 --max-running-requests 256 --chunked-prefill-size 8192 --mem-fraction-static 0.7",
        "sglang serve --model org/m --tp 16 --pipeline-parallel-size 2 --dp 4 --enable-dp-attention --ep 16 "
        "--context-length 4K --max-running-requests 256 --chunked-prefill-size 8K --mem-fraction-static 0.70",
        "python -m sglang.launch_server --tensor-parallel-size 16 --data-parallel-size 4 --enable-dp-attention "
        "--expert-parallel-size 16 --pp-size 2 --model-path org/m --context-length 4096 --max-running-requests 256 "
        "--chunked-prefill-size 8192 --mem-fraction-static 0.7 --kv-cache-dtype auto --disaggregation-mode null",
    ],
    "trtllm": [
        "trtllm-serve org/m --tp_size 4 --pp_size 2 --ep_size 4 --max_seq_len 4096 --max_batch_size 32 "
        "--max_num_tokens 2048 --kv_cache_free_gpu_memory_fraction 0.6",
        "trtllm-serve serve org/m --tensor_parallel_size 4 --pipeline_parallel_size 2 --moe_expert_parallel_size 4 "
        "--max_seq_len 4K --max_batch_size=32 --max_num_tokens 2048 --free_gpu_memory_fraction 0.6 "
        """--config '{"kv_cache_config": {"dtype": "auto"}}'""",
    ],
}
MEANT = {
    "vllm": Server("vllm", "org/m", 2, 4, 8, 1, "fp8", "", 8000, 64, 2048, 0.8),
    "sglang": Server("sglang", "org/m", 4, 2, 4, 16, "", "", 4096, 64, 2048, 0.7),
    "trtllm": Server("trtllm", "org/m", 4, 2, 1, 4, "", "", 4096, 32, 2048, 0.6),
}


@pytest.mark.parametrize("engine", SPELLINGS)
def test_every_spelling_is_the_same_server(engine):
    for line in SPELLINGS[engine]:
        assert server_of_words(shlex.split(line)) == MEANT[engine], line


@pytest.mark.parametrize("gpus, each, hosts", [(4, 8, 1), (8, 8, 1), (16, 8, 2), (24, 8, 3), (12, 8, 2), (20, 4, 5)])
def test_hosts_of_a_trtllm_server_are_those_that_hold_its_gpus(gpus, each, hosts):
    for line in (f"--tp_size {gpus}", f"--tp_size {gpus // 4} --pp_size 4"):
        read = server_of_words(shlex.split(f"trtllm-serve org/m {line} --gpus_per_node {each}"))
        assert (read.gpus, read.nodes) == (gpus, hosts) and isinstance(read.nodes, int)
    assert server_of_words(shlex.split(f"trtllm-serve org/m --tp_size {gpus}")).nodes == 1


@pytest.mark.parametrize("engine, flag", [("vllm serve", "--max-model-len"), ("trtllm-serve", "--max_seq_len")])
def test_suffixes_of_numbers_are_thousands_or_powers_of_two(engine, flag):
    """As vLLM's help says: 1k is 1,000, 1K is 1,024."""
    for text, tokens in (("2k", 2000), ("2K", 2048), ("3m", 3_000_000), ("1M", 1_048_576), ("1.5k", 1500), ("77", 77)):
        assert server_of_words(shlex.split(f"{engine} org/m {flag} {text}")).max_model_len_tokens == tokens
    for text in ("2g", "k", "1.2345k", "-1k", "0", "inf", "nan"):
        with pytest.raises(InputError, match=f"{flag} is '{text}'; accepted are whole numbers from 1"):
            server_of_words(shlex.split(f"{engine} org/m {flag} {text}"))


def test_what_a_scaler_does_not_say_is_zero():
    """A Deployment whose autoscaler is by CPU, one without, and a Ray configuration of a fixed number."""
    deployment = """apiVersion: apps/v1
kind: Deployment
metadata: {name: chat}
spec:
  replicas: 3
  template: {spec: {containers: [{name: c, image: x, command: [vllm, serve, org/m], args: [-tp, "2"]}]}}
"""
    scaler = "---\nkind: HorizontalPodAutoscaler\nspec: {scaleTargetRef: {name: chat}, maxReplicas: 9}\n"
    for text, most in ((deployment, 0), (deployment + scaler, 9)):
        (pool,) = read_text(text, "it.yaml").pools
        assert (pool.replicas, pool.max_replicas, pool.target_requests, pool.server.tp) == (3, most, 0, 2)
    ray = """applications:
- name: chat
  import_path: ray.serve.llm:build_openai_app
  args: {llm_configs: [{model_loading_config: {model_id: m, model_source: org/m}, deployment_config: {%s}}]}
"""
    for text, told in (("num_replicas: 2", (2, 0, 0)), ("autoscaling_config: {min_replicas: 4}", (4, 0, 0))):
        (pool,) = read_text(ray % text, "it.yaml").pools
        assert (pool.replicas, pool.max_replicas, pool.target_requests) == told


WHOLE = {"compose": "hosts", "ray": "min_replicas"}


@pytest.mark.parametrize("wrong", ["many", "-1", "0.5", "[1]", "true"])
@pytest.mark.parametrize("form", [form for form in FORMATS if form != "lines"])
def test_a_number_of_servers_that_is_none_is_refused(form, wrong):
    """Wherever a format keeps it; in a script it is a remark."""
    rng = np.random.default_rng(1)
    of = fleet(rng, "vllm", "one", ["h100_sxm"], True)
    ((name, text),) = write_deployment(replace(of, pools=(replace(of.pools[0], replicas=2),)), form).items()
    field = WHOLE.get(form, "replicas")
    changed, times = re.subn(rf"(\b{field}: )\d+$", rf"\g<1>{wrong}", text, flags=re.M)
    assert times
    with pytest.raises(InputError, match="accepted are whole numbers from 1"):
        read_text(changed, name)


def test_copies_of_sglang_without_attention_ranks_have_their_own_gpus():
    found = server_of_words("sglang serve --model-path m --tp 2 --dp 4".split())
    assert (found.tp, found.dp, found.gpus) == (2, 4, 8)


@pytest.mark.parametrize("engine", ENGINES)
def test_experts_over_hosts_are_started_on_every_one_of_them(engine):
    """16 GPUs of two hosts: their share of ranks, experts' traffic by role, and a meeting point where one is needed."""
    for role, traffic in (("prefill", "high_throughput"), ("decode", "low_latency"), ("serve", "low_latency")):
        of = Server(engine, "org/m", 1, 1, 16, 16, "", "", 4096, 32, 2048, 0.9, role, nodes=2)
        line, findings = command_line(of), Findings()
        said = flags(line, engine, findings)
        findings.end()
        told(line, of)
        if engine == "vllm":
            assert said["--data-parallel-size-local"] == "8" and said["--all2all-backend"] == f"deepep_{traffic}"
            assert said["--data-parallel-backend"] == "ray" and {"--enable-eplb", "--enable-dbo"} <= said.keys()
        elif engine == "sglang":
            assert (said["--nnodes"], said["--node-rank"], said["--moe-a2a-backend"]) == ("2", "0", "deepep")
            assert said["--dist-init-addr"] and {"--enable-eplb", "--enable-two-batch-overlap"} <= said.keys()
        else:
            assert said["--gpus_per_node"] == "8"
        assert server_of_words(shell_words(line)) == of


def test_clusters_call_gpus_by_their_names():
    """A label holds the family, the form and the memory that the catalogue's name says, and no other family's."""
    families = {name.split("_")[0] for name in MACHINES}
    for name, known in MACHINES.items():
        family, *rest = name.split("_")
        words = set(re.split(r"[^A-Z0-9]+", known.product.upper()))
        if known.product:
            assert family.upper() in words and not words & {f.upper() for f in families - {family}}, name
            assert ("PCIE" in words) == ("pcie" in rest) and ("NVL" in words) == ("nvl" in rest), name
            assert all(word.upper() in words for word in rest if word.endswith("gb")), name
            assert gpu_of_product(known.product) == name
        alike = [other for other, one in MACHINES.items() if one.ray == known.ray]
        assert not known.ray or family.upper() in known.ray.upper().split("-")
        assert gpu_of_ray(known.ray) == (name if known.ray and len(alike) == 1 else "")
        assert (known.vendor == "nvidia") == (not family.startswith("mi"))
        assert known.host_gpus == {"h100_nvl": 2, "h200_nvl": 4, "gb200": 4, "gb300": 4}.get(name, 8)
    assert gpu_of_product("") == gpu_of_product("NVIDIA-Z9") == gpu_of_ray("") == ""
    for engine, word in (("vllm", "vllm"), ("sglang", "sglang"), ("trtllm", "tensorrt-llm")):
        version = json.loads((FOLDER / "arguments.json").read_text(encoding="utf-8"))[engine]["version"]
        assert word in image(engine, "h100_sxm") and version in image(engine, "h100_sxm")
    with pytest.raises(InputError, match="trtllm: does not run on mi300x; accepted there are vllm, sglang"):
        image("trtllm", "mi300x")


@float64
def test_what_an_engine_refuses_by_the_models_shape():
    """Llama 3.1 8B: 32 heads, 32 layers, no experts, 131,072 tokens; Qwen3 30B-A3B has experts."""
    model, sparse = catalog.model("llama-3.1-8b"), catalog.model("qwen3-30b-a3b")
    good = Server("vllm", "m", 4, 2, 2, max_model_len_tokens=8192)
    assert refusals(good, model) == refusals(replace(good, pp=32, tp=32, max_model_len_tokens=131_072), model) == []
    for change, why in (
        ({"tp": 3}, "tp 3 does not divide the model's 32 query heads"),
        ({"pp": 33}, "pp 33 exceeds the model's 32 layers"),
        ({"ep": 8}, "ep 8: the model has no experts"),
        ({"max_model_len_tokens": 131_073}, "a context of 131,073 tokens exceeds the model's 131,072"),
        (
            {"max_num_seqs_count": 9, "max_num_batched_tokens": 8},
            "--max-num-batched-tokens 8 is below --max-num-seqs 9",
        ),
    ):
        assert refusals(replace(good, **change), model) == [why]
    assert refusals(replace(good, ep=8), sparse) == [] == refusals(replace(good, max_num_seqs_count=8192), model)
    assert refusals(replace(good, ep=4), sparse) == ["ep 4: accepted are 1 and all 8 GPUs of a stage"]
    chunk = replace(good, engine="sglang", max_num_batched_tokens=32)
    assert refusals(chunk, model) == [] and refusals(replace(chunk, dp=1), model) == [
        "--chunked-prefill-size 32 is no multiple of a page of 64 tokens"
    ]
    told = refusals(replace(good, engine="trtllm", quantization="fp8"), model)
    assert [why.split()[0] for why in told] == ["no", "it"] and "tp4 with dp2" in told[0] and "4 ranks" not in told[0]
    assert refusals(replace(good, engine="trtllm", dp=1), model) == []


@float64
@pytest.mark.parametrize("engine", ENGINES)
def test_what_an_engine_refuses_by_the_memory_there_is(engine):
    """Up to the context whose blocks fit beside weights and activations, and not one of them more."""
    from dmodels.models.memory import default_sequences, engine_memory, kv_budget_bytes, kv_bytes_per_token

    model, gpu, tp = catalog.model("qwen2.5-14b").replace(max_context_tokens=200_000.0), catalog.gpu("l4"), 2
    batched, share = 2048, None if engine == "sglang" else 0.9
    for seqs in (None, 17):
        of = Server(engine, "m", tp, memory_frac=share, max_num_batched_tokens=batched, max_num_seqs_count=seqs)
        room = float(
            kv_budget_bytes(
                *(model, gpu, Parallel(float(tp), 1.0, 1.0, 1.0), share),
                batched_tokens=float(batched),
                sequences=default_sequences(engine, gpu) if seqs is None else seqs,
                engine=engine_memory(engine),
            )
        )
        most = int(room / (float(kv_bytes_per_token(model)) / tp) // 16 * 16)
        assert 1_000 < most < int(model.max_context_tokens)
        assert refusals(replace(of, max_model_len_tokens=most), model, gpu) == []
        (why,) = refusals(replace(of, max_model_len_tokens=most + 1), model, gpu)
        assert why.startswith(f"a request of {most + 1:,} tokens takes") and why.endswith(f"{room / 2**30:.1f} GiB")
    assert (
        "leave no memory for a cache on a GPU of 22 GiB"
        in refusals(replace(of, tp=1), catalog.model("qwen3-32b"), gpu)[0]
    )


def test_of_a_shells_words_the_first_is_run_and_numbers_below_zero_are_values():
    """What comes after a script are names of it, which may talk of engines too."""
    script = ["bash", "-c", "exec vllm serve org/m --seed -1 --tensor-parallel-size 2", "vllm serve org/other"]
    found = server_of(script, ["run by vllm and sglang"], "f")
    assert (found.model, found.tp, found.others) == ("org/m", 2, ("--seed", "-1"))
    assert server_of(None, script, "f") == server_of(script[:2], script[2:], "f") == server_of(script, None, "f")


@pytest.mark.parametrize("told, experts", [("true", 2), ("false", 1), ("null", 1)])
def test_experts_are_laid_out_where_kserve_says_so(told, experts):
    of = Serving("m", (ServerPool("all", replace(MEANT["vllm"], tp=2, pp=1, dp=1, ep=2), 1, "h100_sxm"),))
    ((name, text),) = write_deployment(of, "kserve").items()
    changed, times = re.subn(r"expert: true", f"expert: {told}", text)
    assert times == 1 and read_text(changed, name).pools[0].server.ep == experts


def test_a_deployment_has_at_most_four_million_characters():
    of = Serving("m", (ServerPool("all", replace(MEANT["vllm"], tp=2, pp=1, dp=1, ep=1), 1, "h100_sxm"),))
    ((name, text),) = write_deployment(of, "kserve").items()
    most = text + "#" * (4_000_000 - len(text))
    assert read_text(most, name) == read_text(text, name)
    with pytest.raises(InputError, match="4,000,001 characters; accepted are deployments up to 4,000,000"):
        read_text(most + "#", name)


@pytest.mark.parametrize("command", [None, ["vllm", "serve", "/mnt/models"]])
def test_a_kserve_service_as_a_person_writes_it(command):
    """Arguments of the container; without a command of its own, degrees of parallelism and the variable count, too."""
    own = {"args": ["--max-model-len", "8192", "--max-num-seqs=64"], "nodeSelector": {}}
    own |= {
        "env": [
            {"name": "A", "value": "--pp 9"},
            {"name": "VLLM_ADDITIONAL_ARGS", "value": "--gpu-memory-utilization 0.8"},
        ]
    }
    pod = {
        "containers": [own | ({"command": command} if command else {})],
        "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L40S"},
    }
    spec = {"model": {"uri": "hf://org/m", "name": "org/m"}, "parallelism": {"tensor": 2, "data": 4}, "template": pod}
    document = {"kind": "LLMInferenceService", "metadata": {"name": "mine"}, "spec": spec | {"replicas": 3}}
    found = read_text(yaml.safe_dump_all([{"kind": "Secret"}, document]), "f")
    (pool,) = found.pools
    assert (found.name, pool.name, pool.replicas, pool.gpu) == ("mine", "mine", 3, "l40s")
    x = pool.server
    assert (x.model, x.max_model_len_tokens, x.max_num_seqs_count, x.role) == (
        command[2] if command else "org/m",
        8192,
        64,
        "serve",
    )
    assert (x.tp, x.dp, x.pp, x.memory_frac) == ((1, 1, 1, None) if command else (2, 4, 1, 0.8))
    document["spec"]["prefill"] = {"template": {"containers": [{}]}, "replicas": 2}
    prefill, decode = read_text(yaml.safe_dump(document), "f").pools
    assert (prefill.name, prefill.replicas, prefill.server.role, prefill.server.tp) == ("prefill", 2, "prefill", 1)
    assert (decode.name, decode.replicas, decode.server.role) == ("decode", 3, "decode")


def bare(value: Any) -> Any:
    """A document without what only this package writes into it."""
    if isinstance(value, dict):
        return {key: bare(one) for key, one in value.items() if "dmodels" not in str(key).lower()}
    return [bare(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("form", ["kubernetes", "keda", "llm-d", "kserve", "dynamo", "ray"])
@pytest.mark.parametrize("split", [False, True])
def test_files_without_notes_of_our_own_tell_the_gpu_by_their_nodes(form, split):
    each = replace(MEANT["vllm"], tp=2, pp=1, dp=1, ep=1, others=())
    roles = SPLIT if split else ("serve",)
    of = Serving("m", tuple(ServerPool(role, replace(each, role=role), 2 + k, "h20") for k, role in enumerate(roles)))
    ((name, text),) = write_deployment(of, form).items()
    found = read_text(yaml.safe_dump_all(map(bare, yaml.safe_load_all(text))), name)
    assert {pool.gpu for pool in found.pools} == {"h20"}
    assert sorted((pool.replicas, pool.server.role) for pool in found.pools) == [
        (2 + k, r) for k, r in enumerate(roles)
    ]
    assert {(pool.server.tp, pool.server.model) for pool in found.pools} == {(2, each.model)}


@pytest.mark.parametrize(
    "text, value", [("8k", 8000), ("8K", 8192), ("2m", 2_000_000), ("2M", 2_097_152), ("1e4", 10_000), (" 7 ", 7)]
)
def test_numbers_as_vllm_reads_them(text, value):
    assert server_of_words(["vllm", "serve", "m", f"--max-model-len={text}"]).max_model_len_tokens == value
    with pytest.raises(InputError, match="accepted are whole numbers from 1"):
        server_of_words(["vllm", "serve", "m", f"--max-model-len={text}x"])


def test_sglangs_limits_are_for_all_ranks_of_attention_and_for_each_copy():
    """`max_running_requests // (dp_size if enable_dp_attention else 1)` in SGLang's tp_worker.py, chunks alike."""
    given = {"--dp-size": "4", "--max-running-requests": "64", "--chunked-prefill-size": "8192"}
    copies, ranks = (read_sglang(given | more) for more in ({}, {"--enable-dp-attention": None}))
    names = ("max_num_seqs_count", "max_num_batched_tokens")
    assert [copies[name] for name in names] == [64, 8192] and [ranks[name] for name in names] == [16, 2048]
