"""KV transfers packet by packet on the links of a fabric: FIFO queues, store and forward, a window per flow, no loss.

Flows, sizes, starts and paths are given (a run of the flow-level simulator). Each flow keeps at most `window` packets
on their way; a packet that has arrived is acknowledged after the latency of its tier and lets the next one go. A link
sends its packets in the order in which they came, one at a time. Lossless fabrics (RDMA with priority flow control) do
no worse than that where windows cover rate times delay. Not here: rate control that overshoots and recovers.
"""

from __future__ import annotations

import heapq

import numpy as np

from dmodels.core.compiled import kernel
from dmodels.sim.network import NetworkCluster, NetworkRun
from dmodels.sim.network.flows import no_flows, route


@kernel
def send(start_s, packets, packet_s, path, hops, latency_s, window):
    """When the last packet of each flow (F,) arrives.

    `packets` (F,) counts them, `packet_s` (L,) is what one takes on a link, `path` (F, H) and `hops` (F,) are links.
    """
    flows = start_s.shape[0]
    free, ends = np.zeros(packet_s.shape[0]), np.full(flows, np.nan)
    sent, arrived = np.zeros(flows, np.int64), np.zeros(flows, np.int64)
    events = [(0.0, 0, 0, 0)]  # time, turn (so that ties are served as they came), flow, hop
    events.pop()
    turn = 0
    for f in range(flows):
        for _ in range(min(window, packets[f])):
            heapq.heappush(events, (start_s[f], turn, f, 0))
            sent[f] += 1
            turn += 1
    while len(events) > 0:
        now, _, f, hop = heapq.heappop(events)
        if hop < hops[f]:
            link = path[f, hop]
            free[link] = max(now, free[link]) + packet_s[link]
            heapq.heappush(events, (free[link], turn, f, hop + 1))
            turn += 1
            continue
        arrived[f] += 1
        if arrived[f] == packets[f]:
            ends[f] = now
        if sent[f] < packets[f]:
            sent[f] += 1
            heapq.heappush(events, (now + latency_s[f], turn, f, 0))
            turn += 1
    return ends


def transfers_s(
    cluster: NetworkCluster,
    run: NetworkRun,
    ready_s: np.ndarray,
    seed: int,
    window: int,
    packet_bytes: float = 262144.0,
) -> np.ndarray:
    """(N,) seconds of each transfer of a flow-level run, sent as packets on the same paths from the same moments."""
    fabric, shards = cluster.fabric, cluster.shards
    order = np.argsort(ready_s, kind="stable")
    moved = order[(run.choice[order] >= 0) & (run.payload_bytes[order] > 0)]
    flows = no_flows(len(order) * shards, fabric.link_bytes_per_s)
    numbers = []
    for rank, i in enumerate(order):
        if run.choice[i] < 0 or run.payload_bytes[i] <= 0:
            continue
        ends = cluster.prefill[i % len(cluster.prefill)], cluster.decode[run.choice[i]]
        for shard in range(shards):
            route(flows, rank * shards + shard, fabric, *ends, shard, seed)
            numbers.append(rank * shards + shard)
    each = np.repeat(moved, shards)
    latency = fabric.tier_latency_s[run.tier[each]]
    packets = np.maximum(1, np.rint(run.payload_bytes[each] / shards / packet_bytes)).astype(np.int64)
    with np.errstate(divide="ignore"):
        packet_s = packet_bytes / fabric.link_bytes_per_s
    ends = send(ready_s[each], packets, packet_s, flows.path[numbers], flows.hops[numbers], latency, window)
    found = np.full(len(order), np.nan)
    found[moved] = (ends + latency - ready_s[each]).reshape(-1, shards).max(1)
    return found
