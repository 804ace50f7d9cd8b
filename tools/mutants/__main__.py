"""Change the package at random and see which changes the tests notice: a spot check of the tests, room by room.

    python -m tools.mutants --count 100                   # 100 changes in every room
    python -m tools.mutants --count 500 studies games     # rooms named
    python -m tools.mutants --jobs 4 --seed 1 --nearest 1000   # every test that reaches a change; hours

A change is drawn evenly from all that the files of a room allow (code, and data as a room of its own), written into a
copy, and the test files that reach the file most directly (`--nearest`) run until one fails. What no test notices is
printed, with the share noticed and its 95 % interval (Wilson) by room. A test that fails without the change, too, does
not count.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from queue import Queue

from tools.mutants.changes import Change, changes
from tools.mutants.reach import Reach

SUFFIXES = {".py", ".csv", ".json", ".jsonl", ".toml", ".js"}
#: Not copied. Machine code is (`__pycache__`): its stamp says whether it is that of the source.
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "out", "*.egg-info", ".mypy_cache", ".ruff_cache", "*.pyc")
#: What the runs share, so that each compiles only what its change touches.
SHARED = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}


def room_of(path: Path, package: Path) -> str:
    """studies/plan/search.py -> studies; catalog/data/gpus.csv -> catalog data."""
    inside = path.relative_to(package).parts
    room = inside[0] if len(inside) > 1 else package.name
    return room if path.suffix == ".py" else f"{room} data"


def wilson(caught: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """95 % interval of a share."""
    middle, spread = caught + z * z / 2, z * math.sqrt(caught * (count - caught) / count + z * z / 4)
    return (middle - spread) / (count + z * z), (middle + spread) / (count + z * z)


class Copy:
    """A copy of the project in which one change at a time is made."""

    def __init__(self, root: Path, folder: Path, limit_s: float) -> None:
        self.root, self.folder, self.limit_s = root, folder, limit_s
        shutil.copytree(root, folder, ignore=LEFT_OUT)
        self.sound: dict[str, bool] = {}

    def first_failure(self, tests: list[str], without: set[str]) -> str:
        """The first failing test's id, "" if all pass, "?" where time ran out."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "--tb=no"]
        command += [f"--deselect={test}" for test in sorted(without)]
        compiled = {"JAX_COMPILATION_CACHE_DIR": str(self.folder.parent / "compiled"), **SHARED}
        env = os.environ | compiled | {"PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            run = subprocess.run(
                [*command, "-rfE", *tests],
                cwd=self.folder,
                env=env,
                timeout=self.limit_s,
                capture_output=True,
                text=True,
            )
        except subprocess.TimeoutExpired:
            return "?"
        if run.returncode in (0, 5):  # 5: nothing left to run
            return ""
        failed = [line.split(" ")[1] for line in run.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        return failed[0] if failed else "the tests' start"

    def caught_by(self, change: Change, tests: list[Path]) -> str:
        """What notices a change: a test's id, "" if none, "?" where time ran out."""
        place = self.folder / change.path.relative_to(self.root)
        names, unsound = [str(test.relative_to(self.root)) for test in tests], set()
        while names:
            place.write_text(change.applied(), encoding="utf-8")
            failed = self.first_failure(names, unsound)
            shutil.copyfile(change.path, place)
            if failed in ("", "?"):
                return failed
            if failed not in self.sound:
                again = [failed] if failed.split("::")[0] in names else names
                self.sound[failed] = self.first_failure(again, unsound) == ""
            if self.sound[failed]:
                return failed
            unsound.add(failed)
            if "::" not in failed:
                names = [name for name in names if name != failed]
        return ""


def main(asked: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("rooms", nargs="*", help="rooms of the package; all if none is named")
    parser.add_argument("--count", type=int, default=20, help="changes in each room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="copies that run at once")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that the tests of one change may take")
    parser.add_argument("--nearest", type=int, default=4, help="test files that judge a change at most")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[2])
    parser.add_argument("--package", default="dmodels")
    parser.add_argument("--tests", nargs="*", default=["tests", "proofs"])
    options = parser.parse_args(asked)
    root, reach = options.root.resolve(), Reach(options.root.resolve(), options.package, options.tests)
    package, rooms = root / options.package, defaultdict(list)
    for path in sorted(path for path in package.rglob("*") if path.suffix in SUFFIXES):
        rooms[room_of(path, package)] += changes(path)
    if unknown := sorted(set(options.rooms) - rooms.keys()):
        parser.error(f"no room {', '.join(unknown)}; there are {', '.join(sorted(rooms))}")
    chance, drawn = random.Random(options.seed), []
    for room in options.rooms or sorted(rooms):
        chance.shuffle(rooms[room])
        drawn += [(room, change) for change in islice(filter(Change.valid, rooms[room]), options.count)]
    with tempfile.TemporaryDirectory() as folder:
        copies: Queue[Copy] = Queue()
        for k in range(options.jobs):
            copies.put(Copy(root, Path(folder) / str(k), options.limit))

        def judge(change: Change) -> str:
            copy = copies.get()
            try:
                return copy.caught_by(change, reach.nearest(change.path)[: options.nearest])
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(options.jobs) as pool:
            verdicts = list(pool.map(judge, [change for _, change in drawn]))
    summary(root, [(room, change, by) for (room, change), by in zip(drawn, verdicts, strict=True)])
    return 0


def summary(root: Path, judged: list[tuple[str, Change, str]]) -> None:
    """Survivors, then the share noticed by room."""
    for _, change, by in judged:
        if by in ("", "?"):
            print(f"{'survived' if by == '' else 'undecided'}: {change.told(root)}")
    for room in [*dict.fromkeys(room for room, *_ in judged), "all"]:
        mine = [by for r, _, by in judged if room in (r, "all") and by != "?"]
        if not mine:
            continue
        caught = sum(by != "" for by in mine)
        low, high = wilson(caught, len(mine))
        print(f"{room:16} {caught:5d} of {len(mine):5d} noticed: {caught / len(mine):6.1%} ({low:.1%} to {high:.1%})")


if __name__ == "__main__":
    sys.exit(main())
