"""Measured fleets: intervals that cover known answers, overloads that show, pools that report apart."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.workload import Workload
from dmodels.models.latency import StepLaw
from dmodels.sim import fleet, verify
from dmodels.sim.estimate import Estimate
from dmodels.sim.fleet import Pool, RoutingPolicy
from dmodels.sim.requests import Served

KEY = jax.random.key(11)


def test_one_server_with_fixed_service_matches_pollaczek_khinchine():
    """M/D/1: 1000 iterations of 1 ms at 0.7 requests/s wait 0.7/(2 x 0.3) = 1.1667 s."""
    work = Workload.fixed(1, 999, rate_rps=0.7)
    (found,) = verify.measure(work, Pool(1, 1, [1e-3]), KEY, count=40_000, target_frac=0.03, confidence=0.999)
    assert found["wait_mean_s"].holds(0.7 / 0.6, 1e-3) and found["wait_mean_s"].flags == 0
    assert found["in_flight_count"].holds(0.7, 5e-3) and found["served_rps"].holds(0.7, 5e-3)
    np.testing.assert_allclose(found["tpot_mean_s"].value, 1e-3, rtol=1e-9)


def test_the_end_that_sees_a_fleet_run_dry_is_left_out():
    """Of 10,000 requests a second apart that take 500 s, the last 500 were served by a fleet that emptied."""
    arrival = np.arange(10_000.0)
    rng = np.random.default_rng(0)
    served = Served(arrival, arrival, arrival + 1.0, arrival + 500.0 + rng.normal(size=10_000), np.full(10_000, 50.0))
    kept = verify.steady(served)
    assert 9_480 <= kept[-1] < 9_500 and kept[0] < 2_000
    short = served._replace(end_s=arrival + 9_900.0 + rng.normal(size=10_000))  # nothing would be left
    assert verify.steady(short)[-1] == 9_999


def test_waits_of_a_tenth_of_a_service_that_grow_are_an_overload():
    arrival = np.arange(2_000.0)
    growing = np.linspace(0.0, 200.0, 2_000)  # beside services of 1,000 s: as many places as 1,000 s of arrivals fill
    admitted = arrival + growing
    served = Served(arrival, admitted, admitted + 1.0, admitted + 1000.0, np.full(2_000, 50.0))
    assert verify.outrun(served)
    assert not verify.outrun(served._replace(admitted_s=arrival + 0.2 * growing))  # the end of an iteration


def test_the_same_key_measures_the_same():
    work = Workload.fixed(600, 100, rate_rps=8.0)
    runs = [verify.measure(work, Pool(3, 8, StepLaw(8e-3, 1e-3)), KEY, count=4000, at_most=5) for _ in range(2)]
    assert runs[0] == runs[1]


def test_no_key_is_used_twice():
    work = Workload.fixed(600, 100, rate_rps=8.0).replace(arrival_cv=np.float64(2.0))
    with jax.debug_key_reuse(True):
        pool = Pool(3, 8, StepLaw(8e-3, 1e-3))
        verify.measure(work, pool, jax.random.key(2), RoutingPolicy.POWER_OF_TWO, count=1000, at_least=2, at_most=2)


def test_a_fleet_that_cannot_keep_up_says_so():
    work = Workload.fixed(512, 100, rate_rps=40.0)  # 101 iterations x 16 ms / 8 slots: 5 requests/s an instance
    (found,) = verify.measure(work, Pool(4, 8, StepLaw(8e-3, 1e-3)), KEY, count=20_000, at_most=5)
    assert found["wait_mean_s"].flags & Flag.OVERLOAD
    (found,) = verify.measure(work, Pool(12, 8, StepLaw(8e-3, 1e-3)), KEY, count=20_000, at_most=5)
    assert not found["wait_mean_s"].flags & Flag.OVERLOAD


def test_pools_are_measured_apart():
    work = Workload([400.0, 6000.0], [60.0, 300.0], [0.9, 0.1], rate_rps=30.0)
    law = StepLaw(8e-3, 0.65e-3)
    short, long = verify.measure(work, [Pool(2, 32, law, 1000), Pool(4, 8, law)], KEY, count=20_000, at_most=6)
    assert short["served_rps"].holds(27.0, 0.5) and long["served_rps"].holds(3.0, 0.2)
    assert long["e2e_mean_s"].low > short["e2e_mean_s"].high


def test_predictions_stand_beside_measurements():
    work = Workload.fixed(1, 999, rate_rps=0.5)
    (found,) = verify.measure(work, Pool(1, 1, [1e-3]), KEY, count=30_000, confidence=0.999)
    good, bad = verify.against({"wait_mean_s": 0.5, "e2e_mean_s": 9.0}, found)
    assert good.agrees and not bad.agrees and bad.error_frac > 4
    with pytest.raises(InputError, match="served_rps"):
        verify.against({"nonsense": 1.0}, found)


def test_what_no_pool_can_hold_is_refused():
    with pytest.raises(InputError, match="max_tokens"):
        verify.measure(Workload.fixed(1000, 10), Pool(1, 4, StepLaw(8e-3, 1e-3), 500), KEY)


def test_a_burst_of_a_trace_is_no_warm_up():
    """2,000 requests at once on one instance of one slot, then a day of rest: half of all waits are the burst's."""
    when = np.concatenate([np.zeros(2000), 1e5 + 100.0 * np.arange(2000)])
    served = fleet.simulate(when, 1, 1, Pool(1, 1, [0.05], emits=True))
    whole = verify.trace_metrics(served)
    assert whole["requests_count"].value == 4000
    assert 90 < whole["ttft_p99_s"].value == pytest.approx(np.quantile(served.ttft_s, 0.99))
    assert whole["ttft_mean_s"].value == pytest.approx(served.ttft_s.mean())
    settled = verify.trace_metrics(served, stationary=True)
    assert settled["requests_count"].value < 4000 and settled["ttft_p99_s"].value < whole["ttft_p99_s"].value
    assert verify.trace_metrics(served.at(np.arange(40))).keys() == whole.keys()
    for count in (10, 39):
        with pytest.raises(InputError, match="at least 40"):
            verify.trace_metrics(served.at(np.arange(count)))


