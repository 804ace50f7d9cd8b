"""Knees of sweeps: an exact queue's, and the paper's Table 4; ceilings of the two pools."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.models import saturation
from dmodels.models.queueing import closed_loop_rps
from dmodels.models.saturation import knee


def test_knee_of_the_papers_sweep_lies_between_96_and_128():
    clients = [8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512]
    found = knee(clients, [1.3, 2.5, 4.9, 7.4, 10.2, 15.3, 16.5, 17.1, 17.6, 18.0, 18.0])
    assert (found.after, found.upto) == (96, 128) and 96 < found.load < 128 and found.ceiling_rps == 18.0


@pytest.mark.parametrize(("think", "service"), [(5.5, 1 / 19), (2.5, 1 / 47), (10.0, 0.5)])
def test_knee_of_an_exact_closed_loop_is_one_plus_z_over_s(think, service):
    exact = 1 + think / service
    clients = np.unique(np.geomspace(1, 6 * exact, 24).round())
    rates = np.asarray(closed_loop_rps(jnp.array(clients), think, service))
    assert knee(clients, rates).load == pytest.approx(exact, rel=0.03)


def test_a_sweep_that_never_saturates_has_no_knee():
    assert knee([1, 2, 4, 8], [1.0, 2.0, 4.0, 8.0]).load == np.inf


def test_bad_sweeps_are_named():
    with pytest.raises(InputError, match="rising"):
        knee([1, 2, 2, 4], [1, 2, 3, 4])
    with pytest.raises(InputError, match="positive"):
        knee([1, 2, 3, 4], [1, 2, np.nan, 4])


def test_a_sweep_that_reaches_its_allowance_is_still_on_the_line():
    assert math.isinf(saturation.knee([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 2.0], tolerance=0.5).ceiling_rps)
    at = saturation.knee([1.0, 2.0, 3.0, 4.0], [0.5, 2.0, 3.0, 4.0])  # the first point lies below the line of three
    assert (at.after, at.upto) == (0.0, 1.0)
