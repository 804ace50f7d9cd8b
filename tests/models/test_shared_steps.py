"""Prompts that share steps: against every step of a plain simulation, and the queues that they end in."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dmodels.models.queueing import met_quantiles, shared_steps


def waits_s(rate, one, further, most, bare=None, count=60_000):
    """Until a prompt's own step ends, less a step of its own; with `bare`, steps without prompts go on meanwhile."""
    when = np.cumsum(np.random.default_rng(1).exponential(1.0 / rate, count))
    found, first, now = np.empty(count), 0, 0.0
    while first < count:
        if bare is None:
            now = max(now, when[first])
        elif now < when[first]:
            now += bare * np.ceil((when[first] - now) / bare)
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
    assert deviation_s(said) == pytest.approx(seen.std(), rel=0.2)


@pytest.mark.parametrize("load", [0.2, 0.5, 0.8])
@pytest.mark.parametrize(("further", "bare"), [(0.05, 0.02), (0.02, 0.05), (0.08, 0.01)])
def test_steps_go_on_where_requests_decode(further, bare, load):
    """Prompts find bare steps and steps of others; the 99th percentile lies within 10 % of every step's simulation."""
    rate, most = load / further, 1e6
    seen = waits_s(rate, 0.1, further, int(most), bare)
    said = shared_steps(rate, 0.1, further, most, 0.0, 1.0, bare_s=bare, decoding=1.0)
    assert float(said.mean_s) == pytest.approx(seen.mean(), rel=0.06)
    assert deviation_s(said) == pytest.approx(seen.std(), rel=0.06)
    high = float(said.mean_s + met_quantiles(said)(0.99))
    assert high == pytest.approx(np.quantile(seen, 0.99), rel=0.1)


def deviation_s(said):
    """Of the whole wait, in seconds."""
    left = 2.0 * said.left_over_s**2 / np.maximum(said.left_over_chance, 1e-9) - said.left_over_s**2
    met = said.chance * (said.met_variance_s2 + said.met_s**2) + (1.0 - said.chance) * said.bare_s**2 * 4.0 / 3.0
    return float(np.sqrt(met - said.mean_s**2 + left))


@pytest.mark.parametrize("load", [0.7, 0.9, 0.98])
@pytest.mark.parametrize("square", [1.0, 2.0])
def test_one_prompt_to_a_step_is_m_g_1(load, square):
    """Pollaczek and Khinchine: x E[S^2]/(2 (1 - load))."""
    said = shared_steps(load / 0.1, 0.1, 0.1, 1.0, (square - 1.0) * 0.1**2, square)
    exact = 0.5 * load * 0.1 * square / (1.0 - load)
    assert float(said.mean_s + said.left_over_s) == pytest.approx(exact, rel=0.12)


def steps_s(rate, one, further, most, bare, engines=100):
    """A thousand steps of engines with requests to decode, once each has made five hundred: prompts of one length, cut
    where a step has no room."""
    random, waiting, found = np.random.default_rng(2), np.zeros(engines), []
    for _ in range(1500):
        found.append(np.where(waiting > 0, one + (np.minimum(waiting, most) - 1.0) * further, bare))
        waiting = np.maximum(waiting - most, 0.0) + random.poisson(rate * found[-1])
    return np.stack(found[500:], 1)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.85, 0.95])
@pytest.mark.parametrize("most", [1.0, 1.23, 1.7, 2.3, 4.0, 9.0])
def test_prompts_that_find_no_room_make_steps_longer(load, most):
    """Each has another step with what that costs once; the mean within 2.5 %, and over many steps, up to a load of
    0.85, the deviation within 20 %."""
    one, further, bare = 0.0306, 0.017, 0.0085
    rate = load * most / (one + (most - 1.0) * further)
    seen = steps_s(rate, one, further, most, bare)
    said = shared_steps(rate, one, further, most, 0.0, 1.0, bare_s=bare, decoding=1.0)
    assert float(said.step_s) == pytest.approx(seen.mean(), rel=0.025)
    if load <= 0.85:
        together = seen.reshape(-1, 250).mean(1).std() * np.sqrt(250.0)
        assert float(np.sqrt(said.sum_variance_s2)) == pytest.approx(together, rel=0.2)


def test_of_one_prompt_to_a_step_the_share_of_bare_steps_is_exact():
    """As many steps with prompts as prompts: E[L] = t_0 / (1 - x (s_1 - t_0))."""
    for rate in (5.0, 20.0, 28.0):
        said = shared_steps(rate, 0.03, 0.02, 1.0, 0.0, 1.0, bare_s=0.01, decoding=1.0)
        assert float(said.step_s) == pytest.approx(0.01 / (1.0 - rate * 0.02), rel=1e-3)


