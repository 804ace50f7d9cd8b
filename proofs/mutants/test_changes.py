"""The changes are made one at a time, where they should be, and nowhere else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from proofs.mutants.changes import changed, mutants
from proofs.mutants.equivalent import SAME, reason
from proofs.mutants.targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]
SOURCE = '''
"""Module 1 + 1."""
K = 3


@cache(size=4)
def f(x: Real = 2.0, axis=-1) -> Real:
    """Adds 1."""
    if x < 0:
        raise ValueError(f"x = {x + 1}")
    return -x**2 / g(x[0], axis=-1) if x >= 1 else jnp.minimum(x, 5)
'''


def all_changes(source=SOURCE):
    return {(m.before, m.after) for m in mutants("m", source)}


def test_every_kind_of_change_is_made():
    found = all_changes()
    assert {("x >= 1", "x > 1"), ("x >= 1", "x < 1")} <= found  # the edge of an inequality, and its direction
    assert ("-x ** 2 / g(x[0], axis=-1)", "-x ** 2 * g(x[0], axis=-1)") in found
    assert ("x ** 2", "x ** (2 + 1)") in found and ("-x ** 2", "x ** 2") in found
    assert ("jnp.minimum(x, 5)", "jnp.maximum(x, 5)") in found
    assert {("2.0", "3.0"), ("5", "6"), ("1", "2")} <= found


def test_what_is_no_formula_is_left_alone():
    """Docstrings, decorators, annotations, checks that only raise, indices, axes, module constants."""
    found = all_changes()
    assert not {("x < 0", "x <= 0"), ("x + 1", "x - 1"), ("3", "4"), ("4", "5"), ("0", "1")} & found


def test_one_change_at_a_time_and_all_differ():
    plain = ast.unparse(ast.parse(SOURCE))
    texts = [ast.unparse(changed(SOURCE, m)) for m in mutants("m", SOURCE)]
    assert len(set(texts)) == len(texts) == 10 and plain not in texts
    for text in texts:
        assert sum(a != b for a, b in zip(plain.split("\n"), text.split("\n"), strict=True)) == 1


def test_equal_changes_of_one_function_are_told_apart():
    source = "def f(x):\n    return (x + 1) * (x + 1)\n"
    assert len({m.key for m in mutants("m", source)}) == len(mutants("m", source)) == 5


def test_a_result_holds_while_the_function_stands():
    text = 'def f(x{0}):\n    """{1}"""\n    y{0} = x\n    return y + 1\n'
    before, *others = (mutants("m", text.format(kind, doc)) for kind in ("", ": Real") for doc in "AB")
    assert all([m.key for m in before] == [m.key for m in after] for after in others)
    assert mutants("m", "@jit\ndef f(x) -> Real:\n    y = x\n    return y + 1\n\n\n")[0].digest == before[0].digest
    assert mutants("m", "def f(x):\n    y = x\n    return y + 2\n")[0].digest != before[0].digest


@pytest.mark.parametrize("module", TARGETS)
def test_targets_are_there_and_their_changes_compile(module):
    source = (ROOT / "dmodels" / f"{module}.py").read_text(encoding="utf-8")
    found = mutants(module, source)
    for m in found[:: max(len(found) // 3, 1)]:
        compile(changed(source, m), module, "exec")


def test_reasons_are_about_changes_that_exist():
    everything = [m for t in TARGETS for m in mutants(t, (ROOT / "dmodels" / f"{t}.py").read_text(encoding="utf-8"))]
    meant = {(m.module, m.function, m.before, m.after, m.occurrence) for m in everything if reason(m)}
    assert meant == {entry[:-1] for entry in SAME} and all(entry[-1] for entry in SAME)
    assert len(meant) == len(SAME) <= 0.08 * len(everything)
