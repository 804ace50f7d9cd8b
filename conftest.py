"""Tests run in float64, with rank promotion and dtype promotion as errors, and hypothesis without deadlines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from hypothesis import HealthCheck, settings

settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], max_examples=60
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


@pytest.fixture(autouse=True)
def _strict_jax():
    import jax

    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        yield
