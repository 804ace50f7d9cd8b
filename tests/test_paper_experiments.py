"""The experiments on the papers obey laws that hold whatever the numbers are."""

from __future__ import annotations

import numpy as np
import pytest

import dmodels
from benchmarks.papers import _load_spike as spike
from benchmarks.papers._packets import send
from benchmarks.papers._router_map import Deployment
from benchmarks.papers.anarchy_experiments import assigned, coupled
from benchmarks.papers.anarchy_maps import maps
from benchmarks.papers.phasor_llama import LLAMA, QWEN, llama, prompts
from benchmarks.papers.placement_search import goodput_rps, phase_by_phase, together
from benchmarks.papers.price_of_anarchy import FLEETS
from dmodels.models.latency import StepLaw
from dmodels.sim.cluster import Workers


def test_the_closed_loop_obeys_littles_law_and_its_ceiling():
    fleet = Deployment(2, 0.05, step=StepLaw(20e-3, 0.0))
    course = spike.run(fleet, ((40, 120),), (1.0, 10.0), False, 0)
    held = spike.figures(course, 40, 120)
    assert held["rps"] * held["latency_s"] == pytest.approx(40, rel=0.05)
    full = spike.figures(spike.run(fleet, ((300, 120),), (1.0, 10.0), False, 0), 40, 120)
    assert full["rps"] == pytest.approx(1 / 0.05, rel=0.03)  # one serial prefill server


def test_the_controller_changes_nothing_below_its_threshold():
    fleet = Deployment(2, 0.05, step=StepLaw(20e-3, 1e-4))
    runs = [spike.run(fleet, ((10, 60),), (5.0, 10.0), adapt, 1) for adapt in (False, True)]
    np.testing.assert_array_equal(runs[0].ttft_s, runs[1].ttft_s)
    assert (runs[1].regime == 0).all()


def test_coupled_games_without_prefill_are_load_balancing():
    """No prefill work: a planner who leads takes one GPU, and requests spread 2, 1, 1 over the other three."""
    found = coupled(0.0, 0.0, 1.0)
    assert found.led == found.best == found.separate == 1.0
    assert found.worst == 16 / 6  # all on the one worker that is left: neither planner nor requests can leave alone


def test_a_joint_equilibrium_is_never_better_than_the_optimum():
    found = coupled(0.9, 1.0, 0.3)
    assert found.equilibria > 0 and found.worst >= found.best >= 1.0 and min(found.separate, found.led) >= 1.0


def test_round_robin_is_even_and_all_requests_are_assigned():
    rng = np.random.default_rng(0)
    assert assigned("round robin", 8, 5, rng).tolist() == [2, 2, 2, 1, 1]
    assert all(assigned(policy, 96, 5, rng).sum() == 96 for policy in ("random", "power of two"))


def test_no_map_passes_the_ceiling_and_no_price_is_below_one():
    """Five decoders of the 70B at both loads: a full hit saves half a prompt, so 1/S to 2/S bound every cell."""
    service_s = FLEETS["70b_5d"].prefill_s
    for clients in (64, 128):
        found = maps("70b_5d", clients)
        assert (found["poa"] >= 1.0).all() and (found["rps"] < 2 / service_s).all()
        assert (found["rps"][:, 0] <= found["rps"][:, -1] * (1 + 1e-9)).all()  # omega earns hits, never loses them
    assert found["rps"].min() > 0.9 / service_s  # at C = 128 the server is what binds


def test_the_second_model_has_less_room_and_a_slower_pace():
    """Llama-3-8B: 128 KiB of cache a token against 56 KiB, 8.03e9 parameters against 7.62e9."""
    qwen, other = Workers(4, 4), llama(Workers(4, 4))
    assert (LLAMA.kv_bytes_per_token, QWEN.kv_bytes_per_token) == (131072, 57344)
    room = lambda workers, sizes: workers.kv_blocks * workers.block_tokens * sizes.kv_bytes_per_token
    assert room(qwen, QWEN) - room(other, LLAMA) == pytest.approx(2 * (8.03e9 - 7.62e9), rel=0.25)
    assert other.step.iteration_s(64) > qwen.step.iteration_s(64) * 8.03 / 7.62
    assert prompts().seconds(1024) / 0.1157 == pytest.approx(8.03 / 7.62, rel=0.02)


def test_packets_take_what_their_links_say():
    """One flow alone fills a pipe of three links; two that meet on a link share it packet by packet (NEW-29)."""
    packet_s, path = np.array([0.5, 1.0, 0.25]), np.array([[0, 1, 2], [1, 2, 0]])
    alone = send(np.zeros(1), np.array([10]), packet_s, path[:1], np.array([3]), np.zeros(1), 10)
    assert alone[0] == 0.5 + 10 * 1.0 + 0.25  # the slowest link never idles
    one_at_a_time = send(np.zeros(1), np.array([10]), packet_s, path[:1], np.array([3]), np.full(1, 0.1), 1)
    assert one_at_a_time[0] == pytest.approx(10 * 1.75 + 9 * 0.1)
    both = send(np.zeros(2), np.array([5, 5]), np.ones(1), np.zeros((2, 1), int), np.ones(2, int), np.zeros(2), 1)
    assert sorted(both) == [9.0, 10.0]  # in turn: fair fluid sharing ends both at 10


@pytest.mark.slow
def test_phase_by_phase_costs_at_most_an_instance_of_each_phase_more():
    """Goodput per dollar is what a large fleet pays; at a small rate whole instances decide."""
    ask = lambda rate: (
        dmodels.plan(
            "llama-3.1-8b", "h100_sxm", (755, 200), rate, ttft=1.0, tpot=0.1, percentile=0.9, split=True, ensure=False
        ).priced
    )
    for rate in (3.0, 100.0):
        priced = ask(rate)
        apart, joint = phase_by_phase(priced), together(priced)
        assert joint.usd_per_hour <= apart.usd_per_hour <= joint.usd_per_hour + 2 * priced.prices_usd_per_hour.max()
    most = goodput_rps(priced)
    assert (most[np.isfinite(priced.instances)] > 0).all()
    needed = np.ceil(100.0 / np.maximum(most, 1e-9) - 1e-9)
    assert (priced.instances <= needed)[most > 0].all()  # instances together serve at least what each serves alone
