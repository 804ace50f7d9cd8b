"""Sweeps: labels, units, flags, order of axes, records, lists, mistakes, recompilation, memory, resumption."""

from __future__ import annotations

import errno
import functools
import json
import os
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
import sweep_formulas as formulas

from dmodels import choice, concurrent_sequences, grid, stack, sweep, zipped
from dmodels.catalog import gpu, model
from dmodels.core import extras
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.units import UnitError
from dmodels.design.files import read, tables, write
from dmodels.design.program import program
from dmodels.design.space import blocks

MACHINES = {"small": formulas.SMALL, "large": formulas.LARGE}


def test_the_readme_example_holds_known_numbers():
    ds = sweep(
        concurrent_sequences,
        model=choice({"llama": model("llama-3.1-70b")}),
        gpu=choice({"A100": gpu("a100_80"), "MI300X": gpu("mi300x")}),
        context_tokens=grid(8192, 65536),
        tp=8,
    )
    assert dict(ds.sizes) == {"model": 1, "gpu": 2, "context_tokens": 2}
    # 80 layers x 8 heads x 2 x 128 x 2 B / 8 GPUs = 40,960 B per token and GPU
    np.testing.assert_array_equal(ds.kv_bytes_per_token, 40960.0)
    assert ds.kv_bytes_per_token.units == "B/token" and ds.context_tokens.units == "token"
    # eight times the context, an eighth of the sequences, but for rounding down
    at = ds.slots_count.sel(model="llama", gpu="MI300X")
    assert 8 * at.sel(context_tokens=65536) <= at.sel(context_tokens=8192) < 8 * at.sel(context_tokens=65536) + 8
    assert ds.attrs["formula"] == "dmodels.models.memory.concurrency.concurrent_sequences"
    assert json.loads(ds.attrs["arguments"]) == {"tp": 8}


@settings(max_examples=12)
@given(st.integers(1, 3), st.integers(1, 130), st.integers(1, 70), st.sampled_from([1, 7, 64, 1000, 2**15]))
def test_every_point_is_evaluated_once_at_its_own_place(a, b, c, block_points):
    x, y, z = (np.arange(float(n)) + 1.0 for n in (a, b, c))
    ds = sweep(place, x=grid(x), y=grid(y), z=grid(z), block_points=block_points)
    np.testing.assert_array_equal(
        ds.place.transpose("x", "y", "z"), x[:, None, None] + 1e3 * y[:, None] + 1e6 * z[None, None]
    )
    flat = [part for part in blocks(place, x=grid(x), y=grid(y), z=grid(z), block_points=block_points)]
    points = np.concatenate([part["points"] for part in flat])
    assert len(np.unique(points, axis=0)) == a * b * c == len(points)
    np.testing.assert_array_equal(np.concatenate([part["place"] for part in flat]), ds.place.values[tuple(points.T)])


def place(x, y, z):
    return x + 1e3 * y + 1e6 * z


def test_records_lists_and_fields_of_records_are_axes():
    ds = sweep(
        formulas.fleet,
        machine=choice(MACHINES),
        at=zipped({"tp": [1, 4, 9], "rate_rps": [60, 240, 540]}),
        **{"machine.price_usd_per_hour": grid(2.0, 3.0)},
    )
    assert ds.cost_usd_per_hour.dims == ("machine", "at", "machine.price_usd_per_hour")
    assert set(ds.at.coords) == {"tp", "rate_rps"}
    # the small machine serves 6, 12, 18 req/s
    np.testing.assert_array_equal(
        ds.machines_count.sel(machine="small").isel({"machine.price_usd_per_hour": 0}), [10, 20, 30]
    )
    np.testing.assert_array_equal(ds.cost_usd_per_hour.sel(machine="small"), [[20, 30], [40, 60], [60, 90]])
    rows = zipped([{"tp": 1, "machine": formulas.SMALL}, {"tp": 4, "machine": formulas.LARGE}])
    assert list(sweep(formulas.fleet, at=rows, rate_rps=60).machines_count.values) == [10, 1]
    batched = choice(stack(formulas.SMALL, formulas.LARGE), ["small", "large"])
    assert float(sweep(formulas.fleet, machine=batched, rate_rps=60.0).machines_count.sel(machine="large")) == 1


