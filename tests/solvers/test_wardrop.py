"""Wardrop's principle on parallel resources: closed forms, a stranger's optimum, derivatives, flat and full ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.solvers.wardrop import marginal, wardrop


def test_pigou_rises_to_four_thirds_and_falls():
    """f = x and f = 1: PoA(r) = 1 to r = 1/2, then r^2/(r - 1/4), 4/3 at r = 1, then r/(r - 1/4)."""
    f = lambda x: jnp.array([1.0, 0.0]) * x + jnp.array([0.0, 1.0])
    r, price = jnp.array([0.4, 0.75, 1.0, 2.0]), np.array([1.0, 0.75**2 / 0.5, 4 / 3, 2.0 / 1.75])

    @jax.jit
    @jax.vmap
    def both(r):
        pair = wardrop(f, r, jnp.inf), wardrop(marginal(f), r, jnp.inf)
        cost = [jnp.sum(s.value["loads"] * f(s.value["loads"])) for s in pair]
        return cost[0] / cost[1], pair[0].flags | pair[1].flags

    ratio, flags = both(r)
    assert not flags.any()
    np.testing.assert_allclose(ratio, price, rtol=1e-9)


def test_mm1_queues_have_the_square_root_rule():
    """Optimum of parallel M/M/1: free capacity proportional to sqrt(mu); equilibrium: equal free capacity."""
    mu, r = jnp.array([10.0, 5.0, 4.0]), 12.0
    f = lambda x: 1.0 / jnp.where(x < mu, mu - x, jnp.nan)
    x, y = jax.jit(lambda r: [wardrop(g, r, mu).value["loads"] for g in (f, marginal(f))])(r)
    np.testing.assert_allclose(mu - x, (19 - 12) / 3, rtol=1e-9)
    np.testing.assert_allclose((mu - y) / jnp.sqrt(mu), 7 / float(jnp.sum(jnp.sqrt(mu))), rtol=1e-9)


def random_poles(seed, batch=20, m=4):
    rng = np.random.default_rng(seed)
    a, b, d = (jnp.array(rng.uniform(0, 1, (batch, m))) for _ in range(3))
    c = jnp.array(rng.uniform(1, 3, (batch, m)))
    latency = lambda x: a * x + b + d / jnp.where(x < c, c - x, jnp.nan) ** 2.0
    return latency, c, jnp.array(rng.uniform(0.05, 0.98, batch)) * jnp.sum(c, axis=-1)


def test_optimum_agrees_with_a_strangers():
    latency, c, r = random_poles(0)
    s = jax.jit(lambda r: wardrop(marginal(latency), r, c))(r)
    cost = jnp.sum(s.value["loads"] * latency(s.value["loads"]), axis=-1)
    assert not s.flags.any() and float(s.certificate["excess"].max()) < 1e-9
    all_of = jax.jit(latency)
    for b in range(3):
        one = lambda x, b=b: float(np.sum(x * np.asarray(all_of(np.broadcast_to(x, (20, 4))))[b]))
        start = np.asarray(c[b] * r[b] / jnp.sum(c[b]))
        answer = minimize(
            one,
            start,
            constraints={"type": "eq", "fun": lambda x, b=b: x.sum() - float(r[b])},
            bounds=[(0, 0.9999 * float(v)) for v in c[b]],
            method="SLSQP",
            tol=1e-12,
        )
        assert float(cost[b]) <= answer.fun * (1 + 1e-7)
        assert float(cost[b]) == pytest.approx(answer.fun, rel=1e-5)


def test_equilibrium_obeys_the_principle():
    latency, c, r = random_poles(1)
    s = jax.jit(lambda r: wardrop(latency, r, c))(r)
    assert not s.flags.any()
    assert float(s.certificate["spread"].max()) < 1e-9 and float(s.certificate["excess"].max()) < 1e-12


def test_derivatives_match_finite_differences():
    """By demand and by a parameter of a latency; the bisection alone would give 0."""

    @jax.jit
    def cost(r, scale):
        f = lambda x: scale * jnp.array([1.0, 2.0, 0.5]) * x**2 + jnp.array([0.1, 0.0, 9.0])
        return wardrop(f, r, jnp.inf).value["level"]

    for argument, at in ((0, (2.0, 1.0)), (1, (2.0, 1.0))):
        h = 1e-5
        up, down = (cost(*[v + (sign * h if i == argument else 0) for i, v in enumerate(at)]) for sign in (1, -1))
        assert float(jax.jit(jax.grad(cost, argument))(*at)) == pytest.approx(float(up - down) / (2 * h), rel=1e-6)


def test_more_than_the_capacity_is_an_overload():
    f = lambda x: 1.0 / (jnp.array([1.0, 1.0]) - x)
    assert int(wardrop(f, 2.5, jnp.array([1.0, 1.0])).flags) & Flag.OVERLOAD


def test_near_a_pole_in_float64_whatever_the_configuration():
    """1/(1 - x) and 1/(4 - x) at a total of 5 - 1e-6: free capacities are equal, 5e-7 each."""
    with jax.enable_x64(False):
        s = wardrop(lambda x: 1.0 / (np.array([1.0, 4.0]) - x), 5 - 1e-6, np.array([1.0, 4.0]))
    assert int(s.flags) == 0
    np.testing.assert_allclose(np.array([1.0, 4.0]) - np.asarray(s.value["loads"]), 5e-7, rtol=1e-6)


@pytest.mark.parametrize("latency", [lambda x: x[..., :1], lambda x: jnp.ones(3), lambda x: 1.0])
def test_a_latency_for_other_than_each_resource_is_refused(latency):
    with pytest.raises(InputError, match="latency: it returns numbers of shape"):
        wardrop(latency, 1.0, np.full(2, np.inf))


def test_a_negative_demand_is_no_question():
    assert int(wardrop(lambda x: x, -1.0, np.full(2, np.inf)).flags) & int(Flag.OUT_OF_DOMAIN)
