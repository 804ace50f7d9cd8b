r"""POA-E10. The detector: after a step from L0 to L1 the EWMA of Eq. (10) passes theta in n* samples.

**Verdict: conditional** on a new level above the threshold and on a metric without a delay of its own.
$\bar L_n = L_1 - (1-\alpha)^n (L_1 - L_0)$ (1), so
$n^* = \lfloor\ln\frac{L_1-L_0}{L_1-\theta} / {-\ln(1-\alpha)}\rfloor + 1$ for a strict crossing, plus k - 1 with
hysteresis (2). Switches of opposite direction are at least $\max(k, \lceil\epsilon/(\alpha R)\rceil)$ samples apart
(tests/control). The 340B run (0.29 s to 28.3 s, theta1 = 1 s) crosses in the first sample: the 54.8 s that were
measured are not the filter's delay.
"""

import jax
import jax.numpy as jnp
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.control import regime
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict

CLAIM = Claim(
    id="POA-E10",
    source=PRICE_OF_ANARCHY,
    where="Eq. (10), (11)",
    says="An EWMA with alpha = 0.3 at 5 s polling detects the transition",
    verdict=Verdict.CONDITIONAL,
    needs=("the new level lies above the threshold", "TTFT P99 is read as it happens: its own delay adds"),
    error="detected after floor(ln((L1 - L0)/(L1 - theta)) / -ln(1 - alpha)) + k samples",
    counterexample="At a new level below the threshold it never fires; and a P99 over finished requests shows a "
    "jump only when they finish.",
    means="alpha = 0.3 and k = 3 react within 15 s to a real jump; if your switch takes a minute, look at the metric's "
    "path.",
)

_STEP = jax.jit(
    lambda before, after, params: jax.lax.scan(
        lambda s, x: regime.update(s, x, params),
        regime.init(),
        jnp.concatenate([jnp.full(1, before), jnp.full(99, after)]),
    )[1]
)


def test_the_filter_after_a_step():  # 1
    n = sp.symbols("n", integer=True, nonnegative=True)
    a, before, after = sp.symbols("alpha L0 L1", positive=True)
    level = lambda k: after - (1 - a) ** k * (after - before)
    assert sp.simplify(level(n + 1) - (a * after + (1 - a) * level(n))) == 0 and level(0) == before


@given(before=st.floats(0.01, 0.9), after=st.floats(1.2, 50), alpha=st.floats(0.1, 0.9), k=st.integers(1, 4))  # 2
def test_the_shipped_detector_fires_when_it_says(before, after, alpha, k):
    params = regime.Detector(jnp.array([1.0, 1e9]), jnp.zeros(2), jnp.array(alpha), jnp.array(float(k)))
    fired = int(jnp.argmax(_STEP(before, after, params) > 0))
    said = float(regime.detection_samples(before, after, 1.0, alpha, k))
    level = after - (1 - alpha) ** (said - k + 1) * (after - before)
    assert fired == said or abs(level - 1.0) < 1e-9 or abs((level - after) / (1 - alpha) + after - 1.0) < 1e-9
