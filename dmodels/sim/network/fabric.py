"""Fat-trees as lists of directed links: who is where, which links a flow can take, and what is wrong with a fabric.

Four locality tiers: 0 same server (NVLink), 1 same rack, 2 same pod, 3 across pods. A flow of tier 1 or more leaves
through one port of its instance and enters through one port of the other; tier 2 adds an uplink and a downlink of the
racks, tier 3 also of the pods. Which of several parallel links a flow takes is drawn per flow (ECMP).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.units import gbit_per_s

NVLINK, HOST, RACK, POD = range(4)

#: NVLink, then 50, 25 and 12.5 Gbit/s for one flow within a rack, within a pod, across pods (4:2:1).
NETKV_TIERS = (450e9, gbit_per_s(50), gbit_per_s(25), gbit_per_s(12.5))


class Fabric(NamedTuple):
    """A fabric of I instances and L directed links. Links of one kind and place are contiguous: first index + count."""

    server: np.ndarray  # (I,)
    rack: np.ndarray  # (I,)
    pod: np.ndarray  # (I,)
    link_bytes_per_s: np.ndarray  # (L,)
    link_tier: np.ndarray  # (L,) kind of the link: NVLINK, HOST, RACK, POD
    first: np.ndarray  # (8,) first link: NVLink, host out, host in, rack up, rack down, pod up, pod down, shared NICs
    parallel: np.ndarray  # (4,) links side by side: NVLink 1, ports of an instance, uplinks of a rack, of a pod
    tier_bytes_per_s: np.ndarray  # (4,) what one flow gets on an idle fabric
    tier_latency_s: np.ndarray  # (4,)
    aligned: bool  # True: the spine that a flow goes up through fixes the way down; False: independent draws
    shared_nic: bool  # whether the ports of an instance share one NIC

    @property
    def instances(self) -> int:
        return len(self.server)

    def tier(self, source, destination) -> np.ndarray:
        """Locality tier of pairs of instances."""
        apart = [(x[source] != x[destination]).astype(np.int64) for x in (self.server, self.rack, self.pod)]
        return apart[0] + apart[1] + apart[2]


def fat_tree(
    *,
    pods: int = 2,
    racks_per_pod: int = 2,
    servers_per_rack: int = 2,
    instances_per_server: int = 2,
    tier_bytes_per_s: tuple[float, ...] = NETKV_TIERS,
    tier_latency_s: tuple[float, ...] = (1e-6, 5e-6, 10e-6, 20e-6),
    host_ports: int = 4,
    rack_uplinks: int = 64,
    pod_uplinks: int = 128,
    host_bytes_per_s: float | None = None,
    nic_bytes_per_s: float = np.inf,
    aligned: bool = False,
) -> Fabric:
    """A four-tier tree by the speed of the links at each tier. Defaults: NetKV's 64 GPUs, 16 instances at TP=4.

    `host_bytes_per_s` is the speed of one port of an instance where it is not that of tier 1; `nic_bytes_per_s` bounds
    all ports of an instance together, each way. Oversubscription is fewer or slower uplinks.
    """
    counts = {
        "pods": pods,
        "racks_per_pod": racks_per_pod,
        "servers_per_rack": servers_per_rack,
        "instances_per_server": instances_per_server,
        "host_ports": host_ports,
        "rack_uplinks": rack_uplinks,
        "pod_uplinks": pod_uplinks,
    }
    for name, count in counts.items():
        if count != int(count) or count < 1:
            raise InputError(f"{name}: {count}; accepted: a whole number from 1")
    speeds, latency = (np.asarray(x, np.float64) for x in (tier_bytes_per_s, tier_latency_s))
    port = speeds[1] if host_bytes_per_s is None else host_bytes_per_s
    rates = {"tier_bytes_per_s": speeds, "tier_latency_s": latency, "nic_bytes_per_s": nic_bytes_per_s}
    for name, values in (rates | {"host_bytes_per_s": port}).items():
        if not (np.asarray(values) >= 0).all():
            raise InputError(f"{name}: {values}; accepted: 0 or more")
    racks, servers = pods * racks_per_pod, pods * racks_per_pod * servers_per_rack
    n = servers * instances_per_server
    server = np.arange(n) // instances_per_server
    rack = server // servers_per_rack
    shared = bool(np.isfinite(nic_bytes_per_s))
    sizes = [
        (servers, speeds[0], NVLINK),
        (n * host_ports, port, HOST),
        (n * host_ports, port, HOST),
        (racks * rack_uplinks, speeds[2], RACK),
        (racks * rack_uplinks, speeds[2], RACK),
        (pods * pod_uplinks, speeds[3], POD),
        (pods * pod_uplinks, speeds[3], POD),
        (2 * n if shared else 0, nic_bytes_per_s if shared else 0.0, HOST),
    ]
    length = [count for count, _, _ in sizes]
    narrowest = np.array([speeds[0], port, min(port, speeds[2]), min(port, *speeds[2:])])
    narrowest[1:] = np.minimum(narrowest[1:], nic_bytes_per_s)
    return Fabric(
        server,
        rack,
        rack // racks_per_pod,
        np.repeat([rate for _, rate, _ in sizes], length).astype(np.float64),
        np.repeat([kind for _, _, kind in sizes], length).astype(np.int64),
        np.concatenate([[0], np.cumsum(length)[:-1]]).astype(np.int64),
        np.array([1, host_ports, rack_uplinks, pod_uplinks], np.int64),
        narrowest,
        latency,
        aligned,
        shared,
    )


def fat_tree_of_radix(
    radix: int,
    link_bytes_per_s: float,
    *,
    rack_oversubscription: float = 1.0,
    pod_oversubscription: float = 1.0,
    ports_per_instance: int = 1,
    nvlink_bytes_per_s: float = 450e9,
    tier_latency_s=(1e-6, 5e-6, 10e-6, 20e-6),
) -> Fabric:
    """The k-ary fat-tree of Al-Fares et al.: k pods of k/2 racks of k/2 hosts, all links of one speed.

    Oversubscription takes uplinks away: a rack keeps (k/2)/o of its k/2, a pod (k/2)^2/(o_rack o_pod) of its (k/2)^2,
    at least one. The core switch that a flow goes up to fixes its way down.
    """
    if radix != int(radix) or radix < 2 or radix % 2:
        raise InputError(f"radix: {radix}; accepted: an even whole number from 2")
    for name, ratio in (("rack", rack_oversubscription), ("pod", pod_oversubscription)):
        if not ratio >= 1:
            raise InputError(f"{name}_oversubscription: {ratio}; accepted: 1 or more")
    half = int(radix) // 2
    hosts = max(half // ports_per_instance, 1)
    up = max(int(half / rack_oversubscription), 1)
    core = max(int(half * half / (rack_oversubscription * pod_oversubscription)), 1)
    return fat_tree(
        pods=int(radix),
        racks_per_pod=half,
        servers_per_rack=hosts,
        instances_per_server=1,
        tier_bytes_per_s=(nvlink_bytes_per_s, *(3 * [link_bytes_per_s])),
        tier_latency_s=tier_latency_s,
        host_ports=ports_per_instance,
        rack_uplinks=up,
        pod_uplinks=core,
        aligned=True,
    )


def fabric_problems(fabric: Fabric) -> list[str]:
    """What keeps instances of a fabric from talking to each other, one sentence per fault; empty if nothing does."""
    found = []
    names = ("NVLink", "host ports", "rack uplinks", "pod uplinks")
    wanted = [False, fabric.instances > 1, len(set(fabric.rack)) > 1, len(set(fabric.pod)) > 1]
    for kind in range(4):
        links = fabric.link_bytes_per_s[fabric.link_tier == kind]
        dead = int((~(links > 0)).sum())
        if wanted[kind] and dead == len(links):
            found.append(f"all {len(links)} {names[kind]} have no bandwidth; tiers from {kind} up are disconnected")
        elif dead:
            found.append(f"{dead} of {len(links)} {names[kind]} have no bandwidth; flows hashed onto them never end")
    return found
