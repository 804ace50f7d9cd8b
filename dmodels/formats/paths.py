"""Documents of other tools hold anything anywhere: what lies at a path of one, or None."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def at(document: Any, *path: str | int) -> Any:
    """What lies at a path of keys and places; None where there is nothing.

    >>> at({"spec": {"ports": [{"port": 8000}]}}, "spec", "ports", 0, "port"), at({}, "spec", "ports")
    (8000, None)
    """
    for key in path:
        if isinstance(document, Mapping):
            document = document.get(key)
        elif isinstance(document, list) and isinstance(key, int) and key < len(document):
            document = document[key]
        else:
            return None
    return document


def entries(document: Any, *path: str | int) -> list[Any]:
    """The list at a path; [] where there is none, or something else.

    >>> entries({"env": [{"name": "A"}]}, "env"), entries({"env": 5}, "env")
    ([{'name': 'A'}], [])
    """
    found = at(document, *path)
    return found if isinstance(found, list) else []
