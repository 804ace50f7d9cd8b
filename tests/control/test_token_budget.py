"""Token-budget dispatch: Algorithm 1's rules, its invariants for any stream, and the plain-Python router beside it."""

from __future__ import annotations

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels.control import token_budget
from dmodels.control.token_budget import TokenBudgetRouter, bounds
from dmodels.control.token_budget import policy as tb
from dmodels.core.errors import InputError

PAPER = tb.settings()
PADDED = tb.settings(gamma=0.0, miss_frac=0.05, step=0.1)
TWO = tb.pools([8192], [8192, 65536], 64)
THREE = tb.pools([2000, 8000], [4096, 8192, 65536], [4, 8, 16])

anything = st.one_of(st.floats(), st.sampled_from([0.0, -1.0, math.inf, math.nan, 1e308, 5e-324]), st.floats(1, 1e5))


@jax.jit
def scan_updates(params, category, prompt_bytes, prompt_tokens):
    def step(state, x):
        new = tb.update(state, *x, params)
        return new, (tb.conservative_ratio(state, params)[x[0]], state.quantile[x[0]])

    return jax.lax.scan(step, tb.init(3, params), (category, prompt_bytes, prompt_tokens))


@jax.jit
def route_all(state, params, category, prompt_bytes, output, queued, where):
    each = lambda c, b, o, q: tb.route(state, c, b, o, q, where, params)
    return jax.vmap(each)(category, prompt_bytes, output, queued)


def test_the_failure_that_construction_does_not_exclude():
    """32,000 bytes of Chinese at the cold ratio 4, 100 tokens of output: estimated 8,100 and admitted, true 16,100."""
    sent = tb.route(tb.init(1), jnp.int32(0), 32000.0, 100.0, jnp.zeros(2), TWO, PAPER)
    assert (int(sent.pool), float(sent.total_tokens), bool(sent.fits)) == (0, 8100.0, True)
    assert 32000 / 2.0 + 100 == 16100 > 8192
    safe = tb.settings(cold_ratio=1.0)  # a byte-level token holds at least a byte
    sent = tb.route(tb.init(1, safe), jnp.int32(0), 32000.0, 100.0, jnp.zeros(2), TWO, safe)
    assert int(sent.pool) == 1


def test_one_response_by_hand():
    """c: 4 -> 3.95 on an observation of 3; sigma: 0.05 |3 - 3.95|; the standard deviation of 4 and 3 is sqrt(1/2)."""
    state = tb.update(tb.init(1), jnp.int32(0), 300.0, 100.0, PAPER)
    assert float(state.ratio[0]) == pytest.approx(3.95)
    assert float(state.spread[0]) == pytest.approx(0.05 * 0.95)
    assert float(tb.deviation(state)[0]) == pytest.approx(math.sqrt(0.5))
    assert float(tb.conservative_ratio(state, PAPER)[0]) == pytest.approx(3.95 - 0.0475)
    assert [float(leaf[0]) for leaf in state] == pytest.approx([3.95, 0.0475, 0.0475, 0.905, 64.0, 1.0])
    for rule in (PAPER, tb.settings(gamma=0.0, sigmas=0.5), tb.settings(miss_frac=0.1)):
        live, state = TokenBudgetRouter(TWO, rule), tb.update(tb.init(1, rule), jnp.int32(0), 300.0, 100.0, rule)
        live.on_response("a", 300.0, 100.0)
        known = live.categories["a"]
        told = [getattr(known, name) for name in tb.Ratios._fields] + [known.cap]
        assert told == pytest.approx([float(leaf[0]) for leaf in (*state, tb.conservative_ratio(state, rule))])
        assert known.cap < 3.95


