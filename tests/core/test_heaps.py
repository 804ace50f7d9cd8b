"""Heaps in arrays give what sorting does, and leave what lies before and after them."""

from __future__ import annotations

import numpy as np
import pytest

from dmodels.core.heaps import sift_down, sift_up


@pytest.mark.parametrize("start", [0, 3])
@pytest.mark.parametrize("size", [1, 2, 7, 40])
def test_a_heap_gives_its_entries_in_order(start, size):
    rng = np.random.default_rng(size)
    wanted = rng.integers(0, 20, size).astype(float)
    keys, rows = np.full(start + size + 3, -1.0), np.full(start + size + 3, -1)
    for at, key in enumerate(wanted):
        sift_up.py_func(keys, rows, start, at, key, at)
    found = []
    for left in range(size, 0, -1):
        found.append((keys[start], rows[start]))
        keys[start], rows[start] = keys[start + left - 1], rows[start + left - 1]
        sift_down.py_func(keys, rows, start, left - 1, 0)
    assert [key for key, _ in found] == sorted(wanted)
    assert sorted(row for _, row in found) == list(range(size))
    assert all(wanted[row] == key for key, row in found)
    outside = np.r_[0:start, start + size : start + size + 3]
    assert (keys[outside] == -1.0).all() and (rows[outside] == -1).all()
