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


def test_every_kernel_of_the_package_goes_through_the_one_decorator():
    free = [path.name for path in compiled.PACKAGE.rglob("*.py") if "njit" in path.read_text(encoding="utf-8")]
    assert free == ["compiled.py"]


def test_the_stamp_covers_what_is_imported_through_others():
    reached = {compiled.PACKAGE / "sim" / "network_engine.py"}
    grown = True
    while grown:
        grown = set().union(*map(compiled._imported, reached)) - reached
        reached |= grown
    assert compiled.PACKAGE / "control" / "_netkv_kernels.py" in reached
