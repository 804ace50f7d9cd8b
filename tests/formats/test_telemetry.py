"""What engines report becomes the demand and the workload behind it: restarts, gaps, replicas, renamed metrics."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from dmodels import SLO, Workload, read_trace
from dmodels.core.errors import InputError
from dmodels.formats.telemetry import Series, increase, observe, read_workload, workload
from dmodels.formats.telemetry.flow import arrival_cv, joint, length_correlation
from dmodels.models.latency import StepLaw
from dmodels.models.traffic import Trace
from dmodels.sim.fleet import Pool, simulate
from dmodels.studies.plan import price, question
from tests.audit.asking import ask
from tests.audit.commands import audit
from tests.audit.terminal import audit_shown

pytestmark = pytest.mark.usefixtures("short_replays")
TRACE = "examples/data/azure_conv_5min.csv"
#: vLLM's buckets of tokens: 1, 2, 5, 10, ... up to the context.
BUCKETS = [float(m * 10**k) for k in range(6) for m in (1, 2, 5) if m * 10**k <= 131072]
TIMES = [1e-3 * b for b in (1, 5, 10, 20, 40, 60, 80, 100, 250, 500, 750, 1000, 2500, 5000, 7500, 10000)]
START = 1_760_000_000.0


class Fleet:
    """Replicas that count what they complete, and the answers that Prometheus gives about them."""

    def __init__(self, when, inputs, outputs, replicas=3, step=15.0, engine="vllm", of=None):
        self.when, self.step, self.engine = np.asarray(when), step, engine
        self.of = np.arange(len(self.when)) % replicas if of is None else np.asarray(of)
        self.grid = np.arange(0.0, self.when.max() + 2 * step, step)
        self.inputs, self.outputs = np.asarray(inputs, float), np.asarray(outputs, float)
        self.results, self.replicas = [], replicas

    def counter(self, name, values, restart=None, **labels):
        """The running sum of `values` on each replica, at the sampled times."""
        for k in range(self.replicas):
            mine = self.of == k
            order = np.argsort(self.when[mine])
            total = np.concatenate([[0.0], np.cumsum(np.asarray(values, float)[mine][order])])
            seen = total[np.searchsorted(self.when[mine][order], self.grid, side="right")]
            if restart is not None and k == 0:
                seen = np.where(self.grid >= restart, seen - seen[self.grid < restart][-1], seen)
            self.add(name, seen, instance=f"10.0.0.{k}:8000", model_name="m", **labels)
        return self

    def histogram(self, name, values, bounds, **more):
        values = np.asarray(values, float)
        for bound in [*bounds, math.inf]:
            self.counter(f"{name}_bucket", values <= bound, le="+Inf" if bound == math.inf else repr(bound), **more)
        self.counter(f"{name}_sum", values, **more)
        return self.counter(f"{name}_count", np.ones(len(values)), **more)

    def add(self, name, values, **labels):
        pairs = [
            [START + t, f"{v:.10g}"] for t, v in zip(self.grid, np.broadcast_to(values, self.grid.shape), strict=True)
        ]
        self.results.append({"metric": {"__name__": name, **labels}, "values": pairs})

    def lengths(self, **more):
        self.histogram("vllm:request_prompt_tokens", self.inputs, BUCKETS, **more)
        return self.histogram("vllm:request_generation_tokens", self.outputs, BUCKETS, **more)

    def write(self, folder, name="metrics.json", results=None):
        path = folder / name
        data = {"resultType": "matrix", "result": self.results if results is None else results}
        path.write_text(json.dumps({"status": "success", "data": data}), encoding="utf-8")
        return path


@pytest.fixture(scope="module")
def trace():
    return read_trace(TRACE)


@pytest.fixture
def fleet(trace):
    return Fleet(1.0 + trace.time_s - trace.time_s[0], trace.input_tokens, trace.output_tokens)


def simulated(trace, replicas=3):
    """What servers count that serve a trace, simulated request by request: each when it ends, until arrivals end."""
    law = StepLaw(0.012, 4e-4)
    served = simulate(trace.time_s, trace.input_tokens, trace.output_tokens, Pool(replicas, 64, law))
    when = 1.0 + served.end_s
    counted = Fleet(when, trace.input_tokens, trace.output_tokens, replicas, of=served.instance)
    counted.grid = counted.grid[counted.grid <= trace.duration_s]  # what is in flight at the end is not counted yet
    came = 1.0 + np.asarray(trace.time_s)
    for k in range(replicas):
        mine = served.instance == k
        begun, ended = (np.searchsorted(np.sort(at[mine]), counted.grid, side="right") for at in (came, when))
        counted.add("vllm:num_requests_running", begun - ended, instance=f"10.0.0.{k}:8000", model_name="m")
    return counted, served


def synthetic():
    """Long prompts with short answers and short ones with long: what histograms cannot tell apart from a mixture."""
    rng = np.random.default_rng(4)
    long = rng.random(3000) < 0.3
    inputs = np.where(long, rng.lognormal(8.5, 0.4, 3000), rng.lognormal(5.0, 0.6, 3000)).round()
    outputs = np.where(long, rng.lognormal(3.5, 0.5, 3000), rng.lognormal(6.0, 0.4, 3000)).round()
    return Trace("synthetic", np.cumsum(rng.exponential(0.15, 3000)), np.maximum(inputs, 1), np.maximum(outputs, 1))


TRACES = {
    "chat": (lambda: read_trace(TRACE), SLO(2.0, 0.05)),
    "long prompts": (lambda: read_trace("examples/data/mooncake_head.jsonl"), SLO(15.0, 0.08)),
    "correlated": (synthetic, SLO(4.0, 0.06)),
}


@pytest.mark.parametrize("grown", [1.0, 8.0])
@pytest.mark.parametrize("kind", TRACES)
def test_the_plan_from_a_simulated_fleets_telemetry_is_the_plan_from_the_trace(kind, grown, tmp_path):
    """Within one instance of twenty, at the rate that was seen and at eight times it, although buckets blur the lengths
    and do not say which prompt had which answer."""
    trace, slo = TRACES[kind][0](), TRACES[kind][1]
    counted, _ = simulated(trace)
    path = counted.lengths().write(tmp_path)
    seen = read_workload(path, grown * observe([path]).rate_rps)
    behind = Workload.from_trace(trace, grown * len(trace) / trace.duration_s)
    assert float(seen.rate_rps) == pytest.approx(float(behind.rate_rps), rel=0.05)
    told, known = (
        price(question("llama-3.1-8b", ["h100_sxm"], of, slo, tp=(1,), split=False, thresholds_tokens=())).instances[
            0, 0
        ]
        for of in (seen, behind)
    )
    assert abs(told - known) <= np.ceil(known / 20.0)


def _sampled(name, per_interval, step=15.0):
    total = np.concatenate([[0.0], np.cumsum(per_interval)])
    return Series(name, {"pod": "a"}, step * np.arange(len(total)), total)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_sums_over_time_tell_how_prompts_and_answers_go_together(sign):
    """Of bivariate normal logarithms, the correlation is (e^rs^2 - 1)/(e^s^2 - 1); no other replica counts."""
    rng = np.random.default_rng(3)
    n = rng.poisson(20.0, 2000)
    z = rng.multivariate_normal([0, 0], [[1, 0.8 * sign], [0.8 * sign, 1]], n.sum())
    ends = np.repeat(np.arange(2000), n)
    x, y = (np.bincount(ends, np.exp(5.0 + 0.5 * z[:, k]), 2000) for k in (0, 1))
    found = length_correlation([_sampled("n", n)], [_sampled("x", x)], [_sampled("y", y)])
    exact = math.expm1(0.25 * 0.8 * sign) / math.expm1(0.25)
    assert found == pytest.approx(exact, abs=0.06)
    other = _sampled("y", y)._replace(labels={"pod": "b"})
    assert math.isnan(length_correlation([_sampled("n", n)], [_sampled("x", x)], [other]))


@pytest.mark.parametrize("cv", [0.5, 1.0, 2.0])
def test_the_variation_of_arrivals_is_told_by_counts_and_not_by_the_time_of_day(cv):
    rng = np.random.default_rng(5)
    even = np.cumsum(rng.gamma(cv**-2, cv**2, 100_000))  # one a second
    span = even[-1]
    at = even + 0.3 * span / 6.3 * (1.0 - np.cos(6.3 * even / span))  # the rate goes up and down by a third
    came = np.histogram(at, np.arange(0.0, 0.99 * span, 60.0))[0].astype(float)
    assert arrival_cv(came, np.full(len(came), 60.0)) == pytest.approx(cv, rel=0.08)
    assert math.isnan(arrival_cv(came[:5], np.full(5, 60.0)))


@pytest.mark.parametrize("correlation", [0.6, 0.0, -0.3])
def test_lengths_are_put_together_with_both_margins_and_the_correlation(correlation):
    rng = np.random.default_rng(6)
    (x, left), (y, right) = ((np.sort(rng.lognormal(6, 1, k)), rng.dirichlet(np.ones(k))) for k in (40, 25))
    weights = joint((x, left), (y, right), correlation)
    assert weights.sum(1) == pytest.approx(left, rel=1e-6) and weights.sum(0) == pytest.approx(right, rel=1e-6)
    spread = math.sqrt((left @ x**2 - (left @ x) ** 2) * (right @ y**2 - (right @ y) ** 2))
    assert (x @ weights @ y - (left @ x) * (right @ y)) / spread == pytest.approx(correlation, abs=1e-4)


def test_requests_in_flight_came_too(fleet, trace, tmp_path):
    """A fleet that falls behind completes less than what comes."""
    fleet.counter("vllm:request_success_total", np.ones(len(trace.time_s)))
    for what, grown in (("running", 1.0), ("waiting", 2.0)):
        fleet.add(f"vllm:num_requests_{what}", grown * fleet.grid, instance="10.0.0.0:8000")
    seen = observe([fleet.write(tmp_path)])
    assert seen.rate_rps == pytest.approx(len(trace.time_s) / fleet.grid[-1] + 3.0)
    assert np.mean(seen.rates_rps) == pytest.approx(seen.rate_rps)


def test_latencies_of_a_simulated_fleet_are_those_that_were_served(tmp_path):
    """Means exactly, quantiles to the bucket; each server is a replica."""
    trace = read_trace(TRACE)
    counted, served = simulated(trace)
    counted.grid = np.arange(0.0, counted.when.max() + 15.0, 15.0)
    counted.histogram("vllm:time_to_first_token_seconds", served.ttft_s, TIMES)
    seen = observe([counted.lengths().write(tmp_path)])
    assert seen.replicas_count == 3 and seen.ttft_s.mean == pytest.approx(served.ttft_s.mean())
    exact = float(np.quantile(served.ttft_s, 0.9))
    low = max(bound for bound in [0.0, *TIMES] if bound < exact)
    high = min(bound for bound in TIMES if bound >= exact)
    assert low <= seen.ttft_s.quantile(0.9) <= high


def test_rates_are_those_of_all_replicas_over_time(fleet, trace, tmp_path):
    path = (
        fleet.lengths()
        .counter("vllm:request_success_total", np.ones(len(trace.time_s)), finished_reason="stop")
        .write(tmp_path)
    )
    seen = observe([path])
    assert seen.replicas_count == 3 and seen.requests_count == len(trace.time_s)
    span = fleet.grid[-1]
    assert seen.rate_rps == pytest.approx(len(trace.time_s) / span)
    assert sum(seen.rates_rps) * 15.0 == pytest.approx(len(trace.time_s))
    busiest = np.histogram(fleet.when, np.append(fleet.grid, math.inf))[0].max() / 15.0
    assert seen.peak_rps == pytest.approx(busiest, rel=0.1)


def test_a_restart_and_a_gap_lose_no_request(fleet, trace, tmp_path):
    ones = np.ones(len(trace.time_s))
    whole = observe([fleet.counter("vllm:request_success_total", ones, restart=120.0).write(tmp_path)])
    assert whole.requests_count == len(ones) and whole.notices == ("1 counter reset (restarts), counted from zero",)
    holes = [
        {**one, "values": [pair for pair in one["values"] if not 60 < pair[0] - START < 200]} for one in fleet.results
    ]
    seen = observe([fleet.write(tmp_path, "gap.json", holes)])
    assert any("1 gap without samples" in notice for notice in seen.notices)


def test_both_names_of_the_inter_token_latency_count_once(fleet, trace, tmp_path):
    itl = np.full(len(trace.time_s), 0.03)
    for name in ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"):
        fleet.histogram(name, itl, TIMES)
    seen = observe([fleet.write(tmp_path)])
    assert seen.itl_s.count == len(itl) and seen.itl_s.mean == pytest.approx(0.03)
    assert 0.02 < seen.itl_s.quantile(0.5) <= 0.04
    older = [one for one in fleet.results if "inter_token" not in one["metric"]["__name__"]]
    assert observe([fleet.write(tmp_path, "old.json", older)]).itl_s.mean == pytest.approx(0.03)


def test_gauges_hits_and_several_files(fleet, trace, tmp_path):
    n = len(trace.time_s)
    fleet.counter("vllm:prefix_cache_queries_total", trace.input_tokens)
    fleet.counter("vllm:prefix_cache_hits_total", 0.25 * np.asarray(trace.input_tokens))
    first = fleet.write(tmp_path, "a.json")
    other = Fleet(fleet.when, fleet.inputs, fleet.outputs).lengths()
    for k in range(3):
        other.add("vllm:num_requests_running", 10.0 + k, instance=f"10.0.0.{k}:8000")
        other.add("vllm:kv_cache_usage_perc", 0.5 + 0.1 * k, instance=f"10.0.0.{k}:8000")
    seen = observe([first, other.write(tmp_path, "b.json")])
    assert seen.prefix_hit_frac == pytest.approx(0.25) and seen.running_mean_count == pytest.approx(33.0)
    assert seen.kv_peak_frac == pytest.approx(0.7) and seen.requests_count == n
    taken = workload(seen)
    share = float(taken.weight_frac @ taken.cached_tokens) / float(taken.weight_frac @ taken.input_tokens)
    assert share == pytest.approx(0.25, rel=0.02)
    (tmp_path / "both").mkdir()
    for path in (first, tmp_path / "b.json"):
        path.rename(tmp_path / "both" / path.name)
    assert float(read_workload(tmp_path / "both").rate_rps) == pytest.approx(seen.rate_rps)


SCRAPE = """# HELP sglang:time_to_first_token_seconds Histogram of time to first token in seconds.
# TYPE sglang:time_to_first_token_seconds histogram
sglang:time_to_first_token_seconds_sum{model_name="m"} 30.0
sglang:time_to_first_token_seconds_bucket{le="0.1",model_name="m"} 60.0
sglang:time_to_first_token_seconds_bucket{le="0.4",model_name="m"} 100.0
sglang:time_to_first_token_seconds_bucket{le="+Inf",model_name="m"} 100.0
sglang:time_to_first_token_seconds_count{model_name="m"} 100.0
sglang:num_running_reqs{model_name="m"} 7.0
sglang:prompt_tokens_histogram_bucket{le="1000",model_name="m"} 100.0
sglang:prompt_tokens_histogram_bucket{le="+Inf",model_name="m"} 100.0
sglang:prompt_tokens_histogram_sum{model_name="m"} 60000.0
sglang:generation_tokens_histogram_bucket{le="200",model_name="m"} 100.0
sglang:generation_tokens_histogram_bucket{le="+Inf",model_name="m"} 100.0
sglang:generation_tokens_histogram_sum{model_name="m"} 12000.0
"""


def test_a_scrape_as_text_has_lengths_but_no_rate(tmp_path):
    path = tmp_path / "metrics.txt"
    path.write_text(SCRAPE, encoding="utf-8")
    seen = observe([path])
    assert seen.ttft_s.mean == pytest.approx(0.3) and seen.ttft_s.quantile(0.6) == pytest.approx(0.1)
    assert seen.running_mean_count == 7 and math.isnan(seen.rate_rps) and seen.reporter == "sglang"
    with pytest.raises(InputError, match="one scrape has no rate; --rate adds it"):
        workload(seen)
    taken = workload(seen, 3.0)
    assert float(taken.weight_frac @ taken.input_tokens) == pytest.approx(600.0, rel=0.01)


def test_a_quantile_beyond_every_bucket_is_said_to_be_more(tmp_path, capsys):
    """Of 100 requests, 60 were served within 0.4 s, the last bound."""
    from dmodels.cli import main

    path = tmp_path / "metrics.txt"
    late = SCRAPE.replace('le="0.4",model_name="m"} 100.0', 'le="0.4",model_name="m"} 60.0')
    path.write_text(late, encoding="utf-8")
    seen = observe([path]).ttft_s
    assert [seen.beyond(share) for share in (0.5, 0.6, 0.61, 0.99)] == [False, False, True, True]
    assert main(["watch", str(path)]) == 0
    assert "> 400" in capsys.readouterr().out


def test_a_text_that_is_no_scrape_ends_somewhere(tmp_path):
    path = tmp_path / "log"
    path.write_text("vllm:num_requests_running 1\n" * 200_001, encoding="utf-8")
    with pytest.raises(InputError, match="more than 200,000 lines"):
        observe([path])


def test_increase_counts_from_zero_after_a_restart():
    assert increase(Series("c", {}, np.arange(5.0), np.array([10.0, 12.0, 1.0, 1.0, 4.0]))) == 2 + 1 + 0 + 3


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "no series"),
        ('{"status": "error", "error": "parse error"}', "parse error; accepted are answers with status 'success'"),
        ('{"status": "success", "data": {"result": 3}}', "data.result is '3'"),
        ('{"status": "success", "data": {"result": [{"metric": {}, "values": []}]}}', "no __name__"),
        ('{"status":"success","data":{"result":[{"metric":{"__name__":"a"},"values":[[1]]}]}}', "accepted are pairs"),
        (
            '{"status":"success","data":{"result":[{"metric":{"__name__":"a"},"values":[[1.7e12,"1"]]}]}}',
            "not milliseconds",
        ),
        ("vllm:num_requests_running 1e300\n", "a value of 1e+300"),
        ("vllm:request_success_total -3\n", "vllm:request_success_total counts -3"),
        (
            SCRAPE.replace('_sum{model_name="m"} 30.0', '_sum{model_name="m"} 30000.0'),
            "is one of them in another unit?",
        ),
        ("up 1\n", "none of 1 metrics is known (like up)"),
        ("vllm:num_requests_running many\n", "line 1: 'vllm:num_requests_running many'"),
        ("what is this", "line 1: 'what is this'"),
    ],
)
def test_mistakes_are_one_line(text, why, tmp_path):
    path = tmp_path / "f"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        observe([path])
    assert why in str(error.value) and "\n" not in str(error.value)


def small_answer(folder) -> bytes:
    """An answer of Prometheus about one replica, with three requests."""
    few = Fleet([1.0, 20.0, 40.0], [100, 900, 30], [10, 20, 300], replicas=1)
    few.histogram("vllm:request_prompt_tokens", few.inputs, [100.0, 1000.0])
    return few.histogram("vllm:request_generation_tokens", few.outputs, [50.0, 500.0]).write(folder).read_bytes()


def test_a_server_is_asked_for_the_same_series(fleet, tmp_path):
    """A stand-in for Prometheus that answers query_range with what the expression's names match."""
    import re
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from urllib.parse import parse_qs, urlsplit

    fleet.lengths()

    class Prometheus(BaseHTTPRequestHandler):
        def do_GET(self):
            asked = parse_qs(urlsplit(self.path).query)
            pattern = re.fullmatch(r'\{__name__=~"(.*)"\}', asked["query"][0])[1]
            result = [one for one in fleet.results if re.fullmatch(pattern, one["metric"]["__name__"])]
            body = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()
            self.send_response(200 if float(asked["end"][0]) > float(asked["start"][0]) else 400)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Prometheus)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        seen = observe([f"http://127.0.0.1:{server.server_port}"])
    finally:
        server.shutdown()
        server.server_close()
    assert repr(seen) == repr(observe([fleet.write(tmp_path)]))  # what was not seen is NaN, which equals nothing
    with pytest.raises(InputError, match="no answer of Prometheus"):
        observe([f"http://127.0.0.1:{server.server_port}"])
    with pytest.raises(InputError, match="without a password"):
        observe(["http://me:secret@localhost:9090"])


