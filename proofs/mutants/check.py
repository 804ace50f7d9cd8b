"""Learn which tests enter which formula, then change the formulas and run those tests, the cheapest first.

The tree is copied first, so that nothing is changed here and edits made meanwhile do not matter. Results are kept by
the digest of the function: a function that did not change is not run again.
"""

from __future__ import annotations

import ast
import fcntl
import json
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from . import runner
from .changes import Mutant, changed, functions, mutants
from .targets import TARGETS, WATCHED

#: Seconds of tests, as first timed, that one survivor may cost.
BUDGET_S = 20.0
#: A test longer than this notices nothing that is worth the wait.
LONGEST_S = 10.0


@dataclass
class Work:
    """Where things are: the project, its copy, what was learnt about the tests, and the results so far."""

    root: Path
    copy: Path
    kept: Path
    tests: dict[str, dict]
    results: dict[str, str]
    found: dict[str, str] = field(default_factory=dict)  # results of this run

    @classmethod
    def open(cls, root: Path) -> Work:
        kept = root / "build" / "mutants"
        kept.mkdir(parents=True, exist_ok=True)
        place, copy = _place()
        shutil.rmtree(copy, ignore_errors=True)
        skip = shutil.ignore_patterns(".*", "__pycache__", "build", "out", "benchmarks", "*.egg-info")
        shutil.copytree(root, copy, ignore=skip)
        if (root.parent / "shared").is_dir() and not (place / "shared").exists():
            (place / "shared").symlink_to(root.parent / "shared")
        os.environ["NUMBA_CACHE_DIR"] = str(place / "numba")
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(place / "jax")
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.02"
        return cls(root, copy, kept, _read(kept / "tests.json"), _read(kept / "results.json"))

    def source(self, module: str) -> str:
        return (self.copy / "dmodels" / f"{module}.py").read_text(encoding="utf-8")

    def mutants(self, module: str) -> list[Mutant]:
        return mutants(module, self.source(module))

    def save(self) -> None:
        """Add what was found to what is kept; another run may have added to it meanwhile."""
        with (self.kept / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.results = _read(self.kept / "results.json") | self.found
            for name, what in (("tests.json", self.tests), ("results.json", self.results)):
                (self.kept / f"{name}.new").write_text(json.dumps(what, indent=0), encoding="utf-8")
                (self.kept / f"{name}.new").replace(self.kept / name)


def learn(work: Work, until: float) -> None:
    """Run every file of tests that changed since it was last run, and note which functions each test enters."""
    paths = [
        path
        for watched in WATCHED
        for path in ([work.copy / watched] if watched.endswith(".py") else (work.copy / watched).rglob("*.py"))
        if path.name.startswith(("test_", "prop_"))
    ]
    present = [path.relative_to(work.copy).as_posix() for path in paths]
    work.tests = {file: work.tests[file] for file in present if file in work.tests}
    for file in present:
        stamp = (work.copy / file).stat().st_mtime
        if work.tests.get(file, {}).get("stamp") == stamp:
            continue
        if time.monotonic() > until:
            break
        runner.preload()
        report = runner.run(work.copy, [file], _instrumented, stop=False, limit_s=300.0)
        failed = f"; FAILS: {report.failed}" if report.failed else "; too slow" if report.timed_out else ""
        print(f"{file}: {len(report.ran)} tests, {sum(report.ran.values()):.1f} s{failed}", flush=True)
        work.tests[file] = {
            "stamp": stamp,
            "ran": {name: round(s, 3) for name, s in report.ran.items() if name not in report.failures},
            "entered": report.entered,
        }
        work.save()


def run(work: Work, modules: Iterable[str], every: int, until: float, again: bool) -> None:
    """Run the mutants of the modules that have no result yet (or, `again`, those that survived)."""
    runner.preload()
    killers: Counter[str] = Counter()
    for module in modules:
        for mutant in work.mutants(module)[::every]:
            known = work.results.get(mutant.key)
            if (known is not None) if not again else (known != ""):
                continue
            if time.monotonic() > until:
                work.save()
                return
            work.results[mutant.key] = work.found[mutant.key] = by = _noticed(work, mutant, killers)
            if by:
                killers[by] += 1
            else:
                print(f"survived: {mutant}", flush=True)
        work.save()


def _noticed(work: Work, mutant: Mutant, killers: Counter[str]) -> str:
    """The test that fails under the change; "" if none does."""
    order = _order(work, f"{mutant.module}:{mutant.function}", killers)
    if not order:
        return ""
    files = list(dict.fromkeys(name.split("::")[0] for name in order))
    tree = changed(work.source(mutant.module), mutant)
    file = f"dmodels/{mutant.module}.py"
    serve = lambda path, source: tree if path == file else None
    report = runner.run(work.copy, files, serve, order=order, limit_s=4 * BUDGET_S)
    return "it does not end" if report.timed_out else report.failed


def _order(work: Work, function: str, killers: Counter[str]) -> list[str]:
    """Tests for a function: those that enter it, cheap ones first, then the rest of their files.

    A compiled function is entered only when it is traced, so later tests of the same file use it without entering; a
    test whose parameter is `module:function` is about it without entering.
    """
    cost: dict[str, float] = {}
    entering, beside = [], []
    for known in work.tests.values():
        cost |= known["ran"]
        inside = [name for name, entered in known["entered"].items() if function in entered and name in known["ran"]]
        inside += [name for name in known["ran"] if f"[{function}]" in name]  # named for it: looks at its defaults
        entering += inside
        beside += [name for name in known["ran"] if inside and name not in set(inside)]
    chosen, total = [], 0.0
    for names in (entering, beside):
        for name in sorted(names, key=lambda name: (-killers[name], cost[name])):
            if cost[name] <= LONGEST_S and total + cost[name] <= BUDGET_S:
                chosen.append(name)
                total += cost[name]
    return chosen


def _instrumented(path: str, source: str) -> ast.Module | None:
    """The module with a call at the head of every function that says that it was entered."""
    module = path.removeprefix("dmodels/").removesuffix(".py")
    if module not in TARGETS:
        return None
    tree = ast.parse(source)
    for name, node, _ in functions(tree):
        call = ast.parse(f"_entered({module + ':' + name!r})").body[0]
        node.body.insert(1 if ast.get_docstring(node) is not None and len(node.body) > 1 else 0, call)
    return ast.fix_missing_locations(tree)


def _place() -> tuple[Path, Path]:
    """(folder of caches, folder of the copy): the same ones again unless another run uses them, so that caches help."""
    for slot in range(16):
        place = Path(tempfile.gettempdir()) / f"dmodels-mutants-{os.getuid()}" / str(slot)
        place.mkdir(parents=True, exist_ok=True)
        lock = os.open(place / "lock", os.O_CREAT | os.O_RDWR)  # held until this process ends
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        return place, place / "project"
    raise SystemExit("16 runs are under way already")


def _read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

