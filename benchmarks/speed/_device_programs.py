"""Every program that runs on a device: its inputs, what it does by the batch, and what it should reach on paper.

`gpu` measures them, `_ahead_of_time` compiles them for devices that are not here, and tests/test_device_programs.py
lowers them for CUDA. The estimates are a roofline of one H200 from its data sheet, written before any of them was run
on a device: the larger of the bytes that cannot stay in caches over 4.8 TB/s and the operations over a third of
34 TFLOP/s (float64), and one launch of 5 us for each step that the whole batch waits for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import log2
from typing import Any, NamedTuple

import numpy as np

from dmodels.games.anarchy import IndexCost, poa_index, price_of_anarchy
from dmodels.games.anarchy.enumeration import every_profile_of, splits
from dmodels.games.anarchy.index_device import window_program
from dmodels.games.resource import Alone, Exponential, Game, equilibrium
from dmodels.games.routing import RoutingGame, best_response, logit_equilibria
from dmodels.games.routing.batches import logit_program, response_program
from dmodels.solvers import assign, congestion_transport, transport
from dmodels.solvers.assignment.device import proved_matching
from dmodels.solvers.transportation.device import congestion_program, transport_program
from dmodels.solvers.wardrop import wardrop

BYTES_PER_S, FLOP64_PER_S, LAUNCH_S = 4.8e12, 34e12 / 3, 5e-6


class DeviceProgram(NamedTuple):
    """`program(*inputs, *shared)` solves the batch; `call(backend)` is what a user calls, on the same data."""

    name: str
    size: str
    program: Callable[..., Any]
    inputs: list[np.ndarray]
    shared: list[np.ndarray]
    call: Callable[[str], Any]
    paper_per_s: float
    proves: bool = False  # whether the last result says which answers are proved

    @property
    def count(self) -> int:
        """Problems in the batch."""
        return len(self.inputs[0])


def paper(count: int, each_bytes: float = 0.0, flop64: float = 0.0, launches: float = 0.0) -> float:
    """Problems per second of a batch of `count`, from what one problem needs and the steps that all wait for."""
    work = max(each_bytes / BYTES_PER_S, flop64 / FLOP64_PER_S)
    return 1.0 / (work + launches * LAUNCH_S / count)


def matching(n: int, count: int) -> DeviceProgram:
    """Square uniform costs. A scan of a row takes 32 lanes some 10 operations per element each and 5 shuffles in each
    of 3 reductions, about 400 cycles of latency; rows are scanned 2 + log2(n) / 2 times on average; 16 problems of a
    warp fit an SM (128 registers a lane), half of them for each doubling of warps. The proof reads the matrix in
    float64 about 12 times."""
    rng = np.random.default_rng(n)
    costs = rng.random((count, n, n))
    cycles = n * (2 + log2(n) / 2) * (400 + 10 * max(1, n / 32))
    kernel_s = cycles / 1.8e9 / (132 * 16 / max(1, n // 256))
    proof_s = 12 * 8.0 * n * n / BYTES_PER_S
    return DeviceProgram(
        "assignment",
        f"{n} x {n}",
        proved_matching,
        [costs],
        [],
        lambda backend: assign(costs, backend=backend).value.cost,
        1.0 / (kernel_s + proof_s + 20 * LAUNCH_S / count),
        True,
    )


def placement(n: int, m: int, convex: bool, count: int) -> DeviceProgram:
    """`transportation.slots`: some 0.3 n rows take paths where room is tight, all of them where congestion is convex;
    each path reads the costs in float32 about 2 (4 in a large batch) times; some 30 launches a path for the batch."""
    rng = np.random.default_rng(n)
    costs = rng.random((count, n, m))
    paths = n if convex else 0.3 * n
    estimate = paper(count, paths * 4 * 4.0 * n * m + 9 * 8.0 * n * m, launches=30 * paths)
    if convex:
        steps = np.cumsum(rng.random((count, m, n)), -1) / n
        call = lambda backend: congestion_transport(costs, steps, backend=backend).value.cost
        return DeviceProgram(
            "placement, convex congestion", f"{n} x {m}", congestion_program(), [costs, steps], [], call, estimate, True
        )
    room = np.full((count, m), float(-(-n // m)))
    call = lambda backend: transport(costs, room, backend=backend).value.cost
    return DeviceProgram("placement, tight", f"{n} x {m}", transport_program(), [costs, room], [], call, estimate, True)


def index(n: int, m: int, count: int) -> DeviceProgram:
    """PoA-hat of windows with room enough: hardly a path, so the search, the proof and the sums read the window some 14
    times in float64."""
    rng = np.random.default_rng(n)
    data = rng.exponential(2.0, (count, n)), rng.integers(0, m, (count, n)).astype(np.int32), rng.random((count, n, m))
    cost = IndexCost(capacity=2.0 * n / m)
    leaves = (cost.a_s, cost.b_s, cost.d_s, cost.beta, cost.capacity)
    shared = [np.stack([np.full(m, leaf) for leaf in leaves]), np.asarray(cost.cache_s)]
    call = lambda backend: poa_index(*data, cost, backend=backend).poa_hat
    estimate = paper(count, 14 * 8.0 * n * m, launches=200)
    return DeviceProgram(
        "PoA-hat of windows", f"{n} x {m}", window_program(False), list(data), shared, call, estimate, True
    )


def routing(rng: np.random.Generator, sizes: list[int], m: int, count: int) -> RoutingGame:
    f = np.cumsum(rng.random((count, m, sum(sizes))), -1)
    return RoutingGame(f, rng.random((count, len(sizes), m)), float(sum(sizes)) / m / 4, np.array(sizes))


def prices(sizes: list[int], m: int, count: int) -> DeviceProgram:
    """Every profile: 12 G m operations each in float64, with the games in registers and caches."""
    game = routing(np.random.default_rng(m), sizes, m, count)
    a, ways = game.arrays(), [splits(size, m) for size in sizes]
    profiles = int(np.prod([len(way) for way in ways]))
    estimate = paper(count, flop64=12.0 * len(sizes) * m * max(profiles, 1024), launches=10)
    call = lambda backend: price_of_anarchy(game, backend=backend).upper
    inputs = [a.f, a.cost]
    size = f"{m} workers, groups of {' and '.join(map(str, sizes))}: {profiles} profiles"
    return DeviceProgram("price of anarchy", size, every_profile_of(len(sizes)), inputs, ways, call, estimate)


def responses(sizes: list[int], m: int, count: int) -> DeviceProgram:
    """From greedy arrival: as many steps to arrive as requests, then about a fifth of that in moves; 8 G m^2 operations
    and 5 launches a step."""
    game = routing(np.random.default_rng(m), sizes, m, count)
    a, steps = game.arrays(), 1.2 * sum(sizes)
    inputs = [np.broadcast_to(array, (count, *array.shape[1:])) for array in a[:3]]
    estimate = paper(count, flop64=8.0 * len(sizes) * m * m * steps, launches=5 * steps)
    call = lambda backend: best_response(game, backend=backend).value.cost_s
    size = f"{m} workers, {sum(sizes)} requests in {len(sizes)} groups"
    return DeviceProgram("best responses", size, response_program(1_000_000), inputs, [], call, estimate)


def logits(sizes: list[int], m: int, count: int) -> DeviceProgram:
    """Some 100 steps of G^2 m K^2 multiply-adds in float64, and 20 launches each. (The host takes one game at a time
    and is not called here: "cpu" is the same program.)"""
    game = routing(np.random.default_rng(m), sizes, m, count)
    a, groups, size = game.arrays(), len(sizes), sum(sizes)
    inputs = [np.broadcast_to(array, (count, *array.shape[1:])) for array in a[:3]]
    estimate = paper(count, flop64=100 * 2.0 * groups**2 * m * size**2, launches=2000)
    call = lambda backend: logit_equilibria(game, 1.0).value["mean_cost_s"]
    program = logit_program(1e-10, 20_000, 0.2)
    about = f"{m} workers, {size} requests in {groups} groups"
    return DeviceProgram("logit equilibrium", about, program, [*inputs, np.ones(count)], [], call, estimate)


def fluid(m: int, count: int) -> DeviceProgram:
    """Wardrop's equilibrium by water-filling: 80 x 80 halvings of m latencies, 5 operations each, in one loop of a few
    launches a turn."""
    rng = np.random.default_rng(m)
    slope, start = rng.random((2, count, m))
    solve = lambda a, b: _fluid(a, b)
    call = lambda backend: _fluid(slope, start)[0]
    estimate = paper(count, flop64=6400 * 5.0 * m, launches=6400 * 2)
    return DeviceProgram("Wardrop equilibrium", f"{m} workers", solve, [slope, start], [], call, estimate)


def _fluid(slope: Any, start: Any) -> tuple[Any, ...]:
    import jax.numpy as jnp

    most = jnp.full(slope.shape, jnp.inf)
    s = wardrop(lambda x: jnp.asarray(slope) * x + jnp.asarray(start), jnp.ones(slope.shape[0]), most)
    return s.value["loads"], s.value["level"], s.certificate["spread"], s.flags


def prefill_decode(count: int) -> DeviceProgram:
    """One bracketed root a game: some 30 steps of 40 operations in float64, 10 launches each."""
    rng = np.random.default_rng(0)
    rates = rng.uniform(0.1, 1.0, (2, count))
    game = lambda a, b: Game(Exponential(a), Alone(Exponential(b)), 8.0)
    solve = lambda a, b: _flat(equilibrium(game(a, b)))
    call = lambda backend: equilibrium(game(*rates)).value.prefill_gpus
    estimate = paper(count, flop64=30 * 40.0, launches=300 * max(1.0, count / 2**17))
    return DeviceProgram("prefill/decode game", "2 players", solve, list(rates), [], call, estimate)


def _flat(solution: Any) -> tuple[Any, ...]:
    import jax

    return tuple(jax.tree.leaves(solution))


class Sized(NamedTuple):
    """A program to make, `make(count)`, and the batches that stand for it on a CPU and on a device."""

    make: Callable[[int], DeviceProgram]
    most: int


#: As stand-ins on a CPU: the same programs on a handful of small problems.
SMALL = (
    Sized(partial(matching, 8), 64),
    Sized(partial(placement, 24, 3, False), 32),
    Sized(partial(placement, 24, 3, True), 32),
    Sized(partial(index, 24, 3), 32),
    Sized(partial(prices, [3, 2], 2), 64),
    Sized(partial(responses, [3, 2], 3), 32),
    Sized(partial(logits, [3, 2], 2), 8),
    Sized(partial(fluid, 3), 8),
    Sized(prefill_decode, 64),
)

#: Sizes that are worth a device.
LARGE = (
    Sized(partial(matching, 8), 2**17),
    Sized(partial(matching, 32), 2**15),
    Sized(partial(matching, 64), 2**14),
    Sized(partial(matching, 128), 2**13),
    Sized(partial(matching, 256), 2**11),
    Sized(partial(matching, 512), 2**9),
    Sized(partial(placement, 64, 2, False), 2**15),
    Sized(partial(placement, 512, 8, False), 2**14),
    Sized(partial(placement, 512, 8, True), 2**13),
    Sized(partial(index, 512, 8), 2**14),
    Sized(partial(prices, [8, 8], 2), 2**18),
    Sized(partial(prices, [4, 4], 3), 2**16),
    Sized(partial(responses, [16, 16, 16, 16], 4), 2**16),
    Sized(partial(logits, [16, 16], 4), 2**12),
    Sized(partial(fluid, 8), 2**16),
    Sized(prefill_decode, 2**20),
)
