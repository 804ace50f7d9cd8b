"""Flows in progress: which links they cross, how much they have left, and their rates after each change.

Rates are max-min fair. A change (a flow starts or ends, background moves) can only touch flows that share a link, or a
chain of links, with it; only that component is filled again, which is exact because filling decomposes over components.
A link whose flows could not fill it even at the most that their other links allow is slack: it binds nobody and joins
nothing. Without this, wide links (a NIC, the uplink of a rack) would tie the whole fabric into one component.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.core.compiled import NONE, UNCOUNTED, kernel

#: Most links of one path: NIC, port, rack, pod on the way out, and the same on the way in.
HOPS = 8


class Flows(NamedTuple):
    """State of F flows on L links. A flow's links form nodes f * HOPS + p of one doubly linked list per link."""

    left_bytes: np.ndarray  # (F,) at `since_s`
    rate: np.ndarray  # (F,)
    since_s: np.ndarray  # (F,)
    ends_s: np.ndarray  # (F,) if nothing changes
    path: np.ndarray  # (F, HOPS)
    hops: np.ndarray  # (F,)
    following: np.ndarray  # (F * HOPS,)
    previous: np.ndarray
    head: np.ndarray  # (L,)
    crossing: np.ndarray  # (L,) flows on the link
    capacity: np.ndarray  # (L,) what the background leaves
    carried_bytes: np.ndarray  # (L,) moved so far
    active: np.ndarray  # (F,) numbers of flows in progress, the first `size[0]` entries
    place: np.ndarray  # (F,) where a flow stands in `active`
    seen_link: np.ndarray  # (L,) last visit
    seen_flow: np.ndarray  # (F,)
    links: np.ndarray  # (L,) work list
    spare_rate: np.ndarray  # (L,) while filling
    unfrozen: np.ndarray  # (L,) while filling
    most: np.ndarray  # (F,) rate of the flow alone: its narrowest link
    demand: np.ndarray  # (L,) sum of `most` over the flows on the link
    size: np.ndarray  # (3,) flows in progress, visits so far, links in the work list


@kernel
def no_flows(count, capacity):
    """Room for `count` flows, none of them started, on links of `capacity`."""
    n, links = count, capacity.shape[0]
    return Flows(
        np.zeros(n),
        np.zeros(n),
        np.zeros(n),
        np.zeros(n),
        np.zeros((n, HOPS), np.int32),
        np.zeros(n, np.int32),
        np.zeros(n * HOPS, np.int32),
        np.zeros(n * HOPS, np.int32),
        np.full(links, NONE, np.int32),
        np.zeros(links, np.int32),
        capacity.copy(),
        np.zeros(links),
        np.zeros(n, np.int32),
        np.zeros(n, np.int32),
        np.zeros(links, np.int64),
        np.zeros(n, np.int64),
        np.zeros(links, np.int32),
        np.zeros(links),
        np.zeros(links, np.int32),
        np.zeros(n),
        np.zeros(links),
        np.zeros(3, np.int64),
    )


@kernel(**UNCOUNTED)
def slack(s, link):
    """Whether the flows on a link cannot fill it, whatever they get elsewhere."""
    return s.demand[link] <= s.capacity[link]


@kernel(**UNCOUNTED)
def touch(s, link):
    """Put a link on the work list of the next `refill`."""
    if s.seen_link[link] != s.size[1] + 1:
        s.seen_link[link] = s.size[1] + 1
        s.links[s.size[2]] = link
        s.size[2] += 1


@kernel(**UNCOUNTED)
def start(s, f, bytes_, now):
    """Flow f, whose path is set, begins to send. `refill` gives it a rate."""
    s.left_bytes[f], s.rate[f], s.since_s[f], s.ends_s[f] = bytes_, 0.0, now, np.inf
    s.most[f] = np.inf
    for p in range(s.hops[f]):
        s.most[f] = min(s.most[f], s.capacity[s.path[f, p]])
    for p in range(s.hops[f]):
        link, node = s.path[f, p], f * HOPS + p
        s.previous[node], s.following[node] = NONE, s.head[link]
        if s.head[link] >= 0:
            s.previous[s.head[link]] = node
        s.head[link] = node
        s.crossing[link] += 1
        s.demand[link] += s.most[f]
        if s.capacity[link] == s.most[f] or not slack(s, link):
            touch(s, link)
    s.place[f] = s.size[0]
    s.active[s.size[0]] = f
    s.size[0] += 1


@kernel(**UNCOUNTED)
def finish(s, f):
    """Flow f has sent everything: it leaves its links, which are then filled again."""
    for p in range(s.hops[f]):
        link, node = s.path[f, p], f * HOPS + p
        s.carried_bytes[link] += s.left_bytes[f]
        if not slack(s, link):
            touch(s, link)
        before, after = s.previous[node], s.following[node]
        if before >= 0:
            s.following[before] = after
        else:
            s.head[link] = after
        if after >= 0:
            s.previous[after] = before
        s.crossing[link] -= 1
        s.demand[link] = s.demand[link] - s.most[f] if s.crossing[link] > 0 else 0.0
    s.size[0] -= 1
    last = s.active[s.size[0]]
    s.active[s.place[f]], s.place[last] = last, s.place[f]


