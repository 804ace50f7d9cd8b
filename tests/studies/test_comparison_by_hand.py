"""A log beside its simulation on requests and laws made by hand: every figure, and where the searches start and end."""

from __future__ import annotations

import math
from types import SimpleNamespace as Record

import numpy as np
import pytest

from dmodels.sim.requests import Served
from dmodels.studies.servers import comparison
from dmodels.studies.servers.comparison import Metric, StraightLaw, compare

#: Three requests; the last has an answer of one token, which has no time between tokens.
ARRIVAL, ANSWERS = np.array([100.0, 101.0, 102.0]), np.array([11, 21, 1])
LOG = Record(
    ids=["a", "b", "c"],
    arrival_s=ARRIVAL,
    scheduled_s=ARRIVAL + 0.125,
    first_token_s=ARRIVAL + np.array([1.0, 2.0, 6.0]),
    end_s=ARRIVAL + np.array([3.0, 6.0, 6.0]),
    input_tokens=np.array([500, 600, 700]),
    output_tokens=ANSWERS,
)
FOUND = Served(
    ARRIVAL,
    ARRIVAL,
    ARRIVAL + np.array([0.5, 1.0, 3.0]),
    ARRIVAL + np.array([1.5, 3.0, 5.0]),
    ANSWERS,
    restarts=np.array([2, 0, 1]),
)


def seconds(decodes, context, prompt, attended):
    """Of a step: two milliseconds, a hundredth of one for each request and a thousandth for each prompt token."""
    assert context == 1000 and attended == prompt / 2
    return 2e-3 + 1e-5 * decodes + 1e-6 * prompt


def test_each_figure_of_a_log_beside_its_own(monkeypatch):
    asked = Record(law=Record(seconds=seconds), policy=Record(slots=256), inside=lambda *given: played(*given))

    def played(*given):
        assert given == (LOG.arrival_s, LOG.input_tokens, LOG.output_tokens)
        return FOUND

    starts = []

    def straight(server, log, target, start):
        starts.append((server, log, start.tolist()))
        return "of the log" if target is not FOUND else "of the simulation"

    monkeypatch.setattr(comparison, "_straight", straight)
    monkeypatch.setattr(comparison, "_slower", lambda server, log, measured: measured.admitted_s[0])
    found = compare(asked, LOG)
    assert (found.measured_law, found.simulated_law) == ("of the log", "of the simulation")
    assert (found.requests_count, found.restarts_count, found.slower) == (3, 3, 100.125)
    for server, log, start in starts:  # at what the calibration says of one request, of more, and of prompt tokens
        assert server is asked and log is LOG and start == pytest.approx([2.01e-3, 1e-5, 1e-6])
    assert len(starts) == 2 and found.simulated is FOUND and found.log is LOG
    times = (LOG.arrival_s, LOG.scheduled_s, LOG.first_token_s, LOG.end_s, LOG.output_tokens)
    assert all(ours is theirs for ours, theirs in zip(found.measured[:5], times, strict=True))
    p99 = lambda low, high, part: low + part * (high - low)
    rows = [
        ("ttft_mean_s", 1.5, 3.0),
        ("ttft_p50_s", 1.0, 2.0),
        ("ttft_p99_s", p99(1.0, 3.0, 0.98), p99(2.0, 6.0, 0.98)),
        ("tpot_mean_s", 0.1, 0.2),
        ("tpot_p50_s", 0.1, 0.2),
        ("tpot_p99_s", 0.1, 0.2),
        ("e2e_mean_s", 9.5 / 3, 5.0),
        ("e2e_p50_s", 3.0, 6.0),
        ("e2e_p99_s", p99(3.0, 5.0, 0.98), 6.0),
        ("duration_s", 7.0, 8.0),
    ]
    assert [row.name for row in found.metrics] == [name for name, *_ in rows]
    for row, (_, simulated, measured) in zip(found.metrics, rows, strict=True):
        told = (row.simulated_s, row.measured_s, row.error_frac)
        assert told == pytest.approx((simulated, measured, simulated / measured - 1.0)), row.name


