"""One sweep on threads, eight devices, two processes, and a Dask cluster that loses a worker: the same bits."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

sys.path.insert(0, str(Path(__file__).parent))
import sweep_formulas as formulas

from dmodels import choice, grid, sweep
from dmodels.core.errors import InputError
from dmodels.design.files import read

ASKED = {
    "machine": choice({"small": formulas.SMALL, "large": formulas.LARGE}),
    "rate_rps": grid(np.linspace(1, 9e3, 700)),
    "tp": grid(1, 2, 3, 4, 5),
    "block_points": 256,
}

SCRIPT = """
import sys
sys.path.insert(0, sys.argv[2])
import jax
{before}
import test_distribute as here
from dmodels import sweep
{during}
ds = sweep(here.formulas.fleet, devices=jax.devices(), out=sys.argv[1], **here.ASKED)
mine = sweep(here.formulas.fleet, **here.ASKED)
print(len(jax.devices()), int(ds.flags.size), ds.identical(mine))
"""


def run(tmp_path, name, before="", xla="", during="", **env) -> subprocess.Popen:
    flags = f"{xla} {os.environ.get('XLA_FLAGS', '')}".strip()  # XLA reads no flag behind a word without dashes
    script = SCRIPT.format(before=before, during=during)
    return subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / name), str(Path(__file__).parent)],
        env={**os.environ, "XLA_FLAGS": flags, **env},
        stdout=subprocess.PIPE,
        text=True,
    )


def same_as_here(path: Path) -> None:
    """Equal to the last bit to a sweep on this process's threads, which is right (see test_space)."""
    with read(path) as found:
        xr.testing.assert_identical(found.load(), sweep(formulas.fleet, **ASKED))


def test_eight_devices_give_the_same_bits(tmp_path):
    process = run(tmp_path, "eight.nc", xla="--xla_force_host_platform_device_count=8")
    told, _ = process.communicate(timeout=300)
    assert process.returncode == 0 and told.split() == ["8", "7000", "True"]
    same_as_here(tmp_path / "eight.nc")


@pytest.mark.slow
def test_two_processes_give_the_same_bits_also_after_a_stop(tmp_path):
    """The first run of both stops half-way; the second goes on, and both processes have all the numbers."""
    stop = """
def tick(done, of):
    if done == of // 2:
        raise SystemExit
try:
    sweep(here.formulas.fleet, devices=jax.devices(), out=sys.argv[1], progress=tick, **here.ASKED)
except SystemExit:
    pass
"""
    told = together(tmp_path, stop)
    for lines in told:
        assert lines[-1].split() == ["2", "7000", "True"]
    same_as_here(tmp_path / "0.nc")
    assert not (tmp_path / "1.nc").exists()  # only the first process writes


def together(tmp_path, during) -> list[list[str]]:
    """What each of two processes printed."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    join = "jax.distributed.initialize('localhost:{}', 2, {})"
    both = [run(tmp_path, f"{i}.nc", join.format(port, i), during=during) for i in range(2)]
    told = [process.communicate(timeout=300)[0].splitlines() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    return told


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_loses_nothing(tmp_path):
    from distributed import Client, LocalCluster

    seen, killed = [], []
    with LocalCluster(2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        with Client(cluster) as client:

            def tick(done, of):
                seen.append((done, of))
                if done == of // 4:
                    worker = next(iter(cluster.workers.values()))
                    killed.append(worker.pid)
                    os.kill(worker.pid, 9)

            ds = sweep(formulas.fleet, client=client, progress=tick, out=tmp_path / "cluster.nc", **ASKED)
    assert killed and seen == [(i + 1, seen[0][1]) for i in range(seen[0][1])]  # each block once
    xr.testing.assert_identical(ds, sweep(formulas.fleet, **ASKED))
    same_as_here(tmp_path / "cluster.nc")


def test_a_block_that_fails_is_an_error_and_not_a_hole():
    def broken(rate_rps):
        raise InputError("rate_rps: accepted is another one")

    with pytest.raises(InputError, match="another one"):
        sweep(broken, rate_rps=grid(1, 2))
