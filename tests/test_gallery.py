"""The gallery shows what the examples draw: every picture is there, with words and a line that could draw it."""

from __future__ import annotations

import re
import shlex
import struct
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tools.make_gallery import ENTRIES, FOLDER, make, page  # noqa: E402

DRAWN = [entry for entry in ENTRIES if not entry.shown.startswith(("dmodels explore",)) and entry.name != "report"]


def test_the_page_is_that_of_the_script():
    assert (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_picture_is_there_and_wide_enough_to_read(entry):
    data = (FOLDER / f"{entry.name}.png").read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and width >= 700 and height >= 350
    assert len(entry.caption) > 20


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_lines_name_commands_and_files_that_are_there(entry):
    from dmodels.cli import COMMANDS

    words = shlex.split(entry.shown or entry.command)
    assert words[0] == "dmodels" and words[1] in COMMANDS
    assert all((ROOT / word).exists() for word in words if re.match(r"examples/", word))


@pytest.mark.slow
@pytest.mark.parametrize("entry", DRAWN, ids=lambda entry: entry.name)
def test_every_picture_is_drawn_again(entry, tmp_path):
    make(entry, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
