"""Runs chosen tests in forked processes, each with one function changed.

One process imports everything and collects the tests once; where pytest would run them, it forks. It starts no JAX
backend and traces nothing, so a fork costs milliseconds, is safe, and sees only the changed function: the function
object keeps its place in whatever wraps it and gets other code. No file is written.

Tests that run op by op (`OP_BY_OP`) leave nothing of dmodels compiled behind, so one child asks them many changes.
"""

from __future__ import annotations

import ast
import gc
import importlib
import json
import os
import signal
import sys
import time
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import pytest

from .changes import functions

#: The fixture of tests that compile nothing of dmodels: `jax.disable_jit`, and no cache of their own.
OP_BY_OP = "op_by_op"


@dataclass(frozen=True)
class Outcome:
    """One test that ran in a child: its CPU seconds, whether it failed, and the functions that it entered."""

    name: str
    seconds: float
    failed: bool
    entered: list[str] = field(default_factory=list)


def preload() -> None:
    """Import the heavy packages."""
    for name in ("cvxpy", "equinox", "hypothesis.extra.numpy", "jax.scipy.special", "jax.experimental", "lineax"):
        importlib.import_module(name)
    for name in ("numba", "optimistix", "scipy.optimize", "scipy.stats", "sympy"):
        importlib.import_module(name)


def collected(root: Path, files: list[str], serve: Callable[[Host], None]) -> None:
    """Collect the tests of `files` below `root`, and call `serve` where they would run."""
    os.chdir(root)
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(root))
    sys.modules["proofs"].__path__[:] = [str(root / "proofs")]  # the pages are the copy's too
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    plugins = ["-p", "no:cacheprovider", "-p", "no:unraisableexception", "-p", "_hypothesis_pytestplugin"]
    line = ["-q", "-s", *plugins, "--no-header", "--assert=plain", "-m", "not slow", "--rootdir", str(root), *files]
    host = Host(serve)
    pytest.main(line, plugins=[host])
    if host.error:
        raise host.error


