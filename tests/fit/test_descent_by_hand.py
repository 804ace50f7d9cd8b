"""The search for effects, those of single deployments, and what is held out, on laws of two lines with known slopes."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from dmodels.core.errors import InputError
from dmodels.fit import deployed, descent, hierarchy, protocols, silicon
from dmodels.fit.descent import Halves, Problem
from dmodels.fit.protocols import folds, held_out
from dmodels.fit.rows import measurement
from dmodels.fit.silicon import Effects
from tests.fit.damped import damped
from tests.fit.test_by_counting import PLAIN

NAMES, LEVELS = 3, 7
#: The effects that exist, some of each level in another order.
THERE = np.array([[1, 1, 1], [1, 1, 0], [0, 1, 0], [1, 1, 1], [0, 1, 1], [1, 0, 0], [1, 1, 0]], bool)
#: log y of a row with numbers a: a u + sin(u) / 5, twice.
BEND = 0.2


def value_of(rows, u, own=np):
    return own.stack([(rows[:, k] * u + BEND * own.sin(u)).sum(-1) for k in (0, 1)], -1)


def slope_of(rows, u):
    return rows + BEND * np.cos(u)[:, None, :]


def toy(rng, count=30, sigma=(0.25, 0.10)):
    """Rows of three levels each, some effects of which do not exist; a third of the rows is of the other formula.

    As many paths and effects always, since each number of them would be compiled for."""
    few, many = np.mgrid[1:3, 3:LEVELS].reshape(2, -1)
    drawn = rng.integers(1, 3, count - len(few)), rng.integers(3, LEVELS, count - len(few))
    paths = np.stack([np.zeros(count, int), np.append(few, drawn[0]), np.append(many, drawn[1])], 1)
    scale = np.where(rng.permuted(THERE, axis=1), rng.uniform(0.1, 0.6, (LEVELS, NAMES)), 0.0)
    rows, cut = rng.normal(0, 1.0, (count, 2, NAMES)), 2 * count // 3
    origin = rng.normal(0, 0.5, (count, NAMES))
    moved = origin + (scale * rng.normal(0, 1, scale.shape))[paths].sum(1)
    measured = value_of(rows, moved) + rng.normal(0, 0.15, (count, 2))
    measured[::9] += 2.0  # outliers
    weight = rng.choice([0.3, 1.0, 2.0], count) * (rng.random(count) < 0.9)
    halves = Halves(jnp.asarray(rows[:cut]), jnp.asarray(rows[cut:]), jnp.zeros(()))
    return Problem(halves, paths, scale, measured, weight, origin, np.array(sigma)), rows


def loss_of(problem, rows, z):
    """The robust loss and the prior, at effects z (levels, names) that are all told."""
    u = problem.origin + (problem.scale * z)[problem.paths].sum(1)
    r = (problem.measured - value_of(rows, u)) / problem.sigma
    return (problem.weight[:, None] * 1.6**2 * np.log1p((r / 1.6) ** 2)).sum() + (z**2).sum()


def by_hand(problem, rows, z, max_steps):
    """Levenberg-Marquardt with the whole Jacobian, effect by effect: (z, matrix, steps)."""
    there = [(l, q) for l in range(LEVELS) for q in range(NAMES) if problem.scale[l, q] > 0]

    def whole(told):
        full = z.copy()
        for place, value in zip(there, told, strict=True):
            full[place] = value
        return full

    def at(told):
        z = whole(told)
        u = problem.origin + (problem.scale * z)[problem.paths].sum(1)
        r = (problem.measured - value_of(rows, u)) / problem.sigma
        slope = slope_of(rows, u)
        jacobian = np.zeros((*r.shape, len(there)))
        for i, path in enumerate(problem.paths):
            for a, (l, q) in enumerate(there):
                if l in path:
                    jacobian[i, :, a] = slope[i, :, q] * problem.scale[l, q] / problem.sigma
        counted = problem.weight[:, None] / (1 + (r / 1.6) ** 2)
        matrix = np.einsum("nka,nkb,nk->ab", jacobian, jacobian, counted) + np.eye(len(there))
        pull = np.einsum("nka,nk,nk->a", jacobian, r, counted) - told
        return loss_of(problem, rows, z), matrix, pull

    told, matrix, steps = damped(at, np.array([z[place] for place in there]), max_steps, 1e-7)
    return whole(told), matrix, steps


@pytest.fixture
def lines(monkeypatch):
    """Laws of known slopes in place of the model's latencies, rows of `halves.one` first."""
    law = lambda halves, u: value_of(jnp.concatenate([halves.one, halves.two]), u, jnp)
    monkeypatch.setattr(descent, "log_latencies", law)
    monkeypatch.setattr(deployed, "slopes", lambda rows, u: (value_of(rows, u), slope_of(rows, u)))


