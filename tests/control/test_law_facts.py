"""Values of the controllers' laws at their edges, each known without them."""

from __future__ import annotations

import math

import pytest

from dmodels.control import regime
from dmodels.control import token_budget_bounds as bounds


def test_a_right_cold_start_needs_no_responses():
    assert float(bounds.responses_to(0.035, 2.0, 2.0)) == 0.0
    assert float(bounds.responses_to(0.5, 2.5, 2.0)) == 0.0  # off by a quarter, and half is allowed


def test_quantile_slack_of_ratios_from_one_to_six():
    assert float(bounds.quantile_slack(10_000.0, 1.0, 6.0)) == pytest.approx((math.log(6) + 0.1) / 500, rel=1e-12)


def test_a_step_that_ends_on_the_threshold_is_never_seen():
    assert math.isinf(float(regime.detection_samples(0.0, 1.0, 1.0)))
    assert float(regime.detection_samples(0.0, 100.0, 1.0)) == 1.0  # the first sample reads 30
    assert float(regime.detection_samples(0.0, 100.0, 1.0, 0.3, 3.0)) == 3.0
