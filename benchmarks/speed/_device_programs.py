"""Every program that runs on a device: its inputs, what it does by the batch, and its work on paper.

`gpu` measures them beside `solvers.roofline.expected`, `_ahead_of_time` compiles them for devices that are not here,
tests/test_device_programs.py lowers them. The work of each is counted next to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import jax
import numpy as np

from dmodels import SLO, catalog
from dmodels.core.records import float64
from dmodels.fit import descent, silicon
from dmodels.fit.points import to_points
from dmodels.fit.rows import Table, parse_row
from dmodels.games.anarchy import IndexCost, poa_index, price_of_anarchy
from dmodels.games.anarchy.enumeration import every_profile_of, splits
from dmodels.games.anarchy.index_device import window_program, window_work
from dmodels.games.resource import Alone, Exponential, Game, equilibrium
from dmodels.games.resource.solve import equilibrium_work
from dmodels.games.routing import RoutingGame, best_response, logit_equilibria
from dmodels.games.routing.batches import logit_program, response_program
from dmodels.games.routing.programs import logit_work, profile_work, response_work
from dmodels.sim.batching import scan
from dmodels.solvers import assign, congestion_transport, transport, variational_equilibria, variational_equilibrium
from dmodels.solvers.assignment.device import matching_work, proved_matching
from dmodels.solvers.blocks import in_blocks
from dmodels.solvers.roofline import DeviceWork
from dmodels.solvers.transportation.device import congestion_program, placement_work, transport_program
from dmodels.solvers.variational.solve import equilibrium_work as interior_work
from dmodels.solvers.wardrop import wardrop, wardrop_work
from dmodels.studies.plan import price, question
from dmodels.studies.plan.evaluate import evaluate, evaluation_work


class DeviceProgram(NamedTuple):
    """`program(*inputs, *shared)` solves the batch; `call(backend)` is what a user calls, on the same data."""

    name: str
    size: str
    program: Callable[..., Any]
    inputs: list[np.ndarray]
    shared: list[np.ndarray]
    call: Callable[[str], Any]
    work: DeviceWork
    proves: bool = False  # whether the last result says which answers are proved

    @property
    def count(self) -> int:
        """Problems in the batch."""
        return len(self.inputs[0])


def matching(n: int, count: int) -> DeviceProgram:
    """Square uniform costs."""
    rng = np.random.default_rng(n)
    costs = rng.random((count, n, n))
    return DeviceProgram(
        "assignment",
        f"{n} x {n}",
        proved_matching,
        [costs],
        [],
        lambda backend: assign(costs, backend=backend).value.cost,
        matching_work(n),
        True,
    )


def placement(n: int, m: int, convex: bool, count: int) -> DeviceProgram:
    """A tenth of the rows take a path where room is tight, all of them where congestion is convex."""
    rng = np.random.default_rng(n)
    costs = rng.random((count, n, m))
    work = placement_work(n, m, n if convex else 0.1 * n)
    if convex:
        steps = np.cumsum(rng.random((count, m, n)), -1) / n
        call = lambda backend: congestion_transport(costs, steps, backend=backend).value.cost
        return DeviceProgram(
            "placement, convex congestion", f"{n} x {m}", congestion_program(), [costs, steps], [], call, work, True
        )
    room = np.full((count, m), float(-(-n // m)))
    call = lambda backend: transport(costs, room, backend=backend).value.cost
    return DeviceProgram("placement, tight", f"{n} x {m}", transport_program(), [costs, room], [], call, work, True)


def index(n: int, m: int, count: int) -> DeviceProgram:
    """PoA-hat of windows. Latencies of workers differ by more than hits are worth, so that all requests want the same
    ones: the longest search has a path for each beyond the room of one worker."""
    rng = np.random.default_rng(n)
    data = rng.exponential(2.0, (count, n)), rng.integers(0, m, (count, n)).astype(np.int32), rng.random((count, n, m))
    cost = IndexCost(capacity=2.0 * n / m)
    leaves = (cost.a_s, cost.b_s, cost.d_s, cost.beta, cost.capacity)
    shared = [np.stack([np.full(m, leaf) for leaf in leaves]), np.asarray(cost.cache_s)]
    call = lambda backend: poa_index(*data, cost, backend=backend).poa_hat
    return DeviceProgram(
        "PoA-hat of windows",
        f"{n} x {m}",
        window_program(False),
        list(data),
        shared,
        call,
        window_work(n, m, n - 2.0 * n / m),
        True,
    )


def routing(rng: np.random.Generator, sizes: list[int], m: int, count: int) -> RoutingGame:
    f = np.cumsum(rng.random((count, m, sum(sizes))), -1)
    return RoutingGame(f, rng.random((count, len(sizes), m)), float(sum(sizes)) / m / 4, np.array(sizes))


def prices(sizes: list[int], m: int, count: int) -> DeviceProgram:
    """Pure equilibria and the optimum by every profile."""
    game = routing(np.random.default_rng(m), sizes, m, count)
    a, ways = game.arrays(), [splits(size, m) for size in sizes]
    profiles = int(np.prod([len(way) for way in ways]))
    work = profile_work(len(sizes), m, sum(sizes), profiles)
    call = lambda backend: price_of_anarchy(game, backend=backend).upper
    inputs = [a.f, a.cost]
    size = f"{m} workers, groups of {' and '.join(map(str, sizes))}: {profiles} profiles"
    return DeviceProgram("price of anarchy", size, every_profile_of(len(sizes)), inputs, ways, call, work)


def responses(sizes: list[int], m: int, count: int) -> DeviceProgram:
    """From greedy arrival."""
    game = routing(np.random.default_rng(m), sizes, m, count)
    a = game.arrays()
    inputs = [np.broadcast_to(array, (count, *array.shape[1:])) for array in a[:3]]
    work = response_work(len(sizes), m, sum(sizes), sum(sizes))
    call = lambda backend: best_response(game, backend=backend).value.cost_s
    size = f"{m} workers, {sum(sizes)} requests in {len(sizes)} groups"
    return DeviceProgram("best responses", size, response_program(1_000_000), inputs, [], call, work)


def logits(sizes: list[int], m: int, count: int) -> DeviceProgram:
    """The host takes one game at a time and is not called here: "cpu" is the same program."""
    game = routing(np.random.default_rng(m), sizes, m, count)
    a, groups, size = game.arrays(), len(sizes), sum(sizes)
    inputs = [np.broadcast_to(array, (count, *array.shape[1:])) for array in a[:3]]
    call = lambda backend: logit_equilibria(game, 1.0).value["mean_cost_s"]
    program = logit_program(1e-10, 20_000, 0.2)
    about = f"{m} workers, {size} requests in {groups} groups"
    return DeviceProgram(
        "logit equilibrium", about, program, [*inputs, np.ones(count)], [], call, logit_work(groups, m, size)
    )


def fluid(m: int, count: int) -> DeviceProgram:
    """Wardrop's equilibrium of affine latencies by water-filling."""
    rng = np.random.default_rng(m)
    slope, start = rng.random((2, count, m))
    solve = lambda a, b: _fluid(a, b)
    call = lambda backend: _fluid(slope, start)[0]
    return DeviceProgram("Wardrop equilibrium", f"{m} workers", solve, [slope, start], [], call, wardrop_work(m))


