"""Imports without Python's search for garbage leave the collector as it was.

Each in a process of its own, where there are few objects to search.
"""

import subprocess
import sys

BEGIN = """
import gc, weakref
from dmodels.core.names import unsearched

class Ring:
    "An object that only the collector can free."

    def __init__(self):
        self.me = self

"""


def run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", BEGIN + code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_is_imported_counts_as_old_and_can_still_be_freed():
    run("""
with unsearched():
    assert not gc.isenabled()
    ring = Ring()
    alive = weakref.ref(ring)
assert gc.isenabled() and gc.get_freeze_count() == 0
assert any(one is ring for one in gc.get_objects(generation=2))
del ring
gc.collect()
assert alive() is None
""")


def test_what_the_caller_has_frozen_stays_frozen():
    run("""
gc.freeze()
frozen = gc.get_freeze_count()
with unsearched():
    pass
assert gc.isenabled() and gc.get_freeze_count() >= frozen > 0
""")


def test_a_collector_that_was_off_stays_off_also_after_an_error():
    run("""
gc.disable()
try:
    with unsearched():
        raise ImportError
except ImportError:
    assert not gc.isenabled()
else:
    raise AssertionError("the error is gone")
""")
