"""The call that `--show-python` prints, read back: every argument by the name that the library's signature gives it."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from typing import Any


def arguments(code: str) -> dict[str, Any]:
    """Dotted name -> value of each argument of the last call in `code`, those of calls within it under their own.

    A call's target stands under its name and "()"; a name without parameters is its source.
    """
    names: dict[str, Any] = {}
    values: dict[str, ast.expr] = {}
    for node in ast.parse(code).body:
        if isinstance(node, ast.ImportFrom):
            names |= {alias.name: (node.module, alias.name) for alias in node.names}
        elif isinstance(node, ast.Assign):
            values[ast.unparse(node.targets[0])] = node.value
    found: dict[str, Any] = {}
    _read(list(values.values())[-1], "", names, values, found)
    return found


def _read(node: ast.expr, path: str, names: dict[str, Any], values: dict[str, ast.expr], found: dict[str, Any]) -> None:
    if isinstance(node, ast.Name) and node.id in values:
        return _read(values[node.id], path, names, values, found)
    if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id == "float"):
        found[f"{path}()"] = ast.unparse(node.func)
        parameters = inspect.signature(_target(node.func, names)).parameters
        given = dict(zip(parameters, node.args, strict=False)) | {k.arg: k.value for k in node.keywords}
        any_name = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        assert len(given) == len(node.args) + len(node.keywords), f"given twice: {ast.unparse(node)}"
        assert any_name or given.keys() <= parameters.keys(), f"{sorted(given)}, accepted are {sorted(parameters)}"
        for name, value in given.items():
            _read(value, f"{path}.{name}".lstrip("."), names, values, found)
    elif isinstance(node, ast.List | ast.Tuple) and any(isinstance(one, ast.Call | ast.Name) for one in node.elts):
        for k, one in enumerate(node.elts):
            _read(one, f"{path}[{k}]", names, values, found)
    else:
        found[path] = _value(node)
    return None


def _value(node: ast.expr) -> Any:
    """A literal, infinity, or the source."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        source = ast.unparse(node)
        return float("inf") if source == "float('inf')" else source
    return list(value) if isinstance(value, tuple) else value


def _target(node: ast.expr, names: dict[str, Any]) -> Any:
    """The function or class that a name means."""
    if isinstance(node, ast.Attribute):
        return getattr(_target(node.value, names), node.attr)
    module, name = names[node.id]
    return getattr(import_module(module), name, None) or import_module(f"{module}.{name}")
