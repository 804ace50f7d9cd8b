r"""Best responses of the placement game, and the dynamics in which workers take turns to play them.

Given what the others keep, a read of block b from outside costs worker i $r_{ib}$, so keeping it in tier t saves
$w_{ib}\,(r_{ib} - \alpha_{it})^+$: a transportation problem with one column per tier, solved exactly by
`solvers.transport`. Blocks of unequal size make it a multiple knapsack, solved by HiGHS.

The same with all workers' reads in place of one's own is a *coordinated* response: each turn lowers the social cost, so
these dynamics always end, where selfish ones may cycle.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from dmodels.core.flags import Flag
from dmodels.solvers import transport
from dmodels.solvers.solution import Solution

from . import kernels
from .game import STAY_RTOL, Placement, PlacementArrays, PlacementGame, checked, empty, placed

#: What the placements of a cycle may fill.
CYCLE_BYTES = 1 << 28


def best_response(game: PlacementGame, tier, worker: int) -> Solution:
    """What `worker` would best keep where, the others staying as in `tier` (n, m).

    value: (m,) tiers, -1 where not kept. certificate: `cost_s` what it then pays, `gain_s` what the move saves.
    Blocks whose keeping saves nothing are not kept.
    """
    a = game.arrays()
    tier = checked(a, tier)
    now, row, cost, _ = _turn(a, worker, *_own(a, kernels.outside(tier, a)[:, worker], worker), tier[worker])
    return Solution(row, {"cost_s": cost, "gain_s": now - cost}, np.int32(0), np.int64(1))


def gains_s(game: PlacementGame, tier) -> np.ndarray:
    """What each worker would save by its best response, (n,); 0 up to rounding exactly at pure equilibria."""
    a = game.arrays()
    return regrets(a, checked(a, tier))


def best_response_dynamics(
    game: PlacementGame,
    start=None,
    order=None,
    max_rounds: int = 1000,
    coordinated: bool = False,
    worth_frac: float = STAY_RTOL,
) -> Solution:
    """Workers take turns to play best responses until nobody moves, or until a placement comes back.

    start        tier (n, m); nobody keeps anything unless given
    order        the order of turns, a permutation of the workers; as numbered unless given
    coordinated  each minimises the social cost instead of its own: ends in a local optimum of the social cost
    worth_frac   the share of its cost that a move must save; above the default, play ends at an approximate equilibrium

    value        `Placement`. After a cycle: the placement of it whose largest gain is least
    certificate  `gain_s` (n,): what each worker could still save by its best response (for coordinated play: what all
                 could save by it); 0 up to rounding at an equilibrium. `cycle` (k, n, m): the placements of the cycle
                 in turn (the first of them, where all would fill more than 256 MiB), empty if there is none
    flags        NOT_CONVERGED: a cycle, or `max_rounds` spent
    steps        moves made
    """
    a = game.arrays()
    tier = checked(a, empty(game) if start is None else start).copy()
    order = range(len(tier)) if order is None else [int(i) for i in order]
    play = (_Coordinated if coordinated else _Selfish)(a, tier, worth_frac)
    seen: dict[bytes, int] = {}
    moves, cycle, still = 0, [], False
    for turn in range(max_rounds):
        key = blake2b(tier.tobytes()).digest()
        if key in seen:  # turns are deterministic: from here on it repeats
            cycle = _turns(play, order, turn - seen[key])
            break
        seen[key] = turn
        moved = sum(play.move(i) for i in order)
        moves += moved
        if not moved:
            still = True
            break
    if cycle:
        tier = min(cycle, key=lambda profile: regrets(a, profile).max())
    gain = play.regrets() if coordinated else regrets(a, tier)
    shown = np.stack(cycle) if cycle else np.empty((0, *tier.shape), np.int8)
    flags = np.int32(0 if still else int(Flag.NOT_CONVERGED))
    return Solution(placed(a, tier), {"gain_s": gain, "cycle": shown}, flags, np.int64(moves))


def _turns(play, order, rounds: int) -> list[np.ndarray]:
    """The different placements passed in `rounds` rounds from here, as many as `CYCLE_BYTES` hold."""
    passed: list[np.ndarray] = []
    for i in list(order) * rounds:
        if play.move(i):
            passed.append(play.tier.copy())
            if len(passed) * play.tier.nbytes >= CYCLE_BYTES:
                break
    return passed


class _Selfish:
    """Turns of workers who minimise their own cost, in `tier`; keeps what each pays to read from others."""

    def __init__(self, a: PlacementArrays, tier: np.ndarray, worth_frac: float):
        self.a, self.tier, self.worth_frac = a, tier, worth_frac
        self.out = kernels.outside(tier, a)
        self.prices: list[np.ndarray | None] = [None] * len(tier)

    def move(self, i: int) -> bool:
        """Play worker i's best response; False if it gains nothing worth moving for."""
        a, tier, prices = self.a, self.tier, self.prices[i]
        if prices is not None:  # most turns change nothing, which the prices of the last response prove
            paid, most = kernels.stays(tier[i], i, a, self.out, prices)
            if most <= self.worth_frac * paid:
                return False
        now, row, cost, self.prices[i] = _turn(a, i, *_own(a, self.out[:, i], i), tier[i])
        if now - cost <= self.worth_frac * now:
            return False
        before = tier[i].copy()
        tier[i] = row
        kernels.renew_outside(before, i, tier, a, self.out)
        return True


