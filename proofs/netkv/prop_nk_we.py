r"""NK-WE. The worked example of Section III-D: 1.0 s against 0.2 s, and what flips the verdict.

32K tokens, 2.5 GB a shard; same pod: 25 Gbit/s, half a hit, one transfer in flight; cross pod: 12.5 Gbit/s, 0.9 hit.
At c = 0.2 the times are exactly 1 s and 1/5 s (1). At a cross-pod congestion of 0.8 they are 1.0 and 0.8 s, and
congestion alone turns the choice only above 0.84 (2): "dynamic congestion is the term that flips the verdict" needs the
"few hundred milliseconds" of queueing as well, at least 200 ms.

**Verdict: proved** as printed.
"""

from fractions import Fraction as F

import numpy as np
import pytest
import sympy as sp

from dmodels.models.transfer import effective_bandwidth_bytes_per_s, transfer_time_s
from proofs.claim import NETKV, Claim, Verdict

CLAIM = Claim(
    id="NK-WE",
    source=NETKV,
    where="Section III-D, worked example",
    says="1.0 s same pod against 0.2 s cross pod at c = 0.2; 1.0 against 0.8 s at 0.8",
    verdict=Verdict.PROVED,
    means="A 90 % hit on a tier of half the speed wins until that tier is 84 % full.",
)


def times(cross):
    """Exact seconds: same pod, cross pod."""
    near = F(5, 2) * F(1, 2) / (F(25, 8) * (1 - F(1, 5)) / 2)
    far = F(5, 2) * F(1, 10) / F(25, 16) / (1 - cross)
    return near, far


def test_exact_times():  # 1
    assert times(F(1, 5)) == (1, F(1, 5))


def test_what_flips_it():  # 2
    assert times(F(4, 5)) == (1, F(4, 5)) and times(F(84, 100)) == (1, 1)
    c = sp.symbols("c")
    assert sp.solve(times(c)[1] - 1, c) == [sp.Rational(84, 100)]  # below it the far instance wins, above the near one
    assert 1 - times(F(4, 5))[1] == F(1, 5)  # the queueing that must come on top


def test_the_code_says_so():
    for cross in (0.2, 0.8):
        tiers, congestion, in_flight = np.array([3.125e9, 1.5625e9]), np.array([0.2, cross]), np.array([1.0, 0.0])
        rate = effective_bandwidth_bytes_per_s(tiers, congestion, in_flight)
        said = np.asarray(transfer_time_s(np.array([1.25e9, 0.25e9]), rate))
        assert said == pytest.approx([float(x) for x in times(F(str(cross)))])
