"""The marks of both positioning tables are the papers' own; skipped where the texts are not at hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proofs.papers import rows as papers


def text(shared_data: Path, name: str) -> list[str]:
    file = shared_data.parent / "papers" / name
    if not file.is_file():
        pytest.skip(f"no text of the paper in {file}: NO MARK IS CHECKED")
    return file.read_text(encoding="utf-8").splitlines()


def test_table_1_of_the_price_of_anarchy(shared_data):
    lines = text(shared_data, "price_of_anarchy.txt")
    start = next(k for k, line in enumerate(lines) if line.startswith("System / Work\tGame\tPareto\tDisagg."))
    marks = {}
    for line in lines[start + 1 : start + 13]:
        name, *cells = (cell.strip() for cell in line.replace("\xa0", " ").split("\t"))
        marks[re.sub(r"\s*\[\d+\]", "", name)] = [int(cell == "✓") for cell in (*cells, *[""] * 5)[:5]]
    rows = papers.read("price_of_anarchy/table1")
    assert {row["quantity"]: [int(mark[-1]) for mark in row["printed"].split()] for row in rows} == marks


def test_table_1_of_netkv(shared_data):
    lines = text(shared_data, "netkv.txt")
    start = next(k for k, line in enumerate(lines) if line.startswith("| System | Cache | Net. |"))
    printed = {}
    for line in lines[start + 2 : start + 9]:
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        known = {"✓": "1", "×": "0"}
        printed[re.sub(r"\s*\[\d+\]", "", name)] = [known.get(cell[0], "") for cell in cells]
    ours: dict[str, list[str]] = {}
    for row in papers.read("netkv/table1"):
        ours.setdefault(row["quantity"].partition(":")[0], []).append(row["printed"])
    assert len(printed) == 7 and ours == printed
