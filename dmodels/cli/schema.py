"""What a command can be asked: one pydantic model, whose fields are flags, keys of scenario files and inputs in JSON.

A field written with `flag` is an option of the command. Quantities are text with a unit ("2 s", "30 req/s") wherever a
person writes them, and numbers in base units from then on.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self, TypeVar, get_args

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from dmodels.core.errors import InputError
from dmodels.core.files import read_text
from dmodels.core.precision import spelled
from dmodels.core.scenario import FileName as FileName
from dmodels.core.scenario import Table as Table
from dmodels.core.scenario import quantity

Asked = TypeVar("Asked", bound=Table)


def flag(default: Any, help: str, *names: str, argument: bool = False, repeated: bool = False) -> Any:
    """A field that is also an option of the command, called like the field unless `names` say otherwise."""
    how: dict[str, Any] = {"names": list(names), "argument": argument, "repeated": repeated}
    return Field(default, description=help, json_schema_extra={"flag": how})


def several(value: Any) -> Any:
    """A list from text with commas, or from one value."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return [value] if isinstance(value, int | float) else value


def _share(value: Any) -> Any:
    """0.2 from '20 %'."""
    text = value.replace(" ", "") if isinstance(value, str) else ""
    return float(text[:-1]) / 100.0 if text.endswith("%") and text[:-1].replace(".", "", 1).isdigit() else value


