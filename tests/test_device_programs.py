"""What runs on a device, without one: lowered for CUDA, compiled where the compiler is, run on the CPU instead."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.speed import _ahead_of_time, _device_programs, gpu
from dmodels.core.flags import Flag
from dmodels.games.resource import Alone, Exponential, Game, equilibrium
from dmodels.solvers import assign, congestion_transport, transport, variational_equilibrium
from dmodels.solvers.assignment import pallas, xla
from dmodels.solvers.assignment import traced as assignment_traced
from dmodels.solvers.assignment.device import search
from dmodels.solvers.transportation import traced as transportation_traced
from dmodels.solvers.transportation.slots import place

PROGRAMS = [sized.make(min(sized.most, 16)) for sized in _device_programs.SMALL]
NAMES = [program.name for program in PROGRAMS]

#: Custom calls that are compiled with the program; a callback to the host is a custom call of another name.
ON_THE_DEVICE = {"__gpu$xla.gpu.triton"}


def lowered_for_cuda(program, *arrays) -> str:
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays]
    try:
        return jax.jit(program).trace(*shapes).lower(lowering_platforms=("cuda",)).as_text()
    except RuntimeError as error:  # jax 0.11 on wants a GPU to lower for
        assert "No supported GPU devices" in str(error)
        pytest.skip("this JAX lowers for a GPU only where there is one")


def check_stays_on_the_device(text: str):
    calls = set(re.findall(r"custom_call @([\w$.]+)", text)) | set(re.findall(r'call_target_name = "([^"]+)"', text))
    assert calls <= ON_THE_DEVICE, calls
    assert "callback" not in text and "tensor<?" not in text and "x?x" not in text


@pytest.mark.parametrize("program", PROGRAMS, ids=NAMES)
def test_no_program_calls_the_host_or_has_a_shape_that_is_not_known(program):
    text = lowered_for_cuda(program.program, *program.inputs, *program.shared)
    check_stays_on_the_device(text)
    assert "while" in text or "triton" in text  # it is the program that is looked at, not a constant


def test_the_check_sees_a_call_to_the_host():
    """Transportation inside a caller's own `jit` asks the host, and is no device program: it is not even lowered."""
    with pytest.raises(ValueError, match="different from the lowering platform"):
        lowered_for_cuda(lambda c: transport(c, jnp.ones(2)).value.cost, np.zeros((2, 2, 2)))
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
    text = lowered_for_cuda(run, *(np.zeros(shape, np.float32) for shape in shapes))
    assert "xf32" in text and "xf64" not in text  # scalars of 64 bits are constants that the compiler folds
    assert ("triton" in text) == (name == "kernel")


def test_callers_own_programs_stay_on_the_device(monkeypatch):
    """Where there is an accelerator, assignment and transportation inside `jit` take no way over the host."""
    monkeypatch.setattr(assignment_traced, "accelerators", lambda: (None,))
    monkeypatch.setattr(transportation_traced, "accelerators", lambda: (None,))
    costs = np.zeros((2, 4, 3))
    check_stays_on_the_device(lowered_for_cuda(lambda c: assign(c).value.cost, costs))
    check_stays_on_the_device(lowered_for_cuda(lambda c: transport(c, jnp.full(3, 2.0)).value.cost, costs))
    check_stays_on_the_device(lowered_for_cuda(lambda c: congestion_transport(c, jnp.zeros((3, 4))).value.loads, costs))


@pytest.mark.slow
def test_games_of_plans_stay_on_the_device():
    """The variational solver with its fallbacks, and the prefill/decode game where its curves need a scan."""

    def equilibrium_of(a):
        costs = [lambda x, a: x[0] ** 2 + a * x[0] * x[1] - 3 * x[0], lambda x, a: x[1] ** 2 - x[1] + a * x[0] * x[1]]
        return variational_equilibrium(costs, lambda x, a: x[0] + x[1] - 1, (0, 1), params=a, unroll=True).value.x

    check_stays_on_the_device(lowered_for_cuda(jax.vmap(equilibrium_of), np.ones(4)))
    split = lambda a: equilibrium(Game(Exponential(a), Alone(Exponential(0.5)), 8.0)).value.prefill_gpus
    check_stays_on_the_device(lowered_for_cuda(split, np.ones(4)))


