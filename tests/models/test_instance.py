"""One instance under load: Little's law, monotony, the papers' fluid limit, scaling, derivatives."""

from __future__ import annotations

import math
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels import GPU, SLO, Model, Parallel
from dmodels.core.flags import Flag
from dmodels.core.programs import at_once
from dmodels.core.workload import Workload
from dmodels.models.instance import Engine, Roofline, StepTable, operate, step_table
from dmodels.models.latency import Efficiency, iteration_s
from dmodels.models.queueing import fluid_occupancy
from dmodels.models.traffic import LEVELS, Requests, requests_between
from tests.models.closed_loops import numbers, serve_one

H100 = GPU(79.18 * 2**30, 3.35e12, 989e12, 1979e12, 0.0, 450e9, 50e9)
LLAMA_70B = Model(
    80,
    8,
    128,
    hidden_size=8192,
    n_q_heads=64,
    attention_params=1.2e10,
    dense_params=5.64e10,
    head_params=1.05e9,
    embedding_params=1.05e9,
)
RNG = np.random.default_rng(7)
CHAT = Workload(np.ceil(RNG.lognormal(6.5, 1.0, 400)), np.ceil(RNG.lognormal(5.0, 0.8, 400)), np.full(400, 1 / 400))
requests = cache(lambda: requests_between(CHAT))  # nothing is computed where a test is only collected
tp8 = cache(lambda: Roofline(LLAMA_70B, H100, Parallel(8.0), requests(), Efficiency()))
_table, _times = at_once(Roofline.table), at_once(Roofline.times)
of_rungs = lambda steps: _table(numbers(steps))
table = cache(lambda: of_rungs(tp8()))
PROMISE = SLO(2.0, 0.08)

LOADS = 40
instances = jax.jit(jax.vmap(operate, in_axes=(None, None, 0, 0, *[None] * 4, 0, *[None] * 3)))


def at_loads(steps, x, slots=300.0, slowdown=1.0, asked=None, slo=PROMISE, prompt_s=0.0, wait_steps=0.5, engine=None):
    """`operate` at loads x, of whatever number: always `LOADS` at once, since each number would be compiled for."""
    x = np.atleast_1d(x)
    lanes = np.broadcast_to(np.append(x, np.full(LOADS - len(x), x[-1])), LOADS)
    slots, slowdown = np.full(LOADS, slots), np.full(LOADS, slowdown)
    host = prompt_s, 0.0, slowdown, 1.0, 1.0, wait_steps
    found = instances(*numbers((steps, asked or requests(), lanes, slots, slo, engine or Engine(), *host)))
    return jax.tree.map(lambda leaf: np.asarray(leaf)[: len(x)], found)


def at_one(steps, asked, x, slots, slo=None, engine=None):
    """`operate` at one load."""
    return jax.tree.map(np.squeeze, at_loads(steps, x, slots, asked=asked, slo=slo or SLO(), engine=engine))


def times(steps, n):
    """(t_0, K) at counts n: always `LOADS` at once."""
    alone, extra = _times(numbers(steps), np.resize(np.asarray(n, float), LOADS))
    return tuple(np.asarray(t)[: np.size(n)].reshape(np.shape(n)) for t in (alone, extra))


occupancy = at_once(Roofline.occupancy)
occupied = at_once(StepTable.occupancy)
tabled = at_once(step_table)
loaded = lambda *x_slots_slowdown: at_loads(table(), *x_slots_slowdown)


def test_occupancy_obeys_littles_law():
    x = np.linspace(0.05, 8.0, 40)
    at = loaded(x)
    served = np.asarray(at.flags) & Flag.OVERLOAD == 0
    assert served.sum() > 30
    """n = x E[O] t at the mean step t; stalls before an answer's second token are counted on top, so n is no less."""
    step_s = np.asarray(at.decode_count) / (x * float(requests().output_tokens))
    alone = times(tp8(), at.decode_count)[0]
    assert np.all(step_s[served] >= alone[served])
    expected = x * float(requests().output_tokens) * np.asarray(at.tpot_mean_s)
    np.testing.assert_allclose(np.asarray(at.decode_count)[served], expected[served], rtol=0.25)


