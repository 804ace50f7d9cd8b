"""TensorRT-LLM's `trtllm-serve`: tensor parallelism counts all GPUs of a stage, limits are those of one rank.

The format of weights is the checkpoint's; attention data parallelism, the cache's format and its transfer are settings
in YAML. Arguments: tensorrt_llm/commands/serve.py of TensorRT-LLM 1.2.
"""

from __future__ import annotations

import json
from typing import Any

from ..serving import PREFILL, SERVE, Server
from .dialect import Argument, Dialect, Flags, degree, stated


def write(server: Server) -> list[Argument]:
    """The arguments of a server."""
    x, more = server, settings(server)
    return stated(
        {
            "--tp_size": x.tp * x.dp,
            "--pp_size": degree(x.pp),
            "--ep_size": degree(x.ep),
            "--gpus_per_node": x.gpus // x.nodes if x.nodes > 1 else None,
            "--max_seq_len": x.max_model_len_tokens,
            "--max_batch_size": x.max_num_seqs_count,
            "--max_num_tokens": x.max_num_batched_tokens,
            "--enable_chunked_prefill": True,  # without it, no prompt may be longer than a step
            "--kv_cache_free_gpu_memory_fraction": x.memory_frac,
            "--extra_llm_api_options": f"<(echo '{json.dumps(more)}')" if more else None,
        }
    )


def settings(server: Server) -> dict[str, Any]:
    """What has no argument of its own; JSON is YAML."""
    more: dict[str, Any] = {}
    if server.dp > 1:
        more["enable_attention_dp"] = True
    if server.kv_dtype:
        more["kv_cache_config"] = {"dtype": server.kv_dtype}
    if server.role == PREFILL:
        more["disable_overlap_scheduler"] = True  # context servers do not have it
    if server.role != SERVE:
        more["cache_transceiver_config"] = {"backend": "NIXL"}
    return more


def read(flags: dict[str, str | None]) -> dict[str, Any]:
    """The settings in a command line's flags. A server that only decodes differs from one that serves by its peers."""
    given = Flags(flags)
    more = given.settings("--extra_llm_api_options", "--config")
    given.switch("--enable_chunked_prefill")
    return from_settings(
        more,
        whole=given.whole("--tp_size", "--tensor_parallel_size", default=1),
        pp=given.whole("--pp_size", "--pipeline_parallel_size", default=1),
        ep=given.whole("--ep_size", "--moe_expert_parallel_size", default=1),
        gpus_per_node=given.whole("--gpus_per_node"),
        max_model_len_tokens=given.whole("--max_seq_len"),
        max_num_seqs_count=given.whole("--max_batch_size"),
        max_num_batched_tokens=given.whole("--max_num_tokens"),
        memory_frac=given.share("--kv_cache_free_gpu_memory_fraction", "--free_gpu_memory_fraction"),
    )


def from_settings(more: dict[str, Any], whole: int, **stated: Any) -> dict[str, Any]:
    """Settings of YAML joined with those of arguments."""
    ranks = whole if more.get("enable_attention_dp") else 1
    cache = more.get("kv_cache_config")
    dtype = str(cache.get("dtype", "")) if isinstance(cache, dict) else ""
    each = stated.pop("gpus_per_node", None)
    nodes = -(-whole * stated["pp"] // each) if each else 1
    role = SERVE
    if more.get("cache_transceiver_config"):
        role = PREFILL if more.get("disable_overlap_scheduler") else "decode"
    return stated | {
        "tp": whole // ranks,
        "dp": ranks,
        "kv_dtype": "" if dtype == "auto" else dtype,
        "role": role,
        "nodes": nodes,
    }


def limits(server: Server) -> list[str]:
    """What TensorRT-LLM alone refuses, or would understand otherwise."""
    found = []
    if server.tp > 1 and server.dp > 1:
        ranks = server.tp * server.dp
        found.append(f"no tp{server.tp} with dp{server.dp} there: attention is replicated on all {ranks} ranks")
    if server.quantization:
        found.append(f"it loads weights as the checkpoint stores them; {server.quantization} needs a checkpoint in it")
    return found


TRTLLM = Dialect("trtllm", ("trtllm-serve",), "", write, read, limits, underscores=True)
