"""A point of a sweep is the one pool of a plan of that point: two ways through the toolkit, one answer."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("xarray")

from dmodels import SLO, Workload, catalog
from dmodels.models.instance import Engine
from dmodels.studies.plan import Layout, plan, question
from dmodels.studies.plan.layouts import in_precision
from dmodels.studies.sweep import IN_WORDS, Scenario, _runs, sweep_designs
from tests.audit.tables import IN_WORDS as AUDITED

ENGINE, BACKEND = Engine(48.0, 4096.0), "sglang"
BASE = {"model": "llama-3.1-8b", "output_tokens": 300.0, "tpot_slo_s": 0.02}
AXES = {
    "gpu": ["h100_sxm", "h200_sxm"],
    "kv": ["as published", "fp8"],
    "input_tokens": [900.0, 6000.0],
    "tp": [1, 2],
    "rate_rps": [9.0, 40.0],
    "ttft_slo_s": [0.2, 3.0],
    "e2e_slo_s": [3.0, 60.0],
    "percentile": [0.9, 0.99],
    "price_usd_per_hour": [1.5, 4.0],
}


def planned(at):
    """The plan of one layout and one pool."""
    slo = SLO(at["ttft_slo_s"], at["tpot_slo_s"], at["e2e_slo_s"], at["percentile"])
    traffic = Workload.fixed(at["input_tokens"], at["output_tokens"], at["rate_rps"])
    how = {"tp": (at["tp"],), "thresholds_tokens": (), "split": False, "backend": BACKEND, "kv": (at["kv"],)}
    prices = {at["gpu"]: at["price_usd_per_hour"]}
    return plan(question(at["model"], [at["gpu"]], traffic, slo, prices_usd_per_hour=prices, engine=ENGINE, **how))


def test_a_point_of_a_sweep_is_the_plan_of_it():
    swept = sweep_designs(Scenario(BASE, engine=ENGINE, backend=BACKEND), AXES, output="cost_usd_per_hour")
    assert swept.points_count == 2 ** len(AXES)
    rng, served = random.Random(2), 0
    for _ in range(8):
        place = {name: rng.randrange(2) for name in AXES}
        at = BASE | {name: values[place[name]] for name, values in AXES.items()}
        found, answer = swept.points.isel(place), planned(at)
        assert (int(found.flags) == 0) == (answer.best is not None), at
        if answer.best is None:
            continue
        served += 1
        (pool,) = answer.best.pools
        told = {
            "instances": pool.instances,
            "gpus": pool.gpus,
            "cost_usd_per_hour": pool.usd_per_hour,
            "ttft_s": pool.ttft_s,
            "tpot_s": pool.tpot_s,
            "e2e_s": pool.e2e_s,
            "output_tokens_per_s": pool.tokens_per_s,
            "gpu_tokens_per_s": pool.tokens_per_s / pool.gpus,
            "user_tokens_per_s": 1 / pool.tpot_mean_s,
            "decode_count": pool.decode_count,
            "slots_count": pool.slots_count,
            "cost_usd_per_mtoken": pool.usd_per_hour / 3600 / pool.tokens_per_s * 1e6,
        }
        for name, value in told.items():
            assert float(found[name]) == pytest.approx(value, rel=1e-6), (name, at)
    assert 1 < served < 8


def test_axes_and_outputs_have_the_words_that_tables_and_pictures_are_audited_by():
    assert {name: told.partition(" [")[0] for name, told in AUDITED.items()} == IN_WORDS


@pytest.mark.parametrize(
    ("model", "gpu", "layout", "runs"),
    [
        ("llama-3.1-70b", "a100_80gb_sxm", {"tp": 8}, True),
        ("llama-3.1-70b", "a100_80gb_sxm", {"tp": 8, "weights": "fp8"}, False),  # which has no units for it
        ("llama-3.1-70b", "a100_80gb_sxm", {"tp": 8, "kv": "fp8"}, False),
        ("llama-3.1-70b", "h100_sxm", {"tp": 8, "weights": "fp8", "kv": "fp8"}, True),
        ("llama-3.1-70b", "h100_sxm", {"tp": 8, "weights": "fp4"}, False),
        ("llama-3.1-70b", "b200_sxm", {"tp": 8, "weights": "fp4"}, True),
        ("llama-3.1-70b", "h100_sxm", {"tp": 3}, False),  # which does not divide its heads
        ("llama-3.1-70b", "h100_sxm", {"tp": 16}, False),  # more than a node has
        ("deepseek-v3", "h200_sxm", {"dp": 16, "ep": 16}, True),  # whole experts over two nodes
        ("deepseek-v3", "h200_sxm", {"tp": 2, "dp": 8, "ep": 16}, False),
        ("deepseek-v3", "h200_sxm", {"dp": 12, "ep": 12}, False),  # not over one and a half
    ],
)
def test_a_point_counts_where_an_engine_runs_it(model, gpu, layout, runs):
    made = Layout(gpu, **layout)
    assert _runs(made, in_precision(catalog.model(model), made), {gpu: catalog.gpu(gpu)}) == runs
