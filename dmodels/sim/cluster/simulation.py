r"""A prefill/decode cluster whose workers change roles: Phasor's loop and its baselines, in one compiled event loop.

Unlike `disaggregated`, stages are coupled: a control epoch looks at both pools, standby workers join either, sequences
move between decoders, and with a closed loop of clients an answer brings the next request. Prefill workers serve one
prompt at a time; decoders step all their sequences together, t(n) = W + H n, and admit a sequence only if blocks for
all its tokens are free (nothing is ever preempted). Decoding starts when a decoder has room; until then the KV cache
waits, and so does everyone behind it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from dmodels.core.errors import InputError
from dmodels.sim.requests import Requests, per_token_s

from .disaggregated import Signal
from .engine import run_cluster


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


class Cluster(NamedTuple):
    """The machines. Times are those of one worker."""

    prefill: int
    decode: int
    standby: int = 0
    base_s: float = 0.025  # W
    per_sequence_s: float = 0.35e-3  # H
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


class Run(NamedTuple):
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


def simulate(
    arrival_s: Any,
    input_tokens: Any,
    output_tokens: Any,
    prefill_s: Any,
    cluster: Cluster,
    control: Control = Control(),  # noqa: B008 - a tuple of constants
    *,
    virtual_s: Any = None,
    clients: int = 0,
) -> Run:
    """Serve requests (n,). `prefill_s` (n,) is what a prompt takes; `virtual_s` what the router believes it takes.

    With `clients` above 0 the loop is closed: so many requests are in flight, the next in the list arrives when one
    ends, and `arrival_s` only spaces the first ones out.
    """
    requests = Requests.checked(arrival_s, input_tokens, output_tokens)
    n = requests.arrival_s.size
    seconds, believed = (
        np.ascontiguousarray(np.broadcast_to(np.asarray(x, np.float64), (n,)))
        for x in (prefill_s, prefill_s if virtual_s is None else virtual_s)
    )
    blocks = np.ceil((requests.input_tokens + requests.output_tokens) / cluster.block_tokens)
    if not (cluster.prefill >= 1 and cluster.decode >= 1 and cluster.standby >= 0 and cluster.slots >= 1):
        raise InputError(
            f"prefill {cluster.prefill}, decode {cluster.decode}, standby {cluster.standby}, slots "
            f"{cluster.slots}; accepted: at least one of each, standby from 0"
        )
    if not (np.isfinite(seconds).all() and (seconds > 0).all() and np.isfinite(believed).all()):
        raise InputError("prefill_s, virtual_s: accepted are finite seconds, prefill above 0")
    if not np.isfinite(cluster.kv_blocks):
        raise InputError(f"kv_blocks {cluster.kv_blocks}; accepted: a finite number, freeness is a share of it")
    if n and blocks.max() > cluster.kv_blocks:
        raise InputError(f"kv_blocks {cluster.kv_blocks:g}: a request needs {blocks.max():g}; accepted: at least that")
    if not (control.epoch_s > 0 and 0 < control.theta_flow < 1 and 0 <= control.theta_frag < 1):
        raise InputError(
            f"epoch_s {control.epoch_s}, theta_flow {control.theta_flow}, theta_frag "
            f"{control.theta_frag}; accepted: above 0, between 0 and 1, from 0 to 1"
        )
    if not 0 <= clients <= n:
        raise InputError(f"clients = {clients}; accepted: 0 to the number of requests, {n}")
    roles = np.repeat([0, 1, 2], [cluster.prefill, cluster.decode, cluster.standby])
    out = run_cluster(
        requests.arrival_s.copy(),
        requests.input_tokens,
        requests.output_tokens,
        seconds,
        believed,
        blocks,
        roles,
        (
            cluster.base_s,
            cluster.per_sequence_s,
            float(cluster.slots),
            cluster.kv_blocks,
            cluster.block_transfer_s,
            cluster.ttft_slo_s,
        ),
        (
            float(control.signal),
            float(control.flow),
            control.theta_flow,
            control.theta_frag,
            control.epoch_s,
            control.cool_s,
            control.queue_limit,
            float(control.sees_waiting),
        ),
        int(clients),
    )
    arrival, first, end, worker, epoch, queues, batch, stranded, changes, moved = out
    return Run(arrival, first, end, requests.output_tokens, worker, epoch, queues, batch, stranded, changes, moved)
