"""The prefill/decode game: closed forms, brute force, several equilibria, corners, optimum, whole workers."""

from __future__ import annotations

import itertools
import math
import re
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.games.resource import (
    Alone,
    Exponential,
    Game,
    Logistic,
    Multiplied,
    Power,
    Starved,
    balance_of,
    equilibria,
    equilibrium,
    explain,
    integer_split,
    social_optimum,
)


class Three(eqx.Module):
    """The counterexample to "unique" (proofs, POA-1b): V_T and V_I convex in their owner's GPUs, G = 1."""

    @staticmethod
    def prefill(x):
        return ((1 - x) ** 2 + 5 * (1 - x)) / 64

    @staticmethod
    def decode(d, p):
        kappa = 4 + 2 * (1 - 2 * p) + 4 * (p - 0.25) * (p - 0.5) * (p - 0.75)
        return ((1 - d) ** 2 + (1 - d) + (1 - d) * kappa) / 64


def grid_equilibrium(prefill_slope, decode_slope, budget, points=2001):
    """Where V_T'(x) - V_D'(G - x) changes sign on a fine grid (one change expected), or the corner."""
    x = np.linspace(0.0, 1.0, points) * budget[:, None]
    g = prefill_slope(x) - decode_slope(budget[:, None] - x)
    k = np.argmax(g >= 0, axis=1)
    low = np.take_along_axis(x, np.maximum(k - 1, 0)[:, None], 1)[:, 0]
    high = np.take_along_axis(x, k[:, None], 1)[:, 0]
    none = ~(g >= 0).any(axis=1)
    return np.where(none, budget, low), np.where(none, budget, high)


def test_exponential_families_have_the_closed_form_with_its_corners():
    rng = np.random.default_rng(1)
    a, b, total = rng.uniform(0.02, 3, 10_000), rng.uniform(0.02, 3, 10_000), rng.uniform(2, 100, 10_000)
    found = equilibrium(Game(Exponential(a), Alone(Exponential(b)), total))
    exact = np.clip((b * total + np.log(a / b)) / (a + b), 0.0, total)
    np.testing.assert_allclose(found.value.prefill_gpus, exact, rtol=1e-12, atol=1e-10)
    assert (exact == 0).any() and (exact == total).any()
    assert found.certificate["kkt_residual"].max() < 1e-14 and not found.flags.any()
    assert (found.certificate["equilibria_count"] == 1).all()


def test_ten_thousand_games_against_a_grid():
    rng = np.random.default_rng(2)
    n = 10_000
    rate, knee, order = rng.uniform(0.05, 2, n), rng.uniform(0.5, 20, n), rng.uniform(0.5, 4, n)
    total, weight = rng.uniform(2, 64, n), rng.uniform(0.2, 5, n)
    game = Game(Power(knee, order), Alone(Exponential(rate)), total, prefill_weight=weight)
    found = equilibrium(game)
    col = lambda v: v[:, None]
    low, high = grid_equilibrium(
        lambda x: -col(weight * order / knee) * (1 + x / col(knee)) ** (-col(order) - 1),
        lambda d: -col(rate) * np.exp(-col(rate) * d),
        total,
    )
    x = found.value.prefill_gpus
    assert np.all((low - 1e-9 <= x) & (x <= high + 1e-9))
    assert found.certificate["kkt_residual"].max() < 1e-13


def test_the_counterexample_to_uniqueness_has_exactly_three_equilibria():
    three = Three()
    game = Game(three.prefill, three.decode, 1.0, prefill_worker_gpus=0.125, decode_worker_gpus=0.125)
    found = equilibrium(game)
    np.testing.assert_allclose(found.certificate["equilibria_gpus"][:3], [0.25, 0.5, 0.75], atol=1e-12)
    assert found.certificate["equilibria_count"] == 3 and found.certificate["proved"] == 1
    assert found.flags == Flag.NOT_UNIQUE
    assert np.isnan(found.certificate["equilibria_gpus"][3:]).all() and len(found.certificate["equilibria_gpus"]) == 10
    assert found.certificate["stable"][:3].tolist() == [True, False, True]  # the middle one repels a small move
    assert "3 equilibria were found, at 0.25, 0.5, 0.75 prefill GPUs" in explain(game, found)[0] and found.steps == 64
    roots = equilibria(game)
    assert roots.complete and len(roots.roots) == 3


def test_equilibria_that_a_scan_takes_for_none_are_counted():
    """One more GPU saves prefill 1, and decode that and 3 times the product of x less five numbers, of which two lie
    between two points of the scan: it sees the other three, and what is proved is that there are five."""
    roots = np.array([0.1, 0.3, 0.305, 0.5, 0.9])
    saved = np.polynomial.Polynomial.fromroots(1 - roots) * -3.0 + 1.0
    rate = 9.0 - saved.integ()

    def decode(d, p):
        left = 0.0 * p
        for factor in rate.coef[::-1]:
            left = left * d + float(factor)
        return left

    game = Game(lambda x: 9.0 - x, decode, 1.0, prefill_worker_gpus=0.1, decode_worker_gpus=0.1)
    found = equilibrium(game)
    assert found.certificate["equilibria_gpus"][:5] == pytest.approx(roots, abs=1e-9)
    assert found.certificate["equilibria_count"] == 5 and found.certificate["proved"] == 0
    assert found.flags == Flag.NOT_UNIQUE and "5 equilibria were found" in explain(game, found)[0]


class Curve(eqx.Module):
    """Rates of which one more GPU saves `start` + `slope` d + `bend` d^2."""

    start: float
    slope: float
    bend: float

    def __call__(self, d, p=0.0):
        return 9.0 - d * (self.start + d * (self.slope / 2 + d * self.bend / 3)) + 0.0 * p


