"""Documents in files of measurements: whole texts of several lines, and JSON as load generators write it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dmodels.core.errors import InputError

#: A document beyond this is a log, which is read a line at a time.
MOST_BYTES = 1 << 28


def whole_text(path: Path, first: str, rest: Iterator[str]) -> str:
    """The text of a document."""
    parts, size = [first], len(first)
    for line in rest:
        parts.append(line)
        size += len(line)
        if size > MOST_BYTES:
            raise InputError(f"{path.name}: a document of more than {MOST_BYTES >> 20} MiB; accepted are logs as JSONL")
    return "".join(parts)


def parsed(line: str, where: str) -> Any:
    """JSON; NaN and infinities, which some writers leave in, are null."""
    try:
        return json.loads(line, parse_constant=lambda name: None)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON: {' '.join(str(error).split())[:80]}") from None
