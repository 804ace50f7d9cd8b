"""The requests that an engine takes: none is longer, prompt and answer together, than the model's context.

An engine refuses a prompt that leaves no room for a token of an answer, before it costs anything. An answer that would
run past the context is cut off there, or refused too, if the request states that many tokens in advance; it is counted
as one that is cut off, so that a plan serves either.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dmodels.core.workload import Workload


@dataclass(frozen=True)
class Admitted:
    """What is left of the traffic, and what became of the rest."""

    workload: Workload  # requests taken, at their rate; where none is, those asked about
    limit_tokens: float  # the model's context; inf: its config does not say
    longest_tokens: float  # of the requests asked about
    refused_frac: float  # of these: prompts that fill the context
    cut_frac: float  # of these: answers that would run past it

    @property
    def rate_rps(self) -> float:
        """Requests a second that are taken."""
        return float(self.workload.rate_rps)

    @property
    def none(self) -> bool:
        """Whether every request is refused."""
        return self.refused_frac >= 1.0


def admitted(workload: Workload, limit_tokens: float) -> Admitted:
    """The requests of `workload` that fit a context of `limit_tokens` (0: not known, all do).

    >>> found = admitted(Workload([100.0, 1000.0, 3000.0], [100.0] * 3, [0.5, 0.3, 0.2], rate_rps=10.0), 1024.0)
    >>> found.refused_frac, found.cut_frac, found.rate_rps, found.workload.output_tokens.tolist()
    (0.2, 0.3, 8.0, [100.0, 24.0])
    """
    limit = float(limit_tokens) or np.inf
    inputs, weight = np.asarray(workload.input_tokens), np.asarray(workload.weight_frac)
    total = np.asarray(workload.total_tokens)
    beyond = total > limit
    refused = beyond & (inputs > limit - 1.0)
    cut = beyond & ~refused
    longest, lost, shorter = float(total[weight > 0].max()), float(weight[refused].sum()), float(weight[cut].sum())
    if not weight[~refused].any():
        return Admitted(workload, limit, longest, 1.0, 0.0)
    if not (lost or shorter):
        return Admitted(workload, limit, longest, 0.0, 0.0)
    outputs, share = np.where(cut, limit - inputs, workload.output_tokens), weight[~refused].sum()
    taken = workload.replace(
        input_tokens=inputs[~refused],
        output_tokens=outputs[~refused],
        weight_frac=weight[~refused] / share,
        cached_tokens=np.asarray(workload.cached_tokens)[~refused],
        rate_rps=workload.rate_rps * share,
    )
    return Admitted(taken, limit, longest, lost, shorter)
