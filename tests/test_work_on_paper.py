"""The figures that the guide works out for device programs are those that the package works out now."""

from __future__ import annotations

import contextlib
import io

from tools.pages import ROOT, blocks


def test_problems_a_second_on_paper_are_those_that_the_guide_shows():
    """Two digits of the rates on two GPUs, the share of warps, and what binds."""
    page = (ROOT / "docs" / "how-to" / "run-on-a-gpu.md").read_text(encoding="utf-8").splitlines()
    found = blocks(page)
    at = next(i for i, block in enumerate(found) if "problems a second, on paper" in "\n".join(block.text))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec("\n".join(found[at].text), {})
    assert printed.getvalue().split() == "\n".join(found[at + 1].text).split()
