"""Requests as arrays, before and after they were served."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from dmodels.core.errors import InputError


class Prefill(IntEnum):
    """How the prompts of admitted requests share an iteration.

    OWN     every request in prefill advances by its own chunk in every iteration (arXiv:2604.09613, "Service time")
    SHARED  one chunk per iteration: the oldest prompt's, even if it does not fill the chunk
    PACKED  one chunk per iteration, filled from the prompts in order (arXiv:2604.09613, "Instance DES"; vLLM)
    """

    OWN = 0
    SHARED = 1
    PACKED = 2


class KVCache(NamedTuple):
    """Memory of one instance in blocks. `reserve`: blocks for prompt and output are set aside at admission (nothing is
    ever preempted); otherwise blocks are taken as tokens come, and when none is left the request admitted last is
    preempted, goes back to the head of the queue, and recomputes."""

    blocks: int
    block_tokens: int = 16
    reserve: bool = False


def per_token_s(first_token_s: np.ndarray, end_s: np.ndarray, output_tokens: np.ndarray) -> np.ndarray:
    """TPOT: (end - first token)/(output - 1); NaN for a single output token, which has no such time."""
    gaps = output_tokens - 1.0
    return np.where(gaps > 0, (end_s - first_token_s) / np.maximum(gaps, 1.0), np.nan)


class Served(NamedTuple):
    """When each request was admitted, answered and done; (n,) each, in the order of arrival. NaN: not (yet)."""

    arrival_s: np.ndarray
    admitted_s: np.ndarray
    first_token_s: np.ndarray
    end_s: np.ndarray
    output_tokens: np.ndarray
    restarts: np.ndarray | None = None  # (n,) times that work was lost, to preemption or to a failure
    instance: np.ndarray | None = None  # (n,) where there is a fleet

    def at(self, which: np.ndarray) -> Served:
        """The requests that a mask or numbers name."""
        return Served(*[column if column is None else column[which] for column in self])

    @property
    def wait_s(self) -> np.ndarray:
        """From arrival to admission."""
        return self.admitted_s - self.arrival_s

    @property
    def ttft_s(self) -> np.ndarray:
        """Time to first token, waiting included."""
        return self.first_token_s - self.arrival_s

    @property
    def e2e_s(self) -> np.ndarray:
        """From arrival to the last token."""
        return self.end_s - self.arrival_s

    @property
    def tpot_s(self) -> np.ndarray:
        """(E2E - TTFT)/(output - 1); NaN for a single output token, which has no such time."""
        return per_token_s(self.first_token_s, self.end_s, self.output_tokens)


class Requests(NamedTuple):
    """What arrives: (n,) float64 times in order, and int64 lengths."""

    arrival_s: np.ndarray
    input_tokens: np.ndarray
    output_tokens: np.ndarray
    cached_tokens: np.ndarray

    @classmethod
    def checked(cls, arrival_s, input_tokens, output_tokens, cached_tokens=0) -> Requests:
        """Arrays of one length; times finite and in order; every request has a prompt and an output."""
        arrival = np.ascontiguousarray(arrival_s, np.float64)
        if arrival.ndim != 1:
            raise InputError(f"arrival_s: shape {arrival.shape}; accepted: one time per request")
        if not np.isfinite(arrival).all() or (np.diff(arrival) < 0).any():
            raise InputError("arrival_s: not finite or not in order; accepted: nondecreasing times in seconds")
        lengths = []
        for name, value, least in (
            ("input_tokens", input_tokens, 1),
            ("output_tokens", output_tokens, 1),
            ("cached_tokens", cached_tokens, 0),
        ):
            value = np.asarray(value)
            if value.ndim > 1 or value.size not in (1, arrival.size):
                raise InputError(f"{name}: shape {value.shape}; accepted: one number, or one per request")
            whole = np.broadcast_to(np.rint(value), arrival.shape)
            if not np.isfinite(whole).all() or (whole < least).any():
                raise InputError(f"{name}: {np.nanmin(whole):g}; accepted: whole numbers from {least}")
            lengths.append(np.ascontiguousarray(whole, np.int64))
        if (lengths[2] > lengths[0]).any():
            raise InputError("cached_tokens exceed input_tokens; accepted: at most the input")
        return cls(arrival, *lengths)

    def at(self, rows: np.ndarray) -> Requests:
        """Some of them, by their places or by a mask."""
        return Requests(*(column[rows] for column in self))

    @property
    def prefill_tokens(self) -> np.ndarray:
        """Tokens of each prompt that are not cached, at least 1."""
        todo: np.ndarray = np.maximum(1, self.input_tokens - self.cached_tokens)
        return todo
