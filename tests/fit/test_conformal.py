"""Intervals cover what they say, whatever the distribution of the errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels.fit.conformal import Quantiles, bounds, calibrate, group_names, narrowest


@pytest.mark.parametrize("level", [0.80, 0.95])
@pytest.mark.parametrize("draw", ["standard_normal", "standard_exponential", "standard_cauchy"])
def test_a_new_error_falls_inside_as_often_as_stated(level, draw):
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(2000):
        sample = getattr(rng, draw)(100)
        low, high = bounds(sample[:99], level)
        inside.append(low <= sample[99] <= high)
    error = math.sqrt(level * (1 - level) / len(inside))
    assert abs(np.mean(inside) - level) < 4 * error + 1 / 99


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=300))
def test_the_wider_level_contains_the_narrower(errors):
    low95, high95 = bounds(np.array(errors), 0.95)
    low80, high80 = bounds(np.array(errors), 0.80)
    assert min(errors) <= low95 <= low80 <= high80 <= high95 <= max(errors)


def test_small_groups_leave_the_answer_to_wider_ones():
    rng = np.random.default_rng(1)
    errors = rng.normal(0, 0.1, (300, 2))
    errors[:20] *= 50  # a small noisy group must not be believed on its own
    groups = [group_names("known", "h200_sxm" if i >= 20 else "b200_sxm", "vllm", "agg", True) for i in range(300)]
    found = calibrate(errors, groups, [("llama-3.1-8b", "h200_sxm"), ("llama-3.1-8b", "b200_sxm")])
    assert "known/agg/stated/h200_sxm/vllm" in found.groups
    assert "known/agg/stated/b200_sxm/vllm" not in found.groups
    spread = found.multipliers("known", "b200_sxm", "vllm", "agg")
    assert spread["tpot"]["80"].low < 1 < spread["tpot"]["80"].high
    for j, metric in enumerate(("ttft", "tpot")):
        for name, share in (("80", 0.80), ("95", 0.95)):  # of the group's own errors it holds as many as it says
            low, high = found.groups["known/agg/stated/h200_sxm/vllm"][metric][name]
            assert np.mean((low <= errors[20:, j]) & (errors[20:, j] <= high)) == pytest.approx(share, abs=0.01)


def test_novelty_is_the_pair_then_the_architecture():
    q = Quantiles({"all": {}}, frozenset({("llama-3.1-70b", "h200_sxm")}))
    assert q.novelty("h200_sxm", "meta-llama/Llama-3.1-70B") == "known"
    assert q.novelty("b200_sxm", "meta-llama/Llama-3.1-70B") == "pair"
    assert q.novelty("h200_sxm", "meta-llama/Llama-3.1-8B") == "pair"  # the architecture of another model
    assert q.novelty("h200_sxm", "openai/gpt-oss-120b") == "model"
    assert q.novelty("h200_sxm", "no/such-model") == "model"
    assert q.novelty("h200_sxm", "", "llama") == "pair"  # a config of one's own, of a known architecture
    assert q.novelty("h200_sxm", "", "") == "model"


def test_a_release_that_was_measured_is_the_least_new():
    q = Quantiles({"all": {}}, frozenset({("llama-3.1-70b", "h200_sxm")}))
    there = ("h200_sxm", "meta-llama/Llama-3.1-70B")
    assert q.novelty(*there, release=True) == "known"  # in another layout
    assert q.novelty(*there, deployment=True) == "deployment"
    assert q.novelty(*there, deployment=True, release=True) == "release"
    assert q.novelty("b200_sxm", "meta-llama/Llama-3.1-70B", release=True) == "pair"


def test_machines_that_err_together_are_covered_when_a_new_one_comes():
    """Rows of one machine share an offset: quantiles over all rows do not cover a new machine's, widened ones do."""
    rng = np.random.default_rng(3)
    inside = {True: [], False: []}
    for _ in range(120):
        offset = np.repeat(rng.normal(0.0, 0.3, (13, 2)), 30, axis=0)
        errors = offset + rng.normal(0.0, 0.1, offset.shape)
        machine = np.repeat([f"m{i}" for i in range(13)], 30)
        groups = [group_names("pair", "h200_sxm", "vllm", "agg", True)] * 360
        for widened in inside:
            found = calibrate(errors[:360], groups, [], machines=machine[:360] if widened else None)
            low, high = narrowest(found.groups, groups[0])["tpot"]["80"]
            inside[widened].append(np.mean((low <= errors[360:, 1]) & (errors[360:, 1] <= high)))
    assert np.mean(inside[True]) == pytest.approx(0.80, abs=0.06)
    assert np.mean(inside[False]) < np.mean(inside[True])


def test_the_file_format_is_read_as_written():
    found = calibrate(np.arange(200.0).reshape(100, 2) / 100, [["all"]] * 100, [("llama", "h100_sxm")], "a test")
    assert Quantiles.from_json(found.to_json()) == found
