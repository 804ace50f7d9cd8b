r"""What a change of the model or of its hierarchy does to rows left out, in minutes instead of an hour.

    python -m tools.leave_out                     # fit all rows from the shipped calibration, then leave out
    python -m tools.leave_out pair architecture   # protocols named

Without rows S the optimum of all rows moves, to first order, by a Newton step: with J the derivatives of the logarithms
by whitened effects, W the weights of the robust loss and H = J'WJ + I, their residuals r become

$$r_S + K (W_S^{-1} - K)^{-1} r_S, \qquad K = J_S H^{-1} J_S'$$

(Beirami et al., NeurIPS 2017, leave one out; here by folds). Pairs left out come out within half a point in the median
of what `tools.make_calibration` finds by fitting every fold; a whole architecture, far from the optimum of all, some
points too high, so look at what changes. What ships is never judged by this.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse
from scipy.linalg import cho_factor, solve_triangular

from dmodels.core.records import Floats, float64
from dmodels.fit import calibration, descent, hierarchy
from dmodels.fit.points import Points, to_points
from dmodels.fit.predict import errors
from dmodels.fit.protocols import PROTOCOLS, folds
from dmodels.fit.rows import Row, measurement, read_rows
from dmodels.fit.silicon import Effects, fit, problem_of
from tools.make_calibration import ROWS, STEPS_FULL


class Linear(NamedTuple):
    """The problem of all rows at their optimum; TTFTs of all rows first, then TPOTs."""

    rows: list[Row]  # in the order of the problem
    slope: scipy.sparse.csr_matrix  # (2 n, effects that exist)
    residual: Floats  # (2 n,) measured less predicted logarithm
    weight: Floats  # (2 n,)
    z: Floats  # whitened effects
    of_release: np.ndarray  # which effects a plan does not know


@float64
def linear(points: Points, rows: Sequence[Row], effects: Effects) -> Linear:
    """`rows` about their optimum, which `fit` found."""
    problem, known, _ = problem_of(points, rows)
    z = np.divide(effects.beta, problem.scale, out=np.zeros_like(problem.scale), where=problem.scale > 0)
    at = problem.origin + (z * problem.scale)[problem.paths].sum(axis=1)
    value, slope = (np.asarray(a) for a in descent.slopes(problem.halves, at))
    residual = problem.measured - value
    weight = np.asarray(descent.robust_weight(problem, residual / problem.sigma)) / problem.sigma**2

    places = descent.places_of(problem.paths, problem.scale)
    effect, name, factor = (of[places.path] for of in (places.effect, places.name, places.factor))
    count = len(places.active)
    row, which = np.nonzero(effect < count)  # what only fills a path up stands past the end
    column, moved, by = effect[row, which], name[row, which], factor[row, which]
    halves = [scipy.sparse.csr_matrix((slope[row, j, moved] * by, (row, column)), (len(rows), count)) for j in range(2)]
    of_release = np.array([level.partition("=")[0] in hierarchy.OF_RELEASE for level in known])
    return Linear(
        [rows[i] for i in np.argsort(np.asarray(points.separate) > 0, kind="stable")],
        scipy.sparse.vstack(halves).tocsr(),
        residual.T.ravel(),
        weight.T.ravel(),
        z.ravel()[places.active],
        of_release[places.active // z.shape[1]],
    )


def left_out(at: Linear, protocol: str) -> tuple[Floats, Floats]:
    """(n, 2) twice: residuals of log TTFT and log TPOT of every row where its fold is left out, with its release stated
    and without."""
    n, keys = len(at.rows), [measurement(row) for row in at.rows]
    information = (at.slope.T @ scipy.sparse.diags(at.weight) @ at.slope).toarray() + np.eye(at.slope.shape[1])
    root = cho_factor(information, lower=True)[0]
    whitened = solve_triangular(root, at.slope.T.toarray(), lower=True)
    stated, unstated = np.empty((n, 2)), np.empty((n, 2))
    for out in folds(at.rows, protocol):
        hidden = {key for key, held in zip(keys, out, strict=True) if held}
        rows = np.flatnonzero([key in hidden for key in keys])  # copies of what is held out go with it
        both = np.concatenate([rows, rows + n])
        own, weight = whitened[:, both], at.weight[both]
        pulled = np.linalg.solve(np.eye(len(both)) - own.T @ own * weight, at.residual[both])
        moved = -solve_triangular(root, own @ (weight * pulled), lower=True, trans=1)
        found = at.residual[both] - at.slope[both] @ moved
        planned = found + at.slope[both] @ np.where(at.of_release, at.z + moved, 0.0)
        held = np.isin(rows, np.flatnonzero(out))
        stated[rows[held]] = found.reshape(2, -1).T[held]
        unstated[rows[held]] = planned.reshape(2, -1).T[held]
    return stated, unstated


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.leave_out", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("protocols", nargs="*", default=PROTOCOLS, help="what to leave out; all if none is named")
    chosen = parser.parse_args()
    points, table = to_points(read_rows(ROWS))
    effects = fit(points, table.rows, start=calibration.calibration(), max_steps=STEPS_FULL)
    at = linear(points, table.rows, effects)
    layout = np.array([row.stated for row in at.rows])
    for protocol in chosen.protocols:
        for use, residual in zip(("release stated", "as a plan"), left_out(at, protocol), strict=True):
            for whose, mask in (("all", np.ones(len(layout), bool)), ("layout stated", layout)):
                found = [errors(np.exp(-residual[mask, j]), np.ones(mask.sum())) for j in (1, 0)]
                parts = [
                    f"{metric} {100 * e.median:5.1f} {100 * e.p90:5.1f}"
                    for metric, e in zip(("TPOT", "TTFT"), found, strict=True)
                ]
                print(f"{protocol:13} {use:15} {whose:14}{mask.sum():6d}   {'   '.join(parts)}", flush=True)


if __name__ == "__main__":
    main()
