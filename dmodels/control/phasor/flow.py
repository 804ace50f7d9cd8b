r"""Phasor's macro level: which pool gets a worker, and when that cannot flap.

Pools have n_P and n_D workers, n_M stand by. Freeness of a pool under load L (in workers) is $\Phi = 1 - L/n$.
Three rules, all of `(state, phi_prefill, phi_decode, params)`:

    promote    Algorithm 1: the poorer pool gets a standby worker when its mean freeness is below theta times the
               other's; a worker is recalled to standby after `cool_steps` if its pool stays the richer without it
    transfer   a worker changes pools directly when the same trigger fires, and Phi of the pool that gives is at least
               `y_crit`, so that the opposite trigger cannot fire at the same loads
    descend    a worker changes pools if that lowers the larger of the two utilisations by `margin`: no configuration
               can recur while loads stay within `drift_limit(margin)`, and it works when both pools are overloaded

The dead zone of the printed trigger is theta <= Phi_P/Phi_D <= 1/theta for positive means. It is empty when both are
negative: then both triggers fire.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dmodels.core.errors import InputError
from dmodels.core.numerics import safe_divide
from dmodels.core.records import Real


class FlowSettings(NamedTuple):
    """Parameters, by `settings`."""

    theta: Real  # flow-control ratio
    margin: Real  # of `descend`
    cool_steps: Real  # control epochs between two changes


class Roles(NamedTuple):
    """Workers by role, and epochs until the next change is allowed."""

    prefill: Real
    decode: Real
    mixed: Real
    wait: Real
    changes: Real


def settings(theta: float = 0.62, margin: float = 0.1, cool_steps: float = 20.0) -> FlowSettings:
    """The paper's theta_flow, and T_cool of 20 epochs of 50 ms."""
    if not (0 < theta < 1 and 0 < margin < 1 and cool_steps >= 0):
        raise InputError(
            f"theta {theta}, margin {margin}, cool_steps {cool_steps}; accepted: theta and margin between "
            "0 and 1, cool_steps from 0"
        )
    return FlowSettings(theta, margin, cool_steps)


def init(prefill: Real, decode: Real, mixed: Real = 0.0) -> Roles:
    """Roles at the start."""
    p, d, m = jnp.broadcast_arrays(*(jnp.asarray(x, float) for x in (prefill, decode, mixed)))
    return Roles(p, d, m, jnp.zeros_like(p), jnp.zeros_like(p))


def promote(state: Roles, phi_prefill: Real, phi_decode: Real, params: FlowSettings) -> tuple[Roles, Real]:
    """One epoch of lines 12 to 18: (state, change): +-1 a worker to prefill/decode, +-2 one recalled from it.

    Ties when both triggers fire go to prefill, as printed. Without the recall, at most n_M changes happen, ever. A
    recall is made only if the pool without the worker is still at least as free as the other, and as 0: then no
    trigger and no recall can undo what the other has just done at the same loads.
    """
    ready = (state.wait <= 0) & jnp.isfinite(phi_prefill) & jnp.isfinite(phi_decode)
    to_p = ready & (state.mixed >= 1) & (phi_prefill < params.theta * phi_decode)
    to_d = ready & (state.mixed >= 1) & (phi_decode < params.theta * phi_prefill) & ~to_p
    idle = ready & ~to_p & ~to_d
    from_p = idle & (state.prefill >= 2) & (without(phi_prefill, state.prefill) >= jnp.maximum(phi_decode, 0.0))
    from_d = idle & (state.decode >= 2) & (without(phi_decode, state.decode) >= jnp.maximum(phi_prefill, 0.0)) & ~from_p
    change = jnp.where(to_p, 1, jnp.where(to_d, -1, jnp.where(from_p, 2, jnp.where(from_d, -2, 0))))
    one = lambda yes: jnp.where(yes, 1.0, 0.0)
    return _moved(state, one(to_p) - one(from_p), one(to_d) - one(from_d), params), change.astype(jnp.int32)


