"""What an installation without extras can do, what it says of the rest, and the wheel in an environment of its own."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

from dmodels.core.extras import EXTRA

ROOT = Path(__file__).parents[1]
#: Runs commands where the packages of all extras cannot be imported.
BARE = """
import sys
from importlib.abc import MetaPathFinder

class Nothing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name.partition(".")[0])

sys.meta_path.insert(0, Nothing())
from dmodels.cli import main
for line in {lines}:
    print(f"{{line[0]}}: {{main(line)}}", file=sys.stderr)
"""


def bare(*lines: str) -> subprocess.CompletedProcess:
    code = BARE.format(hidden=set(EXTRA), lines=[shlex.split(line) for line in lines])
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=environment)


def test_without_extras_what_needs_them_is_named():
    done = bare(
        "size --model qwen3-8b --gpu h100_sxm",
        "simulate --requests 1000 --rate '1 req/s'",
        "plan --out plan.html",
        "sweep examples/sweep.toml --axis rate=10",
        "report examples/plan.toml --out plan.html",
        "explore examples/plan.toml",
    )
    said = done.stderr
    assert "Traceback" not in said, said
    for name in ("size", "simulate"):
        assert f"{name}: 0" in said, said
    assert said.count(": 2\n") == 4, said
    for command, package in (
        ("plan", "matplotlib"),
        ("sweep", "xarray"),
        ("report", "matplotlib"),
        ("explore", "starlette"),
    ):
        assert f"dmodels: {command} needs {package}: pip install 'dmodels[{EXTRA[package]}]'" in said
    assert not (ROOT / "plan.html").exists()


@pytest.mark.slow
def test_without_extras_plans_are_made():
    done = bare("plan --rate '20 req/s' --ttft-p99 '2 s' --tpot-p99 '80 ms' --gpu h100_sxm,h200_sxm --no-sensitivity")
    assert "plan: 0" in done.stderr and "Deploy " in done.stdout, done.stderr


def test_every_extra_exists_and_brings_its_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    spelled = {"yaml": "pyyaml"}
    for package, extra in EXTRA.items():
        assert any(one.startswith(spelled.get(package, package)) for one in extras[extra]), (package, extra)
    core = " ".join(project["dependencies"])
    assert not [package for package in EXTRA if spelled.get(package, package) in core]


@pytest.mark.slow
def test_the_wheel_works_in_an_environment_of_its_own(tmp_path):
    """Built, installed with what it names and nothing else, and run: a file or a dependency left out is found here."""
    wheels = tmp_path / "wheels"
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(wheels), str(ROOT)]
    subprocess.run(build, check=True)
    venv.create(tmp_path / "clean", with_pip=True)
    binaries = tmp_path / "clean" / ("Scripts" if os.name == "nt" else "bin")
    (wheel,) = wheels.iterdir()
    subprocess.run([binaries / "python", "-m", "pip", "install", "--quiet", str(wheel)], check=True)
    run = lambda *words: subprocess.run([binaries / "dmodels", *words], capture_output=True, text=True, cwd=tmp_path)
    assert run("init").returncode == 0
    done = run("plan", "--json", "--gpu", "h100_sxm", "--tp", "4,8")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"]["feasible"]
    refused = run("report", "plan.toml", "--out", "plan.html")
    assert refused.returncode == 2 and "dmodels[report]" in refused.stderr
    for name in ("catalog", "formats", "claims"):
        assert run(name).returncode == 0, name
