"""Answers with numbers of their own, small enough to be drawn and read off by hand."""

from __future__ import annotations

from types import SimpleNamespace as Record

import numpy as np

from dmodels.studies.plan import Stretch

BLOCKS = np.array([10.0, 100.0, 1000.0, 10_000.0])

PLACE = Record(
    use=Record(ceiling_frac=0.55, warm_frac=0.45),
    curves=Record(
        blocks=BLOCKS,
        belady_frac=np.array([0.2, 0.3, 0.4, 0.5]),
        lru_frac=np.array([0.1, 0.2, 0.3, 0.45]),
        shuffled_frac=np.array([0.05, 0.1, 0.2, 0.3]),
        replayed_blocks=BLOCKS[::2],
        kvbm_frac=np.array([0.12, 0.32]),
        lfu_frac=np.array([0.11, 0.28]),
        lost_gpu_s=np.array([1e-3, 2e-3, 3e-3, 1e-3]),
        recomputed_flop=np.array([9e12, 7e12, 5e12, 2e12]),
    ),
    first_token_s=0.4,
    tiers=[
        Record(tier="HBM", blocks_count=1.0, size_gib=3.0),
        Record(tier="DRAM", blocks_count=0.0, size_gib=0.0),
    ],
    vary=[
        Record(tier="HBM", bytes_=np.array([0.0, 1.0, 2.0]) * 2**30, first_token_s=np.array([0.6, 0.5, 0.45])),
        Record(tier="DRAM", bytes_=np.array([1.0, 4.0]) * 2**30, first_token_s=np.array([0.45, 0.35])),
    ],
    promotion=Record(
        threshold=np.array([0.5, 1.0, 2.0]), access_s=np.array([2e-3, 1.5e-3, 1.8e-3]), bound_gain_frac=0.3
    ),
    sharing=Record(
        workers=4,
        blocks=BLOCKS,
        size_blocks=50.0,
        hit_frac=np.array([[0.1, 0.2, 0.3, 0.4], [0.05, 0.1, 0.2, 0.3], [0.08, 0.15, 0.25, 0.35]]),
        layouts=[Record(name=name) for name in ("one pool", "in turn", "kept together")],
    ),
    pooled=[
        Record(name="in turn", isolated_s=5e-3, selfish_s=4e-3, coordinated_s=3e-3, bound_s=2.5e-3),
        Record(name="kept together", isolated_s=2e-3, selfish_s=1.8e-3, coordinated_s=1.7e-3, bound_s=1.6e-3),
    ],
)

ALONE = Record(**vars(PLACE) | {"sharing": None, "pooled": []})


def policy(name, ttft, sent, **more):
    return Record(policy=name, ttft_mean_s=ttft, ttft_se_s=0.1, transfer_mean_s=sent, **more)


def course(prefill):
    return Record(prefill_instances=np.array(prefill))


SPLIT = Record(
    prefill_gpus=np.array([4.0, 8.0, 12.0]),
    ttft_frac=np.array([0.5, 1e-3, 0.0]),
    itl_frac=np.array([0.0, 1e-4, 0.2]),
    game=Record(budget_gpus=16.0),
    optimum=Record(value=Record(prefill_gpus=7.5)),
    equilibrium=Record(value=Record(prefill_gpus=9.25)),
    whole=Record(value=Record(prefill_gpus=8.0, cost=0.1)),
    courses={
        "static": course([2, 2, 2]),
        "sla": course([2, 3, 4]),
        "slow": course([3, 3, 3]),
        "late": course([4, 4, 2]),
    },
    scores={n: Record(violation_frac=f) for n, f in (("static", 0.25), ("sla", 0.5), ("slow", 0.75), ("late", 1.0))},
    arrival_rps=np.array([10.0, 20.0, 15.0]),
)


def use_of(name, gpu, **parts):
    layout = Record(gpu=gpu, degrees="tp4")
    gib = {part.replace("_", " "): size * 2**30 for part, size in parts.items()}
    return Record(parts=gib, gpu_bytes=80 * 2**30, pool=Record(stage=Record(name=name), layout=layout))


