"""The spot check of the tests, on a package of one formula and one table."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.mutants.__main__ import affordable, wilson
from tools.mutants.changes import changes
from tools.mutants.choose import Chooser
from tools.mutants.record import Recorded

ROOT = Path(__file__).parents[1]

FILES = {
    "toy/__init__.py": '"""A toy."""\n',
    "toy/area.py": """'''Areas: 2 of them.'''

SIDES = 4


def area(wide_s, high_s):
    return wide_s * high_s
""",
    "toy/shop/__init__.py": "",
    "toy/shop/bill.py": """from toy.area import area


def bill(price, wide, high):
    return price * area(wide, high)
""",
    "toy/shop/prices.csv": "# per 1 m2\nname,usd\ntile,3.0\n",
    "toy/shop/read.py": "from pathlib import Path\n\nTEXT = Path(__file__).with_name('prices.csv').read_text()\n",
    "tests/test_area.py": "from toy.area import area\n\n\ndef test_area():\n    assert area(2.0, 3.0) == 6.0\n",
    "tests/test_bill.py": """from toy.shop import bill


def test_nothing():
    assert bill.bill(0.0, 1.0, 1.0) == 0.0
""",
    "tests/test_wrong.py": "import toy.area\n\n\ndef test_that_always_fails():\n    assert False\n",
}


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_changes_of_code_and_data_but_not_of_docstrings(toy):
    of_code = [change.applied() for change in changes(toy / "toy" / "area.py")]
    assert all(text.startswith("'''Areas: 2 of them.'''") for text in of_code)
    assert any("SIDES = 5" in text for text in of_code) and any("(wide_s) / (high_s)" in text for text in of_code)
    assert any("return (wide_s)\n" in text for text in of_code)
    of_data = [change.applied() for change in changes(toy / "toy" / "shop" / "prices.csv")]
    assert "# per 1 m2\nname,usd\ntile,4.5\n" in of_data and "# per 1 m2\nname,usd\n3.0,tile\n" in of_data


def test_what_changes_nothing_is_no_change(toy):
    """The order of what is added, of which the larger is taken, of values among which one is looked for, of axes, of
    errors that are caught."""
    place = toy / "toy" / "same.py"
    place.write_text(
        "from jax import jit, numpy as np\nLaw = Callable[[a, b], b]\n\n\ndef f(a, b):\n"
        "    return max(a, b), a in (b, 2 * a), np.power(a, b), jit(f, static_argnums=(0, 1)), np.clip(a, 9, 10)\n\n\n"
        "def g(a):\n    try:\n        return a.max((3, 4)), a.std(axis=(5, 6)), a.startswith((x, y)), (7, 8)\n"
        "    except (KeyError, OSError):\n        return a\n"
    )
    swaps = [change.new for change in changes(place) if change.kind.startswith("swapped")]
    assert "b, a" in swaps and swaps.count("b, a") == 1 and not any(new.startswith("2 * a, b") for new in swaps)
    assert "1, 0" not in swaps and "8, 7" in swaps and "9, a" not in swaps and "10, 9" in swaps
    assert not {"4, 3", "6, 5", "y, x", "OSError, KeyError"} & set(swaps)


def test_a_number_becomes_what_it_could_be_by_mistake(toy):
    """One more, which would not be seen of a million; minutes for seconds, unless it is a tolerance; of a size to be
    found only its sign tells, and of a check of lengths nothing."""
    place = toy / "toy" / "numbers.py"
    place.write_text("few, many, big, tiny, none = 20, 4096, 1e6, 1e-9, 0\n")
    of_numbers = [change.new for change in changes(place) if change.kind in ("constant", "unit")]
    assert of_numbers == ["21", "1200", "6144", "245760", "1500000.0", "60000000.0", "1.000000001", "1"]
    place.write_text("shaped = x.reshape(-1, 7)\n")
    assert [change.new for change in changes(place)] == ["7, -1", "(1)", "8", "420"]
    place.write_text("pairs = zip(x, y, strict=True)\n")
    assert [change.new for change in changes(place)] == ["y, x"]


def test_what_a_text_puts_in_is_changed_and_swapped(toy):
    place = toy / "toy" / "told.py"
    place.write_text("def told(a, b, c):\n    return f'{{a}} {1e3 * a:.1f} ms of {b!r}' f', {c[1:2]:>4}'\n")
    told = [change.applied().splitlines()[1].strip() for change in changes(place)]
    assert "return f'{{a}} {(1e3) / (a):.1f} ms of {b!r}' f', {c[1:2]:>4}'" in told
    assert "return f'{{a}} {b:.1f} ms of {1e3 * a!r}' f', {c[1:2]:>4}'" in told
    assert "return f'{{a}} {1e3 * a:.1f} ms of {c[1:2]!r}' f', {b:>4}'" in told
    assert "return f'{{a}} {1e3 * a:.1f} ms of {b!r}' f', {c[2:2]:>4}'" in told


def ran(name: str, *lines: int, file: str = "toy/area.py", cpu_s: float = 1.0, opened: str = "") -> Recorded:
    return Recorded(name, True, cpu_s, {file: sum(1 << line for line in lines)}, frozenset([opened]))


def test_the_tests_that_run_a_changed_line_are_chosen_cheapest_first(toy):
    by_line = [
        ran("dear", 7, cpu_s=9.0),
        ran("cheap", 7),
        ran("elsewhere", 9),
        ran("reader", opened="toy/shop/prices.csv"),
    ]
    by_line += [Recorded("fails", False, 0.1, {"toy/area.py": 1 << 7}, frozenset())]
    chooser = Chooser(toy, toy / "toy", by_line)
    names = lambda path, words: [
        [test.name for test in chooser.tests_of(one)]
        for one in changes(toy / "toy" / path)
        if one.applied().count(words)
    ]
    assert names("area.py", "(wide_s) / (high_s)") == [["cheap", "dear"]]
    assert names("shop/prices.csv", "tile,4.5") == [["reader"]]
    mine = [ran("a.py::first", 7), ran("a.py::second", 7, cpu_s=2.0), ran("b.py::first", 7, cpu_s=2.5)]
    chooser = Chooser(toy, toy / "toy", [*mine, ran("c.py::dear", 7, cpu_s=9.0)])  # 1 s, 3 s, 2.5 s and 9 s
    in_turn = ["a.py::first", "b.py::first", "a.py::second", "c.py::dear"]
    assert names("area.py", "(wide_s) / (high_s)") == [in_turn]


def test_a_test_that_is_too_long_is_passed_over_and_not_those_after_it(toy):
    tests = [ran(name, 7, cpu_s=seconds) for name, seconds in (("a", 4.0), ("b", 30.0), ("c", 6.0), ("d", 1.0))]
    assert [test.name for test in affordable(tests, 10.0, 10.0)] == ["a", "c"]
    assert [test.name for test in affordable(tests, 5.0, 40.0)] == ["a", "d"]
    assert affordable(tests[1:2], 10.0, 40.0) == tests[1:2] and affordable([], 10.0, 40.0) == []


@pytest.mark.parametrize("reader", ["doubled():\n    return 2 * SIDES", "scaled(by=SIDES):\n    return by"])
def test_what_is_defined_on_import_is_judged_by_who_reads_its_name(toy, reader):
    (toy / "toy" / "area.py").write_text(f"SIDES = 4\n\n\ndef {reader}\n\n\ndef none():\n    return 0\n")
    chooser = Chooser(toy, toy / "toy", [ran("reads", 5), ran("does not", 9)])
    constant = next(one for one in changes(toy / "toy" / "area.py") if "SIDES = 5" in one.applied())
    assert [test.name for test in chooser.tests_of(constant)] == ["reads"]


def test_what_is_made_of_it_on_import_is_read_for_it(toy):
    (toy / "toy" / "area.py").write_text(
        "SIDES = 4\nLEAST = Field(SIDES)\n\n\nclass Asked:\n    most: Annotated[int, LEAST] = 5\n    other: int = 6\n"
    )
    (toy / "tests" / "test_made.py").write_text(
        "def test_most():\n    Asked(most=3)\n\n\ndef test_other():\n    pass\n"
    )
    tests = [ran(f"tests/test_made.py::test_{name}") for name in ("other", "most")]
    chooser = Chooser(toy, toy / "toy", tests)
    constant = next(one for one in changes(toy / "toy" / "area.py") if "SIDES = 5" in one.applied())
    assert [test.name.partition("::test_")[2] for test in chooser.tests_of(constant)] == ["most", "other"]


def test_a_field_is_judged_by_who_makes_its_record(toy):
    """Without it, too: its default is what counts there."""
    (toy / "toy" / "area.py").write_text("class Room(NamedTuple):\n    wide: float\n    high: float = 4.0\n")
    made = "def test_high():\n    pass\n\n\ndef test_area():\n    assert Room(2.0) == Room(2.0, 4.0)\n"
    (toy / "tests" / "test_made.py").write_text(made)
    tests = [ran(f"tests/test_made.py::test_{name}") for name in ("high", "area")]
    chooser = Chooser(toy, toy / "toy", tests)
    default = next(one for one in changes(toy / "toy" / "area.py") if "high: float = 5.0" in one.applied())
    assert [test.name.partition("::test_")[2] for test in chooser.tests_of(default)] == ["area"]


def test_a_flag_is_known_by_its_dashes(toy):
    (toy / "toy" / "area.py").write_text("class Asked:\n    most_sides: int = 4\n")
    (toy / "tests" / "test_flags.py").write_text("def test_flag():\n    assert '--most-sides int = 4'\n")
    chooser = Chooser(toy, toy / "toy", [ran("tests/test_flags.py::test_flag")])
    default = next(one for one in changes(toy / "toy" / "area.py") if "= 5" in one.applied())
    assert [test.name for test in chooser.tests_of(default)] == ["tests/test_flags.py::test_flag"]


def test_a_default_is_judged_by_the_tests_that_name_its_function(toy):
    """First by those in which the name stands, then by the others of their file."""
    (toy / "toy" / "area.py").write_text("def scaled(side, by=2.0):\n    return by * side\n")
    (toy / "tests" / "test_scales.py").write_text(
        "from toy.area import scaled\n\n\ndef test_other():\n    pass\n\n\n"
        "def test_scaled():\n    assert scaled(1.0) == 2.0\n"
    )
    tests = [ran("tests/test_scales.py::test_other"), ran("tests/test_scales.py::test_scaled[a]", cpu_s=9.0)]
    chooser = Chooser(toy, toy / "toy", [ran("tests/test_area.py::test_area"), *tests])
    default = next(one for one in changes(toy / "toy" / "area.py") if "by=3.0" in one.applied())
    chosen = [test.name.partition("::")[2] for test in chooser.tests_of(default)]
    assert chosen == ["test_scaled[a]", "test_other", "test_area"]


def test_one_figure_for_another_of_its_unit_in_a_text(toy):
    """Which of the file's figures: the text itself names one alone."""
    place = toy / "toy" / "told.py"
    place.write_text("def told(a):\n    worst = a.ttft_s\n    return f'{a.tpot_s:.2f} s', worst\n")
    assert any("{a.ttft_s:.2f} s" in change.applied() for change in changes(place))


