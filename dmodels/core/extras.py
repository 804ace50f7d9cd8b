"""Packages that only some uses need, and the extra of dmodels that brings each."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

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


def check_installed(use: str, *packages: str) -> None:
    """Refuse a use whose packages are not installed, before anything is computed.

    >>> check_installed("this", "json")
    """
    if missing := [name for name in packages if find_spec(name) is None]:
        raise _missing(use, missing)


def needed(package: str, use: str) -> Any:
    """An optional package, or the mistake that names it and the extra that brings it."""
    try:
        return import_module(package)
    except ImportError:
        raise _missing(use, [package.partition(".")[0]]) from None


def how_to_install(*packages: str) -> str:
    """The command that brings some packages.

    >>> how_to_install("h5py", "zarr")
    "pip install 'dmodels[io]'"
    """
    return f"pip install 'dmodels[{','.join(sorted({EXTRA[name] for name in packages}))}]'"


def _missing(use: str, packages: Sequence[str]) -> InputError:
    return InputError(f"{use} needs {' and '.join(packages)}: {how_to_install(*packages)}")
