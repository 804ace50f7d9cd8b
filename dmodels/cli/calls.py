"""A library call as a tree, from which it is made and, with `--show-python`, printed: the two cannot differ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

WIDTH = 100


@dataclass(frozen=True, eq=False)
class Code:
    """A name of the library, "module:name", or what `owner` has under it; called where `arguments` are given.

    >>> made = call("fractions:Fraction", 1, call("builtins:len", [1, 2], label="count"))
    >>> made.run(), made.python("answer").splitlines()[-2:]
    (Fraction(1, 2), ['count = len([1, 2])', 'answer = Fraction(1, count)'])
    """

    target: str
    owner: Code | None = None
    arguments: tuple[Any, ...] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""  # the variable that holds the value; "": it is written where it is used
    _made: list[Any] = field(default_factory=list)

    def attribute(self, name: str) -> Code:
        """An attribute of the value."""
        return Code(name, self)

    def run(self) -> Any:
        """The value, made once."""
        if not self._made:
            module, _, path = self.target.rpartition(":")
            value: Any = self.owner.run() if self.owner else import_module(module)
            for name in path.split("."):
                value = getattr(value, name) if hasattr(value, name) else import_module(f"{module}.{name}")
            if self.arguments is not None:
                options = {name: _run(given) for name, given in self.options.items()}
                value = value(*map(_run, self.arguments), **options)
            self._made.append(value)
        return self._made[0]

    def values(self) -> Iterator[Any]:
        """Every value that was made on the way, the last first."""
        yield from self._made
        for given in (self.owner, *(self.arguments or ()), *self.options.values()):
            if isinstance(given, Code):
                yield from given.values()

    def python(self, label: str) -> str:
        """Imports, the values that have names, and the call, its own value called `label`."""
        imports: dict[str, set[str]] = {}
        lines: dict[str, str] = {}
        last = f"{label} = {self._written(0, imports, lines)}"
        modules = sorted(imports)
        heads = [f"from {module} import {', '.join(sorted(imports[module]))}" for module in modules]
        return "\n".join([*heads, "", *lines.values(), last])

    def _written(self, indent: int, imports: dict[str, set[str]], lines: dict[str, str]) -> str:
        module, _, path = self.target.rpartition(":")
        if self.owner:
            head = f"{_written(self.owner, indent, imports, lines)}.{path}"
        else:
            head = path
            if module != "builtins":
                imports.setdefault(module, set()).add(path.partition(".")[0])
        if self.arguments is None:
            return head
        given = [("", value) for value in self.arguments] + [
            (f"{name}=", value) for name, value in self.options.items()
        ]
        return _listed(head + "(", given, ")", indent, imports, lines)


def call(target: str, *arguments: Any, label: str = "", **options: Any) -> Code:
    """The call of "module:name"; `label` is the variable that holds its value in the printed code. Options that are
    None, and arguments at the end, are left to the function's defaults."""
    while arguments and arguments[-1] is None:
        arguments = arguments[:-1]
    return Code(target, None, arguments, {name: x for name, x in options.items() if x is not None}, label)


def _run(value: Any) -> Any:
    if isinstance(value, Code):
        return value.run()
    if isinstance(value, list | tuple):
        return type(value)(map(_run, value))
    return value


def _written(value: Any, indent: int, imports: dict[str, set[str]], lines: dict[str, str]) -> str:
    if isinstance(value, Code):
        if not value.label:
            return value._written(indent, imports, lines)
        if value.label not in lines:
            written = value._written(0, imports, lines)
            lines[value.label] = f"{value.label} = {written}"
        return value.label
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, list | tuple) and any(isinstance(one, Code | float) for one in value):
        ends = "[]" if isinstance(value, list) else ("(", ",)" if len(value) == 1 else ")")
        return _listed(ends[0], [("", one) for one in value], ends[1], indent, imports, lines)
    return repr(value)


def _listed(
    head: str, given: list[tuple[str, Any]], end: str, indent: int, imports: dict[str, set[str]], lines: dict[str, str]
) -> str:
    """In one line where it fits, otherwise one value a line."""
    flat = head + ", ".join(name + _written(value, 0, imports, lines) for name, value in given) + end
    if "\n" not in flat and indent + len(flat) <= WIDTH:
        return flat
    pad = " " * (indent + 4)
    rows = (f"{pad}{name}{_written(value, indent + 4, imports, lines)},\n" for name, value in given)
    return f"{head}\n{''.join(rows)}{' ' * indent}{end}"
