"""Parallel queues at the edges of their formulas."""

from __future__ import annotations

import numpy as np
import pytest

from dmodels.games.anarchy import mm1_equilibrium, mm1_price

pytestmark = pytest.mark.usefixtures("op_by_op")


def test_full_queues_have_no_equilibrium():
    assert np.isnan(mm1_equilibrium([1.0, 1.0], 2.0)).all() and np.isnan(mm1_price([1.0, 1.0], 2.0))
    np.testing.assert_allclose(mm1_equilibrium([1.0, 1.0], 1.999), [0.9995, 0.9995])


def test_a_queue_that_is_just_as_slow_idle_gets_nothing():
    """mu = (3, 1) at load 2: the fast queue answers in 1/(3 - 2) = 1, the slow one idle in 1."""
    np.testing.assert_allclose(mm1_equilibrium([3.0, 1.0], 2.0), [2.0, 0.0], atol=1e-12)
