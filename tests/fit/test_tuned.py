"""Servers tuned as those of MLPerf: one factor on every step, stated where it is used."""

from __future__ import annotations

import csv
import io
import json

import pytest

from dmodels import catalog
from dmodels.cli import main
from dmodels.core.hardware import Parallel
from dmodels.fit.calibration import efficiency_for
from dmodels.fit.tuned import faster, maker, tuned
from dmodels.models.latency.steps import step


@pytest.mark.parametrize(("model", "tp"), [("llama-3.1-8b", 1), ("qwen3-30b-a3b", 4)])
def test_every_part_of_a_step_is_as_much_faster(model, tp):
    e = efficiency_for("h100_sxm", "vllm", "bf16", model)
    place = catalog.model(model), catalog.gpu("h100_sxm"), Parallel(tp)
    usual, quick = (step(*place, 64.0, 1500.0, 512.0, 256.0, own) for own in (e, faster(e, 1.25)))
    for name, before, after in zip(usual._fields, usual, quick, strict=True):
        assert float(after) == pytest.approx(float(before) / 1.25, rel=1e-6), name


def test_the_factor_and_its_interval_are_of_the_gpus_maker():
    assert maker("mi355x") == "amd" and maker("rtx_4090") == "nvidia"
    for gpu in ("h200_sxm", "mi300x"):
        own = tuned(gpu)
        assert own.low < own.factor < own.high and own.runs_count > 0
        assert own.latency[0] < 1.0 < own.latency[1]
        calibrated = 1.2 * own.factor  # of what takes 1.2 as tuned; as the quickest and the slowest run it takes
        assert 1.2 * own.latency[0] * own.high == pytest.approx(calibrated) == 1.2 * own.latency[1] * own.low
        assert "MLPerf" in own.provenance and f"{own.factor:.2f}" in own.provenance


def test_a_plan_says_that_it_is_for_tuned_servers(capsys):
    asked = ["--isl", "500", "--osl", "100", "--rate", "400 req/s", "--gpu", "mi300x", "--tp", "1", "--json"]
    found = []
    for more in ([], ["--tuned"]):
        assert main(["plan", *asked, "--model", "llama-3.1-8b", "--no-split", "--no-sensitivity", *more]) == 0
        found.append(json.loads(capsys.readouterr().out))
    usual, quick = (document["result"]["recommended"] for document in found)
    factor = tuned("mi300x").factor
    assert quick["pools"][0]["latency_provenance"] == tuned("mi300x").provenance
    assert (quick["fleet_gpus"] - usual["fleet_gpus"]) * (1.0 - factor) >= 0
    assert found[1]["inputs"]["asked"]["measured"]["tuned"] is True


def test_predictions_of_rows_are_divided_by_it(capsys):
    rows = []
    for more in ([], ["--tuned"]):
        assert main(["predict", "examples/data/measured.csv", *more]) == 0
        said = capsys.readouterr()
        rows.append(next(csv.DictReader(io.StringIO(said.out))))
    assert "tuned as MLPerf" in said.err
    for metric in ("ttft", "tpot"):
        before, after = (float(row[f"{metric}_ms"]) for row in rows)
        assert after == pytest.approx(before / tuned("h200_sxm").factor, rel=1e-4)
        assert float(rows[1][f"{metric}_lo95_ms"]) < float(rows[1][f"{metric}_lo80_ms"]) < after


def test_a_factor_and_a_calibration_of_ones_own_exclude_each_other(capsys):
    assert main(["plan", "--rate", "5 req/s", "--tuned", "--calibration", "nowhere.json"]) == 2
    assert "tuned" in capsys.readouterr().err
