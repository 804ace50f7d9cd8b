r"""NEW-20. Requests in flight are negative binomial: a fuller batch slows itself and fills further.

Under $t(n) = W + H n$ and the paper's fluid $n^* = x E W/(1 - s)$, $s = x E H < 1$ (x arrivals a second, E iterations
each), requests leave at rate $n/(E\,t(n))$, and $p_n \propto \prod_{k \le n} x E\,t(k)/k$ is the negative binomial law
with $1 + W/H$ failures and success probability s (1). So the mean in flight is $n^* + s/(1 - s)$ and its variance the
mean over $1 - s$, not $n^*$ and $n^*$ as without slowing down (2); by Little's law a token takes
$t(n^*) + H/(1 - s)$ (3). `operate` and `occupancy` say the same (4). In the paper's case, s -> 1 at full slots, the
fluid is short by 8 % and the standard deviation by a factor of $1/\sqrt{1 - s}$ (5).

**Verdict: proved**, for geometric lengths or while nobody waits (then lengths do not matter).
"""

import numpy as np
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.core.hardware import SLO
from dmodels.core.programs import at_once
from dmodels.core.records import float64
from dmodels.core.workload import Workload
from dmodels.models.instance import Engine, operate, step_table
from dmodels.models.queueing import occupancy
from dmodels.models.traffic import requests_between
from proofs.claim import DMODELS, Claim, Verdict

CLAIM = Claim(
    id="NEW-20",
    source=DMODELS,
    where="models/instance.operate",
    says="with t(n) = W + H n those in flight are negative binomial: mean n* + s/(1-s), variance mean/(1-s); s = xEH",
    verdict=Verdict.PROVED,
    needs=("Poisson arrivals", "geometric lengths, or slots enough that nobody waits"),
    means="Leave more slots free than a fluid count says: where decoding slows with the batch, its swings are larger.",
)


def test_the_law_satisfies_the_balance_equations():  # 1
    n = sp.Symbol("n", integer=True, nonnegative=True)
    x, e, w, h = sp.symbols("x E W H", positive=True)
    s, failures = x * e * h, 1 + w / h
    law = sp.gamma(n + failures) / (sp.gamma(n + 1) * sp.gamma(failures)) * s**n  # times (1 - s)**failures
    into, out = x * law, (n + 1) / (e * (w + h * (n + 1))) * law.subs(n, n + 1)
    assert sp.simplify(sp.gammasimp(out / into)) == 1


def test_mean_variance_and_time_per_token():  # 2, 3
    x, e, w, h = sp.symbols("x E W H", positive=True)
    s, failures, z = x * e * h, 1 + w / h, sp.Symbol("z")
    fluid = x * e * w / (1 - s)
    log_generating = failures * (sp.log(1 - s) - sp.log(1 - s * z))
    first, second = (sp.diff(log_generating, z, k).subs(z, 1) for k in (1, 2))
    mean, variance = first, second + first
    assert sp.simplify(mean - fluid - s / (1 - s)) == 0
    assert sp.simplify(variance - mean / (1 - s)) == 0
    assert sp.simplify(mean / (x * e) - (w + h * fluid) - h / (1 - s)) == 0  # Little


@given(w=st.floats(1e-3, 0.1), h=st.floats(1e-6, 1e-2), fluid=st.floats(0.05, 60.0))  # 4
def test_chain_and_plan_follow_it(w, h, fluid):
    iterations = 200.0
    x = fluid / (iterations * (w + h * fluid))
    s = x * iterations * h
    mean = fluid + s / (1.0 - s)
    if mean + 12.0 * np.sqrt(mean / (1.0 - s)) > 1500.0:
        return  # the chain below is cut at 2,000 slots
    chain = _chain(x, iterations, w + h * np.arange(1.0, 2001.0))
    assert float(chain.in_flight_count) == pytest.approx(mean, rel=1e-6)
    point = _operate(w + h * _RUNGS, x)
    assert float(point.decode_count) == pytest.approx(mean, rel=0.02)
    assert float(point.tpot_mean_s) == pytest.approx(w + h * fluid + h / (1.0 - s), rel=0.02)


def test_what_the_fluid_misses():  # 5
    w, h, fluid = sp.Rational(8), sp.Rational(65, 100), 100
    s = h * fluid / (w + h * fluid)
    assert s == sp.Rational(65, 73)
    assert sp.N((h / (1 - s)) / (w + h * fluid)) == pytest.approx(0.08125)
    assert sp.N(1 / sp.sqrt(1 - s)) == pytest.approx(3.02, abs=0.005)


# steps are linear, so that the table adds no error of its own
_RUNGS = np.concatenate([np.arange(8.0), np.geomspace(8.0, 8192.0, 32)])
_REQUESTS = requests_between(Workload(np.array([1.0]), np.array([200.0]), np.array([1.0]), np.array([1.0]), 1.0, 1.0))


@float64
def _chain(x, iterations, times):
    return _compiled_chain(x, iterations, times)


@float64
def _operate(alone, x):
    return _compiled_operate(alone, x, (_REQUESTS, SLO(), Engine(8192.0)))


_compiled_chain = at_once(occupancy)
_compiled_operate = at_once(
    lambda alone, x, given: operate(
        step_table(_RUNGS, alone, 0.0 * alone, given[0].output_tokens), given[0], x, 8192.0, *given[1:]
    )
)
