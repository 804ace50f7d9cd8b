"""Spaces, choices and optima against loops over every point, in plain Python."""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

sys.path.insert(0, str(Path(__file__).parent))
import sweep_formulas as formulas

import dmodels
from dmodels import choice, grid, sweep, zipped
from dmodels.core.errors import InputError
from dmodels.core.flags import WARNINGS, Flag
from dmodels.design import space
from dmodels.design.distribute import _pooled, by_cluster, by_threads
from dmodels.design.formula import flagged, named
from dmodels.design.optimize import derivative, minimize
from dmodels.design.program import arguments, compiled, cut, evaluate, program
from dmodels.design.program import table as by_rows
from dmodels.design.select import best, explain, feasible, nearest_feasible, pareto
from dmodels.design.sensitivity import elasticities, one_at_a_time
from dmodels.design.space import blocks, label

HARD, WARNED = int(Flag.NO_FIT), int(Flag.EXTRAPOLATED)


def machines_for(machine, rate_rps, headroom_frac, tp, price):
    """What `formulas.fleet` says, for one point."""
    speed = float(np.sum(machine.speeds_rps)) * math.sqrt(tp)
    count = math.ceil(rate_rps * (1 + headroom_frac) / speed)
    return {
        "machines_count": count,
        "cost_usd_per_hour": count * price,
        "wait_s": math.exp(-count / 7) / (count * speed - rate_rps),
        "flags": HARD if count > 500 else 0,
    }


@pytest.mark.parametrize("seed", range(4))
def test_a_sweep_is_its_formula_at_every_point(seed):
    """Records, numbers, rows, a field of a record as axes in any order, in blocks of any size; and block by block."""
    rng = np.random.default_rng(seed)
    machines = {"small": formulas.SMALL, "large": formulas.LARGE}
    rates, prices = rng.uniform(5, 4000, int(rng.integers(1, 90))), rng.uniform(1, 9, int(rng.integers(1, 4)))
    rows = {"tp": rng.integers(1, 9, 3).astype(float), "headroom_frac": rng.uniform(0, 1, 3)}
    axes = {
        "machine": choice(machines),
        "rate_rps": grid(rates),
        "at": zipped(rows),
        "machine.price_usd_per_hour": grid(prices),
    }
    axes = {name: axes[name] for name in rng.permutation(list(axes))}
    points = int(rng.choice([1, 5, 64, 1000, 2**15]))
    ds = sweep(formulas.fleet, block_points=points, **axes)
    assert list(ds.flags.dims) == list(axes)
    expected = {}
    for name, r, k, price in itertools.product(machines, range(len(rates)), range(3), range(len(prices))):
        told = machines_for(machines[name], rates[r], rows["headroom_frac"][k], rows["tp"][k], prices[price])
        place = {"machine": list(machines).index(name), "rate_rps": r, "at": k, "machine.price_usd_per_hour": price}
        expected[tuple(place[axis] for axis in axes)] = told
        if rng.random() < 0.02:
            one = ds.sel({"machine": name, "rate_rps": rates[r], "machine.price_usd_per_hour": prices[price]}).isel(
                at=k
            )
            assert float(one.tp) == rows["tp"][k] and float(one.headroom_frac) == rows["headroom_frac"][k]
            assert float(one.machines_count) == told["machines_count"]
    for name in ("machines_count", "cost_usd_per_hour", "wait_s", "flags"):
        table = np.array([[*place, told[name]] for place, told in expected.items()])
        np.testing.assert_allclose(ds[name].values[tuple(table[:, :-1].astype(int).T)], table[:, -1], rtol=1e-9)
    seen = 0
    for part in blocks(formulas.fleet, block_points=points, outputs=("wait_s",), **axes):
        assert set(part) == {"points", "wait_s", "flags"}
        assert [expected[tuple(place)]["wait_s"] for place in part["points"]] == pytest.approx(part["wait_s"].tolist())
        seen += len(part["points"])
    assert seen == ds.flags.size


