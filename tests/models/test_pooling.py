"""Pools: the paper's closed forms, the exact law, and thresholds that nothing beats."""

from itertools import combinations_with_replacement

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels.catalog import workload
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.workload import Workload
from dmodels.models import multiplexing, pooling
from dmodels.models.memory import sequences_that_fit
from dmodels.models.pooling import Headroom, SlotEngine, best_thresholds, savings, split_savings
from dmodels.models.traffic import split, whole
from dmodels.solvers import breakpoints

ENGINE = SlotEngine()
unit = st.floats(0.0, 1.0)


def test_the_papers_table_2_from_its_cdf():
    w = workload("azure-paper")
    everything, (short, _) = whole(w), split(w, 8192.0)
    s = split_savings(
        short.request_frac,
        short.work_frac,
        everything.iterations_count,
        128.0,
        16.0,
        1000.0,
        ENGINE,
        Headroom(**pooling.PAPER_HEADROOM),
    )
    assert [float(x) for x in (s.homo_instances_count, *s[5:7])] == [361, 72, 229]
    assert round(100 * float(s.realized_frac), 1) == 16.6


def test_the_examples_of_equations_7_and_8():
    assert float(pooling.ideal_savings(0.7, 2.0)) == pytest.approx(0.35)
    s = savings(short_frac=0.917, single_rps=3.0, short_rps=13.5, long_rps=0.37)
    assert float(s.ideal_frac) > 0.71 and 0.10 < float(s.routed_frac) < 0.14


_SAVINGS = jax.jit(savings)


@given(alpha=unit, mu=st.floats(0.01, 100), rho=st.floats(1, 64), arrival=st.floats(0.1, 1e5))
def test_ceilings_move_the_savings_within_their_bound(alpha, mu, rho, arrival):
    x, s = arrival / mu, _SAVINGS(alpha, mu, rho * mu, mu, arrival)
    error = 1 - float(s.dual_instances_count) / float(s.homo_instances_count) - float(s.ideal_frac)
    assert -2 / x - 1e-9 < error <= 1 / (x + 1) + 1e-9


@given(work=unit, request=st.floats(0.01, 0.99), mean=st.floats(1, 1e4), short=st.floats(16, 128))
def test_the_paper_with_routed_rates_is_the_law_of_work(work, request, mean, short):
    """Eq. (8) with rates of the requests that each pool gets contains no request fraction at all."""
    s = split_savings(request, work, mean, short, 16.0, 1000.0, ENGINE)
    assert float(s.routed_frac) == pytest.approx(float(pooling.work_savings(work, short, 16.0, ENGINE)), abs=1e-9)


def test_unequal_headroom_saves_without_any_short_request():
    b = Headroom(**pooling.PAPER_HEADROOM)
    assert float(pooling.work_savings(0.0, 128.0, 16.0, ENGINE, b)) == pytest.approx(1 - 1.02 / 1.08)
    assert float(pooling.work_savings(0.0, 128.0, 16.0, ENGINE)) == 0.0


def test_splitting_costs_more_below_the_break_even_rate():
    alpha, rho = np.array([0.5, 0.8, 0.95]), 4.0
    edge = pooling.break_even_rho_long(alpha, rho)
    np.testing.assert_allclose(pooling.routed_savings(alpha, rho, edge), 0.0, atol=1e-12)
    assert (np.asarray(pooling.routed_savings(alpha, rho, 0.9 * edge)) < 0).all()


def test_a_fleet_of_one_splits_into_two():
    s = savings(0.8, 1.0, 4.0, 1.0, arrival_rps=0.9)
    assert float(s.homo_instances_count) == 1 and float(s.dual_instances_count) == 2
    assert not bool(pooling.ceiling_is_safe(s.ideal_frac, 0.9))


@given(alpha=unit, rho=st.floats(1.01, 64), load=st.floats(0.01, 1e4))
def test_a_split_that_saves_one_whole_instance_never_costs_more(alpha, rho, load):
    s = _SAVINGS(alpha, 1.0, rho, 1.0, load)
    if float(s.ideal_frac) * load >= 1 + 1e-9:
        assert float(s.dual_instances_count) <= float(s.homo_instances_count)


