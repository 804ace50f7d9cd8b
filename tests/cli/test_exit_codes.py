"""What a script can rely on: exit codes, one line for a fault, and files that are written though nobody reads on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace as Record

import pytest

from dmodels.cli import main, size
from dmodels.cli.plan import _feasible
from dmodels.studies.plan import Verified

CALL = "import sys; from dmodels.cli import main; sys.exit(main())"
SIZE = ["size", "--model", "qwen3-8b", "--gpu", "h100_sxm"]


def without_a_reader(*argv: str) -> subprocess.CompletedProcess:
    """A command whose output goes into a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [sys.executable, "-c", CALL, *argv]
        return subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=300)
    finally:
        os.close(writer)


def test_a_fault_of_the_program_is_3_and_one_line(monkeypatch, capsys):
    def broken(*_):
        raise KeyError("slots")

    monkeypatch.setattr(size, "_result", broken)
    monkeypatch.delenv("DMODELS_DEBUG", raising=False)
    assert main([*SIZE, "--json"]) == 3
    said = capsys.readouterr().err
    assert "KeyError" in said and "report" in said and said.count("\n") == 1
    monkeypatch.setenv("DMODELS_DEBUG", "1")
    with pytest.raises(KeyError):
        main([*SIZE, "--json"])


def test_what_is_not_there_is_named_with_what_to_do(monkeypatch, capsys):
    """A library that an extra brings, a file, and memory; the name of a fault comes before its words."""
    told = {
        ModuleNotFoundError("No module", name="pandas"): "size needs pandas: pip install 'dmodels[sweep]'",
        FileNotFoundError(2, "No such file or directory", "a.csv"): "a.csv: No such file or directory",
        OSError("the disk is full"): "output: the disk is full",
        MemoryError("9 GiB"): "more memory is needed than there is (9 GiB); accepted is less",
        ZeroDivisionError("of what"): "a fault of dmodels, not of its input (ZeroDivisionError: of what); ",
    }
    monkeypatch.delenv("DMODELS_DEBUG", raising=False)
    for error, line in told.items():

        def missing(*_, error=error):
            raise error

        monkeypatch.setattr(size, "_result", missing)
        assert main([*SIZE, "--json"]) == (3 if isinstance(error, ZeroDivisionError) else 2)
        said = capsys.readouterr().err
        assert said.startswith(f"dmodels: {line}") and said.count("\n") == 1
    assert said.rstrip() != f"dmodels: {line.rstrip()}"  # and where to report it


def test_an_interrupt_is_130(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(size, "_result", interrupted)
    assert main([*SIZE, "--json"]) == 130
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["--help"], ["catalog", "gpus"], ["size", "--help"]], ids=" ".join)
def test_a_closed_pipe_is_no_fault_and_no_answer(argv):
    done = without_a_reader(*argv)
    assert (done.returncode, done.stderr) == (141, "")


def test_the_picture_is_written_though_nobody_reads_the_tables(tmp_path):
    picture, log = tmp_path / "poa.png", Path(__file__).parents[2] / "examples" / "data" / "router_log.csv"
    done = without_a_reader("poa", str(log), "--window", "128", "--step", "256", "--plot", str(picture))
    assert done.returncode == 141 and picture.read_bytes().endswith(b"IEND\xaeB`\x82")


def test_a_closed_stdout_leaves_the_exit_code():
    line = f'"{sys.executable}" -c "{CALL}" {" ".join(SIZE)} >&-'
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_plan_is_feasible_where_anything_that_was_looked_at_keeps_the_slos():
    """One fleet in every replay of it, one for each class or region, or one by priority: any of them is enough."""
    held, broke = Record(holds=True), Record(holds=False)
    fits, tight = Record(fits=True), Record(fits=False)
    more = lambda **known: Record(**{"apart": None, "regions": None, "together": None, "checks": None} | known)
    none, fleet = Record(best=None), Record(best=Record())
    checked = lambda *replays: Verified(replays, None, None)
    for found, beside, good in (
        (none, more(), False),
        (fleet, more(), True),
        (fleet, more(checks=checked(held)), True),
        (fleet, more(checks=checked(broke)), False),
        (fleet, more(checks=checked(held, broke)), True),  # the first is the recommended fleet's
        (fleet, more(checks=checked(broke, held)), False),
        (none, more(apart=fits), True),
        (none, more(regions=fits), True),
        (none, more(together=held), True),
        (none, more(apart=tight, regions=tight, together=broke), False),
        (fleet, more(apart=tight, regions=fits, checks=checked(broke)), True),
    ):
        assert _feasible(found, beside) == good


def test_a_command_of_two_words_is_not_that_of_its_first(capsys):
    said = []
    for words in (["fit"], ["fit", "operators"]):
        assert main([*words, "--help"]) == 0
        said.append(" ".join(capsys.readouterr().out.split()))
    assert "dmodels fit operators" in said[1] and said[0] != said[1]