def test_the_rest_of_what_a_sweep_may_be_asked():
    """Arrays fixed by a partial, an output that is its axis, all blocks or some by threads, one way to spread them."""
    times = lambda x, table: {"x": x, "y": jnp.sum(table) * x}
    ds = sweep(functools.partial(times, table=np.arange(4.0)), x=grid(1.0, 2.0))
    assert ds.y.values.tolist() == [6.0, 12.0] and set(ds.data_vars) == {"y", "flags"}
    for other in (lambda x: {"x": 2 * x}, lambda x: {"x": jnp.int32(x)}):
        with pytest.raises(InputError, match="'x' is an axis and another output"):
            sweep(other, x=grid(1.0, 2.0))
    with pytest.raises(InputError, match="client and devices: accepted is one of them"):
        sweep(times, x=grid(1.0), table=np.ones(1), client=object(), devices=jax.devices())
    prices = {"machine.price_usd_per_hour": grid("2 USD/h", "52596 USD/year")}
    priced = sweep(formulas.fleet, machine=formulas.SMALL, rate_rps=6.0, **prices)
    assert priced.cost_usd_per_hour.values.tolist() == pytest.approx([2.0, 6.0], rel=1e-3)


@pytest.mark.parametrize("turn", [1, 4, 16])
def test_a_table_in_turns_has_the_rows_that_are_asked_for(turn):
    """Any run of rows from any row on, of a block that holds more: what lies behind it is left at 0."""
    rows, columns = {"x": np.arange(50.0)}, {"y": np.arange(7.0)}
    asked = by_rows(lambda x, y: {"sum": x + 100 * y}, rows, columns, {}, (16, 8, turn), (64, 8))
    assert [int(evaluate(asked, k)["sum"][0, 0]) for k in range(asked.blocks_count)] == [0, 16, 32, 48]
    for top, bottom in ((0, 16), (3, 5), (33, 46), (49, 50)):
        window = slice(top, bottom), slice(2, 6)
        found = compiled(asked)(*arguments(asked, window))
        part = cut(window, found, ["sum"])["sum"]
        assert part.tolist() == [[x + 100.0 * y for y in range(2, 6)] for x in range(top, bottom)]
        untouched = np.asarray(found["sum"])[-(-(bottom - top) // turn) * turn :]
        assert turn == 16 or not untouched.any()


def test_what_a_sweep_says_of_itself():
    """Fixed numbers, records field by field, functions and text by name; units; its own length of each axis."""
    asked = {"rate_rps": grid(1.0, 2.0), "machine": formulas.SMALL, "tp": 4}
    ds = sweep(formulas.fleet, **asked)
    told = json.loads(ds.attrs["arguments"])
    assert told == {"machine": {"price_usd_per_hour": 2.0, "speeds_rps": [1.0, 2.0, 3.0]}, "tp": 4}
    assert ds.attrs["title"] == "Machines for a rate, and what they cost."
    law = sweep(lambda rate_rps, law, word: law(rate_rps), rate_rps=grid(4.0), law=jnp.sqrt, word="x")
    told = json.loads(law.attrs["arguments"])
    assert told["word"] == "x" and told["law"].endswith(".sqrt") and "rate_rps" not in told
    four = sweep(functools.partial(formulas.fleet, tp=4), machine=formulas.SMALL, rate_rps=grid(1.0, 2.0))
    assert four.attrs == ds.attrs  # what a partial fixes is fixed, and the formula is the one inside
    wide = sweep(lambda x, table: jnp.sum(table) + x, x=grid(0.0), table=np.arange(100.0))
    assert re.fullmatch(r"array \(100,\) sha256 [0-9a-f]{12}", json.loads(wide.attrs["arguments"])["table"])
    told = {n: space._told(np.arange(n)) for n in (64, 65)}  # to be read, or only to be compared
    assert told[64] == [*range(64)] and told[65].startswith("array (65,) ")
    named = f"dmodels {dmodels.__version__}, jax {jax.__version__}, xarray {xr.__version__}"
    assert (ds.attrs["versions"], ds.attrs["Conventions"]) == (named, "CF-1.11")
    assert label(ds, "cost_usd_per_hour") == "cost_usd_per_hour [USD/h]" and label(ds, "flags").startswith(
        "why a point"
    )
    named_gpus = xr.Dataset(
        {"gpus": ("x", [1.0], {"long_name": "GPUs", "units": "GPU"}), "a": ("x", [1.0], {"units": "1"})}
    )
    assert (label(named_gpus, "gpus"), label(named_gpus, "a"), label(named_gpus, "no such")) == ("GPUs", "a", "no such")


@pytest.mark.parametrize(
    "sizes", [(), (1,), (7,), (3, 200), (40, 41), (5, 6, 7), (2, 1, 3000), (700, 2, 5), (129, 300)]
)
@pytest.mark.parametrize("points", [1, 60, 1024, 4096, 2**15])
def test_blocks_tile_a_space(sizes, points):
    """Every point in one block; blocks of one shape, of powers of two, no larger than asked by more than one column's
    width; and not a tenth as many points again are evaluated in vain where there is a choice."""
    axes = {f"x{k}": grid(np.arange(float(n))).axis(f"x{k}") for k, n in enumerate(sizes)}
    asked = program(lambda **x: 0.0 + sum(x.values()), axes, {}, None, points)
    total = math.prod(sizes)
    assert math.prod(asked.shape) == total and asked.shape[1] == max(sizes, default=1)
    covered = np.zeros(asked.shape, int)
    for number in range(asked.blocks_count):
        down, across = asked.window(number)
        covered[down, across] += 1
        assert down.stop - down.start <= asked.layout.rows and across.stop - across.start <= asked.layout.columns
    assert (covered == 1).all()
    rows, columns = asked.layout.rows, asked.layout.columns
    assert columns & (columns - 1) == 0 and (rows & (rows - 1) == 0 or rows == points // columns)
    assert rows * columns <= max(points, 64) or asked.blocks_count == 1
    if total <= points:  # small spaces of any size share programmes: 64 columns, filled up to powers of two
        wide = min(64, 1 << (asked.shape[1] - 1).bit_length())
        assert (columns, rows) == (wide, min(max(points // wide, 1), 1 << (asked.shape[0] - 1).bit_length()))
    down, across = asked.shape
    if total > points >= 4096:  # of blocks with 32 to 512 columns, none evaluates fewer points in vain
        covers = lambda high, wide: -(-down // high) * high * -(-across // wide) * wide
        splits = [(max(1, points // wide), wide) for wide in (32, 64, 128, 256, 512) if wide <= 2 * across]
        told = [covers(*split) for split in splits if split[0] <= 2 * down]
        assert not told or covers(rows, columns) <= min(told)


class Counted:
    """Futures that are done at once; counts how many were under way."""

    def __init__(self):
        from concurrent.futures import Future

        self.kind, self.open, self.most = Future, 0, 0

    def submit(self, number):
        self.open += 1
        self.most = max(self.most, self.open)
        future = self.kind()
        future.set_result(number * number)
        return future


def test_no_more_blocks_are_under_way_than_asked_and_each_once():
    for todo, ahead in ((range(10), 3), ([4, 7], 5), ([], 2), ([2], 1)):
        counted, found = Counted(), {}
        for number, result in _pooled(counted.submit, todo, ahead):
            assert number not in found
            found[number] = result
            counted.open -= 1
        assert found == {n: n * n for n in todo} and counted.most <= ahead + 1


def test_some_blocks_by_threads_and_all_by_a_cluster_in_this_process():
    """Both give the blocks asked for, once, with their numbers; groups of four, few under way."""
    from distributed import Client

    axes = {"x": grid(np.arange(5000.0)).axis("x")}
    asked = program(lambda x: {"y": x * x}, axes, {}, None, 16)
    todo = [n for n in range(asked.blocks_count) if n % 3]
    start = lambda number: asked.window(number)[1].start
    check = lambda number, out: np.testing.assert_array_equal(out["y"][0, :1], [start(number) ** 2.0])
    for threads in (1, 3):
        found = dict(by_threads(asked, todo, threads))
        assert sorted(found) == todo
        for number, out in found.items():
            check(number, out)
    with Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None) as client:
        sent, told, most, submit = [], [], [0], client.submit

        def counted(function, program, group, **options):
            assert options == {"pure": False, "retries": 3}  # a lost worker's groups are evaluated elsewhere
            sent.append(group)
            most[0] = max(most[0], len(sent) - len(told) // 2)
            return submit(function, program, group, **options)

        client.submit = counted
        told.extend(by_cluster(asked, todo, client, block_group=2))
        by_two = list(sent)
        sent.clear()
        assert sorted(number for number, _ in by_cluster(asked, todo, client)) == todo
        assert {len(group) for group in sent[:-1]} == {4}
    assert 8 <= most[0] <= 9 < len(by_two)  # four groups for each of two threads, and the one in the place of one
    assert sorted(number for number, _ in told) == todo
    assert [number for group in by_two for number in group] == todo and {len(group) for group in by_two[:-1]} == {2}
    for number, out in told:
        check(number, out)


def table(rng, sizes, ties):
    """A dataset of random numbers with flags, ties and holes."""
    shape = tuple(sizes)
    pick = lambda: rng.integers(-3, 4, shape).astype(float) if ties else rng.normal(size=shape)
    dims = [f"a{k}" for k in range(len(shape))]
    columns = {name: (dims, np.where(rng.random(shape) < 0.1, np.nan, pick())) for name in ("x", "y", "low", "high")}
    flags = rng.choice([0, 0, 0, WARNED, HARD, HARD | WARNED, HARD | int(Flag.SLO_MISS)], shape).astype(np.int32)
    axes = {dim: 10.0 * np.arange(n) for dim, n in zip(dims, shape, strict=True)}
    return xr.Dataset(columns | {"flags": (dims, flags)}, axes)


@pytest.mark.parametrize("ties", [True, False])
def test_choices_by_looking_at_every_point(ties):
    for seed in range(60):
        rng = np.random.default_rng(seed)
        ds = table(rng, rng.integers(1, 5, int(rng.integers(1, 4))), ties)
        look(ds, list(np.ndindex(*ds.flags.shape)), rng)


def places(ds, found):
    """Points of a choice, as indices along the axes."""
    return [tuple(int(found[dim].values[k] / 10) for dim in ds.flags.dims) for k in range(found.sizes["point"])]


def look(ds, cells, rng):
    """What each way of choosing finds among the points that no flag but a warning forbids."""
    good = [c for c in cells if not int(ds.flags.values[c]) & ~int(WARNINGS)]
    assert [c for c in cells if bool(feasible(ds).values[c])] == good
    look_for_the_best(ds, cells, good)
    worth = {c: (float(ds.x.values[c]), -float(ds.y.values[c])) for c in good}
    pair = {c: p for c, p in worth.items() if not any(map(math.isnan, p))}
    beats = lambda p, q: p != q and p[0] <= q[0] and p[1] <= q[1]
    front = [c for c, p in pair.items() if not any(beats(q, p) for q in pair.values())]
    front.sort(key=lambda c: (*pair[c], cells.index(c)))
    assert places(ds, pareto(ds, minimize="x", maximize="y", equals=True)) == front
    once = [c for k, c in enumerate(front) if k == 0 or pair[front[k - 1]] != pair[c]]
    assert places(ds, pareto(ds, minimize="x", maximize="y")) == once
    raised = [int(f) for f in ds.flags.values.ravel()]
    why = explain(ds)
    assert (why.points_count, why.feasible_count) == (len(cells), len(good))
    assert why.fell == {f: n for f in Flag if (n := sum(bool(r & int(f)) for r in raised))}
    assert why.alone == {f: sum((r & ~int(WARNINGS)) == int(f) for r in raised) for f in why.fell}
    here = cells[int(rng.integers(len(cells)))]
    near = nearest_feasible(ds, **{dim: 10.0 * here[k] for k, dim in enumerate(ds.flags.dims)})
    if not good:
        assert near is None
        return
    steps = lambda c: [abs(a - b) for a, b in zip(c, here, strict=True)]
    far = lambda c: (sum(step > 0 for step in steps(c)), sum(steps(c)))
    found = tuple(int(near[dim] / 10) for dim in ds.flags.dims)
    assert found in good and far(found) == min(map(far, good))
    assert near.attrs["changed"] == [d for d, a, b in zip(ds.flags.dims, found, here, strict=True) if a != b]


def look_for_the_best(ds, cells, good):
    for sign, words in ((1, {"minimize": "x"}), (-1, {"maximize": "x"})):
        cost = {c: sign * float(ds.x.values[c]) for c in good if not math.isnan(ds.x.values[c])}
        rank = {c: (value, cells.index(c)) for c, value in cost.items()}
        order = lambda some, rank=rank: sorted(some, key=rank.get)
        least = min(cost.values(), default=0.0)
        tied = [c for c in cost if cost[c] == least]
        assert places(ds, best(ds, **words)) == order(tied)
        near = [c for c in cost if cost[c] <= least + 0.5 * abs(least)]
        assert places(ds, best(ds, **words, within_frac=0.5)) == order(near)
        ends = {c: sorted(sign * float(ds[name].values[c]) for name in ("low", "high")) for c in cost}
        if cost and not any(math.isnan(end) for pair in ends.values() for end in pair):
            reach = ends[order(cost)[0]][1]
            wanted = {*tied, *(c for c in cost if ends[c][0] <= reach)}
            assert places(ds, best(ds, **words, interval=("low", "high"))) == order(wanted)


def test_results_are_made_flat_as_one_reads_them():
    """Names joined from outside in, `value` left out, a list by place; what is not finite never goes without a flag."""
    from typing import NamedTuple

    class Pair(NamedTuple):
        a: float
        b: dict

    told = named({"value": {"cost": 1.0, "split": Pair(2.0, {"c": 3.0})}, "steps": 4}, "f")
    assert told == {"cost": 1.0, "split_a": 2.0, "split_b_c": 3.0, "steps": 4}
    assert named(7.0, "f") == {"f": 7.0} and named((1.0, 2.0), "f") == {"f_0": 1.0, "f_1": 2.0}
    assert named({"value": 5.0}, "f") == {"f": 5.0}
    for value, flags, expected in (
        (math.nan, 0, int(Flag.NONFINITE)),
        (math.inf, WARNED, int(Flag.NONFINITE) | WARNED),  # a warning does not say why
        (math.nan, HARD, HARD),
        (1.0, WARNED, WARNED),
    ):
        assert int(flagged({"x": np.float64(value), "flags": flags, "n": np.int32(3)})["flags"]) == expected
    assert int(flagged({"x": np.array([1.0, math.nan]), "none": None})["flags"]) == int(Flag.NONFINITE)


@pytest.mark.parametrize("seed", range(3))
def test_powers_have_their_exponents_and_spans_their_ends(seed):
    """y = c a^p b^q in numbers and a record's field: elasticities p and q, and 1; both ends of each span by hand."""
    rng = np.random.default_rng(seed)
    p, q, a, b, price = (*rng.uniform(-2, 2, 2), *rng.uniform(0.5, 5, 3))
    machine = formulas.Machine(price, [1.0, 2.0, 3.0])

    def worth(machine, a, b):
        return {"y": a**p * b**q * machine.price_usd_per_hour, "n_count": jnp.int32(3)}

    ds = elasticities(worth, machine=machine, a=a, b=b)
    told = {str(name): float(value) for name, value in zip(ds.argument.values, ds.y.values, strict=True)}
    assert told == pytest.approx(
        {"machine.price_usd_per_hour": 1.0, "machine.speeds_rps": 0.0, "a": p, "b": q}, abs=1e-9
    )
    assert "n_count" not in ds and (ds.flags == 0).all() and ds.y.units == "1"
    some = elasticities(worth, machine=machine, a=a, b=b, arguments=["b"])
    assert some.argument.values.tolist() == ["b"] and float(some.y[0]) == pytest.approx(q)
    spans = {"b": (0.5 * b, 3 * b), "machine.price_usd_per_hour": (1.0, 7.0), "a": (2.0, 1.0)}
    ds = one_at_a_time(worth, spans, machine=machine, a=a, b=b)
    value = lambda **by: by.get("a", a) ** p * by.get("b", b) ** q * by.get("price", price)
    assert float(ds.base_y) == pytest.approx(value())
    assert ds.argument.values.tolist() == list(spans) and ds.end.values.tolist() == ["low", "high"]
    for name, ends in spans.items():
        field = "price" if "." in name else name
        assert ds.y.sel(argument=name).values.tolist() == pytest.approx([value(**{field: end}) for end in ends])
        assert (float(ds.low.sel(argument=name)), float(ds.high.sel(argument=name))) == ends


def best_face(matrix, linear, rows, limits, low, high):
    """(x, prices of the rows) of min x'Ax/2 + b'x by trying every set of rows and bounds that hold with equality."""
    n, found = len(linear), None
    walls = [(row, limit, k) for k, (row, limit) in enumerate(zip(rows, limits, strict=True))]
    walls += [(np.eye(n)[k], high[k], None) for k in range(n)] + [(-np.eye(n)[k], -low[k], None) for k in range(n)]
    for size in range(n + 1):
        for chosen in itertools.combinations(walls, size):
            edge = np.array([row for row, *_ in chosen]).reshape(-1, n)
            kkt = np.block([[matrix, edge.T], [edge, np.zeros((size, size))]])
            try:
                solved = np.linalg.solve(kkt, np.concatenate([-linear, [limit for _, limit, _ in chosen]]))
            except np.linalg.LinAlgError:
                continue
            x, prices = solved[:n], solved[n:]
            if (prices >= -1e-9).all() and all(row @ x <= limit + 1e-9 for row, limit, _ in walls):
                value = x @ matrix @ x / 2 + linear @ x
                if found is None or value < found[0] - 1e-12:
                    shadow = np.zeros(len(rows))
                    for price, (*_, k) in zip(prices, chosen, strict=True):
                        if k is not None:
                            shadow[k] = price
                    found = value, x, shadow
    return found


def quadratic(x, p):
    return x @ p["matrix"] @ x / 2 + p["linear"] @ x


def under(x, p):
    return p["rows"] @ x - p["limits"]


def test_convex_programmes_by_trying_every_face():
    """Optimum, shadow prices, certificate, and how the answer moves with what was asked (by asking again)."""
    priced = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        root = rng.normal(size=(3, 3))
        asked = {
            "matrix": root @ root.T + 0.3 * np.eye(3),
            "linear": 3 * rng.normal(size=3),
            "rows": rng.normal(size=(2, 3)),
            "limits": rng.uniform(0.1, 1.0, 2),
        }
        low, high = -rng.uniform(0.2, 2.0, 3), rng.uniform(0.2, 2.0, 3)
        truth = lambda asked, low=low, high=high: best_face(*asked.values(), low, high)
        told = minimize(quadratic, low, high, asked, under, starts=3)
        value, x, shadow = truth(asked)
        assert told.flags == 0 and told.value["objective"] == pytest.approx(value, rel=1e-5, abs=1e-6)
        np.testing.assert_allclose(told.value["x"], x, atol=2e-4)
        np.testing.assert_allclose(told.value["multipliers"], shadow, atol=2e-3 * (1 + shadow.max()))
        assert told.value["spread"].shape == (3,) and told.value["spread"].min() >= value - 1e-4
        assert told.certificate["violation"] <= 1e-4 and told.certificate["stationarity"] <= 1e-2
        assert told.certificate["complementarity"] <= 1e-2
        dx, dv = derivative(quadratic, told, low, high, asked, under)
        for name, step in (("linear", 1e-5), ("limits", 1e-5)):
            for k in range(len(asked[name])):
                nudge = np.eye(len(asked[name]))[k] * step
                up, down = (truth(asked | {name: asked[name] + sign * nudge}) for sign in (1, -1))
                slope, moved = (up[0] - down[0]) / (2 * step), (up[1] - down[1]) / (2 * step)
                one_sided = truth(asked | {name: asked[name] + nudge})[1] - x
                if np.abs(one_sided / step - moved).max() > 1e-3:
                    continue  # on the edge of a face
                assert float(np.asarray(dv[name])[k]) == pytest.approx(slope, abs=1e-2 * (1 + abs(slope)))
                np.testing.assert_allclose(np.asarray(dx[name])[:, k], moved, atol=2e-2 * (1 + np.abs(moved).max()))
        priced += (shadow > 1e-3).any()
    assert 3 <= priced


def test_where_no_gradient_vanishes_nobody_says_it_did():
    """The least of |x - 0.3| is a kink: found, but not stationary, unless a hundred roots of the tolerance say so."""
    kink = lambda x, p: jnp.sum(jnp.abs(x - 0.3))
    told = minimize(kink, [0.0], [1.0], starts=2)
    assert float(told.value["x"][0]) == pytest.approx(0.3, abs=1e-3)
    assert told.certificate["stationarity"] > 0.1 and told.flags == Flag.NOT_CONVERGED
    for share, flag in ((0.9995, Flag.NOT_CONVERGED), (1.0005, 0)):
        loose = (share * told.certificate["stationarity"] / 100) ** 2
        assert minimize(kink, [0.0], [1.0], starts=2, tolerance=loose).flags == flag
