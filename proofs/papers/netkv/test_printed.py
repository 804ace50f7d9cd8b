"""Every number of NetKV: recomputed ones are what the code gives, simulated ones are compared by one rule."""

from __future__ import annotations

import pytest

from proofs.papers import rows as papers

from .printed import computed

ARITHMETIC, SIMULATED = papers.read("netkv/arithmetic"), papers.read("netkv/simulated")


@pytest.fixture(scope="module")
def numbers():
    return computed()


def test_ids_are_complete(numbers):
    assert {row["id"] for row in ARITHMETIC} == set(numbers) and len(SIMULATED) >= 158


@pytest.mark.parametrize("row", ARITHMETIC, ids=lambda row: row["id"])
def test_the_row_says_what_the_code_gives(row, numbers):
    assert float(row["computed"]) == pytest.approx(numbers[row["id"]], rel=1e-5)


def test_one_rule_for_all_simulated_numbers():
    rules = {row["rule"] for row in SIMULATED if row["computed"]}
    assert rules == {"relative 0.1", "rounds"}
    assert all(float(row["printed"]) == 0 or row["unit"] == "cells" for row in SIMULATED if row["rule"] == "rounds")


def test_tables_2_and_6_agree_whole():
    for row in SIMULATED:
        if row["where"] in ("Table II", "Table VI"):
            assert row["verdict"] == "agrees", row
