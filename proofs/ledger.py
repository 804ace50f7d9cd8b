"""The ledger of all claims, made from the pages: `python -m proofs.ledger` writes LEDGER.md and the command's data.

A page is `proofs/<topic>/prop_*.py`; its `CLAIM` is the entry. Rows of the papers' tables are counted by verdict from
`proofs/papers/<paper>/**.csv`. The same pages and tables give the same bytes.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from dmodels.core.files import csv_rows
from proofs.claim import DMODELS, NETKV, PHASOR, PRICE_OF_ANARCHY, TOKEN_BUDGET, Claim, Verdict

ROOT = Path(__file__).resolve().parents[1]
LEDGER = ROOT / "proofs" / "LEDGER.md"
DATA = ROOT / "dmodels" / "catalog" / "data" / "claims.json"

#: Source -> how its ids begin. A result of our own is numbered.
PREFIX = {PRICE_OF_ANARCHY: "POA", NETKV: "NK", TOKEN_BUDGET: "TB", PHASOR: "PH", DMODELS: "NEW"}
#: Folder of tables -> the paper.
TABLES = {
    "price_of_anarchy": PRICE_OF_ANARCHY,
    "netkv": NETKV,
    "token_budget": TOKEN_BUDGET,
    "phasor": PHASOR,
}


@dataclass(frozen=True)
class Page:
    """One claim and the file that argues it, relative to the root."""

    file: str
    claim: Claim
    text: str


@dataclass(frozen=True)
class Table:
    """One file of a paper's numbers: how many rows have which verdict ("" where the file has no verdicts)."""

    paper: str
    file: str
    verdicts: Counter[str]


def pages() -> list[Page]:
    """All pages by paper, then by id in the order in which people count."""
    found = []
    for path in sorted((ROOT / "proofs").glob("*/prop_*.py")):
        file = path.relative_to(ROOT).as_posix()
        module = import_module(file.removesuffix(".py").replace("/", "."))
        found.append(Page(file, module.CLAIM, module.__doc__ or ""))
    return sorted(found, key=lambda page: (list(PREFIX).index(page.claim.source), _natural(page.claim.id)))


def tables() -> list[Table]:
    """Every file of printed numbers, by paper."""
    found = []
    for folder, paper in TABLES.items():
        for path in sorted((ROOT / "proofs" / "papers" / folder).rglob("*.csv")):
            rows = csv_rows(path.read_text(encoding="utf-8"))
            verdicts = Counter(_short(row.get("verdict") or "") for row in rows)
            found.append(Table(paper, path.relative_to(ROOT).as_posix(), verdicts))
    return found


def problems(found: list[Page]) -> list[str]:
    """What is wrong with the entries, one line each; empty if nothing is."""
    wrong, seen = [], {}
    for page in found:
        claim = page.claim
        if claim.id in seen:
            wrong.append(f"{page.file}: {claim.id} is also the id of {seen[claim.id]}")
        seen[claim.id] = page.file
        if not re.fullmatch(rf"{PREFIX[claim.source]}-[A-Za-z0-9.]+", claim.id):
            wrong.append(f"{page.file}: an id of {claim.source} begins with {PREFIX[claim.source]}-, not {claim.id!r}")
        needed = ["where", "says", "means"]
        needed += ["counterexample"] if claim.verdict in (Verdict.REFUTED, Verdict.CONDITIONAL) else []
        needed += ["needs", "error"] if claim.verdict is Verdict.CONDITIONAL else []
        wrong += [f"{page.file}: `{field}` is empty" for field in needed if not getattr(claim, field)]
    return wrong


def markdown(found: list[Page], numbers: list[Table]) -> str:
    """The ledger as a page to read."""
    lines = [
        "# Ledger",
        "",
        "Made by `python -m proofs.ledger` from the pages beside it. `make proofs` runs every check but the slow ones "
        "(named at the end), `make proofs-thorough` those too. `dmodels claims ID` shows one entry and runs its page.",
        "",
        *(f"- **{verdict.name}**: {verdict.value}" for verdict in Verdict),
        "",
        *_counts(found),
    ]
    for source in PREFIX:
        chosen = [page for page in found if page.claim.source == source]
        if chosen:
            lines += ["", f"## {'Results of our own' if source == DMODELS else source}", "", *_entries(chosen)]
            lines += _counterexamples(chosen)
    return "\n".join([*lines, "", *_printed(numbers), "", *_slow(found)]) + "\n"