def test_survivors_are_named_and_failures_of_their_own_do_not_count(toy):
    """A product for a quotient is noticed; what is multiplied by nothing, and a number that nobody uses, is not."""
    pytest.importorskip("coverage", reason="coverage is not installed: `make mutants`")
    asked = ["--root", str(toy), "--package", "toy", "--tests", "tests", "--count", "20", "toy"]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-m", "tools.mutants", *asked], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert "SURVIVED: toy/area.py:3: constant: 4 -> 5" in done.stdout
    assert "SURVIVED: toy/area.py:7" not in done.stdout
    assert "toy                  3 of     5 noticed:  60.0%" in done.stdout


def test_it_ends_where_less_time_is_allowed_than_it_asks_for(toy):
    """A batch system's limit of CPU time, which no process may raise."""
    pytest.importorskip("coverage", reason="coverage is not installed: `make mutants`")
    asked = ["--root", str(toy), "--package", "toy", "--tests", "tests", "--count", "20", "toy"]
    code = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (200, 200))
from tools.mutants.__main__ import main
sys.exit(main({asked}))
"""
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60)
    assert done.returncode == 0 and "SURVIVED: toy/area.py:3" in done.stdout, done.stderr
    assert "SURVIVED: toy/area.py:7" not in done.stdout


def test_tests_run_as_they_are_chosen_and_compiling_is_beside_their_time(toy):
    """The project sorts its tests the other way round; a second of compiling ends no run of less than one."""
    (toy / "conftest.py").write_text("def pytest_collection_modifyitems(items):\n    items.reverse()\n")
    (toy / "tests" / "test_order.py").write_text(
        "import time\nfrom numba.core import event\n\n\ndef test_compiles():\n"
        "    with event.trigger_event('numba:compile'):\n        end = time.process_time() + 1\n"
        "        while time.process_time() < end:\n            pass\n\n\n"
        "def test_one():\n    assert False\n\n\ndef test_two():\n    assert False\n"
    )
    names = [f"tests/test_order.py::test_{name}" for name in ("compiles", "two", "one")]
    code = f"""
