"""Knees of sweeps: an exact queue's, and the paper's Table 4; ceilings of the two pools."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.models import saturation
from dmodels.models.queueing import closed_loop_rps
from dmodels.models.saturation import binding_pool, decode_ceiling_rps, knee, prefill_ceiling_rps


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


def test_the_measured_ceiling_is_far_from_the_arithmetic_one():
    """19 requests/s of 128 tokens use 5 % of eight B200's dense FP8: its ceiling is no "compute exhaustion"."""
    assert 19 / float(prefill_ceiling_rps(2 * 340e9, 128.0, 8 * 4.5e15)) == pytest.approx(0.046, abs=1e-3)


def test_the_pool_with_the_lower_ceiling_binds():
    decode = decode_ceiling_rps(340e9, 0.1e9, jnp.array([8.0, 64.0]), 256.0, 64e12)
    rate, pool = binding_pool(jnp.array([19.0, 19.0]), decode)
    assert pool.tolist() == [1, 0] and float(rate[1]) == 19.0 and float(rate[0]) == pytest.approx(float(decode[0]))


def test_bad_sweeps_are_named():
    with pytest.raises(InputError, match="rising"):
        knee([1, 2, 2, 4], [1, 2, 3, 4])
    with pytest.raises(InputError, match="positive"):
        knee([1, 2, 3, 4], [1, 2, np.nan, 4])


def test_a_sweep_that_reaches_its_allowance_is_still_on_the_line():
    assert math.isinf(saturation.knee([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 2.0], tolerance=0.5).ceiling_rps)
    at = saturation.knee([1.0, 2.0, 3.0, 4.0], [0.5, 2.0, 3.0, 4.0])  # the first point lies below the line of three
    assert (at.after, at.upto) == (0.0, 1.0)


def test_pools_that_saturate_together_name_prefill():
    assert [int(saturation.binding_pool(p, 2.0)[1]) for p in (1.0, 2.0, 3.0)] == [0, 0, 1]