def _fluid(slope: Any, start: Any) -> tuple[Any, ...]:
    import jax.numpy as jnp

    most = jnp.full(slope.shape, jnp.inf)
    s = wardrop(lambda x: jnp.asarray(slope) * x + jnp.asarray(start), jnp.ones(slope.shape[0]), most)
    return s.value["loads"], s.value["level"], s.certificate["spread"], s.flags


def prefill_decode(count: int) -> DeviceProgram:
    """Games whose families prove uniqueness."""
    rng = np.random.default_rng(0)
    rates = rng.uniform(0.1, 1.0, (2, count))
    game = lambda a, b: Game(Exponential(a), Alone(Exponential(b)), 8.0)
    solve = lambda a, b: _flat(equilibrium(game(a, b)))
    call = lambda backend: equilibrium(game(*rates)).value.prefill_gpus
    return DeviceProgram("prefill/decode game", "2 players", solve, list(rates), [], call, equilibrium_work(count))


def _flat(solution: Any) -> tuple[Any, ...]:
    return tuple(jax.tree.leaves(solution))


def shared_budget(count: int) -> DeviceProgram:
    """Two quadratic players who share a budget, by the interior point: the general solver of variational equilibria."""
    rng = np.random.default_rng(1)
    slope = rng.uniform(-1.5, 0.9, count)
    call = lambda backend: variational_equilibria(_PLAYERS, _BUDGET, (0, 1), params=slope).value.x
    return DeviceProgram(
        "variational equilibrium", "2 players, 1 budget", _games, [slope], [], call, interior_work(2, 1)
    )


_PLAYERS = [lambda x, a: x[0] ** 2 + a * x[0] * x[1] - 3 * x[0], lambda x, a: x[1] ** 2 - x[1] + a * x[0] * x[1]]
_BUDGET = lambda x, a: x[0] + x[1] - 1


def _games(a: Any) -> tuple[Any, ...]:
    one = lambda a: variational_equilibrium(_PLAYERS, _BUDGET, (0, 1), params=a, unroll=True)
    return _flat(in_blocks(one, a, 512))


