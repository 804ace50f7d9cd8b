"""How much memory to buy for a target hit rate, from which tier, and after how long it has paid for itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from .place_cost import State, Tier, at_sizes

_GRID = 24  # sizes tried per tier in a mix


class Purchase(NamedTuple):
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
    """(the cheapest addition, over any tiers, that meets hit rate and latency; why there is none, or "").

    Without a bound on latency it is exact: the cheapest tier takes all. With one, sizes are tried on a grid of 24 per
    tier, refined once around the best, so a cheaper mix may be missed by a grid step.
    """
    limited = np.flatnonzero(state.limited)
    least = max(needed_blocks(state, target), state.blocks[limited].sum())
    most = max(least, state.distinct)
    totals = np.unique(np.round(np.linspace(least, most, _GRID)))
    usd = np.array([tier.usd_per_gib for tier in tiers]) * weights / 2**30
    steps = [np.unique(np.round(np.linspace(0, max(most - state.blocks[limited].sum(), 0), _GRID)))] * len(limited)
    best = None
    for _ in range(2):
        added = _mixes(steps, totals - state.blocks[limited].sum())
        blocks = np.repeat(state.blocks[None, :], len(added), axis=0)
        blocks[:, limited] += added
        at = at_sizes(state, blocks)
        good = (at.hit_frac >= target - 1e-12) & (at.first_token_s <= first_token_s)
        if not good.any():
            break
        price = added @ usd[limited]
        k = np.flatnonzero(good)[np.lexsort((at.first_token_s[good], price[good]))[0]]
        best = added[k]
        width = steps[0][-1] / max(_GRID - 1, 1)
        steps = [np.unique(np.round(np.clip(np.linspace(b - width, b + width, _GRID), 0, None))) for b in best]
        around = best.sum() + state.blocks[limited].sum()
        near = (most - least) / max(_GRID - 1, 1)
        totals = np.unique(np.round(np.clip(np.linspace(around - near, around + near, _GRID), least, most)))
        totals = np.unique(np.r_[totals, around])
        steps = [np.unique(np.r_[step, b]) for step, b in zip(steps, best, strict=True)]
    if best is None:
        fastest = float(at.first_token_s[at.hit_frac >= target - 1e-12].min())
        return None, (
            f"no memory brings the mean time to the first token to {first_token_s:.4g} s: with every block in the "
            f"fastest place it is {fastest:.4g} s, for first uses are computed anyway; the smallest change is "
            f'target.first_token = "{np.ceil(fastest * 1e6) / 1e3:g} ms"'
        )
    whole = np.zeros(len(tiers))
    whole[limited] = best
    return _purchase("cheapest mix", state, tiers, weights, whole, saved), ""


def _mixes(steps: list[np.ndarray], totals: np.ndarray) -> np.ndarray:
    """Additions (points, tiers): all but the last tier from its own steps, the last what is left of each total."""
    rows = np.array(list(product(*steps[:-1], totals)))
    rest = rows[:, -1] - rows[:, :-1].sum(axis=1)
    rows = np.concatenate([rows[:, :-1], rest[:, None]], axis=1)
    return rows[rest >= 0]


def _purchase(name, state: State, tiers, weights, added, saved) -> Purchase:
    at = at_sizes(state, np.stack([state.blocks, state.blocks + added]))
    gib = added * weights / 2**30
    usd = float(sum(g * tier.usd_per_gib for g, tier in zip(gib, tiers, strict=True) if g))
    prefill = state.costs.at(np.array([state.blocks.sum(), (state.blocks + added).sum()]))[0]
    per_hour = float(prefill[0] - prefill[1]) * saved
    payback = usd / per_hour if per_hour > 0 else (0.0 if usd == 0 else np.inf)
    return Purchase(name, {tier.name: float(g) for tier, g in zip(tiers, gib, strict=True) if g}, usd,
                    float(at.hit_frac[1]), float(at.access_s[1]), float(at.first_token_s[1]), per_hour,
                    float(payback))  # fmt: skip
