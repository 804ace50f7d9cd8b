"""What studies take where nothing is said, and hand on of what is: each part is asked for what it is given."""

from __future__ import annotations

import math
from inspect import signature
from types import SimpleNamespace as Record

import numpy as np
import pytest

from dmodels import SLO, Parallel, Trace, Workload, catalog
from dmodels.control.netkv import POLICIES
from dmodels.core.flags import Flag
from dmodels.core.precision import Precision
from dmodels.games.routing import POLICIES as ROUTERS
from dmodels.sim.requests import Served
from dmodels.studies import router_costs, router_log, split, sweep, watch
from dmodels.studies.explore import Dials
from dmodels.studies.place import Tier, place
from dmodels.studies.plan import (
    Deployment,
    Layout,
    Margins,
    Question,
    Replayed,
    RequestClass,
    Role,
    Stretch,
    ask,
    evaluate,
    recording,
    with_lengths,
)
from dmodels.studies.plan.designs import Stage
from dmodels.studies.plan.ensure import Sizes
from dmodels.studies.plan.forecast import kept
from dmodels.studies.plan.layouts import layouts
from dmodels.studies.plan.risks import risks
from dmodels.studies.pools import pool_study
from dmodels.studies.servers import PoolOf, play, playing, server
from dmodels.studies.size import size
from dmodels.studies.step import step_times
from dmodels.studies.transfer import policies


@pytest.fixture
def log(monkeypatch):
    """A router's log of 1,100 requests, of which request k took k seconds; what is asked of it, and of whom."""
    asked = {}

    class Log(Record):
        def __len__(self):
            return 1100

    def read(*given):
        asked["read"] = given
        return Log(latency_s=np.arange(1100.0), worker=np.arange(1100) + 0.25, overlap=np.arange(1100) + 0.5)

    def cut(log, *given, **more):
        asked["windows"] = (*given, more)
        return Record(ttft_p99_s=np.array([0.5, 0.25, 4.0]))

    def fitted(*given):
        asked["fitted"] = given
        return "fitted"

    detector = router_log.regime.detector
    monkeypatch.setattr(
        router_log.regime, "detector", lambda idle_s, **how: asked.update(idle=(idle_s, how)) or detector(idle_s, **how)
    )
    for name, fake in (("read_log", read), ("windows", cut), ("calibrated_cost", fitted), ("driver", lambda w: "load")):
        monkeypatch.setattr(router_log, name, fake)
    return asked


def test_windows_of_512_requests_and_the_least_of_their_p99_as_that_of_an_idle_system(log):
    found = router_log.analyse("requests.csv")
    assert log["read"] == ("requests.csv", None, 20) and "fitted" not in log
    size, step, cost, load_aware, more = log["windows"]
    assert (size, step, float(cost.capacity), load_aware, more) == (512, None, 64.0, False, {"backend": "auto"})
    assert log["idle"] == (0.25, {"samples": 1}) and found.baseline_s == 0.25 and found.driver == "load"
    assert found.regime.shape == (3,) and found.regime[0] == 0


def test_what_is_asked_of_a_log_is_handed_on(log):
    """Fitted to windows side by side; to the whole log where that is shorter. No system is idle in no time."""
    asked = {"window": 500, "step": 7, "workers": ["a"], "limit": 3, "capacity": 16.0, "load_aware": True}
    found = router_log.analyse("requests.csv", calibrate=True, baseline_s=0.0, backend="cpu", **asked)
    assert log["read"] == ("requests.csv", ["a"], 3)
    assert log["windows"] == (500, 7, "fitted", True, {"backend": "cpu"})
    *columns, capacity = log["fitted"]
    whole = np.arange(1000.0).reshape(2, 500)
    for column, beyond in zip(columns, (0.0, 0.25, 0.5), strict=True):
        np.testing.assert_array_equal(column, whole + beyond)
    assert capacity == 16.0 and found.baseline_s == 0.0 and log["idle"][0] == 1e-9
    router_log.analyse("requests.csv", 5000, calibrate=True)
    assert log["fitted"][0].shape == (1, 1100)