@pytest.mark.parametrize("load", [0.5, 0.9, 0.94, 1.05, 1.5, 20.0])
def test_a_fleet_is_outrun_above_its_capacity_and_not_by_a_burst(load):
    rng, slots, n = np.random.default_rng(5), 16, 20_000
    outputs = rng.integers(50, 151, n)
    law = StepLaw(8e-3, 0.65e-3)
    capacity_rps = slots / float(law.iteration_s(slots)) / 101.0  # an iteration for the prompt and one for each token
    when = np.cumsum(rng.exponential(1.0 / (load * capacity_rps), n))
    pool = Pool(1, slots, law)
    assert verify.outrun(fleet.simulate(when, 100, outputs, pool)) == (load > 1)
    burst = np.concatenate([when, np.full(500, when[-1])])
    served = fleet.simulate(burst, 100, np.append(outputs, np.full(500, 100)), pool)
    assert served.ttft_s[-1] > 20.0 and verify.outrun(served) == (load > 1)


def test_a_run_in_numbers_by_counting():
    """200 requests a second apart, each admitted after 0.25 s or at once, answered 0.5 s later, done after 2 s more."""
    k = np.arange(200.0)
    late = np.where(k % 4 == 0, 0.25, 0.0)
    admitted = k + late
    served = Served(k, admitted, admitted + 0.5, admitted + 2.5, np.full(200, 5.0))
    found = verify.summary(served, instances=2, percentile=0.9)
    assert found["wait_mean_s"] == pytest.approx(0.0625) and found["wait_p90_s"] == pytest.approx(0.25)
    assert found["ttft_mean_s"] == pytest.approx(0.5625) and found["ttft_p90_s"] == pytest.approx(0.75)
    assert found["tpot_mean_s"] == pytest.approx(2.0 / 4) == found["tpot_p90_s"]  # four gaps
    assert found["e2e_mean_s"] == pytest.approx(2.5625) and found["e2e_p90_s"] == pytest.approx(2.75)
    assert found["served_rps"] == pytest.approx(1.0, abs=0.005)
    assert found["in_flight_count"] == pytest.approx(
        found["served_rps"] * 2.5 / 2
    )  # an instance's share of Little's law
    single = verify.summary(served._replace(output_tokens=np.ones(200), first_token_s=served.end_s), 1)
    assert not any(name.startswith("tpot") for name in single)
    # a fleet that falls behind: an arrival every second, a departure every two
    behind = Served(k, k, k + 1.0, 2.0 * k + 3.0, np.full(200, 2.0))
    assert verify.summary(behind, 1)["served_rps"] == pytest.approx(0.5)


