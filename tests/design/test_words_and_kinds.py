"""What spaces, choices and results refuse, in words; kinds of axes; and what several processes agree on."""

from __future__ import annotations

import io
import math
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pytest
import rich.progress
import xarray as xr
from rich.console import Console

from dmodels import choice, grid, sweep, zipped
from dmodels.core.errors import InputError
from dmodels.core.flags import MEANINGS, Flag
from dmodels.design import space, store
from dmodels.design.axes import Choice
from dmodels.design.files import tables, writer
from dmodels.design.formula import check_names, kept, named, nested
from dmodels.design.optimize import minimize
from dmodels.design.pareto import pareto_mask
from dmodels.design.program import _block_shape, program
from dmodels.design.select import best, explain, feasible, nearest_feasible, pareto, take
from dmodels.design.sensitivity import elasticities, one_at_a_time
from tests.design.test_strangers import formulas


def priced(machine, rate_rps, tp=1.0, *, exact=True):
    return machine, rate_rps, tp, exact


@pytest.mark.parametrize(
    "varied, constant, why",
    [
        (["machine"], ["rate_rps"], None),
        (["machine", "machine.price_usd_per_hour"], ["rate_rps", "exact", "tp"], None),
        (["rate_rps"], [], r"priced lacks \['machine'\]; accepted are axes or values for machine, rate_rps, tp, exact"),
        (["rate_rps"], ["rate_rps", "machine"], "argument 'rate_rps' is given twice"),
        (
            ["machine", "rate"],
            ["rate_rps"],
            r"priced has no argument \['rate'\]; argument 'rate' is unknown; the nearest are rate_rps$",
        ),
        (["rate_rps", "machine", "gpu.price"], [], r"no argument \['gpu.price'\]"),
        (["rate_rps", "tp.price"], ["machine"], "axis 'tp.price': 'tp' is not given; accepted is a record for it"),
    ],
)
def test_arguments_are_checked_by_name(varied, constant, why):
    if why is None:
        check_names("priced", priced, varied, constant)
        check_names("f", lambda a, **more: a, ["a", "anything"], ["b"])
        return
    with pytest.raises(InputError, match=why):
        check_names("priced", priced, varied, constant)


def test_results_by_name():
    told = nested({"machine": formulas.SMALL, "machine.price_usd_per_hour": 7.0, "tp": 2})
    assert told["tp"] == 2 and told["machine"].price_usd_per_hour == 7.0 and set(told) == {"machine", "tp"}
    deep = nested({"a": formulas.Machine(formulas.SMALL, 1.0), "a.price_usd_per_hour.speeds_rps": 5.0})["a"]
    assert deep.price_usd_per_hour.speeds_rps == 5.0 and deep.price_usd_per_hour.price_usd_per_hour == 2.0
    with pytest.raises(InputError, match="returns 'a_b' twice"):
        named({"a": {"b": 1.0}, "a_b": 2.0}, "f")
    assert named({"a": [1.0, 2.0]}, "f") == {"a_0": 1.0, "a_1": 2.0}
    found = {"x": 1, "y": 2, "flags": 0}
    assert kept(found, None) is found and kept(found, ("y", "flags", "y")) == {"y": 2, "flags": 0}
    with pytest.raises(InputError, match=r"^output 'z' is unknown; known are flags, x, y$"):
        kept(found, ("z",))