@pytest.mark.slow  # fifteen seconds of compilation
def test_the_table_follows_the_roofline():
    x = np.linspace(0.05, 8.0, 40)
    at, truth = loaded(x), at_loads(tp8(), x)
    for name in ("ttft_s", "tpot_s", "e2e_s", "decode_count"):
        np.testing.assert_allclose(getattr(at, name), getattr(truth, name), rtol=0.01, err_msg=name)


def test_linear_steps_give_the_papers_fluid_occupancy():
    """arXiv:2604.09613, Eq. (9): W = 8 ms, H = 0.65 ms; n = W x / (1 - H x) at x iterations a second."""
    n = np.concatenate([np.arange(64.0), np.geomspace(64, 1e5, 200)])
    alone = 0.008 + 0.00065 * n
    steps = tabled(n, alone, 0.0 * n, jnp.array([290.0]))
    x = jnp.array([0.1, 1.0, 3.0, 4.5])
    got, none = occupied(steps, x, 290.0, 1e5)
    np.testing.assert_allclose(got, fluid_occupancy(x, 290.0, 0.008, 0.00065), rtol=0.002)
    assert not none.any()


@pytest.mark.parametrize(("w", "h", "k"), [(8e-3, 8e-3, 0.0), (8e-3, 8e-3, 0.02), (8e-3, 1e-4, 0.05)])
def test_a_table_is_exact_where_steps_are_linear_in_the_requests(w, h, k):
    """n (1 - x K) = x E[O] (W + H n), also below one request in flight, where a sequence may cost as much as W."""
    rungs = np.concatenate([np.arange(8.0), np.geomspace(8.0, 8192.0, 32)])
    steps = tabled(rungs, w + h * rungs, k + 0.0 * rungs, jnp.array([200.0]))
    n = np.geomspace(0.01, 2000.0, 300)
    x = n / (200.0 * (w + h * n) + n * k)
    got, none = occupied(steps, x, 200.0, 8192.0)
    np.testing.assert_allclose(got, n, rtol=1e-9)
    assert not none.any()


def test_more_load_is_never_faster():
    at = loaded(np.linspace(0.01, 40.0, LOADS))
    for name in ("ttft_s", "tpot_s", "e2e_s", "wait_s", "decode_count"):
        value = np.asarray(getattr(at, name))
        finite = value[np.isfinite(value)]
        assert np.all(np.diff(finite) >= -1e-6 * finite[1:]), name
        assert np.isfinite(value).tolist() == sorted(np.isfinite(value).tolist(), reverse=True), name


@given(x=st.floats(0.0, 100.0), slots=st.floats(0.0, 1e5), slowdown=st.floats(0.1, 10.0))
def test_what_is_not_flagged_is_finite(x, slots, slowdown):
    at = jax.tree.map(np.squeeze, loaded(x, slots, slowdown))
    if int(at.flags) & (Flag.OVERLOAD | Flag.NO_FIT) == 0:
        assert all(np.isfinite(v) and float(v) >= 0 for v in at)
    assert 0 <= float(at.decode_count) <= max(slots, 1.0)  # overloaded or not
    assert (slots < 1) == bool(int(at.flags) & Flag.NO_FIT)


@pytest.mark.parametrize("part", ["table", "requests", "numbers"])
def test_what_is_no_number_is_never_taken_for_one(part):
    """Bounds are taken without asking whether they are numbers; every point says so in the end."""
    given = {"table": table(), "requests": requests(), "numbers": {"x": 2.0, "slots": 300.0, "slowdown": 1.0}}[part]
    leaves, tree = jax.tree_util.tree_flatten_with_path(given)
    unasked = ("share_frac", "input_tokens", "context_tokens", "longest_tokens")  # the steps' and the memory's
    unasked += ("arrival_rps", "mean_step_s")  # which `step_table` works out from the others
    for place, (path, _) in enumerate(leaves):
        name = jax.tree_util.keystr(path, simple=True)
        if name in unasked:
            continue
        values = [np.array(value, float) for _, value in leaves]
        values[place][...] = np.nan
        one = jax.tree.unflatten(tree, values)
        numbers = one if part == "numbers" else {"x": 2.0}
        found = at_loads(one if part == "table" else table(), asked=one if part == "requests" else None, **numbers)
        assert found.flags & int(Flag.NONFINITE | Flag.OVERLOAD | Flag.NO_FIT), name


