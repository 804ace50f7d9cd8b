"""Binary heaps in arrays, the least key at the root: entries from `start` on, keys beside what they belong to."""

from __future__ import annotations

import numpy as np

from .compiled import kernel


@kernel
def sift_down(keys: np.ndarray, rows: np.ndarray, start: int, size: int, at: int) -> None:
    """Move the entry at place `at` of a heap of `size` down to where it belongs."""
    key, row = keys[start + at], rows[start + at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and keys[start + child + 1] < keys[start + child]:
            child += 1
        if keys[start + child] >= key:
            break
        keys[start + at], rows[start + at] = keys[start + child], rows[start + child]
        at = child
    keys[start + at], rows[start + at] = key, row


@kernel
def sift_up(keys: np.ndarray, rows: np.ndarray, start: int, at: int, key: float, row: int) -> None:
    """Enter `key` at the place `at`, which was free, and move it up to where it belongs."""
    while at > 0:
        parent = (at - 1) // 2
        if keys[start + parent] <= key:
            break
        keys[start + at], rows[start + at] = keys[start + parent], rows[start + parent]
        at = parent
    keys[start + at], rows[start + at] = key, row
