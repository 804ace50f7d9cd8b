"""The numbers in docstrings are what the code gives."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted(
    path.relative_to(ROOT).with_suffix("").as_posix()
    for path in (ROOT / "dmodels").rglob("*.py")
    if ">>>" in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("module", EXAMPLES)
def test_the_examples_of(module):
    import jax
    import jax.numpy as jnp

    found = import_module(module.replace("/", "."))
    names = vars(found) | {"np": np, "jnp": jnp, "jax": jax}
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    said: list[str] = []
    for case in doctest.DocTestFinder(exclude_empty=True).find(found, found.__name__, globs=dict(names)):
        runner.run(case, out=said.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)
    assert runner.tries > 0
