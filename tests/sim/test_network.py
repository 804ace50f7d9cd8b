"""The flow simulator against others: an LP for fairness, a loop of iterations, the LRU of `models.cache`."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels.control.netkv import POLICIES
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.routing import RoutingPolicy
from dmodels.models.cache import replay, usable_hits
from dmodels.models.transfer import shared_transfer_s
from dmodels.sim.network import (
    NETKV_TIERS,
    Arrivals,
    NetworkCluster,
    fabric_problems,
    fat_tree,
    fat_tree_of_radix,
    max_min_rates,
    netkv_cluster,
    simulate,
    simulate_many,
    summary,
)
from dmodels.sim.network.flows import HOPS, finish, mix, next_end, no_flows, refill, route, start

BYTES = 327680.0


def lexicographic_lp(capacity, paths):
    """Max-min by a chain of LPs: raise the least rate, fix the flows that cannot exceed it, repeat."""
    import cvxpy as cp

    flows = len(paths)
    uses = np.array([[k in path for path in paths] for k in range(len(capacity))], float)
    fixed = {}
    while len(fixed) < flows:
        rate, level = cp.Variable(flows, nonneg=True), cp.Variable()
        free = [f for f in range(flows) if f not in fixed]
        rules = [uses @ rate <= capacity, rate[free] >= level]
        rules += [rate[f] == value for f, value in fixed.items()]
        cp.Problem(cp.Maximize(level), rules).solve(solver=cp.HIGHS)
        least = float(level.value)
        for f in free:
            others = [rate[g] >= least - 1e-9 for g in free]
            best = cp.Problem(cp.Maximize(rate[f]), [*rules[:1], *rules[2:], *others]).solve(solver=cp.HIGHS)
            if best < least + 1e-6:
                fixed[f] = least
    return np.array([fixed[f] for f in range(flows)])


@settings(max_examples=8)
@given(seed=st.integers(0, 1000))
def test_water_filling_is_the_lexicographic_lp(seed):
    rng = np.random.default_rng(seed)
    links, flows = rng.integers(2, 6), rng.integers(2, 6)
    capacity = rng.uniform(0.5, 4.0, links).round(2)
    paths = [rng.choice(links, rng.integers(1, links), replace=False) for _ in range(flows)]
    table = np.full((flows, links), -1)
    for f, path in enumerate(paths):
        table[f, : len(path)] = path
    np.testing.assert_allclose(max_min_rates(capacity, table), lexicographic_lp(capacity, paths), atol=1e-6)


def test_a_link_that_is_down_stops_its_flows_and_no_others():
    assert max_min_rates([0.0, 2.0], [[0, -1], [0, 1], [1, -1]]).tolist() == [0.0, 0.0, 2.0]
    for rate in (-1.0, np.nan):
        with pytest.raises(InputError, match="capacity"):
            max_min_rates([rate, 2.0], [[0, 1]])


@given(seed=st.integers(0, 10_000))
def test_every_flow_has_a_full_link_on_which_none_is_faster(seed):
    """The certificate of max-min fairness, on a batch of random problems; no link carries more than it can."""
    rng = np.random.default_rng(seed)
    capacity, path = rng.uniform(0, 3, (8, 12)), rng.integers(-1, 12, (8, 20, 4))
    path[:, :, 0] = rng.integers(0, 12, (8, 20))
    rate = max_min_rates(capacity, path)
    for b in range(8):
        uses = np.array([[(path[b, f] == k).any() for k in range(12)] for f in range(20)])
        # a link that a flow names twice counts twice: such paths are not simple, drop them from the check
        simple = all(len(set(p[p >= 0])) == (p >= 0).sum() for p in path[b])
        load = (uses * rate[b][:, None]).sum(0)
        if not simple:
            assert (load <= capacity[b] + 1e-9).all()
            continue
        full = load >= capacity[b] - 1e-9
        fastest = np.where(uses, rate[b][:, None], 0).max(0)
        bottleneck = uses & full & (rate[b][:, None] >= fastest - 1e-9)
        assert (load <= capacity[b] + 1e-9).all() and bottleneck.any(1).all()


@given(seed=st.integers(0, 10_000))
def test_refilling_one_component_equals_filling_everything(seed):
    """Flows come and go; after each change the incremental rates are those of a fill from scratch, and bytes add up."""
    rng = np.random.default_rng(seed)
    capacity = rng.uniform(1, 5, 30)
    s, sent, path, now = no_flows(40, capacity), np.zeros(40), {}, 0.0
    size = rng.uniform(1, 10, 40)
    for f in range(40):
        while (end := next_end(s)) < now + 0.3:
            done = [g for g in path if s.ends_s[g] <= end + 1e-12]
            for g in done:
                finish(s, g)
                del path[g]
            refill(s, end)
        now += 0.3
        hops = rng.integers(1, 4)
        path[f] = rng.choice(30, hops, replace=False)
        s.path[f, :hops], s.hops[f] = path[f], hops
        start(s, f, size[f], now)
        refill(s, now)
        table = np.full((len(path), HOPS), -1)
        for row, links in enumerate(path.values()):
            table[row, : len(links)] = links
        np.testing.assert_allclose(s.rate[list(path)], max_min_rates(capacity, table), rtol=1e-12)
        sent[f] = hops
    while np.isfinite(end := next_end(s)):
        for g in [g for g in path if s.ends_s[g] <= end + 1e-12]:
            finish(s, g)
            del path[g]
        refill(s, end)
    assert not path
    assert s.carried_bytes.sum() == pytest.approx((sent * size).sum(), rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_flows_that_start_together_are_filled_together(seed):
    """All before the first rates are given, some on links that others fill first."""
    rng = np.random.default_rng(seed)
    capacity, table = rng.uniform(1, 5, 12), np.full((25, HOPS), -1)
    s = no_flows(25, capacity)
    for f in range(25):
        s.hops[f] = hops = rng.integers(1, 4)
        s.path[f, :hops] = table[f, :hops] = rng.choice(12, hops, replace=False)
        start(s, f, 1.0, 0.0)
    refill(s, 0.0)
    np.testing.assert_allclose(s.rate, max_min_rates(capacity, table), rtol=1e-12)


def test_a_flow_draws_each_of_its_links_evenly_and_for_itself():
    """4,000 flows over 4 uplinks of racks and 8 of pods: no count, of a link or of a pair, strays by 5 standard errors.
    Aligned, the way down follows from the way up. A seed draws what it has always drawn."""
    n = 4000
    for aligned in (False, True):
        tree = fat_tree(rack_uplinks=4, pod_uplinks=8, nic_bytes_per_s=1e9, aligned=aligned)
        s = no_flows(n, tree.link_bytes_per_s)
        for f in range(n):
            route(s, f, tree, 2, 13, f % 7, 3)
        assert (s.hops == HOPS).all()
        first = [tree.first[7] + 4, tree.first[7] + 27, tree.first[1] + 8, tree.first[2] + 52]
        first += [tree.first[3], tree.first[4] + 3 * 4, tree.first[5], tree.first[6] + 8]
        nic, nic_in, port, port_in, up, down, spine, landing = (s.path - np.array(first)).T
        assert not nic.any() and not nic_in.any()
        np.testing.assert_array_equal(port, np.arange(n) % 7 % 4)
        np.testing.assert_array_equal(port_in, port)
        if aligned:
            np.testing.assert_array_equal(landing, spine)
            np.testing.assert_array_equal(up, spine // 2)
            np.testing.assert_array_equal(down, up)
            continue
        ways = {"up": (up, 4), "down": (down, 4), "spine": (spine, 8), "landing": (landing, 8)}
        for a, (one, many) in ways.items():
            for b, (other, more) in ways.items():
                seen = np.bincount(one * more + other, minlength=many * more) if a != b else np.bincount(one)
                expected = n / len(seen)
                assert np.abs(seen - expected).max() < 5 * np.sqrt(expected), (a, b)
    drawn = [mix(seed, a, b) for seed, a, b in ((0, 0, 1), (1, 2, 3), (7, 1000, 4))]
    assert drawn == [7198643361644696, 8942521874858688, 1896004527271453]


def test_what_happens_is_counted_up_to_the_end_of_time_and_it_included():
    """A request is decided, lands, joins and ends; its background moves on only while somebody waits for it."""
    cluster = one_link_cluster()
    steps = np.zeros((5, 4))
    alone = simulate(cluster, requests([0.0], pool=4), RoutingPolicy.LOAD, background=steps, background_step_s=500.0)
    assert alone.events == 4
    asked = requests([0.0, 1.0, 2.0], 10.0, pool=4)
    assert (simulate(cluster, asked, RoutingPolicy.LOAD, until_s=1.0).choice >= 0).tolist() == [True, True, False]
    nobody = simulate(cluster, requests([], pool=4), RoutingPolicy.LOAD, background=steps)
    assert (nobody.events, nobody.stuck_bytes, len(nobody.choice)) == (0, 0.0, 0)


def requests(at, tokens=8192.0, output=10.0, prefill=0.0, pool=12, **more):
    at = np.asarray(at, float)
    full = lambda x: np.broadcast_to(np.asarray(x, float), at.shape).copy()
    hit = None if "block_ids" in more else np.zeros((len(at), pool))
    return Arrivals(at, full(prefill), full(tokens), full(output), **({"hit_frac": hit} | more))


def test_a_single_flow_has_its_tiers_bandwidth():
    cluster = netkv_cluster()._replace(shards=1)
    for decode, tier in ((4, 2), (8, 3)):
        run = simulate(cluster._replace(decode=np.array([decode])), requests([0.0], pool=1), RoutingPolicy.ROUND_ROBIN)
        rate = 8192 * BYTES / (run.transfer_s[0] - cluster.fabric.tier_latency_s[tier])
        assert run.tier[0] == tier
        assert rate == pytest.approx(cluster.fabric.tier_bytes_per_s[tier], rel=1e-9)
    same = NetworkCluster(cluster.fabric, np.array([0]), np.array([1]), shards=1)  # the other instance of the server
    rate = 8192 * BYTES / (simulate(same, requests([0.0], pool=1), RoutingPolicy.LOAD).transfer_s[0] - 1e-6)
    assert rate == pytest.approx(450e9, rel=1e-9)


def one_link_cluster(**options):
    """Everything between two pods crosses one uplink."""
    fabric = fat_tree(
        racks_per_pod=1,
        servers_per_rack=4,
        instances_per_server=1,
        pod_uplinks=1,
        rack_uplinks=1,
        tier_bytes_per_s=(1e12, 1e12, 1e12, 1e9),
        **options,
    )
    return NetworkCluster(fabric, np.arange(4), np.arange(4, 8), shards=1)


def test_n_flows_on_a_link_get_one_nth_each():
    for n in (2, 3, 8):
        run = simulate(one_link_cluster(), requests(np.zeros(n), pool=4), RoutingPolicy.ROUND_ROBIN)
        np.testing.assert_allclose(run.transfer_s - 20e-6, n * 8192 * BYTES / 1e9, rtol=1e-9)


@given(sizes=st.lists(st.floats(100, 1e5), min_size=2, max_size=7))
def test_reallocation_is_exact_processor_sharing(sizes):
    run = simulate(
        one_link_cluster(), requests(np.zeros(len(sizes)), np.array(sizes), pool=4), RoutingPolicy.ROUND_ROBIN
    )
    sizes = np.array(sizes) * BYTES
    exact = [float(shared_transfer_s(s, np.delete(sizes, i), 1e9)) for i, s in enumerate(sizes)]
    np.testing.assert_allclose(run.transfer_s - 20e-6, exact, rtol=1e-9)


def busy(seed, n=200, rate=8.0, pool=12, **more):
    rng = np.random.default_rng(seed)
    tokens = np.round(rng.lognormal(9.2, 1.0, n).clip(16, 131072))
    at = np.cumsum(rng.exponential(1 / rate, n))
    hit = np.where(rng.random((n, pool)) < 0.2, rng.uniform(0, 1, (n, pool)), 0.0)
    return requests(at, tokens, np.round(rng.exponential(300, n)) + 1, 0.05 + 68e-6 * tokens, hit_frac=hit, **more)


@pytest.fixture(scope="module")
def busy_runs():
    cluster = netkv_cluster()
    background = np.random.default_rng(0).uniform(0, 0.5, (40, 4))
    return cluster, simulate_many(
        {"cluster": cluster, "arrivals": busy(seed), "policy": policy, "seed": seed, "background": background}
        for seed in range(3)
        for policy in POLICIES
    )


def test_bytes_are_conserved_and_no_time_is_negative(busy_runs):
    cluster, runs = busy_runs
    hops = np.array([1, 2, 4, 6])
    for run in runs:
        done = run.choice >= 0
        assert done.all() and (run.flags == 0).all()
        assert run.carried_bytes.sum() == pytest.approx((run.payload_bytes * hops[run.tier]).sum(), rel=1e-9)
        assert run.stuck_bytes == 0
        assert (run.transfer_s > 0).all()
        assert (run.ttft_s >= run.transfer_s).all() and (run.e2e_s >= run.ttft_s - 1e-9).all()
        ends = cluster.prefill[np.arange(len(run.tier)) % len(cluster.prefill)], cluster.decode[run.choice]
        apart = sum(np.not_equal(*(end // together for end in ends)) for together in (2, 4, 8))  # a server, rack, pod
        np.testing.assert_array_equal(run.tier, apart)
        best = run.payload_bytes / (4 * cluster.fabric.tier_bytes_per_s[run.tier])
        assert (run.transfer_s >= best).all()


def test_decoding_matches_a_loop_over_iterations(busy_runs):
    """Landings and choices as given, count every iteration of every instance one by one."""
    cluster, runs = busy_runs
    curve = cluster.curve
    for run, seed in ((runs[0], 0), (runs[6], 0), (runs[13], 1)):
        arrivals = busy(seed)
        landed = run.transfer_s + arrivals.arrival_s + arrivals.prefill_s
        for j in range(12):
            mine = [r for r in np.argsort(landed, kind="stable") if run.choice[r] == j]
            active, now = {}, 0.0
            while mine or active:
                if not active:
                    now = max(now, landed[mine[0]])
                fresh = []
                while mine and landed[mine[0]] <= now + 1e-9 and len(active) < curve.max_batch:
                    fresh.append(mine[0])
                    active[mine.pop(0)] = 0
                now += curve.base_s + curve.per_sequence_s * len(active)
                for r in fresh:
                    assert run.ttft_s[r] == pytest.approx(now - arrivals.arrival_s[r], abs=1e-7)
                for r in list(active):
                    active[r] += 1
                    if active[r] >= arrivals.output_tokens[r]:
                        assert run.e2e_s[r] == pytest.approx(now - arrivals.arrival_s[r], abs=1e-7)
                        del active[r]


def test_prefix_caches_are_least_recently_used():
    """One instance, one request at a time: hits equal those of `models.cache`, block for block."""
    rng = np.random.default_rng(3)
    n, room = 300, 12
    chains = [list(range(100 * c, 100 * c + rng.integers(2, 7))) for c in range(12)]
    lists = [chains[rng.zipf(1.5) % 12] for _ in range(n)]
    starts = np.concatenate([[0], np.cumsum([len(b) for b in lists])])
    tokens = np.array([512.0 * len(b) for b in lists])
    cluster = NetworkCluster(
        fat_tree(), np.array([0]), np.array([4]), kv_memory_bytes=BYTES * (512 * room + 1), reserve_tokens=0.0
    )
    arrivals = requests(100.0 * np.arange(n), tokens, 1.0, block_ids=np.concatenate(lists), block_starts=starts)
    run = simulate(cluster, arrivals, RoutingPolicy.CACHE)
    hits = usable_hits(replay(np.concatenate(lists), starts, room).hit, starts)
    expected = np.add.reduceat(hits, starts[:-1], dtype=float) / np.diff(starts)
    np.testing.assert_allclose(run.hit_frac, expected)
    assert 0.1 < run.hit_frac.mean() < 0.95


def test_memory_is_never_overbooked():
    """Bytes held between choice and end, per instance, from the outside."""
    cluster = netkv_cluster()._replace(kv_memory_bytes=40e9)
    arrivals = busy(5, 300, 20.0)
    for policy in POLICIES:
        run = simulate(cluster, arrivals, policy)
        tokens = arrivals.input_tokens * (1 - run.hit_frac) + arrivals.output_tokens
        ready = arrivals.arrival_s + arrivals.prefill_s
        for j in range(12):
            mine = np.flatnonzero(run.choice == j)
            times = np.concatenate([ready[mine], arrivals.arrival_s[mine] + run.e2e_s[mine]])
            change = np.concatenate([tokens[mine], -tokens[mine]]) * BYTES
            held = np.cumsum(change[np.lexsort((change, times))])
            assert held.max(initial=0) <= 40e9
        rejected = run.choice < 0
        assert (run.tier[rejected] == -1).all() and (run.hit_frac[rejected] == 0).all()
        assert rejected.any() and (run.flags[rejected] == Flag.NO_FIT).all() and np.isnan(run.ttft_s[rejected]).all()


def test_background_takes_its_share_and_moves_in_steps():
    steps = np.array([[0.0, 0, 0, 0.0], [0, 0, 0, 0.5]])
    size = 8192 * BYTES / 1e9  # 2.68 s alone
    half = simulate(one_link_cluster(), requests([0.0], pool=4), RoutingPolicy.LOAD, background=steps[1])
    assert half.transfer_s[0] - 20e-6 == pytest.approx(2 * size, rel=1e-9)
    moved = simulate(
        one_link_cluster(), requests([0.0], pool=4), RoutingPolicy.LOAD, background=steps, background_step_s=2.0
    )
    assert moved.transfer_s[0] - 20e-6 == pytest.approx(2.0 + 2 * (size - 2.0), rel=1e-9)
    links = np.zeros((1, len(one_link_cluster().fabric.link_bytes_per_s)))
    links[0, one_link_cluster().fabric.first[5]] = 0.75  # one uplink of one pod
    slow = simulate(one_link_cluster(), requests([0.0], pool=4), RoutingPolicy.LOAD, background=links)
    assert slow.transfer_s[0] - 20e-6 == pytest.approx(4 * size, rel=1e-9)


def test_a_stale_oracle_is_read_at_its_last_refresh():
    """Tier 2 is full at first and idle from 1 s on; refreshed every 5 s, the scheduler believes it full until 5 s."""
    cluster = netkv_cluster()
    background = np.array([[0, 0, 0.98, 0.0], [0, 0, 0.0, 0.0]])
    late = lambda at, refresh: simulate(
        cluster, requests([at]), RoutingPolicy.NETKV_FULL, background=background, refresh_s=refresh
    ).tier[0]
    assert [late(0.5, 1.0), late(4.0, 1.0), late(4.0, 5.0), late(5.5, 5.0)] == [3, 2, 3, 2]
    days = background[[0, 0, 1]]  # it is idle on the third day alone
    long = {"background": days, "background_step_s": 86_400.0, "refresh_s": 3600.0}
    run = simulate(cluster, requests([1e5, 2e5]), RoutingPolicy.NETKV_FULL, **long)
    assert run.tier.tolist() == [3, 2]


def test_a_radix_k_tree_has_its_known_counts_and_full_bisection():
    tree = fat_tree_of_radix(8, 1e9)
    assert tree.instances == 8**3 // 4
    assert [int((tree.link_tier == kind).sum()) for kind in (1, 2, 3)] == [256, 256, 256]
    thin = fat_tree_of_radix(8, 1e9, rack_oversubscription=2, pod_oversubscription=4)
    assert thin.parallel.tolist() == [1, 1, 2, 2]
    with pytest.raises(InputError, match="radix: 7"):
        fat_tree_of_radix(7, 1e9)


def test_aligned_paths_come_down_through_the_spine_they_went_up():
    tree = fat_tree_of_radix(4, 1e9)._replace(tier_latency_s=np.zeros(4))
    cluster = NetworkCluster(tree, np.array([0]), np.array([12]), shards=1)
    run = simulate(cluster, requests([0.0], pool=1), RoutingPolicy.LOAD, seed=5)
    used = np.flatnonzero(run.carried_bytes)
    first = tree.first
    assert len(used) == 6 and run.tier[0] == 3
    spine_up = [k - first[5] - tree.pod[0] * 4 for k in used if first[5] <= k < first[6]]
    spine_down = [k - first[6] - tree.pod[12] * 4 for k in used if first[6] <= k < first[7]]
    assert spine_up == spine_down


def test_bad_fabrics_and_requests_are_flags_and_sentences():
    dead = NetworkCluster(fat_tree(tier_bytes_per_s=(450e9, 6e9, 3e9, 0.0)), np.arange(4), np.arange(8, 16))
    assert "disconnected" in fabric_problems(dead.fabric)[0]
    run = simulate(dead, requests([0.0, 1.0], pool=8), RoutingPolicy.ROUND_ROBIN, until_s=100.0)
    assert (run.flags == Flag.INFEASIBLE).all() and run.stuck_bytes == pytest.approx(2 * 8192 * BYTES)
    assert summary(run).served_frac == summary(run).slo_frac == 0.0 and not run.carried_bytes.any()
    ever = simulate(dead, requests([0.0, 1.0], pool=8, hit_frac=[[0.0] * 8, [1.0] * 8]), RoutingPolicy.ROUND_ROBIN)
    assert ever.stuck_bytes == 8192 * BYTES and ever.flags.tolist() == [Flag.INFEASIBLE, 0]  # all there: nothing moves
    cut = simulate(dead, requests([0.0], pool=8, hit_frac=[[1.0] * 8]), RoutingPolicy.ROUND_ROBIN, until_s=0.01)
    assert cut.flags.tolist() == [Flag.OVERLOAD]  # it decodes: no fault of the fabric's
    netkv = simulate(dead, requests([0.0], pool=8), RoutingPolicy.NETKV_FULL)
    assert netkv.choice[0] == -1 and netkv.flags[0] == Flag.INFEASIBLE  # it does not start what cannot end
    full = simulate(one_link_cluster(), requests([0.0], pool=4), RoutingPolicy.LOAD, background=1.0, until_s=9.0)
    assert full.stuck_bytes > 0 and np.isnan(full.ttft_s[0])
    huge = simulate(netkv_cluster(), requests([0.0], 1e7), RoutingPolicy.LOAD)
    assert huge.flags[0] & Flag.NO_FIT and "the largest request needs" in huge.problems[0]
    snug = netkv_cluster()._replace(kv_memory_bytes=(8192 + 10) * BYTES, reserve_tokens=0.0)
    run = simulate(snug, requests([0.0]), RoutingPolicy.LOAD)
    assert not run.flags.any() and run.problems == ()  # a request that fills an instance fits it
    with pytest.raises(InputError, match="the pool is empty"):
        simulate(netkv_cluster()._replace(decode=np.zeros(0, int)), requests([0.0], pool=0), RoutingPolicy.LOAD)
    with pytest.raises(InputError, match="both pools"):
        simulate(netkv_cluster()._replace(decode=np.arange(3, 15)), requests([0.0]), RoutingPolicy.LOAD)
    with pytest.raises(InputError, match=r"background: 1\.2"):
        simulate(netkv_cluster(), requests([0.0]), RoutingPolicy.LOAD, background=1.2)
    with pytest.raises(InputError, match="input_tokens: nan"):
        simulate(netkv_cluster(), requests([0.0], np.nan), RoutingPolicy.LOAD)


def test_serial_prefill_queues_and_parallel_prefill_does_not():
    arrivals = requests(np.zeros(8), prefill=1.0)  # 4 prefill instances, two requests each
    serial = simulate(netkv_cluster(), arrivals, RoutingPolicy.LOAD, serial_prefill=True)
    assert (np.sort(np.floor(serial.ttft_s)) == [1, 1, 1, 1, 2, 2, 2, 2]).all()
    assert (np.floor(simulate(netkv_cluster(), arrivals, RoutingPolicy.LOAD).ttft_s) == 1).all()


def test_one_seed_hashes_alike_under_all_policies_and_seeds_differ():
    args = (netkv_cluster(), busy(1))
    same = [simulate(*args, RoutingPolicy.ROUND_ROBIN, seed=2).transfer_s for _ in range(2)]
    np.testing.assert_array_equal(*same)
    assert (simulate(*args, RoutingPolicy.ROUND_ROBIN, seed=3).transfer_s != same[0]).any()


def test_the_tiers_of_netkv():
    """Between servers 50, 25 and 12.5 Gbit/s a flow, 4:2:1, in bytes."""
    assert NETKV_TIERS == (450e9, 6.25e9, 3.125e9, 1.5625e9)


def test_every_byte_passes_each_stage_of_its_way():
    """What leaves or reaches an instance, a rack or a pod has gone over links of its own, and over no others."""
    cluster, rng = netkv_cluster(pods=4), np.random.default_rng(5)
    n, fabric = 200, cluster.fabric
    asked = Arrivals(
        np.sort(rng.uniform(0, 20, n)), rng.uniform(0.1, 0.5, n), rng.integers(500, 9000, n) * 1.0, np.full(n, 9.0)
    )
    run = simulate(cluster, asked, RoutingPolicy.ROUND_ROBIN, seed=1)
    source = np.asarray(cluster.prefill)[np.arange(n) % len(cluster.prefill)]
    target = np.asarray(cluster.decode)[run.choice]
    stages = [
        (np.arange(fabric.instances), fabric.server, 1),
        (fabric.rack, fabric.rack, 3),
        (fabric.pod, fabric.pod, 5),
    ]
    for (place, level, first), parallel in zip(stages, fabric.parallel[1:], strict=True):
        away = level[source] != level[target]
        for way, end in ((first, source), (first + 1, target)):
            sent = np.bincount(place[end][away], run.payload_bytes[away], minlength=place.max() + 1)
            links = fabric.first[way] + np.arange(len(sent) * parallel).reshape(len(sent), -1)
            np.testing.assert_allclose(run.carried_bytes[links].sum(1), sent, rtol=1e-9, atol=1.0)
            assert sent.any()
