"""Every statement that was worked out beforehand has a page, or a table of the paper's numbers."""

from __future__ import annotations

import re

import pytest

from proofs.ledger import ROOT, pages

#: Statement -> pages (by id) or files of printed numbers that settle it.
SETTLED = {
    "000-P1a": ("POA-1a",),
    "000-P1b": ("POA-1b",),
    "000-P1c": ("POA-1c",),
    "000-P1d": ("POA-1d",),
    "000-R1": ("POA-R1",),
    "000-PL": ("POA-PL",),
    "000-P2.1": ("POA-2.1",),
    "000-P2.2": ("POA-2.2",),
    "000-P2.3": ("POA-2.3",),
    "000-R2": ("POA-R2",),
    "000-CP": ("POA-CP",),
    "000-P5.1": ("POA-5.1",),
    "000-P5.2": ("POA-5.2",),
    "000-P5.3": ("POA-5.3",),
    "000-E1": ("POA-E1",),
    "000-E2": ("POA-E2", "NEW-6"),
    "000-G": ("POA-G",),
    "000-NP": ("POA-NP",),
    "000-IT": ("POA-IT",),
    "000-PPAD": ("POA-PPAD",),
    "000-P3.1": ("POA-3.1", "NEW-3"),
    "000-P3.2": ("POA-3.2", "NEW-2", "NEW-18", "NEW-28"),
    "000-P3.3": ("POA-3.3", "NEW-7"),
    "000-R3": ("POA-R3", "price_of_anarchy/claims.csv"),
    "000-P4.0/4.1": ("POA-4.1",),
    "000-P4.2": ("POA-4.2", "NEW-4"),
    "000-P4.2ω": ("POA-4.2w", "NEW-1", "NEW-19"),
    "000-P4.2c": ("POA-4.2c", "POA-N", "POA-CB"),
    "000-P4.3": ("POA-4.3",),
    "000-E12": ("POA-E12", "NEW-5"),
    "000-E10/11": ("POA-E10",),
    "000-NUM": ("price_of_anarchy/claims.csv", "price_of_anarchy/table6.csv"),
    "001-E1,E2": ("NK-E1",),
    "001-E4": ("NK-E4",),
    "001-WE": ("NK-WE",),
    "001-E6": ("NK-E6",),
    "001-P1": ("NK-P1",),
    "001-P1b": ("NK-P1b",),
    "001-P2": ("NK-P2",),
    "001-P2b": ("NK-P2b",),
    "001-P2c": ("NK-P2c",),
    "001-P2d": ("NK-P2d", "NEW-8"),
    "001-NUM": ("netkv/arithmetic.csv",),
    "001-CPLX": ("NK-CPLX",),
    "002-E1/E2": ("TB-4", "token_budget/memory.csv"),
    "002-Q": ("TB-5",),
    "002-$": ("TB-USD", "token_budget/dollars.csv"),
    "002-E6–E8": ("TB-1", "TB-2", "TB-3", "NEW-10"),
    "002-E9": ("TB-E9",),
    "002-B": ("TB-B", "NEW-11"),
    "002-E4/E5, T4": ("TB-E4", "NEW-12", "token_budget/calibration.csv"),
    "002-FF": ("TB-FF",),
    "002-ALG": ("TB-ALG",),
    "003-E1/E2": ("PH-E1", "PH-E2"),
    "003-B4": ("PH-B4",),
    "003-U": ("PH-U", "phasor/calibration.csv"),
    "003-M": ("PH-M",),
    "003-H": ("PH-H", "PH-B5", "NEW-13"),
    "003-D": ("PH-D",),
    "003-F": ("PH-F",),
    "003-NUM": ("phasor/gains.csv", "phasor/energy.csv", "phasor/capacity.csv", "PH-C"),
    **{f"NEW-{n}": (f"NEW-{n}",) for n in range(1, 17)},
}


def statements(text: str) -> list[str]:
    """Ids of the list: the first word of its third-level headings, and the new results of its table."""
    heads = re.findall(r"^### (00\d-\S+(?: T4)?)", text, re.M)
    return [head.rstrip(":") for head in heads] + re.findall(r"^\| (NEW-\d+) \|", text, re.M)


def test_headings_are_read():
    text = "### 000-P1a  x\n### 002-E4/E5, T4 — y\n### 003-U units\n| NEW-9 | z |\n"
    assert statements(text) == ["000-P1a", "002-E4/E5, T4", "003-U", "NEW-9"]


@pytest.mark.parametrize("name", SETTLED)
def test_what_settles_a_statement_is_there(name):
    known = {page.claim.id for page in pages()}
    for by in SETTLED[name]:
        assert by in known or (ROOT / "proofs" / "papers" / by).is_file(), f"{name}: {by} is missing"


def test_no_statement_is_left_out(shared_data):
    found = statements((shared_data.parent / "propositions.md").read_text(encoding="utf-8"))
    assert len(found) >= 75 and set(found) == set(SETTLED)