def event_scan(requests: int, slots: int, count: int) -> DeviceProgram:
    """`count` instances, each with a stream of its own; lanes are the last axis of the program's arrays."""
    rng = np.random.default_rng(2)
    arrival = np.cumsum(rng.exponential(0.5, (count, requests)), 1)
    output = rng.integers(2, 40, (count, requests)).astype(float)
    times = np.broadcast_to(0.01 + 0.001 * np.arange(slots + 1), (count, slots + 1))
    call = lambda backend: scan.simulate(arrival, 100.0, output, times, slots).end_s

    def program(arrival: Any, todo: Any, output: Any, times: Any, slots_of: Any) -> Any:
        return scan._serve(arrival.T, todo.T, output.T, times.T, slots_of, 1.0, 512.0, slots, 0)

    inputs = [arrival, np.ones((count, requests)), output, times, np.full(count, float(slots))]
    size = f"{requests} requests, {slots} slots"
    return DeviceProgram("instances by events", size, program, inputs, [], call, scan.scan_work(requests, slots))


def plan_points(count: int) -> DeviceProgram:
    """A plan's whole evaluation at `count` numbers of instances, through the block of `design`."""
    asked = question("llama-3.1-8b", ["h100_sxm"], catalog.workload("azure-conv", 20.0), SLO(2.0, 0.08))
    cell = jax.tree.map(lambda leaf: np.asarray(leaf)[0, 0], price(asked).cells)
    instances = np.linspace(1.0, 64.0, count)

    def program(instances: Any) -> tuple[Any, ...]:
        return _flat(jax.vmap(lambda k: evaluate(cell, k, asked.rate_rps, 1.0, asked.engine))(instances))

    one = float64(jax.jit(program))
    call = lambda backend: np.asarray(one(instances)[0])
    return DeviceProgram("points of a plan", "all outputs", program, [instances], [], call, evaluation_work())


def turn_of_fit(count: int) -> DeviceProgram:
    """One turn of the calibration's search over `count` rows: derivatives, normal equations and their factorisation.
    Its cost does not depend on the latencies, which nobody measured."""
    rng = np.random.default_rng(3)
    kinds = list(product(("meta-llama/Llama-3.1-8B", "Qwen/Qwen3-32B"), ("h100_sxm", "h200_sxm", "b200_sxm"), _ENGINES))
    table = Table()
    for i in range(count):
        model, system, backend = kinds[i % len(kinds)]
        cells = {"id": f"r{i}", "model_path": model, "system": system, "backend": backend, "precision": "fp8"}
        cells |= {"gemm_quant_mode": "fp8", "moe_quant_mode": "fp8", "pp_size": "1", "attention_dp_size": "1"}
        cells |= {"moe_tp_size": "1", "moe_ep_size": "1", "isl": "1024", "osl": "512", "tp_size": "4"}
        cells |= {"batch_size": str(int(rng.integers(1, 128)))}
        table.rows.append(replace(parse_row(cells, measured=False), ttft_s=0.5, tpot_s=0.01))
    points, kept = to_points(table)
    problem, _, _ = silicon.problem_of(points, kept.rows)
    places = descent.places_of(problem.paths, problem.scale)
    leaves, tree = jax.tree.flatten((problem, places))
    start = np.zeros(len(places.active))

    def program(_: Any, *leaves: Any) -> Any:
        problem, places = jax.tree.unflatten(tree, leaves)
        return descent.descend(problem, places, start, 0)

    one = float64(jax.jit(program))
    inputs = [problem.measured]
    call = lambda backend: np.asarray(one(*inputs, *leaves)[2])
    work = descent.turn_work(count, problem.scale.shape[1], start.size, *places.effect.shape)
    size = f"{start.size} effects of {count} rows"
    return DeviceProgram("rows of a turn of the fit", size, program, inputs, leaves, call, work)


_ENGINES = ("vllm", "sglang", "trtllm")


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
    Sized(shared_budget, 8),
    Sized(partial(event_scan, 8, 4), 8),
)

#: Also a stand-in, but it takes a plan's preparation: a quarter of a minute.
PLAN = Sized(plan_points, 64)

#: Likewise.
FIT = Sized(turn_of_fit, 16)

#: Sizes that are worth a device.
LARGE = (
    Sized(partial(matching, 8), 2**17),
    Sized(partial(matching, 32), 2**15),
    Sized(partial(matching, 64), 2**14),
    Sized(partial(matching, 128), 2**14),
    Sized(partial(matching, 256), 10_000),
    Sized(partial(matching, 512), 10_000),
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
    Sized(plan_points, 2**21),
    Sized(shared_budget, 2**16),
    Sized(partial(event_scan, 256, 64), 2**14),
    Sized(turn_of_fit, 2**13),  # a minute of compiling
)
