"""One process that has imported what tests need from elsewhere, and forks a fresh one for every change."""

from __future__ import annotations

import importlib
import os
import resource
import runpy
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

#: What is imported once. Others start threads, which a fork would not survive, or are rarely used.
WARM = {"numpy", "scipy", "pandas", "xarray", "jax", "jaxlib", "ml_dtypes", "equinox", "jaxtyping", "numba", "llvmlite"}
WARM |= {"hypothesis", "pytest", "_pytest", "jsonschema", "pydantic", "pydantic_core", "yaml", "matplotlib", "unittest"}
#: Not copied.
LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", "out", "*.egg-info", ".mypy_cache", ".ruff_cache", ".hypothesis")
MACHINE_CODE = ("*.nbi", "*.nbc")
#: CPU seconds that a changed loop may take to compile, beside the limit of its test.
COMPILING_S = 20


class Copy:
    """A copy of the project in which one change at a time is made."""

    def __init__(self, root: Path, folder: Path, modules: Iterable[str]) -> None:
        self.root, self.folder = root, folder / "copy"
        shutil.copytree(root, self.folder, ignore=LEFT_OUT)
        if (beside := root.parent / "shared").is_dir():  # measured data, which tests find beside the project
            (folder / "shared").symlink_to(beside)
        compiled = {"JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"), "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
        compiled |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # others' plugins take longer to start than most tests
        compiled |= {
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        for name, value in compiled.items():
            os.environ.setdefault(name, value)
        os.environ["PYTHONPATH"] = str(self.folder)
        sys.path[:] = [str(self.folder), *(p for p in sys.path if Path(p or ".").resolve() != root)]
        if (self.folder / "conftest.py").is_file():
            runpy.run_path(str(self.folder / "conftest.py"))  # settings that are read on import
        for name in modules:
            if name.split(".")[0] in WARM:
                try:
                    importlib.import_module(name)
                except Exception:  # whatever a module does when it comes early: the tests import it themselves
                    continue

    def apart(self, what: Callable[[], Any], limit_s: float = 3600.0, kept: Path | None = None) -> tuple[int, float]:
        """Call `what` in a fork; its exit status (None where it took longer than `limit_s`), and its CPU seconds."""
        child = os.fork()
        if child == 0:
            status = 70
            try:
                os.chdir(self.folder)
                quiet = os.open(kept or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(quiet, 1), os.dup2(quiet, 2)
                for name in [name for name in sys.modules if name.split(".")[0] in ("tools", "tests", "proofs")]:
                    del sys.modules[name]
                most = resource.getrlimit(resource.RLIMIT_CPU)[1]  # which may not be raised
                hard = int(limit_s) + 2 if most == resource.RLIM_INFINITY else min(int(limit_s) + 2, most)
                resource.setrlimit(resource.RLIMIT_CPU, (hard - 1, hard))
                status = int(what() or 0)
            finally:
                sys.stdout.flush()
                os._exit(status)
        _, ended, used = os.wait4(child, 0)
        seconds = used.ru_utime + used.ru_stime
        if os.WIFSIGNALED(ended):
            return -os.WTERMSIG(ended), seconds
        return os.WEXITSTATUS(ended), seconds

    def first_failure(self, tests: list[str], limit_s: float) -> tuple[str, float]:
        """The first failing test's id, "" if all pass that begin in `limit_s`, "?" if one goes on and on; CPU seconds.

        A changed loop's machine code, which may take longer than hundreds of its tests, is made beside `limit_s`.
        """
        told = self.folder.parent / "told"
        told.write_text("")

        def run() -> int:
            import pytest

            compiled_s = _compiled_s()
            place = {name: k for k, name in enumerate(tests)}

            class First:
                @pytest.hookimpl(trylast=True)
                def pytest_collection_modifyitems(self, items):  # which a project may sort for runs of all
                    items.sort(key=lambda item: place.get(item.nodeid, len(place)))

                def pytest_runtest_logstart(self, nodeid):
                    end = int(time.process_time() + limit_s) + COMPILING_S
                    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
                    resource.setrlimit(resource.RLIMIT_CPU, (min(end, hard), hard))

                def pytest_runtest_logreport(self, report):
                    if report.failed:
                        told.write_text(report.nodeid)

                def pytest_runtest_logfinish(self, nodeid):
                    if time.process_time() - compiled_s() > limit_s:
                        pytest.exit("enough", returncode=0)

                def pytest_collectreport(self, report):
                    if report.failed:
                        told.write_text(f"{report.nodeid} (cannot be read)")

            sys.dont_write_bytecode = True
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
            return pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--tb=line", *tests], plugins=[First()])

        status, seconds = self.apart(run, 2 * (limit_s + COMPILING_S), self.folder.parent / "last.log")
        if status in (0, 5):
            return "", seconds
        if status in (-signal.SIGXCPU, -signal.SIGKILL):
            return "?", seconds
        return told.read_text() or f"the tests' start, status {status}", seconds

    def with_change(self, place: Path, text: str, tests: list[str], limit_s: float) -> tuple[str, float]:
        """`first_failure` with `text` in place of a file of the project."""
        inside = self.folder / place.relative_to(self.root)
        before = {path: path.stat().st_mtime_ns for path in self.machine_code()}
        inside.write_text(text, encoding="utf-8")
        os.utime(inside, (1e9, 1e9))  # kept bytecode is that of another date
        try:
            return self.first_failure(tests, limit_s)
        finally:
            shutil.copy2(place, inside)
            for path in self.machine_code():  # of the changed kernels; what is kept for the first time has its stamp
                kept = self.root / path.relative_to(self.folder)
                if kept.is_file() and before.get(path) != path.stat().st_mtime_ns:
                    shutil.copy2(kept, path)

    def machine_code(self) -> list[Path]:
        return [path for pattern in MACHINE_CODE for path in self.folder.rglob(pattern)]


def _compiled_s() -> Callable[[], float]:
    """A clock of the seconds that Numba takes from now on."""
    if "numba" not in sys.modules:
        return lambda: 0.0
    from numba.core import event

    clock = event.TimingListener()
    event.register("numba:compile", clock)
    return lambda: clock.duration if clock.done else 0.0
