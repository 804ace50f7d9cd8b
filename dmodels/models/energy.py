"""Energy of serving: joules per token, as papers print them."""

from __future__ import annotations

from dmodels.core.numerics import safe_divide
from dmodels.core.records import Real


def joules_per_token(watts: Real, tokens_per_s: Real) -> Real:
    """Average power over generated tokens per second; inf where nothing is generated. 1720 W / 9820 tok/s: 0.1752."""
    return safe_divide(watts, tokens_per_s)


def saved_frac(joules: Real, baseline_joules: Real) -> Real:
    """1 - J / J_baseline. The paper's 28.0 % comes from 0.175 and 0.243, already rounded; from its watts it is 27.8."""
    return 1.0 - joules / baseline_joules
