"""One command line: find the command, import it, run it, and turn mistakes into one line and an exit code."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from dmodels import __version__
from dmodels.core.compilations import keep_compiled
from dmodels.core.errors import InputError, InputWarning, unknown
from dmodels.core.extras import EXTRA, how_to_install

from . import COMMANDS
from .interrupts import SAID

#: What to do about a fault.
REPORT = "please report this line and the command as an issue; DMODELS_DEBUG=1 shows where it happened"
INFEASIBLE, BAD_INPUT, FAULT, INTERRUPTED, CLOSED_PIPE = 1, 2, 3, 130, 141


def run(argv: list[str]) -> int:
    """Exit code of one command line: 0 an answer, 1 no feasible answer, 2 bad input, 3 a fault of the program,
    130 interrupted, 141 if who read the output has gone. Nothing is a traceback, unless DMODELS_DEBUG asks for it."""
    if sys.stdout is None:  # closed by the caller, who wants only the exit code
        sys.stdout = open(os.devnull, "w", encoding="utf-8")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = partial(_warn, warnings.showwarning)
            code = _asked(argv)
        sys.stdout.flush()
        return code
    except InputError as error:
        return _complain(str(error), BAD_INPUT)
    except BrokenPipeError:  # `dmodels ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    except OSError as error:
        return _complain(f"{error.filename or 'output'}: {error.strerror or error}", BAD_INPUT)
    except KeyboardInterrupt:
        SAID.set()
        return _complain("interrupted", INTERRUPTED)
    except MemoryError as error:
        lacking = str(error) or "no more"
        return _complain(f"more memory is needed than there is ({lacking}); accepted is less", BAD_INPUT)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name in EXTRA:
            return _complain(f"{argv[0]} needs {error.name}: {how_to_install(error.name)}", BAD_INPUT)
        if os.environ.get("DMODELS_DEBUG"):
            raise
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        return _complain(f"a fault of dmodels, not of its input ({said}); {REPORT}", FAULT)


def _asked(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
        return 0
    if argv[0] == "--version":
        print(f"dmodels {__version__}")
        return 0
    words = 2 if " ".join(argv[:2]) in COMMANDS else 1
    return _command(" ".join(argv[:words]), argv[words:])


def usage() -> str:
    """The top-level help: each command with its line."""
    width = max(map(len, COMMANDS))
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
            "Exit codes: 0 an answer, 1 no feasible answer, 2 bad input, 3 a fault of dmodels, 130 interrupted.",
        ]
    )


def click_command(name: str) -> Any:
    """The parser of one command, with its options and their help. Plain text: rich would read [model] as markup."""
    import typer

    module = import_module(f"dmodels.cli.{name.replace(' ', '_')}")
    help_names = {"help_option_names": ["-h", "--help"]}
    app = typer.Typer(add_completion=False, context_settings=help_names, rich_markup_mode=None)
    app.command(name, help=module.__doc__)(module.command)
    return typer.main.get_command(app)


def _command(name: str, argv: list[str]) -> int:
    if name not in COMMANDS:
        raise unknown("command", name, COMMANDS)
    keep_compiled()
    import typer

    usage_error: Any = typer.BadParameter.__base__  # typer's own click or the installed one, by version
    try:
        code = click_command(name).main(argv, prog_name=f"dmodels {name}", standalone_mode=False) or 0
    except typer.Exit as stop:
        code = stop.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except usage_error as error:
        return _complain(" ".join(error.format_message().split()), BAD_INPUT)
    except SystemExit:  # click's way of saying that the pipe is closed
        raise BrokenPipeError from None
    if code == INTERRUPTED:  # typer's way of saying it
        raise KeyboardInterrupt
    return int(code)


def _complain(line: str, code: int) -> int:
    print(f"dmodels: {line}", file=sys.stderr)
    return code


def _warn(otherwise: Callable[..., None], message: Warning | str, kind: type[Warning], *where: Any) -> None:
    """A warning about the input as one line; those of other libraries as they are."""
    if issubclass(kind, InputWarning):
        print(f"dmodels: {message}", file=sys.stderr)
    else:
        otherwise(message, kind, *where)
