"""Pictures from top to bottom: every line, bar, area and word, what is written along the axes, and how each looks.

Blue is 0, vermilion 1, green 2, pink 3, orange 4; w and the number are the same for words. A line's look is its colour,
style and width, then its marks and their size; layers are told where they are not the usual ones. Room is what names
shall not hide.
"""

from __future__ import annotations

from types import SimpleNamespace as Record

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("xarray")

import xarray as xr

from dmodels.control.netkv import POLICIES
from dmodels.report import (
    answer_figures,
    naming,
    place_figures,
    plan_figures,
    routing_figures,
    split_figures,
    step_figures,
    style,
    sweep_figures,
    transfer_figures,
)
from tests.report.looks import looks, room
from tests.report.records import ALONE, CHANGES, FLEET, PLACE, SPLIT, fleets, load_of, pool_of, use_of


def no_fleet():
    answer = fleets()
    answer.fleets.one_pool["usable"] = np.zeros(5, bool)
    answer.best, answer.kinds = None, []
    return answer


def every_kind():
    """Fronts of all kinds, out of turn; beside the recommended fleet one that is slower at its cost, and one that is
    cheaper than all of one pool; of b's fleets none keeps the SLOs."""
    answer = fleets()
    answer.fleets.fronts = dict.fromkeys(("prefill/decode split", "two pools", "one pool"), answer.fleets.front)
    answer.best = Record(ttft_s=0.8, usd_per_hour=12.0)
    answer.kinds = [answer.best, Record(ttft_s=1.0, usd_per_hour=12.0), Record(ttft_s=1.9, usd_per_hour=5.0)]
    answer.fleets.one_pool["meets"] = np.array([True, True, False, False, False])
    return answer


def bound_of_tpot(seconds):
    answer = fleets()
    answer.question.slo.tpot_s = seconds
    return answer


def late():
    """A fleet that misses its TTFT: 1.0 s of 0.8."""
    pools = [pool_of("prefill", (0.8, 1.5), (0.1, 9.0)), pool_of("serve", (0.9, 1.2), (0.8, 1.3))]
    pools.append(pool_of("serve", (0.95, 1.1), (0.9, 1.1)))
    slo = Record(ttft_s=0.8, tpot_s=0.05, e2e_s=8.0, percentile=0.95)
    return Record(best=Record(pools=pools, ttft_s=1.0, tpot_s=0.04, e2e_s=5.0), question=Record(slo=slo))


def throughput(right, *bound):
    """All that the front of throughput shows on speeds up to `right`, with lines that tell of the TPOT SLO."""
    front = "(20, 500) (40, 300) (50, 200) (60, 100)"
    a, b = "(20, 500) (40, 300) (25, 450)", "(50, 200) (60, 100)"
    axes = [f"x: output speed of one user [token/s] [linear] 0 to {right}"]
    axes += ["y: throughput [token/s per GPU] [linear] 0 to 520"]
    lines = [f"line {a}: 0 o 3 pale 0.45", f"line {b}: 1 s 3 pale 0.45", f"line {front}: ink - 1.2"]
    words = ["words a: w0 halo", "words b: w1 halo", "words Pareto front: ink halo"]
    rooms = [f"room of a 0: {a}", f"room of b 1: {b}", f"room of Pareto front ink: {front}, joined"]
    return "\n".join([*axes, *lines, *bound, *words, *rooms])


def changes(what, *pairs):
    return [Record(what=what, factor=factor, usd_per_hour=usd) for factor, usd in pairs]


LOADS = np.array([0.1, 0.5, 0.9])
LOADED = load_of(load_frac=LOADS, ttft_s=np.array([0.5, 1.0, 4.0]), tpot_s=np.array([0.02, 0.03, 0.045]))
OVER = {"ttft_s": np.array([0.5, 6.0, 9.0]), "pool": Record(stage=Record(role="prefill")), "knee_frac": 0.2}
FULL = load_of(load_frac=LOADS, in_flight_count=np.array([4.0, 121.0, 144.0]))
FEW = load_of(load_frac=LOADS, in_flight_count=np.array([0.5, 4.0, 9.0]), operating_frac=0.2)
LIMITS = [Record(slots_by_memory_count=m, slots_by_engine_count=e) for m, e in ((100.0, 60.0), (120.0, 256.0))]
PARTS = {"weights": 35.0, "activations": 1.0, "runtime": 2.0, "KV_in_use": 14.0, "KV_free": 20.0, "left_over": 8.0}
USES = [use_of("short", "h100", **PARTS), use_of("long", "h200", weights=36.0, KV_in_use=4.0, KV_free=100.0)]
USES[1].gpu_bytes, USES[1].parts["left over"] = 140 * 2**30, -1.0  # a byte more than there is
THRESHOLDS = Record(
    by_threshold=((1e3, 90.0), (2e3, 85.0), (4e3, np.inf), (8e3, 70.0)), baseline=Record(usd_per_hour=80.0)
)
MOVED = [*CHANGES, *changes("SLO", (0.5, np.inf), (2.0, 100.0)), *changes("still", (0.8, 100.0), (1.2, 100.0))]
MOVED += changes("little", (0.5, 99.5), (2.0, 100.0))
UNSURE = Record(usd_per_hour=30.0, gpus=10, gpus_low=9, gpus_high=12)
DEAR = Record(usd_per_hour=1200.0, gpus=1400, gpus_low=700, gpus_high=np.inf)
SENT = [(1, 4096, 0.125), (1, 8192, 0.25), (3, 4096, 0.375), (3, 8192, 0.75), (3, 16_384, 0.5)]
SENT = [Record(tier=t, context_tokens=c, share_frac=s, pipelined_share_frac=s / 2) for t, c, s in SENT]
RAN = [("ROUND_ROBIN", 2.0, 0.1, 0.9), ("NETKV_FULL", 1.5, np.nan, 0.5)]
RAN = [Record(policy=p, ttft_mean_s=m, ttft_se_s=e, transfer_mean_s=t) for p, m, e, t in RAN]
UPGRADES = [("as it is", 0.0), ("nics x2 speed", 0.3), ("NETKV_FULL instead of CACHE_LOAD", -0.1)]
UPGRADES = [Record(upgrade=name, ttft_saved_frac=saved) for name, saved in UPGRADES]
OPERATORS = [
    Record(name="experts", seconds=8e-3, roofline_frac=0.75, share_frac=0.8, binds="link"),
    Record(name="attention", seconds=2e-3, roofline_frac=0.5, share_frac=0.2, binds="memory"),
]
COST = np.array([[4.0, 8.0, 60.0], [5.0, 6.0, 44.0]])
TTFT = np.array([[4.0, 3.0, 2.5], [3.5, 3.75, 1.5]])
SWEEP = xr.Dataset(
    {
        "cost_usd_per_hour": (("tp", "rate"), COST, {"units": "USD/h"}),
        "ttft_s": (("tp", "rate"), TTFT, {"units": "s"}),
        "flags": (("tp", "rate"), 1 * (COST > 50.0)),
    },
    coords={"tp": [2.0, 4.0], "rate": [1.0, 2.0, 4.0]},
)
SPANS = xr.Dataset(
    {
        "cost": (("argument", "end"), [[90, 120], [80, 150], [np.inf, 100.5], [99.25, 100]], {"units": "USD/h"}),
        "flags": (("argument", "end"), [[0, 0], [0, 1], [1, 0], [0, 0]]),
        "base_cost": 100.0,
        "low": ("argument", [1.0, 0.5, 10.0, 1.0]),
        "high": ("argument", [3.0, 2.0, 30.0, 8.0]),
    },
    coords={"argument": ["isl", "rate", "osl", "tp"]},
)
FEW_SIZES = Record(
    curves=Record(blocks=np.array([60.0, 150.0, 500.0, 1500.0]), recomputed_flop=PLACE.curves.recomputed_flop)
)
NO_HITS = Record(**vars(PLACE) | {"use": Record(ceiling_frac=0.0, warm_frac=0.0)})
NO_HITS.sharing = Record(**vars(PLACE.sharing) | {"size_blocks": 9.0, "hit_frac": 0.0 * PLACE.sharing.hit_frac})
NO_HITS.sharing.layouts = [Record(name=name) for name in ("fifteen letters", "sixteen letters!", "in turn")]
NEVER = Record(**vars(SPLIT) | {"ttft_frac": np.ones(3), "courses": {}})
NEVER.whole = Record(value=Record(prefill_gpus=8.0, cost=np.inf))

