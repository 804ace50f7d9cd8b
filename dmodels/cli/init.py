"""A scenario file to begin with: every option with its default, most of them as comments."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from dmodels.core.errors import InputError, unknown
from dmodels.core.files import replacing

from .command import check_output

#: The commands that read a scenario.
KINDS = ("plan", "split", "place", "sweep")


def command(
    kind: Annotated[str, typer.Argument(help=f"of which command: {', '.join(KINDS)}")] = "plan",
    out: Annotated[Path | None, typer.Option(help="the file to write; by default KIND.toml")] = None,
    force: Annotated[bool, typer.Option(help="write over a file that is there")] = False,
) -> int:
    if kind not in KINDS:
        raise unknown("scenario", kind, KINDS)
    path = out or Path(f"{kind}.toml")
    check_output("out", path, ".toml")
    if path.exists() and not force:
        raise InputError(f"--out {path}: is there already; --force writes over it")
    text = files("dmodels.cli").joinpath(f"scenarios/{kind}.toml").read_text(encoding="utf-8")
    with replacing(path) as draft:
        draft.write_text(text.replace(f"examples/{kind}.toml", str(path)), encoding="utf-8")
    print(f"wrote {path}; its first lines say what reads it")
    return 0
