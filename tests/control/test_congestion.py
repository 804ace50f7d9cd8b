"""Forecasts of congestion on one link."""

from __future__ import annotations

import numpy as np
import pytest

from dmodels.control import congestion


def test_a_smoothed_level_is_forecast_at_every_horizon():
    state = congestion.smoothing_init(0.3)
    assert [float(congestion.smoothing_forecast(state, h)) for h in (0.0, 1.0, 9.0)] == [0.3] * 3
    assert congestion.smoothing_forecast(state, np.array([1.0, 9.0])).tolist() == [0.3] * 2


def test_unless_told_otherwise_three_tenths_of_news_are_taken_over_and_a_twentieth_where_a_law_is_fitted():
    assert float(congestion.smoothing_update(congestion.smoothing_init(0.0), 1.0).level) == pytest.approx(0.3)
    assert float(congestion.ar1_update(congestion.ar1_init(0.0), 1.0).mean) == pytest.approx(0.05)


def test_an_autoregression_halves_its_distance_to_the_mean_every_step():
    state = congestion.Autoregression(last=0.6, mean=0.2, power=1.0, product=0.5)
    assert [float(congestion.ar1_forecast(state, h)) for h in (0.0, 1.0, 2.0)] == pytest.approx([0.6, 0.4, 0.3])
    assert float(congestion.ar1_forecast(state)) == float(congestion.ar1_forecast(state, 1.0))  # the next reading
    assert float(congestion.ar1_coefficient(state._replace(product=1.5))) == 1.0


def test_no_forecast_declares_a_link_dead():
    """A tier that reads full now would never be used again, and so never read."""
    for state, forecast in (
        (congestion.smoothing_init(1.0), congestion.smoothing_forecast),
        (congestion.ar1_init(1.0), congestion.ar1_forecast),
    ):
        assert all(0.9 < float(forecast(state, h)) < 1.0 for h in (0.0, 1.0, 9.0))
