"""What a left-out argument stands for: nothing added, one GPU, the setting of an engine, the constant of a paper."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

pytestmark = pytest.mark.usefixtures("op_by_op")

#: One GPU or one pool, no delay, nothing in the way: leaving the argument out leaves the effect out.
NEUTRAL = {
    "models/concurrency:concurrent_sequences": {"tp": 1, "pp": 1, "dp": 1, "ep": 1},
    "models/concurrency:footprint": {"tp": 1},
    "models/curves:iteration_time": {"iterations": 1},
    "models/energy:power_w": {"clock_frac": 1},
    "models/energy:step_s": {"clock_frac": 1},
    "models/energy:decode_joules_per_token": {"clock_frac": 1, "compute_frac": 0},
    "models/energy:best_clock_frac": {"high_frac": 1},
    "models/kv:kv_bytes_per_token": {"tp": 1},
    "models/kv:kv_bytes": {"tp": 1},
    "models/kv:kv_reserved_bytes": {"tp": 1},
    "models/kv:state_bytes": {"tp": 1},
    "models/kv:stage": {"pp": 1},
    "models/latency:iteration_s": {"prefill_tokens": 0, "prefill_context_tokens": 0},
    "models/latency:step": {"draft_tokens": 0},
    "models/latency_serving:serve": {"draft_tokens": 0},
    "models/latency_serving:serve_disaggregated": {"draft_tokens": 0},
    "models/latency_terms:kv_read_bytes": {"tp": 1},
    "models/latency_terms:decode_attention_flop": {"tp": 1},
    "models/latency_terms:prefill_attention_flop": {"tp": 1},
    "models/latency_terms:expert_hit_frac": {"spread_frac": 1},
    "models/migration:precopy": {"handover_s": 0},
    "models/migration:shared_link_bytes_per_s": {"migrations": 1},
    "models/migration:serving_slowdown": {"migrations": 1},
    "models/migration:break_even_tokens": {"base_s": 0, "fixed_s": 0},
    "models/multiplexing:multiplexing_break_even_load": {"beta": 1},
    "models/network_choice:oblivious_loss": {"near_fixed_s": 0, "far_fixed_s": 0},
    "models/pooling:kv_sequence_bytes": {"tp": 1},
    "models/pooling:savings": {"arrival_rps": 1},
    "models/prefix_cache:block_bytes": {"tp": 1},
    "models/queueing:closed_loop_knee": {"servers": 1},
    "models/requests:requests_between": {"low_tokens": 0},
    "models/router:block_costs": {"omega": 1},
    "models/staleness:tier_staleness_tolerance": {"fast_in_flight": 0, "slow_in_flight": 0},
    "models/staleness:cost_staleness_tolerance": {"fixed_s_i": 0, "fixed_s_j": 0},
    "models/staleness:same_tier_tolerance": {"fixed_s_i": 0, "fixed_s_j": 0},
    "models/transfer:kv_cache_bytes": {"tp": 1},
    "models/transfer:effective_bandwidth_bytes_per_s": {"congestion": 0, "in_flight": 0, "destination_in_flight": 0},
    "models/transfer:transfer_time_s": {"latency_s": 0},
    "models/transfer:post_prefill_latency": {"latency_s": 0, "queued": 0, "batch": 0, "reserve_bytes": 0},
    "models/weights:activation_bytes": {"tp": 1},
    "control/congestion:smoothing_forecast": {"steps": 1},
    "control/congestion:ar1_forecast": {"steps": 1},
    "control/netkv:costs": {"in_flight": 0, "reserve_bytes": 0},
    "control/netkv:choose": {"reserve_bytes": 0},
    "control/netkv:dispatch": {"reserve_bytes": 0},
    "control/phasor:update": {"done_count": 0},
    "control/phasor_flow:init": {"mixed": 0},
    "control/planner:planner": {"delay": 0, "step": 1, "least": 1},
    "control/planner:reactive": {"decode_weight": 1},
    "control/planner_stability:radius": {"delay": 0},
    "control/planner_stability:limit": {"delay": 0},
    "control/planner_stability:relay_cycle": {"delay": 0},
    "control/planner_stability:simulate": {"delay": 0},
    "control/regime:detection_samples": {"samples": 1},
    "control/regime:least_dwell_samples": {"samples": 1},
    "control/token_budget:settings": {"sigmas": 0},
    "control/token_budget_threshold:largest_gain": {"delay_windows": 0},
}
#: M/M/1, and a service of exponential length: what a queue is called without further words.
MARKOV = {
    "models/queueing:wait_mean_s": {"servers": 1, "service_scv": 1, "arrival_scv": 1},
    "models/occupancy:occupancy": {"iterations_scv": 1},
    "models/occupancy:ttft_quantile_s": {"iterations_scv": 1},
}
#: vLLM's own settings: 90 % of the memory, blocks of 16, 8,192 batched tokens, 256 sequences.
ENGINE = {
    "models/concurrency:concurrent_sequences": {
        "utilization": 0.9, "block_tokens": 16, "batched_tokens": 8192, "max_sequences": 256,
    },
    "models/concurrency:footprint": {"block_tokens": 16, "batched_tokens": 8192},
    "models/kv:kv_reserved_bytes": {"block_tokens": 16, "max_batched_tokens": 8192},
    "models/latency_serving:resident_max_count": {"memory_frac": 0.9},
    "models/transfer:effective_bytes": {"block_tokens": 16},
    "models/weights:activation_bytes": {"batched_tokens": 8192, "sequences": 256},
    "models/weights:kv_budget_bytes": {"utilization": 0.9, "batched_tokens": 8192, "sequences": 256},
    "models/weights:kv_budget_of_free_bytes": {"free_frac": 0.9, "batched_tokens": 8192, "sequences": 256},
    "models/weights:non_kv_bytes": {"batched_tokens": 8192, "sequences": 256},
}  # fmt: skip
#: The papers' constants: the detector of Section 6, Table 4 of Phasor, Eqs. (4) and (5) of token-budget routing.
PAPERS = {
    "control/regime:detector": {"theta1": 5, "theta2": 36, "margin_frac": 0.2, "alpha": 0.3, "samples": 3},
    "control/regime:detection_samples": {"alpha": 0.3},
    "control/regime:least_dwell_samples": {"alpha": 0.3},
    "control/phasor_flow:settings": {"theta": 0.62, "cool_steps": 20},
    "control/token_budget:settings": {"beta": 0.95, "gamma": 1, "cold_ratio": 4},
    "control/token_budget_bounds:bias": {"beta": 0.95},
    "control/token_budget_bounds:variance": {"beta": 0.95},
    "control/token_budget_bounds:responses_to": {"beta": 0.95},
    "control/token_budget_bounds:spread_mean": {"beta": 0.95},
    "control/token_budget_bounds:sigmas_for": {"beta": 0.95},
    "control/token_budget_bounds:least_sigma": {"beta": 0.95},
    "games/anarchy_index:calibrated_cost": {"capacity": 64},
}
#: Normal quantiles: 95 % two-sided, 99 % two-sided, three deviations; and the 99th percentile of an occupancy.
STATISTICS = {
    "control/token_budget_bounds:least_sigma": {"z": 1.96},
    "models/staleness:refresh_interval_s": {"deviations": 2.576},
    "control/regime:curvature_samples": {"z": 3},
    "models/concurrency:occupancy_bytes": {"probability": 0.99},
    "models/concurrency:sequences_by_normal": {"probability": 0.99},
    "models/concurrency:sequences_by_bernstein": {"probability": 0.99},
    "models/multiplexing:multiplexed_savings": {"wait_probability": 0.1},
}
#: Choices of this toolkit, as its documentation states them.
OURS = {
    "games/queueing:serving_game": {"prefill_weight": 1, "decode_weight": 1, "window_s": 30},
    "models/energy:best_clock_frac": {"low_frac": 0.3},
    "models/energy:energy_usd_per_hour": {"pue": 1.2},
    "models/energy:usd_per_mtoken_with_energy": {"pue": 1.2},
    "models/latency_laws:linear_law": {"n_max": 64},
    "models/occupancy:ttft_quantile_s": {"first_iterations": 2},
    "models/saturation:knee": {"tolerance": 0.1, "light": 3},
    "models/workload:compress": {"totals_count": 64, "outputs_count": 12},
    "games/routing_chain:closed_loop": {"blocks": 8, "steps": 40_000},
    "control/congestion:smoothing_update": {"gain": 0.3},
    "control/congestion:ar1_update": {"gain": 0.05},
    "control/netkv:choose": {"cache_weight": 0.5},
    "control/netkv:dispatch": {"cache_weight": 0.5},
    "control/phasor_flow:settings": {"margin": 0.1},
    "control/planner:reactive": {"dead_band_s": 0.5},
    "control/planner:anarchy_driven": {"threshold": 1.05},
    "control/planner_stability:simulate": {"steps": 4000, "start": 1},
    "control/token_budget:settings": {"step": 0.05},
    "control/token_budget_bounds:quantile_slack": {"step": 0.05},
    "control/token_budget_threshold:settings": {"target_frac": 0.01, "step": 0.5},
}
GROUPS = (NEUTRAL, MARKOV, ENGINE, PAPERS, STATISTICS, OURS)


@pytest.mark.parametrize("name", sorted({name for group in GROUPS for name in group}))
def test_what_is_left_out_stands_for(name):
    module, function = name.split(":")
    known = inspect.signature(getattr(import_module(f"dmodels.{module.replace('/', '.')}"), function)).parameters
    wanted = {argument: value for group in GROUPS for argument, value in group.get(name, {}).items()}
    assert {argument: known[argument].default for argument in wanted} == wanted