def test_a_fleet_is_watched_for_six_hours_and_held_to_two_seconds(monkeypatch):
    seen = {}
    fleet = Record(
        pools=[Record(gpu="l40s"), Record(gpu=""), Record(gpu="h100_sxm")], model="llama-3.1-8b", split=False
    )
    monkeypatch.setattr(watch, "observe", lambda files, hours: seen.update(files=files, hours=hours) or "seen")
    monkeypatch.setattr(watch, "read_deployment", lambda files: seen.update(started=files) or fleet)
    monkeypatch.setattr(watch, "workload", lambda telemetry, rate_rps: (telemetry, rate_rps))
    monkeypatch.setattr(watch, "question", lambda *asked: asked)
    monkeypatch.setattr(watch, "existing", lambda asked, given: (asked, given))
    monkeypatch.setattr(watch, "_compared", lambda *given: given)
    assert watch.watch(["a.json"]) == watch.Watched("seen", None, ()) and seen["hours"] == 6.0
    found = watch.watch(["a.json"], iter(["run.sh"]), gpu="a100_80", rate_rps=5.0, hours=2.0)
    assert (seen["files"], seen["hours"], seen["started"]) == (["a.json"], 2.0, ["run.sh"])
    (model, gpus, traffic, slo), given = found.fleet
    assert (model, gpus, traffic, given) == ("llama-3.1-8b", ["h100_sxm", "l40s"], ("seen", 5.0), fleet)
    assert [float(x) for x in (slo.ttft_s, slo.tpot_s, slo.e2e_s, slo.percentile)] == [2.0, 0.08, math.inf, 0.99]
    fleet.pools = [Record(gpu="")]
    (_, gpus, _, slo), _ = watch.watch(["a.json"], ["run.sh"], "a100_80", SLO(1.0, 0.05)).fleet
    assert gpus == ["a100_80"] and float(slo.ttft_s) == 1.0


def test_an_engine_starts_with_256_sequences_and_8192_tokens_unless_told_otherwise(monkeypatch):
    made = []
    monkeypatch.setattr(playing, "hosted_server", lambda name, *machine, **how: made.append((name, *machine, how)))
    known = []
    monkeypatch.setattr(playing, "efficiencies_of", lambda *of, **how: known.append(of) or [how["effects"]])
    server("llama-3.1-8b", "h100_sxm", Parallel(tp=2.0, ep=2.0))
    said = {"backend": "sglang", "effects": "own", "release": "0.5", "utilization": 0.8, "max_num_seqs": 7}
    said |= {"max_num_batched_tokens": 99, "instances": 3, "options": {"chunk": 1}}
    server("llama-3.1-8b", "h100_sxm", Parallel(tp=2.0), **said)
    (name, machine, efficiency, how), (other, _, own, asked) = made
    assert (name, efficiency) == ("llama-3.1-8b on h100_sxm (tp2pp1dp1ep2, vllm)", None) and machine.engine == "vllm"
    unsaid = {"release": "", "utilization": None, "max_num_seqs": 256, "max_num_batched_tokens": 8192}
    assert how == unsaid | {"instances": 1, "options": None}
    assert (other, own) == ("llama-3.1-8b on h100_sxm (tp2pp1dp1ep1, sglang)", "own")
    assert asked == {name: said[name] for name in how}
    made.clear()
    server("llama-3.1-8b", "h100_sxm", Parallel(), weight_dtype="FP8", kv_dtype="FP8")
    ((_, narrow, *_),) = made
    assert float(narrow.model.kv_dtype_bytes) == 1.0 and float(machine.model.kv_dtype_bytes) == 2.0
    architecture = catalog.architecture("llama-3.1-8b")
    assert known[0] == ([machine], ["bf16"], architecture) and known[2] == ([narrow], ["fp8"], architecture)


