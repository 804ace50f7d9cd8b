"""Every example is on the page of examples, where test_docs runs it; the notebooks run; the README leads somewhere."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.py"))
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROTOCOLS = {
    "random": "random folds",
    "pair": "an architecture on a GPU left out",
    "architecture": "a whole architecture left out",
    "gpu": "a whole GPU type left out",
}


def run(command: list[str], folder: Path) -> str:
    """What a command prints; it must succeed, without the settings of the test suite."""
    env = {key: value for key, value in os.environ.items() if key != "JAX_ENABLE_X64"} | {"OUT": str(folder)}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_every_example_is_shown_with_what_it_prints():
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    for path in (ROOT / "examples").glob("*.py"):
        assert f"$ python examples/{path.name}" in page, path.name
    for path in NOTEBOOKS:
        assert f"examples/notebooks/{path.name}" in page, path.name


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebooks_run_as_scripts(path, tmp_path):
    assert run([sys.executable, str(path)], tmp_path).strip()


@pytest.mark.slow
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("jupytext", "nbconvert", "ipykernel")),
    reason="the notebooks extra is not installed",
)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebooks_convert_and_run(path, tmp_path):
    out = tmp_path / f"{path.stem}.ipynb"
    command = [sys.executable, "-m", "jupytext", "--to", "ipynb", "--execute", "--run-path", str(ROOT)]
    run([*command, "--output", str(out), str(path)], tmp_path)
    assert '"output_type": "error"' not in out.read_text(encoding="utf-8")


def test_links_and_pictures_of_the_readme_are_there():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)|src=\"(?!http)([^\"]+)\"", README):
        assert (ROOT / (target[0] or target[1])).exists(), target


def test_the_readme_has_the_accuracy_that_was_measured():
    """Medians of TTFT and TPOT as a plan predicts them (the report's first part), protocol by protocol."""
    measured = (ROOT / "benchmarks" / "results" / "accuracy.txt").read_text()
    for protocol, words in PROTOCOLS.items():
        ttft, tpot = re.search(rf"^{protocol}: all .*?TTFT +([\d.]+) .*?TPOT +([\d.]+)", measured, re.M).groups()
        assert f"| {words} | {ttft} % | {tpot} % |" in README, protocol


def test_every_command_is_in_the_readme():
    from dmodels.cli import COMMANDS

    assert all(f"dmodels {name}" in README for name in COMMANDS)
