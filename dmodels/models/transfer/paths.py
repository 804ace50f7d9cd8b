"""Ways to move a KV cache other than one serial flow: layer by layer, shard by shard, hop by hop, among others."""

from __future__ import annotations

import jax.numpy as jnp

from dmodels.core.numerics import safe_divide
from dmodels.core.records import Real


def pipelined_transfer_s(bytes_: Real, bandwidth_bytes_per_s: Real, prefill_s: Real, layers: Real) -> Real:
    r"""Transfer time that still shows after prefill when each layer is sent as soon as it is computed.

    Layer l of n is ready at $lP/n$ and takes $s/(nB)$; the last byte lands at
    $\max_l [lP/n + (n-l+1) s/(nB)]$, linear in l, so at an end: visible is
    $\max(s/B - P(1 - 1/n),\ s/(nB))$. One layer is the serial transfer; at most P is hidden.

    >>> float(pipelined_transfer_s(8.0, 1.0, 4.0, 4.0)), float(pipelined_transfer_s(8.0, 1.0, 4.0, 1.0))
    (5.0, 8.0)
    """
    whole = safe_divide(bytes_, bandwidth_bytes_per_s)
    return jnp.maximum(whole - prefill_s * (1.0 - 1.0 / layers), whole / layers)


def fan_out_time_s(
    kv_bytes: Real,
    path_bytes_per_s: Real,
    sender_nic_bytes_per_s: Real,
    receiver_nic_bytes_per_s: Real,
    prefill_tp: Real,
    decode_tp: Real,
    kv_heads: Real,
    shared_nic: bool = False,
) -> Real:
    r"""Time of a transfer between tensor-parallel groups, one NIC per GPU (with `shared_nic`: one per instance).

    Heads beyond the KV heads are replicas: $r = \max(1, \mathrm{tp}_d/n_{kv})$ copies arrive, each of the
    senders' GPUs sends $r s/\min(\mathrm{tp}_p, n_{kv})$ (ranks that hold replicas need not send), each receiver
    takes $r s/\mathrm{tp}_d$, and all share `path_bytes_per_s`. The slowest of the three decides.

    >>> float(fan_out_time_s(40e9, 1e12, 3.125e9, 3.125e9, 4.0, 4.0, 8.0))                    # 10 GB per pair
    3.2
    >>> float(fan_out_time_s(40e9, 1e12, 3.125e9, 3.125e9, 4.0, 4.0, 8.0, shared_nic=True))   # one NIC for all four
    12.8
    """
    copies = jnp.maximum(decode_tp / kv_heads, 1.0) * kv_bytes
    senders = jnp.where(shared_nic, 1.0, jnp.minimum(prefill_tp, kv_heads))
    receivers = jnp.where(shared_nic, 1.0, decode_tp)
    out = safe_divide(copies, senders * sender_nic_bytes_per_s)
    into = safe_divide(copies, receivers * receiver_nic_bytes_per_s)
    return jnp.maximum(jnp.maximum(out, into), safe_divide(copies, path_bytes_per_s))


def staged_transfer_s(bytes_: Real, hop_bytes_per_s: Real, hop_latency_s: Real, chunk_bytes: Real = jnp.inf) -> Real:
    r"""Time over a chain of hops (last axis), such as GPU to DRAM to SSD to GPU.

    Stored whole at every hop it is the sum $\sum_h s/B_h$ (what the paper proposes); forwarded in chunks of c it is
    $\sum_h c/B_h + (s-c)/\min_h B_h$: after the first chunk only the slowest hop counts.

    >>> rates = jnp.array([10.0, 5.0])
    >>> float(staged_transfer_s(100.0, rates, 0.0)), float(staged_transfer_s(100.0, rates, 0.0, 10.0))
    (30.0, 21.0)
    """
    chunk = jnp.minimum(chunk_bytes, bytes_)
    first = safe_divide(jnp.expand_dims(jnp.asarray(chunk), -1), hop_bytes_per_s).sum(-1)
    rest = safe_divide(bytes_ - chunk, hop_bytes_per_s.min(-1))
    return first + rest + jnp.broadcast_to(hop_latency_s, hop_bytes_per_s.shape).sum(-1)


def shared_transfer_s(bytes_: Real, residual_bytes: Real, bandwidth_bytes_per_s: Real) -> Real:
    r"""Exact time of a transfer that shares a link fairly with flows of `residual_bytes` (last axis) left to send.

    $(s + \sum_k \min(s, r_k))/B$: by the time ours ends, every other flow has sent as much as ours or has finished.
    Eq. (4)'s $(n+1)s/B$ is the case in which all others are at least as long; padding with 0 adds no flow.

    >>> float(shared_transfer_s(4.0, jnp.array([1.0, 9.0]), 1.0))     # 4 + 1 + 4, where Eq. (4) says 12
    9.0
    """
    ours = jnp.expand_dims(jnp.asarray(bytes_), -1)
    return safe_divide(bytes_ + jnp.minimum(ours, residual_bytes).sum(-1), bandwidth_bytes_per_s)
