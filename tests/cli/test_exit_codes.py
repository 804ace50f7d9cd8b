"""What a script can rely on: exit codes, one line for a fault, and files that are written though nobody reads on."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dmodels.cli import main, size

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


def test_the_report_is_written_though_nobody_reads_the_tables(tmp_path):
    page = tmp_path / "plan.html"
    few = ["--tp", "4", "--gpu", "h100_sxm", "--thresholds", "2048", "--rate", "20 req/s", "--no-split"]
    done = without_a_reader("plan", *few, "--no-sensitivity", "--out", str(page))
    assert done.returncode == 141 and page.read_text(encoding="utf-8").endswith("</html>\n")


def test_a_closed_stdout_leaves_the_exit_code():
    line = f'"{sys.executable}" -c "{CALL}" {" ".join(SIZE)} >&-'
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
