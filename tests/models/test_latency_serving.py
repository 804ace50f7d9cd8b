"""The closed loop: Little's law holds, the cache bounds what decodes, and the slower side rules the rate."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels import GPU, Flag, Model, Parallel
from dmodels.models.latency import Efficiency, decode_step_s, prefill_s, serve
from dmodels.models.memory import residents_of_length
from tests.models.closed_loops import pair, serve_apart, serve_one

H200 = GPU(150e9, 4.8e12, 989e12, 1979e12, 0.0, 450e9, 50e9, 8.0)
LLAMA_70B = Model(
    80,
    8,
    128,
    hidden_size=8192,
    n_q_heads=64,
    attention_params=80 * (2 * 8192**2 + 2 * 8192 * 1024),
    dense_params=80 * 3 * 8192 * 28672,
    head_params=8192 * 128256,
    embedding_params=8192 * 128256,
)

FP8 = LLAMA_70B.replace(attention_dtype_bytes=1.0, dense_dtype_bytes=1.0, kv_dtype_bytes=1.0)
PATIENT = Efficiency()
_prefill = jax.jit(prefill_s)


def prompt_s(tokens, e=PATIENT):
    return float(_prefill(FP8, H200, Parallel(), tokens, e))


def _serve(tp, isl, osl, clients):
    return serve_one(FP8, H200, tp, isl, osl, clients)


@given(
    tp=st.sampled_from([1.0, 2.0, 8.0]), isl=st.floats(16, 30_000), osl=st.floats(2, 8000), clients=st.floats(1, 4000)
)
def test_clients_are_those_decoding_and_those_waiting(tp, isl, osl, clients):
    """Little's law: C = X (TTFT + osl TPOT), with X = decoding / (osl TPOT)."""
    s = _serve(tp, isl, osl, clients)
    rate = s.decode_count / (osl * s.tpot_s)
    assert rate * (s.ttft_s + osl * s.tpot_s) == pytest.approx(clients, rel=1e-9)
    assert s.decode_count <= min(clients, max(float(s.resident_max_count), 1.0)) * (1 + 1e-9)
    assert s.tokens_per_s == pytest.approx(float(s.decode_count / s.tpot_s))


@given(clients=st.floats(1, 500), more=st.floats(1.0, 4.0), isl=st.floats(100, 9000))
def test_more_clients_or_longer_prompts_never_make_it_faster(clients, more, isl):
    one = _serve(2.0, isl, 500.0, clients)
    two, longer = _serve(2.0, isl, 500.0, clients * more), _serve(2.0, isl * more, 500.0, clients)
    assert two.tpot_s >= one.tpot_s * (1 - 1e-9) and two.ttft_s >= one.ttft_s * (1 - 1e-9)
    assert longer.ttft_s >= one.ttft_s * (1 - 1e-9)


def test_one_client_sees_its_own_prefill_and_nothing_else():
    s = serve_one(FP8, H200, 1.0, 8192.0, 1000.0, 1.0, efficiency=PATIENT.replace(prompt_ms=0.0))
    own = prompt_s(8192.0)
    assert own <= s.ttft_s <= own * 1.1


def test_what_does_not_fit_waits():
    """150 GB hold 70 GB of weights and 47 requests of 8K: 128 clients wait for (128/47 - 1) requests to end."""
    slots = float(residents_of_length(FP8, H200, Parallel(), 7373.0, 922.0))
    assert 40 < slots < 60
    s, full = _serve(1.0, 7373.0, 922.0, 128.0), _serve(1.0, 7373.0, 922.0, slots - 10.0)
    assert s.ttft_s == pytest.approx((128 / slots - 1) * (float(full.ttft_s) + 922 * float(s.tpot_s)), rel=0.1)
    assert _serve(1.0, 7373.0, 922.0, 256.0).tpot_s == pytest.approx(float(s.tpot_s))


def test_one_client_more_than_slots_waits_for_one_request_to_end():
    """9 clients, 8 slots: one of them waits at any time, for the eighth part of what a request takes in its slot."""
    free, full = (serve_one(FP8, H200, 1.0, 500.0, 900.0, n, decode_batch=8.0) for n in (8.0, 9.0))
    assert full.tpot_s == pytest.approx(float(free.tpot_s))
    assert full.ttft_s - free.ttft_s == pytest.approx(float(free.ttft_s + 900 * full.tpot_s) / 8, rel=1e-6)


