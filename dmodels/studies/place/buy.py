"""How much memory to buy for a target hit rate, from which tier, and after how long it has paid for itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from dmodels.core.answers import Answer

from .cost import State, Tier, at_sizes

_GRID = 48  # sizes tried per tier in a mix, and again around the best


@dataclass(frozen=True)
class Purchase(Answer):
    """Memory to add, and what it brings."""

    name: str
    added_gib: dict[str, float]  # by tier
    usd: float
    hit_frac: float
    access_s: float
    first_token_s: float
    saved_usd_per_hour: float  # GPU time that the hits spare, at the trace's rate and the GPU's price
    payback_h: float  # inf where nothing is saved


def needed_blocks(state: State, target: float) -> float:
    """The least total size of the limited tiers at which the share `target` of all accesses hits; inf: none does."""
    hits = int(np.ceil(target * state.accesses - 1e-9))
    if hits == 0:
        return 0.0
    return float(state.sorted_distances[hits - 1]) if hits <= len(state.sorted_distances) else np.inf


def purchases(state: State, tiers: Sequence[Tier], weights: np.ndarray, target: float, saved: float) -> list[Purchase]:
    """Each tier of limited size grown alone until the target is met, cheapest first.

    saved  US dollars per hour that one second of prefill less per request spares
    """
    missing = max(needed_blocks(state, target) - state.blocks[state.limited].sum(), 0.0)
    rows = []
    for i, tier in enumerate(tiers):
        if state.limited[i]:
            added = np.zeros(len(tiers))
            added[i] = missing
            rows.append(_purchase(f"{tier.name} alone", state, tiers, weights, added, saved))
    return sorted(rows, key=lambda row: row.usd)


def cheapest(
    state: State, tiers: Sequence[Tier], weights: np.ndarray, target: float, first_token_s: float, saved: float
) -> tuple[Purchase | None, str]:
    r"""(the cheapest addition, over any tiers, that meets hit rate and latency; why there is none, or "").

    With the sums $S_k$ of the first k sizes and the hit curve H, loading costs $\sum_k \alpha_k (H(S_k) - H(S_{k-1}))$
    per access, so against having all $S_L$ in the last limited tier, the others save $\sum_{k<L} (\alpha_{k+1} -
    \alpha_k) H(S_k)$. For each total and each size of the tiers before, the size of the tier before the last follows
    from the saving that is still missing. Totals and the sizes before are tried on 48 points, refined three times.
    Without a bound on latency the cheapest tier takes all, exactly.
    """
    limited = np.flatnonzero(state.limited)
    have, usd = state.blocks[limited], np.array([t.usd_per_gib for t in tiers])[limited] * weights[limited] / 2**30
    least = max(needed_blocks(state, target), have.sum())
    most = max(least, state.distinct + have[1:].sum())
    last = np.zeros(len(tiers))
    last[limited[-1]] = 1.0

    def base_s(totals):  # everything in the last limited tier
        others = np.where(state.limited, 0.0, state.blocks)
        return at_sizes(state, totals[:, None] * last[None, :] + others[None, :]).first_token_s

    if np.isinf(first_token_s):
        added = np.zeros(len(have))
        added[np.argmin(usd)] = least - have.sum()
        return _whole(state, tiers, weights, limited, added, saved), ""
    quantiles = state.sorted_distances[:: max(len(state.sorted_distances) // _GRID, 1)]
    axes = [np.unique(np.r_[c, quantiles, state.distinct]) for c in have[:-2]]
    axes.append(np.unique(np.r_[np.round(np.linspace(least, most, _GRID)), np.clip(quantiles, least, most)]))
    best, price = None, np.inf
    for _ in range(4):
        points = np.array(list(product(*axes)))
        at, where = np.unique(points[:, -1], return_inverse=True)
        sums = _sums(state, limited, have, points, base_s(at)[where] - first_token_s)
        with np.errstate(invalid="ignore"):  # inf - inf, where nothing saves enough
            added = np.diff(sums, axis=1, prepend=0.0) - have[None, :]
        good = np.isfinite(sums).all(axis=1) & (added >= 0).all(axis=1)
        cost = np.where(good, np.where(good[:, None], added, 0.0) @ usd, np.inf)
        k = int(np.argmin(cost))
        if cost[k] < price:
            best, price, centre = added[k], cost[k], points[k]
        if best is None:
            break
        axes = [_around(axis, x) for axis, x in zip(axes, centre, strict=True)]
    if best is None:
        everything = np.where(state.limited, 0.0, state.blocks)
        everything[limited[0]] = most
        fastest = float(at_sizes(state, np.maximum(everything, state.blocks)[None, :]).first_token_s[0])
        return None, (
            f"no memory brings the mean time to the first token to {first_token_s:.4g} s: with every block in "
            f"{tiers[limited[0]].name} it is {fastest:.4g} s, for first uses are computed anyway; the smallest change "
            f'is target.first_token = "{np.ceil(fastest * 1e6) / 1e3:g} ms"'
        )
    return _whole(state, tiers, weights, limited, best, saved), ""


def _sums(state: State, limited: np.ndarray, have: np.ndarray, points: np.ndarray, late_s: np.ndarray) -> np.ndarray:
    """Sums of the first k sizes (points, tiers): given for all but the tier before the last, which gets the least that
    saves what is missing, `late_s` (points,); nan where nothing does."""
    sums = np.zeros((len(points), len(have)))
    missing = late_s * state.requests / state.accesses
    steps = np.diff(state.read_s[limited])
    for k in range(len(have) - 2):
        sums[:, k] = np.maximum(points[:, k], (sums[:, k - 1] if k else 0.0) + have[k])
        hits = np.searchsorted(state.sorted_distances, sums[:, k], side="right")
        missing = missing - steps[k] * hits / state.accesses
    sums[:, -1] = points[:, -1]
    if len(have) > 1:
        floor = (sums[:, -3] if len(have) > 2 else 0.0) + have[-2]
        short = missing > 0
        hits = np.ceil(missing / steps[-1] * state.accesses) if steps[-1] > 0 else np.where(short, np.inf, 0.0)
        found = np.r_[0.0, state.sorted_distances, np.inf]
        sums[:, -2] = np.maximum(found[np.clip(hits, 0, len(found) - 1).astype(int)], floor)
    else:
        sums[missing > 0] = np.nan
    return sums


def _around(axis: np.ndarray, x: float) -> np.ndarray:
    """A finer axis between the neighbours of x."""
    k = int(np.searchsorted(axis, x))
    low, high = axis[max(k - 1, 0)], axis[min(k + 1, len(axis) - 1)]
    return np.unique(np.r_[x, np.round(np.linspace(low, high, _GRID))])


def _whole(state, tiers, weights, limited, added, saved) -> Purchase:
    everywhere = np.zeros(len(tiers))
    everywhere[limited] = added
    return _purchase("cheapest mix", state, tiers, weights, everywhere, saved)


def _purchase(name, state: State, tiers, weights, added, saved) -> Purchase:
    at = at_sizes(state, np.stack([state.blocks, state.blocks + added]))
    gib = added * weights / 2**30
    usd = float(sum(g * tier.usd_per_gib for g, tier in zip(gib, tiers, strict=True) if g))
    prefill = state.costs.at(np.array([state.blocks.sum(), (state.blocks + added).sum()]))[0]
    per_hour = float(prefill[0] - prefill[1]) * saved
    payback = usd / per_hour if per_hour > 0 else (0.0 if usd == 0 else np.inf)
    return Purchase(
        name,
        {tier.name: float(g) for tier, g in zip(tiers, gib, strict=True) if g},
        usd,
        float(at.hit_frac[1]),
        float(at.access_s[1]),
        float(at.first_token_s[1]),
        per_hour,
        float(payback),
    )