def test_averages_are_those_of_their_weights():
    """The recursions against the weighted mean and variance over all observations, cold start included."""
    rng = np.random.default_rng(0)
    c = rng.lognormal(1.3, 0.2, 40)
    state, _ = scan_updates(PAPER, jnp.zeros(40, jnp.int32), jnp.asarray(1000.0 * c), jnp.full(40, 1000.0))
    weights = np.concatenate([[0.95**40], 0.05 * 0.95 ** np.arange(39, -1, -1.0)])
    values = np.concatenate([[4.0], c])
    mean = weights @ values
    assert float(state.ratio[0]) == pytest.approx(mean, rel=1e-12)
    unbiased = weights @ (values - mean) ** 2 / (1 - weights @ weights)
    assert float(tb.deviation(state)[0]) == pytest.approx(math.sqrt(unbiased), rel=1e-10)
    assert float(state.count[0]) == 40 and float(state.count[1]) == 0


@settings(max_examples=80)
@given(stream=st.lists(st.tuples(st.integers(0, 2), anything, anything), min_size=20, max_size=20))
@pytest.mark.parametrize("params", [PAPER, PADDED], ids=["paper", "padded"])
def test_the_state_stays_finite_for_any_stream(params, stream):
    category, prompt_bytes, prompt_tokens = (jnp.array(x) for x in zip(*stream, strict=True))
    state, _ = scan_updates(params, category.astype(jnp.int32), prompt_bytes, prompt_tokens)
    assert all(np.isfinite(leaf).all() for leaf in state)
    ratio = np.asarray(tb.conservative_ratio(state, params))
    assert ((ratio >= tb.LOW) & (ratio <= tb.HIGH)).all()


@settings(max_examples=40)
@given(pieces=st.lists(st.tuples(st.floats(1, 6), st.floats(0, 0.6)), min_size=4, max_size=4), seed=st.integers(0, 9))
def test_padding_bounds_under_estimates_for_every_stream(pieces, seed):
    """Ratios that drift and jump within [0.5, 12]: the share of prompts with more tokens than bytes/c* stays near
    5 %."""
    rng = np.random.default_rng(seed)
    c = np.concatenate([np.clip(mean * rng.lognormal(0, s, 500), 0.5, 12.0) for mean, s in pieces])
    tokens = np.full(c.size, 1000.0)
    category = jnp.zeros(c.size, jnp.int32)
    _, (used, quantile) = scan_updates(PADDED, category, jnp.asarray(c * tokens), jnp.asarray(tokens))
    missed, below = c < np.asarray(used) * (1 - 1e-12), c < np.asarray(quantile)
    slack = float(bounds.quantile_slack(c.size, 0.5, 12.0, 0.1))
    assert abs(below.mean() - 0.05) <= slack and missed.mean() <= 0.05 + slack


def test_the_paper_rule_has_no_such_bound():
    """One prompt in five at 1 byte per token, the others at 4.5: c* stays above 1, every fifth is under-estimated."""
    c = np.tile([4.5, 4.5, 4.5, 4.5, 1.0], 400)
    tokens = jnp.full(c.size, 1000.0)
    for params, least, most in ((PAPER, 0.19, 0.21), (PADDED, 0.0, 0.06)):
        _, (used, _) = scan_updates(params, jnp.zeros(c.size, jnp.int32), jnp.asarray(c) * tokens, tokens)
        assert least <= (c < np.asarray(used) * (1 - 1e-12))[200:].mean() <= most


sizes = st.one_of(st.floats(1, 4e5), st.sampled_from([8000.0, 32768.0, 16384.0]))


@settings(max_examples=60)
@given(
    requests=st.lists(
        st.tuples(sizes, st.floats(0, 9000), st.lists(st.integers(0, 30), min_size=3, max_size=3)),
        min_size=16,
        max_size=16,
    ),
    ratio=st.floats(0.02, 40),
)
def test_where_requests_go(requests, ratio):
    state = tb.init(1)._replace(ratio=jnp.array([ratio]))
    prompt_bytes, output, queued = (jnp.asarray(np.array(x, float)) for x in zip(*requests, strict=True))
    sent = route_all(state, PAPER, jnp.zeros(16, jnp.int32), prompt_bytes, output, queued, THREE)
    thresholds, contexts, spill = (np.asarray(x) for x in THREE)
    for i in range(16):
        pool, total, waiting = int(sent.pool[i]), float(sent.total_tokens[i]), np.asarray(queued[i])
        homes = [p for p in range(3) if total <= min(thresholds[p], contexts[p])]
        home = homes[0] if homes else 2
        assert bool(sent.fits[i]) == (total <= contexts[pool])
        if pool != home:  # a spill: home is overloaded, the other is not and holds the request
            assert waiting[home] > spill[home] and waiting[pool] <= spill[pool] and total <= contexts[pool]
        else:  # no spill: home has room, or nobody else could take it
            others = [p for p in range(3) if waiting[p] <= spill[p] and total <= contexts[p]]
            assert waiting[home] <= spill[home] or not others
        assert total >= float(prompt_bytes[i]) / ratio + float(output[i]) - 1e-6


