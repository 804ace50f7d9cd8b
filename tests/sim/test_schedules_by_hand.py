"""A few requests through each simulator, every time and count worked out by hand; what is left out of calls."""

from __future__ import annotations

from inspect import signature

import jax
import numpy as np
import pytest

from dmodels import Workload
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.routing import RoutingPolicy
from dmodels.models.latency import NETKV_CURVE, BatchingCurve, StepLaw
from dmodels.models.traffic import Trace
from dmodels.sim import batching, engines, estimate, fleet, network, recordings, requests, study
from dmodels.sim.cluster import Control, Flow, Hybrid, Signal, Stages, Workers, disaggregated, measure
from dmodels.sim.cluster import simulate as simulate_cluster
from dmodels.sim.fleet import Change, Event, Pool, Prefixes, closed_loop
from dmodels.sim.network.workload import TRACE_TICK_S
from dmodels.sim.replay import replay_trace
from dmodels.sim.requests import Prefill, Served

GB, KEY = 1e9, jax.random.key(5)
STILL = Control(flow=Flow.NONE, theta_frag=0.0)
BY_TOKENS = batching.TokenLaw.tabulated(lambda n, tokens: 8e-3 + 1e-3 * n + 1e-5 * tokens, 3, 3 * 512.0, 2)


def a_network():
    """Two pods of a rack of two servers of two instances; a gigabyte for 1,000 tokens, and memory for 5,000."""
    fabric = network.fat_tree(
        **{"racks_per_pod": 1, "host_ports": 1, "rack_uplinks": 1, "pod_uplinks": 1},
        tier_bytes_per_s=(8 * GB, 4 * GB, 2 * GB, GB),
        tier_latency_s=(1e-3, 2e-3, 3e-3, 4e-3),
    )
    near_and_far = np.array([0]), np.array([1, 2, 4])
    curve = BatchingCurve(0.1, 0.01, 2.0)
    return network.NetworkCluster(fabric, *near_and_far, kv_bytes_per_token=1e6, kv_memory_bytes=5 * GB, curve=curve)


def five_requests(count=5):
    """Half of the second's prompt is where it goes; the last fits nowhere."""
    hits = np.zeros((5, 3))
    hits[1, 1] = 0.5
    tokens, output = [1000.0, 1000.0, 1000.0, 2000.0, 9000.0], [8.0, 2.0, 2.0, 1.0, 1.0]
    columns = 0.1 * np.arange(5), np.full(5, 0.5), np.array(tokens), np.array(output), hits
    return network.Arrivals(*(column[:count] for column in columns))


def test_five_requests_through_a_network():
    """In turn to an instance of the same server, of the same rack, of another pod, and the same server again.

    The first sends 1 GB at 8 GB/s from 0.5 s on and lands at 0.626. The second sends 0.5 GB from 0.6 s on at 4 GB/s,
    and from 0.7 s on at 3, for the third takes 1 GB/s of the port that they share, until 1.7 s. The fourth sends 2 GB
    from 0.8 s on, lands at 1.051 and joins the first at the next end of an iteration, 0.626 + 4 x 0.11; it has its one
    token after 0.12 s, and the first has its eighth 3 x 0.11 s after that.
    """
    cluster = a_network()._replace(shards=1)
    run = network.simulate(cluster, five_requests(), RoutingPolicy.ROUND_ROBIN)
    landed = np.array([0.626, 0.7 + 0.1 / 3 + 0.002, 1.704, 1.051, np.nan])
    first = landed + 0.11
    first[3] = 0.626 + 4 * 0.11 + 0.12
    end = first + np.array([0.0, 0.11, 0.11, 0.0, 0.0])
    end[0] = first[3] + 3 * 0.11
    arrival = 0.1 * np.arange(5)
    assert run.choice.tolist() == [0, 1, 2, 0, -1] and run.tier.tolist() == [0, 1, 3, 0, -1]
    assert run.hit_frac.tolist() == [0.0, 0.5, 0.0, 0.0, 0.0] and run.arrival_s.tolist() == arrival.tolist()
    np.testing.assert_allclose(run.transfer_s, landed - arrival - 0.5)
    np.testing.assert_allclose(run.ttft_s, first - arrival)
    np.testing.assert_allclose(run.step_s, [0.11, 0.11, 0.11, 0.12, np.nan])
    np.testing.assert_allclose(run.e2e_s, end - arrival)
    np.testing.assert_allclose(run.payload_bytes, [GB, 0.5 * GB, GB, 2 * GB, 0.0])
    assert run.flags.tolist() == [0, 0, 0, 0, int(Flag.NO_FIT)] and run.stuck_bytes == 0.0
    assert run.problems == ("the largest request needs 9.001e+09 B of KV memory; an instance has 5e+09 B",)
    assert run.events == 5 + 4 + 4 + 2 + 2  # decisions, ends of flows, and changes of the three batches
    servers, ports, racks = 4, 8, 2
    carried = np.zeros(servers + 2 * ports + 4 * racks)
    carried[0] = 3 * GB
    carried[servers] = 1.5 * GB  # out of the prefill instance
    carried[servers + ports + np.array([2, 4])] = 0.5 * GB, GB
    carried[servers + 2 * ports + np.array([0, 2 + 1, 4 + 0, 6 + 1])] = GB  # rack up and down, pod up and down
    np.testing.assert_allclose(run.carried_bytes, carried, rtol=1e-9)
    cut = network.simulate(cluster, five_requests(4), RoutingPolicy.ROUND_ROBIN, until_s=1.0)
    assert cut.flags.tolist() == [int(Flag.OVERLOAD), 0, int(Flag.OVERLOAD), int(Flag.OVERLOAD)] and not cut.problems
    assert cut.stuck_bytes == pytest.approx(0.7 * GB + 0.4 * GB) and cut.events == 4 + 2 + 2 + 1
    assert cut.carried_bytes[[0, servers]] == pytest.approx([GB + 1.6 * GB, 0.5 * GB + 0.3 * GB])
    dear = network.simulate(cluster, five_requests(), RoutingPolicy.ROUND_ROBIN, until_s=1.0)
    assert dear.flags[[0, 2, 3]].tolist() == [int(Flag.INFEASIBLE)] * 3  # something is wrong with what was asked
    queued = network.simulate(cluster, five_requests(3), RoutingPolicy.ROUND_ROBIN, serial_prefill=True)
    np.testing.assert_allclose(queued.ttft_s[:2], [first[0], 1.0 + 0.125 + 0.002 + 0.11 - 0.1])


