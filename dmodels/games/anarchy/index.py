r"""The paper's estimator PoA-hat, Eq. (12) of section 6.4, over windows of requests; and two that say what it measures.

$$\widehat{PoA} = \frac{\sum_{q \in W} L_q}{OPT(W)},\qquad
c_{ij} = a\,n_j + b + \frac{d}{(C_j - n_j)^\beta} - w_c\,o_{ij},$$

OPT(W) = least sum of c over assignments with at most C_j requests on worker j; $n_j$ = requests of the window on j,
kept fixed ("frozen"). The paper replicates each worker's column C_j times and runs the Hungarian on the square matrix;
that is a transportation problem with m columns, solved here at the same value.

What it is: with costs of the model in the numerator it is exactly 1 at every Wardrop equilibrium whatever the true
price of anarchy, so it measures regret; with measured latencies it is, below saturation, mean latency divided by about
(b + a n): it rises with the model's error. It is *no* upper bound on the price of anarchy (Pigou's pair: 1 < 4/3).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dmodels.core.compiled import kernel
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.records import Floats, Real, Record, quantity
from dmodels.solvers import congestion_transport, transport
from dmodels.solvers.device import takes_device

from .index_device import WindowSums, proved_again, window_sums

#: Distinct overlap rows up to which requests are grouped before they are assigned.
_MOST_GROUPS = 64


class IndexCost(Record):
    """The cost model of section 6.4; the defaults are the paper's, which it calls uncalibrated."""

    a_s: Real = quantity(0.005)
    b_s: Real = quantity(0.020)
    d_s: Real = quantity(0.010)
    beta: Real = quantity(2.0)
    capacity: Real = quantity(64.0)
    cache_s: Real = quantity(0.015)


class PoaIndex(NamedTuple):
    """One entry per window.

    poa_hat       observed / optimum (Eq. (12)); with `load_aware`, the optimum moves the loads as well
    observed_s    sum of measured latencies
    model_s       what the cost model says of the observed assignment
    optimum_s     OPT(W)
    loads         requests on each worker (..., m)
    misfit        observed / model: how far the cost model is from the measurements (prefill queue and constant)
    routing       model / optimum: what a different assignment would save under the cost model
    flags         OUT_OF_DOMAIN: a worker holds C_j or more (the formula is past its pole); INFEASIBLE: more requests
                  than places, so that the Hungarian leaves some unassigned and the ratio compares different sets
    """

    poa_hat: np.ndarray
    observed_s: np.ndarray
    model_s: np.ndarray
    optimum_s: np.ndarray
    loads: np.ndarray
    misfit: np.ndarray
    routing: np.ndarray
    flags: np.ndarray


def poa_index(
    latency_s: Real,
    worker: Real,
    overlap: Real,
    cost: IndexCost | None = None,
    load_aware: bool = False,
    *,
    backend: str = "auto",
) -> PoaIndex:
    r"""PoA-hat of windows of requests: `latency_s` and `worker` (..., n), `overlap` (..., n, m) with m workers.

    `load_aware=True` replaces the frozen loads by the true optimum of the same cost model (slots k with costs
    g_j(k) - g_j(k-1), g = k f): with costs of the model in the numerator that is a real efficiency ratio, and `routing`
    is it; the measured numerator still carries the misfit. `calibrated_cost` fits a and b, which removes the misfit on
    average and leaves the regret.

    `backend` as in `solvers.transport`: on a device, windows that are not proved there are computed again on the host.
    A `cost` with more axes than the workers' stays on the host.

    Bias: frozen and uncalibrated, up by the misfit (7 to 19 in the paper's plateau) and down by up to the true price of
    anarchy; calibrated, only the latter; load-aware and calibrated, none but the fit's error.

    >>> both = poa_index([0.4, 0.4], [0, 0], np.zeros((2, 2)), IndexCost(d_s=0.0))
    >>> round(float(both.poa_hat), 6)  # 0.8 s over two places at b = 0.02 s on the idle worker
    20.0
    """
    cost = IndexCost() if cost is None else cost
    latency, overlap = np.asarray(latency_s, np.float64), np.asarray(overlap, np.float64)
    at = np.asarray(worker)
    if overlap.ndim < 2 or latency.ndim < 1 or latency.shape[-1] != overlap.shape[-2] or at.shape != latency.shape:
        raise InputError(
            f"latency_s {latency.shape}, worker {at.shape}, overlap {overlap.shape}; "
            "accepted are (..., n), (..., n) and (..., n, m)"
        )
    n, m = overlap.shape[-2:]
    if at.size and (at.min() < 0 or at.max() >= m or (at != np.floor(at)).any()):
        raise InputError(f"worker holds {at.min()}..{at.max()}; accepted are whole numbers 0..{m - 1}")
    at = at.astype(np.int64)
    curve = curve_of(cost, m)
    if takes_device(backend, overlap.shape[:-2]) and curve is not None and overlap.shape[:-1] == at.shape:
        sums = _device_sums(latency, at, overlap, cost, load_aware, curve)
    else:
        sums = host_sums(latency, at, overlap, cost, load_aware)
    return index_of_sums(sums, np.isfinite(latency).all(-1), cost, n)


