"""`dmodels sweep` end to end: the file, the figure, the numbers against the plan's own evaluation, and bad input."""

from __future__ import annotations

import json
from types import SimpleNamespace as Record

import numpy as np
import pytest

from dmodels import SLO, Workload
from dmodels.cli import main, sweep, sweep_axes
from dmodels.core.errors import InputError
from dmodels.design.files import read
from dmodels.report import style, sweep_figures
from dmodels.studies.plan import plan, question

SCENARIO = """
[model]
name = "llama-3.1-70b"
[gpu]
name = "h100_sxm"
[workload]
input_tokens = 1000
output_tokens = 200
[slo]
ttft = "2 s"
tpot = "60 ms"
"""


@pytest.fixture(scope="module")
def scenario(tmp_path_factory):
    path = tmp_path_factory.mktemp("sweep") / "scenario.toml"
    path.write_text(SCENARIO)
    return path


def is_planned(point):
    """A point is the one pool of a plan of it: two ways through the toolkit, one answer."""
    traffic = Workload.fixed(float(point.input_tokens), 200.0, float(point.rate_rps))
    how = {"tp": (int(point.tp),), "thresholds_tokens": (), "split": False}
    (pool,) = plan(question("llama-3.1-70b", ["h100_sxm"], traffic, SLO(2.0, 0.06), **how), ensure=False).best.pools
    told = {
        "instances": pool.instances,
        "gpus": pool.gpus,
        "cost_usd_per_hour": pool.usd_per_hour,
        "ttft_s": pool.ttft_s,
        "tpot_s": pool.tpot_s,
        "e2e_s": pool.e2e_s,
        "output_tokens_per_s": pool.tokens_per_s,
        "gpu_tokens_per_s": pool.tokens_per_s / pool.gpus,
        "user_tokens_per_s": 1 / pool.tpot_mean_s,
        "decode_count": pool.decode_count,
        "slots_count": pool.slots_count,
        "cost_usd_per_mtoken": pool.usd_per_hour / 3600 / pool.tokens_per_s * 1e6,
    }
    for name, value in told.items():
        assert float(point[name]) == pytest.approx(value, rel=1e-6), name


