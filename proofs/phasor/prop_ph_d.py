r"""PH-D. Pre-copy makes downtime "constant and independent of the total sequence length" (Appendix D).

**Verdict: conditional** on q = g/r < 1 and on stopping at a threshold: $V_k = V q^k$, $n = \lceil\ln(\epsilon/V)/\ln
q\rceil$ rounds, time below $V/(r - g)$, downtime at most $\epsilon/r$ (1, 2). With a fixed number of rounds downtime is
proportional to the length (3), and at q >= 1 rounds never shrink (4).
"""

import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.core.flags import Flag
from dmodels.models.migration import precopy, precopy_rounds
from proofs.claim import PHASOR, Claim, Verdict

CLAIM = Claim(
    id="PH-D",
    source=PHASOR,
    where="Appendix D",
    says="downtime of a migration is constant and independent of the sequence length",
    verdict=Verdict.CONDITIONAL,
    needs=(
        "the link is faster than the writer, g < r (k g < r for k at once)",
        "copying stops at a threshold of bytes",
    ),
    error="with a fixed number of rounds downtime is V q^n / r",
    counterexample="Two rounds over a link ten times as fast as the writer: a hundred times the cache is a hundred "
    "times the downtime.",
    means="Stop by bytes left, not by rounds; a decoder writes so slowly that one or two rounds are enough.",
)


def test_rounds_sum_to_a_geometric_series():  # 1
    volume, q, r = sp.symbols("V q r", positive=True)
    for n in range(5):
        total = sum(volume * q**k for k in range(n + 1)) / r
        assert sp.simplify(total - volume / r * (1 - q ** (n + 1)) / (1 - q)) == 0


@given(volume=st.floats(1e6, 1e11), q=st.floats(1e-4, 0.99), stop=st.floats(1e3, 1e6))
def test_threshold(volume, q, stop):  # 2
    m = precopy(volume, 1e9, q * 1e9, stop)
    assert float(m.downtime_s) <= stop / 1e9 * (1 + 1e-6) and float(m.total_s) <= volume / (1e9 * (1 - q)) * (1 + 1e-9)


def test_fixed_rounds():  # 3
    short, long = (float(precopy_rounds(v, 1e9, 1e8, 2.0).downtime_s) for v in (1e8, 1e10))
    assert abs(long / short - 100) < 1e-9


def test_no_convergence():  # 4
    assert int(precopy(1e9, 1e8, 2e8, 1e6).flags) & Flag.OVERLOAD