def test_the_model_beside_what_was_measured(fleet, trace, tmp_path, capsys, monkeypatch):
    """Three servers under the trace's load: measured latencies that are the model's own give ratios of one."""
    from dmodels.cli import main
    from dmodels.studies.watch import existing, watch

    asked = []
    kept = lambda question, fleet: asked.append(question.slo) or existing(question, fleet)
    monkeypatch.setattr("dmodels.studies.watch.existing", kept)
    serve = tmp_path / "serve.sh"
    serve.write_text("# all: 3 x 1 h100_sxm (tp1)\n# all: start 3 of\nvllm serve meta-llama/Llama-3.1-8B-Instruct\n")
    path = fleet.lengths().write(tmp_path)
    now = watch([path], [serve]).fleet
    bounds = [float(getattr(asked[0], name)) for name in ("ttft_s", "tpot_s", "e2e_s", "percentile")]
    assert bounds == [2.0, 0.08, np.inf, 0.99]  # where nobody states any
    ones = np.ones(len(trace.time_s))
    fleet.histogram("vllm:time_to_first_token_seconds", now.pools[0].ttft_mean_s * ones, TIMES)
    fleet.histogram("vllm:inter_token_latency_seconds", 2.0 * now.pools[0].tpot_mean_s * ones, TIMES)
    found = watch([fleet.write(tmp_path)], [serve])
    ratios = {one.name: one.ratio for one in found.compared}
    assert ratios["TTFT, mean [s]"] == pytest.approx(1.0) and ratios["time between tokens, mean [s]"] == pytest.approx(
        2.0
    )
    board = tmp_path / "board.json"
    assert main(["watch", str(path), "--from-deployment", str(serve), "--dashboard", str(board)]) == 0
    out = capsys.readouterr().out
    assert "The model beside what was measured" in out and "keeps the SLOs" in out
    whole = json.loads(board.read_text(encoding="utf-8"))
    assert whole["editable"] is True and type(whole["schemaVersion"]) is int  # Grafana refuses other types
    panels = whole["panels"]
    assert {panel["type"] for panel in panels} == {"timeseries"} and len({panel["id"] for panel in panels}) == len(
        panels
    )
    (first,) = [panel for panel in panels if panel["title"] == "Time to first token"]
    expressions = {target["legendFormat"]: target["expr"] for target in first["targets"]}
    assert "vllm:time_to_first_token_seconds_bucket" in expressions["P99"]
    assert float(expressions["model, mean"][len("vector(") : -1]) == pytest.approx(now.pools[0].ttft_mean_s, rel=1e-4)
    assert main(["watch", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["result"]["telemetry"]["replicas_count"] == 3
    audited(path, serve)


def audited(path, serve):
    """A fleet beside its telemetry, as it is printed."""
    seen = ask(["watch", path, "--from-deployment", serve])
    audit(seen.document)
    audit_shown(seen.document, seen.text)
    return seen.document["result"]


def test_the_model_of_two_pools_beside_what_was_measured(fleet, tmp_path):
    """Each pool counts by its share, and all of its servers by what they hold."""
    serve, lines = tmp_path / "serve.sh", []
    for name, count, context in (("short", 1, 2048), ("long", 2, 16384)):
        lines += [f"# {name}: {count} x 1 h100_sxm (tp1)", f"# {name}: start {count} of"]
        lines += [f"vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len {context}"]
    serve.write_text("\n".join(lines) + "\n")
    pools = audited(fleet.lengths().write(tmp_path), serve)["fleet"]["pools"]
    assert [pool["instances"] for pool in pools] == [1, 2]


def test_the_model_of_a_split_beside_what_was_measured(fleet, trace, tmp_path):
    """A first token takes both stages, the others and what is in flight are the decode pool's."""
    from dmodels.studies.watch import watch

    serve, lines = tmp_path / "serve.sh", []
    for name, count, role in (("prefill", 1, "kv_producer"), ("decode", 3, "kv_consumer")):
        lines += [f"# {name}: {count} x 1 h100_sxm (tp1)", f"# {name}: start {count} of"]
        lines += [
            "vllm serve meta-llama/Llama-3.1-8B-Instruct "
            f'--kv-transfer-config \'{{"kv_connector":"NixlConnector","kv_role":"{role}"}}\''
        ]
    serve.write_text("\n".join(lines) + "\n")
    first, decode = watch([fleet.lengths().write(tmp_path)], [serve]).fleet.pools
    assert (first.name, decode.name, decode.instances) == ("prefill", "decode", 3)
    ones = np.ones(len(trace.time_s))
    fleet.histogram("vllm:time_to_first_token_seconds", (first.ttft_mean_s + decode.ttft_mean_s) * ones, TIMES)
    fleet.histogram("vllm:inter_token_latency_seconds", decode.tpot_mean_s * ones, TIMES)
    for k in range(3):
        fleet.add("vllm:num_requests_running", decode.decode_count, instance=f"10.0.0.{k}:8000", model_name="m")
    found = watch([fleet.write(tmp_path)], [serve])
    seen = {one.name: one.measured for one in found.compared}
    told = {one.name: one.predicted for one in found.compared}
    names = ["TTFT, mean [s]", "time between tokens, mean [s]", "requests in flight"]
    put = (first.ttft_mean_s + decode.ttft_mean_s, decode.tpot_mean_s, 3 * decode.decode_count)
    assert seen == {name: pytest.approx(value, rel=1e-3) for name, value in zip(names, put, strict=True)}
    first, decode = found.fleet.pools  # under arrivals as uneven as those that were seen
    then = (first.ttft_mean_s + decode.ttft_mean_s, decode.tpot_mean_s, 3 * decode.decode_count)
    assert told == {name: pytest.approx(value, rel=1e-6) for name, value in zip(names, then, strict=True)}
    audited(fleet.write(tmp_path), serve)
