"""The floors of the house hold: no module imports from a floor above its own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "dmodels"

#: floor -> floors that it may import from (itself is always allowed)
_BASE = {"core"}
_SECOND = _BASE | {"catalog", "models", "solvers"}
_THIRD = _SECOND | {"formats", "games", "control", "sim", "fit"}
ALLOWED = {
    "core": set(),
    "catalog": _BASE,
    "solvers": _BASE,
    "models": _BASE | {"solvers"},
    "games": _SECOND,
    "control": _SECOND,
    "formats": _SECOND,
    "fit": _SECOND | {"formats"},
    "sim": _SECOND | {"control"},
    "design": _THIRD,
    "studies": _THIRD | {"design"},
    "report": _THIRD | {"design", "studies"},
    "cli": _THIRD | {"design", "studies", "report"},
}


def imports(path: Path) -> set[str]:
    """Floors of dmodels that a file imports from, wherever in the file the import stands."""
    package = ("dmodels", *path.relative_to(ROOT).parts[:-1])
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            stem = base + (node.module.split(".") if node.module else [])
            names = [[*stem, alias.name] for alias in node.names]
        found |= {name[1] for name in names if name[0] == "dmodels" and len(name) > 1 and name[1] in ALLOWED}
    return found


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_module_imports_from_a_floor_above(path):
    floor = path.relative_to(ROOT).parts[0]
    if floor in ALLOWED:
        assert imports(path) <= ALLOWED[floor] | {floor}


def test_the_check_sees_imports_inside_functions(tmp_path):
    source = ROOT / "core" / "model.py"
    assert imports(source) == {"core"}
