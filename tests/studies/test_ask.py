"""`dmodels.plan`: what people type is what `question` is asked, and the answer reads well."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest

import dmodels
from dmodels import SLO, Workload
from dmodels.core.errors import InputError
from dmodels.models.instance import Engine
from dmodels.studies.plan import Margins, Stretch, plan, question

FEW = {"tp": (1, 2), "split": False, "thresholds_tokens": ()}
FORMULA = {"ensure": False} | FEW


@pytest.fixture(scope="module")
def answer():
    return dmodels.plan("llama-3.1-8b", "h100, l40s", (1000, 200), "300 req/min", ttft="1 s", tpot=0.05, **FORMULA)


def test_text_and_numbers_ask_the_same(answer):
    lengths = Workload.fixed(1000.0, 200.0, 5.0)
    same = plan(question("llama-3.1-8b", ["h100", "l40s"], lengths, SLO(1.0, 0.05), **FEW), ensure=False)
    assert answer.best == same.best and answer.question.rate_rps == 5.0


def test_one_gpu_type_and_one_degree_need_no_list():
    lengths, slo = Workload.fixed(1000.0, 200.0, 5.0), SLO(1.0, 0.05)
    one = question("llama-3.1-8b", "h100", lengths, slo, tp=2)
    assert (list(one.gpus), one.tp) == (["h100_sxm"], (2,))


def test_an_inventory_names_the_gpus_and_margins_are_kept():
    few = {"tp": 1, "split": False, "thresholds_tokens": ()}
    found = dmodels.plan("llama-3.1-8b", {"l40s": 3}, (1000, 200), 5.0, spare=1, ensure=False, **few)
    assert list(found.question.gpus) == ["l40s"] and found.question.inventory == {"l40s": 3.0}
    assert found.question.tp == (1,) and found.question.margins == Margins(0.0, 1, 0.5)
    assert found.best.gpus <= 3 and found.survives_loss


def test_a_question_has_the_rate_and_the_prices_that_are_stated():
    """By any name of a GPU; what is not stated is the workload's own, and the catalogue's."""
    fixed, slo = Workload.fixed(1000.0, 200.0, 5.0), SLO(1.0, 0.05)
    stated = {"rate_rps": 7.0, "prices_usd_per_hour": {"H100": 9.5}}
    asked, plain = (question("llama-3.1-8b", "h100, l40s", fixed, slo, **given) for given in (stated, {}))
    prices = lambda asked: {name: float(gpu.price_usd_per_hour) for name, gpu in asked.gpus.items()}
    assert (asked.rate_rps, plain.rate_rps) == (7.0, 5.0) and asked.workload.input_tokens.tolist() == [1000.0]
    assert prices(asked) == prices(plain) | {"h100_sxm": 9.5} != prices(plain)
    assert (asked.architecture, asked.served_name) == ("llama", "meta-llama/Llama-3.1-8B-Instruct")


def test_a_file_is_a_trace(tmp_path):
    file = tmp_path / "ours.csv"
    file.write_text("time_s,input_tokens,output_tokens\n" + "\n".join(f"{i},500,{50 + i}" for i in range(40)))
    found = dmodels.plan("llama-3.1-8b", "h100", file, ensure=False, **FEW)
    assert found.question.trace is not None and found.question.workload_name == "ours.csv"
    assert found.question.rate_rps == pytest.approx(40 / 39, rel=0.1)


def test_what_is_not_said_is_the_default(monkeypatch):
    """Each of them written out asks the same, of `dmodels.plan` and of a question."""
    monkeypatch.setattr("dmodels.studies.plan.solve.plan", lambda asked, ensure: (asked, ensure))
    said = {"model": "llama-3.1-70b", "gpus": ["h100_sxm", "h200_sxm"], "workload": "azure-conv"}
    said |= {"ttft": 2.0, "tpot": 0.08, "e2e": math.inf, "percentile": 0.99, "ensure": None}
    said |= {"headroom": 0.0, "spare": 0, "confidence": 0.5}
    rest = {"tp": (1, 2, 4, 8), "pp": (1,), "wide_ep": (16, 32), "weights": "as published", "kv": "as published"}
    rest |= {"thresholds_tokens": None, "split": True, "engine": Engine(256.0, 8192.0), "backend": "vllm"}
    rest |= {"max_gpus": math.inf, "node_gpus": 1, "max_usd_per_hour": math.inf, "size_for": Stretch.TRACE}
    rest |= {"measured": None, "tuned": False, "checkpoint": ""}
    (asked, ensure), (spelled, told) = dmodels.plan(), dmodels.plan(**said, **rest)
    assert (str(asked), ensure) == (str(spelled), told)
    assert asked.margins == Margins(0.0, 0, 0.5) and asked.inventory == {} and asked.workload_name == "azure-conv"
    plain = question("llama-3.1-8b", "h100", Workload.fixed(1000.0, 200.0, 5.0), SLO(1.0, 0.05))
    assert plain.workload_name == "workload" and plain.margins == Margins() and plain.trace is None


def test_traffic_has_the_name_that_it_came_with(monkeypatch):
    monkeypatch.setattr("dmodels.studies.plan.solve.plan", lambda asked, ensure: asked)
    asked = lambda workload, rate=None: dmodels.plan("llama-3.1-8b", "h100", workload, rate)
    trace = dmodels.Trace("ours", np.arange(9.0), np.full(9, 500.0), np.full(9, 50.0))
    fixed = Workload.fixed(1000.0, 200.0, 5.0)
    found = [asked(one) for one in (trace, fixed, "azure-conv")] + [asked(("1 Ktoken", 200), "5 req/s")]
    names = [one.workload_name for one in found]
    assert names == ["ours", "workload", "azure-conv", "ISL 1000 / OSL 200"]
    assert found[0].trace is trace and found[1].workload is fixed and not any(one.trace for one in found[1:])
    same = found[3].workload
    assert (same.input_tokens.tolist(), same.output_tokens.tolist(), float(same.rate_rps)) == ([1000], [200], 5.0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"workload": (1000, 200)}, "rate: is missing"),
        ({"workload": (1000,)}, "accepted is .input tokens, output tokens."),
        ({"workload": "nothing-like-it"}, "nothing-like-it"),
        ({"ttft": "2"}, "ttft: '2': a unit is missing"),
        ({"rate": "fast"}, "rate: 'fast'"),
        ({"gpus": "h1000"}, "h1000"),
        ({"gpus": None}, "gpus = None: accepted are names"),
        ({"ttft": ["2 s"]}, r"ttft = \['2 s'\]: accepted is a number in s"),
        ({"tpot": None}, "tpot = None: accepted is a number in s"),
        ({"thresholds": 2048}, "option 'thresholds' is unknown; the nearest are thresholds_tokens"),
        ({"rate_rps": 5.0}, "option 'rate_rps' is unknown; the nearest are rate"),
        ({"tp": 1.5}, "tp = 1.5: accepted are whole numbers from 1"),
        ({"pp": "2"}, "pp = '2': accepted are whole numbers from 1"),
        ({"tp": ()}, r"tp = \(\): accepted are whole numbers from 1"),
        ({"pp": (1, 0)}, r"pp = \(1, 0\): accepted are whole numbers from 1"),
        ({"wide_ep": (16, -1)}, r"wide_ep = \(16, -1\): accepted are whole numbers from 0"),
        ({"wide_ep": None}, "wide_ep = None: accepted are whole numbers from 0"),
        ({"max_gpus": "64"}, "max_gpus = '64': accepted are numbers from 1"),
        ({"node_gpus": math.inf}, "node_gpus = inf: accepted are whole numbers from 1"),
        ({"max_usd_per_hour": "90 $/h"}, "max_usd_per_hour = '90 ./h': accepted are positive prices"),
        ({"spare": None}, "spare = None: accepted are whole numbers"),
        ({"confidence": "90%"}, "confidence = '90%': accepted are probabilities"),
        ({"percentile": "99"}, "percentile = '99': accepted are shares"),
        ({"weights": 8}, "weights = 8: accepted are names of precisions"),
        ({"prices_usd_per_hour": 2.0}, "prices_usd_per_hour = 2.0: accepted is a number for each"),
        ({"workload": 5}, "workload = 5: accepted are a name"),
        ({"workload": ("long", 100), "rate": 2}, "workload: 'long'"),
        ({"thresholds_tokens": "2048"}, "thresholds_tokens = '2048': accepted are total tokens"),
        ({"split": "no"}, "split = 'no': accepted are True and False"),
    ],
    ids=str,
)
def test_mistakes_name_themselves(options, says):
    with pytest.raises(InputError, match=says):
        dmodels.plan("llama-3.1-8b", **options)


def test_no_degree_of_wide_experts_is_a_choice():
    found = dmodels.plan("llama-3.1-8b", "h100", wide_ep=(), ensure=False, **FEW)
    assert found.question.wide_ep == () and found.best is not None


def test_an_answer_is_read_and_tabulated(answer):
    rows = answer.to_dataframe()
    best = rows[rows.recommended]
    assert best.gpus.sum() == answer.best.gpus
    assert best.usd_per_hour.sum() == pytest.approx(answer.best.usd_per_hour)
    assert f"usd_per_hour: {answer.best.usd_per_hour:.6g}" in str(answer) and "array" not in str(answer)
    assert "<script" not in answer._repr_html_() and "best" in answer._repr_html_()
    assert len(repr(answer)) < 10_000


def test_text_is_no_quantity_of_a_record():
    with pytest.raises(InputError, match=r"SLO ttft_s = '2 s'.*dmodels.parse"):
        SLO("2 s", 0.08)


def test_records_show_their_values():
    assert repr(SLO(2.0, 0.08)) == "SLO(ttft_s=2, tpot_s=0.08, e2e_s=inf, percentile=0.99)"
    many = Workload(np.arange(1.0, 101.0), np.full(100, 5.0), np.full(100, 0.01))
    assert "input_tokens=<100 from 1 to 100>" in repr(many)
    assert SLO(2.0, 0.08).to_dict() == {"ttft_s": 2.0, "tpot_s": 0.08, "e2e_s": None, "percentile": 0.99}
    assert "<b>SLO</b>" in SLO(2.0, 0.08)._repr_html_() and SLO(2.0, 0.08).to_dataframe().tpot_s.tolist() == [0.08]
    assert many.to_dataframe().output_tokens.tolist() == [5.0] * 100


#: Every option with a value that is right.
GIVEN = {
    "model": "llama-3.1-8b",
    "gpus": "h100_sxm",
    "workload": (1000, 200),
    "rate": "5 req/s",
    "ttft": "2 s",
    "tpot": 0.08,
    "e2e": "9 s",
    "percentile": 0.9,
    "headroom": 0.1,
    "spare": 1,
    "confidence": 0.6,
    "tp": 4,
    "pp": 1,
    "wide_ep": (16,),
    "weights": "fp8",
    "kv": "fp8",
    "thresholds_tokens": (2048,),
    "split": False,
    "tuned": False,
    "max_gpus": 64,
    "node_gpus": 8,
    "max_usd_per_hour": 90.0,
    "prices_usd_per_hour": {"h100_sxm": 2.0},
}


@pytest.mark.parametrize("name", GIVEN)
def test_no_wrong_type_is_a_raw_error(name, monkeypatch):
    monkeypatch.setattr("dmodels.studies.plan.solve.plan", lambda asked, ensure: asked)
    assert dmodels.plan(**GIVEN).model_name == "llama-3.1-8b"
    for thing in (None, -1, math.nan, math.inf, "", "abc", b"x", [], [1, "a"], {}, object(), 10**30):
        with contextlib.suppress(InputError, OSError):  # any other error is a failure
            dmodels.plan(**GIVEN | {name: thing})
