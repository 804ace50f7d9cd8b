r"""TB-FF. The short pool is "failure-free by construction", regardless of load (Section 4.3).

**Verdict: conditional.** The construction bounds the *estimate*: 32,000 bytes of CJK at the cold ratio 4 and 100 tokens
of output count as 8,100 and are 16,100 (1). A request admitted at B <= C fits iff its own ratio is at least what it
needs, for which $c_r \ge c^* B/C$ is sufficient, and necessary at the boundary (2). The tracked quantile keeps the
share of prompts with fewer bytes per token than c* within (ln(c_max/c_min) + 2s)/(sT) of delta, for every stream (3).
"""

from fractions import Fraction

import numpy as np
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.control import token_budget as tb
from dmodels.control.token_budget import TokenBudgetRouter, bounds
from proofs.claim import TOKEN_BUDGET, Claim, Verdict

CLAIM = Claim(
    id="TB-FF",
    source=TOKEN_BUDGET,
    where="Section 4.3",
    says="no request in the short pool can exceed its KV budget, regardless of load",
    verdict=Verdict.CONDITIONAL,
    needs=(
        "every request's bytes per token are at least c* B/C",
        "max_output_tokens is enforced",
        "N ceil(C/16) blocks are there",
        "spill-over checks the same conservative total",
    ),
    error="the share of under-estimated prompts; at most delta + (ln(c_max/c_min) + 2s)/(sT) with the tracked quantile",
    counterexample="32,000 bytes of Chinese text and 100 tokens of output count as 8,100 tokens and are 16,100: "
    "admitted to a pool of 8,192.",
    means="Buy safety with B < C or with the quantile; the engine's own limit has to catch the rest.",
)


def test_counterexample():  # 1
    router = TokenBudgetRouter(tb.pools([8192], [8192, 65536]))
    assert router.route("cjk", 32_000, 100) == (0, 8100, True) and 32_000 // 2 + 100 == 16_100


@given(ratio=st.integers(1, 800), c_star=st.integers(1, 800), size=st.integers(1, 10**6), output=st.integers(0, 4000))
def test_margin(ratio, c_star, size, output):  # 2
    b, c = 6000, 8000
    if -(-size // c_star) + output <= b and Fraction(ratio) >= Fraction(c_star * b, c):
        assert Fraction(size, ratio) + output <= c  # b/c >= 3/4: bytes/ratio <= (bytes/c*) C/B <= (B - o) C/B
    if output == 0 and size == c_star * b:  # the boundary: sufficient is necessary
        assert (Fraction(size, ratio) <= c) == (Fraction(ratio) >= Fraction(c_star * b, c))


def test_margin_in_symbols():  # 2: an input estimated at no more than B - o is at most (B - o) C/B <= C - o
    b, spare, output, true, used = sp.symbols("B C-B o c_r c*", positive=True)
    c = b + spare
    real = (b - output) * used / true  # tokens of the longest prompt that is admitted
    at_the_edge = real.subs(true, used * b / c)
    assert sp.expand(sp.simplify(c - output - at_the_edge) - output * spare / b) == 0  # fits, and tight for o = 0


@given(seed=st.integers(0, 50), delta=st.sampled_from([0.01, 0.05, 0.2]))
def test_tracked_quantile(seed, delta):  # 3
    rng = np.random.default_rng(seed)
    params = tb.settings(gamma=0.0, miss_frac=delta, step=0.1)
    router, missed, n = TokenBudgetRouter(tb.pools([8192], [8192, 65536]), params), 0, 3000
    level = 4.0
    for _ in range(n):
        level = float(np.clip(level * rng.lognormal(0, 0.05), 1.0, 8.0))
        known = router.categories.get("a")
        missed += level < (known.cap if known else 4.0)
        router.on_response("a", 1000 * level, 1000)
    assert missed / n <= delta + float(bounds.quantile_slack(n, 1.0, 8.0, 0.1))