def test_corners_at_which_both_save_the_same():
    """Prefill saves 1 with each GPU of one. Decode's first saves nothing and its last 1: all to either is at rest. Or
    its first saves 1 and its last nothing: all to prefill. And no GPU is split in one way, whoever would save more."""
    fixed = lambda *each: np.array(each)
    decode = Curve(fixed(0.0, 1.0, 0.0, 5.0), fixed(0.0, -2.0, 0.0, 0.0), fixed(1.0, 1.0, 1.0, 1.0))
    prefill = Curve(np.ones(4), np.zeros(4), np.zeros(4))
    found = equilibrium(Game(prefill, decode, fixed(1.0, 1.0, 0.0, 0.0), 1.0, 1.0, 0.25, 0.25))
    listed = found.certificate["equilibria_gpus"]
    assert [row[np.isfinite(row)].tolist() for row in listed] == [[0.0, 1.0], [1.0], [0.0], [0.0]]
    assert found.certificate["equilibria_count"].tolist() == [2.0, 1.0, 1.0, 1.0]
    assert found.value.prefill_gpus.tolist() == [1.0, 1.0, 0.0, 0.0]  # 9 - 1 and 9, against 9 and 9 - 1/3
    assert [int(f) & int(Flag.NOT_CONVERGED) for f in found.flags] == [0] * 4
    for k in range(2):  # and alone, with proof
        one = jax.tree.map(lambda leaf, k=k: float(leaf[k]), (prefill, decode))
        alone = equilibrium(Game(*one, 1.0, 1.0, 1.0, 0.25, 0.25))
        np.testing.assert_array_equal(alone.certificate["equilibria_gpus"], listed[k])
        assert alone.certificate["proved"] == 1.0 and alone.value.prefill_gpus == found.value.prefill_gpus[k]
        assert alone.certificate["equilibria_count"] == np.isfinite(listed[k]).sum() == 2 - k
        assert bool(alone.flags & Flag.NOT_UNIQUE) == (k == 0)


def test_a_corner_where_equation_5_has_no_solution():
    game = Game(
        lambda x: (2 - x) ** 2 / 4, lambda d, p: (2 - d) ** 2 / 16, 1.0, prefill_worker_gpus=0.1, decode_worker_gpus=0.1
    )
    found = equilibrium(game)
    assert found.value.prefill_gpus == 1.0 and found.certificate["kkt_residual"] == 0.0
    assert found.value.multiplier == 0.5  # what the one who has all would save with more
    kept = found.certificate
    assert kept["marginal_prefill"] == 0.5 and kept["marginal_decode"] == 0.25
    assert kept["equilibria_gpus"].tolist() == pytest.approx([1.0] + 9 * [np.nan], nan_ok=True)
    assert kept["stable"].tolist() == [True] + 9 * [False] and kept["equilibria_count"] == kept["proved"] == 1.0
    assert kept["least_slope"] == pytest.approx(1 / 2 + 1 / 8)  # of (1 + x) / 8 - (2 - x) / 2
    assert kept["alike_low_gpus"] == kept["alike_high_gpus"] == 1.0
    assert found.flags == 0  # the scan found g increasing, the interval proof found no other root
    other = equilibrium(game.replace(prefill=lambda x: (2 - x) ** 2 / 16, decode=lambda d, p: (2 - d) ** 2 / 4))
    assert other.value.prefill_gpus == 0.0 and other.value.multiplier == 0.5 and other.flags == 0
    assert other.certificate["equilibria_gpus"].tolist() == pytest.approx([0.0] + 9 * [np.nan], nan_ok=True)
    assert other.certificate["proved"] == other.certificate["equilibria_count"] == 1.0
    best = social_optimum(game)
    assert best.flags == 0 and best.certificate["slope"] == 0.0
    assert list(vars(best.value).values()) == list(vars(found.value).values()) == [1.0, 0.0, 0.25, 0.25, 0.5, 0.5]


def test_rosens_weights_move_the_equilibrium():
    game = Game(Exponential(0.3), Alone(Exponential(0.3)), 10.0)
    even, dear = (equilibrium(game.replace(prefill_weight=w)).value.prefill_gpus for w in (1.0, 4.0))
    assert even == pytest.approx(5.0) and dear == pytest.approx(5.0 + np.log(4) / 0.6)


def test_optimum_against_brute_force_and_never_below_the_smallest_equilibrium():
    rng = np.random.default_rng(3)
    n = 500
    u = lambda low, high: rng.uniform(low, high, n)
    game = Game(
        Logistic(u(2, 20), u(0.5, 3)), Multiplied(Exponential(u(0.05, 1)), Power(u(1, 10), u(0.5, 2))), u(4, 40)
    )
    best, selfish = social_optimum(game), equilibrium(game)
    x = np.linspace(0, 1, 4001) * game.budget_gpus[:, None]
    wide = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (n,))[:, None], game)
    brute = np.asarray(wide.cost(x)).min(axis=1)
    assert np.all(best.value.cost <= brute + 1e-12)
    np.testing.assert_allclose(best.value.cost, brute, atol=2e-3)
    smallest = np.nanmin(selfish.certificate["equilibria_gpus"], axis=1)
    assert np.all(best.value.prefill_gpus >= smallest - 1e-9)  # Remark 1, in the form that is true
    assert np.all(selfish.value.cost >= best.value.cost - 1e-12)
    assert ((selfish.flags & Flag.NOT_UNIQUE) > 0).any()
    # what decode's next GPU saves less what prefill's does, from the derivatives of the three laws
    (late, own, hungry), total = (game.prefill, game.decode.own, game.decode.starvation), game.budget_gpus[:, None]
    col = lambda leaf: np.broadcast_to(leaf, (n,))[:, None]

    def gap(x):
        s = expit((col(late.middle_gpus) - x) / col(late.width_gpus))
        rate = col(own.rate_per_gpu)
        starved = (1 + x / col(hungry.knee_gpus)) ** -col(hungry.order)
        return rate * np.exp(-rate * (total - x)) * starved - s * (1 - s) / col(late.width_gpus)

    g = gap(x)
    turns = np.diff(g > 0, axis=1)
    corners = np.stack([g[:, 0] >= 0, g[:, -1] <= 0], axis=1)
    count, kept = turns.sum(1) + corners.sum(1), selfish.certificate
    seen = count == kept["equilibria_count"]
    assert seen.mean() > 0.99 and (count > 1).sum() > 20 and corners.any(0).all()  # close pairs can hide in a cell
    for k in np.flatnonzero(seen):
        places = np.sort(np.concatenate([x[k, 1:][turns[k]], np.array([0.0, x[k, -1]])[corners[k]]]))
        listed = kept["equilibria_gpus"][k]
        assert listed[np.isfinite(listed)] == pytest.approx(places, abs=1.01 * x[k, 1])
    cells = np.diff(gap(np.linspace(0, 1, 65) * total), axis=1) / (total / 64)
    np.testing.assert_allclose(kept["least_slope"], cells.min(1), rtol=1e-6, atol=1e-12)
    several, bent = kept["equilibria_count"] > 1, cells.min(1) <= 0  # bent: there may be several that nobody saw
    np.testing.assert_array_equal((selfish.flags & Flag.NOT_UNIQUE) > 0, several | bent)
    assert (several & bent).any() and (~several & bent).any() and (~bent).any()


