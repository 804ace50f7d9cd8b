r"""Laws of a load sweep: linear W + H n, the singular curve, and a closed loop with one saturating stage.

Each is fitted by Levenberg-Marquardt to the logarithm of what was measured (so that 70 ms and 100 s weigh alike), in
parameters whose logarithm is free. A fit carries its covariance, its residuals, Akaike's corrected criterion for
comparing laws of the same quantity, and warnings in words where the data do not determine it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from scipy import stats

from dmodels.core.errors import InputError
from dmodels.core.records import Real, float64
from dmodels.models.latency import LatencyCurve, StepLaw, singular_latency_s
from dmodels.models.queueing import closed_loop_rps

#: Fitted and held numbers by name; law(numbers, loads) -> values.
Params = Mapping[str, Real]
Law = Callable[[Params, Real], Real]

#: A pole further away than this many times the largest load is not seen in the data.
FAR = 20.0


@dataclass(frozen=True)
class CurveFit:
    """A law fitted to a load sweep."""

    law: str
    values: dict[str, float]
    log_covariance: np.ndarray  # of the logarithms of the values, in their order
    residuals: np.ndarray  # log measured - log fitted
    warnings: tuple[str, ...] = ()

    @property
    def sigma(self) -> float:
        """Standard deviation of the residuals, degrees of freedom accounted for."""
        free = len(self.residuals) - len(self.values)
        return float(np.sqrt(np.sum(self.residuals**2) / free)) if free > 0 else float("nan")

    @property
    def aicc(self) -> float:
        """Akaike's criterion with the correction for few points; infinite where points are too few to correct for."""
        n, k = len(self.residuals), len(self.values) + 1
        if n - k - 1 <= 0:
            return float("inf")
        floor = np.sum((1e-6) ** 2 * np.ones(n))  # a perfect fit is not infinitely likely
        return float(n * np.log((np.sum(self.residuals**2) + floor) / n) + 2 * k + 2 * k * (k + 1) / (n - k - 1))

    def interval(self, name: str, level: float = 0.95) -> tuple[float, float]:
        """Student interval of a value, on its logarithm (delta method)."""
        i = list(self.values).index(name)
        free = max(len(self.residuals) - len(self.values), 1)
        half = stats.t.ppf(0.5 + level / 2.0, free) * np.sqrt(self.log_covariance[i, i])
        return self.values[name] * float(np.exp(-half)), self.values[name] * float(np.exp(half))

    def runs_p(self) -> float:
        """Probability of so few sign changes if the residuals were independent (runs test); small: a wrong shape."""
        signs = np.sign(self.residuals[np.abs(self.residuals) > 0])
        n1, n2 = int((signs > 0).sum()), int((signs < 0).sum())
        if min(n1, n2) == 0:
            return 1.0 if len(signs) < 3 else float(0.5 ** (len(signs) - 1))
        runs = 1 + int((signs[1:] != signs[:-1]).sum())
        total = n1 + n2
        mean = 1.0 + 2.0 * n1 * n2 / total
        var = (mean - 1.0) * (mean - 2.0) / (total - 1.0)
        return float(stats.norm.cdf((runs + 0.5 - mean) / np.sqrt(max(var, 1e-12))))


def fit_linear(load: Any, latency_s: Any) -> CurveFit:
    """t(n) = W + H n (the token-budget paper's Eq. (9)) of an iteration time or a latency."""
    x, y = sweep(load, latency_s, 3)
    slope = max((y[-1] - y[0]) / (x[-1] - x[0]), 1e-6 * y.max() / x.max())
    start = {"base_s": max(y.min() - slope * x.min(), 0.1 * y.min()), "per_sequence_s": slope}
    return _fit("linear", _linear, [start], {}, x, y)


def fit_singular(load: Any, latency_s: Any, beta: float | None = None) -> CurveFit:
    r"""f(n) = a n + b + d/(n_sat - n)^beta (the anarchy paper's Eq. (9)); beta free unless it is given.

    The pole is sought beyond the largest load. Two checks say whether the data place it: the profile of the fit against
    n_sat (`pole_interval`), and the fit without the last point.
    """
    x, y = sweep(load, latency_s, 5 if beta is None else 4)
    found = _fit_singular(x, y, beta)
    warnings, n_sat = [], found.values["n_sat"]
    low, high = pole_interval(found, x, y, beta)
    if not np.isfinite(high):
        warnings.append(f"the pole is not identified: any n_sat from {low:.4g} on fits within the points' scatter")
    if len(np.unique(x)) > (5 if beta is None else 4):
        without = _fit_singular(x[:-1], y[:-1], beta).values["n_sat"]
        if not 0.8 < without / n_sat < 1.25:
            warnings.append(f"the pole moves from {without:.4g} to {n_sat:.4g} when the last point is added")
    return replace(found, warnings=tuple(warnings))


