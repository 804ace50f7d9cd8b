"""Points of a plan, in batch: a cell (layout, stage) with a number of instances.

Cells are processed in blocks of a fixed size, so memory is bounded and new numbers never recompile.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np

from dmodels.core.flags import Flag, flag_where
from dmodels.core.records import Real, float64
from dmodels.models.instance import Engine, Operating, operate

from .designs import Cells

#: Cells of one compiled block.
BLOCK = 512
#: Numbers of instances per cell of one compiled block.
COLUMNS = 16
#: Instances are searched up to this.
_MOST = 2.0**22


class Smallest(NamedTuple):
    """Per cell, on the host: the fewest instances that keep up, and the fewest that also meet the SLO (inf: none)."""

    stable_instances: np.ndarray
    instances: np.ndarray


def evaluate(cells: Cells, instances: Real, rate_rps: Real, slowdown: Real, engine: Engine) -> Operating:
    """The steady state of each cell's pool when `instances` of it share the stage's requests evenly.

    `instances` (cells, r) broadcasts against the cells' leaves (cells, 1). Pure; compose it under jit, vmap and grad.
    """
    arrival = rate_rps * cells.requests.share_frac / instances
    point = operate(
        cells.steps,
        cells.requests,
        arrival,
        cells.slots_count,
        cells.slo,
        engine,
        cells.prompt_s,
        cells.transfer_s_per_token,
        slowdown,
        cells.dp,
        cells.pp,
        cells.wait_steps,
    )
    unfit = flag_where(cells.longest_bytes > cells.budget_bytes, Flag.NO_FIT)
    return point._replace(flags=point.flags | unfit)


def sweep_instances(cells: Cells, instances: np.ndarray, rate_rps: float, engine: Engine, slowdown=1.0) -> Operating:
    """`evaluate` over all cells in blocks; `instances` (cells, r). Host arrays (cells, r)."""
    n, r = instances.shape
    answer = [np.empty((n, r), np.int32 if name == "flags" else np.float64) for name in Operating._fields]

    def fill(work):
        start, column, (block, slow) = work
        rows, columns = np.arange(start, start + BLOCK), np.arange(column, column + COLUMNS)
        counts = instances[np.minimum(rows, n - 1)][:, np.minimum(columns, r - 1)]
        point = _evaluate(block, counts, rate_rps, slow, engine)
        for place, values in zip(answer, point, strict=True):
            room = place[start : start + BLOCK, column : column + COLUMNS]
            room[...] = np.asarray(values)[: room.shape[0], : room.shape[1]]

    _parallel(
        fill,
        (
            (i * BLOCK, column, block)
            for i, block in enumerate(_blocks(cells, _slowdown(cells, slowdown)))
            for column in range(0, r, COLUMNS)
        ),
    )
    return Operating(*answer)


def fewest_instances(cells: Cells, rate_rps: float, engine: Engine, slowdown=1.0) -> Smallest:
    """The exact smallest pools, by a search over whole instances: adding one never makes a pool slower.

    `slowdown` is one factor, or one per cell.
    """
    work = _blocks(cells, _slowdown(cells, slowdown))
    parts = _parallel(lambda block: _fewest(block[0], rate_rps, block[1], engine), work)
    fewest = np.concatenate(parts)[: len(cells.slots_count)]
    return Smallest(*np.where(fewest > _MOST, np.inf, fewest).T)


@jax.jit
def _evaluate(cells: Cells, instances: Real, rate_rps: Real, slowdown: Real, engine: Engine) -> Operating:
    return evaluate(cells, instances, rate_rps, slowdown, engine)


def _fewest(cells: Cells, rate_rps: float, slowdown: Real, engine: Engine) -> np.ndarray:
    """(cells, 2): the fewest instances that keep up and that meet the SLO too; above _MOST where there is none.

    Both are bracketed, too few below and enough above, and a call of the compiled program tries half its columns
    inside each bracket: geometrically at first, because most pools are small, then evenly.
    """
    tries = COLUMNS // 2
    blocking = np.array([int(Flag.OVERLOAD), 0x7FFFFFFF], np.int32)[:, None]
    low = np.zeros((len(cells.slots_count), 2))
    high = np.full_like(low, _MOST + 1.0)
    trial = np.broadcast_to(np.round(np.geomspace(1.0, _MOST, tries)), (*low.shape, tries))
    while (high - low > 1.0).any():
        counts = trial.reshape(len(low), COLUMNS)
        flags = np.asarray(_evaluate(cells, counts, rate_rps, slowdown, engine).flags).reshape(trial.shape)
        wanting = (flags & blocking) != 0
        low = np.maximum(low, np.where(wanting, trial, 0.0).max(-1))
        high = np.minimum(high, np.where(wanting, np.inf, trial).min(-1))
        step = (high - low)[..., None] / (tries + 1.0)
        trial = np.maximum(np.floor(low[..., None] + step * np.arange(1.0, tries + 1.0)), 1.0)
    return high


def _slowdown(cells: Cells, slowdown) -> np.ndarray:
    return np.broadcast_to(np.asarray(slowdown, np.float64).reshape(-1, 1), (len(cells.slots_count), 1))


def _blocks(*trees):
    """The trees cut along their first axis into blocks of `BLOCK` rows, the last one filled up with its last row."""
    n = len(jax.tree.leaves(trees[0])[0])
    for start in range(0, n, BLOCK):
        rows = np.minimum(np.arange(start, start + BLOCK), n - 1)
        yield tuple(jax.tree.map(lambda leaf, rows=rows: np.asarray(leaf)[rows], tree) for tree in trees)


def _parallel(function, work) -> list:
    """One thread per core: a compiled block runs outside the interpreter lock, and on one core."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(float64(function), work))
