"""TaiChi's hybrid workers: the cluster with the two kinds apart, a second version in plain Python, and flows."""

from __future__ import annotations

import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.models.latency import StepLaw
from dmodels.sim.cluster import Control, Flow, Hybrid, Workers, simulate

STILL = Control(flow=Flow.NONE, theta_frag=0.0)


def requests(n, seed=0, rate=20.0):
    rng = np.random.default_rng(seed)
    prompt = np.maximum(1, np.rint(rng.lognormal(6.5, 0.8, n)))
    output = np.maximum(1, np.rint(rng.lognormal(4.5, 0.8, n)))
    return np.cumsum(rng.exponential(1 / rate, n)), prompt, output, 1e-4 * prompt


@pytest.mark.parametrize("clients", [0, 40])
def test_without_chunks_on_decoders_and_without_flows_it_is_the_cluster(clients):
    """Prompts of one chunk each, whatever they take: prefill workers serve one at a time, decoders only decode."""
    arrival, _, output, seconds = requests(2000, 5, rate=40.0)
    prompt = np.full(2000, 1024)
    cluster = Workers(4, 4, kv_blocks=6000.0, ttft_slo_s=0.2)
    apart = Hybrid(chunk_tokens=1024, decode_chunk_tokens=0, watermark_frac=1.0)
    one = simulate(arrival, prompt, output, seconds, cluster, apart, clients=clients)
    other = simulate(arrival, prompt, output, seconds, cluster, STILL, clients=clients)
    np.testing.assert_allclose(one.first_token_s, other.first_token_s, rtol=1e-9)
    np.testing.assert_allclose(one.end_s, other.end_s, rtol=1e-9)
    assert one.moved_blocks == 0


def by_steps(arrival, prompt, output, seconds, chunk, step, *, to_the_end=True):
    """A worker that does all, step by step: chunk tokens of its prompts in line, and a token of every sequence; or
    until all prompts are read."""
    n, now = len(arrival), 0.0
    rest, left = prompt.astype(float), output.astype(int).copy()
    first, end = np.zeros(n), np.zeros(n)
    line, batch, k = [], [], 0
    while k < n or line or (batch and to_the_end):
        if not line and not batch:
            now = max(now, arrival[k])
        while k < n and arrival[k] <= now:
            line.append(k)
            k += 1
        room, took, read = chunk, 0.0, []
        for i in line:
            use = min(room, rest[i])
            room, took = room - use, took + use * seconds[i] / prompt[i]
            read.append((i, use))
        now += max(step.base_s, took) + step.per_sequence_s * len(batch) if batch else took
        for i in list(batch):
            left[i] -= 1
            if left[i] == 0:
                end[i] = now
                batch.remove(i)
        for i, use in read:
            rest[i] -= use
            if rest[i] == 0:
                line.remove(i)
                first[i], left[i] = now, left[i] - 1
                if left[i]:
                    batch.append(i)
                else:
                    end[i] = now
    return first, end


@pytest.mark.parametrize("chunk", [100, 700, 10_000])
def test_one_worker_that_does_all_against_its_steps(chunk):
    """The decoder is in time for any prompt, so that the prefill worker gets none."""
    arrival, prompt, output, seconds = requests(300, chunk, rate=3.0)
    step = StepLaw(0.025, 0.35e-3)
    cluster = Workers(1, 1, step=step, kv_blocks=1e6, slots=400, ttft_slo_s=1e9)
    run = simulate(arrival, prompt, output, seconds, cluster, Hybrid(decode_chunk_tokens=chunk, watermark_frac=1.0))
    first, end = by_steps(arrival, prompt, output, seconds, chunk, step)
    assert (run.worker == 1).all()
    np.testing.assert_allclose(run.first_token_s, first, rtol=1e-9)
    np.testing.assert_allclose(run.end_s, end, rtol=1e-9)