def fit_closed_loop(clients: Any, rate_rps: Any) -> CurveFit:
    """Throughput of a closed loop, X(N) = (1 - B(N, Z/S))/S: one saturating stage of S seconds, Z elsewhere."""
    x, y = sweep(clients, rate_rps, 3)
    service = 0.98 / y.max()
    start = {"service_s": service, "think_s": max(x[0] / y[0] - service, service)}
    return _fit("closed loop", _closed_loop, [start], {}, x, y)


def curve(found: CurveFit, beta: float = 1.0) -> LatencyCurve:
    """The record of a singular fit."""
    v = found.values
    return LatencyCurve(v["a_s"], v["b_s"], v["d_s"], v["n_sat"], v.get("beta", beta))


def compare(*fits: CurveFit) -> list[dict[str, Any]]:
    """Laws of the same measurements, best first: AICc, difference from the best, Akaike weight, residual spread."""
    best = min(f.aicc for f in fits)
    weight = {f.law: np.exp(-0.5 * (f.aicc - best)) for f in fits}
    rows = [
        {
            "law": f.law,
            "parameters": len(f.values),
            "aicc": f.aicc,
            "delta": f.aicc - best,
            "weight": float(weight[f.law] / sum(weight.values())),
            "sigma": f.sigma,
            "runs_p": f.runs_p(),
        }
        for f in fits
    ]
    return sorted(rows, key=lambda row: row["aicc"])


def sweep(load: Any, value: Any, fewest: int) -> tuple[np.ndarray, np.ndarray]:
    """A load sweep as sorted float64 arrays; refuses what cannot be fitted."""
    x, y = np.asarray(load, np.float64).ravel(), np.asarray(value, np.float64).ravel()
    if x.shape != y.shape:
        raise InputError(f"load sweep: {x.size} loads and {y.size} values; as many of each are needed")
    if len(np.unique(x)) < fewest:
        raise InputError(f"load sweep: {len(np.unique(x))} distinct loads; this law needs at least {fewest}")
    bad = ~(np.isfinite(x) & np.isfinite(y) & (x > 0) & (y > 0))
    if bad.any():
        i = int(np.flatnonzero(bad)[0])
        raise InputError(f"load sweep: point {i + 1} is ({x[i]:g}, {y[i]:g}); both have to be positive numbers")
    order = np.argsort(x, kind="stable")
    return x[order], y[order]


def pole_interval(
    found: CurveFit, x: np.ndarray, y: np.ndarray, beta: float | None = None, level: float = 0.95
) -> tuple[float, float]:
    """Poles that fit about as well: profile likelihood with an F threshold; infinite where the profile stays flat."""
    free = max(len(x) - len(found.values), 1)
    limit = np.sum(found.residuals**2) * (1.0 + stats.f.ppf(level, 1, free) / free) + 1e-12
    rooms = np.geomspace(1e-3 * x.max(), FAR * x.max(), 40)
    starts = [{n: v for n, v in s.items() if n != "room"} for s in _singular_starts(x, y, beta)]
    best = np.full(len(rooms), np.inf)
    for start in starts:
        lanes = [start | {"d_s": y[-1] * room ** start.get("beta", beta)} for room in rooms]
        _, left = _solve_all(_singular, lanes, _fixed(x, beta, room=rooms), x, y)
        best = np.fmin(best, np.sum(left**2, axis=1))
    inside = np.flatnonzero(best <= limit)
    n_sat = found.values["n_sat"]
    if inside.size == 0:
        return n_sat, n_sat
    low = min(x.max() + rooms[inside[0]], n_sat)
    return float(low), float("inf") if inside[-1] == len(rooms) - 1 else float(max(x.max() + rooms[inside[-1]], n_sat))


def _linear(p: Params, n: Real) -> Real:
    return StepLaw(**p).iteration_s(n)


def _singular(p: Params, n: Real) -> Real:
    return singular_latency_s(n, LatencyCurve(p["a_s"], p["b_s"], p["d_s"], p["top"] + p["room"], p["beta"]))


def _closed_loop(p: Params, n: Real) -> Real:
    return closed_loop_rps(n, p["think_s"], p["service_s"])


def _fixed(x: np.ndarray, beta: float | None, **more: Real) -> dict[str, np.ndarray]:
    """What is not fitted: the largest load, and beta where it is given; one entry per lane or one for all."""
    held = {"top": x.max()} | ({} if beta is None else {"beta": beta}) | more
    lanes = max((np.size(v) for v in held.values()), default=1)
    return {name: np.broadcast_to(np.asarray(v, np.float64), (lanes,)) for name, v in held.items()}


