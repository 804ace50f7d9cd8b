"""Which points of a sweep are run by an engine, and what axes and outputs are called."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("xarray")

import xarray as xr

from dmodels import catalog
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag, flag_where
from dmodels.models.instance import Engine, Operating
from dmodels.studies import sweep as study
from dmodels.studies.plan import Layout
from dmodels.studies.plan.layouts import in_precision
from dmodels.studies.sweep import IN_WORDS, _runs
from tests.audit.tables import IN_WORDS as AUDITED


def test_axes_and_outputs_have_the_words_that_tables_and_pictures_are_audited_by():
    assert {name: told.partition(" [")[0] for name, told in AUDITED.items()} == IN_WORDS


class Cell(NamedTuple):
    """Pools that keep up from `stable` instances on, and keep the SLOs from `enough` on."""

    stable: Any
    enough: Any
    slo: Any


#: Of the last pool that was asked about.
BOUNDS: list[Any] = []


def behaves(cell, count, rate, slowdown, engine):
    BOUNDS[:] = [cell.slo]
    flags = flag_where(count < cell.stable, Flag.OVERLOAD) | flag_where(count < cell.enough, Flag.SLO_MISS)
    each, same = rate / count, lambda value: value + 0.0 * count
    told = {"decode_count": each, "ttft_s": slowdown * each, "tokens_per_s": 100.0 * each, "flags": flags}
    told |= {"slots_count": same(64.0), "tpot_s": same(0.02), "tpot_mean_s": same(0.01), "e2e_s": same(9.0)}
    return Operating(**dict.fromkeys(Operating._fields, same(0.0)) | told)


def sized(monkeypatch, **given):
    """The second of three rows: instances of 4 GPUs at 2.50 USD/h, its workload's own 30 req/s."""
    monkeypatch.setattr(study, "evaluate", behaves)
    columns = {"gpus": [1.0, 4.0, 2.0], "price_usd_per_hour": [1.0, 2.5, 9.0], "rate_rps": [1.0, 30.0, 2.0]}
    rows = {name: np.array(column) for name, column in columns.items()} | {"runs": np.array([1.0, 1.0, 0.0])}
    cells = Cell(np.array([1.0, 3.0, 3.0]), np.array([1.0, 7.0, np.inf]), np.zeros(3))
    places = dict.fromkeys([name for name in study.BUILT if name not in given], 0.0)
    told = study.sized_pool(cells, rows, None, **places, **given)
    return {name: float(value) for name, value in told.items()}


def test_weights_and_cache_have_each_the_precision_that_is_asked_for(monkeypatch):
    def stored(model, layout):
        raise KeyboardInterrupt(layout)

    monkeypatch.setattr(study, "in_precision", stored)
    row = dict(study.BUILT) | {"model": "llama-3.1-70b", "gpu": "h100_sxm", "weights": "fp8", "kv": "bf16"}
    with pytest.raises(KeyboardInterrupt) as told:
        study._cells(study.Scenario({}), [row | {"tp": 2, "pp": 3, "dp": 4, "ep": 5}])
    assert told.value.args == (Layout("h100_sxm", 2, 3, 4, 5, weights="fp8", kv="bf16"),)


def test_a_point_by_arithmetic(monkeypatch):
    """Seven instances of 30 req/s and 100 tokens each: 70 USD/h for 10.8 million tokens an hour."""
    told = sized(monkeypatch, gpu=1.0)
    assert (told["instances"], told["gpus"], told["cost_usd_per_hour"], told["flags"]) == (7, 28, 70.0, 0)
    assert told["output_tokens_per_s"] == pytest.approx(3000.0)
    assert told["cost_usd_per_mtoken"] == pytest.approx(70.0 / 10.8)
    assert told["gpu_tokens_per_s"] == pytest.approx(3000.0 / 28) and told["user_tokens_per_s"] == pytest.approx(100.0)
    assert (told["ttft_s"], told["tpot_s"], told["e2e_s"]) == pytest.approx((30.0 / 7, 0.02, 9.0))
    assert (told["decode_count"], told["slots_count"]) == (pytest.approx(30.0 / 7), 64.0)
    other = sized(monkeypatch, gpu=1.0, rate_rps=60.0, price_usd_per_hour=1.0, slowdown=2.0)
    assert (other["cost_usd_per_hour"], other["ttft_s"]) == (28.0, pytest.approx(2.0 * 60.0 / 7))
    assert other["output_tokens_per_s"] == pytest.approx(6000.0)
    assert sized(monkeypatch, gpu=1.0, rate_rps=0.5, slowdown=0.5)["output_tokens_per_s"] == pytest.approx(50.0)
    cheap = sized(monkeypatch, gpu=1.0, price_usd_per_hour=0.5)
    assert cheap["cost_usd_per_hour"] == 14.0 and cheap["flags"] == 0
    free = sized(monkeypatch, gpu=1.0, price_usd_per_hour=0.0)
    assert free["cost_usd_per_hour"] == 0.0  # a price, and none of the catalogue's
    few = sized(monkeypatch, gpu=1.0, instances=2.0)
    bounds = lambda: [float(getattr(BOUNDS[0], name)) for name in ("ttft_s", "tpot_s", "e2e_s", "percentile")]
    assert bounds() == [np.inf, np.inf, np.inf, 0.99]  # none but who runs at all
    sized(monkeypatch, gpu=1.0, instances=2.0, ttft_slo_s=2.0, tpot_slo_s=0.1, e2e_slo_s=9.0, percentile=0.9)
    assert bounds() == [2.0, 0.1, 9.0, 0.9]
    assert int(few["flags"]) & Flag.OVERLOAD and np.isnan(few["output_tokens_per_s"])  # which is not what arrives
    for odd in ({"instances": 0.5}, {"rate_rps": 0.0, "gpu": 0.0, "slowdown": 0.0}):
        assert int(sized(monkeypatch, **{"gpu": 1.0} | odd)["flags"]) & Flag.OUT_OF_DOMAIN
    late = sized(monkeypatch, tp=1.0, workload=1.0)  # places add up: the third row, which no number makes quick enough
    assert late["instances"] == 3.0 and int(late["flags"]) == int(Flag.SLO_MISS | Flag.OUT_OF_DOMAIN)


