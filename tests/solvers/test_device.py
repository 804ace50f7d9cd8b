"""The device programs of assignment and transportation give the host's certified answers, on every kind of problem."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmodels.core import devices
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.solvers import assign, assign_many, congestion_transport, device, transport
from dmodels.solvers.assignment import device as assignment_device
from dmodels.solvers.assignment import solve as assignment_solve
from dmodels.solvers.transportation import device as transportation_device
from dmodels.solvers.transportation import solve as transportation_solve

KINDS = ("uniform", "ties", "forbidden", "damaged", "large", "near ties")


def costs(rng, kind: str, shape: tuple[int, int, int]) -> np.ndarray:
    cost = rng.random(shape)
    if kind == "ties":
        cost = np.floor(3 * cost)
    if kind == "forbidden":
        cost[rng.random(shape) < 0.4] = np.inf
    if kind == "damaged":
        cost[0, 0, 0], cost[1, -1, 0], cost[2, 0] = np.nan, -np.inf, np.inf
    if kind == "large":
        cost = 1e9 + 1e6 * cost
    if kind == "near ties":  # differences that float32 cannot see
        cost = np.floor(4 * cost) + 1e-9 * rng.random(shape)
    return cost


def check_placement(cost, found, known, bound):
    """The host's flags and costs, and a lower bound recomputed here from the device's own duals."""
    np.testing.assert_array_equal(found.flags, known.flags)
    good = known.flags == 0
    u, v = found.certificate["row_duals"][good], found.certificate["column_duals"][good]
    scale = np.abs(np.where(np.isfinite(cost[good]), cost[good], 0)).max(initial=1.0)
    assert (cost[good] - u[:, :, None] - v[:, None, :]).min(initial=0) >= -1e-12 * scale
    total = np.abs(u).sum(-1) + (found.value.loads[good] * np.abs(v)).sum(-1) + np.abs(found.value.cost[good])
    assert (np.abs(found.value.cost[good] - u.sum(-1) - bound(v, good)) <= 1e-11 * total).all()
    assert (np.abs(found.value.cost[good] - known.value.cost[good]) <= 1e-11 * total).all()


def placements(rng, kind: str, count: int, n: int, m: int):
    """(cost, capacities, rising marginals): tight, loose and insufficient rooms; flat, steep and poled congestion."""
    room = np.where(rng.random((count, 1)) < 0.5, -(-n // m), rng.integers(0, 2 * n // m + 2, (count, m)))
    room = np.where(rng.random((count, m)) < 0.1, np.inf, room.astype(float))
    steps = 0.2 * rng.random((count, m, n)) * (rng.random((count, m, 1)) < 0.8)
    marginal = np.cumsum(np.floor(8 * steps) if kind == "ties" else steps, -1)
    marginal[rng.random((count, m)) < 0.2, n // 2 :] = np.inf
    return costs(rng, kind, (count, n, m)), room, marginal


def check_placements(rng, kind: str, count: int, n: int, m: int):
    cost, room, marginal = placements(rng, kind, count, n, m)
    room_of = np.minimum(np.floor(room), n + 1)
    check_placement(
        cost,
        transport(cost, room, backend="device"),
        transport(cost, room, backend="cpu"),
        lambda v, good: (room_of[good] * v).sum(-1),
    )
    check_placement(
        cost,
        congestion_transport(cost, marginal, backend="device"),
        congestion_transport(cost, marginal, backend="cpu"),
        lambda v, good: np.minimum(marginal[good] + v[..., None], 0).sum((-1, -2)),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_placements_are_the_hosts(kind):
    check_placements(np.random.default_rng(1), kind, 64, 12, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_placements_inside_jit_need_no_host(kind):
    """What `jit` takes on an accelerator, in float64: the host's flags and costs, and rays where infeasible."""
    cost, room, marginal = placements(np.random.default_rng(1), kind, 64, 12, 3)
    for program, host, side in (
        (transportation_device.answered_transport, transport, room),
        (transportation_device.answered_congestion, congestion_transport, marginal),
    ):
        known = host(cost, side, backend="cpu")
        found = map(np.asarray, jax.jit(jax.vmap(program))(cost, side))
        columns, load, total, u, v, _, _, flags, _ = found
        np.testing.assert_array_equal(flags, known.flags)
        np.testing.assert_allclose(total, known.value.cost, rtol=1e-11)
        np.testing.assert_array_equal(np.isnan(load), np.isnan(known.value.loads))
        np.testing.assert_array_equal(columns < 0, known.value.columns < 0)
        none = flags == Flag.INFEASIBLE
        width = np.minimum(np.floor(room), 13) if side is room else np.isfinite(marginal).sum(-1)
        assert (u[none].sum(-1) + (width[none] * v[none]).sum(-1) > 0).all()
        assert (u[none][:, :, None] + v[none][:, None, :])[np.isfinite(cost[none])].max(initial=0) <= 0


