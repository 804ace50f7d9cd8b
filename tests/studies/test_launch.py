"""Command lines: what a plan computed with, in the words of each engine, and never one that it would refuse."""

from __future__ import annotations

import json
import math
import re
from types import SimpleNamespace

import pytest

from dmodels import catalog
from dmodels.core.errors import InputError
from dmodels.core.precision import Precision
from dmodels.core.records import float64
from dmodels.formats.deployments.documents import shell_words
from dmodels.formats.engines import server_of_words
from dmodels.formats.engines.dialect import split
from dmodels.formats.serving import Server
from dmodels.models.instance import Engine
from dmodels.models.memory import kv_budget_bytes, kv_reserved_bytes
from dmodels.studies.plan import Layout, Pool, command, launch, server
from dmodels.studies.plan.designs import Kind, Stage
from dmodels.studies.plan.launch import serving, why_not

ENGINES = ("vllm", "sglang", "trtllm")
LIMITS = Engine(256.0, 8192.0)


def pool(role="serve", slots=512.0, **layout):
    x = Layout("h100_sxm", **({"tp": 2, "pp": 1, "dp": 1, "ep": 1} | layout))
    nothing = dict.fromkeys(Pool.__dataclass_fields__, 0.0)
    return Pool(
        **nothing
        | {
            "stage": Stage(role, role),
            "layout": x,
            "slots_count": slots,
            "longest_tokens": 9000.0,
            "context_tokens": 131072.0,
        }
    )


def asked(backend, model="qwen3-30b-a3b", checkpoint="", engine=LIMITS):
    return SimpleNamespace(
        backend=backend,
        served_name="org/model",
        engine=engine,
        checkpoint=checkpoint,
        model=catalog.model(model),
        gpus={"h100_sxm": catalog.gpu("h100_sxm")},
    )


def flags(backend, of, **more):
    """{flag: value} of a command line, as a shell splits it."""
    found = split(shell_words(command(of, asked(backend, **more))))[0]
    found.pop("-m", None)  # of python
    return found


def test_the_same_limits_in_three_languages():
    """9,000 tokens are 9,216 in steps of 1,024; of 512 slots on 4 ranks each has 128, below the engine's 256."""
    of = pool(dp=4, tp=2, ep=8)
    assert flags("vllm", of) == {
        "--tensor-parallel-size": "2",
        "--data-parallel-size": "4",
        "--enable-expert-parallel": None,
        "--max-model-len": "9216",
        "--max-num-seqs": "128",
        "--max-num-batched-tokens": "8192",
        "--gpu-memory-utilization": "0.90",
    }
    assert flags("sglang", of) == {  # all ranks together
        "--model-path": "org/model",
        "--tp-size": "8",
        "--attn-dp-size": "4",
        "--ep-size": "8",
        "--context-length": "9216",
        "--max-running-requests": "512",
        "--chunked-prefill-size": "32768",
    }
    told = flags("trtllm", pool(dp=8, tp=1, ep=8, slots=1024.0))
    assert json.loads(told["--extra_llm_api_options"][len("<(echo '") : -2]) == {"enable_attention_dp": True}
    limits = {
        "--tp_size": "8",
        "--ep_size": "8",
        "--max_seq_len": "9216",
        "--max_batch_size": "128",
        "--max_num_tokens": "8192",
        "--enable_chunked_prefill": None,
    }
    assert limits.items() <= told.items()


@pytest.mark.parametrize("backend", ENGINES)
def test_one_gpu_names_no_parallelism_that_it_does_not_have(backend):
    line = command(pool(tp=1), asked(backend, "llama-3.1-8b"))
    assert not re.search(r"#|pipeline|pp.size|data-parallel|dp.size|expert|ep.size|extra_llm|disagg|transfer", line)


