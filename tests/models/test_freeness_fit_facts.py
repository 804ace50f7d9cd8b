"""The least-squares fit of the prefill cost beside SciPy's, and what it says about data made by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import curve_fit

from dmodels.core.errors import InputError
from dmodels.models.freeness import PrefillCost
from dmodels.models.freeness_fit import calibrate, check_units

PEAK, SCALE = 2.0, 3.0
X, Y = np.array([1.0, 2.0, 4.0, 8.0, 10.0]), np.array([0.5, 0.9, 2.5, 6.0, 9.5])


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("points", [4, 5])
def test_coefficients_and_their_covariance_are_scipys(intercept, relative, points):
    x, y = X[:points], Y[:points]
    law = lambda x, a, b, *c: (a * x**2 + b * SCALE * x + sum(c)) / PEAK
    expected, covariance = curve_fit(law, x, y, [1.0] * (2 + intercept), sigma=y if relative else None)
    found = calibrate(x, y, PEAK, SCALE, intercept, relative)
    np.testing.assert_allclose(
        [found.cost.alpha, found.cost.beta, found.cost.base_flop][: 2 + intercept], expected, rtol=1e-5
    )
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-4)
    np.testing.assert_allclose(found.residual_s, y - law(x, *expected), atol=1e-6)
    squares = ((y - law(x, *expected)) ** 2).sum(), ((y - y.mean()) ** 2).sum()
    assert found.r_squared == pytest.approx(1 - squares[0] / squares[1])
    columns = np.stack([(x / x.max()) ** 2, x / x.max(), x**0][: 2 + intercept], axis=1) / (
        y[:, None] if relative else 1
    )
    assert found.condition == pytest.approx(np.linalg.cond(columns))
    assert intercept or float(found.cost.base_flop) == 0.0


def test_three_lengths_leave_one_degree_of_freedom():
    law = lambda x, a, b: a * x**2 + b * x
    _, covariance = curve_fit(law, X[:3], Y[:3])
    np.testing.assert_allclose(calibrate(X[:3], Y[:3], 1.0).covariance, covariance, rtol=1e-5)


def test_constant_latencies_have_no_spread_to_explain():
    assert np.isnan(calibrate(X, np.ones(5), PEAK).r_squared)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_one_bad_point_is_refused(bad):
    for x, y in ((np.append(X, bad), np.append(Y, 1.0)), (np.append(X, 12.0), np.append(Y, bad)), (X, Y[:4])):
        with pytest.raises(InputError):
            calibrate(x, y, PEAK)


def test_units_of_a_cost_made_by_hand():
    """x^2 + 2 x 3 x + 4 FLOP at 2 FLOP/s: 5.5 s for one token; 2 x 3 over 2 N; alpha over 2 layers heads dim."""
    cost = PrefillCost(1.0, 2.0, SCALE, 4.0)
    found = check_units(cost, PEAK, 1.5, [1.0, 2.0, 4.0], [0.5, 5.0, 22.0], 2.0, 3.0, 4.0)
    assert found.latency_s.tolist() == [5.5, 10.0, 22.0] and found.over_measured == 2.0
    assert (found.linear_over_dense, found.quadratic_over_attention) == (2.0, 1.0 / 48)
    assert np.isnan(check_units(cost, PEAK, 1.5, [1.0], None, None, 3.0, 4.0).quadratic_over_attention)
