"""Data files as rows, and names that people spell in many ways as the one name of the catalogue."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from dmodels.core.errors import InputError, unknown
from dmodels.core.extras import needed
from dmodels.core.files import csv_rows, read_text
from dmodels.core.units import UNITS, parse, unit_of

DATA = files("dmodels.catalog") / "data"


def read_csv(text: str, where: str) -> list[dict[str, str]]:
    """Rows of a CSV file; lines that begin with # are remarks, empty cells are left out."""
    reader = csv_rows(text)
    reader.fieldnames = [name.strip().lower() for name in reader.fieldnames or ()]
    if not reader.fieldnames or "name" not in reader.fieldnames:
        first = ",".join(reader.fieldnames or ())[:60]
        raise InputError(f"{where}: the first line is {first!r}; column names, 'name' among them, are accepted")
    rows = []
    for row in reader:
        if None in row or None in row.values():
            wide = len(reader.fieldnames)
            raise InputError(f"{where}: row {row.get('name')!r} has more or fewer cells than the {wide} columns")
        rows.append({k: v.strip() for k, v in row.items() if v.strip()})
    return rows


def read_rows(path: str | Path) -> list[dict[str, Any]]:
    """Rows of a user's file: CSV, or TOML, JSON or YAML that map each name to its values."""
    path = Path(path)
    try:
        text = read_text(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or 'cannot be read'}") from None
    path = Path(path.name.lower().removesuffix(".gz"))
    if path.suffix == ".csv":
        try:
            return read_csv(text, path.name)
        except csv.Error as error:
            raise InputError(f"{path.name}: not CSV ({error})") from None
    table = _parse_mapping(text, path)
    if not isinstance(table, Mapping) or not all(isinstance(row, Mapping) for row in table.values()):
        raise InputError(f"{path.name}: a table of names, each with its values, is accepted")
    return [{"name": str(name), **{str(k): v for k, v in row.items()}} for name, row in table.items()]


def _parse_mapping(text: str, path: Path) -> Any:
    try:
        if path.suffix == ".toml":
            import tomllib

            return tomllib.loads(text)
        if path.suffix == ".json":
            return json.loads(text)
        if path.suffix in (".yaml", ".yml"):
            return _yaml(text, path)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path.name}: cannot be read ({' '.join(str(error).split())[:80]})") from None
    raise InputError(f"{path.name}: its ending is {path.suffix!r}; .csv, .toml, .json and .yaml are accepted")


def _yaml(text: str, path: Path) -> Any:
    yaml = needed("yaml", f"{path.name}: YAML, unlike TOML and CSV,")
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(error) from None


def number(cell: Any, column: str, where: str) -> float:
    """A cell as a number in its column's base unit: "79.18 GiB", or bare, the column's name then stating the unit."""
    unit = unit_of(column)
    try:
        value = float(cell)
    except (TypeError, ValueError):
        if not isinstance(cell, str) or unit not in UNITS:
            raise InputError(f"{where}: {column} is {cell!r}; a number is accepted") from None
        value = parse_cell(cell, column, unit, where)
    if isinstance(cell, bool) or not math.isfinite(value) or value < 0:
        raise InputError(f"{where}: {column} is {cell!r}; a finite number of at least 0 is accepted")
    return value


def parse_cell(cell: str, column: str, unit: str, where: str) -> float:
    """Text with a unit, with the row and the column in the error."""
    try:
        return parse(cell, unit)
    except InputError as error:
        raise InputError(f"{where}: {column}: {error}") from None


def key(name: str) -> str:
    """Two spellings of one name have one key: case, hyphens, underscores, dots and spaces do not count."""
    return re.sub(r"[-_. ]", "", name.lower())


def index(names: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Key of each name and of each of its other spellings -> name. A catalogue's own name wins over an alias."""
    found = {key(alias): name for name, aliases in names.items() for alias in aliases}
    return found | {key(name): name for name in names}


def find(kind: str, name: str, known: Mapping[str, str]) -> str:
    """The catalogue's name for what was typed, or an error with the nearest names."""
    if not isinstance(name, str) or key(name) not in known:
        raise unknown(kind, str(name), sorted(set(known.values())))
    return known[key(name)]
