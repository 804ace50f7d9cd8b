"""DeviceWork on paper: what the data sheet and the multiprocessor's limits say of plain cases."""

from __future__ import annotations

import pytest

from dmodels.solvers.assignment.device import matching_work
from dmodels.solvers.roofline import ACCELERATORS, LAUNCH_S, DeviceWork, expected, resident_warps

H200, H100 = ACCELERATORS


@pytest.mark.parametrize(
    ("registers", "warps", "resident"),
    [(32, 0, 64), (64, 0, 32), (65, 0, 28), (128, 0, 16), (255, 0, 8), (32, 1, 32), (128, 1, 16), (128, 2, 16)],
)
def test_warps_that_fit_a_multiprocessor(registers, warps, resident):
    """NVIDIA's occupancy table: 65,536 registers in eights of a thread, 64 warps, 32 blocks."""
    assert resident_warps(DeviceWork(1.0, registers=registers, warps=warps)) == resident


def test_memory_binds_by_the_bandwidth_and_small_batches_by_launches():
    stream = DeviceWork(8e6, flop64=10.0)
    on = [expected(stream, 10**9, gpu) for gpu in ACCELERATORS]
    assert on[0].per_s / on[1].per_s == pytest.approx(4.8 / 3.35, rel=1e-3) and on[0].bound == "memory"
    one = expected(DeviceWork(8.0, launches=100), 1, H200)
    assert one.bound == "launches" and one.per_s == pytest.approx(1 / (100 * LAUNCH_S), rel=1e-3)
    assert expected(DeviceWork(8.0, flop64=1e9), 10**9, H100).bound == "arithmetic"


def test_the_kernels_latency_is_hidden_by_as_many_problems_as_fit():
    """One problem alone takes its chain; a full device takes as many at a time as warps fit."""
    work = matching_work(8)._replace(device_bytes=0.0, launches=0.0)
    alone, full = (expected(work, count, H200) for count in (1, 10**6))
    assert full.per_s / alone.per_s == pytest.approx(132 * resident_warps(work))
