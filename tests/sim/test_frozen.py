"""The frozen-rate screen is exact where rates do not change, and close where they change little."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.models.latency import StepLaw
from dmodels.sim import arrivals, batching
from dmodels.sim.batching import frozen


def test_it_is_the_exact_queue_where_the_rate_is_constant():
    arrival = arrivals.poisson(jax.random.key(0), 3.4, 4000)
    iterations = np.random.default_rng(0).integers(50, 1500, 4000)
    admitted, end = frozen.simulate(arrival, iterations, np.full(5, 1.3e-3), 4)
    free = np.zeros(4)
    for i in range(4000):  # the server that is free first takes the next request
        free.sort()
        begin = max(arrival[i], free[0])
        free[0] = begin + iterations[i] * 1.3e-3
        assert abs(admitted[i] - begin) < 1e-9 and abs(end[i] - free[0]) < 1e-9


def test_response_percentiles_are_close_away_from_saturation():
    arrival = arrivals.poisson(jax.random.key(1), 2.0, 100_000)
    output = np.random.default_rng(1).geometric(1 / 290, 100_000)
    law = StepLaw(8e-3, 0.65e-3)
    _, end = frozen.simulate(arrival, 1 + output, law, 16)
    exact = batching.simulate(arrival, 100, output, law, 16)
    screen = np.quantile(end - arrival, [0.5, 0.99])
    np.testing.assert_allclose(screen, np.quantile(exact.e2e_s, [0.5, 0.99]), rtol=0.04)


def test_bad_input_is_refused():
    with pytest.raises(InputError):
        frozen.simulate([1.0, 0.0], 5, [0.1], 1)
