"""Write what our simulation gives beside every simulated number of NetKV: proofs/papers/netkv/simulated.csv.

Reads the last recorded run of each experiment (benchmarks/results/netkv_*.jsonl), keeps the printed columns
and fills `computed` and `verdict`. Verdicts by rule: times within 10 %, shares and percentages within 5 points and of
one sign, TBT within 0.5 ms, SLO shares within 0.03 are "reproduced"; else "sign only" if both point the same way; else
"not reproduced". Table V's packet-level rows are another simulator's and left out.

    python -m benchmarks.netkv_tables
"""

from __future__ import annotations

import csv
import json

from benchmarks import (
    netkv_ablation,
    netkv_context,
    netkv_load,
    netkv_prefix,
    netkv_scale,
    netkv_staleness,
    netkv_topology,
)
from benchmarks.netkv_setting import PRINTED
from benchmarks.registry import RESULTS

EXPERIMENTS = {
    "load": netkv_load,
    "context": netkv_context,
    "topology": netkv_topology,
    "staleness": netkv_staleness,
    "prefix": netkv_prefix,
    "ablation": netkv_ablation,
    "scale": netkv_scale,
}
#: unit -> largest difference that counts as reproduced, relative or absolute
RELATIVE = {"ms": 0.10, "s": 0.10, "req/s": 0.10}
ABSOLUTE = {"%": 5.0, "points": 5.0, "1": 0.03, "ms TBT": 0.5, "cells": 0.0}


def last_run(name: str) -> list[dict]:
    """The rows of the last recorded run of an experiment."""
    lines = [json.loads(line) for line in (RESULTS / f"netkv_{name}.jsonl").read_text().splitlines()]
    return [row for row in lines if row["when"] == lines[-1]["when"]]


def verdict(unit: str, printed: float, computed: float) -> str:
    """How a simulated number compares with ours."""
    gap = abs(computed - printed)
    if unit == "%" and printed * computed < 0 and gap > 1:
        return "not reproduced"
    if gap <= RELATIVE.get(unit, 0.0) * abs(printed) or gap <= ABSOLUTE.get(unit, -1.0):
        return "reproduced"
    return "sign only" if printed * computed > 0 else "not reproduced"


def main() -> None:
    ours = {}
    for name, experiment in EXPERIMENTS.items():
        ours |= experiment.numbers(last_run(name))
    path = PRINTED / "simulated.csv"
    note, *lines = path.read_text(encoding="utf-8").splitlines()
    rows = list(csv.DictReader(lines))
    for row in rows:
        value = ours[row["id"]]
        row["computed"] = f"{value:.4g}"
        row["verdict"] = verdict(row["unit"], float(row["printed"]), value)
    with path.open("w", encoding="utf-8", newline="") as out:
        out.write(note + "\n")
        writer = csv.DictWriter(out, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    counts = {v: sum(r["verdict"] == v for r in rows) for v in ("reproduced", "sign only", "not reproduced")}
    print(counts)
    for row in rows:
        if row["verdict"] != "reproduced":
            print(row["id"], row["printed"], row["computed"], row["verdict"], row["reason"])


if __name__ == "__main__":
    main()
