"""The rules of the house that a reader of CONTRIBUTING's map relies on, held by the code's own syntax.

`python -m tests.test_house [FOLDER]` prints what breaks them.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict

import pytest

from tests.names import exchanged, improper_shares, several_defaults
from tests.syntax import PACKAGE, imported, is_package, nodes, trees

#: Lines of code (docstring, comments and blank lines not counted) of a function that is no compiled kernel.
LONGEST = 60
#: Arguments by position in a call of another module's function.
MOST_POSITIONAL = 6
#: Records that are filled step by step.
FILLED = {"dmodels.cli.plan.Beside", "dmodels.core.recipes.Recipe"}


def circles() -> list[str]:
    """Modules that reach themselves through imports; the lazy top level and the table of commands do not count."""
    arrows = {m: {to for to, *_ in imported(m)} - {m, "dmodels", "dmodels.cli"} for m in trees()}
    arrows = {m: {to for to in targets if not _is_face(to, m)} for m, targets in arrows.items()}
    left = dict(arrows)
    while ends := [m for m, targets in left.items() if not targets & left.keys()]:
        for m in ends:
            del left[m]
    while starts := [m for m in left if not any(m in targets for targets in left.values())]:
        for m in starts:
            del left[m]
    return sorted(left)


def _is_face(target: str, module: str) -> bool:
    """Whether a module names its own package on the way to a neighbour."""
    return module.startswith(f"{target}.")


def long_functions() -> list[str]:
    """Functions with more code than `LONGEST` lines that are no kernels."""
    found = []
    for module in trees():
        for node in nodes(module):
            if isinstance(node, ast.FunctionDef) and not _is_kernel(node):
                lines = code_lines(node)
                if lines > LONGEST:
                    found.append(f"{module}.{node.name}: {lines} lines")
    return found


def code_lines(node: ast.FunctionDef) -> int:
    """Lines of a function that hold code."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    held = set()
    for statement in body:
        for part in ast.walk(statement):
            if hasattr(part, "lineno"):
                held |= {part.lineno, part.end_lineno}
    return len(held) + 1