Seconds = Annotated[float, quantity("s"), Field(gt=0)]
Percent = BeforeValidator(_share)
Wait = Annotated[float, quantity("s"), Field(ge=0)]
Rate = Annotated[float, quantity("req/s"), Field(gt=0)]
Price = Annotated[float, quantity("USD/h"), Field(gt=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Tokens = Annotated[float, Field(ge=1, allow_inf_nan=False)]
Degree = Annotated[int, Field(ge=1)]
Degrees = Annotated[list[Degree], BeforeValidator(several), Field(min_length=1)]
#: As `Degrees`, 0 for none.
DegreesOrNone = Annotated[list[Annotated[int, Field(ge=0)]], BeforeValidator(several), Field(min_length=1)]
Names = Annotated[list[str], BeforeValidator(several), Field(min_length=1)]


def _precision(value: Any) -> Any:
    return spelled(value) if isinstance(value, str) else value


PrecisionName = Annotated[str, BeforeValidator(_precision)]


class EngineTable(Table):
    """[engine]: how the engine batches, and whose measured speeds apply."""

    backend: str = flag("vllm", "engine whose measured speeds apply: vllm, sglang, trtllm")
    max_num_seqs: Degree = flag(256, "the engine's limit on requests in a batch")
    max_num_batched_tokens: Degree = flag(8192, "the engine's limit on tokens in a step")


class CalibrationTable(Table):
    """[measured]: a calibration of one's own."""

    calibration: FileName | None = flag(None, "a calibration written by `dmodels fit --out`")


class ModelTable(Table):
    """[model]: what is served."""

    name: FileName = flag("llama-3.1-70b", "catalogue name, Hugging Face id, or a local config.json", "--model")


class GpuTable(Table):
    """[gpu]: its kind, and a file of the user's own GPUs and prices."""

    name: str
    file: FileName | None = None


class WorkloadTable(Table):
    """[workload]: a bundled workload, a trace, or fixed lengths (also called isl and osl, as the flags are)."""

    name: str | None = flag(None, "traffic: a bundled workload [default: azure-conv]", "--workload")
    trace: FileName | None = flag(None, "traffic: a trace (Azure, Mooncake, BurstGPT, plain, or an access log)")
    input_tokens: Tokens | None = flag(None, "traffic: fixed input tokens (with --osl)", "--isl")
    output_tokens: Tokens | None = flag(None, "traffic: fixed output tokens (with --isl)", "--osl")

    @model_validator(mode="before")
    @classmethod
    def _by_flag(cls, given: Any) -> Any:
        names = {"isl": "input_tokens", "osl": "output_tokens"}
        return {names.get(key, key): value for key, value in given.items()} if isinstance(given, dict) else given

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        fixed = self.input_tokens is not None or self.output_tokens is not None
        others = (self.name, self.trace, getattr(self, "telemetry", None))
        if sum(other is not None for other in others) + fixed != 1:
            raise ValueError("give one of name (--workload), trace, or input_tokens with output_tokens (--isl, --osl)")
        if fixed and (self.input_tokens is None or self.output_tokens is None):
            raise ValueError("give both input_tokens and output_tokens (--isl and --osl), or neither")
        return self


class TrafficTable(Table):
    """[traffic]: the arrival rate, where it is not the workload's own."""

    rate: Rate | None = flag(None, 'arrivals, like "200 req/s"; default: the traffic\'s own')


class Leaf(NamedTuple):
    """A field of a question, by its path through the tables."""

    path: tuple[str, ...]
    field: FieldInfo

    @property
    def how(self) -> Any:
        """What `flag` says of it; None: it is no flag."""
        extra = self.field.json_schema_extra
        return extra.get("flag") if isinstance(extra, dict) else None

    @property
    def names(self) -> list[str]:
        """The option as it is typed."""
        return self.how["names"] or [f"--{self.path[-1].replace('_', '-')}"]


def flags(model: type[Table], path: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """The fields of a question that are flags."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Table):
            yield from flags(field.annotation, (*path, name))
        elif (leaf := Leaf((*path, name), field)).how:
            yield leaf


def read_scenario(file: str | Path, model: type[Asked], over: Mapping[tuple[str, ...], Any] | None = None) -> Asked:
    """The scenario in a TOML file, `over` it what flags say. The first mistake is an `InputError` of one line."""
    try:
        content = tomllib.loads(read_text(file))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{file}: not TOML: {' '.join(str(error).split())}") from None
    _put(content, over or {})
    try:
        return model.model_validate(content, context={"folder": Path(file).parent})
    except ValidationError as error:
        raise InputError(f"{file}: {_first(error, model, {})}") from None


def from_flags(model: type[Asked], given: Mapping[tuple[str, ...], Any]) -> Asked:
    """The question that flags ask: path of a field -> what was typed."""
    names = {leaf.path: leaf.names[0].partition("/")[0] for leaf in flags(model)}
    try:
        return model.model_validate(_put({}, given))
    except ValidationError as error:
        raise InputError(_first(error, model, names)) from None


def _put(content: dict[str, Any], given: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    for path, value in given.items():
        table = content
        for name in path[:-1]:
            table = table.setdefault(name, {})
        table[path[-1]] = value
    return content


def _first(error: ValidationError, model: type[Table], flag_names: Mapping[tuple[str, ...], str]) -> str:
    # a misspelt key is also reported as a missing one: the misspelling says more
    found = min(error.errors(include_url=False), key=lambda e: e["type"] != "extra_forbidden")
    where = tuple(str(part) for part in found["loc"])
    place = ".".join(where)
    named = next((name for path, name in flag_names.items() if where[: len(path)] == path), "")
    if found["type"] == "extra_forbidden":
        known = _known(model, where[:-1])
        near = difflib.get_close_matches(where[-1], known, n=3, cutoff=0.3) or known[:6]
        return f"{f'{named} {where[-1]}' if named else place} is unknown; the nearest are {', '.join(near)}"
    if found["type"] == "missing":
        return (
            f"{named}: a value is missing; all are given, with commas between them" if named else f"{place} is missing"
        )
    text = found["msg"].removeprefix("Value error, ")
    text = text[:1].lower() + text[1:]
    given = found.get("input")
    shown = given if isinstance(given, str | int | float) and repr(given) not in text else None
    if named:
        return f"{named} {text}" if shown is None else f"{named} {shown}: {text}"
    shown = "" if shown is None else f" = {shown!r}"
    return f"{place}{shown}: {text}" if place and not flag_names else text


def _known(model: Any, where: tuple[str, ...]) -> list[str]:
    """Names that the table at `where` accepts."""
    for part in where:
        model = model if part.isdigit() else _table(model.model_fields[part].annotation)  # the place in a list
    return [field.alias or name for name, field in model.model_fields.items()]


def _table(kind: Any) -> Any:
    """The table of an annotation: itself, optional, or the items of a list."""
    if isinstance(kind, type) and issubclass(kind, Table):
        return kind
    return next((found for part in get_args(kind) if (found := _table(part)) is not None), None)
