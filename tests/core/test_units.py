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


PREFIXES = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
PREFIXES |= {f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTP", start=1)}
#: In bits, requests, tokens, operations, dollars, watts; a time by itself, and what stands for a rate.
WHOLES = {"B": 8, "bit": 1, "bps": 1, "req": 1, "rps": 1, "qps": 1, "token": 1, "tokens": 1, "tok": 1, "FLOP": 1}
WHOLES |= {"FLOPS": 1, "USD": 1, "$": 1, "W": 1, "s": 1, "min": 60, "h": 3600, "%": 0.01, "": 1}
TIMES = {"": 1, "s": 1, "min": 60, "h": 3600, "hr": 3600, "hour": 3600, "day": 86_400, "year": 365 * 86_400}


def known(name):
    """A unit by its prefix and its name."""
    above, _, below = name.partition("/")
    longest = sorted(WHOLES, key=len, reverse=True)
    whole = above if above in WHOLES else next(name for name in longest if above.endswith(name))
    return PREFIXES[above.removesuffix(whole)] * WHOLES[whole] / TIMES[below]


@pytest.mark.parametrize("base", sorted(UNITS))
def test_every_unit_is_what_its_name_says(base):
    for name in UNITS[base]:
        assert parse(f"7 {name}", base) == pytest.approx(7 * known(name) / known(base.removeprefix("1")), rel=1e-14)