def _singular_starts(x: np.ndarray, y: np.ndarray, beta: float | None) -> list[dict[str, float]]:
    starts = []
    for room in x.max() * np.array([0.003, 0.05, 0.5, 3.0]):
        for power in (0.5, 1.0, 2.0) if beta is None else (beta,):
            start = {"a_s": y[0] / x.max(), "b_s": y[0], "d_s": y[-1] * room**power, "room": room}
            starts.append(start if beta is not None else start | {"beta": power})
    return starts


def _fit_singular(x: np.ndarray, y: np.ndarray, beta: float | None) -> CurveFit:
    """The fit with `n_sat` in place of the distance from the largest load that was fitted."""
    found = _fit("singular", _singular, _singular_starts(x, y, beta), _fixed(x, beta), x, y)
    room = found.values["room"]
    n_sat = room + x.max()
    values = {("n_sat" if n == "room" else n): (n_sat if n == "room" else v) for n, v in found.values.items()}
    chain = np.diag([room / n_sat if n == "room" else 1.0 for n in found.values])  # d log n_sat = room/n_sat d log room
    return replace(found, values=values, log_covariance=chain @ found.log_covariance @ chain)


def _fit(law: str, of: Law, starts: list[dict[str, float]], fixed: Params, x: np.ndarray, y: np.ndarray) -> CurveFit:
    """The best of the local minima that the starts lead to."""
    names = list(starts[0])
    held = {n: np.broadcast_to(v, (len(starts),)) for n, v in fixed.items()}
    ends, left = _solve_all(of, starts, held, x, y)
    best = int(np.argmin(np.sum(left**2, axis=1)))
    jacobian = _slopes(of, tuple(names), ends[best], {n: v[best] for n, v in held.items()}, x)
    free = max(len(x) - len(names), 1)
    covariance = np.linalg.pinv(jacobian.T @ jacobian, hermitian=True) * np.sum(left[best] ** 2) / free
    return CurveFit(law, dict(zip(names, np.exp(ends[best]).tolist(), strict=True)), covariance, left[best])


@float64
def _solve_all(
    of: Law, starts: Sequence[dict[str, float]], fixed: Params, x: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of the fitted values, and residuals, one lane per start; a lane that failed has infinite residuals."""
    names = tuple(starts[0])
    first = np.log([[s[n] for n in names] for s in starts])
    held = {n: np.broadcast_to(v, (len(starts),)) for n, v in fixed.items()}
    # points without weight fill the sweep up: compiling takes seconds, and one program serves sweeps of many lengths
    points, spare = len(x), -len(x) % 16
    weight = np.pad(np.ones(points), (0, spare))
    x, y = np.pad(x, (0, spare), mode="edge"), np.pad(y, (0, spare), mode="edge")
    ends, left = map(np.asarray, _solve(of, names, first, held, x, y, weight))
    left = left[:, :points]
    return ends, np.where(np.isfinite(left), left, np.inf)


@float64
def _slopes(of: Law, names: tuple[str, ...], u: np.ndarray, fixed: Params, x: np.ndarray) -> np.ndarray:
    whole = np.pad(x, (0, -len(x) % 16), mode="edge")  # one program for sweeps of many lengths, as above
    return np.asarray(_slopes_of(of, names, u, fixed, whole))[: len(x)]


@partial(jax.jit, static_argnums=(0, 1))
def _slopes_of(of: Law, names: tuple[str, ...], u: Real, fixed: Params, x: Real) -> Real:
    return jax.jacfwd(lambda v: _log_law(of, names, v, fixed, x))(u)


@partial(jax.jit, static_argnums=(0, 1))
def _solve(
    of: Law, names: tuple[str, ...], first: Real, fixed: Params, x: Real, y: Real, weight: Real
) -> tuple[Real, Real]:
    def lane(u: Real, held: Params) -> tuple[Real, Real]:
        def residual(v: Real, _: None) -> Real:
            return weight * (jnp.log(y) - _log_law(of, names, v, held, x))

        solver: optx.LevenbergMarquardt[Any, Any, None] = optx.LevenbergMarquardt(rtol=1e-9, atol=1e-9)
        found: optx.Solution[Any, None] = optx.least_squares(residual, solver, u, max_steps=300, throw=False)
        return found.value, residual(found.value, None)

    return jax.vmap(lane)(first, fixed)


def _log_law(of: Law, names: tuple[str, ...], u: Real, fixed: Params, x: Real) -> Real:
    p = {**dict(zip(names, jnp.exp(jnp.clip(u, -80.0, 80.0)), strict=True)), **fixed}
    return jnp.log(jnp.maximum(of(p, x), 1e-300))