def test_axes_of_records_names_and_numbers():
    machines = {"small": formulas.SMALL, "large": formulas.LARGE}
    axis = choice(machines).axis("machine")
    assert axis.size == 2 and axis.labels["machine"].tolist() == ["small", "large"]
    assert axis.columns["machine"].price_usd_per_hour.tolist() == [2.0, 9.0]
    assert axis.columns["machine"].speeds_rps[1].tolist() == [10.0, 20.0, 30.0]
    numbers = choice({4: 1.5, 8: 2.5}).axis("cost")
    assert numbers.labels["cost"].dtype == np.float64 and numbers.labels["cost"].tolist() == [4.0, 8.0]
    assert numbers.columns["cost"].tolist() == [1.5, 2.5] and choice({4: 1.0, "a": 2.0}).axis("c").labels["c"][0] == "4"
    batched = choice(axis.columns["machine"], names=["a", "bcd"]).axis("machine")
    assert batched.labels["machine"].tolist() == ["a", "bcd"] and batched.columns["machine"] is axis.columns["machine"]
    rows = zipped({"machine": [formulas.LARGE, formulas.SMALL], "of": choice({"x": 1.0, "y": 2.0}), "t_s": ["1 ms", 2]})
    found = rows.axis("at")
    assert found.labels["machine"].tolist() == [0, 1] and found.labels["of"].tolist() == ["x", "y"]
    assert found.columns["machine"].price_usd_per_hour.tolist() == [9.0, 2.0]
    assert found.columns["t_s"].tolist() == [0.001, 2.0] and found.size == 2
    frame = pandas.DataFrame({"a": [1, 2], "b": [3.0, 4.0]})
    assert zipped(frame).columns == {"a": [1, 2], "b": [3.0, 4.0]} and zipped([]).columns == {}
    assert grid(1, np.array([[2, 3]]), "4 s").values == (1, 2, 3, "4 s")
    assert grid(1, 2).axis("t_s").labels["t_s"].tolist() == [1.0, 2.0]


def test_axes_are_told_apart_by_which_they_are():
    """Those that hold arrays have no other way to be equal, and each can be a key of a dictionary."""
    one = np.arange(3.0)
    made = [[choice(one, names="abc"), grid(one), zipped({"x": one}), grid(one).axis("x")] for _ in range(2)]
    assert len({axis for axes in made for axis in axes}) == 8 and made[0] != made[1]


@pytest.mark.parametrize(
    "axis, name, why",
    [
        (Choice(("a", "b", "a"), [1.0, 2.0, 3.0]), "x", "axis 'x' holds 'a' twice"),
        (Choice((*range(2000), 7), np.ones(2001)), "x", "axis 'x' holds 7 twice"),
        (Choice(("a", "b"), np.ones(3)), "x", r"2 names for leaves of shape \(3,\); accepted is a leading axis of 2"),
        (Choice((), []), "x", "axis 'x' is empty; accepted is at least one alternative"),
        (zipped({"a": [1], "b": [1, 2]}), "x", "axis 'x': columns of lengths {'a': 1, 'b': 2}; accepted are equal"),
        (choice({"a": ["text"], "b": ["more"]}), "x", "axis 'x' holds list; accepted are records and numbers"),
        (choice({"a": [1.0], "b": (1.0,)}), "x", "axis 'x' mixes list, tuple; accepted are records of one kind"),
        (choice({"a": np.ones(2), "b": np.ones(3)}), "x", "leaves of shapes .*accepted are shapes that broadcast"),
        (grid("1 s"), "x", "'1 s' is text, and the name states no unit"),
        (grid(None), "x", "None is not a number; accepted are numbers, or choice"),
        (grid(1, 2, 3, 2), "gpu.t_s", "axis 'gpu.t_s' holds 2 twice"),
    ],
)
def test_axes_say_what_they_refuse(axis, name, why):
    with pytest.raises(InputError, match=why):
        axis.axis(name)


