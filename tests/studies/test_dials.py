"""Each dial moves its own number of the question, and nothing else."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import numpy as np
import pytest

from dmodels import SLO, Workload
from dmodels.core.errors import InputError
from dmodels.studies.explore import Dials, at_rest, turned
from dmodels.studies.plan import Margins, question, with_lengths

MIX = Workload([100.0, 400.0, 3000.0], [50.0, 200.0, 10.0], [0.5, 0.3, 0.2], [10.0, 80.0, 300.0], rate_rps=5.0)
#: Field of `Dials` -> where it is put.
TURNED = {
    "rate_rps": 7.0,
    "isl_tokens": 1540.0,
    "osl_tokens": 43.5,
    "ttft_s": 1.5,
    "tpot_s": 0.03,
    "gpu": "h200_sxm",
    "price_usd_per_hour": {"h100_sxm": 9.5},
    "cached_frac": 0.4,
    "headroom_frac": 0.35,
    "spare_count": 3.0,
    "max_gpus": 48.0,
    "weights": "fp8",
    "kv": "bf16",
}


@pytest.fixture(scope="module")
def asked():
    kept = Margins(0.25, 1, 0.8)
    slo = SLO(2.0, 0.08, 9.0, 0.95)
    how = {"thresholds_tokens": (600.0,), "inventory": {"h100_sxm": 64.0, "h200_sxm": 32.0}, "max_gpus": 80.0}
    return question("llama-3.1-70b", ["h100", "h200"], MIX, slo, margins=kept, **how)


def numbers(asked):
    """What the dials stand for, read off the question."""
    w, slo = asked.workload, asked.slo
    mean = lambda x: float(np.dot(w.weight_frac, np.broadcast_to(x, np.shape(w.weight_frac))))
    return {
        "rate_rps": float(w.rate_rps),
        "isl_tokens": mean(w.input_tokens),
        "osl_tokens": mean(w.output_tokens),
        "cached_frac": mean(w.cached_tokens) / mean(w.input_tokens),
        "ttft_s": float(slo.ttft_s),
        "tpot_s": float(slo.tpot_s),
        "e2e_s": float(slo.e2e_s),
        "percentile": float(slo.percentile),
        "gpu": list(asked.gpus),
        "inventory": dict(asked.inventory),
        "price_usd_per_hour": {name: float(gpu.price_usd_per_hour) for name, gpu in asked.gpus.items()},
        "headroom_frac": asked.margins.headroom_frac,
        "spare_count": float(asked.margins.spare_count),
        "confidence": asked.margins.confidence,
        "max_gpus": asked.max_gpus,
        "weights": asked.weights,
        "kv": asked.kv,
    }


def test_every_dial_is_turned():
    assert TURNED.keys() == {one.name for one in fields(Dials)}


def test_at_rest_the_dials_stand_where_the_question_is(asked):
    now, rest = numbers(asked), at_rest(asked)
    for name in TURNED.keys() - {"gpu", "weights", "kv"}:
        assert getattr(rest, name) == pytest.approx(now[name]), name
    assert (rest.gpu, rest.weights, rest.kv) == ("", "", "") and numbers(turned(asked, rest)) == now


@pytest.mark.parametrize("name", TURNED)
def test_a_dial_moves_its_own_number_alone(asked, name):
    before, after = numbers(asked), numbers(turned(asked, replace(at_rest(asked), **{name: TURNED[name]})))
    same = lambda one, other: one == (pytest.approx(other) if isinstance(other, float) else other)
    moved = {key for key in before if not same(after[key], before[key])}
    expected = {
        "gpu": {"gpu", "inventory", "price_usd_per_hour"},  # of the only one
    }.get(name, {name})
    assert moved == expected
    if name == "gpu":
        assert after["gpu"] == ["h200_sxm"] and after["inventory"] == {"h200_sxm": 32.0}
    elif name in ("weights", "kv"):
        assert after[name] == (TURNED[name],)
    elif name == "price_usd_per_hour":
        assert after[name] == before[name] | {"h100_sxm": 9.5}
    else:
        assert after[name] == pytest.approx(TURNED[name])


def test_a_dial_may_stand_below_one(asked):
    low = {"rate_rps": 0.5, "isl_tokens": 0.5, "osl_tokens": 0.25, "price_usd_per_hour": {"h100_sxm": 0.5}}
    assert numbers(turned(asked, replace(at_rest(asked), **low)))["rate_rps"] == 0.5


def test_lengths_keep_their_shape(asked):
    longer = turned(asked, replace(at_rest(asked), isl_tokens=2 * 770.0, osl_tokens=0.5 * 87.0)).workload
    np.testing.assert_allclose(longer.input_tokens, 2 * np.asarray(MIX.input_tokens))
    np.testing.assert_allclose(longer.output_tokens, np.asarray(MIX.output_tokens) / 2)
    np.testing.assert_allclose(longer.cached_tokens, 2 * np.asarray(MIX.cached_tokens))
    np.testing.assert_allclose(longer.weight_frac, MIX.weight_frac)


def test_thresholds_move_with_the_mean_and_stay_between_the_requests(asked):
    """Totals of 150, 600 and 3,010 tokens, 857 in the mean; no answer has less than a token, and none stays none."""
    two = replace(asked, thresholds_tokens=(600.0, 3000.0))
    assert with_lengths(two) is two and with_lengths(two, 2.0, 2.0).thresholds_tokens == (1200.0, 6000.0)
    longer = with_lengths(two, 1e-3, 10.0)  # 500.1, 2,000.4 and 103 tokens, 870.83 in the mean
    assert longer.thresholds_tokens == (610.0, np.nextafter(2000.4, 0.0)) and longer.trace is None
    short = with_lengths(two, 1e-3, 1e-3)
    assert short.workload.output_tokens.tolist() == [1.0] * 3 and short.workload.cached_tokens[2] == pytest.approx(0.3)
    assert short.thresholds_tokens == pytest.approx((1.1, 4.0)) and short.thresholds_tokens[1] < 4.0
    silent = replace(two, workload=MIX.replace(output_tokens=np.array([50.0, 0.0, 10.0])))
    assert with_lengths(silent, 1.0, 0.01).workload.output_tokens.tolist() == [1.0, 0.0, 1.0]
    none = with_lengths(replace(asked, thresholds_tokens=()), 2.0)
    assert none.thresholds_tokens == () and none.workload.input_tokens.tolist() == [200.0, 800.0, 6000.0]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"rate_rps": 0.0}, "rate 0 req/s"),
        ({"isl_tokens": math.inf}, "isl inf tokens"),
        ({"osl_tokens": -1.0}, "osl -1 tokens"),
        ({"spare_count": 0.5}, "spare 0.5 per pool"),
        ({"price_usd_per_hour": {"h100_sxm": 0.0}}, "price of h100_sxm 0 USD/h"),
        ({"rate_rps": 0.0, "isl_tokens": 0.0}, "rate 0 req/s"),  # the first of several
        ({"isl_tokens": 0.0, "osl_tokens": 0.0}, "isl 0 tokens"),
        ({"price_usd_per_hour": {"l40s": 1.0}}, "GPU 'l40s' is unknown; known are h100_sxm, h200_sxm"),
        ({"gpu": "l40s"}, "GPU 'l40s' is unknown; known are h100_sxm, h200_sxm"),
        ({"cached_frac": 1.0}, "cached share 1"),
    ],
)
def test_a_dial_beyond_its_end_is_one_line(asked, wrong, says):
    with pytest.raises(InputError, match=says):
        turned(asked, replace(at_rest(asked), **wrong))


def test_an_address_says_where_the_dials_stand(asked):
    """In the units of the page; what is left out, or is the number at rest to its five digits, is not turned."""
    pytest.importorskip("starlette")
    from dmodels.cli.explore_server import read_dials

    rest = at_rest(asked)
    assert read_dials(asked, {}) == rest
    typed = {"rate": "7", "isl": "1540", "osl": "43.5", "cached": "40", "ttft": "1500", "tpot": "30", "headroom": "35"}
    typed |= {"spare": "3", "gpus": "48", "gpu": "h200_sxm", "weights": "fp8", "kv": "bf16", "price_h100_sxm": "9.5"}
    found = read_dials(asked, typed)
    for name, value in TURNED.items():
        if name == "price_usd_per_hour":
            assert found.price_usd_per_hour == rest.price_usd_per_hour | value
        else:
            assert getattr(found, name) == (value if isinstance(value, str) else pytest.approx(value)), name
    assert read_dials(asked, {"gpus": ""}).max_gpus == math.inf
    assert read_dials(asked, {"isl": f"{rest.isl_tokens:.5g}"}) == rest
    assert read_dials(asked, {"ttft": "2002"}).ttft_s == pytest.approx(2.002)
    for wrong in ({"rate": "fast"}, {"speed": "1"}, {"price_l40s": "1"}, {"price_h100_sxm": "x"}):
        with pytest.raises(InputError):
            read_dials(asked, wrong)
