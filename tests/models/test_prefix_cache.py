"""A block's bytes, what a hit spares, and a chain of exclusive tiers that is one LRU stack."""

from __future__ import annotations

from collections import OrderedDict

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels import Parallel, catalog
from dmodels.models.cache import access_s, block_bytes, prefill_flop, remaining_prefill_s, stack_distances, tier_fracs
from dmodels.models.latency import prefill_s

BYTES = [  # model, tp, bytes per token over all GPUs
    ("llama-3.1-70b", 1, 327_680),
    ("llama-3.1-70b", 8, 327_680),
    ("llama-3.1-70b", 16, 655_360),  # 8 KV heads on 16 GPUs: each twice
    ("qwen3-235b-a22b", 4, 192_512),
    ("qwen3-235b-a22b", 8, 385_024),
    ("deepseek-v3", 1, 70_272),
    ("deepseek-v3", 8, 8 * 70_272),  # the latent on every rank
]


@pytest.mark.parametrize(("name", "tp", "per_token"), BYTES)
def test_a_block_of_512_tokens(name, tp, per_token):
    assert float(block_bytes(catalog.model(name), 512.0, float(tp))) == 512 * per_token


def test_sliding_layers_keep_at_most_their_window():
    model = catalog.model("gpt-oss-120b")  # 18 full and 18 sliding layers of 128 tokens, 2,048 B per token and layer
    assert float(block_bytes(model, 512.0)) == 18 * 2_048 * (512 + 128)


def test_prefill_in_two_parts_costs_what_it_costs_whole():
    for name in ("llama-3.1-70b", "qwen3-235b-a22b", "deepseek-v3"):
        model = catalog.model(name)
        flop = jax.jit(lambda n, c, model=model: prefill_flop(model, n, c))
        assert float(flop(3_000.0, 0.0) + flop(5_000.0, 3_000.0)) == pytest.approx(float(flop(8_000.0, 0.0)), rel=1e-12)
    llama = catalog.model("llama-3.1-70b")
    # 2 x (70.55 - 2 x 1.05) B parameters x 512 tokens, and 80 x 64 x 4 x 128 x 256 of attention
    assert float(prefill_flop(llama, 512.0, 0.0)) == pytest.approx(512 * (2 * 68.45e9 + 6.71e8), rel=2e-4)


def test_an_empty_cache_spares_nothing():
    model, gpu, parallel = catalog.model("llama-3.1-70b"), catalog.gpu("h100_sxm"), Parallel(tp=4)
    whole = float(prefill_s(model, gpu, parallel, 8_192.0))
    assert float(remaining_prefill_s(model, gpu, parallel, 8_192.0, 0.0)) == whole
    assert float(remaining_prefill_s(model, gpu, parallel, 4_096.0, 4_096.0)) < whole


def chain(stream, sizes):
    """Tier (from 0; -1: miss) of each access: exclusive LRU caches, what one evicts goes to the head of the next."""
    tiers, found = [OrderedDict() for _ in sizes], []
    for block in stream:
        at = next((k for k, tier in enumerate(tiers) if block in tier), -1)
        found.append(at)
        if at >= 0:
            del tiers[at][block]
        for tier, size in zip(tiers, sizes, strict=True):
            tier[block] = None
            if len(tier) <= size:
                break
            block, _ = tier.popitem(last=False)
    return found


@given(st.lists(st.integers(0, 9), max_size=60), st.lists(st.integers(0, 4), min_size=3, max_size=3))
def test_a_chain_of_exclusive_tiers_is_one_stack(stream, sizes):
    distances = stack_distances(np.array(stream, np.int64))
    tier = np.searchsorted(np.cumsum(sizes), distances, side="left")
    assert np.where(tier < 3, tier, -1).tolist() == chain(stream, sizes)


def test_latency_is_the_mean_over_accesses():
    frac = tier_fracs(np.array([[0.25, 0.25, 0.75], [0.0, 0.0, 0.0]]))
    np.testing.assert_allclose(frac, [[0.25, 0.0, 0.5], [0, 0, 0]])
    np.testing.assert_allclose(access_s(frac, np.array([[1.0, 5.0, 9.0]]), 40.0), [0.25 + 4.5 + 10, 40.0])
