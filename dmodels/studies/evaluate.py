"""Points of a plan, in batch: a cell (layout, stage) with a number of instances.

Cells are processed in blocks of a fixed size, so memory is bounded and new numbers never recompile.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.flags import Flag, flag_where
from dmodels.core.records import Real, float64
from dmodels.models.instance import Engine, Operating, operate

from .designs import Cells

#: Cells of one compiled block.
BLOCK = 512
#: Numbers of instances per cell of one compiled block.
COLUMNS = 64
#: Instances are searched up to 2**_BITS.
_BITS = 22


class Smallest(NamedTuple):
    """Per cell, on the host: the fewest instances that keep up, and the fewest that also meet the SLO (inf: none)."""

    stable_instances: np.ndarray
    instances: np.ndarray


def evaluate(cells: Cells, instances: Real, rate_rps: Real, slowdown: Real, engine: Engine) -> Operating:
    """The steady state of each cell's pool when `instances` of it share the stage's requests evenly.

    `instances` (cells, r) broadcasts against the cells' leaves (cells, 1). Pure; compose it under jit, vmap and grad.
    """
    arrival = rate_rps * cells.requests.share_frac / instances
    point = operate(cells.steps, cells.requests, arrival, cells.slots_count, cells.slo, engine, cells.prompt_s,
                    cells.transfer_s_per_token, slowdown, cells.dp, cells.pp)  # fmt: skip
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

    _parallel(fill, ((i * BLOCK, column, block) for i, block in enumerate(_blocks(cells, _slowdown(cells, slowdown)))
                     for column in range(0, r, COLUMNS)))  # fmt: skip
    return Operating(*answer)


def fewest_instances(cells: Cells, rate_rps: float, engine: Engine, slowdown=1.0) -> Smallest:
    """The exact smallest pools, by bisection over whole instances: adding one never makes a pool slower.

    `slowdown` is one factor, or one per cell.
    """
    work = _blocks(cells, _slowdown(cells, slowdown))
    parts = _parallel(lambda block: _fewest(block[0], rate_rps, block[1], engine), work)
    n = len(cells.slots_count)
    stable, kept = (np.concatenate([np.asarray(part[i])[:, 0] for part in parts])[:n] for i in range(2))
    none = 2.0**_BITS
    return Smallest(np.where(stable > none, np.inf, stable), np.where(kept > none, np.inf, kept))


@jax.jit
def _evaluate(cells: Cells, instances: Real, rate_rps: Real, slowdown: Real, engine: Engine) -> Operating:
    return evaluate(cells, instances, rate_rps, slowdown, engine)


@jax.jit
def _fewest(cells: Cells, rate_rps: Real, slowdown: Real, engine: Engine) -> tuple[Real, Real]:
    """Binary descent, bit by bit: `wanting` is the largest number found wanting so far. 2**_BITS is tried first."""
    blocking = np.array([[int(Flag.OVERLOAD), 0x7FFFFFFF]], np.int32)

    def bit(i, wanting):
        trial = wanting + 2.0 ** (_BITS - i)
        flags = evaluate(cells, trial, rate_rps, slowdown, engine).flags
        return jnp.where((flags & blocking) != 0, trial, wanting)

    answer = jax.lax.fori_loop(0, _BITS + 1, bit, jnp.zeros((cells.slots_count.shape[0], 2))) + 1.0
    return answer[:, :1], answer[:, 1:]


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
