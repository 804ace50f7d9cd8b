"""`dmodels split`: a mistake in the scenario is one line with the field's path; the answer as JSON and page."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace as Record

import pytest

from dmodels.cli import main, split
from dmodels.cli.split import _notes
from dmodels.core.flags import Flag, describe

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


def told_by_hand(flags=0):
    """A split whose numbers all differ."""
    names = ("prefill_gpus", "decode_gpus", "ttft_violation_frac", "itl_violation_frac")
    of = lambda k, **more: Record(**dict(zip(names, (k, k + 1.0, k / 100, k / 1e7), strict=True)), **more)
    whole = of(8.0, prefill_instances=2.0, decode_instances=3.0)
    certificate = {"equilibria_gpus": [3.0, math.nan, 5.0], "kkt_residual": 1e-9}
    found = Record(equilibrium=Record(value=of(4.0), certificate=certificate, flags=1), optimum=Record(value=of(6.0)))
    found.whole = Record(value=whole, flags=flags, certificate={"integrality_gap": 0.07})
    score = Record(violation_frac=0.25, moves_count=11.0, worst_wait_s=1.5, recovery_s=40.0)
    found.scores, found.loss_frac, found.slope_gpus_per_rps = {"planner a": score}, 0.5, 0.25
    found.notes = ["a note"]
    return found


def test_a_split_is_told_beside_the_best_and_in_whole_workers():
    shares, planners = split._tables(told_by_hand())
    heads = ["split", "prefill [GPU]", "decode [GPU]", "TTFT misses", "ITL misses"]
    rows = [
        ["equilibrium", 4.0, 5.0, "4%", "under 0.001%"],
        ["optimum", 6.0, 7.0, "6%", "under 0.001%"],
        ["whole workers: 2 + 3", 8.0, 9.0, "8%", "under 0.001%"],
    ]
    assert shares == ("Prefill/decode split", heads, rows)
    heads = ["planner", "late requests", "workers moved", "worst wait [s]", "recovery [s]"]
    assert planners == ("Planners on a ten-minute burst", heads, [["planner a", "25%", 11.0, 1.5, 40.0]])
    found = told_by_hand(flags=int(Flag.OVERLOAD))
    found.scores = {}
    assert split._tables(found) == [("Prefill/decode split", shares[1], rows[:2])]  # no workers hold it


def test_the_document_of_a_split_part_by_part():
    found = told_by_hand(flags=2)
    assert split._result(found) == {
        "equilibrium": vars(found.equilibrium.value) | {"flags": 1},
        "equilibria_prefill_gpus": [3.0, 5.0],
        "kkt_residual": 1e-9,
        "optimum": vars(found.optimum.value),
        "whole_workers": vars(found.whole.value) | {"flags": 2},
        "integrality_gap": 0.07,
        "loss_frac": 0.5,
        "optimum_slope_gpus_per_rps": 0.25,
        "planners": found.scores,
        "notes": ["a note"],
    }


def test_no_split_is_told_first_and_tables_come_behind_words(monkeypatch, capsys):
    found = told_by_hand(flags=int(Flag.OVERLOAD))
    first, note, *more = _notes(found)
    assert (first, note, len(more)) == (f"No split: {describe(Flag.OVERLOAD)}.", "a note", 2)
    assert [split._feasible(told_by_hand(flags=f)) for f in (0, int(Flag.OVERLOAD))] == [True, False]
    monkeypatch.setattr(split.render, "show", lambda tables: print([title for title, *_ in tables]))
    split._show(told_by_hand())
    *said, titles = capsys.readouterr().out.splitlines()
    assert said == _notes(told_by_hand()) and titles == "['Prefill/decode split', 'Planners on a ten-minute burst']"


def test_a_split_is_drawn_or_written_as_a_page_as_the_ending_says(monkeypatch, tmp_path):
    from dmodels.report import html, split_figures, style

    done = []
    monkeypatch.setattr(style, "save", lambda *given: done.append(given))
    monkeypatch.setattr(split_figures, "figure", lambda answer: ("figure of", answer))
    monkeypatch.setattr(html, "drawn", lambda answer, drawings: ("drawn", answer, drawings))
    monkeypatch.setattr(html, "report", lambda *parts: done.append(parts) or "the page")
    found, page = told_by_hand(), tmp_path / "x.HTML"
    split._draw(found, None)
    assert done == []
    split._draw(found, tmp_path / "x.svg")
    assert done == [(("figure of", found), tmp_path / "x.svg")]
    split._draw(found, page)
    drawn = ("drawn", found, split_figures.DRAWINGS)
    assert done[1] == ("Prefill/decode split", _notes(found), drawn, split._tables(found))
    assert page.read_text() == "the page"


def test_a_split_is_answered_with_its_inputs_and_drawn(handed, monkeypatch, tmp_path):
    monkeypatch.setattr(split, "_draw", lambda *given: given)
    assert main(["split", str(EXAMPLE), "--out", str(tmp_path / "x.svg")]) == 0
    assert handed.call.target == "dmodels.studies.split:split" and handed.inputs(None)["gpu"]["count"] == 40
    assert (handed.result, handed.show, handed.feasible) == (split._result, split._show, split._feasible)
    assert handed.write("answer") == ("answer", tmp_path / "x.svg")
    ends = lambda **gpu: split.CountedGpu(name="h100_sxm", **gpu).count
    assert (ends(count=1), ends(count=1_000_000)) == (1, 1_000_000)
    for count in (0, 1_000_001):
        with pytest.raises(ValueError, match="count"):
            ends(count=count)
    assert split.BurstTable(burst=1.001).burst == 1.001
    for burst in (1.0, math.inf):
        with pytest.raises(ValueError, match="burst"):
            split.BurstTable(burst=burst)
