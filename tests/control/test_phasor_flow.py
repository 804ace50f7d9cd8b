"""Pool control: the hysteresis that excludes flapping, shown on both sides of its condition."""

from __future__ import annotations

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels.control.phasor import flow
from dmodels.core.errors import InputError

FAST = flow.settings(cool_steps=0)


def phis(state, load_p, load_d):
    return 1.0 - load_p / state.prefill, 1.0 - load_d / state.decode


def run(rule, params, start, load_p, load_d):
    """(changes (t,), prefill workers (t,)) of one path of loads; mapped over paths."""

    def step(state, loads):
        state, change = rule(state, *phis(state, *loads), params)
        return state, (change, state.prefill)

    return jax.lax.scan(step, start, (load_p, load_d))[1]


def unguarded(state, phi_p, phi_d, params):
    """The direct rule without its condition."""
    to_p = (phi_p < params.theta * phi_d) & (state.decode >= 2)
    to_d = (phi_d < params.theta * phi_p) & (state.prefill >= 2) & ~to_p
    return flow._turned(state, to_p, to_d, params)


def reversals(change):
    """Moves that undo the move of the epoch before."""
    change = np.asarray(change)
    return int(((change[..., 1:] * change[..., :-1]) == -1).sum())


def many(rule, params, start, paths, steps, seed, low=0.0, high=5.5, drift=0.0):
    """Random load paths: a base each, and steps around it within +-drift."""
    keys = jax.random.split(jax.random.key(seed), 4)
    base = jax.random.uniform(keys[0], (2, paths, 1), minval=low, maxval=high)
    wander = 1.0 + drift * jax.random.uniform(keys[1], (2, paths, steps), minval=-1.0, maxval=1.0)
    load_p, load_d = base * wander
    return jax.jit(jax.vmap(lambda p, d: run(rule, params, start, p, d)))(load_p, load_d)


def test_the_critical_freeness():
    """0.446 at 4 and 4 and theta 0.62; loads (3.3, 2.8) lie below it and flap for ever without the condition."""
    assert float(flow.y_crit(4.0, 4.0, 0.62)) == pytest.approx(0.4458, abs=1e-4)
    steps = jnp.ones(50)
    change, _ = run(unguarded, FAST, flow.init(4.0, 4.0), 3.3 * steps, 2.8 * steps)
    assert reversals(change) == 49
    change, _ = run(flow.transfer, FAST, flow.init(4.0, 4.0), 3.3 * steps, 2.8 * steps)
    assert not change.any()


@settings(max_examples=60)
@given(n_p=st.integers(1, 12), n_d=st.integers(2, 12), theta=st.fractions(Fraction(1, 20), Fraction(19, 20)))
def test_the_condition_is_exact(n_p, n_d, theta):
    """In rationals: at y_crit the move leaves Phi_D' = theta Phi_P'; just below it a firing state flaps."""
    slope = Fraction(n_d, n_d - 1) - theta**2 * Fraction(n_p, n_p + 1)
    y = (theta / (n_p + 1) + Fraction(1, n_d - 1)) / slope
    assert float(flow.y_crit(n_p, n_d, float(theta))) == pytest.approx(float(y), rel=1e-12)
    after = lambda x, n, m: 1 - (1 - x) * n / m  # freeness of a pool of n once it has m workers
    given_up, gained = after(y, n_d, n_d - 1), after(theta * y, n_p, n_p + 1)
    assert given_up == theta * gained
    tiny = Fraction(1, 10**6)
    low, x = y - tiny, theta * (y - tiny) - tiny / 10**3  # fires: x < theta y
    assert after(low, n_d, n_d - 1) < theta * after(x, n_p, n_p + 1)


def test_a_smaller_theta_is_safer():
    crit = np.asarray(flow.y_crit(4.0, 4.0, jnp.linspace(0.05, 0.95, 19)))
    assert (np.diff(crit) > 0).all()


@pytest.mark.parametrize("start", [(4.0, 4.0), (2.0, 6.0)])
def test_no_immediate_flap_on_many_constant_loads(start):
    change, _ = many(flow.transfer, FAST, flow.init(*start), 20_000, 12, 0)
    assert reversals(change) == 0 and (np.asarray(change) != 0).any(axis=1).mean() > 0.02
    change, _ = many(unguarded, FAST, flow.init(*start), 20_000, 12, 0)
    assert reversals(change) > 1000


