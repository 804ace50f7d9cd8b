"""The weight of the cache term is the one with the least mean TTFT of those that are tried."""

from __future__ import annotations

from types import SimpleNamespace as Record

import pytest

from dmodels.core.routing import RoutingPolicy
from dmodels.studies.transfer import policies


@pytest.mark.parametrize("best", [0.1, 0.5, 0.9])
def test_the_weight_of_the_least_mean_is_taken(best, monkeypatch):
    asked = []

    def compared(cluster, arrivals, chosen, *, cache_weight, **more):
        asked.append((cluster, arrivals, chosen, cache_weight, more))
        return [Record(ttft_mean_s=1.0 + abs(cache_weight - best))]

    monkeypatch.setattr(policies, "compare_policies", compared)
    found, means = policies.tune_cache_weight("the cluster", "windows", runs=3)
    assert found == best and means == pytest.approx([1.0 + abs(w - best) for w in (0.1, 0.3, 0.5, 0.7, 0.9)])
    every = [("the cluster", "windows", [RoutingPolicy.CACHE_LOAD], w, {"runs": 3}) for w in (0.1, 0.3, 0.5, 0.7, 0.9)]
    assert asked == every
