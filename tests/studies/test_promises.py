"""What a replay says of a promise, request by request; how a fleet is routed; which windows of a trace are sent."""

from __future__ import annotations

import math
from types import SimpleNamespace as Record

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels import SLO
from dmodels.sim.requests import Served
from dmodels.studies.plan import Kind, Promise
from dmodels.studies.plan.deployment import Deployment
from dmodels.studies.plan.forecast import Latency
from dmodels.studies.plan.replaying import _promises
from dmodels.studies.transfer import TransferScenario, answer

EXPECTED = {"TTFT": Latency(0.1, 0.25), "TPOT": Latency(0.01, 0.025), "E2E": Latency(1.0, 2.5)}


def served(rows):
    """Requests that came at, waited, answered first after, and ended after so long, with so many tokens."""
    came, first, rest, tokens = (np.array(column, float) for column in zip(*rows, strict=True))
    return Served(came, came, came + first, came + first + rest, tokens)


rows = st.lists(
    st.tuples(st.integers(0, 99), st.integers(1, 40), st.integers(0, 40), st.integers(1, 9)), min_size=2, max_size=50
)


@given(rows, st.sampled_from([0.5, 0.9]))
def test_a_promise_is_the_percentile_of_the_requests_that_have_such_a_time(several, q):
    several = sorted((came, first / 8, (rest / 8 if n > 1 else 0.0), n) for came, first, rest, n in several)
    slo, window = SLO(2.0, 0.5, 4.0, q), 10.0
    found = {one.metric: one for one in _promises("all", served(several), slo, window, EXPECTED)}
    times = {
        "TTFT": [(came, first) for came, first, *_ in several],
        "TPOT": [(came, rest / (n - 1)) for came, _, rest, n in several if n > 1],
        "E2E": [(came, first + rest) for came, first, rest, _ in several],
    }
    assert found.keys() == {name for name, values in times.items() if values}
    for name, one in found.items():
        values = [t for _, t in times[name]]
        bound = {"TTFT": 2.0, "TPOT": 0.5, "E2E": 4.0}[name]
        assert (one.pool, one.bound_s, one.predicted_s) == ("all", bound, EXPECTED[name].percentile_s)
        assert one.measured_s == pytest.approx(float(np.quantile(values, q))) and one.holds == (one.measured_s <= bound)
        assert one.mean_s == pytest.approx(math.fsum(values) / len(values))
        assert one.kept_frac == pytest.approx(sum(t <= bound for t in values) / len(values))
        start, windows = several[0][0], {}
        for came, t in times[name]:
            windows.setdefault(int((came - start) // window), []).append(t)
        worst = {k: float(np.quantile(own, q)) for k, own in windows.items()}
        assert one.worst_s == pytest.approx(max(worst.values()))
        assert worst[int(one.worst_start_s // window)] == pytest.approx(one.worst_s)
        assert math.isnan(one.low_s) == (len(values) < 40) == math.isnan(one.high_s)
        if len(values) >= 40:
            assert 0.0 <= one.low_s <= one.measured_s <= one.high_s


def test_a_promise_is_sure_where_its_interval_lies_on_one_side():
    one = lambda measured, low, high: Promise(
        "all", "TTFT", 2.0, measured, low, high, 1.0, 0.9, 1.5, 3.0, 0.0, measured <= 2.0
    )
    assert one(1.5, 1.2, 1.9).sure and not one(1.5, 1.2, 2.1).sure
    assert one(3.0, 2.1, 4.0).sure and not one(3.0, 1.9, 4.0).sure
    assert one(1.5, 1.2, 2.0).sure and not one(3.0, 2.0, 4.0).sure  # two seconds would have been in time
    assert one(1.5, 1.2, 1.9).error_frac == pytest.approx(0.0) and math.isnan(one(0.0, 0.0, 0.0).error_frac)


def test_a_router_is_told_where_pools_part():
    pools = [Record(stage=Record(high_tokens=2048.0)), Record(stage=Record(high_tokens=math.inf))]
    told = {kind: Deployment.router.fget(Record(kind=kind, pools=pools)) for kind in Kind}
    assert told[Kind.TWO_POOLS]["threshold_tokens"] == 2048.0 and told[Kind.TWO_POOLS]["policy"] == "token budget"
    for kind in (Kind.ONE_POOL, Kind.SPLIT):
        assert told[kind] == {"policy": "least requests in flight"}


def test_windows_of_a_trace_begin_at_even_places_and_those_of_a_workload_are_drawn(monkeypatch):
    """Of four windows the first begins where the trace does, and the last at three quarters."""
    given = {"traffic": {"trace": "t.csv", "rate": "3 req/s", "max_tokens": 9000.0, "shared_prefix": 0.5}}
    asked = TransferScenario.model_validate(given | {"simulation": {"runs": 4, "warmup": "2 s", "measure": "7 s"}})
    seen = []
    monkeypatch.setattr(answer, "read_trace", lambda path: f"trace {path}")
    monkeypatch.setattr(answer, "window", lambda *args, **more: seen.append((args, more)))
    arrivals = answer._arrivals(asked)
    for k in range(4):
        arrivals(k, Record(decode=range(12)))
    for k, ((source, profile, rate, seconds, workers), more) in enumerate(seen):
        assert (source, rate, seconds, workers) == ("trace t.csv", 3.0, 9.0, 12)
        assert more == {"position_frac": k / 4, "seed": k}
        told = (1024.0, 9000.0, 5.0, 3.0, 0.5)
        assert profile[:5] == told and (profile.prefill_base_s, profile.prefill_s_per_token) == (0.05, 68e-6)
    monkeypatch.setattr(answer, "poisson", lambda *args, **more: seen.append((args, more)))
    answer._arrivals(TransferScenario())(3, Record(decode=range(12)))
    (*_, rate, seconds, workers), more = seen[-1]
    assert (rate, seconds, workers, more) == (6.0, 20.0, 12, {"seed": 3})
