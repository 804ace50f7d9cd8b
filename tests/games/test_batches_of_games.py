"""A batch of routing games is its games one by one, whatever they share: curves, caches, what a miss costs, sizes."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.games import routing
from dmodels.games.anarchy import coarse_ceiling_s, price_of_anarchy, smoothness
from dmodels.games.routing import RoutingGame
from dmodels.models.latency import affine


def at(game):
    """Where five requests are, in every game."""
    return np.broadcast_to([2, 0, 1, 0, 1], (*game.arrays().batch, 5))


ASKED = {
    "prices": price_of_anarchy,
    "prices of a search cut short": lambda game: price_of_anarchy(game, max_boxes=2),
    "prices by the quickest": lambda game: price_of_anarchy(game, max_boxes=1),
    "prices in the paper's form": lambda game: price_of_anarchy(game, paper_form=True),
    "equilibria": routing.nash_range,
    "equilibria of a search cut short": lambda game: routing.nash_range(game, max_boxes=2),
    "play": routing.best_response,
    "play from a start": lambda game: routing.best_response(game, at(game)),
    "arrival": routing.greedy_arrival,
    "least": routing.optimum,
    "smooth": smoothness,
    "coarse": coarse_ceiling_s,
    "by hand": lambda game: [
        of(game, at(game)) for of in (routing.social_cost_s, routing.paper_cost_s, routing.potential)
    ],
    "gain": lambda game: routing.gain_s(game, at(game)),
    "one assignment in every game": lambda game: [
        of(game, [2, 0, 1, 0, 1])
        for of in (routing.social_cost_s, routing.paper_cost_s, routing.potential, routing.gain_s)
    ],
}


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_games_that_share_some_of_what_they_are(ask):
    """Two by two: each of the four is told as if it were alone."""
    leads = (((2, 1), (2,), (), ()), ((2,), (), (2, 1), (2, 1)), ((), (2, 2), (2,), (2,)))
    for seed, (of_curves, of_caches, of_misses, of_sizes) in enumerate(leads):
        rng = np.random.default_rng(seed)
        f = np.sort(rng.integers(1, 12, (*of_curves, 3, 5)), axis=-1).astype(float)
        overlap, omega = rng.integers(0, 3, (*of_caches, 2, 3)) / 2, rng.integers(1, 9, of_misses).astype(float)
        first = rng.permutation(4)[: int(np.prod(of_sizes, dtype=int))].reshape(of_sizes) + 1.0
        counts = np.stack([first, 5.0 - first], -1)
        told = jax.tree.leaves(ask(RoutingGame(f, overlap, omega, counts)))
        for which in itertools.product(range(2), repeat=2):
            pick = lambda a, own, which=which: np.broadcast_to(a, (2, 2, *a.shape[a.ndim - own :]))[which]
            alone = RoutingGame(pick(f, 2), pick(overlap, 2), float(pick(np.asarray(omega), 0)), pick(counts, 1))
            for many, one in zip(told, jax.tree.leaves(ask(alone)), strict=True):
                np.testing.assert_allclose(np.asarray(many)[which], one, rtol=1e-12, atol=0.0)


def test_assignments_are_as_many_as_games_or_one():
    game = RoutingGame([[1.0, 2.0], [1.0, 2.0]], np.zeros((5, 2, 2)), counts=np.ones((5, 2)))
    assert routing.social_cost_s(game, [0, 1]).tolist() == routing.social_cost_s(game, [[0, 1]]).tolist() == [2.0] * 5
    says = r"^assignment has shape \(4, 2\); accepted for a batch of shape \(5,\): a worker for each of 2 requests, "
    with pytest.raises(InputError, match=says + "once or once for each game$"):
        routing.social_cost_s(game, np.zeros((4, 2), int))


def test_one_curve_is_that_of_every_worker():
    """Three requests or groups, two workers."""
    line, caches = affine(1.5, 2.0), np.array([[0.5, 0.0], [0.0, 1.0], [0.0, 0.0]])
    once, twice = (RoutingGame(f, caches, 2.0) for f in (line, [line, line]))
    assert once.arrays().f.tolist() == twice.arrays().f.tolist() == [[[3.5, 5.0, 6.5]] * 2]


def test_games_of_a_batch_may_have_more_requests_than_others():
    """In the paper's form each counts its own: with all caches full nobody pays for a miss, and omega for each."""
    game = RoutingGame([[1.0, 2.0, 4.0]] * 2, np.ones((2, 2)), 5.0, counts=[[1, 1], [1, 2]])
    flows = np.array([[[1, 0], [0, 1]], [[1, 0], [0, 2]]])
    assert routing.social_cost_s(game, flows).tolist() == [1 + 1, 1 + 2 * 2]
    assert routing.paper_cost_s(game, flows).tolist() == [2 - 2 * 5, 5 - 3 * 5]
    came = routing.greedy_arrival(game)  # one to each worker, and a third to the first of them
    assert came.assignment.tolist() == [[0, 1, -1], [0, 0, 1]] and came.cost_s.tolist() == [2.0, 5.0]
    assert came.flow.tolist() == [[[1, 0], [0, 1]], [[1, 0], [1, 1]]] and came.potential_s.tolist() == [2.0, 4.0]
