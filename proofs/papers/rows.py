"""One form for every file of a paper's numbers, and the one rule that turns two numbers into a verdict.

A row has a printed number, ours, the interval of ours if it has one, the rule that compares them, and what comes out:

    rule          agrees if
    rounds        ours rounds to the printed digits
    relative x    ours is within the share x of the printed number (of nothing else: not plus or minus points)
    interval      the printed number, to within half a unit of its last digit, lies in our interval (95 %)
    above, below  a printed bound holds of ours
    range a b     ours lies in a printed range

    verdict       agrees, differs: by the rule
                  undecided: the printed number lies in our interval, which reaches more than a fifth of it to each side
                  tuned: a parameter, named in `reason`, was fitted to this number or to ones beside it, so that
                  coming out is no agreement; one that misses its rule even so differs (`fitted RULE` in `Printed`)
                  input: taken from the paper as it stands
                  ours: nothing is printed, or drawn without a number
                  not computed: `reason` says why no number can be had
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import NamedTuple

from dmodels.core.files import csv_rows

COLUMNS = ("id", "where", "quantity", "unit", "printed", "computed", "low", "high", "rule", "verdict", "reason")
WITHOUT_RULE = ("tuned", "input", "ours", "not computed")
FITTED = "fitted "
#: An interval that reaches further than this share of the printed number would agree with too much.
WIDEST = 0.2
FOLDER = Path(__file__).parent


class Printed(NamedTuple):
    """A row before it is judged. In place of a rule may stand one of the verdicts that need none."""

    id: str
    where: str
    printed: object
    computed: object
    rule: str = ""
    reason: str = ""
    quantity: str = ""
    unit: str = ""
    low: object = ""
    high: object = ""

    def row(self) -> dict[str, str]:
        """As text in the order of `COLUMNS`, judged."""
        told = {name: _text(value) for name, value in self._asdict().items()}
        if self.rule.startswith(FITTED):
            return fitted(told | {"rule": self.rule.removeprefix(FITTED)})
        if self.rule in WITHOUT_RULE or not self.rule:
            told |= {"rule": "", "verdict": self.rule or "ours"}
        else:
            told["verdict"] = judge(told)
        return {name: told[name] for name in COLUMNS}


def judge(row: dict[str, str]) -> str:
    """The verdict of a row by its rule."""
    kind, *bounds = row["rule"].split()
    ours, printed = float(row["computed"]), row["printed"]
    if kind == "rounds":
        good = rounds_to(ours, printed)
    elif kind == "relative":
        good = abs(ours - float(printed)) <= float(bounds[0]) * abs(float(printed))
    elif kind == "interval":
        low, high = float(row["low"]), float(row["high"])
        good = low - half_unit(printed) <= float(printed) <= high + half_unit(printed)
        if good and high - low > 2 * WIDEST * abs(float(printed)):
            return "undecided"
    elif kind in ("above", "below"):
        good = ours > float(printed) if kind == "above" else ours < float(printed)
    elif kind == "range":
        good = float(bounds[0]) <= ours <= float(bounds[1])
    else:
        raise ValueError(f"rule: {row['rule']!r} is not one of rounds, relative, interval, above, below, range")
    return "agrees" if good else "differs"


def fitted(row: dict[str, str]) -> dict[str, str]:
    """A row that a fitted parameter was to meet: tuned if by its rule it does, else it differs."""
    met = judge(row) == "agrees"
    told = row | ({"rule": "", "verdict": "tuned"} if met else {"verdict": "differs"})
    return {name: told[name] for name in COLUMNS}


def problems(row: dict[str, str]) -> list[str]:
    """What is wrong with a row, one line each."""
    wrong = []
    if tuple(row) != COLUMNS:
        return [f"columns {', '.join(row)}"]
    if row["rule"]:
        if not (row["printed"] and row["computed"]):
            wrong.append("a rule compares two numbers")
        elif row["verdict"] != judge(row):
            wrong.append(f"the rule says {judge(row)}, not {row['verdict']}")
    elif row["verdict"] not in WITHOUT_RULE:
        wrong.append(f"no rule, and {row['verdict']!r} is not one of {', '.join(WITHOUT_RULE)}")
    if not row["computed"] and not (row["verdict"] in ("input", "not computed") and (row["reason"] or row["printed"])):
        wrong.append("neither a computed value nor a reason")
    if row["computed"] and row["verdict"] == "not computed":
        wrong.append("not computed, and a computed value")
    if row["verdict"] in ("differs", "undecided", "tuned", "not computed") and not row["reason"]:
        wrong.append(f"{row['verdict']} without a reason")
    if row["low"] and not float(row["low"]) <= float(row["computed"]) <= float(row["high"]):
        wrong.append("the computed value lies outside its interval")
    return wrong


def rounds_to(number: float, printed: str) -> bool:
    """True if `number` rounds to the printed text at the printed precision (2.9E+2 is a printed "about 290")."""
    shown = Decimal(printed)
    return Decimal(repr(number)).quantize(Decimal((0, (1,), shown.as_tuple().exponent)), ROUND_HALF_UP) == shown


def half_unit(printed: str) -> float:
    """Half a unit of the last printed digit."""
    return 0.5 * 10.0 ** Decimal(printed).as_tuple().exponent


def read(path: str) -> list[dict[str, str]]:
    """The rows of proofs/papers/<path>.csv."""
    return list(csv_rows((FOLDER / f"{path}.csv").read_text(encoding="utf-8")))


def write(path: str, title: str, rows: Iterable[Printed | dict[str, str]]) -> Path:
    """proofs/papers/<path>.csv under a line that says what it is."""
    file = FOLDER / f"{path}.csv"
    with file.open("w", newline="", encoding="utf-8") as out:
        out.write(f"# {title}\n")
        table = csv.DictWriter(out, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(row.row() if isinstance(row, Printed) else row for row in rows)
    return file


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
