"""The backlog after a burst against a queue simulated request by request, and its known limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels.models.queueing import backlog_s, work_variance_s


@pytest.mark.parametrize("load", [0.93, 0.99, 1.3])
def test_a_queue_simulated_from_empty_agrees(load):
    """M/M/1 with services of 50 ms for 60 s, 4,000 times: the wait of whoever comes last (Lindley's recursion)."""
    draws = np.random.default_rng(round(100 * load))
    runs, duration, service = 4000, 60.0, 0.05
    count = draws.poisson(load / service * duration, runs)
    when = np.sort(
        np.where(np.arange(count.max()) < count[:, None], draws.uniform(0.0, duration, (runs, count.max())), np.inf),
        axis=1,
    )
    work = draws.exponential(service, when.shape)
    backlog, now = np.zeros(runs), np.zeros(runs)
    for i in range(count.max()):
        here = np.isfinite(when[:, i])
        backlog = np.where(here, np.maximum(backlog - (when[:, i] - now), 0.0) + work[:, i], backlog)
        now = np.where(here, when[:, i], now)
    seen = np.quantile(np.maximum(backlog - (duration - now), 0.0), 0.99)
    assert backlog_s(0.99, load, 2.0 * service, duration) == pytest.approx(seen, rel=0.12)


@given(st.floats(0.05, 3.0), st.floats(0.001, 10.0), st.floats(0.1, 1000.0), st.floats(0.5, 0.999))
def test_more_load_more_time_and_higher_percentiles_never_shorten_it(load, variance, duration, percentile):
    here = backlog_s(percentile, load, variance, duration)
    assert here >= max(load - 1.0, 0.0) * duration - 1e-9
    for more in (
        (percentile, 1.1 * load, variance, duration),
        (percentile, load, variance, 2.0 * duration),
        ((1.0 + percentile) / 2.0, load, variance, duration),
    ):
        assert backlog_s(*more) >= here * (1.0 - 1e-9) - 1e-9


def test_at_saturation_it_grows_with_the_square_root_of_time():
    assert backlog_s(0.99, 1.0, 1.0, 400.0) == pytest.approx(2.5758 * math.sqrt(400.0), rel=1e-4)  # |N(0, T)|


def test_the_variance_of_mm1_is_that_of_its_services():
    load, service = 0.7, 0.2
    assert work_variance_s(load * service / (1.0 - load), load) == pytest.approx(2.0 * service)
