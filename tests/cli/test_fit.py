"""What `dmodels fit` says beside its tables."""

from __future__ import annotations

from types import SimpleNamespace as Record

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
