"""Points of load generators as rows for the fit: what is missing is asked for, sweeps are judged, plans follow."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from dmodels import SLO, catalog
from dmodels.core.errors import InputError
from dmodels.fit.calibration import calibration
from dmodels.fit.hierarchy import NAMES
from dmodels.fit.load_sweeps import load_sweeps
from dmodels.fit.measured import Machine, published, read_any, rows_of
from dmodels.fit.points import LENGTH_FRAC, to_points
from dmodels.fit.predict import errors
from dmodels.fit.refit import OwnCalibration, own_calibration, read_own, refit
from dmodels.fit.refit import written as as_file
from dmodels.fit.rows import Table
from dmodels.fit.silicon import Effects, predict_log
from dmodels.formats.measurements import LatencyStats, LoadPoint
from dmodels.studies.plan import by_formula, question

POINT = LoadPoint(
    form="vllm-bench",
    where="run.json",
    input_tokens=900.0,
    output_tokens=200.0,
    throughput_rps=2.0,
    ttft=LatencyStats(0.08),
    tpot=LatencyStats(0.012),
    model="meta-llama/Llama-3.1-8B-Instruct",
    engine="vllm",
)
L40S = Machine(gpu="l40s", tp=1)


def test_a_point_is_a_row_of_nominal_lengths_and_measured_load():
    (row,) = rows_of([POINT], Machine(gpu="H100", tp=2)).rows
    assert (row.system, row.backend, row.decode.tp, row.precision) == ("h100_sxm", "vllm", 2.0, "")
    assert row.isl * LENGTH_FRAC == pytest.approx(900) and row.osl * LENGTH_FRAC == pytest.approx(200)
    assert row.concurrency == pytest.approx(2.0 * (0.08 + 199 * 0.012))
    assert (
        rows_of([replace(POINT, model="deepseek-ai/DeepSeek-V3")], Machine(gpu="h200", tp=8)).rows[0].precision == "fp8"
    )


def test_a_model_is_published_in_the_precision_of_most_of_its_weights():
    """Experts of four bits in gpt-oss, whose attention has sixteen; eight throughout in DeepSeek-V3."""
    models = "gpt-oss-120b", "deepseek-v3", "llama-3.1-8b", "qwen3-30b-a3b"
    assert list(map(published, models)) == ["fp4", "fp8", "bf16", "bf16"]


@pytest.mark.parametrize(
    "point, machine, why",
    [
        (POINT, Machine(tp=1), "run.json: vllm-bench states no GPU; --gpu NAME adds it"),
        (POINT, Machine(gpu="l40s"), "states no tensor parallelism; --tp N adds it"),
        (replace(POINT, engine=""), L40S, "states no engine; --engine NAME adds it"),
        (replace(POINT, model=""), L40S, "states no model; --model NAME adds it"),
        (replace(POINT, model="our-own"), L40S, "--model NAME says which it is"),
        (replace(POINT, gpu="abacus"), Machine(tp=1), "--gpu NAME says which it is"),
        (replace(POINT, tp=4), L40S, "the file says tp 4, not --tp 1"),
        (replace(POINT, engine="sglang"), Machine(gpu="l40s", tp=1, engine="vllm"), "the file says engine sglang"),
        (
            POINT,
            replace(L40S, model="qwen3-8b"),
            "the file says meta-llama/Llama-3.1-8B-Instruct, not --model qwen3-8b",
        ),
    ],
)
def test_what_is_missing_is_asked_for_by_its_flag(point, machine, why):
    with pytest.raises(InputError) as error:
        rows_of([point], machine)
    assert why in str(error.value)
    with pytest.raises(InputError, match="--engine tgi: accepted are vllm, sglang, trtllm"):
        Machine(engine="tgi")


def test_a_run_without_streaming_is_rejected_not_guessed():
    table = rows_of([replace(POINT, tpot=LatencyStats())], L40S)
    assert not table.rows and "streaming" in table.rejected[0].reason


def sweep(loads, slow=1.0, **more):
    """Points of a GPU that the calibration has never seen, as its own law of steps has them."""
    points = []
    for n in loads:
        tpot, ttft = slow * (0.0225 + 5.5e-4 * n), 0.06 + 0.006 * n
        rate = n / (ttft + 199 * tpot)
        one = replace(POINT, throughput_rps=rate, ttft=LatencyStats(ttft), tpot=LatencyStats(tpot), where=f"n{n}")
        points.append(replace(one, **more))
    return points


def written(tmp_path, points):
    head = "model,engine,gpu,tp,input_tokens,output_tokens,throughput_rps,ttft_s,tpot_s"
    lines = [
        f"{p.model},vllm,l40s,1,{p.input_tokens},{p.output_tokens},{p.throughput_rps},{p.ttft.mean_s},{p.tpot.mean_s}"
        for p in points
    ]
    path = tmp_path / "ours.csv"
    path.write_text("\n".join([head, *lines]), encoding="utf-8")
    return path


@pytest.mark.slow
def test_ten_points_halve_the_error_on_a_gpu_that_was_never_measured(tmp_path):
    """Ten points at loads from 1 to 24; the error is that at other loads and lengths of the same machine."""
    path = written(tmp_path, sweep(np.linspace(1, 24, 10), slow=1.3))
    found = refit(path, max_steps=8)
    asked = rows_of(sweep([3, 11, 19, 30], slow=1.3), Machine(gpu="l40s", tp=1))
    points, kept = to_points(Table(asked.rows, []))
    measured = np.array([row.tpot_s for row in kept.rows])
    before, after = (
        errors(np.exp(predict_log(points, kept.rows, effects)[:, 1]), measured).mean
        for effects in (calibration(), found.effects)
    )
    assert after < 0.5 * before
    low, high = found.spread80["tpot"]
    assert 0.85 < low <= 1.0 <= high < 1.2
    own = own_calibration(path, max_steps=1)
    assert own.pairs == {("llama-3.1-8b", "l40s", "vllm")} and own.points_count == 10


def test_another_unit_throughout_a_file_is_noticed_by_the_model(tmp_path):
    """A table of TTFT, TPOT and throughput alone has nothing to hold TTFT against but what the model says."""
    points = [replace(p, ttft=LatencyStats(1e3 * p.ttft.mean_s)) for p in sweep([1, 4, 16])]
    with pytest.raises(InputError, match=r"TTFT is .* times what the model predicts.*in another unit"):
        refit(written(tmp_path, points))


def test_a_sweep_gives_back_its_law():
    (found,) = load_sweeps(rows_of(sweep([1, 2, 4, 8, 16, 32]), L40S).rows)
    assert found.step_base_s == pytest.approx(0.0225, rel=1e-3)
    assert found.step_per_sequence_s == pytest.approx(5.5e-4, rel=1e-3)
    assert found.contradictions == () or "extrapolated" in found.contradictions[0]
    low, high = found.knee_interval_count
    assert low < found.knee_count < high


def test_a_sweep_that_contradicts_itself_is_reported():
    points = sweep([1, 2, 4, 8, 16])
    points[0] = replace(points[0], ttft=LatencyStats(0.9))  # the first run compiled
    points[4] = replace(points[4], throughput_rps=1.0, tpot=LatencyStats(0.5))  # a hot GPU
    (found,) = load_sweeps(rows_of(points, L40S).rows)
    assert any("TTFT falls" in said and "warm-up" in said for said in found.contradictions)
    assert any("throughput falls" in said for said in found.contradictions)


def test_two_points_are_no_sweep_and_other_lengths_another():
    rows = rows_of(sweep([1, 2]) + sweep([4, 8], input_tokens=4000.0), L40S).rows
    assert load_sweeps(rows) == ()


def test_files_of_both_kinds_are_read_together(tmp_path):
    table = read_any([written(tmp_path, sweep([1, 2])), "examples/data/measured.csv"], None)
    assert len(table.rows) == 2 + 69


@pytest.mark.slow
def test_a_plan_on_measured_points_says_so_and_is_surer(tmp_path):
    from dmodels import Workload
    from dmodels.studies.plan import plan

    lengths, slo = Workload.fixed(900.0, 200.0, 10.0), SLO(2.0, 0.08)
    asked = question("llama-3.1-8b", ["l40s"], lengths, slo, tp=(1,), split=False)
    own = own_calibration(written(tmp_path, sweep(np.linspace(1, 24, 10), slow=1.3)), max_steps=8)
    shipped, measured = plan(asked).best, plan(replace(asked, measured=own)).best
    assert "10 measured points of your own" in measured.pools[0].confidence.provenance
    wide, narrow = (d.gpus_high - d.gpus_low for d in (shipped, measured))
    assert narrow < wide and measured.pools[0].tpot_mean_s != shipped.pools[0].tpot_mean_s


def test_a_calibration_that_was_written_is_the_one_a_plan_takes(tmp_path):
    shipped = calibration()
    beta = np.array(shipped.beta)
    beta[0, NAMES.index("hbm_frac")] -= 1.0
    slower = Effects(shipped.levels, beta)
    own = OwnCalibration(
        slower, {"ttft": (0.9, 1.2), "tpot": (0.95, 1.05)}, frozenset([("llama-3.1-8b", "l40s", "vllm")]), 3
    )
    file = tmp_path / "ours.json"
    file.write_text(as_file(own, "three points"))
    again = read_own(file)
    assert again[1:] == own[1:] and set(again.effects.levels) == set(slower.levels)
    chat, given = catalog.workload("azure-conv", 2.0), {"tp": (1,), "split": False, "thresholds_tokens": ()}

    def pool(**own):
        return by_formula(question("llama-3.1-8b", ["l40s"], chat, SLO(4.0, 0.2), **own, **given)).best.pools[0]

    ours, theirs, same = pool(calibration=file), pool(), pool(measured=own)
    assert pool(measured=again) == ours
    assert ours.tpot_mean_s == pytest.approx(same.tpot_mean_s, rel=1e-3)  # effects are written with four digits
    assert ours.tpot_mean_s > 1.02 * theirs.tpot_mean_s
    assert ours.confidence.tpot == (0.95, 1.05) and "3 measured points" in ours.confidence.provenance


def test_a_calibration_that_does_not_say_what_was_measured_is_refused(tmp_path):
    file = tmp_path / "other.json"
    file.write_text('{"effects": {"all": {}}}')
    with pytest.raises(InputError, match="dmodels fit --out"):
        read_own(file)


def of_slow_memory():
    """The shipped calibration with less of the bandwidth."""
    beta = np.array(calibration().beta)
    beta[0, NAMES.index("hbm_frac")] -= 4.0
    return OwnCalibration(
        Effects(calibration().levels, beta), {"ttft": (0.9, 1.2), "tpot": (0.95, 1.05)}, frozenset(), 3
    )


def test_the_cells_of_a_sweep_have_the_steps_of_ones_own_calibration():
    from dmodels.studies.sweep import Scenario, _cells

    one = {"model": "llama-3.1-8b", "gpu": "l40s", "workload": "azure-conv", "input_tokens": None, "weights": "bf16"}
    one |= {"output_tokens": None, "kv": "bf16", "tp": 1, "pp": 1, "dp": 1, "ep": 1}
    plain, slow = (
        np.asarray(_cells(Scenario(one, measured=own), [one])[0].steps.alone_s) for own in (None, of_slow_memory())
    )
    assert (slow > plain).all() and slow[0, 0] > 1.1 * plain[0, 0]


# the formula of a sweep is a program of its own
@pytest.mark.parametrize("command", ["step", "plan", pytest.param("sweep", marks=pytest.mark.slow)])
def test_every_command_that_predicts_takes_ones_own_calibration(command, tmp_path, capsys):
    """Steps of memory-bound engines with less of the bandwidth take longer, wherever they are predicted."""
    from dmodels.cli import main

    file, scenario = tmp_path / "ours.json", tmp_path / "one.toml"
    file.write_text(as_file(of_slow_memory(), "no point"))
    fields = '[model]\nname = "llama-3.1-8b"\n[gpu]\nname = "l40s"\n[workload]\nname = "azure-conv"\n'
    scenario.write_text(f'{fields}[traffic]\nrate = "2 req/s"\n[parallel]\ntp = 1\n')
    ask = {
        "step": ["step", "--model", "llama-3.1-8b", "--gpu", "l40s", "--concurrency", "1"],
        "plan": ["plan", "--model", "llama-3.1-8b", "--gpu", "l40s", "--tp", "1", "--no-split", "--rate", "2 req/s"],
        "sweep": ["sweep", str(scenario), "--axis", "rate=2"],
    }[command]
    ask += ["--no-sensitivity", "--tpot", "200 ms"] if command == "plan" else []
    times = []
    for more in ([], ["--calibration", str(file)]):
        if command == "sweep" and more:
            scenario.write_text(scenario.read_text() + f'[measured]\ncalibration = "{file}"\n')
            more = []
        assert main([*ask, *more, "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)["result"]
        times.append(
            {
                "step": lambda found: found["step_s"],
                "plan": lambda found: found["recommended"]["tpot_ms"],
                "sweep": lambda found: found["best"][0]["tpot_s"],
            }[command](answer)
        )
    assert times[1] > 1.1 * times[0]
