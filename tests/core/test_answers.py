"""Answers as plain data: what comes out is JSON, whatever went in."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from dmodels import SLO
from dmodels.core.answers import Answer, _short, plain
from dmodels.core.flags import Flag


class Color(Enum):
    RED = "as published"


class Pair(NamedTuple):
    low_s: float
    high_s: Any


@dataclass(frozen=True)
class Inner(Answer):
    derived = ("double_count",)
    one_count: int

    @property
    def double_count(self) -> int:
        return 2 * self.one_count


@dataclass(frozen=True)
class Outer(Answer):
    internal = ("machinery",)
    inner: tuple[Inner, ...]
    machinery: object
    color: Color


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (np.bool_(False), False),
        (np.int32(7), 7),
        (3.0, 3.0),
        (float("nan"), None),
        (np.float64("inf"), None),
        (-np.inf, None),
        (np.array(2.5), 2.5),
        (np.array([[1.0, np.nan], [-np.inf, 2.0]]), [[1.0, None], [None, 2.0]]),
        (jnp.arange(3), [0, 1, 2]),
        (Flag.OVERLOAD, 2),
        (Color.RED, "as published"),
        ({Color.RED: 1, 4096.0: (1, 2)}, {"as published": 1, "4096.0": [1, 2]}),
        (Pair(1.0, np.inf), {"low_s": 1.0, "high_s": None}),
        (Path("a/b"), "a/b"),
    ],
)
def test_plain_values(value, expected):
    found = plain(value)
    assert found == expected
    assert type(found) is type(expected)
    json.dumps(found, allow_nan=False)


def test_an_answer_gives_its_fields_and_what_follows_from_them():
    found = Outer((Inner(1), Inner(2)), object(), Color.RED).to_dict()
    assert found == {
        "inner": [{"one_count": 1, "double_count": 2}, {"one_count": 2, "double_count": 4}],
        "color": "as published",
    }


def test_records_are_dicts_of_their_fields():
    slo = SLO(2.0, 0.08)
    assert plain(slo) == {"ttft_s": 2.0, "tpot_s": 0.08, "e2e_s": None, "percentile": 0.99}


def test_what_has_no_plain_form_is_an_error():
    with pytest.raises(TypeError, match="function has no form as plain data"):
        plain({"a": lambda: 0})


def test_what_is_not_known_is_a_dash_and_the_rest_itself():
    assert [_short(x) for x in (None, 0, "x", False, 0.1234567)] == ["-", "0", "x", "False", "0.123457"]