def test_twice_as_slow_at_half_the_load_takes_twice_as_long():
    fast, slow = loaded(4.0), loaded(2.0, 300.0, 2.0)
    assert slow.ttft_s == pytest.approx(2 * fast.ttft_s, rel=1e-9)
    assert slow.tpot_s == pytest.approx(2 * fast.tpot_s, rel=1e-9)
    assert slow.decode_count == pytest.approx(fast.decode_count, rel=1e-9)


@pytest.mark.slow  # half a minute of compilation
def test_derivatives_are_those_of_finite_differences():
    """With respect to rate, HBM bandwidth and output length, of TTFT, TPOT, E2E and occupancy."""

    def values(at):
        rate, bandwidth, outputs = at
        asked = requests().replace(output_tokens=outputs)
        gpu = H100.replace(hbm_bytes_per_s=bandwidth)
        found = operate(Roofline(LLAMA_70B, gpu, Parallel(8.0), asked, Efficiency()), asked, rate, 300.0, PROMISE)
        return jnp.stack([found.ttft_s, found.tpot_s, found.e2e_s, found.decode_count])

    at = jnp.array([3.0, 3.35e12, float(requests().output_tokens)])
    slopes = jax.jit(jax.jacfwd(values))(at)
    plain = jax.jit(values)
    steps = 1e-4 * at
    for i in range(3):
        step = steps.at[i].get() * jnp.eye(3)[i]
        expected = (plain(at + step) - plain(at - step)) / (2 * steps[i])
        np.testing.assert_allclose(slopes[:, i], expected, rtol=1e-3)
    assert slopes[1, 1] < 0 < slopes[1, 2]  # bandwidth makes tokens faster, longer answers make them slower
    backwards = jax.jit(jax.grad(lambda at: values(at)[0]))(at)
    np.testing.assert_allclose(backwards, slopes[0], rtol=1e-6)


def test_a_lone_request_takes_what_one_client_of_the_calibrated_loop_measures():
    """An empty instance serves an arrival as the closed loop of one client does, by the same fitted host and steps."""
    e = Efficiency()
    one = requests_between(Workload([2000.0], [300.0], [1.0]))
    steps = of_rungs(Roofline(LLAMA_70B, H100, Parallel(8.0), one, e))
    host = {"prompt_s": 1e-3 * e.prompt_ms, "wait_steps": e.wait_steps}
    alone = at_loads(steps, 1e-6, asked=one, slo=SLO(), **host).ttft_mean_s[0]
    loop = serve_one(LLAMA_70B, H100, 8.0, 2000.0, 300.0, 1.0).ttft_s
    assert float(alone) == pytest.approx(float(loop), rel=0.02)


def test_request_sums_by_hand():
    two = Workload([100.0, 300.0], [11.0, 1.0], [0.75, 0.25], cached_tokens=[50.0, 0.0])
    r = requests_between(two)
    assert float(r.prefill_tokens) == 0.75 * 50 + 0.25 * 300
    assert float(r.prefill_square) == 0.75 * 50**2 + 0.25 * 300**2
    assert float(r.output_tokens) == 0.75 * 11 + 0.25
    assert r.gap_tokens.tolist() == [10.0] * 10  # only the first has gaps
    assert float(r.context_tokens) == pytest.approx((0.75 * 11 * 105.5 + 0.25 * 300.5) / 8.5)
    assert r.prefill_edge_tokens[[0, -1]].tolist() == [50.0, 300.0]
    assert float(r.longest_tokens) == 301.0
    assert r.prefill_edge_tokens[LEVELS == 0.75].tolist() == [50.0]


def test_thresholds_part_the_requests():
    short, long = requests_between(CHAT, 0, 1024), requests_between(CHAT, 1024)
    assert float(short.share_frac + long.share_frac) == pytest.approx(1.0)
    whole = short.share_frac * short.output_tokens + long.share_frac * long.output_tokens
    assert float(whole) == pytest.approx(float(requests().output_tokens))
    assert float(short.longest_tokens) <= 1024 < float(long.longest_tokens)