@settings(max_examples=40)
@given(
    stream=st.lists(
        st.tuples(
            st.integers(0, 2),
            sizes,
            st.floats(1, 1e5),
            st.integers(0, 9000),
            st.lists(st.integers(0, 30), min_size=3, max_size=3),
        ),
        min_size=25,
        max_size=25,
    ),
    params=st.sampled_from([PAPER, PADDED, tb.settings(gamma=0.0, sigmas=2.0, cold_ratio=1.0)]),
)
def test_the_live_router_decides_as_the_pure_functions(stream, params):
    router, state = TokenBudgetRouter(THREE, params), tb.init(3, params)
    for category, prompt_bytes, prompt_tokens, output, queued in stream:
        c, waiting = jnp.int32(category), jnp.array(queued, float)
        pure = ROUTE(state, c, prompt_bytes, float(output), waiting, THREE, params)
        live = router.route(category, prompt_bytes, output, queued)
        assert (live.pool, live.total_tokens, live.fits) == (int(pure.pool), float(pure.total_tokens), bool(pure.fits))
        router.on_response(category, prompt_bytes, prompt_tokens)
        state = UPDATE(state, c, prompt_bytes, prompt_tokens, params)
    for category, known in router.categories.items():
        assert known.ratio == pytest.approx(float(state.ratio[category]), rel=1e-12)
        assert known.count == float(state.count[category])


ROUTE, UPDATE = jax.jit(tb.route), jax.jit(tb.update)


def test_gains_map_over_one_stream():
    """vmap over gamma: more padding, never a shorter total."""
    rng = np.random.default_rng(1)
    tokens = jnp.full(200, 500.0)
    seen = jnp.asarray(rng.lognormal(1.2, 0.3, 200)) * tokens
    gammas = jnp.array([0.0, 1.0, 2.0, 4.0])
    mapped = PAPER._replace(gamma=gammas)
    axes = tb.RatioSettings(None, 0, None, None, None, None, None)
    state, _ = jax.vmap(scan_updates, in_axes=(axes, None, None, None))(mapped, jnp.zeros(200, jnp.int32), seen, tokens)
    ratio = jax.vmap(tb.conservative_ratio, in_axes=(0, axes))(state, mapped)[:, 0]
    assert (np.diff(ratio) < 0).all()


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (
            lambda: tb.settings(beta=1.0),
            "beta 1.0, gamma 1.0, sigmas 0.0, cold_ratio 4.0; accepted: 0 <= beta < 1, gamma and sigmas from 0, "
            "cold_ratio from 0.015625 to 64",
        ),
        (lambda: tb.settings(gamma=-1.0), "beta 0.95, gamma -1.0, sigmas 0.0"),
        (lambda: tb.settings(gamma=math.inf), "gamma inf"),
        (lambda: tb.settings(sigmas=-1.0), "gamma 1.0, sigmas -1.0, cold_ratio 4.0"),
        (lambda: tb.settings(sigmas=math.inf), "sigmas inf"),
        (lambda: tb.settings(beta=-0.1), "beta -0.1"),
        (lambda: tb.settings(cold_ratio=0.0), "cold_ratio 0.0; accepted"),
        (lambda: tb.settings(cold_ratio=64.5), "cold_ratio 64.5; accepted"),
        (lambda: tb.settings(miss_frac=0.0), "miss_frac 0.0, step 0.05; accepted"),
        (lambda: tb.settings(miss_frac=1.0), "miss_frac 1.0"),
        (lambda: tb.settings(miss_frac=0.1, step=0.0), "miss_frac 0.1, step 0.0; accepted"),
        (lambda: tb.settings(miss_frac=0.1, step=math.inf), "step inf"),
        (
            lambda: tb.pools([9000], [8192, 65536], 7),
            r"thresholds_tokens \[9000.0, 65536.0\], contexts_tokens \[8192.0, 65536.0\], spill_count \[7.0, 7.0\]",
        ),
        (lambda: tb.pools([1, 2, 3, 4], [8192, 65536]), "thresholds_tokens"),
    ],
)
def test_mistakes_name_the_field(call, word):
    with pytest.raises(InputError, match=word):
        call()


