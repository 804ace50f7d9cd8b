"""The measured limits of the closed forms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dmodels.catalog.agreement import forms, trusted_load
from dmodels.core.errors import InputError

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "agreement.jsonl"


def test_every_form_has_a_limit_between_nowhere_and_the_highest_load():
    for form in forms():
        for slots in (1, 4, 30, 128, 500):
            for cv in (0.1, 1.0, 1.5, 9.0):
                assert 0.0 <= trusted_load(form, slots, cv) <= 0.95


def test_every_limit_is_the_last_load_before_a_recorded_point_is_wrong():
    """A point is wrong where prediction and simulation differ by more than 10 % and the noise, or the noise is a fifth;
    chances below 0.1 % and waits below a millisecond do not matter."""
    points = json.loads(RESULTS.read_text(encoding="utf-8").splitlines()[-1])["points"]
    wrong, loads = {}, sorted({point["load"] for point in points})
    for point in points:
        at, truth = (point["form"], point["slots"], point["cv"]), point["simulated"]
        noise = point["half_width"] / truth if truth else 0.0
        far = (truth or 0.0) > 1e-3 and (noise > 0.2 or abs(point["predicted"] - truth) > (0.1 + noise) * truth)
        wrong.setdefault(at, []).extend([point["load"]] if far else [])
    assert {form for form, *_ in wrong} == set(forms())
    for (form, slots, cv), failed in wrong.items():
        good = [load for load in loads if not failed or load < min(failed)]
        assert trusted_load(form, slots, cv) == max(good, default=0.0), (form, slots, cv)


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
