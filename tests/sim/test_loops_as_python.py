"""What is checked of the simulators' machine code holds of the source that it is compiled from, request by request."""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator
from inspect import signature
from itertools import product
from typing import Any

import pytest

from tests.sim.as_python import as_python

MODULES = """
batching closed_loop cluster cluster_oracle disaggregated engines fleet fleet_oracle fleet_tokens hybrid network
network_oracle schedules_by_hand study
""".split()
#: What takes longer than half a second interpreted.
TOO_LONG = """
a_batching_instance_with_one_slot_does_too a_cluster_by_clockwork_measured a_law_of_a_model_is_its_step
a_run_is_measured_behind_its_first_fifth_and_the_cache_spares_prefill a_signal_that_cannot_see_the_queue_lets_it_diverge
an_md1_study_covers_pollaczek_khinchine answers_flow_away_from_a_full_decoder_and_back_before_they_are_late
cache_aware_routing_finds_more_prefixes_than_a_blind_one closed_loop_keeps_its_clients_in_flight
everyone_is_served_whatever_the_controller freeness_with_exact_remaining_work_is_a_central_queue
least_own_ttft_needs_no_weight_but_a_tuned_one_beats_it memory_is_never_overbooked
moving_sequences_makes_room_for_large_ones power_of_two_waits_between_random_and_shortest_queue
queues_diverge_only_under_a_signal_that_cannot_see_them spillover_relieves_the_short_pool the_prefill_stage_is_a_queue
who_gives_way without_chunks_on_decoders_and_without_flows_it_is_the_cluster
""".split()
CASES = 3  # of a test


def cases(module: str) -> Iterator[Any]:
    """The module's tests that take nothing, or what stands beside them; each with some of its cases."""
    for name, test in vars(importlib.import_module(f"tests.sim.test_{module}")).items():
        if not name.startswith("test_") or name[5:] in TOO_LONG or hasattr(test, "hypothesis"):
            continue
        given = [mark.args for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
        axes = [[_named(names, value) for value in values] for names, values in given]
        rows = [{name: value for part in parts for name, value in part.items()} for parts in product(*axes)]
        if rows[0].keys() == signature(test).parameters.keys():
            for k in sorted(random.Random(0).sample(range(len(rows)), min(CASES, len(rows)))):
                yield pytest.param(test, rows[k], id=f"{module}-{name[5:]}-{k}")


def _named(names: Any, value: Any) -> dict[str, Any]:
    """One row of a `parametrize`."""
    names = names.replace(",", " ").split() if isinstance(names, str) else names
    return dict(zip(names, value if len(names) > 1 else (value,), strict=True))


@pytest.mark.parametrize(("test", "given"), [case for module in MODULES for case in cases(module)])
def test_source(test, given, patience):
    with as_python():
        test(**given)
