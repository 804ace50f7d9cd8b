"""The ledger is what the pages and tables say today."""

from __future__ import annotations

import json

from proofs.ledger import DATA, LEDGER, data, markdown, pages, slow_tests, tables

AGAIN = "stale: run `python -m proofs.ledger`"


def test_the_ledger_is_not_stale():
    assert LEDGER.read_text(encoding="utf-8") == markdown(pages(), tables()), AGAIN


def test_the_shipped_entries_are_not_stale():
    assert DATA.read_text(encoding="utf-8") == data(pages()), AGAIN


def test_entries_come_in_the_order_in_which_people_count():
    ids = [entry["id"] for entry in json.loads(data(pages()))]
    assert ids.index("NEW-9") < ids.index("NEW-10") and ids.index("NK-P2") < ids.index("NK-P2b")


def test_every_row_of_every_file_is_counted_once():
    for table in tables():
        lines = [line for line in (LEDGER.parents[1] / table.file).read_text(encoding="utf-8").splitlines() if line]
        assert table.verdicts.total() == sum(not line.startswith("#") for line in lines) - 1, table.file


def test_slow_checks_are_named():
    source = "import pytest\n@pytest.mark.slow\ndef test_a():\n    pass\ndef test_b():\n    pass\n"
    assert slow_tests(source) == ["test_a"]
    assert "`test_every_other_order`" in LEDGER.read_text(encoding="utf-8")
