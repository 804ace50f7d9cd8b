"""The solvers inside `jit`, `vmap` and `grad`, with x64 on and off, and the backends that run on devices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmodels.core.flags import Flag
from dmodels.solvers import assign, congestion_transport, transport


def batch(shape=(6, 5, 7)):
    """Uniform, tied, partly forbidden, infeasible, NaN, and one-sided problems in one batch."""
    rng = np.random.default_rng(4)
    cost = rng.random(shape)
    cost[1] = rng.integers(0, 3, shape[1:])
    cost[2] = np.where(rng.random(shape[1:]) < 0.4, np.inf, cost[2])
    cost[3, 1] = np.inf
    cost[4, 0, 0] = np.nan
    return cost


@pytest.mark.parametrize("wrap", [jax.jit, jax.vmap, lambda f: jax.jit(jax.vmap(f))], ids=["jit", "vmap", "both"])
def test_callback_gives_what_the_host_gives(wrap):
    cost = batch()
    host, traced = assign(cost), wrap(assign)(jnp.asarray(cost))
    jax.tree.map(np.testing.assert_array_equal, host, jax.tree.map(np.asarray, traced))


def test_float32_callers_get_float32_and_float64_solutions():
    """With x64 off the certificate comes back rounded to float32, but it was found in float64."""
    cost = batch().astype(np.float32)
    host = assign(cost)
    with jax.enable_x64(False):
        traced = jax.jit(assign)(jnp.asarray(cost))
    assert traced.value.cost.dtype == jnp.float32 and traced.certificate["row_duals"].dtype == jnp.float32
    assert host.value.cost.dtype == np.float64
    np.testing.assert_array_equal(host.value.columns, traced.value.columns)
    np.testing.assert_array_equal(host.value.cost.astype(np.float32), traced.value.cost)
    np.testing.assert_array_equal(host.flags, traced.flags)


def test_host_arrays_are_solved_in_float64_where_x64_is_off():
    with jax.enable_x64(False):
        solution = assign(batch(), backend="xla")
        assert assign(batch()).value.cost.dtype == np.float64
    assert isinstance(solution.value.cost, np.ndarray) and solution.value.cost.dtype == np.float64


def check_device(cost, maximize, backend):
    """A device backend finds optima of the same cost, and its own duals prove them."""
    host, device = assign(cost, maximize), assign(cost, maximize, backend=backend)
    np.testing.assert_array_equal(host.flags, device.flags)
    np.testing.assert_allclose(device.value.cost, host.value.cost, rtol=1e-12)
    sign = -1 if maximize else 1
    for b in range(len(cost)):
        u, v = device.certificate["row_duals"][b], device.certificate["column_duals"][b]
        columns, allowed = device.value.columns[b], np.isfinite(cost[b])
        pair = sign * (u[:, None] + v[None, :])
        if device.flags[b] == Flag.INFEASIBLE:
            assert (columns == -1).all() and sign * (u.sum() + v.sum()) > 0 and pair[allowed].max() <= 0
        elif device.flags[b] == 0:
            matched = np.flatnonzero(columns >= 0)
            assert len(matched) == min(cost.shape[1:]) == len(set(columns[matched].tolist()))
            total = cost[b][matched, columns[matched]].sum()
            assert total == pytest.approx(device.value.cost[b], rel=1e-12)
            assert abs(total - u.sum() - v.sum()) < 1e-12 and device.certificate["gap"][b] < 1e-12
            assert (sign * cost[b] - pair)[allowed].min() >= -1e-12
        else:
            assert (columns == -1).all() and np.isnan(device.value.cost[b])


@pytest.mark.parametrize(("shape", "maximize"), [((6, 5, 7), False), ((6, 7, 5), True), ((6, 6, 6), False)])
def test_plain_xla(shape, maximize):
    cost = batch(shape)
    check_device(np.where(np.isposinf(cost), -np.inf, cost) if maximize else cost, maximize, "xla")


def test_plain_xla_on_larger_and_empty_problems():
    rng = np.random.default_rng(1)
    check_device(np.concatenate([rng.random((3, 40, 40)), rng.integers(0, 4, (3, 40, 40))]), False, "xla")
    for shape in [(2, 0, 3), (2, 3, 0), (2, 0, 0)]:
        solution = assign(np.empty(shape), backend="xla")
        assert (solution.value.cost == 0).all() and (solution.flags == 0).all()
        assert solution.value.columns.shape == shape[:2] and (solution.value.columns == -1).all()


def test_derivative_of_the_cost_is_the_matching():
    cost = np.random.default_rng(2).random((3, 4, 6))
    gradient = np.asarray(jax.jit(jax.grad(lambda c: jnp.sum(assign(c).value.cost)))(jnp.asarray(cost)))
    expected = np.zeros_like(cost)
    np.put_along_axis(expected, assign(cost).value.columns[..., None], 1.0, axis=-1)
    np.testing.assert_array_equal(gradient, expected)
    best = jax.jit(jax.vmap(jax.grad(lambda c: assign(c, maximize=True).value.cost)))(jnp.asarray(cost))
    assert float(jnp.sum(best * cost)) == pytest.approx(assign(cost, maximize=True).value.cost.sum())


def test_derivative_matches_finite_differences_and_forward_mode():
    rng = np.random.default_rng(3)
    cost, direction = rng.random((2, 5, 5))
    value, slope = jax.jvp(lambda c: assign(c).value.cost, (jnp.asarray(cost),), (jnp.asarray(direction),))
    step = 1e-7
    moved = assign(cost + step * direction).value.cost - assign(cost - step * direction).value.cost
    assert float(slope) == pytest.approx(moved / (2 * step), rel=1e-6) and float(value) == assign(cost).value.cost


def test_unanswered_problems_have_derivative_zero():
    cost = batch()
    gradient = jax.grad(lambda c: jnp.sum(assign(c).value.cost))(jnp.asarray(cost))
    unanswered = assign(cost).flags != 0
    assert unanswered.any() and (np.asarray(gradient)[unanswered] == 0).all()


def test_integers_inside_jit():
    cost = np.random.default_rng(0).integers(-(2**50), 2**50, (4, 6, 6))
    traced = jax.jit(assign)(jnp.asarray(cost))
    np.testing.assert_array_equal(traced.value.cost, assign(cost).value.cost)
    small = jax.jit(assign)(jnp.asarray(cost // 2**40, jnp.int32))
    np.testing.assert_array_equal(small.value.cost, assign(cost // 2**40).value.cost)


@pytest.mark.parametrize(
    ("which", "how"),
    [
        (0, "jit"),
        (1, "vmap"),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in ((0, "vmap"), (1, "jit"), (2, "jit"), (2, "vmap"))),
    ],
)
def test_transport_under_jit_and_vmap(which, how):
    rng = np.random.default_rng(5)
    cost, capacity = rng.random((4, 6, 3)), jnp.array([3.0, 3.0, 1.0])
    marginal = jnp.asarray(np.sort(rng.random((3, 5)), axis=-1))
    supply = jnp.asarray(rng.integers(1, 3, (4, 6)) * 0.5)
    call, axes, arrays = [
        (transport, (0, None), (capacity,)),
        (congestion_transport, (0, None), (marginal,)),
        (transport, (0, None, 0), (capacity, supply)),
    ][which]
    host = call(cost, *map(np.asarray, arrays))
    traced = jax.jit(call) if how == "jit" else jax.vmap(call, in_axes=axes)
    jax.tree.map(np.testing.assert_array_equal, host, jax.tree.map(np.asarray, traced(jnp.asarray(cost), *arrays)))


def test_derivatives_of_transport_are_flow_and_duals():
    rng = np.random.default_rng(6)
    arrays = [rng.random((5, 3)), np.array([2.0, 1.5, 3.0]), rng.uniform(0.5, 1.0, 5)]
    solution = transport(*arrays)
    by_all = jax.jit(jax.grad(lambda *a: transport(*a).value.cost, argnums=(0, 1, 2)))
    slopes = by_all(*map(jnp.asarray, arrays))
    duals = [solution.certificate[name] for name in ("column_duals", "row_duals")]
    for slope, known in zip(slopes, (solution.value.flow, *duals), strict=True):
        np.testing.assert_allclose(slope, known)
    step = 1e-6
    for which, slope in enumerate(slopes):
        for at in np.ndindex(arrays[which].shape):
            ends = []
            for sign in (1, -1):
                moved = [a.copy() for a in arrays]
                moved[which][at] += sign * step
                ends.append(transport(*moved).value.cost)
            assert float(slope[at]) == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-6)


def test_derivatives_of_congestion_are_placement_and_used_slots():
    rng = np.random.default_rng(7)
    cost, marginal = rng.random((5, 2)), np.sort(rng.random((2, 4)), axis=-1)
    by_both = jax.jit(jax.grad(lambda *a: congestion_transport(*a).value.cost, argnums=(0, 1)))
    by_cost, by_marginal = by_both(jnp.asarray(cost), jnp.asarray(marginal))
    solution = congestion_transport(cost, marginal)
    np.testing.assert_array_equal(np.argmax(by_cost, axis=1), solution.value.columns)
    assert np.asarray(by_cost).sum() == 5
    np.testing.assert_array_equal(np.asarray(by_marginal).sum(1), solution.value.loads)
    assert float((by_cost * cost).sum() + (by_marginal * marginal).sum()) == pytest.approx(float(solution.value.cost))


def test_transport_in_float32_jit():
    cost = np.random.default_rng(8).random((4, 6, 3)).astype(np.float32)
    with jax.enable_x64(False):
        found = jax.jit(transport)(jnp.asarray(cost), jnp.array([3.0, 2.0, 4.0]))
    assert found.value.cost.dtype == jnp.float32
    np.testing.assert_allclose(found.value.cost, transport(cost, [3, 2, 4]).value.cost, rtol=1e-6)


@pytest.mark.parametrize(("shape", "maximize"), [((6, 5, 7), False), ((6, 7, 5), True), ((6, 6, 6), False)])
def test_gpu_kernel_interpreted(shape, maximize):
    """The kernel's program, run by the interpreter on the CPU; no GPU has run these tests."""
    cost = batch(shape)
    check_device(np.where(np.isposinf(cost), -np.inf, cost) if maximize else cost, maximize, "pallas")


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(12, 24, 24), (12, 17, 33)])
def test_gpu_kernel_interpreted_at_length(shape):
    rng = np.random.default_rng(9)
    for cost in (batch(shape), rng.integers(0, 5, shape).astype(float), rng.random(shape)):
        check_device(cost, False, "pallas")


def test_gpu_kernel_lowers_for_cuda():
    """It becomes Triton code for float32 and float64 without a GPU at hand (what it compiles to is not run here)."""
    from dmodels.solvers.assignment import pallas as assignment_pallas

    for dtype in (jnp.float32, jnp.float64):
        shape = jax.ShapeDtypeStruct((4, 20, 24), dtype)
        try:
            exported = jax.export.export(
                jax.jit(assignment_pallas.match_batch),
                platforms=["cuda"],
                disabled_checks=[jax.export.DisabledSafetyCheck.custom_call("__gpu$xla.gpu.triton")],
            )(shape)
        except RuntimeError as error:  # jax 0.11 on wants a GPU to lower for
            assert "No supported GPU devices" in str(error)
            pytest.skip("this JAX lowers for a GPU only where there is one")
        assert "triton" in exported.mlir_module()
