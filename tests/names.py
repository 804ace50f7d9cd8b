"""What names promise, held by the code's own syntax: a value named like a parameter arrives at that parameter, a name
has one default in a file, and a share or percentile that nobody gave is one."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

from tests.syntax import imported, nodes, trees

#: (calling module, function) of calls that exchange two names on purpose.
EXCHANGED = {
    ("dmodels.catalog.hf.read", "Shape"),  # of Gemma, whose count for full attention has a name of its own
    ("dmodels.cli.simulate", "unknown"),  # the kind of a name is a name itself
    ("dmodels.formats.deployments.compose", "server_of"),  # a container's entrypoint is the manifests' command
    ("dmodels.studies.plan.risks", "PoolLoad"),  # the fleet's own load among those of the curve
    ("dmodels.studies.sweep", "calibrated"),  # models of the places asked about
    ("dmodels.models.transfer.staleness", "_first_crossing"),  # once seen from each of two instances
}
#: (module, name) of defaults that differ on purpose within a file.
SEVERAL = {
    ("dmodels.control.congestion", "gain"),  # two controllers
    ("dmodels.control.regime", "samples"),  # a detector's, and the least of a formula
    ("dmodels.games.placement.paradox", "max_profiles"),
    ("dmodels.games.routing.policies", "runs"),  # one draw, and a mean of many
    ("dmodels.sim.engines.policies", "block_tokens"),  # three engines
    ("dmodels.sim.engines.policies", "slots"),
    ("dmodels.solvers.interval", "most"),
    ("dmodels.solvers.interval", "rounds"),
    ("dmodels.solvers.interval", "ulps"),
    ("dmodels.studies.transfer.policies", "congestion"),  # none, and that of a busy fabric
}


def parameters(node: ast.AST) -> list[str]:
    """Names of a function's arguments, or of a record's fields, in turn."""
    if isinstance(node, ast.FunctionDef):
        return [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
    own = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
    if own:
        return parameters(own[0])[1:]
    return [part.target.id for part in node.body if isinstance(part, ast.AnnAssign)]


def defined() -> dict[str, dict[str, list[str]]]:
    """Module -> function or record -> its parameters."""
    kinds = ast.FunctionDef | ast.ClassDef
    return {m: {n.name: parameters(n) for n in tree.body if isinstance(n, kinds)} for m, tree in trees().items()}


def within_reach(module: str, homes: dict[str, dict[str, list[str]]]) -> dict[str, list[str]]:
    """Name as `module` calls it -> parameters, of what it defines or imports from the package."""
    found = {}
    for source, name, local, _ in imported(module):
        if not name:
            found |= {f"{local}.{inside}": asked for inside, asked in homes[source].items()}
        for _ in range(4):  # a package offers what its modules define
            if name in homes[source]:
                found[local] = homes[source][name]
                break
            source = next((s for s, n, here, _ in imported(source) if n == name == here), source)
    return found | homes[module]


def given(call: ast.Call, asked: list[str]) -> dict[str, str]:
    """Parameter -> the name that stands for it, of those that get a variable or a field."""
    ends = next((k for k, value in enumerate(call.args) if isinstance(value, ast.Starred)), len(call.args))
    values = {**dict(zip(asked, call.args[:ends], strict=False)), **{k.arg: k.value for k in call.keywords if k.arg}}
    names = {p: getattr(value, "id", getattr(value, "attr", None)) for p, value in values.items()}
    return {p: name for p, name in names.items() if name}


def _called(call: ast.Call) -> str:
    """The function as its module writes it: name, or module.name."""
    of = call.func
    if isinstance(of, ast.Attribute) and isinstance(of.value, ast.Name):
        return f"{of.value.id}.{of.attr}"
    return of.id if isinstance(of, ast.Name) else ""


def exchanged() -> list[str]:
    """Calls in which a name stands for another parameter than that of its name, which gets another one."""
    homes, found = defined(), []
    for module in trees():
        known = within_reach(module, homes)
        for call in nodes(module):
            function = _called(call) if isinstance(call, ast.Call) else ""
            if function not in known or (module, function) in EXCHANGED:
                continue
            names = given(call, known[function])
            for parameter, name in names.items():
                if name != parameter and names.get(name, name) != name:
                    found.append(f"{module}:{call.lineno}: {parameter} is {name}, {name} is {names[name]}")
    return found


@cache
def defaults() -> tuple[tuple[str, str, float], ...]:
    """(module, name, number) of every default of an argument, a field or a named constant."""
    return tuple(
        (module, name, float(value.value))
        for module in trees()
        for node in nodes(module)
        if isinstance(node, ast.FunctionDef | ast.AnnAssign)
        for name, value in _stated(node)
        if isinstance(value, ast.Constant) and type(value.value) in (int, float)
    )


def _stated(node: ast.FunctionDef | ast.AnnAssign) -> Iterator[tuple[str, ast.expr | None]]:
    """Names and what stands for them where nobody says otherwise."""
    if isinstance(node, ast.FunctionDef):
        places = [*node.args.posonlyargs, *node.args.args]
        given_last = zip(places[::-1], node.args.defaults[::-1], strict=False)
        yield from ((place.arg, value) for place, value in given_last)
        yield from ((a.arg, value) for a, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True))
    elif isinstance(node.target, ast.Name):
        of = node.value
        is_quantity = isinstance(of, ast.Call) and isinstance(of.func, ast.Name) and of.func.id == "quantity"
        yield node.target.id, of.args[0] if is_quantity and of.args else of


def several_defaults() -> list[str]:
    """Names with more than one default in a file."""
    found = defaultdict(set)
    for module, name, number in defaults():
        found[module, name].add(number)
    return [f"{m}: {n} = {sorted(of)}" for (m, n), of in found.items() if len(of) > 1 and (m, n) not in SEVERAL]


def improper_shares() -> list[str]:
    """Defaults of shares that are none, and percentiles of nobody or of everybody."""
    within = ("percentile", "quantile", "confidence", "probability")
    return [
        f"{module}: {name} = {number}"
        for module, name, number in defaults()
        if (name.endswith("_frac") and not 0.0 <= number <= 1.0) or (name.endswith(within) and not 0.0 < number < 1.0)
    ]
