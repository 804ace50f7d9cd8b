"""What a page of `proofs/` states in machine-readable form: one claim of a paper and its verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

PRICE_OF_ANARCHY = "The Price of Anarchy in Disaggregated Inference"
NETKV = "NetKV"
TOKEN_BUDGET = "arXiv:2604.09613"
PHASOR = "Phasor"
DMODELS = "dmodels"


class Verdict(Enum):
    """How a claim stands, from strongest to weakest."""

    PROVED = "proved as stated"
    CONDITIONAL = "proved under hypotheses that the source leaves out"
    REFUTED = "refuted inside its own assumptions by an exact counterexample"
    SUPPORTED = "supported by search only"
    OPEN = "open"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One entry of the ledger.

    id       short and stable, e.g. "TB-1"
    source   the paper (a constant of this module), or DMODELS for a result of our own
    where    equation, proposition, table or section
    says     the statement, in one sentence
    verdict  see `Verdict`
    needs    the hypotheses under which it holds (CONDITIONAL: those the source leaves out)
    error    the bound on its error, in words or numbers; "" where it is exact
    counterexample  the smallest case that breaks it as stated, in a planner's words (REFUTED and CONDITIONAL)
    means    what it means for a planner's decision, in one or two plain sentences
    minimal  why no smaller case breaks it, or why size does not matter; the page tests what can be tested (REFUTED)
    """

    id: str
    source: str
    where: str
    says: str
    verdict: Verdict
    needs: tuple[str, ...] = ()
    error: str = ""
    counterexample: str = ""
    means: str = ""
    minimal: str = ""