#: What is drawn -> what is seen: each number follows from those of the records by hand.
PICTURES = {
    "hit rates": (
        lambda a: place_figures.hit_rates(PLACE, a),
        """
title: Hit rate by policy
x: cache [blocks of 512 tokens] [log] 7.079 to 14130: 10; 100; 1,000; 10,000
y: block accesses that hit [linear] 0 to 0.765: 0%; 10%; 20%; 30%; 40%; 50%; 60%; 70%
line (0, 0.55) (1, 0.55): soft - 0.9
line (0, 0.45) (1, 0.45): soft - 0.9
line (10, 0.2) (100, 0.3) (1000, 0.4) (10000, 0.5): ink - 1.2
line (10, 0.1) (100, 0.2) (1000, 0.3) (10000, 0.45): 0 - 2.4
line (10, 0.12) (1000, 0.32): 1 - 1.2 s 3
line (10, 0.11) (1000, 0.28): 2 - 1.2 ^ 3
line (10, 0.05) (100, 0.1) (1000, 0.2) (10000, 0.3): 3 -- 1.5
words all but first uses: 55.0% at (10, 0.55), left bottom by (0, 3): soft
words all but blocks used once (warm cache): 45.0% at (10, 0.45), left bottom by (0, 3): soft
legend at 2 of the box from (0, 0), 1 in a row, lines of 1.5, 0.3 around
legend: optimum (knows the future); LRU; KVBM (doubling, decay); LFU; Che, trace in random order
""",
    ),
    "latency by tier": (
        lambda a: place_figures.latency(PLACE, a),
        """
title: Time to the first token (marks: as it is; no queue)
x: size of the tier [GiB] [log] 0.933 to 4.287: 1; 2; 3; 4
y: load and prefill, mean [ms] [linear] 0 to 660
line (1, 500) (2, 450): 0 - 1.5
line (3, 400): 0 o 7 layer 4
line (1, 450) (4, 350): 1 - 1.5
words HBM / grows at (1, 0.6818) of axes, left center by (3, 0): w0
words DRAM / grows at (1, 0.5303) of axes, left center by (3, 0): w1
""",
    ),
    "externality": (
        lambda a: place_figures.externality(PLACE, a),
        """
title: What storing a block used once costs others
x: cache [blocks of 512 tokens] [log] 7.079 to 14130: 10; 100; 1,000; 10,000
y: others' GPU time per block stored [ms] [linear] 0 to 3.1
line (10, 1) (100, 2) (1000, 3) (10000, 1): 1 - 1.5
""",
    ),
    "recomputed": (
        lambda a: place_figures.recomputed(PLACE, a),
        """
title: Prefill computed again because of evictions
x: cache [blocks of 512 tokens] [log] 7.079 to 14130: 10; 100; 1,000; 10,000
y: TFLOP per request [linear] 0 to 9.35
line (10, 9) (100, 7) (1000, 5) (10000, 2): 0 - 1.5
""",
    ),
    "recomputed, few sizes": (
        lambda a: place_figures.recomputed(FEW_SIZES, a),
        """
title: Prefill computed again because of evictions
x: cache [blocks of 512 tokens] [log] 51.08 to 1762: 100; 200; 500; 1,000
y: TFLOP per request [linear] 0 to 9.35
line (60, 9) (150, 7) (500, 5) (1500, 2): 0 - 1.5
""",
    ),
    "no hits": (
        lambda a: place_figures.hit_rates(NO_HITS, a),
        """
title: Hit rate by policy
x: cache [blocks of 512 tokens] [log] 7.079 to 14130: 10; 100; 1,000; 10,000
y: block accesses that hit [linear] 0 to 0.0017: 0%; 0%; 0%; 0%; 0%; 0%; 0%; 0%; 0%
line (0, 0) (1, 0): soft - 0.9
line (0, 0) (1, 0): soft - 0.9
line (10, 0.2) (100, 0.3) (1000, 0.4) (10000, 0.5): ink - 1.2
line (10, 0.1) (100, 0.2) (1000, 0.3) (10000, 0.45): 0 - 2.4
line (10, 0.12) (1000, 0.32): 1 - 1.2 s 3
line (10, 0.11) (1000, 0.28): 2 - 1.2 ^ 3
line (10, 0.05) (100, 0.1) (1000, 0.2) (10000, 0.3): 3 -- 1.5
words all but first uses: 0.0% at (10, 0), left bottom by (0, 3): soft
words all but blocks used once (warm cache): 0.0% at (10, 0), left bottom by (0, 3): soft
legend at 2 of the box from (0, 0), 1 in a row, lines of 1.5, 0.3 around
legend: optimum (knows the future); LRU; KVBM (doubling, decay); LFU; Che, trace in random order
""",
    ),
    "no hits in shared memory": (
        lambda a: place_figures.shared(NO_HITS, a),
        """
title: Sharing HBM
x: HBM of 4 workers together [blocks] [log] 7.079 to 14130: 10; 100; 1,000; 10,000
y: block accesses that hit [linear] 0 to 0.00105: 0%; 0%; 0%; 0%; 0%; 0%
line (10, 0) (100, 0) (1000, 0) (10000, 0): 0 - 1.5
line (10, 0) (100, 0) (1000, 0) (10000, 0): 1 -- 1.5
line (10, 0) (100, 0) (1000, 0) (10000, 0): 2 - 1.5
words fifteen letters at (1, 0.02396) of axes, left center by (3, 0): w0
words sixteen / letters! at (1, 0.09582) of axes, left center by (3, 0): w1
words in turn at (1, 0.1677) of axes, left center by (3, 0): w2
""",
    ),
    "promotion": (
        lambda a: place_figures.promotion(PLACE, a),
        """
title: Which blocks HBM takes
x: frequency that HBM asks for [log 2] 0.4665 to 2.144: 0.5; 1; 2
y: mean access latency [ms] [linear] 0 to 2.6
line (0.5, 2) (1, 1.5) (2, 1.8): 0 - 1.5 o 6
line (0, 1.4) (1, 1.4): soft -- 0.9
words lower tiers answer best at (2, 1.8), right bottom by (0, 3): w0
words no leader does better at (2, 1.4), right top by (0, -3): soft
""",
    ),
    "shared memory": (
        lambda a: place_figures.shared(PLACE, a),
        """
title: Sharing HBM
x: HBM of 4 workers together [blocks] [log] 7.079 to 14130: 10; 100; 1,000; 10,000
y: block accesses that hit [linear] 0 to 0.42: 0%; 5%; 10%; 15%; 20%; 25%; 30%; 35%; 40%
line (10, 0.1) (100, 0.2) (1000, 0.3) (10000, 0.4): 0 - 1.5
line (10, 0.05) (100, 0.1) (1000, 0.2) (10000, 0.3): 1 -- 1.5
line (10, 0.08) (100, 0.15) (1000, 0.25) (10000, 0.35): 2 - 1.5
line (50, 0) (50, 1): soft : 0.9
words HBM / as it is at (50, 1) of data and axes, right top by (-3, 0): soft
words one pool at (1, 0.9524) of axes, left center by (3, 0): w0
words in turn at (1, 0.7143) of axes, left center by (3, 0): w1
words kept together at (1, 0.8333) of axes, left center by (3, 0): w2
""",
    ),
    "pooled memory": (
        lambda a: place_figures.pooled(PLACE, a),
        """
title: Memory shared
x: mean read of a block used before [ms] [linear] 0 to 6.75
y:  [linear] 1.9 to -0.6, no grid: in / turn; kept / together
line (2.5, -0.4) (2.5, 0.4): ink - 1.2
line (1.6, 0.6) (1.6, 1.4): ink - 1.2
bar 0 to 5 at -0.2667: 0.24 0
bar 0 to 2 at 0.7333: 0.24 0
bar 0 to 4 at 0: 0.24 1
bar 0 to 1.8 at 1: 0.24 1
bar 0 to 3 at 0.2667: 0.24 2
bar 0 to 1.7 at 1.267: 0.24 2
words alone at (5, -0.2667), left center by (3, 0): w0
words alone at (2, 0.7333), left center by (3, 0): w0
words pool, each for itself at (4, 0), left center by (3, 0): w1
words pool, each for itself at (1.8, 1), left center by (3, 0): w1
words pool, run centrally at (3, 0.2667), left center by (3, 0): w2
words pool, run centrally at (1.7, 1.267), left center by (3, 0): w2
words no placement / is faster at (1.6, 1.4), left top by (0, -3): ink
""",
    ),
    "one way to pool memory": (
        lambda a: place_figures.pooled(Record(pooled=PLACE.pooled[:1]), a),
        """
title: Memory shared
x: mean read of a block used before [ms] [linear] 0 to 6.75
y:  [linear] 0.9 to -0.6, no grid: in / turn
line (2.5, -0.4) (2.5, 0.4): ink - 1.2
bar 0 to 5 at -0.2667: 0.24 0
bar 0 to 4 at 0: 0.24 1
bar 0 to 3 at 0.2667: 0.24 2
words alone at (5, -0.2667), left center by (3, 0): w0
words pool, each for itself at (4, 0), left center by (3, 0): w1
words pool, run centrally at (3, 0.2667), left center by (3, 0): w2
words no placement / is faster at (2.5, 0.4), left top by (0, -3): ink
""",
    ),
    "misses": (
        lambda a: split_figures.misses(SPLIT, a),
        """
title: Requests that miss their SLO
x: GPUs for prefill, of 16 in all [linear] 3.6 to 12.4
y: late requests [log] 0.0001 to 3: 0.01 %; 0.1 %; 1 %; 10 %; 100 %
line (4, 0.5) (8, 0.001) (12, 0.0001): 0 - 1.5
line (4, 0.0001) (8, 0.0001) (12, 0.2): 1 - 1.5
line (7.5, 0) (7.5, 1): 2 - 1.8
line (9.25, 0) (9.25, 1): ink -- 1.8
line (8, 0) (8, 1): 3 : 1.8
words optimum: 7.5 at (7.5, 0.05) of data and axes, right center by (-3, 0): w2 halo
words whole workers: 8 at (8, 0.125) of data and axes, right center by (-3, 0): w3 halo
words equilibrium: 9.25 at (9.25, 0.2) of data and axes, right center by (-3, 0): ink halo
words TTFT at (1, 0.02396) of axes, left center by (3, 0): w0
words ITL at (1, 0.7373) of axes, left center by (3, 0): w1
""",
    ),
    "courses": (
        lambda a: split_figures.courses(SPLIT, a),
        """
title: Planners in a burst of arrivals
x: time [min] [linear] 0 to 1
y: instances for prefill [linear] 1.9 to 4.1: 2; 3; 4
line (0, 2) (0.5, 2) (1, 2): 0 - 4 steps
line (0, 2) (0.5, 3) (1, 4): 2 - 2.8 steps
line (0, 3) (0.5, 3) (1, 3): 3 - 1.8 steps
line (0, 4) (0.5, 4) (1, 2): 1 - 1 steps
area (0, 0) (0, 0.225) (0.5, 0) (0.5, 0.225) (0.5, 0.45) (1, 0) (1, 0.3375) (1, 0.45): fill layer 0
words arrivals, at most 20 req/s at (0.02, 0.03) of axes, left baseline: soft halo
words static: / 25.0% late at (1, 0.04791) of axes, left center by (3, 0): w0
words sla: / 50.0% late at (1, 0.9521) of axes, left center by (3, 0): w2
words slow: / 75.0% late at (1, 0.5) of axes, left center by (3, 0): w3
words late: / 100.0% late at (1, 0.1437) of axes, left center by (3, 0): w1
""",
    ),
    "all late": (
        lambda a: split_figures.misses(NEVER, a),
        """
title: Requests that miss their SLO
x: GPUs for prefill, of 16 in all [linear] 3.6 to 12.4
y: late requests [log] 0.0001 to 3: 0.01 %; 0.1 %; 1 %; 10 %; 100 %
line (4, 1) (8, 1) (12, 1): 0 - 1.5
line (4, 0.0001) (8, 0.0001) (12, 0.2): 1 - 1.5
line (7.5, 0) (7.5, 1): 2 - 1.8
line (9.25, 0) (9.25, 1): ink -- 1.8
words optimum: 7.5 at (7.5, 0.05) of data and axes, right center by (-3, 0): w2 halo
words equilibrium: 9.25 at (9.25, 0.125) of data and axes, right center by (-3, 0): ink halo
words TTFT at (1, 0.8934) of axes, left center by (3, 0): w0
words ITL at (1, 0.7373) of axes, left center by (3, 0): w1
""",
    ),
    "no planner": (
        lambda a: split_figures.courses(NEVER, a),
        """
title: Planners were not run
x: time [min] [linear] 0 to 1
y: instances for prefill [linear] 0 to 1: 0; 1
""",
    ),
    "fleets": (
        lambda a: plan_figures.cost_front(fleets(), a),
        """
x: TTFT, P99 [s] [linear] 0 to 2.3
y: cost [USD/h] [log] 7 to 120: 10; 20; 50; 100
line (2.2, 12): 0 o 3 hollow pale 0.35
line (1.5, 10) (0.5, 20): 0 o 3 pale 0.8
line nowhere: 1 s 3 hollow pale 0.35
line (1, 30): 1 s 3 pale 0.8
line (1.5, 10) (0.5, 20): soft -- 1.5 steps
line (1.5, 10) (0.5, 20): ink - 1.2 steps
line (2, 0) (2, 1): soft -- 0.9
line (1.2, 15): ink * 9 on paper layer 4
line (1.5, 10): ink * 13 layer 4
words SLO at (2, 0.04) of data and axes, right center by (-3, 0): soft halo
words recommended at (1.5, 10), right center by (-9, 0): ink halo
words a: w0 halo
words b: w1 halo
words two pools: ink halo
words Pareto front: ink halo
room of a 0: (1.5, 10) (0.5, 20)
room of unnamed: (2.2, 12)
room of b 1: (1, 30)
room of unnamed: nowhere
room of two pools ink: (1.5, 10) (0.5, 20), joined
room of Pareto front ink: (1.5, 10) (0.5, 20), joined
room of unnamed: 40 points, (1.2, 15) ... (1.5, 10) ... (1.5, 10)
""",
    ),
    "fleets of every kind": (
        lambda a: plan_figures.cost_front(every_kind(), a),
        """
x: TTFT, P99 [s] [linear] 0 to 2.3
y: cost [USD/h] [log] 3.5 to 60: 5; 10; 20; 50
line (2.2, 12): 0 o 3 hollow pale 0.35
line (1.5, 10) (0.5, 20): 0 o 3 pale 0.8
line (1, 30): 1 s 3 hollow pale 0.35
line nowhere: 1 s 3 pale 0.8
line (1.5, 10) (0.5, 20): soft -- 1.5 steps
line (1.5, 10) (0.5, 20): soft : 1.5 steps
line (1.5, 10) (0.5, 20): ink - 1.2 steps
line (2, 0) (2, 1): soft -- 0.9
line (1, 12) (1.9, 5): ink * 9 on paper layer 4
line (0.8, 12): ink * 13 layer 4
words SLO at (2, 0.04) of data and axes, right center by (-3, 0): soft halo
words recommended at (0.8, 12), center top by (0, -9): ink halo
words a: w0 halo
words b: w1 halo
words two pools: ink halo
words prefill/decode split: ink halo
words Pareto front: ink halo
room of a 0: (1.5, 10) (0.5, 20)
room of unnamed: (2.2, 12)
room of b 1: (1, 30)
room of unnamed: (1, 30)
room of two pools ink: (1.5, 10) (0.5, 20), joined
room of prefill/decode split ink: (1.5, 10) (0.5, 20), joined
room of Pareto front ink: (1.5, 10) (0.5, 20), joined
room of unnamed: 60 points, (1, 12) ... (1.9, 5) ... (0.8, 12)
""",
    ),
    "no fleet": (
        lambda a: plan_figures.cost_front(no_fleet(), a),
        """
x: TTFT, P99 [s] [linear] 0 to 1, no grid
y: cost [USD/h] [log] 0.8913 to 11.22, no grid
words no layout keeps up with this load at (0.5, 0.5), center center: ink 9.5
""",
    ),
    "throughput": (
        lambda a: plan_figures.throughput_front(fleets(), a),
        throughput(
            62,
            "line (25, 0) (25, 1): soft -- 0.9",
            "words TPOT SLO at (25, 0.04) of data and axes, left center by (3, 0): soft halo",
        ),
    ),
    "throughput, fast bound": (
        lambda a: plan_figures.throughput_front(bound_of_tpot(1 / 85), a),
        throughput(
            88.25,
            "line (85, 0) (85, 1): soft -- 0.9",
            "words TPOT SLO at (85, 0.04) of data and axes, right center by (-3, 0): soft halo",
        ),
    ),
    "throughput, bound beyond": (
        lambda a: plan_figures.throughput_front(bound_of_tpot(1 / 95), a),
        throughput(62),
    ),
    "no throughput": (
        lambda a: plan_figures.throughput_front(no_fleet(), a),
        """
x: output speed of one user [token/s] [linear] 0 to 1, no grid
y: throughput [token/s per GPU] [linear] 0 to 1, no grid
words no layout keeps up with this load at (0.5, 0.5), center center: ink 9.5
""",
    ),
    "latency by load": (
        lambda a: plan_figures.latency_against_load(LOADED, a),
        """
x: load [share of the rate that saturates] [linear] 0 to 1: 0%; 20%; 40%; 60%; 80%; 100%
y: latency / SLO [linear] 0 to 2
line (0.1, 0.25) (0.5, 0.5) (0.9, 2): 0 - 1.8
line (0.5, 0.5): 0 o 7 layer 4
line (0.1, 0.4) (0.5, 0.6) (0.9, 0.9): 1 - 1.8
line (0.5, 0.6): 1 s 7 layer 4
line (0, 1) (1, 1): soft -- 0.9
line (0.5, 0) (0.5, 1): ink - 0.9
line (0.7, 0) (0.7, 1): ink : 0.9
words SLO at (0.015, 1.02), left bottom: soft
words runs at 50% at (0.5, 0.93) of data and axes, right center by (-3, 0): ink halo
words knee at 70% at (0.7, 0.83) of data and axes, right center by (-3, 0): ink halo
words TTFT / of 2,000 ms at (1, 0.9521) of axes, left center by (3, 0): w0
words TPOT / of 50 ms at (1, 0.45) of axes, left center by (3, 0): w1
""",
    ),
    "latency beyond the SLO": (
        lambda a: plan_figures.latency_against_load(Record(**vars(LOADED) | OVER), a),
        """
x: load [share of the rate that saturates] [linear] 0 to 1: 0%; 20%; 40%; 60%; 80%; 100%
y: latency / SLO [linear] 0 to 3.75
line (0.1, 0.25) (0.5, 3) (0.9, 4.5): 0 - 1.8
line (0.5, 3): 0 o 7 layer 4
line (0, 1) (1, 1): soft -- 0.9
line (0.2, 0) (0.2, 1): ink : 0.9
line (0.5, 0) (0.5, 1): ink - 0.9
words SLO at (0.015, 1.02), left bottom: soft
words knee at 20% at (0.2, 0.93) of data and axes, left center by (3, 0): ink halo
words runs at 50% at (0.5, 0.83) of data and axes, left center by (3, 0): ink halo
words TTFT / of 2,000 ms at (1, 0.9521) of axes, left center by (3, 0): w0
""",
    ),
    "in flight": (
        lambda a: plan_figures.occupancy(FULL, LIMITS[0], a),
        """
x: load [share of the rate that saturates] [linear] 0 to 1: 0%; 20%; 40%; 60%; 80%; 100%
y: in flight [request per instance] [linear] 0 to 138
line (0.1, 4) (0.5, 121) (0.9, 144): 0 - 1.8
line (0.5, 121): 0 o 7 layer 4
line (0, 60) (1, 60): 2 -- 0.9
line (0, 100) (1, 100): 1 -- 0.9
area (0.1, 0) (0.1, 8.66) (0.5, 95.37) (0.5, 146.6) (0.9, 116) (0.9, 172): fill
words runs with 121 at (0.5, 121), right bottom by (0, 6): ink halo
words mean / (band: 98 %) at (1, 0.9521) of axes, left center by (3, 0): w0
words max_num_seqs: / 60 slots at (1, 0.4348) of axes, left center by (3, 0): w2
words memory: / 100 slots at (1, 0.7246) of axes, left center by (3, 0): w1
""",
    ),
    "few in flight": (
        lambda a: plan_figures.occupancy(FEW, LIMITS[1], a),
        """
x: load [share of the rate that saturates] [linear] 0 to 1: 0%; 20%; 40%; 60%; 80%; 100%
y: in flight [request per instance] [linear] 0 to 138
line (0.1, 0.5) (0.5, 4) (0.9, 9): 0 - 1.8
line (0.2, 1.375): 0 o 7 layer 4
line (0, 120) (1, 120): 1 -- 0.9
area (0.1, 0) (0.1, 2.148) (0.5, 0) (0.5, 8.66) (0.9, 2.01) (0.9, 15.99): fill
words runs with 1.4 at (0.2, 1.375), left bottom by (0, 6): ink halo
words mean / (band: 98 %) at (1, 0.06522) of axes, left center by (3, 0): w0
words memory: / 120 slots at (1, 0.8696) of axes, left center by (3, 0): w1
""",
    ),
    "memory": (
        lambda a: plan_figures.memory_per_gpu(USES, a),
        """
x: memory of one GPU [GiB] [linear] 0 to 142.8
y:  [linear] -0.6 to 1.5, no grid: long: / h200 / tp4; short: / h100 / tp4
bar 0 to 36 at 0: 0.5 0 edge 0 0.6
bar 36 to 40 at 0: 0.5 2 edge 2 0.6
bar 40 to 140 at 0: 0.5 none edge 2 0.6 ///
bar 140 to 140 at 0: 0.5 fill edge soft 0.6
bar 0 to 35 at 1: 0.5 0 edge 0 0.6
bar 35 to 36 at 1: 0.5 4 edge 4 0.6
bar 36 to 38 at 1: 0.5 3 edge 3 0.6
bar 38 to 52 at 1: 0.5 2 edge 2 0.6
bar 52 to 72 at 1: 0.5 none edge 2 0.6 ///
bar 72 to 80 at 1: 0.5 fill edge soft 0.6
words 36 at (18, -0.25), center top by (0, -3): ink
words 100 at (90, -0.25), center top by (0, -3): ink
words 35 at (17.5, 0.75), center top by (0, -3): ink
words 14 at (45, 0.75), center top by (0, -3): ink
words 20 at (62, 0.75), center top by (0, -3): ink
words 8 at (76, 0.75), center top by (0, -3): ink
legend at 8 of the box from (0.45, 1), 3 in a row, lines of 1.5, 0.3 around
legend: weights; KV in use; KV free; left over
""",
    ),
    "thresholds": (
        lambda a: plan_figures.threshold_curve(THRESHOLDS, a),
        """
x: threshold on total tokens [token] [log] 901.3 to 8877: 1,000; 2,000; 5,000
y: cost [USD/h] [linear] 65 to 95
line (1000, 90) (2000, 85) (8000, 70): 0 - 1.5 o 3
line (0, 80) (1, 80): 1 -- 1.8
words two pools at (1, 0.1667) of axes, left center by (3, 0): w0
words one pool at (1, 0.5) of axes, left center by (3, 0): w1
""",
    ),
    "what moves the cost": (
        lambda a: plan_figures.tornado(Record(formula_usd_per_hour=100.0), MOVED, a),
        """
x: cost of the cheapest plan [USD/h] [linear] 70 to 155
y:  [linear] -0.535 to 3.535, no grid: still / (no change); little; rate; SLO
line (100, 0) (100, 1): ink - 0.9
bar 100 to 100 at 0.18: 0.34 0 edge 0 0.6
bar 100 to 100 at -0.18: 0.34 1 edge 1 0.6
bar 100 to 99.5 at 1.18: 0.34 0 edge 0 0.6
bar 100 to 100 at 0.82: 0.34 1 edge 1 0.6
bar 100 to 80 at 2.18: 0.34 0 edge 0 0.6
bar 100 to 130 at 1.82: 0.34 1 edge 1 0.6
bar 100 to 137.5 at 3.18: 0.34 none edge 0 0.6 ///
bar 100 to 100 at 2.82: 0.34 1 edge 1 0.6
words x0.5 at (99.5, 1.18), right center by (-3, 0): w0
words x0.8 at (80, 2.18), right center by (-3, 0): w0
words x1.2 at (130, 1.82), left center by (3, 0): w1
words x0.5: infeasible at (137.5, 3.18), left center by (3, 0): w0
""",
    ),
    "promises": (
        lambda a: answer_figures.promises(late(), a),
        """
x: latency / SLO, with its 80 % interval [linear] 0 to 1.969
y:  [linear] -0.5 to 2.8, no grid: E2E / P95; TPOT / P95; TTFT / P95
line (0.5, 0) (0.9375, 0): 0 - 6 pale 0.35
line (0.625, 0): 0 o 7 layer 4
line (0.64, 1) (1.04, 1): 0 - 6 pale 0.35
line (0.8, 1): 0 o 7 layer 4
line (1, 2) (1.875, 2): 0 - 6 pale 0.35
line (1.25, 2): 0 o 7 layer 4
line (1, 0) (1, 1): 1 - 1.8
words 5 s (4 s to 7.5 s) of 8 s at (0, 0.2), left bottom by (3, 0): ink
words 40 ms (32 ms to 52 ms) of 50 ms at (0, 1.2), left bottom by (3, 0): ink
words 1 s (800 ms to 1.5 s) of 800 ms at (0, 2.2), left bottom by (3, 0): ink
words SLO at (1, 2.65), left center by (3, 0): w1
""",
    ),
    "costs": (
        lambda a: answer_figures.costs(Record(best=FLEET), [("mine", FLEET), ("other", UNSURE), ("x", DEAR)], a),
        """
x: cost [USD/h], with its 80 % interval [linear] 0 to 1296
y:  [linear] -0.5 to 2.7, no grid
line (600, -0.12) (1296, -0.12): ink - 1.2
line (27, 0.88) (36, 0.88): ink - 1.2
line (15, 1.88) (30, 1.88): ink - 1.2
bar 0 to 1200 at -0.12: 0.34 grid
bar 0 to 30 at 0.88: 0.34 grid
bar 0 to 20 at 1.88: 0.34 0
words x: 1,400 GPUs, $1,200/h at (0, 0.1), left bottom by (3, 0): ink
words other: 10 GPUs, $30.00/h at (0, 1.1), left bottom by (3, 0): ink
words mine: 8 GPUs, $20.00/h at (0, 2.1), left bottom by (3, 0): ink bold
""",
    ),
    "share of TTFT": (
        lambda a: transfer_figures.share_of_ttft(SENT, a),
        """
title: KV transfer in TTFT, idle fabric
x: context [token] [log 2] 3822 to 17560: 4K; 8K; 16K
y: share of TTFT [%] [linear] 0 to 78.44
line (4096, 12.5) (8192, 25): 1 - 1.5 o 3
line (4096, 6.25) (8192, 12.5): 1 -- 1.5
line (4096, 37.5) (8192, 75) (16380, 50): 3 - 1.5 o 3
line (4096, 18.75) (8192, 37.5) (16380, 25): 3 -- 1.5
words dashed: sent layer by layer at (0.02, 0.98) of axes, left top: soft
words same rack at (1, 0.3187) of axes, left center by (3, 0): w1
words across pods at (1, 0.6375) of axes, left center by (3, 0): w3
""",
    ),
    "policies": (
        lambda a: transfer_figures.policies(RAN, a),
        """
title: who decodes: policies on the same requests
x: mean TTFT, and in blue the transfer in it [s] [linear] 0 to 2.835
y:  [linear] -0.49 to 1.49: round robin; NetKV: + congestion
bar 0 to 2 at 1: 0.8 fill
bar 0 to 1.5 at 0: 0.8 fill
bar 0 to 0.9 at 1: 0.45 0
bar 0 to 0.5 at 0: 0.45 0
pieces (1.9, 1) (2.1, 1): 0.9
""",
    ),
    "upgrades": (
        lambda a: transfer_figures.upgrades(UPGRADES, a),
        """
title: which upgrade pays
x: mean TTFT saved [%] [linear] -12 to 32
y:  [linear] -0.49 to 1.49: NetKV: + congestion / instead of cache + load (CLA*); nics x2 speed
line (0, 0) (0, 1): ink - 0.9
bar 0 to -10 at 0: 0.8 2
bar 0 to 30 at 1: 0.8 2
""",
    ),
    "tolerance": (
        lambda a: transfer_figures.tolerance(4.0, 0.05, 10.0, a),
        """
title: stale telemetry, tiers 4:1
x: extra delay of the slow tier's instance / its idle transfer [1] [linear] -2 to 2
y: tolerated error [points] [linear] 0 to 94.61
line 401 points, (-2, 53.76) ... (0, 60) ... (2, 90.1): 0 - 1.5
line 401 points, (-2, 60) ... (0, 60) ... (2, 60): 0 : 1.2
line 401 points, (-2, 25.77) ... (0, 42) ... (2, 60.95): 1 - 1.5
line 401 points, (-2, 42) ... (0, 42) ... (2, 42): 1 : 1.2
line 401 points, (-2, 1.561) ... (0, 24) ... (2, 32.6): 2 - 1.5
line 401 points, (-2, 24) ... (0, 24) ... (2, 24): 2 : 1.2
line (0, 5.619) (1, 5.619): soft - 0.9
words drift in 1 s (99 %) at (2, 5.619), right bottom by (0, 3): soft
words dotted: Proposition 2 (bandwidth only) at (0.02, 0.98) of axes, left top: soft
words congestion 0 at (1, 0.9524) of axes, left center by (3, 0): w0
words congestion 0.3 at (1, 0.6443) of axes, left center by (3, 0): w1
words congestion 0.6 at (1, 0.3446) of axes, left center by (3, 0): w2
""",
    ),
    "operators": (
        lambda a: step_figures.operators(Record(operators=OPERATORS), a, "A step"),
        """
title: A step
x: time in a mean step [ms] [linear] 0 to 10.4
y:  [linear] -0.49 to 1.49, no grid: attention; experts
bar 0 to 2 at 0: 0.8 fill edge soft 0.6
bar 0 to 8 at 1: 0.8 fill edge soft 0.6
bar 0 to 1 at 0: 0.8 0
bar 0 to 6 at 1: 0.8 0
words 20%, memory at (2, 0), left center by (3, 0): ink
words 80%, link at (8, 1), left center by (3, 0): ink
legend at 4 of the box from (0, 0), 1 in a row, lines of 1.5, 0.3 around
legend: expected; at the data sheet's rates
""",
    ),
    "windows": (
        lambda a: routing_figures.index_over_time([1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 9.0, 2.0], [0, 1, 2, 0]),
        """
x: end of window [s] [linear] 0.76 to 4.24
y: PoA-hat, Eq. (12) [1] [log] 0.8388 to 10.73: 1; 2; 5; 10
line (1, 1) (2, 3) (3, 9) (4, 2): grid - 0.9
line (1, 1) (4, 2): 0 o 3
line (2, 3): 4 v 3
line (3, 9): 1 s 3
words below saturation: w0 halo
words transition: w4 halo
words saturated: w1 halo
room of below saturation 0: (1, 1) (4, 2)
room of transition 4: (2, 3)
room of saturated 1: (3, 9)
""",
    ),
    "windows alike": (
        lambda a: routing_figures.index_over_time([1.0, 2.0, 3.0], [10.0, 13.0, 11.0], [0, 0, 1]),
        """
x: end of window [s] [linear] 0.84 to 3.16
y: PoA-hat, Eq. (12) [1] [log] 9.792 to 13.28: 10; 11; 12; 13
line (1, 10) (2, 13) (3, 11): grid - 0.9
line (1, 10) (2, 13): 0 o 3
line (3, 11): 4 v 3
words below saturation: w0 halo
words transition: w4 halo
room of below saturation 0: (1, 10) (2, 13)
room of transition 4: (3, 11)
""",
    ),
    "unknown windows": (
        lambda a: routing_figures.index_over_time([1.0, 2.0], [np.nan, np.nan], [0, 2]),
        """
x: end of window [s] [linear] -0.055 to 0.055
y: PoA-hat, Eq. (12) [1] [log] 0.8913 to 11.22: 2.5; 5; 7.5; 10
line (1, nan) (2, nan): grid - 0.9
line (1, nan): 0 o 3
line (2, nan): 1 s 3
room of below saturation 0: (1, nan)
room of saturated 1: (2, nan)
""",
    ),
    "front of a sweep": (
        lambda a: sweep_figures.pareto(SWEEP, ax=a),
        """
x: ttft_s [s] [linear] 1.375 to 4.125
y: cost_usd_per_hour [USD/h] [log] 3.548 to 49.6: 5; 10; 20
line (4, 4) (3, 8): 0 . 3 pale 0.6
line (3.5, 5) (3.75, 6) (1.5, 44): 1 . 3 pale 0.6
line (1.5, 44) (3, 8) (3.5, 5) (4, 4): ink - 1.2
words tp 2: w0 halo
words tp 4: w1 halo
words Pareto front: ink halo
room of tp 2 0: (4, 4) (3, 8)
room of tp 4 1: (3.5, 5) (3.75, 6) (1.5, 44)
room of Pareto front ink: (1.5, 44) (3, 8) (3.5, 5) (4, 4), joined
""",
    ),
    "front without colours": (
        lambda a: sweep_figures.pareto(SWEEP.isel(tp=0, rate=slice(0, 1)), ax=a),
        """
x: ttft_s [s] [linear] 3.78 to 4.22
y: cost_usd_per_hour [USD/h] [linear] 3.78 to 4.22
line (4, 4): 0 . 3 pale 0.6
line (4, 4): ink - 1.2
words Pareto front: ink halo
room of unnamed: (4, 4)
room of Pareto front ink: (4, 4), joined
""",
    ),
    "map": (
        lambda a: sweep_figures.heatmap(SWEEP, ax=a),
        """
above at the right: hatched: nothing is feasible
x: rate [linear] 0 to 3, no grid: 1; 2; 4
y: tp [linear] 0 to 2, no grid: 2; 4
box (0, 0) to (1, 1): fill soft //// edge 0 layer 0
map 4 8 nan / 5 6 44: LogNorm 4 to 44 in viridis
beside it, edge soft, y: cost_usd_per_hour [USD/h] [log] 4 to 44, no grid: 5; 10; 20
""",
    ),
    "curves": (
        lambda a: sweep_figures.curves(SWEEP, ax=a),
        """
above at the right: hollow: flagged
x: rate [linear] 0.85 to 4.15
y: cost_usd_per_hour [USD/h] [log] 3.493 to 68.7: 5; 10; 20; 50
line (1, 4) (2, 8) (4, nan): 0 - 1.5 . 6
line (4, 60): 0 o 3 hollow
line (1, 5) (2, 6) (4, 44): 1 - 1.5 . 6
line nowhere: 1 o 3 hollow
words tp 2 at (1, 0.9545) of axes, left center by (3, 0): w0
words tp 4 at (1, 0.8504) of axes, left center by (3, 0): w1
""",
    ),
    "one curve": (
        lambda a: sweep_figures.curves(SWEEP.isel(tp=0), ax=a),
        """
above at the right: hollow: flagged
x: rate [linear] 0.85 to 4.15
y: cost_usd_per_hour [USD/h] [log] 3.493 to 68.7: 5; 10; 20; 50
line (1, 4) (2, 8) (4, nan): 0 - 1.5 . 6
line (4, 60): 0 o 3 hollow
""",
    ),
    "ends of spans": (
        lambda a: sweep_figures.tornado(SPANS, "cost", ax=a),
        """
above at the right: hatched: flagged
x: cost [USD/h] [linear] 69.5 to 160.5
y:  [linear] -0.48 to 3.48: osl; tp; isl; rate
line (100, 0) (100, 1): ink - 0.9
bar 100 to 100.5 at 0: 0.6 1 pale 0.9
bar 100 to 99.25 at 1: 0.6 0 pale 0.9
bar 100 to 100 at 1: 0.6 1 pale 0.9
bar 100 to 90 at 2: 0.6 0 pale 0.9
bar 100 to 120 at 2: 0.6 1 pale 0.9
bar 100 to 80 at 3: 0.6 0 pale 0.9
bar 100 to 150 at 3: 0.6 1 pale 0.9 //
words 30 at (100.5, 0), left center by (3, 0): w1
words 1 at (99.25, 1), right center by (-3, 0): w0
words 8 at (100, 1), left center by (3, 0): w1
words 1 at (90, 2), right center by (-3, 0): w0
words 3 at (120, 2), left center by (3, 0): w1
words 0.5 at (80, 3), right center by (-3, 0): w0
words 2 at (150, 3), left center by (3, 0): w1
""",
    ),
}


