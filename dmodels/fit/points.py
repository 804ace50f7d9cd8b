"""Rows as arrays: the records and loads that the latency model takes, one leaf entry per row."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from dmodels import catalog
from dmodels.core.errors import InputError
from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.precision import FORMAT_BYTES
from dmodels.core.records import Real, Record, float64, quantity, stack
from dmodels.models.latency import resident_max_count

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
#: Memory of a GPU that holds more than it would by the usual share, over what that share assumes.
TIGHT = 1.2
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


def to_points(table: Table) -> tuple[Points, Table]:
    """Arrays of the rows whose model, GPU and formats are known, and the table with the other rows rejected."""
    good, rejected, records = [], list(table.rejected), []
    for row in table.rows:
        try:
            records.append((checkpoint(row), _gpu(row.system)))
            good.append(row)
        except InputError as error:
            rejected.append(Rejected(row.id, 0, str(error)))
    kept = Table(good, rejected)
    return (stack_points(kept.rows, records), kept)


def stack_points(rows: list[Row], records: list[tuple[Model, GPU]]) -> Points:
    """The arrays of rows with their records."""
    if not rows:
        raise InputError("no row can be used")

    def column(of):
        return np.array([float(of(row)) for row in rows])

    def parallel(of):
        return Parallel(
            column(lambda r: of(r).tp),
            1.0 + 0 * column(lambda r: 1),
            column(lambda r: of(r).dp),
            column(lambda r: of(r).ep),
        )

    points = Points(
        model=_stack([model for model, _ in records]),
        gpu=_stack([gpu for _, gpu in records]),
        decode=parallel(lambda r: r.decode),
        prefill=parallel(lambda r: r.prefill),
        decode_instances=column(lambda r: r.decode.instances),
        decode_batch=np.minimum(column(lambda r: r.decode.batch), 1e9),
        prefill_instances=column(lambda r: r.prefill.instances),
        separate=column(lambda r: r.mode == "disagg" or r.prefill != r.decode),
        isl=LENGTH_FRAC * column(lambda r: r.isl),
        osl=LENGTH_FRAC * column(lambda r: r.osl),
        concurrency=column(lambda r: r.concurrency),
        draft_tokens=column(lambda r: r.draft_tokens),
        stream_interval=column(lambda r: r.stream_interval),
        poll_steps=column(lambda r: r.poll_steps),
    )
    return _enough(points, column(lambda r: not r.stated) > 0)


@float64
def _enough(points: Points, assumed: np.ndarray) -> Points:
    """Where the number of decode instances is assumed, at least as many as hold the cache of all clients.

    And a deployment that ran did fit: where 90 % of the memory would not hold the weights, the engine took more of it.
    """

    def slots():
        return np.asarray(resident_max_count(points.model, points.gpu, points.decode, points.isl, points.osl))

    tight = slots() < 1.0
    memory = np.asarray(points.gpu.memory_bytes) * np.where(tight, TIGHT, 1.0)
    points = points.replace(gpu=points.gpu.replace(memory_bytes=memory))
    needed = np.where(assumed & (slots() >= 1.0), np.ceil(points.concurrency / np.maximum(slots(), 1.0)), 1.0)
    return points.replace(decode_instances=np.maximum(points.decode_instances, needed))


def _stack(records: list) -> Record:
    """Many records, few distinct ones: those are stacked, and the rows index them."""
    distinct = {id(record): record for record in records}
    place = {key: i for i, key in enumerate(distinct)}
    return stack(*distinct.values())[np.array([place[id(record)] for record in records])]


@lru_cache(maxsize=64)
def _gpu(system: str) -> GPU:
    return catalog.gpu(system)


def checkpoint(row: Row) -> Model:
    """The row's model with its matrices and cache in the row's formats."""
    for name in (row.gemm_dtype, row.moe_dtype):
        if name not in FORMATS:
            raise InputError(f"number format {name!r} is unknown; accepted are {', '.join(filter(None, FORMATS))}")
    return _checkpoint(row.model_path, FORMATS[row.gemm_dtype], FORMATS[row.moe_dtype])


@lru_cache(maxsize=256)
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


@lru_cache(maxsize=256)
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


@lru_cache(maxsize=256)
def family(model_path: str) -> str:
    """The architecture that a model's config names (`model_type`); kernels are written per architecture."""
    config = catalog.model_config(nearest_model(model_path))
    return str(config.get("model_type") or (config.get("text_config") or {}).get("model_type") or "")
