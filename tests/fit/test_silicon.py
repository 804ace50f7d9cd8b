"""The calibration: its derivatives are those of the model, and what it learns from known machines is what they are."""

from __future__ import annotations

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from dmodels.core.errors import InputError
from dmodels.fit import descent, hierarchy, silicon
from dmodels.fit.calibration import calibration, dump, efficiencies_of, efficiency_for, interval, load, quantiles
from dmodels.fit.points import family, to_points
from dmodels.fit.predict import errors, noise_floor, outliers, predict
from dmodels.fit.protocols import folds
from dmodels.fit.rows import Table, measurement, parse_row
from dmodels.models.latency import Efficiency
from tests.fit.damped import damped
from tests.lowered import check_stays_on_the_device, lowered
from tests.models.closed_loops import serve_one

BASE = {
    "backend": "vllm",
    "precision": "fp8",
    "gemm_quant_mode": "fp8",
    "moe_quant_mode": "fp8",
    "pp_size": "1",
    "attention_dp_size": "1",
    "moe_tp_size": "1",
    "moe_ep_size": "1",
    "isl": "1024",
    "osl": "512",
}


def asked(n, systems=("h100_sxm", "h200_sxm"), seed=0):
    """Serving points of known machines, without what was measured there."""
    rng = np.random.default_rng(seed)
    table = Table()
    for i in range(n):
        cells = BASE | {
            "id": f"r{i}",
            "model_path": ("meta-llama/Llama-3.1-8B", "Qwen/Qwen3-32B")[i % 2],
            "system": systems[(i // 2) % len(systems)],
            "batch_size": str(int(2 ** rng.integers(1, 8))),
            "tp_size": str(int(2 ** rng.integers(0, 3))),
        }
        table.rows.append(parse_row(cells, measured=False))
    return table


def rows(n=12, slower=1.0, systems=("h100_sxm", "h200_sxm"), seed=0):
    """Such points measured: what the shipped calibration predicts, times `slower`."""
    table = asked(n, systems, seed)
    values = predict(table).values
    measured = []
    for row, value in zip(table.rows, values, strict=True):
        measured.append(_with(row, value["ttft_ms"] * slower / 1e3, value["tpot_ms"] * slower / 1e3))
    return Table(measured)


def _with(row, ttft_s, tpot_s):
    from dataclasses import replace

    return replace(row, ttft_s=ttft_s, tpot_s=tpot_s)


def test_rows_without_their_release_are_judged_with_the_efficiencies_that_a_plan_has():
    points, table = to_points(rows(16))
    judged = silicon.predict_log(points, table.rows, calibration(), release=False)
    for i, row in enumerate(table.rows):
        machine, point = silicon._machine(row, row.decode), points[i]
        e = efficiencies_of([machine], [row.precision], family(row.model_path))[0]
        load = point.isl, point.osl, point.concurrency, e
        s = serve_one(machine.model, machine.gpu, machine.parallel, *load, decode_batch=point.decode_batch)
        assert np.exp(judged[i]) == pytest.approx([float(s.ttft_s), float(s.tpot_s)], rel=1e-9)


@pytest.mark.slow
def test_slopes_are_the_models_own_derivatives():
    points, table = to_points(rows(4))
    halves, _ = silicon._split(points, table.rows)
    u = jnp.asarray(silicon.origins(table.rows))
    direction = np.random.default_rng(0).normal(size=u.shape)
    _, slope = descent.slopes(halves, u)
    plus, minus = (descent.log_latencies(halves, u + h * direction) for h in (1e-6, -1e-6))
    np.testing.assert_allclose(np.einsum("nkp,np->nk", slope, direction), (plus - minus) / 2e-6, rtol=1e-5, atol=1e-7)


@pytest.mark.slow  # half a minute of SciPy
def test_the_least_loss_is_the_one_that_scipy_finds():
    """L-BFGS on the same loss, with its gradient by JAX: no lower, and no higher."""
    points, table = to_points(rows(16, slower=1.3))
    found = silicon.fit(points, table.rows, max_steps=40)
    halves, order = silicon._split(points, table.rows)
    known = [table.rows[i] for i in order]
    place = {level: i for i, level in enumerate(found.levels)}
    paths = np.array([[place[level] for level in hierarchy.row_levels(row)] for row in known])
    scale = hierarchy.deviations(found.levels)
    measured = np.log([[row.ttft_s, row.tpot_s] for row in known])
    weight, origin = silicon._weights(known), silicon.origins(known)

    @jax.jit
    @jax.value_and_grad
    def loss(z):
        beta = z.reshape(scale.shape) * scale
        r = (measured - descent.log_latencies(halves, origin + beta[paths].sum(axis=1))) / descent.SIGMA[None, :]
        return (weight[:, None] * descent.ROBUST**2 * jnp.log1p((r / descent.ROBUST) ** 2)).sum() + (z**2).sum()

    start = np.zeros(scale.size)
    theirs = scipy.optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 400})
    ours = float(loss((found.beta / np.where(scale > 0, scale, 1.0)).ravel())[0])
    assert ours == pytest.approx(theirs.fun, rel=0.01)
    assert ours < 0.5 * float(loss(start)[0])