def test_traffic_is_played_by_chance_that_can_be_repeated_and_told_at_its_p99(monkeypatch):
    """Every request of a trace counts, and none of its instances has begun before."""
    seen, times = {}, np.arange(4.0)
    trace = Trace("few", times, np.array([10.0, 20.0, 30.0, 40.0]), np.full(4, 5.0))

    class Instance:
        def serve(self, arrival, inputs, outputs):
            return Served(arrival, arrival, arrival + 1.0, arrival + 2.0, outputs, restarts=np.arange(len(arrival)))

    def counted(served, *asked, **more):
        return {"requests_count": Record(value=served.arrival_s.size - 1)}

    def kept(name, given):
        def part(*asked, **more):
            seen[name] = (asked, more)
            return given(*asked, **more)

        return part

    for name, part in (("recorded", playing.recorded), ("drawn", playing.drawn), ("trace_metrics", counted)):
        monkeypatch.setattr(playing, name, kept(name, part))
    found = play([PoolOf("all", Instance())], trace)
    assert seen["recorded"] == ((trace, None), {"seed": 0})
    assert seen["trace_metrics"][0][1:] == (0.99,) and seen["trace_metrics"][1] == {"stationary": False}
    assert (found.requests_count, found.restarts_count, found.rate_rps, found.labels) == (4, 6, 1.0, ("all",))
    assert found.cut_count == 1
    assert play([PoolOf("all", Instance())], trace, count=2, seed=5, stationary=True).requests_count == 2
    assert seen["recorded"][1] == {"seed": 5} and seen["trace_metrics"][1] == {"stationary": True}
    play([PoolOf("all", Instance())], Workload.fixed(10.0, 5.0, 3.0), rate_rps=7.0, percentile=0.9, count=50)
    (traffic, seed, count), _ = seen["drawn"]
    assert (float(traffic.rate_rps), seed, count) == (7.0, 0, 50)
    assert seen["trace_metrics"][0][1:] == (0.9,) and seen["trace_metrics"][1] == {"stationary": True}


def test_policies_are_all_compared_unless_some_are_named(monkeypatch):
    monkeypatch.setattr(policies, "by_window", lambda *given, **more: (given, more))
    monkeypatch.setattr(policies, "averaged", lambda chosen, windows: (chosen, windows))
    chosen, (given, more) = policies.compare_policies("cluster", "arrivals", runs=2)
    assert chosen == list(POLICIES) and given == ("cluster", "arrivals", chosen) and more == {"runs": 2}


def test_two_hundred_draws_of_every_router_without_temperature(monkeypatch):
    drawn = []

    def flows(game, name, rng, runs, tau):
        drawn.append((name, runs, tau, float(np.random.default_rng(0).random() - rng.random()) if not drawn else 0.0))
        return np.ones((runs, 2, 2))

    monkeypatch.setattr(router_costs, "price_of_anarchy", lambda game, boxes: Record(optimum_s=2.0))
    monkeypatch.setattr(router_costs, "policy_flows", flows)
    monkeypatch.setattr(router_costs, "sums", lambda arrays, flows: (np.full(len(flows), 6.0),))
    game = Record(workers_count=2, counts=np.array([2, 1]), overlap=np.eye(2), arrays=lambda: None)
    found = router_costs.router_costs(game)
    assert drawn == [(name, 200, 0.0, 0.0) for name in ROUTERS]
    assert all((cost.mean_s, cost.worst_s, cost.ratio) == (2.0, 2.0, 3.0) for cost in found.policies.values())


def left_out(call):
    """What a call takes where its caller says nothing."""
    return {name: one.default for name, one in signature(call).parameters.items() if one.default is not one.empty}


