"""Equilibria of many routing games at once: the compiled loops of `boxes` and `kernels`, in threads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.core.compiled import kernel
from dmodels.core.flags import Flag
from dmodels.core.records import Real
from dmodels.core.threads import share
from dmodels.solvers.device import takes_device
from dmodels.solvers.solution import Solution

from .boxes import enumerate_nash
from .game import Profile, RoutingArrays, RoutingGame, flow, flow_gain_s, overload_flag, sums, worker_of_each
from .kernels import greedy, respond, social_cost

#: Rounding of one comparison of costs: two sums, a product, and what made the curve.
ULPS = 16.0


class NashRange(NamedTuple):
    """Costs and flows of the best and the worst pure equilibrium, and bounds on all of them (miss form)."""

    best_s: np.ndarray
    worst_s: np.ndarray
    best_floor_s: np.ndarray
    worst_ceiling_s: np.ndarray
    best_flow: np.ndarray
    worst_flow: np.ndarray


@kernel(tiered=True)
def merge(c, q):
    """Groups with equal rows as one, groups of size 0 dropped: (c, q, group of each old row or -1)."""
    groups = q.size
    into = np.full(groups, -1, np.int64)
    first = np.empty(groups, np.int64)
    sizes = np.zeros(groups, np.int64)
    kept = 0
    for g in range(groups):
        if q[g] == 0:
            continue
        for k in range(kept):
            same = True
            for j in range(c.shape[1]):
                if c[g, j] != c[first[k], j]:
                    same = False
                    break
            if same:
                into[g] = k
                break
        if into[g] < 0:
            into[g], first[kept] = kept, g
            kept += 1
        sizes[into[g]] += q[g]
    return c[first[:kept]].copy(), sizes[:kept].copy(), into


@kernel
def split(x, q, into, out):
    """The flow of merged groups handed back to the old rows, first come first served."""
    left = x.copy()
    for g in range(q.size):
        out[g, :] = 0
        need = q[g]
        for j in range(x.shape[1]):
            if need > 0:
                take = min(need, left[into[g], j])
                out[g, j] = take
                left[into[g], j] -= take
                need -= take


@kernel(tiered=True)
def tolerance(f, c, total):
    """16 units in the last place of what a request pays in an allocation that balances latency: ties in exact
    arithmetic stay ties, and curves far below the private costs still count."""
    n = np.zeros(f.shape[0], np.int64)
    level = 0.0
    for _ in range(total):
        pick = 0
        for j in range(f.shape[0]):
            if f[j, n[j]] < f[pick, n[pick]]:
                pick = j
        if f[pick, n[pick]] == np.inf:
            break
        level = max(level, f[pick, n[pick]])
        n[pick] += 1
    return ULPS * 2.0**-52 * (level + np.abs(c).max())


def blurred(a: RoutingArrays) -> np.ndarray:
    """(B,): whether latencies or private costs differ by so little that sums of the two cannot tell them apart.

    Equilibria are then decided by rounding. Differences at the rounding of the numbers themselves are ties.
    """
    out = np.zeros(a.size, bool)
    f = np.sort(a.f.reshape(len(a.f), -1))
    private = np.abs(a.cost).reshape(len(a.cost), -1).max(1)
    with np.errstate(invalid="ignore"):  # from one infinity to the next
        steps = np.diff(f)
    apart = np.diff(np.sort(a.cost)).reshape(len(a.cost), -1)
    steps = np.where((steps > 1e-14 * f[:, 1:]) & np.isfinite(f[:, 1:]), steps, np.inf).min(1, initial=np.inf)
    apart = np.where(apart > 1e-14 * private[:, None], apart, np.inf).min(1, initial=np.inf)
    closest = np.broadcast_to(np.minimum(steps, apart), a.size)
    size = np.where(np.isfinite(f), f, 0.0).max(1) + private
    for b in np.flatnonzero(closest <= 4.0 * ULPS * 2.0**-52 * size):  # what the tolerance is at most, 4 times
        total = int(a.counts[b % len(a.counts)].sum())
        out[b] = closest[b] <= 4.0 * tolerance(a.f[b % len(a.f)], a.cost[b % len(a.cost)], total)
    return out


@kernel(tiered=True)
def shape_of(f, total):
    """(every f nondecreasing, every k f(k) convex) over loads 1..total."""
    monotone, convex = True, True
    for j in range(f.shape[0]):
        last = -np.inf
        for k in range(total):
            if k and f[j, k] < f[j, k - 1]:
                monotone = False
            if f[j, k] == np.inf:
                last = np.inf
                continue
            step = (k + 1) * f[j, k] - (k * f[j, k - 1] if k else 0.0)
            if step < last - 1e-12 * abs(last):
                convex = False
            last = step
    return monotone, convex


@kernel
def _at_costliest(c, q):
    """Every request where its miss costs most: a start from which the dynamics tend to end in a dear equilibrium."""
    x = np.zeros(c.shape, np.int64)
    for g in range(q.size):
        x[g, np.argmax(c[g])] = q[g]
    return x


@kernel(tiered=True)
def ranges(f, c, q, max_boxes, max_steps, first, last, cost, flows, boxes):
    """Nash range of games first..last: cost[b] = best, worst, floor, ceiling; flows[b, 0], flows[b, 1]."""
    for b in range(first, last):
        fb, cb, qb = f[b % len(f)], c[b % len(c)], q[b % len(q)]
        groups, sizes, into = merge(cb, qb)
        total = sizes.sum()
        monotone, convex = shape_of(fb, total)
        tol = tolerance(fb, groups, total)
        cheap = greedy(fb, groups, sizes)
        respond(fb, groups, cheap, tol, max_steps)
        dear = _at_costliest(groups, sizes)
        respond(fb, groups, dear, tol, max_steps)
        low, high = social_cost(fb, groups, cheap), social_cost(fb, groups, dear)
        if low > high:
            low, high, cheap, dear = high, low, dear, cheap
        found = enumerate_nash(fb, groups, sizes, monotone, convex, tol, low, high, cheap, max_boxes)
        cost[b, 0], cost[b, 1], cost[b, 2], cost[b, 3] = found.best, found.worst, found.floor, found.ceiling
        split(found.best_flow if found.best_flow[0, 0] >= 0 else cheap, qb, into, flows[b, 0])
        split(found.worst_flow if found.worst_flow[0, 0] >= 0 else dear, qb, into, flows[b, 1])
        boxes[b] = found.boxes


def search(a: RoutingArrays, max_boxes: int) -> tuple[NashRange, np.ndarray]:
    """The range of each game in the batch, and the boxes looked at."""
    size, (groups, workers) = a.size, a.cost.shape[1:]
    cost, boxes = np.empty((size, 4)), np.empty(size, np.int64)
    flows = np.empty((size, 2, groups, workers), np.int64)
    share(lambda i, j: ranges(a.f, a.cost, a.counts, max_boxes, 10**9, i, j, cost, flows, boxes), size, size * 2e-5)
    best, worst, floor, ceiling = (cost[:, i].reshape(a.batch) for i in range(4))
    best_flow, worst_flow = (flows[:, i].reshape(*a.batch, groups, workers) for i in range(2))
    return NashRange(best, worst, floor, ceiling, best_flow, worst_flow), boxes.reshape(a.batch)


def range_flags(r: NashRange) -> np.ndarray:
    """NOT_CONVERGED where the search was cut short, OVERLOAD where equilibria cost infinity."""
    complete = (r.best_floor_s >= r.best_s) & (r.worst_ceiling_s <= r.worst_s)
    return np.where(complete, 0, int(Flag.NOT_CONVERGED)).astype(np.int32) | overload_flag(r.worst_s)


def nash_range(game: RoutingGame, max_boxes: int = 200_000) -> Solution:
    """Best and worst pure Nash equilibrium, exactly, by branch and prune over load vectors (`boxes`).

    `value` is a `NashRange`. With `max_boxes` spent, `best_s` and `worst_s` are still equilibria that were found, and
    `best_floor_s` and `worst_ceiling_s` still bound all equilibria; the flag NOT_CONVERGED is then up.
    """
    a = game.arrays()
    value, boxes = search(a, max_boxes)
    flags = range_flags(value)
    gain = np.maximum(flow_gain_s(a, value.best_flow), flow_gain_s(a, value.worst_flow))
    return Solution(value, {"complete": (flags & int(Flag.NOT_CONVERGED)) == 0, "gain_s": gain}, flags, boxes)


@kernel(tiered=True)
def _responses(f, c, q, x, from_greedy, max_steps, first, last, steps, done):
    for b in range(first, last):
        fb, cb, qb = f[b % len(f)], c[b % len(c)], q[b % len(q)]
        if from_greedy:
            x[b] = greedy(fb, cb, qb)
        steps[b], done[b] = respond(fb, cb, x[b], tolerance(fb, cb, qb.sum()), max_steps)


def best_response(
    game: RoutingGame, start: Real | None = None, max_steps: int = 1_000_000, *, backend: str = "auto"
) -> Solution:
    """Best-response dynamics: the request with the most to gain moves to its best worker, until nobody gains.

    Starts from `start` (an assignment or flow), or from greedy arrival. `value` is a `Profile`, `steps` the moves made,
    `certificate["gain_s"]` the largest gain that is left. The paper says that at most n steps are needed; with cache
    terms that is wrong (N = 2, m = 3 needs 3 from some start). `backend`: "device" plays all games at once on JAX's
    devices, move by move as "cpu" does; "auto" does so for large batches where there is an accelerator.
    """
    a = game.arrays()
    shape = (*a.batch, game.groups_count, game.workers_count)
    x = np.zeros(shape, np.int64) if start is None else np.broadcast_to(flow(game, start), shape).copy()
    flat = x.reshape(a.size, *shape[-2:])
    if takes_device(backend, a.batch):
        from .batches import responses_on_device

        flat, steps, done = responses_on_device(a, None if start is None else flat, max_steps)
    else:
        steps, done = np.empty(a.size, np.int64), np.empty(a.size, bool)
        share(
            lambda i, j: _responses(a.f, a.cost, a.counts, flat, start is None, max_steps, i, j, steps, done),
            a.size,
            a.size * 2e-5,
        )
    value = profile(a, flat.reshape(shape))
    flags = np.where(done.reshape(a.batch), 0, int(Flag.NOT_CONVERGED)).astype(np.int32) | overload_flag(value.cost_s)
    return Solution(value, {"gain_s": flow_gain_s(a, value.flow)}, flags, steps.reshape(a.batch))


def greedy_arrival(game: RoutingGame) -> Profile:
    """Requests arrive one after another, in order, each to the worker that is cheapest then (the first of equals).

    Without cache terms and with nondecreasing latencies this is an equilibrium; with them it need not be one.
    """
    a = game.arrays()
    x = [greedy(a.f[b % len(a.f)], a.cost[b % len(a.cost)], a.counts[b % len(a.counts)]) for b in range(a.size)]
    return profile(a, np.array(x).reshape(*a.batch, game.groups_count, game.workers_count))


def profile(a: RoutingArrays, flows: np.ndarray) -> Profile:
    """A flow with its assignment, cost and potential."""
    each = [worker_of_each(x) for x in flows.reshape(-1, *flows.shape[-2:])]
    longest = max(map(len, each))
    padded = np.array([np.pad(e, (0, longest - len(e)), constant_values=-1) for e in each])
    return Profile(flows, padded.reshape(*flows.shape[:-2], longest), *sums(a, flows))
