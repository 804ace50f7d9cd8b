"""Every number of NetKV: recomputed ones are what the code gives, simulated ones are compared by one rule."""

from __future__ import annotations

import pytest

from dmodels.core.routing import RoutingPolicy
from proofs.papers import rows as papers

from .positioning import follows, marks
from .printed import computed

ARITHMETIC, SIMULATED = papers.read("netkv/arithmetic"), papers.read("netkv/simulated")


@pytest.fixture(scope="module")
def numbers():
    return computed()


def test_ids_are_complete(numbers):
    assert {row["id"] for row in ARITHMETIC} == set(numbers) and len(SIMULATED) >= 150


@pytest.mark.parametrize("row", ARITHMETIC, ids=lambda row: row["id"])
def test_the_row_says_what_the_code_gives(row, numbers):
    assert float(row["computed"]) == pytest.approx(numbers[row["id"]], rel=1e-5)


def test_one_rule_for_all_simulated_numbers():
    rules = {row["rule"] for row in SIMULATED if row["verdict"] != "tuned"}
    assert rules == {"relative 0.1", "rounds"}
    assert all(float(row["printed"]) == 0 or row["unit"] == "cells" for row in SIMULATED if row["rule"] == "rounds")
    without = [row["id"] for row in SIMULATED if not row["low"]]
    assert without == ["e3_cells_won", "e4_spread_points"]  # a count, and a range of means


def test_tables_2_and_6_come_out_as_the_setting_was_matched_to():
    """Which is no agreement: it says that one setting gives 37 numbers together."""
    found = [row["verdict"] for row in SIMULATED if row["where"] in ("Table II", "Table VI")]
    assert len(found) == 37 and set(found) == {"tuned"}


def test_table_1_by_what_moves_the_choice():
    found = {row["id"]: float(row["computed"]) for row in papers.read("netkv/table1") if row["computed"]}
    assert found == marks()


def test_the_ladder_sees_the_network_step_by_step():
    assert not follows(RoutingPolicy.CACHE_LOAD, "tier") and follows(RoutingPolicy.NETKV_TOPO, "tier")
    assert not follows(RoutingPolicy.NETKV_STATIC, "congestion") and follows(RoutingPolicy.NETKV_FULL, "congestion")
