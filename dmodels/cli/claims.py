"""What the papers claim and how it stands: all claims, or one by id, with its counterexample and its check run."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from . import render
from .calls import call
from .command import Form, asks
from .schema import Table, flag

#: The source tree, if this is one: pages are not part of the installed package.
ROOT = Path(__file__).resolve().parents[2]
NO_TREE = "not run: the pages are in the source tree, not in the installed package"
NO_PYTEST = "not run: checks need pytest; install dmodels[test]"


class ClaimsAsked(Table):
    """Which claims."""

    name: str = flag("", "a claim's id, such as TB-1; without it, all are listed", argument=True)
    verdict: str = flag("", "list only: proved, conditional or refuted")
    run: bool = flag(True, "run the claim's page")


@asks(ClaimsAsked)
def command(asked: ClaimsAsked, form: Form) -> int:
    if not asked.name:
        return form.give(
            call("dmodels:catalog.claims", asked.verdict or None),
            lambda found: {"verdict": asked.verdict},
            lambda found: found,
            _list,
        )
    checked: list[Any] = [None, "not run"]

    def write(entry: dict[str, Any]) -> None:
        checked[:] = check(entry["page"]) if asked.run else checked

    return form.give(
        call("dmodels:catalog.claim", asked.name),
        lambda entry: {"name": entry["id"], "run": asked.run},
        lambda entry: entry | {"check": {"passed": checked[0], "line": checked[1]}},
        lambda entry: _show(entry, checked[1]),
        feasible=lambda entry: checked[0] is not False,
        write=write,
    )


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
    render.show([("Claims (dmodels claims ID shows one and runs its check)", ["id", "", "claim", "where"], rows)])


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