def test_a_scheduler_reads_the_mean_of_each_kind_of_link():
    """Ports are half taken; of the pods' four links two or three to four fifths, so 0.4 or 0.6 in the mean."""
    cluster = a_network()._replace(decode=np.array([2, 4]), shards=1)
    speeds = np.full(len(cluster.fabric.link_bytes_per_s), 4 * GB)
    cluster = cluster._replace(
        fabric=cluster.fabric._replace(link_bytes_per_s=speeds, tier_bytes_per_s=np.full(4, 4e9))
    )
    for busy, choice in ((2, 1), (3, 0)):
        level = np.where(cluster.fabric.link_tier == 1, 0.5, 0.0)
        level[np.flatnonzero(cluster.fabric.link_tier == 3)[:busy]] = 0.8
        one = network.Arrivals(*(np.array([x]) for x in (0.0, 0.1, 1000.0, 5.0)))
        run = network.simulate(cluster, one, RoutingPolicy.NETKV_FULL, background=level)
        assert run.choice.tolist() == [choice]


def test_networks_and_requests_that_do_not_fit_together():
    cluster, good = a_network(), five_requests()
    for changed, said in (
        ({"cluster": cluster._replace(decode=np.array([8, 1]))}, "decode: instance 8; accepted: 0..7"),
        ({"cluster": cluster._replace(prefill=np.array([7, -1]))}, "prefill: instance -1; accepted: 0..7"),
        ({"cluster": cluster._replace(prefill=np.zeros(0, int))}, "prefill: the pool is empty"),
        (
            {"arrivals": good._replace(prefill_s=np.ones(4))},
            r"prefill_s: shape \(4,\); accepted: one per request \(5,\)",
        ),
        *(
            ({"arrivals": good._replace(**{name: np.array(column)})}, f"{name}: {said}; accepted: finite and >= 0")
            for name, column, said in (
                ("arrival_s", [0.0, 1.0, -2.0, np.nan, -3.0], "-2.0"),
                ("output_tokens", [0.0, 1.0, np.inf, -3.0, np.nan], "inf"),
            )
        ),
        ({"arrivals": good._replace(input_tokens=np.arange(5.0))}, "input_tokens: 0; accepted: at least 1"),
        ({"arrivals": good._replace(hit_frac=np.zeros((5, 2)))}, r"shape \(5, 2\); accepted: \(5, 3\), shares"),
        ({"arrivals": good._replace(hit_frac=np.linspace(0, 1.01, 15).reshape(5, 3))}, "shares from 0 to 1"),
        ({"arrivals": good._replace(hit_frac=np.linspace(-0.01, 1, 15).reshape(5, 3))}, "shares from 0 to 1"),
        ({"background": np.zeros(5)}, "background: 5 columns; accepted: 4 or one per link"),
        ({"background": [0.0, 1.0, -0.1, 1.2]}, "background: -0.1; accepted: 0 to 1"),
    ):
        with pytest.raises(InputError, match=said):
            network.simulate(**{"cluster": cluster, "arrivals": good, "policy": RoutingPolicy.LOAD} | changed)