def test_an_empty_class_asks_for_nothing():
    none = requests_between(CHAT, 1e9)
    at = at_loads(of_rungs(Roofline(LLAMA_70B, H100, Parallel(8.0), none, Efficiency())), 0.0, asked=none, slo=SLO())
    assert float(none.share_frac) == 0.0
    assert at.flags.tolist() == [0]
    assert at.tokens_per_s.tolist() == [0.0]


def test_derivatives_of_the_cost_of_a_token():
    """USD per million output tokens of one tp8 instance, with respect to price and rate, against finite differences."""
    from dmodels.models.cost import usd_per_mtoken

    @jax.jit
    def cost(price_usd_per_hour, rate_rps):
        made = lambda price, rate: usd_per_mtoken(8.0 * price, operate(table(), requests(), rate, 300.0).tokens_per_s)
        slopes = jax.jacfwd(made, (0, 1))(price_usd_per_hour, rate_rps)  # backwards it takes five times as long
        return made(price_usd_per_hour, rate_rps), slopes

    h, (by_price, by_rate) = 1e-5, cost(2.69, 3.0)[1]
    rise = lambda *ends: float(cost(*ends[1])[0] - cost(*ends[0])[0]) / (2 * h)
    assert float(by_rate) == pytest.approx(rise((2.69, 3.0 - h), (2.69, 3.0 + h)), rel=1e-6)
    assert float(by_price) == pytest.approx(rise((2.69 - h, 3.0), (2.69 + h, 3.0)), rel=1e-6)
    assert float(by_rate) < 0 < float(by_price)


def test_a_pool_sees_its_own_requests_alone():
    """Totals of 4 and 12; a third of 99 tokens that never comes."""
    load = Workload([1.0, 1.0, 90.0], [3.0, 11.0, 9.0], [0.5, 0.5, 0.0])
    every = requests_between(load)
    assert (every.share_frac, every.longest_tokens, every.output_tokens) == (1.0, 12.0, 7.0)
    assert every.output_scv == pytest.approx(65 / 49 - 1)  # E[o^2] = (9 + 121) / 2
    assert requests_between(load, 4.0, 12.0).output_tokens == 11.0 == requests_between(load, 4.0).output_tokens
    assert requests_between(load, 0.0, 4.0).output_tokens == 3.0
    assert requests_between(load, 0.0, 4.0).output_scv == 0.0
    nobody = requests_between(load, 12.0)
    assert {float(np.max(x)) for x in jax.tree.leaves(nobody.replace(gap_tokens=0.0))} == {0.0}


def test_half_of_the_answers_have_one_gap():
    """Two and eleven tokens: the classes of the shorter half have 1 gap, the two of the longer 10."""
    load = Workload([1.0, 1.0, 1.0], [2.0, 11.0, 1.0], [0.4, 0.4, 0.2])
    assert requests_between(load).gap_tokens.tolist() == [1.0] * 8 + [10.0] * 2


RUNGS = np.concatenate([np.arange(8.0), np.geomspace(8.0, 8192.0, 32)])


def steps_of(asked, alone=8e-3, mate=2e-4, prompt=0.03, crowd=1e-4, tokens=700.0):
    """Steps of `alone` + `mate` n seconds, `prompt` + `crowd` n more with a prompt of `tokens`."""
    without, more = alone + mate * RUNGS, prompt + crowd * RUNGS
    return step_table(RUNGS, without, more, asked.decode_steps, without + 8192.0 / tokens * more)


MIXED = Requests(
    1.0,
    900.0,
    700.0,
    9e5,
    200.0,
    0.6,
    1000.0,
    np.linspace(50.0, 2500.0, 11),
    np.linspace(5.0, 900.0, 11),
    np.geomspace(3.0, 800.0, 10),
    4000.0,
)


PREFILL = MIXED.replace(output_tokens=0.0, output_scv=0.0, output_edge_tokens=np.zeros(11), gap_tokens=np.full(10, 1e9))


def test_each_promise_alone_is_missed_and_said():
    found = lambda slo: at_one(steps_of(MIXED), MIXED, 1.5, 300.0, slo)
    kept = found(SLO())
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        s = float(getattr(kept, name))
        flags = [int(found(SLO(**{name: limit})).flags) for limit in (1.000001 * s, 0.999 * s)]
        assert flags == [0, Flag.SLO_MISS]


