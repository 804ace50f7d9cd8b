"""Claims of the papers and how they stand: the ledger of `proofs/`, shipped as data so that it is there without it."""

from __future__ import annotations

import json
from typing import Any

from dmodels.core.errors import unknown

from .tables import DATA


def claims(verdict: str = "") -> dict[str, dict[str, Any]]:
    """Id -> source, where, says, verdict, needs, error, counterexample, minimal, means, page; of one verdict or of all.

    `python -m proofs.ledger` writes the data from the pages; a test holds both together.
    """
    found = {entry["id"]: entry for entry in json.loads((DATA / "claims.json").read_text(encoding="utf-8"))}
    known = sorted({entry["verdict"] for entry in found.values()})
    if verdict and verdict.upper() not in known:
        raise unknown("verdict", verdict, [name.lower() for name in known])
    return {name: entry for name, entry in found.items() if verdict.upper() in ("", entry["verdict"])}


def claim(name: str) -> dict[str, Any]:
    """One entry by its id, in any case.

    >>> claim("tb-1")["where"]
    'Eq. (7)'
    """
    known = {entry.lower(): facts for entry, facts in claims().items()}
    if str(name).lower() not in known:
        raise unknown("claim", name, known)
    return known[str(name).lower()]
