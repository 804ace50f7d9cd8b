"""Fleets by integer programme against brute force over all fleets, and shadow prices against a changed limit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.design.fleet import Limits, Options, fleet


def brute(options: Options, demand, stock, power, most=6) -> float:
    """The least cost over all fleets of one region with at most `most` instances of each option in each pool."""
    o, p = options.capacity_rps.shape
    best = np.inf
    for numbers in itertools.product(range(most), repeat=o * p):
        n = np.reshape(numbers, (o, p))
        if (n[options.capacity_rps == 0] > 0).any() or ((options.capacity_rps * n).sum(0) < demand - 1e-9).any():
            continue
        gpus = np.array([(options.gpus[:, None] * n)[options.kind == k].sum() for k in range(len(stock))])
        nodes = np.ceil(gpus / options.node_gpus)
        bought = nodes * options.node_gpus
        if (bought > stock).any() or (options.gpu_w * bought).sum() > power:
            continue
        best = min(best, float((options.price_usd_per_hour * bought).sum()))
    return best


@pytest.mark.parametrize("seed", range(6))
def test_no_fleet_is_cheaper_by_brute_force(seed):
    rng = np.random.default_rng(seed)
    options = Options(
        capacity_rps=np.where(rng.random((3, 2)) < 0.2, 0.0, rng.uniform(1, 6, (3, 2))),
        gpus=[1.0, 2.0, 4.0],
        kind=[0.0, 1.0, 1.0],
        price_usd_per_hour=rng.uniform(1, 4, 2),
        node_gpus=[1.0, float(rng.choice([2, 4]))],
        gpu_w=[400.0, 700.0],
    )
    demand, stock, power = rng.uniform(2, 9, 2), np.array([4.0, 12.0]), rng.uniform(4e3, 12e3)
    found = fleet(options, demand, Limits(stock[:, None], power))
    expected = brute(options, demand, stock, power)
    if not np.isfinite(expected):
        assert found.flags == Flag.INFEASIBLE
        return
    assert found.flags == 0 and abs(found.value["cost_usd_per_hour"] - expected) < 1e-6
    # the certificate: the relaxation is no dearer, and the fleet does what it must
    assert found.certificate["bound_usd_per_hour"] <= expected + 1e-6 and found.certificate["gap_frac"] >= -1e-9
    n, nodes = found.value["instances"][..., 0], found.value["nodes"][:, 0]
    assert ((options.capacity_rps * n).sum(0) >= demand - 1e-6).all() and (n == np.round(n)).all()
    assert (nodes * options.node_gpus <= stock + 1e-9).all()
    assert (nodes * options.node_gpus * options.gpu_w).sum() <= power + 1e-6


TWO = Options([[2.0], [5.0]], [1.0, 2.0], [0.0, 1.0], [1.0, 3.0], 1.0, [300.0, 700.0])


def test_shadow_prices_are_what_one_unit_changes():
    """The relaxation: the small GPU costs 0.5 USD/h per req/s, the large one 1.2; stock of the small one binds."""
    limits = Limits([[10.0], [100.0]])
    found = fleet(TWO, [50.0], limits)
    price = found.certificate
    assert price["bound_usd_per_hour"] == pytest.approx(10 * 1.0 + (50 - 20) / 5 * 6.0)
    assert price["demand_usd_per_hour"][0, 0, 0] == pytest.approx(1.2)
    assert price["stock_usd_per_hour"][0, 0] == pytest.approx(2 * 1.2 - 1.0)  # a further small GPU saves 1.4 USD/h
    more = fleet(TWO, [50.0], Limits([[11.0], [100.0]])).certificate["bound_usd_per_hour"]
    assert price["bound_usd_per_hour"] - more == pytest.approx(1.4)


def test_regions_share_where_they_reach_each_other():
    """Two areas whose peaks differ: alone each buys for its own peak, together for the sum at each time."""
    demand = np.array([[[20.0], [2.0]], [[2.0], [20.0]]])  # (scenario, area, pool)
    alone = fleet(TWO, demand, Limits(np.full((2, 2), 100.0)))
    shared = fleet(TWO, demand, Limits(np.full((2, 2), 100.0)), reach=np.ones((2, 2)))
    assert alone.value["cost_usd_per_hour"] == pytest.approx(20.0)
    assert shared.value["cost_usd_per_hour"] == pytest.approx(11.0)
    flows = shared.value["flows_rps"]  # (scenario, area, pool, region)
    np.testing.assert_allclose(flows.sum(-1), demand, atol=1e-6)
    dear = fleet(TWO, demand, reach=np.ones((2, 2)), egress_usd_per_request=[[0.0, 1.0], [1.0, 0.0]])
    np.testing.assert_allclose(dear.value["cost_usd_per_hour"], 20.0)  # 3,600 USD/h per req/s across: nobody crosses


def test_a_chance_constraint_leaves_out_the_dearest_scenario_it_may():
    demand = np.array([10.0, 12.0, 60.0, 14.0])[:, None, None]
    frac = [0.4, 0.3, 0.05, 0.25]
    robust = fleet(TWO, demand, scenario_frac=frac)
    most = fleet(TWO, demand, scenario_frac=frac, risk_frac=0.05)
    half = fleet(TWO, demand, scenario_frac=frac, risk_frac=0.3)
    assert [x.value["cost_usd_per_hour"] for x in (robust, most, half)] == pytest.approx([30.0, 7.0, 6.0])
    assert list(most.value["served"]) == [True, True, False, True]


def test_the_chain_of_pools_is_the_best_of_all_chains():
    """Cuts 0..3; the pools between cuts i < j have their own demand and capacity."""
    rng = np.random.default_rng(3)
    pairs = list(itertools.combinations(range(4), 2))
    mass = np.array([30.0, 20.0, 10.0])
    demand = np.array([mass[i:j].sum() for i, j in pairs])
    capacity = np.array([6.0 / j**1.5 for i, j in pairs])[None] * rng.uniform(0.8, 1.2, (1, len(pairs)))
    options = Options(capacity, [1.0], [0.0], [1.0])
    each = np.ceil(demand / capacity[0])
    chains = [((0, 3),), ((0, 1), (1, 3)), ((0, 2), (2, 3)), ((0, 1), (1, 2), (2, 3))]
    for most in (1, 2, 3):
        found = fleet(options, demand, intervals=pairs, most_pools=most)
        expected = min(sum(each[pairs.index(pair)] for pair in chain) for chain in chains if len(chain) <= most)
        assert found.value["cost_usd_per_hour"] == pytest.approx(expected)
        assert found.value["pools"].sum() <= most


def test_what_cannot_be_bought_is_said():
    assert fleet(TWO, [50.0], Limits([[1.0], [1.0]])).flags == Flag.INFEASIBLE
    assert fleet(TWO, [50.0], Limits(budget_usd_per_hour=5.0)).flags == Flag.INFEASIBLE
    with pytest.raises(InputError, match="pool axis"):
        fleet(TWO, [1.0, 2.0])
    with pytest.raises(InputError, match="sum to 1"):
        fleet(TWO, np.ones((2, 1, 1)), scenario_frac=[0.5, 0.4])
