"""The spot check of the tests, on a package of one formula and one table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.mutants.__main__ import main, wilson
from tools.mutants.changes import changes
from tools.mutants.reach import Reach

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


def test_tests_that_reach_a_file_nearest_first(toy):
    reach = Reach(toy, "toy", ["tests"])
    names = lambda path: [test.stem for test in reach.nearest(toy / "toy" / path)]
    assert set(names("area.py")) == {"test_area", "test_wrong", "test_bill"} and names("area.py")[0] == "test_area"
    assert names("shop/bill.py") == ["test_bill"]
    assert names("shop/prices.csv") == []  # nobody reads its reader


def test_survivors_are_named_and_failures_of_their_own_do_not_count(toy, capsys, monkeypatch):
    """A product for a quotient is noticed; what is multiplied by nothing, and a number that nobody uses, is not."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take a second to start, each time
    asked = ["--root", str(toy), "--package", "toy", "--tests", "tests", "--count", "20", "--jobs", "1"]
    assert main([*asked, "toy"]) == 0
    told = capsys.readouterr().out
    assert "toy/area.py:3: constant: 4 -> 5" in told and "survived: toy/area.py:7" not in told
    assert "toy                  3 of     5 noticed:  60.0%" in told


def test_the_interval_of_a_share():
    """Wilson's for 8 of 10, as in his paper's formula: 49.0 to 94.3 %."""
    assert wilson(8, 10) == (pytest.approx(0.490, abs=1e-3), pytest.approx(0.943, abs=1e-3))
    assert wilson(0, 10)[0] == pytest.approx(0.0, abs=1e-12)
