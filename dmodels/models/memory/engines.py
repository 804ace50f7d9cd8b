r"""How each engine divides a GPU: what its start-up run sets aside, and what the cache gets of the rest.

- vLLM runs a dummy batch of `max_num_batched_tokens` tokens and samples for `max_num_seqs` sequences; the cache is
  $u M - W - A - N$ (weights, peak activations, memory outside PyTorch). The driver's context is not charged.
- SGLang measures nothing: the cache is $u (M - R) - W$ with R the context and communicators, and activations live in
  the share 1 - u, whose default counts tokens of a chunk and sequences of the largest CUDA graph.
- TensorRT-LLM runs its largest batch too; the cache is $u (M - W - A - R)$. It admits a request once blocks up to the
  limit of its answer are free (GUARANTEED_NO_EVICT, its default); the limit is taken to be the answer's own length.

Sources: vLLM `gpu_worker.determine_available_memory`, SGLang `server_args` and `profile_max_num_token`, TensorRT-LLM
`KvCacheCreator`; the constants are medians of the engine logs in benchmarks/accuracy/data/engine_logs.csv. What vLLM
charges outside PyTorch, one H100 logs as 0.16 GiB (its pull request 12126); with that the two lines whose peak is the
sampler's, gpt-oss-120b for 1,024 sequences, ask for 38.0 and 38.8 bytes (with the other's, each room is 7 and 9 % off).
"""

from __future__ import annotations

import jax.numpy as jnp

from dmodels.core.errors import InputError, unknown
from dmodels.core.hardware import GPU, Parallel
from dmodels.core.records import Real, Record, jit, quantity
from dmodels.core.units import GIB

ENGINES = ("vllm", "sglang", "trtllm")
#: One-way bytes per second of a GPU's link above which it is NVLink's or Infinity Fabric's kind.
FAST_LINK = 100e9
#: The release from which vLLM samples without sorting the vocabulary.
UNSORTED_SINCE = (0, 15)


class EngineMemory(Record):
    """What an engine keeps beside weights and cache. All bytes are per GPU."""

    logit_bytes: Real = quantity(38.0)  # of the sampler at its peak, per sequence and word of the vocabulary
    driver_bytes: Real = quantity(0.16 * GIB)  # charged to the cache: kernels' workspaces, and the context where it is
    communicator_bytes: Real = quantity(1.75 * GIB)  # of several GPUs on a fast link: NCCL's and all-reduce buffers
    bus_communicator_bytes: Real = quantity(0.2 * GIB)  # the same over PCIe, `FAST_LINK` and below
    latent_workspace_tokens: Real = quantity(65536.0)  # of a prefix that latent attention expands at a time
    activations_charged: Real = quantity(1.0)  # 0: they live in the share 1 - u
    of_rest: Real = quantity(0.0)  # 1: u is a share of what the rest leaves, not of the memory
    to_limit: Real = quantity(0.0)  # 1: a request holds the blocks of its whole answer from the start


#: vLLM before 0.15, whose sampler sorts the vocabulary. What sets least aside is not assumed of a release not stated.
VLLM = EngineMemory()
_SINCE_UNSORTED = EngineMemory(logit_bytes=12.0, communicator_bytes=0.5 * GIB)
_SGLANG = EngineMemory(logit_bytes=6.0, driver_bytes=0.7 * GIB, communicator_bytes=1.2 * GIB, activations_charged=0.0)
_TRTLLM = EngineMemory(logit_bytes=6.0, driver_bytes=0.7 * GIB, communicator_bytes=1.2 * GIB, of_rest=1.0, to_limit=1.0)


def engine_memory(engine: str = "vllm", release: str = "", *, tuned: bool = False) -> EngineMemory:
    """The constants of an engine; `release` like "0.11.2" where they differ by it. `tuned`: as MLPerf's servers, whose
    TensorRT-LLM admits as many requests as there are free blocks for (MAX_UTILIZATION).

    >>> float(engine_memory("vllm", "0.11.2").logit_bytes), float(engine_memory("vllm", "0.20").logit_bytes)
    (38.0, 12.0)
    """
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    if engine == "vllm":
        return _SINCE_UNSORTED if release and _numbers(release) >= UNSORTED_SINCE else VLLM
    if engine == "sglang":
        return _SGLANG
    return _TRTLLM.replace(to_limit=0.0) if tuned else _TRTLLM


def default_sequences(engine: str, gpu: GPU) -> float:
    """Sequences at a time where none are asked for: vLLM 1,024 on GPUs of 70 GiB with FP8 units, else 256.

    (vLLM asks for 70 GiB and not being an A100.) SGLang's logits are those of its largest CUDA graph.
    """
    if engine == "trtllm":
        return 2048.0
    if engine == "sglang":
        return float(_graph_sequences(gpu.memory_bytes, 1.0))
    large = float(gpu.memory_bytes) >= 70 * GIB and float(gpu.peak_fp8_flop_per_s) > 0
    return 1024.0 if large else 256.0


@jit
def default_utilization(engine: EngineMemory, gpu: GPU, parallel: Parallel, batched_tokens: Real = 8192.0) -> Real:
    r"""The share u where none is stated: 0.9, but SGLang's `mem_fraction_static` is what its reserve leaves.

    The reserve, in MiB: $512 + 1.5\,T + 2\,B + 128\,n + [\text{dp} > 1]\, 3\,B\,\text{dp}$ for chunks of T tokens, CUDA
    graphs of up to B sequences, and n GPUs.
    """
    gpus, dp = parallel.gpus, parallel.dp
    graph = _graph_sequences(gpu.memory_bytes, parallel.tp * dp)
    apart = jnp.where(dp > 1, 3.0 * graph * dp, 0.0)
    mib = 512.0 + 1.5 * jnp.maximum(batched_tokens, 2048.0) + 2.0 * graph + 128.0 * gpus + apart
    static = jnp.clip(1.0 - mib * 2**20 / gpu.memory_bytes, 0.1, 0.95)
    return jnp.where(engine.activations_charged > 0, 0.9, static)


def _graph_sequences(memory_bytes: Real, tp: Real) -> Real:
    """SGLang's `cuda_graph_max_bs`, by the memory of the GPU (its GB are GiB) and the GPUs of a stage."""
    size, many = memory_bytes / GIB, tp >= 4
    found = jnp.where(many, 80.0, 24.0)
    found = jnp.where(size >= 35, jnp.where(many, 160.0, 32.0), found)
    found = jnp.where(size >= 60, jnp.where(many, 512.0, 256.0), found)
    return jnp.where(size >= 160, 512.0, jnp.where(size < 20, 8.0, found))


def _numbers(release: str) -> tuple[int, ...]:
    parts = release.strip().lstrip("v").split(".")[:2]
    if not all(part.isdigit() for part in parts):
        raise InputError(f"release {release!r}: accepted are numbers like 0.11.2")
    return tuple(int(part) for part in parts)