def test_settings_as_they_come_and_at_their_ends():
    """The paper's gains; a quantile moves by a twentieth; pools never spill unless they are told to."""
    assert tb.settings() == tb.settings(0.95, 1.0, 0.0, None, 0.05, 4.0)
    assert tb.settings(miss_frac=0.1) == tb.settings(miss_frac=0.1, step=0.05)
    for edge in (tb.LOW, tb.HIGH):
        assert tb.settings(0.0, 0.0, 0.0, cold_ratio=edge).cold_ratio == edge
    assert tb.pools([1], [2, 3]).spill_count.tolist() == [math.inf] * 2
    own = tb.settings(0.9, 0.5, 2.0, 0.1, 0.05, 3.0)
    assert own[:3] == (0.9, 0.5, 2.0) and own[5:] == (3.0, 3.0)  # the quantile begins at the cold ratio
    assert TokenBudgetRouter(TWO).params == tb.settings()
    start = tb.init(1)
    assert [float(leaf[0]) for leaf in start] == [4.0, 0.0, 0.0, 1.0, 64.0, 0.0]


def test_without_a_word_on_waiting_the_router_goes_by_its_own_queues():
    """Of two pools, the first of which may keep 64 waiting."""
    router = TokenBudgetRouter(TWO)
    assert router.route("a", 400.0, 10).pool == 0 == router.route("a", 400.0, 10, [0, 99]).pool
    router.queued[0] = 65
    assert router.route("a", 400.0, 10).pool == 1 and router.route("a", 400.0, 10, [64, 0]).pool == 0


def test_responses_without_a_count_and_a_quantile_that_is_off_change_nothing():
    rule = token_budget.settings()
    start = token_budget.init(1, rule)
    for tokens in (0.0, -1.0, math.inf, math.nan):
        assert all(
            (new == old).all()
            for new, old in zip(token_budget.update(start, 0, 40.0, tokens, rule), start, strict=True)
        )
    for tokens in (5.0, 30.0, 1e-6):  # 8 and 1.3 bytes a token, and more than there can be
        assert float(token_budget.update(start, 0, 40.0, tokens, rule).quantile[0]) == float(start.quantile[0])


def test_nine_hits_make_up_for_one_miss_in_ten():
    rule = token_budget.settings(miss_frac=0.1, step=0.05)
    state = start = token_budget.init(1, rule)
    for tokens in [20.0, *[1.0] * 9]:  # 1 byte a token, below the quantile of 4; then 20 of them above
        state = token_budget.update(state, 0, 20.0, tokens, rule)
    assert float(state.quantile[0]) == pytest.approx(float(start.quantile[0]), rel=1e-12)


def test_a_response_of_no_bytes_or_endless_ones_teaches_nothing():
    """Nor does one of no tokens; neither a live router."""
    rule, live = token_budget.settings(), TokenBudgetRouter(TWO)
    start = token_budget.init(1, rule)
    for size in (0.0, -1.0, math.inf, math.nan):
        after = token_budget.update(start, 0, size, 10.0, rule)
        assert [np.asarray(a).tolist() for a in after] == [np.asarray(b).tolist() for b in start]
        live.on_response("a", size, 10.0), live.on_response("a", 10.0, size)
    assert live.categories == {}


