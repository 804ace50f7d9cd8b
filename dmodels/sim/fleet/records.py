"""What a fleet is made of and what may happen to it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from dmodels.core.errors import InputError
from dmodels.sim.requests import Prefill


class Pool(NamedTuple):
    """Instances of one kind, with an iteration law t(n) or t(n, tokens) as `dmodels.sim.batching.step_times` reads it.
    A request whose tokens exceed `max_tokens` is not routed here."""

    instances: int
    slots: int
    law: Any
    max_tokens: float = np.inf
    chunk_tokens: int = 512
    prefill: Prefill = Prefill.OWN
    emits: bool = False


class Change(IntEnum):
    """What can happen to an instance. DOWN loses all work: its requests are routed anew and start over. DRAIN lets it
    finish what it has, and takes nothing new. SLOW multiplies its iteration times by the event's value."""

    DOWN = 0
    UP = 1
    SLOW = 2
    DRAIN = 3
    OPEN = 4


class Event(NamedTuple):
    """At `time_s`, `change` happens to `instance` (counted over all pools)."""

    time_s: float
    change: Change
    instance: int
    value: float = 1.0


class Prefixes(NamedTuple):
    """Shared prefixes: the id of each request's (-1: none), its tokens, and how many an instance remembers (LRU)."""

    ids: Any
    tokens: Any
    remembered: int


EVENT = np.dtype([("time", "f8"), ("change", "i8"), ("instance", "i8"), ("value", "f8")])


def in_order(events: Sequence[Event], instances: int) -> np.ndarray:
    """EVENT records in the order of time, checked."""
    for event in events:
        if not 0 <= event.instance < instances or not np.isfinite(event.time_s):
            raise InputError(f"events: {event}; accepted: instances 0..{instances - 1} at finite times")
        if event.change == Change.SLOW and not (np.isfinite(event.value) and event.value > 0):
            raise InputError(f"events: {event}; accepted: a positive factor on iteration times")
    return np.array([tuple(e) for e in sorted(events, key=lambda e: e.time_s)], EVENT)
