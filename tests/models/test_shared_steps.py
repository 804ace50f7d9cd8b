"""Prompts that share steps: against every step of a plain simulation, and the queues that they end in."""

from __future__ import annotations

import numpy as np
import pytest

from dmodels.models.queueing import shared_steps


def waits_s(rate, one, further, most, count=60_000):
    """Until a prompt's own step ends, less a step of its own."""
    when = np.cumsum(np.random.default_rng(1).exponential(1.0 / rate, count))
    found, first, now = np.empty(count), 0, 0.0
    while first < count:
        now = max(now, when[first])
        last = min(int(np.searchsorted(when, now, side="right")), first + most)
        now += one + (last - first - 1) * further
        found[first:last] = now - when[first:last]
        first = last
    return found - one


@pytest.mark.parametrize(("further", "most"), [(0.05, 4), (0.02, 16), (0.08, 4), (0.01, 3)])
@pytest.mark.parametrize("load", [0.3, 0.6, 0.85])
def test_steps_that_prompts_share_take_what_a_simulation_says(further, most, load):
    rate = load * most / (0.1 + (most - 1) * further)
    seen = waits_s(rate, 0.1, further, most)
    said = shared_steps(rate, 0.1, further, float(most), 0.0, 1.0)
    assert float(said.mean_s + said.left_over_s) == pytest.approx(seen.mean(), rel=0.12)
    left = 2.0 * said.left_over_s**2 / np.maximum(said.left_over_chance, 1e-9) - said.left_over_s**2
    assert float(np.sqrt(said.variance_s2 + left)) == pytest.approx(seen.std(), rel=0.2)


@pytest.mark.parametrize("load", [0.7, 0.9, 0.98])
@pytest.mark.parametrize("square", [1.0, 2.0])
def test_one_prompt_to_a_step_is_m_g_1(load, square):
    """Pollaczek and Khinchine: x E[S^2]/(2 (1 - load))."""
    said = shared_steps(load / 0.1, 0.1, 0.1, 1.0, (square - 1.0) * 0.1**2, square)
    exact = 0.5 * load * 0.1 * square / (1.0 - load)
    assert float(said.mean_s + said.left_over_s) == pytest.approx(exact, rel=0.12)


def test_without_arrivals_nobody_waits():
    said = shared_steps(1e-9, 0.1, 0.05, 8.0, 0.0, 1.0)
    assert float(said.mean_s + said.left_over_s) == pytest.approx(0.0, abs=1e-8)
