"""One wrong value among good ones: what the simulators say of it, to the word; and the last good values."""

from __future__ import annotations

import re

import jax
import numpy as np
import pytest

from dmodels import Workload
from dmodels.core.errors import InputError
from dmodels.sim import arrivals, batching, engines, estimate, fleet, network, study, verify
from dmodels.sim.batching import scan
from dmodels.sim.cluster import Control, Flow, Hybrid, Workers, disaggregated
from dmodels.sim.cluster import simulate as simulate_cluster
from dmodels.sim.fleet import Change, Event, Pool, Prefixes, closed_loop
from dmodels.sim.requests import KVCache, Requests, Served
from tests.sim.as_python import as_python

KEY, INF, NAN = jax.random.key(0), np.inf, np.nan
ONE, TWO = Pool(1, 1, [1.0, 1.0]), Pool(2, 1, [1.0, 1.0])
BOTH, STILL = Workers(1, 1), Control(flow=Flow.NONE, theta_frag=0.0)
LAW = engines.EngineLaw.straight(1.0, 0.0)
AT_ONCE = Served(*[np.zeros(200)] * 5)


def served(**changed):
    return fleet.simulate(
        **{"arrival_s": [0.0, 1.0], "input_tokens": [100, 50], "output_tokens": 5, "pools": TWO} | changed
    )


def split(**changed):
    given = {"arrival_s": [0.0, 1.0], "input_tokens": 10, "output_tokens": 5, "prefill_s": 0.1, "workers": 1}
    return disaggregated.simulate(**given | {"decoders": ONE} | changed)


def in_a_cluster(prefill_s, virtual_s=None, cluster=BOTH, control=STILL, clients=0):
    return simulate_cluster(
        [0.0, 0.0], [50, 100], 10, prefill_s, cluster, control, virtual_s=virtual_s, clients=clients
    )


def shared(tokens, requests):
    prefixes = engines.SharedPrompts.of([[1]] * requests, tokens)
    return engines.simulate([0.0, 0.0], 90, 2, LAW, engines.VllmV1(99, block_tokens=16), prefixes=prefixes)


def lanes(**changed):
    given = {"arrival_s": [[0.0, 1.0]], "input_tokens": 10, "output_tokens": 5, "law": [0.1, 0.1], "slots": 2}
    return scan.simulate(**given | changed)