def test_text_is_read_in_the_unit_of_the_argument():
    ds = sweep(formulas.fleet, machine=formulas.SMALL, rate_rps=grid("600 req/min", "6 req/s"))
    assert list(ds.rate_rps) == [10.0, 6.0] and ds.rate_rps.units == "req/s"
    with pytest.raises(UnitError, match="ms"):
        sweep(formulas.fleet, machine=formulas.SMALL, rate_rps=grid("10 ms"))


def test_what_is_not_finite_is_flagged_and_flags_carry_their_meaning():
    ds = sweep(lambda load_frac: {"wait_s": load_frac / (1.0 - load_frac)}, load_frac=grid(0.5, 1.0))
    assert list(ds.flags) == [0, int(Flag.NONFINITE)]
    masks = dict(zip(ds.flags.flag_meanings.split(), ds.flags.flag_masks, strict=True))
    assert masks["nonfinite"] == Flag.NONFINITE and masks["no_fit"] == Flag.NO_FIT
    many = sweep(formulas.fleet, machine=formulas.SMALL, rate_rps=grid(10.0, 6e3))
    assert list(many.flags) == [0, int(Flag.NO_FIT)]


def test_new_numbers_never_compile_again():
    counted = eqx.debug.assert_max_traces(formulas.fleet, max_traces=1)
    for scale in (1.0, 2.0, 3.0):
        for count in (33, 40, 64):  # all filled up to 64
            rates = scale * np.linspace(7.0, 90.0, count)
            ds = sweep(counted, machine=choice(MACHINES), rate_rps=grid(rates), headroom_frac=0.1 * scale)
    expected = np.ceil(rates * 1.3 / 6.0)
    np.testing.assert_array_equal(ds.machines_count.sel(machine="small"), expected)


def test_of_partials_around_partials_the_outer_counts():
    """One that has a name of its own is not joined with the next by Python."""
    inner = functools.partial(lambda x, a, b, c: {"y": x}, a="inner", b="inner")
    inner.__name__ = "named"
    asked = program(functools.partial(inner, b="outer", c="outer"), {"x": grid(1.0).axis("x")}, {}, None, 16)
    assert dict(asked.layout.fixed) == {"a": "inner", "b": "outer", "c": "outer"}


def test_switches_functions_and_partials_are_part_of_the_program():
    def cost(rate_rps, law, exact, powers):
        return law(rate_rps) if exact else rate_rps * sum(2.0**k for k in range(powers))

    asked = functools.partial(cost, powers=3)
    assert float(sweep(asked, rate_rps=4.0, law=jnp.sqrt, exact=True).cost) == 2.0
    assert float(sweep(asked, rate_rps=4.0, law=jnp.sqrt, exact=False).cost) == 28.0


@pytest.mark.parametrize(
    ("given_", "says"),
    [
        ({"rat_rps": 3.0}, r"no argument \['rat_rps'\].*rate_rps"),
        ({}, r"lacks \['rate_rps'\]"),
        ({"rate_rps": grid()}, "'rate_rps' is empty"),
        ({"rate_rps": choice({})}, "'rate_rps' is empty"),
        ({"rate_rps": grid(1.0, 1.0)}, "twice"),
        ({"rate_rps": grid(float("nan"))}, "NaN"),
        ({"rate_rps": grid("many")}, "number"),
        ({"rate_rps": choice({"a": formulas.SMALL, "b": 3.0})}, "mixes"),
        ({"rate_rps": 1.0, "at": zipped({"rate_rps": [1.0]})}, "given twice"),
        ({"at": zipped({"rate_rps": [1.0], "tp": [1, 2]})}, "lengths"),
        ({"rate_rps": grid(1.0), "gpu.tdp_w": grid(1.0)}, "no argument"),
        ({"rate_rps": grid(*range(1, 5000)), "tp": grid(*range(1, 5000)), "headroom_frac": grid(*range(9999))}, "GiB"),
        ({"rate_rps": grid(1.0), "outputs": ("wait_ms",)}, "wait_s"),
        ({"rate_rps": grid(1.0), "out": "x.xlsx"}, r"\.nc, \.zarr"),
        ({"rate_rps": grid(1.0), "out": "/proc/nowhere/x.nc"}, "cannot be written"),
    ],
)
def test_mistakes_say_what_is_accepted(given_, says):
    with pytest.raises(InputError, match=says) as failure:
        sweep(formulas.fleet, machine=formulas.SMALL, **given_)
    assert "\n" not in str(failure.value)


