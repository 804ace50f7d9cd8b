"""Tables on terminals of any width: nothing is cut, and wide tables of few rows are turned."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from dmodels.cli.render import fitted, say, show

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