def test_without_arrivals_nobody_waits():
    said = shared_steps(1e-9, 0.1, 0.05, 8.0, 0.0, 1.0)
    assert float(said.mean_s + said.left_over_s) == pytest.approx(0.0, abs=1e-8)


def steps_by_halving(rate, one, further, bare):
    """(mean, variance) of steps with room for all, from the share of them in which no prompt came, halved until it
    follows from itself."""
    after_none = one if bare is None else bare

    def moments(none):
        """(mean, variance; the same of steps that begin with prompts), E[N | N > 0] of them in each."""
        number = rate * (after_none * none / (1.0 - none) + one - further) / (1.0 - rate * further)
        some = one + (number - 1.0) * further
        mean = none * after_none + (1.0 - none) * some
        # E[N^2] = x E[L] + x^2 E[L^2], and steps vary by N: one equation for their variance
        known = rate * mean + rate**2 * (none * after_none**2 + (1.0 - none) * some**2)
        squares = known / (1.0 - none) - number**2
        within = further**2 * squares / (1.0 - (rate * further) ** 2)
        return mean, none * (1.0 - none) * (some - after_none) ** 2 + (1.0 - none) * within, some, within

    def follows(none):
        _, _, some, within = moments(none)
        if within < 0.0:
            return 0.0
        nobody = math.exp(-(some**2) / within * math.log1p(rate * within / some))
        return none * math.exp(-rate * after_none) + (1.0 - none) * nobody

    few, many = 0.0, 1.0 - 1e-12
    for _ in range(200):
        middle = 0.5 * (few + many)
        few, many = (middle, many) if follows(middle) > middle else (few, middle)
    return moments(few)[:2]


@pytest.mark.parametrize("bare", [None, 0.001, 0.02, 0.09])
@pytest.mark.parametrize("further", [0.01, 0.05, 0.098])
@pytest.mark.parametrize("load", [0.001, 0.1, 0.7, 0.97])
def test_the_mean_step_and_its_variance_solve_their_equations(bare, further, load):
    """Near saturation as well, where what a step takes changes the next ones for long, and where prompts take a
    hundred times what other steps do."""
    step, variance = steps_by_halving(load / further, 0.1, further, bare)
    going = {} if bare is None else {"bare_s": bare, "decoding": 1.0}
    said = shared_steps(load / further, 0.1, further, 1e9, 0.0, 1.0, **going)
    assert float(said.step_s) == pytest.approx(step, rel=1e-4 if bare == 0.001 else 1e-6)
    assert float(said.step_variance_s2) == pytest.approx(variance, rel=1e-4 if bare == 0.001 else 1e-6)


@pytest.mark.parametrize("rate", [0.4, 0.8, 1.1, 1.5])
@pytest.mark.parametrize(("further", "bare"), [(0.05, 0.018), (0.4, 0.05), (0.02, 0.2)])
def test_prompts_that_take_far_longer_than_other_steps(rate, further, bare):
    """Steps are of two kinds, and most prompts come in those with prompts: what one leaves of itself to the next
    stays below all of it (a gamma distribution of all steps had it go on for ever)."""
    seen = steps_s(rate, 1.1, further, 20.0, bare, 400)
    said = shared_steps(rate, 1.1, further, 20.0, 0.0, 1.0, bare_s=bare, decoding=1.0)
    assert float(said.step_s) == pytest.approx(seen.mean(), rel=0.03)
    assert float(said.step_variance_s2) == pytest.approx(seen.var(), rel=0.08)
    off = seen - seen.mean()
    assert float(said.carried) == pytest.approx((off[:, 1:] * off[:, :-1]).mean() / seen.var(), abs=0.03)


@pytest.mark.parametrize("rate", [50.0, 250.0, 370.0])
def test_a_step_with_room_for_hundreds_is_as_if_there_were_no_limit(rate):
    """Tens of prompts come in a step, so none is bare, and a step's excess goes on by what comes in it alone."""
    one, further, bare = 0.0504, 0.0018, 0.0132
    said = shared_steps(rate, one, further, 175.0, 0.0, 1.0, bare_s=bare, decoding=1.0)
    assert float(said.step_s) == pytest.approx(steps_s(rate, one, further, 175.0, bare, 20).mean(), rel=0.03)
    free = shared_steps(rate, one, further, 1e9, 0.0, 1.0, bare_s=bare, decoding=1.0)
    assert float(said.carried) == pytest.approx(float(free.carried), rel=0.02)
