"""A load generator's points as measured rows: what the file does not say is asked for, by the flag that adds it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmodels import catalog
from dmodels.core.errors import InputError
from dmodels.formats.measurements import LoadPoint, measured_files, read_measurements

from .points import LENGTH_FRAC, nearest_model
from .recipes import Layout
from .rows import Rejected, Row, Table, read_rows, release

BACKENDS = ("vllm", "sglang", "trtllm")
#: Precision of a row -> its number format.
DTYPES = {"bf16": "", "fp8": "fp8", "fp4": "nvfp4", "int4": "int4_wo"}


@dataclass(frozen=True)
class Machine:
    """What ran, where the files do not say; what they say otherwise is a mistake, but for a GPU's name, often vague."""

    model: str = ""
    gpu: str = ""
    engine: str = ""
    precision: str = ""
    tp: int = 0
    dp: int = 0
    ep: int = 0

    def __post_init__(self) -> None:
        for name, value, known in (("engine", self.engine, BACKENDS), ("precision", self.precision, DTYPES)):
            if value and value not in known:
                raise InputError(f"--{name} {value}: accepted are {', '.join(known)}")


def read_any(paths: str | Path | Iterable[str | Path], machine: Machine | None = None) -> Table:
    """Rows of files of either kind: tables of benchmark rows, and reports of load generators."""
    several = [paths] if isinstance(paths, str | Path) else list(paths)
    whole = Table()
    for path in several:
        if Path(path).suffix == ".csv" and not measured_files(path):
            found = read_rows(path)
        else:
            found = rows_of(read_measurements([path]), machine)
        whole.rows.extend(found.rows)
        whole.rejected.extend(found.rejected)
    return whole


def rows_of(points: Sequence[LoadPoint], machine: Machine | None = None) -> Table:
    """The points as rows. One that lacks what no flag gives is an `InputError`; one without TPOT is rejected."""
    table = Table()
    for point in points:
        if point.tpot.typical_s > 0:
            table.rows.append(_row(point, machine or Machine()))
        else:
            table.rejected.append(Rejected(point.where, 0, "no time per output token: was it measured with streaming?"))
    return table


def _row(point: LoadPoint, given: Machine) -> Row:
    model = _model(point, given)
    tp = _agreed(point, "tp", given.tp) or _missing(point, "tensor parallelism", "--tp N")
    dp, ep = _agreed(point, "dp", given.dp) or 1, _agreed(point, "ep", given.ep) or 1
    layout = Layout(float(tp), float(dp), float(min(ep, tp * dp)))
    precision = _agreed(point, "precision", given.precision) or published(model)
    if precision not in DTYPES:
        raise InputError(f"{point.where}: precision is {precision!r}; accepted are {', '.join(DTYPES)}, by --precision")
    engine = _agreed(point, "engine", given.engine) or _missing(point, "engine", "--engine NAME")
    return Row(
        id=point.where,
        model_path=model,
        system=_gpu(point, given),
        backend=str(engine),
        precision="" if precision == "bf16" else precision,
        gemm_dtype=DTYPES[precision],
        moe_dtype=DTYPES[precision],
        mode="agg",
        isl=point.input_tokens / LENGTH_FRAC,  # of a row, lengths are nominal
        osl=point.output_tokens / LENGTH_FRAC,
        concurrency=max(point.concurrency_count, 1.0),
        decode=layout,
        prefill=layout,
        stated=True,
        draft_tokens=0.0,
        stream_interval=1.0,
        release=release(point.release),
        source=point.where,
        ttft_s=point.ttft.typical_s,
        tpot_s=point.tpot.typical_s,
    )


def _model(point: LoadPoint, given: Machine) -> str:
    name = given.model or point.model
    if not name:
        _missing(point, "model", "--model NAME")
    try:
        known = nearest_model(name)
    except InputError as error:
        raise InputError(f"{point.where}: {error}; --model NAME says which it is") from None
    try:
        said = nearest_model(point.model) if point.model else known
    except InputError:  # a name of the server's own
        said = known
    if said != known:
        raise InputError(f"{point.where}: the file says {point.model}, not --model {name}; accepted is the same")
    return name


def _gpu(point: LoadPoint, given: Machine) -> str:
    name = given.gpu or point.gpu or str(_missing(point, "GPU", "--gpu NAME"))
    try:
        return str(catalog.gpu_facts(name)["name"])
    except InputError as error:
        raise InputError(f"{point.where}: {error}; --gpu NAME says which it is") from None


def _agreed(point: LoadPoint, field: str, given: Any) -> Any:
    """What the file says, or the flag where it is silent."""
    said = getattr(point, field)
    if said and given and said != given:
        raise InputError(f"{point.where}: the file says {field} {said}, not --{field} {given}; accepted is the same")
    return said or given


def _missing(point: LoadPoint, what: str, flag: str) -> int:
    raise InputError(f"{point.where}: {point.form} states no {what}; {flag} adds it")


def published(model_path: str) -> str:
    """The precision in which a catalogue model is published."""
    model = catalog.model(nearest_model(model_path))
    stored = float(model.expert_dtype_bytes if float(model.n_moe_layers) > 0 else model.dense_dtype_bytes)
    return "bf16" if stored > 1.5 else "fp8" if stored > 0.75 else "fp4"