@pytest.mark.parametrize("backend", ENGINES)
def test_prefill_and_decode_hand_the_cache_over(backend):
    lines = [command(pool(role), asked(backend)) for role in ("prefill", "decode")]
    assert lines[0] != lines[1] and all("nixl" in line.lower() for line in lines)
    assert [server_of_words(shell_words(line)).role for line in lines] == ["prefill", "decode"]


def test_narrow_weights_and_caches():
    """FP8 is rounded while 16-bit weights load; what is stored in 4 bits needs a checkpoint in 4 bits."""
    eight = pool(weights="fp8", kv="fp8")
    assert "--quantization fp8 --kv-cache-dtype fp8 " in command(eight, asked("vllm"))
    assert "--quantization fp8 --kv-cache-dtype fp8_e4m3 " in command(eight, asked("sglang"))
    assert command(eight, asked("trtllm")).startswith("# trtllm would not start org/model so: ")
    assert '"kv_cache_config": {"dtype": "fp8"}' in command(eight, asked("trtllm", checkpoint="org/model-fp8"))
    assert "--quantization" not in command(eight, asked("vllm", checkpoint="org/model-fp8"))  # it says so itself
    for backend in ENGINES:
        four = pool(weights="fp4")
        assert command(four, asked(backend)).endswith("published in bf16: --checkpoint names one in fp4")
        assert "org/model-fp4" in command(four, asked(backend, checkpoint="org/model-fp4"))
    assert "--quantization" not in command(eight, asked("vllm", "deepseek-v3"))


@pytest.mark.parametrize(
    "backend, of, model, why",
    [
        ("vllm", {"tp": 3}, "llama-3.1-8b", "tp 3 does not divide the model's 32 query heads"),
        ("sglang", {"tp": 4, "ep": 4}, "llama-3.1-8b", "ep 4: the model has no experts"),
        ("vllm", {"tp": 1, "pp": 64}, "llama-3.1-8b", "pp 64 exceeds the model's 32 layers"),
        ("vllm", {"tp": 1}, "llama-3.1-70b", "the weights leave no memory for a cache"),
        ("trtllm", {"tp": 2, "dp": 4, "ep": 8}, "qwen3-30b-a3b", "no tp2 with dp4 there"),
    ],
)
def test_a_line_that_the_engine_refuses_is_a_remark(backend, of, model, why):
    line = command(pool(**of), asked(backend, model))
    assert line.startswith(f"# {backend} would not start org/model so: ") and why in line


def test_the_pool_that_an_engine_refuses_is_named():
    fleet = SimpleNamespace(pools=[pool("prefill", tp=4), pool("decode", tp=3)], gpus=7, gpus_high=9.0)
    why = "--deploy: vllm would not start the decode pool: tp 3 does not divide the model's 32 query heads"
    with pytest.raises(InputError, match=why):
        serving(fleet, asked("vllm", "llama-3.1-8b"))


def test_a_context_beyond_the_models_or_the_memorys_is_not_written():
    far = pool(tp=2)
    for name, value in (("longest_tokens", 150_000.0), ("context_tokens", float("inf"))):
        object.__setattr__(far, name, value)
    assert "a context of 150,528 tokens exceeds the model's 131,072" in command(far, asked("vllm", "llama-3.1-8b"))
    object.__setattr__(far, "longest_tokens", 100_000.0)
    assert "a request of 100,352 tokens takes" in command(far, asked("vllm", "llama-3.1-70b"))


@pytest.mark.parametrize("backend", ENGINES)
def test_a_batch_is_no_larger_than_a_step(backend):
    """vLLM refuses --max-num-batched-tokens below --max-num-seqs, SGLang chunks that are not whole pages."""
    made = server(pool(), asked(backend, engine=Engine(256.0, 200.0)))
    assert made.max_num_seqs_count <= made.max_num_batched_tokens <= 200
    assert not command(pool(), asked(backend, engine=Engine(256.0, 200.0))).startswith("#")


