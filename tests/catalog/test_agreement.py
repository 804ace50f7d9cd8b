"""The measured limits of the closed forms."""

from __future__ import annotations

import pytest

from dmodels.catalog.agreement import forms, trusted_load
from dmodels.core.errors import InputError


def test_every_form_has_a_limit_between_nowhere_and_the_highest_load():
    for form in forms():
        for slots in (1, 4, 30, 128, 500):
            for cv in (0.1, 1.0, 1.5, 9.0):
                assert 0.0 <= trusted_load(form, slots, cv) <= 0.95


def test_between_measured_points_the_cautious_neighbour_counts():
    for form in forms():
        assert trusted_load(form, 32, 1.0) == min(trusted_load(form, 16, 1.0), trusted_load(form, 64, 1.0))


def test_what_was_found_to_hold_holds():
    """Fluid occupancy is 6 to 9 % low on TPOT everywhere: inside 10 %; the chain does not do worse anywhere."""
    for slots in (4, 16, 64, 128):
        assert trusted_load("fluid_tpot", slots) >= 0.9
        assert trusted_load("chain_wait_probability", slots) >= trusted_load("erlang_wait_probability", slots)


def test_an_unknown_form_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="fluid_tpot"):
        trusted_load("fluid_tpott", 16)
