"""What runs on a device, without one: lowered for CUDA, compiled where the compiler is, run on the CPU instead."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.speed import _ahead_of_time, _device_programs, gpu
from dmodels.core.flags import Flag
from dmodels.fit import descent
from dmodels.games.anarchy import index_device
from dmodels.games.resource import Alone, Exponential, Game, Logistic, equilibrium
from dmodels.games.routing import best_response, programs
from dmodels.games.routing.programs import LOGIT_STEPS, MOVES_FRAC
from dmodels.sim.batching.scan import scan_work
from dmodels.solvers import assign, congestion_transport, transport
from dmodels.solvers.assignment import device as assignment_device
from dmodels.solvers.assignment import pallas, xla
from dmodels.solvers.assignment import traced as assignment_traced
from dmodels.solvers.assignment.device import matching_work, search
from dmodels.solvers.transportation import traced as transportation_traced
from dmodels.solvers.transportation.device import placement_work
from dmodels.solvers.transportation.slots import place
from dmodels.solvers.variational.solve import equilibrium_work
from dmodels.solvers.wardrop import wardrop, wardrop_work
from tests.lowered import ON_THE_DEVICE, check_stays_on_the_device, lowered_for

PROGRAMS = [sized.make(min(sized.most, 16)) for sized in _device_programs.SMALL]
NAMES = [program.name for program in PROGRAMS]


@pytest.mark.parametrize("program", PROGRAMS, ids=NAMES)
def test_no_program_calls_the_host_or_has_a_shape_that_is_not_known(program):
    """For CUDA with its kernel; for AMD's GPUs and TPUs as plain XLA, nothing of which is a custom call."""
    arrays = [*program.inputs, *program.shared]
    for platform, calls in (("cuda", ON_THE_DEVICE), ("rocm", set()), ("tpu", set())):
        text = lowered_for(platform, program.program, *arrays)
        check_stays_on_the_device(text, calls)
        assert "while" in text or "triton" in text  # it is the program that is looked at, not a constant


#: What one item of a program takes, by its sizes. Of longer tables of loads more is read, and no more computed.
WORK = [
    (programs.response_work, {"groups": 3, "m": 8, "loads": 16, "requests": 16}),
    (programs.profile_work, {"groups": 3, "m": 8, "loads": 16, "profiles": 4096}),
    (programs.logit_work, {"groups": 3, "m": 8, "loads": 16}),
    (equilibrium_work, {"n": 12, "rows": 20}),
    (wardrop_work, {"m": 8}),
    (matching_work, {"n": 64}),
    (placement_work, {"n": 64, "m": 64, "paths": 8.0}),
    (scan_work, {"requests": 100, "slots": 64}),
    (descent.slopes_work, {"names": 8}),
    (partial(descent.turn_work, 100), {"names": 8, "effects": 30, "paths": 9, "width": 6}),
]


@pytest.mark.parametrize(("work", "sizes"), WORK, ids=lambda of: getattr(of, "__name__", ""))
def test_a_larger_item_is_more_work_and_at_most_by_the_cube(work, sizes):
    now = work(**sizes)
    for name, size in sizes.items():
        twice = work(**sizes | {name: 2 * size})
        arithmetic = [one.flop64 + one.flop32 for one in (now, twice)]
        tabulated = name == "loads" and work is not programs.logit_work
        assert arithmetic[0] <= arithmetic[1] <= 8 * arithmetic[0] and (tabulated or arithmetic[0] < arithmetic[1])
        assert now.device_bytes <= twice.device_bytes <= 8 * now.device_bytes
        assert now.launches <= twice.launches <= 2 * now.launches


def test_an_instance_has_two_events_a_request():
    """Of 100 requests and 64 slots 200 events, each of 232 numbers moved, 424 operations and 8 launches."""
    assert scan_work(100, 64)[:4] == (200 * 232 * 8, 200 * 424, 0.0, 200 * 8) and scan_work(1, 1).registers == 40


