"""Tables of a scenario: quantities are text with a unit in files, and numbers in base units from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationInfo

from .units import parse


class Table(BaseModel):
    """A question, or a table of it: unknown keys are mistakes, defaults are checked as what is given is."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=(), validate_default=True)


def quantity(unit: str) -> BeforeValidator:
    """Text with a unit that becomes a number in base units. A person's file must give the unit."""

    def read(value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, str):
            return parse(value, unit)
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and not info.context):
            return value
        raise ValueError(f'{value!r} has no unit; text like "1 {unit}" is accepted')

    return BeforeValidator(read)


def _beside(value: Any, info: ValidationInfo) -> Any:
    folder = (info.context or {}).get("folder")
    if isinstance(value, str) and folder is not None and (folder / value).is_file():
        return str(folder / value)
    return str(value) if isinstance(value, Path) else value


#: A file that a scenario names is looked for beside the scenario, then where the command runs.
FileName = Annotated[str, BeforeValidator(_beside)]