class _Coordinated:
    """Turns of workers who minimise the social cost, in `tier`; keeps the `Nearest` reads."""

    def __init__(self, a: PlacementArrays, tier: np.ndarray, worth_frac: float):
        self.a, self.tier, self.worth_frac = a, tier, worth_frac
        self.near = kernels.nearest_two(tier, a)

    def _response(self, i: int) -> tuple[float, np.ndarray, float]:
        """(what all pay now, worker i's tiers at which they pay least, what they then pay)."""
        cost = kernels.social_costs(self.a, self.near, i)
        return _turn(self.a, i, cost[:, :-1], cost[:, -1], self.tier[i])[:3]

    def move(self, i: int) -> bool:
        """Play worker i's best response for all; False if it lowers nothing."""
        a, tier = self.a, self.tier
        now, row, best = self._response(i)
        if now - best <= self.worth_frac * now:
            return False
        changed = np.flatnonzero(tier[i] != row)
        tier[i] = row
        kernels.renew(tier, a, changed, self.near)
        return True

    def regrets(self) -> np.ndarray:
        """What all could save by each worker's response, (n,)."""
        return np.array([now - best for now, _, best in map(self._response, range(len(self.tier)))])


def regrets(a: PlacementArrays, tier: np.ndarray) -> np.ndarray:
    """`gains_s` of arrays."""
    out = kernels.outside(tier, a)
    turns = (_turn(a, i, *_own(a, out[:, i], i), tier[i]) for i in range(len(tier)))
    return np.array([now - cost for now, _, cost, _ in turns])


def isolated_s(game: PlacementGame) -> np.ndarray:
    """What each worker pays at best with nobody to read from, (n,): at most this at every equilibrium.

    Whatever the others do, a worker can keep what it would keep alone, and their copies only help it. So the sum bounds
    every pure equilibrium, and pooling can gain no more than this less the optimum.
    """
    a = game.arrays()
    return np.array([choose(a, i, *_own(a, a.recompute, i))[1] for i in range(len(a.demand))])


def _own(a: PlacementArrays, out: np.ndarray, i: int) -> tuple[np.ndarray, np.ndarray]:
    """Worker i's cost of each block kept in each tier (m, T), and not kept (m,)."""
    w = a.demand[i]
    return w[:, None] * np.minimum(a.access[i], out[:, None]), w * out


