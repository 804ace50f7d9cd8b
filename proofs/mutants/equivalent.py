"""Changes that compute the same, each with the reason. The list is short on purpose: a test is better than a reason."""

from __future__ import annotations

from .changes import Mutant

#: (module, function, before, after, occurrence, reason): `occurrence` counts equal changes of the function, from 0.
SAME: tuple[tuple[str, str, str, str, int, str], ...] = (
    ("models/router", "choice_probabilities", "1.0", "2.0", 0, "divides 0, where all costs are alike"),
    ("models/router", "choice_probabilities", "1.0", "2.0", 1, "stands in for tau in lanes that are not taken"),
    ("models/router", "choose", "levels / levels[..., -1:]", "levels * levels[..., -1:]", 0,
     "the last level is 1 but for rounding, and the last worker is the last"),
    ("models/curves", "affine", "0.0", "1.0", 0, "a singular term that is dropped: a and b alone are read"),
    ("models/curves", "affine", "line.a_s + line.b_s", "line.a_s - line.b_s", 0, "only for its shape: times zero"),
    ("models/curves", "affine", "line.a_s + zero", "line.a_s - zero", 0, "adds a zero for its shape"),
    ("models/curves", "affine", "line.b_s + zero", "line.b_s - zero", 0, "adds a zero for its shape"),
    ("models/curves", "affine", "1.0", "2.0", 0, "the exponent of a singular term whose numerator is 0"),
    ("models/curves", "as_curve", "all((isinstance(c, LatencyCurve) for c in curve))",
     "any((isinstance(c, LatencyCurve) for c in curve))", 0, "a mixed list cannot be stacked, nor read as a table"),
    ("models/migration", "precopy", "1.0", "2.0", 1, "the upper end of a clip: no q < 1 but those within 1e-12 of it"),
    ("models/migration", "precopy_rounds", "jnp.abs(q - 1.0) < 1e-09", "jnp.abs(q - 1.0) <= 1e-09", 0,
     "one float of q, where both forms of the series agree"),
    ("models/migration", "precopy_rounds", "1.0", "2.0", 4, "the divisor in lanes that are not taken"),
    ("models/migration", "precopy_rounds", "rounds + 0.0 * sent", "rounds - 0.0 * sent", 0,
     "adds a zero for its shape"),
    ("models/staleness", "cost_staleness_tolerance", "margin >= 0", "margin > 0", 0, "at a tie both branches are 0"),
    ("models/staleness", "refresh_interval_s", "1.0", "2.0", 1, "keeps a lane finite that is not taken"),
    ("models/staleness", "correlation_time_s", "lag_one > 0", "lag_one >= 0", 0,
     "-step/ln 0 is 0, as the other branch"),
    ("models/transfer", "post_prefill_latency", "transfer + queue + step", "transfer + queue - step", 0,
     "asked for NaN only, and a step is finite"),
    ("models/kv", "state_bytes", "model.n_linear_heads > 0", "model.n_linear_heads >= 0", 0,
     "guards a division in a lane that is not taken"),
    ("games/anarchy_queues", "_split", "fast > scale * fast ** power", "fast >= scale * fast ** power", 0,
     "at equality the queue's share is 0 either way"),
    ("control/regime", "detection_samples", "1.0", "2.0", 1, "stands in for a gap in lanes that are not taken"),
)  # fmt: skip
_REASONS = {entry[:-1]: entry[-1] for entry in SAME}


def reason(mutant: Mutant) -> str:
    """Why the change computes the same; "" if it does not."""
    here = (mutant.module, mutant.function, mutant.before, mutant.after, mutant.occurrence)
    return _REASONS.get(here, "")
