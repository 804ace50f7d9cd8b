"""`certify="global"`: what no player can gain is proved over whole boxes, or a gain is shown, or nothing is said."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import erf

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.solvers import variational_equilibrium
from dmodels.solvers.interval import enclosure
from dmodels.solvers.interval_boxes import box_enclosure

CALM = lambda x: (x[1] - 0.5) ** 2


def needle(width):
    """A parabola with a dip of depth 1 and this width at 0.8128."""
    return lambda x: (x[0] - 0.3) ** 2 + 0.1 * x[0] * x[1] - jnp.exp(-(((x[0] - 0.8128) / width) ** 2))


def test_a_needle_is_found():
    found = variational_equilibrium([needle(1e-5), CALM], None, (0, 1), [0.4, 0.4], samples=4, certify="global")
    assert found.flags & Flag.OUT_OF_DOMAIN and not found.flags & Flag.FIRST_ORDER_ONLY
    assert 0.1 < found.certificate["profitable_deviation"] <= found.certificate["deviation_bound"][0]
    assert found.certificate["deviation_bound"][0] < 2 and found.certificate["deviation_bound"][1] < 1e-5


@pytest.mark.slow
def test_the_absence_of_a_needle_is_proved():
    shallow = lambda x: needle(0.1)(x) + jnp.exp(-(((x[0] - 0.8128) / 0.1) ** 2)) * (1 + 1e-3)
    smooth = variational_equilibrium([shallow, CALM], None, (0, 1), [0.4, 0.4], samples=4, certify="global")
    assert smooth.flags & ~Flag.NOT_UNIQUE == 0 and (smooth.certificate["deviation_bound"] < 1e-5).all()
    grid = np.linspace(0, 1, 100_001)
    costs = np.asarray(shallow(jnp.stack([jnp.asarray(grid), jnp.full(grid.size, smooth.value.x[1])])))
    here = float(shallow(jnp.asarray(smooth.value.x)))
    assert here - costs.min() <= smooth.certificate["deviation_bound"][0]


@pytest.mark.slow
def test_shared_constraints_and_blocks_of_two():
    """Each player's best answer is where the shared constraint binds: a box beyond it holds lower costs."""
    costs = [
        lambda v: jnp.sum((v[:2] - 0.9) ** 2) + 0.1 * v[0] * v[2] ** 2,
        lambda v: jnp.sum((v[2:] - 0.8) ** 2) + 0.1 * jnp.exp(v[2]) * v[1],
    ]
    found = variational_equilibrium(
        costs, ([[1.0, 1, 1, 1]], [2.0]), (0, 1), np.full(4, 0.3), blocks=[2, 2], samples=4, certify="global"
    )
    assert found.value.x.sum() == pytest.approx(2.0) and not found.flags & ~Flag.NOT_UNIQUE
    assert (found.certificate["deviation_bound"] < 1e-4).all()
    ticks = np.linspace(0, 1, 201)
    for player, cost in enumerate(costs):
        here = float(cost(jnp.asarray(found.value.x)))
        own = slice(2 * player, 2 * player + 2)
        points = np.array([p for p in itertools.product(ticks, ticks) if sum(p) <= found.value.x[own].sum() + 1e-12])
        moved = np.tile(found.value.x, (len(points), 1))
        moved[:, own] = points
        least = min(float(v) for v in np.asarray([cost(m) for m in moved[:: len(moved) // 500]]))
        assert here - least <= found.certificate["deviation_bound"][player]


def test_what_cannot_be_decided_stays_flagged():
    """An operation without an interval form, and a box without an end."""
    odd = lambda x: (x[0] - 0.3) ** 2 + 1e-3 * erf(3 * x[0])
    bounds = [0, -np.inf], [1, np.inf]
    found = variational_equilibrium([odd, CALM], None, bounds, [0.4, 0.4], samples=4, certify="global")
    assert found.flags & Flag.FIRST_ORDER_ONLY and (found.certificate["deviation_bound"] == np.inf).all()
    assert found.certificate.kkt_residual < 1e-9


def test_global_needs_costs_and_plain_numbers():
    with pytest.raises(InputError, match="one cost function per player"):
        variational_equilibrium((np.eye(2), np.zeros(2)), None, (0, 1), certify="global")
    with pytest.raises(InputError, match="accepted are 'first-order' and 'global'"):
        variational_equilibrium([CALM, CALM], None, (0, 1), certify="all")


def test_boxes_hold_every_value():
    """Random points of random boxes, for what moves, sums and multiplies arrays."""
    rng = np.random.default_rng(3)
    table = rng.normal(size=(3, 2))
    functions = [
        lambda t: jnp.asarray(table) @ t,
        lambda t: jnp.max(jnp.concatenate([t[::-1] ** 2, t * 3.0])) + jnp.sum(t) ** 3,
        lambda t: jnp.where(t[0] > 0.1, jnp.log1p(t[1] ** 2), t[0] / (2.0 + t[1] ** 2)),
        lambda t: jnp.linalg.norm(t + 1.5) + jnp.minimum(t[0], t[1]) * jnp.tanh(t[0]) + (t[0] + 1.5) ** 1.7,
    ]
    low = rng.uniform(-1, 1, (2, 200))
    high = low + rng.random((2, 200)) * rng.choice([1e-9, 1e-2, 0.5], 200)
    for function in functions:
        least, most = box_enclosure(function, 2)(low, high)
        for _ in range(5):
            points = low + (high - low) * rng.random(low.shape)
            values = np.stack([np.asarray(function(jnp.asarray(p))) for p in points.T[:60]], axis=-1)
            assert (least[..., :60] <= values).all() and (values <= most[..., :60]).all()
        assert np.isfinite(least).mean() > 0.9


@pytest.mark.parametrize("wave", [jnp.sin, jnp.cos])
def test_waves_over_intervals(wave):
    """Every value in an interval lies within the bounds, which are as tight as the spacing of the tries can tell."""
    rng = np.random.default_rng(0)
    low = rng.choice([1.0, 10.0, 1e4], 300) * rng.normal(size=300)
    high = low + rng.exponential(3.0, 300)
    low, high = np.append(low, [0.0, np.pi / 2, -np.pi]), np.append(high, [0.0, np.pi / 2, np.pi])
    below, above = enclosure(wave)(low, high)
    tries = np.asarray(getattr(np, wave.__name__)(np.linspace(low, high, 4001)))
    assert (below <= tries.min(0)).all() and (tries.max(0) <= above).all()
    assert (tries.min(0) - below < 1e-4).all() and (above - tries.max(0) < 1e-4).all()
