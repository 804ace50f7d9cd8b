"""Packages that only some uses need, and the extra of dmodels that brings each."""

from __future__ import annotations

from importlib.util import find_spec

from .errors import InputError

#: Package, as it is imported -> the extra that brings it.
EXTRA = {
    "matplotlib": "report",
    "xarray": "sweep",
    "pandas": "sweep",
    "h5netcdf": "io",
    "h5py": "io",
    "zarr": "io",
    "pyarrow": "io",
    "dask": "cluster",
    "distributed": "cluster",
    "starlette": "explore",
    "uvicorn": "explore",
    "yaml": "deploy",
    "pytest": "test",
}


def need(use: str, *packages: str) -> None:
    """Refuse a use whose packages are not installed, with the command that installs them.

    >>> need("this", "json")
    """
    if missing := [name for name in packages if find_spec(name) is None]:
        raise InputError(f"{use} needs {' and '.join(missing)}: {how_to_install(*missing)}")


def how_to_install(*packages: str) -> str:
    """The command that brings some packages.

    >>> how_to_install("h5py", "zarr")
    "pip install 'dmodels[io]'"
    """
    return f"pip install 'dmodels[{','.join(sorted({EXTRA[name] for name in packages}))}]'"
