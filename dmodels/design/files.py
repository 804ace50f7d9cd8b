"""Labelled results on disk: NetCDF, Zarr, Parquet, Arrow, CSV; a file is there whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.extras import check_installed
from dmodels.core.files import replacing

#: Rows of a table that are in memory at a time.
_ROWS = 2**18


def write(ds, path: str | Path) -> Path:
    """Write a Dataset as its file name says: .nc, .zarr, .parquet or .arrow (a row per point) or .csv."""
    path = Path(path)
    make = writer(path)
    with replacing(path) as draft:
        make(ds, draft)
    return path


def read(path: str | Path):
    """A Dataset that `write` wrote as .nc or .zarr."""
    import xarray as xr

    path = Path(path)
    if path.suffix == ".zarr":
        return xr.open_zarr(path, chunks=None)
    if path.suffix == ".nc":
        return xr.open_dataset(path, engine="h5netcdf")
    raise InputError(f"{path.name!r}: accepted are .nc and .zarr")


def writer(path: Path) -> Callable:
    """The writer of a file name."""
    try:
        make, needed = _WRITERS[path.suffix.lower()]
    except KeyError:
        raise InputError(f"out = {str(path)!r}: suffix {path.suffix!r}; accepted are {', '.join(_WRITERS)}") from None
    check_installed(f"out = {str(path)!r}", *needed)
    return make


def tables(ds, rows: int = _ROWS) -> Iterator[dict[str, np.ndarray]]:
    """The points of a Dataset as columns, coordinates first, at most `rows` points at a time."""
    dims = list(ds.sizes)
    sizes = [ds.sizes[dim] for dim in dims]
    wide = [name for name, var in ds.data_vars.items() if set(var.dims) - set(ds.flags.dims if "flags" in ds else dims)]
    if wide:
        raise InputError(f"outputs {', '.join(wide)} hold several numbers per point; accepted in a table is one")
    total = int(np.prod(sizes, dtype=object))
    broadcast = {str(name): _along(var, dims, sizes) for name, var in {**ds.coords, **ds.data_vars}.items()}
    for start in range(0, total, rows):
        index = np.unravel_index(np.arange(start, min(start + rows, total)), sizes) if sizes else ()
        yield {name: np.atleast_1d(values[index]) for name, values in broadcast.items()}


def _along(var, dims: list, sizes: list[int]) -> np.ndarray:
    """A view of a variable over all dimensions."""
    have = [dim for dim in dims if dim in var.dims]
    values = np.asarray(var.transpose(*have).values)
    shape = [size if dim in have else 1 for dim, size in zip(dims, sizes, strict=True)]
    return np.broadcast_to(values.reshape(shape), sizes)


def _netcdf(ds, path: Path) -> None:
    ds.to_netcdf(path, engine="h5netcdf")


def _zarr(ds, path: Path) -> None:
    ds.to_zarr(path, mode="w", zarr_format=2)  # format 3 has no settled type for text


def _parquet(ds, path: Path) -> None:
    import pyarrow.parquet as pq

    _columns(ds, lambda schema: pq.ParquetWriter(path, schema))


def _arrow(ds, path: Path) -> None:
    import pyarrow as pa

    _columns(ds, lambda schema: pa.ipc.new_file(str(path), schema))


def _columns(ds, opened: Callable) -> None:
    """The points as record batches, with units and facts as metadata."""
    import pyarrow as pa

    out = metadata = None
    try:
        for part in tables(ds):
            table = pa.table(part)
            if out is None:
                facts = {key: str(value) for key, value in ds.attrs.items()}
                units = {f"units of {name}": ds[name].attrs["units"] for name in part if "units" in ds[name].attrs}
                metadata = facts | units
                out = opened(table.schema.with_metadata(metadata))
            out.write_table(table.replace_schema_metadata(metadata))
    finally:
        if out is not None:
            out.close()


def _csv(ds, path: Path) -> None:
    import pandas as pd

    for place, part in enumerate(tables(ds)):
        pd.DataFrame(part).to_csv(path, mode="a", header=place == 0, index=False)


#: Suffix -> who writes it, and the packages that it needs.
_WRITERS: dict[str, tuple[Callable, tuple[str, ...]]] = {
    ".nc": (_netcdf, ("h5netcdf", "h5py")),
    ".zarr": (_zarr, ("zarr",)),
    ".parquet": (_parquet, ("pyarrow",)),
    ".arrow": (_arrow, ("pyarrow",)),
    ".csv": (_csv, ()),
}
