"""The accuracy page: made from committed results, and a gate that a release does not pass with a worse median."""

from __future__ import annotations

import hashlib
import json

import pytest

from tools import make_accuracy
from tools.accuracy_figures import SECTIONS, Figure, figures


@pytest.fixture
def released(tmp_path, monkeypatch):
    """A copy of the released figures that a test may change."""
    kept = make_accuracy._read(make_accuracy.RELEASED)
    file = tmp_path / "released.json"
    file.write_text(json.dumps(kept))
    monkeypatch.setattr(make_accuracy, "RELEASED", file)
    return file


def test_the_page_is_what_the_results_say_and_no_median_is_worse_than_released(capsys):
    assert make_accuracy.main(["--check"]) == 0, capsys.readouterr().err
    text = make_accuracy.PAGE.read_text()
    assert all(f"## {section}" in text for section in SECTIONS)
    assert text.count("cannot show") == len(SECTIONS)


def test_a_median_that_is_three_points_worse_holds_the_release_back(released, capsys):
    kept = json.loads(released.read_text())
    key = min(kept["medians"], key=lambda name: abs(kept["medians"][name] - 0.1))
    kept["medians"][key] -= 0.03
    released.write_text(json.dumps(kept))
    assert make_accuracy.main(["--check"]) == 1
    assert key in capsys.readouterr().err


def test_what_is_no_longer_measured_holds_it_back_too(released, capsys):
    kept = json.loads(released.read_text())
    kept["medians"]["Real servers: of a log that is gone"] = 0.05
    released.write_text(json.dumps(kept))
    assert make_accuracy.main(["--check"]) == 1
    assert "not measured now" in capsys.readouterr().err


def test_two_points_are_the_limit():
    now = [Figure("S", "a", 1, 0.119), Figure("S", "b", 1, 0.121), Figure("S", "c", 1, float("nan"))]
    told = make_accuracy.worse(now, {"S: a": 0.1, "S: b": 0.1, "S: c": 0.1})
    assert [line.split(":")[1].strip() for line in told] == ["b", "c"]


def test_every_figure_has_values_and_errors_are_shares():
    found = figures()
    assert {figure.section for figure in found} >= {"Serving rows", "Real servers", "MLPerf"}
    assert all(figure.count > 0 and figure.median_frac >= 0 for figure in found)
    assert len({figure.key for figure in found}) == len(found)


def test_the_cohorts_are_the_files_that_were_frozen(shared_data):
    cohorts = json.loads(make_accuracy.COHORTS.read_text())
    assert set(cohorts) == set(make_accuracy.FILES)
    for name, one in cohorts.items():
        assert hashlib.sha256((shared_data / name).read_bytes()).hexdigest() == one["sha256"], name
