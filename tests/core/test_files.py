"""Results are there whole or not at all, and remarks in tables are no rows."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from dmodels.core.errors import InputError
from dmodels.core.files import csv_rows, read_lines, read_text, remarks, replacing, write_text

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


def test_what_is_packed_marked_or_separated_otherwise_reads_the_same(tmp_path):
    path = tmp_path / "table.csv"
    for content in (
        b"a,b\n0.5,2\n",
        b"\xef\xbb\xbfa;b\r\n0,5;2\r\n",
        b"a\tb\n0,5\t2\n",
        gzip.compress(b"a,b\n0.5,2\n"),
    ):
        path.write_bytes(content)
        assert list(csv_rows(read_text(path))) == [{"a": "0.5", "b": "2"}]


@pytest.mark.parametrize("read", [read_text, lambda path: list(read_lines(path))])
def test_what_never_ends_is_refused(read, tmp_path):
    bomb = tmp_path / "bomb.gz"
    with gzip.open(bomb, "wb", compresslevel=1) as stream:
        stream.writelines([b" " * 2**20] * 65)
    for path in ("/dev/zero", bomb):
        with pytest.raises(InputError, match="more than 64 MiB"):
            read(path)


def test_a_full_disk_is_named_by_the_target(tmp_path):
    with (
        pytest.raises(InputError, match=r"answer\.txt: cannot be written \(no space"),
        replacing(tmp_path / "answer.txt"),
    ):
        Path("/dev/full").write_text("x" * 10_000)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("inside", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_row_ends_where_a_line_does_and_nowhere_else(inside, end):
    rows = list(csv_rows(end.join(["name,price", f"h100{inside}x,3", "l40s,1", ""])))
    assert rows == [{"name": f"h100{inside}x", "price": "3"}, {"name": "l40s", "price": "1"}]
