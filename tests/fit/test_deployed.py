"""What one deployment has of its own reaches its rows and the plans of it, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from dmodels.fit import deployed, hierarchy, silicon
from dmodels.fit.calibration import calibration, deployment_measured, efficiencies_of
from dmodels.fit.points import family, to_points
from tests.fit.test_silicon import _with, rows

#: Halves a deployment's memory rate, about.
SLOWER = np.where(np.array(hierarchy.NAMES) == "hbm_frac", -2.0, 0.0)


def its(row):
    return hierarchy.row_levels(row)[-1]


def test_an_effect_of_a_deployment_reaches_its_rows_and_its_plans_alone():
    points, table = to_points(rows(16))
    one = its(table.rows[0])
    effects = silicon.merged(calibration(), silicon.Effects((one,), SLOWER[None]))
    before, after = (silicon.predict_log(points, table.rows, e) for e in (calibration(), effects))
    own = np.array([its(row) == one for row in table.rows])
    assert (after[own, 1] > before[own, 1] + 0.02).all() and not own.all()
    np.testing.assert_array_equal(after[~own], before[~own])
    for row in table.rows:
        machine = silicon._machine(row, row.decode)
        plain, told = (
            efficiencies_of([machine], [row.precision], family(row.model_path), effects=e)[0] for e in (None, effects)
        )
        assert (told.hbm_frac < 0.8 * plain.hbm_frac) == (its(row) == one)


def test_a_model_of_another_size_is_another_deployment():
    row = rows(1).rows[0]
    machine = silicon._machine(row, row.decode)
    large = machine._replace(model=machine.model.replace(n_layers=80.0, hidden_size=8192.0))
    names = [hierarchy.deployment(one.model, one.parallel) for one in (machine, large)]
    assert its(row).endswith(names[0]) and names[1] == names[0].replace("32x4096", "80x8192")
    assert not deployment_measured(large, row.precision, "an-architecture")


@pytest.mark.slow  # the derivatives are compiled
@pytest.mark.parametrize("factor", [1.3, 1.7])  # the second further off than any outlier
def test_a_deployment_that_is_slower_is_learnt_from_its_own_rows(factor):
    points, table = to_points(rows(16))
    one = its(table.rows[0])
    own = np.array([its(row) == one for row in table.rows])
    slowed = [
        _with(row, factor * row.ttft_s, factor * row.tpot_s) if mine else row
        for row, mine in zip(table.rows, own, strict=True)
    ]
    measured = np.log([[row.ttft_s, row.tpot_s] for row in slowed])
    found = deployed.deployed(points, slowed, calibration())
    before, after = (silicon.predict_log(points, slowed, e) for e in (calibration(), found))
    assert (np.abs(after - measured)[own] < 0.5 * np.abs(before - measured)[own]).all()
    np.testing.assert_allclose(after[~own], before[~own], atol=1e-6)  # those were as predicted
    masked = deployed.deployed(points, slowed, calibration(), keep=~own)
    np.testing.assert_allclose(silicon.predict_log(points, slowed, masked)[own], before[own], atol=1e-9)