@pytest.mark.slow
def test_plans_sweeps_and_the_event_scan_stay_on_the_device():
    from dmodels import SLO, catalog
    from dmodels.design.program import arguments, block
    from dmodels.sim.batching import scan
    from dmodels.studies.plan import price, question
    from dmodels.studies.plan.evaluate import _asked

    asked = question("llama-3.1-70b", ["h100"], catalog.workload("azure-conv", 20.0), SLO(2.0, 0.08))
    program = _asked(price(asked).cells, asked.rate_rps, asked.engine, 1.0)
    traced = block.trace(program.function, program.layout, *arguments(program, 0))
    check_stays_on_the_device(traced.lower(lowering_platforms=("cuda",)).as_text())
    requests, lanes, slots = 8, 2, 4
    stream, laws = np.ones((requests, lanes)), np.ones((slots + 1, lanes))
    traced = scan._serve.trace(stream, stream, stream, laws, np.full(lanes, 4.0), 1.0, 512.0, slots, 0)
    check_stays_on_the_device(traced.lower(lowering_platforms=("cuda",)).as_text())


@pytest.mark.slow
def test_the_derivatives_of_the_fit_stay_on_the_device():
    """All that the fit computes of its rows at a step; the normal equations are solved on the host."""
    from dmodels.fit.descent import slopes
    from dmodels.fit.points import to_points
    from dmodels.fit.silicon import problem_of
    from tests.fit.test_silicon import rows

    points, kept = to_points(rows(4))
    problem, _, _ = problem_of(points, kept.rows)
    with jax.enable_x64(True):
        text = slopes.trace(problem.halves, problem.origin).lower(lowering_platforms=("cuda",)).as_text()
    check_stays_on_the_device(text)


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
    monkeypatch.setattr(gpu, "switch_rows", lambda counts: [])
    assert main(["--quick", "gpu"]) == 0
    shown = capsys.readouterr().out
    assert "device cpu" in shown and "proved_frac 1" in shown and "of_paper None" in shown
    with pytest.raises(SystemExit, match="needs an accelerator"):
        main(["gpu"])


@pytest.mark.slow
def test_the_whole_benchmark_runs_on_the_cpu_as_a_stand_in(capsys):
    assert main(["--quick", "gpu"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in NAMES) and "switch" in shown


@pytest.mark.skipif(_ahead_of_time.why_not() != "", reason="the CUDA compiler (extra `cuda`) is not installed")
def test_programs_compile_for_a_gpu_that_is_not_here():
    program = PROGRAMS[0]
    made = _ahead_of_time.compile_for(program.program, [*program.inputs, *program.shared], "h200")
    assert made.triton_kernels == 1 and made.host_calls == 0 and made.spilled_bytes == 0


@pytest.mark.slow
def test_a_batch_is_spread_over_all_devices():
    """Two devices, a batch that does not divide: the same answers as on one."""
    code = (
        "import jax, numpy as np; from dmodels.solvers import assign\n"
        "assert len(jax.devices()) == 2\n"
        "c = np.random.default_rng(0).random((101, 6, 6))\n"
        "a, b = (assign(c, backend=k) for k in ('device', 'cpu'))\n"
        "np.testing.assert_allclose(a.value.cost, b.value.cost, rtol=1e-12); assert not a.flags.any()\n"
    )
    flags = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    subprocess.run([sys.executable, "-c", code], check=True, env=flags)


def test_wardrop_equilibria_in_a_batch_equalise_what_is_used():
    """Pigou's pair and three others at once, under jit and vmap of the same program."""
    from dmodels.solvers.wardrop import wardrop

    slope, start = np.array([[1.0, 0.0], [1.0, 1.0], [2.0, 1.0], [1.0, 3.0]]), np.array([[0.0, 1.0]] * 3 + [[0.0, 0.0]])
    one = lambda a, b: wardrop(lambda x: a * x + b, jnp.ones(()), jnp.full(2, jnp.inf))
    found = jax.jit(jax.vmap(one))(slope, start)
    np.testing.assert_allclose(found.value["loads"][:, 0], [1.0, 1.0, 2 / 3, 3 / 4], atol=1e-9)
    assert not (np.asarray(found.flags) & ~int(Flag.NOT_UNIQUE)).any()