def test_a_split_by_hand():
    """Every GPU halves what is late; a late first token costs four times as much, and of six GPUs prefill gets four.
    Of three workers each as many, with GPUs that come in pairs; what the others save or cost is worked out, too."""
    half = math.log(2.0)
    game = Game(Exponential(half), Alone(Exponential(half)), 6.0, prefill_weight=4.0)
    assert [float(rate(5.0)) for rate in (game.ttft, game.itl, game.cost)] == [4 / 32, 1 / 2, 5 / 8]
    assert list(map(float, game.marginals(5.0))) == pytest.approx([half / 8, half / 2])
    assert float(game.difference(5.0)) == pytest.approx(3 / 8 * half)
    assert float(game.balance(5.0)) == pytest.approx(math.log(4.0))
    for found in (equilibrium(game), social_optimum(game)):
        assert list(vars(found.value).values()) == pytest.approx([4.0, 2.0, 1 / 16, 1 / 4, 1 / 2, half / 4])
        assert not found.flags
    told = {"marginal_prefill": half / 4, "marginal_decode": half / 4, "kkt_residual": 0.0, "equilibria_count": 1.0}
    assert equilibrium(game).certificate == pytest.approx(told, abs=1e-12)
    gap = (1.0 - math.cosh(half / 32)) / 2  # to the nearest of the scan's 65 points, 1/32 GPU away
    told = {"slope": 0.0, "gap": gap, "largest_cost": 4.0 + 1 / 64, "bound": 1 / 2}
    assert social_optimum(game).certificate == pytest.approx(told, abs=1e-12)
    whole = integer_split(game.replace(prefill_worker_gpus=2.0, decode_worker_gpus=2.0))
    assert list(vars(whole.value).values()) == pytest.approx([2.0, 1.0, 4.0, 2.0, 1 / 16, 1 / 4, 1 / 2])
    assert whole.certificate["cost_by_prefill"].tolist() == pytest.approx([4 / 4 + 1 / 16, 1 / 2, np.inf])
    assert whole.certificate["swap_stable"].tolist() == [0.0, 1.0, 0.0]
    assert whole.certificate["integrality_gap"] == pytest.approx(0.0, abs=1e-12)
    assert (whole.flags, whole.steps) == (0, 3)


def test_half_a_gpu_by_hand():
    """Shared evenly; or all to the side on which the last bit of it still saves more than the first on the other. The
    same where decode's rate is multiplied by one, by which it is not known to be convex."""
    for of_prefill, of_decode, gpus in ((1.0, 1.0, 0.25), (8.0, 0.1, 0.5), (0.1, 8.0, 0.0)):
        late = math.exp(-of_prefill * gpus), math.exp(-of_decode * (0.5 - gpus))
        saved = of_prefill * late[0] if gpus else of_decode * late[1]
        for decode in (Alone(Exponential(of_decode)), Multiplied(Exponential(of_decode), Exponential(0.0))):
            game = Game(Exponential(of_prefill), decode, 0.5, 1.0, 1.0, 0.125, 0.125)
            for found in (equilibrium(game), social_optimum(game)):
                told = list(vars(found.value).values())
                assert told == pytest.approx([gpus, 0.5 - gpus, *late, sum(late), saved], abs=1e-9)
                assert found.flags == 0
                kept = found.certificate
                assert kept.get("kkt_residual", 0.0) <= 1e-12 and 0 <= kept.get("slope", 0.0) <= 1e-9
    first, second = np.array([1.0, 8.0, 0.1]), np.array([1.0, 0.1, 8.0])
    decode = Multiplied(Exponential(second), Exponential(np.zeros(3)))
    together = equilibrium(Game(Exponential(first), decode, 0.5, 1.0, 1.0, 0.125, 0.125))
    assert together.value.prefill_gpus == pytest.approx([0.25, 0.5, 0.0]) and not together.flags.any()
    assert (together.certificate["proved"] == 0).all()  # of several games none is: the scan found nothing to doubt


def test_starvation_moves_the_optimum_and_not_the_equilibrium():
    plain = Game(Exponential(0.4), Alone(Exponential(0.2)), 16.0)
    starved = plain.replace(decode=Starved(Exponential(0.2), Exponential(0.5, 0.3)))
    assert equilibrium(plain).value.prefill_gpus == equilibrium(starved).value.prefill_gpus
    assert social_optimum(starved).value.prefill_gpus > social_optimum(plain).value.prefill_gpus + 0.1
    assert social_optimum(plain).value.prefill_gpus == pytest.approx(equilibrium(plain).value.prefill_gpus, abs=1e-9)
    # one root, or as many cells as are scanned
    assert (equilibrium(plain).steps, social_optimum(plain).steps) == (1, 64)


def test_at_an_optimum_one_more_gpu_goes_to_whom_it_saves_more():
    """To decode, where prefill feeds it; to prefill, where each of its GPUs is a burden to decode."""
    for slope in (-0.2, 0.2):
        game = Game(Exponential(1.0), Starved(Exponential(1.0), lambda p, slope=slope: slope * p), 1.5)
        best = social_optimum(game.replace(prefill_worker_gpus=0.25, decode_worker_gpus=0.25)).value
        saved = math.exp(-best.prefill_gpus), math.exp(-best.decode_gpus)
        assert 0 < best.prefill_gpus < 1 and saved[0] - saved[1] == pytest.approx(slope)
        assert best.multiplier == pytest.approx(max(saved))