def test_an_instance_that_cannot_keep_up_takes_for_ever():
    """Two slots for its answers, and prompts of more than a thirtieth of a second at 33 a second."""
    for r, rate, slots in ((MIXED, 5.0, 2.0), (PREFILL, 33.0, 1e6)):
        found = at_one(steps_of(r), r, rate, slots)
        assert int(found.flags) == Flag.OVERLOAD
        waits = [found.ttft_s, found.ttft_mean_s, found.tpot_s, found.tpot_mean_s, found.e2e_s, found.wait_s]
        assert np.isinf(waits).all()
        assert int(at_one(steps_of(r), r, rate, slots, SLO(1.0)).flags) == Flag.OVERLOAD | Flag.SLO_MISS


def test_at_its_capacity_to_the_second_it_is_overloaded():
    """Steps of 0.25 s, which 8,192 tokens fill and make as long again: two prompts a second; then one slot."""
    r = PREFILL.replace(prefill_tokens=8192.0, prefill_square=8192.0**2)
    for prompt_s, rate, slots in ((0.25, 2.0, 50.0), (0.5, 1.0, 1.0)):
        steps = steps_of(r, 0.25, 0.0, prompt_s, 0.0, tokens=8192.0)
        flags = [int(at_one(steps, r, x, slots).flags) for x in (rate, 0.999 * rate)]
        assert flags == [Flag.OVERLOAD, 0]


def test_one_request_fits_into_one_slot():
    found = [at_one(steps_of(MIXED), MIXED, 0.01, slots) for slots in (0.9, 1.0)]
    assert [(int(f.flags), float(f.slots_count)) for f in found] == [(Flag.NO_FIT, 1.0), (0, 1.0)]


def test_without_arrivals_one_request_would_find_nobody():
    """Its first token after half a step of waiting, a step and its prompt's own; its others with nobody but itself."""
    found = at_one(steps_of(MIXED), MIXED, 0.0, 300.0)
    assert (float(found.decode_count), float(found.wait_s), int(found.flags)) == (0.0, 0.5 * 8e-3, 0)
    assert float(found.ttft_mean_s) == pytest.approx(1.5 * 8e-3 + 0.03)
    assert float(found.tpot_mean_s) == pytest.approx(8.2e-3)


def test_a_table_is_read_along_straight_lines_and_beyond_its_last():
    n = np.array([0.0, 1.0, 4.0, 10.0, 10.0])
    steps = tabled(n, 0.01 + 0.001 * n**2, 0.05 - 0.002 * n, 100.0)
    at = np.array([0.0, 0.5, 3.0, 9.0])
    alone, extra = steps.times(at)
    np.testing.assert_allclose(alone, np.interp(at, n[:4], 0.01 + 0.001 * n[:4] ** 2), rtol=1e-12)
    np.testing.assert_allclose(extra, 0.05 - 0.002 * at, rtol=1e-12)
    beyond, _ = step_table(n[:4], 0.01 + 0.001 * n[:4] ** 2, 0.0 * n[:4], 100.0).times(16.0)
    assert float(beyond) == pytest.approx(0.11 + 6 * (0.11 - 0.026) / 6)
    assert float(steps.times(-1.0)[0]) == pytest.approx(0.01)


def test_a_table_knows_the_arrivals_that_keep_so_many_decoding():
    """n = x (E[O] t_0 + n K): at 4 decoding, 0.01 + 0.004 and 0.05 s, answers of 100: 4/(1.4 + 0.2)."""
    n = np.array([0.0, 4.0, 8.0])
    steps = tabled(n, 0.01 + 0.001 * n, np.full(3, 0.05), 100.0)
    np.testing.assert_allclose(steps.arrival_rps, [0.0, 2.5, 8 / 2.2], rtol=1e-12)
    np.testing.assert_allclose(steps.mean_step_s, [0.01, 0.016, 0.022], rtol=1e-12)
    none = tabled(n, 0.01 + 0.001 * n, np.full(3, 0.05), 0.0)  # a prefill worker
    np.testing.assert_allclose(none.arrival_rps, [0.0, 20.0, 20.0], rtol=1e-12)
    np.testing.assert_allclose(none.mean_step_s, 0.01 + 0.001 * n, rtol=1e-12)


