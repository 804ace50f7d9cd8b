"""Which recorded tests could notice a change: those that run the changed lines, cheapest first, and of all files by
turns (neighbours mostly notice the same).

What runs once when a module is imported (a constant, a default, a table) is read wherever its name stands: by tests in
which it stands, tests that run such a line, and tests in whose file it stands. A compiled loop is run by whoever runs
the Python that calls it, tests of its folder first. A data file is read by who opens it. What runs in a process of its
own leaves no trace, so tests that are named after a file are among its tests; and those that read its text, which hold
rules of the house.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

from tools.mutants.changes import Change
from tools.mutants.record import Recorded

COMPILED = re.compile(r"@(?:kernel|inline|njit)\b|\bjit\(|@jit\b|filter_jit|vmap\(")


class Chooser:
    """Tests of changes below `package`."""

    def __init__(self, root: Path, package: Path, tests: list[Recorded]) -> None:
        self.root, self.package = root, package
        self.tests = sorted((test for test in tests if test.passed), key=lambda test: test.cpu_s)
        self.files = {str(path.relative_to(root)): path.read_text("utf-8") for path in sorted(package.rglob("*.py"))}

    def tests_of(self, change: Change) -> list[Recorded]:
        """The nearest tests, then others that might notice; each from the cheapest on, of all files by turns."""
        file, text = str(change.path.relative_to(self.root)), change.path.read_text(encoding="utf-8")
        opened, room = [test for test in self.tests if file in test.opened], f"/{Path(file).parts[1]}/"
        if change.path.suffix != ".py":
            near = [[t for t in opened if word in t.name] for word in (change.path.stem, room)]
            return list({t.name: t for t in itertools.chain(*map(_in_turn, [*near, opened]))}.values())
        first, last = (text.count("\n", 0, at) + 1 for at in (change.start, max(change.start, change.stop - 1)))
        changed = _bits(first, last)
        body = self.bodies(file)
        found = _in_turn([test for test in self.tests if test.runs(file, changed & body)])
        if not changed & body:
            names = _names_at(text, first)
            if owner := _class_at(text, first):  # whoever makes one without this field
                found += _in_turn([test for test in self.tests if re.search(rf"\b{owner}\(", self.text_of(test)[1])])
            for some in (names, _made_of(text, names) - names):
                found += self.readers(some) if some else []
        found += _in_turn([test for test in self.tests if _named_after(test.name, change.path.stem)])
        if not COMPILED.search(text) and found:
            found += _in_turn(opened)
        else:
            near = [file, *self.importers(file)]
            callers = [t for t in self.tests if any(t.runs(one, self.bodies(one)) for one in near)]
            found += _in_turn([t for t in callers if change.path.parent.name in Path(t.name.partition("::")[0]).stem])
            found += _in_turn([t for t in callers if room in t.name]) + _in_turn(opened) + _in_turn(callers)
        return list({test.name: test for test in found}.values())

    def readers(self, names: frozenset[str]) -> list[Recorded]:
        """Tests in which a name stands, that run a line in which it does, and in whose file it does."""
        word = re.compile(rf"\b(?:{'|'.join(name.replace('_', '[_-]') for name in names)})\b")  # flags have dashes
        lines = {other: bits for other in self.files if (bits := self.mentions(other, word))}
        found = _in_turn([test for test in self.tests if word.search(self.text_of(test)[1])])
        found += _in_turn([t for t in self.tests if any(t.runs(other, bits) for other, bits in lines.items())])
        return found + _in_turn([test for test in self.tests if word.search(self.text_of(test)[0])])

    def bodies(self, file: str) -> int:
        """The lines inside functions, as bits: what runs when it is called, not when it is imported."""
        return _bodies(self.files[file])

    def mentions(self, file: str, word: re.Pattern[str]) -> int:
        """Lines inside functions in which `word` stands, and all of those in whose head it does: a default is read
        wherever the function runs."""
        bits = 0
        for number, line in enumerate(self.files[file].splitlines(), start=1):
            bits |= (word.search(line) is not None) << number
        read = bits & self.bodies(file)
        for head, body in _functions(self.files[file]):
            read |= body if bits & head else 0
        return read

    def text_of(self, test: Recorded) -> tuple[str, str]:
        """A test's file and its function; empty where they are none of this tree."""
        file, _, name = test.name.partition("::")
        text, functions = _texts(self.root / file)
        return text, functions.get(name.partition("[")[0], "")

    def importers(self, file: str) -> list[str]:
        """Files that import from `file`, directly or through others that hold compiled loops, too."""
        found, open_ends = [], [file]
        while open_ends:
            stem = Path(open_ends.pop()).with_suffix("").name
            for other, text in self.files.items():
                if other not in found and other != file and re.search(rf"import.*\b{stem}\b|{stem} import", text):
                    found.append(other)
                    open_ends += [other] if COMPILED.search(text) else []
        return found


