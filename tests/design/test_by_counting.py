"""What a sweep holds, tells and writes, by counting its points, bytes and blocks."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from dmodels import grid, sweep
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.design import distribute
from dmodels.design.axes import choice, zipped
from dmodels.design.files import read, tables
from dmodels.design.optimize import minimize
from dmodels.design.program import program
from dmodels.design.space import blocks


def area(wide, high):
    return {"area": wide * high, "round": wide + high}


SIDES = {"wide": grid(np.arange(1.0, 41.0)), "high": grid(np.arange(1.0, 26.0))}


def test_a_result_of_so_many_bytes_is_held_and_one_more_is_not():
    """1,000 points of two numbers of 8 bytes and flags of 4; one output fewer is as many bytes fewer."""
    for outputs, each in ((None, 20), (("area",), 12)):
        assert sweep(area, outputs=outputs, memory_bytes=1000 * each, **SIDES).flags.size == 1000
        with pytest.raises(InputError, match=r"wide 40 x high 25 points with (2|3) outputs holds 0.0 GiB"):
            sweep(area, outputs=outputs, memory_bytes=1000 * each - 1, **SIDES)
    with pytest.raises(InputError, match=r"holds 186.3 GiB, more than 4.0 GiB"):
        sweep(lambda a, b: a + b, a=grid(np.arange(1e5)), b=grid(np.arange(166_667.0)))


def test_progress_counts_every_block_once(tmp_path):
    seen = []
    tick = lambda done, of: seen.append((done, of))
    sweep(area, block_points=64, progress=tick, **SIDES)
    count = seen[0][1]
    assert seen == [(k, count) for k in range(1, count + 1)] and count > 10

    def stop(done, of):
        if done == 7:
            raise KeyboardInterrupt

    out = tmp_path / "sides.nc"
    with pytest.raises(KeyboardInterrupt):
        sweep(area, block_points=64, progress=stop, threads=1, out=out, **SIDES)
    seen.clear()
    sweep(area, block_points=64, progress=tick, threads=1, out=out, **SIDES)
    assert seen == [(k, count) for k in range(8, count + 1)]
    assert [path.name for path in tmp_path.iterdir()] == ["sides.nc"]
    with read(out) as found:
        xr.testing.assert_equal(found.load(), sweep(area, **SIDES))


def test_only_the_same_question_goes_on_with_an_unfinished_sweep(tmp_path, monkeypatch):
    def stop(done, of):
        raise KeyboardInterrupt

    rows = lambda *x: zipped({"x": list(x)})
    asked = {"row": rows(0.0, 1.0, 1.0), "y": grid(1.0, 2.0), "by": 2.0, "block_points": 2}
    formula = lambda x, y, by: x + y * by
    ask = lambda **other: sweep(formula, threads=1, out=tmp_path / "some.nc", **asked | other)
    with pytest.raises(KeyboardInterrupt):
        ask(progress=stop)
    others = {"by": 3.0}, {"y": grid(1.0, 3.0)}, {"row": rows(0.0, 1.0, 1.0, 1.0)}, {"row": rows(0.0, 1.0, 2.0)}
    for other in (*others, {"y": grid(1.0)}, {"block_points": 64}):
        with pytest.raises(InputError, match="unfinished sweep of another"):
            ask(**other)
    with monkeypatch.context() as change, pytest.raises(InputError, match="or other versions"):
        change.setattr(jax, "__version__", "0.0")
        ask()
    seen = []
    found = ask(progress=lambda done, of: seen.append(done))
    assert seen[0] == 2 and found.to_array().values.tolist() == sweep(formula, **asked).to_array().values.tolist()


def test_a_thread_for_each_core_and_no_more_than_blocks(monkeypatch):
    asked = []

    class Pool(distribute.ThreadPoolExecutor):
        def __init__(self, count):
            asked.append(count)
            super().__init__(count)

    monkeypatch.setattr(distribute, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(distribute.os, "cpu_count", lambda: 3)
    for threads, points in ((None, 64), (2, 64), (None, 2**15)):
        sweep(area, block_points=points, threads=threads, **SIDES)
    monkeypatch.setattr(distribute.os, "cpu_count", lambda: None)  # where nobody knows
    sweep(area, block_points=64, **SIDES)
    assert asked == [3, 2, 1, 1]


def test_two_blocks_for_each_thread_are_under_way(monkeypatch):
    """And one in the place of the first that is done, before anybody asks for the next."""
    sent = []

    class Pool(distribute.ThreadPoolExecutor):
        def submit(self, *asked):
            sent.append(asked)
            return super().submit(*asked)

    monkeypatch.setattr(distribute, "ThreadPoolExecutor", Pool)
    axes = {"x": grid(np.arange(5000.0)).axis("x")}
    asked = program(lambda x: {"y": x * x}, axes, {}, None, 16)
    for threads in (1, 3):
        sent.clear()
        done = distribute.by_threads(asked, range(200), threads)
        next(done)
        assert len(sent) == 2 * threads + 1
        done.close()


def test_outputs_asked_for_come_with_their_flags():
    found = sweep(area, outputs=("area",), **SIDES)
    assert set(found.data_vars) == {"area", "flags"} and found.attrs["title"] == ""
    with pytest.raises(InputError, match="area"):
        sweep(area, outputs=("aera",), **SIDES)


def test_a_space_without_axes_is_one_point():
    one = sweep(area, wide=2.0, high=3.0)
    assert one.area.dims == () and (float(one.area), float(one["round"])) == (6.0, 5.0)
    (part,) = blocks(area, wide=2.0, high=3.0)
    assert part["points"].shape == (1, 0) and part["area"].tolist() == [6.0]


@pytest.mark.parametrize("process", [0, 1])
def test_of_several_processes_the_first_writes_and_all_have_the_numbers(process, tmp_path, monkeypatch):
    import jax.experimental.multihost_utils as several

    gathered = []
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(jax, "process_index", lambda: process)
    monkeypatch.setattr(several, "broadcast_one_to_all", lambda value: value)
    monkeypatch.setattr(several, "process_allgather", lambda found, tiled: gathered.append(tiled) or found)
    out = tmp_path / "sides.nc"
    found = sweep(area, devices=jax.devices()[:1], block_points=256, out=out, **SIDES)
    assert out.exists() == (process == 0) and gathered and all(gathered)
    assert found.area.values.tolist() == [[w * h for h in range(1, 26)] for w in range(1, 41)]


def test_outputs_of_several_numbers_have_an_axis_of_their_own(tmp_path):
    several = lambda x, y: {"part": x * jnp.array([1.0, 2.0, 3.0]) + y, "whole": x + y}
    x, y = np.array([1.0, 2.0, 5.0]), np.array([0.0, 10.0])
    expected = x[:, None, None] * np.array([1.0, 2.0, 3.0]) + y[:, None]
    for out in (None, tmp_path / "several.nc"):
        found = sweep(several, out=out, x=grid(x), y=grid(y))
        assert found.part.dims == ("x", "y", "part_0") and found.part.values.tolist() == expected.tolist()
        assert found.whole.values.tolist() == (x[:, None] + y).tolist()
    for part in blocks(several, x=grid(x), y=grid(y)):
        assert part["part"].tolist() == expected[tuple(part["points"].T)].tolist()
    with pytest.raises(InputError, match=r"x 3 x y 2 points with 3 outputs holds"):  # 3 + 1 numbers and a flag
        sweep(several, memory_bytes=6 * (4 * 8 + 4) - 1, x=grid(x), y=grid(y))


@pytest.mark.parametrize("rows", [1, 7, 1000, 5000])
def test_a_table_is_every_point_in_order_in_parts(rows):
    found = sweep(area, **SIDES)
    parts = list(tables(found, rows))
    assert [len(part["area"]) for part in parts[:-1]] == [rows] * (len(parts) - 1) and len(parts) == -(-1000 // rows)
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    assert list(whole)[:2] == ["wide", "high"]  # what is given before what is found
    every = list(itertools.product(range(1, 41), range(1, 26)))
    assert whole["wide"].tolist() == [w for w, _ in every] and whole["high"].tolist() == [h for _, h in every]
    assert whole["area"].tolist() == [w * h for w, h in every]


def test_a_million_points_are_a_table_of_some_megabytes_at_a_time():
    many = xr.Dataset({"flags": ("x", np.zeros(10**6, np.int32))}, {"x": np.arange(1e6)})
    held = [sum(column.nbytes for column in part.values()) for part in tables(many)]
    assert sum(held) == 12 * 10**6 and 1e6 < max(held) < 4e6


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow"])
def test_files_of_rows_hold_the_points_and_say_what_they_are(suffix, tmp_path):
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    def cost(gpus_count, price_usd_per_hour):
        """What GPUs cost."""
        return {"cost_usd_per_hour": gpus_count * price_usd_per_hour}

    path = tmp_path / f"cost{suffix}"
    found = sweep(cost, out=path, gpus_count=grid(1, 2), price_usd_per_hour=2.5)
    if suffix == ".csv":
        lines = path.read_text().splitlines()
        head = lines[0].split(",")
        assert [dict(zip(head, line.split(","), strict=True))["cost_usd_per_hour"] for line in lines[1:]] == [
            "2.5",
            "5.0",
        ]
        return
    table = pq.read_table(path) if suffix == ".parquet" else arrow.ipc.open_file(path).read_all()
    assert table["cost_usd_per_hour"].to_pylist() == [2.5, 5.0]
    told = {key.decode(): value.decode() for key, value in table.schema.metadata.items() if key != b"ARROW:schema"}
    assert told.items() >= {key: str(value) for key, value in found.attrs.items()}.items()
    assert told["title"] == "What GPUs cost." and told["units of cost_usd_per_hour"] == "USD/h"


def test_blocks_are_the_sweep():
    found = sweep(area, **SIDES)
    seen = np.zeros((40, 25), int)
    for part in blocks(area, block_points=100, **SIDES):
        at = tuple(part["points"].T)
        seen[at] += 1
        assert np.array_equal(part["area"], found["area"].values[at])
    assert (seen == 1).all()


def test_axes_of_other_kinds_and_what_they_refuse():
    found = sweep(area, side=zipped({"wide": [1, 4], "high": [2, 3]}))
    assert found.area.values.tolist() == [2.0, 12.0] and found.high.values.tolist() == [2.0, 3.0]
    rows = sweep(area, side=zipped([{"wide": 1, "high": 2}, {"high": 3, "wide": 4}]))
    xr.testing.assert_equal(rows.area, found.area)
    twice = sweep(area, side=zipped({"wide": [1, 1, 1], "high": [2, 3, 2]}))  # a point may be asked for again
    assert twice.area.values.tolist() == [2.0, 3.0, 2.0]
    counts = sweep(area, side=zipped({"wide": np.array([1, 4]), "high": np.array([2, 3])}))  # NumPy's whole numbers
    xr.testing.assert_equal(counts.area, found.area)
    named = sweep(area, wide=choice({"a": 1.0, "b": 5.0}), high=2.0)
    assert named.area.sel(wide="b") == 10.0
    for wrong, why in (
        ({"side": zipped({"wide": [1, 2], "high": [1]})}, "equal lengths"),
        ({"side": zipped({})}, "at least one column"),
        ({"wide": grid(1, 2, 1), "high": 1.0}, "holds 1 twice"),
        ({"wide": grid(), "high": 1.0}, "at least one number"),
        ({"wide": grid(1, np.nan), "high": 1.0}, "NaN"),
        ({"wide": grid("1 s"), "high": 1.0}, "states no unit"),
    ):
        with pytest.raises(InputError, match=why):
            sweep(area, **wrong)
    with pytest.raises(InputError, match="row 1 of a table"):
        zipped([{"wide": 1}, {"high": 1}])


def test_the_first_start_is_the_middle_of_the_box_and_doubt_is_said():
    """From the middle, which is the top of a hill between two equal valleys, nothing moves: only other starts do."""
    hill = lambda x, p: -((x[0] - 0.5) ** 2)
    stuck, found = (minimize(hill, [0.0], [1.0], starts=count) for count in (1, 8))
    assert float(stuck.value["x"][0]) == 0.5 and float(stuck.value["spread"][0]) == 0.0
    assert float(found.value["objective"]) == pytest.approx(-0.25) and float(found.value["spread"][0]) == 0.0
    never = minimize(lambda x, p: x[0], [0.0], [1.0], None, lambda x, p: np.array([1.0]) + 0.0 * x, starts=2)
    assert never.flags & Flag.INFEASIBLE and not never.flags & Flag.NOT_CONVERGED


def test_a_start_that_ends_outside_the_constraints_is_never_the_answer():
    """Half the starts end where the constraint is not met."""
    height = lambda x, p: 5.0 + x[0]
    trap = lambda x, p: jnp.cos(4 * jnp.pi * x) + p - 0.9 * x  # with 1.5: 0.275 at 0.25, below 0 only about 0.75
    every = np.linspace(0.0, 1.0, 100_001)
    least = every[np.cos(4 * np.pi * every) + 1.5 - 0.9 * every <= 0][0]
    found = minimize(height, [0.0], [1.0], 1.5, trap, starts=16)
    assert found.value["x"] == pytest.approx([least], abs=1e-4)
    assert found.value["objective"] == pytest.approx(5.0 + least, abs=1e-4)
    assert found.value["spread"].max() > 5.9 and not found.flags & Flag.INFEASIBLE
    none = minimize(height, [0.0], [1.0], 2.0, trap, starts=16)  # nowhere kept: of both valleys the deeper one
    nearest = (np.cos(4 * np.pi * every) + 2.0 - 0.9 * every).min()
    assert none.flags & Flag.INFEASIBLE and none.certificate["violation"] == pytest.approx(nearest, abs=1e-3)
