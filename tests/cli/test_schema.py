"""How a question is read: flags and keys of scenarios into one model, and the first mistake in one line."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import Field

from dmodels.cli import formats, main, schema
from dmodels.cli.schema import (
    CalibrationTable,
    EngineTable,
    FileName,
    GpuTable,
    Leaf,
    ModelTable,
    Names,
    Seconds,
    Table,
    TrafficTable,
    WorkloadTable,
    flag,
    flags,
    from_flags,
    read_scenario,
)
from dmodels.core.errors import InputError


def test_tables_that_several_commands_read_have_these_fields_and_defaults():
    dump = lambda table: table.model_dump()
    assert dump(EngineTable()) == {"backend": "vllm", "max_num_seqs": 256, "max_num_batched_tokens": 8192}
    assert dump(CalibrationTable()) == {"calibration": None} and dump(ModelTable()) == {"name": "llama-3.1-70b"}
    assert dump(GpuTable(name="x")) == {"name": "x", "file": None} and dump(TrafficTable()) == {"rate": None}
    none = {"name": None, "trace": None, "input_tokens": None, "output_tokens": None}
    assert dump(WorkloadTable(name="x")) == none | {"name": "x"}
    named = {}
    for table in (EngineTable, CalibrationTable, ModelTable, GpuTable, TrafficTable, WorkloadTable):
        named |= {leaf.path[0] if table is not ModelTable else "model": leaf.names for leaf in flags(table)}
    assert named == {
        **{name: [f"--{name.replace('_', '-')}"] for name in ("backend", "max_num_seqs", "max_num_batched_tokens")},
        **{name: [f"--{name}"] for name in ("calibration", "model", "rate", "trace")},
        **{"name": ["--workload"], "input_tokens": ["--isl"], "output_tokens": ["--osl"]},
    }


@pytest.mark.parametrize(
    "given",
    [{"isl": 1000, "osl": 5}, {"input_tokens": 1000, "output_tokens": 5}, {"isl": 1000, "output_tokens": 5}],
)
def test_lengths_may_be_called_as_their_flags_are(given):
    asked = WorkloadTable.model_validate(given)
    assert (asked.input_tokens, asked.output_tokens, asked.name, asked.trace) == (1000.0, 5.0, None, None)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "give one of name"),
        ({"name": "a", "trace": "b"}, "give one of name"),
        ({"name": "a", "isl": 1}, "give one of name"),
        ({"name": "a", "osl": 1}, "give one of name"),
        ({"trace": "b", "isl": 1, "osl": 1}, "give one of name"),
        ({"isl": 1}, "give both input_tokens and output_tokens"),
        ({"osl": 1}, "give both input_tokens and output_tokens"),
    ],
)
def test_traffic_is_of_one_kind_and_lengths_are_two(given, says):
    with pytest.raises(ValueError, match=says):
        WorkloadTable.model_validate(given)


def test_a_flag_says_how_it_is_typed():
    plain = flag(3, "how many")
    assert (plain.default, plain.description) == (3, "how many")
    assert plain.json_schema_extra == {"flag": {"names": [], "argument": False, "repeated": False}}
    told = flag(..., "rows", "--rows", "--row", argument=True, repeated=True)
    assert told.json_schema_extra == {"flag": {"names": ["--rows", "--row"], "argument": True, "repeated": True}}
    assert told.is_required() and not plain.is_required()


def test_several_are_a_list_however_they_are_given():
    several = schema.several
    assert (
        several(" a, b ,,c,") == ["a", "b", "c"] and several("") == [] and several(3) == [3] and several(0.5) == [0.5]
    )
    assert several(["a"]) == ["a"] and several(None) is None and several((1, 2)) == (1, 2)


class Row(Table):
    name: str
    to: float = Field(2.0, alias="until")


class Deep(Table):
    level: Annotated[int, Field(ge=1)] = flag(1, "level", "--level")
    tight: Annotated[int, Field(ge=1)] | None = None


class Asked(Table):
    names: Names = flag(["a"], "names")
    pair: tuple[float, float] = flag((1.0, 2.0), "a pair", "--pair")
    plain: int = 3
    deep: Deep = Deep()
    maybe: Deep | None = None
    rows: list[Annotated[Row, Field()]] = flag([], "rows", "--row", repeated=True)
    file: FileName | None = flag(None, "a file")
    limit: Seconds = flag("1 s", "a bound", "--limit", "--most")


def test_the_flags_of_a_question_are_those_of_its_tables_too_in_their_order():
    assert [leaf.path for leaf in flags(Asked)] == [
        ("names",),
        ("pair",),
        ("deep", "level"),
        ("rows",),
        ("file",),
        ("limit",),
    ]
    assert [leaf.names for leaf in flags(Asked)] == [
        ["--names"],
        ["--pair"],
        ["--level"],
        ["--row"],
        ["--file"],
        ["--limit", "--most"],
    ]
    assert next(iter(flags(Deep, ("x", "y")))).path == ("x", "y", "level")
    assert Leaf(("a",), Field(1)).how is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({("names",): ","}, "--names ,: value should have at least 1 item after validation, not 0"),
        ({("deep", "level"): "0"}, "--level 0: input should be greater than or equal to 1"),
        ({("pair",): [1.0]}, "--pair: a value is missing; all are given, with commas between them"),
        ({("limit",): "5"}, "--limit '5': a unit is missing, one of s, ms, us, ns, min, h"),
        ({("rows",): [{"name": "x", "untill": 1}]}, "--row untill is unknown; the nearest are until"),
        ({("rows",): [{"name": "x", "zzzzzz": 1}]}, "--row zzzzzz is unknown; the nearest are name, until"),
        ({("rows",): [{"until": 1}]}, "--row: a value is missing; all are given, with commas between them"),
    ],
)
def test_a_mistake_of_a_flag_begins_with_its_name(given, says):
    with pytest.raises(InputError) as told:
        from_flags(Asked, given)
    assert str(told.value) == says


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[deep]\nlevel = 0", "deep.level = 0: input should be greater than or equal to 1"),
        ("plain = 'x'", "plain = 'x': input should be a valid integer, unable to parse string as an integer"),
        ("plain = [1]", "plain: input should be a valid integer"),
        ("[[rows]]\nutnil = 1", "rows.0.utnil is unknown; the nearest are until"),
        ("[maybe]\nlevl = 1", "maybe.levl is unknown; the nearest are level"),
        ("[[rows]]\nuntil = 1", "rows.0.name is missing"),
        ("plin = 1\nplain = 'x'", "plin is unknown; the nearest are plain, pair, limit"),  # what is misspelt says more
        ("q = 1", "q is unknown; the nearest are names, pair, plain, deep, maybe, rows"),
        ("x", "not TOML: "),
    ],
)
def test_a_mistake_of_a_scenario_begins_with_its_file_and_place(text, says, tmp_path):
    file = tmp_path / "s.toml"
    file.write_text(text)
    with pytest.raises(InputError) as told:
        read_scenario(file, Asked)
    said = str(told.value)
    assert said.startswith(f"{file}: {says}") and (said == f"{file}: {says}" or "TOML" in says)


def test_flags_stand_over_what_the_scenario_says_and_make_its_tables(tmp_path):
    file = tmp_path / "s.toml"
    file.write_text("[deep]\ntight = 4\n")
    asked = read_scenario(file, Asked, {("deep", "level"): 2, ("maybe", "level"): 3, ("plain",): 9})
    assert (asked.deep.level, asked.deep.tight, asked.maybe.level, asked.plain) == (2, 4, 3, 9)
    assert read_scenario(file, Asked).deep.level == 1 and from_flags(Asked, {}) == Asked()


def test_formats_are_records_and_a_table_with_dashes_where_there_is_nothing(handed, monkeypatch):
    from dmodels.formats import FormatRow

    rows = [FormatRow("a", "one", "", "written"), FormatRow("b", "two", "read", "")]
    shown = []
    monkeypatch.setattr(formats.render, "show", shown.extend)
    formats._show(rows)
    head = ["format", "what it is", "read by", "written by"]
    assert shown == [("Files of other tools", head, [["a", "one", "-", "written"], ["b", "two", "read", "-"]])]
    assert formats._records(rows)[0] == {"name": "a", "title": "one", "read_by": "", "written_by": "written"}
    handed.status = 5
    assert main(["formats"]) == 5 and handed.call.target == "dmodels.formats:table"
    assert (handed.inputs(1), handed.result(rows), handed.show) == ({}, formats._records(rows), formats._show)
    assert handed.feasible is handed.write is None


def test_names_that_a_table_accepts_are_found_through_lists_and_what_may_be_missing():
    assert schema._table(list[Annotated[Row, 1]] | None) is Row and schema._table(int | None) is None
    assert schema._table(Deep) is Deep