def test_the_check_sees_a_call_to_the_host():
    """Transportation inside a caller's own `jit` asks the host, and is no device program: it is not even lowered."""
    with pytest.raises(ValueError, match="different from the lowering platform"):
        lowered_for("cuda", lambda c: transport(c, jnp.ones(2)).value.cost, np.zeros((2, 2, 2)))
    with pytest.raises(AssertionError, match="cpu_callback"):
        check_stays_on_the_device(
            jax.jit(lambda c: transport(c, jnp.ones(2)).value.cost).lower(np.zeros((2, 2))).as_text()
        )


@pytest.mark.parametrize(
    ("name", "run", "shapes"),
    [
        ("place", jax.vmap(place), [(4, 24, 3), (4, 3, 24)]),
        ("plain", jax.vmap(xla.match), [(4, 8, 8)]),
        ("kernel", pallas.match_batch, [(4, 8, 8)]),
        ("beyond the kernel", search, [(1, 4, 600)]),
    ],
)
def test_searches_stay_in_float32(name, run, shapes):
    """The loops that are meant for float32 have no float64 in them, though 64-bit types are on."""
    assert jax.config.jax_enable_x64
    text = lowered_for("cuda", run, *(np.zeros(shape, np.float32) for shape in shapes))
    assert "xf32" in text and "xf64" not in text  # scalars of 64 bits are constants that the compiler folds
    assert ("triton" in text) == (name == "kernel")


def test_callers_own_programs_stay_on_the_device(monkeypatch):
    """Where there is an accelerator, assignment and transportation inside `jit` take no way over the host."""
    monkeypatch.setattr(assignment_traced, "accelerators", lambda: (None,))
    monkeypatch.setattr(transportation_traced, "accelerators", lambda: (None,))
    costs = np.zeros((2, 4, 3))
    check_stays_on_the_device(lowered_for("cuda", lambda c: assign(c).value.cost, costs))
    check_stays_on_the_device(lowered_for("cuda", lambda c: transport(c, jnp.full(3, 2.0)).value.cost, costs))
    check_stays_on_the_device(
        lowered_for("cuda", lambda c: congestion_transport(c, jnp.zeros((3, 4))).value.loads, costs)
    )


def test_games_that_need_a_scan_stay_on_the_device():
    """The prefill/decode game whose families prove nothing; `PROGRAMS` has the one that they do, and the general solver
    with its fallbacks. Plans and the fit are lowered beside their own tests."""
    split = lambda a: equilibrium(Game(Logistic(3.0, a), Alone(Exponential(0.5)), 8.0)).value.prefill_gpus
    check_stays_on_the_device(lowered_for("cuda", split, np.ones(4)))


#: Every command that computes batches.
BATCHES = (
    "plan",
    "report examples/plan.toml",
    "sweep examples/sweep.toml --axis tp=1",
    "split examples/split.toml",
    "place examples/place.toml --trace examples/data/mooncake_head.jsonl",
    "predict rows.csv",
    "fit rows.csv",
    "fit operators tables",
    "poa log.csv",
)


def test_every_command_that_computes_batches_chooses_its_device_before_jax_begins():
    """`--device cpu` names JAX's platform while there is still a choice, also in the printed call; `gpu` is refused
    where there is none."""
    code = (
        "import os, sys; from dmodels.cli import main\n"
        f"for line in {[line.split() for line in BATCHES]}:\n"
        "    os.environ.pop('JAX_PLATFORMS', None)\n"
        "    assert main([*line, '--device', 'cpu', '--show-python']) == 0, line\n"
        "    assert os.environ['JAX_PLATFORMS'] == 'cpu' and 'jax' not in sys.modules, line\n"
        "assert main(['plan', '--device', 'gpu']) == 2\n"
    )
    root = Path(__file__).resolve().parents[1]
    found = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert "device = 'gpu', but JAX sees no accelerator here" in found.stderr
    assert found.stdout.count("from dmodels import choose_device\n\nchoose_device('cpu')\n") == len(BATCHES)