def test_a_window_without_rounded_times_is_the_trace_in_another_time():
    """Of the requests that fit, five from the second on, at two a second: their gaps in proportion, 2 s in all."""
    when = np.array([0.0, 3.0, 4.0, 8.0, 9.0, 10.0, 14.0, 19.0, 23.0])
    tokens = np.array([5.0, 50.0, 10.0, 20.0, 30.0, 40.0, 15.0, 25.0, 9.0])
    profile = network.Profile(10.0, 40.0, 1.0, 1.0, share_frac=1.0, hit_low_frac=0.3, hit_high_frac=0.5)
    found = network.window(
        Trace("t", when, tokens, np.zeros(9)), profile, 2.0, 2.5, 6, position_frac=1.0, tick_s=0.0, input_tokens=700.0
    )
    np.testing.assert_allclose(found.arrival_s, (np.array([8.0, 9.0, 10.0, 14.0, 19.0]) - 8.0) * 2.0 / 11.0)
    assert found.input_tokens.tolist() == [700.0] * 5 and found.output_tokens.tolist() == [1.0] * 5
    np.testing.assert_allclose(found.prefill_s, 0.05 + 68e-6 * 700.0)
    for rate, taken in ((0.0, "0 requests; accepted: 1 to 6"), (2.8, "7 requests; accepted: 1 to 6")):
        with pytest.raises(InputError, match=taken):
            network.window(Trace("t", when, tokens, np.zeros(9)), profile, rate, 2.5, 6)
    with pytest.raises(InputError, match="own_blocks: the trace has no block hashes"):
        network.window(Trace("t", when, tokens, np.zeros(9)), profile, 2.0, 2.5, 6, own_blocks=True)


def test_requests_of_one_rounded_time_are_spread_over_its_tick():
    """All at once, two a second: from the first to the last request 199 gaps of half a second."""
    trace = Trace("t", np.zeros(200), np.full(200, 20.0), np.ones(200))
    profile = network.Profile(10.0, 40.0, 1.0, 1.0)
    found = network.window(trace, profile, 2.0, 100.0, 6, tick_s=3.0).arrival_s
    assert (np.diff(found) > 0).all() and 0 < found[0] < 3 and 96.5 < found[-1] < 99.5
    assert np.abs(found - 0.5 * np.arange(200)).max() < 2 * 0.5 * 200**0.5  # Kolmogorov: once in 1,500
    assert (network.window(trace, profile, 2.0, 100.0, 6, seed=1).arrival_s != found).all()
    for tick in (0.0, -1e-9):
        with pytest.raises(InputError, match=rf"tick_s {tick:g}: accepted is 0 or more, and above 0 for requests that"):
            network.window(trace, profile, 2.0, 100.0, 6, tick_s=tick)
    none = network.poisson(np.zeros(1), np.zeros(1), np.ones(1), profile._replace(low_tokens=0.0), 2.0, 9.0, 4)
    assert set(none.input_tokens) == set(none.output_tokens) == {1.0}


def test_drawn_requests_find_their_prefix_on_an_instance_as_good_as_any_other():
    profile = network.Profile(100.0, 500.0, 1.0, 1.0, share_frac=0.5, hit_low_frac=0.3, hit_high_frac=0.5)
    drawn = lambda rate, seed: network.poisson(
        [50, 100, 500, 501], [1, 0, 7, 1], [1, 3, 1, 1], profile, rate, 40.0, 4, seed=seed
    )
    found = drawn(100.0, 1)
    n = len(found.arrival_s)
    assert abs(n - 4000) < 5 * 4000**0.5 and len(drawn(100.0, 2).arrival_s) != n and len(drawn(1e-9, 0).arrival_s) == 1
    assert (np.diff(found.arrival_s) >= 0).all() and 0 < found.arrival_s[0] < 0.2 and 39.8 < found.arrival_s[-1] < 40.0
    assert (found.input_tokens == 100).mean() == pytest.approx(0.75, abs=5 * 0.43 / n**0.5)
    assert found.output_tokens.tolist() == np.where(found.input_tokens == 100, 1.0, 7.0).tolist()
    np.testing.assert_allclose(found.prefill_s, 0.05 + 68e-6 * found.input_tokens)
    held = found.hit_frac[found.hit_frac > 0]
    assert ((found.hit_frac > 0).sum(1) <= 1).all() and held.size / n == pytest.approx(0.5, abs=2.5 / n**0.5)
    assert 0.3 <= held.min() < 0.305 and 0.495 < held.max() <= 0.5 and held.mean() == pytest.approx(0.4, abs=0.01)
    where = (found.hit_frac > 0).sum(0)
    assert np.abs(where - held.size / 4).max() < 5 * (held.size / 4) ** 0.5
    with pytest.raises(
        InputError, match=r"600 to 900; accepted: bounds that some prompt of the workload \(50 to 501\)"
    ):
        network.poisson([50, 501], [1, 1], [1, 1], profile._replace(low_tokens=600.0, high_tokens=900.0), 1.0, 9.0, 4)


