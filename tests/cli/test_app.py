"""The program around the commands: its help, its exit codes, and what it says where, without a process of its own."""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
import warnings
from types import SimpleNamespace as Record

import pytest

from dmodels import __version__, cli
from dmodels.cli import app, interrupts, main
from dmodels.core.errors import InputError, InputWarning


def test_the_help_begins_and_ends_as_it_does_and_commands_have_their_lines(monkeypatch, capsys):
    monkeypatch.setattr(app, "COMMANDS", {"a": "one thing", "a bc": "another"})
    for words in ([], ["-h"], ["--help"]):
        assert app.run(words) == 0
        assert capsys.readouterr().out.splitlines() == [
            "Usage: dmodels COMMAND [OPTIONS]",
            "",
            "Capacity planning for LLM serving: how many GPUs, of which kind, split how, routed how.",
            "",
            "Commands (dmodels COMMAND --help shows one):",
            "  a     one thing",
            "  a bc  another",
            "",
            "Exit codes: 0 an answer, 1 no feasible answer, 2 bad input, 3 a fault of dmodels, 130 interrupted.",
        ]
    assert app.run(["--version"]) == 0 and capsys.readouterr().out == f"dmodels {__version__}\n"


def test_a_command_is_one_word_or_two_and_what_follows_is_its_own(monkeypatch):
    asked = []
    monkeypatch.setattr(app, "_command", lambda name, argv: asked.append((name, argv)) or 7)
    for words in (["fit", "rows.csv", "x"], ["fit", "operators", "x"], ["plan"], ["no", "such"]):
        assert app.run(words) == 7
    assert asked == [("fit", ["rows.csv", "x"]), ("fit operators", ["x"]), ("plan", []), ("no", ["such"])]


def test_exit_codes_are_those_that_the_help_states():
    assert (app.INFEASIBLE, app.BAD_INPUT, app.FAULT, app.INTERRUPTED, app.CLOSED_PIPE) == (1, 2, 3, 130, 141)


def raising(error):
    def raises(argv):
        raise error

    return raises


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InputError("--x 3: accepted is 4"), 2, "--x 3: accepted is 4"),
        (FileNotFoundError(2, "No such file", "a.csv"), 2, "a.csv: No such file"),
        (OSError("full"), 2, "output: full"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 2, "more memory is needed than there is (no more); accepted is less"),
        (MemoryError("9 GiB"), 2, "more memory is needed than there is (9 GiB); accepted is less"),
        (ModuleNotFoundError("", name="pandas"), 2, "plan needs pandas: pip install 'dmodels[sweep]'"),
        (ValueError("of\n  what"), 3, f"a fault of dmodels, not of its input (ValueError: of what); {app.REPORT}"),
        (
            ModuleNotFoundError("ours", name="dmodels.x"),
            3,
            f"a fault of dmodels, not of its input (ModuleNotFoundError: ours); {app.REPORT}",
        ),
        (KeyError("x" * 400), 3, f"a fault of dmodels, not of its input (KeyError: '{'x' * 289}); {app.REPORT}"),
    ],
)
def test_what_goes_wrong_is_one_line_and_a_code(error, code, said, monkeypatch, capsys):
    monkeypatch.setattr(app, "SAID", heard := Record(set=lambda: setattr(heard, "told", True), told=False))
    monkeypatch.delenv("DMODELS_DEBUG", raising=False)
    monkeypatch.setattr(app, "_asked", raising(error))
    assert app.run(["plan"]) == code
    assert capsys.readouterr() == ("", f"dmodels: {said}\n")
    assert heard.told == (code == 130)  # so that nobody says it again
    monkeypatch.setenv("DMODELS_DEBUG", "1")
    if code == 3:
        with pytest.raises(type(error)):
            app.run(["plan"])
    else:
        assert app.run(["plan"]) == code


@pytest.mark.parametrize("last", [False, True])
def test_a_pipe_that_nobody_reads_is_left_for_nowhere(last, monkeypatch):
    """At once or at the last; what Python itself writes on its way out would fail once more."""

    def breaks():
        raise BrokenPipeError

    put = []
    dup2 = lambda *to: put.append(to)
    files = Record(dup2=dup2, open=os.open, devnull=os.devnull, O_WRONLY=os.O_WRONLY, environ=os.environ)
    monkeypatch.setattr(app, "os", files)
    monkeypatch.setattr(app, "_asked", (lambda argv: 0) if last else raising(BrokenPipeError()))
    with monkeypatch.context() as within:
        within.setattr(sys, "stdout", Record(fileno=lambda: 77, flush=breaks))
        code = app.run([])
    ((nowhere, of),) = put
    assert (code, of) == (141, 77) and os.stat(nowhere).st_rdev == os.stat(os.devnull).st_rdev
    assert os.write(nowhere, b"x") == 1
    os.close(nowhere)


