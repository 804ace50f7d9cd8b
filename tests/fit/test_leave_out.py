"""Rows left out by one Newton step are predicted as by the fit that never saw them."""

from __future__ import annotations

import numpy as np
import pytest

from dmodels.fit.points import to_points
from dmodels.fit.protocols import held_out
from dmodels.fit.silicon import fit
from tests.fit.test_silicon import rows
from tools.leave_out import left_out, linear


@pytest.mark.slow
def test_a_newton_step_leaves_out_what_another_fit_does_not_see():
    """Two models on two GPUs, 30 % slower than calibrated: without a pair its rows are known from the others. A step is
    exact where the laws are lines: it misses by less than 6 % of the largest error."""
    points, table = to_points(rows(24, slower=1.3))
    at = linear(points, table.rows, fit(points, table.rows, max_steps=30))
    measured = np.log([[row.ttft_s, row.tpot_s] for row in table.rows])
    errors = measured - held_out(points, table.rows, "pair", max_steps=30)[:2]
    order = [table.rows.index(row) for row in at.rows]
    for found, wanted in zip(left_out(at, "pair"), errors[:, order], strict=True):
        assert np.abs(wanted).mean() > 0.15
        np.testing.assert_allclose(found, wanted, atol=0.06 * np.abs(wanted).max())