def test_three_requests_through_prefill_and_two_decoders():
    """One worker reads a prompt in 0.2 s, decoders take 0.1 s a step; the first's cache is half a second on its way."""
    asked = [0.0, 0.1, 0.2], 700, [4, 3, 2], 0.2, 1, Pool(2, 2, [0.1] * 3)
    told = {"transfer_s": [0.5, 0.0, 0.0], "policy": RoutingPolicy.ROUND_ROBIN}
    for emits, first, end in (
        (True, [0.2, 0.4, 0.6], [0.7 + 3 * 0.1, 0.4 + 2 * 0.1, 0.6 + 0.1]),
        (False, [0.7 + 0.1, 0.4 + 0.1, 0.6 + 0.1], [0.7 + 4 * 0.1, 0.4 + 3 * 0.1, 0.6 + 2 * 0.1]),
    ):
        found = disaggregated.simulate(*asked, **told, prefill_emits=emits)
        expected = Stages(
            np.array([0.0, 0.1, 0.2]),
            np.zeros(3, int),
            *(np.array(x) for x in ([0.0, 0.2, 0.4], [0.2, 0.4, 0.6], [0.7, 0.4, 0.6], first, end)),
            np.array([4, 3, 2]),
            np.array([0, 0, 1]),  # in turn, by when they are there
        )
        for name, mine, theirs in zip(Stages._fields, found, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, err_msg=name)
    with pytest.raises(InputError, match="key: missing"):
        disaggregated.simulate(*asked, policy=RoutingPolicy.RANDOM)
    drawn = disaggregated.simulate(*asked, policy=RoutingPolicy.RANDOM, key=KEY)
    assert set(drawn.decoder) <= {0, 1} and np.isfinite(drawn.end_s).all()


def test_a_cluster_by_clockwork_measured():
    """A prompt of two iterations of a second every 2.5 s, two more tokens of 11 ms: all have the same times."""
    work = Workload([1000.0], [3.0], [1.0], rate_rps=0.4, arrival_cv=0.0)
    asked = {"prefill_iteration_s": 1.0, "count": 100, "at_most": 9, "percentile": 0.5}
    found = measure(work, Workers(1, 1, step=StepLaw(0.01, 0.001)), STILL, KEY, **asked)
    assert [*found] == [f"{k}_{x}_s" for k in ("ttft", "tpot", "e2e") for x in ("mean", "p50")] + ["role_changes_count"]
    values = [found[name].value for name in found]
    assert values == pytest.approx([2.0, 2.0, 0.011, 0.011, 2.022, 2.022, 0.0])
    assert all(one.flags == 0 and one.samples == 8 for one in found.values())
    # a decoder of one slot and steps of a second, three for each request: answers wait longer and longer, prompts not
    slow = measure(
        work.replace(output_tokens=np.array([4.0])), Workers(1, 1, step=StepLaw(1.0, 0.0), slots=1), STILL, KEY, **asked
    )
    assert all(one.flags & Flag.OVERLOAD for one in slow.values())
    assert slow["ttft_mean_s"].value == pytest.approx(2.0) and slow["tpot_mean_s"].value > 1.5
    assert slow["e2e_mean_s"].value == pytest.approx(np.mean(2.0 + 3.0 + 0.5 * np.arange(20, 100)))
    rules, three = Control(Signal.WORK, Flow.REACTIVE, theta_frag=0.0, queue_limit=0.5), Workers(1, 1, 2)
    changed = measure(work, three, rules, KEY, **asked)["role_changes_count"].value
    alone = simulate_cluster(np.arange(1, 101) / 0.4, 1000, 3, 2.0, three, rules)
    assert changed == alone.changes > 0


@pytest.mark.parametrize("control", [STILL, Hybrid(watermark_frac=1.0)], ids=["apart", "mixed"])
def test_a_client_asks_again_when_it_has_its_answer(control):
    """Half a second for the prompt, and two steps of a quarter."""
    asked = [0.0, 0.0, 0.0], 100, 3, 0.5, Workers(1, 1, step=StepLaw(0.25, 0.0)), control
    one, two = (simulate_cluster(*asked, clients=clients) for clients in (1, 2))
    assert [one.arrival_s.tolist(), one.first_token_s.tolist()] == [[0.0, 1.0, 2.0], [0.5, 1.5, 2.5]]
    assert one.end_s.tolist() == [1.0, 2.0, 3.0] and one.output_tokens.tolist() == [3, 3, 3]
    assert two.arrival_s.tolist() == [0.0, 0.0, two.end_s[:2].min()]


