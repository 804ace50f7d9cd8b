"""How far each closed form may be trusted: the load up to which it stays within 10 % of the simulation."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from dmodels.core.errors import unknown
from dmodels.core.files import csv_rows


def trusted_load(form: str, slots: float, output_cv: float = 1.0) -> float:
    """The highest load (share of what an instance serves with all slots taken) up to which `form` was within 10 % of
    the simulation; 0 where it never was. Between the measured numbers of slots and CVs the more cautious one counts.

    Measured by `tools/make_agreement.py`, from 4 to 128 slots, for CVs of 0.5 to 2; outside, the nearest one counts.
    """
    rows = _table()
    if form not in rows:
        raise unknown("closed form", form, rows)
    points = rows[form]
    near_slots = _around(slots, sorted({s for s, _ in points}))
    near_cvs = _around(output_cv, sorted({cv for _, cv in points}))
    return min(points[s, cv] for s in near_slots for cv in near_cvs)


def forms() -> tuple[str, ...]:
    """Names of the closed forms that were measured."""
    return tuple(_table())


def _around(value: float, known: list[float]) -> set[float]:
    """The measured neighbours of a value."""
    below = [k for k in known if k <= value]
    above = [k for k in known if k >= value]
    return {max(below) if below else known[0], min(above) if above else known[-1]}


@cache
def _table() -> dict[str, dict[tuple[float, float], float]]:
    text = files("dmodels.catalog").joinpath("data", "agreement.csv").read_text(encoding="utf-8")
    rows: dict[str, dict[tuple[float, float], float]] = {}
    for row in csv_rows(text):
        points = rows.setdefault(row["form"], {})
        points[float(row["slots_count"]), float(row["output_cv"])] = float(row["load_frac"])
    return rows
