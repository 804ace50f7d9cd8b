"""Records, flags and numerical habits."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmodels import Workload, catalog
from dmodels.core.errors import InputError
from dmodels.core.flags import MEANINGS, Flag, describe, flag_nonfinite, flag_where, usable
from dmodels.core.hardware import GPU, SLO, Parallel
from dmodels.core.lengths import TotalsCdf
from dmodels.core.model import Model
from dmodels.core.numerics import safe_divide
from dmodels.core.records import Record, float64, quantity, stack


class Pair(Record):
    """Two numbers."""

    a_s: float = quantity()
    b_s: float = quantity(2.0)


def test_leaves_are_float64_on_the_host_whatever_came_in():
    for value in (1, 1.0, np.float32(1), [1, 2], np.arange(3), True):
        assert Pair(value).a_s.dtype == np.float64


def test_64k_tokens_of_llama_70b_do_not_wrap_to_zero():
    """5 * 2**32 bytes as int32 is exactly 0."""
    bytes_per_token, tokens = Pair(327680), 65536
    assert float(bytes_per_token.a_s * tokens) == 5 * 2**32


def test_records_are_frozen_pytrees():
    pair = Pair(1.0)
    with pytest.raises((AttributeError, TypeError)):
        pair.a_s = 2.0
    assert len(jax.tree.leaves(pair)) == 2
    assert float(jax.jit(lambda p: p.a_s + p.b_s)(pair)) == 3.0
    assert float(jax.grad(lambda p: p.a_s * p.b_s)(Pair(3.0, 4.0)).a_s) == 4.0


def test_a_catalogue_is_a_batched_record():
    both = stack(Pair(1.0), Pair(3.0, 4.0))
    assert both.shape == (2,)
    assert float(both[1].b_s) == 4.0
    assert both.replace(a_s=[5.0, 6.0]).a_s.tolist() == [5.0, 6.0]


def test_new_numbers_do_not_recompile():
    @jax.jit
    @eqx.debug.assert_max_traces(max_traces=1)
    def total(pair):
        return pair.a_s + pair.b_s

    for i in range(4):
        assert float(total(Pair(float(i)))) == i + 2.0


def test_float64_is_scoped():
    with jax.enable_x64(False):
        assert jnp.ones(()).dtype == jnp.float32
        assert float64(lambda: jnp.ones(()).dtype)() == jnp.float64
        assert jnp.ones(()).dtype == jnp.float32


def test_importing_dmodels_imports_no_jax():
    code = "import sys, dmodels; assert 'jax' not in sys.modules, 'jax'; assert 'numpy' not in sys.modules, 'numpy'"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_resolve():
    import dmodels

    for name in dmodels.__all__:
        assert getattr(dmodels, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = dmodels.nonsense


def test_flags_are_one_bit_each_with_a_meaning():
    named = list(Flag.__members__.values())  # iterating over Flag leaves out what shares bits with others
    assert sorted(named) == [1 << k for k in range(len(named))]
    assert set(MEANINGS) == set(named)
    assert describe(Flag.NO_FIT | Flag.OVERLOAD) == "does not fit in memory; arrivals exceed capacity"
    assert describe(0) == "ok"
    subjects = ["memory", "capacity", "SLO", "domain", "converge", "finite", "constraints", "uniqueness"]
    for flag, subject in zip(named, [*subjects, "outside the range", "convexity"], strict=True):
        assert [one for one in named if subject in MEANINGS[one]] == [flag]


def test_flags_join_and_warnings_leave_a_point_usable():
    mask = flag_where(jnp.array([True, False]), Flag.SLO_MISS) | flag_nonfinite(jnp.array([1.0, jnp.nan]))
    assert mask.tolist() == [Flag.SLO_MISS, Flag.NONFINITE]
    assert usable(np.array([0, int(Flag.EXTRAPOLATED), int(Flag.NO_FIT)])).tolist() == [True, True, False]


def test_division_by_zero_has_a_finite_gradient():
    assert float(safe_divide(1.0, jnp.array(0.0))) == np.inf
    assert np.isfinite(jax.grad(lambda d: safe_divide(1.0, d, 0.0))(0.0))


def test_a_gpu_states_its_links_in_one_direction():
    assert all("oneway" in name for name in GPU.__dataclass_fields__ if "nvlink" in name or "nic" in name)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Parallel(tp=0), "Parallel tp = 0: accepted are numbers at least 1"),
        (lambda: Parallel(1, -2), "Parallel pp = -2: accepted are numbers at least 1"),
        (lambda: SLO(-1), "SLO ttft_s = -1: accepted are numbers above 0"),
        (lambda: SLO(tpot_s=float("nan")), "SLO tpot_s = nan: accepted are numbers above 0"),
        (lambda: SLO(percentile=99), "SLO percentile = 99: accepted are numbers above 0 and below 1"),
    ],
)
def test_a_number_that_no_one_can_mean_is_refused_by_name(make, said):
    with pytest.raises(InputError, match=f"^{said}$"):
        make()


def test_in_a_batch_a_bad_point_is_left_to_the_flags():
    assert Parallel(tp=[0.0, 8.0]).gpus.tolist() == [0.0, 8.0]


def test_a_record_that_float64_code_closed_over_serves_float32_code():
    """JAX keeps arrays without axes by identity: one from a program in float64 would reach one in float32."""
    gpu = catalog.gpu("h100_sxm")
    program = jax.jit(lambda n: jnp.minimum(gpu.memory_bytes, n))
    with jax.enable_x64(True):
        assert program(2.0**40).dtype == jnp.minimum(gpu.memory_bytes, 2.0).dtype == np.float64
    with jax.enable_x64(False):
        assert program(2.0**40).dtype == jnp.minimum(gpu.memory_bytes, 2.0).dtype == np.float32


def test_no_more_of_a_prompt_is_cached_than_there_is():
    told = lambda cached: Workload([100.0, 400.0], [5.0, 5.0], [0.5, 0.5], [100.0, cached], rate_rps=1.0)
    assert told(400.0).prefill_tokens.tolist() == [0.0, 0.0]
    with pytest.raises(InputError, match="cached_tokens exceed input_tokens"):
        told(400.5)


def test_one_number_of_cached_tokens_stands_for_all_requests():
    """In each shape that prompts have, so that batches of workloads stack."""
    for inputs in ([100.0, 400.0], [[100.0, 400.0], [200.0, 300.0], [60.0, 70.0]]):
        told = Workload(inputs, np.full_like(inputs, 5.0), np.full_like(inputs, 0.5), 50.0, rate_rps=1.0)
        assert told.cached_tokens.tolist() == np.full_like(inputs, 50.0).tolist()


def test_a_cdf_of_lengths_is_whole_edges_from_one_and_shares_that_rise_to_one():
    for upper, cumulative in (([1], [1.0]), ([1, 2], [0.0, 1.0]), ([8, 9, 40], [0.5, 0.5, 1.0])):
        assert np.array_equal(TotalsCdf(upper, cumulative, share_mean_frac=0.1).upper_tokens, upper)
    for upper in ([0, 9], [-1, 9], [9, 9], [9, 8], [8.5, 9], [8, np.inf], [8, np.nan]):
        with pytest.raises(InputError, match="upper_tokens"):
            TotalsCdf(upper, [0.5, 1.0], share_mean_frac=0.1)
    for cumulative in ([-0.1, 1.0], [0.5, 0.99], [0.5, 1.01], [1.1, 1.0], [np.nan, 1.0]):
        with pytest.raises(InputError, match="cumulative_frac"):
            TotalsCdf([8, 9], cumulative, share_mean_frac=0.1)


def test_a_record_shows_few_numbers_and_the_range_of_many():
    shown = repr(Pair([1.5, 2.0, 4.0, 8.0], [[3.0, np.nan], [7.0, 5.0]]))
    assert "a_s=[1.5, 2, 4, 8]" in shown
    assert "b_s=<2 x 2 from 3 to 7>" in shown
    assert "a_s=<5 from 1 to 9>" in repr(Pair([2.0, 1.0, 9.0, 3.0, 4.0]))
    assert "a_s=<float64 of shape (0,)>" in repr(Pair([]))  # no range of nothing


def test_a_record_is_a_table_with_a_row_for_each_place():
    """One of plain numbers; of arrays each place in turn, a number beside them in every row."""
    rows = lambda record: record.to_dataframe().to_dict("records")
    assert rows(Pair(1.5)) == [{"a_s": 1.5, "b_s": Pair(1.5).b_s}]
    assert rows(Pair([1.0, 2.0, 3.0], 7.0)) == [{"a_s": a, "b_s": 7.0} for a in (1.0, 2.0, 3.0)]
    assert rows(Pair([[1.0], [2.0]], [3.0, 4.0])) == [
        {"a_s": a, "b_s": b} for a, b in ((1.0, 3.0), (1.0, 4.0), (2.0, 3.0), (2.0, 4.0))
    ]


def test_a_layer_is_of_one_kind_and_a_bare_model_counts_nothing_unsaid():
    bare = Model(n_layers=8.0)
    counts = [field for field in dataclasses.fields(bare) if field.name.startswith(("n_active", "n_expert", "n_moe"))]
    assert len(counts) == 5
    assert all(getattr(bare, field.name) == 0.0 for field in counts)
    for kind in ("n_sliding_layers", "n_mla_layers", "n_linear_layers", "n_cacheless_layers"):
        assert Model(n_layers=8.0, **{kind: 3.0}).n_full_layers == 5.0