def test_a_file_that_nobody_writes_is_refused_before_anything_is_asked_of_the_formula():
    with pytest.raises(InputError, match=r"\.nc, \.zarr"):
        sweep(lambda x: pytest.fail("the formula was asked"), x=grid(1.0), out="x.xlsx")


def test_without_the_package_of_its_answer_nothing_is_asked_of_the_formula(monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"^sweep needs xarray: pip install 'dmodels\[sweep\]'$"):
        sweep(lambda a: pytest.fail("asked"), a=grid(1, 2))


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_labelled_files_hold_the_dataset(tmp_path, suffix):
    path = tmp_path / f"sweep{suffix}"
    asked = {"machine": choice(MACHINES), "rate_rps": grid(10.0, 100.0, 6e3), "tp": grid(1, 4)}
    ds = sweep(formulas.fleet, out=path, **asked)
    xr.testing.assert_identical(ds, sweep(formulas.fleet, **asked))
    with read(path) as back:
        xr.testing.assert_equal(back, ds)
        assert back.cost_usd_per_hour.units == "USD/h" and back.attrs["formula"] == ds.attrs["formula"]
        np.testing.assert_array_equal(back.flags.flag_masks, ds.flags.flag_masks)
    write(ds.isel(tp=0), path)  # a second time over the first
    with read(path) as back:
        assert back.tp.ndim == 0
    assert [p.name for p in tmp_path.iterdir()] == [path.name]  # nothing half-done is left
    assert (path / ".zgroup").is_file() == (suffix == ".zarr")  # format 2, in which text has a settled type


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".csv"])
def test_tables_hold_a_row_per_point(tmp_path, suffix, monkeypatch):
    """Also where they are written part by part, with units where the file has a place for them."""
    import pandas as pd

    monkeypatch.setattr("dmodels.design.files.tables", functools.partial(tables, rows=5))
    ds = sweep(
        formulas.fleet,
        out=tmp_path / f"sweep{suffix}",
        machine=choice(MACHINES),
        at=zipped({"tp": [1, 4], "rate_rps": [60, 240]}),
        headroom_frac=grid(0.0, 0.2, 0.4),
    )
    read = {".parquet": pd.read_parquet, ".arrow": pd.read_feather, ".csv": pd.read_csv}[suffix]
    frame = read(tmp_path / f"sweep{suffix}")
    assert len(frame) == 12 and {"machine", "tp", "rate_rps", "headroom_frac", "flags"} <= set(frame.columns)
    for row in frame.itertuples():
        at = ds.sel(machine=row.machine, headroom_frac=row.headroom_frac).isel(at=int(row.tp == 4))
        assert float(at.wait_s) == row.wait_s and float(at.rate_rps) == row.rate_rps
    if suffix != ".csv":
        import pyarrow.ipc as ipc
        import pyarrow.parquet as pq

        file = str(tmp_path / f"sweep{suffix}")
        schema = pq.read_schema(file) if suffix == ".parquet" else ipc.open_file(file).schema
        assert schema.metadata[b"units of cost_usd_per_hour"] == b"USD/h"
        assert schema.metadata[b"units of rate_rps"] == b"req/s"  # a coordinate
    parts = list(tables(ds, rows=5))
    assert [len(part["tp"]) for part in parts] == [5, 5, 2]
    np.testing.assert_array_equal(np.concatenate([part["wait_s"] for part in parts]), frame.wait_s)


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
import numpy as np, sweep_formulas as formulas
from dmodels import choice, grid, sweep

def tick(done, of):
    if done == of // 2:
        os.kill(os.getpid(), signal.SIGKILL)

sweep(formulas.fleet, machine=choice({"small": formulas.SMALL, "large": formulas.LARGE}), block_points=64,
      rate_rps=grid(np.linspace(1, 9e3, 1000)), out=sys.argv[1], progress=tick)
