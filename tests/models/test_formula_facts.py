"""Values of the closed forms that follow from what they mean, each known without them."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.workload import Workload
from dmodels.models import cost, latency, migration, pooling, saturation
from dmodels.models.latency import curves
from dmodels.models.latency import laws as latency_laws
from dmodels.models.memory import kv, precision, weights
from dmodels.models.multiplexing import multiplexed_savings, servers_count
from dmodels.models.router import choice_probabilities, choose, paper_omega_s
from dmodels.models.traffic import burstiness, requests_between
from dmodels.models.transfer import paths as transfer_paths
from dmodels.models.transfer import staleness

pytestmark = pytest.mark.usefixtures("op_by_op")


def test_a_stable_line_has_more_servers_than_load_however_long_one_may_wait():
    assert [float(servers_count(load, 1.0)) for load in (2.5, 3.0, 3.5)] == [3.0, 4.0, 4.0]


def test_two_servers_at_load_one_make_a_third_wait():
    """C(2, 1) = 1/3 exactly: allowed a third, two are enough; at load 0.3 one of one server is busy too often."""
    assert float(servers_count(1.0, 1.0 / 3.0)) == 2.0
    assert float(servers_count(1.0, 0.3333)) == 3.0
    assert [float(servers_count(0.3, p)) for p in (0.1, 0.3)] == [2.0, 1.0]


def test_nothing_to_serve_is_nothing_saved():
    assert float(multiplexed_savings(0.5, 2.0, 0.0)) == 0.0


def test_a_pool_that_gets_half_the_requests_must_serve_some():
    assert int(pooling.savings(0.5, 1.0, 0.0, 1.0).flags) != 0 != int(pooling.savings(0.5, 1.0, 1.0, 0.0).flags)
    assert int(pooling.savings(0.0, 1.0, 0.0, 1.0).flags) == 0 == int(pooling.savings(1.0, 1.0, 1.0, 0.0).flags)


def test_one_kv_head_is_held_by_every_gpu():
    """Multi-query attention: nothing to split."""
    assert [float(kv.heads_per_gpu(1.0, tp)) for tp in (1.0, 8.0)] == [1.0, 1.0]


def test_one_head_of_a_linear_layer_is_held_whole():
    model = Model(10, 8, 64, n_linear_layers=10, linear_state_bytes=8.0, n_linear_heads=1.0)
    assert [float(kv.state_bytes(model, tp)) for tp in (1.0, 4.0)] == [80.0, 80.0]


def test_a_window_and_a_whole_chunk_and_the_block_in_which_it_starts():
    """Window 18, chunks of 16, blocks of 16: 33 tokens may be needed at once, in three blocks and one begun before."""
    model = Model(1, 0, 0, n_sliding_layers=1, sliding_window_tokens=18, sliding_kv_heads=1, sliding_head_dim=1)
    assert float(kv.kv_reserved_bytes(model, 1000.0, 1.0, 16.0, 16.0)) == 64 * 4


def test_two_stages_hold_half_of_what_layers_hold():
    model = Model(10, 8, 64, attention_params=100.0, replicated_params=60.0, dense_params=40.0)
    half = kv.stage(model, 2.0)
    assert (float(half.attention_params), float(half.replicated_params), float(half.dense_params)) == (50, 30, 20)


def test_a_stated_latent_is_taken_as_it_is():
    model = Model(1, n_mla_layers=1, kv_lora_rank=512, qk_rope_head_dim=64, latent_bytes_per_token=0.5)
    assert float(kv.mla_layer_bytes(model)) == 0.5


def test_who_sends_nothing_and_starts_ahead_is_first_whatever_is_read():
    """No payload, half a second ahead of one second of transfer."""
    assert math.isinf(float(staleness.cost_staleness_tolerance(0.0, 1.0, 0.5, 0.5, 0.0, 0.5)))


def test_a_line_beside_a_pole_stays_a_line():
    """f = n + 1 and f = 1/(4 - n), one worker each: the first is finite for every number of requests."""
    both = curves.as_curve([curves.affine(1.0, 1.0), curves.LatencyCurve(0.0, 0.0, 1.0, 4.0)])
    table = curves.latency_table(both, 5)
    np.testing.assert_allclose(table, [[2, 3, 4, 5, 6], [1 / 3, 1 / 2, 1, math.inf, math.inf]])
    np.testing.assert_array_equal(curves.latency_table(curves.affine(0.0, 0.0), 3), np.zeros(3))
    np.testing.assert_array_equal(curves.latency_table(curves.affine(2.0, -2.0), 3), [0.0, 2.0, 4.0])


def test_an_empty_cache_is_moved_at_once():
    moved = migration.precopy_rounds(0.0, 1e9, 5e8, 3.0)
    assert [float(x) for x in moved[:4]] == [3.0, 0.0, 0.0, 0.0]


def test_bursts_do_not_depend_on_when_the_clock_started():
    """Two, one and no arrivals in three windows of a second: mean 1, variance 2/3, peak 2; two whole windows do."""
    time = np.array([0.0, 0.5, 1.2, 3.0])
    for start in (0.0, 1e3):
        found = burstiness(start + time, 1.0)
        assert found.dispersion_count[0] == pytest.approx(2 / 3) and found.peak_to_mean_frac[0] == pytest.approx(2.0)
    both = burstiness(np.array([0.0, 0.5, 1.2, 1.9, 2.0]), [1.0, 1.1]).dispersion_count
    assert both[0] == 0.0 and np.isnan(both[1])


def test_the_busiest_window_is_compared_with_the_mean_one():
    """Three arrivals, then one, in windows of a second: 3 over 2."""
    assert burstiness(np.array([0.0, 0.1, 0.2, 1.5, 2.0]), 1.0).peak_to_mean_frac[0] == 1.5


def test_bursts_are_looked_for_over_a_second_ten_and_a_minute():
    assert burstiness(np.arange(10.0)).window_s.tolist() == [1.0, 10.0, 60.0]


def test_sparse_mla_is_smaller_in_fp8_alone():
    sparse = Model(61, index_bytes_per_token=132.0, kv_lora_rank=512, qk_rope_head_dim=64)
    stored = lambda dtype: float(precision.with_kv_dtype(sparse, dtype).latent_bytes_per_token)
    assert (stored("bf16"), stored("fp8")) == (0.0, 656.0)  # 0: by the formula, 1,152
    one = sparse.replace(index_bytes_per_token=0.5)
    assert float(precision.with_kv_dtype(one, "fp8").latent_bytes_per_token) == 656.0


def test_the_weights_in_another_format_are_counted_from_the_parameters():
    model = Model(1, attention_params=1e9)
    assert float(precision.with_weight_dtype(model, "fp8").weight_bytes) == 0.0
    assert float(precision.with_weight_dtype(model.replace(weight_bytes=5.0), "fp8").weight_bytes) == 0.0


def test_work_of_no_length_is_no_share_of_the_bill():
    assert float(cost.token_prices(3.6, 1.0, 1000.0, 1000.0, 0.0, 0.0).prefill_frac) == 0.0


def test_dynamos_weight_in_seconds():
    """Two blocks of load per missing block, ten blocks, 10 ms each: a whole miss weighs 0.2 s."""
    assert paper_omega_s(2.0, 10.0, 0.01) == pytest.approx(0.2)


def test_what_all_workers_cost_alike_does_not_matter():
    for normalized in (False, True):
        for base in (0.0, 5.0, 1e4):
            got = choice_probabilities(base + jnp.array([0.0, 0.5]), 1.0, normalized)
            assert float(got[0] / got[1]) == pytest.approx(math.exp(1.0 if normalized else 0.5))


def test_the_greedy_choice_does_not_feel_small_changes():
    slopes = jax.jacobian(lambda costs: choice_probabilities(costs, 0.0))(jnp.array([1.0, 2.0]))
    np.testing.assert_array_equal(slopes, np.zeros((2, 2)))


def test_no_draw_picks_a_worker_of_probability_nought_or_none_at_all():
    costs = jnp.array([1.0, 0.0, 2.0])
    assert [int(choose(costs, 0.0, u)) for u in (0.0, 0.5)] == [1, 1]
    assert int(choose(costs, 1.0, 1.0)) == 2  # a generator that gives 1 after rounding


def test_a_dead_hop_passes_nothing_on():
    rates = jnp.array([10.0, 0.0])
    assert [float(transfer_paths.staged_transfer_s(100.0, rates, 0.0, c)) for c in (math.inf, 10.0)] == [math.inf] * 2


def test_half_a_request_below_the_pole_the_singular_term_is_doubled():
    assert float(latency_laws.singular_latency_s(3.5, curves.LatencyCurve(0.0, 1.0, 1.0, 4.0))) == 3.0


def test_a_chord_over_one_and_two_requests_is_exact_at_both():
    model, gpu = Model(32, 8, 128, hidden_size=4096, dense_params=8e9), GPU(8e10, 2e12, 3e14)
    law = latency_laws.linear_law(model, gpu, Parallel(1.0), 1000.0, n_max=2.0)
    for n in (1.0, 2.0):
        expected = latency.decode_step_s(model, gpu, Parallel(1.0), n, 1000.0)
        assert float(law.w_s + law.h_s * n) == pytest.approx(float(expected), rel=1e-12)


def test_a_table_ends_at_its_pole_and_rises_before_it():
    """d = 1, n_sat = 3.5: half a request of room at 3."""
    table = curves.latency_table(curves.LatencyCurve(0.0, 0.0, 1.0, 3.5), 4)
    np.testing.assert_allclose(table, [1 / 2.5, 1 / 1.5, 2.0, math.inf])


def test_a_sweep_that_reaches_its_allowance_is_still_on_the_line():
    assert math.isinf(saturation.knee([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 2.0], tolerance=0.5).ceiling_rps)
    at = saturation.knee([1.0, 2.0, 3.0, 4.0], [0.5, 2.0, 3.0, 4.0])  # the first point lies below the line of three
    assert (at.after, at.upto) == (0.0, 1.0)


def test_pools_that_saturate_together_name_prefill():
    assert [int(saturation.binding_pool(p, 2.0)[1]) for p in (1.0, 2.0, 3.0)] == [0, 0, 1]


def test_a_pool_sees_its_own_requests_alone():
    """Totals of 4 and 12; a third of 99 tokens that never comes."""
    load = Workload([1.0, 1.0, 90.0], [3.0, 11.0, 9.0], [0.5, 0.5, 0.0])
    every = requests_between(load)
    assert (every.share_frac, every.longest_tokens, every.output_tokens) == (1.0, 12.0, 7.0)
    assert every.output_scv == pytest.approx(65 / 49 - 1)  # E[o^2] = (9 + 121) / 2
    assert requests_between(load, 4.0, 12.0).output_tokens == 11.0 == requests_between(load, 4.0).output_tokens
    assert requests_between(load, 0.0, 4.0).output_tokens == 3.0
    assert requests_between(load, 0.0, 4.0).output_scv == 0.0
    nobody = requests_between(load, 12.0)
    assert [float(np.max(x)) for x in jax.tree.leaves(nobody.replace(gap_tokens=0.0))] == [0.0] * 12


def test_half_of_the_answers_have_one_gap():
    """Two and eleven tokens: the classes of the shorter half have 1 gap, the two of the longer 10."""
    load = Workload([1.0, 1.0, 1.0], [2.0, 11.0, 1.0], [0.4, 0.4, 0.2])
    assert requests_between(load).gap_tokens.tolist() == [1.0] * 8 + [10.0] * 2


def test_a_stated_total_scales_the_components():
    model = Model(10, 8, 64, weight_bytes=300.0, attention_params=50.0, dense_params=50.0)
    assert float(weights.weight_bytes_per_gpu(model).total_bytes) == pytest.approx(300.0)


def test_a_stated_total_without_components_is_split_evenly():
    """Nothing is known of its heads, so that none are held twice; 8 of them over 16 GPUs would be."""
    model = Model(10, 8, 64, hidden_size=1000, weight_bytes=1e9)
    assert float(weights.weight_bytes_per_gpu(model, Parallel(16.0)).total_bytes) == 1e9 / 16


def test_activations_of_a_model_whose_heads_are_widest():
    """A token: three hidden states, 32 + 2 x 8 heads of 128; a sequence: logits of 1,000 words in 2 + 4 bytes."""
    model = Model(1, 8, 128, hidden_size=4096, n_q_heads=32, vocab_size=1000)
    expected = 2 * 100 * (3 * 4096 + 48 * 128) + 6 * 10 * 1000
    assert float(weights.activation_bytes(model, 1.0, 100.0, 10.0)) == expected
    wide = model.replace(ffn_size=14336)  # its block with gate and product, over two GPUs
    assert float(weights.activation_bytes(wide, 2.0, 100.0, 0.0)) == 2 * 100 * (3 * 4096 + 3 * 14336 / 2)


def test_the_one_threshold_that_parts_two_lengths_is_found():
    """Four blocks of a token: one slot of 4 tokens, or two of 2. Half of the requests have 2 tokens, half 4."""
    engine = pooling.SlotEngine(blocks_count=4.0, block_tokens=1.0)
    found = pooling.best_thresholds(Workload([1.0, 3.0], [1.0, 1.0], [0.5, 0.5]), 2, 4.0, engine)
    assert found.threshold_tokens.tolist() == [2.0, 4.0] and found.work_frac.tolist() == [0.5, 0.5]
