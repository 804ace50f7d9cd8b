r"""The routing game: requests choose workers, and pay for company and for cache misses.

Request i on worker j pays $C_i = f_j(n_j) + \omega(1 - o_{ij})$, with $n_j$ the requests on j, $f_j$ its latency curve,
$o_{ij}$ the share of i's prefix that j has cached. This is the *miss form* of Definition 3, Eq. (7) of "The Price of
Anarchy in Disaggregated Inference". The paper writes $f_j(n_j) - \omega o_{ij}$, which is $\omega$ less for every
request: the equilibria are the same, but the sum may vanish or turn negative, and a ratio of such sums means nothing.
So costs and ratios here are in the miss form, and `paper_cost_s` gives the other.

The game has an exact potential for every $\omega$ and all overlaps (the paper says it has none in general):
$\Phi = \sum_j \sum_{k \le n_j} f_j(k) + \sum_i \omega(1 - o_{i\sigma_i})$, so pure equilibria always exist.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.records import HOST, Real, Record, quantity
from dmodels.models.latency import as_curve, latency_table


class RoutingGame(Record):
    """Workers' latency curves, cached prefixes, and what a miss costs. Leading axes are a batch of games.

    curve    a LatencyCurve or TableCurve with worker axis (..., m), one curve for all, or a table f(1..K) (..., m, K)
    overlap  (..., n, m): share of each request's prefix that each worker holds, usually in [0, 1]; or (..., G, m), one
             row per group of requests with the same prefix
    omega    seconds that a complete miss costs
    counts   (..., G): requests in each group; 1 where every row is a request
    """

    curve: Any = eqx.field(converter=as_curve)
    overlap: Real = quantity()
    omega: Real = quantity(0.0)
    counts: Real = quantity(1.0)

    def __check_init__(self) -> None:
        overlap, omega, counts = self.overlap, self.omega, self.counts
        if not all(isinstance(leaf, HOST) for leaf in (overlap, omega, counts)):
            return
        if overlap.ndim < 2 or 0 in overlap.shape:
            raise InputError(f"overlap has shape {overlap.shape}; accepted: (..., requests, workers)")
        if not np.isfinite(overlap).all():
            raise InputError("overlap holds NaN or infinity; accepted are finite numbers, usually in [0, 1]")
        if not (np.isfinite(omega) & (omega >= 0)).all():
            raise InputError(f"omega = {omega}; accepted are finite numbers from 0")
        if not (np.isfinite(counts) & (counts >= 0) & (counts == np.floor(counts))).all():
            raise InputError(f"counts = {counts}; accepted are whole numbers from 0")
        groups = overlap.shape[-2]
        if counts.ndim and counts.shape[-1] not in (1, groups):
            raise InputError(f"counts for {counts.shape[-1]} groups, overlap for {groups}; accepted: as many")

    @property
    def workers_count(self) -> int:
        """m, the number of workers."""
        out: int = int(self.overlap.shape[-1])
        return out

    @property
    def groups_count(self) -> int:
        """Rows of the overlap: requests, or prefix groups."""
        out: int = int(self.overlap.shape[-2])
        return out

    def arrays(self) -> RoutingArrays:
        """The game as plain arrays on the host, with the batch in one leading axis."""
        overlap, omega, counts = (np.asarray(a, np.float64) for a in (self.overlap, self.omega, self.counts))
        counts = np.broadcast_to(counts, np.broadcast_shapes(counts.shape, (self.groups_count,)))
        requests = int(counts.sum(-1).max())
        if requests < 1:
            raise InputError("counts are all 0; accepted: at least one request")
        f = latency_table(self.curve, requests)
        if f.ndim == 1:
            f = np.broadcast_to(f, (self.workers_count, requests))
        if f.shape[-2] not in (1, self.workers_count):
            raise InputError(f"curve for {f.shape[-2]} workers, overlap for {self.workers_count}; accepted: as many")
        f = np.broadcast_to(f, (*f.shape[:-2], self.workers_count, requests))
        if np.isnan(f).any() or (f < 0).any():
            raise InputError("curve gives NaN or a negative latency; accepted are numbers from 0 (inf past a pole)")
        if (np.isinf(f[..., :-1]) & np.isfinite(f[..., 1:])).any():
            raise InputError("curve gives a finite latency after an infinite one; accepted is inf from a pole on")
        cost = omega[..., None, None] * (1.0 - overlap)
        batch = np.broadcast_shapes(f.shape[:-2], cost.shape[:-2], counts.shape[:-1])
        return RoutingArrays(_flat(f, 2, batch), _flat(cost, 2, batch), _flat(counts, 1, batch).astype(np.int64), batch)


class RoutingArrays(NamedTuple):
    """f (B, m, K), private cost (B, G, m) in the miss form, group sizes (B, G); B is 1 where all games share it."""

    f: np.ndarray
    cost: np.ndarray
    counts: np.ndarray
    batch: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of games."""
        return int(np.prod(self.batch, dtype=int))

    def shaped(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """f, cost and counts with the batch axes in front, or without any where all games share them."""
        f, cost, counts = (a.reshape(self.batch + a.shape[1:]) if len(a) > 1 else a[0] for a in self[:3])
        return f, cost, counts


class Profile(NamedTuple):
    """Who sits where: flow (..., G, m) of each group, worker of each request (..., n), and what it costs."""

    flow: np.ndarray
    assignment: np.ndarray
    cost_s: np.ndarray
    potential_s: np.ndarray


def _flat(a: np.ndarray, core: int, batch: tuple[int, ...]) -> np.ndarray:
    """One leading batch axis; of length 1 where the array does not vary over the batch."""
    lead = a.shape[: a.ndim - core]
    shape = a.shape[a.ndim - core :]
    full = a if all(size == 1 for size in lead) else np.broadcast_to(a, (*batch, *shape))
    out = np.ascontiguousarray(full.reshape(-1, *shape))
    return out if out.flags.writeable else out.copy()  # one kind of array is one compilation


def flow(game: RoutingGame, assignment: Real) -> np.ndarray:
    """Flow (..., G, m) of a profile: worker numbers (..., n), requests counted group by group, or a flow already.

    `InputError` where numbers read both ways: as many requests as workers, each request a group, rows of one 1.
    """
    a = game.arrays()
    given = np.asarray(assignment)
    groups, workers = game.groups_count, game.workers_count
    counts = a.shaped()[2]
    n = counts.sum(-1)
    batch, is_flow = _together(given.shape[:-2], a.batch), given.shape[-2:] == (groups, workers)
    if batch is not None and is_flow and (given.sum(-1) == counts).all() and (given >= 0).all():
        either = (counts == 1).all() and groups == workers
        if either and given.ndim >= len(a.batch) + 2:
            raise InputError(
                f"assignment reads as a flow (requests, workers) and as {groups} profiles; accepted are worker numbers "
                "of shape (requests,), which `worker_of_each(flow)` makes, or profiles in batches of another size"
            )
        if not either:
            return np.broadcast_to(given, (*batch, groups, workers)).astype(np.int64)
    if given.ndim < 1 or given.shape[-1] != n.max() or (n != n.max()).any():
        raise InputError(f"assignment has shape {given.shape}; accepted: a worker for each of {n.max()} requests")
    if (given != np.floor(given)).any() or given.min() < 0 or given.max() >= workers:
        raise InputError(f"assignment holds {given.min()}..{given.max()}; accepted are workers 0..{workers - 1}")
    batch = _together(given.shape[:-1], a.batch)
    if batch is None:
        raise InputError(
            f"assignment has shape {given.shape}; accepted for a batch of shape {a.batch}: a worker for each of "
            f"{n.max()} requests, once or once for each game"
        )
    one_hot = np.broadcast_to(given, (*batch, n.max()))[..., None] == np.arange(workers)
    ends = np.cumsum(np.broadcast_to(counts, (*batch, groups)), -1)
    total = np.concatenate([np.zeros((*batch, 1, workers), np.int64), np.cumsum(one_hot, -2)], -2)
    ends = np.concatenate([np.zeros_like(ends[..., :1]), ends], -1)
    return np.diff(np.take_along_axis(total, ends[..., None], -2), axis=-2)


def _together(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The batch of all of them; None where they do not go together."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None


def worker_of_each(flows: np.ndarray) -> np.ndarray:
    """Worker numbers (n,) of one flow (G, m), requests counted group by group."""
    workers = np.tile(np.arange(flows.shape[-1]), flows.shape[-2])
    return np.repeat(workers, flows.reshape(-1))


def sums(a: RoutingArrays, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(social cost, potential) of flows (..., G, m), miss form."""
    f, cost, _ = a.shaped()
    loads = x.sum(-2)
    last = np.maximum(loads, 1)[..., None] - 1
    shape = (*loads.shape, f.shape[-1])
    at, upto = (np.take_along_axis(np.broadcast_to(v, shape), last, -1)[..., 0] for v in (f, np.cumsum(f, -1)))
    private = (x * cost).sum((-2, -1))
    paid = loads * np.where(loads > 0, at, 0.0)
    return paid.sum(-1) + private, np.where(loads > 0, upto, 0.0).sum(-1) + private


def social_cost_s(game: RoutingGame, assignment: Real) -> np.ndarray:
    """Sum of all requests' costs, miss form. Two requests on one worker with f(n) = n and omega = 0: 4."""
    return sums(game.arrays(), flow(game, assignment))[0]


def paper_cost_s(game: RoutingGame, assignment: Real) -> np.ndarray:
    """Sum of f_j(n_j) - omega o_ij, the paper's form: omega a request less than `social_cost_s`; may be negative."""
    requests = game.arrays().shaped()[2].sum(-1)
    paper: np.ndarray = social_cost_s(game, assignment) - np.asarray(game.omega) * requests
    return paper


def potential(game: RoutingGame, assignment: Real) -> np.ndarray:
    """The exact potential: one request's move changes it by exactly what the move changes in that request's cost.

    Two requests on one worker with f(n) = n and omega = 0: 1 + 2 = 3.

    >>> float(potential(RoutingGame([[1.0, 2.0], [1.0, 2.0]], np.zeros((2, 2))), [0, 0]))
    3.0
    """
    return sums(game.arrays(), flow(game, assignment))[1]


def gain_s(game: RoutingGame, assignment: Real) -> np.ndarray:
    """The most that one request saves by moving alone; not above 0 (or rounding) exactly at pure Nash equilibria."""
    return flow_gain_s(game.arrays(), flow(game, assignment))


def flow_gain_s(a: RoutingArrays, x: np.ndarray) -> np.ndarray:
    """`gain_s` of flows (..., G, m)."""
    f, cost, _ = a.shaped()
    loads, m = x.sum(-2), x.shape[-1]
    f = np.broadcast_to(f, (*loads.shape, f.shape[-1]))
    at = np.take_along_axis(f, np.maximum(loads, 1)[..., None] - 1, -1)[..., 0]
    full = np.minimum(loads, f.shape[-1] - 1)  # a worker that has every request gets no newcomer
    there = np.take_along_axis(f, full[..., None], -1)[..., 0][..., None, :] + cost
    apart = np.where(np.eye(m, dtype=bool), np.inf, np.broadcast_to(there[..., None, :], (*there.shape, m)))
    least = apart.min(-1)
    movable = (x > 0) & np.isfinite(least)
    move = at[..., None, :] + cost - np.where(movable, least, 0.0)
    gain: np.ndarray = np.where(movable, move, -np.inf).max((-2, -1))
    return gain


def overload_flag(cost_s: np.ndarray) -> np.ndarray:
    """OVERLOAD where a cost is infinite: more requests than the curves have room for."""
    return np.where(np.isfinite(cost_s), 0, int(Flag.OVERLOAD)).astype(np.int32)
