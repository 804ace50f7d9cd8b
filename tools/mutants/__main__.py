"""Change the package at random and see which changes the tests notice: a spot check of the tests, room by room.

    python -m tools.mutants --count 100                   # 100 changes in every room
    python -m tools.mutants --count 500 studies games     # rooms named

Once, and again for every test file that changes, it records which lines of the package each default test runs
(`--record`: only these files, and nothing else). Then a change is drawn evenly from all that the files of a room allow
(code, and data as a room of its own), written into a copy, and the tests that run the changed line are run, cheapest
first, until one fails or `--limit` CPU seconds are spent. What no test notices is printed, with the share noticed and
its 95 % interval (Wilson) by room. A test that fails without the change, too, does not count.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
from collections import Counter, defaultdict
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tools.mutants.changes import Change, changes
from tools.mutants.choose import Chooser
from tools.mutants.record import Recorded, digest, read, record
from tools.mutants.warm import Copy

#: So many times the seconds of a run may have been recorded by tests that share their fixtures.
SHARING = 4
SUFFIXES = {".py", ".csv", ".json", ".jsonl", ".toml", ".js"}


class Judged(NamedTuple):
    """What became of a change: the test that noticed it ("" if none, "?" where time ran out), and how many ran it."""

    room: str
    change: Change
    by: str
    tests: int
    run: int
    cpu_s: float


def room_of(path: Path, package: Path) -> str:
    """studies/plan/search.py -> studies; catalog/data/gpus.csv -> catalog data."""
    inside = path.relative_to(package).parts
    room = inside[0] if len(inside) > 1 else package.name
    return room if path.suffix == ".py" else f"{room} data"


def wilson(caught: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """95 % interval of a share."""
    middle, spread = caught + z * z / 2, z * math.sqrt(caught * (count - caught) / count + z * z / 4)
    return (middle - spread) / (count + z * z), (middle + spread) / (count + z * z)


def drawn(package: Path, rooms: list[str], count: int, seed: int) -> list[tuple[str, Change]]:
    """`count` changes of each room."""
    all_changes = defaultdict(list)
    for path in sorted(path for path in package.rglob("*") if path.suffix in SUFFIXES):
        all_changes[room_of(path, package)] += changes(path)
    if unknown := sorted(set(rooms) - all_changes.keys()):
        raise SystemExit(f"no room {', '.join(unknown)}; there are {', '.join(sorted(all_changes))}")
    found = []
    for room in rooms or sorted(all_changes):
        random.Random(f"{seed} {room}").shuffle(all_changes[room])
        found += [(room, change) for change in islice(filter(Change.valid, all_changes[room]), count)]
    return found


def affordable(tests: list[Recorded], limit_s: float, at_most_s: float) -> list[Recorded]:
    """Those of `tests`, in turn, that take `limit_s` at most, and `at_most_s` together; of too long ones the first."""
    found, spent_s = [], 0.0
    for test in tests:
        if test.cpu_s <= limit_s and spent_s + test.cpu_s <= at_most_s:
            found.append(test)
            spent_s += test.cpu_s
    return found or tests[:1]


class Checker:
    """The recorded tests of a project, and a copy of it to change."""

    def __init__(self, root: Path, package: Path, kept: Path, folder: Path, limit_s: float) -> None:
        self.root, self.package, self.kept, self.limit_s = root, package, kept, limit_s
        known = [read(path) for path in sorted(kept.glob("**/*.json"))]
        often = Counter(name for _, modules in known for name in modules)
        self.copy = Copy(root, folder, [name for name, times in often.items() if 4 * times >= len(known)])

    @cached_property
    def chooser(self) -> Chooser:
        """Of all that is recorded when the first change is judged."""
        known = [read(path)[0] for path in sorted(self.kept.glob("**/*.json"))]
        return Chooser(self.root, self.package, [test for tests in known for test in tests])

    def record(self, files: list[Path]) -> None:
        """Note what the tests of these files run."""
        for file in files:
            place = self.copy.folder / file.relative_to(self.root)
            inside = self.copy.folder / self.package.relative_to(self.root)
            write = self.kept.resolve() / file.relative_to(self.root).with_suffix(".json")
            _, spent = self.copy.apart(partial(record, self.copy.folder, inside, place, write))
            print(f"recorded {file.relative_to(self.root)}: {spent:.0f} CPU s", flush=True)

    def chosen(self, change: Change) -> tuple[list[Recorded], int]:
        """The tests that judge a change until the limit is spent, and how many there are.

        Their seconds were recorded one by one, each with all that it shares with others; together they take fewer.
        """
        tests = self.chooser.tests_of(change)
        return affordable(tests, self.limit_s, SHARING * self.limit_s), len(tests)

    def judge(self, room: str, change: Change) -> Judged:
        tests, count = self.chosen(change)
        if not tests:
            return Judged(room, change, "", 0, 0, 0.0)
        names = [test.name for test in tests]
        by, spent = self.copy.with_change(change.path, change.applied(), names, self.limit_s)
        if "::" not in by and by not in ("", "?") and self.copy.first_failure(names, self.limit_s)[0] == by:
            by = "?"  # the tests do not start without the change, too
        return Judged(room, change, by, count, len(tests), spent)

    def unsound(self, names: set[str]) -> set[str]:
        """Those of the tests that fail without a change, too."""
        found: set[str] = set()
        while left := sorted(name for name in names - found if "::" in name):
            failed, _ = self.copy.first_failure(left, 3600.0)
            if failed not in left:  # none, or they do not start
                break
            found.add(failed)
        return found


def main(asked: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("rooms", nargs="*", help="rooms of the package; all if none is named")
    parser.add_argument("--count", type=int, default=20, help="changes in each room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=20.0, help="CPU seconds of the tests that judge one change")
    parser.add_argument("--record", nargs="+", metavar="FILE", help="record these test files, and end")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[2])
    parser.add_argument("--package", default="dmodels")
    parser.add_argument("--tests", nargs="*", default=["tests", "proofs"])
    options = parser.parse_args(asked)
    root = options.root.resolve()
    package, kept = root / options.package, root / "out" / "mutants"
    files = [root / file for file in options.record or ()] or [
        path
        for folder in options.tests
        for path in sorted((root / folder).rglob("*.py"))
        if path.name.startswith(("test_", "prop_"))
    ]
    with tempfile.TemporaryDirectory() as folder:
        checker = Checker(root, package, kept, Path(folder), options.limit)
        checker.record(files if options.record else [file for file in files if stale(file, root, kept)])
        if not options.record:
            judged = []
            for room, change in drawn(package, options.rooms, options.count, options.seed):
                judged.append(one := checker.judge(room, change))
                print(told(one, root), flush=True)
            summary(judged, checker.unsound({one.by for one in judged}))
    return 0


def stale(file: Path, root: Path, kept: Path) -> bool:
    """Whether a test file is not recorded as it is."""
    place = kept / file.relative_to(root).with_suffix(".json")
    return not place.is_file() or json.loads(place.read_text())["digest"] != digest(file)


def told(one: Judged, root: Path) -> str:
    what = {"": "SURVIVED", "?": "UNDECIDED"}.get(one.by, "noticed")
    by = f" by {one.by}" if what == "noticed" else f" the nearest of {one.tests} tests, {one.run} at most"
    return f"{what}: {one.change.told(root)};{by}, {one.cpu_s:.1f} CPU s"


def summary(judged: list[Judged], unsound: set[str]) -> None:
    """The share noticed by room."""
    for room in [*dict.fromkeys(one.room for one in judged), "all"]:
        mine = [one for one in judged if room in (one.room, "all") and one.by != "?" and one.by not in unsound]
        if not mine:
            continue
        caught = sum(one.by != "" for one in mine)
        low, high = wilson(caught, len(mine))
        spent = sum(one.cpu_s for one in mine) / len(mine)
        print(
            f"{room:16} {caught:5d} of {len(mine):5d} noticed: {caught / len(mine):6.1%} ({low:.1%} to {high:.1%})"
            f", {spent:.1f} CPU s each"
        )
    for test in sorted(unsound):
        print(f"fails without a change, too: {test}")


if __name__ == "__main__":
    sys.exit(main())
