"""From a question's model to a command: which options it gets, what is asked with them, and the forms of an answer."""

from __future__ import annotations

import inspect
import json
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace as Record
from typing import Annotated

import pytest
import typer
from pydantic import Field

from dmodels.cli import command, render
from dmodels.cli.calls import call
from dmodels.cli.command import Form, announce, asks, check_output
from dmodels.cli.schema import Degree, FileName, Percent, Seconds, Table, flag
from dmodels.core import extras
from dmodels.core.errors import InputError


class Part(Table):
    file: FileName | None = flag(None, "a file", "--own")
    count: Degree = flag(3, "how many", "--many", "--more")
    share: Annotated[float, Field(ge=0), Percent] = flag(0.5, "a share")
    hidden: int = 7


class Asked(Table):
    name: str = flag(..., "a name", argument=True)
    rows: list[str] = flag([], "rows", repeated=True)
    limit: Seconds | None = flag(None, "a bound")
    level: float = flag(1.5, "a level")
    swift: bool = flag(False, "quickly", "--swift", "--fast")
    part: Part = Part()


def options(made):
    """Parameter -> (its kind, its names, whether its default is shown, its default)."""
    found = {}
    for name, one in made.__signature__.parameters.items():
        if name != "ctx":
            kind, option = one.annotation.__origin__, one.annotation.__metadata__[0]
            names = (option.default, *(option.param_decls or ()))
            found[name] = kind, [n for n in names if isinstance(n, str)], option.help, option.show_default, one.default
            assert one.kind is one.KEYWORD_ONLY and made.__annotations__[name] == one.annotation
    return found


def test_fields_become_options_and_what_answers_has_two_more():
    none = inspect.Parameter.empty

    @asks(Asked, batches=True)
    def answers(asked, form, more: Annotated[int, typer.Option(help="more")] = 4):
        return 0

    assert answers.question is Asked
    assert options(answers) == {
        "name": (str, [], "a name", False, none),
        "rows": (list[str], ["--rows"], "rows", True, []),
        "limit": (str, ["--limit"], "a bound", True, None),
        "level": (float, ["--level"], "a level", True, 1.5),
        "swift": (bool, ["--swift/--no-swift", "--fast/--no-fast"], "quickly", True, False),
        "part__file": (str, ["--own"], "a file", True, None),
        "part__count": (int, ["--many", "--more"], "how many", True, 3),
        "part__share": (str, ["--share"], "a share", True, 0.5),
        "more": (int, [], "more", True, 4),
        "device": (str, [], "where batches are computed: auto, cpu or gpu", True, "auto"),
        "json": (bool, ["--json"], "print JSON", True, False),
        "show_python": (bool, ["--show-python"], "print the library call instead", True, False),
    }
    assert list(options(answers))[-4:] == ["more", "device", "json", "show_python"]

    @asks(Asked, scenario="a file of it", only=("part.count",))
    def of_file(asked, scenario: Path, more: Annotated[int, typer.Option(help="more")] = 4):
        return 0

    assert options(of_file) == {
        "scenario": (Path, [], "a file of it", False, none),
        "part__count": (int, ["--many", "--more"], "how many", True, 3),
        "more": (int, [], "more", True, 4),
    }


def ran(made, **given):
    """What a command makes of options, of which those in `given` were typed."""
    defaults = {name: one.default for name, one in made.__signature__.parameters.items() if name != "ctx"}
    source = lambda name: Record(name="COMMANDLINE" if name in given else "DEFAULT")
    return made(Record(get_parameter_source=source, info_name="dmodels two words"), **defaults | given)


def test_what_was_typed_is_asked_and_the_rest_is_the_models(monkeypatch):
    devices, alive = [], []

    @contextmanager
    def life():
        alive.append(True)
        yield "the quiet"
        alive.append(False)

    monkeypatch.setattr(command, "choose_device", devices.append)
    monkeypatch.setattr(command, "sign_of_life", life)
    seen = []

    @asks(Asked, batches=True)
    def answers(asked, form, more: Annotated[int, typer.Option(help="more")] = 4):
        seen.append((asked, form, more, alive[-1]))
        return 9

    typed = {"name": "x", "part__file": "f", "part__count": 5, "more": 6, "json": True}
    assert ran(answers, **typed) == 9 == ran(answers, name="x", show_python=True, device="cpu")
    (asked, form, more, living), (left, other, *_) = seen
    assert (asked.name, asked.part.file, asked.part.count, asked.level, more) == ("x", "f", 5, 1.5, 6)
    assert left == Asked(name="x") and devices == ["auto", "cpu"]
    assert (form.command, form.json, form.show_python, form.quiet) == ("words", True, False, "the quiet") and living
    assert (other.json, other.show_python) == (False, True)

    @asks(Asked)
    def serves(asked, port: Annotated[int, typer.Option(help="port")] = 8765):
        seen.append((asked.name, port, alive[-1]))
        return 3

    assert ran(serves, name="y", port=1) == 3 and seen[-1] == ("y", 1, False)  # a server is alive by itself
    assert "json" not in options(serves) and "device" not in options(serves)
    with pytest.raises(InputError, match="--many 0"):
        ran(answers, name="x", part__count=0)


