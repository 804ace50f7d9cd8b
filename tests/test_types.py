"""What type checkers see of the public face: `make lint` runs mypy over this file and so tests each `assert_type`."""

from __future__ import annotations

import ast
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import assert_type

import pytest

import dmodels
from dmodels import GPU, SLO, Model, Workload, catalog, solvers
from dmodels.games.anarchy import PriceOfAnarchy, price_of_anarchy
from dmodels.games.resource import Game, equilibrium, social_optimum
from dmodels.games.routing import RoutingGame
from dmodels.models.memory import Slots
from dmodels.studies.plan import Plan, Question, plan, question

ROOT = Path(__file__).parents[1]


def memory() -> None:
    """As in the README: records, the catalogue, formulas."""
    model, gpu = catalog.model("llama-3.1-70b"), catalog.gpu("h100_sxm")
    assert_type(model, Model)
    assert_type(gpu, GPU)
    assert_type(dmodels.parse("80 GiB", "B"), float)
    assert_type(dmodels.stack(gpu, gpu), GPU)
    assert_type(dmodels.concurrent_sequences(model, gpu, 8192.0, tp=8), Slots)
    assert_type(dmodels.efficiency_for("h100_sxm", "vllm", "fp8"), dmodels.Efficiency)


def plans(workload: Workload, slo: SLO) -> None:
    """As in the tutorial."""
    asked = question("llama-3.1-8b", ["h100_sxm"], workload, slo)
    assert_type(asked, Question)
    assert_type(plan(asked), Plan)


def games(game: Game, routing: RoutingGame) -> None:
    """Solvers of games give solutions."""
    assert_type(equilibrium(game), solvers.Solution)
    assert_type(social_optimum(game), solvers.Solution)
    assert_type(price_of_anarchy(routing), PriceOfAnarchy)
    assert_type(solvers.assign([[1.0]]), solvers.Solution)


@pytest.mark.parametrize("package", ["dmodels", "dmodels/solvers", "dmodels/games/anarchy"])
def test_names_found_on_first_use_are_those_that_type_checkers_read(package: str) -> None:
    tree = ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8"))
    (typed,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imports = [node for node in typed.body if isinstance(node, ast.ImportFrom)]
    read = {alias.asname: node.module for node in imports for alias in node.names}
    (home,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_HOME"
    )
    assert read == home


def test_no_module_of_the_reference_is_a_debt_and_every_debt_is_a_module() -> None:
    overrides = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]["overrides"]
    (debts,) = (part["module"] for part in overrides if part.get("ignore_errors"))
    pages = (ROOT / "docs" / "reference").glob("*.md")
    shown = {name for page in pages for name in re.findall(r"^::: (\S+)", page.read_text(encoding="utf-8"), re.M)}
    files = [path.relative_to(ROOT).with_suffix("") for path in (ROOT / "dmodels").rglob("*.py")]
    modules = {".".join(path.parts).removesuffix(".__init__") for path in files}
    assert shown and not [name for name in shown if any(fnmatch(name, debt) for debt in debts)]
    assert not [debt for debt in debts if not any(fnmatch(name, debt) for name in modules)]


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == dmodels.__version__
    assert f"version: {dmodels.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## {dmodels.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
