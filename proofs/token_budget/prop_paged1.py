r"""NEW-17. With KV pages given out on demand a split by length saves nothing on average, and costs once the cap binds.

PagedAttention lets a sequence hold its own tokens, not the pool's context. If a running sequence holds h tokens on
average, an instance runs N = min(cap, K/h) of them, and an iteration costs $\tau = \max(W h / K, W / cap) + H$, which
is convex in h. The mean holding of all traffic is the work-weighted mean of the classes', so by Jensen the split
costs at least as much, and exactly as much while the cap binds in neither pool (1, 2). What a split can still save
then is not slots but latency of short requests, memory margins, and cheaper GPUs for one class.

**Verdict: proved**, for mean occupancy (no fluctuations, no preemption) and the paper's timing model. The paper
counts a slot as C_max tokens (its Eq. (2)) and has PagedAttention too (its Section 3, effect 1): the savings are the
difference.
"""

import numpy as np
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.catalog import workload
from dmodels.core.workload import Workload
from dmodels.studies.pools import pool_study
from proofs.claim import DMODELS, Claim, Verdict

CLAIM = Claim(
    id="NEW-17",
    source=DMODELS,
    where="studies/pools.PoolStudy.paged_frac",
    says="with pages on demand, a split by length needs at least as many instances as one pool, at mean occupancy",
    verdict=Verdict.PROVED,
    needs=("mean occupancy", "t(n) = W + H n", "the same KV memory in every instance"),
    means="Split by length for latency or to use cheaper GPUs; on an engine with paged KV it does not save instances.",
)


def test_the_cost_is_the_same_while_the_cap_is_far():  # 1
    w, h, k, a, b, phi = sp.symbols("W H K h_s h_l phi", positive=True)
    tau = lambda held: w * held / k + h
    assert sp.expand(phi * tau(a) + (1 - phi) * tau(b) - tau(phi * a + (1 - phi) * b)) == 0


def test_the_cost_is_higher_once_the_cap_binds():  # 1: convexity at the kink
    w, h, k, cap = sp.Integer(8), sp.Rational(13, 20), sp.Integer(2**20), sp.Integer(128)
    tau = lambda held: sp.Max(w * held / k, w / cap) + h
    a, b, phi = sp.Integer(1000), sp.Integer(40000), sp.Rational(1, 2)
    assert phi * tau(a) + (1 - phi) * tau(b) > tau(phi * a + (1 - phi) * b)


@given(seed=st.integers(0, 100))  # 2
def test_no_threshold_saves_anything(seed):
    rng = np.random.default_rng(seed)
    total = np.exp(rng.uniform(np.log(16), np.log(65536), 40))
    share = rng.uniform(0.01, 0.95, 40)
    traffic = Workload(total * (1 - share), total * share, rng.dirichlet(np.ones(40)), rate_rps=100.0)
    study = pool_study(traffic, threshold_tokens=THRESHOLDS, context_tokens=65536, pools_count=2)
    assert (study.paged_frac <= 1e-12).all()


def test_the_papers_trace():  # 2: 16.6 % becomes a loss of 1.7 %
    study = pool_study(workload("azure-paper"), threshold_tokens=THRESHOLDS, pools_count=2)
    assert -0.03 < study.paged_frac[THRESHOLDS.index(8192)] < 0


THRESHOLDS = [1024, 2048, 4096, 8192, 16384, 32768]
