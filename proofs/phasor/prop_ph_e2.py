r"""PH-E2. Dispatching to the worker of largest $\Phi_T$ balances prefill work (Eq. (2), Algorithm 1 line 3).

**Verdict: conditional.** For equal $P_{peak} T_{SLO}$ argmax Phi is least queued work, and with exact *remaining* work
it is a central first-come queue, request by request (1, 2). With full costs of requests in service it is not (3), and
for unequal workers Phi before the dispatch is the wrong side of it (4).
"""

import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels.control import phasor
from dmodels.sim.cluster import Control, Flow, Workers, simulate
from proofs.claim import PHASOR, Claim, Verdict

CLAIM = Claim(
    id="PH-E2",
    source=PHASOR,
    where="Eq. (2), Algorithm 1",
    says="sending each request to the prefill worker of largest freeness avoids stragglers",
    verdict=Verdict.CONDITIONAL,
    needs=("equal peaks and budgets", "loads count remaining work, not the full cost of what is in service"),
    error="unequal workers: a factor of up to their speed ratio in finish time",
    counterexample="An idle worker and one ten times as fast with 1 unit queued: 5 units go to the idle one and end "
    "at 5.0 instead of 0.6.",
    means="Take progress off the load, and on mixed hardware maximise freeness after the dispatch.",
)


def test_argmax_is_least_work_for_equal_budgets():  # 1
    u, v, c = sp.symbols("u v c", positive=True)
    assert sp.simplify(((1 - u / c) - (1 - v / c)) * c - (v - u)) == 0  # same sign as v - u


@settings(max_examples=25)
@given(jobs=st.lists(st.tuples(st.integers(0, 6), st.integers(1, 12)), min_size=10, max_size=10))
def test_remaining_work_is_a_central_queue(jobs):  # 2
    times, free, first = [], [0, 0, 0], []
    for gap, size in jobs:
        times.append((times[-1] if times else 0) + gap)
        free.sort()
        free[0] = max(free[0], times[-1]) + size
        first.append(free[0])
    sizes = [size for _, size in jobs]
    run = simulate(times, [1] * 10, [1] * 10, sizes, Workers(3, 1), Control(flow=Flow.NONE, theta_frag=0.0))
    assert [round(t, 9) for t in run.first_token_s] == first


def test_full_costs_of_work_in_service_are_not():  # 3
    loads = phasor.State(phasor.init(2).queued_flop + 10.0, phasor.init(2).queued_count + 1.0)
    loads = loads._replace(queued_flop=loads.queued_flop.at[1].set(9.0))
    _, worker = phasor.route(loads, 1.0, phasor.workers(2, 1.0, 1.0))
    assert int(worker) == 1  # sizes 10 at t = 0 and 9 at t = 7; at t = 9 they end at 10 and at 16
    assert (16 - 9, 10 - 9) == (7, 1)


def test_unequal_peaks():  # 4
    import jax.numpy as jnp

    pool = phasor.workers(2, jnp.array([1.0, 10.0]), 1.0)
    state = phasor.State(jnp.array([0.0, 1.0]), jnp.ones(2))
    ends = (5.0 / 1.0, (1.0 + 5.0) / 10.0)
    picks = [int(phasor.route(state, 5.0, pool, before=before)[1]) for before in (True, False)]
    assert [ends[w] for w in picks] == [5.0, 0.6]
