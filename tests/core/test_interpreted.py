"""Programs that NumPy carries out, beside the same programs compiled by XLA."""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from dmodels.core.array_rules import ELEMENTWISE, RULES, SEVERAL
from dmodels.core.errors import TooLong
from dmodels.core.interpreted import CONTROL, carry_out
from dmodels.core.programs import at_once, program
from dmodels.core.recipes import CALLS, recipe

X = np.array([[0.3, -1.7, 2.0], [0.0, 0.9, -0.5], [4.0, 1e-3, 0.25]])
V = np.array([0.2, 0.7, 0.4])
I = np.array([[2, -7, 0], [5, 3, 1]])


def _loop(x):
    """Doubles until past 100, then sums what a scan in reverse has collected."""
    grown = lax.while_loop(lambda s: s[0] < 100.0, lambda s: (2.0 * s[0], s[1] + 1), (jnp.abs(x[0]) + 1.0, 0))
    last, seen = lax.scan(lambda c, row: (c + row, c * row), jnp.zeros_like(x), jnp.outer(x, x), reverse=True)
    return grown, last, seen, lax.cond(x[0] > 0, jnp.sin, jnp.cos, 0.5), lax.switch(7, [jnp.sin, jnp.cos], x)


def _windows(x):
    """Slices at traced places, beyond the ends too, and gathers of rows, columns and single numbers."""
    at = jnp.array([2, 0, 5, -1])
    return (
        lax.dynamic_slice(x, (jnp.int32(2), jnp.int32(-4)), (2, 2)),
        lax.dynamic_update_slice(x, jnp.ones((2, 1)), (jnp.int32(2), jnp.int32(1))),
        x[at],
        x[:, at],
        x[at, at],
        jnp.take_along_axis(x, jnp.argsort(x, axis=1), axis=1),
        x.at[at].get(mode="fill", fill_value=-3.0),
        x.at[at].get(mode="clip"),
        jax.vmap(lambda row, i: row[i])(x, jnp.array([0, 2, 1])),
        x.at[1, 2].add(5.0),
    )


PROGRAMS = {
    "arithmetic": (lambda x: (x + 1 - x * x / 3, x**3, x**-2, jnp.abs(x) ** 0.7, -x, jnp.sign(x), x % 0.7, 1 / x), X),
    "functions": (lambda x: [f(jnp.abs(x)) for f in (jnp.exp, jnp.log, jnp.sqrt, jnp.log1p, jnp.tanh, jnp.cbrt)], X),
    "more functions": (
        lambda x: [f(x) for f in (jnp.expm1, jnp.sin, jnp.cos, jnp.exp2, jax.nn.sigmoid, jnp.square)],
        X,
    ),
    "special": (
        lambda x: (
            jax.scipy.special.erf(x),
            jax.scipy.stats.norm.cdf(x),
            jax.scipy.special.ndtri(jnp.abs(x) / 5),
            jax.scipy.special.gammaln(x + 3),
            jax.scipy.special.gammainc(2.0, jnp.abs(x)),
        ),
        X,
    ),
    "rounding": (lambda x: (jnp.floor(x), jnp.ceil(x), jnp.round(x), lax.round(x + 0.5), jnp.trunc(x)), X),
    "types": (lambda x: (x.astype(int), (x > 0).astype(float), jnp.array([jnp.nan, 1e300, -1e300]).astype(int)), X),
    "integers": (
        lambda i: (
            i // 2,
            lax.div(i, jnp.full_like(i, 2)),
            lax.rem(i, jnp.full_like(i, 3)),
            i % 3,
            i << 2,
            i | 3,
            i ^ 3,
            i & 3,
        ),
        I,
    ),
    "bits": (lambda x: (jnp.frexp(x), jnp.ldexp(x, 3), jnp.nextafter(x, 9.0), jnp.signbit(x)), X),
    "logic": (
        lambda x: (
            lax.ge(x, 0 * x),
            (x > 0) & (x < 1) | ~(x == x) ^ (x > 2),
            jnp.isfinite(1 / x),
            jnp.where(x > 0, x, 7),
            x.clip(0, 1),
        ),
        X,
    ),
    "choice": (lambda i: lax.select_n(i % 3, i, 10 * i, 100 * i), I),
    "sums": (
        lambda x: (x.sum(0), x.prod(1), x.max(), x.min(1), x.argmax(1), x.argmin(0), (x > 0).any(), (x > 0).all(1)),
        X,
    ),
    "empty": (
        lambda x: (jnp.max(x[:0], initial=-1.0), lax.reduce_max(x[:0], (0,)), jnp.zeros((2, 0)) @ jnp.ones((0, 3))),
        V,
    ),
    "running": (lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 0), lax.cummax(x, 1), lax.cummin(x, 0, reverse=True)), X),
    "shapes": (
        lambda x: (
            x.T.reshape(9)[None],
            x[::2, ::-1],
            jnp.concatenate([x, x], 1),
            jnp.stack([x, x], 1),
            jnp.broadcast_to(x[0, 0], (2, 2)),
            jnp.split(x, [1], 1),
            jnp.unstack(x, axis=1),
        ),
        X,
    ),
    "padding": (
        lambda x: [
            lax.pad(x, 9.0, config) for config in (((1, 0, 0), (0, 2, 1)), ((-1, 1, 0), (2, -1, 2)), ((0, -2, 1),) * 2)
        ],
        X,
    ),
    "products": (lambda x: (x @ x, x @ x[0], jnp.einsum("bij,bjk->bik", x[None], x[None]), jnp.outer(x[0], x[1])), X),
    "order": (lambda x: (jnp.sort(x, 0), jnp.argsort(-x, 1), jnp.lexsort((x[0] > 0, x[1])), lax.top_k(x, 2)), X),
    "systems": (
        lambda x: (
            jnp.linalg.solve(x, jnp.ones(3)),
            jnp.linalg.solve(x.T, x),
            jnp.linalg.solve(jnp.stack([x, x.T]), jnp.ones((2, 3, 1))),
            jnp.linalg.inv(x),
            jnp.linalg.eigvalsh(x + x.T),
            jnp.linalg.det(x),
        ),
        X,
    ),
    "loops": (_loop, V),
    "windows": (_windows, X),
    "derivatives": (jax.jacfwd(jax.grad(lambda v: jnp.sum(jnp.exp(v) * v[::-1]) + jax.nn.relu(v[0]))), V),
    "through a system": (jax.grad(lambda v: jnp.sum(jnp.linalg.solve(X + jnp.diag(v), v))), V),
    "mapped": (jax.vmap(lambda v: lax.while_loop(lambda s: s < 5.0, lambda s: s + 1.0, v[0])), X),
    "platforms": (lambda v: (jnp.diag(v), lax.platform_dependent(v, cpu=jnp.sin, default=jnp.cos)), V),
    "random": (lambda x: x + jax.random.normal(jax.random.key(3), x.shape), X),
}


