"""Every JSON document that a test of a command prints is held against the schema that is shipped with the command, and
against itself (`tests/audit`); so is every page of a plan, and every figure."""

from __future__ import annotations

import contextlib
import io
import json
from importlib.resources import files
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dmodels.cli import render
from dmodels.cli.command import Form
from tests.audit.commands import audit
from tests.audit.figures import audit_figure
from tests.audit.shown import audit_page
from tests.audit.terminal import audit_shown

GIVE = Form.give


def shipped(command: str) -> dict[str, Any]:
    """The schema of a command's answer."""
    return json.loads(files("dmodels.cli").joinpath(f"schemas/{command}.json").read_text(encoding="utf-8"))


def closed(schema: Any) -> Any:
    """The same, refusing keys that it does not name: a new key is to be written down with `tools/make_schemas.py`."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: closed(part) for name, part in schema.items()}
    named = isinstance(inner.get("properties"), dict) and inner.get("type") in ("object", ["null", "object"])
    return {"additionalProperties": False} | inner if named else inner


@pytest.fixture(autouse=True)
def documents_keep_their_schema(monkeypatch):
    made = render.as_json
    monkeypatch.setenv("DMODELS_DEBUG", "1")  # a fault, this check's included, is to be seen

    def checked(command: str, inputs: Any, result: Any) -> str:
        text = made(command, inputs, result)
        problems = list(Draft202012Validator(closed(shipped(command))).iter_errors(json.loads(text)))
        assert not problems, [f"{problem.json_path}: {problem.message[:200]}" for problem in problems[:5]]
        audit(json.loads(text))
        return text

    monkeypatch.setattr(render, "as_json", checked)


@pytest.fixture(autouse=True)
def tables_say_what_documents_say(monkeypatch):
    """Whichever form a test asks for, the other is made of the same answer and held against it."""

    def checked(form: Form, call: Any, inputs: Any, result: Any, show: Any, **more: Any) -> int:
        answers: list[Any] = []
        feasible = more.pop("feasible", lambda answer: True)
        kept = lambda answer: answers.append(answer) or feasible(answer)
        status = GIVE(form, call, inputs, result, show, feasible=kept, **more)
        for answer in answers:
            text = io.StringIO()
            with contextlib.redirect_stdout(text), contextlib.redirect_stderr(io.StringIO()):
                show(answer)
            audit_shown(json.loads(render.as_json(form.command, inputs(answer), result(answer))), text.getvalue())
        return status

    monkeypatch.setattr(Form, "give", checked)


@pytest.fixture
def unaudited(monkeypatch):
    """Answers made by hand are no documents to be audited: the form is as it is shipped."""
    monkeypatch.setattr(Form, "give", GIVE)


@pytest.fixture
def handed(monkeypatch):
    """What a command hands to its form, which only ends with `status`: the test itself calls what was handed."""
    kept = SimpleNamespace(status=0)

    def give(form, call, inputs, result, show, *, feasible=None, write=None):
        vars(kept).update(call=call, inputs=inputs, result=result, show=show, feasible=feasible, write=write)
        return kept.status

    monkeypatch.setattr(Form, "give", give)
    return kept


@pytest.fixture(autouse=True)
def pages_say_what_documents_say(monkeypatch):
    from dmodels.report import plan_json, plan_page

    made = plan_page.plan_page

    def checked(answer: Any, changes: Any, *more: Any) -> str:
        page = made(answer, changes, *more)
        document = {"inputs": plan_json.inputs(answer), "result": plan_json.result(answer, changes, [], [])}
        document["result"]["notes"] += more[2] if len(more) > 2 else []
        audit_page(json.loads(json.dumps(render.whole(render.plain(document)))), page)
        return page

    monkeypatch.setattr(plan_page, "plan_page", checked)


@pytest.fixture(autouse=True)
def figures_can_be_read(monkeypatch):
    if find_spec("matplotlib") is None:  # an extra
        return
    from matplotlib import figure

    drawn = figure.Figure.savefig

    def checked(made: Any, *args: Any, **options: Any) -> Any:
        found = drawn(made, *args, **options)
        audit_figure(made)
        return found

    monkeypatch.setattr(figure.Figure, "savefig", checked)
