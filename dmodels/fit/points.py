"""Rows as arrays: the records and loads that the latency model takes, one leaf entry per row."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from dmodels import catalog
from dmodels.core.errors import InputError
from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.precision import FORMAT_BYTES
from dmodels.core.records import Real, Record, filled, float64, jit, quantity, stack
from dmodels.models.memory import (
    ENGINES,
    LAYOUT_RULE,
    VLLM,
    EngineMemory,
    default_utilization,
    engine_memory,
    kv_budget_bytes,
    out_of_domain,
    residents_of_length,
)

from .kernels import beside_rows
from .rows import Rejected, Row, Table

#: Names of number formats in the rows -> those of the catalogue.
FORMATS = {
    "": "bf16",
    "none": "bf16",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "fp16": "bf16",
    "float16": "bf16",
    "fp8": "fp8",
    "fp8_static": "fp8",
    "fp8_ootb": "fp8",
    "fp8_block": "fp8_block",
    "nvfp4": "fp4",
    "fp4": "fp4",
    "mxfp4": "mxfp4",
    "w4a16_mxfp4": "mxfp4",
    "w4a8_mxfp4_mxfp8": "mxfp4",
    "int4": "int4",
    "int4_wo": "int4",
    "w4afp8": "int4",
    "int8": "int8",
    "int8_wo": "int8",
    "sq": "int8",
}
#: Mean of request lengths over the nominal one: the benchmark draws them evenly between 0.8 and 1.
LENGTH_FRAC = 0.9
#: Engines that compute every waiting prompt before they decode on (mixed chunks are off by default).
PROMPTS_FIRST = ("sglang",)
#: Engines whose ranks of attention data parallelism wait for each other's prompts (TensorRT-LLM's `enable_balance`).
GATHERING = ("trtllm",)
#: The largest share of a GPU's memory that an engine can be given.
TIGHT = 0.98
#: What ids of fine-tunes and quantised copies carry behind the name of the model.
SUFFIX = re.compile(r"[-_](nvfp4|mxfp4|fp4|fp8|int4|w4a16|awq|gptq|bf16|instruct|chat|it|hf|v\d+|dynamic|\d{4})$", re.I)


class Points(Record):
    """What the serving model needs of n rows; every leaf has shape (n,)."""

    model: Model
    gpu: GPU
    decode: Parallel
    prefill: Parallel
    decode_instances: Real = quantity()
    decode_batch: Real = quantity()  # most requests that decode at a time, per instance or dp rank
    prefill_instances: Real = quantity()
    separate: Real = quantity()  # 1: prefill and decode on instances of their own
    isl: Real = quantity()
    osl: Real = quantity()
    concurrency: Real = quantity()
    draft_tokens: Real = quantity()
    stream_interval: Real = quantity()
    poll_steps: Real = quantity()
    compile_s: Real = quantity()
    equal_lengths: Real = quantity()  # 1: all requests have the same lengths
    prompts_first: Real = quantity()  # 1: the engine computes all prompts that wait before it decodes on
    gathers: Real = quantity()  # 1: its ranks wait for each other's prompts
    beside_rows: Real = quantity()  # of `Efficiency`
    memory: EngineMemory  # how the engine divides a GPU
    utilization: Real = quantity()  # share of the memory that the engine uses


def to_points(table: Table) -> tuple[Points, Table]:
    """Arrays of the rows whose model, GPU and formats are known and that fit; and the table, the others rejected."""
    good, rejected, records = [], list(table.rejected), []
    for row in table.rows:
        try:
            records.append((checkpoint(row), _gpu(row.system)))
            good.append(row)
        except InputError as error:
            rejected.append(Rejected(row.id, 0, str(error)))
    if not good:
        raise InputError(f"no row can be used{f': {rejected[0].reason}' if rejected else ''}")
    full = filled(np.arange(len(good)), least=16).tolist()  # few sizes, each of which is compiled for
    stacked = _stack_points([good[i] for i in full], [records[i] for i in full])
    points, fits = _fitted(stacked, np.array([not good[i].stated for i in full]))
    points, fits, odd = points[: len(good)], fits[: len(good)], _odd(points)[: len(good)]
    for row, there, wrong in zip(good, fits, odd, strict=True):
        if wrong or not there:
            rejected.append(Rejected(row.id, 0, _unrunnable(row) if wrong else _misfit(row)))
    used = fits & ~odd
    kept = Table([row for row, there in zip(good, used, strict=True) if there], rejected)
    if not kept.rows:
        raise InputError(f"no row can be used: {rejected[-1].reason}")
    return points[used], kept


def _stack_points(rows: list[Row], records: list[tuple[Model, GPU]]) -> Points:
    """The arrays of rows with their records."""

    def column(of):
        return np.array([float(of(row)) for row in rows])

    def parallel(of):
        return Parallel(
            column(lambda r: of(r).tp),
            1.0 + 0 * column(lambda r: 1),
            column(lambda r: of(r).dp),
            column(lambda r: of(r).ep),
        )

    gpu, decode = _stack([gpu for _, gpu in records]), parallel(lambda r: r.decode)
    memory = _stack([_memory(row) for row in rows])
    return Points(
        model=_stack([model for model, _ in records]),
        gpu=gpu,
        decode=decode,
        prefill=parallel(lambda r: r.prefill),
        decode_instances=column(lambda r: r.decode.instances),
        decode_batch=np.minimum(column(lambda r: r.decode.batch), 1e9),
        prefill_instances=column(lambda r: r.prefill.instances),
        separate=column(lambda r: r.mode == "disagg" or r.prefill != r.decode),
        isl=column(lambda r: _length_frac(r) * r.isl),
        osl=column(lambda r: _length_frac(r) * r.osl),
        concurrency=column(lambda r: r.concurrency),
        draft_tokens=column(lambda r: r.draft_tokens),
        stream_interval=column(lambda r: r.stream_interval),
        poll_steps=column(lambda r: r.poll_steps),
        compile_s=column(lambda r: r.compile_s),
        equal_lengths=column(lambda r: r.equal_lengths),
        prompts_first=column(lambda r: r.backend in PROMPTS_FIRST),
        gathers=column(lambda r: r.backend in GATHERING),
        beside_rows=column(lambda r: beside_rows(r.system, r.backend)),
        memory=memory,
        utilization=np.asarray(default_utilization(memory, gpu, decode)),
    )


def _length_frac(row: Row) -> float:
    """Mean of the row's lengths over what it says."""
    return 1.0 if row.equal_lengths else LENGTH_FRAC