@pytest.mark.parametrize("name", PICTURES)
def test_all_that_a_picture_shows(name, monkeypatch):
    draw, seen = PICTURES[name]
    axes, rooms = style.panel(*style.ALONE), []
    told = lambda axes, groups: rooms.extend(map(room, groups)) or naming.name_groups(axes, groups)
    for module in (plan_figures, routing_figures, sweep_figures):
        monkeypatch.setattr(module, "name_groups", told)
    drawn = draw(axes) or axes
    assert drawn is axes or "windows" in name  # which have a picture of their own
    assert [*looks(drawn), *rooms] == seen.strip().splitlines()


def titles(made):
    """From left to right and from top to bottom."""
    return [axes.get_title() for axes in sorted(made.axes, key=lambda axes: (-round(axes.bbox.y0), axes.bbox.x0))]


def test_sheets_hold_their_pictures_in_turn():
    made = split_figures.figure(SPLIT)
    assert titles(made) == ["Requests that miss their SLO", "Planners in a burst of arrivals"]
    assert made.get_size_inches().tolist() == [12.0, 4.1]
    made = place_figures.figure(ALONE)
    kinds = ["Hit rate by policy", "Time to the first token (marks: as it is; no queue)"]
    kinds += ["Prefill computed again because of evictions", "What storing a block used once costs others"]
    assert titles(made) == [*kinds, "Which blocks HBM takes"] and made.get_size_inches() == pytest.approx([12.0, 12.3])
    assert [draw.__name__ for draw in place_figures.drawings(PLACE)][5:] == ["shared", "pooled"]
    axes = style.panel()
    place_figures.shared(ALONE, axes)
    assert not axes.has_data()
    for rows, high in ((1, 1.72), (2, 2.14)):
        made = step_figures.figure(Record(operators=OPERATORS[:rows]))
        assert titles(made) == ["A mean step"] and made.get_size_inches() == pytest.approx([7.0, high])