class Host:
    """A pytest plugin: the collected tests, and the functions of dmodels that they could enter."""

    def __init__(self, serve: Callable[[Host], None]):
        self.serve, self.error = serve, None
        self.items: dict[str, pytest.Item] = {}
        self.op_by_op: set[str] = set()
        self.functions: dict[tuple[str, str], list[types.FunctionType]] = {}
        self.entered: set[str] = set()
        self.failed = False

    def pytest_configure(self):
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        quick = settings(settings.get_profile("default"), phases=phases, database=None, derandomize=True)
        settings.register_profile("mutants", parent=quick)
        settings.load_profile("mutants")

    def pytest_runtestloop(self, session) -> bool:
        from jax._src import xla_bridge

        try:
            if session.testsfailed:
                raise SystemExit("some tests cannot be collected")
            if xla_bridge.backends_are_initialized():  # its threads would not survive a fork
                raise SystemExit("a file of tests computes with JAX where it is imported")
            self.items = {item.nodeid: item for item in session.items}
            self.op_by_op = {item.nodeid for item in session.items if OP_BY_OP in item.fixturenames}
            for known in gc.get_objects():
                if isinstance(known, types.FunctionType) and str(known.__module__).startswith("dmodels."):
                    code = known.__code__
                    self.functions.setdefault((code.co_filename, code.co_qualname), []).append(known)
            gc.collect()
            gc.freeze()  # children need not look through it again
            self.serve(self)
        except (Exception, SystemExit) as error:  # pytest would swallow it
            self.error = error
        return True

    def pytest_runtest_logreport(self, report):
        self.failed |= report.failed

    def run(self, names: Iterable[str], prepare: Callable[[], None], limit_s: Callable[[str], float], *,
            stop: bool = True, spend_s: float = float("inf")) -> list[Outcome]:  # fmt: skip
        """Run tests in a child after `prepare`, up to the first failure if `stop`, until `spend_s` CPU-s are spent.

        A test over its limit ends the child: it is the last outcome, failed.
        """
        names = list(names)
        lines, child = self._fork(lambda out: self._run(names, prepare, limit_s, stop, spend_s, out))
        with lines:
            outcomes = [Outcome(**json.loads(line)) for line in lines]
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code > 0:
            raise SystemExit(f"the change could not be made, or pytest failed, before {names[len(outcomes) :][:1]}")
        if code < 0:
            outcomes.append(Outcome(names[len(outcomes)], limit_s(names[len(outcomes)]), True))
        return outcomes

    def run_in_turn(
        self, changes: Sequence[tuple[list[str], Callable[[], Callable[[], None]]]], limit_s: float
    ) -> Iterator[str | None]:
        """For each of (tests, what makes a change and returns what undoes it): the first test that fails, "" or None.

        Tests are to be `OP_BY_OP`. None: they took longer than `limit_s`, and the next change gets a new child.
        """
        done = 0
        while done < len(changes):
            lines, child = self._fork(lambda out, left=changes[done:]: self._run_in_turn(left, limit_s, out))
            with lines:
                for line in lines:
                    yield json.loads(line)
                    done += 1
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if code > 0:
                raise SystemExit(
                    f"a change could not be made, or left a trace: {[names for names, _ in changes[done:]][:1]}"
                )
            if code < 0:
                yield None
                done += 1

    def _fork(self, body: Callable[[TextIO], None]) -> tuple[TextIO, int]:
        """(what `body` writes in a child, the child)."""
        end, start = os.pipe()
        child = os.fork()
        if child:
            os.close(start)
            return os.fdopen(end, encoding="utf-8"), child
        os.close(end)
        try:
            quiet = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(quiet, stream)
            signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, wherever it is
            with os.fdopen(start, "w", encoding="utf-8", buffering=1) as out:
                body(out)
            os._exit(0)
        finally:  # whatever happens, this process does not go on as its parent would
            os._exit(3)

    def _run(self, names, prepare, limit_s, stop, spend_s, out) -> None:
        import jax

        prepare()
        for name, following in zip(names, [*names[1:], None], strict=True):
            self.entered.clear()
            if not stop:
                jax.clear_caches()  # what is traced already would not be entered again
            signal.setitimer(signal.ITIMER_PROF, limit_s(name))
            began = time.process_time()
            failed = self._fails(name, following)
            outcome = Outcome(name, time.process_time() - began, failed, sorted(self.entered))
            out.write(json.dumps(outcome.__dict__) + "\n")
            if (failed and stop) or time.process_time() > spend_s:
                break

    def _run_in_turn(self, changes, limit_s, out) -> None:
        for names, change in changes:
            signal.setitimer(signal.ITIMER_PROF, limit_s)
            undo = change()
            out.write(json.dumps(next((name for name in names if self._fails(name)), "")) + "\n")
            undo()
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        for name in {name for names, _ in changes for name in names}:
            if self._fails(name):
                raise AssertionError(f"{name} fails without a change: what it was asked before left a trace")

    def _fails(self, name: str, following: str | None = None) -> bool:
        item, after = self.items[name], self.items[following] if following else None
        item._initrequest()  # it may have run before
        self.failed = False
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        return self.failed

    def swap(self, path: str, tree: ast.Module, name: str | None = None) -> Callable[[], None]:
        """Give the function `name` of the module at `path` (None: every function) the code and defaults of `tree`.

        Returns what undoes it.
        """
        before = []
        codes = {code.co_qualname: code for code in _codes(compile(tree, path, "exec"))}
        for here, node, _ in functions(tree):
            if name not in (None, here):
                continue
            found = self.functions.get((path, here), [])
            assert found or name is None, f"{here} of {path} is not there to be changed"
            for function in found:
                before.append((function, function.__code__, function.__defaults__, function.__kwdefaults__))
                function.__code__ = codes[here]
                function.__globals__["_entered"] = self.entered.add
                value = lambda node, names=function.__globals__: eval(_compiled(node), names)
                if function.__defaults__:
                    function.__defaults__ = tuple(value(default) for default in node.args.defaults)
                if function.__kwdefaults__:
                    pairs = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
                    function.__kwdefaults__ = {a.arg: value(default) for a, default in pairs if default is not None}

        def undo() -> None:
            for function, code, defaults, keywords in before:
                function.__code__, function.__defaults__, function.__kwdefaults__ = code, defaults, keywords

        return undo


def _compiled(node: ast.expr) -> types.CodeType:
    return compile(ast.Expression(node), "default", "eval")


def _codes(code: types.CodeType) -> Iterable[types.CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _codes(inner)
