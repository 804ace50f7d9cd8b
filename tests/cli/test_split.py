"""`dmodels split`: a mistake in the scenario is one line with the field's path; the answer as JSON and page."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace as Record

import pytest

from dmodels.cli import main
from dmodels.cli.split import _notes

EXAMPLE = Path(__file__).parents[2] / "examples" / "split.toml"

WRONG = {  # what the message says: (what is replaced, by what, where the message points)
    "a unit is missing": ('ttft = "2 s"', 'ttft = "2"', "slo.ttft"),
    "has no unit": ('ttft = "2 s"', "ttft = 2", "slo.ttft"),
    "the nearest are": ("count = 40", "cuont = 40", "gpu.cuont"),
    "is missing": ('tpot = "25 ms"', "", "slo.tpot"),
    "greater than or equal to 1": ("prefill_tp = 4", "prefill_tp = 0", "parallel.prefill_tp"),
    "give one of": ('name = "azure-conv"', 'name = "azure-conv"\ninput_tokens = 5', "workload"),
    "no engine runs the layout": ("prefill_tp = 4", "prefill_tp = 3", "prefill = tp 3"),
    "tp must divide": ("decode_tp = 4", "decode_tp = 12", "decode = tp 12"),
    "unknown": ('name = "h100_sxm"', 'name = "h1000"', "h1000"),
    "at line": ("[gpu]", "[gpu", "split.toml"),
}


@pytest.mark.parametrize("says", WRONG)
def test_a_mistake_is_one_line_with_the_path_of_the_field(says, tmp_path, capsys):
    old, new, where = WRONG[says]
    text = EXAMPLE.read_text()
    assert old in text
    path = tmp_path / "split.toml"
    path.write_text(text.replace(old, new, 1))
    assert main(["split", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and where in error
    assert says in error


def test_show_python_prints_the_call(capsys):
    assert main(["split", str(EXAMPLE), "--show-python"]) == 0
    printed = capsys.readouterr().out
    compile(printed, "shown", "exec")
    assert "SLO(ttft_s=2.0, tpot_s=0.025),\n    budget_gpus=40,\n" in printed


def test_workers_have_the_gpus_that_the_file_gives_them(tmp_path, capsys):
    path = tmp_path / "split.toml"
    path.write_text(EXAMPLE.read_text().replace("prefill_tp = 4", "prefill_tp = 2"))
    assert main(["split", str(path), "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)["result"]["whole_workers"]
    each = [whole[f"{role}_gpus"] / whole[f"{role}_instances"] for role in ("prefill", "decode")]
    assert each == [2, 4]


def test_the_example_end_to_end(tmp_path, capsys):
    page = tmp_path / "split.html"
    assert main(["split", str(EXAMPLE), "--json", "--out", str(page)]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    whole = result["whole_workers"]
    assert whole["prefill_gpus"] + whole["decode_gpus"] <= 40 and whole["prefill_gpus"] % 4 == 0
    assert whole["ttft_violation_frac"] + whole["itl_violation_frac"] >= result["optimum"]["cost"] - 1e-9
    assert result["equilibrium"]["cost"] >= result["optimum"]["cost"] - 1e-9
    assert page.read_text().count("<svg") == 2
    tiny = tmp_path / "tiny.toml"
    tiny.write_text(EXAMPLE.read_text().replace("count = 40", "count = 6"))
    assert main(["split", str(tiny)]) == 1  # six GPUs hold no two workers of four
    assert "does not hold" in capsys.readouterr().out


def test_what_selfishness_costs_and_load_moves_is_told_in_words():
    """Nothing of what is not known, or does not move."""
    told = lambda loss, slope: _notes(
        Record(whole=Record(flags=0), notes=["so"], loss_frac=loss, slope_gpus_per_rps=slope)
    )
    assert told(0.01234, -0.25) == [
        "so",
        "The equilibrium costs 1.23% more violations than the optimum.",
        "One more request per second moves the optimum by -0.25 prefill GPUs.",
    ]
    assert told(math.inf, 0.0) == told(math.nan, math.nan) == ["so"]