@pytest.mark.slow
@pytest.mark.parametrize(("count", "n", "m"), [(10_200, 12, 3), (500, 64, 4), (60, 200, 8), (2000, 5, 7), (4000, 1, 1)])
@pytest.mark.parametrize("kind", KINDS)
def test_placements_are_the_hosts_in_large_batches(kind, count, n, m):
    """10^5 each with capacities and with convex congestion."""
    check_placements(np.random.default_rng(n), kind, count, n, m)


def check_matchings(cost, maximize):
    found, known = (assign(cost, maximize, backend=b) for b in ("device", "cpu"))
    np.testing.assert_array_equal(found.flags, known.flags)
    good = np.asarray(known.flags == 0)
    u, v = found.certificate["row_duals"][good], found.certificate["column_duals"][good]
    sign = -1.0 if maximize else 1.0
    scale = np.abs(np.where(np.isfinite(cost[good]), cost[good], 0)).max(initial=1.0)
    assert (sign * (cost[good] - u[:, :, None] - v[:, None, :])).min(initial=0) >= -1e-12 * scale
    total = np.abs(u).sum(-1) + np.abs(v).sum(-1) + np.abs(found.value.cost[good])
    assert (np.abs(found.value.cost[good] - u.sum(-1) - v.sum(-1)) <= 1e-11 * total).all()
    assert (np.abs(found.value.cost[good] - known.value.cost[good]) <= 1e-11 * total).all()
    long_side = u if cost.shape[1] > cost.shape[2] else v
    if cost.shape[1] != cost.shape[2]:
        assert (sign * long_side).max(initial=-1) <= 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("shape", "maximize"), [((40, 6, 6), False), ((40, 8, 5), True)])
def test_matchings_are_the_hosts(kind, shape, maximize):
    cost = costs(np.random.default_rng(2), kind, shape)
    check_matchings(np.where(np.isposinf(cost), -np.inf, cost) if maximize else cost, maximize)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(12_200, 6, 6), (4000, 5, 9), (500, 40, 40), (20, 128, 130)])
@pytest.mark.parametrize("kind", KINDS)
def test_matchings_are_the_hosts_in_large_batches(kind, shape):
    """10^5 in plain XLA, the path of every device but CUDA's."""
    check_matchings(costs(np.random.default_rng(shape[1]), kind, shape), False)


@pytest.fixture
def kernel_only(monkeypatch):
    """`assign` on the device searches by the kernel, which is interpreted here, and the host solves nothing unless a
    test allows it; 512 problems at once, as the interpreter copies the whole batch for each."""
    monkeypatch.setattr(assignment_device, "search", assignment_device._kernel)
    solve = assignment_device.proved_matching
    monkeypatch.setattr(assignment_device, "proved_matching", lambda c: solve(c))  # traced anew
    yield
    device._spread.cache_clear()


def check_kernel(monkeypatch, kind: str, shape: tuple[int, int, int]):
    few, many = sorted(shape[1:])
    monkeypatch.setattr(device, "CHUNK_BYTES", 512 * 8.0 * few * (4 * many + 16))
    cost = costs(np.random.default_rng(shape[1]), kind, shape)
    sent = []
    host = assignment_device.solve_host
    monkeypatch.setattr(assignment_device, "solve_host", lambda c, up: (sent.append(len(c)), host(c, up))[1])
    check_matchings(cost, False)
    if kind in ("uniform", "ties"):
        assert not sent  # all of them were the kernel's own


@pytest.mark.parametrize("kind", KINDS)
def test_matchings_of_the_interpreted_kernel_are_the_hosts(kind, kernel_only, monkeypatch):
    check_kernel(monkeypatch, kind, (40, 6, 6))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(14_000, 6, 6), (2500, 5, 9), (100, 40, 40), (100, 1, 1), (10, 128, 130)])