def data(found: list[Page]) -> str:
    """The ledger for programs, shipped with the package."""
    entries = [
        {
            "id": page.claim.id,
            "source": page.claim.source,
            "where": page.claim.where,
            "says": page.claim.says,
            "verdict": page.claim.verdict.name,
            "needs": list(page.claim.needs),
            "error": page.claim.error,
            "counterexample": page.claim.counterexample,
            "minimal": page.claim.minimal,
            "means": page.claim.means,
            "page": page.file,
        }
        for page in found
    ]
    return json.dumps(entries, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write both files, each whole or not at all."""
    from dmodels.core.files import write_text

    found = pages()
    if wrong := problems(found):
        raise SystemExit("\n".join(wrong))
    for path, text in ((LEDGER, markdown(found, tables())), (DATA, data(found))):
        print(write_text(path, text).relative_to(ROOT))


def _counts(found: list[Page]) -> list[str]:
    """Claims by source and verdict."""
    used = [verdict for verdict in Verdict if any(page.claim.verdict is verdict for page in found)]
    count = Counter((page.claim.source, page.claim.verdict) for page in found)
    rows = [[source, *(count[source, v] for v in used)] for source in PREFIX if any(count[source, v] for v in used)]
    rows.append(["all", *(sum(row[i + 1] for row in rows) for i in range(len(used)))])
    return _grid(["source", *(verdict.name for verdict in used)], rows)


def _entries(found: list[Page]) -> list[str]:
    rows = [
        [
            page.claim.id,
            page.claim.where,
            page.claim.says,
            page.claim.verdict.name,
            "; ".join(page.claim.needs) or "-",
            page.claim.error or "-",
            f"[{Path(page.file).name}]({page.file.removeprefix('proofs/')})",
        ]
        for page in found
    ]
    return _grid(["id", "where", "statement", "verdict", "hypotheses", "error bound", "page"], rows)


def _counterexamples(found: list[Page]) -> list[str]:
    """Where each claim ends and what a planner does with it."""
    lines = ["", "Where they end, and what it means for a decision:", ""]
    for page in found:
        claim = page.claim
        smallest = claim.minimal and f"({claim.minimal[0].upper()}{claim.minimal[1:]}.)"
        text = " ".join(part for part in (claim.counterexample, smallest, f"*{claim.means}*") if part)
        lines.append(f"- **{page.claim.id}** ({page.claim.verdict.name}). {text}")
    return lines


def _printed(numbers: list[Table]) -> list[str]:
    """The papers' printed numbers by verdict."""
    lines = [
        "## The papers' numbers",
        "",
        "Rows of each file of printed numbers by verdict: *agrees* or *differs* by the rule that stands in the row, "
        "*undecided* if our interval is too wide to tell, *tuned* if a parameter was fitted to it, *input* if taken "
        "from the paper, *ours* if nothing is printed, *not computed* with the reason in the row.",
    ]
    groups = defaultdict(list)
    for table in numbers:
        groups[table.paper].append(table)
    for paper, files in groups.items():
        rows = [
            [
                f"[{table.file.split('/', 3)[3]}]({table.file.removeprefix('proofs/')})",
                table.verdicts.total(),
                "; ".join(f"{count} {verdict or 'without a verdict'}" for verdict, count in _ranked(table.verdicts)),
            ]
            for table in files
        ]
        total = sum((table.verdicts for table in files), Counter())
        lines += ["", f"### {paper}: {total.total()} rows", "", *_grid(["file", "rows", "verdicts"], rows)]
    return lines


def _slow(found: list[Page]) -> list[str]:
    """The checks that `make proofs` leaves out."""
    marked = [(page, name) for page in found for name in slow_tests((ROOT / page.file).read_text(encoding="utf-8"))]
    lines = [f"- {page.claim.id}: `{name}`" for page, name in marked]
    return ["## Slow checks", "", f"{len(lines)} searches run only with `make proofs-thorough`.", "", *lines]


def slow_tests(source: str) -> list[str]:
    """Names of the tests of a page that are marked slow."""
    tests = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return [test.name for test in tests if any(ast.unparse(d) == "pytest.mark.slow" for d in test.decorator_list)]


def _ranked(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _short(verdict: str) -> str:
    """The verdict without its reasons, which follow a colon or a semicolon."""
    return re.split(r"[:;]", verdict)[0].strip()


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """Key that puts NEW-9 before NEW-10."""
    parts = re.findall(r"\d+|\D+", name)
    return [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def _grid(head: list[str], rows: list[list]) -> list[str]:
    """A Markdown table; a bar inside a cell is escaped."""
    clean = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *clean)]


if __name__ == "__main__":
    main()