def transfer(state: Roles, phi_prefill: Real, phi_decode: Real, params: FlowSettings) -> tuple[Roles, Real]:
    """One epoch of the direct rule: (state, +1 decode to prefill, -1 prefill to decode, 0)."""
    ready = (state.wait <= 0) & jnp.isfinite(phi_prefill) & jnp.isfinite(phi_decode)
    to_p = ready & (phi_prefill < params.theta * phi_decode) & (state.decode >= 2)
    to_p &= phi_decode >= y_crit(state.prefill, state.decode, params.theta)
    to_d = ready & (phi_decode < params.theta * phi_prefill) & (state.prefill >= 2)
    to_d &= phi_prefill >= y_crit(state.decode, state.prefill, params.theta)
    return _turned(state, to_p, to_d, params)


def descend(state: Roles, phi_prefill: Real, phi_decode: Real, params: FlowSettings) -> tuple[Roles, Real]:
    r"""One epoch of the rule that lowers $V = \max(L_P/n_P, L_D/n_D)$ by the factor 1 - margin or does nothing.

    V falls strictly with every change, so at constant loads no configuration comes back. While every load stays within
    a factor 1 +- e of some base, a change lowers V at the base loads by $(1-m)(1+e)/(1-e)$, still a fall for
    $e < m/(2-m)$.
    """
    ready = (state.wait <= 0) & jnp.isfinite(phi_prefill) & jnp.isfinite(phi_decode)
    load_p, load_d = (1.0 - phi_prefill) * state.prefill, (1.0 - phi_decode) * state.decode
    goal = (1.0 - params.margin) * jnp.maximum(1.0 - phi_prefill, 1.0 - phi_decode)
    worst = lambda p, d: jnp.maximum(load_p / jnp.maximum(p, 1.0), load_d / jnp.maximum(d, 1.0))
    to_p = ready & (state.decode >= 2) & (worst(state.prefill + 1.0, state.decode - 1.0) <= goal) & (goal > 0)
    to_d = ready & (state.prefill >= 2) & (worst(state.prefill - 1.0, state.decode + 1.0) <= goal) & (goal > 0)
    return _turned(state, to_p, to_d, params)


def without(phi: Real, workers: Real) -> Real:
    """Freeness of a pool of n workers once one has left: 1 - (1 - Phi) n/(n - 1); -inf for the last worker."""
    return 1.0 - safe_divide((1.0 - phi) * workers, workers - 1.0)


def y_crit(gains: Real, gives: Real, theta: Real) -> Real:
    r"""Least freeness of the giving pool for which a direct move cannot be undone at once, at the same loads:

    $$y = \frac{\theta/(n_g + 1) + 1/(n_v - 1)}{n_v/(n_v - 1) - \theta^2 n_g/(n_g + 1)}$$

    with n_g workers in the pool that gains and n_v in the one that gives. Exact: below it some firing state flaps. It
    increases in theta, so a *smaller* theta is safer. 0.446 at 4 and 4 and theta = 0.62.

    >>> round(float(y_crit(4.0, 4.0, 0.62)), 3)
    0.446
    """
    more = jnp.maximum(gives - 1.0, 1e-9)
    return (theta / (gains + 1.0) + 1.0 / more) / (gives / more - theta**2 * gains / (gains + 1.0))


def drift_limit(margin: Real) -> Real:
    """Relative drift of the loads under which `descend` never returns to a configuration: m/(2 - m).

    >>> round(float(drift_limit(0.1)), 4)
    0.0526
    """
    return margin / (2.0 - margin)


def balanced_prefill(workers: Real, prefill_load: Real, decode_load: Real) -> Real:
    r"""Prefill workers that even out utilisation, $n L_P/(L_P + L_D)$; the best whole split is its floor or ceiling."""
    total = prefill_load + decode_load
    return workers * safe_divide(prefill_load, total, 0.5)


def _turned(state: Roles, to_p: Real, to_d: Real, params: FlowSettings) -> tuple[Roles, Real]:
    """One worker turned: no rule asks for both at once."""
    step = jnp.where(to_p, 1.0, jnp.where(to_d, -1.0, 0.0))
    return _moved(state, step, -step, params), step.astype(jnp.int32)


def _moved(state: Roles, prefill: Real, decode: Real, params: FlowSettings) -> Roles:
    changed = (prefill != 0) | (decode != 0)
    wait = jnp.maximum(jnp.where(changed, params.cool_steps, state.wait) - 1.0, 0.0)
    return Roles(
        state.prefill + prefill,
        state.decode + decode,
        state.mixed - prefill - decode,
        wait,
        state.changes + jnp.where(changed, 1.0, 0.0),
    )
