"""Points of a plan, in batch: a cell (layout, stage) with a number of instances.

Cells are the rows of a table on the engine of `design`, numbers of instances its columns. Blocks have one shape, so
memory is bounded, and tables have at least `ROWS` x `COLUMNS` places, so plans of other sizes share the program.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import jax
import numpy as np

from dmodels.core.flags import Flag, flag_where
from dmodels.core.records import Real, float64
from dmodels.core.threads import CORES, share
from dmodels.design.distribute import gathered
from dmodels.design.program import Program, arguments, compiled, cut, lowered, table
from dmodels.models.instance import Engine, Operating, operate
from dmodels.solvers.roofline import DeviceWork

from .designs import Cells

#: The smallest table: cells, and numbers of instances that one call of the engine looks at.
ROWS, COLUMNS = 1024, 64
#: Cells and numbers of instances of one compiled block.
_BLOCK = (64, 16)
#: The same where more are asked than a plan ever does: what a row costs once is shared by more points.
_WIDE = (32, 128)
#: Numbers of instances that a round of the search tries for each of its two questions: a block's columns.
_TRIES = _BLOCK[1] // 2
#: Instances are searched up to this.
MOST = 2**22


class Smallest(NamedTuple):
    """Per cell, on the host: the fewest instances that keep up, and the fewest that also meet the SLO (inf: none)."""

    stable_instances: np.ndarray
    instances: np.ndarray


def evaluation_work() -> DeviceWork:
    """Of `evaluate` at one point, counted in what XLA makes for sm_90: 8,400 operations and 1,140 costly ones (of some
    20), in 165 kernels.

    They move 14.3 kB, 9.8 of it the state of the loops that are left, which goes through device memory at every turn
    (20 of 272 bytes, 5 of 552, 7 of 104, 16 of 56): sums over rungs, classes and levels are one kernel each.
    """
    return DeviceWork(14_300.0, flop64=8_400 + 20 * 1_140, launches=165.0, registers=104)


def evaluate(cells: Cells, instances: Real, rate_rps: Real, slowdown: Real, engine: Engine) -> Operating:
    """The steady state of each cell's pool when `instances` of it share the stage's requests evenly.

    `instances` (cells, r) broadcasts against the cells' leaves (cells, 1). Pure; compose it under jit, vmap and grad.
    """
    point = operate(
        cells.steps,
        cells.requests,
        rate_rps * cells.requests.share_frac / instances,
        cells.slots_count,
        slo=cells.slo,
        engine=engine,
        prompt_s=cells.prompt_s,
        transfer_s_per_token=cells.transfer_s_per_token,
        slowdown=slowdown,
        dp=cells.dp,
        pp=cells.pp,
        wait_steps=cells.wait_steps,
    )
    unfit = flag_where(cells.longest_bytes > cells.budget_bytes, Flag.NO_FIT)
    return point._replace(flags=point.flags | unfit)


@float64
def sweep_instances(cells: Cells, instances: np.ndarray, rate_rps: float, engine: Engine, slowdown=1.0) -> Operating:
    """`evaluate` over all cells; `instances` (cells, r). Host arrays (cells, r)."""
    wide = instances.shape[1] > COLUMNS
    asked = _asked(cells, rate_rps, engine, slowdown, _WIDE if wide else _BLOCK)
    if not wide:
        return Operating(**_at(asked, instances))
    told, step = lowered(asked).out_info, compiled(asked)
    found = {name: np.empty(instances.shape, told[name].dtype) for name in Operating._fields}

    windows = [slice(left, left + _WIDE[1]) for left in range(0, instances.shape[1], _WIDE[1])]
    given = lru_cache(CORES)(lambda window: _given(asked, instances[:, windows[window]]))
    blocks = given(0).blocks_count  # of any window

    @float64  # each thread has settings of its own
    def parts(first: int, last: int) -> None:
        for window, number in (divmod(part, blocks) for part in range(first, last)):
            there = given(window)
            rows, columns = there.window(number)
            for name, values in cut(there, number, step(*arguments(there, number))).items():
                found[name][:, windows[window]][rows, columns] = values

    share(parts, len(windows) * blocks, math.inf)
    return Operating(**found)


@float64
def fewest_instances(cells: Cells, rate_rps: float, engine: Engine, slowdown=1.0) -> Smallest:
    """The exact smallest pools, by a search over whole instances: adding one never makes a pool slower.

    `slowdown` is one factor, or one per cell. Both sizes of a cell are bracketed, too few below and enough above, and a
    round tries `_TRIES` sizes inside each bracket: geometrically at first, because most pools are small, then evenly.
    """
    asked = _asked(cells, rate_rps, engine, slowdown)
    blocking = np.array([int(Flag.OVERLOAD), 0x7FFFFFFF], np.int32)[:, None]
    low = np.zeros((asked.sizes[0], 2))
    high = np.full_like(low, MOST + 1.0)
    trial = np.round(np.geomspace(1.0, MOST, _TRIES)) + 0.0 * low[..., None]
    while (blocks := np.unique(np.flatnonzero((high - low > 1.0).any(1)) // _BLOCK[0])).size:
        at = np.isin(np.arange(len(low)) // _BLOCK[0], blocks)  # cells of the blocks in which one is still open
        flags = _at(asked, trial.reshape(len(low), -1), ("flags",), blocks.tolist())["flags"]
        wanting = (flags[at].reshape(-1, 2, _TRIES) & blocking) != 0
        low[at] = np.maximum(low[at], np.where(wanting, trial[at], 0.0).max(-1))
        high[at] = np.minimum(high[at], np.where(wanting, np.inf, trial[at]).min(-1))
        step = (high - low)[..., None] / (_TRIES + 1.0)
        trial = np.maximum(np.floor(low[..., None] + step * np.arange(1.0, _TRIES + 1.0)), 1.0)
    return Smallest(*np.where(high > MOST, np.inf, high).T)


def saturated(point: Operating) -> np.ndarray:
    """No steady state: more work than time, or a wait without end."""
    return ((np.asarray(point.flags) & int(Flag.OVERLOAD)) != 0) | ~np.isfinite(point.ttft_s)


@float64
def saturating_instances(cells: Cells, stable: np.ndarray, rate_rps: float, engine: Engine) -> np.ndarray:
    """Per cell, of how many instances, a real number, the pool just keeps up: over those that there are, its load.

    `stable` (cells,): whole numbers that keep up. From above and to 1e-4: a round tries COLUMNS shares of the bracket.
    """
    high = np.asarray(stable, float)[:, None]
    trial, low = high * np.geomspace(1e-5, 1.0, COLUMNS), 0.0 * high
    for _ in range(3):
        over = saturated(sweep_instances(cells, trial, rate_rps, engine))
        low = np.maximum(low, np.where(over, trial, 0.0).max(1, keepdims=True))
        high = np.minimum(high, np.where(over, np.inf, trial).min(1, keepdims=True))
        trial = low + (high - low) * (np.arange(1.0, COLUMNS + 1.0) / COLUMNS)
    return high[:, 0]


def _point(cell: Cells, counts: Real, slowdown: Real, column: Real, rate_rps: Real, engine: Engine) -> Operating:
    return evaluate(cell, counts[column], rate_rps, slowdown, engine)


def _asked(cells: Cells, rate_rps: float, engine: Engine, slowdown, block: tuple[int, int] = _BLOCK) -> Program:
    """The cells as a table whose numbers of instances are still to be given."""
    n = len(cells.slots_count)
    rows = {
        "cell": jax.tree.map(lambda leaf: np.asarray(leaf)[:, 0], cells),
        "counts": np.ones((n, max(COLUMNS, block[1]))),
        "slowdown": np.broadcast_to(np.asarray(slowdown, np.float64), (n,)),
    }
    constants = {"rate_rps": float(rate_rps), "engine": engine}
    columns = np.arange(rows["counts"].shape[1])
    return table(_point, rows, {"column": columns}, constants, block, (ROWS, len(columns)))


def _at(asked: Program, instances: np.ndarray, names=None, blocks=None) -> dict[str, np.ndarray]:
    """The table at up to COLUMNS numbers of instances per cell."""
    return gathered(_given(asked, instances), names, blocks)


def _given(asked: Program, instances: np.ndarray) -> Program:
    """The table with its numbers of instances, up to as many per cell as it has columns."""
    rows, columns = asked.tables
    n, r = instances.shape
    counts = np.ones(rows["counts"].shape)
    counts[:n, :r] = instances
    return asked._replace(tables=({**rows, "counts": jax.device_put(counts)}, columns), sizes=(n, r))
