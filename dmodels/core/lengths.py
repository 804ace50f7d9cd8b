"""A CDF of total tokens given by buckets, and its exact moments: sums over whole numbers, no sampling.

Papers publish lengths as "F(2048) = 0.80" and an output share. Inside a bucket (lo, hi] the total L is uniform on
the integers lo+1..hi; the share f of output is normal(mean, std) clipped to [low, high]; and L_out = max(1, int(f L)),
L_in = L - L_out (arXiv:2604.09613, Appendix A, "Trace generation").
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from .errors import InputError
from .records import Floats, Real, Record, quantity

#: Below this total the sum over output lengths is done term by term; above it Euler-Maclaurin is exact to 1e-9.
_DIRECT_TOKENS = 2048


class TotalsCdf(Record):
    """P(total tokens <= upper_tokens) = cumulative_frac, with the share of the total that is output.

    >>> cdf = TotalsCdf([512, 1024], [0.5, 1.0], share_mean_frac=0.1)
    >>> float(cdf.mean_tokens)
    512.5
    """

    upper_tokens: Real = quantity()  # (buckets,) increasing whole numbers; the first bucket starts at 1
    cumulative_frac: Real = quantity()  # (buckets,) nondecreasing, ends at 1
    share_mean_frac: Real = quantity()
    share_std_frac: Real = quantity(0.0)
    share_low_frac: Real = quantity(0.02)
    share_high_frac: Real = quantity(0.95)

    def __check_init__(self) -> None:
        upper, cumulative = self.upper_tokens, self.cumulative_frac
        if not (isinstance(upper, np.ndarray) and isinstance(cumulative, np.ndarray)):
            return  # traced: checked by whoever built it
        if upper.ndim != 1 or upper.shape != cumulative.shape or not upper.size:
            raise InputError(
                f"upper_tokens and cumulative_frac: shapes {upper.shape} and {cumulative.shape}; "
                "accepted: one CDF value per bucket edge"
            )
        edges = np.concatenate([[0.0], upper])
        if not (np.isfinite(upper).all() and (upper % 1 == 0).all() and (np.diff(edges) >= 1).all()):
            raise InputError(f"upper_tokens {upper.tolist()}: accepted are increasing whole numbers from 1")
        steps = np.diff(np.concatenate([[0.0], cumulative]))
        if not (np.isfinite(cumulative).all() and (steps >= 0).all() and abs(cumulative[-1] - 1.0) < 1e-9):
            raise InputError(f"cumulative_frac {cumulative.tolist()}: accepted are nondecreasing values that end at 1")
        low, mean, high = float(self.share_low_frac), float(self.share_mean_frac), float(self.share_high_frac)
        if not (0.0 <= low <= high <= 1.0 and 0.0 <= mean <= 1.0 and float(self.share_std_frac) >= 0.0):
            raise InputError(
                f"output share mean {mean}, std {float(self.share_std_frac)}, clipped to [{low}, {high}]: "
                "accepted are shares between 0 and 1 and a std of at least 0"
            )

    @property
    def mean_tokens(self) -> Real:
        """E[L], exact."""
        return partial_moments(self, jnp.inf)[1]


def partial_moments(cdf: TotalsCdf, threshold_tokens: Real) -> tuple[Real, Real, Real]:
    r"""(P(L <= B), E[L; L <= B], E[L^2; L <= B]) for thresholds of any shape; B counts whole tokens.

    In a bucket lo+1..hi each integer has probability p/(hi - lo), so with c = clip(floor(B), lo, hi)
    the sums are c - lo, (c(c+1) - lo(lo+1))/2 and (c(c+1)(2c+1) - lo(lo+1)(2lo+1))/6.

    >>> cdf = TotalsCdf([4, 8], [0.5, 1.0], share_mean_frac=0.1)
    >>> [float(x) for x in partial_moments(cdf, 6)]
    [0.75, 2.625, 11.375]
    """
    upper = jnp.asarray(cdf.upper_tokens)
    lower = jnp.concatenate([jnp.zeros_like(upper[..., :1]), upper[..., :-1]], -1)
    mass = jnp.diff(jnp.asarray(cdf.cumulative_frac), prepend=0.0) / (upper - lower)
    below = jnp.floor(jnp.asarray(threshold_tokens, upper.dtype))[..., None]
    shape = (1,) * (below.ndim - 1) + upper.shape
    lower, upper, mass = lower.reshape(shape), upper.reshape(shape), mass.reshape(shape)
    top = jnp.clip(below, lower, upper)

    def power_sum(x: jax.Array) -> jax.Array:
        return jnp.stack([x, x * (x + 1) / 2, x * (x + 1) * (2 * x + 1) / 6])

    zeroth, first, second = jnp.sum(mass[None] * (power_sum(top) - power_sum(jnp.broadcast_to(lower, top.shape))), -1)
    return zeroth, first, second


def probabilities(cdf: TotalsCdf) -> Floats:
    """P(L = 1), P(L = 2), ... up to the largest total."""
    widths = np.diff(cdf.upper_tokens, prepend=0.0)
    return np.repeat(np.diff(cdf.cumulative_frac, prepend=0.0) / widths, widths.astype(int))


def iterations_by_total(cdf: TotalsCdf, chunk_tokens: int = 512) -> Floats:
    """E[ceil(L_in / chunk) + L_out | L] for L = 1, 2, ..., exact: sums of tail probabilities over whole outputs.

    E[L_out | L] = 1 + sum_{j >= 2} P(f L >= j); E[ceil(L_in/C) | L] = sum_{m >= 0} P(L_out < L - m C).
    """
    total = np.arange(1.0, cdf.upper_tokens[-1] + 1)
    return _mean_chunks(cdf, total, float(chunk_tokens)) + _mean_output(cdf, total)


def partial_iterations(cdf: TotalsCdf, threshold_tokens: Real, chunk_tokens: int = 512) -> Floats:
    """A(B) = E[iters; L <= B] for thresholds of any shape; A(inf) is E[iters]."""
    summed = np.concatenate([[0.0], np.cumsum(probabilities(cdf) * iterations_by_total(cdf, chunk_tokens))])
    index = np.clip(np.floor(threshold_tokens), 0, len(summed) - 1).astype(int)
    below: Floats = summed[index]
    return below


def support(cdf: TotalsCdf, cells_count: int = 24, shares_count: int = 12) -> tuple[Floats, Floats, Floats]:
    """(input_tokens, output_tokens, weight_frac) of a joint support: each bucket cut into `cells_count` ranges of
    totals, each range into `shares_count` quantile cells of the output share, each cell at its conditional mean.

    Means are those of the CDF to the accuracy of a 96-point share quadrature (relative 1e-4); bucket edges are cell
    edges, so that a split at an edge is exact.
    """
    share = _share_points(cdf, 8 * shares_count)
    width = np.diff(cdf.upper_tokens, prepend=0.0).astype(int)
    chance = probabilities(cdf)
    total = np.arange(1, len(chance) + 1)
    cells = [np.linspace(0, n, min(cells_count, n) + 1).astype(int)[:-1] for n in width]
    starts = np.concatenate([first + cell for first, cell in zip(np.cumsum(width) - width, cells, strict=True)])
    weight = np.add.reduceat(chance, starts)
    mean_total = np.add.reduceat(chance * total, starts)
    kept = weight > 0
    inputs, outputs = [], []
    for group in share.reshape(shares_count, -1):
        output = np.mean([np.maximum(1.0, np.floor(f * total + 1e-9)) for f in group], 0)
        mean_output = np.add.reduceat(chance * output, starts)[kept] / weight[kept]
        outputs.append(mean_output)
        inputs.append(mean_total[kept] / weight[kept] - mean_output)
    repeated = np.repeat(weight[kept] / shares_count, shares_count)
    return np.stack(inputs, -1).ravel(), np.stack(outputs, -1).ravel(), repeated / repeated.sum()


def _share_points(cdf: TotalsCdf, count: int) -> Floats:
    """Means of the clipped normal share over `count` equally likely cells, increasing."""
    from scipy.special import ndtr, ndtri

    mean, std = float(cdf.share_mean_frac), float(cdf.share_std_frac)
    low, high = float(cdf.share_low_frac), float(cdf.share_high_frac)
    if std == 0.0:
        return np.full(count, np.clip(mean, low, high))
    cut = ndtri(np.linspace(0, 1, count + 1))
    a, b = (low - mean) / std, (high - mean) / std
    inner = np.clip(cut, a, b)

    middle = mean * np.diff(ndtr(inner)) - std * np.diff(_density(inner))
    atoms = low * np.diff(ndtr(np.minimum(cut, a))) + high * np.diff(ndtr(np.maximum(cut, b)))
    means: Floats = (middle + atoms) * count
    return means


def _density(z: Floats) -> Floats:
    """Of the standard normal distribution."""
    density: Floats = np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
    return density


def _exceeds(cdf: TotalsCdf, share: Floats) -> Floats:
    """P(output share >= share)."""
    from scipy.special import ndtr

    mean, std = float(cdf.share_mean_frac), float(cdf.share_std_frac)
    low, high = float(cdf.share_low_frac), float(cdf.share_high_frac)
    inside = ndtr((mean - share) / std) if std > 0 else (share <= np.clip(mean, low, high)).astype(float)
    tiny = 1e-12  # shares are quotients of whole numbers; an edge counts as reached
    return np.where(share <= low + tiny, 1.0, np.where(share > high + tiny, 0.0, inside))


def _mean_chunks(cdf: TotalsCdf, total: Floats, chunk: float) -> Floats:
    mean = np.zeros_like(total)
    for done in np.arange(0.0, total[-1], chunk):
        left = total - done  # a further chunk is needed where L_out < left, i.e. where f L < left
        mean += np.where(left >= 2, 1.0 - _exceeds(cdf, left / total), 0.0)
    return mean


def _mean_output(cdf: TotalsCdf, total: Floats) -> Floats:
    small = total[total <= _DIRECT_TOKENS]
    j = np.arange(2.0, _DIRECT_TOKENS + 1)[:, None]
    direct = 1.0 + np.sum(np.where(j <= small, _exceeds(cdf, j / small), 0.0), 0)
    large = total[total > _DIRECT_TOKENS]
    return np.concatenate([direct, _mean_output_large(cdf, large)]) if large.size else direct


def _mean_output_large(cdf: TotalsCdf, total: Floats) -> Floats:
    """1 + sum of P(f >= j/L) over j by Euler-Maclaurin: integral, half the ends, a twelfth of the slopes' change."""
    from scipy.special import ndtr

    mean, std = float(cdf.share_mean_frac), float(cdf.share_std_frac)
    low, high = float(cdf.share_low_frac), float(cdf.share_high_frac)
    if std == 0.0:
        whole: Floats = np.maximum(1.0, np.floor(np.clip(mean, low, high) * total + 1e-9))
        return whole
    certain = np.floor(low * total + 1e-9)  # outputs that even the smallest share reaches
    last = np.floor(high * total + 1e-9)
    first = np.maximum(certain, 1.0) + 1.0
    z1, z2 = (first / total - mean) / std, (last / total - mean) / std

    def tail_integral(z: Floats) -> Floats:  # antiderivative of P(Z >= z)
        area: Floats = z * ndtr(-z) - _density(z)
        return area

    step = 1.0 / (total * std)
    third = step**3 * ((z2**2 - 1) * _density(z2) - (z1**2 - 1) * _density(z1)) / 720
    inner = (
        (tail_integral(z2) - tail_integral(z1)) / step
        + (ndtr(-z1) + ndtr(-z2)) / 2
        + step * (_density(z1) - _density(z2)) / 12
        + third
    )
    return np.where(last >= first, np.maximum(certain, 1.0) + inner, np.maximum(certain, 1.0))