@pytest.mark.parametrize(
    ("ends", "ticks"),
    [
        ((10.0, 75.0), "20 40 60"),
        ((10.0, 85.0), "10 20 50"),
        ((1000.0, 98_000.0), "1,000 2,000 5,000 10,000 20,000 50,000"),
        ((100.0, 10_050.0), "100 1,000 10,000"),
    ],
)
def test_sizes_over_two_decades_are_told_by_decades_and_over_a_factor_of_eight_by_twos_and_fives(ends, ticks):
    axes = style.panel()
    axes.set(xscale="log", xlim=ends)
    place_figures._decades(axes)
    named = zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
    assert [text.get_text() for tick, text in named if ends[0] <= tick <= ends[1]] == ticks.split()


def test_policies_have_names_of_their_own():
    """All that the router knows, and no other, from the simplest to the one that looks at most."""
    axes, names = style.panel(), [policy.name for policy in POLICIES]
    rows = [Record(policy=name, ttft_mean_s=2.0, ttft_se_s=0.1, transfer_mean_s=0.9) for name in names]
    transfer_figures.policies(rows, axes)
    netkv = ["NetKV: tiers", "NetKV: + in flight", "NetKV: + congestion"]
    shown = ["round robin", "load", "freeness (Llumnix)", "cache", "cache + load (CLA*)", *netkv]
    assert [label.get_text() for label in axes.get_yticklabels()] == shown
    assert transfer_figures.NAMES.keys() == set(names)