def _turn(
    a: PlacementArrays, i: int, kept: np.ndarray, unkept: np.ndarray, row: np.ndarray
) -> tuple[float, np.ndarray, float, np.ndarray | None]:
    """(what worker i pays with `row` as its tiers, and `choose`)."""
    return _spent(kept, unkept, row), *choose(a, i, kept, unkept)


def _spent(kept: np.ndarray, unkept: np.ndarray, row: np.ndarray) -> float:
    """What the blocks of one worker cost with `row` (m,) as its tiers. One sum of costs for all choices: the rounding
    of sums that are taken from each other would look like a gain."""
    return float(np.where(row < 0, unkept, kept[np.arange(len(row)), row]).sum())


def choose(
    a: PlacementArrays, i: int, kept: np.ndarray, unkept: np.ndarray
) -> tuple[np.ndarray, float, np.ndarray | None]:
    """Tiers (m,) for the blocks of worker i at least total cost, `kept` (m, T) or `unkept` (m,), and that cost.

    Last the price (T,) of a place in each tier, by which the cost is the least; None for blocks of unequal size.
    """
    saving = unkept[:, None] - kept
    if not a.alike:
        row = _knapsack(a, i, saving)
        return row, _spent(kept, unkept, row), None
    row, prices = np.full(len(unkept), -1, np.int8), np.zeros(kept.shape[1])
    slots = a.slots[i]
    open_ = np.flatnonzero(slots > 0)
    useful = np.flatnonzero(saving[:, open_].max(1, initial=0.0) > 0)
    places = int(slots.sum())
    if useful.size > places + 1 > 1:
        # Someone outside the best of a tier could give way there to one of them that is not placed at all; and with
        # one more of these than places, the prices hold for all that are left out.
        among = saving[np.ix_(useful, open_)]
        best = np.argpartition(-among, places, axis=0)[: places + 1]
        useful = useful[np.unique(best)]
    if useful.size and open_.size:
        if open_.size == 1 and useful.size <= places:
            row[useful] = open_[0]
        else:
            cost = np.concatenate([kept[np.ix_(useful, open_)], unkept[useful, None]], axis=1)
            room = np.append(slots[open_], useful.size).astype(float)
            found = transport(cost, room)
            row[useful] = np.append(open_, -1)[np.asarray(found.value.columns)]
            prices[open_] = np.maximum(-found.certificate["column_duals"][:-1], 0.0)
        row[saving[np.arange(len(row)), row] <= 0] = -1
    return row, _spent(kept, unkept, row), prices


def _knapsack(a: PlacementArrays, i: int, saving: np.ndarray) -> np.ndarray:
    """Blocks of unequal size: a multiple knapsack, by HiGHS to a zero gap."""
    from scipy.optimize import LinearConstraint, milp
    from scipy.sparse import coo_array

    row = np.full(len(saving), -1, np.int8)
    block, tier = np.nonzero((saving > 0) & (a.size[:, None] <= a.capacity[i]))
    if block.size:
        rows = np.concatenate([tier, a.access.shape[1] + block])
        entries = np.concatenate([a.size[block], np.ones(block.size)])
        at = (rows.astype(np.int32), np.tile(np.arange(block.size, dtype=np.int32), 2))  # as milp takes them
        matrix = coo_array((entries, at), shape=(a.access.shape[1] + len(saving), block.size)).tocsr()
        room = np.concatenate([np.minimum(a.capacity[i], a.size.sum()), np.ones(len(saving))])
        unit = saving[block, tier].max()
        answer = milp(
            -saving[block, tier] / unit,
            integrality=np.ones(block.size),
            constraints=LinearConstraint(matrix, -np.inf, room),
            options={"mip_rel_gap": 0.0},
        )
        taken = np.flatnonzero(answer.x > 0.5)
        row[block[taken]] = tier[taken]
    return row


def equilibrium_flag(profile: Placement, gain: np.ndarray) -> np.int32:
    """NOT_CONVERGED unless no worker gains more than rounding."""
    return np.int32(0 if (gain <= 1e-9 * profile.cost_s).all() else int(Flag.NOT_CONVERGED))
