"""Imports without Python's search for garbage leave the collector as it was."""

import gc
import weakref

import pytest

from dmodels.core.names import unsearched


class Ring:
    """An object that only the collector can free."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def _collector_as_before():
    was_on, froze = gc.isenabled(), gc.get_freeze_count() > 0
    gc.unfreeze()
    yield
    (gc.freeze if froze else gc.unfreeze)()
    (gc.enable if was_on else gc.disable)()


def test_what_is_imported_counts_as_old_and_can_still_be_freed():
    gc.enable()
    with unsearched():
        assert not gc.isenabled()
        ring = Ring()
        alive = weakref.ref(ring)
    assert gc.isenabled() and gc.get_freeze_count() == 0
    assert any(one is ring for one in gc.get_objects(generation=2))
    del ring
    gc.collect()
    assert alive() is None


def test_what_the_caller_has_frozen_stays_frozen():
    gc.enable()
    gc.freeze()
    frozen = gc.get_freeze_count()
    with unsearched():
        pass
    assert gc.isenabled() and gc.get_freeze_count() >= frozen > 0


def test_a_collector_that_was_off_stays_off_also_after_an_error():
    gc.disable()
    with pytest.raises(ImportError), unsearched():
        raise ImportError
    assert not gc.isenabled()
