"""Compiled programs kept between processes, so that the second one starts fast."""

from __future__ import annotations

import os
import sys
from os import PathLike
from pathlib import Path


def keep_compiled(folder: str | PathLike[str] | None = None) -> Path:
    """Keep JAX's compiled programs in `folder`; by default where the command keeps them, in the user's cache folder.

    A choice of the process, since it holds for all of its programs: importing dmodels makes it for nobody, the command
    does. JAX_COMPILATION_CACHE_DIR, where it is set, is stronger than the default.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    chosen = Path(folder or os.environ.get("JAX_COMPILATION_CACHE_DIR") or base / "dmodels" / "jax")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(chosen)
    least_s = float(os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1"))
    if "jax" in sys.modules:  # it has read the environment already
        import jax

        jax.config.update("jax_compilation_cache_dir", str(chosen))  # type: ignore[no-untyped-call]
        jax.config.update("jax_persistent_cache_min_compile_time_secs", least_s)  # type: ignore[no-untyped-call]
    return chosen
