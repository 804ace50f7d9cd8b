"""Fair shares: the papers' examples, their properties over random economies, and counterexamples where one fails."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.solvers.fair_shares import drf, envy, fisher_market, nash_bargaining

amounts = st.one_of(st.just(0.0), st.floats(0.01, 10.0))
economies = (
    st.tuples(st.integers(1, 5), st.integers(1, 4))
    .flatmap(
        lambda size: st.tuples(
            arrays(float, size, elements=amounts), arrays(float, size[1], elements=st.floats(0.5, 50))
        )
    )
    .filter(lambda pair: (pair[0].max(axis=1) > 0).all())
)


def tasks_of(demand, bundle):
    """Tasks that an agent can run with a bundle."""
    return min(b / d for d, b in zip(demand, bundle, strict=True) if d > 0)


def test_the_example_of_the_paper():
    found = drf([[1.0, 4.0], [3.0, 1.0]], [9.0, 18.0])  # NSDI 2011, section 4.1
    np.testing.assert_allclose(found.value["tasks"], [3.0, 2.0])
    np.testing.assert_allclose(found.value["share_frac"], 2 / 3)
    heavy = drf([[1.0, 4.0], [3.0, 1.0]], [9.0, 18.0], weights=[1.0, 2.0]).value["share_frac"]
    assert heavy[1] == pytest.approx(2 * heavy[0])


@given(economies)
def test_dominant_resource_fairness_has_its_four_properties(economy):
    demands, capacities = economy
    found = drf(demands, capacities)
    tasks, bundles, share = (found.value[k] for k in ("tasks", "allocation", "share_frac"))
    n = len(demands)
    assert (bundles.sum(0) <= capacities * (1 + 1e-9)).all()
    for i, b in enumerate(found.certificate["bottleneck"]):  # efficient: some resource that i needs is used up ...
        assert demands[i, b] > 0 and bundles[:, b].sum() >= capacities[b] * (1 - 1e-9)
        users = demands[:, b] > 0
        assert share[i] >= share[users].max() * (1 - 1e-9)  # ... and max-min: no user of it has a larger share
        assert tasks[i] >= tasks_of(demands[i], capacities / n) * (1 - 1e-9)  # sharing incentive
        for j in range(n):
            assert tasks[i] >= tasks_of(demands[i], bundles[j]) * (1 - 1e-9)  # nobody envies


@given(economies, st.integers(0, 4), st.integers(0, 2**32 - 1))
def test_no_lie_about_demands_pays_under_dominant_resource_fairness(economy, liar, seed):
    """A search for counterexamples to strategy-proofness: none is found, as Theorem 3 of the paper says."""
    demands, capacities = economy
    liar %= len(demands)
    honest = drf(demands, capacities).value["tasks"][liar]
    rng = np.random.default_rng(seed)
    for _ in range(5):
        lie = demands.copy()
        lie[liar] *= rng.lognormal(0, 1, demands.shape[1])
        lie[liar] += rng.random() * (rng.random(demands.shape[1]) < 0.3) * capacities * 0.1
        told = drf(lie, capacities).value["allocation"][liar]
        assert tasks_of(demands[liar], told) <= honest * (1 + 1e-9) + 1e-12


markets = (
    st.tuples(st.integers(2, 4), st.integers(2, 4))
    .flatmap(lambda size: arrays(float, size, elements=st.one_of(st.just(0.0), st.floats(0.1, 10.0))))
    .filter(lambda v: (v.max(axis=1) > 0).all() and (v.max(axis=0) > 0).all())
)


@settings(max_examples=20)
@given(markets)
def test_the_market_with_equal_budgets_is_fair_and_efficient(values):
    found = fisher_market(values, 1.0)
    assert found.flags == 0 and max(found.certificate.values()) < 1e-5 * len(values)
    x, u = found.value["allocation"], found.value["utilities"]
    scale = values.sum(axis=1)
    assert (envy(values, x) <= 1e-5 * scale).all()
    assert (u >= scale / len(values) * (1 - 1e-5)).all()  # better than equal division, for each
    # efficient, by a stranger: no division gives the first agent more and nobody less
    n, m = values.shape
    others = np.zeros((n - 1, n * m))
    for i in range(1, n):
        others[i - 1, i * m : (i + 1) * m] = -values[i]
    whole = np.tile(np.eye(m), n)
    best = linprog(
        -np.concatenate([values[0], np.zeros((n - 1) * m)]),
        np.vstack([others, whole]),
        np.concatenate([-u[1:] * (1 - 1e-6), np.ones(m)]),
    )
    assert -best.fun <= u[0] + 1e-4 * scale[0]


def test_a_lie_pays_in_the_market():
    """Eisenberg-Gale is not strategy-proof: with truth (0.6, 0.4) against (0.1, 0.9), telling (0.2, 0.8) pays."""
    truth = np.array([[0.6, 0.4], [0.1, 0.9]])
    honest = fisher_market(truth, 1.0).value["utilities"][0]
    lie = np.array([[0.2, 0.8], [0.1, 0.9]])
    told = fisher_market(lie, 1.0).value["allocation"][0]
    assert truth[0] @ told > honest + 0.05


def test_two_buyers_of_two_goods_by_hand():
    """Each values one good only: prices are the budgets."""
    found = fisher_market([[1.0, 0.0], [0.0, 1.0]], [3.0, 1.0], supply=[2.0, 4.0])
    np.testing.assert_allclose(found.value["prices"], [1.5, 0.25], rtol=1e-5)
    np.testing.assert_allclose(found.value["allocation"], [[2, 0], [0, 4]], atol=1e-5)


@settings(max_examples=15)
@given(markets, st.floats(0.0, 0.9))
def test_bargaining_is_above_disagreement_and_no_division_has_a_larger_product(values, part):
    d = part * values.sum(axis=1) / len(values)  # equal division is better for all
    found = nash_bargaining(values, d)
    assert found.flags == 0 and found.certificate["gap"] < 1e-4 * len(values)
    u = found.value["utilities"]
    assert (u > d).all()
    rng = np.random.default_rng(0)
    for _ in range(20):
        other = (rng.dirichlet(np.full(len(values), 0.5), values.shape[1]).T * values).sum(axis=1)
        if (other > d).all():
            assert np.log(other - d).sum() <= np.log(u - d).sum() + 1e-5


def test_bargaining_without_disagreement_is_the_market_and_scales_do_not_matter():
    values = np.array([[3.0, 1.0, 2.0], [1.0, 4.0, 1.0]])
    bargain = nash_bargaining(values, 0.0).value["utilities"]
    np.testing.assert_allclose(bargain, fisher_market(values, 1.0).value["utilities"], rtol=1e-5)
    other = nash_bargaining(values * [[10.0], [0.1]], 0.0).value["utilities"]
    np.testing.assert_allclose(other, bargain * [10.0, 0.1], rtol=1e-5)
    assert nash_bargaining(values, [7.0, 0.0]).flags == Flag.INFEASIBLE


def test_mistakes_name_the_field():
    with pytest.raises(InputError, match="demands"):
        drf([1.0, 2.0], [1.0])
    with pytest.raises(InputError, match="budgets"):
        fisher_market([[1.0]], 0.0)
    with pytest.raises(InputError, match="weights"):
        drf([[1.0]], [1.0], weights=[-1.0])
