"""Units: text becomes numbers in one place, and names say their unit."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels.core.errors import InputError
from dmodels.core.units import SUFFIXES, UNITS, parse, unit_of


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("200 Gbit/s", "B/s", 25e9),
        ("80 GiB", "B", 80 * 2**30),
        ("80 GB", "B", 80e9),
        ("3.35 TB/s", "B/s", 3.35e12),
        ("80 ms", "s", 0.08),
        ("2s", "s", 2.0),
        ("1e3 req/s", "req/s", 1000.0),
        ("60 req/min", "req/s", 1.0),
        ("2.69 $/h", "USD/h", 2.69),
        ("90 %", "1", 0.9),
        ("0.9", "1", 0.9),
    ],
)
def test_known_quantities(text, unit, value):
    assert parse(text, unit) == pytest.approx(value, rel=1e-15)


def test_ten_gigabytes_at_25_gbit_take_3_2_seconds():
    assert parse("10 GB", "B") / parse("25 Gbit/s", "B/s") == pytest.approx(3.2)


def test_a_byte_is_not_a_byte_per_second():
    with pytest.raises(InputError, match=r"'200 Gb': unit 'Gb' is not one of .*Gbit/s"):
        parse("200 Gb", "B/s")


def test_a_bare_number_is_refused():
    with pytest.raises(InputError, match="a unit is missing"):
        parse("200", "B/s")


@given(text=st.text(max_size=20), unit=st.sampled_from(sorted(UNITS)))
def test_any_text_is_a_finite_number_or_one_line(text, unit):
    try:
        assert math.isfinite(parse(text, unit))
    except InputError as error:
        assert "\n" not in str(error) or "\n" in text


@given(st.floats(-1e12, 1e12), st.sampled_from([(u, s) for u, table in UNITS.items() for s in table if s]))
def test_what_is_printed_is_read_back(number, unit):
    base, suffix = unit
    assert parse(f"{number!r} {suffix}", base) == pytest.approx(number * UNITS[base][suffix], rel=1e-12)


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("ttft_ms", "ms"),
        ("hbm_bytes_per_s", "B/s"),
        ("kv_bytes", "B"),
        ("pool_instances", "instance"),
        ("fleet_gpus", "GPU"),
        ("price_usd_per_hour", "USD/h"),
        ("alpha", ""),
        ("rho", ""),
    ],
)
def test_names_say_their_unit(name, unit):
    assert unit_of(name) == unit


def test_gpus_and_instances_are_different_units():
    assert SUFFIXES["_gpus"] != SUFFIXES["_instances"]
