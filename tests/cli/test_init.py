"""`dmodels init` and `dmodels completion`: a first scenario, and the key that completes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dmodels.cli import COMMANDS, main
from dmodels.cli.init import KINDS
from dmodels.cli.schema import read_scenario

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("kind", KINDS)
def test_the_scenario_is_the_example_of_the_same_name(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init", kind]) == 0
    written = (tmp_path / f"{kind}.toml").read_text(encoding="utf-8")
    assert written == (EXAMPLES / f"{kind}.toml").read_text(encoding="utf-8").replace("examples/", "")
    assert main(["init", kind]) == 2 and "--force writes over it" in capsys.readouterr().err
    assert main(["init", kind, "--force"]) == 0


def test_the_scenario_can_be_planned_as_it_is(tmp_path, monkeypatch):
    from dmodels.cli.plan_inputs import PlanInputs

    monkeypatch.chdir(tmp_path)
    assert main(["init", "--out", "mine.toml"]) == 0
    assert read_scenario(tmp_path / "mine.toml", PlanInputs).call().run().model_name == "llama-3.1-70b"
    assert "dmodels report mine.toml" in (tmp_path / "mine.toml").read_text()


def completed(script, *words):
    """What bash offers after `words`, the last of which is being typed."""
    line = f"source {script}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _dmodels; "
    done = subprocess.run(["bash", "-c", line + 'echo "${COMPREPLY[@]}"'], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes_commands_and_the_options_of_each(tmp_path, capsys):
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "dmodels.sh"
    script.write_text(capsys.readouterr().out)
    assert completed(script, "dmodels", "s") == [name for name in COMMANDS if name.startswith("s")]
    assert completed(script, "dmodels", "plan", "--ttft") == ["--ttft", "--ttft-p99"]
    assert completed(script, "dmodels", "size", "--ttft") == []


def test_every_shell_hears_of_every_command(capsys):
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        script = capsys.readouterr().out
        assert all(name.split()[0] in script for name in COMMANDS)
    assert main(["completion", "tcsh"]) == 2


def of_fish(line):
    """The words of a line: fish knows \\' between quotes, which sh does not."""
    words = re.findall(r"'((?:[^'\\]|\\.)*)'|(\S+)", line)
    return [re.sub(r"\\(.)", r"\1", quoted) or plain for quoted, plain in words]


def test_fish_is_told_when_to_offer_what_and_what_it_is(capsys):
    """Commands until one is typed, then the options of that one: complete -n WHEN, -a or -l WHAT, -d IN WORDS."""
    assert main(["completion", "fish"]) == 0
    names = [name for name in COMMANDS if " " not in name]
    lines = [of_fish(line) for line in capsys.readouterr().out.splitlines()]
    assert all(line[:3] == ["complete", "-c", "dmodels"] for line in lines)
    first, rest = lines[: len(names)], [line[3:] for line in lines[len(names) :]]
    none = f"not __fish_seen_subcommand_from {' '.join(names)}"
    assert [line[3:] for line in first] == [["-f", "-n", none, "-a", name, "-d", COMMANDS[name]] for name in names]
    assert [[line[k] for k in (0, 2, 4)] for line in rest] == [["-n", "-l", "-d"]] * len(rest)
    offered = {(line[1], line[3]): line[5] for line in rest}
    assert offered["__fish_seen_subcommand_from size", "tp"] == "tensor parallelism"
    assert (
        offered["__fish_seen_subcommand_from plan", "ttft-p99"] == offered["__fish_seen_subcommand_from plan", "ttft"]
    )
