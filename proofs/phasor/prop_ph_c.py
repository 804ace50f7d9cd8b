r"""PH-C. Phasor "boosts compliant concurrency per-GPU by 1.1-2.0 $\times$ (reducing GPU cost per request by 12-50%)".

**Verdict: conditional.** Section 4.3 states the condition, "a standard closed-loop assumption where the completion rate
scales approximately with sustainable concurrency at fixed client think-time and workload mix", and under it a factor x
saves $1 - 1/x$: 1/2 at 2.0, and 13/113 = 11.5 % at the printed 1.13 of the least gain, which is the 12 (9.1 % at the
rounded 1.1) (1). What it leaves out is that the assumption needs equal response times: requests come at the throughput
$X = N/(R + Z)$ (Little), so twice the clients at twice the response time (Z = 0) are the same throughput and the same
cost (2), and where TTFT binds a faster decode pool serves the same rate with *fewer* clients.
"""

from fractions import Fraction as F

import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.models.cost import usd_per_mtoken
from proofs.claim import PHASOR, Claim, Verdict

CLAIM = Claim(
    id="PH-C",
    source=PHASOR,
    where="Section 1, Figure 5",
    says="1.1 to 2.0 times the concurrency per GPU reduces serving cost by 12 to 50 %",
    verdict=Verdict.CONDITIONAL,
    needs=("equal response times before and after, so that the completion rate scales with concurrency",),
    error="11.5 % at the printed 1.13 (rounded: 12); nothing at all if response time grows with concurrency",
    counterexample="Two clients where there was one, each answered in twice the time: the same tokens per second, the "
    "same dollars per token.",
    means="Compare cost at equal throughput or equal latency; concurrency alone says nothing about either.",
)


def throughput(clients, response, think=F(0)):
    return clients / (response + think)


def test_what_a_factor_of_concurrency_saves():  # 1
    n, x, r, z = sp.symbols("n x R Z", positive=True)
    assert sp.simplify(1 - throughput(n, r, z) / throughput(x * n, r, z) - (1 - 1 / x)) == 0
    saved = lambda factor: 1 - 1 / factor
    assert saved(F(113, 100)) == F(13, 113) and F(115, 1000) < F(13, 113) < F(12, 100)
    assert saved(F(11, 10)) == F(1, 11) and saved(F(2)) == F(1, 2)


def test_twice_the_clients_at_twice_the_time():  # 2
    assert throughput(F(2), F(2)) == throughput(F(1), F(1))
    assert throughput(F(2), F(1)) == 2 * throughput(F(1), F(1))  # equal response: then it is throughput


@given(clients=st.integers(1, 500), factor=st.floats(1, 4), response=st.floats(0.1, 60), think=st.floats(0, 60))
def test_the_shipped_cost_follows_throughput(clients, factor, response, think):  # 2
    cost = lambda n, r: float(usd_per_mtoken(3.6, 100 * n / (r + think)))
    same = cost(clients * factor, response)
    assert abs(same * factor / cost(clients, response) - 1) < 1e-9
    slower = factor * (response + think) - think  # response time at which the added clients bring nothing
    assert abs(cost(clients * factor, slower) / cost(clients, response) - 1) < 1e-9
