r"""The price of anarchy of routing games as a certified interval.

Price of anarchy = cost of the worst pure equilibrium / least cost; price of stability = best equilibrium / least cost.
Numerator: equilibria that were found (each can be checked by `routing.gain_s`) and bounds on all of them. Denominator:
a placement that was found and its bound by duality, with branch and bound where k f(k) is not convex (a latency that
steps). So lower <= true <= upper always; the two are equal where the searches were complete. Where there is too much
to search, theorems, the potential, smoothness (`smooth`) and a linear programme (`program`) bound it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.core.flags import Flag
from dmodels.games.routing import NashRange, RoutingArrays, RoutingGame, least_potential_flow, optimum_flows, sums
from dmodels.games.routing.equilibria import blurred, range_flags, search
from dmodels.games.routing.kernels import social_cost

from .bounds import AFFINE_ATOMIC, singleton_price
from .enumeration import enumerated, enumerates
from .index import poa_index
from .program import UNKNOWNS, equilibrium_program, programme, solve_program, unknowns_count
from .smooth import coarse_ceiling_s, smooth_prices, smoothness

__all__ = [
    "PAPER_FORM",
    "PriceOfAnarchy",
    "coarse_ceiling_s",
    "equilibrium_program",
    "poa_index",
    "price_of_anarchy",
    "smoothness",
]

#: Why a ratio in the paper's form is no price of anarchy.
PAPER_FORM = (
    "in the form f - omega o the social cost can vanish or turn negative, and a ratio changes when a constant is "
    "added to every cost; the equilibria are the same, the ratio means nothing"
)


class PriceOfAnarchy(NamedTuple):
    """Interval(s), one per game. All costs in seconds summed over the requests, miss form unless asked otherwise."""

    lower: np.ndarray
    upper: np.ndarray
    certified: np.ndarray  # the interval holds the true value
    exact: np.ndarray  # lower == upper to 1e-9
    stability_lower: np.ndarray
    stability_upper: np.ndarray
    worst_s: np.ndarray
    best_s: np.ndarray
    optimum_s: np.ndarray
    optimum_bound_s: np.ndarray
    flags: np.ndarray
    boxes: np.ndarray  # boxes of load vectors that the search looked at, or profiles of the enumeration


def price_of_anarchy(
    game: RoutingGame, max_boxes: int = 200_000, paper_form: bool = False, *, backend: str = "auto"
) -> PriceOfAnarchy:
    r"""Price of anarchy and of stability of each game in a batch, over pure Nash equilibria.

    `max_boxes=1` only tightens bounds and runs best responses: fast (thousands of games a second) and rarely exact.
    With more, games whose search is cut short are bounded by the least potential and by the linear programme too (up
    to `UNKNOWNS` unknowns).
    OUT_OF_DOMAIN, and no certificate, where latencies differ by less than the rounding of a miss (1e-15 s beside 1 s).
    `backend`: "cpu" searches boxes of loads on the host; "device" looks at every profile of games of at most
    `enumeration.MOST_PROFILES` on JAX's devices (larger ones: InputError), the same answer, with `boxes` the profiles;
    "auto" does so for large batches of small games where there is an accelerator.
    With `paper_form=True` the costs are f - omega o, the flag OUT_OF_DOMAIN is up, and `PAPER_FORM` says why.

    Two workers f = n and f = 2, two requests (Pigou's pair): worst equilibrium 4, optimum 3.

    >>> from dmodels.models.latency import affine
    >>> p = price_of_anarchy(RoutingGame(affine([1.0, 0.0], [0.0, 2.0]), np.zeros((2, 2))))
    >>> round(float(p.lower), 6), round(float(p.upper), 6)
    (1.333333, 1.333333)
    """
    a = game.arrays()
    if enumerates(a, backend):
        nash, flows, bound, boxes = enumerated(a)
    else:
        nash, boxes = search(a, max_boxes)
        if max_boxes > 1:
            nash = _where_cut(a, nash)
        flows, bound = optimum_flows(a, backend="cpu")
    blur: np.ndarray = blurred(a).reshape(a.batch)
    flags: np.ndarray = range_flags(nash) | np.where(blur, int(Flag.OUT_OF_DOMAIN), 0).astype(np.int32)
    bound = bound.reshape(a.batch)
    found = np.minimum(sums(a, flows.reshape(*a.batch, *flows.shape[1:]))[0], nash.best_s)
    ceiling = nash.worst_ceiling_s
    cut = ceiling > nash.worst_s
    if cut.any():
        price = _theorem(a)
        if max_boxes > 1:
            price = _smooth(a, np.flatnonzero(cut), price)
        ceiling = np.where(cut, np.minimum(ceiling, np.maximum(nash.worst_s, price * found)), ceiling)
    costs = [nash.worst_s, ceiling, nash.best_floor_s, nash.best_s, found, bound]
    if paper_form:
        shift = np.asarray(game.omega) * np.broadcast_to(a.counts.sum(-1), a.size).reshape(a.batch)
        costs = [cost - shift for cost in costs]
        flags = flags | np.int32(Flag.OUT_OF_DOMAIN)
    worst, ceiling, floor, best, found, bound = costs
    overlap = np.asarray(game.overlap)
    if overlap.min() < 0 or overlap.max() > 1:
        flags = flags | np.int32(Flag.OUT_OF_DOMAIN)
    lower, upper = _ratio(worst, found), _ratio(ceiling, bound)
    slack = 1e-9 * np.abs(upper)
    certified = np.isfinite(lower) & np.isfinite(upper) & (lower <= upper + slack) & ~blur
    return PriceOfAnarchy(
        lower,
        np.maximum(upper, lower),
        certified,
        certified & (upper - lower <= slack),
        np.maximum(_ratio(floor, found), 1.0),
        _ratio(best, bound),
        worst,
        best,
        found,
        bound,
        flags,
        boxes,
    )


def _ratio(cost: np.ndarray, least: np.ndarray) -> np.ndarray:
    """cost / least; 1 where both are 0; NaN where the least is negative or infinite and there is nothing to compare."""
    positive = (least > 0) & np.isfinite(least)
    return np.where(positive, cost / np.where(positive, least, 1.0), np.where((least == 0) & (cost == 0), 1.0, np.nan))


def _where_cut(a: RoutingArrays, nash: NashRange) -> NashRange:
    """The costs of games whose search was cut short, with the best equilibrium that minimises the potential, and the
    floor and the ceiling of the linear programme; flows as they were."""
    best, worst, floor, ceiling = (cost.reshape(-1).copy() for cost in nash[:4])
    for b in np.flatnonzero((floor < best) | (ceiling > worst)):
        one = tuple(array[b % len(array)] for array in a[:3])
        found = least_potential_flow(*one)
        if found is not None:
            best[b] = min(best[b], social_cost(*one[:2], found))
        if unknowns_count(*one) <= UNKNOWNS:
            program = solve_program(programme(*one)).value
            floor[b] = np.clip(program["floor_s"], floor[b], best[b])
            ceiling[b] = np.clip(program["ceiling_s"], worst[b], ceiling[b])
    return nash._replace(
        best_s=best.reshape(a.batch),
        best_floor_s=np.minimum(floor, best).reshape(a.batch),
        worst_ceiling_s=ceiling.reshape(a.batch),
    )


def _smooth(a: RoutingArrays, cut: np.ndarray, price: np.ndarray) -> np.ndarray:
    """`price` (B), lowered to what the curves' smoothness gives in the games that `cut` numbers."""
    few = a._replace(
        f=a.f[cut % len(a.f)], cost=a.cost[cut % len(a.cost)], counts=a.counts[cut % len(a.counts)], batch=cut.shape
    )
    out = price.reshape(-1).copy()
    out[cut] = np.where((few.cost >= 0).all((-2, -1)), np.minimum(out[cut], smooth_prices(few)[1]), out[cut])
    return out.reshape(price.shape)


def _theorem(a: RoutingArrays) -> np.ndarray:
    """What theory allows a worst equilibrium to cost, in multiples of the optimum; inf where no theorem applies.

    5/2 for affine latencies with any overlaps in [0, 1] (a miss is a private constant resource); 1/(1 - beta) without
    cache terms.
    """
    with np.errstate(invalid="ignore"):
        rises = np.diff(a.f, axis=-1)
        straight = (np.abs(np.diff(rises, axis=-1)) <= 1e-12 * np.abs(a.f[..., 2:])).all((-2, -1))
    affine = straight & np.isfinite(a.f).all((-2, -1)) & (rises >= 0).all((-2, -1))
    if a.f.shape[-1] > 1:  # a line with a negative intercept is not an affine latency
        affine &= (2.0 * a.f[..., 0] - a.f[..., 1] >= -1e-12 * a.f[..., 1]).all(-1)
    limit = np.broadcast_to(np.where(affine, AFFINE_ATOMIC, np.inf), a.size)
    limit = np.where(np.broadcast_to((a.cost >= 0).all((-2, -1)), a.size), limit, np.inf)
    plain = np.broadcast_to((a.cost == 0).all((-2, -1)), a.size)
    if plain.any():
        limit = np.where(plain, np.minimum(limit, np.broadcast_to(singleton_price(a.f), a.size)), limit)
    return limit.reshape(a.batch)
