"""What `print` of a solution shows: why it stopped, the answer, the evidence in words."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.solvers import Solution, affine_equilibria, assign, transport


def test_one_answer_with_its_proof():
    shown = str(assign([[4, 1, 3], [2, 0, 5], [3, 2, 2]]))
    assert shown.startswith("Solution after") and "certified" in shown.splitlines()[0]
    lines = dict(line.split(maxsplit=1) for line in shown.splitlines() if line.startswith("  "))
    assert lines["columns"] == "[1 0 2]" and lines["cost"] == "5"
    assert lines["gap"].startswith("0 ") and "duals prove" in lines["gap"]


def test_why_there_is_no_answer():
    assert "constraints cannot be met" in str(transport([[1.0], [1.0]], [1.0])).splitlines()[0]
    many = affine_equilibria(np.array([[[2.0]], [[0.0]]]), np.array([[-1.0], [0.0]]), None, (0, 1))
    assert str(many).splitlines()[0].startswith("Solutions of 2 problems: 1 certified, 1 uniqueness")
    concave = affine_equilibria([[-2.0]], [0.9], None, (0, 1))  # cost 0.9 x - x^2: 0 at 0, but -0.1 at 1
    assert "a player gains by moving alone" in str(concave).splitlines()[0]


def test_large_and_traced_ones_are_short():
    assert "array of shape (50,), 0 to 49" in str(Solution({"x": np.arange(50.0)}, {}, np.int32(0), np.int32(1)))
    seen = []
    jax.jit(lambda x: seen.append(str(Solution({"x": x}, {"gap": x}, x, x))))(jnp.ones(3))
    assert seen[0].startswith("Solution(traced")
