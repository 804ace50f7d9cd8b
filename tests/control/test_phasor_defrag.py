"""De-fragmentation as bin packing: greedy against the integer programme, the programme against enumeration."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels.control.phasor import defrag
from dmodels.core.flags import Flag

CAPACITY = 12.0
GREEDY = jax.jit(defrag.greedy, static_argnames="moves")
sequences = st.lists(st.lists(st.integers(0, 6), min_size=2, max_size=2), min_size=3, max_size=3)


def padded(rows):
    """Three workers with room for six sequences each."""
    return np.array([row + [0] * 4 for row in rows], float)


def fit(blocks, k):
    return int(((CAPACITY - blocks.sum(1)) // k).sum())


def enumerated(blocks, k):
    """(most requests, fewest blocks moved for it) over all placements."""
    home, slot = np.nonzero(blocks)
    size, best = blocks[home, slot], (-1, 0.0)
    for place in itertools.product(range(3), repeat=size.size):
        used = np.bincount(np.array(place, int), size, 3) if size.size else np.zeros(3)
        if (used <= CAPACITY).all():
            count, moved = ((CAPACITY - used) // k).sum(), size[np.array(place, int) != home].sum()
            best = max(best, (count, -moved))
    return int(best[0]), -best[1]


@settings(max_examples=30)
@given(rows=sequences, k=st.integers(2, 11))
def test_optimum_is_the_best_of_all_placements(rows, k):
    blocks = padded(rows)
    got = defrag.optimum(blocks, CAPACITY, float(k))
    count, moved = enumerated(blocks, k)
    assert (got.value["fit_count"], got.value["moved_blocks"]) == (count, moved)
    place, home = got.value["place"], np.arange(3)[:, None]
    there = blocks > 0
    assert (place[~there] == -1).all() and np.isin(place[there], (0, 1, 2)).all()
    used = np.bincount(place[there], blocks[there], 3)
    assert (used <= CAPACITY).all() and ((CAPACITY - used) // k).sum() == count
    assert blocks[there & (place != home)].sum() == moved
    free = sum(CAPACITY - sum(row) for row in rows)
    assert count <= got.certificate["upper_count"] == free // k and got.flags == 0
    assert got.certificate["bound"] == pytest.approx(moved - count * (blocks.sum() + 1), abs=1e-6)  # what is minimised


ONE, APPLY = jax.jit(defrag.best_move), jax.jit(defrag.apply)


@pytest.mark.parametrize(("unit", "double"), [(1.0, True), (2.0**20, False)])
def test_a_move_is_the_best_of_all(unit, double):
    """Most requests more; without any, the larger remainder of the two workers; then the smallest sequence.

    However many blocks there are, and in a number of half the digits.
    """
    rng, tight = np.random.default_rng(1), 0
    for _ in range(400):
        rows, k, allowed = rng.integers(0, 7, (3, 2)).tolist(), int(rng.integers(1, 12)), int(rng.integers(0, 8))
        merits = merits_of(rows, k, allowed)
        sources = np.array([allowed >> w & 1 for w in range(3)], float)
        with jax.enable_x64(double):
            found = ONE(unit * padded(rows), np.full(3, unit * CAPACITY), unit * k, sources)
        move = (int(found.worker), int(found.slot), int(found.to))
        if not merits:
            assert move == (-1, -1, -1) and float(found.blocks) == 0.0 == float(found.gain_count)
            continue
        assert merits[move] == max(merits.values())
        assert (float(found.gain_count), -float(found.blocks)) == (merits[move][0], unit * merits[move][2])
        tight += max(merits.values())[0] == 0 and len(set(merits.values())) > 1
    assert tight > 20  # where it is for the remainder to decide


def merits_of(rows, k, allowed):
    """(requests more, remainder, blocks spared) of every useful move, by (from, slot, to)."""
    free = [int(CAPACITY) - sum(row) for row in rows]
    merits = {}
    for w, slot, t in itertools.product(range(3), range(2), range(3)):
        size = rows[w][slot]
        if w == t or not size or free[t] < size or not allowed >> w & 1:
            continue
        gain = (free[w] + size) // k + (free[t] - size) // k - free[w] // k - free[t] // k
        more = max((free[w] + size) % k, (free[t] - size) % k) - max(free[w] % k, free[t] % k)
        if gain > 0 or (gain == 0 and more > 0):
            merits[w, slot, t] = (gain, 0 if gain else more, -size)
    return merits


def test_greedy_finds_most_of_what_there_is_to_win():
    """Over random fleets: at least nine tenths of the requests that moving can win."""
    rng = np.random.default_rng(0)
    won = possible = 0
    for _ in range(60):
        blocks = padded(rng.integers(0, 7, (3, 2)).tolist())
        k = int(rng.integers(3, 11))
        start = fit(blocks, k)
        after, _ = GREEDY(jnp.asarray(blocks), jnp.full(3, CAPACITY), float(k), moves=6)
        won += fit(np.asarray(after), k) - start
        possible += int(defrag.optimum(blocks, CAPACITY, float(k)).value["fit_count"]) - start
    assert possible > 10 and won >= 0.9 * possible


def test_two_small_moves_make_room_for_a_large_request():
    """Free 4, 4, 4 and a request of 8: one sequence of 4 moves. With 2 + 2 on each worker two sequences move."""
    one = padded([[4, 4], [4, 4], [4, 4]])
    best = defrag.optimum(one, CAPACITY, 8.0).value
    assert (best["fit_count"], best["moved_blocks"]) == (1.0, 4.0)
    after, moves = GREEDY(jnp.asarray(one), jnp.full(3, CAPACITY), 8.0, moves=6)
    assert fit(np.asarray(after), 8) == 1 and float(moves.blocks.sum()) == 4.0
    two = np.array([[2, 2, 2, 2, 0, 0], [2, 2, 2, 2, 0, 0], [2, 2, 2, 2, 0, 0]], float)
    after, moves = GREEDY(jnp.asarray(two), jnp.full(3, CAPACITY), 8.0, moves=6)
    assert fit(np.asarray(after), 8) == 1 and float(moves.blocks.sum()) == 4.0


def test_trigger_and_wanted():
    blocks = jnp.asarray(padded([[6, 5], [6, 5], [2, 2]]))
    on = defrag.triggered(blocks, CAPACITY, 4.0, defrag.DefragSettings())
    assert np.asarray(on).tolist() == [True, True, False]  # 1 of 12 free and stranded; 8 free, none stranded
    assert not np.asarray(defrag.triggered(blocks, CAPACITY, 1.0, defrag.DefragSettings())).any()
    _, moves = GREEDY(blocks, jnp.full(3, CAPACITY), 4.0, moves=6, wanted_count=2.0)
    assert (np.asarray(moves.worker) == -1).all()  # two requests of 4 fit already
    apart = padded([[6, 4], [6, 4], [2, 2]])  # 2, 2 and 8 free: two fit, and a third where both of 2 move
    _, moves = GREEDY(jnp.asarray(apart), jnp.full(3, CAPACITY), 4.0, moves=6, wanted_count=2.0)
    assert [set(np.asarray(part).tolist()) for part in moves] == [{-1}, {-1}, {-1}, {0.0}, {0.0}]  # as many as wanted
    assert jax.eval_shape(defrag.greedy, jnp.asarray(apart), CAPACITY, 4.0)[1].worker.shape == (8,)  # moves, by itself
    assert defrag.DefragSettings() == (0.168, 0.0)
    few = defrag.DefragSettings(theta_frag=0.9, stranded_frac=0.2)  # from 2.4 of 12 blocks on
    three = jnp.asarray(padded([[6, 3], [6, 4], [6, 5]]))  # 3, 2 and 1 stranded
    assert np.asarray(defrag.triggered(three, CAPACITY, 4.0, few)).tolist() == [True, False, False]
    below = [
        defrag.triggered(jnp.array([[5.0, 2.0]]), CAPACITY, 4.0, defrag.DefragSettings(theta)) for theta in (0.3, 0.4)
    ]
    assert [on.tolist() for on in below] == [[False], [True]]  # 5 free, 1 of them stranded: a third of 12 is left
    half = [
        defrag.triggered(jnp.array([[3.0, 0.0]]), 8.0, 4.0, defrag.DefragSettings(theta)).tolist()
        for theta in (0.5, 0.51)
    ]
    assert half == [[False], [True]]  # 5 of 8 free and 1 stranded: exactly a half is not below it
    every, two, none = (defrag.optimum(apart, CAPACITY, 4.0, count).value for count in (None, 2.0, 0.0))
    assert [(x["fit_count"], x["moved_blocks"]) for x in (every, two, none)] == [(3.0, 4.0), (2.0, 0.0), (0.0, 0.0)]
    full = defrag.optimum(np.full((2, 2), 20.0), CAPACITY, 4.0)  # they never fitted: 80 blocks in 24
    assert full.flags == Flag.INFEASIBLE and full.steps == 0 and full.value["place"].tolist() == [[-1, -1]] * 2
    assert np.isnan([full.value["fit_count"], full.value["moved_blocks"], full.certificate["bound"]]).all()
    assert full.certificate["upper_count"] == -14
    empty = defrag.optimum(np.zeros((2, 3)), CAPACITY, 5.0)
    assert (empty.value["fit_count"], empty.value["moved_blocks"], empty.flags) == (4.0, 0.0, 0)


@settings(max_examples=60)
@given(rows=sequences, k=st.integers(2, 11), wanted=st.sampled_from([1.0, 2.0, np.inf]))
def test_greedy_is_best_moves_in_a_row_up_to_the_first_best_state(rows, k, wanted):
    now, moves, states = padded(rows), [], [padded(rows)]
    for _ in range(6):
        move = ONE(jnp.asarray(now), jnp.full(3, CAPACITY), float(k), jnp.ones(3))
        if fit(now, k) >= wanted or int(move.worker) < 0 or not (now[int(move.to)] == 0).any():
            break
        applied, now = APPLY(jnp.asarray(now), move), now.copy()
        now[int(move.worker), int(move.slot)] = 0
        now[int(move.to), int((now[int(move.to)] == 0).argmax())] = float(move.blocks)
        np.testing.assert_array_equal(applied, now)
        moves.append((int(move.worker), int(move.slot), int(move.to)))
        states.append(now)
    best = max(range(len(states)), key=lambda i: fit(states[i], k))
    after, made = GREEDY(jnp.asarray(padded(rows)), jnp.full(3, CAPACITY), float(k), moves=6, wanted_count=wanted)
    np.testing.assert_array_equal(after, states[best])
    told = [(int(w), int(s), int(t)) for w, s, t in zip(made.worker, made.slot, made.to, strict=True) if w >= 0]
    assert told == moves[:best]
    assert fit(np.asarray(after), k) == fit(padded(rows), k) + int(np.asarray(made.gain_count).sum())
