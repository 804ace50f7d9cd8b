"""Loops that run interpreted, and end."""

from __future__ import annotations

import signal
from math import inf

import pytest


@pytest.fixture
def patience(monkeypatch):
    """Interpreted however long it takes: nothing is compiled for games of a few requests. What takes 5 s of them goes
    on for ever."""
    monkeypatch.setattr("dmodels.core.tiered._running.until_s", inf)

    def stop(*_):
        raise TimeoutError("a loop does not end")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, 5.0)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
    signal.signal(signal.SIGVTALRM, before)
