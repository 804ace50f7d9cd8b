"""What `dmodels fit` says beside its tables."""

from __future__ import annotations

import json
from importlib import import_module
from types import SimpleNamespace as Record

from dmodels.cli import main, render
from dmodels.cli.fit import MACHINE, MachineTable, _outlier_table, _result, _sweep_table, _tables, _write
from dmodels.fit.predict import Errors
from tests.audit.terminal import audit_shown


def test_rows_are_counted_by_what_became_of_them(capsys):
    found = Record(rows=[0] * 5, rejected=[Record(id="a", line=7, reason="no GPU"), Record(id="b", line=0, reason="?")])
    found.outliers = [("row", "ttft", 1.0, 2.0, "?")]
    _write(found, "rows.csv", None)
    said = capsys.readouterr().err.splitlines()
    assert said == ["skipped a (line 7): no GPU", "skipped b: ?", "5 rows used, 2 skipped, 1 outlier"]


def test_outliers_that_are_not_shown_are_told_of():
    odd = [(f"row {k}", "ttft", 9.0 + k, 2.0, "far") for k in range(23)]
    title, head, rows = _outlier_table(odd)
    assert title.endswith(", 20 of 23") and rows == [list(one) for one in odd[:20]] and head[0] == "row"
    title, _, rows = _outlier_table(odd[:20])
    assert " of " not in title and len(rows) == 20


