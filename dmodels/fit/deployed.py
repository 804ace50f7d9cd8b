r"""What single deployments have of their own: effects of one layout of a run, found when all other effects are.

A deployment is a model in one layout (TP, attention DP, EP) on one GPU type, under one engine, in one precision. Its
rows tell nothing of other deployments, so its effects z (whitened) are found apart, with what all rows share held where
it is:

$$\min_z\; \sum_i \rho\big((\log y_i - \log \hat y_i(z))/\sigma\big) + |z|^2$$

over its own rows alone, where $\sigma$ is the spread that is left within a deployment: about half of what is left among
runs, which err together. A row is an outlier as far off as in the fit of all rows: a deployment whose rows are all off
by half is to be found, not to be taken for a set of outliers. A deployment that was not measured has no effects, and is
predicted as without this.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dmodels.core.records import Floats, float64

from . import descent
from .descent import Problem, slopes
from .hierarchy import NAMES
from .points import Points
from .rows import Row
from .silicon import Effects, merged, problem_of

#: Standard deviation of a deployment's effect on each efficiency, in units of u. What a request adds to a step is the
#: host's, and is asked for batches many times those of a deployment's rows.
DEVIATION = np.where(np.array(NAMES) == "request_us", 0.1, 0.5)
#: Spread of log TTFT and log TPOT within a deployment.
SIGMA = np.array([0.12, 0.05])
#: Residuals beyond so many of these spreads count less and less: those of the fit of all rows, in its spreads.
ROBUST = descent.ROBUST * descent.SIGMA / SIGMA
#: Steps of Levenberg-Marquardt, each with one look at all rows, and the longest of an effect in deviations.
TURNS, LONGEST = 8, 1.0


@float64
def deployed(points: Points, rows: Sequence[Row], effects: Effects, keep: np.ndarray | None = None) -> Effects:
    """`effects` with those of the rows' deployments added; `keep` masks rows out."""
    problem, known, beta = problem_of(points, rows, keep, effects)
    of_row = problem.paths[:, -1]
    best, least = np.zeros(beta.shape), np.full(len(beta), np.inf)
    normal, pull, damping = (
        np.zeros((*beta.shape, beta.shape[1])) + np.eye(beta.shape[1]),
        best,
        np.full(len(beta), 1e-2),
    )
    for _ in range(TURNS):  # the first looks at no effect at all
        eased = normal * (1.0 + damping[:, None, None] * np.eye(beta.shape[1]))
        trial = best + np.clip(np.linalg.solve(eased, pull[..., None])[..., 0], -LONGEST, LONGEST)
        loss, *ahead = _quadratic(problem, of_row, trial)
        lower = loss < least
        best, least = np.where(lower[:, None], trial, best), np.where(lower, loss, least)
        normal, pull = (
            np.where(np.expand_dims(lower, tuple(range(1, new.ndim))), new, old)
            for new, old in zip(ahead, (normal, pull), strict=True)
        )
        damping = damping * np.where(lower, 0.25, 8.0)
    return merged(effects, Effects(known, beta + DEVIATION * best))


def _quadratic(problem: Problem, of_row: np.ndarray, z: Floats) -> tuple[Floats, Floats, Floats]:
    """(robust loss and prior, matrix and right side of the normal equations) of each level at its effects z."""
    value, slope = (np.asarray(found) for found in slopes(problem.halves, problem.origin + DEVIATION * z[of_row]))
    r, slope = (problem.measured - value) / SIGMA, slope * DEVIATION / SIGMA[:, None]
    weight = problem.weight[:, None] / (1.0 + (r / ROBUST) ** 2)
    loss, pull = np.einsum("ln,ln->l", z, z), -z
    normal = np.zeros((*z.shape, z.shape[1])) + np.eye(z.shape[1])
    np.add.at(loss, of_row, (problem.weight[:, None] * ROBUST**2 * np.log1p((r / ROBUST) ** 2)).sum(1))
    np.add.at(pull, of_row, np.einsum("nk,nki->ni", weight * r, slope))
    np.add.at(normal, of_row, np.einsum("nk,nki,nkj->nij", weight, slope, slope))
    return loss, normal, pull
