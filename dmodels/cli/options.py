"""Values of options that are written as text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dmodels.core.errors import InputError
from dmodels.core.units import parse

#: Options that most commands have.
Json = Annotated[bool, typer.Option("--json", help="print JSON")]
ShowPython = Annotated[bool, typer.Option("--show-python", help="print the library call instead")]


def quantity(option: str, text: str, unit: str) -> float:
    """The number that `text` means in base unit `unit`; the mistake names the option.

    >>> quantity("ttft", "80 ms", "s")
    0.08
    """
    try:
        return parse(text, unit)
    except InputError as error:
        raise InputError(f"--{option} {error}") from None


def check_suffix(option: str, path: Path, *kinds: str) -> None:
    """The mistake of a name whose suffix is none of `kinds`."""
    if path.suffix not in kinds:
        raise InputError(f"--{option} {path}: a name that ends in {', '.join(kinds[:-1])} or {kinds[-1]} is accepted")
