"""Runs chosen tests in a forked process whose imports see one changed module.

The parent imports what is heavy (JAX, SymPy, SciPy) and nothing of dmodels, and starts no JAX backend, so a fork costs
milliseconds and is safe. A child serves the changed module from memory; no file is written.
"""

from __future__ import annotations

import ast
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Report:
    """What a child says: tests that it ran with their seconds, the first that failed, and functions they entered."""

    ran: dict[str, float] = field(default_factory=dict)
    failed: str = ""
    entered: dict[str, list[str]] = field(default_factory=dict)
    timed_out: bool = False
    failures: list[str] = field(default_factory=list)


def preload() -> None:
    """Import the heavy packages once, in the parent."""
    for name in (
        "cvxpy",
        "equinox",
        "hypothesis",
        "hypothesis.strategies",
        "hypothesis.extra.numpy",
        "jax",
        "jax.numpy",
        "jax.scipy.special",
        "jax.experimental",
        "lineax",
        "numba",
        "optimistix",
        "pytest",
        "scipy.optimize",
        "scipy.stats",
        "sympy",
    ):
        importlib.import_module(name)
    from jax._src import xla_bridge

    assert not xla_bridge.backends_are_initialized(), "a backend's threads would not survive the fork"
    gc.collect()
    gc.freeze()  # children need not look through it again


class Served(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Serves modules of dmodels compiled from a tree that `edit` returns (None: as it is on disk).

    Edited code can call `_entered`.
    """

    def __init__(self, root: Path, edit: Callable[[str, str], ast.Module | None], entered: Callable[[str], None]):
        self.root, self.edit, self.entered = root, edit, entered

    def find_spec(self, name, path=None, target=None):
        file = self.root / (name.replace(".", "/") + ".py")
        if not name.startswith("dmodels.") or not file.is_file():
            return None
        tree = self.edit(file.relative_to(self.root).as_posix(), file.read_text(encoding="utf-8"))
        if tree is None:
            return None
        spec = importlib.util.spec_from_file_location(name, file, loader=self)
        spec.loader_state = tree
        return spec

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module._entered = self.entered
        exec(compile(module.__spec__.loader_state, module.__spec__.origin, "exec"), module.__dict__)

    def get_source(self, name):  # inspect.getsource and numba read the file itself
        return (self.root / (name.replace(".", "/") + ".py")).read_text(encoding="utf-8")


class _Watch:
    """A pytest plugin: the order of the tests, the first failure, and which functions each test entered."""

    def __init__(self, order: list[str] | None):
        self.order, self.report, self.entered = order, Report(), set()

    def pytest_configure(self):
        from hypothesis import Phase, settings

        quick = settings(settings.get_profile("default"), phases=(Phase.explicit, Phase.generate), database=None)
        settings.register_profile("mutants", parent=quick)
        settings.load_profile("mutants")

    def pytest_collection_modifyitems(self, items):
        if self.order is not None:
            rank = {name: i for i, name in enumerate(self.order)}
            items[:] = sorted((i for i in items if i.nodeid in rank), key=lambda i: rank[i.nodeid])

    def pytest_runtest_protocol(self, item):
        self.entered.clear()

    def pytest_runtest_logreport(self, report):
        self.report.ran[report.nodeid] = self.report.ran.get(report.nodeid, 0.0) + report.duration
        if report.when == "teardown" and self.entered:
            self.report.entered[report.nodeid] = sorted(self.entered)
        if report.failed:
            self.report.failures.append(report.nodeid)
            self.report.failed = self.report.failed or report.nodeid

    def pytest_collectreport(self, report):
        if report.failed and not self.report.failed:
            self.report.failed = report.nodeid


def run(
    root: Path,
    files: list[str],
    edit: Callable[[str, str], ast.Module | None],
    *,
    order: list[str] | None = None,
    stop: bool = True,
    limit_s: float = 120.0,
) -> Report:
    """Run test files in a child whose dmodels is edited: chosen tests in `order`, up to the first failure if `stop`."""
    end, start = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(end)
        _child(root, files, edit, order, stop, start)
    os.close(start)
    text, deadline = b"", time.monotonic() + limit_s
    while (left := deadline - time.monotonic()) > 0:
        if select.select([end], [], [], left)[0]:
            if not (part := os.read(end, 1 << 16)):
                break
            text += part
    else:
        os.kill(child, signal.SIGKILL)
    os.close(end)
    os.waitpid(child, 0)
    if left <= 0:
        return Report(timed_out=True)
    return Report(**json.loads(text)) if text else Report(failed="the process ended by itself")


def _child(root, files, edit, order, stop, start) -> None:
    """Everything after the fork; never returns."""
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(quiet, stream)
    os.chdir(root)
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(root))
    watch = _Watch(order)
    sys.meta_path.insert(0, Served(root, edit, watch.entered.add))
    import pytest

    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # half of a child's time otherwise; rewriting, a quarter
    plugins = ["-p", "no:cacheprovider", "-p", "no:unraisableexception", "-p", "_hypothesis_pytestplugin"]
    line = ["-q", *plugins, "--assert=plain", "-m", "not slow", "--rootdir", str(root), *files]
    pytest.main(line + (["-x"] if stop else []), plugins=[watch])
    with os.fdopen(start, "w") as out:
        json.dump(watch.report.__dict__, out)
    os._exit(0)
