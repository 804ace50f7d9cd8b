"""Fat-trees put together link by link, and what the slowest link of each way lets through."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.sim.network import NetworkCluster, fabric_problems, fat_tree, fat_tree_of_radix, netkv_cluster
from dmodels.sim.network.simulation import advertised_bytes_per_s


def drawn(rng):
    """(arguments, their counts by name) of a small tree; each kind of link has a speed of its own."""
    low = lambda high: int(rng.integers(1, high))
    counts = {"pods": low(4), "racks_per_pod": low(4), "servers_per_rack": low(4), "instances_per_server": low(3)}
    counts |= {"host_ports": low(5), "rack_uplinks": low(5), "pod_uplinks": low(6)}
    speeds = {"tier_bytes_per_s": tuple(rng.uniform(1, 9, 4)), "host_bytes_per_s": rng.choice([None, 2.5, 7.0])}
    return counts, speeds | {"nic_bytes_per_s": float(rng.choice([np.inf, 1.5, 6.0]))}


def test_a_tree_is_its_parts_counted_out():
    for seed in range(12):
        rng = np.random.default_rng(seed)
        counts, speeds = drawn(rng)
        tree = fat_tree(**counts, **speeds)
        places, servers, racks = [], 0, 0
        for pod in range(counts["pods"]):
            for _ in range(counts["racks_per_pod"]):
                for _ in range(counts["servers_per_rack"]):
                    places += [(servers, racks, pod)] * counts["instances_per_server"]
                    servers += 1
                racks += 1
        assert list(zip(tree.server, tree.rack, tree.pod, strict=True)) == places and tree.instances == len(places)
        nvlink, port, rack_s, pod_s = speeds["tier_bytes_per_s"]
        port, nic = speeds["host_bytes_per_s"] or port, speeds["nic_bytes_per_s"]
        ways = [[nvlink] * servers]
        for each, number, speed in (
            (len(places), counts["host_ports"], port),
            (racks, counts["rack_uplinks"], rack_s),
            (counts["pods"], counts["pod_uplinks"], pod_s),
        ):
            ways += [[speed] * (each * number)] * 2  # out and in, or up and down
        ways.append([nic] * (2 * len(places) if nic < np.inf else 0))
        assert tree.link_bytes_per_s.tolist() == list(chain.from_iterable(ways))
        assert tree.link_tier.tolist() == [
            k for k, way in zip((0, 1, 1, 2, 2, 3, 3, 1), ways, strict=True) for _ in way
        ]
        assert tree.first.tolist() == [sum(map(len, ways[:k])) for k in range(8)]
        assert tree.parallel.tolist() == [1, counts["host_ports"], counts["rack_uplinks"], counts["pod_uplinks"]]
        assert tree.shared_nic == (nic < np.inf)
        way = [nvlink, min(port, nic), min(port, nic, rack_s), min(port, nic, rack_s, pod_s)]
        assert tree.tier_bytes_per_s.tolist() == way
        for a in range(len(places)):
            for b in range(len(places)):
                shared = next((k for k in range(3) if places[a][k] == places[b][k]), 3)
                assert tree.tier(a, b) == shared
        for shards in (1, 3, 8):  # parallel flows of one transfer leave by as many ports as there are, through one NIC
            told = advertised_bytes_per_s(NetworkCluster(tree, np.array([0]), np.array([0]), shards=shards))
            leave = min(port * min(shards, counts["host_ports"]), nic)
            assert told.tolist() == pytest.approx([nvlink, *(min(shards * flow, leave) for flow in way[1:])])


def test_trees_of_switches_with_so_many_ports():
    """k pods of k/2 racks; oversubscription takes uplinks away; several ports an instance leave fewer of them."""
    tree = fat_tree_of_radix(8, 3.0, ports_per_instance=2, nvlink_bytes_per_s=9.0, tier_latency_s=(1.0, 2.0, 3.0, 4.0))
    assert (tree.instances, tree.rack.max(), tree.pod.max()) == (8 * 4 * 2, 31, 7) and tree.aligned
    assert tree.parallel.tolist() == [1, 2, 4, 16] and tree.tier_latency_s.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert tree.tier_bytes_per_s.tolist() == [9.0, 3.0, 3.0, 3.0] and not tree.shared_nic
    thin = fat_tree_of_radix(8, 3.0, rack_oversubscription=1.5, pod_oversubscription=3.0, ports_per_instance=9)
    assert thin.parallel.tolist() == [1, 9, 2, 3] and thin.instances == 32
    assert fat_tree_of_radix(4, 1.0, rack_oversubscription=9.0).parallel.tolist() == [1, 1, 1, 1]
    assert fat_tree_of_radix(2, 1.0).instances == 2
    for wrong in (
        {"radix": 0},
        {"radix": 5},
        {"radix": 4.5},
        {"rack_oversubscription": 0.9},
        {"pod_oversubscription": 0.9},
    ):
        with pytest.raises(InputError, match=next(iter(wrong))):
            fat_tree_of_radix(**({"radix": 4, "link_bytes_per_s": 1.0} | wrong))


def test_the_papers_clusters():
    """64 GPUs: 4 instances prefill and 12 decode; 1,024 in 32 pods; prefill in the first rack of every second pod."""
    for pods in (2, 32):
        cluster = netkv_cluster(pods)
        assert (len(cluster.prefill), len(cluster.decode)) == (2 * pods, 6 * pods)
        rack, pod = cluster.fabric.rack, cluster.fabric.pod
        prefill = [i for i in range(8 * pods) if pod[i] % 2 == 0 and rack[i] == 2 * pod[i]]
        assert cluster.prefill.tolist() == prefill
        assert cluster.decode.tolist() == [i for i in range(8 * pods) if i not in prefill]
    assert netkv_cluster().fabric.link_bytes_per_s[netkv_cluster().fabric.first[1]] == 50e9  # 400 Gbit/s
    assert netkv_cluster(host_bytes_per_s=2e9, racks_per_pod=3).fabric.tier_bytes_per_s[1] == 2e9


@pytest.mark.parametrize("kind, name", [*enumerate(("NVLink", "host ports", "rack uplinks", "pod uplinks"))])
def test_what_is_dead_is_said(kind, name):
    tree = fat_tree()
    assert fabric_problems(tree) == []
    mine = np.flatnonzero(tree.link_tier == kind)
    for dead in (mine[:2], mine):
        speeds = tree.link_bytes_per_s.copy()
        speeds[dead] = 0.0
        (said,) = fabric_problems(tree._replace(link_bytes_per_s=speeds))
        if len(dead) == len(mine) and kind:
            assert said == f"all {len(mine)} {name} have no bandwidth; tiers from {kind} up are disconnected"
        else:
            assert said == f"{len(dead)} of {len(mine)} {name} have no bandwidth; flows hashed onto them never end"
    one = {"pods": 1, "racks_per_pod": 1, "servers_per_rack": 1, "instances_per_server": 1}
    alone = fat_tree(**one)
    (said,) = fabric_problems(alone._replace(link_bytes_per_s=np.where(alone.link_tier == kind, 0.0, 1.0)))
    assert "never end" in said  # nobody is there to be disconnected from
    pair = fat_tree(**one | {list(one)[3 - max(kind, 1)]: 2})  # of which this is all that lies between
    (said,) = fabric_problems(pair._replace(link_bytes_per_s=np.where(pair.link_tier == kind, 0.0, 1.0)))
    assert ("disconnected" in said) == (kind > 0)


@pytest.mark.parametrize(
    "wrong",
    [
        *({name: 0} for name in ("pods", "racks_per_pod", "host_ports", "rack_uplinks", "pod_uplinks")),
        {"servers_per_rack": 1.5},
        {"instances_per_server": -1},
        {"tier_bytes_per_s": (1.0, 1.0, -1.0, 1.0)},
        {"tier_latency_s": (0.0, 0.0, 0.0, np.nan)},
        {"nic_bytes_per_s": -1.0},
        {"host_bytes_per_s": np.nan},
    ],
)
def test_trees_that_are_none(wrong):
    with pytest.raises(InputError, match=f"{next(iter(wrong))}: .*; accepted"):
        fat_tree(**wrong)
