"""The cases that a search draws are counted, and multiplied in the thorough mode."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofs.cases import Count, _Counter


def run(times: int, *tests) -> Count:
    count = Count("page")
    items = [SimpleNamespace(obj=test, name=test.__name__) for test in tests]
    _Counter(times, count).pytest_collection_modifyitems(items)
    for test in tests:
        test()
    return count


@pytest.mark.parametrize("times", [1, 3])
def test_cases_are_counted_and_multiplied(times):
    @given(x=st.integers())
    def test_by_profile(x):
        assert isinstance(x, int)

    @settings(max_examples=7)
    @given(x=st.integers())
    def test_by_itself(x):
        assert isinstance(x, int)

    def test_plain():
        assert True

    count = run(times, test_by_profile, test_by_itself, test_plain)
    assert (count.tests, count.searches) == (3, 2)
    assert count.cases == {"test_by_profile": settings.default.max_examples * times, "test_by_itself": 7 * times}


def test_a_search_that_fails_still_fails():
    @given(x=st.integers(0, 100))
    def test_false(x):
        assert x < 50

    with pytest.raises(AssertionError):
        run(5, test_false)
