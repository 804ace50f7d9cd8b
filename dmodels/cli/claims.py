"""What the papers claim and how it stands: all claims, or one by id, with its counterexample and its check run."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from . import render
from .options import Json, ShowPython

#: The source tree, if this is one: pages are not part of the installed package.
ROOT = Path(__file__).resolve().parents[2]
NO_TREE = "not run: the pages are in the source tree, not in the installed package"
NO_PYTEST = "not run: checks need pytest; install dmodels[test]"


def command(
    name: Annotated[str, typer.Argument(metavar="[ID]", help="a claim, such as TB-1; without it, all are listed")] = "",
    verdict: Annotated[str, typer.Option(help="list only: proved, conditional or refuted")] = "",
    run: Annotated[bool, typer.Option(help="run the claim's page")] = True,
    json: Json = False,
    show_python: ShowPython = False,
) -> int:
    from dmodels.catalog import ledger

    if show_python:
        call = f"claim({name!r})" if name else f"claims({verdict!r})" if verdict else "claims()"
        print(f"from dmodels import catalog\ncatalog.{call}")
        return 0
    if not name:
        found = ledger.claims(verdict)
        if json:
            print(render.as_json("claims", {"verdict": verdict}, found))
        else:
            _list(found)
        return 0
    entry = ledger.claim(name)
    passed, line = check(entry["page"]) if run else (None, "not run")
    if json:
        result = entry | {"check": {"passed": passed, "line": line}}
        print(render.as_json("claims", {"name": entry["id"], "run": run}, result))
    else:
        _show(entry, line)
    return 1 if passed is False else 0


def check(page: str) -> tuple[bool | None, str]:
    """Run one page: whether it passed (None: it was not run), and a line to print. A failure's details go to stderr."""
    if not (ROOT / page).is_file():
        return None, NO_TREE
    if find_spec("pytest") is None:
        return None, NO_PYTEST
    line = [sys.executable, "-m", "pytest", "--color=no", "-p", "no:cacheprovider", page]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        print(done.stdout + done.stderr, file=sys.stderr)
    last = (done.stdout.strip().splitlines() or [f"pytest ended with {done.returncode}"])[-1]
    return done.returncode == 0, last.strip("= ")


def _list(found: dict[str, dict[str, Any]]) -> None:
    rows = [[name, entry["verdict"].lower(), entry["says"], entry["where"]] for name, entry in found.items()]
    render.print_table("Claims (dmodels claims ID shows one and runs its check)", ["id", "", "claim", "where"], rows)


def _show(entry: dict[str, Any], line: str) -> None:
    """One entry in the order of a planner's questions: what is said, does it hold, where not, and what follows."""
    parts = [
        (entry["id"], entry["says"]),
        ("source", f"{entry['source']}, {entry['where']}"),
        ("verdict", entry["verdict"].lower()),
        ("holds if", "; ".join(entry["needs"])),
        ("error", entry["error"]),
        ("breaks", entry["counterexample"]),
        ("smallest", entry["minimal"]),
        ("decision", entry["means"]),
        ("page", entry["page"]),
        ("check", line),
    ]
    for head, text in parts:
        if text:
            print(textwrap.fill(f"{head:<10}{text}", 110, subsequent_indent=" " * 10))