def test_the_end_is_where_all_but_one_in_a_thousand_had_their_answer():
    """Of 10,000 requests a second apart each hundredth takes 900 s, the others 100 s: what came in the last 900 s may
    have been served beside fewer."""
    arrival = np.arange(10_000.0)
    took = np.where(arrival % 100 == 50, 900.0, 100.0) + np.random.default_rng(0).normal(size=10_000)
    kept = verify.steady(Served(arrival, arrival, arrival + 1.0, arrival + took, np.full(10_000, 50.0)))
    assert 9_080 <= kept[-1] <= 9_100


def test_a_run_is_forty_services_of_the_slowest_pool_long():
    """Of those requests that fit there: chunks of what is not cached, and tokens, each a full iteration."""
    work = Workload([600.0, 900.0, 7000.0], [40.0, 100.0, 10.0], [0.5, 0.3, 0.2], [100.0, 0.0, 0.0], rate_rps=300.0)
    small = Pool(1, 4, StepLaw(8e-3, 1e-3), max_tokens=1000.0, chunk_tokens=200)
    mean = (0.5 * (3 + 40) + 0.3 * (5 + 100)) / 0.8
    for pools, seconds in (
        ((small,), mean * 12e-3),
        ((small, Pool(1, 8, StepLaw(8e-3, 3e-3))), (0.5 * (1 + 40) + 0.3 * (2 + 100) + 0.2 * (14 + 10)) * 32e-3),
    ):
        assert verify._enough(work, pools) == int(40 * seconds * 300.0) if 40 * seconds * 300 > 20_000 else 20_000
    assert (
        verify._enough(work.at_rate(1e9), (small,)) == 400_000 and verify._enough(work.at_rate(1.0), (small,)) == 20_000
    )
    assert verify._enough(work.at_rate(2000.0), (small,)) == int(40 * mean * 12e-3 * 2000.0)


def test_a_row_says_by_how_much_a_prediction_is_off():
    measured = {"a": Estimate(4.0, 3.0, 5.0, 9), "zero": Estimate(0.0, 0.0, 0.0, 9)}
    one, other, none = verify.against({"a": 5.0, "zero": 0.0}, measured) + verify.against({"a": 2.9}, measured)
    assert (one.metric, one.predicted, one.error_frac, one.agrees) == ("a", 5.0, 0.25, True)
    assert np.isnan(other.error_frac) and other.agrees and not none.agrees
    assert none.error_frac == pytest.approx(-0.275) and none.measured is measured["a"]


@pytest.mark.parametrize("took, kept", [(299.0, 100), (300.0, 400), (312.0, 400)])
def test_a_run_whose_ends_are_three_quarters_of_it_is_kept_to_the_last(took, kept):
    arrival = np.arange(400.0)
    assert verify.steady(Served(arrival, arrival, arrival, arrival + took, np.ones(400))).tolist() == list(range(kept))


@pytest.mark.parametrize("behind", [2, 3])
def test_a_fleet_is_overloaded_that_most_runs_outrun(behind, monkeypatch):
    told = iter([True] * behind + [False] * (4 - behind))
    monkeypatch.setattr(verify, "outrun", lambda part: next(told))
    work = Workload.fixed(600, 100, rate_rps=8.0)
    (found,) = verify.measure(work, Pool(3, 8, StepLaw(8e-3, 1e-3)), KEY, count=400, at_least=4, at_most=4)
    assert bool(found["wait_mean_s"].flags & Flag.OVERLOAD) == (behind == 3)


