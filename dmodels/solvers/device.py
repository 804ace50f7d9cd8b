"""Batches on an accelerator: which devices there are, when they are worth it, and how a batch is cut to fit them.

A device program searches in float32 and proves in float64 (twice the bytes, and half the rate or less, are then paid
only for one pass over each problem); what it cannot prove is solved again on the host. So a certified answer means the
same on every backend.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dmodels.core.devices import accelerators, chosen_device
from dmodels.core.errors import InputError
from dmodels.core.numerics import power_of_two
from dmodels.core.threads import CORES

#: "auto" takes a device where JAX sees one that is worth it for the batch; "device" takes JAX's first devices, be they
#: the CPU's (how the device programs are tested where there is no accelerator).
BACKENDS = ("auto", "cpu", "device")

#: A gap above this share of the magnitudes in its balance is no proof on a device, and the problem goes to the host.
#: Float32 cannot tell apart what differs by less than 1e-7; answers within the hosts' own 1e-9 would pass for optimal.
PROVED_RTOL = 1e-12

#: Share of a device's memory that inputs and working arrays of a chunk of a batch may take; two are there at a time.
#: What waits for launches takes as long for few problems as for many, so that chunks are as large as they may be.
CHUNK_FRAC = 1 / 8
#: The same in bytes, of devices that do not say how much they have.
CHUNK_BYTES = 2**31

#: Bytes that are sent at once at most: 2 GiB went to an H200 at 29.8 GB/s in pieces of 32 MiB, at 27.3 in 8 pieces and
#: at 7.9 in one; more threads did not help. No call on a GPU has been timed with pieces yet.
PIECE_BYTES = 2**25

#: Least batch that "auto" takes to a device: below it, the launches of the longest program (some thousands at a few
#: microseconds each) outlast the host. An H200 answered 256 problems in 2.5 ms (assignment 32 x 32) and 6.5 (tight
#: placement 64 x 4), 16 cores beside it in 2.9 and 3.9.
FEWEST = 4096

#: Cores above which the host keeps matchings and placements with capacities, whose transfers outlast its loops: calls
#: on an H200 were worth 6 cores (assignment 8 x 8) to 4 (256 x 256, placements 64 x 4), before arrays were sent in
#: pieces. Convex congestion was worth 34, best responses 26, PoA-hat 16, prices of anarchy 3,700: there a device wins.
HOST_CORES = 4

Program = Callable[..., tuple[jax.Array, ...]]


def check_backend(backend: str, accepted: Sequence[str] = BACKENDS) -> None:
    """InputError unless `backend` is one of `accepted`."""
    if backend not in accepted:
        raise InputError(f"backend = {backend!r}; accepted are {', '.join(accepted)}")


def takes_device(backend: str, *batches: tuple[int, ...], host_cores: float = math.inf) -> bool:
    """Whether a batch of these leading axes, broadcast, goes to the device under this `backend`; "auto" heeds
    `core.devices.choose_device`, and stays on a host of more than `host_cores`."""
    check_backend(backend)
    if backend != "auto" or not any(batches):
        return backend == "device"
    try:
        count = math.prod(np.broadcast_shapes(*batches))
    except ValueError:
        return False  # they do not broadcast: the host says so
    least = {"auto": FEWEST if CORES <= host_cores else math.inf, "gpu": 1}.get(chosen_device(), math.inf)
    return count >= least and bool(accelerators())  # in this order: to ask for devices starts JAX's


@cache
def _spread(
    program: Program, devices: tuple[Any, ...], split: int, shared: int
) -> tuple[Callable[..., Any], NamedSharding, NamedSharding]:
    """The program on a batch split over `devices`, and how its inputs lie on them: those of problems, those of all."""
    mesh = Mesh(np.array(devices), ("batch",))
    spec, whole = PartitionSpec("batch"), PartitionSpec()  # type: ignore[no-untyped-call]
    specs = (spec,) * split + (whole,) * shared
    run = jax.shard_map(program, mesh=mesh, in_specs=specs, out_specs=spec, check_vma=False)
    return jax.jit(run), NamedSharding(mesh, spec), NamedSharding(mesh, whole)


def in_chunks(
    program: Program, arrays: Sequence[np.ndarray], problem_bytes: float, shared: Sequence[np.ndarray] = ()
) -> tuple[np.ndarray, ...]:
    """`program` over the leading axis of `arrays`, which all have, in chunks that fit the devices; on the host again.

    `program` maps batches, and after them the arrays `shared` by all problems, to a tuple of batches, and is a function
    that lives as long as the module (it is compiled once for each shape). `problem_bytes`: what one problem takes on
    the device. The last chunk is filled up with copies of its last problem, so that few shapes are compiled. A chunk is
    sent before the one before it is fetched: one call, one transfer in and one out for each.
    """
    devices = accelerators() or tuple(jax.devices("cpu"))
    count = len(arrays[0])
    size = _chunk(count, len(devices), problem_bytes, _room(devices[0]))
    parts: list[tuple[np.ndarray, ...]] = []
    waiting: tuple[int, Any] | None = None
    with jax.enable_x64(True):
        run, split, whole = _spread(program, devices, len(arrays), len(shared))
        common = [_sent(a, whole) for a in shared]
        for first in range(0, count, size):
            part = [array[first : first + size] for array in arrays]
            missing = size - len(part[0])
            if missing:
                part = [np.concatenate([a, np.broadcast_to(a[-1:], (missing, *a.shape[1:]))]) for a in part]
            sent = (size - missing, run(*(_sent(a, split) for a in part), *common))
            if waiting is not None:
                parts.append(_fetched(*waiting))
            waiting = sent
        if waiting is not None:
            parts.append(_fetched(*waiting))
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))


def _room(device: Any) -> float:
    """Bytes that a chunk may take on `device`."""
    limit = (device.memory_stats() or {}).get("bytes_limit")
    return CHUNK_FRAC * limit if limit else CHUNK_BYTES


def _chunk(count: int, devices: int, problem_bytes: float, room: float) -> int:
    """Problems per chunk: a power of two per device, as many as are there or as fit."""
    return devices * min(_fitting(room, problem_bytes), power_of_two(-(-count // devices)))


def _fitting(room: float, each: float) -> int:
    """The largest power of two of things of `each` bytes that fit, 1 at least."""
    return 1 << (max(1, int(room // max(each, 1.0))).bit_length() - 1)


def _sent(array: np.ndarray, where: NamedSharding) -> jax.Array:
    """`array` on the devices of `where`."""
    there: jax.Array
    if array.nbytes <= PIECE_BYTES:
        there = jax.device_put(array, where)
    else:
        places = where.addressable_devices_indices_map(array.shape).items()
        parts = [_in_pieces(array[at], device) for device, at in places]
        there = jax.make_array_from_single_device_arrays(array.shape, where, parts)
    return there


def _in_pieces(array: np.ndarray, device: Any) -> jax.Array:
    """`array` on one device: each piece is written to its place there while the next ones are sent."""
    rows = _fitting(PIECE_BYTES, array.nbytes / len(array))
    there = jnp.zeros(array.shape, array.dtype, device=device)
    for first in range(0, len(array), rows):
        there = _written(there, jax.device_put(array[first : first + rows], device), first)
    return there


@partial(jax.jit, donate_argnums=0)
def _written(whole: jax.Array, piece: jax.Array, first: int) -> jax.Array:
    out: jax.Array = jax.lax.dynamic_update_slice_in_dim(whole, piece, first, 0)
    return out


def _fetched(count: int, found: Sequence[jax.Array]) -> tuple[np.ndarray, ...]:
    return tuple(np.asarray(array)[:count] for array in jax.device_get(tuple(found)))


@cache
def batched(problem: Callable[..., Any], shared: int = 0, **fixed: Any) -> Program:
    """`vmap` of a program of one problem, its last `shared` arguments the same for all; one function however often."""

    def run(*args: jax.Array) -> tuple[jax.Array, ...]:
        split = len(args) - shared
        out: tuple[jax.Array, ...] = jax.vmap(partial(problem, **fixed), (0,) * split + (None,) * shared)(*args)
        return out

    return run