def _servers(load, wait):
    """The textbook recursion of Erlang B, one server after another."""
    blocking, n = 1.0, 0
    while True:
        n += 1
        blocking = load * blocking / (n + load * blocking)
        if n > load and blocking * n / (n - load * (1 - blocking)) <= wait * (1 + 1e-9):
            return n


def test_staffing_is_that_of_the_textbook_recursion():
    loads, waits = np.meshgrid([0.01, 0.5, 1.0, 3.3, 20.0, 100.0, 334.0, 2000.0], [0.3, 0.1, 1e-3, 1e-6])
    expected = [[_servers(a, p) for a, p in zip(*row, strict=True)] for row in zip(loads, waits, strict=True)]
    assert np.asarray(multiplexing.servers_count(loads, waits)).tolist() == expected
    assert float(multiplexing.servers_count(0.0, 0.1)) == 0


def test_two_queues_lose_small_and_win_large():
    """phi and r of the Azure trace: no gain below about a hundred servers, 34 of 361 servers at 334 erlang."""
    load = np.array([2.0, 5.0, 20.0, 334.0])
    won = np.asarray(multiplexing.multiplexed_savings(0.329, 1.614, load) * multiplexing.servers_count(load, 0.1))
    assert (won[:3] < 0).all() and won[3] == pytest.approx(34)


def test_bad_rates_are_flagged_not_hidden():
    alpha, single, long = np.array([[0.5, 1.5, 0.5, 0.5], [1.0, 1.0, 0.0, 1.0], [1.0, 1.0, 1.0, 0.0]])
    s = savings(alpha, single, 2.0, long, 10.0)
    flags = np.asarray(s.flags)
    assert flags[0] == 0 and (flags[1:] & Flag.OUT_OF_DOMAIN > 0).all()
    empty = savings(np.array([0.0, 1.0]), 1.0, np.array([0.0, 2.0]), np.array([1.0, 0.0]), 10.0)
    assert (np.asarray(empty.flags) == 0).all()
    assert np.asarray(empty.dual_instances_count).tolist() == [10.0, 5.0]


@given(st.floats(0, 1), st.floats(0.5, 200), st.floats(0.5, 200), st.floats(0.01, 50), st.floats(0, 1e4))
def test_no_number_is_nonfinite_without_a_flag(alpha, single, short, long, arrival):
    s = _SAVINGS(alpha, single, short, long, arrival)
    assert all(np.isfinite(x) for x in s[:3]) or int(s.flags) != 0


def test_gradients_agree_with_finite_differences():
    def saved(x):
        return pooling.work_savings(x[0], x[1], x[2], SlotEngine(x[3], x[4]))

    x = jnp.array([0.4, 100.0, 20.0, 8e-3, 0.65e-3])
    step = 1e-6 * np.diag(np.asarray(x))
    differences = [(saved(x + h) - saved(x - h)) / (2 * h.max()) for h in jnp.asarray(step)]
    np.testing.assert_allclose(jax.grad(saved)(x), differences, rtol=1e-6)


def _brute(price, reached, k):
    n = len(price)
    best = np.inf
    for cut in combinations_with_replacement(range(n), k - 1):
        ends = [*cut, n - 1]
        mass = np.diff(reached[ends], prepend=0.0)
        best = min(best, float(np.sum(price[ends] * mass)))
    return best


@given(st.integers(1, 4), st.lists(st.tuples(st.floats(0, 10), st.floats(0, 1)), min_size=1, max_size=8))
def test_breakpoints_are_optimal_and_the_certificate_shows_it(k, points):
    price, mass = np.array(points).T
    reached = np.cumsum(mass)
    found = breakpoints.solve(price, reached, k)
    ends = found.value["index"]
    paid = float(np.sum(price[ends] * np.diff(reached[ends], prepend=0.0)))
    assert paid == pytest.approx(float(found.value["cost"]), abs=1e-9)
    assert found.value["cost"] == pytest.approx(_brute(price, reached, k), abs=1e-9)
    potential = found.certificate["potential"]
    for fewer in range(1, k):
        ends = breakpoints.breaks(price, reached, potential[:fewer])
        paid = float(np.sum(price[ends] * np.diff(reached[ends], prepend=0.0)))
        assert len(ends) == fewer and paid == pytest.approx(_brute(price, reached, fewer), abs=1e-9)
    for m in range(1, k):
        step = price[None] * (reached[None] - reached[:, None])
        allowed = np.triu(np.ones((len(price), len(price)), bool))
        assert (potential[m][None] <= np.where(allowed, potential[m - 1][:, None] + step, np.inf) + 1e-9).all()


