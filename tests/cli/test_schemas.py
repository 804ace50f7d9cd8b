"""The JSON Schemas that are shipped, and the one model behind flags, scenario, JSON and the printed call."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest
from jsonschema import Draft202012Validator, ValidationError, validate

from dmodels.cli import COMMANDS
from dmodels.cli.calls import WIDTH, call
from dmodels.cli.plan_inputs import PlanInputs
from dmodels.cli.schema import flags, from_flags, read_scenario
from dmodels.core.errors import InputError

from .conftest import closed, shipped

#: A report's document is the plan's; what writes a file or a script has none.
ANSWERING = sorted({name.split()[-1] for name in COMMANDS} - {"report", "init", "completion"})


@pytest.mark.parametrize("command", ANSWERING)
def test_every_command_ships_a_schema_with_a_version(command):
    schema = shipped(command)
    Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"dmodels.{command}/1" == schema["properties"]["schema"]["const"]
    assert set(schema["required"]) == {"schema", "dmodels", "command", "inputs", "result"}


@pytest.mark.parametrize("command", ["split", "place", "route", "poa", "predict", "fit", "plan"])
def test_what_was_asked_is_described_by_the_words_of_its_flags(command):
    question = import_module(f"dmodels.cli.{command}").command.question
    inputs = shipped(command)["properties"]["inputs"]["properties"]
    for leaf in flags(question):
        part = {"properties": inputs["asked"]["properties"] if command == "plan" else inputs}
        for name in leaf.path:
            part = part["properties"][name]
        assert part["description"] == leaf.field.description


def test_a_document_without_a_promised_key_does_not_pass():
    schema = shipped("route")
    head = {"schema": "dmodels.route/1", "dmodels": "0", "command": "route"}
    with pytest.raises(ValidationError, match="required"):
        validate(head | {"inputs": {}, "result": {}}, schema)
    with pytest.raises(ValidationError, match="unexpected"):
        validate(head | {"inputs": {}, "result": {}, "more": 1}, closed(schema))


def test_flags_and_scenario_give_the_same_question(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text('\ufeff[slo]\nttft = "1 s"\n[space]\ntp = [2, 4]\nweights = "FP8"\n', encoding="utf-8")
    typed = {("slo", "ttft"): "1000 ms", ("space", "tp"): "2,4", ("space", "weights"): "fp8"}
    assert read_scenario(path, PlanInputs) == from_flags(PlanInputs, typed)


def test_every_flag_has_words_and_a_default_that_it_would_accept():
    for leaf in flags(PlanInputs):
        assert leaf.field.description and leaf.names[0].startswith("--")
        if not leaf.field.is_required() and leaf.field.default is not None:
            assert from_flags(PlanInputs, {leaf.path: leaf.field.default}) == PlanInputs()


def test_a_mistake_names_the_flag_or_the_key(tmp_path):
    with pytest.raises(InputError, match=r"^--ttft '5': a unit is missing"):
        from_flags(PlanInputs, {("slo", "ttft"): "5"})
    path = tmp_path / "plan.toml"
    path.write_text('[slo]\nttft = "5"\n')
    with pytest.raises(InputError, match=r"plan\.toml: slo\.ttft: '5': a unit is missing"):
        read_scenario(path, PlanInputs)
    path.write_text("[slo\n")
    with pytest.raises(InputError) as told:
        read_scenario(path, PlanInputs)
    assert str(told.value).startswith(f"{path}: not TOML: Expected ']'")


def test_the_printed_call_is_the_call_that_is_made():
    made = call("fractions:Fraction", call("builtins:int", "6", label="six"), call("builtins:len", [1, float("inf")]))
    scope: dict = {}
    exec(made.python("answer"), scope)
    assert scope["answer"] == made.run() == 3 and scope["six"] == 6


def test_the_printed_call_is_laid_out_as_it_is_read():
    """A value a line where a line is too short; a bracket ends as far in as the line that it began in."""
    inner = call("builtins:dict", **{f"name_{k}": 10**k * 1.5 for k in range(9)})
    lines = call("builtins:dict", several=[inner, call("builtins:int", "6")], one=inner).python("answer").splitlines()
    began, depth = [], 0
    for line in lines:
        indent = len(line) - len(line.lstrip())
        assert len(line) <= WIDTH and line == line.rstrip()
        depth += -1 if line.lstrip()[:1] in (")", "]") else 0
        assert indent == 4 * depth, lines
        if line[-1:] in ("(", "["):
            began.append(line)
            depth += 1
    assert depth == 0 and len(began) == 4 and lines.count("        6") == 0
    assert sum(line.strip() == "name_8=150000000.0," for line in lines) == 2


def test_the_schema_of_questions_needs_no_numbers():
    """Help and mistakes come before any import of JAX."""
    code = (
        "import sys; from dmodels.cli import main; assert main(['plan', '--help']) == 0; "
        "assert main(['plan', '--ttft', '5']) == 2; assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