def _is_kernel(node: ast.FunctionDef) -> bool:
    """Compiled by numba, or a program of a GPU, whose first argument is a reference to memory."""
    names = [ast.unparse(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list]
    return any(name in ("kernel", "inline") for name in names) or any(a.arg.endswith("_ref") for a in node.args.args)


def positional_calls() -> list[str]:
    """Calls of other modules' functions and records with more than `MOST_POSITIONAL` arguments by position."""
    found = []
    for module in trees():
        names = {local for _, name, local, _ in imported(module) if name}
        modules = {local for _, name, local, _ in imported(module) if not name}
        kernels = [node for node in nodes(module) if isinstance(node, ast.FunctionDef) and _is_kernel(node)]
        inside = {id(part) for node in kernels for part in ast.walk(node)}  # numba takes keywords late
        for node in nodes(module):
            if not isinstance(node, ast.Call) or id(node) in inside or len(node.args) <= MOST_POSITIONAL:
                continue
            by_name = isinstance(node.func, ast.Name) and node.func.id in names
            by_module = (
                isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id in modules
            )
            if by_name or by_module:
                found.append(f"{module}:{node.lineno}: {ast.unparse(node.func)} with {len(node.args)} by position")
    return found


def namesakes() -> list[str]:
    """Classes of one name from two modules that one floor imports both of."""
    classes = {m: {n.name for n in tree.body if isinstance(n, ast.ClassDef)} for m, tree in trees().items()}
    homes = defaultdict(set)  # (floor, name) -> modules that define it
    for module in trees():
        floor = module.split(".")[1] if "." in module else ""
        for source, name, local, _ in imported(module):
            if name:
                homes[floor, name].add(_origin(source, name, classes))
            else:
                for node in nodes(module):
                    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == local:
                        homes[floor, node.attr].add(_origin(source, node.attr, classes))
    return [
        f"{floor}: {name} of {', '.join(sorted(modules - {''}))}"
        for (floor, name), modules in sorted(homes.items())
        if floor and len(modules - {""}) > 1
    ]


def _origin(module: str, name: str, classes: dict[str, set[str]]) -> str:
    """The module that defines a class which `module` offers; "" for what is no class."""
    for _ in range(5):
        if name in classes.get(module, ()):
            return module
        step = [source for source, n, local, _ in imported(module) if local == name and n == name]
        if not step:
            return ""
        module = step[0]
    return ""


def private_imports() -> list[str]:
    """Names and modules with a leading underscore that are imported from another room."""
    found = []
    for module in trees():
        room = module.split(".")[:3] if is_package(".".join(module.split(".")[:3])) else module.split(".")[:2]
        for source, name, _, line in imported(module):
            hidden = any(part.startswith("_") for part in [*source.split("."), name] if part != "__version__")
            if hidden and source.split(".")[: len(room)] != room:
                found.append(f"{module}:{line}: {source} {name}")
    return found


def unformatted_code() -> list[str]:
    """Statements that ruff must leave alone but that are no tables of numbers: fewer than four, or more words."""
    found = []
    for folder in ("dmodels", "tests", "proofs", "benchmarks", "tools", "examples"):
        for path in sorted((PACKAGE.parent / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            ends = {k for k, line in enumerate(text.splitlines(), 1) if re.search(r"# fmt: (skip|off)\b", line)}
            for node in ast.walk(ast.parse(text)) if ends else ():
                if isinstance(node, ast.stmt) and node.end_lineno in ends:
                    cells = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
                    numbers = sum(isinstance(cell, int | float) for cell in cells)
                    if numbers < max(4, len(cells) - numbers):
                        found.append(f"{path.relative_to(PACKAGE.parent)}:{node.lineno}")
    return found


def open_records() -> list[str]:
    """Data classes that anybody may change, but for those that are filled as they are made."""
    found = []
    for module in trees():
        for node in nodes(module):
            if isinstance(node, ast.ClassDef) and f"{module}.{node.name}" not in FILLED:
                kinds = [ast.unparse(decorator) for decorator in node.decorator_list]
                made = [kind for kind in kinds if kind.partition("(")[0].endswith("dataclass")]
                found += [f"{module}.{node.name}" for kind in made if "frozen=True" not in kind]
    return found


def silent_rooms() -> list[str]:
    """Packages whose `__init__` does not say what they are for."""
    return [module for module, tree in trees().items() if is_package(module) and not ast.get_docstring(tree)]


def silent_modules() -> list[str]:
    """Modules that no command reaches, nor any module that the guide or a package around it names."""
    guide = "".join(page.read_text(encoding="utf-8") for page in (PACKAGE.parent / "docs").glob("[eht]*/*.md"))

    def is_named(module: str) -> bool:
        parts = module.split(".")
        above = [(".".join(parts[:k]), parts[k]) for k in range(2, len(parts))]
        named = any(f"`{name}`" in (ast.get_docstring(trees()[package]) or "") for package, name in above)
        return named or module in guide or f"{module}.".startswith(("dmodels.cli.", "dmodels.__main__."))

    arrows = {m: {to for to, *_ in imported(m)} | _named_in_text(m) for m in trees()}
    reached = open_ends = {m for m in trees() if is_named(m)}
    while open_ends:
        steps = {to for m in open_ends for to in arrows[m]}
        around = {".".join(to.split(".")[:k]) for to in steps for k in range(2, to.count(".") + 2)}
        open_ends = (around & trees().keys()) - reached
        reached = reached | open_ends
    return sorted(trees().keys() - reached - {"dmodels"})


def _named_in_text(module: str) -> set[str]:
    """Modules that strings name, as commands do: "dmodels.room.module:function"."""
    texts = [n.value for n in nodes(module) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return {name for text in texts for name in re.findall(r"^dmodels[\w.]*", text) if name in trees()}


CHECKS = [
    circles,
    long_functions,
    positional_calls,
    namesakes,
    private_imports,
    unformatted_code,
    open_records,
    silent_rooms,
    silent_modules,
    exchanged,
    several_defaults,
    improper_shares,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_rule_of_the_house(check) -> None:
    assert check() == []


if __name__ == "__main__":
    for check in CHECKS:
        broken = [line for line in check() if len(sys.argv) < 2 or sys.argv[1] in line]
        print(f"## {check.__name__}: {len(broken)}", *broken, sep="\n  ")
