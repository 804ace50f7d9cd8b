"""Loops that run interpreted, and end."""

from __future__ import annotations

from math import inf

import pytest

from tests.patience import at_most


@pytest.fixture
def patience(monkeypatch):
    """Interpreted however long it takes: nothing is compiled for games of a few requests."""
    monkeypatch.setattr("dmodels.core.tiered._running.until_s", inf)
    with at_most(5.0):
        yield
