"""Every number in every table of the papers is printed by a row; skipped where the texts are not at hand."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from proofs.papers import rows as papers


class Table(NamedTuple):
    """A table in the text of a paper: between which words it stands, and the numbers in it that measure nothing."""

    begin: str
    end: str
    labels: str = ""  # of rows and columns, units and captions


#: Folder of rows -> its text, and table by the `where` of its rows.
PAPERS = {
    "price_of_anarchy": (
        "price_of_anarchy",
        {
            "Table 2": Table("Regime\tTemperature", "The rationale for each regime", "70 5 4"),
            "Table 3": Table("Table 3:Cluster", "Node 3 carries", "3"),
            "Table 4": Table("rps\tRegime", "Asymmetric P/D", "1 2 4 8 16 32 48 64 96 128 192 256 384 512"),
            "Table 5": Table("Property\t340B", "Figure 5:", "340 70 8 4 1 2 5 64 16 32 256 512 0 10"),  # and its axes
            "Table 6": Table("(a)340B", "Parameter sensitivity", "340 70 64 128 1 2 0.0 0.3 0.7 1.0"),
            "Table 7": Table("routing, Nemotron", "Table 8:", "4 340 1 2 3 99"),
            "Table 8": Table("routing, Llama", "Figure 7 visual", "3.1 70 1 5 3 99 2"),
        },
    ),
    "netkv": (
        "netkv",
        {
            "Table II": Table("| Rate | Scheduler", "Table II shows", "100 200 250"),
            "Table III": Table("| Length | vs RR", "Table III confirms", "1024 4096 8192 16384 32768 65536"),
            "Table IV": Table("| Component | Chatbot", "Table IV reveals", "99"),
            "Table V": Table("| GPUs | Mode", "Table V shows", "64 128 256 512 1024"),
            "Table VI": Table("| Tier | CLA*", "This tier-shifting", "0 1 2 3"),
        },
    ),
    "token_budget": (
        "token_budget_pools",
        {
            "Table 1": Table("Azure LMSYS\n", "Long pool only", "65 16 8 128"),  # lengths in K, slots by Appendix A
            "Table 2": Table("Trace Method", "Token-budget routing reduces"),
            "Table 3": Table("Method P50", "Both configurations meet", "99 50"),
            "Table 4": Table("Category True", "Table˜4 shows", "50 4 4.00"),
            "Table 5": Table("Deployment Nodes", "Token-budget routing requires"),
        },
    ),
    "phasor": (
        "phasor",
        {
            "Table 1": Table("ID\tIn (", "Table 1: Eval"),
            "Table 2": Table("<i>Data Format", "**De-fragmentation is", "2.5 7 3 8 1.00"),
            "Table 3": Table("Workload ID\t", "SLO budgets are"),
            "Table 4": Table(
                "Symbol\tDef", "990 to 202", "16 10 5 3 4.25 6.80"
            ),  # powers of ten apart from their number
            "Table 5": Table("Dimension\tPar", "Table 5: Sens", "99 0.5 2.0 0.10 0.35 20 200 0.50 0.80"),
            "Table 6": Table("System\tAvg. Power", "Table 6: Energy"),
        },
    ),
}


def numbers(text: str) -> set[float]:
    return {float(number) for number in re.findall(r"\d+(?:\.\d+)?", text.replace(",", ""))}


def shown(folder: str, where: str) -> set[float]:
    """Numbers that rows of a table print; a time in seconds also in milliseconds, as some tables mix them."""
    files = [
        file.relative_to(papers.FOLDER).with_suffix("").as_posix() for file in papers.FOLDER.glob(f"{folder}/**/*.csv")
    ]
    rows = [row for file in files for row in papers.read(file) if row["where"].split("(")[0].strip() == where]
    found = set().union(*(numbers(row["printed"]) for row in rows))
    return found | {round(1000 * x, 6) for row in rows if row["unit"] == "s" for x in numbers(row["printed"])}


@pytest.mark.parametrize(
    "folder, where", [(folder, where) for folder, (_, tables) in PAPERS.items() for where in tables]
)
def test_every_number_of_a_table_has_a_row(shared_data, folder, where):
    file = shared_data.parent / "papers" / f"{PAPERS[folder][0]}.txt"
    if not file.is_file():
        pytest.skip(f"no text of the paper in {file}: NO TABLE IS CHECKED")
    table, text = PAPERS[folder][1][where], file.read_text(encoding="utf-8").replace("\xa0", " ")
    begin = text.index(table.begin) + len(table.begin)
    printed = numbers(text[begin : text.index(table.end, begin)]) - numbers(table.labels)
    assert printed and printed - shown(folder, where) == set()


def test_a_missing_row_is_seen():
    assert numbers("| 64 | flow | 11.0% | +1.8 | 1,024") == {64.0, 11.0, 1.8, 1024.0}
    assert {12.3, 603.0} - shown("netkv", "Table V") == {12.3}
