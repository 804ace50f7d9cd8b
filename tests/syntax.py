"""The package's own syntax: its modules, what stands in them, what they import from each other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "dmodels"


@cache
def trees() -> dict[str, ast.Module]:
    """Dotted name -> syntax tree of every module."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_bytes(), str(path))
    return found


@cache
def nodes(module: str) -> tuple[ast.AST, ...]:
    """All of a module's syntax; going through the trees once more for each rule would take as long as the rules."""
    return tuple(ast.walk(trees()[module]))


def is_package(module: str) -> bool:
    return (PACKAGE.parent / module.replace(".", "/")).is_dir()


@cache
def imported(module: str) -> tuple[tuple[str, str, str, int], ...]:
    """(module, name in it or "", local name, line) of each import from the package, wherever it stands in the file."""
    return tuple(_imports(module))


def _imports(module: str) -> Iterator[tuple[str, str, str, int]]:
    here = module.split(".") if is_package(module) else module.split(".")[:-1]
    for node in nodes(module):
        if isinstance(node, ast.ImportFrom):
            base = ".".join((here[: len(here) - node.level + 1] if node.level else []) + (node.module or "").split("."))
            base = base.rstrip(".")
            for alias in node.names:
                local = alias.asname or alias.name
                if f"{base}.{alias.name}" in trees():
                    yield f"{base}.{alias.name}", "", local, node.lineno
                elif base in trees():
                    yield base, alias.name, local, node.lineno
