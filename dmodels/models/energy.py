r"""Energy of serving: power curves, joules per token against batch and clock, and what electricity adds to the price.

A GPU draws $P = P_{idle} + (P_{active} - P_{idle})\,u\,f^3$ at busy share u and clock f (1: nominal), the usual model
of dynamic power ($C V^2 f$, voltage in step with the clock). Work that waits for memory does not slow down with the
clock; work that waits for arithmetic does, as 1/f.
"""

from __future__ import annotations

import jax.numpy as jnp

from dmodels.core.numerics import safe_divide
from dmodels.core.records import Real, Record, quantity

JOULES_PER_KWH = 3.6e6


class Power(Record):
    """Watts of one GPU in one phase (prefill draws more than decode); stack two for both phases."""

    idle_w: Real = quantity()
    active_w: Real = quantity()  # busy all the time at the nominal clock
    clock_exponent: Real = quantity(3.0)


def power_w(power: Power, busy_frac: Real, clock_frac: Real = 1.0) -> Real:
    """Watts at a busy share and a clock. Idle 60 W, active 300 W, half busy: 180 W.

    >>> float(power_w(Power(60.0, 300.0), 0.5))
    180.0
    """
    dynamic = (power.active_w - power.idle_w) * clock_frac**power.clock_exponent
    return power.idle_w + dynamic * busy_frac


def joules_per_token(watts: Real, tokens_per_s: Real) -> Real:
    """Average power over generated tokens per second; inf where nothing is generated. 1720 W / 9820 tok/s: 0.1752."""
    return safe_divide(watts, tokens_per_s)


def saved_frac(joules: Real, baseline_joules: Real) -> Real:
    """1 - J / J_baseline. The paper's 28.0 % comes from 0.175 and 0.243, already rounded; from its watts it is 27.8."""
    return 1.0 - joules / baseline_joules


def step_s(memory_s: Real, compute_s: Real, clock_frac: Real = 1.0) -> Real:
    """A step at a clock: the memory part as it is, the compute part over the clock."""
    return memory_s + compute_s / clock_frac


def decode_joules_per_token(
    power: Power, batch: Real, base_s: Real, per_sequence_s: Real, clock_frac: Real = 1.0, compute_frac: Real = 0.0
) -> Real:
    r"""J/token of a worker that decodes `batch` sequences: $P(f)\,t(n, f)/n$, $t = W + Hn$.

    Falls with the batch like W/n towards P H; `compute_frac` is the share of the step that scales with the clock. W = 8
    ms, H = 0.65 ms, 300 W: 2.6 J at batch 1, 0.21 J at 128.

    >>> [round(float(decode_joules_per_token(Power(60.0, 300.0), n, 8e-3, 0.65e-3)), 3) for n in (1.0, 128.0)]
    [2.595, 0.214]
    """
    nominal = base_s + per_sequence_s * batch
    seconds = step_s((1.0 - compute_frac) * nominal, compute_frac * nominal, clock_frac)
    return power_w(power, 1.0, clock_frac) * seconds / batch


def best_clock_frac(power: Power, compute_frac: Real, low_frac: Real = 0.3, high_frac: Real = 1.0) -> Real:
    r"""The clock of least energy for work of which `compute_frac` scales with it, on a GPU that is busy throughout.

    Minimises $(P_i + D f^e)(1 - c + c/f)$. The derivative times f^2 is
    $e(1-c)D f^{e+1} + (e-1)c D f^e - c P_i$, increasing in f with one root: found by 60 halvings. For e = 3 and c = 1
    it is $(P_i/2D)^{1/3}$.

    >>> round(float(best_clock_frac(Power(60.0, 300.0), 1.0)), 9)
    0.5
    """
    dynamic, e, c = power.active_w - power.idle_w, power.clock_exponent, compute_frac
    low = jnp.zeros_like(c * dynamic + low_frac)
    high = low + high_frac
    for _ in range(60):
        f = 0.5 * (low + high)
        rising = e * (1.0 - c) * dynamic * f ** (e + 1.0) + (e - 1.0) * c * dynamic * f**e - c * power.idle_w > 0
        low, high = jnp.where(rising, low, f), jnp.where(rising, f, high)
    return jnp.clip(0.5 * (low + high), low_frac, high_frac)


def energy_usd_per_hour(watts: Real, usd_per_kwh: Real, pue: Real = 1.2) -> Real:
    """What the meter charges, cooling included. 1 kW at 0.10 USD/kWh and PUE 1.2: 0.12 USD/h."""
    return watts * 3600.0 / JOULES_PER_KWH * usd_per_kwh * pue


def usd_per_mtoken_with_energy(
    gpu_usd_per_hour: Real, watts: Real, tokens_per_s: Real, usd_per_kwh: Real, pue: Real = 1.2
) -> Real:
    """Rent and electricity per million generated tokens; inf where nothing is generated.

    Eight V100 at 2 USD/h and 1720 W, 9820 tok/s, 0.10 USD/kWh: 0.4526 of rent and 0.0058 of electricity.
    """
    hourly = gpu_usd_per_hour + energy_usd_per_hour(watts, usd_per_kwh, pue)
    return safe_divide(hourly / 3600.0 * 1e6, tokens_per_s)