def test_memory_as_it_is_is_marked_from_the_smallest_size_on():
    for size, marked in ((9.0, False), (10.0, True)):
        axes = style.panel()
        place_figures.shared(Record(sharing=Record(**vars(PLACE.sharing) | {"size_blocks": size})), axes)
        assert ("HBM\nas it is" in [text.get_text() for text in axes.texts]) == marked


@pytest.mark.parametrize(
    ("ttft", "itl", "shown"),
    [
        ((8, 20), (1, 12), (6, 14)),  # some are in time from 8 to 12, and half as far beside
        ((8, 20), (1, 8), (1, 20)),  # at one split only: all
        ((8, 20), (1, 9), (8, 9)),
        ((1, 20), (1, 20), (1, 20)),
    ],
)
def test_splits_around_those_that_serve_some(ttft, itl, shown):
    """Of 20; where 99 of 100 are late, next to none is served."""
    x = np.arange(1.0, 21.0)
    late = [np.where((x >= low) & (x <= high), 0.989, 0.99) for low, high in (ttft, itl)]
    seen = split_figures._around_serving(Record(prefill_gpus=x, ttft_frac=late[0], itl_frac=late[1]))
    assert seen.dtype == bool and x[seen].tolist() == list(range(shown[0], shown[1] + 1))


def test_colours_tell_the_shortest_axis_of_two_to_eight_values():
    dims = {"a": 3, "b": 2, "c": 9, "d": 1, "e": 8}
    ds = xr.Dataset(
        {"flags": (tuple(dims), np.zeros(tuple(dims.values()), int))}, {k: np.arange(n) for k, n in dims.items()}
    )
    assert sweep_figures._short_axis(ds) == "b" and sweep_figures._short_axis(ds, besides="b") == "a"
    assert sweep_figures._short_axis(ds.isel(a=0, b=0)) == "e"
    assert sweep_figures._short_axis(ds.isel(a=0, b=0, e=0)) is None
