"""vLLM's `vllm serve`: tp, pp and dp are counted apart, and limits are those of one rank.

Arguments: vllm/engine/arg_utils.py of vLLM 0.33; refusals: its `ModelConfig` and `SchedulerConfig`.
"""

from __future__ import annotations

import json
from typing import Any

from ..serving import DECODE, PREFILL, SERVE, Server
from .dialect import Argument, Dialect, Flags, degree, stated

#: Role of a server -> role of its connector of KV caches.
KV_ROLES = {PREFILL: "kv_producer", DECODE: "kv_consumer"}
_CACHES = {"fp8": "fp8", "bf16": "bfloat16"}
#: Role of a server -> how tokens travel to experts on other hosts: for prompts in bulk, else a step's few at once.
ALL_TO_ALL = {PREFILL: "deepep_high_throughput", DECODE: "deepep_low_latency", SERVE: "deepep_low_latency"}


def write(server: Server) -> list[Argument]:
    """The arguments of a server."""
    x, over = server, server.nodes > 1
    connector = {"kv_connector": "NixlConnector", "kv_role": KV_ROLES.get(x.role)}
    return stated(
        {
            "--tensor-parallel-size": x.tp,
            "--pipeline-parallel-size": degree(x.pp),
            "--data-parallel-size": degree(x.dp),
            "--enable-expert-parallel": x.ep > 1,
            "--data-parallel-size-local": x.dp // x.nodes if over else None,
            "--data-parallel-backend": "ray" if over else None,
            "--all2all-backend": ALL_TO_ALL[x.role] if over else None,
            "--enable-eplb": over,
            "--enable-dbo": over,
            "--quantization": x.quantization,
            "--kv-cache-dtype": _CACHES.get(x.kv_dtype, x.kv_dtype),
            "--max-model-len": x.max_model_len_tokens,
            "--max-num-seqs": x.max_num_seqs_count,
            "--max-num-batched-tokens": x.max_num_batched_tokens,
            "--gpu-memory-utilization": x.memory_frac,
            "--kv-transfer-config": json.dumps(connector, separators=(",", ":")) if x.role != SERVE else None,
        }
    )


def read(flags: dict[str, str | None]) -> dict[str, Any]:
    """The settings in a command line's flags."""
    given = Flags(flags)
    tp = given.whole("--tensor-parallel-size", "-tp", default=1)
    dp = given.whole("--data-parallel-size", "-dp", default=1)
    nodes = 1
    if flags.get("--data-parallel-backend") == "ray" and "--all2all-backend" in flags:  # over hosts, as `write` has it
        nodes = max(dp // given.whole("--data-parallel-size-local", default=dp), 1)
        given.drop("--data-parallel-backend", "--all2all-backend", "--enable-eplb", "--enable-dbo")
    cache = given.text("--kv-cache-dtype")
    transfer = given.settings("--kv-transfer-config")
    roles = {kv: role for role, kv in KV_ROLES.items()}
    return {
        "tp": tp,
        "pp": given.whole("--pipeline-parallel-size", "-pp", default=1),
        "dp": dp,
        "ep": tp * dp if given.switch("--enable-expert-parallel") else 1,
        "quantization": given.text("--quantization", "-q"),
        "kv_dtype": "" if cache == "auto" else {b: a for a, b in _CACHES.items()}.get(cache, cache),
        "max_model_len_tokens": given.whole("--max-model-len"),
        "max_num_seqs_count": given.whole("--max-num-seqs"),
        "max_num_batched_tokens": given.whole("--max-num-batched-tokens"),
        "memory_frac": given.share("--gpu-memory-utilization"),
        "role": roles.get(transfer.get("kv_role", ""), SERVE),
        "nodes": nodes,
    }


def limits(server: Server) -> list[str]:
    """What vLLM alone refuses."""
    seqs, batched = server.max_num_seqs_count, server.max_num_batched_tokens
    if seqs is not None and batched is not None and batched < seqs:
        return [f"--max-num-batched-tokens {batched} is below --max-num-seqs {seqs}"]
    return []


VLLM = Dialect("vllm", ("vllm", "serve"), "", write, read, limits)
