"""Every example runs, and so does everything that the README shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
README = (ROOT / "README.md").read_text(encoding="utf-8")


def run(command: list[str], cwd: Path) -> str:
    env = {key: value for key, value in os.environ.items() if key != "JAX_ENABLE_X64"}
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_run(path, tmp_path):
    assert run([sys.executable, str(path)], tmp_path).strip()


def test_the_readme_shows_what_the_command_prints(tmp_path):
    """The first lines of the plan in the README are those that the command prints now."""
    block = re.search(r"```console\n\$ (dmodels plan .*?)\n(.*?)```", README, re.S)
    command = shlex.split(block[1])
    call = "import sys; from dmodels.cli import main; sys.exit(main())"
    printed = run([sys.executable, "-c", call, *command[1:]], tmp_path)
    shown = [line for line in block[2].splitlines() if line.strip() and not line.startswith("...")]
    for line in shown:
        assert line in printed, line


def test_python_in_the_readme_runs(tmp_path):
    for i, block in enumerate(re.findall(r"```python\n(.*?)```", README, re.S)):
        script = tmp_path / f"block{i}.py"
        script.write_text(block, encoding="utf-8")
        run([sys.executable, str(script)], tmp_path)


def test_links_and_pictures_of_the_readme_are_there():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)|src=\"(?!http)([^\"]+)\"", README):
        assert (ROOT / (target[0] or target[1])).exists(), target


def test_every_command_is_in_the_readme():
    from dmodels.cli import COMMANDS

    assert all(f"dmodels {name}" in README for name in COMMANDS)