def test_a_cluster_to_which_nobody_comes():
    run = simulate_cluster([], [], [], [], Workers(1, 1))
    assert run.end_s.size == run.worker.size == 0 and (run.changes, run.moved_blocks) == (0, 0.0)


@pytest.mark.parametrize("policy", [RoutingPolicy.ROUND_ROBIN, RoutingPolicy.RANDOM])
@pytest.mark.parametrize("pools", [1, 2])
@pytest.mark.parametrize("law", [StepLaw(8e-3, 1e-3), BY_TOKENS], ids=["t(n)", "t(n, tokens)"])
def test_instances_served_one_by_one_or_together_are_the_same(law, policy, pools):
    """Something that changes nothing happens: from then on all instances are advanced together."""
    rng = np.random.default_rng(0)
    asked = np.cumsum(rng.exponential(0.02, 200)), rng.integers(1, 900, 200), rng.integers(1, 60, 200)
    nothing = [Event(1.0, Change.OPEN, 0)]
    both = [Pool(2, 3, law, 300.0), Pool(3, 3, law, 900.0)][-pools:]
    for believed in (None, asked[1]):  # also where the router overlooks the answers
        told = {"key": KEY, "route_tokens": believed}
        runs = [fleet.simulate(*asked, both, policy, **told, events=events) for events in ([], nothing)]
        for name, one, other in zip(Served._fields, *runs, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-9, err_msg=name)
        assert np.isnan(runs[0].end_s).any() and set(runs[0].instance) == {-1, *range(5 if pools == 2 else 3)}


def test_what_happens_at_one_instant_happens_in_the_order_in_which_it_is_told():
    drain, reopen = Event(1.0, Change.DRAIN, 0), Event(1.0, Change.OPEN, 0)
    for events, where in (([drain, reopen], 0), ([reopen, drain], 1)):
        served = fleet.simulate([2.0], 1, 1, Pool(2, 1, [1.0, 1.0]), RoutingPolicy.ROUND_ROBIN, events=events)
        assert served.instance.tolist() == [where]


def test_a_fleet_is_given_up_where_somebody_has_seen_enough():
    """It is looked at after each eighth of the arrivals; steps of a second, a token each."""
    asked = np.arange(17.0), 1, 1, Pool(1, 1, [1.0, 1.0], emits=True)
    seen = []
    whole = fleet.simulate(*asked, give_up=lambda so_far: bool(seen.append(so_far)))
    assert [int(np.isfinite(one.end_s).sum()) for one in seen] == [2, 4, 6, 8, 10, 12, 14]
    assert whole.end_s.tolist() == [float(k + 1) for k in range(17)]
    cut = fleet.simulate(*asked, give_up=lambda so_far: np.isfinite(so_far.end_s).sum() > 5)
    assert np.isfinite(cut.end_s).tolist() == [k < 6 for k in range(17)] and cut.arrival_s.tolist() == asked[0].tolist()


def test_what_each_pool_served():
    where = np.array([0, 2, -1, 1, 2, 0])
    times = np.arange(6.0)
    served = Served(times, times + 1, times + 2, times + 3, np.arange(6), instance=where)
    parts = fleet.by_pool(served, [Pool(1, 1, [1.0]), Pool(2, 1, [1.0])])
    assert [part.arrival_s.tolist() for part in parts] == [[0.0, 5.0], [1.0, 3.0, 4.0]]
    assert [part.instance.tolist() for part in parts] == [[0, 0], [2, 1, 2]] and parts[0].restarts is None


def serial_by_looking(think, service, lifo, until):
    """(asked, begun, done): the server looks who is there whenever it is free, until it is free too late."""
    clients, rounds = think.shape
    asked, begun, done = (np.full(think.shape, np.nan) for _ in range(3))
    coming = {(float(think[c, 0]), c, 0) for c in range(clients)}
    now, line = 0.0, []
    while coming or line:
        if not line:
            now = max(now, min(coming)[0])
        if now > until:
            break
        for one in sorted(one for one in coming if one[0] <= now):
            coming.remove(one)
            line.append(one)
            asked[one[1:]] = one[0]
        _, c, r = mine = line[-1] if lifo[line[-1][1:]] else line[0]
        line.remove(mine)
        begun[c, r] = now
        now = done[c, r] = now + service[c, r]
        if r + 1 < rounds:
            coming.add((now + float(think[c, r + 1]), c, r + 1))
    return asked, begun, done


