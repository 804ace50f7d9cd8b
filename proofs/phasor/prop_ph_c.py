r"""PH-C. "1.1 to 2.0 times the compliant concurrency per GPU, reducing serving cost by 12 to 50 %."

**Verdict: refuted.** If concurrency were throughput, a factor x would save $1 - 1/x$: 9.1 % at 1.1, not 12 (which needs
1.136), and 50 % at 2.0 (1). But cost is per token, and tokens come at the throughput $X = N/(R + Z)$ (Little): N more
clients at a longer response time R are not N times the work. Twice the clients at twice the response time (Z = 0) are
the same throughput and the same cost (2). The claim needs equal response times on both sides.
"""

from fractions import Fraction as F

from hypothesis import given
from hypothesis import strategies as st

from dmodels.models.cost import usd_per_mtoken
from proofs.claim import PHASOR, Claim, Verdict

CLAIM = Claim(
    id="PH-C",
    source=PHASOR,
    where="Section 1, Figure 5",
    says="1.1 to 2.0 times the concurrency per GPU reduces serving cost by 12 to 50 %",
    verdict=Verdict.REFUTED,
    needs=("equal response times before and after",),
    error="9.1 % for 12 % at the lower end even then; nothing at all if response time grows with concurrency",
    counterexample="Two clients where there was one, each answered in twice the time: the same tokens per second, the "
    "same dollars per token.",
    means="Compare cost at equal throughput or equal latency; concurrency alone says nothing about either.",
    minimal="least: from one client to two is the least change of concurrency",
)


def throughput(clients, response, think=F(0)):
    return clients / (response + think)


def test_what_a_factor_of_concurrency_could_save():  # 1
    saved = lambda x: 1 - 1 / x
    assert saved(F(11, 10)) == F(1, 11) < F(12, 100) and saved(F(2)) == F(1, 2)
    assert saved(1 / (1 - F(12, 100))) == F(12, 100) and 1 / (1 - F(12, 100)) > F(113, 100)


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
