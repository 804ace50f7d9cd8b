"""What a device program should reach on paper: a roofline.

Each program's module has a function that counts its `DeviceWork`; `benchmarks gpu` reads it beside the measurement. All
were counted before any had run. Of 16 cases that an H200 then ran, those of two programs were corrected (rounds that
prove a matching, paths of a window). All come within a factor of 5 now, either way: launches in loops of plain
arithmetic take 1 to 4 us, and programs that place rows wait 3 to 5 times as long as is counted.
"""

from __future__ import annotations

from typing import NamedTuple


class Accelerator(NamedTuple):
    """A GPU by its data sheet; FLOPs of the vector units, no tensor cores."""

    name: str
    multiprocessors: int
    bytes_per_s: float
    flop64_per_s: float
    flop32_per_s: float
    clock_hz: float


#: NVIDIA's data sheets of the SXM boards.
ACCELERATORS = (
    Accelerator("H200", 132, 4.8e12, 34e12, 67e12, 1.8e9),
    Accelerator("H100", 132, 3.35e12, 34e12, 67e12, 1.8e9),
)

#: Shares of the data sheet that loops like these are given: streams of memory, and arithmetic with its comparisons.
MEMORY_FRAC, ARITHMETIC_FRAC = 0.8, 1 / 3
#: One kernel launch that the whole batch waits for.
LAUNCH_S = 5e-6
#: Registers, warps and blocks of a multiprocessor (compute capability 8.0 to 10.0).
REGISTERS, WARPS, BLOCKS, LANES = 65_536, 64, 32, 32


class DeviceWork(NamedTuple):
    """What a program does for one problem, and what the whole batch waits for.

    device_bytes    read from and written to device memory
    flop64, flop32  operations in either precision, comparisons and selections among them
    launches        kernels that run one after another, however large the batch
    registers       of a thread of the widest kernel, by the assembler for sm_90 (benchmarks/results/gpu_compile.jsonl)
    warps           that one problem keeps to itself (0: kernels spread problems over threads one by one)
    chain_cycles    of those warps, from the first to the last of its steps
    """

    device_bytes: float
    flop64: float = 0.0
    flop32: float = 0.0
    launches: float = 1.0
    registers: int = 64
    warps: int = 0
    chain_cycles: float = 0.0


class Expected(NamedTuple):
    """Problems per second, the share of the warps of a multiprocessor that fit, and what binds."""

    per_s: float
    occupancy_frac: float
    bound: str


def resident_warps(work: DeviceWork) -> int:
    """Warps that fit a multiprocessor: by registers, given out in eights, and for kernels of few warps by blocks."""
    by_registers = REGISTERS // (LANES * 8 * -(-work.registers // 8))
    fits = min(WARPS, by_registers)
    if not work.warps:
        return fits
    return work.warps * min(BLOCKS, fits // work.warps)


def expected(work: DeviceWork, count: int, gpu: Accelerator) -> Expected:
    """The rate of a batch of `count` whose data is on the device: the slowest of what it needs, and its launches."""
    warps = resident_warps(work)
    needs = {
        "memory": work.device_bytes / (MEMORY_FRAC * gpu.bytes_per_s),
        "arithmetic": work.flop64 / (ARITHMETIC_FRAC * gpu.flop64_per_s)
        + work.flop32 / (ARITHMETIC_FRAC * gpu.flop32_per_s),
    }
    if work.warps:
        at_once = min(count, gpu.multiprocessors * (warps // work.warps))
        needs["latency"] = work.chain_cycles / gpu.clock_hz / at_once
    bound = max(needs, key=lambda name: needs[name])
    waits = work.launches * LAUNCH_S / count
    seconds = needs[bound] + waits
    return Expected(1.0 / seconds, warps / WARPS, bound if needs[bound] >= waits else "launches")