def test_clients_at_one_server_one_after_the_other():
    for seed in range(12):
        rng = np.random.default_rng(seed)
        shape = int(rng.integers(1, 6)), int(rng.integers(1, 5))
        think, service = rng.integers(0, 9, shape).astype(float), rng.integers(1, 5, shape).astype(float)
        lifo, until = rng.random(shape) < 0.5, float(rng.choice([np.inf, 12.0]))
        found = closed_loop.serial(think, service, lifo=lifo, until_s=until)
        for name, mine, theirs in zip(
            ("asked", "begun", "done"), found, serial_by_looking(think, service, lifo, until), strict=True
        ):
            np.testing.assert_array_equal(mine, theirs, err_msg=f"{name} {seed}")
    for wrong in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(InputError, match="service_s: accepted are finite seconds above 0"):
            closed_loop.serial(np.ones((2, 2)), wrong)


def test_an_answers_limit_counts_up_to_4096_tokens_in_sglang():
    """Two prompts of 100 tokens and a token kept free: the second is admitted beside the first if both limits fit."""
    law = engines.EngineLaw.straight(1.0, 0.0)
    both = lambda blocks, limit: engines.simulate([0.0, 0.0], 100, 3, law, engines.SGLang(blocks), limit_tokens=limit)
    for limit, counted in ((50, 50), (4096, 4096), (4097, 4096), (10**6, 4096)):
        room = 2 * (100 + counted)
        assert both(room + 1, limit).ttft_s.tolist() == [1.0, 1.0]
        assert both(room, limit).ttft_s.tolist() == [1.0, 2.0]
    assert np.isfinite(both(4197, 10**6).end_s).all()
    with pytest.raises(InputError, match="room for 4,196 tokens; a request of 4,197 tokens never fits"):
        both(4196, 10**6)


def test_a_study_goes_on_with_its_own_arguments_alone(tmp_path):
    file, work = tmp_path / "study.npz", Workload.fixed(600.0, 20.0, rate_rps=5.0)
    asked = {"workload": work, "law": StepLaw(8e-3, 1e-3), "slots": 8, "key": KEY, "count": 3000, "chunk": 1000}
    study.run(**asked, checkpoint=file)
    for changed in (
        {"workload": work.at_rate(6.0)},
        {"law": StepLaw(8e-3, 1.1e-3)},
        {"key": jax.random.key(6)},
        {"chunk": 1001},
        {"percentile": 0.98},
        {"chunk_tokens": 511},
        {"prefill": Prefill.SHARED},
        {"emits": True},
    ):
        with pytest.raises(InputError, match=f"checkpoint {file}: belongs to a study with other arguments"):
            study.run(**asked | changed, checkpoint=file)
    again = study.run(**asked | {"count": 2001}, checkpoint=file)  # three chunks, which are there
    assert again == study.run(**asked, checkpoint=file)


def test_where_the_times_of_a_recording_come_from():
    there, at_once = (Trace("mine", when, np.ones(3), np.ones(3)) for when in (np.arange(3.0), np.zeros(3)))
    assert recordings.recorded(there, 2.0).source == "mine with its own arrival times"
    assert recordings.recorded(there, 1e10).source == "mine with its own arrival times"
    found = recordings.recorded(at_once, 2.0, seed=4)
    assert found.source == "mine as Poisson arrivals, since all its requests have the same time"
    gaps = np.random.default_rng(4).exponential(size=3) / 2.0
    np.testing.assert_allclose(np.diff(found.time_s), gaps[1:])


def test_bad_instances_and_prefixes_are_named():
    for told, said in (
        ({"slots": 1.5}, "slots = 1.5; accepted: whole numbers from 1"),
        ({"chunk_tokens": 0}, "chunk_tokens = 0; accepted: whole numbers from 1"),
        ({"slots": 0, "chunk_tokens": 0}, "slots = 0; accepted: whole numbers from 1"),  # one at a time
    ):
        with pytest.raises(InputError, match=said):
            batching.simulate(
                **{"arrival_s": [0.0], "input_tokens": 1, "output_tokens": 1, "law": [1.0] * 3, "slots": 2} | told
            )
    with pytest.raises(InputError, match="at least one remembered prefix"):
        fleet.simulate([0.0], 9, 1, Pool(1, 1, [1.0, 1.0]), prefixes=Prefixes([0], 9, 0))
    assert fleet.simulate([0.0], 9, 1, Pool(1, 1, [1.0, 1.0]), prefixes=Prefixes([0], 9, 1)).end_s.tolist() == [2.0]
    with pytest.raises(InputError, match=r"max_tokens \[0.0\]: accepted are positive contexts"):
        fleet.simulate([0.0], 9, 1, Pool(1, 1, [1.0, 1.0], max_tokens=0.0))


