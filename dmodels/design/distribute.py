"""Who evaluates the blocks of a sweep: threads, devices of a mesh, processes of a JAX cluster, workers of a Dask one.

Every way evaluates the same blocks of the same fixed shape with the same program, so the numbers agree bit for bit
(on processors of one kind). Each is a generator of (block, outputs on the host), in any order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from functools import lru_cache
from itertools import islice

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dmodels.core.records import float64

from .program import Layout, Program, arguments, block, compiled, cut, evaluate

Done = Iterator[tuple[int, dict[str, np.ndarray]]]


def by_threads(asked: Program, todo: Sequence[int], threads: int | None = None) -> Done:
    """Blocks on the default device; a compiled block runs outside the interpreter lock, on one core."""
    compiled(asked)
    count = min(threads or os.cpu_count() or 1, max(1, len(todo)))
    with ThreadPoolExecutor(count) as pool:
        yield from _pooled(lambda number: pool.submit(evaluate, asked, number), todo, 2 * count)


@float64
def by_devices(asked: Program, todo: Sequence[int], devices: Sequence) -> Done:
    """One block per device at a time, over a mesh of `devices`; these may belong to several processes.

    With several processes (`jax.distributed.initialize`) every process makes the same call and gets all the numbers.
    """
    mesh = Mesh(np.array(devices), ("block",))
    split, whole = NamedSharding(mesh, PartitionSpec("block")), NamedSharding(mesh, PartitionSpec())
    sizes = np.array(asked.sizes, np.int64)
    data = jax.tree.map(lambda leaf: _placed(leaf, whole), (sizes, asked.tables, asked.constants))
    step = _over_mesh(asked.function, asked.layout, mesh)
    for start in range(0, len(todo), len(devices)):
        numbers = list(todo[start : start + len(devices)])
        padded = numbers + [numbers[-1]] * (len(devices) - len(numbers))
        corners = np.stack([arguments(asked, asked.window(number))[0] for number in padded])
        found = step(_placed(corners, split), *data)
        if jax.process_count() > 1:
            from jax.experimental.multihost_utils import process_allgather

            found = process_allgather(found, tiled=True)
        host = {name: np.asarray(value) for name, value in found.items()}
        for place, number in enumerate(numbers):
            yield number, cut(asked.window(number), {name: value[place] for name, value in host.items()})


def by_cluster(asked: Program, todo: Sequence[int], client, block_group: int = 4) -> Done:
    """Groups of blocks as tasks on a Dask cluster. A lost worker's tasks are run again elsewhere.

    The program is sent once per worker. Only a few groups per thread are under way, so memory stays bounded.
    """
    from distributed import as_completed

    sent = client.scatter(asked, broadcast=True, hash=False)
    groups = [tuple(todo[i : i + block_group]) for i in range(0, len(todo), block_group)]
    waiting = iter(groups)
    threads = max(1, sum(client.nthreads().values()))

    def submit(group):
        return client.submit(_group, sent, group, pure=False, retries=3)

    first = [submit(group) for group in islice(waiting, 4 * threads)]
    flow = as_completed(first)
    for future in flow:
        yield from future.result()
        future.release()
        following = next(waiting, None)
        if following is not None:
            flow.add(submit(following))


def _group(asked: Program, numbers: Sequence[int]) -> list[tuple[int, dict[str, np.ndarray]]]:
    return [(number, evaluate(asked, number)) for number in numbers]


def _pooled(submit: Callable, todo: Sequence[int], ahead: int) -> Done:
    """At most `ahead` futures at a time, in the order in which they finish."""
    waiting = iter(todo)
    running = {submit(number): number for number in islice(waiting, ahead)}
    try:
        while running:
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                number = running.pop(future)
                following = next(waiting, None)
                if following is not None:
                    running[submit(following)] = following
                yield number, future.result()
    finally:
        for future in running:
            future.cancel()


@lru_cache
def _over_mesh(function: Callable, layout: Layout, mesh: Mesh) -> Callable:
    """The compiled block on every device of a mesh, each at its own corner; one program per (formula, layout, mesh)."""
    split, whole = PartitionSpec("block"), PartitionSpec()

    def one(corners, sizes, tables, constants):
        found = block.__wrapped__(function, layout, corners[0], sizes, tables, constants)
        return jax.tree.map(lambda leaf: leaf[None], found)

    mapped = jax.shard_map(one, mesh=mesh, in_specs=(split, whole, whole, whole), out_specs=split, check_vma=False)
    return jax.jit(mapped)


def _placed(value, sharding: NamedSharding):
    """A host array on a mesh; every process holds the same array and places its own part."""
    value = np.asarray(value)
    return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])