def test_the_errors_of_kernels_are_a_table_and_a_document(monkeypatch, tmp_path, capsys):
    """One kind, of which no GPU was left out; the constants go to the file that is named."""
    counted = {"shapes_count": 9, "shapes_median": 0.0512, "shapes_p90": 0.126}
    counted |= {"pair_count": 4, "pair_median": 0.25, "pair_p90": 0.5, "gpu_count": 0, "gpu_median": None}
    error = {"kind": "all_reduce", **counted, "gpu_p90": None}
    laws = Record(provenance={"rows": {"all_reduce": 13}})
    found = Record(summary=lambda *by: [error], coefficients=laws, skipped=[("x.parquet", "no GPU")])
    asked = []
    monkeypatch.setattr(
        import_module("dmodels.fit.operators.refit"), "refit", lambda *given: asked.append(given) or found
    )
    monkeypatch.setattr(
        import_module("dmodels.fit.operators.coefficients"), "dump", lambda written: f"{written is laws}"
    )
    out = tmp_path / "laws.json"
    assert main(["fit", "operators", "some/", "--kind", "all_reduce", "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert "x.parquet: skipped, no GPU" in said.err and out.read_text() == "True"
    row = next(line for line in said.out.splitlines() if "all_reduce" in line)
    cells = [cell.strip() for cell in row.strip("│ ").split("│")]
    assert cells == ["all_reduce", "13", "5.1 % (13 %)", "25.0 % (50 %)", "-"]
    assert main(["fit", "operators", "some/", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["command"], told["schema"]) == ("operators", "dmodels.operators/1")
    assert told["result"]["skipped"] == [{"table": "x.parquet", "reason": "no GPU"}]
    assert asked == [("some/", ("all_reduce",)), ("some/", ())]


MACHINES = [("h100_sxm", "vllm", "fp8"), ("h200_sxm", "sglang", "bf16")]


def fitted(**more):
    """A fit whose numbers all differ."""
    of = lambda k: {
        metric: Errors(10 * k + i, median=0.1 * k + 0.01 * i, mean=0.15 * k, p90=0.2 * k + 0.05 * i)
        for i, metric in enumerate(("ttft", "tpot"), start=1)
    }
    table = [
        {"gpu": gpu, "backend": engine, "precision": bits, "mfu": 0.51239 + k, "hbm": 0.25 + k}
        for k, (gpu, engine, bits) in enumerate(MACHINES)
    ]
    known = {"before": of(1), "after": of(2), "held_out": of(3), "table": table, "outliers": [], "sweeps": []}
    known |= {"spread80": {"ttft": (0.71239, 1.413), "tpot": (0.854, 1.2214)}, "rejected": [], "own": "calibration"}
    return Record(**known | more)


def test_the_tables_of_a_fit_one_after_the_other():
    """Errors in per cent, efficiencies and factors to three digits."""
    errors, efficiencies, spread = _tables(fitted())
    assert errors[0] == "Absolute error"
    assert dict(zip(errors[1], errors[2][0], strict=True)) == {
        "latency": "ttft",
        "rows": 11,
        "median before": "11.0 %",
        "after": "21.0 %",
        "after, held out": "31.0 %",
        "P90 before": "25.0 %",
        "after ": "45.0 %",
        "after, held out ": "65.0 %",
    }
    assert errors[2][1] == ["tpot", 12, "12.0 %", "22.0 %", "32.0 %", "30.0 %", "50.0 %", "70.0 %"]
    heads = ["efficiency", "h100_sxm vllm fp8", "h200_sxm sglang bf16"]
    rows = [["mfu", 0.512, 1.512], ["hbm", 0.25, 1.25]]
    assert efficiencies == ("Efficiencies after the fit", heads, rows)
    title = "80 % of new points, as factors on a prediction after the fit"
    assert spread == (title, ["latency", "from", "to"], [["ttft", 0.712, 1.413], ["tpot", 0.854, 1.221]])
    odd = [("r7", "ttft", 912.0, 101.0, "far")]
    *_, (title, head, rows) = _tables(fitted(outliers=odd))
    assert (title, rows) == ("Outliers (kept, with little weight)", [["r7", "ttft", 912.0, 101.0, "far"]])
    assert head == ["row", "latency", "measured [ms]", "against [ms]", "why"]


SWEEP = {
    "name": "runs.json",
    "concurrency_count": [1.34, 15.76],
    "throughput_rps": [0.51234, 4.711],
    "ttft_s": [0.12345, 0.5678],
    "tpot_s": [0.0101, 0.030304],
    "step_base_s": 0.02254,
    "step_base_interval_s": (0.021, 0.0244),
    "step_per_sequence_s": 5.51e-4,
    "step_per_sequence_interval_s": (5.1e-4, 6.2e-4),
    "knee_count": 12.34,
    "knee_interval_count": (9.1, 15.24),
    "ceiling_rps": 5.314,
    "contradictions": ("throughput falls", "TTFT falls"),
}


def test_a_sweep_of_loads_says_below_them_what_they_say():
    title, head, rows = _sweep_table(Record(**SWEEP))
    assert (title, head) == ("Load sweep: runs.json", ["in flight", "req/s", "TTFT [ms]", "TPOT [ms]"])
    assert rows == [
        [1.3, "0.512", "123.5", "10.1"],
        [15.8, "4.71", "567.8", "30.3"],
        ["TPOT", "", "22.5 (21 to 24.4) ms", "+ 0.551 (0.51 to 0.62) ms each in flight"],
        ["knee 12.3", "at most 5.31", "9.1 to 15.2", ""],
        ["!", "throughput falls", "", ""],
        ["!", "TTFT falls", "", ""],
    ]
    quiet = {"knee_count": float("nan"), "contradictions": ()}
    assert _sweep_table(Record(**SWEEP | quiet))[2] == rows[:3]
    *_, last = _tables(fitted(sweeps=[Record(**SWEEP)]))
    assert last == (title, head, rows)


def test_the_document_of_a_fit_part_by_part():
    out = [Record(id="b", line=3, reason="no GPU")]
    found = fitted(outliers=["odd"], rejected=out, sweeps=[Record(to_dict=lambda: "a sweep")])
    assert _result(found) == {
        "errors": {"before": found.before, "after": found.after, "held_out": found.held_out},
        "efficiencies": found.table,
        "outliers": ["odd"],
        "rejected": [{"id": "b", "line": 3, "reason": "no GPU"}],
        "spread80": found.spread80,
        "sweeps": ["a sweep"],
    }
    assert [*_result(found)["errors"]] == ["before", "after", "held_out"]


def test_the_tables_of_a_fit_are_its_document(capsys):
    """The auditor of tables reads every cell."""
    odd = ("r7", "ttft", 912.0, 101.0, "nine times the prediction")
    found = fitted(outliers=[odd], sweeps=[Record(**SWEEP, to_dict=lambda: SWEEP)])
    render.show(_tables(found))
    result = json.loads(json.dumps(render.whole(render.plain(_result(found)))))
    audit_shown({"command": "fit", "inputs": {}, "result": result}, capsys.readouterr().out)


def test_a_fit_is_asked_for_written_and_shown(unaudited, monkeypatch, tmp_path, capsys):
    """The calibration says which files it is of; the tables go to stdout, what was left out to stderr."""
    asked, written = [], []
    found = fitted(rows=[0], rejected=[Record(id="b", line=3, reason="no GPU")])
    refit = import_module("dmodels.fit.refit")
    monkeypatch.setattr(refit, "refit", lambda *given, **how: asked.append((given, how)) or found)
    monkeypatch.setattr(refit, "written", lambda *given: written.append(given) or "the calibration")
    out = tmp_path / "mine.json"
    assert main(["fit", "a/rows.csv", "b.csv", "--out", str(out)]) == 0
    told = capsys.readouterr()
    assert told.err.splitlines() == ["skipped b (line 3): no GPU", "1 row used, 1 skipped, 0 outliers"]
    assert [title for title in ("Absolute error", "Efficiencies", "80 %") if title in told.out] and len(asked) == 1
    assert written == [("calibration", "rows.csv, b.csv")] and out.read_text() == "the calibration"
    assert main(["fit", "a/rows.csv", "--tp", "2", "--steps", "3"]) == 0 and len(written) == 1
    assert asked[0] == ((["a/rows.csv", "b.csv"],), {"max_steps": 15})
    (files,), how = asked[1]
    assert files == "a/rows.csv" and how["max_steps"] == 3 and how["machine"].tp == 2


def test_a_machine_is_what_was_said_of_it():
    assert MachineTable().machine() is None
    said = {"model": "m", "gpu": "g", "engine": "e", "precision": "p", "tp": 2, "dp": 3, "ep": 4}
    assert tuple(said) == MACHINE and MachineTable(**said).machine().options == said
    assert MachineTable(dp=3).machine().options == {"dp": 3}
