"""The command line that starts one instance of a pool, in the words of the engine that the plan is for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .deployment import Pool

if TYPE_CHECKING:
    from .questions import Question

#: Of the GPU's memory, what weights, cache and activations may take: the share that sizes were computed with.
_MEMORY_FRAC = "0.90"


def command(pool: Pool, asked: Question) -> str:
    """What starts one instance of `pool`: `vllm serve`, SGLang's `launch_server` or `trtllm-serve`.

    The context, the requests at a time and the tokens of a step are the ones that the plan was computed with. 4-bit
    weights need a checkpoint that has them. A pool of prefill or of decode hands the cache over through NIXL.
    """
    return {"vllm": _vllm, "sglang": _sglang, "trtllm": _trtllm}[asked.backend](pool, asked)


def _vllm(pool: Pool, asked: Question) -> str:
    x = pool.layout
    parts = [f"vllm serve {asked.served_name}", f"--tensor-parallel-size {x.tp}"]
    parts += [f"--pipeline-parallel-size {x.pp}"] * (x.pp > 1)
    parts += [f"--data-parallel-size {x.dp}"] * (x.dp > 1)
    parts += ["--enable-expert-parallel"] * (x.ep > 1)
    parts += _quantization(pool)
    parts += ["--kv-cache-dtype fp8"] * (x.kv == "fp8")
    parts += [f"--max-model-len {pool.max_model_len()}", f"--max-num-seqs {_rank_requests(pool, asked)}"]
    parts += [f"--max-num-batched-tokens {_rank_tokens(asked)}", f"--gpu-memory-utilization {_MEMORY_FRAC}"]
    role = {"prefill": "kv_producer", "decode": "kv_consumer"}.get(pool.stage.role)
    if role:
        parts.append(f'--kv-transfer-config \'{{"kv_connector":"NixlConnector","kv_role":"{role}"}}\'')
    return " ".join(parts)


def _sglang(pool: Pool, asked: Question) -> str:
    """Its tensor parallelism counts the ranks of attention data parallelism; its limits are those of all of them."""
    x = pool.layout
    parts = [f"python -m sglang.launch_server --model-path {asked.served_name}", f"--tp-size {x.tp * x.dp}"]
    parts += [f"--pp-size {x.pp}"] * (x.pp > 1)
    parts += [f"--dp-size {x.dp} --enable-dp-attention"] * (x.dp > 1)
    parts += [f"--ep-size {x.ep}"] * (x.ep > 1)
    parts += _quantization(pool)
    parts += ["--kv-cache-dtype fp8_e4m3"] * (x.kv == "fp8")
    parts += [f"--context-length {pool.max_model_len()}"]
    parts += [f"--max-running-requests {_rank_requests(pool, asked) * x.dp}"]
    parts += [f"--chunked-prefill-size {_rank_tokens(asked) * x.dp}"]
    if pool.stage.role in ("prefill", "decode"):
        parts.append(f"--disaggregation-mode {pool.stage.role} --disaggregation-transfer-backend nixl")
    return " ".join(parts)


def _trtllm(pool: Pool, asked: Question) -> str:
    """Its format of weights is the checkpoint's; attention data parallelism and the transfer are set in YAML."""
    x = pool.layout
    parts = [f"trtllm-serve {asked.served_name}", f"--tp_size {x.tp * x.dp}"]
    parts += [f"--pp_size {x.pp}"] * (x.pp > 1)
    parts += [f"--ep_size {x.ep}"] * (x.ep > 1)
    parts += [f"--max_seq_len {pool.max_model_len()}", f"--max_batch_size {_rank_requests(pool, asked)}"]
    parts += [f"--max_num_tokens {_rank_tokens(asked)}", f"--kv_cache_free_gpu_memory_fraction {_MEMORY_FRAC}"]
    more: dict[str, Any] = {}
    if x.dp > 1:
        more["enable_attention_dp"] = True
    if x.kv == "fp8":
        more["kv_cache_config"] = {"dtype": "fp8"}
    if pool.stage.role == "prefill":
        more["disable_overlap_scheduler"] = True  # context servers do not have it
    if pool.stage.role in ("prefill", "decode"):
        more["cache_transceiver_config"] = {"backend": "NIXL"}
    if more:
        parts.append(f"--extra_llm_api_options <(echo '{json.dumps(more)}')")  # JSON is YAML
    if x.tp > 1 and x.dp > 1:
        parts.append(f"# no tp{x.tp} with dp{x.dp} there: attention is replicated on all {x.tp * x.dp} ranks")
    return " ".join(parts)


def _quantization(pool: Pool) -> list[str]:
    method = {"fp8": "fp8", "fp4": "modelopt_fp4"}.get(pool.layout.weights)
    return [f"--quantization {method}"] if method else []


def _rank_requests(pool: Pool, asked: Question) -> int:
    return int(min(float(asked.engine.max_num_seqs_count), max(pool.slots_count / pool.layout.dp, 1.0)))


def _rank_tokens(asked: Question) -> int:
    return int(asked.engine.max_num_batched_tokens)