IN_ORDER = "arrival_s: not finite or not in order; accepted: nondecreasing times in seconds"
FINITE = "accepted: finite numbers above 0"
EVENTS = "accepted: instances 0..1 at finite times"
TRANSFER, PREFILL = "transfer_s: accepted are finite seconds from 0", "prefill_s: accepted are finite seconds above 0"
PROFILE = "starts_s: accepted are increasing times that begin at 0, one for each rate"
TIMES = "times_s: accepted are at least two times in order, not all the same"
STAYS = "accepted: one positive stay per rate, rates from 0 and not all 0"
WHOLE = "accepted: whole numbers from"
MISTAKES = {
    "a time before another": (lambda: Requests.checked([0.0, 2.0, 1.0, 3.0], 1, 1), IN_ORDER),
    "a time without end": (lambda: Requests.checked([0.0, 2.0, INF], 1, 1), IN_ORDER),
    "an input of nothing": (lambda: Requests.checked([0.0] * 3, [5, 0, 7], 1), f"input_tokens: 0; {WHOLE} 1"),
    "an output of nothing": (lambda: Requests.checked([0.0] * 3, 5, [2, -3, 0]), f"output_tokens: -3; {WHOLE} 1"),
    "an output unknown": (lambda: Requests.checked([0.0] * 3, 5, [2, NAN, 4]), f"output_tokens: 2; {WHOLE} 1"),
    "less than nothing cached": (lambda: Requests.checked([0.0] * 2, 5, 1, [0, -1]), f"cached_tokens: -1; {WHOLE} 0"),
    "more cached than asked": (
        lambda: Requests.checked([0.0] * 2, [5, 6], 1, [5, 7]),
        "cached_tokens exceed input_tokens; accepted: at most the input",
    ),
    "two columns": (
        lambda: Requests.checked([0.0] * 2, [[5, 6]], 1),
        "input_tokens: shape (1, 2); accepted: one number, or one per request",
    ),
    "a rate without end": (lambda: arrivals.poisson(KEY, INF, 5), f"rate_rps = inf; {FINITE}"),
    "no rate": (lambda: arrivals.deterministic(0.0, 5), f"rate_rps = 0.0; {FINITE}"),
    "a rate below nothing": (lambda: arrivals.replay([0.0, 1.0], -2.0), f"rate_rps = -2.0; {FINITE}"),
    "gaps of no kind": (lambda: arrivals.gamma(KEY, 1.0, INF, 5), "cv = inf; accepted: finite numbers from 0"),
    "gaps less than even": (lambda: arrivals.gamma(KEY, 1.0, -0.5, 5), "cv = -0.5; accepted: finite numbers from 0"),
    "a rate of a state": (
        lambda: arrivals.markov_modulated(KEY, [1.0, -1.0], [2.0, 3.0], 5),
        f"rates_rps [1.0, -1.0], mean_stay_s [2.0, 3.0]; {STAYS}",
    ),
    "no stay in a state": (
        lambda: arrivals.markov_modulated(KEY, [1.0, 4.0], [2.0, 0.0], 5),
        f"rates_rps [1.0, 4.0], mean_stay_s [2.0, 0.0]; {STAYS}",
    ),
    "a table of states": (lambda: arrivals.markov_modulated(KEY, [[1.0]], [[2.0]], 5), STAYS),
    "states that stand still": (lambda: arrivals.markov_modulated(KEY, [0.0, 0.0], [2.0, 1.0], 5), STAYS),
    "a profile that goes back": (lambda: arrivals.in_profile([1.0], [0.0, 2.0, 1.0], [1.0] * 3), PROFILE),
    "a profile that stands": (lambda: arrivals.in_profile([1.0], [0.0, 0.0], [1.0, 2.0]), PROFILE),
    "a profile that is late": (lambda: arrivals.in_profile([1.0], [0.1, 2.0], [1.0, 2.0]), PROFILE),
    "a profile of another size": (lambda: arrivals.in_profile([1.0], [0.0, 2.0], [1.0]), PROFILE),
    "a rate of a profile": (
        lambda: arrivals.in_profile([1.0], [0.0, 2.0], [-1.0, 2.0]),
        "rates_rps: -1; accepted: numbers from 0, and the last one above 0",
    ),
    "a profile that stops": (
        lambda: arrivals.in_profile([1.0], [0.0, 2.0], [3.0, 0.0]),
        "rates_rps: 0; accepted: numbers from 0, and the last one above 0",
    ),
    "a trace that goes back": (lambda: arrivals.replay([0.0, 2.0, 1.0, 4.0]), TIMES),
    "a trace of an instant": (lambda: arrivals.replay([2.0, 2.0]), TIMES),
    "a trace of one": (lambda: arrivals.replay([2.0]), TIMES),
    "a table of times": (lambda: arrivals.replay([[1.0, 2.0]]), TIMES),
    "one replication": (lambda: estimate.mean_of([3.0]), "replications: 1; accepted: at least two"),
    "short batches": (
        lambda: estimate.batch_means(np.ones(7), 4),
        "7 values in 4 batches; accepted: at least two batches of two",
    ),
    "one batch": (
        lambda: estimate.batch_quantile(np.ones(7), 0.5, 1),
        "7 values in 1 batches; accepted: at least two batches of two",
    ),
    "unlike pairs": (
        lambda: estimate.difference([1.0, 2.0], [1.0, 2.0, 3.0]),
        "a and b: shapes (2,) and (3,); accepted: one value of each per key",
    ),
    "no confidence": (
        lambda: estimate.mean_of([1.0, 2.0], 0.0),
        "confidence = 0.0; accepted: between 0 and 1",
    ),
    "too much confidence": (
        lambda: estimate.mean_of([1.0, 2.0], 1.0),
        "confidence = 1.0; accepted: between 0 and 1",
    ),
    "too few replications": (
        lambda: estimate.replicate(lambda key: {}, KEY, at_least=1, at_most=9),
        "at_least = 1, at_most = 9; accepted: 2 <= at_least <= at_most",
    ),
    "more than the most": (
        lambda: estimate.replicate(lambda key: {}, KEY, at_least=4, at_most=3),
        "at_least = 4, at_most = 3; accepted: 2 <= at_least <= at_most",
    ),
    "a longer prefix than its prompt": (
        lambda: served(prefixes=Prefixes([0, 1], [99, 51], 2)),
        "prefixes: accepted are tokens within the input, and at least one remembered prefix",
    ),
    "an instance that is none": (lambda: served(events=[Event(1.0, Change.UP, 2)]), EVENTS),
    "an instance before the first": (lambda: served(events=[Event(1.0, Change.UP, -1)]), EVENTS),
    "an event that never comes": (lambda: served(events=[Event(INF, Change.UP, 1)]), EVENTS),
    "a pace of nothing": (
        lambda: served(events=[Event(1.0, Change.UP, 1), Event(1.0, Change.SLOW, 1, 0.0)]),
        "accepted: a positive factor on iteration times",
    ),
    "a pace without end": (
        lambda: served(events=[Event(1.0, Change.SLOW, 1, INF)]),
        "accepted: a positive factor on iteration times",
    ),
    "half an instance": (
        lambda: served(pools=[ONE, Pool(1.5, 1, [1.0, 1.0])]),
        f"instances = 1.5; {WHOLE} 1",
    ),
    "pools that get shorter": (
        lambda: served(pools=[Pool(1, 1, [1.0, 1.0], 200), Pool(1, 1, [1.0, 1.0], 100)]),
        "max_tokens [200.0, 100.0]: accepted are positive contexts that do not fall from pool to pool",
    ),
    "no slots": (lambda: batching.simulate([0.0], 1, 1, [1.0], 0), f"slots = 0; {WHOLE} 1"),
    "a client that thinks back": (
        lambda: closed_loop.serial([[1.0, 2.0], [1.0, -1.0]], 1.0),
        "think_s: shape (2, 2); accepted: (clients, rounds) finite seconds from 0",
    ),
    "a client that never asks": (
        lambda: closed_loop.simulate([[1.0, INF]], 1, 1, ONE),
        "think_s: shape (1, 2); accepted: (clients, rounds) finite seconds from 0",
    ),
    "no service": (
        lambda: closed_loop.serial([[1.0, 2.0]], [[1.0, 0.0]]),
        "service_s: accepted are finite seconds above 0",
    ),
    "half a worker": (lambda: split(workers=1.5), f"workers = 1.5; {WHOLE} 1"),
    "no worker": (lambda: split(workers=0), f"workers = 0; {WHOLE} 1"),
    "a prompt of no time": (lambda: split(prefill_s=[0.1, 0.0]), PREFILL),
    "a prompt without end": (lambda: split(prefill_s=[0.1, INF]), PREFILL),
    "a cache that is there before": (lambda: split(transfer_s=[0.0, -0.1]), TRANSFER),
    "a cache that never comes": (lambda: split(transfer_s=[0.0, INF]), TRANSFER),
    "a prompt of a cluster without end": (
        lambda: in_a_cluster([0.1, INF]),
        "prefill_s, virtual_s: accepted are finite seconds, prefill above 0",
    ),
    "a belief of a cluster without end": (
        lambda: in_a_cluster(0.1, [0.1, INF]),
        "prefill_s, virtual_s: accepted are finite seconds, prefill above 0",
    ),
    "nobody who prefills": (
        lambda: in_a_cluster(0.1, cluster=Workers(0, 2, 3, slots=4)),
        "prefill 0, decode 2, standby 3, slots 4; accepted: at least one of each, standby from 0",
    ),
    "memory without end": (
        lambda: in_a_cluster(0.1, cluster=Workers(1, 1, kv_blocks=INF)),
        "kv_blocks inf; accepted: a finite number, freeness is a share of it",
    ),
    "memory of half a request": (
        lambda: in_a_cluster(0.1, cluster=Workers(1, 1, kv_blocks=9.5, block_tokens=11)),
        "kv_blocks 9.5: a request needs 10; accepted: at least that",
    ),
    "a threshold of one": (
        lambda: in_a_cluster(0.1, control=Control(epoch_s=0.25, theta_flow=1.0, theta_frag=0.5)),
        "epoch_s 0.25, theta_flow 1.0, theta_frag 0.5; accepted: above 0, between 0 and 1, from 0 to 1",
    ),
    "less than a token a chunk": (
        lambda: in_a_cluster(0.1, control=Hybrid(64.0, 0.5)),
        "chunk_tokens 64.0, decode_chunk_tokens 0.5; accepted: from 1, and from 1 or 0",
    ),
    "a mark above the water": (
        lambda: in_a_cluster(0.1, control=Hybrid(64.0, 32.0, 1.5, 0.1, 0.7, 0.2)),
        "watermark_frac 1.5, tpot_slo_s 0.1, back_frac 0.7, epoch_s 0.2; accepted: above 0, the first up to 1",
    ),
    "somebody who does nothing": (
        lambda: in_a_cluster(0.1, cluster=Workers(1, 1, 2), control=Hybrid()),
        "standby 2; accepted with Hybrid is 0: every worker does both",
    ),
    "more clients than requests": (
        lambda: in_a_cluster(0.1, clients=3),
        "clients = 3; accepted: 0 to the number of requests, 2",
    ),
    "ratios that are none": (
        lambda: engines.simulate([0.0], 9, 2, LAW, engines.SGLang(99, first_ratio=0.5, least_ratio=1.5)),
        "sglang: first_ratio = 0.5, least_ratio = 1.5; accepted: 0 to 1",
    ),
    "an engine without room": (
        lambda: engines.simulate([0.0] * 2, [9, 700], 2, LAW, engines.TensorRTLLM(20)),
        "kv_blocks: room for 640 tokens; a request of 702 tokens never fits",
    ),
    "an engine whose steps are short": (
        lambda: engines.simulate([0.0] * 2, [9, 1200], 2, LAW, engines.TensorRTLLM(99, step_tokens=1100)),
        "step_tokens = 1,100: a prompt of 1,200 tokens never fits unless chunked",
    ),
    "blocks for less than a request": (
        lambda: batching.simulate([0.0] * 2, [9, 41], 8, [1.0] * 3, 2, kv=KVCache(3, 16)),
        "kv: 3 blocks of 16 tokens; a request of 49 tokens never fits",
    ),
    "too few to settle": (
        lambda: verify.steady(AT_ONCE.at(np.arange(199))),
        "199 requests in a pool; accepted: at least 200: a larger count, or another threshold",
    ),
    "too few for batches": (
        lambda: verify.trace_metrics(AT_ONCE.at(np.arange(1)), batches=4),
        "1 request in a pool; accepted: at least 8, two for each batch",
    ),
    "what nobody measures": (
        lambda: verify.against(
            {"c": 1.0}, {"a": estimate.Estimate(*[1.0] * 3, 2), "b": estimate.Estimate(*[1.0] * 3, 2)}
        ),
        "'c' is not measured; accepted: a, b",
    ),
    "traffic of nobody": (
        lambda: verify.measure(Workload.fixed(9.0, 9.0, rate_rps=0.0), ONE, KEY),
        "rate_rps = 0; accepted: rates above 0",
    ),
    "a pool for nobody": (
        lambda: verify.measure(Workload.fixed(9.0, 9.0, rate_rps=1.0), ONE._replace(max_tokens=17.5), KEY),
        "max_tokens = 17.5: no request of the workload fits this pool",
    ),
    "chunks of too few": (
        lambda: study.run(Workload.fixed(9.0, 9.0, rate_rps=1.0), [1.0], 1, KEY, 7, chunk=999),
        "count = 7, chunk = 999; accepted: a positive count in chunks of 1000 to 2**27",
    ),
    "no slots in a lane": (lambda: lanes(slots=0), f"slots = 0, chunk_tokens = 512; {WHOLE} 1"),
    "a lane of another law": (lambda: lanes(law=np.ones((2, 3))), "law: (2, 3) times; accepted: positive times (1, 3)"),
    "thin racks": (
        lambda: network.fat_tree_of_radix(4, 1.0, rack_oversubscription=0.9),
        "rack_oversubscription: 0.9; accepted: 1 or more",
    ),
    "thin pods": (
        lambda: network.fat_tree_of_radix(4, 1.0, pod_oversubscription=0.8),
        "pod_oversubscription: 0.8; accepted: 1 or more",
    ),
    "blocks of another size": (
        lambda: shared(24, 2),
        "prefixes: blocks of 24 tokens of 2 requests; accepted: a multiple of 16 tokens, and blocks of each of 2 "
        "requests",
    ),
    "blocks of other requests": (
        lambda: shared(32, 3),
        "prefixes: blocks of 32 tokens of 3 requests; accepted: a multiple of 16 tokens, and blocks of each of 2 "
        "requests",
    ),
    "lanes of one axis": (
        lambda: lanes(arrival_s=[0.0, 1.0]),
        "arrival_s: shape (2,); accepted: (instances, requests), finite and in order",
    ),
    "a link of no rate": (
        lambda: network.max_min_rates([2.0, -1.0], [[0, 1]]),
        "capacity: a link has a negative or undefined rate; accepted: 0 or more",
    ),
    "a link that is none": (
        lambda: network.max_min_rates([2.0, 1.0], [[0, 2]]),
        "path: shape (1, 2); accepted: (..., flows, hops) of link numbers or -1",
    ),
    "a link before none": (
        lambda: network.max_min_rates([2.0, 1.0], [[0, -2]]),
        "path: shape (1, 2); accepted: (..., flows, hops) of link numbers or -1",
    ),
    "a list of links": (
        lambda: network.max_min_rates([2.0, 1.0], [0, 1]),
        "path: shape (2,); accepted: (..., flows, hops) of link numbers or -1",
    ),
}


