"""Numbers that the guide and docstrings state: how far studies look, and what they take for enough."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from dmodels.studies import pools, router_costs, split, step
from dmodels.studies.place import buy
from dmodels.studies.place import study as placement
from dmodels.studies.plan import (
    calibration,
    designs,
    ensure,
    evaluate,
    existing,
    fleets,
    launch,
    machines,
    margins,
    reach,
    regions,
    rejections,
    replaying,
    reverse,
    risks,
    robust,
    search,
    sizing,
    solve,
    stretches,
    tail,
)
from dmodels.studies.plan.designs import Kind
from dmodels.studies.plan.suggestions import _CHUNKS, _WORTH_FRAC
from dmodels.studies.servers import comparison, playing, priorities
from dmodels.studies.size import LONGEST_TOKENS
from dmodels.studies.transfer import policies


def test_the_margin_for_other_days_is_a_tenth_to_a_fifth():
    """Halves, quarters and four resamples of four stretches are other days (docs/explanation/plan-search.md)."""
    assert ensure.MARGINS == (0.1, 0.15, 0.2)
    assert (ensure.PARTS, ensure.RESAMPLES, ensure.BLOCKS) == ((2, 4), 4, 4)
    assert (stretches.QUARTERS, stretches.HURST, stretches.LEAST, stretches.MOST) == (4, 0.8, 2.25, 8.0)
    assert stretches.REACH == pytest.approx(2.52, abs=5e-3)
    assert solve._LESS == 0.6 and solve._CANDIDATES == {Kind.ONE_POOL: 3, Kind.TWO_POOLS: 2, Kind.SPLIT: 2}


def test_what_the_model_knows_and_what_is_assumed():
    assert calibration.BACKENDS == ("vllm", "sglang", "trtllm")
    assert calibration.ASSUMED == {"tpot": (0.6, 1.7), "ttft": (0.5, 2.5)}
    assert calibration.SHARED_FRAC == {"deployment": 0.1, "known": 0.1, "pair": 0.35, "model": 0.55}
    assert norm.cdf(robust._UPPER) == pytest.approx(0.9, abs=1e-5) and robust.MOST_PREMIUM == 0.25
    assert (margins.MOST_SURE, len(margins.LEVELS)) == (0.975, 20) and np.allclose(np.diff(margins.LEVELS), 0.025)
    assert (reach.MEAN_FRAC, reach.PERCENTILE_FRAC, reach._SAMPLED) == (0.10, 0.15, 0.75)
    assert reach.CHUNK_TOKENS == (256.0, 16384.0) and reach._BURSTY == 2.0


def test_how_close_to_its_limits_a_plan_looks():
    """A pool from one to twelve times what keeps up, its rate from the planned one to 2.22 times, a threshold at each
    power of two and half as much again, a budget of a step at half, twice and a quarter of 8,192 tokens."""
    grown = search.GROWTH
    assert (grown[0], grown[-1], len(grown)) == (1.0, 2.22, 62)
    assert sizing._THRESHOLDS[:4] == [128.0, 192.0, 256.0, 384.0] and sizing._THRESHOLDS[-2:] == [524288.0, 786432.0]
    assert len(sizing._THRESHOLDS) == 26 and _CHUNKS == (2048.0, 4096.0, 16384.0)
    assert designs.TTFT_SHARES == (0.5, 0.7, 0.85, 0.95) and tail._SHARES == (0.01, 0.02, 0.05, 0.1)
    assert (_WORTH_FRAC, pools._WORTH_FRAC, regions._LOST) == (0.05, 1e-3, 2e-3)
    assert (evaluate.MOST, evaluate.ROWS, evaluate.COLUMNS) == (4_194_304, 1024, 64)
    assert (machines.SAMPLE, reach._COUNT) == (100_000, 100_000)
    assert (rejections.LOADED, rejections.GPU_BUDGET, rejections.MONEY) == (1.01, "GPU budget", "money")
    assert (replaying._WINDOW_S, replaying._BATCHES, launch.MEMORY_FRAC) == (60.0, 20, 0.9)
    assert reverse.TARGETS == ("rate", "ttft", "tpot", "e2e") and reverse._REACH == 1e6
    assert (reverse._CLOSE, reverse._CLOSE_OF_PLANS) == (1e-3, 0.02)
    assert (fleets._SIZES[0], fleets._SIZES[-1], len(fleets._SIZES)) == (1.0, pytest.approx(12.0), 63)
    assert (existing._GROWTHS[0], existing._GROWTHS[-1], len(existing._GROWTHS)) == pytest.approx((1e-3, 1e3, 31))
    loads = risks._LOADS
    assert (loads[0], loads[47], loads[48], loads[-1], len(loads)) == (0.02, 0.9, 0.905, 0.999, 64)
    assert risks.BURSTS == (1.1, 1.25, 1.5, 2.0) and risks._HEAVY == 0.99


def test_how_much_other_studies_look_at():
    assert (placement.SIZES, placement.REPLAYED, buy._GRID) == (64, 16, 48)
    assert (comparison._EXPLAINED, playing._LONGEST_TOKENS, LONGEST_TOKENS) == (2_000, 32_768, 4_194_304)
    assert (priorities._MOST_REQUESTS, priorities._LAYOUTS, priorities._FURTHEST) == (20_000, 3, 4)
    assert (router_costs._SEARCH_S, router_costs._MOST_BOXES) == (10.0, 200_000)
    most = router_costs._MOST_IN_USE, router_costs._MOST_WORKERS, router_costs._MOST_REQUESTS
    assert most == (4_000, 10_000, 1_000_000_000)
    assert (split.CALM, split.BURST, split.AFTER, split.COUNTS) == (20, 20, 60, 1024) and step.NEGLIGIBLE == 1e-5
    assert (policies.WARMUP_S, policies.MEASURE_S) == (5.0, 15.0) and policies.CACHE_WEIGHTS == (
        0.1,
        0.3,
        0.5,
        0.7,
        0.9,
    )