def test_other_mistakes_and_their_words():
    with pytest.raises(InputError, match="choice of list: accepted is a mapping"):
        choice([1, 2])
    with pytest.raises(InputError, match=r"row 1 of a table has \['b'\]; accepted: \['a', 'c'\], as in row 0"):
        zipped([{"a": 1, "c": 2}, {"b": 1}])
    with pytest.raises(InputError, match=r"out = 'x.xlsx': suffix '.xlsx'; accepted are .nc, .zarr, .parquet"):
        writer(Path("x.xlsx"))
    with pytest.raises(InputError, match=r"argument 'z' is no number; accepted: x, y$"):
        elasticities(lambda x, y: x * y, arguments=["z"], x=1.0, y=2.0)
    with pytest.raises(InputError, match=r"span of 'z': accepted are numbers that are given: x, y$"):
        one_at_a_time(lambda x, y: x * y, {"z": (1.0, 2.0)}, x=1.0, y=2.0)
    with pytest.raises(InputError, match="block_points = 0"):
        sweep(lambda x: x, x=grid(1.0), block_points=0)
    with pytest.raises(InputError, match="several numbers; accepted is one per output"):
        elasticities(lambda x: {"y": x * jnp.ones(2)}, x=1.0)
    with pytest.raises(InputError, match="finite bounds of one shape"):
        minimize(lambda x, p: x[0], [0.0, 1.0], [1.0])
    with pytest.raises(InputError, match="starts = 0"):
        minimize(lambda x, p: x[0], [0.0], [1.0], starts=0)
    flags = xr.Dataset({"flags": (("a", "b"), np.zeros((2, 9), np.int32))}, {"a": [1, 2]})
    with pytest.raises(InputError, match="axis 'a' has no 3; accepted: 1, 2"):
        nearest_feasible(flags, a=3, b=0)
    with pytest.raises(InputError, match=r"axis 'b' has no 9; accepted: 0, 1, 2, 3, 4, 5, 6, 7$"):
        nearest_feasible(flags, a=1, b=9)
    with pytest.raises(InputError, match=r"^axis 'c' is unknown; known are a, b$"):
        nearest_feasible(flags, a=1, c=0)
    with pytest.raises(InputError, match=r"^output 'x' is unknown; known are flags$"):
        pareto(flags, minimize="x")
    with pytest.raises(InputError, match="no label for b; accepted is one for each axis"):
        nearest_feasible(flags, a=1)
    assert nearest_feasible(flags, a=2, b=8).attrs["changed"] == []
    with pytest.raises(InputError, match="no objective is named"):
        pareto(flags)
    with pytest.raises(InputError, match="has no 'flags'"):
        feasible(flags.drop_vars("flags"))
    several = flags.assign(parts=(("a", "b", "k"), np.zeros((2, 9, 3))))
    with pytest.raises(InputError, match=r"parts has dimensions .*; accepted is one number per point"):
        pareto(several, minimize="parts")
    with pytest.raises(InputError, match="outputs parts hold several numbers per point; accepted in a table is one"):
        next(tables(several))
    for both in ({}, {"minimize": "flags", "maximize": "flags"}):
        with pytest.raises(InputError, match="minimize and maximize: accepted is one of them"):
            best(flags, **both)
    for shape in ((3,), (3, 0)):
        with pytest.raises(InputError, match=r"accepted is \(points, objectives\) with an objective or more"):
            pareto_mask(np.zeros(shape))
    with pytest.raises(InputError, match="a partial with positional arguments; accepted are keywords"):
        sweep(partial(lambda y, x: x, 1.0), x=grid(1.0))
    with pytest.raises(InputError, match=r"y = .*: accepted are numbers, records, functions and text"):
        sweep(lambda x, y: x, x=grid(1.0), y=object())
    with pytest.raises(InputError, match=r"y = \(2\.0, <object .*: accepted are numbers, records, functions and text"):
        sweep(lambda x, y: x, x=grid(1.0), y=(2.0, object()))  # a part of it is none of these
    alone = xr.Dataset({"flags": ((), np.int32(0)), "x": ((), 3.0)})
    assert take(alone, np.array([0])).x.values.tolist() == [3.0] and len(pareto(alone, minimize="x").x) == 1


def test_reasons_are_told_from_the_most_frequent_on():
    hard, miss, warned = int(Flag.NO_FIT), int(Flag.SLO_MISS), int(Flag.EXTRAPOLATED)
    raised = [0, 0, warned, hard, miss, miss, miss | hard, miss | warned]
    told = str(explain(xr.Dataset({"flags": ("a", np.array(raised * 400, np.int32))}))).splitlines()
    assert told == [
        "1,200 of 3,200 points are feasible",
        f"1,600: {MEANINGS[Flag.SLO_MISS]}, 1,200 for this alone",
        f"800: {MEANINGS[Flag.NO_FIT]}, 400 for this alone",
        f"800: {MEANINGS[Flag.EXTRAPOLATED]} (a warning)",
    ]


