"""From a question's model to a command: its options, and the four forms of an answer.

A command is a function of the question, of the `Form` and of options of its own, such as `--out`; `asks` makes of it
what typer takes. The form prints the library call (`--show-python`), JSON (`--json`) or tables.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import typer

from dmodels.core.devices import choose_device, chosen_device
from dmodels.core.errors import InputError
from dmodels.core.extras import check_installed
from dmodels.core.files import check_writable

from . import render
from .calls import Code
from .interrupts import sign_of_life
from .schema import FileName, Leaf, Table, flags, from_flags, read_scenario

Out = Annotated[Path | None, typer.Option(help="write the figures to this .png, .svg or .html file")]
Device = Annotated[str, typer.Option(help="where batches are computed: auto, cpu or gpu")]


@dataclass(frozen=True)
class Form:
    """How the answer of a command is wanted."""

    command: str
    json: bool = False
    show_python: bool = False
    quiet: Callable[[], None] = lambda: None  # ends the signs of life, before anything is printed

    def give(
        self,
        call: Code,
        inputs: Callable[[Any], Mapping[str, Any]],
        result: Callable[[Any], Any],
        show: Callable[[Any], None],
        *,
        feasible: Callable[[Any], bool] = lambda answer: True,
        write: Callable[[Any], None] | None = None,
        label: str = "answer",
    ) -> int:
        """Make the call, write its files, then print the answer, so that a reader who stops early loses no file."""
        if self.show_python:
            self.quiet()
            if chosen_device() != "auto":
                print(f"from dmodels import choose_device\n\nchoose_device({chosen_device()!r})\n")
            print(call.python(label))
            return 0
        answer = call.run()
        announce(call)
        if write is not None:
            write(answer)
        self.quiet()
        if self.json:
            print(render.as_json(self.command, inputs(answer), result(answer)))
        else:
            show(answer)
        return 0 if feasible(answer) else 1


def announce(made: Code) -> None:
    """What readers of traces want to be known, on stderr, once."""
    told = (f"dmodels: {value.name}: {notice}" for value in made.values() for notice in getattr(value, "notices", ()))
    for line in dict.fromkeys(told):
        print(line, file=sys.stderr)


def asks(
    model: type[Table] | str, scenario: str = "", only: tuple[str, ...] = (), batches: bool = False
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """The command of a function that takes a `model` (or its "module:name", if that is slow to import).

    The model is read from flags or, with the help of its argument, from a scenario file; then `only` names the fields
    that are also flags, which are stronger than the file. --device says where `batches` are computed, before the
    command's libraries are imported.
    """
    known = [] if isinstance(model, str) else flags(model)
    leaves = {"__".join(leaf.path): leaf for leaf in known if not scenario or ".".join(leaf.path) in only}

    def made(function: Callable[..., int]) -> Callable[..., int]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        formed = bool(own) and own[0].name == "form"
        own = own[formed:]

        def command(ctx: typer.Context, **given: Any) -> int:
            choose_device(given.pop("device", "auto"))
            typed = {
                leaf.path: Path(given[name]) if _names_file(leaf) else given[name]
                for name, leaf in leaves.items()
                if getattr(ctx.get_parameter_source(name), "name", "") != "DEFAULT"
            }
            rest = {p.name: given[p.name] for p in own}
            with sign_of_life() as quiet:  # a schema may come with its study, which takes seconds to import
                found = Code(model).run() if isinstance(model, str) else model
                asked = read_scenario(given["scenario"], found, typed) if scenario else from_flags(found, typed)
                if formed:
                    form = Form(str(ctx.info_name).split()[-1], given["json"], given["show_python"], quiet)
                    return function(asked, form, **rest)
            return function(asked, **rest)

        parameters = [_parameter("ctx", typer.Context)]
        if scenario:
            parameters.append(
                _parameter("scenario", Annotated[Path, typer.Argument(help=scenario, show_default=False)])
            )
        parameters += [_option(name, leaf) for name, leaf in leaves.items()]
        parameters += [p.replace(kind=p.KEYWORD_ONLY) for p in own if p.name != "scenario"]
        if batches:
            parameters.append(_parameter("device", Device, "auto"))
        if formed:
            parameters += [_switch("json", "print JSON"), _switch("show_python", "print the library call instead")]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        command.question = model  # type: ignore[attr-defined]  # for the schemas of answers
        return command

    return made


def check_output(option: str, path: Path | None, *kinds: str, folder: bool = False) -> None:
    """The mistakes that writing `path` would meet, before anything is computed: its suffix is none of `kinds`, it is a
    folder (unless that is meant), it cannot be written."""
    if path is None:
        return
    if not folder and (path.is_dir() or not path.name):
        raise InputError(f"--{option} {path}: a folder; the name of a file is accepted")
    if kinds and path.suffix.lower() not in kinds:
        raise InputError(f"--{option} {path}: a name that ends in {', '.join(kinds[:-1])} or {kinds[-1]} is accepted")
    if path.suffix.lower() in (".png", ".svg", ".pdf", ".html"):
        check_installed(f"--{option} {path}", "matplotlib")
    try:
        check_writable(path)
    except InputError as error:
        raise InputError(f"--{option} {error}") from None


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _switch(name: str, says: str) -> inspect.Parameter:
    return _parameter(name, Annotated[bool, typer.Option(f"--{name.replace('_', '-')}", help=says)], False)


def _option(name: str, leaf: Leaf) -> inspect.Parameter:
    """The typer option of a field."""
    kind, default = _typed(leaf), leaf.field.default
    if leaf.how["argument"]:
        option = typer.Argument(help=leaf.field.description, show_default=False)
    else:
        names = leaf.names if kind is not bool else [f"{name}/--no-{name[2:]}" for name in leaf.names]
        option = typer.Option(*names, help=leaf.field.description)
    required = leaf.field.is_required()
    return _parameter(name, Annotated[kind, option], inspect.Parameter.empty if required else default)


def _typed(leaf: Leaf) -> Any:
    """What typer reads: numbers and switches; everything with a reader of its own is text."""
    kind, readers = _kind(leaf)
    if leaf.how["repeated"]:
        return list[str]
    plain = kind in (bool, Path) or (kind in (int, float) and not any(hasattr(reader, "func") for reader in readers))
    return kind if plain else str


def _names_file(leaf: Leaf) -> bool:
    """Whether it is a file, which as a flag is looked for where the command runs, not beside a scenario."""
    return get_args(FileName)[1] in _kind(leaf)[1]


def _kind(leaf: Leaf) -> tuple[Any, list[Any]]:
    """(the type of a field, None aside; what checks it)."""
    kind, checks = leaf.field.annotation, list(leaf.field.metadata)
    if get_origin(kind) in (Union, UnionType):
        kind = get_args(kind)[0]
    if get_origin(kind) is Annotated:
        kind, *inner = get_args(kind)
        checks += inner
    return kind, checks
