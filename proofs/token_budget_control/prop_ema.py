r"""NEW-12. What calibration by a moving average is worth: bias, variance, margin, and the direction of its error.

From a cold start $\hat c_0$ with independent ratios of mean c and deviation $\sigma$: bias $\beta^n(\hat c_0 - c)$,
variance $\frac{1-\beta}{1+\beta}(1 - \beta^{2n})\sigma^2$ (1). A margin $B < C$ admits a request safely iff its ratio
is at least $c^* B/C$ (2), which fails for at most $1/(1 + k^2)$ of them with k deviations to spare, and no better bound
holds for all distributions (3: a two-point law attains it). Averages of bytes per token under-estimate tokens:
$E[c]\,E[1/c] \ge 1$, $e^{s^2}$ for lognormal ratios (4).

**Verdict: proved.**
"""

from fractions import Fraction as F

import jax.numpy as jnp
import numpy as np
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels.control import token_budget as tb
from dmodels.control.token_budget import bounds
from proofs.claim import DMODELS, Claim, Verdict

CLAIM = Claim(
    id="NEW-12",
    source=DMODELS,
    where="control.token_budget_bounds",
    says="bias, variance and warm-up of the calibrated ratio, the safe margin c* B/C with Cantelli's bound on misses, "
    "and the bias of averaging bytes per token, in closed form",
    verdict=Verdict.PROVED,
    needs=("ratios are independent with a common mean and deviation",),
    means="A margin of k deviations below the mean ratio lets through at most one in 1 + k^2; choose B from it.",
)


def test_bias_and_variance_by_induction():  # 1
    beta, c, start, s2, n = sp.symbols("beta c c0 s2 n", positive=True)
    bias, var = lambda k: beta**k * (start - c), lambda k: (1 - beta) / (1 + beta) * (1 - beta ** (2 * k)) * s2
    assert bias(0) == start - c and var(0) == 0
    assert sp.simplify(beta * bias(n) - bias(n + 1)) == 0
    assert sp.simplify(sp.expand(beta**2 * var(n) + (1 - beta) ** 2 * s2 - var(n + 1))) == 0


@settings(max_examples=15)
@given(n=st.integers(1, 60), ratio=st.floats(1.5, 6), beta=st.sampled_from([0.5, 0.9, 0.95]))
def test_the_shipped_average_has_that_bias(n, ratio, beta):  # 1: a constant stream shows the bias alone
    params = tb.settings(beta=beta)
    state = tb.init(1, params)._replace(ratio=jnp.array([4 * beta**n + ratio * (1 - beta**n)]))  # after n responses
    after = tb.update(state, 0, ratio * 1000.0, 1000.0, params)
    wanted = ratio + float(bounds.bias(n + 1.0, 4.0, ratio, beta))
    assert abs(float(after.ratio[0]) - wanted) < 1e-9


def test_the_margin_is_exact():  # 2: a prompt of B c* bytes counts as B; its tokens at ratio c_r are B c*/c_r
    b, c, star = 6000, 8192, F(3)
    edge = star * b / c
    assert b * star / edge == c and b * star / (edge * F(999, 1000)) > c
    np.testing.assert_allclose(float(bounds.threshold_frac(0.5, 4.0, 1.0, 3.0)), 1.0)  # (4 - 1)/3


def test_cantelli_is_attained():  # 3: mass 1/(1 + k^2) at mean - k sigma, the rest above the mean
    for k in (F(1), F(2), F(768, 1000)):
        p = 1 / (1 + k**2)
        low, high = -k, 1 / k  # in deviations
        assert p * low + (1 - p) * high == 0 and p * low**2 + (1 - p) * high**2 == 1
        assert abs(float(bounds.miss_bound(1.0 - float(k), 1.0, 1.0)) - float(p)) < 1e-12


def test_jensen():  # 4
    s, m = sp.symbols("s m", positive=True)
    moment = lambda t: sp.exp(m * t + s**2 * t**2 / 2)  # E[c^t], lognormal
    assert sp.simplify(moment(1) * moment(-1) - sp.exp(s**2)) == 0
    assert abs(float(bounds.jensen_frac(0.5)) - float(1 - sp.exp(-sp.Rational(1, 4)))) < 1e-12


def test_deviations_for_a_target():
    exact = sp.sqrt(sp.Rational(99, 1) * 2 / sp.Rational(195, 100))
    assert abs(float(bounds.sigmas_for(0.01)) - float(exact)) < 1e-12
