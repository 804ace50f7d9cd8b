"""The changes: every sign, constant, exponent, inequality and choice of a formula, one at a time."""

from __future__ import annotations

import ast
import copy
import functools
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
#: An inequality moves its edge, and turns round.
_INEQUALITIES = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
}
_FUNCTIONS = [
    ("minimum", "maximum"),
    ("ceil", "floor"),
    ("min", "max"),
    ("argmin", "argmax"),
    ("all", "any"),
    ("log", "log1p"),
    ("exp", "expm1"),
    ("cumsum", "cumprod"),
]
_SWAPS = dict(_FUNCTIONS) | {b: a for a, b in _FUNCTIONS}
#: Keywords that say how an array is laid out, or how long to try: no part of a formula.
_LAYOUT = {"axis", "axes", "keepdims", "dtype", "shape", "length", "size", "unroll", "max_steps", "batch_size"}


@dataclass(frozen=True)
class Mutant:
    """One change of one function. `occurrence` counts equal changes of the same function, from 0."""

    module: str
    function: str
    line: int
    kind: str
    before: str
    after: str
    occurrence: int
    digest: str  #: of the function's source: a result holds for as long as the function stands

    @property
    def key(self) -> str:
        return "|".join((self.module, self.function, self.digest, self.before, self.after, str(self.occurrence)))

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {self.function}: `{self.before}` -> `{self.after}`"


@functools.cache
def mutants(module: str, source: str) -> list[Mutant]:
    """Every change of a module, in the order of its source."""
    seen: Counter[tuple[str, ...]] = Counter()
    found = []
    for function, node, digest in functions(ast.parse(source)):
        for kind, line, before, after in _Changes().all_of(node):
            same = (function, before, after)
            found.append(Mutant(module, function, line, kind, before, after, seen[same], digest))
            seen[same] += 1
    return found


def changed(source: str, wanted: Mutant) -> ast.Module:
    """The module's tree with that one change made."""
    tree = ast.parse(source)
    place = [m for m in mutants(wanted.module, source) if m.function == wanted.function]
    index = next(i for i, m in enumerate(place) if m.key == wanted.key)
    node = next(node for function, node, _ in functions(tree) if function == wanted.function)
    _Changes(make=index).visit_body(node)
    return ast.fix_missing_locations(tree)


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef, str]]:
    """Functions and methods with their dotted names and a digest of what they do; inner functions belong to outer."""
    stack: list[tuple[str, ast.stmt]] = [("", node) for node in tree.body]
    while stack:
        prefix, node = stack.pop(0)
        if isinstance(node, ast.FunctionDef):
            bare = ast.unparse(_Bare().visit(copy.deepcopy(node)))
            yield prefix + node.name, node, hashlib.sha256(bare.encode()).hexdigest()[:12]
        elif isinstance(node, ast.ClassDef):
            stack[:0] = [(f"{prefix}{node.name}.", inner) for inner in node.body]


class _Bare(ast.NodeTransformer):
    """Leaves what may be changed: no docstrings, annotations or decorators."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        node.returns, node.decorator_list = None, []
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(node.arg)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        return ast.copy_location(ast.Assign([node.target], node.value), node) if node.value else ast.Pass()


class _Changes(ast.NodeTransformer):
    """Walks a function and counts the changes that can be made; makes the one numbered `make`."""

    def __init__(self, make: int | None = None):
        self.make, self.count = make, 0
        self.found: list[tuple[str, int, str, str]] = []

    def all_of(self, node: ast.FunctionDef) -> list[tuple[str, int, str, str]]:
        self.visit_body(node)
        return self.found

    def visit_body(self, node: ast.FunctionDef) -> None:
        """Defaults and statements; not decorators, annotations or the docstring."""
        node.args.defaults = [self.visit(default) for default in node.args.defaults]
        node.args.kw_defaults = [d and self.visit(d) for d in node.args.kw_defaults]
        node.body = [self.visit(statement) for statement in node.body]

    def _offer(self, kind: str, node: ast.expr, *choices: ast.expr) -> ast.expr:
        chosen = node
        for choice in choices:
            self.found.append((kind, node.lineno, _short(node), _short(choice)))
            if self.count == self.make:
                chosen = ast.copy_location(choice, node)
            self.count += 1
        return chosen

    # What is left alone.
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.visit_body(node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.value = node.value and self.visit(node.value)
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        """What is refused is no formula: an `if` that only raises is left alone."""
        if all(isinstance(statement, ast.Raise) for statement in node.body):
            node.orelse = [self.visit(statement) for statement in node.orelse]
            return node
        return self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        node.value = self.visit(node.value)  # an index out of place is a matter of shapes
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        return node if node.arg in _LAYOUT else self.generic_visit(node)

    def _as_is(self, node: ast.AST) -> ast.AST:
        return node

    visit_Raise = visit_Assert = visit_JoinedStr = visit_Import = visit_ImportFrom = _as_is

    # What is changed.
    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            return node
        if 0 < abs(node.value) < 1e-6:  # an allowance for rounding
            return node
        value = node.value * 2 if 0 < abs(node.value) < 0.1 else node.value + 1
        return self._offer("constant", node, ast.Constant(value))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        if isinstance(node.op, ast.UAdd) or isinstance(node.operand, ast.Constant):
            return self._offer("sign", node, node.operand) if isinstance(node.op, ast.USub) else node
        chosen = self._offer("sign" if isinstance(node.op, ast.USub) else "condition", node, node.operand)
        node.operand = self.visit(node.operand)
        return chosen

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        if isinstance(node.op, ast.Pow):
            steeper = ast.BinOp(node.left, ast.Pow(), ast.BinOp(node.right, ast.Add(), ast.Constant(1)))
            chosen = self._offer("exponent", node, steeper)
            node.left = self.visit(node.left)
            if not isinstance(node.right, ast.Constant):
                node.right = self.visit(node.right)
            return chosen
        other = _OPERATORS.get(type(node.op))
        chosen = self._offer("operator", node, ast.BinOp(node.left, other(), node.right)) if other else node
        self.generic_visit(node)
        return chosen

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        other = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        chosen = self._offer("condition", node, ast.BoolOp(other, node.values))
        self.generic_visit(node)
        return chosen

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        others = _INEQUALITIES.get(type(node.ops[0]), ()) if len(node.ops) == 1 else ()
        chosen = self._offer(
            "inequality", node, *(ast.Compare(node.left, [other()], node.comparators) for other in others)
        )
        self.generic_visit(node)
        return chosen

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        chosen = node
        if name in _SWAPS:
            func = copy.copy(node.func)
            setattr(func, "attr" if isinstance(func, ast.Attribute) else "id", _SWAPS[name])
            chosen = self._offer("choice", node, ast.Call(func, node.args, node.keywords))
        self.generic_visit(node)
        return chosen


def _short(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 90 else text[:60] + " ... " + text[-25:]