def test_a_scenario_is_read_and_flags_are_stronger(monkeypatch, tmp_path):
    """A file that a flag names is looked for where the command runs, one that the scenario names beside it."""
    (tmp_path / "there").mkdir()
    for name in ("f", "there/f"):
        (tmp_path / name).write_text(name)
    monkeypatch.chdir(tmp_path)
    file = Path("there/s.toml")
    file.write_text('name = "of the file"\nlevel = 2.5\npart = { count = 8, file = "f" }\n')
    seen = []

    @asks(Asked, scenario="a file", only=("part.count", "part.file"))
    def answers(asked, form, scenario: Path):
        seen.append((asked, scenario))
        return 0

    ran(answers, scenario=file)
    ran(answers, scenario=file, part__count=2, part__file="f")
    (own, path), (typed, _) = seen
    assert (own.name, own.level, own.part.count, own.part.file, path) == ("of the file", 2.5, 8, "there/f", file)
    assert (typed.part.count, typed.part.file) == (2, "f")
    monkeypatch.setattr(command, "from_flags", lambda *_: pytest.fail("there is a scenario"))
    ran(answers, scenario=file)


def test_a_model_that_is_slow_to_import_is_imported_when_it_is_asked(monkeypatch, tmp_path):
    seen = []

    @asks(f"{__name__}:Asked", scenario="a file")
    def answers(asked, form):
        seen.append(asked)
        return 0

    assert answers.question == f"{__name__}:Asked" and list(options(answers)) == ["scenario", "json", "show_python"]
    file = tmp_path / "s.toml"
    file.write_text('name = "x"\n')
    assert ran(answers, scenario=file) == 0 and seen == [Asked(name="x")]


def test_an_answer_has_four_forms(unaudited, monkeypatch, capsys):
    """The call that is printed is not made; files are written before anything is printed, and life ends between."""
    done = []
    monkeypatch.setattr(command, "announce", lambda made: done.append(f"announced {made.run()}"))
    monkeypatch.setattr(render, "as_json", lambda *told: json.dumps(told))
    quiet = lambda: done.append("quiet")
    say = lambda what: lambda answer: done.append(f"{what} {answer}") or f"{what} of {answer}"
    made = call("builtins:int", "7")

    def given(form, **more):
        done.clear()
        return form.give(made, say("inputs"), say("result"), say("show"), **more)

    assert given(Form("size", quiet=quiet)) == 0 and done == ["announced 7", "quiet", "show 7"]
    assert given(Form("size", quiet=quiet), write=say("write"), feasible=lambda answer: answer == 8) == 1
    assert done == ["announced 7", "write 7", "quiet", "show 7"] and capsys.readouterr().out == ""
    assert given(Form("size", True, quiet=quiet), feasible=lambda answer: answer == 7) == 0
    assert done == ["announced 7", "quiet", "inputs 7", "result 7"]
    assert json.loads(capsys.readouterr().out) == ["size", "inputs of 7", "result of 7"]
    python = Form("size", True, True, quiet)
    monkeypatch.setattr(command, "chosen_device", lambda: "auto")
    assert given(python, write=say("write"), feasible=lambda answer: False) == 0 and done == ["quiet"]
    assert capsys.readouterr().out == "\nanswer = int('7')\n"
    monkeypatch.setattr(command, "chosen_device", lambda: "cpu")
    assert given(python, label="found") == 0
    device = "from dmodels import choose_device\n\nchoose_device('cpu')\n\n"
    assert capsys.readouterr().out == f"{device}\nfound = int('7')\n"
    assert Form("size") == Form("size", False, False, Form("").quiet) and Form("size").quiet() is None


def test_files_that_cannot_be_written_are_told_before_anything_is_computed(tmp_path, monkeypatch):
    def told(*given, **more):
        with pytest.raises(InputError) as error:
            check_output("out", *given, **more)
        return str(error.value)

    assert check_output("out", None, ".csv") is None is check_output("out", tmp_path / "x.any")
    assert told(Path("")) == "--out .: a folder; the name of a file is accepted"
    assert told(tmp_path) == f"--out {tmp_path}: a folder; the name of a file is accepted"
    assert check_output("out", tmp_path, folder=True) is None is check_output("out", tmp_path / "x.CSV", ".csv", ".txt")
    ends = "a name that ends in"
    assert told(tmp_path / "x", ".a", ".b", ".c") == f"--out {tmp_path / 'x'}: {ends} .a, .b or .c is accepted"
    assert told(tmp_path / "x.a", ".b", ".c") == f"--out {tmp_path / 'x.a'}: {ends} .b or .c is accepted"
    (tmp_path / "file").write_text("")
    assert told(tmp_path / "file" / "x.csv").startswith(f"--out {tmp_path / 'file' / 'x.csv'}: cannot be written")
    needed = []
    monkeypatch.setattr(command, "check_installed", lambda *given: needed.append(given))
    for ending in (".png", ".SVG", ".pdf", ".html", ".csv", ".json", ".htm"):
        check_output("plot", tmp_path / f"x{ending}")
    assert needed == [
        (f"--plot {tmp_path / f'x{ending}'}", "matplotlib") for ending in (".png", ".SVG", ".pdf", ".html")
    ]
    assert extras.EXTRA["matplotlib"] == "report"


def test_what_is_to_be_known_of_values_is_said_once_each_in_their_order(capsys):
    one, other = Record(name="a.csv", notices=("x", "y")), Record(name="b.csv", notices=["x"])
    announce(Record(values=lambda: iter([one, 3, other, one])))
    said = "dmodels: a.csv: x\ndmodels: a.csv: y\ndmodels: b.csv: x\n"
    assert capsys.readouterr() == ("", said)
