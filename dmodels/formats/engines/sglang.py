"""SGLang's `sglang.launch_server`: tensor parallelism counts all GPUs of a stage, limits are those of all ranks.

Arguments: sglang/srt/arg_groups/fields of SGLang 0.5.23; refusals: its `validation_hook` and `parallel_hook`.
"""

from __future__ import annotations

from typing import Any

from ..serving import SERVE, Server
from .dialect import Argument, Dialect, Flags, degree, stated

#: Tokens of a chunk are a multiple of the cache's page, which no attention backend has larger.
PAGE_TOKENS = 64
#: Where the ranks of several hosts meet: the first of them.
FIRST_HOST = "first-host:20000"
_CACHES = {"fp8": "fp8_e4m3", "bf16": "bf16"}


def write(server: Server) -> list[Argument]:
    """The arguments of a server."""
    x, apart, over = server, server.role != SERVE, server.nodes > 1
    chunk, seqs = x.max_num_batched_tokens, x.max_num_seqs_count
    return stated(
        {
            "--tp-size": x.tp * x.dp,
            "--pp-size": degree(x.pp),
            "--attn-dp-size": degree(x.dp),
            "--ep-size": degree(x.ep),
            "--nnodes": degree(x.nodes),
            "--node-rank": 0 if over else None,
            "--dist-init-addr": FIRST_HOST if over else None,
            "--moe-a2a-backend": "deepep" if over else None,
            "--enable-eplb": over,
            "--enable-two-batch-overlap": over,
            "--quantization": x.quantization,
            "--kv-cache-dtype": _CACHES.get(x.kv_dtype, x.kv_dtype),
            "--context-length": x.max_model_len_tokens,
            "--max-running-requests": None if seqs is None else seqs * x.dp,
            "--chunked-prefill-size": None if chunk is None else chunk * x.dp,
            "--mem-fraction-static": x.memory_frac,
            "--disaggregation-mode": x.role if apart else None,
            "--disaggregation-transfer-backend": "nixl" if apart else None,
        }
    )


def read(flags: dict[str, str | None]) -> dict[str, Any]:
    """The settings in a command line's flags; `--dp-size N --enable-dp-attention` is the older spelling of ranks."""
    given = Flags(flags)
    whole = given.whole("--tp-size", "--tensor-parallel-size", "--tp", default=1)
    copies = given.whole("--dp-size", "--data-parallel-size", "--dp", default=1)
    attention = given.whole("--attn-dp-size", default=copies if given.switch("--enable-dp-attention") else 1)
    dp = attention if attention > 1 else copies
    seqs = given.whole("--max-running-requests")
    chunk = given.whole("--chunked-prefill-size")
    nodes = 1
    if flags.get("--moe-a2a-backend") == "deepep" and "--nnodes" in flags:  # over hosts, as `write` has it
        nodes = given.whole("--nnodes", default=1)
        given.drop(
            "--node-rank", "--dist-init-addr", "--moe-a2a-backend", "--enable-eplb", "--enable-two-batch-overlap"
        )
    cache, role = given.text("--kv-cache-dtype"), given.text("--disaggregation-mode")
    given.text("--disaggregation-transfer-backend")
    return {
        "tp": max(whole // attention, 1),
        "pp": given.whole("--pp-size", "--pipeline-parallel-size", default=1),
        "dp": dp,
        "ep": given.whole("--ep-size", "--expert-parallel-size", "--ep", default=1),
        "quantization": given.text("--quantization"),
        "kv_dtype": "" if cache == "auto" else {b: a for a, b in _CACHES.items()}.get(cache, cache),
        "max_model_len_tokens": given.whole("--context-length"),
        "max_num_seqs_count": None if seqs is None else max(seqs // attention, 1),  # for all of its ranks
        "max_num_batched_tokens": None if chunk is None else max(chunk // attention, 1),
        "memory_frac": given.share("--mem-fraction-static"),
        "role": role if role and role != "null" else SERVE,
        "nodes": nodes,
    }


def limits(server: Server) -> list[str]:
    """What SGLang alone refuses."""
    chunk = server.max_num_batched_tokens
    if chunk is not None and chunk * server.dp % PAGE_TOKENS:
        return [f"--chunked-prefill-size {chunk * server.dp} is no multiple of a page of {PAGE_TOKENS} tokens"]
    return []


SGLANG = Dialect("sglang", ("python3", "-m", "sglang.launch_server"), "--model-path", write, read, limits)