def test_the_benchmark_runs_on_the_cpu_as_a_stand_in(monkeypatch, capsys):
    monkeypatch.setattr(_device_programs, "SMALL", _device_programs.SMALL[:1])
    monkeypatch.setattr(gpu, "switch_rows", lambda counts: iter(()))
    for slow in ("PLAN", "FIT"):
        monkeypatch.setattr(_device_programs, slow, _device_programs.SMALL[0])
    assert main(["--quick", "gpu"]) == 0
    shown = capsys.readouterr().out
    assert (
        "device_kind cpu" in shown
        and "GiB of float64" in shown
        and "proved_frac 1" in shown
        and "of_paper None" in shown
    )
    assert "h100_on_paper_per_s" in shown and "left_out []" in shown
    with pytest.raises(SystemExit, match="needs an accelerator"):
        main(["gpu"])


@pytest.mark.slow
def test_the_whole_benchmark_runs_on_the_cpu_as_a_stand_in(capsys):
    assert main(["--quick", "gpu"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in NAMES) and "switch" in shown


def test_programs_compile_for_a_gpu_that_is_not_here():
    """`make compile-gpu` installs the compiler, and then nothing is skipped."""
    if reason := _ahead_of_time.why_not():
        assert os.environ.get("CUDA_COMPILER") != "required", reason
        pytest.skip(f"NOT COMPILED for any GPU: {reason}; `make compile-gpu` does both")
    program = PROGRAMS[0]
    for target in _ahead_of_time.TARGETS:  # compute capabilities 8.0, 9.0 and 10.0
        made = _ahead_of_time.compile_for(program.program, [*program.inputs, *program.shared], target)
        assert made.triton_kernels == 1 and made.host_calls == 0 and made.spilled_bytes == 0
        assert 0 < made.most_registers <= 255 and made.most_shared_bytes <= 49_152


@pytest.mark.slow
def test_a_batch_is_spread_over_all_devices():
    """Two devices, a batch that does not divide, sent in pieces: the same answers as on one."""
    code = (
        "import jax, numpy as np; from dmodels.solvers import assign, device\n"
        "assert len(jax.devices()) == 2; device.PIECE_BYTES = 2000\n"
        "c = np.random.default_rng(0).random((101, 6, 6))\n"
        "a, b = (assign(c, backend=k) for k in ('device', 'cpu'))\n"
        "np.testing.assert_allclose(a.value.cost, b.value.cost, rtol=1e-12); assert not a.flags.any()\n"
    )
    flags = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    subprocess.run([sys.executable, "-c", code], check=True, env=flags)


@pytest.mark.slow
def test_batches_take_the_steps_that_are_counted_on_paper(monkeypatch):
    rng = np.random.default_rng(4)
    moves = best_response(_device_programs.routing(rng, [16] * 4, 4, 500), backend="cpu").steps.max()
    assert moves / 64 == pytest.approx(MOVES_FRAC, rel=0.3)
    with jax.enable_x64(True):
        tight, cold = _device_programs.placement(512, 8, False, 16), _device_programs.logits([16, 16], 4, 16)
        paths = np.asarray(jax.jit(tight.program)(*tight.inputs)[6]).max()
        steps = np.asarray(jax.jit(cold.program)(*cold.inputs)[3]).max()
    assert paths / 512 == pytest.approx(0.1, rel=0.3) and steps == pytest.approx(LOGIT_STEPS, rel=0.2)
    placed, window = index_device.proved_placement, _device_programs.index(512, 8, 16)
    monkeypatch.setattr(index_device, "proved_placement", lambda *a: (*(s := placed(*a))[:2], s[6], *s[3:]))
    with jax.enable_x64(True):
        paths = np.asarray(jax.jit(lambda *a: window.program(*a))(*window.inputs, *window.shared)[3]).max()
    assert paths / 512 == pytest.approx(0.75, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("rounds", "enough"), [(32, True), (12, False)])
def test_matchings_wait_for_the_rounds_that_are_counted_on_paper(rounds, enough, monkeypatch):
    """23 for 32 rows: a half more is enough for all of 4,096 problems, a half of it is not."""
    monkeypatch.setattr(assignment_device, "ROUNDS", rounds)
    costs = np.random.default_rng(0).random((4096, 32, 32))
    with jax.enable_x64(True):
        proved = np.asarray(jax.jit(lambda c: assignment_device.proved_matching(c)[-1])(costs))
    assert proved.all() == enough and proved.mean() > 0.9


def level_by_hand(a: np.ndarray, b: np.ndarray, demand: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """Loads of affine latencies a x + b, a > 0, at which all that is used and not full is equally slow: the kinks of
    the total load are sorted, and the level is found between two of them."""
    kinks = np.sort(np.concatenate([b, b + a * capacity], -1), -1)
    load = lambda level: np.clip((level[..., None] - b) / a, 0, capacity)
    totals = np.stack([load(kinks[..., k]).sum(-1) for k in range(kinks.shape[-1])], -1)
    k = np.clip((totals < demand[..., None]).sum(-1), 1, kinks.shape[-1] - 1)
    at = lambda values, i: np.take_along_axis(values, i[..., None], -1)[..., 0]
    low, high = at(kinks, k - 1), at(kinks, k)
    rise = (demand - at(totals, k - 1)) / np.maximum(at(totals, k) - at(totals, k - 1), 1e-300)
    return load(low + rise * (high - low))


@pytest.mark.parametrize("count", [500, pytest.param(100_000, marks=pytest.mark.slow)])
def test_wardrop_equilibria_of_affine_latencies_are_those_by_hand(count):
    """Ties of whole numbers, equal workers, loads that reach a capacity, demands next to nothing and next to all."""
    rng = np.random.default_rng(3)
    a, b = rng.uniform(0.1, 2.0, (count, 4)), rng.uniform(0.0, 3.0, (count, 4))
    whole, alike = rng.random(count) < 0.3, rng.random(count) < 0.1
    a[whole], b[whole] = np.ceil(a[whole]), np.floor(b[whole])
    a[alike], b[alike] = a[alike][:, :1], b[alike][:, :1]
    capacity = rng.uniform(0.5, 2.0, (count, 4))
    demand = capacity.sum(-1) * rng.choice([1e-6, 0.3, 0.7, 1 - 1e-6], count)
    solve = lambda a, b, d, c: wardrop(lambda x: a * x + b, d, c)
    found = jax.jit(solve)(a, b, demand, capacity)
    proved = np.asarray(found.flags) & ~int(Flag.NOT_UNIQUE) == 0
    assert proved.mean() > 0.99  # next to no demand may miss 1e-10 of it
    np.testing.assert_allclose(found.value["loads"], level_by_hand(a, b, demand, capacity), atol=1e-8)


@pytest.mark.slow
def test_variational_equilibria_of_a_hundred_thousand_games_are_those_by_hand():
    """Two quadratic players who share a budget that binds: 2 x + a y - 3 = 2 y + a x - 1 on x + y = 1, or y = 0."""
    rng = np.random.default_rng(4)
    slope = rng.uniform(-1.5, 0.9, 100_000)
    game = next(sized for sized in _device_programs.SMALL if sized.make is _device_programs.shared_budget).make(1)
    x = np.asarray(jax.jit(game.program)(slope)[0])
    y = np.maximum(0.5 - 1.0 / (2.0 - slope), 0.0)
    np.testing.assert_allclose(x, np.stack([1.0 - y, y], -1), atol=1e-7)


def test_wardrop_equilibria_in_a_batch_equalise_what_is_used():
    """Pigou's pair and three others at once, under jit and vmap of the same program."""
    slope, start = np.array([[1.0, 0.0], [1.0, 1.0], [2.0, 1.0], [1.0, 3.0]]), np.array([[0.0, 1.0]] * 3 + [[0.0, 0.0]])
    one = lambda a, b: wardrop(lambda x: a * x + b, jnp.ones(()), jnp.full(2, jnp.inf))
    found = jax.jit(jax.vmap(one))(slope, start)
    np.testing.assert_allclose(found.value["loads"][:, 0], [1.0, 1.0, 2 / 3, 3 / 4], atol=1e-9)
    assert not (np.asarray(found.flags) & ~int(Flag.NOT_UNIQUE)).any()
