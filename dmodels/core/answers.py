"""What a study returns: a frozen dataclass whose numbers are also there as plain data, units in the names.

A study's answer is an `Answer`; so are the parts of it that have a face of their own. It is text, a table for data
frames, and in a notebook a table with a figure. What JSON cannot hold, and no reader of JSON expects, an answer's plain
data does not give either: arrays become lists, enums their values, NaN and infinities
None (the name of a field says what None means: no bound, no price, no answer).
"""

from __future__ import annotations

import dataclasses
import io
import math
from base64 import b64encode
from collections.abc import Mapping
from enum import Enum
from html import escape
from importlib import import_module
from importlib.util import find_spec
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .extras import needed
from .tables import frame, records

if TYPE_CHECKING:
    import pandas as pd


class Answer:
    """Base of the frozen dataclasses that studies return.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Fleet(Answer):
    ...     derived = ("usd_per_hour",)
    ...     gpus: int
    ...     usd_per_gpu_hour: float
    ...     @property
    ...     def usd_per_hour(self) -> float:
    ...         return self.gpus * self.usd_per_gpu_hour
    >>> Fleet(8, float("nan")).to_dict(), Fleet(8, 2.5).to_dict()["usd_per_hour"]
    ({'gpus': 8, 'usd_per_gpu_hour': None, 'usd_per_hour': None}, 20.0)
    """

    #: Properties that stand beside the fields in `to_dict`.
    derived: ClassVar[tuple[str, ...]] = ()
    #: Fields that `to_dict` leaves out: the working state that further questions are answered from.
    internal: ClassVar[tuple[str, ...]] = ()
    #: The field whose entries are the rows of the answer's table; "": the first that holds several.
    rows_in: ClassVar[str] = ""
    #: "module:function" of the figure that notebooks show below the answer, where matplotlib is; "": none.
    picture: ClassVar[str] = ""

    def to_dict(self) -> dict[str, Any]:
        """Name -> value of every field and derived property: None, bool, int, float, str, list or dict throughout."""
        names = [field.name for field in dataclasses.fields(self)]  # type: ignore[arg-type]
        return {name: plain(getattr(self, name)) for name in (*names, *self.derived) if name not in self.internal}

    def records(self) -> list[dict[str, Any]]:
        """The rows of the answer's table: name -> None, bool, int, float or str (`core.tables.records`)."""
        return records(self.to_dict(), self.rows_in)

    def to_dataframe(self) -> pd.DataFrame:
        """The answer's table, units in the names. Polars, DuckDB and pyarrow take the answer itself, as Arrow."""
        return frame(self.records())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The table for whoever reads Arrow: `polars.DataFrame(answer)`, `pyarrow.table(answer)`."""
        needed("pyarrow", "a table as Arrow")
        return self.to_dataframe().__arrow_c_stream__(requested_schema)

    def __str__(self) -> str:
        return "\n".join([type(self).__name__, *_lines(self.to_dict(), 1)])

    def _repr_html_(self) -> str:
        """For notebooks."""
        return in_html(type(self).__name__, self.to_dict()) + self._drawn()

    def _drawn(self) -> str:
        """The figure as an image in the page; "" where there is none, or nothing to draw it with."""
        if not self.picture or find_spec("matplotlib") is None:
            return ""
        module, _, name = self.picture.partition(":")
        made = getattr(import_module(module), name)(self)
        png = io.BytesIO()
        made.savefig(png, format="png", dpi=110, bbox_inches="tight", metadata={"Software": None})
        image = b64encode(png.getvalue()).decode()
        return f"<img alt='{escape(type(self).__name__)}' src='data:image/png;base64,{image}'>"


#: A list is shown whole up to so many entries.
_SHOWN = 8


def _short(value: Any) -> str:
    """One value of plain data in a line."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        inner = ", ".join(map(_short, value[:_SHOWN]))
        return f"[{inner}{f', ... {len(value)} in all' if len(value) > _SHOWN else ''}]"
    return "-" if value is None else str(value)


def _nested(value: Any) -> list[tuple[str, Any]]:
    """Name and value of what does not fit in a line: a dict, or a list of dicts."""
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list) and any(isinstance(one, dict) for one in value):
        return [(f"[{i}]", one) for i, one in enumerate(value)]
    return []


def _lines(values: Any, depth: int) -> list[str]:
    """Plain data as indented lines."""
    said = []
    for name, value in _nested(values):
        inner = _nested(value)
        said.append("  " * depth + (f"{name}:" if inner else f"{name}: {_short(value)}"))
        said += _lines(value, depth + 1) if inner else []
    return said


def in_html(title: str, values: Mapping[str, Any]) -> str:
    """Plain data below its title."""
    return f"<b>{escape(title)}</b>{_html(values)}"


def _html(values: Any) -> str:
    """Plain data as a table; what is nested unfolds."""
    rows = []
    for name, value in _nested(values):
        shown = escape(_short(value))
        if _nested(value):
            shown = f"<details><summary>{len(_nested(value))} entries</summary>{_html(value)}</details>"
        rows.append(f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{shown}</td></tr>")
    return "<table>" + "".join(rows) + "</table>"


def plain(value: Any) -> Any:
    """`value` as JSON can hold it; records, named tuples and dataclasses as dicts of their fields.

    >>> plain({"load_frac": np.array([0.5, np.inf]), 2: (np.int64(3), True)})
    {'load_frac': [0.5, None], '2': [3, True]}
    """
    if isinstance(value, Answer):
        return value.to_dict()
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | bool):
        return value
    if hasattr(value, "__array__"):  # NumPy's and JAX's, without importing the latter
        return plain(np.asarray(value).tolist())
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(plain(name)): plain(one) for name, one in value.items()}
    if hasattr(value, "_fields"):
        return {name: plain(getattr(value, name)) for name in value._fields}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form as plain data")
