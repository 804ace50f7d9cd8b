"""Pools of instances behind a router, request by request, with failures, changes of size and prefix caches."""

from __future__ import annotations

from .closed_loop import serial
from .routing import Policy
from .simulation import Change, Event, Pool, Prefixes, Run, advance, answers, by_pool, simulate, start

__all__ = [
    "Change",
    "Event",
    "Policy",
    "Pool",
    "Prefixes",
    "Run",
    "advance",
    "answers",
    "by_pool",
    "serial",
    "simulate",
    "start",
]
