"""Every number of NetKV: recomputed ones carry the right verdict, simulated ones are compared by one stated rule."""

from pathlib import Path

import pytest

from dmodels.core.files import csv_rows

from ..rounding import rounds_to
from .printed import computed


def rows(name):
    text = (Path(__file__).parent / name).read_text(encoding="utf-8")
    assert text.startswith("# NetKV")
    return list(csv_rows(text))


ARITHMETIC, SIMULATED = rows("arithmetic.csv"), rows("simulated.csv")


def test_ids_are_unique_and_complete():
    ids = [row["id"] for row in ARITHMETIC]
    assert len(set(ids)) == len(ids) and set(ids) == set(computed())
    assert len({row["id"] for row in SIMULATED}) == len(SIMULATED) >= 150


@pytest.fixture(scope="module")
def numbers():
    return computed()


@pytest.mark.parametrize("row", ARITHMETIC, ids=lambda row: row["id"])
def test_the_row_says_what_the_code_gives(row, numbers):
    number = numbers[row["id"]]
    assert float(row["computed"]) == pytest.approx(number, rel=1e-5)
    if row["verdict"] == "implied":
        assert row["printed"] == ""
    else:
        assert row["verdict"] == ("follows" if rounds_to(number, row["printed"]) else "does not follow")
        assert row["arithmetic"] or row["verdict"] == "follows"


def test_every_simulated_number_has_a_verdict_by_the_rule_and_failures_a_reason():
    from benchmarks.papers._netkv_verdicts import verdict

    for row in SIMULATED:
        assert row["verdict"] == verdict(row["unit"], float(row["printed"]), float(row["computed"])), row["id"]
        assert row["verdict"] == "reproduced" or row["reason"], row["id"]


def test_tables_2_and_6_are_reproduced_whole():
    for row in SIMULATED:
        if row["where"] in ("Table II", "Table VI"):
            assert row["verdict"] == "reproduced", row
