"""Results are there whole or not at all, and remarks in tables are no rows."""

from __future__ import annotations

import pytest

from dmodels.core.files import csv_rows, remarks, replacing, write_text

TABLE = "# source: a page\n\nname,price\nh100,3.9\n  # dated\nl40s,1.1\n"


def test_remarks_and_blank_lines_are_no_rows():
    assert [row["name"] for row in csv_rows(TABLE)] == ["h100", "l40s"]
    assert remarks(TABLE) == ["source: a page", "dated"]


def test_what_fails_half_way_leaves_the_old_file_and_no_draft(tmp_path):
    path = write_text(tmp_path / "new folder" / "answer.txt", "old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as draft:
        draft.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old" and list(path.parent.iterdir()) == [path]


def test_a_folder_takes_the_place_of_a_folder(tmp_path):
    target = tmp_path / "points.zarr"
    for content in ("first", "second"):
        with replacing(target) as draft:
            draft.mkdir()
            (draft / content).touch()
    assert [path.name for path in target.iterdir()] == ["second"] and list(tmp_path.iterdir()) == [target]


def test_a_result_has_the_rights_of_any_new_file(tmp_path):
    plain = tmp_path / "plain"
    plain.touch()
    assert write_text(tmp_path / "ours", "").stat().st_mode == plain.stat().st_mode
