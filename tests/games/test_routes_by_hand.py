"""What placements cost and what moves gain, request by request in plain Python, in batches of any shape."""

from __future__ import annotations

from math import inf, prod

import numpy as np
import pytest

from dmodels.games import routing
from dmodels.games.routing import RoutingGame

#: Leading axes of curves, caches, costs of a miss and sizes of groups; those of all together.
BATCHES = [
    ((), (), (), (), ()),
    ((4,), (), (), (), (4,)),
    ((), (4,), (4,), (), (4,)),
    ((2, 1), (3,), (), (2, 1), (2, 3)),
    ((3,), (2, 1), (2, 3), (), (2, 3)),
    ((), (), (), (2, 3), (2, 3)),
    ((1,), (1, 1), (3,), (1,), (1, 3)),
]


def drawn(seed, shapes, most):
    """A batch of games of two groups on three workers, and where its requests are: one placement for each game."""
    rng = np.random.default_rng(seed)
    curves, caches, misses, sizes, batch = shapes
    first = rng.integers(0, most + 1, sizes)
    counts = np.stack([first, most - first], -1)
    f = np.cumsum(rng.integers(0, 9, (*curves, 3, most)), -1).astype(float)
    full = rng.integers(1, most + 1, (*curves, 3, 1))
    if seed % 3 == 0:  # workers that are full at some load
        f = np.where(np.arange(most) < full, f, inf)
    overlap = rng.integers(0, 5, (*caches, 2, 3)) / 4
    game = RoutingGame(f, overlap, rng.integers(0, 9, misses).astype(float), counts)
    return game, f, overlap, counts, rng.integers(0, 3, (*batch, most))


def one(a, own, batch, which):
    """What a game of the batch has of an array with `own` axes of its own."""
    return np.broadcast_to(a, (*batch, *a.shape[a.ndim - own :]))[which]


@pytest.mark.parametrize("shapes", BATCHES)
@pytest.mark.parametrize("most", [1, 5])
def test_costs_and_gains_of_every_request(shapes, most):
    batch = shapes[-1]
    for seed in range(3):
        game, f, overlap, counts, seats = drawn(seed, shapes, most)
        a, flows = game.arrays(), routing.flow(game, seats)
        assert (a.batch, a.size, game.workers_count, game.groups_count) == (batch, prod(batch), 3, 2)
        told = [of(game, seats) for of in (routing.social_cost_s, routing.potential, routing.paper_cost_s)]
        gains = routing.gain_s(game, seats)
        assert gains.shape == batch and flows.shape == (*batch, 2, 3)
        for which in np.ndindex(batch):
            own = lambda array, axes, which=which: one(array, axes, batch, which)
            late, size, omega = own(f, 2), own(counts, 1).tolist(), float(own(game.omega, 0))
            private = omega * (1 - own(overlap, 2))
            kept = [own(array, axes).tolist() for array, axes in zip(a.shaped(), (2, 2, 1), strict=True)]
            assert kept == [late.tolist(), private.tolist(), size]
            owner, at = [0] * size[0] + [1] * size[1], seats[which].tolist()
            load = [at.count(j) for j in range(3)]
            misses = sum(private[g, j] for g, j in zip(owner, at, strict=True))
            pays = [late[j, load[j] - 1] + private[g, j] for g, j in zip(owner, at, strict=True)]
            elsewhere = [
                min(late[k, load[k]] + private[g, k] for k in range(3) if k != j)
                for g, j in zip(owner, at, strict=True)
            ]
            saved = [pay - least for pay, least in zip(pays, elsewhere, strict=True) if least < inf]
            assert told[0][which] == pytest.approx(sum(pays))
            assert told[1][which] == pytest.approx(sum(late[j, n] for j in range(3) for n in range(load[j])) + misses)
            assert told[2][which] == pytest.approx(sum(pays) - omega * most)
            assert gains[which] == pytest.approx(max(saved, default=-inf))
            seated = sorted(zip(owner, at, strict=True))
            assert flows[which].tolist() == [[seated.count((g, j)) for j in range(3)] for g in range(2)]
            assert routing.worker_of_each(flows[which]).tolist() == [j for _, j in seated]


@pytest.mark.parametrize("most_boxes", [1, 3])
def test_ends_of_a_short_search_are_equilibria_of_their_costs(most_boxes):
    """The cheaper first, whichever was found first; what was not looked at lies outside."""
    rng = np.random.default_rng(2)
    f, overlap = rng.integers(0, 9, (60, 3, 4)).astype(float), rng.integers(0, 3, (60, 2, 3)) / 2
    game = RoutingGame(f, overlap, 4.0, [2, 2])
    found = routing.nash_range(game, max_boxes=most_boxes)
    ends = found.value
    assert (ends.best_floor_s <= ends.best_s).all() and (ends.worst_s <= ends.worst_ceiling_s).all()
    for flow, cost in ((ends.best_flow, ends.best_s), (ends.worst_flow, ends.worst_s)):
        assert routing.social_cost_s(game, flow) == pytest.approx(cost) and (routing.gain_s(game, flow) <= 1e-12).all()
    assert (ends.best_s <= ends.worst_s).all() and (ends.best_s < ends.worst_s).sum() > 10
    assert found.certificate["complete"].sum() < 50
