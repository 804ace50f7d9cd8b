"""What the reader of a plan must know beside the answer, for terminal, page and JSON alike."""

from __future__ import annotations

from dmodels.studies.plan import Plan
from dmodels.studies.plan.admitted import Admitted

from . import replay_tables
from .text import share


def notes(answer: Plan) -> list[str]:
    """What replays say, and requests that the model cannot take."""
    return replay_tables.notes(answer) + _context(answer)


def _context(answer: Plan) -> list[str]:
    """Requests beyond the model's context: how many, what becomes of them, and whether the load counts them."""
    found = answer.priced.admitted
    beyond = found.refused_frac + found.cut_frac
    if not beyond:
        return []
    said = [
        f"Context: {share(beyond)} of the requests are longer than the {found.limit_tokens:,.0f} tokens that the "
        f"config of {answer.question.model_name} allows (the longest takes {found.longest_tokens:,.0f})."
    ]
    if found.refused_frac:
        of = f" of {share(found.refused_frac)}" if found.cut_frac else ""
        said.append(f"The prompts{of} fill it alone, and engines refuse them: {_left(found, answer)}.")
    if found.cut_frac:
        of = f" of {share(found.cut_frac)}" if found.refused_frac else ""
        said.append(
            f"The answers{of} would run past it: they are in the load up to there, where engines cut them off (or "
            "refuse them, if they ask for so many tokens in advance)."
        )
    return [" ".join([*said, "Serving all of them whole takes a model with a longer context."])]


def _left(found: Admitted, answer: Plan) -> str:
    if found.none:
        return "nothing is left to serve"
    load = f"{found.rate_rps:,.4g} of {answer.question.rate_rps:,.4g} req/s"
    return f"they are not in the load, which is {load}, and the SLOs are kept for the requests served"