@pytest.mark.parametrize("kind", KINDS)
def test_matchings_of_the_interpreted_kernel_are_the_hosts_in_large_batches(kind, shape, kernel_only, monkeypatch):
    """10^5, the kernel's largest widths in one warp and its smallest among them."""
    check_kernel(monkeypatch, kind, shape)


def test_whole_costs_have_whole_certificates_and_large_ones_are_exact():
    rng = np.random.default_rng(3)
    for size in (50, 2**50):
        cost = rng.integers(-size, size, (20, 6, 6))
        found, known = (assign(cost, backend=b) for b in ("device", "cpu"))
        np.testing.assert_array_equal(found.value.cost, known.value.cost)
        u, v = found.certificate["row_duals"], found.certificate["column_duals"]
        assert found.value.cost.dtype == u.dtype == np.int64 and (found.certificate["gap"] == 0).all()
        assert (cost - u[:, :, None] - v[:, None, :]).min() == 0
        np.testing.assert_array_equal(u.sum(-1) + v.sum(-1), found.value.cost)


@pytest.mark.parametrize("maximize", [False, True])
def test_matrices_of_many_sizes_in_one_call(maximize):
    rng = np.random.default_rng(4)
    many = [rng.random((rng.integers(1, 8), rng.integers(1, 8))) for _ in range(30)]
    many += [np.empty((0, 3)), np.full((2, 2), -np.inf if maximize else np.inf)]
    for backend in ("device", "cpu"):
        for cost, found in zip(many, assign_many(many, maximize, backend=backend), strict=True):
            known = assign(cost, maximize)
            assert found.flags == known.flags and found.value.columns.shape == cost.shape[:1]
            assert float(found.value.cost) == pytest.approx(float(known.value.cost))
            if found.flags == 0 and cost.size:
                u, v = found.certificate["row_duals"], found.certificate["column_duals"]
                assert (-1 if maximize else 1) * (cost - u[:, None] - v[None, :]).min() >= -1e-12 or maximize
                assert float(u.sum() + v.sum()) == pytest.approx(float(known.value.cost))
                taken = found.value.columns[found.value.columns >= 0]
                assert len(set(taken.tolist())) == len(taken) == min(cost.shape)


def test_only_what_the_device_cannot_prove_goes_to_the_host(monkeypatch):
    """Of 64 problems three are damaged; the 61 others are answered without the host."""
    sent = []
    for module, name in ((assignment_device, "solve_host"), (transportation_device, "transport_host")):
        solver = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda cost, *rest, solver=solver: (sent.append(len(cost)), solver(cost, *rest))[1]
        )
    cost = costs(np.random.default_rng(5), "damaged", (64, 6, 6))
    assign(cost, backend="device")
    transport(cost, np.full(6, 2.0), backend="device")
    assert sent == [3, 3]


def test_a_batch_is_cut_to_the_memory_it_may_use(monkeypatch):
    """Chunks of 4 problems of a batch of 11, the last filled up: what comes back is the whole batch, in order."""
    sizes = []

    def program(x):
        sizes.append(x.shape[0])
        return x[:, 0], 2 * x

    monkeypatch.setattr(device, "CHUNK_BYTES", 100)
    x = np.arange(33.0).reshape(11, 3)
    first, double = device.in_chunks(program, [x], 24.0)
    np.testing.assert_array_equal(first, x[:, 0])
    np.testing.assert_array_equal(double, 2 * x)
    assert sizes == [4]  # one shape, compiled once


def test_large_arrays_are_sent_in_pieces(monkeypatch):
    """Of 14 problems and of a table that all read: nothing above 100 bytes is sent, and all arrives in order."""
    monkeypatch.setattr(device, "PIECE_BYTES", 100)
    sent, put = [], jax.device_put
    monkeypatch.setattr(jax, "device_put", lambda a, *where: (sent.append(np.asarray(a).nbytes), put(a, *where))[1])
    x, table = np.arange(42.0).reshape(14, 3), np.arange(19.0)
    found, sums = device.in_chunks(_with_a_table, [x], 24.0, (table, np.float64(0.5)))
    np.testing.assert_array_equal(found, x + table[3:6] + 0.5)
    np.testing.assert_array_equal(sums, np.full(14, table.sum()))
    assert 24 < max(sent) <= 100


