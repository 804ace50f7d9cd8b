r"""NEW-10. In the paper's own timing model a split saves $\phi (1 - 1/r)$, $\phi$ = short share of *work*.

With $\tau(N) = (W + H N)/N$, fleets are work times $\tau$, so requests drop out: $1 - [\tau_s \phi + \tau_h
(1-\phi)]/\tau_h$ and $r = \tau_h/\tau_s$ (1), which is Eq. (8) with the routed rates put in (2). For 128 against 16
slots r = 1.614, so no traffic saves more than 38.0 %, and however many slots, less than 43.5 % (3): the paper's "60
%" and "69 %" are out of reach. Whole instances cannot turn a saving of s into a loss once s x >= 1, x = load in
instances (4).

**Verdict: proved**, for slots that are all busy and reserve the whole context (NEW-17 says what paging does).
"""

import jax
import numpy as np
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.models.pooling import SlotEngine, savings, split_savings, work_savings
from proofs.claim import DMODELS, Claim, Verdict

CLAIM = Claim(
    id="NEW-10",
    source=DMODELS,
    where="models/pooling.work_savings",
    says="savings = phi (1 - 1/r) with phi the short share of iterations and r the ratio of slot costs",
    verdict=Verdict.PROVED,
    needs=("every slot is busy and reserves the pool's whole context",),
    means="Weigh requests by the iterations that they take. With 8 ms + 0.65 ms a sequence, no split saves over 38 %.",
)


def test_requests_drop_out():  # 1
    phi, lam, mean, ts, th = sp.symbols("phi lambda I tau_s tau_h", positive=True)
    alpha = sp.Symbol("alpha", positive=True)
    mu_s, mu_l, mu = 1 / (phi * mean / alpha * ts), 1 / ((1 - phi) * mean / (1 - alpha) * th), 1 / (mean * th)
    dual = alpha * lam / mu_s + (1 - alpha) * lam / mu_l
    assert sp.simplify(1 - dual / (lam / mu) - phi * (1 - ts / th)) == 0


@given(phi=st.floats(0, 1), alpha=st.floats(0.01, 0.99), mean=st.floats(1, 1e4), slots=st.floats(16, 4096))  # 2
def test_the_code_says_so(phi, alpha, mean, slots):
    by_rates = _SPLIT(alpha, phi, mean, slots, 16.0, 1000.0, SlotEngine()).routed_frac
    by_work = _WORK(phi, slots, 16.0, SlotEngine())
    law = phi * (1 - ((8 + 0.65 * slots) / slots) / (18.4 / 16))
    assert float(by_rates) == pytest.approx(law, abs=1e-9) and float(by_work) == pytest.approx(law, abs=1e-12)


def test_the_ceiling_of_any_split():  # 3
    cost = {n: sp.Rational(8, n) + sp.Rational(65, 100) for n in (16, 128)}
    assert cost[16] / cost[128] == sp.Rational(460, 285)
    assert 1 - cost[128] / cost[16] == sp.Rational(175, 460)  # 38.0 %
    assert 1 - sp.Rational(65, 100) / cost[16] == sp.Rational(1, 2) / sp.Rational(115, 100)  # 43.5 %, never reached


@given(phi=st.floats(0, 1), r=st.floats(1.001, 8), load=st.floats(0.01, 1e4))  # 4
def test_no_loss_once_an_instance_is_saved(phi, r, load):
    s = _SAVINGS(phi, 1.0, r, 1.0, load)
    if phi * (1 - 1 / r) * load >= 1 + 1e-9:
        assert float(s.dual_instances_count) <= float(s.homo_instances_count)
    assert float(s.dual_instances_count) - float(s.homo_instances_count) <= 1


def test_below_one_instance_saved_a_split_can_lose():  # 4, tight
    losses = [float(_SAVINGS(0.8, 1.0, 4.0, 1.0, x).realized_frac) for x in np.linspace(0.05, 1.65, 33)]
    assert min(losses) == -1.0


_SAVINGS, _SPLIT, _WORK = jax.jit(savings), jax.jit(split_savings), jax.jit(work_savings)