def test_who_remembers_nothing_goes_by_the_last_response_alone():
    """Without a decay nothing spreads, so that no padding is left; by the functions and by the live router."""
    rule = tb.settings(beta=0.0, sigmas=3.0)
    live, state = TokenBudgetRouter(TWO, rule), tb.init(1, rule)
    for tokens, total in ((100.0, 4.0), (50.0, 2.0)):
        live.on_response("a", 300.0, tokens)
        state = tb.update(state, jnp.int32(0), 300.0, tokens, rule)
        assert live.route("a", 12.0, 0).total_tokens == total
        assert 12.0 / float(tb.conservative_ratio(state, rule)[0]) == pytest.approx(total, rel=1e-12)


def test_a_ratio_on_the_quantile_raises_it():
    rule = token_budget.settings(miss_frac=0.1, step=0.05)
    start = token_budget.init(1, rule)._replace(quantile=np.array([4.0]))
    start = type(start)(*map(jnp.asarray, start))
    on, below = (float(token_budget.update(start, 0, size, 16.0, rule).quantile[0]) for size in (64.0, 63.0))
    assert below < 4.0 < on


def test_a_request_spills_to_the_pool_with_the_least_waiting_for_its_limit():
    """One waiting of one allowed is worse than three of four."""
    where = token_budget.pools([10.0, 20.0, 30.0], [100.0, 200.0, 300.0], [2.0, 1.0, 4.0])
    assert int(token_budget.dispatch(5.0, jnp.array([9.0, 1.0, 3.0]), where).pool) == 2
    assert int(token_budget.dispatch(5.0, jnp.array([9.0, 0.0, 3.0]), where).pool) == 1


def test_failures_lower_the_live_threshold_and_its_bound_holds_for_a_pool_that_fails_above_some_length():
    """Answers over 3,000 tokens fail: the threshold ends near it, the share of failures below its bound (`adapt`)."""
    own = token_budget.threshold_settings(512.0, 8192.0, target_frac=0.02, step=0.05)
    router = TokenBudgetRouter(tb.pools([8192], [8192, 65536]), tb.settings(gamma=0.0, cold_ratio=1.0), [own])
    rng, failed, answered, expected = np.random.default_rng(0), 0, 0, 8192.0
    for total in rng.integers(200, 9000, 20_000).tolist():
        sent = router.route("text", total - 100, 100)
        fails = sent.pool == 0 and total > 3000
        router.on_outcome(sent.pool, fails)
        if sent.pool == 0:
            failed, answered = failed + fails, answered + 1
            if answered <= 100:
                expected = float(token_budget.adapt(expected, 1.0, float(fails), own))
                assert router.thresholds[0] == pytest.approx(expected, rel=1e-9)
    assert router.thresholds[1] == 65536
    assert 2700 < router.thresholds[0] < 3700
    assert 0.01 < failed / answered <= float(token_budget.failure_bound(answered, 8192.0, own))


def test_the_threshold_stays_where_nothing_is_adaptive_or_the_long_pool_answers():
    own = token_budget.threshold_settings(512.0, 8192.0)
    for router in (TokenBudgetRouter(TWO), TokenBudgetRouter(TWO, adaptive=[own])):
        router.on_outcome(1, True)
        assert router.thresholds == [8192.0, 65536.0]


@pytest.mark.parametrize("low, high, count", [(9000.0, 9000.0, 1), (512.0, 65536.0, 1), (512.0, 8192.0, 2)])
def test_limits_of_an_adaptive_threshold_lie_around_it(low, high, count):
    said = rf"adaptive: limits {re.escape(str([(low, high)] * count))} of thresholds \[8192.0, 65536.0\]; accepted"
    with pytest.raises(InputError, match=said):
        TokenBudgetRouter(TWO, adaptive=[token_budget.threshold_settings(low, high)] * count)


def test_a_pool_may_spill_as_soon_as_somebody_waits():
    where = tb.pools([10.0], [10.0, 20.0], 0.0)
    assert [int(tb.dispatch(5.0, np.array(waiting), where).pool) for waiting in ([0.0, 0.0], [1.0, 0.0])] == [0, 1]
    with pytest.raises(InputError, match="spill_count"):
        tb.pools([10.0], [10.0, 20.0], -1.0)
