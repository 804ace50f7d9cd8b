"""What the pages put between quotation marks is in the papers, word for word; left-out words are marked by "..."."""

from __future__ import annotations

import re
import unicodedata

import pytest

from proofs.claim import DMODELS, NETKV, PHASOR, PRICE_OF_ANARCHY, TOKEN_BUDGET
from proofs.ledger import pages

FILES = {
    PRICE_OF_ANARCHY: "price_of_anarchy.txt",
    NETKV: "netkv.txt",
    TOKEN_BUDGET: "token_budget_pools.txt",
    PHASOR: "phasor.txt",
}
LONGEST_GAP = 400  # letters and digits that "..." may stand for


def quotations(doc: str) -> list[str]:
    return re.findall(r'"([^"]+)"', doc)


def letters(text: str) -> str:
    """Letters and digits alone: line breaks, dashes and the marks of formulas differ between copies of a paper."""
    text = re.sub(r"\\[a-z]+", " ", unicodedata.normalize("NFKC", text).lower())
    return "".join(c for c in text if c.isalnum())


def is_in(quotation: str, paper: str) -> bool:
    """True if its pieces between "..." follow each other in the paper (given as `letters`) with short gaps."""
    pieces = [letters(piece) for piece in quotation.split("...")]
    pattern = f".{{0,{LONGEST_GAP}}}?".join(re.escape(piece) for piece in pieces)
    return re.search(pattern, paper) is not None


@pytest.fixture(scope="module")
def papers(shared_data):
    """The texts of the papers by source; a test that needs them is skipped where they are not at hand."""
    folder = shared_data.parent / "papers"
    if not folder.is_dir():
        pytest.skip(f"no texts of the papers in {folder}: NO QUOTATION IS CHECKED")
    texts = {source: letters((folder / name).read_text(encoding="utf-8")) for source, name in FILES.items()}
    return texts | {DMODELS: "\n".join(texts.values())}  # a page of our own may quote any of them


def test_every_quotation_is_in_the_paper(papers):
    found = [(page, quotation) for page in pages() for quotation in quotations(page.text)]
    assert len(found) >= 60
    assert [f"{page.claim.id}: {q}" for page, q in found if not is_in(q, papers[page.claim.source])] == []


def test_a_paraphrase_is_seen():
    paper = letters("When $n_j$ is small, the empirical PoA is sta-\nble: it does not grow with load (Remark 3).")
    assert is_in("the empirical PoA is stable: it does not grow with load", paper)
    assert is_in("the empirical PoA ... does not grow", paper)
    assert not is_in("the PoA is stable: it does not grow with load", paper)
    assert not is_in("does not grow ... empirical", paper)
