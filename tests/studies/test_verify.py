"""The plan's closed forms beside the simulator."""

from __future__ import annotations

import jax
import pytest

from dmodels import SLO, catalog
from dmodels.studies.plan import plan, question
from dmodels.studies.plan.verification import verify


@pytest.mark.parametrize(("name", "rate"), [("azure-conv", 40.0), ("azure-code", 10.0)])
def test_latencies_of_a_plan_agree_with_the_simulation(name, rate):
    """Means within 10 %, 99th percentiles within 15 % (or inside the simulation's own interval)."""
    asked = question(
        "llama-3.1-70b",
        ["h100"],
        catalog.workload(name, rate),
        SLO(2.0, 0.08),
        tp=(8,),
        split=False,
        thresholds_tokens=(2048.0,),
    )
    for checked in verify(plan(asked), jax.random.key(1), requests_count=6_000, at_most=8):
        for row in checked.rows:
            bound = 0.15 if row.metric.endswith("slo_s") else 0.10
            assert abs(row.error_frac) < bound or row.agrees, (checked.pool.stage.name, row)