def test_records_of_which_little_is_said():
    assert Tier("HBM", 1.0, 2.0) == Tier("HBM", 1.0, 2.0, latency_s=0.0, usd_per_gib=0.0)
    rest = {"cached_frac": 0.0, "headroom_frac": 0.0, "spare_count": 0.0, "max_gpus": math.inf, "weights": "", "kv": ""}
    assert Dials(1.0, 2.0, 3.0, 4.0, 5.0, "", {}) == Dials(1.0, 2.0, 3.0, 4.0, 5.0, "", {}, **rest)
    published = {"weights": Precision.AS_PUBLISHED, "kv": Precision.AS_PUBLISHED}
    assert left_out(Layout) == {"tp": 1, "pp": 1, "dp": 1, "ep": 1} | published
    every = {"low_tokens": 0.0, "high_tokens": math.inf}
    assert left_out(Stage) == {"role": Role.SERVE, **every, "ttft_share": 1.0, "percentile_share": 1.0}
    assert left_out(PoolOf) == every
    assert left_out(RequestClass) == {**every, "label": "", "priority": 0, "besides": ()}
    assert left_out(Margins) == {"headroom_frac": 0.0, "spare_count": 0, "confidence": 0.5}
    assert left_out(Replayed) == {"held_count": 0, "days_count": 0} and left_out(Sizes) == {"enough": True}
    assert left_out(Deployment) == {"replayed": None, "node_gpus": 1}
    once = {"engine", "inventory", "margins"}  # made anew for every question
    assert {name: given for name, given in left_out(Question).items() if name not in once} == {
        **{"tp": (1, 2, 4, 8), "pp": (1,), "wide_ep": (16, 32), "split": True, "thresholds_tokens": None},
        **{"weights": (Precision.AS_PUBLISHED,), "kv": (Precision.AS_PUBLISHED,), "backend": "vllm", "tuned": False},
        **{"max_gpus": math.inf, "max_usd_per_hour": math.inf, "node_gpus": 1, "size_for": Stretch.TRACE},
        **{"architecture": "", "served_name": "", "checkpoint": "", "trace": None, "measured": None},
        **{"workload_name": "workload"},
    }
    rest = {"fabric": {}, "prefill_instances": 4, "kv_bytes_per_token": 327680.0, "kv_memory_bytes": 180e9, "shards": 4}
    assert {name: given for name, given in left_out(policies.Site).items() if name != "curve"} == rest


def test_calls_of_which_little_is_said():
    asked = left_out(ask.plan)
    assert asked | {"gpus": None} == {
        **{"model": "llama-3.1-70b", "gpus": None, "workload": "azure-conv", "rate": None, "ttft": 2.0, "tpot": 0.08},
        **{"e2e": None, "percentile": 0.99, "headroom": 0.0, "spare": 0, "confidence": 0.5, "ensure": None},
    }
    assert asked["gpus"] == ("h100_sxm", "h200_sxm")
    assert left_out(place) == {
        **{"target_hit_frac": None, "target_first_token_s": math.inf, "workers": 1, "link_bytes_per_s": None},
        **{"decay_s": 60.0},
    }
    engine = {"utilization": None, "max_num_seqs": 256, "max_num_batched_tokens": 8192, "instances": 1}
    more = {"weight_dtype": None, "kv_dtype": None, "gpu_file": None, "effects": None, "options": None, "release": ""}
    assert left_out(server) == {"backend": "vllm"} | engine | more
    assert left_out(playing.hosted_server) == {"release": "", "utilization": None, "instances": 1, "options": None}
    chance = {"rate_rps": None, "count": None, "seed": 0, "percentile": 0.99, "stationary": None}
    assert left_out(play) == chance and left_out(recording) == {"seed": 0, "count": 20_000}
    assert left_out(size) == {
        **{"workload": None, "utilization": None, "block_tokens": 16, "batched_tokens": 8192, "probability": 0.99},
        **{"max_sequences": None, "backend": "vllm", "release": ""},
    }
    assert left_out(step_times) == {
        **{"concurrency": None, "name": "", "architecture": "", "gpu_name": "", "backend": "vllm", "effects": None},
    }
    one = left_out(sweep.sized_pool)
    assert one == {
        **{"rate_rps": 0.0, "ttft_slo_s": math.inf, "tpot_slo_s": math.inf, "e2e_slo_s": math.inf, "percentile": 0.99},
        **{"price_usd_per_hour": -1.0, "slowdown": 1.0, "instances": None},
    }
    assert left_out(sweep.sweep_designs) == {"output": "cost_usd_per_mtoken", "top": 10, "out": None}
    pool = left_out(pool_study)
    assert math.isnan(pool.pop("price_usd_per_hour")) and pool.pop("gpus_per_instance") == 1.0
    assert pool.pop("pools_count") == 3 and set(pool.values()) == {None}
    assert left_out(router_costs.router_costs) == {"runs": 200, "seed": 0, "tau": 0.0} and left_out(split.split) == {
        "burst": 1.5
    }
    assert left_out(watch.watch) == {"deployment": (), "gpu": "", "slo": None, "rate_rps": None, "hours": 6.0}
    assert left_out(policies.by_window) == {"runs": 20, "ttft_slo_s": 5.0, "warmup_s": 5.0, "measure_s": 15.0}
    quiet = {"congestion": 0.0, "in_flight": 0.0, "hit_frac": 0.0, "batch": 8.0, "layers": 80.0}
    assert left_out(policies.transfer_share) == quiet
    assert left_out(policies.stale_telemetry) == {
        **{"congestion": 0.3, "std": 0.05, "correlation_time_s": 60.0, "near_hit_frac": 0.0, "fixed_s": 0.0},
        **{"far_hit_frac": (0.0, 0.3, 0.6)},
    }
    assert left_out(policies.tune_cache_weight) == {"weights": (0.1, 0.3, 0.5, 0.7, 0.9)}
    assert left_out(risks) == {"burst_s": 60.0, "bursts": (1.1, 1.25, 1.5, 2.0)}
    assert left_out(with_lengths) == {"input_factor": 1.0, "output_factor": 1.0} and left_out(kept) == {"by": 1.0}
    assert left_out(evaluate.sweep_instances) == left_out(evaluate.fewest_instances) == {"slowdown": 1.0}
    assert left_out(layouts) == {
        **{"tp": (1, 2, 4, 8), "pp": (1,), "weights": (Precision.AS_PUBLISHED,), "kv": (Precision.AS_PUBLISHED,)},
        **{"wide_ep": (), "backend": "vllm"},
    }