def curve_of(cost: IndexCost, workers: int) -> Floats | None:
    """a, b, d, beta and capacity of each worker, (5, m); None where the cost has axes of its own beyond these."""
    leaves = (cost.a_s, cost.b_s, cost.d_s, cost.beta, cost.capacity)
    if np.ndim(cost.cache_s) or any(np.shape(leaf) not in ((), (1,), (workers,)) for leaf in leaves):
        return None
    return np.stack([np.broadcast_to(np.asarray(leaf, np.float64), (workers,)) for leaf in leaves])


def index_of_sums(sums: WindowSums, finite: Any, cost: IndexCost, n: int) -> PoaIndex:
    """Ratios and flags of windows of n requests; `finite`: whether all their latencies are."""
    loads, observed, model, least, _ = sums
    capacity = np.broadcast_to(np.asarray(cost.capacity), loads.shape)
    flags = np.where((capacity <= loads).any(-1), np.int32(Flag.OUT_OF_DOMAIN), np.int32(0))
    flags |= np.where(capacity.sum(-1) < n, np.int32(Flag.INFEASIBLE), np.int32(0))
    base = _base(loads, cost)
    flags |= np.where(np.isfinite(base).all(-1) & finite, 0, Flag.NONFINITE).astype(np.int32)
    good = np.isfinite(least) & (least > 0)
    safe = np.where(good, least, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        hat, routing = (np.where(good, top / safe, np.nan) for top in (observed, model))
        misfit = observed / model
    flags |= np.where(np.isfinite(hat), 0, Flag.NONFINITE).astype(np.int32)
    return PoaIndex(hat, observed, model, least, loads, misfit, routing, flags)


def host_sums(
    latency: np.ndarray, at: np.ndarray, overlap: np.ndarray, cost: IndexCost, load_aware: bool
) -> WindowSums:
    """What the index is made of, by the compiled loops."""
    n, m = overlap.shape[-2:]
    loads = _loads(at.reshape(-1, n), m).reshape(*at.shape[:-1], m)
    capacity = np.broadcast_to(np.asarray(cost.capacity), loads.shape)
    base = _base(loads, cost)
    hits = np.take_along_axis(overlap, at[..., None], -1).sum((-2, -1))
    observed, model = latency.sum(-1), _total(loads, base) - cost.cache_s * hits
    least = _load_aware(overlap, cost, capacity) if load_aware else _frozen(base, overlap, cost, capacity)
    return WindowSums(loads, observed, model, least, np.ones(least.shape, bool))


def _device_sums(
    latency: np.ndarray, at: np.ndarray, overlap: np.ndarray, cost: IndexCost, load_aware: bool, curve: Floats
) -> WindowSums:
    batch, (n, m) = overlap.shape[:-2], overlap.shape[-2:]
    if 0 in overlap.shape:
        return host_sums(latency, at, overlap, cost, load_aware)
    late, where, held = latency.reshape(-1, n), at.reshape(-1, n), overlap.reshape(-1, n, m)
    found = window_sums(late, where, held, curve, cost.cache_s, load_aware)
    sums = proved_again(found, lambda rest: host_sums(late[rest], where[rest], held[rest], cost, load_aware))
    return WindowSums(*(a.reshape((*batch, *a.shape[1:])) for a in sums))


def _base(loads: np.ndarray, cost: IndexCost) -> np.ndarray:
    """f_j at the windows' loads."""
    room = np.asarray(cost.capacity) - loads
    with np.errstate(divide="ignore", invalid="ignore"):
        base: np.ndarray = cost.a_s * loads + cost.b_s + np.where(cost.d_s == 0, 0.0, cost.d_s / room**cost.beta)
    return base


def _total(loads: np.ndarray, base: np.ndarray) -> np.ndarray:
    """Sum of loads x base, where a worker without requests costs nothing even past its pole."""
    total: np.ndarray = np.where(loads > 0, loads * np.where(loads > 0, base, 0.0), 0.0).sum(-1)
    return total


@kernel(tiered=True)
def _loads(at: np.ndarray, workers: int) -> np.ndarray:
    """Requests of each window on each worker."""
    out = np.zeros((at.shape[0], workers))
    for b in range(at.shape[0]):
        for i in range(at.shape[1]):
            out[b, at[b, i]] += 1.0
    return out


@kernel(tiered=True)
def _groups(rows: np.ndarray, most: int) -> tuple[int, np.ndarray, np.ndarray]:
    """(kinds, kind of each row): equal rows are one kind; -1 as soon as there are more than `most`."""
    kind, first, kinds = np.empty(len(rows), np.int64), np.empty(most, np.int64), 0
    for i in range(len(rows)):
        found = -1
        for k in range(kinds):
            other = rows[first[k]]
            same = True
            for j in range(rows.shape[1]):
                if rows[i, j] != other[j]:
                    same = False
                    break
            if same:
                found = k
                break
        if found < 0:
            if kinds == most:
                return -1, first, kind
            first[kinds] = i
            found = kinds
            kinds += 1
        kind[i] = found
    return kinds, first, kind


def _frozen(base: np.ndarray, overlap: np.ndarray, cost: IndexCost, capacity: np.ndarray) -> np.ndarray:
    """OPT(W): least sum of base_j - w_c o_ij with at most C_j requests on worker j.

    With more requests than places the rectangular Hungarian assigns as many as there are places; a column without cost
    takes the rest. The base is shared by all requests on a worker, so requests with one overlap row form a group.
    """
    n, m = overlap.shape[-2:]
    spare = n - capacity.sum(-1)
    blocked = ~np.isfinite(base)
    base = np.where(blocked, 0.0, base)
    rows = np.ascontiguousarray(overlap.reshape(-1, m))
    kinds, first, kind = _groups(rows, _MOST_GROUPS)
    if 0 < kinds < n:
        kind = np.broadcast_to(kind.reshape(overlap.shape[:-1]), (*base.shape[:-1], n))
        supply = _loads(kind.reshape(-1, n), kinds).reshape(*kind.shape[:-1], kinds)
        matrix = base[..., None, :] - cost.cache_s * rows[first[:kinds]]
    else:
        supply, matrix = None, base[..., None, :] - cost.cache_s * overlap
    if (spare > 0).any():
        matrix = np.concatenate([matrix, np.zeros((*matrix.shape[:-1], 1))], -1)
        capacity = np.concatenate([capacity, np.maximum(spare, 0.0)[..., None]], -1)
    solution = transport(matrix, capacity, supply, backend="cpu")
    return np.where(blocked.any(-1), np.nan, np.asarray(solution.value.cost))


def _load_aware(overlap: np.ndarray, cost: IndexCost, capacity: np.ndarray) -> np.ndarray:
    """Least sum of k f_j(k) over workers minus the caches' share, with the loads free to move below the pole."""
    k = np.arange(0.0, overlap.shape[-2] + 1.0)
    room = capacity[..., None] - k
    a, b, d, beta = (np.asarray(v)[..., None] for v in (cost.a_s, cost.b_s, cost.d_s, cost.beta))
    g = k * (a * k + b + d / np.where(room > 0, room, 1.0) ** beta)
    step = np.where(room[..., 1:] > 0, np.diff(g, axis=-1), np.inf)
    best = congestion_transport(-cost.cache_s * overlap, step, backend="cpu")
    return np.where(np.asarray(best.flags) == 0, np.asarray(best.value.cost), np.nan)


def calibrated_cost(latency_s: Real, worker: Real, overlap: Real, capacity: Real = 64.0) -> IndexCost:
    """a, b and the cache weight fitted to measured windows by least squares with all three at least 0 (d = 0).

    latency = a n_j + b - w o_ij over all requests of all windows. Removes the misfit on average; what the fit cannot
    see (queueing before the worker) still counts as latency of the worker.
    """
    from scipy.optimize import nnls

    latency, at, overlap = np.asarray(latency_s, np.float64), np.asarray(worker, np.int64), np.asarray(overlap, float)
    loads = np.stack([(at == j).sum(-1) for j in range(overlap.shape[-1])], -1)
    load = np.take_along_axis(loads, at, -1).reshape(-1)
    miss = 1.0 - np.take_along_axis(overlap, at[..., None], -1).reshape(-1)
    design = np.stack([load, np.ones(load.size), miss], 1)
    (a, b, w), _ = nnls(design, latency.reshape(-1))
    return IndexCost(a, b + w, 0.0, 2.0, capacity, w)  # a n + b + w (1 - o) = a n + (b + w) - w o
