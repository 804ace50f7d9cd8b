"""What a prefill/decode cluster is made of, who controls it, and what comes out."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from dmodels.models.latency import StepLaw
from dmodels.sim.requests import per_token_s


class Signal(IntEnum):
    """What a router sees of a prefill worker; the least is chosen, the first of equals.

    TURN      nothing: in turn
    REQUESTS  requests there, waiting and in service
    WORK      seconds of unfinished work (virtual freeness with exact remaining costs orders workers the same way)
    TOKENS    prompt tokens there, waiting and in service
    MEMORY    prompt tokens in service only: the KV memory in use, which cannot see the queue
    """

    TURN = 0
    REQUESTS = 1
    WORK = 2
    TOKENS = 3
    MEMORY = 4


class Flow(IntEnum):
    """Who decides about standby workers.

    NONE      nobody
    FREENESS  Phasor: mean freeness of the pools, ratio theta_flow, cool-down, recall (`control.phasor_flow.promote`)
    REACTIVE  Splitwise-like: to prefill while its queues exceed `queue_limit`, to decode while only decode waits, back
              when neither does; no cool-down
    """

    NONE = 0
    FREENESS = 1
    REACTIVE = 2


class Role(IntEnum):
    """What a worker does."""

    PREFILL = 0
    DECODE = 1
    STANDBY = 2


class Workers(NamedTuple):
    """The machines by their first role. Times are those of one worker."""

    prefill: int
    decode: int
    standby: int = 0
    step: StepLaw = StepLaw(0.025, 0.35e-3)  # of a decoder
    slots: int = 256
    kv_blocks: float = 14_800.0  # of one decoder
    block_tokens: int = 16
    block_transfer_s: float = 1e-5  # to move one block between decoders
    ttft_slo_s: float = 0.4


class Control(NamedTuple):
    """The controller."""

    signal: Signal = Signal.WORK
    flow: Flow = Flow.FREENESS
    theta_flow: float = 0.62
    theta_frag: float = 0.168  # 0: no de-fragmentation
    epoch_s: float = 0.05
    cool_s: float = 1.0
    queue_limit: float = 4.0
    sees_waiting: bool = True  # decode freeness counts sequences that wait for a decoder; as printed it does not


class Hybrid(NamedTuple):
    """TaiChi in place of a `Control`: every worker reads prompts in chunks and decodes, the two kinds unlike.

    The prefill workers take large chunks (P-heavy), the decoders small ones or none (D-heavy). A prompt goes to a
    decoder if its first token is in time there, else to a prefill worker, else to where it is soonest. Answers start on
    decoders; above a watermark of a decoder's KV memory its longest flow to prefill workers, and back before they are
    late. With no chunks on decoders and a watermark of 1 the two kinds are apart; with equal chunks they are one pool.
    """

    chunk_tokens: float = 2048.0  # of prompts in a step of a prefill worker
    decode_chunk_tokens: float = 256.0  # ... of a decoder; 0: it reads no prompts
    watermark_frac: float = 0.9  # 1: answers never flow
    tpot_slo_s: float = 0.1
    back_frac: float = 0.9  # of the TPOT SLO: slower answers flow back to a decoder
    epoch_s: float = 0.05


class ClusterRun(NamedTuple):
    """Request columns (n,) in order of arrival, and (epochs,) of what was seen at control epochs."""

    arrival_s: np.ndarray
    first_token_s: np.ndarray
    end_s: np.ndarray
    output_tokens: np.ndarray
    worker: np.ndarray  # prefill worker
    epoch_s: np.ndarray
    queues: np.ndarray  # (epochs, workers) prompts waiting and in service
    batch: np.ndarray  # (epochs,) sequences per decoder
    stranded_frac: np.ndarray  # (epochs,) of decoders' free blocks, for a request of mean size
    changes: int  # role changes
    moved_blocks: float

    @property
    def ttft_s(self) -> np.ndarray:
        """Time to first token, sent by the prefill worker."""
        waited: np.ndarray = self.first_token_s - self.arrival_s
        return waited

    @property
    def tpot_s(self) -> np.ndarray:
        """(end - first token)/(output - 1), the wait for a decoder included; NaN for one token."""
        return per_token_s(self.first_token_s, self.end_s, self.output_tokens)

    @property
    def e2e_s(self) -> np.ndarray:
        """From arrival to the last token."""
        took: np.ndarray = self.end_s - self.arrival_s
        return took