import tempfile
from pathlib import Path
from tools.mutants.warm import Copy
with tempfile.TemporaryDirectory() as folder:
    copy = Copy(Path({str(toy)!r}), Path(folder), ["numba"])
    print(copy.first_failure({names}, 0.9)[0], copy.first_failure({names[::-1]}, 0.9)[0])
"""
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60)
    assert done.stdout.split() == names[1:], done.stderr


def test_a_test_that_does_not_end_decides_nothing(toy):
    """It is given up as soon as it has had its time, whatever the others would have had."""
    left = toy / "left"  # of the process's seconds, when the test begins
    (toy / "tests" / "test_endless.py").write_text(
        "import resource, time\nfrom pathlib import Path\n\n\ndef test_endless():\n"
        "    left = resource.getrlimit(resource.RLIMIT_CPU)[0] - time.process_time()\n"
        f"    Path({str(left)!r}).write_text(str(left))\n    while True:\n        pass\n"
    )
    code = f"""
import tempfile
from pathlib import Path
from tools.mutants import warm
warm.COMPILING_S = 1
with tempfile.TemporaryDirectory() as folder:
    copy = warm.Copy(Path({str(toy)!r}), Path(folder), [])
    print(copy.first_failure(["tests/test_endless.py::test_endless"], 1.0)[0])
"""
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60)
    assert done.stdout.split() == ["?"] and 1.0 < float(left.read_text()) <= 1.0 + 1, done.stderr


def test_the_interval_of_a_share():
    """Wilson's for 8 of 10, as in his paper's formula: 49.0 to 94.3 %."""
    assert wilson(8, 10) == (pytest.approx(0.490, abs=1e-3), pytest.approx(0.943, abs=1e-3))
    assert wilson(0, 10)[0] == pytest.approx(0.0, abs=1e-12)
