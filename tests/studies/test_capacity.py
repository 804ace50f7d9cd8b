"""Closed-loop capacity within SLOs: the closed form against the simulation, and both against what must hold."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.hardware import SLO
from dmodels.sim.cluster import Control, Flow, Workers
from dmodels.studies import capacity

STILL = Control(flow=Flow.NONE, theta_frag=0.0)


@pytest.mark.parametrize("name", ["burst", "S-L", "L-L"])
@pytest.mark.parametrize("split", [(4, 4), (2, 6)])
def test_formula_and_simulation_agree(name, split):
    """Within 20 % on the number of clients and 12 % on the rate; the same budget binds, memory counted as TPOT."""
    job, cluster = capacity.task(name), Workers(*split)
    formula = capacity.by_formula(job, cluster)
    found = capacity.by_simulation(job, cluster, STILL, jax.random.key(0), requests=4000, replications=1)
    assert formula.clients_count == pytest.approx(found.clients_count, rel=0.2)
    assert formula.rate_rps == pytest.approx(found.rate_rps, rel=0.12)
    assert found.binds == formula.binds.replace("KV memory", "TPOT") and found.flags == formula.flags == 0


def test_concurrency_is_not_efficiency():
    """A fifth decoder where TTFT binds: the same rate, a lower TPOT, and a sixth fewer clients in flight."""
    job = capacity.task("burst")
    four, five = (capacity.by_formula(job, Workers(4, decoders)) for decoders in (4, 5))
    assert five.rate_rps == pytest.approx(four.rate_rps, rel=1e-6) and five.tpot_s < four.tpot_s
    assert five.clients_count < 0.85 * four.clients_count


def test_a_looser_budget_or_another_prefill_gpu_serves_more():
    job = capacity.task("burst")
    base = capacity.by_formula(job, Workers(4, 4)).clients_count
    loose = job._replace(slo=SLO(0.8, 0.2))
    assert capacity.by_formula(loose, Workers(4, 4)).clients_count > base
    assert capacity.by_formula(job, Workers(5, 4)).clients_count > base


def test_a_budget_below_one_prompt_serves_nobody():
    job = capacity.task("burst")._replace(slo=SLO(0.01, 0.2))
    assert capacity.by_formula(job, Workers(4, 4)).flags == Flag.INFEASIBLE
    found = capacity.by_simulation(job, Workers(4, 4), STILL, jax.random.key(0), requests=600, replications=1)
    assert found.flags == Flag.INFEASIBLE and found.clients_count == 0


def test_what_a_run_cannot_decide_is_flagged():
    job = capacity.task("burst")._replace(slo=SLO(100.0, 100.0))
    found = capacity.by_simulation(job, Workers(4, 4), STILL, jax.random.key(0), requests=600, replications=1)
    assert found.flags == Flag.NOT_CONVERGED


def test_the_six_workloads():
    jobs = capacity.tasks()
    assert list(jobs) == ["S-S", "M-M", "burst", "S-L", "L-S", "L-L"]
    assert (float(jobs["S-L"].slo.ttft_s), float(jobs["L-S"].slo.tpot_s)) == (0.125, 0.13)
    inputs, outputs, seconds = capacity.draw(jobs["burst"], jax.random.key(1), 20_000)
    assert inputs.mean() == pytest.approx(1024, rel=0.02) and outputs.mean() == pytest.approx(256, rel=0.02)
    assert inputs.std() / inputs.mean() == pytest.approx(0.5, rel=0.05) and seconds.min() >= 0.017
    assert float(np.median(capacity.Prompts().seconds(np.array([1024.0])))) == pytest.approx(0.116, abs=1e-3)


def test_mistakes_name_the_field():
    with pytest.raises(InputError, match="workload"):
        capacity.task("burts")
    with pytest.raises(InputError, match="requests"):
        capacity.by_simulation(capacity.task("burst"), Workers(4, 4), STILL, jax.random.key(0), requests=10)