@pytest.mark.parametrize("call, said", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told_with_its_value(call, said):
    with pytest.raises(InputError, match=f"{re.escape(said)}$"):
        call()


@as_python()  # the loops of all simulators take 20 s to compile
def test_the_last_values_before_a_mistake():
    assert Requests.checked([0.0, 0.0], [1, 5], 1, [1, 5]).prefill_tokens.tolist() == [1, 1]
    assert np.isfinite(served(prefixes=Prefixes([0, 1], [100, 50], 1)).end_s).all()
    assert np.isfinite(served(events=[Event(0.0, Change.SLOW, 1, 1e-9), Event(0.0, Change.UP, 0)]).end_s).all()
    assert np.isfinite(split(transfer_s=0.0).end_s).all() and np.isfinite(in_a_cluster(0.1, [0.0, -1.0]).end_s).all()
    assert shared(16, 2).end_s.tolist() == [2.0, 2.0]
    assert arrivals.in_profile([1.0], [0.0, 2.0], [0.0, 4.0]).tolist() == [2.25]
    assert arrivals.markov_modulated(KEY, [0.0, 1.0], [1e-9, 1.0], 3).size == 3
    assert arrivals.replay([1.0, 3.0]).tolist() == [0.0, 2.0]
    assert batching.simulate([0.0] * 2, [9, 40], 8, [1.0] * 3, 2, kv=KVCache(3, 16)).end_s.size == 2
    assert in_a_cluster(0.1, cluster=Workers(1, 1, kv_blocks=10.0, block_tokens=11)).end_s.size == 2
    told = estimate.replicate(lambda key: {"a": 1.0}, KEY, at_least=2, at_most=2)
    assert told["a"].samples == 2 and estimate.batch_means([1.0, 2.0, 3.0, 4.0], 2).samples == 2
    assert network.max_min_rates([2.0, 0.0], [[0, -1], [1, 0]]).tolist() == [2.0, 0.0]
    assert network.max_min_rates([2.0], [[-1]]).tolist() == [INF]
