"""Which tests could notice a change: those that reach the changed file through imports, nearest first."""

from __future__ import annotations

import ast
from collections import defaultdict, deque
from functools import cache
from pathlib import Path


class Reach:
    """Imports of a package and of its tests, below one root."""

    def __init__(self, root: Path, package: str, tests: list[str]) -> None:
        self.root, self.package = root, package
        self.modules = {self.dotted(path): path for path in sorted((root / package).rglob("*.py"))}
        files = [path for folder in tests for path in sorted((root / folder).rglob("*.py"))]
        self.helpers = {self.dotted(path): path for path in files}
        self.homes = defaultdict(set)  # name -> modules that define it
        for name, path in self.modules.items():
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.FunctionDef | ast.ClassDef):
                    self.homes[node.name].add(name)
        self.tests = [path for path in files if path.name.startswith(("test_", "prop_"))]

    def dotted(self, path: Path) -> str:
        parts = path.relative_to(self.root).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cache  # noqa: B019  one Reach lives as long as the run
    def arrows(self, path: Path) -> frozenset[str]:
        """Modules that a file imports or names in a string, with the packages around them."""
        if self.dotted(path) == self.package:  # it imports on demand, so that what is named where it is used counts
            return frozenset()
        known, found = self.modules.keys() | self.helpers.keys(), set()
        here = self.dotted(path).split(".")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                depth = node.level - (path.name == "__init__.py")
                base = [*here[: len(here) - depth]] if node.level else []
                base = ".".join([*base, *([node.module] if node.module else [])])
                found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
                if base == self.package:  # names that the top level may find lazily
                    found |= {home for alias in node.names for home in self.homes.get(alias.name, ())}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
                if node.value.startswith(f"{self.package}.") and node.value.endswith("."):  # of f"package.room.{name}"
                    found |= {name for name in known if name.startswith(node.value)}
        around = {".".join(name.split(".")[:k]) for name in found for k in range(1, name.count(".") + 2)}
        return frozenset(around & known)

    @cache  # noqa: B019
    def distances(self, test: Path) -> dict[str, int]:
        """Module -> imports on the way from a test."""
        seen, queue = {}, deque([(test, 0)])
        while queue:
            path, far = queue.popleft()
            for name in self.arrows(path):
                if name not in seen:
                    seen[name] = far + 1
                    queue.append((self.modules.get(name) or self.helpers[name], far + 1))
        return seen

    @cache  # noqa: B019
    def text(self, path: Path) -> str:
        return path.read_text(encoding="utf-8")

    def readers(self, path: Path) -> set[str]:
        """The modules that a file stands for: itself, or those that name a data file or its folder."""
        if path.suffix == ".py":
            return {self.dotted(path)}
        names = (path.name, path.stem, f"{path.parent.name}/")
        found = {
            name for name, file in self.modules.items() if any(n in file.read_text(encoding="utf-8") for n in names)
        }
        return found or {name for name, file in self.modules.items() if path.is_relative_to(file.parent)}

    def nearest(self, path: Path) -> list[Path]:
        """Tests that reach a file: its room's and those named after it or its folder first, then those that mention it;
        nearer ones first, those that reach least of the package first."""
        wanted, room = self.readers(path), path.relative_to(self.root / self.package).parts[0]
        names = {path.stem, path.parent.name} - {room, self.package, "__init__", "data"}
        words = {word for name in names for word in name.split("_") if len(word) > 3}
        ranked = []
        for test in self.tests:
            seen = self.distances(test)
            if near := [seen[name] for name in wanted if name in seen]:
                other = 2 * (not any(word in test.stem for word in words))
                other += 2 * (room not in test.parts) + (not any(name in self.text(test) for name in names))
                ranked.append((other, min(near), len(seen), test))
        return [test for *_, test in sorted(ranked)]
