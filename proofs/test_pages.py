"""The pages keep the rules of the house: one claim, one verdict, an exact argument, and the shipped code obeying it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

import pytest

from proofs.claim import Verdict
from proofs.ledger import ROOT, pages, problems

PAGES = pages()
EXACT = {"sympy", "fractions", "z3"}  # z3 decides inequalities over all reals
#: What an argument in whole numbers may import: nothing of it makes a float of them.
WHOLE = {"itertools", "functools", "math", "collections", "proofs"}
#: What makes an argument cover more than the numbers that stand in it: a free symbol, or an enumeration that says how
#: large it was (`extremes` and what calls it list all placements of a game).
FREE = {"symbols", "Symbol", "Function", "Real", "Reals", "Ints"}
LISTED = {"every", "extremes"}
ANSWER = "**What the authors could answer.**"


class Names:
    """What the names of a page stand for, followed through its own constants and helpers."""

    def __init__(self, source: str):
        self.tree = ast.parse(source)
        self.origin: dict[str, str] = {}  # imported name -> package
        self.uses: dict[str, set[str]] = {}  # name that the page defines -> names in its definition
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                self.origin |= {(a.asname or a.name).split(".")[0]: a.name.split(".")[0] for a in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                self.origin |= {a.asname or a.name: node.module.split(".")[0] for a in node.names}
        self.parts: dict[str, list[ast.AST]] = {}  # name that the page defines -> everything in its definition
        self.calls: dict[str, set[str]] = {}  # name that the page defines -> functions that its definition calls
        for node in self.tree.body:
            for name in _defined(node):
                self.uses.setdefault(name, set()).update(_read(node))
                self.calls.setdefault(name, set()).update(_called(node))
                self.parts.setdefault(name, []).extend(ast.walk(node))
        self.tests = [n for n in self.tree.body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")]

    def reached(self, name: str) -> set[str]:
        """Names that a definition reaches, directly or through other definitions of the page."""
        reached, todo = set(), [name]
        while todo:
            if (now := todo.pop()) not in reached:
                reached.add(now)
                todo += self.uses.get(now, ())
        return reached

    def packages(self, name: str) -> set[str]:
        """Packages that a definition reaches."""
        return {self.origin[n] for n in self.reached(name) if n in self.origin}

    def general(self, name: str) -> bool:
        """True if a definition argues over a free symbol, or over an enumeration that prints its size (`every`)."""
        called = {function for n in self.reached(name) for function in self.calls.get(n, ())}
        return bool(called & (FREE | LISTED))

    def whole(self, name: str) -> bool:
        """True if a definition reaches whole numbers only: no float, no division, no package that could bring one."""
        nodes = [n for reached in self.reached(name) for n in self.parts.get(reached, ())]
        broken = any(
            isinstance(n, ast.Div) or (isinstance(n, ast.Constant) and isinstance(n.value, float)) for n in nodes
        )
        return not broken and self.packages(name) <= WHOLE

    def exact_tests(self) -> list[ast.FunctionDef]:
        """Tests that assert something about symbols, rationals, or whole numbers alone."""
        asserting = [t for t in self.tests if any(isinstance(n, ast.Assert) for n in ast.walk(t))]
        return [t for t in asserting if self.packages(t.name) & EXACT or self.whole(t.name)]


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.For):
        return [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return []


def _read(node: ast.stmt) -> Iterable[str]:
    """Names that a definition reads; a function's decorators (strategies, parameters) are no part of its argument."""
    parts = node.body if isinstance(node, ast.FunctionDef) else [node]
    return {n.id for part in parts for n in ast.walk(part) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _called(node: ast.stmt) -> Iterable[str]:
    """Last parts of the names of the functions that a definition calls: `sp.symbols(...)` gives `symbols`."""
    parts = node.body if isinstance(node, ast.FunctionDef) else [node]
    calls = [n.func for part in parts for n in ast.walk(part) if isinstance(n, ast.Call)]
    return {f.attr if isinstance(f, ast.Attribute) else f.id for f in calls if isinstance(f, ast.Attribute | ast.Name)}


def names(page) -> Names:
    return Names((ROOT / page.file).read_text(encoding="utf-8"))


def stated(doc: str) -> list[str]:
    """Verdicts that a docstring states: the first word after each `**Verdict:`."""
    return [word.upper() for word in re.findall(r"\*\*Verdict:\s+(\w+)", doc)]


every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.claim.id)


