r"""Efficiencies from measured serving rows: hierarchical least squares on the logarithm of TTFT and TPOT.

Minimises $\sum_i \rho((\log y_i - \log \hat y_i)/\sigma) + \sum_l \beta_l^2/s_l^2$ by Levenberg-Marquardt, where
$\rho(r) = c^2 \log(1 + r^2/c^2)$ lets outliers go. The effects are whitened, z = beta / s, so that the prior is |z|^2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dmodels import catalog
from dmodels.core.hardware import Parallel
from dmodels.core.programs import program
from dmodels.core.records import filled, float64

from . import hierarchy, kernels
from .descent import Halves, Problem, Weighing, minimise, of_instances, of_separate_instances
from .points import Points, checkpoint
from .recipes import Layout
from .rows import Row, measurement


class Effects(NamedTuple):
    """A calibration: the effect of every level on every efficiency."""

    levels: tuple[str, ...]
    beta: np.ndarray  # (levels, efficiencies)
    covariance: np.ndarray | None = None  # of the active effects, whitened (z); Laplace approximation
    steps: int = 0


@float64
def predict_log(
    points: Points, rows: Sequence[Row], effects: Effects, release: bool = True, deployment: bool = True
) -> np.ndarray:
    """(n, 2): predicted log TTFT and log TPOT of rows under a calibration.

    Without `release`, as a plan predicts: the engine's release is not known. Without `deployment`, as where the row's
    deployment was not measured.
    """
    unknown = (() if release else hierarchy.OF_RELEASE) + (() if deployment else (hierarchy.DEPLOYMENT,))
    known = [level.partition("=")[0] not in unknown for level in effects.levels]
    place = {level: i for i, level in enumerate(effects.levels) if known[i]}
    padded = np.vstack([effects.beta, np.zeros((1, len(hierarchy.NAMES)))])
    paths = np.array([[place.get(level, -1) for level in hierarchy.row_levels(row)] for row in rows])
    u = origins(rows) + padded[paths].sum(axis=1)
    predicted = np.empty((len(rows), 2))
    separate = np.asarray(points.separate) > 0
    # in few sizes, each of which is traced for, and compiled for where rows are many
    if not separate.all():
        own = filled((points[~separate], u[~separate]), least=16)
        predicted[~separate] = np.asarray(_one(*own))[: (~separate).sum()]
    if separate.any():
        own_shifts = shifts([rows[i] for i in np.flatnonzero(separate).tolist()])
        parts = filled((points[separate], u[separate], own_shifts), least=16)
        predicted[separate] = np.asarray(_two(*parts))[: separate.sum()]
    return np.log(predicted)


@float64
def fit(
    points: Points,
    rows: Sequence[Row],
    keep: np.ndarray | None = None,
    start: Effects | None = None,
    prior: Effects | None = None,
    max_steps: int = 25,
    covariance: bool = False,
    weighing: Weighing = Weighing(),  # noqa: B008 - a tuple of constants
) -> Effects:
    """The calibration of measured rows; `weighing` says how much its rows count.

    `keep` masks rows out (their levels stay, at the prior's effect: no new shapes, so no new compilation per fold).
    `start` saves steps; `prior` is what effects are pulled to, zero without it.
    """
    problem, known, centre = problem_of(points, rows, keep, prior, weighing)
    first = centre if start is None else _of(start, known)
    seen = np.zeros(len(known), bool)
    seen[problem.paths[problem.weight > 0]] = True  # what masked rows alone determined starts at the prior: no leak
    scale = problem.scale
    z = np.where((scale > 0) & seen[:, None], (first - centre) / np.where(scale > 0, scale, 1.0), 0.0)
    found = minimise(problem, z, max_steps)
    return Effects(known, centre + found.z * scale, found.covariance() if covariance else None, found.steps)


def problem_of(
    points: Points,
    rows: Sequence[Row],
    keep: np.ndarray | None = None,
    prior: Effects | None = None,
    weighing: Weighing = Weighing(),  # noqa: B008 - a tuple of constants
) -> tuple[Problem, tuple[str, ...], np.ndarray]:
    """The least squares problem of measured rows, its levels, and the effects (levels, efficiencies) where z is 0."""
    halves, order = _split(points, rows)
    rows = [rows[i] for i in order]
    of_rows = [hierarchy.row_levels(row) for row in rows]
    known = tuple(dict.fromkeys(level for levels in of_rows for level in levels))
    place = {level: i for i, level in enumerate(known)}
    paths = np.array([[place[level] for level in levels] for levels in of_rows])
    centre = _of(prior, known)
    measured = np.log([[row.ttft_s, row.tpot_s] for row in rows])
    counted = weighing.weight * _weights(rows) * (1.0 if keep is None else np.asarray(keep, float)[order])
    origin = origins(rows) + centre[paths].sum(axis=1)
    deviations, sigma = hierarchy.deviations(known), np.array(weighing.sigma)
    return Problem(halves, paths, deviations, measured, counted, origin, sigma=sigma), known, centre


def origins(rows: Sequence[Row]) -> np.ndarray:
    """(n, efficiencies): u where no effect is, from the kernels of each row's decode instances."""
    return _origins(rows, [row.decode for row in rows])


def shifts(rows: Sequence[Row]) -> np.ndarray:
    """(n, efficiencies): by how much u of each row's prefill instances, whose kernels are other ones, is higher."""
    own: np.ndarray = _origins(rows, [row.prefill for row in rows]) - origins(rows)
    return own


def _origins(rows: Sequence[Row], layouts: Sequence[Layout]) -> np.ndarray:
    """The same of instances in these layouts."""
    keys = [
        (r.model_path, r.gemm_dtype, r.moe_dtype, r.system, r.backend, layout[:3])
        for r, layout in zip(rows, layouts, strict=True)
    ]
    distinct = {key: _machine(row, layout) for key, row, layout in zip(keys, rows, layouts, strict=True)}
    found = dict(zip(distinct, kernels.efficiencies(list(distinct.values())), strict=True))
    u = {key: hierarchy.origin(own) for key, own in found.items()}
    return np.reshape([u[key] for key in keys], (len(rows), len(hierarchy.NAMES)))


def _machine(row: Row, layout: Layout) -> kernels.Hosted:
    tp, dp, ep = layout[:3]
    return kernels.Hosted(checkpoint(row), catalog.gpu(row.system), row.system, row.backend, Parallel(tp, 1.0, dp, ep))


def merged(old: Effects, new: Effects) -> Effects:
    """The effects of `new`, and those of `old` for levels that `new` does not have."""
    both = dict(zip(old.levels, old.beta, strict=True)) | dict(zip(new.levels, new.beta, strict=True))
    return Effects(tuple(both), np.stack(list(both.values())))


def _of(effects: Effects | None, known: Sequence[str]) -> np.ndarray:
    """The effects of the known levels, zero where there are none."""
    nothing = np.zeros(len(hierarchy.NAMES))
    old = {} if effects is None else dict(zip(effects.levels, effects.beta, strict=True))
    return np.stack([old.get(level, nothing) for level in known])


def _split(points: Points, rows: Sequence[Row]) -> tuple[Halves, np.ndarray]:
    """The rows of either kind, and the order in which they stand in both together."""
    separate = np.asarray(points.separate) > 0
    one, two = np.flatnonzero(~separate), np.flatnonzero(separate)
    return Halves(points[one], points[two], shifts([rows[i] for i in two.tolist()])), np.concatenate([one, two])


def _weights(rows: Sequence[Row]) -> np.ndarray:
    """Copies of one measurement (exports of the same run) share the weight of one; guessed layouts count less."""
    keys = [measurement(row) for row in rows]
    copies = Counter(keys)
    return np.array([(1.0 if row.stated else 0.3) / copies[key] for row, key in zip(rows, keys, strict=True)])


_one, _two = program(of_instances), program(of_separate_instances)