def by_hand(problem: descent.Problem, z: np.ndarray, max_steps: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Levenberg-Marquardt in NumPy, with the whole Jacobian by every effect that exists: (z, matrix, steps)."""
    active, (levels, names) = problem.scale.ravel() > 0, problem.scale.shape
    feels = np.zeros((len(problem.paths), levels))
    np.put_along_axis(feels, problem.paths, 1.0, axis=1)
    spread = np.einsum("nl,lp,pq->nqlp", feels, problem.scale, np.eye(names)).reshape(len(feels), names, -1)[
        ..., active
    ]

    def at(z):
        value, slope = map(np.asarray, descent.slopes(problem.halves, jnp.asarray(problem.origin + spread @ z)))
        r = (problem.measured - value) / problem.sigma
        rho = problem.weight[:, None] * descent.ROBUST**2 * np.log1p((r / descent.ROBUST) ** 2)
        jacobian = np.einsum("nkq,nqa->nka", slope, spread) / problem.sigma[:, None]
        counted = (problem.weight[:, None] / (1 + (r / descent.ROBUST) ** 2))[..., None] * jacobian
        matrix = np.tensordot(jacobian, counted, ((0, 1), (0, 1))) + np.eye(len(z))
        return rho.sum() + z @ z, matrix, np.einsum("nk,nka->a", r, counted) - z

    return damped(at, z.ravel()[active], max_steps, descent.ENOUGH)


@pytest.mark.slow  # both the search and the derivatives alone are compiled
def test_the_search_is_the_one_by_hand():
    """Damping, refused steps and all, from a start that is far off."""
    points, table = to_points(rows(16, slower=1.6))
    problem, _, _ = silicon.problem_of(points, table.rows)
    start = 2.0 * np.random.default_rng(1).normal(size=problem.scale.shape)
    with jax.enable_x64(True):
        found = descent.minimise(problem, start, 30)
        z, matrix, steps = by_hand(problem, start, 30)
    np.testing.assert_allclose(found.z[problem.scale > 0], z, atol=1e-8)
    np.testing.assert_allclose(found.information, matrix, atol=1e-7)
    assert found.steps == steps > 5 and not found.z[problem.scale == 0].any()


def test_the_whole_search_stays_on_the_device():
    """One program, in which nothing is called on a GPU but the factorisation of the normal equations."""
    points, table = to_points(rows(16, slower=1.6))
    problem, _, _ = silicon.problem_of(points, table.rows)
    with jax.enable_x64(True):
        places = descent.places_of(problem.paths, problem.scale)
        text = lowered(descent.descend.trace(problem, places, np.zeros(places.active.size), 30))
        check_stays_on_the_device(text, calls={"cusolver_potrf_ffi"})
        assert "stablehlo.while" in text


@pytest.mark.slow  # twenty seconds of compilation; `test_descent_by_hand` searches with laws of two lines
def test_a_machine_that_is_half_as_fast_is_learnt():
    points, table = to_points(rows(16, slower=1.6))
    measured = np.array([[r.ttft_s, r.tpot_s] for r in table.rows])
    before = silicon.predict_log(points, table.rows, calibration())
    found = silicon.fit(points, table.rows, prior=calibration(), max_steps=12)
    after = silicon.predict_log(points, table.rows, found)
    for j in range(2):
        assert errors(np.exp(before[:, j]), measured[:, j]).median == pytest.approx(1 - 1 / 1.6, abs=1e-6)
        assert errors(np.exp(after[:, j]), measured[:, j]).median < 0.08  # the kernels' shares hold back
    masked = silicon.fit(points, table.rows, keep=np.zeros(16), prior=calibration(), max_steps=12)
    np.testing.assert_allclose(masked.beta, silicon._of(calibration(), masked.levels), atol=1e-6)  # nothing seen
    problem, _, _ = silicon.problem_of(points, table.rows)
    with jax.enable_x64(True), pytest.raises(InputError, match="latencies"):  # the model has none at the start
        descent.minimise(problem._replace(origin=problem.origin + np.nan), np.zeros(problem.scale.shape), 12)


def test_every_measured_cell_has_plausible_efficiencies():
    cells = [level.split("=")[1].split("+") for level in calibration().levels if level.startswith("gpu+backend=")]
    assert len(cells) > 8
    for (system, backend), precision in product(cells, ("bf16", "fp8", "fp4")):
        e = efficiency_for(system, backend, precision)
        for name in hierarchy.OF_PEAK:
            assert 0.02 < getattr(e, name) <= 1.0, (system, backend, precision, name)
        for name in (*hierarchy.SHARES, "burst_frac"):
            assert 0.0 < getattr(e, name) < 1.0
        for name, most in (
            ("layer_us", 300),
            ("moe_layer_us", 400),
            ("request_us", 200),
            ("hop_us", 60),
            ("exchange_us", 120),
        ):
            assert 0.0 < getattr(e, name) < most
        assert e.expert_imbalance >= 1.0


def test_what_was_not_measured_falls_back():
    known = efficiency_for("h200_sxm", "vllm", "fp8")
    assert efficiency_for("H200", "vllm", "fp8").hbm_frac == known.hbm_frac
    unseen = efficiency_for("mi300x", "some-engine", "int3")
    assert 0.0 < unseen.hbm_frac <= 1.0 and unseen.hbm_frac != known.hbm_frac
    assert efficiency_for("h200_sxm", "vllm", "fp8", model="openai/gpt-oss-120b").layer_us != known.layer_us


def test_intervals_widen_with_novelty():
    groups = quantiles().groups
    for metric in ("ttft", "tpot"):
        low, high = zip(*(groups[f"{n}/agg/stated"][metric]["80"] for n in ("known", "pair")), strict=True)
        assert high[0] - low[0] < high[1] - low[1]  # a pair never measured is less certain
    spread = interval("h200_sxm", "vllm", "meta-llama/Llama-3.1-70B")
    for metric in ("ttft", "tpot"):
        inner, outer = spread[metric]["80"], spread[metric]["95"]
        assert outer.low < inner.low < 1.0 < inner.high < outer.high


def test_links_are_inverses_and_the_file_keeps_the_effects():
    e = hierarchy.efficiency(hierarchy.origin(), gathers=1.0)
    for name in hierarchy.NAMES:
        assert float(getattr(e, name)) == pytest.approx(float(getattr(Efficiency(), name)))
    assert float(hierarchy.efficiency(hierarchy.origin(), gathers=0.0).dp_wait_steps) == 0.0
    again = load(dump(calibration(), {}))
    assert again.levels == calibration().levels
    np.testing.assert_allclose(again.beta, calibration().beta, atol=1e-4)


def test_a_cell_deviates_in_a_dozen_efficiencies_or_fewer():
    own = [name for name in hierarchy.NAMES if hierarchy.deviation("gpu+backend=x", name) > 0]
    assert set(own) == set(hierarchy.CELL) - set(hierarchy.OF_HOST) and len(own) <= 12
    assert not set(own) & {"layer_us", "request_us", "prompt_ms"}  # a host's time is no property of a GPU


def test_a_build_without_a_number_is_known_by_its_month():
    from dataclasses import replace

    row = rows(1).rows[0]
    dated = replace(row, source="measured=2025-11-10T00:00:00.000Z; wip=False")
    for said, level in (
        (row, "release+family="),
        (dated, "release+family=vllm+2025-11+llama"),
        (replace(dated, release="0.15.1"), "release+family=vllm+0.15.1+llama"),
    ):
        assert level in hierarchy.row_levels(said)


def test_folds_hold_out_copies_together_and_every_row_once():
    table = [_with(r, 1.0, 0.01 + 1e-4 * i) for i, r in enumerate(asked(40).rows)]  # their values do not matter
    copies = table + [_with(r, r.ttft_s, r.tpot_s) for r in table[:10]]
    for protocol in ("random", "pair", "architecture", "gpu"):
        masks = list(folds(copies, protocol))
        np.testing.assert_array_equal(np.sum(masks, axis=0), 1)
    for mask in folds(copies, "random"):
        held = {measurement(r) for r, out in zip(copies, mask, strict=True) if out}
        assert not held & {measurement(r) for r, out in zip(copies, mask, strict=True) if not out}


def test_noise_is_the_disagreement_of_repetitions():
    row = rows(1).rows[0]
    twice = [_with(row, 1.0, 0.010), _with(row, 4.0, 0.010)]
    floor = noise_floor(twice)
    assert floor["ttft"].median == pytest.approx((1.0 + 0.5) / 2)  # 2 s against 1 s and 4 s
    assert floor["tpot"].count == 2 and floor["tpot"].median == pytest.approx(0.0, abs=1e-12)
    odd = outliers([*twice, row], np.log([[1.0, 0.01], [4.0, 0.01], [row.ttft_s, row.tpot_s]]))
    assert {o.id for o in odd} == {"r0"} and all(o.metric == "ttft" for o in odd)
