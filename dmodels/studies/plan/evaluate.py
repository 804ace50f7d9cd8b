"""Points of a plan, in batch: a cell (layout, stage) with a number of instances.

Cells are the rows of a table on the engine of `design`, numbers of instances its columns. Blocks have one shape, so
memory is bounded, and tables have at least `ROWS` x `COLUMNS` places, so plans of other sizes share the program.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import jax
import numpy as np

from dmodels.core.devices import accelerators
from dmodels.core.flags import Flag, flag_where
from dmodels.core.records import Real, float64
from dmodels.core.threads import CORES, share
from dmodels.design.program import Program, arguments, compiled, cut, lowered, table
from dmodels.models.instance import Engine, Operating, operate
from dmodels.solvers.roofline import DeviceWork

from .designs import Cells

#: The smallest table: cells, and numbers of instances that one call of the engine looks at.
ROWS, COLUMNS = 1024, 64
#: Cells and numbers of instances of one compiled block, and how many of the cells are evaluated at once.
_BLOCK = (512, 16, 64)
#: The same where more are asked than a plan ever does: what a row costs once is shared by more points.
_WIDE = (512, 128, 32)
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
    block = _BLOCK if instances.shape[1] <= COLUMNS else _WIDE
    return Operating(**_at(_asked(cells, rate_rps, engine, slowdown, block), instances))


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
    trial = np.broadcast_to(np.round(np.geomspace(1.0, MOST, _TRIES)), (*low.shape, _TRIES))
    turn = asked.layout.turn
    while (turns := np.unique(np.flatnonzero((high - low > 1.0).any(1)) // turn)).size:
        at = np.isin(np.arange(len(low)) // turn, turns)  # cells of the turns in which one is still open
        flags = _at(asked, trial.reshape(len(low), -1), ("flags",), turns)["flags"]
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


def _asked(cells: Cells, rate_rps: float, engine: Engine, slowdown, block: tuple[int, int, int] = _BLOCK) -> Program:
    """The cells as a table whose numbers of instances are still to be given."""
    n, (high, wide, turn) = len(cells.slots_count), block
    rows = {
        "cell": jax.tree.map(lambda leaf: np.asarray(leaf)[:, 0], cells),
        "counts": np.ones((n, max(COLUMNS, wide))),
        "slowdown": np.broadcast_to(np.asarray(slowdown, np.float64), (n,)),
    }
    constants = {"rate_rps": float(rate_rps), "engine": engine}
    columns = np.arange(rows["counts"].shape[1])
    block = high, wide, high if accelerators() else turn  # one turn fills a core's cache, and not a GPU
    return table(_point, rows, {"column": columns}, constants, block, (ROWS, len(columns)))


def _at(
    asked: Program, instances: np.ndarray, names: Sequence[str] = Operating._fields, todo: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Outputs of the table at numbers of instances (cells, r), by threads; `todo`: of the cells in these turns alone.

    A call computes turns that follow each other, as many as a block holds: it costs as much as some hundred points.
    """
    layout, told, step = asked.layout, lowered(asked).out_info, compiled(asked)
    found = {name: np.empty(instances.shape, told[name].dtype) for name in names}
    todo = np.arange(-(-len(instances) // layout.turn)) if todo is None else todo
    ends = np.flatnonzero(np.diff(todo, append=-1) != 1) + 1  # of turns that follow each other
    width = len(asked.tables[1]["column"])
    given = lru_cache(CORES)(lambda left: _given(asked, instances[:, left : left + width]))

    @float64  # each thread has settings of its own
    def parts(first: int, last: int) -> None:
        while first < last:
            across, at = divmod(first, len(todo))
            left = across * layout.columns
            there = given(left // width * width)
            many = min(last - first, ends[np.searchsorted(ends, at, "right")] - at, layout.rows // layout.turn)
            rows = slice(todo[at] * layout.turn, min((todo[at] + many) * layout.turn, len(instances)))
            columns = slice(left % width, min(left % width + layout.columns, there.sizes[1]))
            window = rows, columns
            for name, values in cut(window, step(*arguments(there, window)), names).items():
                found[name][rows, left : left + layout.columns] = values
            first += many

    share(parts, -(-instances.shape[1] // layout.columns) * len(todo), math.inf)
    return found


def _given(asked: Program, instances: np.ndarray) -> Program:
    """The table with its numbers of instances, up to as many per cell as it has columns."""
    rows, columns = asked.tables
    n, r = instances.shape
    counts = np.ones(rows["counts"].shape)
    counts[:n, :r] = instances
    return asked._replace(tables=({**rows, "counts": jax.device_put(counts)}, columns), sizes=(n, r))
