r"""Calibration of the prefill cost from measured (length, latency) pairs: least squares, how sure, and in what unit.

Phasor, Appendix B.2: $U(l) = T(l)\,P_{peak} \approx \alpha l^2 + \beta P_m l$. The paper's fit has no constant, so a
short prompt costs nothing; `intercept=True` adds one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.core.errors import InputError

from .freeness import PrefillCost


class Fit(NamedTuple):
    """Coefficients with their uncertainty."""

    cost: PrefillCost
    covariance: np.ndarray  # of (alpha, beta[, base]), from the residuals
    r_squared: float  # around the mean, in seconds; can be negative without a constant
    residual_s: np.ndarray
    condition: float  # of the scaled design: above 1e3 alpha and beta cannot be told apart


class UnitCheck(NamedTuple):
    """What a printed cost says about latency, beside bounds that hold for any stack."""

    latency_s: np.ndarray  # cost / peak
    over_measured: float  # median of it over the measured latency; nan without measurements
    linear_over_dense: float  # beta P_m / (2 N): 1 for matrix products at peak, below it is impossible
    quadratic_over_attention: float  # alpha / (2 n_layers n_heads d_h), causal attention; nan if not given


def calibrate(
    tokens, latency_s, peak_flop_per_s: float, scale: float = 1.0, intercept: bool = False, relative: bool = False
) -> Fit:
    """Least squares on at least three lengths; `relative` weighs by 1/latency, so that short prompts count as much."""
    x, y = np.asarray(tokens, np.float64).ravel(), np.asarray(latency_s, np.float64).ravel()
    terms = 3 if intercept else 2
    good = x.size == y.size and np.isfinite(x).all() and np.isfinite(y).all() and (x > 0).all() and (y > 0).all()
    if not good or np.unique(x).size <= terms:
        raise InputError(
            f"tokens {x.shape}, latency_s {y.shape}; accepted: pairs of finite numbers above 0, with more "
            f"than {terms} different lengths"
        )
    if not (0 < peak_flop_per_s < np.inf and 0 < scale < np.inf):
        raise InputError(f"peak_flop_per_s {peak_flop_per_s:g}, scale {scale:g}; accepted: finite numbers above 0")
    unit = x.max()
    columns = np.stack([(x / unit) ** 2, x / unit, np.ones_like(x)][:terms], axis=1)
    weight = 1.0 / y if relative else np.ones_like(y)
    design, goal = columns * weight[:, None], y * weight
    found, _, _, singular = np.linalg.lstsq(design, goal, rcond=None)
    residual = y - columns @ found
    freedom = max(x.size - terms, 1)
    noise = float(((goal - design @ found) ** 2).sum()) / freedom
    back = peak_flop_per_s * np.array([1 / unit**2, 1 / (unit * scale), 1.0])[:terms]
    covariance = noise * np.linalg.inv(design.T @ design) * np.outer(back, back)
    alpha, beta, *base = found * back
    spread = float(((y - y.mean()) ** 2).sum())
    r_squared = 1.0 - float(residual @ residual) / spread if spread > 0 else float("nan")
    return Fit(
        PrefillCost(alpha, beta, scale, base[0] if base else 0.0),
        covariance,
        r_squared,
        residual,
        float(singular[0] / singular[-1]),
    )


def check_units(
    cost: PrefillCost,
    peak_flop_per_s: float,
    params_count: float,
    tokens,
    latency_s=None,
    n_layers: float | None = None,
    n_heads: float | None = None,
    head_dim: float | None = None,
) -> UnitCheck:
    """Does the cost, in FLOP, agree with what prompts are known to cost?

    Phasor's Table 4 on Qwen2.5-7B, V100: in TFLOP 0.426 s at 1,024 tokens where its text has 0.116 s, a linear term of
    0.45 times 2N (faster than peak) and 212 times causal attention; in FLOP 4e-13 s, so that Phi never leaves 1.
    """
    x = np.asarray(tokens, np.float64)
    flop = float(cost.alpha) * x**2 + float(cost.beta * cost.scale) * x + float(cost.base_flop)
    latency = flop / peak_flop_per_s
    measured = float("nan") if latency_s is None else float(np.median(latency / np.asarray(latency_s, np.float64)))
    attention = float("nan")
    if n_layers and n_heads and head_dim:
        attention = float(cost.alpha) / (2.0 * n_layers * n_heads * head_dim)
    return UnitCheck(latency, measured, float(cost.beta * cost.scale) / (2.0 * params_count), attention)
