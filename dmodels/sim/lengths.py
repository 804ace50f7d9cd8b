"""How long requests are: keys in, whole numbers of tokens out."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from dmodels.core.lengths import TotalsCdf
from dmodels.core.records import float64
from dmodels.core.workload import Workload

from .draws import sample


class Lengths(NamedTuple):
    """(n,) int64 tokens of each request; `cached_tokens` of the input need no prefill."""

    input_tokens: np.ndarray
    output_tokens: np.ndarray
    cached_tokens: np.ndarray


@float64
def draw(key: jax.Array, workload: Workload, count: int) -> Lengths:
    """`count` requests of a workload, independent. Support points that are not whole are rounded up or down at random,
    with the chances that keep their mean (and up to 1 below 1)."""
    key_point, key_round = jax.random.split(key)
    edges = np.cumsum(np.asarray(workload.weight_frac, np.float64))
    uniform = sample(jax.random.uniform, key_point, count)
    point = np.minimum(np.searchsorted(edges, uniform, side="right"), edges.size - 1)
    part = sample(jax.random.uniform, key_round, count)
    columns = (workload.input_tokens, workload.output_tokens, workload.cached_tokens)
    inputs, outputs, cached = (
        np.floor(np.broadcast_to(np.asarray(column), edges.shape)[point] + part).astype(np.int64) for column in columns
    )
    inputs = np.maximum(1, inputs)
    return Lengths(inputs, np.maximum(1, outputs), np.minimum(cached, inputs))


@float64
def draw_totals(key: jax.Array, cdf: TotalsCdf, count: int) -> Lengths:
    """`count` requests of a CDF of totals: the bucket by its mass, a whole number uniformly inside it, and the output
    share from its clipped normal; L_out = max(1, int(f L)) (arXiv:2604.09613, Appendix A, "Trace generation")."""
    key_bucket, key_inside, key_share = jax.random.split(key, 3)
    upper = np.asarray(cdf.upper_tokens)
    lower = np.concatenate([[0.0], upper[:-1]])
    uniform = sample(jax.random.uniform, key_bucket, count)
    bucket = np.minimum(np.searchsorted(np.asarray(cdf.cumulative_frac), uniform, side="right"), upper.size - 1)
    inside = sample(jax.random.uniform, key_inside, count)
    total = lower[bucket] + 1.0 + np.floor(inside * (upper - lower)[bucket])
    share = cdf.share_mean_frac + cdf.share_std_frac * sample(jax.random.normal, key_share, count)
    share = np.clip(share, cdf.share_low_frac, cdf.share_high_frac)
    output = np.maximum(1.0, np.floor(share * total + 1e-9))
    inputs = np.maximum(1.0, total - output)
    return Lengths(inputs.astype(np.int64), output.astype(np.int64), np.zeros(count, np.int64))
