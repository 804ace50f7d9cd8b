"""One command line: find the command, import it, run it, and turn mistakes into one line and an exit code."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from dmodels import __version__
from dmodels.core.errors import InputError, unknown

from . import COMMANDS


def run(argv: list[str]) -> int:
    """Exit code of one command line: 0 an answer, 1 no feasible answer, 2 bad input. Bad input is never a traceback."""
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
        return 0
    if argv[0] == "--version":
        print(f"dmodels {__version__}")
        return 0
    try:
        return _command(argv[0], argv[1:])
    except InputError as error:
        return _complain(str(error), 2)
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # `dmodels ... | head` closed the pipe; that is no fault
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        return _complain(f"{error.filename}: {error.strerror}" if error.filename else str(error), 2)
    except KeyboardInterrupt:
        return _complain("interrupted", 130)


def usage() -> str:
    """The top-level help: each command with its line."""
    width = max(map(len, COMMANDS), default=0)
    lines = [f"  {name:<{width}}  {line}" for name, line in COMMANDS.items()]
    return "\n".join(
        [
            "Usage: dmodels COMMAND [OPTIONS]",
            "",
            "Capacity planning for LLM serving: how many GPUs, of which kind, split how, routed how.",
            "",
            "Commands (dmodels COMMAND --help shows one):",
            *lines,
            "",
            "Exit codes: 0 an answer, 1 no feasible answer, 2 bad input.",
        ]
    )


def click_command(name: str) -> Any:
    """The parser of one command, with its options and their help. Plain text: rich would read [model] as markup."""
    import typer

    module = import_module(f"dmodels.cli.{name.replace('-', '_')}")
    help_names = {"help_option_names": ["-h", "--help"]}
    app = typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, context_settings=help_names, rich_markup_mode=None
    )
    app.command(name, help=module.__doc__)(module.command)
    return typer.main.get_command(app)


def _command(name: str, argv: list[str]) -> int:
    if name not in COMMANDS:
        raise unknown("command", name, COMMANDS)
    _cache_compilations()
    import typer

    usage_error: Any = typer.BadParameter.__base__  # typer's own click or the installed one, by version
    try:
        return click_command(name).main(argv, prog_name=f"dmodels {name}", standalone_mode=False) or 0
    except typer.Exit as stop:
        return stop.exit_code
    except typer.Abort:
        return _complain("interrupted", 130)
    except usage_error as error:
        return _complain(" ".join(error.format_message().split()), 2)


def _complain(line: str, code: int) -> int:
    print(f"dmodels: {line}", file=sys.stderr)
    return code


def _cache_compilations() -> None:
    """Keep compiled programs in the user's cache folder, so that the second run of a command starts fast."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(base / "dmodels" / "jax"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
