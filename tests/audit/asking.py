"""Questions asked as a user asks them, and all forms of their answers, from one computation."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock


class Answered(NamedTuple):
    """What a command gave."""

    status: int
    document: dict[str, Any]
    text: str


def ask(words: Sequence[str | Path]) -> Answered:
    """Run a command once and print its answer both ways."""
    from dmodels.cli import main, render
    from dmodels.cli.command import Form

    shown: dict[str, str] = {}

    def give(form, call, inputs, result, show, *, feasible=lambda answer: True, write=None, label="answer"):
        found = call.run()
        if write is not None:
            write(found)
        shown["json"] = render.as_json(form.command, inputs(found), result(found))
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            show(found)
        shown["text"] = text.getvalue()
        return 0 if feasible(found) else 1

    with mock.patch.object(Form, "give", give):
        status = main([str(word) for word in words])
    assert shown, f"dmodels {' '.join(map(str, words))}: status {status}, and no answer"
    return Answered(status, json.loads(shown["json"]), shown["text"])