def test_no_crowd_of_clients_decodes_more_than_the_prompts_keep_up_with():
    """2,048 tokens in, 128 out, 2,000 slots: the budget of a step is full long before, and clients change nothing."""
    rates = [float(_serve(8.0, 2048.0, 128.0, clients).tokens_per_s) for clients in (1500.0, 4000.0, 30000.0)]
    assert rates == pytest.approx([rates[0]] * 3, rel=1e-3)


def test_a_scheduler_that_looks_every_thirty_steps_delays_the_first_token_by_them():
    """By steps of the mean length, some of which compute a prompt: a token comes out of each."""
    each, rare = (serve_one(FP8, H200, 1.0, 500.0, 900.0, 8.0, poll_steps=n) for n in (0.0, 30.0))
    assert rare.ttft_s - each.ttft_s == pytest.approx(30 * float(rare.tpot_s), rel=0.02)


def test_equal_lengths_where_prompts_go_first_keep_all_clients_together():
    """16 clients send at once: of a cycle of 16 prompts and 400 steps, each waits for half of the other prompts before
    its first token, and for half of them after it."""
    e = PATIENT.replace(prompt_ms=0.0, wait_steps=0.0, request_us=0.0, prefill_batch_tokens=2000.0)
    s = serve_one(FP8, H200, 1.0, 2000.0, 400.0, 16.0, efficiency=e, equal_lengths=1.0, prompts_first=1.0)
    step = float(decode_step_s(FP8, H200, Parallel(), 16.0, 2200.0, e))
    prompt = prompt_s(2000.0, e)
    assert s.ttft_s == pytest.approx((1 + 15 / 2) * prompt, rel=0.1)
    assert 400 * (s.tpot_s - step) == pytest.approx(15 / 2 * prompt, rel=0.1)


def test_equal_lengths_keep_groups_unless_each_answer_lets_one_prompt_in():
    """Where prompts share steps with decodes: with slots for all clients some prompts are ahead, with one less none."""
    drawn, equal = (
        [
            serve_one(FP8, H200, 1.0, 2000.0, 400.0, 16.0, decode_batch=slots, equal_lengths=same).ttft_s
            for slots in (16.0, 15.0)
        ]
        for same in (0.0, 1.0)
    )
    assert equal[0] > drawn[0] * 1.5
    assert equal[1] == pytest.approx(float(drawn[1]))


def test_what_does_not_fit_is_flagged_and_never_answers():
    """141 GB of weights in 135 GB; of two kinds of instances, either may be too small."""
    lengths = 1000.0, 1000.0, 4.0
    apart = [
        serve_apart(LLAMA_70B, H200, Parallel(p), 1.0, Parallel(d), 1.0, *lengths)
        for p, d in ((1.0, 2.0), (2.0, 1.0), (2.0, 2.0))
    ]
    for s in (serve_one(LLAMA_70B, H200, 1.0, *lengths), *apart[:2]):
        assert int(s.flags) == Flag.NO_FIT
        assert np.isinf(s.ttft_s) and np.isinf(s.tpot_s) and s.decode_count == 0 == s.tokens_per_s
    assert int(apart[2].flags) == 0 and np.isfinite(apart[2].ttft_s)


def test_too_few_prefill_instances_rule_the_rate():
    def rate(prefills):
        s = serve_apart(FP8, H200, Parallel(), prefills, Parallel(2.0), 8.0, 8000.0, 100.0, 512.0)
        return float(s.tokens_per_s), s

    service = prompt_s(8000.0)
    few, s = rate(1.0)
    assert few / 100.0 == pytest.approx(1.0 / service, rel=0.02)  # one server, always busy
    assert rate(4.0)[0] == pytest.approx(4 * few, rel=0.05)
    assert s.ttft_s > 100 * service


def test_prefill_instances_may_have_efficiencies_of_their_own():
    """A lone client's prompt takes as much longer; its answer does not, but for being decoded less of the time."""

    def run(e=None):
        return serve_apart(FP8, H200, Parallel(), 1e6, Parallel(2.0), 2.0, 8000.0, 100.0, 1.0, prefill_efficiency=e)

    slow = Efficiency(flop_frac=0.24, attention_flop_frac=0.19)
    later = prompt_s(8000.0, slow) - prompt_s(8000.0)
    alike, slower = run(Efficiency()), run(slow)
    assert float(alike.ttft_s) == float(run().ttft_s)
    assert float(slower.tpot_s) == pytest.approx(float(alike.tpot_s), rel=0.005)
    assert float(slower.ttft_s - alike.ttft_s) == pytest.approx(later, rel=0.005)


