"""Every recorded result has a benchmark that makes it, and the command names them all."""

from __future__ import annotations

import itertools

import pytest

from benchmarks.__main__ import main
from benchmarks.registry import RESULTS, cases, interleaved, text


def test_every_result_has_its_benchmark(capsys):
    made_by_tools = {"accuracy", "agreement"}
    assert {path.stem for path in RESULTS.glob("*.jsonl")} <= cases().keys() | made_by_tools
    assert main(["--list"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == sorted(cases())


def test_an_unknown_name_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["nothing"])
    assert "no benchmark nothing" in capsys.readouterr().err


def test_the_least_time_of_interleaved_rounds():
    """A clock that advances by 1, 2, 3, ... ticks between readings: of two cases in turn, the first round is least."""
    ticks = itertools.accumulate(itertools.count())
    assert interleaved({"a": lambda: None, "b": lambda: None}, 3, lambda: float(next(ticks))) == {"a": 1.0, "b": 3.0}


def test_a_row_in_four_digits():
    assert text({"n": 5, "rate": 1234567.0}) == "n 5  rate 1.235e+06"
