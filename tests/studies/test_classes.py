"""Classes of requests: fleets apart are plans of their requests alone, one fleet keeps the tightest bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dmodels import SLO, Trace, Workload, read_trace
from dmodels.core.errors import InputError
from dmodels.studies.plan import RequestClass, by_formula, plan_apart, question, tightest, with_others
from dmodels.studies.servers import plan_together
from dmodels.studies.servers.priorities import _Played

CHAT, JOBS = SLO(2.0, 0.08), SLO(60.0, 0.2, percentile=0.95)
MIXED = Workload([1000.0, 100_000.0], [200.0, 300.0], [0.98, 0.02], rate_rps=5.0)
CLASSES = [RequestClass("chat", CHAT, 0.0, 8000.0), RequestClass("jobs", JOBS, 8000.0, np.inf)]
FEW = {"tp": (4, 8), "split": False, "thresholds_tokens": ()}


def asked(traffic=MIXED, **options):
    return question("llama-3.1-70b", ["h100"], traffic, CHAT, **FEW | options)


@pytest.fixture(scope="module")
def apart(short_replays):
    return plan_apart(asked(), CLASSES)


def test_a_fleet_of_a_class_is_the_plan_of_its_requests(apart):
    chat, jobs = apart.shares
    alone = by_formula(asked(Workload([1000.0], [200.0], [1.0], rate_rps=4.9)))
    assert chat.best.parts == alone.best.parts and chat.share_frac == pytest.approx(0.98)
    assert jobs.plan.question.slo is JOBS and jobs.plan.question.rate_rps == pytest.approx(0.1)
    assert apart.usd_per_hour == pytest.approx(chat.best.usd_per_hour + jobs.best.usd_per_hour)
    assert apart.fits and apart.gpus == chat.best.gpus + jobs.best.gpus


def test_fleets_that_cannot_be_bought_together_do_not_fit(apart):
    gpus = apart.gpus
    assert plan_apart(asked(max_gpus=float(gpus)), CLASSES).fits
    assert not plan_apart(asked(max_gpus=float(gpus - 1)), CLASSES).fits


def test_a_trace_keeps_the_times_of_each_class():
    rng = np.random.default_rng(0)
    long = rng.random(400) < 0.1
    trace = Trace("mixed", np.cumsum(rng.exponential(0.5, 400)), np.where(long, 20_000.0, 500.0), np.full(400, 50.0))
    chat, jobs = plan_apart(asked(trace), CLASSES, ensure=False).shares
    np.testing.assert_array_equal(jobs.plan.question.trace.time_s, trace.time_s[long])
    assert chat.plan.question.rate_rps + jobs.plan.question.rate_rps == pytest.approx(trace.rate_rps)


def test_a_class_by_a_column_is_the_plan_of_the_requests_that_carry_it(tmp_path):
    rng = np.random.default_rng(1)
    team = np.where(rng.random(400) < 0.25, "nightly", "web")
    time_s, inputs = np.cumsum(rng.exponential(0.5, 400)), rng.integers(200, 2000, 400)
    rows = [f"{t:.6f},{i},50,{name}" for t, i, name in zip(time_s, inputs, team, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["time_s,input_tokens,output_tokens,team", *rows]))
    trace = read_trace(tmp_path / "t.csv", class_column="team")
    classes = [RequestClass("batch", JOBS, label="nightly"), RequestClass("chat", CHAT, label="web")]
    batch, chat = plan_apart(asked(trace), classes, ensure=False).shares
    np.testing.assert_array_equal(batch.plan.question.trace.input_tokens, inputs[team == "nightly"])
    assert chat.share_frac == pytest.approx((team == "web").mean()) and chat.plan.question.slo is CHAT
    with pytest.raises(InputError, match="of 'web' is of 0 classes"):
        plan_apart(asked(trace), classes[:1])
    with pytest.raises(InputError, match="class batch of 'nightly': accepted with a trace"):
        plan_apart(asked(), classes)


def test_the_others_are_those_of_no_class_and_keep_the_plans_bounds(apart):
    assert with_others(CLASSES, MIXED, CHAT) == CLASSES
    jobs, others = with_others(CLASSES[1:], MIXED, CHAT)
    found = plan_apart(asked(), [jobs, others])
    assert [x.share_frac for x in found.shares] == pytest.approx([0.02, 0.98])
    assert found.shares[1].best.parts == apart.shares[0].best.parts
    trace = Trace("two", np.arange(4.0), np.full(4, 100.0), np.full(4, 9.0), labels=np.array(["web", "web", "a", "b"]))
    batch, rest = with_others([RequestClass("batch", JOBS, label="a")], trace, CHAT)
    assert rest.has(trace.input_tokens, trace.labels).tolist() == [True, True, False, True]
    assert tightest([batch, rest]).ttft_s == CHAT.ttft_s


def test_in_a_replay_each_request_has_the_priority_of_its_own_class():
    """Drawn ones by their tokens; those of a trace by their column, though one is too long for the model, and the first
    20,000 of a long one."""
    chat, jobs = CLASSES[0], replace(CLASSES[1], priority=7)
    drawn = _Played(asked(), [chat, jobs])
    assert set(drawn.priority) == {0, 7} and ((drawn.priority == 7) == (drawn.requests.input_tokens > 8000.0)).all()
    inputs = np.array([100.0, 1e6, 200.0, 300.0])
    trace = Trace("columns", np.arange(4.0), inputs, np.full(4, 9.0), labels=np.array(["web", "web", "a", "web"]))
    columns = [RequestClass("web", CHAT, label="web"), RequestClass("batch", JOBS, label="a", priority=3)]
    replayed = _Played(asked(trace), columns)
    assert replayed.requests.input_tokens.tolist() == [100.0, 200.0, 300.0] and replayed.priority.tolist() == [0, 3, 0]
    seconds, turns = np.arange(25_000.0), np.arange(25_000) % 7
    many = Trace("many", seconds, 100.0 + turns, np.full(seconds.size, 9.0), labels=np.array(["web", *"aaaaaa"])[turns])
    first = _Played(asked(many), columns)
    assert first.requests.arrival_s.size == first.priority.size == 20_000
    assert first.requests.arrival_s[-1] == pytest.approx(19_999.0)
    assert first.requests.input_tokens[-1] == 100 + 19_999 % 7


def test_no_fleet_by_priority_for_less_than_a_gpu_costs():
    assert plan_together(asked(tp=(8,)), CLASSES, most_usd_per_hour=0.01) is None


def test_one_fleet_keeps_the_tightest_bounds():
    slo = tightest(CLASSES)
    assert (float(slo.ttft_s), float(slo.tpot_s), float(slo.percentile)) == (2.0, 0.08, 0.99)


@pytest.mark.parametrize(
    ("classes", "says"),
    [
        ([CLASSES[0]], "a request of 100,300 tokens is of 0 classes"),
        ([*CLASSES, RequestClass("more", CHAT, 0.0, 2000.0)], "a request of 1,200 tokens is of 2 classes"),
        ([*CLASSES[:1], RequestClass("a", JOBS, 8000.0, 2e5), RequestClass("b", JOBS, 2e5)], "class b: no request"),
    ],
    ids=["none", "two", "empty"],
)
def test_each_request_has_one_class(classes, says):
    with pytest.raises(InputError, match=says):
        plan_apart(asked(), classes)


@pytest.mark.parametrize(
    ("classes", "says"),
    [
        ([RequestClass("b", JOBS, 2e5)], "class b: no request"),
        ([*CLASSES, RequestClass("more", CHAT, 0.0, 2000.0)], "a request of 1,200 tokens is of 2 classes"),
    ],
)
def test_mistakes_in_classes_are_told_before_anything_is_planned(classes, says):
    with pytest.raises(InputError, match=says):
        with_others(classes, MIXED, CHAT)
