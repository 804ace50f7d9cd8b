"""Hit-rate curves of the Mooncake trace: ours for 64 sizes at once, libCacheSim's and a dictionary's size by size.

Peers replay the trace once per size, so they are given 8 sizes and their time is per size; ours is for all 64. The
stream is block by block (peers know no requests), and hit counts must be equal. Che's approximation is compared where
its assumptions hold (Zipf streams, the trace in random order) and where they do not (the trace itself, a loop).
"""

from __future__ import annotations

import tempfile
import time
from collections import OrderedDict
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import jax
import numpy as np

from benchmarks.registry import Row, benchmark, interleaved
from dmodels.models.cache import (
    Policy,
    belady_distances,
    decay_steps,
    lru_hit_frac,
    popularity,
    previous,
    replay,
    shuffled_hit_frac,
    stack_distances,
)
from dmodels.models.traffic import read_trace

TRACE = Path(__file__).parents[3] / "shared" / "data" / "mooncake_conversation.jsonl"
SIZES = np.unique(np.round(np.geomspace(40, 182_790, 64)))
FEW = SIZES[4::8]


def curve(distances: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Hits (sizes,) by the sorted distances."""
    return np.searchsorted(np.sort(distances), sizes, side="right")


def dictionary(ids: list[int], size: float) -> int:
    """Hits of an ordered dictionary."""
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for block in ids:
        if block in cache:
            hits += 1
            cache.move_to_end(block)
        else:
            cache[block] = None
            if len(cache) > size:
                cache.popitem(last=False)
    return hits


def oracle_file(ids: np.ndarray, folder: str) -> str:
    """The stream in libCacheSim's oracleGeneral format, which tells Belady each block's next use."""
    before = previous(ids)
    rows = np.zeros(len(ids), np.dtype([("time", "<u4"), ("block", "<u8"), ("size", "<u4"), ("next", "<i8")]))
    rows["time"], rows["block"], rows["size"] = np.arange(len(ids)), ids + 1, 1
    rows["next"] = np.iinfo(np.int64).max  # never
    rows["next"][before[before >= 0]] = np.flatnonzero(before >= 0)
    path = Path(folder) / "trace.oracleGeneral"
    rows.tofile(path)
    return str(path)


def peer_hits(kind: str, path: str, size: float) -> int:
    """Hits of a policy of libCacheSim."""
    import libcachesim

    reader = libcachesim.TraceReader(
        path, libcachesim.TraceType.ORACLE_GENERAL_TRACE, libcachesim.ReaderInitParam(ignore_obj_size=True)
    )
    missed, _ = getattr(libcachesim, kind)(cache_size=int(size)).process_trace(reader)
    return round((1 - missed) * reader.get_num_of_req())


def speed(ids: np.ndarray, starts: np.ndarray, time_s: np.ndarray, path: str | None) -> list[dict]:
    """CPU-seconds of each way, and whether the answers agree."""
    listed, steps = ids.tolist(), decay_steps(time_s, 60.0)
    first = time.process_time()
    stack_distances(ids, starts)
    compiled = time.process_time() - first
    cases = {
        "LRU, requests, 64 sizes": lambda: curve(stack_distances(ids, starts), SIZES),
        "LRU, single accesses, 64 sizes": lambda: curve(stack_distances(ids), SIZES),
        "optimum, requests, 64 sizes": lambda: curve(belady_distances(ids, starts), SIZES),
        "KVBM, requests, 1 size": lambda: replay(ids, starts, FEW[3], Policy.KVBM, steps),
        "dictionary LRU, 1 size": lambda: dictionary(listed, FEW[3]),
    }
    if path is not None:
        cases["libCacheSim LRU, 1 size"] = lambda: peer_hits("LRU", path, FEW[3])
        cases["libCacheSim Belady, 1 size"] = lambda: peer_hits("Belady", path, FEW[3])
    seconds = interleaved(cases, repeats=3, clock=time.process_time)
    rows = [{"case": name, "cpu_s": value, "accesses": len(ids)} for name, value in seconds.items()]
    rows.append({"case": "first call of the LRU pass, compiling or loading included", "cpu_s": compiled})
    ours = curve(stack_distances(ids), FEW)
    assert [dictionary(listed, size) for size in FEW] == ours.tolist()
    if path is not None:
        assert [peer_hits("LRU", path, size) for size in FEW] == ours.tolist()
        best, more = curve(belady_distances(ids), FEW), curve(belady_distances(ids), FEW - 1)
        theirs = np.array([peer_hits("Belady", path, size) for size in FEW])
        assert np.all(more <= theirs) and np.all(theirs <= best), (more, theirs, best)
    return rows


def accuracy(ids: np.ndarray, starts: np.ndarray) -> list[dict]:
    """Largest error of Che's approximation over 64 sizes, in points."""
    rng, rows = np.random.default_rng(0), []
    with jax.enable_x64(True):
        steady, shuffled = jax.jit(lru_hit_frac), jax.jit(shuffled_hit_frac)
        for exponent in (0.6, 0.8, 1.0, 1.2):
            rate = np.arange(1.0, 20_001) ** -exponent
            rate /= rate.sum()
            stream, sizes = rng.choice(20_000, 1_000_000, p=rate), np.unique(np.round(np.geomspace(1, 19_999, 64)))
            exact = curve(stack_distances(stream)[500_000:], sizes) / 500_000
            error = np.abs(exact - steady(sizes, rate, np.ones(20_000))).max()
            rows.append({"case": f"Zipf {exponent}, steady state", "holds": True, "points": 100 * error})
        uses, count = popularity(ids)
        closed = np.asarray(shuffled(SIZES, uses, count))
        parts = np.array_split(np.arange(len(starts) - 1), len(starts) - 1)
        order = rng.permutation(len(parts))
        mixed = np.concatenate([ids[starts[i] : starts[i + 1]] for i in order])
        cuts = np.concatenate([[0], np.cumsum(np.diff(starts)[order])])
        for name, holds, distances, model in (
            ("Mooncake, accesses in random order, finite form", True, stack_distances(rng.permutation(ids)), closed),
            ("Mooncake, requests in random order, finite form", False, stack_distances(mixed, cuts), closed),
            ("Mooncake as it is, finite form", False, stack_distances(ids, starts), closed),
            ("Mooncake as it is, steady state", False, stack_distances(ids, starts), steady(SIZES, uses, count)),
        ):
            error = np.abs(curve(distances, SIZES) / len(ids) - model).max()
            rows.append({"case": name, "holds": holds, "points": 100 * float(error)})
        loop = stack_distances(np.tile(np.arange(1_000), 50))[10_000:]
        sizes = np.round(np.geomspace(1, 999, 64))
        error = np.abs(curve(loop, sizes) / len(loop) - steady(sizes, np.ones(1), np.array([1_000.0]))).max()
        rows.append({"case": "a loop over 1,000 blocks", "holds": False, "points": 100 * float(error)})
    return rows


@benchmark("libcachesim")
def hit_rate(quick: bool) -> Iterator[Row]:
    """Hit-rate curves of the Mooncake trace: ours for 64 sizes at once, libCacheSim's and a dictionary's one by one."""
    trace = read_trace(TRACE)
    ids = np.unique(trace.block_ids, return_inverse=True)[1].reshape(-1)
    starts, time_s = trace.block_starts, trace.time_s
    if quick:
        starts, time_s = starts[:501], time_s[:500]
        ids = ids[: starts[-1]]
    with tempfile.TemporaryDirectory() as folder:
        path = oracle_file(ids, folder) if find_spec("libcachesim") else None
        yield from speed(ids, starts, time_s, path)
    yield from accuracy(ids, starts)