@pytest.mark.parametrize("share", [1.6, 0.4])
def test_a_prompt_goes_where_it_is_read_soonest(share):
    """Any decoder is in time: the one is chosen whose steps give the first token soonest, as playing both tells.
    Prompts of a chunk each, whose step takes `share` of the weights' time; answers that nobody sees the end of."""
    rng, step, n, chunk = np.random.default_rng(3), StepLaw(0.025, 1e-8), 80, 512
    arrival, prompt, output = np.cumsum(rng.exponential(0.022, n)), np.full(n, chunk), np.full(n, 600)
    seconds = np.full(n, share * step.base_s)
    cluster = Workers(1, 2, step=step, kv_blocks=1e6, slots=400, ttft_slo_s=1e9)
    run = simulate(arrival, prompt, output, seconds, cluster, Hybrid(chunk, chunk, watermark_frac=1.0))
    apart = []
    for i in range(n):
        there = {}
        for worker in (1, 2):
            own = np.append(np.flatnonzero(run.worker[:i] == worker), i)
            columns = (column[own] for column in (arrival, prompt, output, seconds))
            there[worker] = by_steps(*columns, chunk, step, to_the_end=False)[0][-1]
        assert there[run.worker[i]] <= min(there.values()) + 1e-5, i
        apart.append(max(there.values()) - min(there.values()))
    assert np.median(apart) > 1e-3  # it mattered


def test_answers_flow_away_from_a_full_decoder_and_back_before_they_are_late():
    """Memory for a few sequences on the decoder: with flows others decode at once, beside large chunks, and return."""
    arrival, prompt, output, seconds = requests(400, 2, rate=6.0)
    cluster = Workers(2, 1, kv_blocks=600.0, slots=64)
    kept, flowing, strict = (
        simulate(arrival, prompt, output, seconds, cluster, Hybrid(1024, 0, watermark, back_frac=back))
        for watermark, back in ((1.0, 0.9), (0.8, 0.9), (0.8, 0.3))
    )
    assert kept.moved_blocks == 0 < flowing.moved_blocks < strict.moved_blocks
    assert all(np.isfinite(run.end_s).all() for run in (kept, flowing, strict))
    assert flowing.e2e_s.mean() < 0.5 * kept.e2e_s.mean()
    slow = simulate(arrival, prompt, output, seconds, cluster._replace(block_transfer_s=0.2), Hybrid(1024, 0, 0.8))
    assert slow.e2e_s.mean() > 1.05 * flowing.e2e_s.mean()  # blocks on their way are free where they come from later


def test_short_prompts_stay_with_decoders_while_they_are_in_time():
    rng = np.random.default_rng(0)
    prompt = np.where(rng.random(500) < 0.8, 100, 8000)
    arrival = np.cumsum(rng.exponential(0.3, 500))
    run = simulate(arrival, prompt, np.full(500, 50), 1e-4 * prompt, Workers(2, 2), Hybrid(4096, 256))
    at_decoders = run.worker >= 2
    assert at_decoders[prompt == 100].mean() > 0.9 and at_decoders[prompt == 8000].mean() < 0.1


@pytest.mark.parametrize(
    "control, cluster, why",
    [
        (Hybrid(0), Workers(1, 1), "chunk_tokens 0"),
        (Hybrid(decode_chunk_tokens=0.5), Workers(1, 1), "decode_chunk_tokens 0.5"),
        (Hybrid(watermark_frac=1.5), Workers(1, 1), "watermark_frac 1.5"),
        (Hybrid(), Workers(1, 1, 1), "standby 1"),
    ],
)
def test_mistakes_name_the_field(control, cluster, why):
    with pytest.raises(InputError, match=why):
        simulate([0.0], [10], [10], [0.1], cluster, control)


def test_a_first_token_is_in_time_up_to_the_slo_and_with_it():
    """Both workers are idle and read the prompt in a quarter of a second: the decoder is preferred where that is soon
    enough, else the first of equals."""
    for slo, worker in ((0.25, 1), (0.2499, 0)):
        run = simulate([0.0], [100], [2], [0.25], Workers(1, 1, ttft_slo_s=slo), Hybrid())
        assert run.worker.tolist() == [worker] and run.first_token_s.tolist() == [0.25]
