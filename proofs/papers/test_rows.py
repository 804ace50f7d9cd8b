"""Every row of every file of printed numbers has a value of ours or the reason why there is none, and its verdict."""

from __future__ import annotations

import pytest

from proofs.papers import rows as papers

FILES = sorted(papers.FOLDER.rglob("*.csv"))
GOOD = papers.Printed("a", "Table 1", "2.0", 2.04, "rounds").row()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(papers.FOLDER).as_posix())
def test_every_row_is_judged_by_its_rule(file):
    rows = papers.read(file.relative_to(papers.FOLDER).with_suffix("").as_posix())
    assert file.read_text(encoding="utf-8").startswith("# ") and rows
    assert len({row["id"] for row in rows}) == len(rows)
    assert [f"{row['id']}: {wrong}" for row in rows for wrong in papers.problems(row)] == []


def test_no_rule_allows_points_on_a_percentage():
    rules = {row["rule"].split()[0] for file in FILES for row in papers.csv_rows(file.read_text()) if row["rule"]}
    assert rules <= {"rounds", "relative", "interval", "above", "below", "range"}


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": "differs"},
        {"computed": ""},
        {"rule": "", "verdict": "agrees"},
        {"rule": "", "verdict": "tuned", "reason": ""},
        {"rule": "", "verdict": "not computed", "computed": "", "printed": "", "reason": ""},
        {"rule": "", "verdict": "not computed", "reason": "why"},
        {"low": "2.1", "high": "2.2"},
    ],
)
def test_a_bad_row_is_seen(change):
    assert papers.problems(GOOD) == [] and papers.problems(GOOD | change)


@pytest.mark.parametrize(
    "printed, ours, rule, low, high, verdict",
    [
        ("2.0", 2.04, "rounds", "", "", "agrees"),
        ("2.0", 2.06, "rounds", "", "", "differs"),
        ("2.9E+2", 290.5, "rounds", "", "", "agrees"),
        ("10", 10.9, "relative 0.1", "", "", "agrees"),
        ("10", 11.1, "relative 0.1", "", "", "differs"),
        ("0", 0.1, "relative 0.1", "", "", "differs"),
        ("0.91", 0.95, "interval", 0.88, 1.0, "agrees"),
        ("0.87", 0.95, "interval", 0.876, 1.0, "differs"),
        ("1.0", 1.6, "interval", 0.9, 2.3, "undecided"),
        ("0.87", 0.95, "interval", 0.874, 1.0, "agrees"),
        ("80", 83.3, "above", "", "", "agrees"),
        ("16", 220.0, "below", "", "", "differs"),
        ("(96, 128]", 98.0, "range 96 128", "", "", "agrees"),
    ],
)
def test_the_rules(printed, ours, rule, low, high, verdict):
    row = papers.Printed("a", "b", printed, ours, rule, "c", low=low, high=high).row()
    assert row["verdict"] == verdict and papers.problems(row) == []


@pytest.mark.parametrize("ours, rule, verdict", [(1.9, "", "tuned"), (1.7, "relative 0.1", "differs")])
def test_a_number_that_was_fitted_never_agrees(ours, rule, verdict):
    row = papers.Printed("a", "b", "2.0", ours, "fitted relative 0.1", "slope fitted").row()
    assert (row["rule"], row["verdict"]) == (rule, verdict) and papers.problems(row) == []


def test_an_unknown_rule_is_refused():
    with pytest.raises(ValueError, match="points 5"):
        papers.judge(GOOD | {"rule": "points 5"})
