"""What each test runs: the lines of the package, the data files that it opens, its seconds; once per test file.

Fixtures that several tests share count for each of them, and what the package or a test's helpers keep
(`functools.cache`) is forgotten before every test, so that no test stands for what another one has run.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

Lines = dict[str, int]  # file -> its lines as bits


class Recorded(NamedTuple):
    """What a test runs of the package: `lines` and `opened` by paths below the root."""

    name: str
    passed: bool
    cpu_s: float
    lines: Lines
    opened: frozenset[str]

    def runs(self, file: str, lines: int) -> bool:
        return bool(self.lines.get(file, 0) & lines)


def digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()


class Recorder:
    """A pytest plugin that notes what each test runs of `package`."""

    def __init__(self, root: Path, package: Path) -> None:
        import coverage

        self.root, self.package = root, package
        self.coverage = coverage.Coverage(data_file=None, source=[str(package)], config_file=False)
        self.opened: dict[str, set[str]] = defaultdict(set)
        self.spent: dict[str, float] = defaultdict(float)
        self.shared: dict[str, list[str]] = {}
        self.passed: dict[str, bool] = {}
        self.context = ""
        sys.addaudithook(self.heard)

    def heard(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[0], str) and self.context and args[0].startswith(str(self.package)):
            self.opened[self.context].add(str(Path(args[0]).relative_to(self.root)))

    def switch(self, context: str) -> str:
        before, self.context = self.context, context
        self.coverage.switch_context(context)
        return before

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        name, began = f"fixture {fixturedef.baseid}::{fixturedef.argname}", time.process_time()
        before = self.switch(name)
        try:
            return (yield)
        finally:
            self.switch(before)
            self.spent[name] += (spent := time.process_time() - began)
            self.spent[before] -= spent

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> Iterator[None]:
        gc.unfreeze()  # what is frozen (`conftest.py`) is not among the objects
        for kept in gc.get_objects():
            if isinstance(kept, functools._lru_cache_wrapper) and self.ours(kept):
                kept.cache_clear()
        began, self.passed[item.nodeid] = time.process_time(), True
        self.switch(item.nodeid)
        try:
            return (yield)
        finally:
            self.switch("")
            self.spent[item.nodeid] += time.process_time() - began
            found = item._fixtureinfo.name2fixturedefs
            shared = [one for several in found.values() for one in several if one.scope != "function"]
            self.shared[item.nodeid] = [f"fixture {one.baseid}::{one.argname}" for one in shared]

    def ours(self, kept: Any) -> bool:
        file = getattr(sys.modules.get(kept.__module__), "__file__", None) or ""
        return file.startswith(str(self.root)) and not file.startswith(str(self.package / "core"))

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.passed[report.nodeid] &= report.outcome == "passed"

    def found(self) -> list[Recorded]:
        """The tests that ran."""
        self.coverage.stop()
        data, by_context = self.coverage.get_data(), defaultdict(lambda: defaultdict(int))
        for file in data.measured_files():
            name = str(Path(file).relative_to(self.root))
            for line, contexts in data.contexts_by_lineno(file).items():
                for context in contexts:
                    by_context[context][name] |= 1 << line
        tests = []
        for name, passed in self.passed.items():
            lines, opened = dict(by_context[name]), set(self.opened[name])
            for fixture in self.shared.get(name, ()):
                opened |= self.opened[fixture]
                for file, bits in by_context[fixture].items():
                    lines[file] = lines.get(file, 0) | bits
            spent = self.spent[name] + sum(self.spent[fixture] for fixture in self.shared.get(name, ()))
            tests.append(Recorded(name, passed, max(spent, 1e-3), lines, frozenset(opened)))
        return tests


def record(root: Path, package: Path, test_file: Path, kept: Path) -> None:
    """Run a test file and write what its tests run to `kept`. It ends up in this process what pytest leaves there."""
    recorder = Recorder(root, package)
    recorder.coverage.start()
    pytest.main(["-q", "-m", "not slow", "-p", "no:cacheprovider", "--tb=no", str(test_file)], plugins=[recorder])
    tests = [one._asdict() | {"lines": {f: hex(b) for f, b in one.lines.items()}} for one in recorder.found()]
    tests = [one | {"opened": sorted(one["opened"])} for one in tests]
    modules = sorted(name for name, module in sys.modules.items() if not _below(root, module))
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({"digest": digest(test_file), "modules": modules, "tests": tests}))


def _below(root: Path, module: Any) -> bool:
    file = getattr(module, "__file__", None)
    return file is None or file.startswith(str(root)) or module.__name__ == "__main__"


def read(kept: Path) -> tuple[list[Recorded], list[str]]:
    """The tests of a recorded file, and the modules that it imported from elsewhere."""
    known = json.loads(kept.read_text())
    tests = [
        Recorded(
            t["name"], t["passed"], t["cpu_s"], {f: int(b, 16) for f, b in t["lines"].items()}, frozenset(t["opened"])
        )
        for t in known["tests"]
    ]
    return tests, known["modules"]
