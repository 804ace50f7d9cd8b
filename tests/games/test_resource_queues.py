"""Violation rates of queues beside direct integration, and what the game of a real model is made of."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest
from scipy import integrate, stats

from dmodels.core.hardware import GPU, SLO, Parallel
from dmodels.core.model import Model
from dmodels.core.workload import Workload
from dmodels.games.resource import Alone, DecodeBatch, Exponential, Game, PrefillQueue, serving_game
from dmodels.models.latency import StepLaw, decode_step_s, prefill_s


def test_one_deterministic_server_of_two_gpus_at_half_load():
    """M/D/1, 0.5 s, one request a second: P(W > 0) = 1/2, waits decay in 0.5 s; the SLO leaves 0.5 s to wait."""
    queue = lambda slo_s: PrefillQueue(1.0, 0.5, 0.0, 0.5, slo_s)
    assert float(queue(1.0)(2.0)) == pytest.approx(0.5 * math.exp(-1), rel=1e-6)
    assert float(queue(0.5)(2.0)) == pytest.approx(0.5, rel=1e-6)  # late if it waits at all
    assert float(queue(0.4)(2.0)) == 1.0 == float(queue(1.0)(0.9))  # slower alone; less than one server's load


def test_lognormal_prompts_are_integrated():
    scv, service_s, slo_s = 0.2, 0.5, 4.0
    sigma = math.sqrt(math.log1p(scv))
    lengths = stats.lognorm(sigma, scale=service_s * math.exp(-(sigma**2) / 2))
    theta = service_s * (1 + scv) / 2 / (1 - 0.5)
    late = lambda s: lengths.pdf(s) * 0.5 * math.exp(-(slo_s - s) / theta)
    expected = integrate.quad(late, 0, slo_s)[0] + lengths.sf(slo_s)
    assert float(PrefillQueue(1.0, service_s, scv, 0.5, slo_s)(2.0)) == pytest.approx(expected, rel=1e-3)


BATCH = DecodeBatch(2.0, 10.0, StepLaw(0.02, 0.001), 64.0, 2.0, 0.03, 1.0, arrival_scv=1.5, window_s=30.0)


@pytest.mark.parametrize("arrival_rps", [2.0, 4.0, 6.0])
def test_late_are_those_that_find_more_than_a_step_affords(arrival_rps):
    """Steps of 20 ms whatever they hold, 24 places, prefill enough: a Poisson number of requests, above 24."""
    batch = DecodeBatch(arrival_rps, 200.0, StepLaw(0.02, 0.0), 24.0, 1.0, 0.03, 100.0)
    mean = arrival_rps * 200.0 * 0.02
    assert float(batch.occupancy_count(1.0, 10.0)) == pytest.approx(mean)
    assert float(batch.occupancy_count(0.5, 10.0)) == pytest.approx(2 * mean)
    assert float(batch(1.0, 10.0)) == pytest.approx(stats.poisson.sf(24, mean), abs=0.016)


@pytest.mark.parametrize("variance", [90.0, 15.0])
@pytest.mark.parametrize("prefill_gpus", [1.5, 2.0, 2.5])
def test_what_prefill_hands_over_in_a_window(prefill_gpus, variance):
    """E[min(A, C)]/E[A], A normal with mean 60, C = 30 a GPU."""
    arrivals, most = stats.norm(60.0, math.sqrt(variance)), 30 * prefill_gpus
    kept = integrate.quad(lambda a: min(a, most) * arrivals.pdf(a), -40, 160, points=[most])[0]
    batch = BATCH.replace(arrival_scv=variance / 60.0)
    assert float(batch.handed_over_frac(prefill_gpus)) == pytest.approx(kept / 60, rel=1e-6)


def test_lines_side_by_side_are_those_lines():
    """Of queues and of batches, each with numbers of its own."""
    rng = np.random.default_rng(0)
    rates, gpus = rng.uniform(1.0, 3.0, 3), np.array([1.5, 3.0, 5.0])
    queues = rates, rng.uniform(0.2, 0.5, 3), rng.uniform(0.1, 2.0, 3), np.full(3, 0.5), np.array([0.4, 1.0, 3.0])
    together, alone = PrefillQueue(*queues), [PrefillQueue(*map(float, one)) for one in zip(*queues, strict=True)]
    late = [float(queue(g)) for queue, g in zip(alone, gpus, strict=True)]
    assert np.asarray(together(gpus)).tolist() == pytest.approx(late, rel=1e-12) and len(set(late)) == 3
    batches = jax.tree.map(lambda leaf: np.full(3, leaf), BATCH).replace(arrival_rps=rates)
    late = [float(BATCH.replace(arrival_rps=rate)(0.1, g)) for rate, g in zip(rates, gpus, strict=True)]
    assert np.asarray(batches(np.full(3, 0.1), gpus)).tolist() == pytest.approx(late, rel=1e-12) and len(set(late)) == 3


def test_clockwork_arrivals_are_all_handed_over_by_just_enough_prefill():
    assert float(BATCH.replace(arrival_scv=0.0).handed_over_frac(2.0)) == pytest.approx(1.0, abs=0.006)
    assert float(BATCH.replace(arrival_scv=0.0).handed_over_frac(1.0)) == pytest.approx(0.5, abs=1e-6)


def test_who_is_not_handed_over_is_late_however_well_decode_does():
    """Clockwork, half of it handed over to batches with room for all; and without a prefill GPU nothing, though of two
    requests that a window expects there may be fewer than none in a normal law."""
    roomy = BATCH.replace(arrival_scv=0.0, slots_count=1e6, step=StepLaw(0.0, 0.0))
    assert [float(roomy(8.0, gpus)) for gpus in (1.0, 1.5, 4.0)] == pytest.approx([0.5, 0.25, 0.0], abs=1e-6)
    few = BATCH.replace(window_s=1.0)
    assert (float(few.handed_over_frac(0.0)), float(few(8.0, 0.0))) == (0.0, 1.0)
    assert 0.99 < float(few.handed_over_frac(9.0)) <= 1.0


def test_the_game_of_a_model_reads_its_rooflines():
    """Half of the prompt is in the cache; steps are a chord over 1 and 64 requests at 600 + 100 tokens."""
    model, gpu = Model(32, 8, 128, hidden_size=4096, dense_params=8e9, n_q_heads=32), GPU(8e10, 2e12, 3e14)
    two, four = Parallel(2.0), Parallel(4.0)
    load = Workload([600.0], [200.0], [1.0], [300.0], 3.0, 1.2)
    game = serving_game(model, gpu, load, SLO(1.0, 0.05), 16.0, two, four)
    service = float(prefill_s(model, gpu, two, 300.0))
    assert (float(game.prefill.service_s), float(game.prefill.service_scv)) == pytest.approx((service, 0.0), abs=1e-9)
    assert float(game.prefill.servers_per_gpu) == 0.5
    assert float(game.decode.prefill_rps_per_gpu) == pytest.approx(0.5 / service)
    held = float(game.decode.occupancy_count(8.0, 1e3))  # Little's law on two decode workers of four GPUs
    assert held == pytest.approx(3.0 / 2 * 200.0 * float(game.decode.step.iteration_s(held)), rel=1e-6)
    ranks = serving_game(model, gpu, load, SLO(1.0, 0.05), 16.0, Parallel(2.0, dp=3.0), four)
    assert float(ranks.prefill.servers_per_gpu) == 0.5  # each reads prompts of its own on its two GPUs
    for n in (1.0, 64.0):
        step = float(game.decode.step.iteration_s(n))
        assert step == pytest.approx(float(decode_step_s(model, gpu, four, n, 700.0)))
    assert float(game.prefill.arrival_scv) == pytest.approx(1.44) == float(game.decode.arrival_scv)
    assert (float(game.decode.output_tokens), float(game.prefill_worker_gpus), float(game.decode_worker_gpus)) == (
        200.0,
        2.0,
        4.0,
    )
    assert np.isfinite(float(game.cost(8.0)))
    mixed = serving_game(
        model, gpu, Workload([300.0, 3000.0], [200.0] * 2, [0.5, 0.5]), SLO(1.0, 0.05), 16.0, two, four
    )
    times = np.array([float(prefill_s(model, gpu, two, tokens)) for tokens in (300.0, 3000.0)])
    assert float(mixed.prefill.service_scv) == pytest.approx(times.var() / times.mean() ** 2)


def test_a_prompt_that_is_all_in_the_cache_takes_what_one_token_takes():
    model, gpu = Model(32, 8, 128, hidden_size=4096, dense_params=8e9, n_q_heads=32), GPU(8e10, 2e12, 3e14)
    two = Parallel(2.0)
    game = serving_game(model, gpu, Workload([600.0], [200.0], [1.0], [600.0]), SLO(1.0, 0.05), 16.0, two, two)
    assert float(game.prefill.service_s) == pytest.approx(float(prefill_s(model, gpu, two, 1.0)), rel=1e-12)


def test_without_a_word_arrivals_are_random_and_a_window_is_half_a_minute():
    model, gpu = Model(32, 8, 128, hidden_size=4096, dense_params=8e9, n_q_heads=32), GPU(8e10, 2e12, 3e14)
    step, load, two = StepLaw(0.02, 0.001), Workload([600.0], [200.0], [1.0], [300.0], 3.0, 1.2), Parallel(2.0)
    asked = model, gpu, load, SLO(1.0, 0.05), 16.0, two, two
    for unsaid, said in (
        (PrefillQueue(1.0, 0.5, 0.2, 0.5, 4.0), PrefillQueue(1.0, 0.5, 0.2, 0.5, 4.0, arrival_scv=1.0)),
        (
            DecodeBatch(2.0, 10.0, step, 64.0, 2.0, 0.03, 1.0),
            DecodeBatch(2.0, 10.0, step, 64.0, 2.0, 0.03, 1.0, arrival_scv=1.0, window_s=30.0),
        ),
        (serving_game(*asked), serving_game(*asked, None, 1.0, 1.0, 30.0)),
    ):
        assert jax.tree.leaves(unsaid) == jax.tree.leaves(said)
    weighed = serving_game(*asked, prefill_weight=2.0, decode_weight=3.0, window_s=9.0)
    assert (weighed.prefill_weight, weighed.decode_weight, weighed.decode.window_s) == (2.0, 3.0, 9.0)


def test_a_worker_with_room_for_one_request_serves_one_at_a_time():
    """A tenth of the time it holds one: seldom more. One with room for less than one serves nobody in time."""
    batch = DecodeBatch(1.0, 5.0, StepLaw(0.02, 0.0), 1.0, 1.0, 0.03, 100.0)
    assert float(batch.occupancy_count(1.0, 10.0)) == pytest.approx(0.1) and float(batch(1.0, 10.0)) < 0.01
    assert float(batch.replace(slots_count=0.9)(1.0, 10.0)) == 1.0


def test_no_queue_is_taken_for_convex():
    """Overloaded ones have every request late, with a GPU more as well."""
    queue, convex = PrefillQueue(1.0, 0.5, 0.2, 0.5, 4.0), Exponential(0.5)
    assert not Game(queue, Alone(convex), 8.0).convex and not Game(convex, BATCH, 8.0).convex
    assert not Game(queue, Alone(convex), 8.0).convex_cost and not Game(convex, BATCH, 8.0).convex_cost
    assert float(queue(0.5)) == float(queue(0.9)) == 1.0


def test_servers_that_are_just_kept_busy_are_late_and_clockwork_never_is():
    """Load 1/2 on half a server; arrivals and prompts to the second, which the SLO just allows."""
    assert float(PrefillQueue(1.0, 0.5, 0.0, 0.5, 1.0)(1.0)) == 1.0
    assert float(PrefillQueue(1.0, 0.5, 0.0, 0.5, 0.5, arrival_scv=0.0)(2.0)) == 0.0
