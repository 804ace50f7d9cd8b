"""From a plan's pools to the servers that run them: in the engine's limits, and in the words of its command line."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from dmodels.core.errors import InputError
from dmodels.core.precision import Precision
from dmodels.formats.deployments.documents import label
from dmodels.formats.engines import command_line, refusals
from dmodels.formats.engines.sglang import PAGE_TOKENS
from dmodels.formats.serving import Server, ServerPool, Serving
from dmodels.models.memory import stored_weight_bytes

from .deployment import Deployment, Pool
from .designs import Kind
from .layouts import in_precision

if TYPE_CHECKING:
    from .questions import Question

#: Of the GPU's memory, what weights, cache and activations may take: the share that sizes were computed with.
MEMORY_FRAC = 0.9


def command(pool: Pool, asked: Question) -> str:
    """What starts one instance of `pool`: `vllm serve`, SGLang's `launch_server` or `trtllm-serve`.

    The context, the requests at a time and the tokens of a step are the ones that the plan was computed with. A pool of
    prefill or of decode hands the cache over through NIXL. An instance over several hosts is started on a Ray cluster
    (vLLM), or so on each host (SGLang with its own `--node-rank`, TensorRT-LLM under MPI). What the engine would refuse
    is not written as a command but as a remark that says why.
    """
    made = replace(server(pool, asked), nodes=_nodes(pool, asked))
    why = why_not(made, pool, asked)
    return f"# {asked.backend} would not start {made.model} so: {'; '.join(why)}" if why else command_line(made)


def server(pool: Pool, asked: Question) -> Server:
    """One instance of a pool, in the limits of its engine."""
    x = pool.layout
    slots = max(pool.slots_count / x.dp, 1.0)
    batched = int(asked.engine.max_num_batched_tokens)
    if asked.backend == "sglang":
        batched = batched // PAGE_TOKENS * PAGE_TOKENS or batched  # whole pages, as far as there is one
    return Server(
        engine=asked.backend,
        model=asked.checkpoint or asked.served_name,
        tp=x.tp,
        pp=x.pp,
        dp=x.dp,
        ep=x.ep,
        quantization=_quantization(pool, asked),
        kv_dtype=_kv_dtype(pool, asked),
        max_model_len_tokens=pool.max_model_len_tokens,
        max_num_seqs_count=int(min(float(asked.engine.max_num_seqs_count), slots, batched)),
        max_num_batched_tokens=batched,
        memory_frac=None if asked.backend == "sglang" else MEMORY_FRAC,  # there it is the cache's share, not the whole
        role=str(pool.stage.role),
    )


def _nodes(pool: Pool, asked: Question) -> int:
    """Hosts whose GPUs exchange tokens between experts: 1 where a scale-up domain holds the instance."""
    domain = float(asked.gpus[pool.layout.gpu].gpus_per_node)
    return math.ceil(pool.layout.gpus / domain) if pool.layout.dp > 1 else 1


def serving(found: Deployment, asked: Question) -> Serving:
    """A recommended deployment, to be written. What an engine would refuse is an `InputError`."""
    pools = []
    slow = found.gpus_high / found.gpus if math.isfinite(found.gpus_high) else 2.0
    for pool in found.pools:
        made = server(pool, asked)
        why = why_not(made, pool, asked)
        if why:
            raise InputError(f"--deploy: {asked.backend} would not start the {pool.stage.name} pool: {'; '.join(why)}")
        held = max(round(pool.decode_count), 1)
        most = math.ceil(pool.instances * max(slow, 1.0))
        pools.append(ServerPool(pool.stage.name, made, pool.instances, pool.layout.gpu, most, held))
    threshold = int(found.pools[0].stage.high_tokens) if found.kind == Kind.TWO_POOLS else None
    return Serving(label(asked.model_name), tuple(pools), threshold)


def why_not(made: Server, pool: Pool, asked: Question) -> list[str]:
    """Why an engine would refuse a server of a plan."""
    found = refusals(made, in_precision(asked.model, pool.layout), asked.gpus.get(pool.layout.gpu))
    needed = _needs_checkpoint(pool, asked)
    if needed and not asked.checkpoint:
        stored = _published(asked)
        found.append(f"{asked.served_name} is published in {stored}: --checkpoint names one in {needed}")
    return found


def _published(asked: Question) -> str:
    """The precision of most of the published weights."""
    stored = stored_weight_bytes(asked.model)
    return Precision.BF16 if stored > 1.5 else Precision.FP8 if stored > 0.75 else "4 bits"


def _needs_checkpoint(pool: Pool, asked: Question) -> str:
    """The precision that needs a checkpoint of its own; "" where the engine loads it from the published one.

    vLLM and SGLang round 16-bit weights to FP8 as they load them.
    """
    wanted, stored = pool.layout.weights, _published(asked)
    rounds = wanted == Precision.FP8 and stored == Precision.BF16 and asked.backend != "trtllm"
    return "" if wanted in (Precision.AS_PUBLISHED, stored) or rounds else str(wanted)


def _quantization(pool: Pool, asked: Question) -> str:
    """Only what the engine does while it loads: a checkpoint states its own format."""
    rounded = pool.layout.weights == Precision.FP8 and _published(asked) == Precision.BF16
    return "fp8" if rounded and asked.backend != "trtllm" and not asked.checkpoint else ""


def _kv_dtype(pool: Pool, asked: Question) -> str:
    wanted, stored = pool.layout.kv, float(asked.model.kv_dtype_bytes)
    if wanted == Precision.FP8:
        return "fp8"
    return "bf16" if wanted == Precision.BF16 and stored < 2 and asked.backend != "trtllm" else ""