def test_the_search_goes_step_by_step_as_by_hand(lines):
    """From far off: damping, refused steps, the longest step, the end; z where no effect is stays 0."""
    with jax.enable_x64(True):
        for seed in range(6):
            rng = np.random.default_rng(seed)
            problem, rows = toy(rng)
            start = np.where(problem.scale > 0, 3.0 * rng.normal(size=problem.scale.shape), 0.0)
            for most in (2, 60):
                found = descent.minimise(problem, start, most)
                z, matrix, steps = by_hand(problem, rows, start, most)
                assert found.steps == steps and (steps == 2 or most == 60)
                np.testing.assert_allclose(found.z, z, atol=1e-9)
                np.testing.assert_allclose(found.information, matrix, atol=1e-8)
                np.testing.assert_allclose(found.covariance(), np.linalg.inv(matrix), atol=1e-8)
            around = [
                loss_of(problem, rows, z + 0.05 * (problem.scale > 0) * rng.normal(size=z.shape)) for _ in range(40)
            ]
            assert min(around) > loss_of(problem, rows, z)
        with pytest.raises(InputError, match="no finite numbers at the start"):
            descent.minimise(problem._replace(measured=problem.measured * np.nan), start, 5)


def test_a_knee_does_not_end_the_search(monkeypatch):
    """A row is ninety times as steep beyond its knee as before it, as that of a server without room for its prompts is,
    and without the knee its best efficiency lies beyond. SciPy, told to stay on this side, finds hardly less loss."""

    def law(halves, u, own=jnp):
        """`halves.shift`: 1 for the row with a knee, 0 for others; the knee."""
        bent, knee = halves.shift
        smooth = value_of(own.concatenate([halves.one, halves.two]), u, own)
        return smooth + 90.0 * bent[:, None] * own.maximum(knee - u[:, :1], 0.0)

    monkeypatch.setattr(descent, "log_latencies", law)
    jax.clear_caches()  # the law is no argument of what is compiled

    def least(problem, bent, knee):
        halves = problem.halves._replace(shift=(bent, np.float64(knee)))
        with jax.enable_x64(True):
            return descent.minimise(problem._replace(halves=halves), np.zeros(problem.scale.shape), 300).z

    def beside(problem, rows):
        """(loss found, SciPy's) where one row's knee is just above its best efficiency."""
        there, row = problem.scale > 0, np.flatnonzero(problem.weight)[1]
        felt = lambda z: problem.origin + (problem.scale * z)[problem.paths].sum(1)
        u = felt(least(problem, np.zeros(len(rows)), 0.0))
        problem.measured[row], knee = value_of(rows, u)[row], u[row, 0] + 0.05
        found = least(problem, np.where(np.arange(len(rows)) == row, 1.0, 0.0), knee)

        def whole(told):
            z = np.zeros(problem.scale.shape)
            z[there] = told
            return z

        within = {"type": "ineq", "fun": lambda told: felt(whole(told))[row, 0] - knee}
        before = lambda told: loss_of(problem, rows, whole(told))
        stranger = minimize(before, found[there], method="SLSQP", constraints=[within])
        assert stranger.success
        beyond = (knee - felt(found)[row, 0]) * problem.scale.max()
        return loss_of(problem, rows, found), beyond, stranger.fun

    for seed in range(8, 16):
        loss, beyond, least_of_scipy = beside(*toy(np.random.default_rng(seed), 40))
        assert beyond < 1e-3 and loss <= (1 + 1e-3) * least_of_scipy, seed


def test_slopes_are_derivatives_by_each_rows_own_numbers(lines):
    with jax.enable_x64(True):
        problem, rows = toy(np.random.default_rng(1))
        value, slope = descent.slopes(problem.halves, problem.origin)
    np.testing.assert_allclose(value, value_of(rows, problem.origin), atol=1e-12)
    np.testing.assert_allclose(slope, slope_of(rows, problem.origin), atol=1e-12)