def test_pools_are_the_smallest_that_keep_the_slos(scenario, tmp_path, capsys):
    """The file holds what a plan says of the same points."""
    out = tmp_path / "sweep.nc"
    argv = ["sweep", str(scenario), "--axis", "tp=1,4,8", "--axis", "rate=10:1000:log:4", "--axis", "isl=1000,5000"]
    assert main([*argv, "--out", str(out), "--plot", "curves", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["result"]["points_count"] == 24 and out.with_suffix(".png").stat().st_size > 5000
    with read(out) as ds:
        ds = ds.load()
    assert ds.sizes == {"tp": 3, "rate_rps": 4, "input_tokens": 2} and ds.rate_rps.units == "req/s"
    for at in ({"tp": 4, "rate_rps": 1, "input_tokens": 1}, {"tp": 8, "rate_rps": 3, "input_tokens": 0}):
        is_planned(ds.sel(tp=at["tp"]).isel(rate_rps=at["rate_rps"], input_tokens=at["input_tokens"]))
    ds = ds.sel(input_tokens=1000)
    assert (ds.flags.sel(tp=1) != 0).all()  # 141 GB of weights do not fit into 80 GB
    good = ds.sel(tp=[4, 8])
    assert (good.flags == 0).all() and (good.tpot_s <= 0.06).all() and (good.ttft_s <= 2.0).all()
    np.testing.assert_array_equal(good.gpus, good.instances * good.tp)


@pytest.mark.slow  # a program of its own for given counts; audits ask the same of plans
def test_pools_with_one_instance_less_miss_an_slo(scenario, tmp_path, capsys):
    once, again = tmp_path / "once.nc", tmp_path / "again.nc"
    axes = ["--axis", "tp=4", "--axis", "rate=10:1000:log:4"]
    assert main(["sweep", str(scenario), *axes, "--out", str(once)]) == 0
    with read(once) as ds:
        sized = {float(r): float(ds.instances.sel(rate_rps=r, tp=4)) for r in ds.rate_rps}
    counts = sorted({n for own in sized.values() for n in (own, own - 1) if n > 0})
    axes += ["--axis", "instances=" + ",".join(f"{n:g}" for n in counts)]
    assert main(["sweep", str(scenario), *axes, "--out", str(again)]) == 0
    with read(again) as ds:
        for rate, own in sized.items():
            flags = ds.flags.sel(rate_rps=rate, tp=4)
            assert int(flags.sel(instances=own)) == 0 and (own == 1 or int(flags.sel(instances=own - 1)) != 0)
    capsys.readouterr()


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--axis", "tpp=1,2"], "tp"),
        (["--axis", "tp="], "empty"),
        (["--axis", "tp"], "NAME=VALUES"),
        (["--axis", "rate=10 ms"], "rps"),
        (["--axis", "ttft=1 s,2 req/s"], "not one of"),
        (["--axis", "rate=10:5:log:4"], "below"),
        (["--axis", "rate=1:5:cubic:4"], "LOW:HIGH:log:COUNT"),
        (["--axis", "rate=0:5:log:4"], "out of range"),
        (["--axis", "tp=1.5"], "whole"),
        (["--axis", "tp=1", "--axis", "tp=2"], "twice"),
        (["--axis", "rate=5,5"], "twice"),
        (["--axis", "rate=-5"], "out of range"),
        (["--axis", "percentile=1.2"], "shares"),
        (["--axis", "gpu=h1000", "--axis", "rate=5"], "nearest"),
        (["--axis", "tp=4"], "rate is missing"),
        (["--axis", "rate=10:1e5:log:100000", "--axis", "ttft=0.01:9:lin:100000"], "GiB"),
        (["--axis", "rate=5", "--plot", "bars", "--out", "x.nc"], "plot 'bars' is unknown; the nearest are "),
        (["--axis", "rate=5", "--plot", "curves"], "--figure"),
        (["--axis", "rate=5", "--out", "x.xlsx"], r".nc, .zarr"),
        (["--axis", "rate=5", "--output", "cost"], "cost_usd"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(scenario, capsys, argv, says):
    assert main(["sweep", str(scenario), *argv]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1, error


def test_scenario_mistakes_and_no_feasible_point(scenario, tmp_path, capsys):
    path = tmp_path / "bad.toml"
    path.write_text(SCENARIO.replace("ttft", "tfft"))
    assert main(["sweep", str(path), "--axis", "tp=1"]) == 2 and "ttft" in capsys.readouterr().err
    path.write_text(SCENARIO.replace("60 ms", "0.06 ms"))
    axes = ["--axis", "tp=1,2,4", "--axis", "rate=5,6,7,8", "--axis", "isl=1000,5000"]  # a program compiled above
    assert main(["sweep", str(path), *axes]) == 1
    assert "0 of 24 points" in capsys.readouterr().out
    assert main(["sweep", str(scenario), "--axis", "rate=5", "--show-python"]) == 0
    compile(capsys.readouterr().out, "shown", "exec")


@pytest.mark.slow  # these axes have a program of their own
def test_workloads_come_at_their_own_rates_and_slower_steps_take_longer(tmp_path):
    """And a layout that no node holds is flagged: of 16 GPUs in nodes of 8."""
    path, out = tmp_path / "s.toml", tmp_path / "o.nc"
    path.write_text(
        '[model]\nname = "qwen3-30b-a3b"\n[gpu]\nname = "h100_sxm"\n[workload]\nname = "azure-conv"\n'
        '[parallel]\ntp = 4\n[slo]\nttft = "2 s"\ntpot = "60 ms"\n'
    )
    axes = ["--axis", "workload=azure-conv,azure-code", "--axis", "slowdown=1,2", "--axis", "dp=1,2,4"]
    assert main(["sweep", str(path), *axes, "--out", str(out)]) == 0
    with read(out) as ds:
        ds = ds.load()
    assert ((ds.flags != 0) == (ds.dp == 4)).all()
    for name, rate, answer in (("azure-conv", 5.53, 211.1), ("azure-code", 2.566, 27.88)):  # of the traces
        one = ds.sel(workload=name)
        np.testing.assert_allclose(one.output_tokens_per_s, rate * answer, rtol=2e-3)
        assert (one.tpot_s.sel(slowdown=2) > 2 * one.tpot_s.sel(slowdown=1)).all()
        assert (one.ttft_s.sel(slowdown=2) > 1.9 * one.ttft_s.sel(slowdown=1)).all()
    assert (ds.user_tokens_per_s > 1.05 / ds.tpot_s).all()  # the mean, not the slowest in a hundred


@pytest.mark.parametrize("share, words", [("", "TTFT P99 [s]"), ("percentile = 0.95\n", "TTFT P95 [s]")])
def test_a_figure_says_in_words_what_its_axes_are(tmp_path, monkeypatch, share, words):
    path, seen = tmp_path / "s.toml", []
    path.write_text(SCENARIO + share)
    monkeypatch.setattr(style, "save", lambda drawn, path: seen.append(drawn))
    axes = ["--axis", "tp=2,4,8", "--axis", "rate=10,20,40", "--axis", "isl=1000,5000"]  # a program compiled above
    assert main(["sweep", str(path), *axes, "--plot", "pareto", "--figure", str(tmp_path / "f.png")]) == 0
    (panel,) = seen[0].axes if hasattr(seen[0], "axes") else [seen[0]]
    assert (panel.get_xlabel(), panel.get_ylabel()) == (words, "cost of a million output tokens [USD/Mtoken]")


def test_axes_are_called_as_the_library_calls_them_and_by_short_names():
    """Every axis of the help, and the arguments that they mean."""
    plain = "model gpu weights kv workload tp pp dp ep instances input_tokens output_tokens percentile slowdown"
    short = {"isl": "input_tokens", "osl": "output_tokens", "rate": "rate_rps", "ttft": "ttft_slo_s"}
    short |= {"tpot": "tpot_slo_s", "e2e": "e2e_slo_s", "price": "price_usd_per_hour"}
    assert {name: name for name in plain.split()} | short == sweep_axes.AXES
    help_of = " ".join(sweep.__doc__.split())
    assert all(name in help_of for name in [*plain.split(), "rate", "ttft", "tpot", "e2e", "price"])
    assert sweep_axes.read_axes(["rate_rps=1", "ttft_slo_s = 2 s"]) == {"rate_rps": [1.0], "ttft_slo_s": [2.0]}


def test_names_are_as_they_are_typed_and_numbers_in_base_units():
    read = lambda axis: next(iter(sweep_axes.read_axes([axis]).values()))
    assert read("model= a , b,") == ["a", "b"] and read("gpu=1:2") == ["1:2"]
    assert read("weights=as-published,fp8") == ["as published", "fp8"] == read("kv=as-published,fp8")
    assert read("tp=8, 2,") == [8.0, 2.0] and read("ep=1:4:log:3") == [1.0, 2.0, 4.0] == read("instances=1,2,4")
    assert read("dp=1:3:lin:3") == [1.0, 2.0, 3.0] == read("pp=1:3:lin:3")
    assert read("slowdown=1.5") == [1.5] and read("ttft=300 ms,2 s") == [0.3, 2.0] and read("ttft=0.5") == [0.5]
    assert read("rate=1 req/s:4 req/s:log:3") == pytest.approx([1.0, 2.0, 4.0]) and read("osl=5:5.5:lin:2") == [
        5.0,
        5.5,
    ]


def test_an_axis_has_up_to_a_million_values(monkeypatch):
    assert sweep_axes.MOST_VALUES == 1_000_000
    monkeypatch.setattr(sweep_axes, "MOST_VALUES", 3)
    assert sweep_axes.read_axes(["rate=1:2:lin:3"]) == {"rate_rps": [1.0, 1.5, 2.0]}
    with pytest.raises(InputError, match="rate=1:2:lin:4: 4 values; accepted are up to 3"):
        sweep_axes.read_axes(["rate=1:2:lin:4"])


def test_a_range_goes_up_and_has_two_ends():
    assert sweep_axes.read_axes(["slowdown=1:2:lin:2"]) == {"slowdown": [1.0, 2.0]}
    for wrong in ("rate=1:2:log:1", "rate=2:2:lin:2", "rate=3:2:lin:2"):
        with pytest.raises(InputError, match=f"--axis {wrong}: accepted are LOW below HIGH and COUNT from 2"):
            sweep_axes.read_axes([wrong])
    with pytest.raises(InputError, match="--axis slowdown: 0 is out of range; accepted are positive numbers"):
        sweep_axes.read_axes(["slowdown=0:1:log:2"])


def drawn_of(monkeypatch):
    done = []
    for kind in ("pareto", "heatmap", "curves"):
        monkeypatch.setattr(sweep_figures, kind, lambda *given, kind=kind: (kind, *given))
    monkeypatch.setattr(style, "paper", lambda drawn: ("on paper", drawn))
    monkeypatch.setattr(style, "save", lambda *given: done.append(given))
    return done


def test_a_sweep_is_drawn_as_it_is_asked_and_said_to_where(monkeypatch, capsys):
    done, found = drawn_of(monkeypatch), Record(to_xarray=lambda: "points", output="gpus")
    sweep._draw(found, None, None)
    sweep._draw(found, "pareto", None)
    sweep._draw(found, None, "x.png")
    assert done == [] and capsys.readouterr().err == ""
    sweep._draw(found, "heatmap", "x.png")
    assert done == [(("on paper", ("heatmap", "points", "gpus")), "x.png")]
    assert capsys.readouterr() == ("", "figure: x.png\n")


def test_what_cannot_be_drawn_is_known_before_anything_is_computed(tmp_path):
    def refused(*given):
        with pytest.raises(InputError) as told:
            sweep._picture(*given)
        return str(told.value)

    axes, figure, out = {"tp": [1.0]}, tmp_path / "x.svg", tmp_path / "y.nc"
    assert sweep._picture(None, None, out, axes) is None
    assert sweep._picture("pareto", None, out, axes) == tmp_path / "y.png"
    assert sweep._picture("pareto", figure, out, axes) == figure == sweep._picture("pareto", figure, None, axes)
    of = "accepted are pareto, heatmap, curves"
    assert refused(None, figure, out, axes) == f"--figure {figure}: --plot is missing; {of}"
    assert refused("curve", None, None, axes) == "plot 'curve' is unknown; the nearest are curves"
    lacking = "--plot pareto: a file is missing; accepted is --figure sweep.png, or --out"
    assert refused("pareto", None, None, axes) == lacking
    ends = f"--figure {tmp_path / 'x.csv'}: a name that ends in .png, .svg or .pdf is accepted"
    assert refused("pareto", tmp_path / "x.csv", None, axes) == ends


def test_a_sweep_is_asked_for_stated_shown_and_drawn(handed, monkeypatch, tmp_path):
    file, found = tmp_path / "s.toml", Record(to_dict=lambda: "a document", feasible_count=1)
    file.write_text('model.name = "m"\ngpu = { name = "g", file = "f" }\nworkload.trace = "t.csv"\n')
    monkeypatch.setattr(sweep, "_show", lambda found, axes, base: (axes, base["model"]))
    monkeypatch.setattr(sweep, "_draw", lambda found, plot, path: (plot, path))
    out = tmp_path / "x.csv"
    line = ["sweep", str(file), "--axis", "tp=1,2", "--axis", "rate=3", "--out", str(out), "--plot", "curves"]
    assert main(line) == 0
    axes = {"tp": [1.0, 2.0], "rate_rps": [3.0]}
    scenario, given = handed.call.arguments
    assert given == axes and handed.call.options == {"output": "cost_usd_per_mtoken", "top": 10, "out": str(out)}
    base, traffic, engine, backend = scenario.arguments
    degrees = ("tp", "pp", "dp", "ep")
    assert {name: base[name] for name in (*degrees, "percentile")} == dict.fromkeys(degrees, 1) | {"percentile": 0.99}
    assert traffic.arguments[0].arguments == ("t.csv",) and backend == "vllm"
    assert engine.arguments == (256.0, 8192.0) and scenario.options == {"gpu_file": "f"}
    assert handed.inputs(found) == {"scenario": str(file), "axes": axes, "base": base}
    assert (handed.result(found), handed.feasible(found)) == ("a document", True)
    assert handed.show(found) == (axes, "m") and handed.write(found) == ("curves", tmp_path / "x.png")
    assert main([*line[:6], "--top", "0"]) == 2 and main([*line[:6], "--top", "1"]) == 0
    assert handed.call.options == {"output": "cost_usd_per_mtoken", "top": 1} and handed.write(found) == (None, None)
    (tmp_path / "z.zarr").mkdir()  # a format that is a folder
    assert main([*line[:6], "--out", str(tmp_path / "z.zarr")]) == 0 and main([*line[:6], "--out", str(tmp_path)]) == 2


def test_the_share_of_requests_that_keeps_the_slos_is_between_none_and_all():
    assert sweep.SloTable(percentile=0.01).percentile == 0.01 and sweep.SloTable(percentile=0.999).percentile == 0.999
    for wrong in (0.0, 1.0):
        with pytest.raises(ValueError, match="percentile"):
            sweep.SloTable(percentile=wrong)
