"""Scenario files: TOML tables with quantities as text ("2 s", "30 req/s"), checked whole before anything runs."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from dmodels.core.errors import InputError
from dmodels.core.units import parse

Schema = TypeVar("Schema", bound=BaseModel)


def quantity(unit: str) -> Any:
    """A field that is written as text with a unit and becomes a number in base units."""

    def read(value: Any) -> float:
        if isinstance(value, str):
            return parse(value, unit)
        raise ValueError(f'{value!r} has no unit; text like "1 {unit}" is accepted')

    return BeforeValidator(read)


Seconds = Annotated[float, quantity("s"), Field(gt=0)]
Rate = Annotated[float, quantity("req/s"), Field(gt=0)]
Degree = Annotated[int, Field(ge=1)]


class Table(BaseModel):
    """A table of a scenario: unknown keys are mistakes."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class EngineTable(Table):
    """[engine]: how the engine batches, and whose measured speeds apply."""

    backend: str = "vllm"
    max_num_seqs: Degree = 256
    max_num_batched_tokens: Degree = 8192


class ModelTable(Table):
    """[model]: catalogue name, Hugging Face id, or the path of a config.json."""

    name: str


class GpuTable(Table):
    """[gpu]: what kind and how many."""

    name: str
    count: Degree
    file: str | None = None  # the user's own GPUs and prices


class WorkloadTable(Table):
    """[workload]: a bundled workload, a trace, or fixed lengths."""

    name: str | None = None
    trace: str | None = None
    input_tokens: Annotated[float, Field(gt=0)] | None = None
    output_tokens: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _one_kind(self):
        fixed = self.input_tokens is not None or self.output_tokens is not None
        if (self.name is not None) + (self.trace is not None) + fixed != 1:
            raise ValueError("give one of name, trace, or input_tokens with output_tokens")
        if fixed and (self.input_tokens is None or self.output_tokens is None):
            raise ValueError("input_tokens and output_tokens go together")
        return self


class SloTable(Table):
    """[slo]: bounds that requests should keep."""

    ttft: Seconds
    tpot: Seconds


class TrafficTable(Table):
    """[traffic]: the arrival rate (default: the workload's own), and how much higher a burst is."""

    rate: Rate | None = None
    burst: Annotated[float, Field(gt=1)] = 1.5


def read_scenario(path: str | Path, schema: type[Schema]) -> Schema:
    """The scenario at `path`, checked against `schema`. The first mistake is an `InputError` of one line with the path
    of the field, and the nearest names where a name is unknown."""
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text; a TOML file is accepted") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not TOML: {' '.join(str(error).split())}") from None
    try:
        return schema.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{path}: {_first(error, schema)}") from None


def _first(error: ValidationError, schema: type[BaseModel]) -> str:
    # a misspelt key is also reported as a missing one: the misspelling says more
    found = min(error.errors(include_url=False), key=lambda e: e["type"] != "extra_forbidden")
    where = [str(part) for part in found["loc"]]
    place = ".".join(where)
    if found["type"] == "extra_forbidden":
        known = _fields(schema, where[:-1])
        near = difflib.get_close_matches(where[-1], known, n=3, cutoff=0.3) or known[:6]
        return f"{place} is unknown; the nearest are {', '.join(near)}"
    if found["type"] == "missing":
        return f"{place} is missing"
    text = found["msg"].removeprefix("Value error, ")
    given = found.get("input")
    shown = f" = {given!r}" if isinstance(given, str | int | float) and repr(given) not in text else ""
    return f"{place}{shown}: {text[:1].lower() + text[1:]}" if place else text


def _fields(schema: type[BaseModel], where: list[str]) -> list[str]:
    """Names that the table at `where` accepts."""
    for part in where:
        inner = schema.model_fields[part].annotation
        schema = inner if isinstance(inner, type) else next(t for t in inner.__args__ if isinstance(t, type))
    return list(schema.model_fields)
