"""The rules of the house that a reader of CONTRIBUTING's map relies on, held by the code's own syntax.

`python tests/test_house.py [FOLDER]` prints what breaks them.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "dmodels"
#: Lines of code (docstring, comments and blank lines not counted) of a function that is no compiled kernel.
LONGEST = 60
#: Arguments by position in a call of another module's function.
MOST_POSITIONAL = 6


@cache
def trees() -> dict[str, ast.Module]:
    """Dotted name -> syntax tree of every module."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_bytes(), str(path))
    return found


def is_package(module: str) -> bool:
    return (PACKAGE.parent / module.replace(".", "/")).is_dir()


def imported(module: str) -> Iterator[tuple[str, str, str, int]]:
    """(module, name in it or "", local name, line) of each import from the package, wherever it stands in the file."""
    here = module.split(".") if is_package(module) else module.split(".")[:-1]
    for node in ast.walk(trees()[module]):
        if isinstance(node, ast.ImportFrom):
            base = ".".join((here[: len(here) - node.level + 1] if node.level else []) + (node.module or "").split("."))
            base = base.rstrip(".")
            for alias in node.names:
                local = alias.asname or alias.name
                if f"{base}.{alias.name}" in trees():
                    yield f"{base}.{alias.name}", "", local, node.lineno
                elif base in trees():
                    yield base, alias.name, local, node.lineno


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
    for module, tree in trees().items():
        for node in ast.walk(tree):
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
    for module, tree in trees().items():
        names = {local for _, name, local, _ in imported(module) if name}
        modules = {local for _, name, local, _ in imported(module) if not name}
        kernels = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and _is_kernel(node)]
        inside = {id(part) for node in kernels for part in ast.walk(node)}  # numba takes keywords late
        for node in ast.walk(tree):
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
                for node in ast.walk(trees()[module]):
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


def silent_rooms() -> list[str]:
    """Packages whose `__init__` does not say what they are for."""
    return [module for module, tree in trees().items() if is_package(module) and not ast.get_docstring(tree)]


