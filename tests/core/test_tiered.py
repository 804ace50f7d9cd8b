"""Kernels that start interpreted answer as their machine code does, and turn to it in time."""

from __future__ import annotations

import numpy as np
import pytest

from dmodels.core import threads, tiered
from dmodels.core.compiled import kernel
from dmodels.core.tiered import Starting, interpreted


def _part(x, i):
    return x[i] * x[i]


part = kernel(_part)


def _squares(x, rounds, out):
    for _ in range(rounds):
        out[0] = 0.0
        for i in range(x.size):
            out[0] += part(x, i)
    return out[0]


@pytest.fixture
def squares(monkeypatch):
    made = kernel(_squares, tiered=True)
    monkeypatch.setattr(tiered, "_is_kept", lambda kernel: bool(kernel.overloads))
    return made


def test_a_small_call_is_answered_without_compiling(squares):
    out = np.zeros(1)
    assert squares(np.arange(4.0), 1, out) == 14.0 == out[0]
    assert isinstance(squares, Starting) and not squares.overloads


def test_a_large_call_is_compiled(squares):
    assert squares(np.ones(tiered.SMALL + 1), 1, np.zeros(1)) == tiered.SMALL + 1
    assert squares.overloads and type(squares) is not Starting


def test_a_long_call_is_stopped_and_starts_again_from_the_arrays_it_was_given(monkeypatch):
    def add(x, rounds, out):
        for _ in range(rounds):
            out[0] += part(x, 0)

    monkeypatch.setattr(tiered, "_is_kept", lambda kernel: False)
    monkeypatch.setattr(tiered, "PATIENCE_S", 0.01)
    adding = kernel(add, tiered=True)
    out = np.zeros(1)
    adding(np.ones(1), 200_000, out)
    assert out[0] == 200_000 and adding.overloads


def test_a_part_of_a_shared_loop_is_compiled_since_others_write_beside_it(squares, monkeypatch):
    monkeypatch.setattr(threads, "CORES", 2)
    out = np.zeros((64, 1))

    def part_of(first, last):
        for k in range(first, last):
            squares(np.full(3, float(k)), 1, out[k])

    threads.share(part_of, 64, 1.0)
    np.testing.assert_array_equal(out[:, 0], 3.0 * np.arange(64.0) ** 2)
    assert type(squares) is not Starting and not threads.sharing.active


@pytest.mark.slow
def test_kernels_of_solvers_answer_alike_interpreted_and_compiled():
    from dmodels.games.routing.equilibria import ranges
    from dmodels.solvers.assignment._kernels import match_one
    from dmodels.solvers.transportation._units import place_one
    from dmodels.solvers.variational._pivot import Games, solve_games

    rng = np.random.default_rng(0)

    def both(tiered_kernel, *arguments):
        ours = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
        tiered._running.until_s = np.inf
        plain = interpreted(tiered_kernel)(*ours)
        code = tiered.compiled(tiered_kernel)
        found = code(*arguments)
        _alike(plain, found)
        for mine, other in zip(ours, arguments, strict=True):
            if isinstance(mine, np.ndarray):
                np.testing.assert_allclose(mine, other, rtol=1e-12, atol=1e-12)

    for n, m in ((1, 1), (3, 3), (4, 9), (7, 8)):
        cost = rng.integers(0, 9, (n, m)).astype(float)
        cost[0, 0] = np.inf if m > 1 else 1.0
        both(match_one, cost, np.zeros(1 + n, np.int64), np.zeros(3 + n + m))
    out = np.zeros(9, np.int64), np.zeros(9), np.zeros(3), np.zeros(3)
    both(place_one, rng.random((9, 3)), np.array([2.0, 3.0, 5.0]), *out)
    n = 4
    games = Games(
        np.eye(n)[None] * 3 + rng.random((1, n, n)),
        -rng.random((1, n)) * 9,
        np.ones((1, 1, n)),
        np.full((1, 1), 2.0),
        np.zeros((1, n)),
        np.full((1, n), 1.5),
    )
    both(solve_games, games, 0, 1, 100, np.zeros((1, n)), np.zeros((1, 1)), np.zeros(1, np.int64))
    f = np.cumsum(rng.random((5, 3, 6)), axis=-1)
    c, q = rng.integers(0, 3, (5, 3, 3)) * 0.5, np.full((1, 3), 2)
    cost, flows, boxes = np.zeros((5, 4)), np.zeros((5, 2, 3, 3), np.int64), np.zeros(5, np.int64)
    both(ranges, f, c, q, 200, 10**6, 0, 5, cost, flows, boxes)


def _alike(a, b):
    if isinstance(a, tuple):
        for x, y in zip(a, b, strict=True):
            _alike(x, y)
    elif a is not None:
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