def test_a_plan_asks_for_no_context_that_its_memory_cannot_hold():
    """One pool of a 70B model on two H100s: 1,024 tokens more than the longest request would not fit."""
    from dmodels import SLO, Workload
    from dmodels.studies.plan import question
    from dmodels.studies.plan.sizing import price

    of = question(
        "llama-3.1-70b", ["h100_sxm"], Workload.fixed(3000.0, 300.0, 1.0), SLO(60.0, 1.0), tp=(2,), split=False
    )
    priced = float64(price)(of)
    held = priced.longest_context_tokens(0, 0)
    gpu, parallel = of.gpus["h100_sxm"], (2.0, 1.0, 1.0, 1.0)
    from dmodels.core.hardware import Parallel

    budget = float(float64(kv_budget_bytes)(of.model, gpu, Parallel(*parallel)))
    need = [
        float(float64(kv_reserved_bytes)(of.model, tokens, 2.0, max_batched_tokens=8192.0))
        for tokens in (held, held + 16)
    ]
    assert need[0] <= budget < need[1]


@pytest.mark.parametrize("backend", ENGINES)
def test_experts_over_four_hosts_are_started_with_the_kernels_that_the_plan_assumes(backend):
    """32 GPUs of hosts of 8: tokens travel by DeepEP, experts are balanced, half-batches overlap."""
    of = pool(tp=1, dp=32, ep=32, slots=4096.0)
    found = flags(backend, of)
    expected = {
        "vllm": {
            "--data-parallel-size": "32",
            "--data-parallel-size-local": "8",
            "--data-parallel-backend": "ray",
            "--all2all-backend": "deepep_low_latency",
            "--enable-expert-parallel": None,
            "--enable-eplb": None,
            "--enable-dbo": None,
        },
        "sglang": {
            "--tp-size": "32",
            "--attn-dp-size": "32",
            "--ep-size": "32",
            "--nnodes": "4",
            "--moe-a2a-backend": "deepep",
            "--enable-eplb": None,
            "--enable-two-batch-overlap": None,
        },
        "trtllm": {"--tp_size": "32", "--ep_size": "32", "--gpus_per_node": "8"},
    }[backend]
    assert expected.items() <= found.items()
    line = command(of, asked(backend))
    read = server_of_words(shell_words(line))
    assert (read.tp, read.dp, read.ep, read.nodes, read.others) == (1, 32, 32, 4, ())


@pytest.mark.parametrize("layout, nodes", [((8, 2), 2), ((4, 2), 1), ((1, 12), 2), ((16, 1), 1)])
def test_ranks_of_attention_beyond_a_host_are_started_over_several(layout, nodes):
    """A host has eight GPUs; one rank over several is on a cluster that is there."""
    tp, dp = layout
    made = launch._nodes(pool(tp=tp, dp=dp, ep=tp * dp), asked("sglang"))
    assert made == nodes


def weights(dtype, kv="as published"):
    return pool(weights=Precision.named(dtype), kv=Precision.named(kv))


@pytest.mark.parametrize(
    "model, published, rounded, there",
    [
        ("llama-3.1-70b", "bf16", {"fp8"}, {"as published", "bf16"}),
        ("llama-3.1-70b-fp8", "fp8", set(), {"as published", "fp8"}),
        ("gpt-oss-120b", "4 bits", set(), {"as published"}),
    ],
)
def test_weights_that_are_not_published_need_a_checkpoint(model, published, rounded, there):
    """vLLM and SGLang round weights of 16 bits to eight as they load them; a checkpoint that is named has its own."""
    for backend in ENGINES:
        rounds = rounded if backend != "trtllm" else set()
        for dtype in ("as published", "bf16", "fp8", "fp4"):
            of, plain = weights(dtype), asked(backend, model)
            lacking = [x for x in why_not(server(of, plain), of, plain) if "published" in x]
            needs = dtype not in rounds | there
            assert lacking == [f"org/model is published in {published}: --checkpoint names one in {dtype}"] * needs
            assert server(of, plain).quantization == ("fp8" if dtype in rounds else "")
            named = asked(backend, model, checkpoint="mine")
            told = server(of, named)
            assert (told.model, told.quantization) == ("mine", "")
            assert not [x for x in why_not(told, of, named) if "published" in x]


