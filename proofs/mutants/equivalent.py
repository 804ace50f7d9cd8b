"""Changes that compute the same, each with the reason. It grows with the guards of formulas: a test is better."""

from __future__ import annotations

from . import same_models
from .changes import Mutant

#: As `same_models.SAME`, of what is no model.
_OTHERS: tuple[tuple[str, str, str, str, int, str], ...] = (
    ("control/congestion", "smoothing_forecast", "jnp.clip(state.level, 0.0, _HIGHEST) + 0.0 * steps",
     "jnp.clip(state.level, 0.0, _HIGHEST) - 0.0 * steps", 0, "adds a zero for its shape"),
    ("control/congestion", "ar1_coefficient", "1.0", "2.0", 0, "clipped to 1"),
    ("control/phasor", "route", "0", "1", 2, "no worker is open: nothing is added to whichever is named"),
    ("control/phasor_baselines", "static_split", "total > 0", "total >= 0", 1, "guards lanes that are not taken"),
    ("control/phasor_baselines", "static_split", "1.0", "2.0", 0, "the divisor in lanes that are not taken"),
    ("control/phasor_flow", "init", "p + d + m", "p + d - m", 0, "only its shape is read"),
    ("control/phasor_flow", "init", "p + zero", "p - zero", 0, "adds a zero for its shape"),
    ("control/phasor_flow", "init", "d + zero", "d - zero", 0, "adds a zero for its shape"),
    ("control/phasor_flow", "init", "m + zero", "m - zero", 0, "adds a zero for its shape"),
    ("control/phasor_flow", "init", "p + d", "p - d", 0, "only its shape is read"),
    ("control/planner", "anarchy_driven", "1e-06", "2e-06", 0, "keeps 0/0 away, by 1e-6 of a cost or by 2e-6"),
    ("control/planner", "anarchy_driven", "1e-06", "2e-06", 1, "keeps 0/0 away, by 1e-6 of a cost or by 2e-6"),
    ("control/planner", "anarchy_driven", "price > threshold", "price >= threshold", 0, "one float of a quotient"),
    ("control/planner", "anarchy_driven", "cost(prefill, total, seen.arrival_rps) + 1e-06",
     "cost(prefill, total, seen.arrival_rps) - 1e-06", 0, "of no cost the price is -1 or 1: no move"),
    ("control/planner_stability", "limit", "200", "201", 0, "the bisection ended long before"),
    ("control/planner_stability", "limit", "phase(middle) < 0", "phase(middle) <= 0", 0, "one float of a bisection"),
    ("control/planner_stability", "simulate", "t >= delay", "t > delay", 0, "the signal begins at 0"),
    ("control/regime", "detection_samples", "1.0", "2.0", 1, "stands in for a gap in lanes that are not taken"),
    ("control/regime", "update", "0.0", "1.0", 0, "a sample that is not kept"),
    ("control/regime", "update", "2", "3", 0, "capped at 2"),
    ("control/regime", "update", "2", "3", 1, "no regime is above 2"),
    ("control/regime", "detection_samples", "after_s > threshold_s", "after_s >= threshold_s", 0,
     "at equality both are infinite"),
    ("control/token_budget", "update", "0", "1", 0, "counts are whole: one token divides by one either way"),
    ("control/token_budget", "deviation", "1.0", "2.0", 1, "divides 0, where nothing has been seen"),
    ("control/token_budget", "update", "1.0", "2.0", 0, "the divisor in lanes that are not taken"),
    ("control/token_budget", "update", "1.0", "2.0", 1, "stands in for a ratio in lanes that are not taken"),
    ("control/token_budget", "deviation", "room > 0", "room >= 0", 0, "where nothing has been seen nothing varies"),
    ("control/token_budget_bounds", "responses_to", "1.0", "2.0", 0, "the divisor in lanes that are not taken"),
    ("control/token_budget_bounds", "miss_bound", "1.0", "2.0", 0, "stands in for a gap in lanes that are not taken"),
    ("control/token_budget_bounds", "responses_to", "gap > 0", "gap >= 0", 1, "guards lanes that are not taken"),
    ("control/token_budget_bounds", "responses_to", "1.0", "2.0", 1, "without a gap: no responses either way"),
    ("control/token_budget_threshold", "update", "1.0", "2.0", 0, "the divisor in lanes that are not taken"),
    ("core/numerics", "safe_divide", "1.0", "2.0", 0, "the divisor in lanes that are not taken"),
    ("core/numerics", "all_finite", "0.0", "1.0", 0, "a sum of ones is as finite as one of zeros"),
    ("games/anarchy_bounds", "singleton_price", "later > 0", "later >= 0", 1, "guards lanes that are not taken"),
    ("games/anarchy_bounds", "singleton_price", "1.0", "2.0", 2, "the divisor in lanes that are not taken"),
    ("games/anarchy_bounds", "singleton_price", "later > 0", "later >= 0", 0, "nothing times 0/1: no cost, no share"),
    ("games/anarchy_bounds", "pole_limit", "n_sat + 0.0 * d", "n_sat - 0.0 * d", 0, "adds a zero for its shape"),
    ("games/anarchy_bounds", "polynomial_atomic", "(k + 1) ** (d + 1) <= (k + 2) ** d",
     "(k + 1) ** (d + 1) < (k + 2) ** d", 0, "powers of consecutive numbers are never equal"),
    ("games/anarchy_bounds", "polynomial_weighted", "2.0", "3.0", 0, "a bracket that is longer than needed"),
    ("games/anarchy_bounds", "polynomial_weighted", "2.0", "3.0", 1, "a bracket that is longer than needed"),
    ("games/anarchy_bounds", "polynomial_weighted", "200", "201", 0, "the bisection ended long before"),
    ("games/anarchy_bounds", "polynomial_weighted", "(degree + 1) * math.log(middle) < degree * math.log(middle + 1)",
     "(degree + 1) * math.log(middle) <= degree * math.log(middle + 1)", 0, "one float of a bisection"),
    ("games/anarchy_queues", "_split", "fast > scale * fast ** power", "fast >= scale * fast ** power", 0,
     "at equality the queue's share is 0 either way"),
    ("games/anarchy_queues", "_split", "scale > 0", "scale >= 0", 0,
     "where the k fastest are exactly full the next one is used, so that k is not the last"),
    ("games/queueing", "DecodeBatch.__call__", "1.0", "2.0", 1, "stands in for a mean in lanes that are not taken"),
    ("games/queueing", "PrefillQueue.__call__",
     "jnp.expand_dims(self.service_s * jnp.exp(-0.5 * sigma ** 2), ... sigma[..., None] * nodes)",
     "jnp.expand_dims(self.service_s * jnp.exp(-0.5 * sigma ** 2), ... sigma[..., None] * nodes)", 0,
     "divided by e^x instead of multiplied: the nodes are symmetric about 0"),
    ("games/queueing", "PrefillQueue.__call__", "2.0 * load", "2.0 / load", 0, "servers in lanes that are not taken"),
    ("games/queueing", "PrefillQueue.__call__", "2.0", "3.0", 0, "servers in lanes that are not taken"),
    ("games/queueing", "PrefillQueue.__call__", "1.0", "2.0", 0, "stands in for a time in lanes that are not taken"),
    ("games/queueing", "DecodeBatch.handed_over_frac", "1.0", "2.0", 1, "a share that is at most 1 already"),
    ("games/resource_game", "balance_of", "prefill > 1e-280", "prefill >= 1e-280", 0, "one float"),
    ("games/resource_game", "balance_of", "decode > 1e-280", "decode >= 1e-280", 0, "one float"),
    ("games/resource_game", "balance_of", "1.0", "2.0", 0, "stands in for a saving in lanes that are not taken"),
    ("games/resource_game", "balance_of", "1.0", "2.0", 1, "stands in for a saving in lanes that are not taken"),
    ("games/resource_game", "balance_of", "1.0", "2.0", 2, "divides 0, where nobody saves anything"),
    ("games/resource_game", "balance_of", "0", "1", 1, "the larger of the two is 1, so that their sum is at least 1"),
    ("games/resource_game", "balance_of", "1.0", "2.0", 3, "divides 0, where nobody saves anything"),
    ("games/violation", "Alone.__call__", "self.own(decode_gpus) + 0.0 * prefill_gpus",
     "self.own(decode_gpus) - 0.0 * prefill_gpus", 0, "adds a zero for its shape"),
)  # fmt: skip
SAME = (*same_models.SAME, *_OTHERS)
_REASONS = {entry[:-1]: entry[-1] for entry in SAME}


def reason(mutant: Mutant) -> str:
    """Why the change computes the same; "" if it does not."""
    here = (mutant.module, mutant.function, mutant.before, mutant.after, mutant.occurrence)
    return _REASONS.get(here, "")