def test_a_bar_goes_on_from_what_is_done_where_somebody_looks(monkeypatch):
    made = []

    class Bar(rich.progress.Progress):
        def __init__(self, *columns, **options):
            super().__init__(*columns, **options)
            assert self.console.stderr and self.live.transient  # nothing of it is left, and none where results go
            made.append(self)

    monkeypatch.setattr(rich.progress, "Progress", Bar)
    for looks, asked, shown in ((False, None, 0), (True, None, 1), (True, False, 0), (False, True, 1)):
        monkeypatch.setattr("sys.stderr.isatty", lambda looks=looks: looks, raising=False)
        made.clear()
        with space._shown(asked, 10, 4) as tick:
            tick()
        for bar in made:
            (text := Console(file=io.StringIO(), width=200)).print(bar)
            assert re.match(r"sweep ━+ +5/10 blocks ", text.file.getvalue())
        assert [(bar.tasks[0].completed, bar.tasks[0].total) for bar in made] == [(5, 10)] * shown


def test_a_block_is_wide_where_an_accelerator_would_wait(monkeypatch):
    sides = {"x": grid(np.arange(4096.0)), "y": grid(np.arange(4096.0))}
    points = lambda **options: math.prod(space._asked(lambda x, y: x, sides, None, options.get("points"))[1].layout[:2])
    for there, most in (([], 2**15), (["gpu"], 2**21)):
        monkeypatch.setattr(space, "accelerators", lambda there=there: there)
        assert points() == most and points(points=2**12) == 2**12


def test_the_longest_axis_lies_along_the_columns():
    sides = {name: grid(np.arange(float(size))).axis(name) for name, size in zip("abcd", (3, 7, 7, 2), strict=True)}
    asked = program(lambda a, b, c, d: a, sides, {}, None, 64)
    assert sides["b"].size == asked.sizes[asked.layout.long_axis] == 7 and asked.shape == (42, 7)


@pytest.mark.parametrize("down", [1, 3, 10, 300, 5000, 33_000])
@pytest.mark.parametrize("across", [2, 5, 17, 33, 130, 1000, 100_000])
def test_blocks_of_a_large_space_hold_what_they_may_and_evaluate_little_in_vain(down, across):
    rows, columns = _block_shape(down, across, 2**15)
    assert rows * columns <= 2**15
    evaluated = lambda rows, columns: math.ceil(down / rows) * rows * math.ceil(across / columns) * columns
    if down * across > 2**15:
        assert evaluated(rows, columns) <= 3 * down * across
    if down * across > 2**15 and down >= 64:  # so are blocks of any other width
        assert evaluated(rows, columns) <= min(evaluated(2 ** (15 - k), 2**k) for k in range(5, 10))


@pytest.mark.parametrize("wide", [32, 64, 128, 256, 512])
def test_what_blocks_of_some_width_tile_is_evaluated_without_waste(wide):
    rows, columns = _block_shape(2**15 // wide, 5 * wide, 2**15)
    assert rows * columns == 2**15 and (2**15 // wide) % rows == 5 * wide % columns == 0


@pytest.mark.parametrize("process", [0, 1])
def test_processes_go_on_from_what_the_first_has(monkeypatch, process):
    """The others take its arrays and what is done; where it has nothing, nobody's arrays are sent."""
    import jax.experimental.multihost_utils as several

    first = {"y": np.arange(4.0).reshape(2, 2), "done": np.array([1, 0], np.uint8)}
    sent = []

    def broadcast(value):
        sent.append(value)
        return first["y"] if np.shape(value) == (2, 2) else first["done"]

    monkeypatch.setattr(several, "broadcast_one_to_all", broadcast)
    monkeypatch.setattr(jax, "process_index", lambda: process)
    mine = store.Store(SimpleNamespace(), {"y": np.full((2, 2), 9.0)}, np.array([0, 0], np.uint8))
    store.agree(mine)
    assert mine.done.tolist() == [1, 0] and mine.todo() == [1] and len(sent) == 2
    assert mine.arrays["y"].tolist() == (first["y"].tolist() if process else [[9.0, 9.0]] * 2)
    first["done"][:] = 0
    fresh = store.Store(SimpleNamespace(), {"y": np.full((2, 2), 9.0)}, np.array([0, 0], np.uint8))
    store.agree(fresh)
    assert fresh.done.tolist() == [0, 0] and (fresh.arrays["y"] == 9.0).all() and len(sent) == 3
