"""What `dmodels fit` says beside its tables."""

from __future__ import annotations

import json
from importlib import import_module
from types import SimpleNamespace as Record

from dmodels.cli import main
from dmodels.cli.fit import _outlier_table, _write


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
