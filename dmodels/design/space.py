"""Sweeps: any formula over named axes, in float64, labelled, with units and flags.

ds = sweep(concurrent_sequences, model=choice({...}), gpu=choice({...}), context_tokens=grid(8192, 65536), tp=8)
ds.slots_count.sel(gpu="MI300X", context_tokens=8192)
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from dmodels import __version__
from dmodels.core.devices import accelerators
from dmodels.core.errors import InputError
from dmodels.core.extras import check_installed
from dmodels.core.files import check_writable
from dmodels.core.flags import MEANINGS
from dmodels.core.units import unit_of

from .axes import Axis, Choice, Grid, Zipped, choice, grid, zipped
from .distribute import by_cluster, by_devices, by_threads
from .program import Program, evaluate, lowered, program
from .store import Store, agree, in_memory, on_disk

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["blocks", "choice", "grid", "sweep", "zipped"]

#: Points of one block: what stays in a core's cache with some twenty intermediate values per point.
BLOCK_POINTS = 2**15
#: And on an accelerator, which a smaller block would keep waiting for launches.
WIDE_BLOCK_POINTS = 2**21
#: Results held in memory by default.
MEMORY_BYTES = 4 * 2**30


def sweep(
    function: Callable[..., Any],
    /,
    *,
    outputs: Sequence[str] | None = None,
    out: str | Path | None = None,
    devices: Sequence[Any] | None = None,
    client: Any = None,
    threads: int | None = None,
    progress: bool | Callable[[int, int], None] | None = None,
    block_points: int | None = None,
    memory_bytes: float = MEMORY_BYTES,
    **arguments: Any,
) -> xr.Dataset:
    """`function` at every point of a space, as an `xarray.Dataset` with one dimension per axis.

    Arguments of `function` are axes (`grid`, `choice`, `zipped`) or values. Numbers and records are data, so other
    numbers never recompile; functions, text and switches are part of the program, and so are keywords of a
    `functools.partial`. `**{"gpu.price_usd_per_hour": grid(2, 3)}` varies a field of a record that is given too.
    The function is called with scalars (and whole records) and must be traceable by JAX.

    outputs       names to keep; default: all. `flags` is always kept
    out           write the result to .nc, .zarr, .parquet, .arrow or .csv; a killed sweep goes on where it stopped
    devices       spread blocks over these devices; with `jax.distributed`, over all processes' devices
    client        spread blocks over a `dask.distributed` cluster
    threads       on one device: how many blocks at a time; default: one per core
    progress      True, False, or a function of (blocks done, blocks); default: a bar if stderr is a terminal
    block_points  points of one block; memory in use is some blocks per thread, and the result
    memory_bytes  a larger result is refused, unless `out` is given

    >>> ds = sweep(lambda tp, price_usd_per_hour: {"cost_usd_per_hour": tp * price_usd_per_hour},
    ...            tp=grid(1, 2, 4), price_usd_per_hour=2.5)
    >>> [float(x) for x in ds.cost_usd_per_hour], ds.cost_usd_per_hour.units
    ([2.5, 5.0, 10.0], 'USD/h')
    """
    check_installed("sweep", "xarray")
    path = None if out is None else _writable(out)
    axes, asked = _asked(function, arguments, outputs, block_points)
    like = lowered(asked).out_info
    size = sum(leaf.dtype.itemsize * int(np.prod(leaf.shape[2:], dtype=object)) for leaf in like.values())
    total = size * int(np.prod(asked.sizes, dtype=object))
    if out is None and total > memory_bytes:
        raise InputError(_too_large(axes, like, total, memory_bytes))
    if client is not None and devices is not None:
        raise InputError("client and devices: accepted is one of them")
    together = devices is not None and jax.process_count() > 1
    store, folder = in_memory(asked, like), None
    if path is not None and not (together and jax.process_index() > 0):  # of several processes the first one writes
        folder = path.with_name(path.name + ".parts")
        store = on_disk(folder, asked, like, _fingerprint(asked))
    if together:
        agree(store)
    todo = store.todo()
    if client is not None:
        done = by_cluster(asked, todo, client)
    elif devices is not None:
        done = by_devices(asked, todo, list(devices))
    else:
        done = by_threads(asked, todo, threads)
    with _shown(progress, asked.blocks_count, asked.blocks_count - len(todo)) as tick:
        for number, found in done:
            store.put(number, found)
            tick()
    if lost := store.todo():
        raise RuntimeError(f"{len(lost)} of {asked.blocks_count} blocks were not evaluated, like block {lost[0]}")
    ds = _dataset(function, axes, asked, store, arguments)
    if path is not None and folder is not None:
        from .files import write

        write(ds, path)
        shutil.rmtree(folder)  # the maps stay readable through `ds` until it is dropped
    return ds


def blocks(
    function: Callable[..., Any],
    /,
    *,
    outputs: Sequence[str] | None = None,
    block_points: int | None = None,
    **arguments: Any,
) -> Iterator[dict[str, np.ndarray]]:
    """The same points block by block, for spaces too large to hold: `points` (n, axes) are indices along the axes.

    Each block is a mapping output -> (n, ...) with `points` beside it; keep of it what you need, like a Pareto front.
    """
    axes, asked = _asked(function, arguments, outputs, block_points)
    long_axis = asked.layout.long_axis
    others = [size for place, size in enumerate(asked.sizes) if place != long_axis]
    for number in range(asked.blocks_count):
        down, across = asked.window(number)
        found = evaluate(asked, number)
        row, column = (part.ravel() for part in np.mgrid[down, across])
        places = list(np.unravel_index(row, others)) if others else []
        places.insert(long_axis, column)
        points = np.stack(places, 1) if axes else np.zeros((1, 0), np.int64)
        yield {"points": points} | {name: value.reshape(len(points), *value.shape[2:]) for name, value in found.items()}


def _asked(
    function: Callable[..., Any], given: Mapping[str, Any], outputs: Sequence[str] | None, block_points: int | None
) -> tuple[dict[str, Axis], Program]:
    """(axes by name, program) of a question."""
    if block_points is None:
        block_points = WIDE_BLOCK_POINTS if accelerators() else BLOCK_POINTS
    if block_points < 1:
        raise InputError(f"block_points = {block_points}: accepted are whole numbers from 1")
    axes, constants = {}, {}
    for name, value in given.items():
        if isinstance(value, Grid | Choice | Zipped):
            axes[name] = value.axis(name)
        else:
            constants[name] = value
    return axes, program(function, axes, constants, None if outputs is None else tuple(outputs), int(block_points))


def _dataset(
    function: Callable[..., Any], axes: Mapping[str, Axis], asked: Program, store: Store, given: Mapping[str, Any]
) -> xr.Dataset:
    import xarray as xr

    names = list(axes)
    long_axis = asked.layout.long_axis
    internal = [name for place, name in enumerate(names) if place != long_axis] + names[long_axis : long_axis + 1]
    variables = {}
    for name, array in store.arrays.items():
        extra = [f"{name}_{i}" for i in range(array.ndim - 2)]
        shape = (*(axes[axis].size for axis in internal), *array.shape[2:])
        whole = xr.Variable([*internal, *extra], array.reshape(shape))
        variables[name] = whole.transpose(*names, *extra)
        variables[name].attrs = _attributes(name)
    coordinates = {
        label: (axis, values, _attributes(label))
        for axis, part in axes.items()
        for label, values in part.labels.items()
    }
    for name in set(variables) & set(coordinates):  # an output that repeats its axis is the axis
        axis, values, _ = coordinates[name]
        if variables[name].dtype.kind != values.dtype.kind or (variables[name] != xr.Variable(axis, values)).any():
            raise InputError(f"{name!r} is an axis and another output; accepted are distinct names")
        del variables[name]
    return xr.Dataset(variables, coordinates, _provenance(function, asked, given))


def _attributes(name: str) -> dict[str, Any]:
    if name == "flags":
        return {
            "long_name": "why a point is not, or not surely, an answer; 0: nothing to say",
            "flag_masks": np.array([int(flag) for flag in MEANINGS], np.int32),
            "flag_meanings": " ".join(str(flag.name).lower() for flag in MEANINGS),
        }
    unit = unit_of(name.rpartition(".")[2])
    return {"units": unit} if unit else {}


def label(ds: xr.Dataset, name: str) -> str:
    """The long name, or the name, with its unit, as an axis shows it: `cost [USD/h]`, and `GPUs`, which say theirs."""
    facts = ds[name].attrs if name in ds.variables else {}
    words, unit = facts.get("long_name", name), facts.get("units", "")
    return f"{words} [{unit}]" if unit not in ("", "1", words.removesuffix("s")) else words


def _provenance(function: Callable[..., Any], asked: Program, given: Mapping[str, Any]) -> dict[str, str]:
    """Formula, its first line, the arguments that are no axes, and versions."""
    inner = function
    while hasattr(inner, "func"):
        inner = inner.func
    fixed = {name: _told(value) for name, value in given.items() if not isinstance(value, Grid | Choice | Zipped)}
    fixed |= {name: _told(value) for name, value in asked.layout.fixed}
    return {
        "formula": f"{getattr(inner, '__module__', '')}.{getattr(inner, '__qualname__', repr(inner))}",
        "title": (inspect.getdoc(inner) or "").partition("\n")[0],
        "arguments": json.dumps(fixed),
        "versions": f"dmodels {__version__}, jax {jax.__version__}, xarray {version('xarray')}",
        "Conventions": "CF-1.11",
    }


def _told(value: Any) -> Any:
    """A value as JSON: numbers as they are, records field by field, functions by name."""
    if isinstance(value, bool | str | None):
        return value
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    fields = value._asdict() if hasattr(value, "_asdict") else getattr(value, "__dict__", value)
    if isinstance(fields, Mapping):
        return {name: _told(field) for name, field in fields.items()}
    array = np.asarray(value)
    if array.size > 64 or array.dtype == object:
        return f"array {array.shape} sha256 {hashlib.sha256(array.tobytes()).hexdigest()[:12]}"
    return array.tolist()


def _fingerprint(asked: Program) -> str:
    """What a result depends on: the lowered program, the data, and the version that compiles it."""
    text = lowered(asked).as_text()
    digest = hashlib.sha256(re.sub(r"0x[0-9a-f]+", "", text).encode())
    digest.update(f"{jax.__version__} {asked.sizes}".encode())
    for leaf in jax.tree.leaves((asked.tables, asked.constants)):
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()


def _writable(out: str | Path) -> Path:
    from .files import writer

    path = Path(out)
    writer(path)
    check_writable(path)
    return path


def _too_large(axes: Mapping[str, Axis], like: Any, total: int, limit: float) -> str:
    sizes = " x ".join(f"{name} {axis.size:,}" for name, axis in axes.items())
    return (
        f"the result of {sizes} points with {len(like)} outputs holds {total / 2**30:,.1f} GiB, more than "
        f"{limit / 2**30:,.1f} GiB; accepted: fewer outputs=(...), out='sweep.zarr' (written in blocks), "
        "blocks(...) (a block at a time), or a larger memory_bytes"
    )


@contextmanager
def _shown(
    progress: bool | Callable[[int, int], None] | None, total: int, already: int
) -> Iterator[Callable[[], object]]:
    """A function to call after each block."""
    if callable(progress):
        tell, count = progress, itertools.count(already + 1)
        yield lambda: tell(next(count), total)
        return
    if progress is None:
        progress = sys.stderr.isatty()
    if not progress:
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = ("sweep", BarColumn(), MofNCompleteColumn(), "blocks", TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total, completed=already)
        yield lambda: bar.advance(task)
