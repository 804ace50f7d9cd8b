"""Compiled loops work without a cache folder, and a kept copy is dropped when a file behind it changes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from numba import types

from dmodels.core import compiled


def double(x):
    return 2 * x


def test_without_a_writable_cache_folder_kernels_still_compile(monkeypatch):
    real = compiled.njit

    def refuses(cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function 'double': no locator available for file 'somewhere'")
        return real(**options)

    monkeypatch.setattr(compiled, "njit", refuses)
    assert compiled.kernel(double)(21) == 42


def test_a_signature_fixes_the_types():
    fixed = compiled.kernel(signature=(types.float64,))(double)
    assert isinstance(fixed(np.int64(21)), float) and fixed(1.5) == 3.0 and len(fixed.signatures) == 1


def test_a_kernel_changed_in_one_file_changes_its_callers_in_others(tmp_path):
    # The simulator of networks asks the lower floor for the cost of a transfer; nothing is deleted in between.
    package = tmp_path / "dmodels"
    shutil.copytree(Path(compiled.PACKAGE), package, ignore=shutil.ignore_patterns("__pycache__", "data"))
    low, middle, high = package / "core" / "lowest.py", package / "models" / "between.py", package / "sim" / "caller.py"
    kernel = "from dmodels.core.compiled import kernel\n"
    low.write_text(kernel + "@kernel\ndef cost(x):\n    return 2.0 * x\n")
    middle.write_text(
        "from dmodels.core import lowest\n"
        + kernel
        + "@kernel\ndef twice(x):\n    return lowest.cost(x) + lowest.cost(x)\n"
    )
    high.write_text(
        "from ..models.between import twice\n" + kernel + "@kernel\ndef total(x):\n    return twice(x) + 1.0\n"
    )

    def answer():
        program = "from dmodels.sim.caller import total; print(total(1.0), sum(total.stats.cache_hits.values()))"
        environment = os.environ | {"PYTHONPATH": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    assert answer() == ["5.0", "0"]
    assert answer() == ["5.0", "1"]
    low.write_text(low.read_text().replace("2.0 * x", "3.0 * x"))
    assert answer() == ["7.0", "0"]
    (package / "core" / "flags.py").write_text((package / "core" / "flags.py").read_text() + "\n# not behind it\n")
    assert answer() == ["7.0", "1"]


def test_code_of_another_level_of_optimisation_lies_beside(monkeypatch):
    kept = []
    for level in (3, 1, 0, 3):
        monkeypatch.setattr(compiled.config, "OPT", level)
        file = compiled.kernel(double)._cache._cache_file
        kept.append((file._index_path, file._data_path(file._data_name(1))))
    assert kept[0] == kept[3] and len(set(kept)) == 3 and len({name for names in kept for name in names}) == 6
    assert all(index.endswith(".nbi") and data.endswith(".1.nbc") for index, data in kept)


def test_every_kernel_of_the_package_goes_through_the_one_decorator():
    free = [path.name for path in compiled.PACKAGE.rglob("*.py") if "njit" in path.read_text(encoding="utf-8")]
    assert free == ["compiled.py"]


def test_the_stamp_covers_what_is_imported_through_others():
    reached = {compiled.PACKAGE / "sim" / "network" / "engine.py"}
    grown = True
    while grown:
        grown = set().union(*map(compiled._imported, reached)) - reached
        reached |= grown
    assert compiled.PACKAGE / "control" / "netkv" / "kernels.py" in reached


def test_a_kept_index_that_names_a_record_which_is_gone_is_no_fault(tmp_path):
    program = "from typing import NamedTuple\nfrom dmodels.core.compiled import kernel\n"
    program += "class {0}(NamedTuple):\n    x: float\n"
    program += "@kernel\ndef half(a):\n    return a.x / 2\n"
    for name in ("Old", "New"):
        (tmp_path / "half_of.py").write_text(program.format(name))
        code = f"from half_of import half, {name}; assert half({name}(3.0)) == 1.5"
        paths = os.pathsep.join([str(tmp_path), str(Path(compiled.PACKAGE).parent)])
        subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": paths}, cwd=tmp_path, check=True)


@compiled.kernel
def _next(at):
    return at + 1


@compiled.kernel
def _counted(n):
    at = -1
    for _ in range(n):
        at = _next(at)
    return at


def test_a_constant_that_starts_a_variable_compiles_no_second_copy():
    assert _counted(3) == 2 and len(_next.part().signatures) <= 1  # none where the caller was compiled before, and kept