def test_a_sweeps_places_are_those_of_its_combinations(monkeypatch):
    """By default the ten points of the least cost of a token; percentiles are P99, unless they are an axis."""
    seen = {}

    def swept(function, *, batch, **given):
        seen.update(given, combinations=batch)
        return xr.Dataset({name: ("point", [1.0]) for name in ("ttft_s", "cost_usd_per_mtoken")})

    monkeypatch.setattr(study, "_cells", lambda scenario, combinations: (combinations, {}))
    monkeypatch.setattr(study, "sweep", swept)
    scenario = study.Scenario({"gpu": "l40s", "slowdown": 1.5, "rate_rps": 4.0, "ttft_slo_s": None})
    axes = {"tp": [1, 2, 4], "rate_rps": [5.0, 6.0], "kv": ["fp8", "bf16"]}
    found = study.sweep_designs(scenario, axes, seed_of_points=7)
    assert (found.output, found.top, found.file) == ("cost_usd_per_mtoken", 10, None)
    assert found.points["ttft_s"].attrs["long_name"] == "TTFT P99" and seen["seed_of_points"] == 7
    assert seen["engine"] == Engine() and (seen["per_row"], seen["out"]) == ({}, None)
    assert seen["slowdown"] == 1.5 and "ttft_slo_s" not in seen and seen["rate_rps"].values == (5.0, 6.0)
    for (i, tp), (j, kv) in itertools.product(enumerate(axes["tp"]), enumerate(axes["kv"])):
        at = seen["combinations"][int(seen["tp"].records[i] + seen["kv"].records[j])]
        assert (at["tp"], at["kv"], at["gpu"]) == (tp, kv, "l40s")
        assert (at["pp"], at["dp"], at["ep"], at["weights"]) == (1, 1, 1, study.Precision.AS_PUBLISHED)
    assert len(seen["combinations"]) == 6 and all(seen[name] == 0.0 for name in study.BUILT if name not in axes)
    named = study.sweep_designs(scenario, {"percentile": [0.5, 0.9]})
    assert named.points["ttft_s"].attrs["long_name"] == "TTFT"
    (alone,) = seen["combinations"]
    assert (alone["tp"], alone["kv"]) == (1, study.Precision.AS_PUBLISHED)
    assert scenario == study.Scenario(scenario.base, None, None, backend="vllm", gpu_file=None, measured=None)
    half = study.sweep_designs(study.Scenario({"percentile": 0.5, "rate_rps": 1.0}), {"tp": [1]})
    assert half.points["ttft_s"].attrs["long_name"] == "TTFT P50"
    own = study.Scenario({"rate_rps": 1.0}, engine=Engine(7.0, 99.0))
    found = study.sweep_designs(own, {"tp": [1]}, output="gpus", top=3, out="points.zarr")
    assert (seen["engine"], seen["out"]) == (own.engine, "points.zarr")
    assert (found.output, found.top, found.file) == ("gpus", 3, "points.zarr")


@pytest.mark.parametrize(
    ("axes", "output", "why"),
    [
        ({"tpp": [1]}, "gpus", "axis 'tpp' is unknown; the nearest are"),
        ({"tp": []}, "gpus", "axis 'tp' is empty; accepted is at least one value"),
        ({"tp": [1]}, "gpu", "output 'gpu' is unknown; the nearest are gpus"),
        ({"tp": [1]}, "gpus", "rate is missing: fixed lengths have no rate of their own"),
    ],
)
def test_what_cannot_be_swept(axes, output, why, monkeypatch):
    monkeypatch.setattr(study, "_cells", lambda scenario, combinations: (combinations, {}))
    with pytest.raises(InputError, match=why):
        study.sweep_designs(study.Scenario({}), axes, output=output)


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
