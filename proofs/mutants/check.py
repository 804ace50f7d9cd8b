"""Learn which tests enter which formula, then change the formulas and run those tests, the likeliest per second first.

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
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from . import runner
from .changes import Mutant, changed, functions, mutants
from .equivalent import reason
from .targets import TARGETS, WATCHED

#: CPU seconds after which no further test is begun for one change: changed programs have to be compiled anew.
SPEND_S = 8.0
#: Where tests that run op by op are ended for one change.
OP_BY_OP_S = 20.0
#: Where a test is ended while it is first timed.
TOO_LONG_S = 20.0


@dataclass
class Work:
    """Where things are: the project, its copy, what was learnt about the tests, and the results so far."""

    root: Path
    copy: Path
    kept: Path
    tests: dict[str, dict]
    results: dict[str, dict]  #: by key: the test that notices ("": none), and when that was found
    found: dict[str, dict] = field(default_factory=dict)  # results of this run

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

    def note(self, mutant: Mutant, by: str) -> None:
        self.results[mutant.key] = self.found[mutant.key] = {"by": by, "at": time.time()}
        if not by:
            print(f"survived: {mutant}", flush=True)

    def save(self) -> None:
        """Add what was found to what is kept; another run may have added to it meanwhile, or found out more since."""
        with (self.kept / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            kept = _read(self.kept / "results.json")
            self.results = kept | {k: new for k, new in self.found.items() if new["at"] >= kept.get(k, new)["at"]}
            for name, what in (("tests.json", self.tests), ("results.json", self.results)):
                (self.kept / f"{name}.new").write_text(json.dumps(what, indent=0), encoding="utf-8")
                (self.kept / f"{name}.new").replace(self.kept / name)


def check(work: Work, modules: Iterable[str], every: int, until: float, again: bool) -> None:
    """Learn what is new about the tests, then run the changes that have no result yet (or, `again`, the survivors)."""
    runner.preload()
    files = [
        path.relative_to(work.copy).as_posix()
        for watched in WATCHED
        for path in ([work.copy / watched] if watched.endswith(".py") else sorted((work.copy / watched).rglob("*.py")))
        if path.name.startswith(("test_", "prop_")) and "mutants" not in path.parts
    ]

    def serve(host: runner.Host) -> None:
        _learn(work, host, until)
        _run(work, host, modules, every, until, again)

    runner.collected(work.copy, files, serve)


def _learn(work: Work, host: runner.Host, until: float) -> None:
    """Run every file of tests that changed since it was last run, and note which functions each test enters."""
    tests: dict[str, list[str]] = {}
    for name in host.items:
        tests.setdefault(name.split("::")[0], []).append(name)
    work.tests = {file: work.tests[file] for file in tests if file in work.tests}
    for file, names in tests.items():
        stamp = (work.copy / file).stat().st_mtime
        if work.tests.get(file, {}).get("stamp") == stamp:
            continue
        if time.monotonic() > until:
            break
        outcomes: list[runner.Outcome] = []
        while left := names[len(outcomes) :]:  # again after a test that took too long
            outcomes += host.run(left, lambda: _instrument(work, host), lambda name: TOO_LONG_S, stop=False)
        failed = "".join(f"; FAILS: {o.name}" for o in outcomes if o.failed)
        print(f"{file}: {len(outcomes)} tests, {sum(o.seconds for o in outcomes):.1f} s{failed}", flush=True)
        good = [o for o in outcomes if not o.failed]
        work.tests[file] = {
            "stamp": stamp,
            "learnt": time.time(),
            "ran": {o.name: round(o.seconds, 3) for o in good},
            "entered": {o.name: o.entered for o in good},
        }
        work.save()


def _run(work: Work, host: runner.Host, modules: Iterable[str], every: int, until: float, again: bool) -> None:
    seen: dict[tuple[str, str], Seen] = defaultdict(Seen)
    for listed in (False, True):  # those that are listed as the same come last: no test is expected to end their run
        for module in modules:
            wanted = [m for m in work.mutants(module)[::every] if _is_wanted(work.results.get(m.key), again)]
            wanted = [m for m in wanted if bool(reason(m)) == listed]
            for mutant, passed in _run_op_by_op(work, host, module, wanted):
                if time.monotonic() > until:
                    work.save()
                    return
                since = work.results[mutant.key]["at"] if mutant.key in work.results else 0.0
                work.note(mutant, _noticed(work, host, mutant, seen, since, passed))
                work.save()
            print(f"{module}: {len(wanted)} changes{' that are listed as the same' * listed}", flush=True)


def _is_wanted(known: dict | None, again: bool) -> bool:
    return (known is not None and not known["by"]) if again else known is None


def _run_op_by_op(work: Work, host: runner.Host, module: str, wanted: list[Mutant]) -> list[tuple[Mutant, set[str]]]:
    """Ask the tests that compile nothing all changes in one process; (change, tests that passed) where none failed."""
    path, source = str(work.copy / "dmodels" / f"{module}.py"), work.source(module)
    asked, changes = [], []
    for mutant in wanted:
        cost = _cost(work, f"{module}:{mutant.function}", 0.0)
        asked.append(sorted(host.op_by_op & cost.keys(), key=cost.__getitem__))
        change = lambda mutant=mutant: host.swap(path, changed(source, mutant), mutant.function)
        changes.append((asked[-1], change))
    left = []
    for mutant, names, by in zip(wanted, asked, host.run_in_turn(changes, OP_BY_OP_S), strict=True):
        if by:
            work.note(mutant, by)
            work.save()
        else:
            left.append((mutant, set(names) if by == "" else set()))
    return left


def _noticed(work: Work, host: runner.Host, mutant: Mutant, seen: dict[tuple[str, str], Seen], since: float,
             passed: set[str]) -> str:  # fmt: skip
    """The test that fails under the change; "" if none does. Tests that were run before `since` did not notice."""
    function = f"{mutant.module}:{mutant.function}"
    cost = {name: cost_s for name, cost_s in _cost(work, function, since).items() if name not in passed}
    if not cost:
        return ""
    order = sorted(cost, key=lambda name: seen[function, name].seconds_per_catch(cost[name]))
    tree = changed(work.source(mutant.module), mutant)
    path = str(work.copy / "dmodels" / f"{mutant.module}.py")
    swap = lambda: host.swap(path, tree, mutant.function)
    outcomes = host.run(order, swap, lambda name: 30.0 + 10.0 * cost[name], spend_s=SPEND_S)
    for o in outcomes:
        seen[function, o.name].add(o)
    return next((o.name for o in outcomes if o.failed), "")


@dataclass
class Seen:
    """What one test made of the changes of one function so far."""

    ran: int = 0
    caught: int = 0
    spent_s: float = 0.0

    def add(self, outcome: runner.Outcome) -> None:
        self.ran += 1
        self.caught += outcome.failed
        self.spent_s += outcome.seconds

    def seconds_per_catch(self, cost_s: float) -> float:
        """Expected seconds over chance; `cost_s`, without a change, counts as one run, and half a catch in two."""
        return (0.01 + cost_s + self.spent_s) / (1 + self.ran) * (2 + self.ran) / (1 + self.caught)


def _cost(work: Work, function: str, since: float) -> dict[str, float]:
    """CPU seconds of the tests that enter a function.

    A test whose parameter is `module:function` is about it without entering: it looks at its defaults.
    """
    cost: dict[str, float] = {}
    for known in work.tests.values():
        if known["learnt"] >= since:
            inside = [name for name, entered in known["entered"].items() if function in entered]
            inside += [name for name in known["ran"] if f"[{function}]" in name]
            cost |= {name: known["ran"][name] for name in inside}
    return cost


def _instrument(work: Work, host: runner.Host) -> None:
    """Every function of the targets says that it was entered."""
    for module in TARGETS:
        path = str(work.copy / "dmodels" / f"{module}.py")
        tree = ast.parse(work.source(module))
        for name, node, _ in functions(tree):
            node.body.insert(0, ast.parse(f"_entered({module + ':' + name!r})").body[0])
        ast.fix_missing_locations(tree)
        host.swap(path, tree)


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
