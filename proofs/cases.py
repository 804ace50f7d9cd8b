"""Runs one page and counts the cases that its searches draw; can make them draw many times as many."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import time
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Count:
    """What running one page came to."""

    file: str
    tests: int = 0
    searches: int = 0  # tests whose cases hypothesis draws
    cases: Counter[str] = field(default_factory=Counter)
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
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = pytest.main(line, plugins=[_Counter(times, count)])
    if code and not count.failed:
        count.failed.append(f"{file}: pytest ended with {int(code)}")
    count.seconds, count.output = time.perf_counter() - start, said.getvalue()
    return count
