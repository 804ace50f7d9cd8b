"""Algorithm 1: regime to parameters to worker, step by step."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmodels.control import adaptive, regime
from dmodels.models.router import block_costs, choice_probabilities, choose, paper_omega_s


def test_the_parameters_of_table_2_follow_the_regime():
    """TTFT P99 of the 340B run: 0.29 s, then 28.3 s, then 0.3 s: (0, 1), (0.7, 1), (0.8, 0.1) and back to (0, 1)."""
    params = regime.detector(0.175, 1.0 / 0.175, 10.0 / 0.175)
    samples = jnp.array([0.29] * 24 + [28.3] * 36 + [0.3] * 36)
    step = lambda s, x: adaptive.update(s, x, params, adaptive.table_2())
    _, act = jax.lax.scan(step, adaptive.init(), samples)
    seen = list(dict.fromkeys(zip(np.asarray(act.tau).tolist(), np.asarray(act.omega).tolist(), strict=True)))
    assert seen == [(0.0, 1.0), (0.7, 1.0), (0.8, 0.1)]
    assert act.regime[23] == 0 and act.regime[59] == 2 and act.regime[95] == 0


def test_greedy_takes_the_cheapest_worker_and_the_first_of_equals():
    act = adaptive.action(jnp.int32(0), adaptive.table_2())
    worker, costs = adaptive.route(act, jnp.array([8.0, 0.0, 8.0]), jnp.array([92.0, 101.0, 92.0]), 0.99)
    assert costs.tolist() == [100.0, 101.0, 100.0] and int(worker) == 0


def test_softmax_limits():
    costs = jnp.array([3.0, 1.0, 1.0])
    assert choice_probabilities(costs, 0.0).tolist() == [0.0, 1.0, 0.0]
    np.testing.assert_allclose(choice_probabilities(costs, jnp.inf), 1 / 3)
    np.testing.assert_allclose(choice_probabilities(costs, 2.0)[0] / choice_probabilities(costs, 2.0)[1], np.exp(-1.0))
    np.testing.assert_allclose(choice_probabilities(jnp.array([5.0, 5.0]), 0.3, normalized=True), 0.5)


def test_block_differences_make_the_raw_temperature_all_but_greedy():
    """One 128-token prompt is 8 blocks of 16: at tau = 0.7 blocks the dearer worker gets 1e-5 of the requests.

    Divided by the range, as Dynamo's code does, it gets e^(-1/0.7) against 1: 19 %.
    """
    costs = jnp.array([0.0, 8.0])
    assert float(choice_probabilities(costs, 0.7)[1]) < 2e-5
    assert float(choice_probabilities(costs, 0.7, normalized=True)[1]) == pytest.approx(0.193, abs=1e-3)


def test_draws_have_the_softmax_probabilities():
    costs = jnp.array([0.0, 0.5, 2.0])
    u = jnp.arange(100_000) / 100_000
    worker = choose(jnp.broadcast_to(costs, (100_000, 3)), 0.7, u)
    share = np.bincount(np.asarray(worker), minlength=3) / 100_000
    np.testing.assert_allclose(share, choice_probabilities(costs, 0.7), atol=2e-5)


def test_the_two_sign_conventions_agree_only_with_the_requests_length():
    """Eq. (1) and Eq. (7) choose alike if the latter's omega is multiplied by the request's blocks, not otherwise."""
    cached, active, block_s = jnp.array([6.0, 0.0]), jnp.array([10.0, 5.0]), 1e-3
    for blocks, worker in ((8.0, 0), (64.0, 0)):
        dynamo = block_costs(blocks - cached, active, 1.0)
        paper = block_s * active - paper_omega_s(1.0, blocks, block_s) * cached / blocks
        assert int(jnp.argmin(dynamo)) == int(jnp.argmin(paper)) == worker
    fixed = [int(jnp.argmin(block_s * active - 8 * block_s * cached / blocks)) for blocks in (8.0, 64.0)]
    assert fixed == [0, 1]  # one omega for all lengths routes the long request to the other worker


def test_a_normalized_temperature_is_in_units_of_the_costs_range():
    """The same shares whatever the blocks are worth; raw, a tenth of the costs is ten times the temperature."""
    act = adaptive.Action(0, jnp.float64(0.7), jnp.float64(1.0))
    prefill, active = jnp.array([8.0, 2.0, 5.0]), jnp.array([1.0, 3.0, 2.0])
    u = jnp.linspace(0.01, 0.99, 99)
    drawn = lambda scale, normalized: [
        int(adaptive.route(act, scale * prefill, scale * active, x, normalized)[0]) for x in u
    ]
    assert drawn(1.0, True) == drawn(10.0, True) != drawn(10.0, False)
    assert [int(adaptive.route(act, 10.0 * prefill, 10.0 * active, x)[0]) for x in u] == drawn(10.0, False)
    assert len(set(drawn(10.0, True))) == 3 and set(drawn(10.0, False)) == {1}
