"""Kernels that kernels call are parts of their callers: they compute, and complain, as they do by themselves."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dmodels.core.compiled import PACKAGE, kernel

TABLE = np.array([1.0, 2.0, 4.0])


@kernel
def place(i):
    if i > 2:
        raise ValueError("no such place")
    return TABLE[i]


@kernel
def twice(i):
    return 2.0 * place(i)


@kernel
def both(i):
    return twice(i) + place(i + 1)


@kernel
def steps(n):
    return 0 if n == 1 else 1 + steps(n // 2 if n % 2 == 0 else 3 * n + 1)


def test_a_kernel_is_the_same_by_itself_and_in_others():
    assert [place(i) for i in range(3)] == [1.0, 2.0, 4.0]
    assert (twice(2), both(0), both(1)) == (8.0, 4.0, 8.0)
    for call in (place, twice):
        with pytest.raises(ValueError, match="no such place"):
            call(3)
    with pytest.raises(ValueError, match="no such place"):
        both(2)


def test_a_kernel_may_call_itself():
    assert [steps(n) for n in (1, 2, 3, 27)] == [0, 1, 7, 111]


PROGRAM = f"""
import numpy as np
from dmodels.core.compiled import kernel
TABLE = np.array({TABLE.tolist()})
{inspect.getsource(place.py_func)}
@kernel
def largest(i, width):
    found = np.sort(np.array([place(i + k) for k in range(width)]))
    return found[-1]
@kernel
def sum_of_largest(n, width):
    total = 0.0
    for i in range(n):
        total += largest(i, width)
    return total
"""
ASKED = """
from loops import largest, place, sum_of_largest
print(sum_of_largest(2, 2))
try:
    sum_of_largest(3, 2)
except ValueError as error:
    print(error)
print(sum(sum_of_largest.stats.cache_hits.values()))
print(len(sum_of_largest.signatures), len(largest.signatures), len(place.signatures))
print(len(largest.part().signatures), len(place.part().signatures))
"""


def test_what_is_kept_on_disk_needs_no_part_again(tmp_path):
    """The second process reads the caller's machine code, and compiles nothing; nor is a part machine code itself."""
    (tmp_path / "loops.py").write_text(PROGRAM)
    paths = os.pathsep.join([str(tmp_path), str(Path(PACKAGE).parent)])

    def answer() -> list[str]:
        command = [sys.executable, "-c", ASKED]
        environment = os.environ | {"PYTHONPATH": paths}
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    assert answer() == ["6.0", "no such place", "0", "1 0 0", "1 1"]
    assert answer() == ["6.0", "no such place", "1", "1 0 0", "0 0"]