@pytest.mark.parametrize("backend", ENGINES)
def test_the_precision_of_the_cache_is_told_where_it_is_not_the_published_one(backend):
    wide, narrow = asked(backend, "llama-3.1-70b"), asked(backend, "llama-3.1-70b")
    narrow.model = narrow.model.replace(kv_dtype_bytes=1.0)
    told = {kv: [server(weights("fp8", kv), of).kv_dtype for of in (wide, narrow)] for kv in ("fp8", "bf16")}
    assert told == {"fp8": ["fp8", "fp8"], "bf16": ["", "" if backend == "trtllm" else "bf16"]}
    assert server(weights("fp8"), wide).kv_dtype == server(weights("fp8"), narrow).kv_dtype == ""


@pytest.mark.parametrize("backend", ENGINES)
def test_a_server_is_a_pools_layout_in_the_limits_of_its_engine(backend):
    """Of nine slots on four ranks each has two, and one of fewer; SGLang's chunks are whole pages of 64."""
    of = asked(backend, engine=Engine(256.0, 8200.0))
    made = server(pool("serve", slots=9.0, tp=2, pp=3, dp=4, ep=8), of)
    assert made == Server(
        *(backend, "org/model", 2, 3, 4, 8, "", ""),
        max_model_len_tokens=9216,
        max_num_seqs_count=2,
        max_num_batched_tokens=8192 if backend == "sglang" else 8200,
        memory_frac=None if backend == "sglang" else 0.9,
        role="serve",
    )
    few = [server(pool(slots=slots, dp=dp), of).max_num_seqs_count for slots, dp in ((1.0, 1), (1.9, 1), (1.0, 4))]
    assert few == [1, 1, 1] and server(pool(slots=300.0), of).max_num_seqs_count == 256
    page = asked(backend, engine=Engine(256.0, 64.0)), asked(backend, engine=Engine(256.0, 63.0))
    assert [server(pool(), x).max_num_batched_tokens for x in page] == [64, 63]


def test_a_fleet_is_written_with_what_its_pools_hold_and_may_grow_to():
    """To 11 GPUs in place of 8 where steps are slow; without an end to twice as many, and never to fewer."""

    def fleet(high, kind=Kind.TWO_POOLS):
        pools = [pool("short", tp=2), pool("long", tp=2)]
        for one, count, held, most in zip(pools, (3, 1), (7.6, 0.2), (2048.7, math.inf), strict=True):
            changed = {"instances": count, "decode_count": held, "stage": Stage(one.stage.name, high_tokens=most)}
            for name, value in changed.items():
                object.__setattr__(one, name, value)
        of = asked("vllm", "llama-3.1-8b")
        of.model_name = "Llama 3.1 8B"
        return serving(SimpleNamespace(pools=pools, gpus=8, gpus_high=high, kind=kind), of)

    made = fleet(11.0)
    assert (made.name, made.threshold_tokens) == ("llama-3-1-8b", 2048)
    assert fleet(11.0, Kind.ONE_POOL).threshold_tokens is None
    told = lambda made: [(x.name, x.replicas, x.gpu, x.max_replicas, x.target_requests) for x in made.pools]
    assert told(made) == [("short", 3, "h100_sxm", 5, 8), ("long", 1, "h100_sxm", 2, 1)]
    assert [x.max_replicas for x in fleet(math.inf).pools] == [6, 2]
    assert [x.max_replicas for x in fleet(7.0).pools] == [3, 1]
    assert all(x.server.tp == 2 and x.server.role == "serve" for x in made.pools)