def test_what_calls_and_records_begin_with():
    """NetKV's cluster and workloads; the rest as the docstrings say."""
    left_out = lambda call: {
        name: one.default for name, one in signature(call).parameters.items() if one.default is not one.empty
    }
    latency = (1e-6, 5e-6, 10e-6, 20e-6)
    assert left_out(network.simulate) == {
        **{"seed": 0, "cache_weight": 0.5, "background": 0.0, "background_step_s": 1.0, "readings": None},
        **{"refresh_s": 1.0, "max_in_flight": 16.0, "destination_aware": False, "sees_inbound": True},
        **{"serial_prefill": False, "until_s": np.inf},
    }
    assert left_out(network.window) == {
        **{"position_frac": 0.0, "seed": 0, "input_tokens": None, "own_blocks": False, "tick_s": 3.0},
    }
    assert left_out(network.fat_tree) == {
        **{"pods": 2, "racks_per_pod": 2, "servers_per_rack": 2, "instances_per_server": 2},
        **{"tier_bytes_per_s": network.NETKV_TIERS, "tier_latency_s": latency, "host_ports": 4, "rack_uplinks": 64},
        **{"pod_uplinks": 128, "host_bytes_per_s": None, "nic_bytes_per_s": np.inf, "aligned": False},
    }
    assert left_out(network.fat_tree_of_radix) == {
        **{"rack_oversubscription": 1.0, "pod_oversubscription": 1.0, "ports_per_instance": 1},
        **{"nvlink_bytes_per_s": 450e9, "tier_latency_s": latency},
    }
    assert left_out(network.poisson) == {"seed": 0} and left_out(network.netkv_cluster) == {"pods": 2}
    assert left_out(network.summary) == {"from_s": 0.0, "to_s": np.inf, "ttft_slo_s": np.inf}
    assert left_out(disaggregated.prefill) == {"signal": Signal.REQUESTS}
    assert left_out(disaggregated.simulate) == {
        **{"signal": Signal.REQUESTS, "transfer_s": 0.0, "policy": RoutingPolicy.SHORTEST_QUEUE},
        **{"prefill_emits": True, "key": None},
    }
    assert left_out(simulate_cluster) == {"control": Control(), "virtual_s": None, "clients": 0}
    assert Control() == (Signal.WORK, Flow.FREENESS, 0.62, 0.168, 0.05, 1.0, 4.0, True)
    assert left_out(closed_loop.simulate) == {"policy": RoutingPolicy.SHORTEST_QUEUE, "until_s": np.inf, "key": None}
    assert left_out(study.run)["chunk"] == 1 << 20 and left_out(estimate.warmup_count) == {"batch": 5}
    assert network.NetworkCluster(None, None, None)[3:] == (
        327680.0,
        180e9,
        NETKV_CURVE,
        4,
        512.0,
        512.0,
    )
    assert network.Profile(1.0, 2.0, 3.0, 4.0)[4:] == (0.24, 0.2, 0.8, 0.05, 68e-6) and TRACE_TICK_S == 3.0
    assert [int(kind) for kind in (Prefill.OWN, Prefill.SHARED, Prefill.PACKED)] == [0, 1, 2]
    assert requests.KVCache._field_defaults == {"block_tokens": 16, "reserve": False}


@pytest.mark.parametrize("blocks", [64.0, 4000.0])
def test_memory_for_prompt_answer_and_reserve_is_asked_for_before_a_request_is_sent(blocks):
    """1,000 and 8 tokens, and 30 that stay free: an instance of 1,038 takes it, one of 1,037 does not."""
    for tokens, choice in ((1038.0, 0), (1037.0, -1)):
        cluster = a_network()._replace(kv_memory_bytes=1e6 * tokens, reserve_tokens=30.0, block_tokens=blocks)
        assert network.simulate(cluster, five_requests(1), RoutingPolicy.ROUND_ROBIN).choice.tolist() == [choice]


def test_who_lands_as_an_iteration_ends_is_in_time_for_the_next():
    """Two land a whole number of iterations apart, whatever sums of floats make of it: the second waits for nothing."""
    alone = a_network()._replace(decode=np.array([1]), shards=1, curve=BatchingCurve(0.012, 0.001, 2.0))
    for steps in range(11, 30):
        columns = (np.full(2, x) for x in (0.5, 1000.0, 60.0))
        both = network.Arrivals(np.array([0.0, 0.013 * steps]), *columns, np.zeros((2, 1)))
        run = network.simulate(alone, both, RoutingPolicy.ROUND_ROBIN)
        np.testing.assert_allclose(run.ttft_s, [0.626 + 0.013, 0.626 + 0.014], rtol=1e-9, err_msg=f"{steps}")