@float64
def resident_counts(points: Points, parallel: Parallel, osl: Real) -> np.ndarray:
    """(n,): requests of `osl` output tokens that an instance of each row holds at once."""
    return np.asarray(_counts(points.model, points.gpu, parallel, points.isl, osl, points.utilization, points.memory))


_counts, _budgets = jit(residents_of_length), jit(kv_budget_bytes)


@float64
def _fitted(points: Points, assumed: np.ndarray) -> tuple[Points, np.ndarray]:
    """The points with memory for their requests, and which of them have it.

    A deployment that ran did fit: where the usual share of the memory holds no request, or leaves less for the cache
    than it leaves idle, the engine was given more of it. Where the number of decode instances is assumed, it is at
    least as many as hold the cache of all clients.
    """
    cache = np.asarray(_budgets(points.model, points.gpu, points.decode, points.utilization, engine=points.memory))
    roomy = cache >= (1.0 - points.utilization) * np.asarray(points.gpu.memory_bytes)
    points = points.replace(utilization=np.where(roomy & _fits(points), points.utilization, TIGHT))
    held, fits = resident_counts(points, points.decode, points.osl), _fits(points)
    needed = np.where(assumed & fits, np.ceil(points.concurrency / np.maximum(held, 1.0)), 1.0)
    return points.replace(decode_instances=np.maximum(points.decode_instances, needed)), fits


def _fits(points: Points) -> np.ndarray:
    """(n,): a request fits where it is decoded, and its prompt where it is prefilled."""
    prompts = resident_counts(points, points.prefill, 1.0)
    return (resident_counts(points, points.decode, points.osl) >= 1.0) & ((points.separate == 0) | (prompts >= 1.0))


@float64
def _odd(points: Points) -> np.ndarray:
    """(n,): no engine runs the layout of the row's decoders, or of its prefill workers."""
    one, other = (out_of_domain(points.model, parallel) for parallel in (points.decode, points.prefill))
    return np.asarray(one | other)


