"""Freeness in one unit, its calibration against known coefficients, and what the printed coefficients cannot mean."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import curve_fit

from dmodels.core.errors import InputError
from dmodels.models import freeness
from dmodels.models import freeness as fr
from dmodels.models.freeness import PrefillCost
from dmodels.models.freeness_fit import calibrate, check_units

TFLOP = fr.PrefillCost(4.25e-5 * 1e12, 6.80e-3 * 1e12)  # Table 4, if its unit is TFLOP
PEAK = 121e12
QWEN = {"params_count": 7.62e9, "n_layers": 28, "n_heads": 28, "head_dim": 128}


def test_no_reading_of_the_printed_coefficients_is_consistent():
    at = np.array([128.0, 1024.0])
    tflop = check_units(TFLOP, PEAK, tokens=at, latency_s=[0.017, 0.116], **QWEN)
    assert tflop.latency_s[1] == pytest.approx(0.426, abs=5e-4)  # the text: 0.116 s
    assert tflop.linear_over_dense == pytest.approx(1 / 2.2, rel=0.03)  # faster than the peak allows
    assert tflop.quadratic_over_attention == pytest.approx(212, rel=0.01)
    assert float(fr.prefill_freeness(fr.prefill_cost_flop(1024.0, TFLOP), PEAK, 0.4)) == pytest.approx(-0.065, abs=1e-3)
    flop = check_units(fr.PrefillCost(4.25e-5, 6.8e-3), PEAK, tokens=at, **QWEN)
    assert flop.latency_s.max() < 1e-12 and np.isnan(flop.over_measured)
    crossover = float(TFLOP.beta / TFLOP.alpha)
    assert crossover == 160.0  # tokens from which "attention" would dominate


def test_printed_decode_freeness_never_triggers():
    """15.2 GB of weights in 32 GB: with the whole GPU below the line Phi_S stays above 0.475; in KV blocks it is 0."""
    kv = 32.0 - 15.2
    assert 1 - kv / 32.0 == pytest.approx(0.475) and 1 - kv / 32.0 > 0.168
    assert float(fr.decode_freeness(kv, 0.0, kv)) == 0.0
    assert 32.0 * (1 - 0.168) == pytest.approx(26.6, abs=0.03)  # GB of KV that the trigger would need


@given(free=st.lists(st.integers(0, 60), min_size=4, max_size=4), k=st.integers(1, 25))
def test_stranded_blocks_and_what_moving_wins(free, k):
    f = np.array(free, float)
    stranded = np.asarray(fr.stranded_blocks(f, float(k)))
    np.testing.assert_array_equal(stranded, [x % k for x in free])
    lost = float(fr.scattered_requests(jnp.asarray(f), jnp.float64(k)))
    assert lost == sum(free) // k - sum(x // k for x in free) and 0 <= lost < 4
    share = float(fr.fragmentation_frac(jnp.asarray(f), jnp.float64(k)))
    assert share == pytest.approx(sum(x % k for x in free) / max(sum(free), 1))


def test_stranded_depends_on_the_request():
    assert [float(fr.stranded_blocks(10.0, k)) for k in (3.0, 5.0, 11.0)] == [1.0, 0.0, 10.0]
    got = fr.expected_stranded_blocks(10.0, jnp.array([3.0, 5.0, 11.0]), jnp.array([0.5, 0.25, 0.25]))
    assert float(got) == 0.5 * 1 + 0.25 * 10


@settings(max_examples=30)
@given(alpha=st.floats(1e5, 1e8), beta=st.floats(1e9, 1e11), scale=st.floats(0.5, 3), base=st.floats(0, 1e13))
def test_calibration_recovers_exact_costs(alpha, beta, scale, base):
    x = np.linspace(128, 8192, 30)
    seconds = (alpha * x**2 + beta * scale * x + base) / PEAK
    fit = calibrate(x, seconds, PEAK, scale, intercept=True)
    np.testing.assert_allclose(np.asarray(fr.prefill_cost_flop(x, fit.cost)) / PEAK, seconds, rtol=1e-8)
    assert float(fit.cost.beta) == pytest.approx(beta, rel=1e-5) and fit.r_squared > 1 - 1e-9


def test_covariance_is_the_spread_of_repeated_calibrations():
    rng = np.random.default_rng(0)
    x = np.linspace(512, 8192, 40)
    true = (2e7 * x**2 + 1.5e10 * x) / PEAK
    fits = [calibrate(x, true + rng.normal(0, 0.01, x.size), PEAK) for _ in range(600)]
    found = np.array([[float(f.cost.alpha), float(f.cost.beta)] for f in fits])
    claimed = np.mean([f.covariance for f in fits], axis=0)
    np.testing.assert_allclose(np.cov(found.T) / claimed, 1.0, atol=4 * np.sqrt(2 / 600) + 0.02)


def test_a_fit_without_a_constant_hides_the_weight_read():
    """17 ms for any prompt: R^2 stays above 0.99, while at 128 tokens the fit is wrong by more than half."""
    x = np.geomspace(128, 8192, 24)
    seconds = 0.017 + 1e-4 * x + 2e-9 * x**2
    bare, full = calibrate(x, seconds, PEAK), calibrate(x, seconds, PEAK, intercept=True)
    assert bare.r_squared > 0.99 and abs(bare.residual_s[0]) > 0.4 * seconds[0]
    assert np.abs(full.residual_s).max() < 1e-10


def test_mistakes_name_the_field():
    with pytest.raises(InputError, match="tokens"):
        calibrate([1, 2], [1, 2], PEAK)
    with pytest.raises(InputError, match="peak_flop_per_s"):
        calibrate([1, 2, 3], [1, 2, 3], 0.0)


def test_a_backlog_alone_does_not_starve_decode():
    """48 sequences before; under 16 needs prefill to take three times as long per prompt, whatever the queue."""
    before = float(fr.starvation_service_s(48.0, 0.05, 256.0, 4.0))
    after = float(fr.starvation_service_s(16.0, 0.05, 256.0, 4.0))
    assert after == pytest.approx(3 * before)


def test_slower_prefill_starves_decode_in_proportion():
    """Four workers, 256 tokens at 50 ms: 16 sequences are left once a prefill takes 3.2 s."""
    assert float(freeness.starvation_service_s(16.0, 0.05, 256.0, 4.0)) == pytest.approx(3.2)


HAND_PEAK, SCALE = 2.0, 3.0
X, Y = np.array([1.0, 2.0, 4.0, 8.0, 10.0]), np.array([0.5, 0.9, 2.5, 6.0, 9.5])


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("points", [4, 5])
def test_coefficients_and_their_covariance_are_scipys(intercept, relative, points):
    x, y = X[:points], Y[:points]
    law = lambda x, a, b, *c: (a * x**2 + b * SCALE * x + sum(c)) / HAND_PEAK
    expected, covariance = curve_fit(law, x, y, [1.0] * (2 + intercept), sigma=y if relative else None)
    found = calibrate(x, y, HAND_PEAK, SCALE, intercept, relative)
    np.testing.assert_allclose(
        [found.cost.alpha, found.cost.beta, found.cost.base_flop][: 2 + intercept], expected, rtol=1e-5
    )
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-4)
    np.testing.assert_allclose(found.residual_s, y - law(x, *expected), atol=1e-6)
    squares = ((y - law(x, *expected)) ** 2).sum(), ((y - y.mean()) ** 2).sum()
    assert found.r_squared == pytest.approx(1 - squares[0] / squares[1])
    columns = np.stack([(x / x.max()) ** 2, x / x.max(), x**0][: 2 + intercept], axis=1) / (
        y[:, None] if relative else 1
    )
    assert found.condition == pytest.approx(np.linalg.cond(columns))
    assert intercept or float(found.cost.base_flop) == 0.0


def test_three_lengths_leave_one_degree_of_freedom():
    law = lambda x, a, b: a * x**2 + b * x
    _, covariance = curve_fit(law, X[:3], Y[:3])
    np.testing.assert_allclose(calibrate(X[:3], Y[:3], 1.0).covariance, covariance, rtol=1e-5)


def test_constant_latencies_have_no_spread_to_explain():
    assert np.isnan(calibrate(X, np.ones(5), HAND_PEAK).r_squared)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_one_bad_point_is_refused(bad):
    for x, y in ((np.append(X, bad), np.append(Y, 1.0)), (np.append(X, 12.0), np.append(Y, bad)), (X, Y[:4])):
        with pytest.raises(InputError):
            calibrate(x, y, HAND_PEAK)


def test_units_of_a_cost_made_by_hand():
    """x^2 + 2 x 3 x + 4 FLOP at 2 FLOP/s: 5.5 s for one token; 2 x 3 over 2 N; alpha over 2 layers heads dim."""
    cost = PrefillCost(1.0, 2.0, SCALE, 4.0)
    found = check_units(cost, HAND_PEAK, 1.5, [1.0, 2.0, 4.0], [0.5, 5.0, 22.0], 2.0, 3.0, 4.0)
    assert found.latency_s.tolist() == [5.5, 10.0, 22.0] and found.over_measured == 2.0
    assert (found.linear_over_dense, found.quadratic_over_attention) == (2.0, 1.0 / 48)
    assert np.isnan(check_units(cost, HAND_PEAK, 1.5, [1.0], None, None, 3.0, 4.0).quadratic_over_attention)
