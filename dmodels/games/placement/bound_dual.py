"""Compiled loop of `bound` for any network: what clients can pay for a block if each place has its price."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.core.compiled import kernel

#: Steps in which payments are raised. More raise the bound little: 4 to 8 steps by 0.2 % on a line of 200 workers.
ROUNDS = 4

#: Blocks that are raised side by side, so that the innermost loop is one of vectors.
LANES = 32


class Reads(NamedTuple):
    """What reads cost, from each client's nearest place to its farthest that a prefill does not beat.

    place  (n, P) int32: places as numbered in `cost`, by rising cost; P = workers times tiers
    cost   (P, n): a read from each place by each client
    rising (n, P): the same, sorted, by client
    step   (n, ROUNDS): up to what cost of a read a client's payments are raised; last the costliest prefill
    reach  (n, ROUNDS): how many places cost less than that
    """

    place: np.ndarray
    cost: np.ndarray
    rising: np.ndarray
    step: np.ndarray
    reach: np.ndarray


def reads(distance: np.ndarray, access: np.ndarray, recompute: np.ndarray) -> Reads:
    """`Reads` of a network (n, n) whose workers have tiers (n, T); `recompute` (m,)."""
    n = len(distance)
    cost = (distance[:, :, None] + access[None]).reshape(n, -1)
    place = np.argsort(cost, axis=1, kind="stable")
    rising = np.take_along_axis(cost, place, axis=1)
    most = recompute.max()
    useful = np.maximum((rising < most).sum(1), 1)
    at = np.arange(1, ROUNDS)[None, :] * (useful[:, None] - 1) // ROUNDS
    step = np.concatenate([np.minimum(np.take_along_axis(rising, at, axis=1), most), np.full((n, 1), most)], axis=1)
    reach = (rising[:, None, :] < step[:, :, None]).sum(2)
    return Reads(place.astype(np.int32), np.ascontiguousarray(cost.T), rising, step, reach)


@kernel
def dual_blocks(start, stop, a, prices, reads, found):
    """Blocks start..stop-1 of `found`: a dual's value (at most the least cost), and copies at places paid in full."""
    demand, recompute, size = a.demand, a.recompute, a.size
    capacity = a.capacity.reshape(-1)
    place, cost, rising, step, reach = reads
    value, used = found
    n, places = rising.shape
    w, v, slack = np.zeros((n, LANES)), np.empty((n, LANES)), np.empty((places, LANES))
    gamma, goal = np.zeros(LANES), np.empty(LANES)
    served = np.empty(n, np.bool_)
    for first in range(start, stop, LANES):
        lanes = min(LANES, stop - first)
        v[:], slack[:] = 0.0, np.inf
        for k in range(lanes):
            b = first + k
            gamma[k] = recompute[b]
            for i in range(n):
                w[i, k] = demand[i, b]
            for f in range(places):
                if size[b] <= capacity[f]:
                    slack[f, k] = prices[f] * size[b]
        for r in range(step.shape[1]):
            for i in range(n):
                rate, paid = w[i], v[i]
                for k in range(LANES):
                    goal[k] = rate[k] * min(step[i, r], gamma[k])
                for p in range(reach[i, r]):  # payments above a read never exceed what is left of the price
                    left, read = slack[place[i, p]], rising[i, p]
                    for k in range(LANES):
                        goal[k] = min(goal[k], max(paid[k], rate[k] * read) + left[k])
                for k in range(LANES):
                    goal[k] = max(goal[k], paid[k])
                for p in range(reach[i, r]):
                    left, read = slack[place[i, p]], rising[i, p]
                    for k in range(LANES):
                        x = rate[k] * read
                        left[k] = max(left[k] - (max(goal[k] - x, 0.0) - max(paid[k] - x, 0.0)), 0.0)
                for k in range(LANES):
                    paid[k] = goal[k]
        for k in range(lanes):
            b = first + k
            value[b] = v[:, k].sum()
            used[b] = False
            served[:] = False
            for f in range(places):  # a place paid in full is used, unless a client already pays for another
                if slack[f, k] > 1e-9 * prices[f] * size[b]:
                    continue
                free, pays = True, False
                for i in range(n):
                    if v[i, k] > w[i, k] * cost[f, i]:
                        pays = True
                        free = free and not served[i]
                if free and pays:
                    used[b, f] = True
                    for i in range(n):
                        if v[i, k] > w[i, k] * cost[f, i]:
                            served[i] = True
