"""Files of other tools: the formats that are read and written, and the options that do it."""

from __future__ import annotations

from typing import Any

from . import render
from .calls import call
from .command import Form, asks
from .schema import Table


class FormatsAsked(Table):
    """Nothing is asked."""


@asks(FormatsAsked)
def command(asked: FormatsAsked, form: Form) -> int:
    return form.give(call("dmodels.formats:table"), lambda rows: {}, lambda rows: _records(rows), _show)


def _records(rows: Any) -> list[dict[str, Any]]:
    return [row._asdict() for row in rows]


def _show(rows: Any) -> None:
    head = ["format", "what it is", "read by", "written by"]
    cells = [[row.name, row.title, row.read_by or "-", row.written_by or "-"] for row in rows]
    render.show([("Files of other tools", head, cells)])