def test_a_deployment_has_the_effects_of_least_loss_over_its_own_rows(monkeypatch, lines):
    """Beside SciPy's search of each alone: 0.12 and 0.05 of log TTFT and TPOT, deviations of a half and, of
    what a request adds, a tenth."""
    assert set(deployed.DEVIATION[np.array(hierarchy.NAMES) == "request_us"]) == {0.1}
    deviation = np.array([0.5, 0.1, 0.5])
    monkeypatch.setattr(deployed, "DEVIATION", deviation)
    rng = np.random.default_rng(4)
    problem, rows = toy(rng, 40)
    own = deviation * rng.normal(0, 0.8, (LEVELS, NAMES))[problem.paths[:, -1]]
    measured = value_of(rows, problem.origin + own) + rng.normal(0, [0.12, 0.05], (40, 2))
    measured[3] += 0.5
    problem = problem._replace(halves=rows, measured=measured)
    levels = tuple(f"run={k}" if k < 3 else f"deployment={k}" for k in range(LEVELS))
    known = rng.normal(0, 0.3, (LEVELS, NAMES))
    monkeypatch.setattr(deployed, "problem_of", lambda *asked: (problem, levels, known))
    before = Effects(("all", "run=0"), np.ones((2, NAMES)))
    found = deployed.deployed(None, [], before)
    assert found.levels == ("all", "run=0", *levels[1:])
    np.testing.assert_array_equal(found.beta[0], np.ones(NAMES))
    np.testing.assert_array_equal(found.beta[1:4], known[:3])  # no row's last level
    for level in range(3, LEVELS):
        own = problem.paths[:, -1] == level

        def loss(z, own=own):
            r = (problem.measured - value_of(rows, problem.origin + deviation * z))[own] / np.array([0.12, 0.05])
            return (problem.weight[own, None] * 1.6**2 * np.log1p((r / 1.6) ** 2)).sum() + z @ z

        z = (found.beta[found.levels.index(levels[level])] - known[level]) / deviation
        least = min(minimize(loss, start).fun for start in (z, np.zeros(NAMES)))
        assert loss(z) <= loss(np.zeros(NAMES)) and loss(z) <= 1.01 * least + 0.05, level


