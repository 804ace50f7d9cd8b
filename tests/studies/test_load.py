"""The load that a plan shows is the share of the rate at which an instance saturates, in the simulator too."""

from __future__ import annotations

import numpy as np
import pytest

from dmodels import SLO, Workload
from dmodels.models.instance import Engine
from dmodels.sim.deployments import ServingFleet
from dmodels.sim.recordings import Recording
from dmodels.studies.plan import price, question
from dmodels.studies.plan.machines import serving_pool
from dmodels.studies.plan.search import by_formula


@pytest.mark.parametrize(
    ("isl", "osl", "slots"),
    [(6000.0, 20.0, 1024.0), (200.0, 400.0, 32.0), (2000.0, 200.0, 256.0)],
    ids=["prompts fill steps, slots stay empty", "slots run out", "both"],
)
def test_waits_grow_beyond_a_load_of_one_and_not_below(isl, osl, slots):
    one = np.ones(1)
    workload = Workload(isl * one, osl * one, one, 0.0 * one, 4.0, 1.0)
    own = {"engine": Engine(max_num_seqs_count=slots), "split": False, "thresholds_tokens": ()}
    asked = question("llama-3.1-8b", ["h100_sxm"], workload, SLO(60.0, 1.0), tp=(1,), **own)
    priced, (pool,) = price(asked), by_formula(asked).best.pools
    saturating = asked.rate_rps / pool.instances / pool.load_frac
    fleet, count = ServingFleet((serving_pool(priced, 0, 0),)), 20_000
    gaps = np.random.default_rng(0).exponential(1.0, count)
    for share, grows in ((0.93, False), (1.07, True)):
        when = np.cumsum(gaps / (share * saturating))
        requests = Recording(when, isl + 0.0 * when, osl + 0.0 * when, 0.0 * when, float(when[-1]), "Poisson")
        (mine,) = fleet.own(requests.requests())
        late = fleet.serve(0, mine, (1,)).ttft_s[-count // 10 :].mean()
        assert (late > 0.03 * when[-1]) == grows, (share, late, when[-1])