def test_there_are_pages_and_nothing_is_wrong_with_the_entries():
    assert len(PAGES) >= 77 and problems(PAGES) == []


def test_wrong_entries_are_seen():
    import dataclasses

    page = next(p for p in PAGES if p.claim.verdict is Verdict.CONDITIONAL)
    change = lambda **fields: dataclasses.replace(page, claim=dataclasses.replace(page.claim, **fields))
    assert len(problems([page, page])) == 1
    for fields in ({"id": "X-1"}, {"means": ""}, {"needs": ()}, {"error": ""}, {"counterexample": ""}, {"says": ""}):
        assert len(problems([change(**fields)])) == 1, fields


@every_page
def test_the_docstring_begins_with_the_id_and_states_the_verdict(page):
    assert page.text.startswith(f"{page.claim.id}. ")
    assert stated(page.text) == [page.claim.verdict.name]


@every_page
def test_proofs_and_refutations_have_an_exact_argument(page):
    """PROVED, CONDITIONAL: over a free symbol, or an enumeration that prints its size. REFUTED, CONDITIONAL: an exact
    instance, recomputed without any code of the package."""
    found = names(page)
    exact = [test for test in found.exact_tests() if not _drawn(test)]
    if page.claim.verdict in (Verdict.PROVED, Verdict.CONDITIONAL):
        assert [test for test in exact if found.general(test.name)]
    if page.claim.verdict in (Verdict.REFUTED, Verdict.CONDITIONAL):
        assert [test for test in exact if "dmodels" not in found.packages(test.name)]


@every_page
def test_a_refutation_hears_the_authors(page):
    """The last paragraph of a REFUTED page is what the authors could answer, and why the verdict stands."""
    if page.claim.verdict is Verdict.REFUTED:
        last = page.text.rstrip().split("\n\n")[-1]
        assert last.startswith(ANSWER) and "verdict stands" in " ".join(last.split())


def _drawn(test: ast.FunctionDef) -> bool:
    """True if hypothesis draws the test's arguments: then it searches, and shows no single instance."""
    return any(isinstance(d, ast.Call) and getattr(d.func, "id", "") == "given" for d in test.decorator_list)


@every_page
def test_refutations_say_why_nothing_smaller_breaks_the_claim(page):
    """`searched` has a test that lists smaller cases in exact numbers; `least` and `no size` give the reason."""
    if page.claim.verdict is Verdict.REFUTED:
        kind, _, reason = page.claim.minimal.partition(": ")
        assert kind in ("searched", "least", "no size") and reason
        if kind == "searched":
            smaller = [test for test in names(page).tests if test.name == "test_nothing_smaller"]
            assert smaller and not _drawn(smaller[0])


@every_page
def test_the_shipped_code_is_checked(page):
    found = names(page)
    assert any("dmodels" in found.packages(test.name) for test in found.tests)


def test_the_rules_tell_pages_apart():
    """The rules are no formality: cosmetic imports and unused fractions do not count as an argument."""
    unused = "from fractions import Fraction\nimport sympy as sp\nX = 1\ndef test_a():\n    assert X == 1.0\n"
    assert Names(unused).exact_tests() == []
    silent = "from fractions import Fraction\ndef test_a():\n    Fraction(1, 2)\n"
    assert Names(silent).exact_tests() == []
    helper = "from fractions import Fraction as F\nHALF = F(1, 2)\ndef test_a():\n    assert HALF < 1\n"
    assert len(Names(helper).exact_tests()) == 1 and not Names(helper).packages("test_a") & {"dmodels"}
    assert not Names(helper).general("test_a")
    count = "def test_a():\n    assert sum(range(3)) == {}\n"
    assert len(Names(count.format("3")).exact_tests()) == 1 and Names(count.format("3.0")).exact_tests() == []
    assert (
        Names(count.format("6 / 2")).exact_tests()
        == Names("import numpy\n" + count.format("numpy.int8(3)")).exact_tests()
        == []
    )
    free = "import sympy as sp\ndef law():\n    return sp.symbols('x')\ndef test_a():\n    assert law() - law() == 0\n"
    assert Names(free).general("test_a") and not Names(free).general("sp")
