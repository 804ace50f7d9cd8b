"""The detector: closed-form delay, hysteresis without chatter, thresholds as multiples of a baseline."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels.control import regime
from dmodels.control.regime import Regime
from dmodels.core.errors import InputError


@jax.jit
def run(samples, params):
    return jax.lax.scan(lambda s, x: regime.update(s, x, params), regime.init(), samples)


def plain(samples, thresholds, margins, alpha, k):
    """The rules of section 6.2 in plain Python."""
    level, now, up, down, out = None, 0, [0, 0], [0, 0], []
    for x in samples:
        level = x if level is None else alpha * x + (1 - alpha) * level
        for b in range(2):
            up[b] = up[b] + 1 if level > thresholds[b] else 0
            down[b] = down[b] + 1 if level < thresholds[b] - margins[b] else 0
        now = max(now, 2 if up[1] >= k else 1 if up[0] >= k else 0)
        now = min(now, 0 if down[0] >= k else 1 if down[1] >= k else 2)
        out.append(now)
    return out


@settings(max_examples=50)
@given(
    samples=st.lists(st.floats(0, 5, width=32), min_size=40, max_size=40),
    alpha=st.sampled_from([0.1, 0.3, 1.0]),
    k=st.integers(1, 4),
)
def test_scan_equals_the_rules(samples, alpha, k):
    params = regime.detector(0.2, 5.0, 15.0, 0.2, alpha, k)
    _, regimes = run(jnp.array(samples), params)
    expected = plain(samples, [1.0, 3.0], [0.2, 0.6], alpha, k)
    level = np.asarray(regime.init().ewma_s)
    if not np.array_equal(regimes, expected):  # only a level within rounding of a threshold may differ
        level, close = None, False
        for x in samples:
            level = x if level is None else alpha * x + (1 - alpha) * level
            close |= min(abs(level - t) for t in (1.0, 3.0, 0.8, 2.4)) < 1e-12
        assert close


def test_a_load_that_falls_below_one_threshold_at_a_time_goes_back_one_regime_at_a_time():
    samples = np.repeat([0.5, 5.0, 2.0, 0.5, 2.0, 5.0, 0.5, 2.0], 5)
    _, regimes = run(jnp.array(samples), regime.detector(0.2, 5.0, 15.0, 0.2, 1.0, 1))
    assert np.asarray(regimes)[::5].tolist() == [0, 2, 1, 0, 1, 2, 0, 1]


@settings(max_examples=50)
@given(
    before=st.floats(0.01, 0.4), after=st.floats(0.6, 100), alpha=st.sampled_from([0.1, 0.3, 0.7]), k=st.integers(1, 4)
)
def test_detection_delay_of_a_step_is_the_closed_form(before, after, alpha, k):
    params = regime.detector(0.1, 5.0, 1e9, 0.2, alpha, k)
    steps = int(regime.detection_samples(before, after, 0.5, alpha, k))
    samples = jnp.concatenate([jnp.full(1, before), jnp.full(199, after)])
    _, regimes = run(samples, params)
    assert int(jnp.argmax(regimes > 0)) == steps


def test_the_lag_of_the_filter_is_not_the_papers_55_seconds():
    """340B: 0.29 s to 28.3 s, theta1 = 1 s, alpha 0.3: seen in the first sample, in the third with k = 3: 15 s."""
    assert int(regime.detection_samples(0.29, 28.26, 1.0, 0.3, 1)) == 1
    assert int(regime.detection_samples(0.29, 28.26, 1.0, 0.3, 3)) * 5 == 15


@settings(max_examples=40)
@given(seed=st.integers(0, 2**31), k=st.integers(1, 4))
def test_opposite_switches_are_at_least_a_dwell_apart(seed, k):
    rng = np.random.default_rng(seed)
    params = regime.detector(0.2, 5.0, 1e9, 0.5, 0.3, k)
    samples = rng.choice([0.0, 2.0], 200)
    _, regimes = run(jnp.array(samples), params)
    switches = np.flatnonzero(np.diff(np.asarray(regimes)) != 0)
    dwell = float(regime.least_dwell_samples(0.5, 2.0, 0.3, float(k)))
    assert (np.diff(switches) >= dwell).all()


def test_missing_samples_change_nothing():
    params = regime.detector(0.2)
    state, _ = regime.update(regime.init(), 3.0, params)
    again, now = regime.update(state, jnp.nan, params)
    assert all(np.array_equal(a, b) for a, b in zip(state, again, strict=True)) and int(now) == Regime.BELOW


def test_detectors_map_over_gains():
    """Eight alphas at once; a larger one never sees a step later."""
    alphas = jnp.linspace(0.1, 0.9, 8)
    samples = jnp.array([0.1] * 5 + [3.0] * 30)
    make = lambda alpha: run(samples, regime.Detector(jnp.array([1.0, 50.0]), jnp.zeros(2), alpha, jnp.array(2.0)))[1]
    first = jnp.argmax(jax.vmap(make)(alphas) > 0, axis=1)
    assert (jnp.diff(first) <= 0).all() and int(first[0]) > int(first[-1])


def test_second_derivative_of_a_parabola_and_its_noise():
    load = jnp.array([1.0, 2.0, 4.0])
    assert float(regime.curvature(load, 3.0 * load**2 + load)) == pytest.approx(6.0)
    even = jnp.array([0.0, 0.5, 1.0])
    assert float(regime.curvature_noise(even, 0.1)) == pytest.approx(np.sqrt(6) * 0.1 / 0.25)
    rng = np.random.default_rng(0)
    readings = jnp.array(rng.normal(0, 0.1, (20_000, 3)))
    measured = np.std(regime.curvature(jnp.broadcast_to(load, (20_000, 3)), readings))
    assert measured == pytest.approx(float(regime.curvature_noise(load, 0.1)), rel=0.03)
    n = float(regime.curvature_samples(0.01, 1.0, 0.05, 3.0))
    assert float(regime.curvature_noise(even * 2, 0.05)) / np.sqrt(n) * 3 == pytest.approx(0.01)


def test_alarm_slack_is_where_the_curvature_reaches_theta():
    """Two workers d/(c - x), beta = 2: at the slack s* the second derivative of mean latency D^2/(C - r)^2 is theta."""
    d = jnp.array([0.01, 0.04])
    total = jnp.sum(d**0.5)
    slack = regime.alarm_slack(5.0, total, 2.0)
    latency = lambda r: total**2.0 / (10.0 - r) ** 2.0
    assert float(jax.grad(jax.grad(latency))(10.0 - slack)) == pytest.approx(5.0)


def test_settings_end_where_they_mean_nothing():
    """Each at the last value that is accepted, and the first that is not."""
    regime.detector(0.1, 5.0, 5.1, 0.0, 1.0, 1), regime.detector(0.1, 1e-9, 1.0, 0.999, 1e-9, 1)
    fine = {"theta1": 5.0, "theta2": 36.0, "margin_frac": 0.2, "alpha": 0.3, "samples": 3}
    for name, values in {
        "theta1": (0.0, 36.0, math.nan),
        "theta2": (5.0, 2.0),
        "margin_frac": (-0.01, 1.0),
        "alpha": (0.0, 1.01),
        "samples": (0,),
    }.items():
        for value in values:
            with pytest.raises(InputError, match=rf"{name.removesuffix('_frac')} {value}"):
                regime.detector(0.1, **fine | {name: value})


def test_a_step_that_ends_on_the_threshold_is_never_seen():
    assert math.isinf(float(regime.detection_samples(0.0, 1.0, 1.0)))
    assert float(regime.detection_samples(0.0, 100.0, 1.0)) == 1.0  # the first sample reads 30
    assert float(regime.detection_samples(0.0, 100.0, 1.0, 0.3, 3.0)) == 3.0


def test_the_second_difference_of_a_square_is_two_at_any_spacing():
    for x in ([0.0, 1.0, 3.0], [1.0, 3.0, 4.0], [2.0, 5.0, 9.0]):
        assert float(regime.curvature(jnp.array(x), jnp.array(x) ** 2)) == pytest.approx(2.0)


def test_whole_samples_are_not_rounded_up():
    assert [float(regime.least_dwell_samples(m, 1.0, a)) for m, a in ((0.3, 0.3), (0.6, 0.2), (0.61, 0.2))] == [1, 3, 4]
    assert [float(regime.least_dwell_samples(m, 1.0)) for m in (0.3, 0.9, 1.0)] == [1, 3, 4]  # of three tenths


def test_twice_the_step_needs_a_sixteenth_of_the_readings():
    assert float(regime.curvature_samples(1.0, 2.0, 1.0, 4.0)) == pytest.approx(6.0)
    assert float(regime.curvature_samples(1.0, 1.0, 1.0)) == pytest.approx(6.0 * 3.0**2)  # three deviations


def test_a_level_on_a_threshold_is_not_above_it_nor_on_its_margin_below():
    """Thresholds of 1 and 2 s with margins of a quarter, and no memory: 1 s is still below, 0.75 s still above."""
    rule = regime.detector(0.5, 2.0, 4.0, 0.25, 1.0, 1)
    start, at_first = regime.update(regime.init(), 1.0, rule)
    assert (int(at_first), float(start.seen)) == (0, 1.0)
    higher, up = regime.update(start, 1.5, rule)
    assert [int(up), *(int(regime.update(higher, s, rule)[1]) for s in (2.0, 0.75, 0.7, 2.1))] == [1, 1, 1, 0, 2]


def test_a_level_takes_over_its_share_of_every_sample():
    """A quarter of 3, 1 and 0 s, after a first sample of 1 s, which is the level."""
    rule, state, levels = regime.detector(1.0, alpha=0.25), regime.init(), []
    for sample in (1.0, 3.0, 1.0, 0.0):
        state, _ = regime.update(state, sample, rule)
        levels.append(float(state.ewma_s))
    assert levels == [1.0, 1.5, 1.375, 1.03125]


def test_regimes_are_the_three_of_the_paper():
    """Highest above both thresholds, and one down where the level is below only the upper one."""
    rule, state, seen = regime.detector(1.0, 2.0, 4.0, 0.0, 1.0, 1), regime.init(), []
    for sample in (1.0, 9.0, 3.0, 9.0, 1.0):
        state, now = regime.update(state, sample, rule)
        seen.append(Regime(int(now)))
    calm, busy, full = Regime
    assert seen == [calm, full, busy, full, calm]


def test_a_sample_that_lands_on_the_threshold_does_not_count():
    """Halves of what is left: 1/2, then 3/4 and 7/8."""
    assert [float(regime.detection_samples(0.0, 1.0, t, 0.5)) for t in (0.5, 0.75, 0.8)] == [2.0, 3.0, 3.0]


def test_detectors_side_by_side_see_what_each_sees_alone_missing_samples_too():
    rule, seen = regime.detector(0.5, 2.0, 4.0, 0.25, 0.5, 1), np.array([[1.5, 0.2, np.nan], [np.nan, 3.0, 9.0]])
    together, apart = regime.init((3,)), [regime.init() for _ in range(3)]
    for row in seen:
        together, regimes = regime.update(together, row, rule)
        found = [regime.update(state, sample, rule) for state, sample in zip(apart, row, strict=True)]
        apart = [state for state, _ in found]
        assert regimes.tolist() == [int(one) for _, one in found]
    assert regimes.tolist() == [1, 1, 2]
    for field in ("ewma_s", "above", "below", "seen"):
        assert getattr(together, field).tolist() == [getattr(state, field).tolist() for state in apart]


def test_the_detector_of_the_papers_70b_model_as_it_comes():
    """An idle P99 of 55 ms: 0.28 s and 2 s, margins of a fifth of each, three samples at 0.3."""
    own = regime.detector(0.055)
    np.testing.assert_allclose(own.thresholds_s, [0.28, 2.0], rtol=0.02)
    np.testing.assert_allclose(own.margins_s, [0.056, 0.4], rtol=0.02)
    assert np.asarray(own.thresholds_s / 0.055).tolist() == pytest.approx([5.0, 36.0])
    assert (float(own.alpha), float(own.samples)) == (0.3, 3.0)