def test_a_search_for_a_law_starts_above_nothing(monkeypatch):
    """Where more requests or prompt tokens take no longer, and where no work was lost."""
    flat = Record(seconds=lambda *given: 2e-3)
    starts = []
    monkeypatch.setattr(comparison, "_straight", lambda server, log, target, start: starts.append(start.tolist()))
    monkeypatch.setattr(comparison, "_slower", lambda *_: 1.0)
    asked = Record(law=flat, policy=Record(slots=4), inside=lambda *_: FOUND._replace(restarts=None))
    assert compare(asked, LOG).restarts_count == 0 and starts == [[2e-3, 1e-6, 1e-7]] * 2
    for slots, more in ((1, 1e-6), (2, 1e-5), (33, 1e-5)):  # of few requests no more than there may be
        few = Record(law=Record(seconds=seconds), policy=Record(slots=slots), inside=lambda *_: FOUND)
        compare(few, LOG)
        assert starts[-1] == pytest.approx([2.01e-3, more, 1e-6])


def test_figures_without_a_value():
    """Of answers of one token there is no time between tokens; of nothing no share."""
    single = Served(*FOUND[:4], np.ones(3, int))
    names = [row.name for row in comparison._metrics(single, single)]
    assert names == [*(f"{of}_{kind}_s" for of in ("ttft", "e2e") for kind in ("mean", "p50", "p99")), "duration_s"]
    assert comparison._metric("x", 3.0, 2.0) == Metric("x", 3.0, 2.0, 0.5)
    assert comparison._metric("x", 0.5, 0.25) == Metric("x", 0.5, 0.25, 1.0)
    assert math.isnan(comparison._metric("x", 1.0, 0.0).error_frac)


def test_a_law_is_explained_on_its_first_two_thousand_requests():
    """By the requests' own tokens, and over their own duration: 0.3 s late at first, 0.1 s at last."""
    n = 2003
    arrival = np.arange(n) * 1.0
    target = Served(arrival, arrival, arrival + 1.0, arrival + 2.0, np.arange(n))
    target.first_token_s[2000:] += 1e3  # which nobody looks at
    log = Record(input_tokens=np.arange(n) + 7)

    def inside(came, prompts, answers, law):
        assert law == "law" and came.size == 2000
        assert (prompts == came + 7).all() and (answers == came).all()
        return Served(came, came, came + 1.3, came + 2.1, answers)

    apart = comparison._apart(Record(inside=inside), log, target, "law")
    assert apart == pytest.approx(math.sqrt((0.09 + 0.01) / 2) / 2001.0)


class Told(Exception):
    """Asked for too often."""


@pytest.mark.parametrize("best", [(2e-3, 1e-5, 3e-7), (0.05, 4e-4, 2e-6)])
def test_the_straight_law_that_comes_closest_is_found_from_its_start(monkeypatch, best):
    """Where the distance is a bowl in the logarithms; in 160 questions."""
    asked = []

    def apart(server, log, target, law):
        asked.append(law)
        if len(asked) > 200:
            raise Told
        return 0.25 + sum(weight * math.log(a / b) ** 2 for weight, a, b in zip((1, 2, 3), law, best, strict=True))

    monkeypatch.setattr(comparison, "_apart", apart)
    monkeypatch.setattr(comparison, "EngineLaw", Record(straight=lambda *law: law))
    start = np.array(best) * [2.0, 0.7, 1.5]
    found = comparison._straight("server", "log", "target", start)
    assert isinstance(found, StraightLaw) and asked[0] == pytest.approx(tuple(start)) and len(asked) <= 160
    law = (found.base_s, found.per_request_s, found.per_prompt_token_s)
    assert law == pytest.approx(best, rel=5e-3) and found.apart_frac == pytest.approx(0.25, abs=1e-4)


@pytest.mark.parametrize(("best", "told"), [(0.3, 0.3), (1.7, 1.7), (3.5, 3.5), (0.1, 0.25), (10.0, 4.0)])
def test_a_log_is_told_to_be_up_to_four_times_slower_or_faster(monkeypatch, best, told):
    def apart(server, log, measured, law):
        assert (server, log, measured) == (asked, "log", "measured")
        return math.log(law / best) ** 2

    asked = Record(law=Record(scaled=lambda by: by))
    monkeypatch.setattr(comparison, "_apart", apart)
    assert comparison._slower(asked, "log", "measured") == pytest.approx(told, rel=3e-3)
