"""What one pool of instances sees of a workload: the few numbers on which its steady state depends."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from dmodels.core.records import Real, Record, quantity
from dmodels.core.workload import Workload

from .workload import quantile

#: Levels at which prompt and answer lengths are tabulated; dense where SLO percentiles lie.
LEVELS = np.array([0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0])
#: Answers are also sorted into ten classes by length, the shortest finest: stalls hurt the TPOT of short answers most.
GAP_EDGES = (1.0 - LEVELS)[::-1]
GAP_WEIGHTS = np.diff(GAP_EDGES)
#: Where no answer has two tokens: gaps so many that nothing stalls them.
NO_GAPS = np.full(len(GAP_WEIGHTS), 1e9)


class Requests(Record):
    """Requests that go to one pool, summed up; `requests_between` makes it from a workload.


    share_frac            of all requests of the workload that come here
    prefill_tokens        mean prompt tokens to compute (prefix hits taken off)
    prefill_square        mean of their square, in tokens^2
    output_tokens         mean tokens generated
    output_scv            squared coefficient of variation of the output
    context_tokens        mean context of a request at a random moment of its decoding (longer answers count more)
    prefill_edge_tokens   (..., 11) quantiles of the prompt at `LEVELS`
    output_edge_tokens    (..., 11) quantiles of the output at `LEVELS`
    gap_tokens            (..., 10) output - 1 in the middle of each class of `GAP_EDGES`, of requests with two or more
    longest_tokens        longest total
    """

    share_frac: Real = quantity()
    input_tokens: Real = quantity()
    prefill_tokens: Real = quantity()
    prefill_square: Real = quantity()
    output_tokens: Real = quantity()
    output_scv: Real = quantity()
    context_tokens: Real = quantity()
    prefill_edge_tokens: Real = quantity()
    output_edge_tokens: Real = quantity()
    gap_tokens: Real = quantity()
    longest_tokens: Real = quantity()

    @property
    def decode_steps(self) -> Real:
        """Mean steps of an answer after its prompt's own, which emits the first token."""
        return jnp.where(self.output_tokens > 0, jnp.maximum(self.output_tokens - 1.0, 1e-3), 0.0)


def requests_between(workload: Workload, low_tokens: float = 0.0, high_tokens: float = np.inf) -> Requests:
    """The requests of a workload whose total lies in (low, high], by exact sums over its support (on the host)."""
    inputs, outputs = np.asarray(workload.input_tokens), np.asarray(workload.output_tokens)
    prefill = inputs - np.broadcast_to(workload.cached_tokens, inputs.shape)
    total = inputs + outputs
    here = (total > low_tokens) & (total <= high_tokens) & (np.asarray(workload.weight_frac) > 0)
    if not here.any():
        nothing = np.zeros(len(LEVELS))
        return Requests(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, nothing, nothing, NO_GAPS, 0.0)
    weight = np.asarray(workload.weight_frac)[here]
    share = weight.sum()
    weight = weight / share
    inputs, outputs, prefill, total = inputs[here], outputs[here], prefill[here], total[here]
    output = weight @ outputs
    decoding = max(output, 1e-300)
    several = outputs >= 2.0
    middles = (GAP_EDGES[1:] + GAP_EDGES[:-1]) / 2.0
    return Requests(
        share_frac=share,
        input_tokens=weight @ inputs,
        prefill_tokens=weight @ prefill,
        prefill_square=weight @ prefill**2,
        output_tokens=output,
        output_scv=max(weight @ outputs**2 / decoding**2 - 1.0, 0.0),
        context_tokens=weight @ (outputs * (inputs + outputs / 2.0)) / decoding,
        prefill_edge_tokens=quantile(prefill, weight, LEVELS),
        output_edge_tokens=quantile(outputs, weight, LEVELS),
        gap_tokens=quantile(outputs[several] - 1.0, weight[several], middles) if several.any() else NO_GAPS,
        longest_tokens=total.max(),
    )
