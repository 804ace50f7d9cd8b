"""Changes that compute the same, each with the reason. The list is short on purpose: a test is better than a reason."""

from __future__ import annotations

from .changes import Mutant

#: (module, function, before, after, reason); "*" for any.
SAME: tuple[tuple[str, str, str, str, str], ...] = (
    ("models/router", "choice_probabilities", "1.0", "2.0", "stands in for a divisor in lanes that are not taken"),
    ("models/router", "choose", "levels / levels[..., -1:]", "*", "the last level is 1 but for rounding"),
    ("models/curves", "affine", "0.0", "1.0", "a numerator over an infinite pole; a and b alone are read"),
    ("models/curves", "affine", "line.a_s + zero", "line.a_s - zero", "adds a zero for its shape"),
    ("models/curves", "affine", "line.b_s + zero", "line.b_s - zero", "adds a zero for its shape"),
    ("models/curves", "affine", "1.0", "2.0", "the exponent of a singular term whose numerator is 0"),
    ("models/migration", "precopy_rounds", "rounds + 0.0 * sent", "rounds - 0.0 * sent", "adds a zero for its shape"),
    ("models/migration", "precopy", "1.0", "2.0", "the upper end of a clip, beyond all that converges"),
    ("models/migration", "precopy_rounds", "jnp.abs(q - 1.0) < 1e-09", "jnp.abs(q - 1.0) <= 1e-09",
     "one float of q, where both forms of the series agree"),
    ("models/migration", "precopy_rounds", "1.0", "2.0", "of four, one is the divisor in lanes that are not taken"),
    ("models/multiplexing", "servers_count", "middle > load", "middle >= load", "at equality everybody waits anyway"),
    ("models/staleness", "cost_staleness_tolerance", "margin >= 0", "margin > 0", "at a tie both branches are 0"),
    ("models/staleness", "refresh_interval_s", "1.0", "2.0", "of two, one keeps a lane finite that is not taken"),
    ("models/staleness", "correlation_time_s", "lag_one > 0", "lag_one >= 0", "-step/ln 0 is 0, as the other branch"),
    ("models/transfer", "post_prefill_latency", "transfer + queue + step", "transfer + queue - step",
     "asked for NaN only, and a step is finite"),
    ("models/kv", "state_bytes", "model.n_linear_heads > 0", "model.n_linear_heads >= 0",
     "of two, the first only guards a division in a lane that is not taken"),
    ("games/anarchy_queues", "_split", "fast > scale * fast ** power", "fast >= scale * fast ** power",
     "at equality the queue's share is 0 either way"),
    ("control/regime", "detection_samples", "1.0", "2.0", "stands in for a gap in lanes that are not taken"),
)  # fmt: skip


def reason(mutant: Mutant) -> str:
    """Why the change computes the same; "" if it does not."""
    here = (mutant.module, mutant.function, mutant.before, mutant.after)
    for *entry, why in SAME:
        if all(want in ("*", have) for want, have in zip(entry, here, strict=True)):
            return why
    return ""
