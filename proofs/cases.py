"""Counts what a page tries: `every` for an enumeration, and for a whole page run what its searches draw beside it."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")
#: What the enumerations of this process were over -> how many cases they had.
LISTED: Counter[str] = Counter()


def every(cases: Iterable[T], what: str) -> Iterator[T]:
    """All `cases` in turn; when they are through, prints how many there were: `1,296 games of two requests`.

    A proof by enumeration says how large it was, so that an empty or a token one is seen (`pytest -s`, or
    `python -m proofs`, which adds them up). An enumeration without a case fails.
    """
    count = 0
    for case in cases:
        count += 1
        yield case
    assert count, f"no {what}"
    LISTED[what] += count
    print(f"{count:,} {what}")


@dataclass
class Count:
    """What running one page came to."""

    file: str
    tests: int = 0
    searches: int = 0  # tests whose cases hypothesis draws
    cases: Counter[str] = field(default_factory=Counter)
    listed: int = 0  # cases of its enumerations
    failed: list[str] = field(default_factory=list)
    seconds: float = 0.0
    output: str = ""


class _Counter:
    """A pytest plugin that counts the cases that hypothesis draws, and multiplies how many it may draw."""

    def __init__(self, times: int, count: Count):
        self.times, self.count = times, count

    def pytest_collection_modifyitems(self, items):
        from hypothesis import settings

        for item in items:
            self.count.tests += 1
            if handle := getattr(item.obj, "hypothesis", None):
                self.count.searches += 1
                own = getattr(item.obj, "_hypothesis_internal_use_settings", None) or settings.default
                more = settings(own, max_examples=own.max_examples * self.times)
                item.obj._hypothesis_internal_use_settings = more
                handle.inner_test = self._counted(item.name, handle.inner_test)

    def _counted(self, name, test):
        @functools.wraps(test)
        def counted(*args, **kwargs):
            self.count.cases[name] += 1
            return test(*args, **kwargs)

        return counted

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.count.failed.append(report.nodeid)


def run(file: str, times: int, seed: int | None) -> Count:
    """One page in this process; it prints nothing."""
    import pytest

    count, said, start = Count(file), io.StringIO(), time.perf_counter()
    line = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--color=no", file]
    line += [] if times > 1 else ["-m", "not slow"]
    if seed is not None:
        os.environ["HYPOTHESIS_PROFILE"] = "seeded"
        line += [f"--hypothesis-seed={seed}"]
    before = LISTED.total()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = pytest.main(line, plugins=[_Counter(times, count)])
    count.listed = LISTED.total() - before
    if code and not count.failed:
        count.failed.append(f"{file}: pytest ended with {int(code)}")
    count.seconds, count.output = time.perf_counter() - start, said.getvalue()
    return count
