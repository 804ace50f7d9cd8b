"""Compiled programs that outlive the process."""

from __future__ import annotations

import os
import subprocess
import sys

#: Counts the programs that are compiled, not read from the folder.
CALL = """
import logging, sys
import dmodels
before = "jax" in sys.modules
if {first}:
    import jax
folder = dmodels.keep_compiled({folder!r})
import jax, jax.numpy as jnp
from jax._src import monitoring
hits = []
monitoring.register_event_listener(lambda name, **_: hits.append(name) if name.endswith("cache_hits") else None)
jax.jit(lambda x: jnp.linalg.svd(x @ x.T + jnp.sin(x))[1].sum())(jnp.ones((40, 40)))
print(before, folder, len(hits))
"""


def said(**options):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    done = subprocess.run(
        [sys.executable, "-c", CALL.format(**options)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_second_process_reads_what_the_first_compiled(tmp_path):
    folder = str(tmp_path / "kept")
    assert said(first=False, folder=folder) == ["False", folder, "0"] and os.listdir(folder)
    assert int(said(first=True, folder=folder)[2]) > 0  # also where JAX was imported before
