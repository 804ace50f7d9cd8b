"""The load that a plan shows is the share of the rate at which an instance saturates, in the simulator too."""

from __future__ import annotations

import numpy as np
import pytest

from dmodels import SLO, Workload
from dmodels.models.instance import Engine
from dmodels.sim.deployments import ServingFleet
from dmodels.sim.recordings import Recording
from dmodels.studies.plan import price, question
from dmodels.studies.plan.machines import recording, serving_pool
from dmodels.studies.plan.search import by_formula


def test_twenty_thousand_requests_are_replayed_where_there_is_no_trace():
    asked = question("llama-3.1-8b", ["h100_sxm"], Workload([50.0, 90.0], [9.0, 3.0], [0.5, 0.5], rate_rps=4.0), SLO())
    plain, said = recording(asked), recording(asked, seed=0, count=20_000)
    assert plain.size == 20_000 and plain.time_s.tolist() == said.time_s.tolist()


@pytest.mark.parametrize(
    ("isl", "osl", "slots"),
    [(6000.0, 20.0, 1024.0), (200.0, 400.0, 32.0), (2000.0, 200.0, 256.0)],
    ids=["prompts fill steps, slots stay empty", "slots run out", "both"],
)
def test_waits_grow_beyond_a_load_of_one_and_not_below(isl, osl, slots):
    one = np.ones(1)
    workload = Workload(isl * one, osl * one, one, 0.0 * one, 4.0, 1.0)
    own = {"engine": Engine(max_num_seqs_count=slots), "split": False, "thresholds_tokens": ()}
    asked = question("llama-3.1-8b", ["h100_sxm"], workload, SLO(60.0, 1.0), tp=(1,), **own)
    priced, (pool,) = price(asked), by_formula(asked).best.pools
    saturating = asked.rate_rps / pool.instances / pool.load_frac
    fleet, count = ServingFleet((serving_pool(priced, 0, 0),)), 20_000
    gaps = np.random.default_rng(0).exponential(1.0, count)
    for share, grows in ((0.93, False), (1.07, True)):
        when = np.cumsum(gaps / (share * saturating))
        requests = Recording(when, isl + 0.0 * when, osl + 0.0 * when, 0.0 * when, float(when[-1]), "Poisson")
        (mine,) = fleet.own(requests.requests())
        late = fleet.serve(0, mine, (1,)).ttft_s[-count // 10 :].mean()
        assert (late > 0.03 * when[-1]) == grows, (share, late, when[-1])


def test_prefill_workers_saturate_in_full_steps_of_longer_prompts():
    """Prompts of one and a half budgets each, and of one and of two and a half: steps are full, and the last room in
    them is the next prompt's. A fleet asked for half as much again computes what was called its saturation."""
    for lengths in ([1536.0] * 2, [1024.0, 2500.0]):
        isl, rest = np.array(lengths), np.ones(2)
        workload = Workload(isl, 64.0 * rest, 0.5 * rest, 0.0 * rest, 2.0, 1.0)
        own = {"engine": Engine(max_num_batched_tokens=1024.0), "split": True, "thresholds_tokens": ()}
        asked = question("llama-3.1-70b", ["a100_80gb_sxm"], workload, SLO(60.0, 1.0), tp=(2,), **own)
        priced = price(asked)
        stage = next(k for k, one in enumerate(priced.stages) if one.name == "prefill")
        pool = next(pool for kind in by_formula(asked).kinds for pool in kind.pools if pool.stage.name == "prefill")
        saturating, count = asked.rate_rps / pool.instances / pool.load_frac, 8_000
        when = np.cumsum(np.random.default_rng(1).exponential(1.0 / (1.5 * saturating), count))
        drawn = isl[np.arange(count) % 2]
        fleet = ServingFleet((serving_pool(priced, 0, stage),))
        (mine,) = fleet.own(
            Recording(when, drawn, 64.0 + 0.0 * when, 0.0 * when, float(when[-1]), "Poisson").requests()
        )
        first = np.sort(when + fleet.serve(0, mine, (1,)).ttft_s)
        computed = (0.8 * count) / (first[int(0.9 * count)] - first[int(0.1 * count)])
        assert computed == pytest.approx(saturating, rel=0.005)


@pytest.mark.parametrize("model", ["llama-3.1-70b", "qwen3-30b-a3b"])
def test_a_lone_prompt_passes_the_second_stage_of_a_pipeline_as_fast_as_the_first(model):
    """In an engine that is idle a longer prompt costs what its step is longer, once for each stage. (Half of an expert
    model's step is there for any prompt, however short.)"""
    isl, rest = np.array([1000.0, 4000.0]), np.ones(2)
    workload = Workload(isl, 16.0 * rest, 0.5 * rest, 0.0 * rest, 4.0, 0.1)
    asked = question(model, ["h100_sxm"], workload, SLO(60.0, 1.0), tp=(4,), pp=(2,), split=False, thresholds_tokens=())
    pool = serving_pool(price(asked), 0, 0)
    lengths = np.array([1000.0, 2000.0, 4000.0, 7000.0])
    when = 100.0 * np.arange(1.0, 5.0)
    fleet = ServingFleet((pool,))
    (mine,) = fleet.own(Recording(when, lengths, 16.0 + 0.0 * when, 0.0 * when, 500.0, "far apart").requests())
    taken = np.diff(fleet.serve(0, mine, (1,)).ttft_s)
    step = np.diff(np.interp(lengths, pool.law.tokens, pool.law.times_s[0]))
    np.testing.assert_allclose(taken, 2.0 * step, rtol=0.1)


def test_of_prompts_that_fill_steps_twice_as_long_ones_take_twice_as_long_in_a_pipeline_too():
    isl, one = np.array([4096.0]), np.ones(1)
    workload = Workload(isl, 16.0 * one, one, 0.0 * one, 4.0, 0.1)
    own = {"engine": Engine(max_num_batched_tokens=2048.0), "split": False, "thresholds_tokens": ()}
    pool = serving_pool(
        price(question("llama-3.1-70b", ["h100_sxm"], workload, SLO(60.0, 1.0), tp=(4,), pp=(2,), **own)), 0, 0
    )
    lengths, when = np.array([4096.0, 8192.0]), np.array([100.0, 200.0])
    fleet = ServingFleet((pool,))
    (mine,) = fleet.own(Recording(when, lengths, 16.0 + 0.0 * when, 0.0 * when, 300.0, "far apart").requests())
    once, twice = fleet.serve(0, mine, (1,)).ttft_s
    assert twice == pytest.approx(2.0 * once, rel=0.1)