@pytest.mark.slow
def test_no_immediate_flap_on_a_hundred_thousand_paths():
    """Loads that jump at random every few epochs; a reversal counts only where the loads are those of the move."""
    jumps = jax.random.uniform(jax.random.key(1), (2, 100_000, 8), maxval=6.0)
    load_p, load_d = jnp.repeat(jumps, 6, axis=2)
    for rule in (flow.transfer, flow.descend):
        one = lambda p, d, rule=rule: run(rule, FAST, flow.init(4.0, 4.0), p, d)
        change, _ = jax.jit(jax.vmap(one))(load_p, load_d)
        change = np.asarray(change).reshape(-1, 6)  # within one load
        assert reversals(change) == 0 and (change != 0).sum() > 10_000


def test_descent_never_returns_while_loads_drift_little():
    """Within the drift limit no configuration comes back; moves go on to within the margin of the best split."""
    params = flow.settings(cool_steps=0, margin=0.2)
    drift = 0.99 * float(flow.drift_limit(0.2))
    _, prefill = many(flow.descend, params, flow.init(6.0, 2.0), 20_000, 30, 2, 0.2, 9.0, drift)
    path = np.concatenate([np.full((20_000, 1), 6.0), np.asarray(prefill)], axis=1)
    moved = np.diff(path, axis=1)
    assert (np.sign(moved).max(axis=1) * np.sign(moved).min(axis=1) >= 0).all()  # one direction only: no return
    assert (moved != 0).any(axis=1).mean() > 0.3


def test_descent_can_return_when_loads_drift_more():
    params = flow.settings(cool_steps=0, margin=0.2)
    change, _ = many(flow.descend, params, flow.init(4.0, 4.0), 4_000, 30, 3, 0.2, 9.0, 0.6)
    assert ((np.asarray(change) == 1).any(axis=1) & (np.asarray(change) == -1).any(axis=1)).any()


def test_descent_ends_at_a_balanced_split():
    """At constant loads, with a small margin: the floor or the ceiling of n L_P/(L_P + L_D), overloaded or not."""
    params = flow.settings(cool_steps=0, margin=1e-6)
    rng = np.random.default_rng(5)
    loads = rng.uniform(0.5, 30.0, (300, 2))
    steady = lambda p, d: run(flow.descend, params, flow.init(4.0, 6.0), p * jnp.ones(9), d * jnp.ones(9))
    _, prefill = jax.jit(jax.vmap(steady))(*jnp.asarray(loads).T)
    best = np.argmin([np.maximum(loads[:, 0] / p, loads[:, 1] / (10 - p)) for p in range(1, 10)], axis=0) + 1
    np.testing.assert_array_equal(np.asarray(prefill)[:, -1], best)
    inside = np.asarray(flow.balanced_prefill(10.0, *loads.T))
    within = (inside >= 1) & (inside <= 9)
    assert (np.abs(best - inside)[within] < 1.0).all()


def test_both_printed_triggers_fire_when_both_pools_are_overloaded():
    """Means (-1, -1): no dead zone; prefill wins the tie, and the standby workers are gone after |M| epochs."""
    assert -1.0 < 0.62 * 1.0 * -1.0
    state, got = flow.init(4.0, 4.0, 2.0), []
    for _ in range(4):
        state, change = flow.promote(state, jnp.float64(-1.0), jnp.float64(-1.0), FAST)
        got.append(int(change))
    assert got == [1, 1, 0, 0] and float(state.prefill) == 6.0


def test_promotion_and_recall_do_not_flap_at_constant_loads():
    """Standby workers, any loads: a change is never undone by the next at the same loads, and changes stop."""
    change, _ = many(flow.promote, FAST, flow.init(4.0, 4.0, 3.0), 5_000, 40, 6, 0.0, 8.0)
    change = np.asarray(change)
    undone = ((change[:, 1:] == 2) & (change[:, :-1] == 1)) | ((change[:, 1:] == -2) & (change[:, :-1] == -1))
    again = ((change[:, 1:] == 1) & (change[:, :-1] == 2)) | ((change[:, 1:] == -1) & (change[:, :-1] == -2))
    assert not undone.any() and not again.any() and not change[:, -8:].any()
    assert (change == 1).any() and (change == -1).any() and (change == 2).any() and (change == -2).any()


def test_cool_down_bounds_the_rate_only():
    params = flow.settings(cool_steps=20)
    steps = jnp.ones(101)
    change, _ = run(unguarded, params, flow.init(4.0, 4.0), 3.3 * steps, 2.8 * steps)
    assert reversals(change) == 100  # the rule below ignores the wait: the condition is what stops it
    params = flow.settings(cool_steps=20, margin=0.01)
    change, _ = run(flow.descend, params, flow.init(7.0, 1.0), 1.0 * steps, 6.0 * steps)
    when = np.flatnonzero(np.asarray(change))
    assert len(when) > 1 and (np.diff(when) >= 20).all()