@cache
def _texts(path: Path) -> tuple[str, dict[str, str]]:
    """A file, and the functions that stand in it."""
    text = path.read_text("utf-8") if path.is_file() else ""
    told = {node.name: ast.get_source_segment(text, node) for node in ast.parse(text).body if hasattr(node, "name")}
    return text, {name: part or "" for name, part in told.items()}


def _named_after(test: str, module: str) -> bool:
    """test_explore.py of explore.py, and of explore_server.py, which it may run in a process of its own;
    test_phasor_defrag.py of defrag.py, whose compiled programs run no lines."""
    subject = Path(test.partition("::")[0]).stem.removeprefix("test_")
    return module == subject or module.startswith(f"{subject}_") or subject.endswith(f"_{module}")


def _in_turn(tests: list[Recorded]) -> list[Recorded]:
    """As if all files were run at once at one speed: a test is done when its file has spent the seconds up to it."""
    spent_s: defaultdict[str, float] = defaultdict(float)
    done = []
    for test in tests:
        file = test.name.partition("::")[0]
        spent_s[file] += test.cpu_s
        done.append(spent_s[file])
    return [test for _, test in sorted(zip(done, tests, strict=True), key=lambda pair: pair[0])]


def _bits(first: int, last: int) -> int:
    return ((1 << (last - first + 1)) - 1) << first


@cache
def _functions(text: str) -> list[tuple[int, int]]:
    """The lines of each function's head and of its body, as bits."""
    return [
        (_bits(_first(node), node.body[0].lineno - 1), _bits(node.body[0].lineno, node.end_lineno))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


@cache
def _bodies(text: str) -> int:
    found = 0
    for _, body in _functions(text):
        found |= body
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Lambda):
            found |= _bits(node.body.lineno, node.body.end_lineno)
    return found


def _names_at(text: str, line: int) -> frozenset[str]:
    """What is defined by the statement of a module or a class that holds `line`."""
    body, found = ast.parse(text).body, set()
    while True:
        held = [node for node in body if _first(node) <= line <= node.end_lineno]
        if not held:
            return frozenset(found)
        node = held[0]
        if isinstance(node, ast.ClassDef):
            found, body = found | {node.name}, node.body
            continue
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        told = [part for target in targets for part in ast.walk(target)]
        named = {part.id for part in told if isinstance(part, ast.Name)} | {
            part.attr for part in told if isinstance(part, ast.Attribute)
        }
        named |= {node.name} if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else set()
        return frozenset(named or found)


def _class_at(text: str, line: int) -> str:
    """The class of a module in which a line stands, or ""."""
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    return next((node.name for node in classes if node.lineno <= line <= (node.end_lineno or 0)), "")


def _made_of(text: str, names: frozenset[str]) -> frozenset[str]:
    """What a module and its classes define from these names, and from what is defined from them."""
    parts = [part for part in ast.walk(ast.parse(text)) if isinstance(part, ast.Module | ast.ClassDef)]
    known = [node for part in parts for node in part.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    found = names
    while True:
        made = [node for node in known if _mentions(node, found)]
        more = found.union(*(_names_at(text, node.lineno) for node in made))
        if more == found:
            return found
        found = more


def _mentions(node: ast.stmt, names: frozenset[str]) -> bool:
    return any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node))


def _first(node: ast.stmt) -> int:
    return min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