def pool_of(role, ttft, tpot):
    return Record(stage=Record(role=role), confidence=Record(ttft=ttft, tpot=tpot))


def fleets():
    """Five one-pool fleets of two GPU types: one too slow, one that cannot serve, one beyond the picture."""
    gpu = np.array(["a", "a", "a", "b", "b"])
    one = {
        "usd_per_hour": np.array([10.0, 20.0, 12.0, 30.0, 1000.0]),
        "ttft_s": np.array([1.5, 0.5, 2.2, 1.0, 0.2]),
        "usable": np.array([True, True, True, True, True]),
        "meets": np.array([True, True, False, True, True]),
        "user_tokens_per_s": np.array([20.0, 40.0, 25.0, 50.0, 60.0]),
        "gpu_tokens_per_s": np.array([500.0, 300.0, 450.0, 200.0, 100.0]),
        "throughput_front": np.array([0, 1, 3, 4]),
    }
    layouts = [Record(gpu=name) for name in gpu]
    front = Record(usd_per_hour=np.array([10.0, 20.0, 500.0]), ttft_s=np.array([1.5, 0.5, 0.1]))
    best = Record(ttft_s=1.5, usd_per_hour=10.0, name="one pool", kind="one pool")
    slo = Record(ttft_s=2.0, tpot_s=0.04, percentile=0.99)
    return Record(
        fleets=Record(one_pool=one, front=front, fronts={"two pools": front}),
        priced=Record(layouts=layouts),
        question=Record(slo=slo, gpus={"a": None, "b": None}),
        best=best,
        kinds=[best, Record(ttft_s=1.2, usd_per_hour=15.0, name="two pools", kind="two pools")],
        by_gpu=[],
    )


def load_of(**more):
    x = np.linspace(0.1, 0.9, 9)
    known = {"load_frac": x, "ttft_s": 1.0 + x, "tpot_s": 0.02 + 0.01 * x, "in_flight_count": 100 * x}
    known |= {"ttft_bound_s": 2.0, "tpot_bound_s": 0.05, "operating_frac": 0.5, "knee_frac": 0.7}
    return Record(**known | {"pool": Record(stage=Record(role="serve"))} | more)


CHANGES = [Record(what="rate", factor=f, usd_per_hour=u) for f, u in ((0.8, 80.0), (1.2, 130.0))]

FLEET = Record(ttft_s=1.0, tpot_s=0.04, e2e_s=8.0, usd_per_hour=20.0, gpus=8, gpus_low=6, gpus_high=12)

PROMISED = Record(
    best=Record(**vars(FLEET) | {"pools": [pool_of("serve", (0.7, 1.2), (0.8, 1.3))]}),
    question=Record(slo=Record(ttft_s=2.0, tpot_s=0.05, e2e_s=np.inf, percentile=0.99)),
)

SHARES = [Record(tier=1, context_tokens=c, share_frac=0.2, pipelined_share_frac=0.1) for c in (4096, 8192)]

PARTS = [Record(name="attention", seconds=2e-3, roofline_frac=0.5, share_frac=1.0, binds="memory")]

SLO = Record(percentile=0.99, ttft_s=2.0, tpot_s=0.05, e2e_s=np.inf)


def asked(**more):
    known = {"slo": SLO, "trace": None, "size_for": Stretch.TRACE, "margins": Record(words=""), "model_name": "m"}
    return Record(**known | {"rate_rps": 20.0, "workload": Record(arrival_cv=2.5)} | more)


def pool(name, instances=3, role="serve", **more):
    known = {"load_frac": 0.5, "request_share_frac": 0.25, "ttft_s": 0.4, "binding": "TTFT"}
    return Record(stage=Record(name=name, role=role), instances=instances, **known | more)


def row(found):
    """{head: cell} of each row of a table."""
    _, head, rows = found
    return [dict(zip(head, cells, strict=True)) for cells in rows]


def fleet(gpus, usd, name="one pool"):
    return Record(
        bought_gpus=gpus, gpus=gpus, usd_per_hour=usd, name=name, decomposition=lambda: f"{gpus} GPUs = {gpus} x 1 h100"
    )