def _unrunnable(row: Row) -> str:
    return f"no engine runs {row.model_path} over {_layouts(row)}: {LAYOUT_RULE}"


def _misfit(row: Row) -> str:
    """Why a row is refused: in the words of the row."""
    return (
        f"does not fit: {row.model_path} ({row.precision or 'bf16'}) over {_layouts(row)} on {row.system}; accepted is "
        f"a layout whose GPUs hold the weights and a request of {row.isl:g} + {row.osl:g} tokens in {TIGHT:.0%} of "
        "their memory"
    )


def _layouts(row: Row) -> str:
    roles = [("", row.decode)] if row.prefill == row.decode else [("prefill ", row.prefill), ("decode ", row.decode)]
    return " and ".join(f"{role}tp{layout.tp:g} dp{layout.dp:g} ep{layout.ep:g}" for role, layout in roles)


def _stack(records: list) -> Record:
    """Many records, few distinct ones: those are stacked, and the rows index them."""
    distinct = {id(record): record for record in records}
    place = {key: i for i, key in enumerate(distinct)}
    return stack(*distinct.values())[np.array([place[id(record)] for record in records])]


def _memory(row: Row) -> EngineMemory:
    """The row's engine's rule; vLLM's for an engine that is not known."""
    return _known_memory(row.backend, row.release) if row.backend in ENGINES else VLLM


_known_memory = lru_cache(engine_memory)


@lru_cache
def _gpu(system: str) -> GPU:
    return catalog.gpu(system)


def checkpoint(row: Row) -> Model:
    """The row's model with its matrices and cache in the row's formats."""
    for name in (row.gemm_dtype, row.moe_dtype):
        if name not in FORMATS:
            raise InputError(f"number format {name!r} is unknown; accepted are {', '.join(filter(None, FORMATS))}")
    return _checkpoint(row.model_path, FORMATS[row.gemm_dtype], FORMATS[row.moe_dtype])


@lru_cache
def _checkpoint(model_path: str, dense: str, experts: str) -> Model:
    """Published 4-bit checkpoints of mixture-of-experts models leave attention in 16 bits, and int4 ones (as well as
    gpt-oss) everything but the experts. The cache is in 8 bits where the weights are quantised to floats."""
    model = catalog.model(nearest_model(model_path))
    moe = bool(model.n_experts > 0)
    size, expert_size = FORMAT_BYTES[dense], FORMAT_BYTES[experts]
    experts_only = moe and (dense == "int4" or "gpt-oss" in model_path.lower())
    if "gpt-oss" in model_path.lower() and experts == "fp4":
        expert_size = FORMAT_BYTES["mxfp4"]
    return model.replace(
        weight_bytes=0.0,
        attention_dtype_bytes=2.0 if moe and (size < 0.75 or experts_only) else size,
        dense_dtype_bytes=2.0 if experts_only else size,
        expert_dtype_bytes=expert_size,
        embedding_dtype_bytes=2.0,
        kv_dtype_bytes=2.0 if dense in ("bf16", "int4") else 1.0,
    )


def fp8_formats(rows: Sequence[Row]) -> dict[str, tuple[str, str]]:
    """What most FP8 rows call the formats of their dense matrices and routed experts, by "engine+architecture": some
    call "fp8" what the published checkpoint scales by blocks."""
    said: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    for row in rows:
        if row.precision == "fp8":
            said[f"{row.backend}+{family(row.model_path)}"][FORMATS[row.gemm_dtype], FORMATS[row.moe_dtype]] += 1
    return {place: formats.most_common(1)[0][0] for place, formats in sorted(said.items())}


@lru_cache
def nearest_model(model_path: str) -> str:
    """The catalogue's name of a model: the id itself, or the id without the suffixes of fine-tunes and formats."""
    base = model_path
    while True:
        try:
            return catalog.model_name(base)
        except InputError:
            shorter = SUFFIX.sub("", base)
            if shorter == base:
                shorter = base.rsplit("/", 1)[-1]  # another vendor's copy
            if shorter == base:
                raise
            base = shorter


@lru_cache
def family(model_path: str) -> str:
    """The architecture that a model's config names (`model_type`); kernels are written per architecture."""
    return catalog.architecture(nearest_model(model_path))
