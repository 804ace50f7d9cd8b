"""Tests run in float64, with rank promotion and dtype promotion as errors, and hypothesis without deadlines."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from importlib.metadata import version
from math import inf
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Each worker has one core: more threads of BLAS would wait for each other, and wait busily.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Two thirds of the suite's time went into compiling, most of it the same programs again: in the other worker, in the
# next test's closure, in a command's own process. They share what this run has compiled; the folder goes with the run.
# What is compiled in less than 0.03 s is compiled again sooner than written and read.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    COMPILED = tempfile.TemporaryDirectory(prefix="dmodels-compiled-", ignore_cleanup_errors=True)
    os.environ |= {
        "JAX_COMPILATION_CACHE_DIR": COMPILED.name,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.03",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }

# What is left goes into compiling all the same, for speed that small cases do not need: half of it is saved by hardly
# optimising. `make test-all` compiles as users do. Another jaxlib may not know these flags, and would end at once.
QUICK = os.environ.get("HYPOTHESIS_PROFILE") != "thorough" and version("jaxlib").startswith("0.10.")
if QUICK:
    quick = "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=1"
    whole = "--xla_cpu_parallel_codegen_split_count=1"  # not in parts for other cores: a fifth less work
    flags = [os.environ.get("XLA_FLAGS", ""), quick, "--xla_llvm_disable_expensive_passes=true", whole]
    os.environ["XLA_FLAGS"] = " ".join(flags).strip()
    os.environ.setdefault("NUMBA_OPT", "1")  # of machine code for loops, a quarter of its seconds
#: Folders and files of tests that run a few programs again and again, or those of other processes, to the last bit, or
#: that share theirs with such; in the others nothing is optimised at all.
OPTIMISED = ("audit", "cli", "design", "studies", "test_one_memory", "fit", "report")
#: Folders and files that run last: what they share with those before, or with each other, is compiled and kept by then,
#: not compiled in both workers.
LAST = ("report", "solvers", "test_place")

# A twelfth of the suite's time was the garbage collector's, over the same modules and programs again and again.
gc.set_threshold(1_000_000, 10, 10)

settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], max_examples=50
)
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=2000)
settings.register_profile("seeded", parent=settings.get_profile("default"), derandomize=False, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

SHARED = Path(__file__).resolve().parents[1] / "shared"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The measured data that lie beside the project; they are read, never copied."""
    folder = SHARED / "data"
    if not folder.is_dir():
        pytest.skip("the shared data folder is not here")
    return folder


@pytest.fixture
def patience(monkeypatch):
    """Loops are interpreted however long it takes: nothing is compiled for small cases. What takes 5 s goes on for
    ever."""
    monkeypatch.setattr("dmodels.core.tiered._running.until_s", inf)

    def stop(*_):
        raise TimeoutError("a loop does not end")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, 5.0)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
    signal.signal(signal.SIGVTALRM, before)


@pytest.fixture(scope="session", autouse=True)
def _strict_jax():
    """Set before anything is traced: JAX traces a program again for a test whose module's fixture had other rules."""
    import jax

    jax.config.update("jax_numpy_rank_promotion", "raise")
    jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture(scope="module", autouse=True)
def _optimise_little(request):
    import jax

    jax.config.update(
        "jax_disable_most_optimizations", QUICK and {request.path.parent.name, request.path.stem}.isdisjoint(OPTIMISED)
    )


def pytest_collection_modifyitems(items) -> None:
    items.sort(key=lambda item: not {item.path.parent.name, item.path.stem}.isdisjoint(LAST))


def pytest_collection_finish() -> None:
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.freeze()  # five collections of a gigabyte of programs would be the end of every worker


def pytest_terminal_summary(terminalreporter) -> None:
    """Nothing is left out in silence: what was not run, why, and the target that runs it."""
    left_out = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        left_out[reason] = left_out.get(reason, 0) + 1
    told = [f"{count} skipped: {reason}" for reason, count in sorted(left_out.items())]
    if "not slow" in terminalreporter.config.option.markexpr:
        told.append("slow tests and property searches: `make test-all`; 20 times as many cases: `make proofs-thorough`")
        told.append("what code of the README and the guide prints: `make docs-check`; its strict build: `make docs`")
        told.append("notebooks: `make notebooks`; changes that no test notices: `make mutants`")
        told.append("pages in Chromium: `make browser`; other Python and JAX: `make oldest`, `make newest`")
    if told:
        terminalreporter.section("left out")
        for line in told:
            terminalreporter.line(line)
