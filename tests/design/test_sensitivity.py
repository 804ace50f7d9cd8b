"""Elasticities against finite differences and known exponents; a tornado's data against the formula itself."""

from __future__ import annotations

import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import sweep_formulas as formulas

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.design.sensitivity import elasticities, one_at_a_time
from dmodels.report import sweep_figures


def smooth(machine, rate_rps, tp):
    speed = jnp.sum(machine.speeds_rps) * tp**0.8
    return {
        "cost_usd_per_hour": machine.price_usd_per_hour * rate_rps / speed,
        "wait_s": 1.0 / (60.0 - rate_rps),
        "zero_s": 0.0 * rate_rps,
    }


GIVEN = {"machine": formulas.SMALL, "rate_rps": 20.0, "tp": 4}


def test_elasticities_are_the_exponents_of_a_product():
    ds = elasticities(smooth, **GIVEN)
    cost = dict(zip(ds.argument.values, ds.cost_usd_per_hour.values, strict=True))
    expected = {"machine.price_usd_per_hour": 1.0, "machine.speeds_rps": -1.0, "rate_rps": 1.0, "tp": -0.8}
    assert cost == pytest.approx(expected)
    assert float(ds.wait_s.sel(argument="rate_rps")) == pytest.approx(20.0 / (60.0 - 20.0))
    step = 1e-5
    up, down = (float(np.log(smooth(**{**GIVEN, "tp": 4 * np.exp(s)})["cost_usd_per_hour"])) for s in (step, -step))
    assert cost["tp"] == pytest.approx((up - down) / (2 * step), rel=1e-6)
    assert (ds.flags & Flag.NONFINITE).all() and ds.zero_s.isnull().all()  # 0 has no elasticity, and that is said
    with pytest.raises(InputError, match="rate_rps"):
        elasticities(smooth, **GIVEN, arguments=["rate"])


def test_what_is_nothing_or_endless_has_no_elasticity_whatever_its_slope():
    """A difference that vanishes, whose slope is 1; a wait without end, whose slope is 0."""
    for formula in (lambda x: x - 3.0, lambda x: jnp.where(x > 1.0, jnp.inf, x)):
        ds = elasticities(formula, x=3.0)
        assert np.isnan(ds["<lambda>"].values).all() and (ds.flags == Flag.NONFINITE).all()


def test_one_at_a_time_changes_one_argument_and_the_widest_bar_is_on_top():
    spans = {"rate_rps": (10.0, 50.0), "tp": (2, 8), "machine.price_usd_per_hour": (1.0, 2.5)}
    ds = one_at_a_time(smooth, spans, **GIVEN)
    base = float(ds.base_cost_usd_per_hour)
    assert base == pytest.approx(2.0 * 20 / (6 * 4**0.8))
    np.testing.assert_allclose(ds.cost_usd_per_hour.sel(argument="rate_rps"), [base / 2, base * 2.5])
    np.testing.assert_allclose(ds.cost_usd_per_hour.sel(argument="machine.price_usd_per_hour"), [base / 2, base * 1.25])
    assert [(float(ds.low.sel(argument=name)), float(ds.high.sel(argument=name))) for name in spans] == [
        *spans.values()
    ]
    ax = sweep_figures.tornado(ds, "cost_usd_per_hour")
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert names[-1].startswith("rate_rps") and "[USD/h]" in ax.get_xlabel()
    with pytest.raises(InputError, match="span of"):
        one_at_a_time(smooth, {"machine.speeds_rps": (1, 2)}, **GIVEN)


def test_a_switch_is_no_number():
    ds = elasticities(lambda x, squared: x**2 if squared else x, x=3.0, squared=True)
    assert ds.argument.values.tolist() == ["x"] and float(ds["<lambda>"][0]) == pytest.approx(2.0)