def test_a_split_is_told_with_its_equilibrium_its_optimum_and_its_planners(monkeypatch):
    """A burst is half as busy again, unless it is said otherwise; workers that cannot change pools are not planned."""
    solved = lambda cost, flags=0, **more: Record(value=Record(cost=cost, **more), flags=flags)
    selfish, best, whole = solved(3.0), solved(2.0, prefill_gpus=1.5), solved(2.5)
    asked, checked = [], []
    fakes = {
        "equilibrium": lambda game: selfish,
        "social_optimum": lambda game: best,
        "explain": lambda *given: ["so"] if given == ("game", selfish) else None,
    }
    fakes |= {"integer_split": lambda *given: whole if given == ("game", best) else None}
    fakes["_curves"] = lambda game, x: (2 * x, 3 * x) if game == "game" else None
    fakes["_slope"] = lambda game, x: 0.25 * x if game == "game" else None
    fakes["check_layout"] = lambda *layout: checked.append(layout)
    fakes["serving_game"] = lambda *given, prefill, decode: asked.append((*given, prefill, decode)) or "game"
    fakes["_planners"] = lambda game, found, rate: ({"one": rate}, {"one": found}) if game == "game" else None
    for name, fake in fakes.items():
        monkeypatch.setattr(split, name, fake)
    two, four = Parallel(tp=2.0), Parallel(tp=4.0)
    given = "model", "gpu", Record(rate_rps=8.0), "slo", 24.0
    found = split.split(*given, two, two)
    assert asked[0] == (*given, two, two) and checked == [("model", two, "prefill"), ("model", two, "decode")]
    assert (found.equilibrium, found.optimum, found.whole) == (selfish, best, whole)
    assert (found.loss_frac, found.slope_gpus_per_rps, found.notes) == (0.5, 0.375, ["so"])
    x = found.prefill_gpus
    assert (x[0], x[-1]) == (0.0, 24.0) and np.ptp(np.diff(x)) < 1e-9 and 200 <= len(x) <= 400
    assert found.ttft_frac.tolist() == (2 * x).tolist() and found.itl_frac.tolist() == (3 * x).tolist()
    assert found.arrival_rps.tolist() == [8.0] * 20 + [12.0] * 20 + [8.0] * 60
    assert found.courses["one"] is found.arrival_rps and found.scores == {"one": whole}
    apart = split.split(*given, two, four, 3.0)
    told = "Prefill and decode workers differ in GPUs, so no worker can change pools: planners are not run."
    assert (apart.courses, apart.scores, apart.notes[-1], apart.arrival_rps.size) == ({}, {}, told, 0)
    best.value.cost, best.flags, whole.flags = 0.0, int(Flag.OVERLOAD), int(Flag.NO_FIT)
    none = split.split(*given, two, two)
    assert math.isnan(none.loss_frac) and math.isnan(none.slope_gpus_per_rps) and none.courses == {} == none.scores