def test_derivatives_of_the_split_match_finite_differences():
    def split(v):
        return equilibrium(Game(Power(v[0], v[1]), Alone(Exponential(v[2])), v[3], v[4])).value.prefill_gpus

    def optimum(v):
        game = Game(Power(v[0], v[1]), Starved(Exponential(v[2]), Power(v[1], v[0])), v[3], v[4])
        return social_optimum(game).value.prefill_gpus

    at = jnp.array([3.0, 1.5, 0.5, 9.0, 0.8])
    for function in (split, optimum):
        backward = jax.grad(function)(at)
        steps = 1e-5 * jnp.eye(5)
        central = np.array([(function(at + e) - function(at - e)) / 2e-5 for e in steps])
        np.testing.assert_allclose(backward, central, rtol=1e-6, atol=1e-8)


def test_whole_workers_against_enumeration():
    game = Game(Power(4.0, 2.0), Alone(Power(6.0, 2.0)), 64.0, prefill_worker_gpus=4.0, decode_worker_gpus=8.0)
    found = integer_split(game)
    options = [(p, (64 - 4 * p) // 8) for p in range(1, 17) if (64 - 4 * p) // 8 >= 1]
    costs = [(1 + 4 * p / 4) ** -2 + (1 + 8 * d / 6) ** -2 for p, d in options]
    assert (found.value.prefill_instances, found.value.decode_instances) == options[int(np.argmin(costs))]
    assert found.value.cost == pytest.approx(min(costs)) and found.certificate["integrality_gap"] >= 0
    assert found.certificate["swap_stable"].any()


@pytest.mark.parametrize("budget", [20.0, 21.0, 40.0])
def test_of_splits_that_nobody_can_tell_apart_the_middle_one_is_taken(budget):
    """Nobody is late from 4 GPUs on, on either side: 4 to budget - 4 are alike, and the middle is far from the ends."""
    game = Game(Logistic(3.5, 0.02), Alone(Logistic(3.5, 0.02)), budget)
    first, last = 4, int(budget) - 4
    whole = integer_split(game).value
    assert int(whole.prefill_instances) == (first + last) // 2
    assert int(whole.prefill_instances + whole.decode_instances) == int(budget)


def test_workers_of_a_seventh_of_a_gpu_are_seven_and_two_splits_may_be_alike():
    """A slice is less than it should be by a last digit; none of the two splits of three GPUs is better."""
    seventh = integer_split(Game(Exponential(0.5), Alone(Exponential(0.5)), 1.0, 1.0, 1.0, 1 / 7, 1 / 7))
    assert np.isfinite(seventh.certificate["cost_by_prefill"]).tolist() == [True] * 6 + [False]
    assert float(seventh.value.prefill_instances + seventh.value.decode_instances) == 7
    two = integer_split(Game(Exponential(0.5), Alone(Exponential(0.5)), 3.0))
    assert two.certificate["swap_stable"].tolist() == [1.0, 1.0, 0.0]
    costs = two.certificate["cost_by_prefill"]
    assert costs[0] == costs[1] == pytest.approx(math.exp(-0.5) + math.exp(-1.0)) and costs[2] == np.inf
    for better, instances in ((2e-6, 2), (5e-7, 1)):  # two of prefill cost less, by more than a millionth or not
        weight = 1.0 + better / (math.exp(-0.5) - math.exp(-1.0))
        found = integer_split(Game(Exponential(0.5), Alone(Exponential(0.5)), 3.0, weight))
        assert int(found.value.prefill_instances) == instances


@pytest.mark.parametrize(("missing", "flag"), [(1e-9, 0), (1e-8, Flag.FIRST_ORDER_ONLY)])
def test_an_optimum_is_proved_to_a_billionth_of_the_largest_cost(missing, flag, monkeypatch):
    """By a search that says of every cost that it could be so much less."""
    game = Game(Logistic(3.5, 0.02), Alone(Logistic(3.5, 0.02)), 20.0)
    largest = float(social_optimum(game).certificate["largest_cost"])
    monkeypatch.setattr(
        "dmodels.games.resource.solve.least_values",
        lambda cost, total, known, given: (known - missing * largest, known, np.full(known.shape, np.nan)),
    )
    found = social_optimum(game)
    assert found.flags == flag and found.value.cost - found.certificate["bound"] == pytest.approx(missing * largest)


def test_trouble_has_a_flag_and_a_sentence():
    tight = Game(Exponential(0.3), Alone(Exponential(0.5)), 3.0, prefill_worker_gpus=2.0, decode_worker_gpus=4.0)
    found = equilibrium(tight)
    said = "The budget of 3 GPUs does not hold one prefill worker of 2 and one decode worker of 4."
    assert found.flags & Flag.INFEASIBLE and explain(tight, found) == [said]
    whole = integer_split(tight)
    assert whole.flags & Flag.INFEASIBLE and np.isinf(whole.value.cost) and np.isnan(whole.value.decode_gpus)
    assert whole.certificate["cost_by_prefill"].tolist() == [np.inf] and whole.steps == 1
    never = integer_split(Game(lambda x: x + jnp.inf, Alone(Exponential(0.5)), 4.0))  # in none of its splits
    assert never.flags == Flag.NONFINITE and np.isinf(never.certificate["cost_by_prefill"]).all()
    wavy = Game(Logistic(6.0, 0.5), Alone(Logistic(6.0, 0.5)), 9.0)  # together they need 12
    found = equilibrium(wavy)
    assert found.flags & Flag.NOT_UNIQUE and "not convex" in explain(wavy, found)[0]
    rising = Game(lambda x: 0.1 * x, lambda d, p: 1 / (1 + d), 4.0)
    found = equilibrium(rising)
    assert found.flags & Flag.OUT_OF_DOMAIN and "rises" in explain(rising, found)[0]
    for budget, flag in ((-1.0, Flag.OUT_OF_DOMAIN), (0.0, Flag.INFEASIBLE)):
        for decode in (Alone(Exponential(0.5)), Alone(Logistic(2.0, 0.5))):
            found = equilibrium(Game(Exponential(0.3), decode, budget))
            assert found.flags & flag and found.value.prefill_gpus == 0.0


def test_a_budget_of_one_worker_each_is_enough_and_a_side_may_count_for_nothing():
    """And with no GPU at all there is one split of them."""
    just = Game(Exponential(0.3), Alone(Exponential(0.5)), 6.0, prefill_worker_gpus=2.0, decode_worker_gpus=4.0)
    assert not equilibrium(just).flags and equilibrium(just.replace(budget_gpus=5.99)).flags == Flag.INFEASIBLE
    saved = {0.0: 0.5 * math.exp(-3.0), 6.0: 0.3 * math.exp(-1.8)}  # by one GPU more for who has six
    for weights, split in (((0.0, 1.0), 0.0), ((1.0, 0.0), 6.0)):
        found = equilibrium(just.replace(prefill_weight=weights[0], decode_weight=weights[1]))
        assert not found.flags and found.value.prefill_gpus == split
        assert float(found.value.multiplier) == pytest.approx(saved[split])
    nothing = equilibrium(Game(Logistic(6.0, 0.5), Alone(Logistic(6.0, 0.5)), 0.0))
    assert nothing.value.prefill_gpus == nothing.value.decode_gpus == 0.0 and nothing.flags & Flag.INFEASIBLE
    assert not nothing.flags & Flag.OUT_OF_DOMAIN
    assert nothing.certificate["equilibria_count"] == 1


def test_it_is_said_where_one_more_gpu_changes_nothing_and_nowhere_else():
    """Either side is well with 6 GPUs; of 20 the other 8 are anybody's. Of 9 each GPU counts."""
    ample, short = (Game(Logistic(4.0, 0.1), Alone(Logistic(4.0, 0.1)), gpus) for gpus in (20.0, 9.0))
    (said,) = (line for line in explain(ample, equilibrium(ample)) if line.startswith("One more GPU"))
    low, high = map(float, re.search(r"every split from (\S+) to (\S+) prefill GPUs", said).groups())
    assert 5 < low < 7 and 13 < high < 15 and float(ample.cost(low)) < 3e-6 and float(ample.cost(high)) < 3e-6
    assert said.endswith(" prefill GPUs costs the same to within 1e-06.")
    assert "One more GPU" not in " ".join(explain(short, equilibrium(short)))
    few, *more = explain(scarce := ample.replace(budget_gpus=1.5), equilibrium(scarce))  # nor does one here
    assert few.startswith("The budget of 1.5 GPUs does not hold") and "One more GPU" not in " ".join(more)


def test_all_that_is_said_of_a_split():
    """A sentence for every flag, in this order, and one on what costs the same."""
    game = Game(Exponential(0.3), Alone(Exponential(0.5)), 7.0, prefill_worker_gpus=3.0, decode_worker_gpus=5.0)
    places = np.array([0.5, 1.23456, 6.0, np.nan])

    def said(flags, multiplier=1.0, count=3.0):
        kept = {"equilibria_count": count, "equilibria_gpus": places, "alike_low_gpus": 2.5, "alike_high_gpus": 4.0}
        value = SimpleNamespace(multiplier=multiplier)
        return explain(game, SimpleNamespace(flags=flags, certificate=kept, value=value))

    every = Flag.INFEASIBLE | Flag.OUT_OF_DOMAIN | Flag.NONFINITE | Flag.NOT_CONVERGED | Flag.NOT_UNIQUE
    assert said(every, 0.0) == [
        "The budget of 7 GPUs does not hold one prefill worker of 3 and one decode worker of 5.",
        "A violation rate rises with its owner's GPUs, or neither depends on them, or a budget or weight is negative: "
        "the game's assumptions do not hold.",
        "A violation rate is not a finite number somewhere on the budget line.",
        "No equilibrium was bracketed on the budget line.",
        "The violation curves are not convex along the budget, and 3 equilibria were found, at 0.5, 1.235, 6 prefill "
        "GPUs; the stable one with the least cost is reported.",
    ]
    one, none = (said(Flag.NOT_UNIQUE, count=count) for count in (1.0, 0.0))
    assert none == [] and one == [
        "The violation curves are not convex along the budget: the equilibrium need not be unique, though only one was "
        "found."
    ]
    assert "and 2 equilibria were found" in said(Flag.NOT_UNIQUE, count=2.0)[0]  # as where two curves touch
    alike = "One more GPU would not change either rate measurably: every split from 2.5 to 4 prefill GPUs costs the "
    assert [said(0, saved) for saved in (1e-6, 9e-7)] == [[], [alike + "same to within 1e-06."]]


@pytest.mark.parametrize("count, seed", [(200, 0), pytest.param(100_000, 1, marks=pytest.mark.slow)])
def test_steep_logistic_games_have_their_optimum_and_its_proof(count, seed):
    """Widths down to 1/1000 of a GPU: between two walls the optimum is a gap that no fixed grid sees. GPUs in units and
    weights from 1e-15 to 1e15, the latter in half of the games apart from each other."""
    rng = np.random.default_rng(seed)
    u = lambda low, high: rng.uniform(low, high, count)
    first, second, total = u(2, 30), u(2, 30), u(8, 64)
    total[: count // 4] = (first + second)[: count // 4] * (1 + 1e-3)  # both fit, just
    wide = 10 ** rng.uniform(-3, 0, (2, count))
    unit, weight, other = 10.0 ** rng.uniform(-15, 15, (3, count))
    other[: count // 2] = weight[: count // 2]
    unit[: count // 4 : 2] = weight[: count // 4 : 2] = other[: count // 4 : 2] = 1.0
    decode = Alone(Logistic(second * unit, wide[1] * unit))
    game = Game(Logistic(first * unit, wide[0] * unit), decode, total * unit, weight, other, unit, unit)
    found = social_optimum(game)
    assert not found.flags.any()
    size = np.maximum(weight, other)

    def cost(x, k):
        late = expit((first[k] - x) / wide[0, k]), expit((second[k] - total[k] + x) / wide[1, k])
        return (weight[k] * late[0] + other[k] * late[1]) / size[k]

    for k in range(count):
        around = np.concatenate(
            [m + w * np.linspace(-40, 40, 801) for m, w in ((first[k], wide[0, k]), (total[k] - second[k], wide[1, k]))]
        )
        tries = np.clip(np.concatenate([around, np.linspace(0, total[k], 2001)]), 0, total[k])
        assert found.value.cost[k] / size[k] <= cost(tries, k).min() + 1e-8
        here = cost(found.value.prefill_gpus[k] / unit[k], k)
        assert here == pytest.approx(found.value.cost[k] / size[k], abs=1e-12)
        assert found.certificate["bound"][k] / size[k] <= cost(tries, k).min() + 1e-12


def test_an_optimum_that_is_not_proved_says_so():
    odd = lambda x: jnp.where(x < 3.0, 1.0, 0.0) + 0.01 * jnp.sin(jnp.cumsum(jnp.ones(3))[0] * x)  # no interval form
    found = social_optimum(Game(odd, lambda d, p: 1 / (1 + d) + 0.0 * p, 8.0))
    assert int(found.flags) == Flag.FIRST_ORDER_ONLY and found.certificate["bound"] == -np.inf
    wall = Logistic(3.5, 0.5)  # has one, which is not looked at where numbers are traced
    found = jax.jit(lambda weight: social_optimum(Game(wall, Alone(wall), 8.0, weight)))(1.0)
    assert int(found.flags) == Flag.FIRST_ORDER_ONLY and found.certificate["bound"] == -np.inf
    fall = jax.custom_jvp(lambda x: jnp.exp(-x))  # has one, but not its slope
    fall.defjvp(lambda at, along: (fall(*at), -jnp.exp(-jnp.cumsum(jnp.stack([*at, *at]))[0]) * along[0]))
    found = social_optimum(Game(fall, lambda d, p: 1 / (1 + d) + 0.0 * p, 8.0))
    assert int(found.flags) == Flag.FIRST_ORDER_ONLY and found.certificate["bound"] == -np.inf


def test_a_rate_that_is_not_finite_is_never_certified():
    for bad in (lambda x: jnp.log(-1 - x**2), lambda x: jnp.exp(-x) + jnp.nan, lambda x: jnp.exp(-x) + jnp.inf):
        game = Game(bad, lambda d, p: 1 / (1 + d), 8.0)
        assert int(equilibrium(game).flags) & Flag.NONFINITE and int(social_optimum(game).flags) & Flag.NONFINITE
    lost = Game(lambda x: jnp.sqrt(-1 - x), lambda d, p: 1 / (1 + d), 8.0)  # whose slope is none, too
    found = equilibrium(lost)
    assert found.flags & Flag.NOT_CONVERGED and found.flags & Flag.NONFINITE
    assert found.certificate["equilibria_count"] == 0 and found.value.prefill_gpus == found.value.decode_gpus == 4.0
    assert explain(lost, found) == [
        "A violation rate is not a finite number somewhere on the budget line.",
        "No equilibrium was bracketed on the budget line.",
    ]


@pytest.mark.parametrize("count", [2000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_games_in_any_unit_have_the_closed_form(count):
    """GPUs in units from 1e-15 to 1e15, each weight from 1e-15 to 1e15, rates up to 8 per GPU at 16 GPUs."""
    rng = np.random.default_rng(4)
    a, b = np.exp(rng.uniform(np.log(0.05), np.log(8), (2, count)))
    unit, weight, other = 10.0 ** rng.uniform(-15, 15, (3, count))
    game = Game(
        Exponential(a / unit),
        Alone(Exponential(b / unit, 3.0)),
        16 * unit,
        weight,
        other,
        prefill_worker_gpus=unit,
        decode_worker_gpus=unit,
    )
    exact = np.clip((16 * b + np.log(weight * a / (3 * other * b))) / (a + b), 0, 16)
    found = equilibrium(game)
    assert not found.flags.any()
    np.testing.assert_allclose(found.value.prefill_gpus / unit, exact, rtol=1e-11, atol=1e-11)
    several = equilibrium(game.replace(decode=Starved(Exponential(b / unit, 3.0), Logistic(4 * unit, unit))))
    np.testing.assert_allclose(several.value.prefill_gpus / unit, exact, rtol=1e-11, atol=1e-11)


@pytest.mark.slow
def test_games_of_powers_in_any_unit_against_bisection():
    """V = (1 + x / knee)^-order: the logarithms of both weighted marginals, bisected here in the unit of one GPU."""
    rng, count = np.random.default_rng(5), 10_000
    knee, order = np.exp(rng.uniform(np.log(0.1), np.log(10), (2, count))), rng.uniform(0.3, 4, (2, count))
    unit, *weight = 10.0 ** rng.uniform(-15, 15, (3, count))
    rates = [Power(knee[i] * unit, order[i]) for i in range(2)]
    found = equilibrium(Game(rates[0], Alone(rates[1]), 16 * unit, *weight, unit, unit))
    saved = lambda i, x: np.log(weight[i] * order[i] / knee[i]) - (order[i] + 1) * np.log1p(x / knee[i])
    low, high = np.zeros(count), np.full(count, 16.0)
    for _ in range(80):
        middle = 0.5 * (low + high)
        more = saved(0, middle) > saved(1, 16 - middle)
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    assert not found.flags.any()
    np.testing.assert_allclose(found.value.prefill_gpus / unit, low, atol=1e-11)


def test_a_side_that_is_far_too_short_is_helped_all_the_same():
    """exp(-r x) beside a wall at `middle` that decode cannot reach: what one GPU more saves is 1e-30 on either side,
    and grows for decode with what it has. Both marginals in logarithms are straight lines there, which cross once."""
    for rate, middle, width, weight in ((13.2, 13.0, 0.15, 1.0), (15.0, 17.0, 0.2, 7.0)):
        found = equilibrium(Game(Exponential(rate), Alone(Logistic(middle, width)), 8.0, weight))
        crossing = (np.log(weight * rate * width) + (middle - 8.0) / width) / (rate - 1.0 / width)
        assert found.flags == 0 and found.value.prefill_gpus == pytest.approx(crossing, rel=1e-9)


def test_games_that_cost_nothing_leave_others_their_proof():
    """They have no best cell, and were given all the cells that a batch may have."""
    idle = np.arange(9) > 0
    walls = Game(Power(3.0), Alone(Logistic(20.0, 1.7e-3)), 64.0, np.where(idle, 0.0, 1.0), np.where(idle, 0.0, 1.0))
    assert social_optimum(walls).flags[0] == 0


def _kinds(rng, count, kind):
    scale = rng.choice([1.0, 0.3, 1e-6, 0.0], count, p=[0.6, 0.25, 0.1, 0.05])
    if kind == 0:
        return Exponential(rng.choice([0.05, 0.5, 8.0], count) * rng.uniform(0.5, 2, count), scale)
    if kind == 1:
        return Power(np.exp(rng.uniform(-2, 2, count)), rng.choice([0.3, 1, 2, 4], count), scale)
    return Logistic(np.round(rng.uniform(0, 20, count)), 10 ** rng.uniform(-3, 1, count), scale)


NAMES = (
    ("rate_per_gpu", "scale_frac"),
    ("knee_gpus", "order", "scale_frac"),
    ("middle_gpus", "width_gpus", "scale_frac"),
)


def _in_numpy(kind, rate, x):
    """(V, log |V'|) for x (count, k)."""
    first, second, *scale = (np.asarray(getattr(rate, name))[:, None] for name in NAMES[kind])
    with np.errstate(divide="ignore"):
        if kind == 0:  # rate, scale
            return second * np.exp(-first * x), np.log(second * first) - first * x
        size = np.log(scale[0])
        if kind == 1:
            curve = np.log1p(x / first)
            return scale[0] * np.exp(-second * curve), size + np.log(second / first) - (second + 1) * curve
        z = (x - first) / second
        return scale[0] * expit(-z), size - np.log(second) - np.abs(z) - 2 * np.log1p(np.exp(-np.abs(z)))


@pytest.mark.slow
@pytest.mark.parametrize("prefill", range(3))
@pytest.mark.parametrize("decode", range(3))
def test_all_kinds_of_rates_against_a_grid_and_marginals_in_logarithms(prefill, decode):
    """100,000 games in all: zeros among scales and weights, walls that nobody reaches. No split of a grid is better
    than a proved optimum; an equilibrium's marginals are equal, or its corner is where they point."""
    rng, count = np.random.default_rng([prefill, decode]), 11_112
    rates = _kinds(rng, count, prefill), _kinds(rng, count, decode)
    total = rng.choice([2.0, 8.0, 16.0, 64.0], count)
    weight = rng.choice([0.0, 1.0, 7.0], (2, count), p=[0.1, 0.6, 0.3])
    game = Game(rates[0], Alone(rates[1]), total, *weight)

    def sides(x):
        given = (prefill, rates[0], x), (decode, rates[1], total[:, None] - x)
        (one, save), (other, gain) = (_in_numpy(*side) for side in given)
        with np.errstate(divide="ignore"):
            logs = save + np.log(weight[0])[:, None], gain + np.log(weight[1])[:, None]
        return weight[0][:, None] * one + weight[1][:, None] * other, *logs

    best, size = social_optimum(game), weight.sum(0) + 1e-300
    idle = np.maximum(*(w * np.asarray(r.scale_frac) for w, r in zip(weight, rates, strict=True))) == 0
    assert (best.flags[~idle] == 0).mean() > 0.999
    proved = best.flags == 0
    grid = np.concatenate([sides(total[:, None] * part)[0].min(1, keepdims=True) for part in PARTS], 1).min(1)
    assert (best.value.cost <= grid + 3e-9 * size)[proved].all()
    here = sides(best.value.prefill_gpus[:, None])[0][:, 0]
    np.testing.assert_allclose(best.value.cost / size, here / size, atol=1e-12)

    found = equilibrium(game)
    ok = (found.flags & ~int(Flag.NOT_UNIQUE)) == 0
    x = found.value.prefill_gpus
    _, save, gain = (np.maximum(side[:, 0], -700.0) for side in sides(x[:, None]))  # less has no float64
    inside = (x > 1e-9 * total) & (x < total * (1 - 1e-9))
    # how far x may be from the crossing: rounding of x over the steepest of both curves
    steep = 1.0 + 64.0 / np.minimum(*(_narrow(r) for r in rates))
    assert (np.abs(save - gain) <= 1e-12 * steep * (1.0 + total))[ok & inside].all()
    assert (save <= gain + 1e-9)[ok & (x <= 1e-9 * total)].all()
    assert (gain <= save + 1e-9)[ok & (x >= total * (1 - 1e-9))].all()


PARTS = np.split(np.linspace(0, 1, 2000)[None], 20, axis=1)


def _narrow(rate):
    """The GPUs in which a rate changes by a factor."""
    if isinstance(rate, Exponential):
        return 1.0 / np.asarray(rate.rate_per_gpu)
    return np.asarray(rate.knee_gpus if isinstance(rate, Power) else rate.width_gpus)


@pytest.mark.parametrize(
    "wrong, name",
    [
        (lambda: Exponential(-0.3), "rate_per_gpu"),
        (lambda: Exponential(np.array([1.0, -2.0])), "rate_per_gpu"),
        (lambda: Power(0.0), "knee_gpus"),
        (lambda: Logistic(8.0, 0.0), "width_gpus"),
        (lambda: Logistic(8.0, 1.0, -1.0), "scale_frac"),
        (lambda: Exponential(1.0, -1.0), "Exponential: scale_frac = -1; accepted are numbers from 0,"),
        (lambda: Power(-1.0), "Power: knee_gpus = -1; accepted are numbers above 0,"),
        (lambda: Power(1.0, -2.0), "Power: order = -2; accepted are numbers from 0,"),
        (lambda: Power(1.0, 1.0, -1.0), "scale_frac"),
        (lambda: Logistic(8.0, -1.0), "width_gpus"),
        (lambda: Logistic(8.0, np.array([1.0, 0.0])), "Logistic: width_gpus = 0; accepted are numbers above 0,"),
    ],
)
def test_rates_that_rise_are_refused(wrong, name):
    with pytest.raises(InputError, match=name):
        wrong()


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        (
            (lambda x: jnp.exp(-x) * jnp.ones(2), Alone(Exponential(0.5))),
            "prefill: it returns numbers of shape (2,); accepted is a violation rate, one number for one number of "
            "GPUs, () here",
        ),
        (
            (Exponential(0.3), lambda d, p: jnp.exp(-d) * jnp.ones(3)),
            "decode: it returns numbers of shape (3,); accepted is a violation rate, one number for (decode GPUs, "
            "prefill GPUs), () here",
        ),
        (
            (Exponential(0.3), lambda d: jnp.exp(-d)),
            "decode: accepted is a violation rate, one number for (decode GPUs,",
        ),
        ((lambda x: math.exp(-x), Alone(Exponential(0.5))), "prefill: it asks for the value of a traced array;"),
    ],
)
def test_rates_that_are_none_are_told_by_their_name(rates, said):
    for ask in (equilibrium, social_optimum, integer_split):
        with pytest.raises(InputError, match=f"^{re.escape(said)}"):
            ask(Game(*rates, 4.0))


def test_rates_that_nothing_changes_are_no_game():
    assert equilibrium(Game(Exponential(0.0), Alone(Exponential(0.0)), 8.0)).flags & Flag.OUT_OF_DOMAIN
    assert equilibrium(Game(Exponential(0.0), Alone(Exponential(1.0)), 8.0)).flags == 0
    assert equilibrium(Game(Exponential(0.0), Alone(Exponential(8.0)), 200.0)).flags == 0  # e^-1600 is no number
    assert equilibrium(Game(Exponential(8.0), Alone(Exponential(0.0)), 200.0)).flags == 0
    wall, no_wall = Logistic(4.0, 0.5), Logistic(4.0, 0.5, 0.0)  # not convex, nor known to be
    for prefill, decode in itertools.product((wall, no_wall), repeat=2):
        flags = int(equilibrium(Game(prefill, Alone(decode), 8.0)).flags)
        assert bool(flags & Flag.OUT_OF_DOMAIN) == (prefill is decode is no_wall)
    never = Exponential(1.0, 0.0), Power(1.0, 1.0, 0.0), Logistic(8.0, 1.0, 0.0), Logistic(-8.0, 1.0, 0.0)
    assert [float(rate(3.0)) for rate in never] == [0.0] * 4 and float(Power(1.0, 0.0)(3.0)) == 1.0


def test_without_a_word_every_request_is_late_on_no_gpu_and_a_power_law_is_of_the_first_order():
    assert float(Power(4.0)(12.0)) == pytest.approx(1.0 / (1.0 + 12.0 / 4.0))
    assert float(Exponential(0.5)(0.0)) == float(Power(4.0)(0.0)) == 1.0 and float(Logistic(8.0, 2.0)(8.0)) == 0.5


def test_a_logistic_rate_is_half_its_scale_in_the_middle():
    rate = Logistic(middle_gpus=8.0, width_gpus=2.0, scale_frac=0.6)
    assert float(rate(8.0)) == pytest.approx(0.3)
    assert float(rate(10.0)) == pytest.approx(0.6 / (1 + math.e))
    assert float(rate(-1e3)) == pytest.approx(0.6) and float(rate(1e3)) == pytest.approx(0.0)


def test_a_power_rate_halves_at_its_knee():
    assert [float(Power(4.0, order, 0.5)(4.0)) for order in (1.0, 2.0)] == pytest.approx([0.25, 0.125])


def test_starvation_adds_or_multiplies():
    """Own 1/e at one GPU and 1 at none, starvation 1/e^2 at two."""
    own, hungry = Exponential(1.0), Exponential(1.0)
    assert float(Alone(own)(1.0, 5.0)) == pytest.approx(math.exp(-1))
    assert float(Starved(own, hungry)(1.0, 2.0)) == pytest.approx(math.exp(-1) + math.exp(-2))
    assert float(Multiplied(own, hungry)(1.0, 2.0)) == pytest.approx(math.exp(-3))


def test_uniqueness_needs_both_rates_convex():
    convex, other = Exponential(1.0), Logistic(8.0, 2.0)
    known = lambda prefill, decode: Game(prefill, Alone(decode), 8.0).convex
    assert known(convex, convex) and not known(convex, other) and not known(other, convex)
    assert not Game(convex, Multiplied(convex, convex), 8.0).convex
    cost = lambda prefill, own, hungry: Game(prefill, Starved(own, hungry), 8.0).convex_cost
    assert cost(convex, convex, convex) and not cost(other, convex, convex)
    assert not cost(convex, other, convex) and not cost(convex, convex, other)
    assert (
        Game(convex, Alone(convex), 8.0).convex_cost and not Game(convex, Multiplied(convex, convex), 8.0).convex_cost
    )


def test_a_violation_counts_once_and_a_worker_is_a_gpu_unless_told_otherwise():
    rates = Exponential(0.5), Alone(Exponential(0.25))
    unsaid, said = Game(*rates, 8.0), Game(*rates, 8.0, 1.0, 1.0, 1.0, 1.0)
    assert jax.tree.leaves(unsaid) == jax.tree.leaves(said)
    assert float(unsaid.cost(2.0)) == pytest.approx(math.exp(-1.0) + math.exp(-1.5))


def test_the_balance_is_the_log_of_a_ratio_or_its_sign():
    assert float(balance_of(2.0, 3.0)) == pytest.approx(math.log(1.5))
    assert float(balance_of(1e-200, 1e200)) == pytest.approx(400 * math.log(10))
    assert [float(balance_of(*pair)) for pair in ((-0.1, 0.1), (1.0, -1.0), (0.0, 0.0), (0.0, 2.0), (2.0, 0.0))] == [
        1000.0,
        -1000.0,
        0.0,
        1000.0,
        -1000.0,
    ]
    assert [float(balance_of(*pair)) for pair in ((1e200, -1e-200), (-1e-200, 1e200))] == [-1000.0, 1000.0]
    assert [float(balance_of(*pair)) for pair in ((-2.0, -6.0), (-6.0, -2.0))] == pytest.approx([-500.0, 500.0])