def _with_a_table(x, table, more):
    return x + table[None, 3:6] + more, jnp.full(len(x), table.sum())


def test_backends_are_named_and_auto_stays_on_the_cpu_where_there_is_no_accelerator():
    assert all(d.platform == "cpu" for d in jax.devices())
    assert not device.takes_device("auto", (10**9,)) and device.takes_device("device", (1,))
    for solve in (
        lambda: transport(np.zeros((2, 2)), [1.0, 1.0], backend="gpu"),
        lambda: congestion_transport(np.zeros((2, 2)), np.zeros((2, 2)), backend="gpu"),
    ):
        with pytest.raises(InputError, match="backend = 'gpu'; accepted are auto, cpu, device"):
            solve()
    with pytest.raises(InputError, match="accepted are auto, cpu"):
        transport(np.zeros((2, 2)), [1.0, 1.0], np.ones(2), backend="device")


def test_a_process_chooses_its_device_once_for_all_batches(monkeypatch):
    """An accelerator takes batches of FEWEST and more, all of them where a GPU was asked for, and else none."""
    with pytest.raises(InputError, match="JAX sees no accelerator here; accepted are auto, cpu"):
        devices.choose_device("gpu")
    with pytest.raises(InputError, match="device = 'tpu'; accepted are auto, cpu, gpu"):
        devices.choose_device("tpu")
    there = lambda: ("an accelerator",)
    monkeypatch.setattr(device, "accelerators", there)
    for chosen, least in (("auto", device.FEWEST), ("gpu", 1)):
        monkeypatch.setattr(devices, "_chosen", chosen)
        assert device.takes_device("auto", (least,)) and not device.takes_device("auto", (least - 1,))
        assert not device.takes_device("cpu", (10**9,)) and device.takes_device("device", (1,))
    monkeypatch.setattr(devices, "_chosen", "cpu")
    assert not device.takes_device("auto", (10**9,))
    monkeypatch.setattr(devices, "accelerators", there)
    with pytest.raises(InputError, match="this process has begun on an accelerator"):
        devices.choose_device("cpu")


def test_many_cores_keep_matchings_and_tight_placements_from_a_device(monkeypatch):
    """An H200 answers these as 4 to 6 cores do: "auto" keeps them on 16 cores, unless a GPU was asked for, and gives
    them away on 4; placements with convex congestion, for which it is worth 34 cores, are given away by both."""
    gone = []
    take = lambda name: lambda *_: gone.append(name) or ()
    monkeypatch.setattr(assignment_device, "assign_on_device", take("assign"))
    monkeypatch.setattr(assignment_solve, "solution_of", lambda *found: found)
    monkeypatch.setattr(assignment_solve, "solve_host", lambda *_: ())
    monkeypatch.setattr(transportation_solve, "transport_host", lambda *_: ())
    monkeypatch.setattr(transportation_device, "transport_on_device", take("transport"))
    monkeypatch.setattr(transportation_device, "congestion_on_device", take("congestion"))
    monkeypatch.setattr(device, "accelerators", lambda: ("an accelerator",))
    cost, flat = np.zeros((device.FEWEST, 1, 1)), np.zeros((1, 1))
    for cores, chosen, taken in (
        (16, "auto", ["congestion"]),
        (4, "auto", ["assign", "transport", "congestion"]),
        (16, "gpu", ["assign", "transport", "congestion"]),
    ):
        gone.clear()
        monkeypatch.setattr(device, "CORES", cores)
        monkeypatch.setattr(devices, "_chosen", chosen)
        assign(cost)
        transport(cost, np.ones(1))
        congestion_transport(cost, flat)
        assert gone == taken


def test_an_infeasible_problem_comes_with_the_hosts_farkas_ray():
    cost = np.zeros((1, 3, 2))
    found = transport(cost, [1.0, 1.0], backend="device")
    u, v = found.certificate["row_duals"][0], found.certificate["column_duals"][0]
    assert found.flags[0] == Flag.INFEASIBLE and u.sum() + v.sum() > 0 and (u[:, None] + v[None, :]).max() <= 0