CHECKS = [
    circles,
    long_functions,
    positional_calls,
    namesakes,
    private_imports,
    unformatted_code,
    silent_rooms,
]
#: What still breaks a rule, without line numbers and lengths: lists that only shrink, to nothing.
DEBTS: dict[str, set[str]] = {
    "circles": {
        "dmodels.games.placement",
        "dmodels.games.placement.anarchy",
        "dmodels.games.placement.bound",
        "dmodels.games.placement.existence",
        "dmodels.games.placement.game",
        "dmodels.games.placement.hierarchy",
        "dmodels.games.placement.optimum",
        "dmodels.games.placement.paradox",
        "dmodels.games.placement.pure_equilibria",
        "dmodels.games.placement.response",
        "dmodels.games.placement.sharing",
        "dmodels.games.routing.equilibria",
        "dmodels.games.routing.game",
        "dmodels.games.routing.optima",
        "dmodels.sim.fleet.independent",
        "dmodels.sim.fleet.simulation",
        "dmodels.solvers",
        "dmodels.solvers.assignment",
        "dmodels.solvers.assignment.solve",
        "dmodels.solvers.assignment.traced",
        "dmodels.solvers.transportation",
        "dmodels.solvers.transportation.solve",
        "dmodels.solvers.transportation.traced",
        "dmodels.studies.place.game",
        "dmodels.studies.place.notes",
        "dmodels.studies.place.study",
        "dmodels.studies.plan.fleets",
        "dmodels.studies.plan.rejections",
        "dmodels.studies.plan.search",
    },
    "long_functions": {
        "dmodels.cli.poa.command",
        "dmodels.cli.pools.command",
        "dmodels.cli.route.command",
        "dmodels.cli.simulate.command",
        "dmodels.cli.simulate_cluster.run",
        "dmodels.cli.transfer._show",
        "dmodels.control.netkv.policy._run",
        "dmodels.models.instance.operate",
        "dmodels.solvers.assignment.pallas._kernel",
        "dmodels.solvers.variational.newton.interior",
        "dmodels.solvers.variational.newton.step",
        "dmodels.studies.plan.rejections._why",
        "dmodels.studies.transfer.answer.study",
    },
    "positional_calls": {
        "dmodels.cli.place: place with 10 by position",
        "dmodels.cli.plan: PlanInputs with 16 by position",
        "dmodels.cli.poa: analyse with 9 by position",
        "dmodels.cli.pools: pool_study with 9 by position",
        "dmodels.cli.report: run with 8 by position",
        "dmodels.cli.simulate: simulate_cluster.run with 15 by position",
        "dmodels.cli.size: size with 8 by position",
        "dmodels.fit.descent: serve with 10 by position",
        "dmodels.fit.descent: serve_disaggregated with 12 by position",
        "dmodels.games.anarchy.smooth: smooth_ceiling with 7 by position",
        "dmodels.games.placement.bound: dual_blocks with 10 by position",
        "dmodels.games.placement.bound: kernels.savings with 8 by position",
        "dmodels.games.placement.bound: tree_blocks with 11 by position",
        "dmodels.games.placement.response: kernels.renew_outside with 7 by position",
        "dmodels.games.placement.response: kernels.stays with 7 by position",
        "dmodels.models.cache.eviction: kernels.replay with 8 by position",
        "dmodels.models.cache.prefix_cache: step with 8 by position",
        "dmodels.models.latency.serving: step with 9 by position",
        "dmodels.sim.batching.simulation: iterations.simulate with 7 by position",
        "dmodels.sim.batching.simulation: virtual_time.run with 13 by position",
        "dmodels.sim.cluster.simulation: run_cluster with 10 by position",
        "dmodels.sim.fleet.independent: virtual_time.run with 11 by position",
        "dmodels.sim.fleet.simulation: Served with 7 by position",
        "dmodels.sim.network.simulation: Jobs with 7 by position",
        "dmodels.sim.network.simulation: Rules with 17 by position",
        "dmodels.sim.network.simulation: run with 8 by position",
        "dmodels.sim.network.workload: Arrivals with 7 by position",
        "dmodels.sim.study: virtual_time.Clock with 8 by position",
        "dmodels.sim.study: virtual_time.run with 13 by position",
        "dmodels.solvers.transportation.solve: kernels.ship_many with 13 by position",
        "dmodels.studies.plan.evaluate: operate with 12 by position",
        "dmodels.studies.plan.search: Pool with 18 by position",
        "dmodels.studies.pools: pooling.split_savings with 8 by position",
        "dmodels.studies.size: concurrent_sequences with 7 by position",
        "dmodels.studies.size: footprint with 7 by position",
        "dmodels.studies.split: serving_game with 7 by position",
        "dmodels.studies.transfer.policies: Cluster with 7 by position",
    },
    "namesakes": {
        "cli: Engine of dmodels.models.instance, dmodels.models.pooling",
        "control: Decision of dmodels.control.netkv.router, dmodels.control.token_budget.policy",
        "control: Pools of dmodels.control.planner.loop, dmodels.control.token_budget.policy",
        "control: State of dmodels.control.phasor.policy, dmodels.control.regime, dmodels.control.token_budget.policy",
        "games: Arrays of dmodels.games.placement.game, dmodels.games.routing.game",
        "games: PriceOfAnarchy of dmodels.games.anarchy.price, dmodels.games.placement.anarchy",
        "sim: Cluster of dmodels.sim.cluster.simulation, dmodels.sim.network.simulation",
        "sim: Policy of dmodels.control.netkv.policy, dmodels.sim.fleet.routing",
        "sim: Run of dmodels.sim.cluster.simulation, dmodels.sim.fleet.simulation, dmodels.sim.network.simulation",
        "studies: Cluster of dmodels.sim.cluster.simulation, dmodels.sim.network.simulation",
        "studies: Engine of dmodels.models.instance, dmodels.models.pooling",
        "studies: Policy of dmodels.control.netkv.policy, dmodels.models.cache.eviction",
    },
    "private_imports": {
        "dmodels.sim.network.engine: dmodels.control.netkv._kernels ROUND_ROBIN",
        "dmodels.sim.network.engine: dmodels.control.netkv._kernels choose_one",
        "dmodels.sim.network.engine: dmodels.control.netkv._kernels tier_pace",
        "dmodels.solvers.assignment.traced: dmodels.solvers._callback call_host",
        "dmodels.solvers.transportation.traced: dmodels.solvers._callback call_host",
    },
    "silent_rooms": {
        "dmodels.control",
        "dmodels.design",
        "dmodels.fit",
        "dmodels.games",
        "dmodels.models",
        "dmodels.report",
        "dmodels.sim",
        "dmodels.studies",
    },
}


def key(line: str) -> str:
    """A finding without what moves when its file is edited."""
    return re.sub(r":\d+(?=:|$)|: \d+ lines$", "", line)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_rule_of_the_house(check) -> None:
    assert sorted({key(line) for line in check()} - DEBTS.get(check.__name__, set())) == []


if __name__ == "__main__":
    for check in CHECKS:
        broken = [line for line in check() if len(sys.argv) < 2 or sys.argv[1] in line]
        print(f"## {check.__name__}: {len(broken)}", *broken, sep="\n  ")
