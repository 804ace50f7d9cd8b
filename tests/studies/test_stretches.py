"""How much faster a recording a fleet for another stretch of such traffic bears."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dmodels import SLO
from dmodels.sim.batching import TokenLaw
from dmodels.sim.deployments import ServingFleet, ServingPool
from dmodels.sim.recordings import Recording
from dmodels.studies.plan.ensure import Sizes, Trial, Verdict, fewest
from dmodels.studies.plan.stretches import LEAST, MOST, borne, for_next, growth


@pytest.fixture(scope="module")
def trial():
    """One server a request and 1 ms a step: what bounds TTFT is the wait for an instance."""
    law = TokenLaw(np.full((2, 2), 1e-3), np.array([0.0, 512.0]), True)
    fleet = ServingFleet((ServingPool("all", law, 1, 512),))
    return Trial(fleet, SLO(0.3, 1.0), (4,), (1,), (4096,), (1.0,), (1,), ("h100_sxm",), 0.1)


def at(times, period_s, outputs=100.0):
    times = np.sort(np.asarray(times, float))
    same = lambda value: np.full(times.size, value)
    return Recording(times, same(100.0), same(outputs), same(0.0), period_s, "made")


def steady(count=400, gap_s=0.05):
    return at(gap_s * np.arange(count), gap_s * count)


def test_of_traffic_that_never_changes_a_stretch_takes_the_least_margin(trial):
    assert growth(trial, steady(), fewest(trial, steady())) == LEAST


def test_of_too_few_requests_nothing_is_known(trial):
    few = at([0.0, 1.0, 5.0], 10.0)
    assert growth(trial, few, (1,)) == LEAST


def test_the_more_unlike_quarters_are_the_more_another_stretch_takes(trial):
    """The last quarter of the requests comes so many times as fast as the others, and then nothing does."""
    found = []
    for times in (1.0, 3.0, 8.0):
        late = 15.0 + 0.05 / times * np.arange(100)
        requests = at(np.concatenate([0.05 * np.arange(300), late]), 20.0)
        found.append(growth(trial, requests, fewest(trial, requests)))
    assert found[0] == LEAST < found[2] <= MOST and found == sorted(found)


def test_a_fleet_bears_the_rate_up_to_its_capacity(trial):
    """2 instances that take 0.1 s a request bear 20 a second, and a little more where waits of 0.3 s are allowed."""
    factors = np.linspace(0.5, 1.5, 101)
    most = factors[borne(trial, steady(), (2,), factors) - 1]
    assert 1.0 <= most <= 1.0 + 0.3 / 20.0 + 0.02
    assert borne(trial, steady(), (8,), factors) == 101 and borne(trial, steady(), (1,), factors[factors > 0.6]) == 0


def test_the_fleet_for_the_next_stretch_holds_on_this_one_too(trial):
    requests = steady()
    own = Sizes((3,), 1, 1)
    found = for_next(trial, requests, requests, (2,), own, [requests])
    assert found.instances[0] >= math.ceil(2 * LEAST) > own.instances[0]
    assert Verdict(trial, requests.faster(LEAST)).holds(found.instances) and found[1:] == (1, 1, True)
    no_more = trial._replace(most=(3,))
    assert for_next(no_more, requests, requests, (2,), own, [requests]) == own._replace(enough=False)