def test_no_threshold_beats_the_best_one():
    rng = np.random.default_rng(7)
    for _ in range(20):
        total = rng.integers(1, 65537, 40).astype(float)
        share = rng.uniform(0.02, 0.9, 40)
        w = Workload(total * (1 - share), total * share, np.full(40, 1 / 40))
        best = best_thresholds(w, 2, 65536.0, ENGINE)
        thresholds = np.concatenate([np.arange(16.0, 65537.0, 16.0), total])
        short, _ = split(w, thresholds)
        every = pooling.work_savings(short.work_frac, pooling.slots_count(thresholds, ENGINE), 16.0, ENGINE)
        assert best.saved_frac >= float(np.max(every)) - 1e-12
        assert best.saved_frac == pytest.approx(float(np.max(every)), abs=1e-9)


def test_more_pools_never_cost_more_and_never_pass_the_limit():
    w = workload("azure-paper")
    saved = [best_thresholds(w, k, 65536.0).saved_frac for k in (1, 2, 3, 4, 8)]
    assert saved[0] == 0 and (np.diff(saved) > 0).all()
    limit = 1 - float(pooling.slot_s(128.0, ENGINE) / pooling.slot_s(16.0, ENGINE))
    assert saved[-1] < limit


def test_a_context_that_no_instance_holds_is_refused():
    with pytest.raises(InputError, match="context_tokens = 2e"):
        best_thresholds(workload("azure-paper"), 2, 2e6)


def test_a_context_that_ends_inside_a_block_takes_the_whole_block():
    """8,200 tokens are 513 blocks of 16: 127 fit in 65,536, not 128."""
    assert float(pooling.slots_count(8200.0, pooling.SlotEngine())) == 127.0


def test_no_arrivals_need_no_instances_and_are_no_mistake():
    s = pooling.savings(0.5, 1.0, 2.0, 1.0, 0.0)
    assert int(s.flags) == 0 and float(s.homo_instances_count) == 0.0 == float(s.dual_instances_count)
    assert int(pooling.savings(0.5, 1.0, 2.0, 1.0, -1.0).flags) != 0


def test_whole_instances_are_safe_from_one_saved_instance_on():
    assert [bool(pooling.ceiling_is_safe(0.2, x)) for x in (4.9, 5.0, 50.0)] == [False, True, True]


def test_a_pool_that_gets_half_the_requests_must_serve_some():
    assert int(pooling.savings(0.5, 1.0, 0.0, 1.0).flags) != 0 != int(pooling.savings(0.5, 1.0, 1.0, 0.0).flags)
    assert int(pooling.savings(0.0, 1.0, 0.0, 1.0).flags) == 0 == int(pooling.savings(1.0, 1.0, 1.0, 0.0).flags)


def test_the_one_threshold_that_parts_two_lengths_is_found():
    """Four blocks of a token: one slot of 4 tokens, or two of 2. Half of the requests have 2 tokens, half 4."""
    engine = pooling.SlotEngine(blocks_count=4.0, block_tokens=1.0)
    found = pooling.best_thresholds(Workload([1.0, 3.0], [1.0, 1.0], [0.5, 0.5]), 2, 4.0, engine)
    assert found.threshold_tokens.tolist() == [2.0, 4.0] and found.work_frac.tolist() == [0.5, 0.5]


def test_room_for_three_sequences_holds_three():
    """In GB: 3, 2.999 and 0.9 of them, and less than nothing."""
    asked = ((3.0, 1.0), (2.999, 1.0), (0.9, 1.0), (-0.5, 0.01))
    assert [float(sequences_that_fit(budget, one)) for budget, one in asked] == [3.0, 2.0, 0.0, 0.0]


def test_no_requests_save_nothing():
    s = pooling.savings(0.5, 1.0, 2.0, 1.0, 0.0)
    assert float(s.realized_frac) == 0.0


def test_a_context_that_no_instance_holds_is_told_what_one_holds():
    short = Workload(np.array([10.0]), np.array([5.0]), np.array([1.0]))
    with pytest.raises(InputError, match="at most 1600,"):
        pooling.best_thresholds(short, 1, 1601.0, pooling.SlotEngine(blocks_count=100.0))
