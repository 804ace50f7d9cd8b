"""How an engine batches, and the steady state of one instance."""

from __future__ import annotations

from typing import NamedTuple

from dmodels.core.records import Real, Record, quantity

from ..latency import budget_of_ranks


class Engine(Record):
    """How the serving engine batches: vLLM's `max_num_seqs` and `max_num_batched_tokens`."""

    max_num_seqs_count: Real = quantity(256.0)
    max_num_batched_tokens: Real = quantity(8192.0)

    def of_ranks(self, dp: Real, prompt_tokens: Real) -> Engine:
        """The limits of dp ranks of data-parallel attention together, each of which has these."""
        budget = budget_of_ranks(prompt_tokens, self.max_num_batched_tokens, dp)
        return Engine(dp * self.max_num_seqs_count, budget)


class Operating(NamedTuple):
    """The steady state of one instance of a pool."""

    decode_count: Real  # requests that decode at a time
    slots_count: Real  # requests that may
    prefill_busy_frac: Real  # of the time that goes to prompts
    wait_s: Real  # mean wait for a slot and for earlier prompts
    ttft_s: Real  # at the SLO's percentile
    ttft_mean_s: Real
    tpot_s: Real  # at the SLO's percentile
    tpot_mean_s: Real
    e2e_s: Real  # at the SLO's percentile
    tokens_per_s: Real  # output tokens of the instance
    flags: Real
