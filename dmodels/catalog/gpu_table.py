"""GPUs: the rows of data/gpus.csv, with the user's own file over them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmodels.core.errors import InputError

from .tables import DATA, find, index, number, read_csv, read_rows

if TYPE_CHECKING:
    from dmodels.core.hardware import GPU

#: Columns that are fields of `GPU`, in its order.
VALUES = (
    "memory_bytes",
    "hbm_bytes_per_s",
    "peak_flop_per_s",
    "peak_fp8_flop_per_s",
    "peak_fp4_flop_per_s",
    "nvlink_bytes_per_s_oneway",
    "nic_bytes_per_s_per_gpu_oneway",
    "gpus_per_node",
    "tdp_w",
    "price_usd_per_hour",
    "sm_count",
    "l2_bytes",
)
NEEDED = VALUES[:3]
REMARKS = ("name", "aliases", "source", "memory_source", "price_source", "date")


def gpus(file: str | Path | None = None) -> dict[str, dict[str, Any]]:
    """Name -> values in base units, aliases, sources and date, of every GPU; those of `file` merged in."""
    return {name: dict(facts) for name, facts in (_shipped() if file is None else load_gpus(file)).items()}


def gpu(name: str, file: str | Path | None = None) -> GPU:
    """The GPU of that name: `gpu("h200_sxm")`, `gpu("H200-SXM")`, `gpu("h200")` are one. Unknown: the nearest names."""
    from dmodels.core.hardware import GPU

    facts = gpu_facts(name, file)
    return GPU(**{column: facts[column] for column in VALUES if column in facts})


def gpu_facts(name: str, file: str | Path | None = None) -> dict[str, Any]:
    """What the catalogue knows of a GPU: values, where they come from, and of when they are."""
    table = _shipped() if file is None else load_gpus(file)
    found = find("GPU", name, index({n: facts["aliases"] for n, facts in table.items()}))
    return {"name": found, **table[found]}


def load_gpus(path: str | Path) -> dict[str, dict[str, Any]]:
    """The catalogue with a user's file over it: a known name changes what it states, a new name is added.

    CSV with the columns of data/gpus.csv (`name` and any of the others), or TOML, JSON or YAML, one table per GPU:

        [h100_sxm]
        price_usd_per_hour = 2.10

    A cell is a number in the unit of its column's name, or text with a unit ("80 GiB"). A new GPU needs
    memory_bytes, hbm_bytes_per_s and peak_flop_per_s; a plan needs its price, too.
    """
    table = {name: dict(facts) for name, facts in _shipped().items()}
    known = index({n: facts["aliases"] for n, facts in table.items()})
    given: set[str] = set()
    for row in read_rows(path):
        where = f"{Path(path).name}: {row['name']}"
        stated = _facts(row, where)
        try:
            name = find("GPU", row["name"], known)
        except InputError:
            name = row["name"].strip().lower().replace("-", "_").replace(" ", "_")
        if name in given:
            raise InputError(f"{where}: stands twice; one row for each GPU is accepted")
        given.add(name)
        facts = table.get(name, {"aliases": ()}) | stated
        if missing := [column for column in NEEDED if not facts.get(column)]:
            raise InputError(f"{where}: {missing[0]} is missing; a new GPU needs {', '.join(NEEDED)}")
        table[name] = facts
    return table


@cache
def _shipped() -> dict[str, dict[str, Any]]:
    rows = read_csv((DATA / "gpus.csv").read_text(encoding="utf-8"), "gpus.csv")
    return {row["name"]: {"aliases": ()} | _facts(row, row["name"]) for row in rows}


def _facts(row: dict[str, Any], where: str) -> dict[str, Any]:
    for column in row:
        if column not in VALUES + REMARKS:
            raise InputError(f"{where}: {column!r} is no column; accepted are {', '.join(VALUES + REMARKS[1:])}")
    facts: dict[str, Any] = {c: number(row[c], c, where) for c in VALUES if c in row}
    for column in (*NEEDED, "price_usd_per_hour"):
        if facts.get(column) == 0:
            raise InputError(f"{where}: {column} is {row[column]!r}; a number above 0 is accepted")
    if "gpus_per_node" in facts and (facts["gpus_per_node"] < 1 or facts["gpus_per_node"] % 1):
        held = row["gpus_per_node"]
        raise InputError(f"{where}: gpus_per_node is {held!r}; a whole number of at least 1 is accepted")
    facts |= {c: str(row[c]) for c in REMARKS[2:] if c in row}
    if "aliases" in row:
        facts["aliases"] = tuple(filter(None, (alias.strip() for alias in str(row["aliases"]).split("|"))))
    return facts
