"""The compiled cluster against a second one in plain Python, on random machines, traffic and rules."""

from __future__ import annotations

import numpy as np
import pytest

from dmodels.models.latency import StepLaw
from dmodels.sim.cluster import Control, Flow, Hybrid, Signal, Workers, simulate
from tests.sim import cluster_oracle as oracle


def traffic(rng, n, rate):
    """Bursts and silences, prompts and answers of all sizes, some of one token."""
    prompt = np.clip(np.rint(rng.lognormal(6.0, 1.0, n)), 1, 8000)
    output = np.where(rng.random(n) < 0.1, 1, np.maximum(1, np.rint(rng.lognormal(3.0, 0.9, n))))
    gaps = rng.exponential(1 / rate, n) * rng.choice([0.1, 1.0, 3.0], n)
    seconds = 2e-4 * prompt * rng.uniform(0.5, 1.5, n)
    return np.cumsum(gaps), prompt, output, seconds


def same(run, slow):
    """Every request and every epoch."""
    for name in ("arrival", "first", "end"):
        told = getattr(run, {"first": "first_token_s"}.get(name, f"{name}_s"))
        np.testing.assert_allclose(told, [getattr(r, name) for r in slow.requests], rtol=1e-9, err_msg=name)
    assert run.worker.tolist() == [r.worker for r in slow.requests]
    times, batch, stranded, queues = zip(*slow.epochs, strict=True) if slow.epochs else ((), (), (), ())
    assert (run.epoch_s[0], run.batch[0], run.stranded_frac[0]) == (0.0, 0.0, 0.0) and not run.queues[0].any()
    np.testing.assert_allclose(run.epoch_s[1:], times, rtol=1e-9)
    np.testing.assert_allclose(run.batch[1:], batch, rtol=1e-9)
    np.testing.assert_allclose(run.stranded_frac[1:], stranded, rtol=1e-9, atol=1e-12)
    assert run.queues[1:].tolist() == [list(map(float, row)) for row in queues]
    assert (run.changes, run.moved_blocks) == (slow.changes, slow.moved)


def machines(rng, **fixed):
    return Workers(
        *(int(x) for x in rng.integers(1, 4, 2)),
        **{
            "step": StepLaw(rng.uniform(0.01, 0.04), rng.uniform(1e-4, 5e-3)),
            "slots": int(rng.integers(2, 9)),
            "kv_blocks": 1000.0,
            "block_tokens": int(rng.choice([16, 32])),
            "block_transfer_s": rng.choice([1e-5, 1e-3]),
            "ttft_slo_s": rng.uniform(0.1, 1.0),
        }
        | fixed,
    )


@pytest.mark.parametrize("flow", list(Flow))
@pytest.mark.parametrize("signal", list(Signal))
def test_prefill_and_decode_apart(signal, flow):
    changes = 0
    for seed in range(4):
        rng = np.random.default_rng([seed, int(signal), int(flow)])
        cluster = machines(rng, standby=int(rng.integers(1, 4)))
        asked = traffic(rng, 120, rng.uniform(4, 30))
        believed = asked[3] * rng.uniform(0.5, 2.0, 120)
        rules = Control(
            signal, flow, rng.uniform(0.3, 0.9), 0.0, 0.05, rng.uniform(0.1, 0.5), 2.0, bool(rng.integers(2))
        )
        clients = int(rng.choice([0, 12]))
        given = (*asked, cluster, rules)
        run = simulate(*given, virtual_s=believed, clients=clients)
        same(run, oracle.simulate(*given, virtual_s=believed, clients=clients))
        changes += run.changes
    assert (changes > 8) == (flow != Flow.NONE)


@pytest.mark.parametrize("seed", range(8))
def test_decoders_are_cleared_for_the_next_in_line(seed):
    """Small sequences everywhere, and now and then one that needs most of a decoder."""
    rng = np.random.default_rng(seed)
    n = 150
    large = rng.random(n) < 0.15
    prompt = np.where(large, rng.integers(2500, 5000, n), rng.integers(100, 900, n))
    output = np.where(large, 20, rng.integers(20, 120, n))
    step, transfer_s = StepLaw(0.02, 1e-3), float(rng.choice([1e-5, 2e-3]))
    slots = 200 if seed % 2 else int(rng.integers(4, 9))  # memory binds, or slots do, too
    cluster = Workers(3, 4, 0, step, slots=slots, kv_blocks=400.0, block_transfer_s=transfer_s)
    rules = Control(flow=Flow.NONE, theta_frag=float(rng.choice([0.3, 0.9])), epoch_s=0.05)
    given = np.cumsum(rng.exponential(0.05, n)), prompt, output, 1e-5 * prompt, cluster, rules
    run, slow = simulate(*given), oracle.simulate(*given)
    same(run, slow)
    assert run.moved_blocks > 0


@pytest.mark.parametrize("begin", range(0, 24, 12))
def test_workers_that_do_both(begin):
    moved = 0
    for seed in range(begin, begin + 12):
        rng = np.random.default_rng(seed)
        cluster = machines(rng, slots=int(rng.integers(4, 40)), kv_blocks=float(rng.choice([600.0, 1500.0])))
        rules = Hybrid(
            chunk_tokens=float(rng.choice([300, 1024, 4096])),
            decode_chunk_tokens=float(rng.choice([0, 64, 256])),
            watermark_frac=float(rng.choice([0.3, 0.6, 1.0])),
            tpot_slo_s=rng.uniform(0.02, 0.1),
            back_frac=rng.uniform(0.5, 1.0),
        )
        given = (*traffic(rng, 120, rng.uniform(4, 20)), cluster, rules)
        clients = int(rng.choice([0, 15]))
        run = simulate(*given, clients=clients)
        same(run, oracle.simulate(*given, clients=clients))
        moved += run.moved_blocks > 0
    assert moved >= 3
