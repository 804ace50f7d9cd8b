"""XLA's order of execution on a CPU: told once, a caller's own choice left alone, and no batch that never returns."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dmodels.core.schedule import FLAG, in_order


@pytest.mark.parametrize(
    "before, version, after",
    [
        ("", (0, 10, 2), f"{FLAG}=false"),
        ("--xla_dump_to=x", (0, 12, 0, 1), f"--xla_dump_to=x {FLAG}=false"),
        (f"{FLAG}=true", (0, 10, 2), f"{FLAG}=true"),
        ("", (0, 13, 0), ""),
    ],
)
def test_only_what_nobody_chose_is_told(monkeypatch, before, version, after):
    monkeypatch.setenv("XLA_FLAGS", before)
    in_order(version)
    assert os.environ["XLA_FLAGS"] == after


#: 300 games of 20 players in two blocks, 400 times: without the order, none of five runs came to its end.
LOOP = """
import numpy as np, jax
from dmodels.solvers import variational_equilibria
rng = np.random.default_rng(0)
square, skew = rng.normal(size=(2, 300, 20, 20))
m = square @ square.transpose(0, 2, 1) / 20 + 0.1 * np.eye(20) + 0.5 * (skew - skew.transpose(0, 2, 1))
games = dict(m=m, q=3 * rng.normal(size=(300, 20)), a=rng.uniform(0, 1, (300, 20)), b=rng.uniform(0.5, 2, 300))
pseudogradient, room = lambda x, p: p["m"] @ x + x**3 + p["q"], lambda x, p: p["a"] @ x - p["b"]
for _ in range(400):
    variational_equilibria(pseudogradient, room, (0, np.inf), np.ones(20), params=games, batch_size=256, samples=0)
"""


@pytest.mark.slow
def test_many_blocks_of_games_all_return():
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        subprocess.run([sys.executable, "-c", LOOP], env=environment, check=True, timeout=600)
    finally:
        busy.kill()
