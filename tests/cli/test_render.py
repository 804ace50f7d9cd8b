"""Tables on terminals of any width: nothing is cut, and wide tables of few rows are turned."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace as Record

import pytest
from rich.console import Console

from dmodels import __version__
from dmodels.cli import render
from dmodels.cli.render import as_json, fitted, say, show, whole

WIDE = (
    "Pools",
    ["pool", *(f"a column {i}" for i in range(9))],
    [["prefill", *range(100_000, 100_009)], ["decode", *range(200_000, 200_009)], ["together", *range(9)]],
)


def shown(table, width):
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None)
    for grid in fitted(table, console):
        console.print(grid)
    return out.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_every_value_is_shown_whole_at_every_width(width):
    text = shown(WIDE, width)
    assert max(map(len, text.splitlines())) <= width and "…" not in text
    for row in WIDE[2]:
        for value in row[1:]:
            assert (f"{value:,}") in text
    assert text.count("Pools") == 1


def test_a_table_that_fits_stays_as_it_is():
    title, head, rows = WIDE
    text = shown((title, head[:3], [row[:3] for row in rows]), 80)
    assert [line for line in text.splitlines() if "prefill" in line and "100,001" in line]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_columns_of_a_table_of_many_rows_come_in_turn_each_behind_the_names(width):
    rows = [[f"gpu_number_{i}", *(1000 * i + k for k in range(9))] for i in range(20)]
    text = shown(("Catalogue", ["name", *(f"a column {k}" for k in range(9))], rows), width)
    assert max(map(len, text.splitlines())) <= width and "…" not in text
    lines = [line for line in text.splitlines() if "gpu_number_19 " in line]
    assert len(lines) > 1 and all(any(f"{value:,}" in line for line in lines) for value in rows[19][1:])


def test_sentences_are_broken_between_words_in_one_table():
    rows = [[f"id{i}", "a sentence of many words that is long " * 3, i] for i in range(20)]
    text = shown(("Claims", ["id", "what it says", "count"], rows), 80)
    assert text.count("what it says") == 1 and "…" not in text and text.count("sentence") == 60


def test_a_table_of_more_than_twelve_rows_is_not_turned():
    """Its reader compares rows, not columns."""
    head = ["name", *(f"a column {k}" for k in range(9))]
    for count in (12, 13):
        text = shown(("Many", head, [[f"row {i}", *(1000 * i + k for k in range(9))] for i in range(count)]), 60)
        assert any(line.startswith("│ a column 3") for line in text.splitlines()) == (count == 12)


def test_a_wide_table_without_rows_has_its_title():
    assert "Pools" in shown((WIDE[0], WIDE[1], []), 40)


def test_a_name_wider_than_the_terminal_is_folded_and_not_cut():
    many = ("Catalogue", ["name", "memory", "bandwidth"], [[f"gpu{i}" + "x" * 40, i, i] for i in range(20)])
    assert shown(many, 40).count("x") == 2 * 20 * 40


def test_a_row_of_a_turned_table_without_any_value_is_left_out():
    title, head, _ = WIDE
    table = (title, head, [["together", *([""] * 8), 7]])
    assert "a column 3" not in shown(table, 60) and "a column 8" in shown(table, 60)


def test_a_short_table_of_sentences_is_broken_between_words_and_not_turned():
    rows = [
        [f"part {i}", i, "how it is known, in a sentence that is longer than a line has room for"] for i in range(6)
    ]
    text = shown(("Memory", ["", "GiB", "how sure"], rows), 80)
    assert text.count("GiB") == 1 and text.count("known,") == 6 and max(map(len, text.splitlines())) <= 80


def test_the_longest_sentence_has_the_most_room_however_short_the_others_of_its_column_are():
    sentence = "one word after another until they are some two lines and a half of words wide altogether, and end here"
    rows = [["short, too", "x", k, sentence if k == 4 else "no"] for k in range(6)]
    lines = shown(("Parts", ["name", "to", "n", "why"], rows), 68).splitlines()
    (first,) = (k for k, line in enumerate(lines) if "one word after" in line)
    (last,) = (k for k, line in enumerate(lines) if "end here" in line)
    assert last - first + 1 == 3  # of 45 characters; a narrower column has more


def test_brackets_are_words_and_not_the_style_of_words(capsys):
    """A trace may be called [bold]."""
    show([("Traces", ["name", "[red]requests"], [["[bold]", 3]])])
    told = capsys.readouterr().out
    assert "[bold]" in told and "[red]requests" in told


def test_in_a_file_a_table_is_at_most_two_hundred_characters_wide(capsys):
    """It is turned a column later than that."""
    lines = []
    for columns in (9, 10):  # of 19 characters and two between them
        show([("Wide", [f"{'h' * 17}{k:02}" for k in range(columns)], [list(range(columns))])])
        lines.append([line for line in capsys.readouterr().out.splitlines() if "h00" in line])
    assert ["h08" in line for line in lines[0]] == [True] and len(lines[0][0]) > 160
    assert ["h09" in line for line in lines[1]] == [False]


def test_sentences_end_their_lines_between_words_on_a_terminal_alone(monkeypatch, capsys):
    told = "A sentence that is longer than the terminal is wide, with --long-options in it."
    say([told, ""])
    assert capsys.readouterr().out == told + "\n\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "30")
    say([told])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 2 and max(map(len, lines)) <= 30 and " ".join(lines) == told


def test_a_document_says_which_it_is_and_writes_whole_numbers_as_such():
    """Those below 2**53, which are the same number; of more digits a float is shorter."""
    text = as_json("size", {"a": 3.0}, {"b": [2.5, 1e300, True, None, "x", (4.0, {"c": -5.0})]})
    made, head = json.loads(text), {"schema": "dmodels.size/1", "dmodels": __version__, "command": "size"}
    assert list(made) == [*head, "inputs", "result"] and made.items() >= head.items()
    assert made["inputs"] == {"a": 3} and made["result"] == {"b": [2.5, 1e300, True, None, "x", [4, {"c": -5}]]}
    assert text.splitlines()[1].startswith('  "schema": ') and '"a": 3\n' in text
    told = [repr(whole(x)) for x in (2.0**53, 2.0**53 - 1, -(2.0**53), 1 - 2.0**53, 0.5, float("inf"), 7, "2.0")]
    most = "9007199254740992"
    assert told == [f"{most}.0", "9007199254740991", f"-{most}.0", "-9007199254740991", "0.5", "inf", "7", "'2.0'"]


def test_tables_come_with_their_title_heads_and_rows(capsys):
    show([("One", ["name", "number"], [["a", 1234.5]]), ("", ["x"], [])])
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "One",
        "┏━━━━━━┳━━━━━━━━┓",
        "┃ name ┃ number ┃",
        "┡━━━━━━╇━━━━━━━━┩",
        "│ a    │  1,234 │",
        "└──────┴────────┘",
        "┏━━━┓",
        "┃ x ┃",
        "┡━━━┩",
        "└───┘",
    ]
    grid = render._grid("One", ["name"], [["a"]])
    assert (grid.title_justify, grid.title_style, grid.header_style) == ("left", "bold", "bold")
    assert grid.columns[0].overflow == "fold" and render._grid("", ["name"], []).title is None


def test_a_terminal_is_as_wide_as_it_is(monkeypatch):
    made = []
    for tty in (True, False):
        monkeypatch.setattr("rich.console.Console", lambda **how: made.append(how) or Console(file=io.StringIO()))
        monkeypatch.setattr("sys.stdout", Record(isatty=lambda tty=tty: tty, write=lambda text: None))
        show([])
    assert [one["width"] for one in made] == [None, 200] and not made[0]["markup"]


def test_two_columns_are_folded_and_never_turned():
    """Of three the first names the rows of a turned table; of two nothing would be gained."""
    rows = [["x" * 30, "y" * 30]]
    two, three = shown(("", ["first", "second"], rows), 40), shown(("", ["a", "b", "c"], [[*rows[0], "z" * 30]]), 40)
    assert "first" in two.splitlines()[1] and "second" in two.splitlines()[1]
    assert [line.split()[1] for line in three.splitlines() if line.startswith("│ b")] == ["b"]


def test_what_exactly_fits_stays_as_it_is_and_what_does_not_is_turned():
    table = ("", ["aaaa", "bbbb", "cccc"], [["d" * 4, 1, 2]])
    exact = 3 * (4 + 3) + 1
    for width, whole_heads in ((exact, True), (exact - 1, False)):
        lines = shown(table, width).splitlines()
        assert ("bbbb" in lines[1] and "cccc" in lines[1]) == whole_heads


def test_turned_rows_stand_beside_each_other_as_many_as_fit_under_one_title():
    """Four of 20 characters and a column of names: by threes at 80 columns, each time with the names."""
    head = ["name", *(f"number {k}" for k in range(6))]
    rows = [[f"row {i} {'x' * 12}", *(100 * i + k for k in range(6))] for i in range(4)]
    at = lambda width: Console(file=io.StringIO(), width=width, force_terminal=False, color_system=None)
    first, second = fitted(("Title", head, rows), at(80))
    assert (first.title, second.title) == ("Title", None)
    heads = [[str(column.header) for column in grid.columns] for grid in (first, second)]
    assert heads == [["name", *(row[0] for row in rows[:3])], ["name", rows[3][0]]]
    assert [list(column.cells) for column in second.columns] == [head[1:], [str(300 + k) for k in range(6)]]
    assert [list(column.cells)[2] for column in first.columns] == ["number 2", "2", "102", "202"]
    three = 12 + 3 * 21  # a border, the names and a column of each, with a border and two blanks
    many = [len(fitted(("Title", head, rows), at(width))[0].columns) - 1 for width in (three, three - 1, 40, 10)]
    assert many == [3, 2, 1, 1]


def test_columns_in_turn_are_as_many_as_fit_each_time_behind_the_first():
    head = ["name", *(f"{k}" * 10 for k in range(5))]
    rows = [[f"gpu {i}", *(10 * i + k for k in range(5))] for i in range(13)]
    for width, parts in ((9 + 2 * 13 + 1, [[0, 1, 2], [0, 3, 4], [0, 5]]), (9 + 13, [[0, k] for k in range(1, 6)])):
        grids = render._in_turn("All", head, rows, Console(file=io.StringIO(), width=width))
        heads = [[str(column.header) for column in grid.columns] for grid in grids]
        assert heads == [[head[k] for k in part] for part in parts]
        assert [grid.title for grid in grids] == ["All", *[None] * (len(parts) - 1)]
        assert list(grids[1].columns[-1].cells) == [str(10 * i + parts[1][-1] - 1) for i in range(13)]


def test_the_room_that_is_left_goes_to_the_column_that_is_longest_for_its_width():
    """Words of 5 and 12 letters in texts of 10 and 43: the second grows until both have two lines."""
    head, rows = ["one", "another"], [["alpha beta", "gamma deltaepsilon " + "word " * 5], ["zeta", "eta"]]
    grid = render._grid("", head, rows)
    least = len("alpha") + len("deltaepsilon") + 3 * 2 + 1
    made = render._broken(grid, Console(file=io.StringIO(), width=least + 12))
    assert [column.width for column in made.columns] == [6, 23]
