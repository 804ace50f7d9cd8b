r"""NK-E1. KV size and effective payload: Eqs. (1) and (2), with the sizes that the text prints.

$s = 2 n_l n_{kv} d_h b \cdot L$ and $s_{eff} = s (1 - h/L)$, h a whole number of blocks (1). The printed sizes are
binary units: 320 KiB a token, 80 KiB a shard at TP=4, 10 GiB at 32K; "approximately 40 GB" at 128K is 40.0 GiB = 42.9
GB, so its 3.2 s at 25 Gbit/s hold for 10 GB and are 3.44 s for the 10 GiB that a shard has (2). The simulator's "four
parallel GPU-to-GPU flows sharing the source NIC" leaves each shard a quarter of that NIC: four times Eq. (3) (3).

**Verdict: proved**, with GB read as GiB.
"""

import jax.numpy as jnp
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.core.model import Model
from dmodels.models.transfer import effective_bytes, fan_out_time_s, kv_cache_bytes, transfer_time_s
from proofs.claim import NETKV, Claim, Verdict

CLAIM = Claim(
    id="NK-E1",
    source=NETKV,
    where="Eqs. (1)-(3), Section I",
    says="KV size is 2 layers x KV heads x head dim x bytes per token; a prefix hit of h tokens saves the share h/L",
    verdict=Verdict.PROVED,
    error="decimal for binary units: 7.4 % on 40 GB and 3.2 s",
    means="Budget 320 KiB per token for a 70B model with 8 KV heads, before any prefix hit.",
)

LLAMA = Model(80, 8, 128)


def test_the_size_is_a_product():  # 1
    layers, heads, dim, width, tokens, hit = sp.symbols("n_l n_kv d b L h", positive=True)
    size = 2 * layers * heads * dim * width * tokens
    assert sp.expand(size * (1 - hit / tokens) - 2 * layers * heads * dim * width * (tokens - hit)) == 0
    assert size.subs({layers: 80, heads: 8, dim: 128, width: 2, tokens: 1}) == 320 * 1024


@given(tokens=st.integers(1, 200_000), hit=st.integers(0, 200_000), block=st.sampled_from([1, 16, 512]))  # 1
def test_the_code_moves_whole_blocks_only(tokens, hit, block):
    size = float(kv_cache_bytes(LLAMA, float(tokens)))
    moved = float(effective_bytes(size, float(tokens), float(hit), float(block)))
    assert moved == pytest.approx(size * (tokens - min(hit, tokens) // block * block) / tokens, rel=1e-12, abs=1e-3)


def test_printed_sizes():  # 2
    assert float(kv_cache_bytes(LLAMA, 1.0, 4.0)) == 80 * 1024
    assert float(kv_cache_bytes(LLAMA, 32768.0)) == 10 * 2**30
    assert float(kv_cache_bytes(LLAMA, 131072.0)) == 40 * 2**30 == pytest.approx(42.9e9, rel=2e-3)
    assert float(transfer_time_s(10e9, 25e9 / 8)) == pytest.approx(3.2)
    assert float(transfer_time_s(10 * 2.0**30, 25e9 / 8)) == pytest.approx(3.44, abs=5e-3)


def test_a_shared_nic_is_four_times_equation_3():  # 3
    shards = [float(fan_out_time_s(40e9, jnp.inf, 3.125e9, 3.125e9, 4.0, 4.0, 8.0, shared)) for shared in (False, True)]
    assert shards == pytest.approx([3.2, 12.8])
