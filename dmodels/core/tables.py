"""Answers as tables: records become columns of one type each, as data frames and Arrow have them, and files of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from .errors import InputError
from .extras import needed
from .files import replacing

if TYPE_CHECKING:
    import pandas as pd

#: Suffixes of the files that a table is written to.
SUFFIXES = (".csv", ".parquet", ".arrow")


def records(values: Mapping[str, Any], rows_in: str = "") -> list[dict[str, Any]]:
    """The rows of an answer's plain data: those of the field `rows_in`, or of the first that holds several.

    A field of records has a row of each. Fields of as many numbers stand side by side, a row of each place. Where
    there is neither, the answer itself is the only row.

    >>> records({"name": "x", "pools": [{"gpus": 8, "at": {"tp": 4}}, {"gpus": 2, "at": {"tp": 1}}]})
    [{'gpus': 8, 'at.tp': 4}, {'gpus': 2, 'at.tp': 1}]
    >>> records({"load": [1, 2], "name": "x", "ttft_s": [0.1, 0.2]})
    [{'load': 1, 'ttft_s': 0.1}, {'load': 2, 'ttft_s': 0.2}]
    """
    held = {rows_in: values[rows_in]} if values.get(rows_in) else values
    for found in held.values():
        if isinstance(found, list) and found and all(isinstance(one, dict) for one in found):
            return [_flat(one) for one in found]
    listed = [name for name, found in held.items() if _numbers(found)]
    if not listed:
        return [_flat(values)]
    length = len(values[listed[0]])
    columns = {name: found for name, found in values.items() if _numbers(found) and len(found) == length}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _numbers(value: Any) -> bool:
    """A list of numbers, more than the two of an interval."""
    return isinstance(value, list) and len(value) > 2 and all(isinstance(one, int | float | None) for one in value)


def _flat(record: Mapping[str, Any], head: str = "") -> dict[str, Any]:
    """The single values of a record, those of its parts under `part.name`."""
    found: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{head}{name}.")
        elif not isinstance(value, list):
            found[f"{head}{name}"] = value
    return found


def frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A data frame of rows: numbers with gaps are float64 with nan, other values with gaps keep None."""
    import pandas as pd

    names = dict.fromkeys(name for row in rows for name in row)
    return pd.DataFrame({name: _column([row.get(name) for row in rows]) for name in names})


def _column(values: list[Any]) -> Any:
    kinds = {type(value) for value in values}
    if kinds <= {int, float, type(None)} and (kinds != {int} or any(abs(value) >= 2**63 for value in values)):
        return np.array([np.nan if value is None else value for value in values], np.float64)
    if len(kinds - {type(None)}) > 1:  # of several types: as text, since a column has one
        return [None if value is None else str(value) for value in values]
    return values


def is_table(path: Path | None) -> TypeGuard[Path]:
    """Whether a file is, by its name, one of columns or CSV."""
    return path is not None and path.suffix.lower() in SUFFIXES


def check_table(option: str, path: Path) -> None:
    """The mistake of a name that no table is written to, before anything is computed."""
    if not is_table(path):
        raise InputError(
            f"--{option} {path}: a name that ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} is accepted"
        )
    if path.suffix.lower() != ".csv":
        needed("pyarrow", f"--{option} {path}")


def write_table(found: pd.DataFrame, path: Path) -> Path:
    """Write a data frame as its file's name says, whole or not at all."""
    check_table("out", path)
    suffix = path.suffix.lower()
    with replacing(path) as draft:
        if suffix == ".csv":
            found.to_csv(draft, index=False)
        elif suffix == ".parquet":
            found.to_parquet(draft, index=False)
        else:
            found.to_feather(draft)
    return path
