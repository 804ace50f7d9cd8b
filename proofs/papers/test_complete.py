"""Every number of every table of the papers has its row; skipped where the texts are not at hand."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from proofs.papers import rows as papers


class Table(NamedTuple):
    """Where a table stands in its text, which rows are its own, and the numbers in it that measure nothing."""

    text: str
    begin: str  # the lines between these two, both left out
    end: str
    where: str  # rows whose `where` begins so
    names: tuple[str, ...] = ()  # numbers that name a row or column, or repeat what another cell prints


ANARCHY, NETKV, BUDGET, PHASOR = "price_of_anarchy", "netkv", "token_budget_pools", "phasor"
FOLDERS = {BUDGET: "token_budget"}
TABLES = {
    "POA 2": Table(ANARCHY, "Regime	Temperature", "The rationale for each regime", "Table 2"),
}


def numbers(text: str) -> Counter[str]:
    return Counter(re.findall(r"\d+(?:\.\d+)?", text.replace(",", "")))


def lines(folder: Path, table: Table) -> str:
    text = (folder / f"{table.text}.txt").read_text(encoding="utf-8")
    begin = text.index(table.begin) + len(table.begin)
    return text[begin : text.index(table.end, begin)]