"""


def test_a_killed_sweep_goes_on_where_it_stopped(tmp_path):
    path = tmp_path / "sweep.nc"
    run = subprocess.run([sys.executable, "-c", KILLED, str(path), str(Path(__file__).parent)], env=dict(os.environ))
    assert run.returncode == -signal.SIGKILL and not path.exists() and (tmp_path / "sweep.nc.parts").is_dir()
    asked = {"machine": choice(MACHINES), "rate_rps": grid(np.linspace(1, 9e3, 1000)), "block_points": 64}
    with pytest.raises(InputError, match="unfinished sweep of another"):
        sweep(formulas.fleet, out=path, **asked, tp=2.0)
    ticks = []
    ds = sweep(formulas.fleet, out=path, progress=lambda done, of: ticks.append((done, of)), **asked)
    of = ticks[0][1]
    assert of > 16 and len(ticks) <= of - of // 2 and ticks[-1] == (of, of)  # only what was missing
    xr.testing.assert_identical(ds, sweep(formulas.fleet, **asked))
    with read(path) as back:
        xr.testing.assert_equal(back, ds)
    assert not (tmp_path / "sweep.nc.parts").exists()


def test_a_full_disk_is_named_before_anything_is_computed_and_nothing_is_left(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(InputError, match=r"sweep\.nc\.parts: cannot be written \(no space left on device"):
        sweep(formulas.fleet, machine=choice(MACHINES), rate_rps=grid(1.0, 2.0), out=tmp_path / "sweep.nc")
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_died_before_its_sweep_began_is_in_nobodys_way(tmp_path):
    """Nothing says what question its files are of."""
    parts = tmp_path / "sweep.nc.parts"
    parts.mkdir()
    (parts / "done.npy").write_bytes(b"\x93NUM")
    asked = {"machine": choice(MACHINES), "rate_rps": grid(1.0, 2.0)}
    xr.testing.assert_identical(
        sweep(formulas.fleet, out=tmp_path / "sweep.nc", **asked), sweep(formulas.fleet, **asked)
    )
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.nc"]


def test_a_block_is_finished_when_all_its_numbers_are_on_disk(tmp_path, monkeypatch):
    """Told otherwise, a machine that loses power goes on with numbers that were never written."""
    found = []

    def flush(self):
        finished = int(np.load(tmp_path / "sweep.nc.parts" / "done.npy").sum())
        assert Path(self.filename).stat().st_size == self.offset + self.nbytes  # and no byte is reserved in vain
        found.append((finished, Path(self.filename).stem))

    monkeypatch.setattr(np.memmap, "flush", flush)
    rates = grid(np.linspace(1, 9e3, 100))
    ds = sweep(formulas.fleet, machine=choice(MACHINES), rate_rps=rates, block_points=64, out=tmp_path / "sweep.nc")
    count = 1 + found[-1][0]
    assert count > 2 and sorted(found) == sorted((k, str(name)) for k in range(count) for name in ds.data_vars)


def test_memory_stays_bounded_when_the_space_grows():
    """Block by block, a hundred times the points need no more memory."""

    def peak(points):
        tracemalloc.start()
        axes = {"rate_rps": grid(np.linspace(1, 9e3, points)), "tp": grid(*range(1, 101))}
        least = min(part["wait_s"].min() for part in blocks(formulas.fleet, machine=formulas.LARGE, **axes))
        reached = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert least > 0
        return reached

    peak(10)
    assert peak(10_000) < 3 * peak(100) + 8 * 2**20


def test_a_table_reads_every_variable_along_its_own_dimensions():
    """In whatever order they stand, and where some are missing."""
    rng = np.random.default_rng(0)
    ds = xr.Dataset(
        {
            "flags": (("a", "b"), np.zeros((2, 3), int)),
            "x": (("b", "a"), rng.random((3, 2))),
            "y": ("b", rng.random(3)),
        },
        {"a": [1.0, 2.0], "b": ["p", "q", "r"]},
    )
    columns = {name: np.concatenate([part[name] for part in tables(ds, rows=4)]) for name in ("a", "b", "x", "y")}
    for a, b, x, y in zip(*columns.values(), strict=True):
        at = ds.sel(a=a, b=b)
        assert (float(at.x), float(at.y)) == (x, y)
    assert len(set(zip(columns["a"], columns["b"], strict=True))) == 6
