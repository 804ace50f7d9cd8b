"""Seconds from `import` to the first answer, in a process of its own.

cold: nothing compiled is on disk, as right after an installation; next: later processes, which find what the first one
left (a library user's JAX programs are there only after `dmodels.keep_compiled()`, which these calls have); again:
the same call once more in that process. The interpreter's own start is not counted. `_cpu_s` are the
process' own seconds, which other work on the machine does not lengthen.
"""

from __future__ import annotations

import json
import os
import statistics
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
    "assign, 8 x 8": """
import numpy as np
from dmodels.solvers import assign
run = lambda: assign(np.arange(64.0).reshape(8, 8) ** 2 % 17)""",
    "reassign, 8 x 8": """
import numpy as np
from dmodels.solvers import assign, reassign
cost = np.arange(64.0).reshape(8, 8) ** 2 % 17
run = lambda: reassign(cost[::-1], assign(cost))""",
    "entropic_transport": """
from dmodels.solvers import entropic_transport
run = lambda: entropic_transport([[0.0, 1.0], [1.0, 0.0]], [0.5, 0.5], [0.5, 0.5], 0.1)""",
    "mixed_equilibria": """
from dmodels.solvers import mixed_equilibria
run = lambda: mixed_equilibria([[3, 0], [5, 1]], [[3, 5], [0, 1]])""",
    "route, as the command": """
from dmodels.models.latency import LatencyCurve
from dmodels.studies.router_costs import grouped_game, router_costs
curve = LatencyCurve([0.005] * 2, [0.02] * 2, [0.01] * 2, [64.0] * 2, [2.0] * 2)
run = lambda: router_costs(grouped_game(64, 5, curve, 0.015))""",
    "poa index of 1,000 requests": """
import numpy as np
from dmodels.games.anarchy import poa_index
rng = np.random.default_rng(0)
log = rng.random(1000) + 0.1, rng.integers(0, 4, 1000), rng.random((1000, 4))
run = lambda: poa_index(*log)""",
    "split, as the command with examples/split.toml": """
from dmodels import Parallel, SLO, catalog
from dmodels.studies.split import split
workload = catalog.workload("azure-conv").replace(rate_rps=45.0)
given = catalog.model("llama-3.1-70b"), catalog.gpu("h100_sxm"), workload, SLO(ttft_s=2.0, tpot_s=0.025), 40.0
run = lambda: split(*given, Parallel(tp=4), Parallel(tp=4), burst=1.25)""",
    "size, the command": """
from dmodels.cli import main
run = lambda: main(["size", "--model", "llama-3.1-70b", "--gpu", "h100_sxm", "--tp", "4"])""",
    "step, the command": """
from dmodels.cli import main
run = lambda: main(["step", "--model", "qwen3-32b", "--gpu", "h200_sxm", "--input", "1500", "--output", "150"])""",
    "predict of 69 rows, the command": """
from dmodels.cli import main
run = lambda: main(["predict", "examples/data/measured.csv"])""",
    "place, the command with examples/place.toml": """
from dmodels.cli import main
run = lambda: main(["place", "examples/place.toml"])""",
    "split: equilibrium": """
from dmodels.games.resource import Alone, Exponential, Game, equilibrium
run = lambda: equilibrium(Game(Exponential(0.3), Alone(Exponential(0.5)), 8.0))""",
    "split: optimum of logistic rates": """
from dmodels.games.resource import Alone, Game, Logistic, social_optimum
run = lambda: social_optimum(Game(Logistic(6.0, 0.5), Alone(Logistic(6.0, 0.5)), 16.0))""",
}

#: Processes after the first, of which the median is told: one alone differs by a tenth.
NEXT = 7

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
            later = [seconds(call, folder) for _ in range(1 if quick else NEXT)]
            following, following_cpu, again = (statistics.median(times) for times in zip(*later, strict=True))
        yield {
            "call": name,
            "cold_s": cold,
            "cold_cpu_s": cold_cpu,
            "next_process_s": following,
            "next_process_cpu_s": following_cpu,
            "again_s": again,
        }