@pytest.mark.parametrize("x", [0.3, 2.0, 3.5])
def test_occupancy_of_linear_steps_from_a_table(x):
    """n = x E[O] W/(1 - x (E[O] H + K)) whatever the rungs."""
    n = np.array([0.0, 4.0, 8.0, 40.0])
    steps = tabled(n, 0.01 + 0.001 * n, np.full(4, 0.05), 100.0)
    found, short = occupied(steps, x, 100.0, 30.0)
    assert float(found) == pytest.approx(x * 1.0 / (1 - x * 0.15)) and not bool(short)
    few, short = occupied(steps, x, 100.0, 4.0)
    assert (float(few), bool(short)) == (min(float(found), 4.0), x > 2.5)
    assert not bool(occupied(steps, x, 0.0, 0.01)[1])  # nothing decodes


def test_arrivals_that_fill_the_slots_to_the_digit_are_not_too_many():
    """One token each, steps of 0.5 s and 0.125 s more with a prompt: 4/(0.5 + 4/8) a second keep four decoding."""
    n = np.array([0.0, 4.0, 8.0])
    steps = tabled(n, np.full(3, 0.5), np.full(3, 0.125), 1.0)
    found = [occupied(steps, x, 1.0, 4.0) for x in (4.0, 4.01)]
    assert [(float(count), bool(short)) for count, short in found] == [(4.0, False), (4.0, True)]


HEAVY = Roofline(
    Model(32, 8, 128, hidden_size=4096, dense_params=8e9, n_q_heads=32),
    GPU(8e10, 2e12, 3e14),
    Parallel(2.0, 1.0, 1.0),
    MIXED,
    Efficiency(),
)


def mixed_step_s(decoding, prompt_tokens, steps=HEAVY):
    """700 new tokens see 200 in the cache, and of one another the mean square of prompts over twice their mean."""
    place, seen = (steps.model, steps.gpu, steps.parallel), 9e5 / 1400 + 200
    before = (decoding, 1000.0, prompt_tokens, seen - prompt_tokens / 2)
    return float(iteration_s(*place, *before, steps.efficiency))


def test_a_prompt_that_comes_alone_adds_its_own_step():
    """Answers of 10^9 tokens: 20 requests begin hardly any prompt per step."""
    steps = HEAVY._replace(requests=MIXED.replace(output_tokens=1e9))
    alone, extra = times(steps, 20.0)
    assert float(alone) == pytest.approx(mixed_step_s(20.0, 0.0))
    assert float(extra) == pytest.approx(mixed_step_s(20.0, 700.0) - float(alone), rel=1e-3)


def test_where_no_prompts_come_they_add_nothing_at_all():
    """A decode worker: not even a rounding error, which would be stalls of some shape."""
    decoder = MIXED.replace(prefill_tokens=0.0, prefill_square=0.0, prefill_edge_tokens=np.zeros(11))
    steps = of_rungs(HEAVY._replace(requests=decoder))
    assert not np.asarray(steps.extra_s).any() and (np.asarray(steps.alone_s) > 0).all()


def test_prompts_of_one_step_pay_its_launches_once():
    """600 requests that decode 199 steps each begin 3.02 prompts per step, which 95 % of the steps share."""
    alone, extra = times(HEAVY, 600.0)
    begun = 600.0 / 199.0
    busy = 1.0 - np.exp(-begun)
    whole = busy * (mixed_step_s(600.0, 700.0 * begun / busy) - mixed_step_s(600.0, 0.0))
    assert begun * float(extra) == pytest.approx(whole, rel=2e-3)  # those without are short, so that none comes in more
    each = mixed_step_s(600.0, 700.0) - float(alone)
    assert float(extra) < each - 0.6 * 32 * 1e-6 * float(HEAVY.efficiency.prefill_layer_us)


def test_a_prompt_longer_than_the_budget_takes_several_steps():
    """700 tokens in steps of 100: seven of them, each with launches of its own."""
    alike = MIXED.replace(output_tokens=1e9, prefill_edge_tokens=np.full(11, 700.0))
    chunked = HEAVY._replace(max_num_batched_tokens=100.0, requests=alike)
    extra = times(chunked, 20.0)[1]
    place, seen = (HEAVY.model, HEAVY.gpu, HEAVY.parallel), 9e5 / 1400 + 200
    one = float(iteration_s(*place, 20.0, 1000.0, 100.0, seen - 50, HEAVY.efficiency)) - mixed_step_s(20.0, 0.0)
    assert float(extra) == pytest.approx(7.0 * one, rel=1e-6)


