"""Changes that compute the same, each with the reason. The list is short on purpose: a test is better than a reason."""

from __future__ import annotations

from .changes import Mutant

#: (module, function, before, after, reason); "*" for any.
SAME: tuple[tuple[str, str, str, str, str], ...] = ()


def reason(mutant: Mutant) -> str:
    """Why the change computes the same; "" if it does not."""
    here = (mutant.module, mutant.function, mutant.before, mutant.after)
    for *entry, why in SAME:
        if all(want in ("*", have) for want, have in zip(entry, here, strict=True)):
            return why
    return ""
