"""Seconds from `import` to the first answer, in a process of its own.

cold: nothing compiled is on disk, as right after an installation; next: a second process, which finds what the first
one left; again: the same call once more in that process. The interpreter's own start is not counted. `_cpu_s` are the
process' own seconds, which other work on the machine does not lengthen.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from benchmarks.registry import Row, benchmark

CALLS = {
    "assign": """
from dmodels.solvers import assign
run = lambda: assign([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0], [3.0, 2.0, 2.0]])""",
    "transport": """
from dmodels.solvers import transport
run = lambda: transport([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0]], [2.0, 2.0, 2.0], [1.0, 2.0])""",
    "price_of_anarchy": """
from dmodels.games.anarchy import price_of_anarchy
from dmodels.games.routing import RoutingGame
run = lambda: price_of_anarchy(RoutingGame([[1.0, 2.0, 3.0], [2.0, 2.0, 2.0]], [[0.0, 0.0]] * 3))""",
    "affine_equilibria": """
from dmodels.solvers import affine_equilibria
run = lambda: affine_equilibria([[2, 8 / 3], [5 / 4, 2]], [-34, -24.25], ([[1, 1]], [15]), (0, 10))""",
    "variational_equilibrium, quadratic": """
from dmodels.solvers import variational_equilibrium
run = lambda: variational_equilibrium(([[2, 8 / 3], [5 / 4, 2]], [-34, -24.25]), ([[1, 1]], [15]), (0, 10))""",
    "variational_equilibrium, any costs": """
from dmodels.solvers import variational_equilibrium
first = lambda v: v[0] ** 2 + 8 / 3 * v[0] * v[1] - 34 * v[0]
second = lambda v: v[1] ** 2 + 5 / 4 * v[0] * v[1] - 24.25 * v[1]
costs = [first, second]
run = lambda: variational_equilibrium(costs, ([[1, 1]], [15]), (0, 10))""",
    "split: equilibrium": """
from dmodels.games.resource import Alone, Exponential, Game, equilibrium
run = lambda: equilibrium(Game(Exponential(0.3), Alone(Exponential(0.5)), 8.0))""",
    "split: optimum of logistic rates": """
from dmodels.games.resource import Alone, Game, Logistic, social_optimum
run = lambda: social_optimum(Game(Logistic(6.0, 0.5), Alone(Logistic(6.0, 0.5)), 16.0))""",
}

_TIMED = """
import time; begin, worked = time.perf_counter(), time.process_time()
{call}
run(); first, cpu = time.perf_counter(), time.process_time(); run(); again = time.perf_counter()
import json; print(json.dumps([first - begin, cpu - worked, again - first]))
"""


def seconds(call: str, folder: str) -> list[float]:
    """(import to first answer, the same in CPU seconds, second call) of a new process; compiled code is in `folder`."""
    env = os.environ | {"NUMBA_CACHE_DIR": f"{folder}/numba", "JAX_COMPILATION_CACHE_DIR": f"{folder}/jax"}
    env |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1"}
    done = subprocess.run([sys.executable, "-c", _TIMED.format(call=call)], env=env, capture_output=True, check=True)
    out: list[float] = json.loads(done.stdout.splitlines()[-1])
    return out


@benchmark()
def first_call(quick: bool) -> Iterator[Row]:
    """Seconds from import to the first answer: cold, in the next process, and once more."""
    for name, call in list(CALLS.items())[: 2 if quick else None]:
        with tempfile.TemporaryDirectory() as folder:
            cold, cold_cpu, _ = seconds(call, folder)
            following, following_cpu, again = seconds(call, folder)
        yield {
            "call": name,
            "cold_s": cold,
            "cold_cpu_s": cold_cpu,
            "next_process_s": following,
            "next_process_cpu_s": following_cpu,
            "again_s": again,
        }