@kernel(**UNCOUNTED)
def settle(s, f, now):
    """Book what flow f has sent since its rate last changed."""
    moved = min(s.rate[f] * (now - s.since_s[f]), s.left_bytes[f])
    s.left_bytes[f] -= moved
    s.since_s[f] = now
    for p in range(s.hops[f]):
        s.carried_bytes[s.path[f, p]] += moved


@kernel(**UNCOUNTED)
def restate(s):
    """After capacities have moved: what each flow could have alone, and which links that fills."""
    s.demand[:] = 0.0
    for q in range(s.size[0]):
        f = s.active[q]
        s.most[f] = np.inf
        for p in range(s.hops[f]):
            s.most[f] = min(s.most[f], s.capacity[s.path[f, p]])
        for p in range(s.hops[f]):
            s.demand[s.path[f, p]] += s.most[f]
            touch(s, s.path[f, p])


@kernel(**UNCOUNTED)
def refill(s, now):
    """New max-min rates for all flows that share links, directly or through others, with the work list."""
    s.size[1] += 1
    visit = s.size[1]
    links, q = s.size[2], 0
    s.size[2] = 0
    while q < links:
        node = s.head[s.links[q]]
        q += 1
        while node >= 0:
            f = node // HOPS
            if s.seen_flow[f] != visit:
                s.seen_flow[f] = visit
                for p in range(s.hops[f]):
                    link = s.path[f, p]
                    if s.seen_link[link] != visit and (s.capacity[link] == s.most[f] or not slack(s, link)):
                        s.seen_link[link] = visit
                        s.links[links] = link
                        links += 1
            node = s.following[node]
    for q in range(links):
        s.spare_rate[s.links[q]] = s.capacity[s.links[q]]
        s.unfrozen[s.links[q]] = s.crossing[s.links[q]]
    while True:
        share, tight, q = np.inf, NONE, 0
        while q < links:
            link = s.links[q]
            if s.unfrozen[link] == 0:
                links -= 1
                s.links[q] = s.links[links]
                continue
            if s.spare_rate[link] / s.unfrozen[link] < share:
                share, tight = s.spare_rate[link] / s.unfrozen[link], link
            q += 1
        if tight < 0:
            return
        node = s.head[tight]
        while node >= 0:
            f = node // HOPS
            if s.seen_flow[f] == visit:
                s.seen_flow[f] = 0  # frozen
                for p in range(s.hops[f]):
                    link = s.path[f, p]
                    s.spare_rate[link] = max(s.spare_rate[link] - share, 0.0)
                    s.unfrozen[link] -= 1
                if share != s.rate[f]:
                    settle(s, f, now)
                    s.rate[f] = share
                    s.ends_s[f] = now + s.left_bytes[f] / share if share > 0.0 else np.inf
            node = s.following[node]


@kernel(**UNCOUNTED)
def next_end(s):
    """When the next flow ends; inf if none will."""
    least = np.inf
    for q in range(s.size[0]):
        least = min(least, s.ends_s[s.active[q]])
    return least


@kernel(**UNCOUNTED)
def mix(seed, a, b):
    """A number in 0..2^53-1 that depends on (seed, a, b) only: the same ECMP hash under every policy (SplitMix64)."""
    z = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(a) * np.uint64(0xBF58476D1CE4E5B9)
    z += np.uint64(b) * np.uint64(0x94D049BB133111EB)
    for _ in range(2):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return np.int64(z >> np.uint64(11))


@kernel(**UNCOUNTED)
def route(s, f, fabric, source, destination, shard, seed):
    """Set the path of flow f between two instances. Its links of equal standing are drawn by hash (ECMP)."""
    n = 0
    first, parallel = fabric.first, fabric.parallel
    if fabric.server[source] == fabric.server[destination]:
        s.path[f, 0] = first[0] + fabric.server[source]
        s.hops[f] = 1
        return
    if fabric.shared_nic:
        s.path[f, 0], s.path[f, 1] = first[7] + 2 * source, first[7] + 2 * destination + 1
        n = 2
    port = shard % parallel[1]
    s.path[f, n], s.path[f, n + 1] = first[1] + source * parallel[1] + port, first[2] + destination * parallel[1] + port
    n += 2
    if fabric.rack[source] != fabric.rack[destination]:
        up, down = mix(seed, f, 1) % parallel[2], mix(seed, f, 2) % parallel[2]
        spine, landing = mix(seed, f, 3) % parallel[3], mix(seed, f, 4) % parallel[3]
        across = fabric.pod[source] != fabric.pod[destination]
        if fabric.aligned:  # the switch at the top of the path fixes the way down
            landing = spine
            up = spine * parallel[2] // parallel[3] if across else up
            down = up
        s.path[f, n] = first[3] + fabric.rack[source] * parallel[2] + up
        s.path[f, n + 1] = first[4] + fabric.rack[destination] * parallel[2] + down
        n += 2
        if across:
            s.path[f, n] = first[5] + fabric.pod[source] * parallel[3] + spine
            s.path[f, n + 1] = first[6] + fabric.pod[destination] * parallel[3] + landing
            n += 2
    s.hops[f] = n