def test_the_smallest_request_of_a_network_is_a_token():
    """1 MB to another instance of the server; an answer of no token takes the iteration of its first one."""
    one = network.Arrivals(*(np.array([x]) for x in (0.0, 0.0, 1.0, 0.0)))
    run = network.simulate(a_network(), one, RoutingPolicy.ROUND_ROBIN)
    assert run.e2e_s[0] == run.ttft_s[0] == pytest.approx(1e6 / (8 * GB) + 1e-3 + 0.11)
    assert run.flags.tolist() == [0] and run.payload_bytes.tolist() == [1e6]


def test_a_trace_is_replayed_from_its_start_until_there_are_enough():
    """Thirty requests, then ten of them again, at one in two seconds; 100 ms for a chunk and for a token each."""
    outputs, cached = np.arange(1.0, 31.0), np.where(np.arange(30) % 2 == 0, 512.0, 0.0)
    trace = Trace("t", np.arange(5.0, 35.0), np.full(30, 1024.0), outputs, cached)
    pools = [Pool(2, 40, [0.1] * 41, 1040.0), Pool(1, 40, [0.1] * 41)]
    found = replay_trace(trace, pools, KEY, RoutingPolicy.SHORTEST_QUEUE, rate_rps=0.5, count=100, percentile=0.5)
    assert (found.requests_count, found.cut_count, found.rate_rps) == (100, 0, pytest.approx(0.5))
    again = np.arange(100) % 30
    chunks = np.where(again % 2 == 0, 1, 2)
    for part, mine in zip(found.pools, (again < 16, again >= 16), strict=True):
        assert part["requests_count"].value == mine.sum()
        kept = np.flatnonzero(mine)[mine.sum() % 20 :]  # whole batches of the last
        steps = chunks[kept] + outputs[again[kept]]
        assert part["e2e_mean_s"].value == pytest.approx(0.1 * steps.mean())
        assert part["e2e_p50_s"].value == pytest.approx(np.median(0.1 * steps))
        assert part["ttft_mean_s"].value == pytest.approx(0.1 * (chunks[kept] + 1).mean())
    whole = replay_trace(trace, pools[1:], KEY, RoutingPolicy.SHORTEST_QUEUE, count=400, stationary=True)
    assert whole.requests_count == 400 and whole.rate_rps == pytest.approx(1.0)
    assert 0 < whole.cut_count == 400 - whole.pools[0]["requests_count"].value


def test_what_happens_at_the_end_of_time_still_happens():
    """Two seconds for each of three requests a second apart; a client that thinks for a second before each second."""
    run = fleet.start([0.0, 1.0, 2.0], 1, 2, Pool(1, 1, [1.0, 1.0], emits=True))
    for until, admitted, end, where in (
        (0.5, [0.0, np.nan, np.nan], [np.nan] * 3, [0, -1, -1]),
        (1.0, [0.0, np.nan, np.nan], [np.nan] * 3, [0, 0, -1]),
        (2.0, [0.0, 2.0, np.nan], [2.0, np.nan, np.nan], [0, 0, 0]),
        (5.0, [0.0, 2.0, 4.0], [2.0, 4.0, np.nan], [0, 0, 0]),
        (np.inf, [0.0, 2.0, 4.0], [2.0, 4.0, 6.0], [0, 0, 0]),
    ):
        fleet.advance(run, until)
        seen = fleet.answers(run)
        np.testing.assert_array_equal(seen.admitted_s, admitted)
        np.testing.assert_array_equal(seen.end_s, end)
        assert seen.instance.tolist() == where and seen.restarts.tolist() == [0, 0, 0]
    assert seen.first_token_s.tolist() == [1.0, 3.0, 5.0] and seen.output_tokens.tolist() == [2, 2, 2]
    asks = lambda until: closed_loop.simulate([[1.0, 1.0]], 1, 1, Pool(1, 1, [1.0, 1.0], emits=True), until_s=until)
    for until, arrival, end in (
        (0.9, [np.nan, np.nan], [np.nan, np.nan]),
        (1.0, [1.0, np.nan], [np.nan, np.nan]),
        (2.0, [1.0, np.nan], [2.0, np.nan]),
        (3.0, [1.0, 3.0], [2.0, np.nan]),
    ):
        np.testing.assert_array_equal(asks(until).arrival_s, arrival)
        np.testing.assert_array_equal(asks(until).end_s, end)
    for until, done in ((0.9, [np.nan, np.nan]), (1.0, [2.0, np.nan]), (3.0, [2.0, 4.0])):
        np.testing.assert_array_equal(closed_loop.serial([[1.0, 1.0]], 1.0, until_s=until)[2], [done])
