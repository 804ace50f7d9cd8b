"""`dmodels init` and `dmodels completion`: a first scenario, and the key that completes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace as Record

import pytest

from dmodels.cli import COMMANDS, completion, main
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


def test_the_file_is_written_whole_where_it_is_asked_and_said(tmp_path, monkeypatch, capsys):
    """It names itself where it says what reads it."""
    out = tmp_path / "mine.toml"
    assert main(["init", "split", "--out", str(out)]) == 0
    assert capsys.readouterr() == (f"wrote {out}; its first lines say what reads it\n", "")
    assert f"dmodels split {out}" in out.read_text() and "examples/split.toml" not in out.read_text()
    before = out.read_text()
    assert main(["init", "sweep", "--out", str(out)]) == 2 and out.read_text() == before
    assert capsys.readouterr().err == f"dmodels: --out {out}: is there already; --force writes over it\n"
    assert main(["init", "sweep", "--out", str(out), "--force"]) == 0 and "dmodels sweep" in out.read_text()
    assert main(["init", "sweep", "--out", str(tmp_path / "x.txt")]) == 2 and not (tmp_path / "x.txt").exists()
    assert main(["init", "plam"]) == 2
    assert "scenario 'plam' is unknown; the nearest are plan" in capsys.readouterr().err


def test_scripts_of_shells_line_by_line(monkeypatch, capsys):
    """Of two commands, of which one has another of two words beside it."""
    monkeypatch.setattr(completion, "COMMANDS", {"fit": "it's fitted", "fit operators": "kernels", "watch": "seen"})
    option = lambda *opts, **more: Record(opts=opts, secondary_opts=more.pop("off", ()), **more)
    params = {
        "fit": [option("rows", help="rows"), option("--tp", "-t", help="a \\ b's"), option("--run", off=("--no-run",))],
        "watch": [option("--gpu", help=None)],
    }
    monkeypatch.setattr(completion, "click_command", lambda name: Record(params=params[name]))
    assert main(["completion", "bash"]) == 0
    bash = capsys.readouterr().out
    assert bash.splitlines() == [
        "_dmodels() {",
        '  local word="${COMP_WORDS[COMP_CWORD]}" words=""',
        '  if [ "$COMP_CWORD" -eq 1 ]; then',
        '    COMPREPLY=($(compgen -W "fit watch" -- "$word"))',
        "    return",
        "  fi",
        '  case "${COMP_WORDS[1]}" in',
        '    fit) words="--help --tp --run --no-run" ;;',
        '    watch) words="--help --gpu" ;;',
        "  esac",
        '  case "$word" in',
        '    -*) COMPREPLY=($(compgen -W "$words" -- "$word")) ;;',
        '    *) COMPREPLY=($(compgen -f -- "$word")) ;;',
        "  esac",
        "}",
        "complete -o filenames -F _dmodels dmodels",
    ]
    assert main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out == f"autoload -U +X bashcompinit && bashcompinit\n{bash}"
    assert main(["completion", "fish"]) == 0
    none, seen = "'not __fish_seen_subcommand_from fit watch'", "'__fish_seen_subcommand_from"
    assert capsys.readouterr().out.splitlines() == [
        f"complete -c dmodels -f -n {none} -a fit -d 'it\\'s fitted'",
        f"complete -c dmodels -f -n {none} -a watch -d 'seen'",
        f"complete -c dmodels -n {seen} fit' -l help -d 'show the help'",
        f"complete -c dmodels -n {seen} fit' -l tp -d 'a \\\\ b\\'s'",
        f"complete -c dmodels -n {seen} fit' -l run -d ''",
        f"complete -c dmodels -n {seen} fit' -l no-run -d ''",
        f"complete -c dmodels -n {seen} watch' -l help -d 'show the help'",
        f"complete -c dmodels -n {seen} watch' -l gpu -d ''",
    ]
    assert main(["completion", "tcsh"]) == 2
    assert capsys.readouterr().err == "dmodels: shell 'tcsh' is unknown; the nearest are zsh, fish, bash\n"
