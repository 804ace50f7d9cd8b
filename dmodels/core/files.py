"""Files: tables with remarks are read, and results written whole or not at all, in one way."""

from __future__ import annotations

import csv
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def csv_rows(text: str) -> csv.DictReader[str]:
    """Rows of a CSV table by column name; blank lines, and lines that begin with #, are remarks.

    >>> next(csv_rows("# a remark\\nname,price\\nh100,3.9"))
    {'name': 'h100', 'price': '3.9'}
    """
    return csv.DictReader(line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))


def remarks(text: str) -> list[str]:
    """The lines of a table that begin with #, without it.

    >>> remarks("# source: a page\\nname,price")
    ['source: a page']
    """
    return [line.lstrip()[1:].strip() for line in text.splitlines() if line.lstrip().startswith("#")]


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A path to write a file or folder to; at the end it takes the place of `path`, unless something went wrong.

    It lies beside the target, so that the last step is a rename: readers never see half a result. Folders on the way
    are made.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=path.absolute().parent, prefix=f".{path.name}."))
    try:
        draft = folder / path.name
        yield draft
        if path.is_dir():  # a folder cannot be replaced in one step: set the old one aside first
            path.rename(folder / "old")
        os.replace(draft, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_text(path: str | Path, text: str) -> Path:
    """Write a text file whole or not at all."""
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8")
    return Path(path)
