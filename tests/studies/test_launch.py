"""Command lines: what a plan computed with, in the words of each engine."""

from __future__ import annotations

import json
import re
import shlex
from types import SimpleNamespace

import pytest

from dmodels.models.instance import Engine
from dmodels.studies.plan import Layout, Pool, command
from dmodels.studies.plan.designs import Stage


def pool(role="serve", slots=512.0, **layout):
    x = Layout("h100_sxm", **({"tp": 2, "pp": 1, "dp": 1, "ep": 1} | layout))
    nothing = dict.fromkeys(Pool.__dataclass_fields__, 0.0)
    return Pool(
        **(
            nothing
            | {
                "stage": Stage(role, role),
                "layout": x,
                "slots_count": slots,
                "longest_tokens": 9000.0,
                "context_tokens": 131072.0,
            }
        )
    )


def asked(backend):
    return SimpleNamespace(backend=backend, served_name="org/model", engine=Engine(256.0, 8192.0))


def flags(backend, of):
    """{flag: value} of a command line, as a shell splits it."""
    line = re.sub(r"<\((.*)\)", r"\1", command(of, asked(backend)))
    words, found = shlex.split(line), {}
    for word, following in zip(words, [*words[1:], "--"], strict=True):
        if word.startswith("--"):
            found[word] = None if following.startswith("--") else following
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
        "--dp-size": "4",
        "--enable-dp-attention": None,
        "--ep-size": "8",
        "--context-length": "9216",
        "--max-running-requests": "512",
        "--chunked-prefill-size": "32768",
    }
    told = flags("trtllm", of)
    assert json.loads(" ".join(shlex.split(re.search(r"echo ('.*')", command(of, asked("trtllm")))[1]))) == {
        "enable_attention_dp": True
    }
    limits = {
        "--tp_size": "8",
        "--ep_size": "8",
        "--max_seq_len": "9216",
        "--max_batch_size": "128",
        "--max_num_tokens": "8192",
    }
    assert limits.items() <= told.items()
    assert "# no tp2 with dp4 there" in command(of, asked("trtllm"))
    assert "#" not in command(pool(dp=8, tp=1, ep=8), asked("trtllm"))


@pytest.mark.parametrize("backend", ["vllm", "sglang", "trtllm"])
def test_one_gpu_names_no_parallelism_that_it_does_not_have(backend):
    line = command(pool(tp=1), asked(backend))
    assert not re.search(r"pipeline|pp.size|data-parallel|dp.size|expert|ep.size|extra_llm|disagg|transfer", line)


@pytest.mark.parametrize("backend", ["vllm", "sglang", "trtllm"])
def test_prefill_and_decode_hand_the_cache_over(backend):
    lines = [command(pool(role), asked(backend)) for role in ("prefill", "decode")]
    assert lines[0] != lines[1] and all("nixl" in line.lower() for line in lines)


def test_narrow_weights_and_caches():
    narrow = pool(weights="fp4", kv="fp8")
    assert "--quantization modelopt_fp4 --kv-cache-dtype fp8 " in command(narrow, asked("vllm"))
    assert "--quantization modelopt_fp4 --kv-cache-dtype fp8_e4m3 " in command(narrow, asked("sglang"))
    assert '"kv_cache_config": {"dtype": "fp8"}' in command(narrow, asked("trtllm"))
