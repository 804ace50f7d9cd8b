"""What a call means where its caller says nothing is a promise: `defaults.txt` holds it, beside the code.

Whoever changes a default, or a constant by name, changes what others' scripts answer. Then `python
tests/test_defaults.py` writes the file anew; say the change in CHANGELOG.md, with what it rests on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "dmodels"
PROMISED = Path(__file__).with_name("defaults.txt")


def plain(value: ast.expr) -> bool:
    """A number, a text or a word like None, or such in a sign, a tuple or a field: `quantity(1.0)`."""
    match value:
        case ast.Constant():
            return value.value is not ...
        case ast.UnaryOp(operand=inner):
            return plain(inner)
        case ast.BinOp(left=left, right=right):
            return plain(left) and plain(right)
        case ast.Tuple(elts=parts):
            return all(map(plain, parts))
        case ast.Call(args=[first, *_]):
            return plain(first)
    return False


def told(value: ast.expr) -> str:
    """A default in words; of a field's arguments the first, since the others describe it."""
    if isinstance(value, ast.Call):
        return f"{ast.unparse(value.func)}({ast.unparse(value.args[0])})"
    return ast.unparse(value)


def defaults(body: list[ast.stmt], where: str = "") -> Iterator[str]:
    """Lines `name = default` of what can be called, made or read by its name."""
    for node in body:
        name = getattr(node, "name", "")
        if isinstance(node, ast.ClassDef) and not name.startswith("_"):
            yield from defaults(node.body, f"{where}{name}.")
        elif isinstance(node, ast.FunctionDef) and (name == "__init__" or not name.startswith("_")):
            asked, given = node.args, [*node.args.defaults, *node.args.kw_defaults]
            own = [*asked.posonlyargs, *asked.args]
            own = own[len(own) - len(asked.defaults) :] + asked.kwonlyargs
            pairs = [(one.arg, value) for one, value in zip(own, given, strict=True) if value is not None]
            yield from (f"{where}{name}.{arg} = {told(value)}" for arg, value in pairs if plain(value))
        elif isinstance(node, ast.AnnAssign | ast.Assign) and node.value is not None and plain(node.value):
            kept = ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0])
            prose = isinstance(getattr(node.value, "value", None), str)
            if kept.strip("(")[0] != "_" and (where or (kept.isupper() and not prose)):
                yield f"{where}{kept} = {told(node.value)}"


def found() -> list[str]:
    """Of the whole package."""
    files = sorted(PACKAGE.rglob("*.py"))
    each = {path.relative_to(PACKAGE): defaults(ast.parse(path.read_text("utf-8")).body) for path in files}
    return [f"{path.as_posix()} {line}" for path, lines in each.items() for line in lines]


def test_defaults_are_what_was_promised():
    now, then = found(), PROMISED.read_text("utf-8").splitlines()
    changed = [f"was: {line}" for line in then if line not in set(now)]
    changed += [f"is: {line}" for line in now if line not in set(then)]
    assert not changed, "\n".join([*changed, "if that is meant: python tests/test_defaults.py, and CHANGELOG.md"])


if __name__ == "__main__":
    PROMISED.write_text("\n".join(found()) + "\n", "utf-8")
