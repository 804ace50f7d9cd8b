"""Measured kernel times: tables of two layouts, as shapes of operators.

`<gpu>/<engine>/<table>@<release>.parquet`, and the public database's own
`<gpu>/<family>/<engine>/<release>/<table>_perf.parquet` (of several releases of a table the newest counts). A GPU that
the catalogue does not know, a column that is missing, a cell that is no number: file, row, column and reason are said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.extras import needed
from dmodels.core.records import Floats
from dmodels.models.operators import LAWS

from .columns import READERS, required


class KernelTable(NamedTuple):
    """One file: whose kernels, of which kind, from which release."""

    path: Path
    gpu: str
    engine: str
    kind: str
    release: str


class Kernels(NamedTuple):
    """Rows of one (kind, GPU, engine, number format, kernel): shapes, and seconds."""

    kind: str
    gpu: str
    engine: str
    dtype: str
    kernel: str
    shape: dict[str, Floats]
    seconds: Floats

    @property
    def held_out(self) -> np.ndarray:
        """Every tenth shape, by a hash of the shape alone: the same shapes on every GPU and engine."""
        return shape_hash(self.shape) % 10 == 0

    def take(self, index: Any) -> Kernels:
        """The rows at `index`."""
        return self._replace(shape={k: v[index] for k, v in self.shape.items()}, seconds=self.seconds[index])


def shape_hash(shape: dict[str, Floats]) -> np.ndarray:
    """A 64-bit hash per row of the shape's numbers (splitmix64 over the fields in the order of their names)."""
    state = np.zeros(len(next(iter(shape.values()))), np.uint64)
    with np.errstate(over="ignore"):
        for name in sorted(shape):
            state = state + np.asarray(shape[name], np.float64).view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state = state ^ (state >> np.uint64(31))
    return state


def tables(folder: str | Path) -> list[KernelTable]:
    """The tables under a folder, of either layout; of each (GPU, engine, kind) the newest release."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: is no folder; one with <gpu>/<engine>/<table>@<release>.parquet is accepted")
    found: dict[tuple[str, str, str], KernelTable] = {}
    for path in sorted(folder.rglob("*.parquet")):
        parts = path.relative_to(folder).parts
        if len(parts) == 3 and "@" in path.stem:
            (gpu, engine), (kind, release) = parts[:2], path.stem.split("@", 1)
        elif len(parts) == 5 and path.stem.endswith("_perf"):
            gpu, _, engine, release = parts[:4]
            kind = path.stem.removesuffix("_perf")
        else:
            continue
        key = (gpu, engine, kind)
        if key not in found or _newer(release, found[key].release):
            found[key] = KernelTable(path, gpu, engine, kind, release)
    if not found:
        raise InputError(
            f"{folder}: holds no table; <gpu>/<engine>/<table>@<release>.parquet is accepted, and "
            "<gpu>/<family>/<engine>/<release>/<table>_perf.parquet"
        )
    return [t for t in found.values() if t.kind in READERS]


def _newer(a: str, b: str) -> bool:
    """Whether release a came after b: 1.3.0 after 1.3.0rc20, and 0.5.6.post1 after 0.5.6."""

    def key(release: str) -> list[tuple[int, int | str]]:
        parts = re.findall(r"\d+|[a-z]+", release)
        return [*((2, int(p)) if p.isdigit() else (3 if p == "post" else 0, p) for p in parts), (1, "")]

    return key(a) > key(b)


def read(table: KernelTable) -> Iterator[Kernels]:
    """The table's rows by operator, number format and kernel."""
    columns = _columns(table) | {"gpu": table.gpu, "engine": table.engine}
    for kind, rows in READERS[table.kind](columns):
        fields = LAWS[kind].fields
        shape = {f: np.asarray(rows[f], np.float64) for f in fields}
        seconds = np.asarray(rows["seconds"], np.float64)
        groups = np.char.add(np.char.add(rows["dtype"].astype(str), "\t"), rows["kernel"].astype(str))
        for group in np.unique(groups):
            dtype, kernel = str(group).split("\t")
            index = np.flatnonzero(groups == group)
            yield Kernels(kind, table.gpu, table.engine, dtype, kernel, shape, seconds).take(index)


def _columns(table: KernelTable) -> dict[str, np.ndarray]:
    use = "reading Parquet tables"
    pyarrow, parquet = needed("pyarrow", use), needed("pyarrow.parquet", use)
    try:
        held = parquet.read_table(table.path)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise InputError(f"{table.path}: cannot be read as Parquet ({str(error).splitlines()[0][:80]})") from None
    columns = {}
    for name, numeric in required(table.kind):
        if name not in held.column_names:
            raise InputError(f"{table.path}: column {name!r} is missing; it has {', '.join(held.column_names)}")
        values = held[name].to_numpy(zero_copy_only=False)
        if numeric:
            values = _numbers(values, table.path, name)
        columns[name] = values
    for name in held.column_names:
        if name not in columns:
            columns[name] = held[name].to_numpy(zero_copy_only=False)
    return columns


def _numbers(values: np.ndarray, path: Path, name: str) -> Floats:
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError):
        for row, value in enumerate(values):
            try:
                float(value)
            except (TypeError, ValueError):
                raise InputError(f"{path}: row {row}, {name} is {value!r}; a number is accepted") from None
        raise
    least = 0.0
    positive = name == "latency"
    bad = ~np.isfinite(numbers) | (numbers < least) | ((numbers == 0.0) & positive)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        accepted = "a finite number above 0" if positive else "a finite number of at least 0"
        raise InputError(f"{path}: row {row}, {name} is {numbers[row]:g}; {accepted} is accepted")
    return numbers
