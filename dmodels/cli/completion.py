"""Completion of commands and options in a shell: `eval "$(dmodels completion bash)"`, in the shell's start-up file.

The script holds every name, so that pressing the key starts no Python; print it again after an upgrade.
"""

from __future__ import annotations

from typing import Annotated

import typer

from dmodels.core.errors import unknown

from . import COMMANDS
from .app import click_command

SHELLS = ("bash", "zsh", "fish")


def command(shell: Annotated[str, typer.Argument(help=f"one of {', '.join(SHELLS)}", show_default=False)]) -> int:
    if shell not in SHELLS:
        raise unknown("shell", shell, SHELLS)
    if shell == "zsh":
        print("autoload -U +X bashcompinit && bashcompinit")
    print(_fish() if shell == "fish" else _bash())
    return 0


def _options(name: str) -> dict[str, str]:
    """The long options of a command -> their help."""
    found = {"--help": "show the help"}
    for option in click_command(name).params:
        for text in (*option.opts, *option.secondary_opts):
            if text.startswith("--"):
                found[text] = str(getattr(option, "help", "") or "")
    return found


def _top() -> list[str]:
    return [name for name in COMMANDS if " " not in name]


def _bash() -> str:
    cases = "\n".join(f'    {name}) words="{" ".join(_options(name))}" ;;' for name in _top())
    return f"""_dmodels() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{" ".join(_top())}" -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  case "$word" in
    -*) COMPREPLY=($(compgen -W "$words" -- "$word")) ;;
    *) COMPREPLY=($(compgen -f -- "$word")) ;;
  esac
}}
complete -o filenames -F _dmodels dmodels"""


def _fish() -> str:
    none = "not __fish_seen_subcommand_from " + " ".join(_top())
    lines = [f"complete -c dmodels -f -n {_quoted(none)} -a {name} -d {_quoted(COMMANDS[name])}" for name in _top()]
    for name in _top():
        there = _quoted(f"__fish_seen_subcommand_from {name}")
        lines += [
            f"complete -c dmodels -n {there} -l {option[2:]} -d {_quoted(says)}"
            for option, says in _options(name).items()
        ]
    return "\n".join(lines)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