@jax.custom_vjp
def _own_derivative(x):
    return 3.0 * x


_own_derivative.defvjp(lambda x: (3.0 * x, None), lambda _, g: (7.0 * g,))
PROGRAMS["own derivatives"] = lambda v: (_own_derivative(v), jnp.array(v, copy=True), v <= 0.4), V


@pytest.mark.parametrize("name", PROGRAMS)
def test_numpy_says_what_xla_says(name):
    function, given = PROGRAMS[name]
    with jax.enable_x64(True):
        expected = [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(function)(given))]
        found = carry_out(jax.make_jaxpr(function)(given), [given])
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_recipe_that_was_kept_in_a_file_says_the_same(name):
    function, given = PROGRAMS[name]
    with jax.enable_x64(True):
        made = recipe(jax.make_jaxpr(function)(given))
        # some of their operations are JAX's own, of "special" and "bits" only in later releases
        if any("stranger" in step.params for step in made.steps):
            assert name in ("random", "windows", "order", "special", "bits")
            with pytest.raises(pickle.PicklingError):
                pickle.dumps(made)
            return
        before, after = (carry_out(steps, [given]) for steps in (made, pickle.loads(pickle.dumps(made))))
    for ours, theirs in zip(before, after, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_every_rule_is_used_by_one_of_the_programs():
    def names(jaxpr):
        for eqn in jaxpr.eqns:
            yield eqn.primitive.name
            for inner in jax.tree.leaves(eqn.params, is_leaf=lambda p: hasattr(p, "eqns")):
                if hasattr(inner, "eqns"):
                    yield from names(getattr(inner, "jaxpr", inner))

    with jax.enable_x64(True):
        used = {name for f, given in PROGRAMS.values() for name in names(jax.make_jaxpr(f)(given).jaxpr)}
    assert {*ELEMENTWISE, *RULES, *SEVERAL, *CONTROL, *CALLS} <= used


def test_a_program_that_takes_too_long_is_stopped():
    endless = jax.make_jaxpr(lambda x: lax.while_loop(lambda s: s > 0, lambda s: s + 1.0, x))(1.0)
    with pytest.raises(TooLong):
        carry_out(endless, [1.0], limit_s=0.05)


def test_a_program_computes_the_same_before_and_after_it_is_compiled(monkeypatch):
    """The first call is NumPy's, the second one XLA's; what is no array is part of the program."""

    @program
    def powers(x, exponent, scale=None):
        return {"x": x**exponent, "sum": jnp.sum(x) if scale is None else scale(jnp.sum(x))}

    by_numpy = powers(V, 3, scale=jnp.exp)
    assert isinstance(by_numpy["x"], np.ndarray)
    monkeypatch.setattr("dmodels.core.programs.SMALL", 0)
    by_xla = powers(V, 3, scale=jnp.exp)
    assert isinstance(by_xla["x"], jax.Array)
    np.testing.assert_allclose(by_numpy["x"], by_xla["x"], rtol=1e-6)
    np.testing.assert_allclose(by_numpy["sum"], by_xla["sum"], rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda v: powers(v, 2)["sum"])(V), np.ones(3))


def test_a_formula_that_answers_at_once_is_traced_once_for_all_numbers():
    """Whole numbers, of which there are few, are part of its program; its slope is that of the formula."""
    traced = []

    @at_once
    def weighed(x, weight, *, times=1, shift=0.0):
        traced.append(times)
        return times * weight * x + shift

    with jax.enable_x64(True):
        for weight in (0.5, 2.0, 3.5):
            assert float(weighed(4.0, weight)) == 4.0 * weight
            assert float(weighed(4.0, weight, shift=1.5)) == 4.0 * weight + 1.5
        assert traced == [1, 1]  # with the shift, and without one
        np.testing.assert_array_equal(weighed(np.arange(3.0), 2.0, times=2), [0.0, 4.0, 8.0])
        assert traced == [1, 1, 2] and isinstance(weighed(4.0, 9.0), np.ndarray)
        assert float(jax.grad(weighed)(4.0, 9.0)) == 9.0
