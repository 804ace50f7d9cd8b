r"""The KV placement game: each worker chooses which blocks to keep in which of its tiers, and reads the rest elsewhere.

Worker i pays for block b, which it needs at rate $w_{ib}$,

$$ c_i(b) = \min\Big(\alpha_{i,t_i(b)},\ \min_{j \ne i} d(i,j) + \alpha_{j,t_j(b)},\ \gamma_b\Big), \tag{6} $$

its own copy in tier t_i(b), the cheapest copy that another holds, or a new prefill. The paper writes cases; whoever may
choose takes the least of them, so a slow copy of one's own never hides a near fast one. Tiers are limited, so blocks
compete for places; keeping a block helps the neighbours, and nobody is paid for it.

Unlike in the routing game, pure equilibria need not exist: two limited tiers are enough (`pure_equilibria`). With
one limited tier on a hierarchical network they exist and are found in polynomial time (`hierarchy`).

[1] The Price of Anarchy in Disaggregated Inference, section 4.2, Definition 2, Eq. (6).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.records import HOST, Real, Record, quantity
from dmodels.core.threads import frozen

from . import kernels

#: A worker stays where a move saves less than this share of its cost: rounding is no reason to move.
STAY_RTOL = 1e-12


class PlacementGame(Record):
    """Who needs which block how often, what a read costs from where, and how much each tier holds.

    demand_rps      (n, m): reads per second of each block by each worker
    access_s        (T,) or (n, T): a read from one's own tier, fastest first (G1 HBM, G2 DRAM, G3 SSD, G4 network)
    capacity_bytes  (T,) or (n, T): what each tier of a worker holds; inf is no limit, 0 is no tier
    distance_s      (n, n): what worker i pays on top to read from worker j (row i, column j; need not be symmetric);
                    inf where there is no path. The diagonal is not used
    recompute_s     one number or (m,): a prefill of the block, gamma; finite
    block_bytes     one number or (m,). Left at 1, capacities count blocks

    The names are for rates per second and seconds; any units that multiply to a cost will do.
    """

    demand_rps: Real = quantity()
    access_s: Real = quantity()
    capacity_bytes: Real = quantity()
    distance_s: Real = quantity()
    recompute_s: Real = quantity()
    block_bytes: Real = quantity(1.0)

    def __check_init__(self):
        if not all(isinstance(leaf, HOST) for leaf in vars(self).values()):
            return
        if self.demand_rps.ndim != 2 or 0 in self.demand_rps.shape:
            raise InputError(f"demand_rps has shape {self.demand_rps.shape}; accepted: (workers, blocks)")
        n, m = self.demand_rps.shape
        tiers = self.access_s.shape[-1] if self.access_s.ndim else 0
        shapes = {
            "access_s": [(tiers,), (n, tiers)],
            "capacity_bytes": [(tiers,), (n, tiers)],
            "distance_s": [(n, n)],
            "recompute_s": [(), (m,)],
            "block_bytes": [(), (m,)],
        }
        for name, allowed in shapes.items():
            shape = getattr(self, name).shape
            if shape not in allowed or tiers == 0:
                kinds = " or ".join(map(str, allowed))
                raise InputError(f"{name} has shape {shape}; accepted for {n} workers and {m} blocks: {kinds}")
        for name, value in vars(self).items():
            may_be_infinite = name in ("capacity_bytes", "distance_s")
            if name == "distance_s":
                value = value[~np.eye(n, dtype=bool)]
            if np.isnan(value).any() or (value < 0).any() or not (may_be_infinite or np.isfinite(value).all()):
                least = np.fmin.reduce(value.ravel())  # of those that are numbers
                kind = "numbers from 0, inf included" if may_be_infinite else "finite numbers from 0"
                raise InputError(f"{name} holds {least if least < 0 else 'NaN or infinity'}; accepted are {kind}")
        if (self.block_bytes <= 0).any():
            raise InputError("block_bytes holds 0; accepted are numbers above 0")

    @property
    def workers_count(self) -> int:
        """n."""
        return self.demand_rps.shape[0]

    @property
    def blocks_count(self) -> int:
        """m."""
        return self.demand_rps.shape[1]

    @property
    def tiers_count(self) -> int:
        """T, the tiers of one worker."""
        return self.access_s.shape[-1]

    def arrays(self) -> PlacementArrays:
        """The game as plain arrays of full shape."""
        n, m, tiers = self.workers_count, self.blocks_count, self.tiers_count
        demand, access, capacity, distance, recompute, size = (
            np.ascontiguousarray(np.broadcast_to(np.asarray(value, np.float64), shape))
            for value, shape in (
                (self.demand_rps, (n, m)),
                (self.access_s, (n, tiers)),
                (self.capacity_bytes, (n, tiers)),
                (self.distance_s, (n, n)),
                (self.recompute_s, (m,)),
                (self.block_bytes, (m,)),
            )
        )
        distance = distance.copy()
        np.fill_diagonal(distance, 0.0)
        alike = bool((size == size[0]).all())
        capacity = capacity * (1 + 1e-12)  # a byte lost to rounding is not a block lost
        slots = np.minimum(np.floor(capacity / size.min()), m).astype(np.int64)
        parts = demand, access, capacity, distance, recompute, size, slots
        return PlacementArrays(*map(frozen, parts), alike)


class PlacementArrays(NamedTuple):
    """A placement game on the host: all arrays of full shape; `slots` (n, T) whole blocks of the smallest size.

    `capacity` is what a tier holds and a little for the rounding of sums. All are read-only: kernels would be compiled
    anew for each mixture of arrays that are and that are not.
    """

    demand: np.ndarray
    access: np.ndarray
    capacity: np.ndarray
    distance: np.ndarray
    recompute: np.ndarray
    size: np.ndarray
    slots: np.ndarray
    alike: bool  # all blocks have one size


class Placement(NamedTuple):
    """Where every block is, and what it costs.

    tier      (n, m) int8: the tier in which worker i keeps block b, counted from 0; -1 where it keeps none
    cost_s    (n,): what each worker pays, rate times seconds
    social_s  their sum
    """

    tier: np.ndarray
    cost_s: np.ndarray
    social_s: float


def empty(game: PlacementGame) -> np.ndarray:
    """Nobody keeps anything: tier (n, m), all -1."""
    return np.full((game.workers_count, game.blocks_count), -1, np.int8)


def placement(game: PlacementGame, tier) -> Placement:
    """Costs of a given placement `tier` (n, m), which must fit the tiers.

    Two workers, one block that only the first holds, at a distance of 2, access 1: the second pays 3.

    >>> game = PlacementGame([[1.0], [1.0]], [1.0], [1.0], [[0.0, 2.0], [2.0, 0.0]], recompute_s=5.0)
    >>> placement(game, [[0], [-1]]).cost_s.tolist()
    [1.0, 3.0]
    """
    a = game.arrays()
    return placed(a, checked(a, tier))


def placed(a: PlacementArrays, tier: np.ndarray) -> Placement:
    """`placement` of arrays."""
    cost = kernels.costs(tier, a)
    return Placement(tier, cost, float(cost.sum()))


def checked(a: PlacementArrays, tier) -> np.ndarray:
    """`tier` as int8 (n, m), or an `InputError` that says what does not fit."""
    tier = np.asarray(tier)
    if tier.shape != a.demand.shape:
        raise InputError(f"tier has shape {tier.shape}; accepted: (workers, blocks) = {a.demand.shape}")
    tiers = a.access.shape[1]
    if (tier != np.floor(tier)).any() or tier.min() < -1 or tier.max() >= tiers:
        raise InputError(f"tier holds {tier.min()}..{tier.max()}; accepted are whole numbers from -1 to {tiers - 1}")
    tier = np.ascontiguousarray(tier, np.int8)
    used = held_bytes(a, tier)
    over = used > a.capacity
    if over.any():
        i, t = np.argwhere(over)[0]
        raise InputError(f"worker {i} keeps {used[i, t]:g} bytes in tier {t}, which holds {a.capacity[i, t]:g}")
    return tier


def held_bytes(a: PlacementArrays, tier: np.ndarray) -> np.ndarray:
    """Bytes in each tier of each worker, (n, T)."""
    return np.stack([((tier == t) * a.size).sum(1) for t in range(a.access.shape[1])], axis=1)
