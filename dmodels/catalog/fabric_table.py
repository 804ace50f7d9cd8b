"""Networks between instances: the rows of data/fabrics.csv."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from .tables import DATA, find, index, number, read_csv

if TYPE_CHECKING:
    from dmodels.core.hardware import Fabric

VALUES = ("bytes_per_s_oneway", "latency_s")


def fabrics() -> dict[str, dict[str, Any]]:
    """Name -> rate and latency in base units, scope (of one GPU, node, or domain), source and date."""
    return {name: dict(facts) for name, facts in _shipped().items()}


def fabric(name: str) -> Fabric:
    """The network of that name: `fabric("infiniband_ndr400")`."""
    from dmodels.core.hardware import Fabric

    facts = _shipped()[find("fabric", name, index({n: () for n in _shipped()}))]
    return Fabric(**{column: facts[column] for column in VALUES})


@cache
def _shipped() -> dict[str, dict[str, Any]]:
    rows = read_csv((DATA / "fabrics.csv").read_text(encoding="utf-8"), "fabrics.csv")
    numbers = [{c: number(row[c], c, row["name"]) for c in VALUES} for row in rows]
    return {row["name"]: {**row, **values} for row, values in zip(rows, numbers, strict=True)}
