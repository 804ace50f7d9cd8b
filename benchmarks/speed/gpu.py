"""All device programs on one accelerator, beside the host and beside what paper says; and what they compile to.

`python -m benchmarks gpu` takes one device that JAX sees, below eight minutes, and writes one file; with `--quick` it
runs small batches on whatever device there is, the CPU included, and writes nothing. `python -m benchmarks gpu_compile`
needs no device, but CUDA's compiler.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.registry import Row, benchmark, interleaved
from benchmarks.speed import _ahead_of_time, _device_programs
from benchmarks.speed._assignment_peers import assignment_peers
from benchmarks.speed._device_programs import DeviceProgram, Sized
from dmodels.core.devices import accelerators
from dmodels.core.threads import CORES
from dmodels.games.anarchy.index_device import log_window_sums
from dmodels.solvers import assign, transport
from dmodels.solvers.roofline import ACCELERATORS, expected

#: No case is begun later than this after the first, so that all of it stays below eight minutes.
LAST_START_S = 400.0
#: Seconds of problems that peers are given, reckoned from the host's rate on one core, as most of them use one.
PEER_S = 0.1
#: The host is given this part of a batch; all of it where that takes less than HOST_S, of which waking cores is a part.
HOST_SHARE, HOST_S = 16, 0.1


def program_row(sized: Sized, repeats: int) -> Row:
    """Rates of the program alone (data on the device), of a user's call, of the host and of the best peer there is;
    the share proved; and what paper says."""
    import jax

    host_per_s = on_host(few := sized.make(host_batch(sized)))
    case = sized.make(sized.most)
    if few.count < min(case.count, HOST_S * host_per_s):
        host_per_s = on_host(case)
    with jax.enable_x64(True):
        arrays = [jax.device_put(a) for a in (*case.inputs, *case.shared)]
        start = time.perf_counter()
        made = jax.jit(case.program).lower(*arrays).compile()
        compile_s = time.perf_counter() - start
        run = lambda: jax.block_until_ready(made(*arrays))
        out = run()
        took = interleaved({"program": run, "call": lambda: case.call("device")}, repeats)
    rate, kind = case.count / took["program"], jax.devices()[0].device_kind
    papers = {gpu.name: expected(case.work, case.count, gpu) for gpu in ACCELERATORS}
    mine = next((said for name, said in papers.items() if name in kind), None)
    return {
        "case": case.name,
        "size": case.size,
        "batch": case.count,
        "device_kind": kind,
        "compile_s": compile_s,
        "program_per_s": rate,
        "call_per_s": case.count / took["call"],
        "host_per_s": host_per_s,
        "peer_per_s": peer_rate(case, host_per_s),
        "proved_frac": float(np.mean(np.asarray(out[-1]))) if case.proves else None,
        **{f"{name.lower()}_on_paper_per_s": said.per_s for name, said in papers.items()},
        "occupancy_on_paper": papers["H200"].occupancy_frac,
        "bound_on_paper": papers["H200"].bound,
        "of_paper": rate / mine.per_s if mine else None,
    }


def host_batch(sized: Sized) -> int:
    """Problems that the host is given: its rate shows with fewer, and it is checked with these."""
    return min(sized.most, max(sized.most // HOST_SHARE, 64))


def on_host(case: DeviceProgram) -> float:
    """Problems a second of the CPU, whose answers the device's have to be. What is one JAX program for both is put on
    the CPU here."""
    import jax

    took = math.inf
    with jax.default_device(jax.devices("cpu")[0]):
        for _ in range(2):  # the first compiles
            start = time.perf_counter()
            known = case.call("cpu")
            took = min(took, time.perf_counter() - start)
    np.testing.assert_allclose(case.call("device"), known, rtol=1e-9)
    return case.count / took


def peer_rate(case: DeviceProgram, host_per_s: float) -> float | None:
    """Problems a second of the fastest peer on this CPU; None for what has no peer here."""
    import jax

    if case.name != "assignment":
        return None
    few = case.inputs[0][: max(1, int(PEER_S * host_per_s / CORES))]
    with jax.default_device(jax.devices("cpu")[0]):  # one of them is a JAX program
        took = interleaved({name: lambda p=peer: p(few) for name, peer in assignment_peers(CORES).items()}, 1)
    return len(few) / min(took.values())


def transfer_row(count: int) -> Row:
    """GB/s of `count` float64 to the device, in one piece and in many of the same size, and back."""
    import jax

    numbers = np.ones(count)
    ways = {"whole": 1, "split8": 8, "split64": 64}
    sent = lambda pieces: jax.block_until_ready([jax.device_put(a) for a in np.split(numbers, pieces)])
    with jax.enable_x64(True):
        there = jax.block_until_ready(jax.device_put(numbers))
        runs: dict[str, Callable[[], Any]] = {name: lambda n=n: sent(n) for name, n in ways.items()}
        runs["get"] = lambda: np.asarray(there + 0.0)  # what was fetched once is kept
        took = interleaved(runs, 3)
    size = f"{numbers.nbytes / 2**30:.3g} GiB of float64"
    rates = {f"{name}_gb_per_s": numbers.nbytes / 1e9 / seconds for name, seconds in took.items()}
    return {"case": "transfer to the device", "size": size, **rates}


def log_row(windows: int, n: int, m: int) -> Row:
    """The sums of every window of a log, a step of one request apart, which the device cuts itself."""
    rng = np.random.default_rng(0)
    count = windows + n - 1
    log = rng.exponential(2.0, count), rng.integers(0, m, count), rng.random((count, m))
    curve = np.array([[0.005], [0.02], [0.01], [2.0], [2.0 * n / m]]) * np.ones(m)
    run = lambda starts: log_window_sums(starts, log, n, curve, 0.015, False)
    run(np.arange(windows))  # compile
    start = time.perf_counter()
    sums = run(np.arange(windows))
    took = time.perf_counter() - start
    return {
        "case": "PoA-hat of the windows of a log",
        "size": f"{n} x {m}",
        "batch": windows,
        "seconds": took,
        "proved_frac": float(sums.proved.mean()),
    }


def switch_rows(counts: list[int]) -> Iterator[Row]:
    """Seconds of a call on either backend by the size of the batch: where `solvers.device.FEWEST` belongs."""
    rng = np.random.default_rng(0)
    for count in counts:
        square, wide = rng.random((count, 32, 32)), rng.random((count, 64, 4))
        room = np.full((count, 4), 16.0)
        calls: dict[str, Callable[[str], Any]] = {
            "assignment 32 x 32": lambda backend, c=square: assign(c, backend=backend),
            "placement, tight 64 x 4": lambda backend, c=wide, r=room: transport(c, r, backend=backend),
        }
        for name, call in calls.items():
            took = interleaved({b: lambda b=b, call=call: call(b) for b in ("device", "cpu")}, 3)
            yield {"case": "switch", "size": name, "batch": count, "device_s": took["device"], "host_s": took["cpu"]}


@benchmark()
def gpu(quick: bool) -> Iterator[Row]:
    """Every device program: problems per second on an accelerator, beside the host and the estimate on paper."""
    if not quick and not accelerators():
        raise SystemExit("gpu needs an accelerator that JAX sees; --quick runs small batches on the CPU")
    begun, left_out = time.monotonic(), []
    programs = (
        (*_device_programs.SMALL, _device_programs.PLAN, _device_programs.FIT) if quick else _device_programs.LARGE
    )
    cases: list[Callable[[], Iterator[Row]]] = [
        lambda: iter([transfer_row(2**16 if quick else 2**28)]),
        lambda: iter([log_row(*((100, 16, 3) if quick else (10**6, 512, 8)))]),
        *(lambda sized=sized: iter([program_row(sized, 1 if quick else 3)]) for sized in programs),
        lambda: switch_rows([8] if quick else [2**k for k in range(8, 16, 2)]),
    ]
    for number, case in enumerate(cases):
        if time.monotonic() - begun > LAST_START_S:
            left_out.append(number)
            continue
        yield from case()
    yield {"case": "all", "seconds": time.monotonic() - begun, "left_out": left_out}


@benchmark("jax-cuda12-plugin", "nvidia-cuda-nvcc-cu12")
def gpu_compile(quick: bool) -> Iterator[Row]:
    """Every device program compiled for A100, H200 and B200 without a device: registers, spills, temporary memory."""
    if reason := _ahead_of_time.why_not():
        raise SystemExit(f"gpu_compile: {reason}")
    for sized in _device_programs.SMALL[:1] if quick else _device_programs.LARGE:
        case: DeviceProgram = sized.make(1024)
        for target in _ahead_of_time.TARGETS:
            start = time.perf_counter()
            made = _ahead_of_time.compile_for(case.program, [*case.inputs, *case.shared], target)
            row = {"case": case.name, "size": case.size, "batch": 1024, "target": target}
            yield {**row, "compile_s": time.perf_counter() - start, **made._asdict()}