def test_a_fleet_by_clockwork_measured():
    """A request a second: of its 1,500 tokens 1,000 are cached, so one step of 11 ms for the prompt and twenty more."""
    work = Workload([1500.0], [20.0], [1.0], [1000.0], rate_rps=1.0, arrival_cv=0.0)
    asked = {"count": 400, "percentile": 0.9, "at_least": 3}
    (found,) = verify.measure(work, Pool(2, 4, StepLaw(0.01, 0.001)), KEY, **asked)
    stems = [f"{k}_{x}_s" for k in ("ttft", "tpot", "e2e", "wait") for x in ("mean", "p90")]
    assert [*found] == [*stems, "in_flight_count", "served_rps"]
    values = [0.022, 0.022, 0.011, 0.011, 0.231, 0.231, 0.0, 0.0, 0.231 / 2, 1.0]
    assert [one.value for one in found.values()] == pytest.approx(values, abs=1e-9)
    assert all((one.samples, one.flags) == (3, 0) for one in found.values())


def test_requests_spill_over_where_others_wait():
    """One slot that takes 3 s, a request a second: one is served and one waits there, others go to the next pool."""
    work = Workload([1.0], [299.0], [1.0], rate_rps=1.0, arrival_cv=0.0)
    pools = [Pool(1, 1, [0.01] * 2, 500.0), Pool(3, 1, [0.01] * 2)]
    short, long = verify.measure(work, pools, KEY, count=1200, at_least=2, spill_queue=0.0)
    assert short["served_rps"].value == pytest.approx(1 / 3, rel=0.01)
    assert long["served_rps"].value == pytest.approx(2 / 3, rel=0.01)
    assert short["wait_mean_s"].value == pytest.approx(3.0) and long["wait_mean_s"].value == pytest.approx(
        0.0, abs=1e-9
    )
    assert short["in_flight_count"].value == pytest.approx(1.0, rel=0.01)
    assert long["in_flight_count"].value == pytest.approx(2 / 3, rel=0.01)


def test_the_rate_served_leaves_out_the_first_and_the_last_percent():
    """Of 300 departures a second apart three came long before the others and three long after; the next ones of both
    ends are ten seconds away: 294 in 311 s. A lone departure has no rate."""
    ends = np.concatenate([-1e6 - np.arange(3.0), [-10.0], np.arange(292.0), [301.0], 1e6 + np.arange(3.0)])
    served = Served(*[np.sort(ends)] * 4, np.ones(300))
    assert verify.summary(served, 1)["served_rps"] == pytest.approx(293 / 311)
    assert np.isnan(verify.summary(served.at(np.arange(1)), 1)["served_rps"])


def test_a_run_of_200_requests_can_settle_and_40_gaps_are_enough_for_20_batches():
    arrival = np.arange(200.0)
    served = Served(arrival, arrival, arrival + 1.0, arrival + 2.0, np.full(200, 2.0))
    assert verify.steady(served).tolist() == list(range(197))
    for several, told in ((39, False), (40, True)):
        part = served._replace(output_tokens=np.where(arrival < several, 2.0, 1.0))
        found = verify.trace_metrics(part)
        assert ("tpot_mean_s" in found) == ("tpot_p99_s" in found) == told and found["ttft_mean_s"].value == 1.0


def test_a_cut_that_leaves_less_than_a_quarter_before_the_end_is_made_at_the_beginning_alone():
    """100 requests settle in; the longest take 250 s, so that 49 of those that are left end before nobody comes."""
    arrival = np.arange(400.0)
    served = Served(arrival, arrival, arrival, arrival + np.where(arrival < 100, 250.0, 200.0), np.ones(400))
    assert verify.steady(served).tolist() == list(range(100, 400))
