r"""One routing game as a JAX program: best responses, every profile, logit equilibrium. For `vmap` over games.

f (m, K) holds f_j(1..K) (inf past a pole), c (G, m) the private costs, q (G,) the sizes of the groups, x (G, m) a flow;
all float64 and int64 as on the host, with the same order of operations, so that ties break as they do there.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln, xlog1py, xlogy

from dmodels.solvers.roofline import DeviceWork

#: Steps of a logit equilibrium at damping 0.2 to a residual of 1e-10, at temperatures that part the workers.
LOGIT_STEPS = 110

#: Best-response moves of a request, in the game of a large batch that has most.
MOVES_FRAC = 0.9

#: Profiles that are looked at together.
BLOCK = 1024

#: Rounding of one comparison of costs: two sums, a product, and what made the curve.
ULPS = 16.0


def response_work(groups: int, m: int, loads: int, requests: int) -> DeviceWork:
    """Of `best_response` from `greedy` arrival: a step for each request that arrives, and moves of nearly as many in
    the game that a large batch waits for (half as many in the mean), each some 8 G m^2 operations on the game's state,
    which is read and written; 5 launches a step."""
    steps, state = (1 + MOVES_FRAC) * requests, 8.0 * m * (groups + 4)
    return DeviceWork(
        8.0 * m * (loads + groups) + steps * 2 * state,
        flop64=steps * 8.0 * groups * m * m,
        launches=5 * steps,
        registers=32,
    )


def profile_work(groups: int, m: int, loads: int, profiles: int) -> DeviceWork:
    """Of `every_profile`: 12 G m operations a profile in registers after fusion, in whole blocks; a block writes the
    three values of each of its profiles, which are reduced by one more kernel."""
    blocks = -(-profiles // BLOCK)
    return DeviceWork(
        8.0 * m * (loads + groups) + blocks * BLOCK * 3 * 8.0 * 2,
        flop64=12.0 * groups * m * blocks * BLOCK,
        launches=10 * blocks,
        registers=128,
    )


def logit_work(groups: int, m: int, loads: int) -> DeviceWork:
    """Of `logit`: each step convolves, for every group, the laws of all groups (G^2 m K^2 multiply-adds) and writes and
    reads those laws (G^2 m K) and the products (G m K^2) where they are not fused; 20 launches."""
    laws, products = groups**2 * m * loads, groups**2 * m * loads**2
    return DeviceWork(
        LOGIT_STEPS * 8.0 * (4.0 * laws + products),
        flop64=LOGIT_STEPS * (2.0 * products + 60.0 * laws),
        launches=20 * LOGIT_STEPS,
        registers=40,
    )


def tolerance(f: Array, c: Array, total: Array) -> Array:
    """What `equilibria.tolerance` says: the rounding of what a request pays where latencies are balanced."""
    last = f.shape[1] - 1

    def fill(_: Any, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        n, level, open_ = state
        at = jnp.where(n <= last, f[jnp.arange(f.shape[0]), jnp.minimum(n, last)], jnp.inf)
        pick = jnp.argmin(at)
        open_ = open_ & (at[pick] < jnp.inf) & (jnp.sum(n) < total)
        return n.at[pick].add(open_.astype(n.dtype)), jnp.where(open_, jnp.maximum(level, at[pick]), level), open_

    start = (jnp.zeros(f.shape[0], jnp.int32), jnp.zeros((), f.dtype), jnp.bool_(True))
    _, level, _ = jax.lax.fori_loop(0, f.shape[1], fill, start)
    blur: Array = ULPS * 2.0**-52 * (level + jnp.max(jnp.abs(c)))
    return blur


def _moves(f: Array, c: Array, x: Array, n: Array) -> tuple[Array, Array, Array]:
    """(what a request of g on j pays, the least it would pay elsewhere, where): each (G, m)."""
    m = f.shape[0]
    columns = jnp.arange(m)
    newcomer = f[columns, jnp.minimum(n, f.shape[1] - 1)][None, :] + c
    stays = f[columns, jnp.maximum(n, 1) - 1][None, :] + c
    apart = jnp.where(jnp.eye(m, dtype=bool)[None], jnp.inf, newcomer[:, None, :])
    return stays, jnp.min(apart, axis=2, initial=jnp.inf), jnp.argmin(apart, axis=2)


def best_response(f: Array, c: Array, q: Array, x: Array, most: int) -> tuple[Array, Array, Array]:
    """(flow, moves, done): the request with the most to gain moves to its best worker until nobody gains."""
    m = c.shape[1]
    tol = tolerance(f, c, jnp.sum(q))

    def best(x: Array) -> tuple[Array, Array, Array]:
        stays, least, to = _moves(f, c, x, jnp.sum(x, axis=0))
        gain = jnp.where((x > 0) & (stays > least + tol), stays - least, 0.0).reshape(-1)
        at = jnp.argmax(jnp.where(jnp.isnan(gain), 0.0, gain))
        return gain[at] > 0, at, to.reshape(-1)[at]

    def step(state: Any) -> Any:
        x, steps, _, at, to = state
        g, j = at // m, at % m
        x = x.at[g, j].add(-1).at[g, to].add(1)
        return x, steps + 1, *best(x)

    start = (x, jnp.int64(0), *best(x))
    x, steps, gains, *_ = jax.lax.while_loop(lambda s: s[2] & (s[1] < most), step, start)
    return x, steps, ~gains


def greedy(f: Array, c: Array, q: Array) -> Array:
    """Requests arrive one after another, group by group, each to the worker that is cheapest then: flow (G, m)."""
    groups, m = c.shape
    ends = jnp.cumsum(q)

    def arrive(i: Array, x: Array) -> Array:
        g = jnp.sum(ends <= i)  # no group once all are there
        n = jnp.sum(x, axis=0)
        pay = f[jnp.arange(m), jnp.minimum(n, f.shape[1] - 1)] + c[g]
        return x.at[g, jnp.argmin(pay)].add(1, mode="drop")

    x: Array = jax.lax.fori_loop(0, f.shape[1], arrive, jnp.zeros((groups, m), q.dtype))
    return x


def every_profile(f: Array, c: Array, *ways: Array) -> tuple[Array, ...]:
    """Least and greatest cost of a pure equilibrium, least cost of all, and the numbers of these three profiles.

    `ways[g]` (S_g, m) lists the splits of group g over the workers; profile p takes split (p / prod of S_h, h < g) mod
    S_g of each. inf, -inf where there is no equilibrium (there always is one).
    """
    sizes = [int(w.shape[0]) for w in ways]
    total = 1
    for size in sizes:
        total *= size
    m = f.shape[0]
    columns = jnp.arange(m)[None, :]
    q = jnp.stack([jnp.sum(w[0]) for w in ways])
    tol = tolerance(f, c, jnp.sum(q))
    at_load = jnp.concatenate([jnp.zeros((m, 1), f.dtype), f], axis=1)

    def block(k: Array, state: Any) -> Any:
        p = k * BLOCK + jnp.arange(BLOCK, dtype=jnp.int64)
        rest, flows = jnp.minimum(p, total - 1), []
        for size, split in zip(sizes, ways, strict=True):
            flows.append(split[rest % size])
            rest = rest // size
        n = sum(flows[1:], flows[0])
        here = at_load[columns, n]
        newcomer = f[columns, jnp.minimum(n, f.shape[1] - 1)]
        paid = jnp.sum(jnp.where(n > 0, n.astype(f.dtype) * here, 0.0), axis=1)
        stable = jnp.ones(BLOCK, bool)
        for g, x in enumerate(flows):
            paid = paid + jnp.sum(x.astype(f.dtype) * c[g][None, :], axis=1)
            for j in range(m):
                if m > 1:
                    others = [newcomer[:, k] + c[g, k] for k in range(m) if k != j]
                    least = others[0]
                    for other in others[1:]:
                        least = jnp.minimum(least, other)
                    stable = stable & ((x[:, j] == 0) | ~(here[:, j] + c[g, j] > least + tol))
        counts = p < total
        values = (
            jnp.where(stable & counts, paid, jnp.inf),
            jnp.where(stable & counts, -paid, jnp.inf),
            jnp.where(counts, paid, jnp.inf),
        )
        out = []
        for (least, which, any_), value, member in zip(state, values, (stable, stable, counts), strict=True):
            i = jnp.argmin(value)
            closer = jnp.any(member & counts) & (~any_ | (value[i] < least))
            out.append((jnp.where(closer, value[i], least), jnp.where(closer, p[i], which), any_ | closer))
        return tuple(out)

    nothing = (jnp.full((), jnp.inf, f.dtype), jnp.int64(0), jnp.bool_(False))
    found = jax.lax.fori_loop(0, -(-total // BLOCK), block, (nothing,) * 3)
    (best, p_best, _), (worst, p_worst, _), (least, p_least, _) = found
    return best, -worst, least, p_best, p_worst, p_least


def logit(
    f: Array, c: Array, q: Array, tau: Array, tolerance_p: float, most: int, damping: float
) -> tuple[Array, Array, Array, Array]:
    """(probability (G, m), expected social cost, residual, steps) of the logit equilibrium; see `stochastic`."""
    groups, m = c.shape
    size = f.shape[1]
    k = jnp.arange(size, dtype=jnp.int64)
    others = jnp.maximum(q[None, :] - jnp.eye(groups, dtype=q.dtype), 0).astype(f.dtype)  # (g, h)
    back = k[:, None] - k[None, :]

    def law(p: Array) -> Array:
        """P(k others on j | one of g is there), (G, m, size)."""
        x = k.astype(f.dtype)[None, None, :, None]
        n, at = others[:, :, None, None], p[None, :, None, :]
        room = jnp.maximum(n - x, 0)
        log = gammaln(n + 1) - gammaln(x + 1) - gammaln(room + 1) + xlogy(x, at) + xlog1py(room, -at)
        pmf = jnp.where(x <= n, jnp.exp(log), 0.0)  # (g, h, k, j)
        out = pmf[:, 0]
        for h in range(1, groups):
            toeplitz = jnp.where((back >= 0)[None, :, :, None], pmf[:, h][:, jnp.maximum(back, 0)], 0.0)
            out = jnp.sum(toeplitz * out[:, None, :, :], axis=2)
        return jnp.moveaxis(out, 1, 2)

    def respond(p: Array) -> tuple[Array, Array, Array]:
        likely = law(p)
        here = jnp.sum(jnp.where(likely > 0, likely * f[None], 0.0), axis=2) + c
        finite = jnp.where(jnp.isfinite(here), here, 1e300)
        weight = jnp.exp(-(finite - jnp.min(finite, axis=1, keepdims=True)) / tau)
        response = weight / jnp.sum(weight, axis=1, keepdims=True)
        return here, response, jnp.max(jnp.abs(response - p))

    def step(state: Any) -> Any:
        p, steps, _, response, _ = state
        p = p + damping * (response - p)
        here, response, residual = respond(p)
        return p, steps + 1, here, response, residual

    uniform = jnp.full((groups, m), 1.0 / m, f.dtype)
    start = (uniform, jnp.int64(1), *respond(uniform))
    p, steps, here, _, residual = jax.lax.while_loop(lambda s: (s[4] > tolerance_p) & (s[1] < most), step, start)
    mean = jnp.sum(q.astype(f.dtype)[:, None] * jnp.where(p > 0, p * here, 0.0))
    return p, mean, residual, steps