@pytest.mark.slow  # seven seconds of compilation; plans take the table, which keeps to Little's law (above)
@pytest.mark.parametrize("x", [0.5, 6.0])
def test_occupancy_of_a_roofline_balances_arrivals_and_leavers(x):
    """n (1 - x K(n)) = x E[O] t_0(n), to the last digits."""
    found, short = occupancy(HEAVY, x, 200.0, 5000.0)
    alone, extra = times(HEAVY, found)
    assert float(found * (1 - x * extra)) == pytest.approx(float(x * 200.0 * alone), rel=1e-11) and not bool(short)


@pytest.mark.slow  # ten seconds of compilation
def test_occupancy_of_a_roofline_grows_with_arrivals_as_its_balance_says():
    """n (1 - x K) - x E[O] t_0 stays 0: dn/dx is what it loses with x over what it gains with n."""
    n, more = jax.jvp(lambda x: occupancy(HEAVY, x, 200.0, 5000.0)[0], (3.0,), (1.0,))
    (low, below), (alone, extra), (high, above) = (times(HEAVY, n + step) for step in (-1e-3, 0.0, 1e-3))
    gains = 1 - 3.0 * (extra + n * (above - below) / 2e-3) - 3.0 * 200.0 * (high - low) / 2e-3
    assert float(more) == pytest.approx(float((n * extra + 200.0 * alone) / gains), rel=1e-5)


@pytest.mark.slow  # the same program
def test_a_roofline_without_a_balance_fills_its_slots():
    """A thousandth more than the balance is enough."""
    n = float(occupancy(HEAVY, 3.0, 200.0, 5000.0)[0])
    for x, slots, expected in ((3.0, 0.9 * n, 0.9 * n), (3.0, 1.001 * n, n), (1e3, 77.0, 77.0)):
        found, short = occupancy(HEAVY, x, 200.0, slots)
        assert (float(found), bool(short)) == (pytest.approx(expected), expected != n)
    assert [float(v) for v in occupancy(HEAVY, 0.0, 200.0, 50.0)] == [0.0, 0.0]


def test_the_table_of_a_roofline_holds_its_steps():
    """Every count up to 8, then 32 in a geometric row."""
    steps = of_rungs(HEAVY)
    counts = np.asarray(steps.decode_count)
    assert counts.shape == (40,) and counts[:9].tolist() == list(range(9)) and counts[-1] == pytest.approx(8192.0)
    np.testing.assert_allclose(np.diff(np.log(counts[8:])), math.log(1024) / 31, rtol=1e-9)
    alone, extra = times(HEAVY, counts)
    other = jax.jit(lambda steps: steps.table(4096.0).decode_count)(HEAVY)  # the times are not compiled
    assert float(other[-1]) == pytest.approx(4096.0)
    np.testing.assert_allclose(steps.alone_s, alone, rtol=1e-12)
    np.testing.assert_allclose(steps.arrival_rps, counts / (199.0 * alone + counts * extra), rtol=1e-9)


def test_no_token_waits_longer_than_a_step_whose_budget_is_full():
    """Prompts of 3 s, but a step takes 40 ms at most: then so does every token, where it would have taken seconds."""
    n = RUNGS
    long = MIXED.replace(prefill_tokens=60_000.0, prefill_square=7.2e9)
    long = long.replace(gap_tokens=np.full(10, 20.0), output_tokens=21.0, output_scv=0.0)
    small = Engine(max_num_batched_tokens=800.0)
    tables = [step_table(n, 0.01 + 0.0 * n, 2.25 + 0.0 * n, 21.0, full_s=full) for full in (0.04, 1e30)]
    bounded, free = (at_one(steps, long, 0.2, 64.0, engine=small) for steps in tables)
    assert float(bounded.tpot_s) == pytest.approx(0.04, rel=1e-6)
    assert 0.01 < float(bounded.tpot_mean_s) < 0.04
    assert float(free.tpot_s) > 0.4