def test_no_row_is_predicted_by_what_saw_its_measurement(monkeypatch):
    """Every row from its own fold's fit, under what is known of it; copies under other names are hidden with it, and
    deployments have effects of their own only where others of theirs stay."""
    rng, seen = np.random.default_rng(0), []
    models = ("meta-llama/Llama-3.1-8B", "Qwen/Qwen3-32B")
    rows = [
        replace(
            PLAIN,
            id=f"{k}",
            model_path=models[k % 2],
            system=("h100_sxm", "l4")[k // 2 % 2],
            ttft_s=1.0 + k,
            tpot_s=0.01,
        )
        for k in range(23)
    ]
    rows += [replace(row, id=f"{row.id} again", model_path=models[(k + 1) % 2]) for k, row in enumerate(rows[:5])]

    def fit(points, asked, keep, **more):
        seen.append((keep, more))
        return Effects((str(len(seen) - 1), "plain"), np.zeros((2, 1)))

    def predict_log(points, asked, effects, release, deployment):
        fold = float(effects.levels[0])
        return np.stack([np.full(len(rows), fold), np.arange(len(rows)) + 0.1 * release + 0.01 * deployment], 1)

    own = lambda points, asked, effects, keep: Effects((effects.levels[0], "own"), effects.beta)
    told = []
    monkeypatch.setattr(protocols, "fit", fit)
    monkeypatch.setattr(protocols, "predict_log", lambda *a: told.append(a[2].levels[1]) or predict_log(*a))
    monkeypatch.setattr(protocols, "deployed", own)
    asked = [("random", None, "own"), ("random", Effects((), rng), "plain")]
    for protocol, prior, kind in [*asked, *((other, None, "plain") for other in ("gpu", "architecture", "pair"))]:
        seen.clear(), told.clear()
        found = held_out(None, rows, protocol, prior=prior, max_steps=9, seed=4)
        assert found.shape == (3, len(rows), 2) and set(told) == {kind}
        masks = list(folds(rows, protocol, 4))
        assert len(seen) == len(masks) == {"random": 5, "gpu": 2, "architecture": 2, "pair": 4}[protocol]
        for k, row in enumerate(rows):
            fold = int(found[0, k, 0])
            assert masks[fold][k] and (found[:, k, 0] == fold).all()
            assert not any(seen[fold][0][i] for i, other in enumerate(rows) if measurement(other) == measurement(row))
            assert found[:, k, 1] == pytest.approx([k + 0.11, k + 0.01, k])
        for (keep, more), mask in zip(seen, masks, strict=True):
            hidden = {measurement(row) for row, out in zip(rows, mask, strict=True) if out}
            assert keep.tolist() == [measurement(row) not in hidden for row in rows]
            assert more["prior"] is prior and more["max_steps"] == 9
    assert any((a != b).any() for a, b in zip(folds(rows, "random", 4), folds(rows, "random", 5), strict=True))


def test_effects_of_the_fit_are_added_to_the_priors(monkeypatch):
    """z in deviations of each effect, from the start told or from the prior; what only masked rows have stays there."""
    rows = [replace(PLAIN, id=str(k), precision=("", "fp8")[k], ttft_s=0.1, tpot_s=0.01) for k in (0, 1)]
    names = silicon.hierarchy.NAMES
    known = tuple(dict.fromkeys(level for row in rows for level in silicon.hierarchy.row_levels(row)))
    scale = silicon.hierarchy.deviations(known)
    rng, asked = np.random.default_rng(0), []

    def minimise(problem, z, max_steps):
        asked.append((problem, z, max_steps))
        return descent.Found(z + 1.0, jnp.eye(2) * 4.0, 7)

    monkeypatch.setattr(silicon, "minimise", minimise)
    monkeypatch.setattr(silicon, "origins", lambda rows: np.zeros((len(rows), len(names))))
    monkeypatch.setattr(silicon, "_split", lambda points, rows: (None, np.arange(len(rows))))
    prior = Effects(("all", "precision=fp8"), rng.normal(0, 0.1, (2, len(names))) * (scale[:1] > 0))
    start = Effects(("all", known[1]), rng.normal(0, 0.1, (2, len(names))))
    found = silicon.fit(None, rows, keep=np.array([1, 0]), start=start, prior=prior, max_steps=11, covariance=True)
    (problem, z, steps), centre = asked[0], {level: prior.beta[i] for i, level in enumerate(prior.levels)}
    assert (found.levels, found.steps, steps) == (known, 7, 11)
    np.testing.assert_allclose(found.covariance, np.eye(2) / 4.0)
    theirs = silicon.hierarchy.row_levels(rows[0])
    for level, spread, first, own in zip(known, scale, z, found.beta, strict=True):
        middle = centre.get(level, np.zeros(len(names)))
        begun = dict(zip(start.levels, start.beta, strict=True)).get(level, np.zeros(len(names)))
        wanted = np.where((spread > 0) & (level in theirs), (begun - middle) / np.where(spread > 0, spread, 1.0), 0.0)
        np.testing.assert_allclose(first, wanted, atol=1e-12)
        np.testing.assert_allclose(own, middle + (wanted + 1.0) * spread, atol=1e-12)
    np.testing.assert_allclose(
        problem.origin[1], sum(centre.get(level, 0.0) for level in silicon.hierarchy.row_levels(rows[1]))
    )
    assert silicon.fit(None, rows).covariance is None and not asked[1][1].any() and asked[1][2] == 25


def test_rows_of_one_path_stand_together_with_the_effects_that_they_feel():
    """Three levels of two efficiencies, two of which nothing is said of."""
    scale = np.array([[1.0, 0.0], [0.5, 0.2], [0.0, 0.3]])
    places = descent.places_of(np.array([[0, 1], [0, 2], [0, 1]]), scale)
    assert places.active.tolist() == [0, 2, 3, 5] and places.path.tolist() == [0, 1, 0]
    assert places.effect.tolist() == [[0, 1, 2], [0, 3, 4]]  # 4: none
    assert places.factor.tolist() == [[1.0, 0.5, 0.2], [1.0, 0.3, 0.0]]
    assert [row[:k] for row, k in zip(places.name.tolist(), (3, 2), strict=True)] == [[0, 0, 1], [0, 1]]
