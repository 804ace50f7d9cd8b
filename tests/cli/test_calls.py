"""A library call as a tree: what it makes, and every line of how it is printed."""

from __future__ import annotations

import pytest

from dmodels.cli.calls import WIDTH, Code, call


def test_what_is_left_to_the_defaults_is_not_in_the_call():
    """None as an option, and None at the end; elsewhere it is a value."""
    made = call("builtins:print", None, 1, None, None, None, label="x", sep=None, end="", flush=False)
    assert (made.target, made.owner, made.label) == ("builtins:print", None, "x")
    assert (made.arguments, made.options) == ((None, 1), {"end": "", "flush": False})
    assert call("builtins:dict", None).arguments == () and call("builtins:dict").label == ""
    assert call("builtins:dict").python("a") == "\na = dict()"


def test_a_value_is_made_once_of_values_that_are_made_once():
    made = []
    count = Code("builtins:len", None, ([7, 7],), label="n")
    whole = call("builtins:dict", a=[count, (count, 3)], b={"k": 2}, c=2.5)
    assert whole.run() == {"a": [2, (2, 3)], "b": {"k": 2}, "c": 2.5} and whole.run() is whole.run()
    made += count.run(), count._made
    assert made == [2, [2]]
    outer = call("builtins:max", count, call("builtins:abs", -5), key=Code("builtins:abs"))
    assert outer.run() == 5
    assert [*outer.values()] == [5, 2, 5, abs]  # the last first, then its arguments, then its options
    assert count != Code(count.target, None, count.arguments, label="n")  # two that are alike are made apart
    with pytest.raises(AttributeError):
        count.label = "m"
    real = call("builtins:complex", 3, 4).attribute("real")
    assert real.run() == 3.0 and [*real.values()] == [3.0, 3 + 4j] and [*Code("builtins:abs").values()] == []


def test_a_name_is_looked_for_in_its_module_and_in_a_module_of_it(tmp_path, monkeypatch):
    (tmp_path / "a_room").mkdir()
    (tmp_path / "a_room" / "__init__.py").write_text("class Here:\n    there = staticmethod(lambda: 3)\n")
    (tmp_path / "a_room" / "part.py").write_text("value = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert Code("a_room:Here.there").run()() == 3 and call("a_room:Here.there").run() == 3
    assert Code("a_room:part.value").run() == 7  # though nobody has imported it
    with pytest.raises(ModuleNotFoundError):
        Code("a_room:other.value").run()


def test_a_call_is_printed_as_imports_values_with_names_and_the_call():
    shared = call("fractions:Fraction", 1, 3, label="third")
    other = call("decimal:Decimal", "2.5", label="other")
    whole = call(
        "b.c:d.e",
        shared,
        [shared, other],
        (0.5,),
        (1, 2),
        (call("a:f"), 1),
        [0.5, float("inf")],
        x=Code("b.c:K.LAST"),
        y=float("-inf"),
        z="text",
        n=other.attribute("real"),
        m={"a": float("inf")},
    )
    assert whole.python("answer") == (
        "from a import f\n"
        "from b.c import K, d\n"
        "from decimal import Decimal\n"
        "from fractions import Fraction\n"
        "\n"
        "third = Fraction(1, 3)\n"
        "other = Decimal('2.5')\n"
        "answer = d.e(\n"
        "    third,\n"
        "    [third, other],\n"
        "    (0.5,),\n"
        "    (1, 2),\n"
        "    (f(), 1),\n"
        '    [0.5, float("inf")],\n'
        "    x=K.LAST,\n"
        '    y=float("-inf"),\n'
        "    z='text',\n"
        "    n=other.real,\n"
        "    m={'a': inf},\n"
        ")"
    )
    third = call("fractions:Fraction", 1, 3).attribute("numerator")
    assert third.python("a") == "from fractions import Fraction\n\na = Fraction(1, 3).numerator"
    assert call("builtins:f", float("nan"), [1, "a", None]).python("a") == "\na = f(float(\"nan\"), [1, 'a', None])"


def test_a_line_ends_at_a_hundred_characters_wherever_it_begins():
    """The name before it not counted, the name of an argument neither."""
    assert WIDTH == 100
    for letters, lines in ((WIDTH - len("f('')"), 1), (WIDTH - len("f('')") + 1, 3)):
        printed = call("builtins:f", "x" * letters).python("answer").splitlines()[1:]
        assert len(printed) == lines
    inner = lambda letters: call("builtins:g", "x" * letters)
    for letters, lines in ((WIDTH - 4 - len("g('')"), 4), (WIDTH - 4 - len("g('')") + 1, 6)):
        printed = call("builtins:f", inner(letters), "a second").python("a").splitlines()[1:]
        broken = ["    g(", f"        '{'x' * letters}',", "    ),"]
        assert len(printed) == lines and printed[1:-2] == (broken if lines == 6 else [f"    g('{'x' * letters}'),"])
    named = call("builtins:g", [call("builtins:h", 1)] * 30, label="g")
    told = call("builtins:f", named).python("a").splitlines()
    assert told[1:3] == ["g = g(", "    ["] and told[3] == "        h(1)," and told[-1] == "a = f(g)"
    assert told[-3:-1] == ["    ],", ")"]
    tuples = call("builtins:f", (call("builtins:h", 1),) * 30).python("a").splitlines()
    assert tuples[2] == "    (" and tuples[-2:] == ["    ),", ")"]
    whole = call("builtins:f", [*range(60)]).python("a").splitlines()
    assert len(whole) == 4 and whole[2].startswith("    [0, 1, ")  # plain numbers are left in their line


def test_what_is_broken_within_what_is_broken_stands_further_in():
    x, y = "x" * 90, "y" * 90
    deep = call("builtins:f", [call("builtins:g", call("builtins:h", x, key=y))], flat=call("builtins:g", a=1, b=[0.5]))
    assert deep.python("a").splitlines()[1:] == [
        "a = f(",
        "    [",
        "        g(",
        "            h(",
        f"                '{x}',",
        f"                key='{y}',",
        "            ),",
        "        ),",
        "    ],",
        "    flat=g(a=1, b=[0.5]),",
        ")",
    ]
