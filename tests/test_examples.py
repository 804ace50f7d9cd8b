"""Every example runs; the README's links lead somewhere, and it names every command. Its code: test_docs."""

from __future__ import annotations

import os
import re
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


def test_links_and_pictures_of_the_readme_are_there():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)|src=\"(?!http)([^\"]+)\"", README):
        assert (ROOT / (target[0] or target[1])).exists(), target


def test_every_command_is_in_the_readme():
    from dmodels.cli import COMMANDS

    assert all(f"dmodels {name}" in README for name in COMMANDS)