def test_who_has_closed_the_output_hears_by_the_code_alone(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert app.run(["--version"]) == 0
    with sys.stdout as made:
        assert (made.name, made.mode, made.encoding.lower()) == (os.devnull, "w", "utf-8")
    monkeypatch.setattr(sys, "stdout", screen := io.StringIO())
    assert app.run(["--version"]) == 0 and sys.stdout is screen and screen.getvalue()


def test_warnings_of_the_input_are_lines_and_those_of_libraries_are_theirs(monkeypatch, capsys):
    theirs = []

    def asked(argv):
        warnings.warn("x.csv: cut short", InputWarning, stacklevel=1)
        warnings.warn("a library's", FutureWarning, stacklevel=1)
        warnings.warn("somebody's", UserWarning, stacklevel=1)
        return 5

    monkeypatch.setattr(warnings, "showwarning", lambda message, kind, *_: theirs.append((str(message), kind)))
    monkeypatch.setattr(app, "_asked", asked)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        shown = warnings.showwarning
        assert app.run([]) == 5 and warnings.showwarning is shown
    assert capsys.readouterr() == ("", "dmodels: x.csv: cut short\n")
    assert theirs == [("a library's", FutureWarning), ("somebody's", UserWarning)]


def ends(how):
    def main(argv, prog_name, standalone_mode):
        assert (argv, prog_name, standalone_mode) == (["--x"], "dmodels size", False)
        return how() if callable(how) else how

    return lambda name: Record(main=main)


def test_a_parser_ends_in_every_way_that_it_has(monkeypatch, capsys):
    """With a code or without, by an exit, by an abort or 130 (an interrupt), and by giving up on a closed pipe."""
    import typer

    def stops(error):
        def stopped():
            raise error

        return stopped

    kept = []
    monkeypatch.setattr(app, "SAID", Record(set=lambda: None))
    monkeypatch.setattr(app, "keep_compiled", lambda: kept.append(1))
    for how, code in ((None, 0), (1, 1), (stops(typer.Exit(4)), 4)):
        monkeypatch.setattr(app, "click_command", ends(how))
        assert app.run(["size", "--x"]) == code
    assert len(kept) == 3
    for how, code, said in (
        (stops(typer.Abort()), 130, "interrupted"),
        (130, 130, "interrupted"),
        (stops(typer.BadParameter("no  such\nthing")), 2, "Invalid value: no such thing"),
    ):
        monkeypatch.setattr(app, "click_command", ends(how))
        assert app.run(["size", "--x"]) == code
        assert capsys.readouterr().err == f"dmodels: {said}\n"
    monkeypatch.setattr(app, "click_command", ends(stops(SystemExit(1))))
    with pytest.raises(BrokenPipeError):
        app._command("size", ["--x"])
    monkeypatch.undo()
    assert app.run(["siez"]) == 2
    assert "command 'siez' is unknown; the nearest are size" in capsys.readouterr().err


def test_options_of_help_are_two_and_the_command_has_its_docstring_and_no_other_options():
    made = app.click_command("formats")
    assert made.context_settings["help_option_names"] == ["-h", "--help"] and made.rich_markup_mode is None
    assert made.help.strip().startswith("Files of other tools") and made.name == "formats"
    assert [option.name for option in made.params] == ["json", "show_python"]
    assert app.click_command("fit operators").params[0].name == "folder"


def test_a_process_of_its_own_ends_on_an_interrupt_and_collects_little_garbage(monkeypatch):
    """And who calls it with a command line of their own keeps their interrupts and their garbage collector."""
    done, asked = [], []
    monkeypatch.setattr(interrupts, "end_on_interrupt", lambda code: done.append(code))
    monkeypatch.setattr(gc, "set_threshold", lambda *counts: done.append(counts))
    monkeypatch.setattr(atexit, "register", lambda what: done.append(what))
    monkeypatch.setattr(app, "run", lambda argv: asked.append(argv) or 9)
    monkeypatch.setattr(sys, "argv", ["dmodels", "plan", "--x"])
    assert main(["size"]) == 9 and main([]) == 9 and done == []
    assert main() == 9
    code, (objects,), last = done
    assert code == 130 and last is gc.disable and 100_000 <= objects <= 10_000_000  # of hundreds of thousands
    assert asked == [["size"], [], ["plan", "--x"]]


def test_every_command_stands_in_the_order_of_a_planners_day():
    names = "init plan report explore size step catalog simulate transfer pools split place sweep poa route predict fit"
    assert [*cli.COMMANDS] == [*names.split(), "fit operators", "watch", "formats", "claims", "completion"]
