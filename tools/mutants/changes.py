"""Small changes that could be made by mistake, in code and in data: each replaces one piece of one file's text."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Change(NamedTuple):
    """`text[start:stop]` of `path` becomes `new`."""

    path: Path
    start: int
    stop: int
    new: str
    kind: str

    def applied(self) -> str:
        text = self.path.read_text(encoding="utf-8")
        return text[: self.start] + self.new + text[self.stop :]

    def valid(self) -> bool:
        """Whether the file can still be read as Python, if it is."""
        try:
            return self.path.suffix != ".py" or bool(ast.parse(self.applied()))
        except SyntaxError:
            return False

    def told(self, root: Path) -> str:
        """file:line, kind, before and after."""
        text = self.path.read_text(encoding="utf-8")
        line = text.count("\n", 0, self.start) + 1
        before = text[self.start : self.stop]
        return f"{self.path.relative_to(root)}:{line}: {self.kind}: {_short(before)} -> {_short(self.new)}"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:57]}..."


COMPARISONS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
OPERATORS = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "/", ast.Pow: "*", ast.Mod: "*"}
OPPOSITES = dict(
    pair
    for a, b in (("min", "max"), ("minimum", "maximum"), ("argmin", "argmax"), ("any", "all"), ("floor", "ceil"))
    for pair in ((a, b), (b, a))
)
#: Whose arguments may stand in any order.
COMMUTE = {"add", "multiply", "min", "max", "minimum", "maximum", "fmin", "fmax", "hypot"}
COMMUTE |= {"logical_and", "logical_or", "broadcast_shapes"}
UNIT = re.compile(r"_(s|ms|rps|tokens|bytes|gpus|frac|w|usd|count)$")
#: What an f-string puts in; not `{{this}}`.
FIELD = re.compile(r"(?<!\{)\{([^{}]+)\}(?!\})")
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.])")


class _Code:
    """The changes of one Python file."""

    def __init__(self, path: Path, text: str) -> None:
        self.path, self.text = path, text
        lines = self.text.splitlines(keepends=True)
        self.lines = [line.encode() for line in lines]
        self.starts = [0, *itertools.accumulate(len(line) for line in lines)]
        self.tree = ast.parse(self.text)
        units = {n.attr for n in ast.walk(self.tree) if isinstance(n, ast.Attribute) and UNIT.search(n.attr)}
        self.peers = {a: sorted(b for b in units if b != a and UNIT.search(a)[1] == UNIT.search(b)[1]) for a in units}

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Where a node stands in the text; the columns of `ast` count bytes."""
        at = lambda line, column: self.starts[line - 1] + len(self.lines[line - 1][:column].decode())
        return at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)

    def source(self, node: ast.AST) -> str:
        start, stop = self.span(node)
        return self.text[start:stop]

    def put(self, node: ast.AST, new: str, kind: str) -> Change:
        return Change(self.path, *self.span(node), new, kind)

    def between(self, left: ast.AST, right: ast.AST, old: str, new: str, kind: str) -> Iterator[Change]:
        """An operator between two operands."""
        start, stop = self.span(left)[1], self.span(right)[0]
        found = re.search(
            rf"(?<!\w){re.escape(old)}(?!\w)" if old[0].isalpha() else re.escape(old), self.text[start:stop]
        )
        if found:
            yield Change(self.path, start + found.start(), start + found.end(), new, kind)

    def swapped(self, first: ast.AST, second: ast.AST, kind: str) -> Iterator[Change]:
        a, b = self.source(first), self.source(second)
        if a != b and not isinstance(first, ast.Starred) and not isinstance(second, ast.Starred):
            start, stop = self.span(first)[0], self.span(second)[1]
            yield Change(self.path, start, stop, b + self.text[self.span(first)[1] : self.span(second)[0]] + a, kind)

    def changes(self) -> Iterator[Change]:
        alike = {id(told) for node in ast.walk(self.tree) for told in _alike(node)}
        for node in _code(self.tree):
            if id(node) not in alike:
                yield from self.of(node)

    def of(self, node: ast.AST) -> Iterator[Change]:
        match node:
            case ast.Constant(value=bool(value)):
                yield self.put(node, str(not value), "constant")
            case ast.Constant(value=int() | float() as value):
                # one more is a slip of 20, but not of 1e6; seconds for minutes one of 0.5, but not of a tolerance
                yield self.put(node, repr(value + 1 if abs(value) < 1000 else value + value // 2), "constant")
                if abs(value) >= 1e-5:
                    yield self.put(node, repr(value * 60), "unit")
            case ast.Compare(left=left, ops=[kind], comparators=[right]):
                yield from self.between(left, right, *COMPARISONS[type(kind)], "comparison")
            case ast.BoolOp(op=kind, values=[left, right, *_]):
                old, new = ("and", "or") if isinstance(kind, ast.And) else ("or", "and")
                yield from self.between(left, right, old, new, "comparison")
            case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
                yield self.put(node, f"({self.source(operand)})", "sign")
            case ast.BinOp(left=left, op=kind, right=right) if type(kind) in OPERATORS:
                yield self.put(
                    node, f"({self.source(left)}) {OPERATORS[type(kind)]} ({self.source(right)})", "operator"
                )
                yield self.put(node, f"({self.source(left)})", "dropped term")
                if isinstance(kind, ast.Add | ast.Mult):
                    yield self.put(node, f"({self.source(right)})", "dropped term")
            case ast.IfExp(test=test) | ast.If(test=test) | ast.While(test=test):
                yield self.put(test, f"(not ({self.source(test)}))", "comparison")
            case ast.Call(func=func, args=args, keywords=keywords):
                name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
                if name in OPPOSITES:
                    stop = self.span(func)[1]
                    yield Change(self.path, stop - len(name), stop, OPPOSITES[name], "name")
                held = args[1:] if name == "clip" and len(args) == 3 else args  # clip(x, low, high): max(x, low) first
                for pair in itertools.pairwise(held) if name not in COMMUTE else ():
                    yield from self.swapped(*pair, "swapped arguments")
                for first, second in itertools.pairwise([k.value for k in keywords]):
                    yield from self.swapped(first, second, "swapped arguments")
            case ast.Attribute(attr=attr, ctx=ast.Load()) if self.peers.get(attr):
                stop = self.span(node)[1]
                yield Change(self.path, stop - len(attr), stop, self.peers[attr][0], "name")
            case ast.JoinedStr():
                yield from self.of_words(node)
            case ast.Dict(values=values):
                for pair in itertools.pairwise(values):
                    yield from self.swapped(*pair, "swapped values")
            case ast.Tuple(elts=values, ctx=ast.Load()) | ast.List(elts=values, ctx=ast.Load()):
                for pair in itertools.pairwise(values):
                    yield from self.swapped(*pair, "swapped values")

    def of_words(self, node: ast.JoinedStr) -> Iterator[Change]:
        """Changes of what a text is told to put in, and neighbours put in for each other."""
        start, stop = self.span(node)
        fields = [(found.start(1), _expression(found[1])) for found in FIELD.finditer(self.text, start, stop)]
        fields = [(at, told) for at, told in fields if told]
        for at, told in fields:
            inner = _Code(self.path, told)
            inner.peers = self.peers  # of the file, not of these few words
            for change in inner.changes():
                yield change._replace(start=at + change.start, stop=at + change.stop)
        for (a, first), (b, second) in itertools.pairwise(fields):
            if first != second:
                yield Change(self.path, a, b + len(second), second + self.text[a + len(first) : b] + first, "words")


def _expression(field: str) -> str:
    """`x[1:2]` of `x[1:2]:.1f`, what a field puts in without how it is written; "" where none is found."""
    for stop in [len(field), *(k for k, letter in enumerate(field) if letter in ":!")]:
        try:
            ast.parse(field[:stop], mode="eval")
        except SyntaxError:
            continue
        return field[:stop]
    return ""


def _alike(node: ast.AST) -> list[ast.expr]:
    """What may be a tuple of which the order says nothing: values among which one is looked for, errors that are
    caught, static arguments, axes. Sizes to be found, for which any number below 0 stands. Whether `zip` is strict."""
    match node:
        case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[values]):
            return [values]
        case ast.ExceptHandler(type=ast.expr() as kinds):
            return [kinds]
        case ast.keyword(arg="static_argnums" | "static_argnames" | "axis", value=values):
            return [values]
        case ast.keyword(arg="strict", value=check):
            return [check]
        case ast.Call(func=ast.Attribute(attr="startswith" | "endswith"), args=[values]):
            return [values]
        case ast.Call(
            func=ast.Attribute(attr="max" | "min" | "sum" | "mean" | "any" | "all"), args=[ast.Tuple() as axes]
        ):
            return [axes]
        case ast.Call(func=ast.Attribute(attr="reshape"), args=sizes):
            return [size.operand for size in sizes if isinstance(size, ast.UnaryOp)]
    return []


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """Every node that runs: no docstrings, annotations, names to export, or (their places are wrong before Python
    3.12) parts of f-strings, which are looked for in the text."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.Import | ast.ImportFrom):
                continue
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                continue  # a docstring
            if isinstance(child, ast.Assign) and ast.unparse(child.targets[0]) == "__all__":
                continue
            if isinstance(child, ast.Subscript) and ast.unparse(child.value) == "Callable":
                continue  # an annotation that has a name
            yield child
            if not isinstance(child, ast.JoinedStr):
                yield from _code(child)


def _of_data(path: Path) -> Iterator[Change]:
    """Numbers of a table, a JSON file or a script, one at a time, half as large again; cells of a row swapped."""
    text, at = path.read_text(encoding="utf-8"), 0
    for line in text.splitlines(keepends=True):
        if not line.startswith("#"):
            for found in NUMBER.finditer(line):
                value = float(found[0])
                new = f"{1.5 * value or 1.0:g}"
                yield Change(path, at + found.start(), at + found.end(), new, "data")
            if path.suffix == ".csv":
                cells = line.rstrip("\n").split(",")
                for k, (a, b) in enumerate(itertools.pairwise(cells)):
                    start = at + sum(len(c) + 1 for c in cells[:k])
                    if a != b and '"' not in line:
                        yield Change(path, start, start + len(a) + 1 + len(b), f"{b},{a}", "swapped cells")
        at += len(line)


def changes(path: Path) -> list[Change]:
    """Every change of one file."""
    return list(_Code(path, path.read_text(encoding="utf-8")).changes() if path.suffix == ".py" else _of_data(path))