def test_a_decode_batch_below_the_clients_makes_the_others_wait_for_an_answer():
    """192 clients, 4 instances set to decode 32 at a time: (192/128 - 1) answers, less what they spend at prefill."""

    def run(batch, spread=1e-6):
        return serve_apart(
            FP8,
            H200,
            Parallel(),
            8.0,
            Parallel(2.0),
            4.0,
            1000.0,
            900.0,
            192.0,
            efficiency=Efficiency(dispatch_spread=spread),
            decode_batch=batch,
        )

    full, free = run(32.0), run(1000.0)
    assert full.ttft_s == pytest.approx(0.5 * 900 * float(full.tpot_s), rel=0.05)
    assert free.ttft_s < 0.15 * full.ttft_s and full.tpot_s < free.tpot_s
    assert run(1000.0, 0.5).ttft_s == pytest.approx(float(free.ttft_s), rel=1e-6)  # room everywhere: nobody waits
    assert run(50.0, 1.0).ttft_s > 1.25 * run(50.0).ttft_s  # 200 slots would do, if requests were spread evenly


def test_queued_prompts_share_steps_and_their_overhead():
    """One prefill instance rules the rate: prompts of 500 tokens share steps of 8,000 and their launches."""

    def rate(batch_tokens):
        e = Efficiency(prefill_batch_tokens=batch_tokens, prefill_layer_us=1000.0)
        s = serve_apart(FP8, H200, Parallel(), 1.0, Parallel(2.0), 8.0, 500.0, 10.0, 4000.0, efficiency=e)
        return float(s.tokens_per_s) / 10.0

    alone = prompt_s(500.0, Efficiency(prefill_layer_us=1000.0))
    assert rate(500.0) == pytest.approx(1.0 / alone, rel=0.02)
    assert rate(8000.0) > 1.5 * rate(500.0)


def test_separate_decoders_step_over_requests_halfway_through_their_answers():
    """Prompt and half an answer in the cache, as many requests as decode."""
    s = serve_apart(FP8, H200, Parallel(), 64.0, Parallel(2.0), 4.0, 1000.0, 6000.0, 64.0)
    step = decode_step_s(FP8, H200, Parallel(2.0), s.decode_count, 1000.0 + 6000.0 / 2)
    assert float(s.tpot_s) == pytest.approx(float(step), rel=1e-3)


def test_zero_prefill_instances_mean_enough_of_them():
    enough = serve_apart(FP8, H200, Parallel(), 0.0, Parallel(2.0), 4.0, 2000.0, 500.0, 64.0)
    many = serve_apart(FP8, H200, Parallel(), 64.0, Parallel(2.0), 4.0, 2000.0, 500.0, 64.0)
    assert 0.75 * many.tokens_per_s < enough.tokens_per_s <= many.tokens_per_s


def test_speculation_pays_at_low_load():
    alone = serve_one(FP8, H200, 8.0, 1000.0, 1000.0, 4.0)
    drafted = serve_one(FP8, H200, 8.0, 1000.0, 1000.0, 4.0, draft_tokens=3.0)
    assert drafted.tpot_s < 0.75 * alone.tpot_s


@pytest.mark.slow  # a minute of compiling, most of it in reverse
@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_gradient_of_the_fixed_point_agrees_with_finite_differences(mode):
    """And it is finite next to what does not fit, 141 GB of weights on one GPU."""

    def f(clients):
        s = serve(LLAMA_70B, H200, Parallel(jnp.array([1.0, 4.0])), 2000.0, 300.0, clients)
        total = jnp.log(s.ttft_s) + jnp.log(s.tpot_s)
        return jnp.where(jnp.isfinite(total), total, 0.0).sum()

    along = jax.jit(lambda x, way: jax.jvp(f, (x,), (way,)))
    back = jax.jit(lambda x, way: (f(x), jax.grad(f)(x) @ way))
    found = along if mode == "forward" else back
    for n in (4.0, 40.0):
        h = 1e-4
        slope = [float(found(jnp.array([n, n]), way)[1]) for way in jnp.eye(2)]
        above, below = (float(found(jnp.array([n, n + d]), jnp.zeros(2))[0]) for d in (h, -h))
        assert slope[0] == 0 and slope[1] > 0
        assert slope[1] == pytest.approx((above - below) / (2 * h), rel=1e-5)


def test_batches_broadcast():
    s = pair(FP8, H200, [1.0, 8.0], 1000.0, 200.0, 8.0)
    assert s.ttft_s.shape == (2,) and np.all(np.diff(s.tpot_s) < 0)