@settings(max_examples=40)
@given(phi=st.lists(st.tuples(st.floats(), st.floats()), min_size=10, max_size=10))
@pytest.mark.parametrize("rule", [flow.promote, flow.transfer, flow.descend])
def test_workers_are_conserved_for_any_input(rule, phi):
    state = flow.init(2.0, 3.0, 2.0)
    for p, d in phi:
        state, _ = rule(state, jnp.float64(p), jnp.float64(d), FAST)
        assert float(state.prefill + state.decode + state.mixed) == 7.0
        assert float(state.prefill) >= 1 and float(state.decode) >= 1 and float(state.mixed) >= 0


def test_mistakes_name_the_field():
    for asked, said in (
        ({"theta": 1.0}, "theta 1.0, margin 0.1, cool_steps 20.0; accepted"),
        ({"theta": 0.0}, "theta 0.0, margin 0.1"),
        ({"margin": 1.0}, "theta 0.62, margin 1.0, cool_steps 20.0"),
        ({"margin": 0.0}, "margin 0.0"),
        ({"cool_steps": -1.0}, "margin 0.1, cool_steps -1.0; accepted"),
    ):
        with pytest.raises(InputError, match=said):
            flow.settings(**asked)
    assert flow.settings() == (0.62, 0.1, 20.0)  # the paper's, and 20 epochs of 50 ms


RULE = flow.settings(0.5, 0.25, 3.0)


def test_exactly_at_the_least_freeness_a_worker_moves():
    """theta = 1/2: from three workers to one at 6/11, from two to three at 18/29."""
    for gains, gives, least in ((1.0, 3.0, 6 / 11), (3.0, 2.0, 18 / 29)):
        y = float(flow.y_crit(gains, gives, 0.5))
        assert y == pytest.approx(least, rel=1e-12)
        assert int(flow.transfer(flow.init(gains, gives), 0.0, y, RULE)[1]) == 1
        assert int(flow.transfer(flow.init(gives, gains), y, 0.0, RULE)[1]) == -1


def test_a_move_is_made_that_lowers_the_larger_utilisation_by_exactly_the_margin():
    """3 workers' load on 3 is 1 each, on 4 a quarter less; the other pool is idle and gives one."""
    for margin, moves in ((0.25, 1), (0.26, 0)):
        params = flow.settings(0.5, margin, 3.0)
        assert int(flow.descend(flow.init(3.0, 4.0), 0.0, 1.0, params)[1]) == moves
        assert int(flow.descend(flow.init(4.0, 3.0), 1.0, 0.0, params)[1]) == -moves


def test_pools_of_a_batch_begin_with_nothing_changed():
    state = flow.init(np.array([2.0, 3.0]), 4.0)
    assert [np.asarray(leaf).tolist() for leaf in state] == [[2.0, 3.0], [4.0, 4.0]] + [[0.0, 0.0]] * 3
    some = flow.init(2.0, 4.0, np.array([1.0, 0.0]))
    assert [np.asarray(leaf).tolist() for leaf in some] == [[2.0, 2.0], [4.0, 4.0], [1.0, 0.0]] + [[0.0, 0.0]] * 2


def test_three_quarters_of_the_work_takes_three_quarters_of_the_workers():
    assert [float(flow.balanced_prefill(8.0, *loads)) for loads in ((3.0, 1.0), (0.0, 0.0))] == [6.0, 4.0]
    assert float(flow.drift_limit(0.5)) == pytest.approx(1 / 3)
    assert float(flow.without(0.5, 1.0)) == -math.inf


def test_a_pool_that_is_just_free_enough_is_not_helped():
    """theta = 1/2: freeness 1/2 beside 1 is no trigger, and the freer pool can spare a worker."""
    change = lambda p, d: int(flow.promote(flow.init(2.0, 2.0, 1.0), p, d, flow.settings(0.5))[1])
    assert [change(1.0, 0.5), change(0.5, 1.0), change(1.0, 0.49), change(0.49, 1.0)] == [2, -2, -1, 1]


def test_pools_without_work_keep_their_workers():
    """Of an idle and of an unequal pair none is worse off than the other."""
    for prefill, decode in ((4.0, 4.0), (2.0, 6.0), (7.0, 1.0)):
        for rule in (flow.descend, flow.transfer):
            state, change = rule(flow.init(prefill, decode), 1.0, 1.0, FAST)
            assert int(change) == 0 and (float(state.prefill), float(state.decode)) == (prefill, decode)
