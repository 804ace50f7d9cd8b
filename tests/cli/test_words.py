"""What commands say of themselves, which files they write, and how the rest of a server is known from its log."""

from __future__ import annotations

import io
import math
import re
from importlib import import_module
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace as Record

import numpy as np
import pytest
from rich.console import Console

from dmodels import catalog
from dmodels.cli import COMMANDS, main, plan, render
from dmodels.cli.catalog import _model_facts
from dmodels.cli.command import announce, check_output
from dmodels.cli.fit import _tables as _fit_tables
from dmodels.cli.plan_inputs import SloTable
from dmodels.cli.poa import NAMES, PoaAsked, _draw
from dmodels.cli.simulate import _show as _show_fleet
from dmodels.cli.simulate_server import ServerTable, _compared_rows, _played_rows, _show_compared, _show_played, _write
from dmodels.cli.split import _late
from dmodels.cli.sweep import SweepAsked
from dmodels.cli.sweep import _show as _show_sweep
from dmodels.cli.sweep_axes import read_axes
from dmodels.control import regime
from dmodels.core import extras
from dmodels.core.errors import InputError
from dmodels.report import style
from tests.audit.shown import terminal_tables

COMMON = {"with", "what", "that", "them", "each", "from", "this", "where", "which", "than", "many", "does", "says"}


def words(text):
    return {word[:6] for word in re.findall(r"[a-z/]{4,}", text.lower())} - {word[:6] for word in COMMON}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_of_a_command_is_of_its_own_help(name):
    """One other's first line at most (a related command's) has more of the same words, for its length."""
    own = words(COMMANDS[name])
    shared = {}
    for other in COMMANDS:
        its = words((import_module(f"dmodels.cli.{other.replace(' ', '_')}").__doc__ or "").partition("\n\n")[0])
        shared[other] = len(own & its) / len(own | its)
    assert shared[name] >= sorted(shared.values())[-2] and shared[name] > 0, shared


def test_no_two_commands_would_be_told_better_by_each_others_lines():
    said = {name: words(line) for name, line in COMMANDS.items()}
    helped = {name: words(import_module(f"dmodels.cli.{name.replace(' ', '_')}").__doc__) for name in COMMANDS}
    alike = lambda a, b: len(said[a] & helped[b]) / len(said[a])
    for a, b in combinations(COMMANDS, 2):
        assert alike(a, a) + alike(b, b) > alike(a, b) + alike(b, a), (a, b)


#: Option that names a file -> the command line before it, and the endings that are accepted.
WRITTEN = {
    "poa --plot": ("poa log.csv", [".png", ".svg", ".pdf"]),
    "step --out": ("step --model llama-3.1-8b --gpu h100_sxm", [".png", ".svg", ".pdf"]),
    "transfer --out": ("transfer s.toml", [".png", ".svg", ".pdf"]),
    "place --out": ("place p.toml", [".png", ".svg", ".html"]),
    "split --out": ("split d.toml", [".png", ".svg", ".html"]),
    "plan --out": ("plan", [".html", ".htm", ".parquet", ".arrow", ".csv"]),
}
SCENARIOS = {
    "s.toml": "",
    "p.toml": 'model.name="qwen3-8b"\ngpu.name="h200_sxm"\ntrace.file="t.jsonl"\ntiers.hbm={size="1 GiB"}\n',
    "d.toml": 'model.name="qwen3-8b"\ngpu={name="h200_sxm",count=4}\nworkload={isl=10,osl=5}\ntraffic.rate="1 req/s"\n'
    'slo={ttft="1 s",tpot="50 ms"}\n',
}


@pytest.mark.parametrize("option", WRITTEN)
def test_a_file_may_end_as_it_is_said_and_not_otherwise(option, handed, tmp_path, monkeypatch, capsys):
    for name, text in SCENARIOS.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    line, endings = WRITTEN[option]
    for ending in endings:
        assert main([*line.split(), option.split()[1], f"x{ending}"]) == 0, capsys.readouterr().err
    assert main([*line.split(), option.split()[1], "x.docx"]) == 2
    told = capsys.readouterr().err
    assert all(ending in told for ending in endings) and told.count("\n") == 1


def test_what_is_asked_of_the_catalogue_is_stated(capsys, monkeypatch):
    seen = []
    monkeypatch.setattr(render, "as_json", lambda command, inputs, result: seen.append((command, inputs, result)) or "")
    assert main(["catalog", "fabrics", "--json"]) == 0
    command, inputs, result = seen[0]
    assert command == "catalog" and inputs["what"] == "fabrics" and list(result) == ["fabrics"]


def test_regimes_have_the_names_of_the_paper():
    """Of its detector: TTFT P99 at the idle system's, a little above it for a while, and far above it."""
    params = regime.detector(1.0, samples=1)
    state, seen = regime.init(), []
    for p99 in [1.0] * 5 + [50.0] * 40:
        state, now = regime.update(state, p99, params)
        seen.append(NAMES[int(now)])
    assert seen[0] == "below" and seen[-1] == "saturated" and NAMES[1] == "transition"
    assert PoaAsked(log="x").limit == 20  # rows that are shown of many


def test_whole_numbers_of_an_axis_are_the_nearest():
    assert read_axes(["tp=1:10:log:4"]) == {"tp": [1, 2, 5, 10]}


def test_words_are_broken_as_soon_as_there_is_room_for_the_longest():
    head, rows = ["one", "another"], [["alpha beta", "gamma deltaepsilon"], ["zeta", "eta"]]
    least = len("alpha") + len("deltaepsilon") + 3 * 2 + 1
    for width, fits in ((least - 1, False), (least, True), (least + 1, True)):
        console = Console(file=io.StringIO(), width=width)
        assert (render._broken(render._grid("", head, rows), console) is not None) == fits


def test_a_server_is_started_as_its_log_says_unless_flags_say_otherwise():
    log = {"model": "qwen3-8b", "max_num_seqs": "48", "max_num_batched_tokens": 2048.0, "tensor_parallel_size": 4}
    log |= {"release": 0.9}
    options = lambda **own: ServerTable.model_construct(**own).server(2, log)
    of_log = options(gpu="h100_sxm")
    assert of_log.arguments[:2] == ("qwen3-8b", "h100_sxm") and of_log.arguments[2].options["tp"] == 4
    told = {name: of_log.options[name] for name in ("max_num_seqs", "max_num_batched_tokens", "release", "instances")}
    assert told == {"max_num_seqs": 48, "max_num_batched_tokens": 2048, "release": "0.9", "instances": 2}
    own = options(model="llama-3.1-8b", gpu="h100_sxm", tp=8, max_num_seqs=16, backend="sglang", utilization_frac=0.8)
    assert own.arguments[0] == "llama-3.1-8b" and own.arguments[2].options["tp"] == 8
    assert own.options["max_num_seqs"] == 16 and own.options["utilization"] == 0.8 and "release" not in own.options
    assert "utilization" not in of_log.options and own.options["max_num_batched_tokens"] == 2048


def test_requests_of_servers_are_written_to_six_digits_and_laws_told_in_their_units(tmp_path, capsys):
    rows = [{"name": "a", "arrival_s": 123.4567891, "ttft_s": math.nan, "output_tokens": 1_234_567}]
    _write(tmp_path / "x.csv", rows)
    assert (tmp_path / "x.csv").read_text() == "name,arrival_s,ttft_s,output_tokens\na,123.457,,1234567\n"
    law = lambda base, apart: Record(base_s=base, per_request_s=2.5e-5, per_prompt_token_s=7.5e-6, apart_frac=apart)
    metric = Record(name="TTFT", simulated_s=0.5, measured_s=0.4, error_frac=0.25)
    found = Record(requests_count=1200, metrics=[metric], measured_law=law(8e-3, 0.031), simulated_law=law(4e-3, 0.072))
    _show_compared(Record(name="one"), Record(**vars(found), slower=1.234))
    shown = capsys.readouterr().out
    assert "1,200 requests on one" in shown and "+25.0%" in shown
    ((row,),) = terminal_tables(shown).values()
    assert row == {"metric": "TTFT", "simulated": "0.5", "measured": "0.4", "error": "+25.0%"}
    each = "25 us a request that decodes + 7.5 us a prompt token"
    apart = "of the duration between their tokens)"
    assert f"a step of 8 ms + {each} would explain the log (3.1% {apart}" in shown
    assert f"a step of 4 ms + {each} is the calibrated one (7.2% {apart}" in shown
    assert "the calibrated steps, 1.23 times as long, come closest to the log" in shown


def test_servers_that_were_played_say_what_they_hold_and_what_became_of_the_requests(capsys):
    policy = lambda name, slots: Record(name=name, slots=slots, step_tokens=4096, kv_blocks=5000, block_tokens=16)
    servers = [Record(instances=k + 2, name=f"server {k}", policy=policy(f"scheduler {k}", 64 + k)) for k in (0, 1)]
    late = Record(value=0.5, low=0.25, high=0.75, flags=0)
    found = Record(labels=["all"], pools=[{"ttft_mean_s": late}], source="t.csv", rate_rps=7.0)
    _show_played(servers, Record(**vars(found), requests_count=1200, cut_count=34, restarts_count=5))
    *shown, first, second, told = capsys.readouterr().out.strip().splitlines()
    assert "t.csv at 7 req/s on 2 x server 0 + 3 x server 1" in " ".join(" ".join(shown).split())
    assert first == "scheduler 0: up to 64 requests and 4,096 tokens in a step, room for 80,000 tokens"
    assert second == "scheduler 1: up to 65 requests and 4,096 tokens in a step, room for 80,000 tokens"
    left = "1,200 requests, 34 left out as warm-up and end"
    assert told == f"{left}; 5 times a request gave way and was computed again"


def test_a_fleet_of_two_kinds_is_told_with_how_many_there_are_of_each(capsys):
    kinds = Record(prefill_instances=2, instances=3, standby_instances=1, disaggregated=True, policy=None)
    late = Record(value=0.5, low=0.25, high=0.75, samples=9, flags=0)
    _show_fleet(Record(**vars(kinds), traffic="mooncake"), {"all": {"ttft_mean_s": late}}, 7.0)
    kinds.disaggregated, kinds.short_instances, kinds.slots, kinds.short_slots = False, 4, 5, 6
    _show_fleet(Record(**vars(kinds), traffic="mooncake"), {"all": {"ttft_mean_s": late}}, 7.0)
    shown = " ".join(capsys.readouterr().out.split())
    assert "mooncake at 7 req/s on 2 prefill + 3 decode + 1 standby, phasor" in shown
    assert "mooncake at 7 req/s on 4 x 6 + 3 x 5 slots, jsq" in shown


def test_every_request_of_a_server_is_written_with_what_it_asked_and_when_it_was_answered():
    """Of request k of a list every figure is its own; what is simulated is no more than half of what was measured."""
    times = {f"{name}_s": np.array([n, n + 0.5]) for n, name in enumerate(("arrival", "ttft", "tpot", "e2e", "wait"))}
    served = Record(output_tokens=np.array([7, 8]), restarts=np.array([0, 3]), **times)
    asked = np.array([100, 200])
    row = {"input_tokens": 200, "output_tokens": 8, "arrival_s": 0.5, "ttft_s": 1.5, "tpot_s": 2.5, "e2e_s": 3.5}
    _, found = _played_rows(Record(labels=["all"], served=[(asked, served)]))
    assert found == row | {"pool": "all", "wait_s": 4.5, "restarts": 3}
    quick = Record(**{name: values / 2 for name, values in times.items()})
    log = Record(ids=["a", "b"], input_tokens=asked)
    _, found = _compared_rows(Record(log=log, measured=served, simulated=quick))
    told = {f"measured_{name}": row.pop(name) for name in ("ttft_s", "tpot_s", "e2e_s")}
    told |= {name.replace("measured", "simulated"): value / 2 for name, value in told.items()}
    assert found == row | told | {"request_id": "b"}


def test_one_column_of_a_trace_tells_classes_apart():
    kinds = lambda *of: SloTable(classes=[{"name": f"c{k}", "of": one} for k, one in enumerate(of)]).label
    assert kinds("team=a", "team=b") == "team" and kinds("") == ""
    with pytest.raises(InputError, match="by team and tier: one column is accepted"):
        kinds("tier=1", "team=b")


def test_shares_that_nobody_can_measure_are_not_told_digit_by_digit():
    assert [_late(x) for x in (0.0, 9.9e-6, 1e-5, 0.25)] == ["0%", "under 0.001%", "0.001%", "25%"]


def test_a_sweep_goes_out_from_what_its_file_says():
    given = {"model": {"name": "qwen3-8b"}, "gpu": {"name": "l40s"}, "workload": {"isl": 10, "osl": 5}}
    given |= {"slo": {"ttft": "1 s", "e2e": "9 s"}, "parallel": {"tp": 2}, "traffic": {"rate": "3 req/s"}}
    base = SweepAsked.model_validate(given).base()
    expected = {"model": "qwen3-8b", "gpu": "l40s", "input_tokens": 10, "output_tokens": 5, "tp": 2, "pp": 1, "dp": 1}
    expected |= {"ep": 1, "weights": "as published", "kv": "as published", "rate_rps": 3, "ttft_slo_s": 1}
    assert base == expected | {"e2e_slo_s": 9, "percentile": 0.99}  # no bound on TPOT was given


def test_a_plan_is_written_as_it_can_be_asked_again(monkeypatch, tmp_path):
    seen = {}
    monkeypatch.setattr(plan, "answer", lambda asked, form, again, **how: seen.update(again=again, **how) or 0)
    line = ["plan", "--rate", "20 req/s", "--no-sensitivity", "--out", "a page.html"]
    monkeypatch.setattr("sys.argv", ["dmodels", *line])
    assert main(line) == 0
    assert seen["again"] == "dmodels plan --rate '20 req/s' --no-sensitivity --out 'a page.html'"
    assert (seen["sensitivity"], seen["ensure"], seen["verify"], str(seen["out"])) == (
        False,
        None,
        False,
        "a page.html",
    )
    assert main(["plan", "--deploy", "kubernetes", "--out", str(tmp_path / "folder"), "--verify", "--ensure"]) == 0
    tools = seen["tools"]
    assert (tools.form, tools.folder, seen["out"]) == ("kubernetes", tmp_path / "folder", None)
    assert (seen["verify"], seen["ensure"], seen["solve_for"], seen["sensitivity"]) == (True, True, None, True)


def test_a_report_is_written_as_it_can_be_asked_again(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(
        plan, "answer", lambda asked, form, again, **how: seen.append((again, str(how["out"]), how)) or 0
    )
    monkeypatch.chdir(tmp_path)
    Path("a plan.toml").write_text("")
    assert main(["report", "a plan.toml", "--out", "page.html"]) == 0 == main(["report", "a plan.toml"])
    asked = "dmodels report 'a plan.toml' --out "
    assert [one[:2] for one in seen] == [(f"{asked}page.html", "page.html"), (f"{asked}'a plan.html'", "a plan.html")]
    for *_, how in seen:
        assert (how["sensitivity"], how["ensure"], how["verify"]) == (True, None, False)


def test_formats_say_what_reads_and_what_writes_them(capsys):
    assert main(["formats"]) == 0
    (lines,) = terminal_tables(capsys.readouterr().out).values()
    found = {line["format"]: line for line in lines}
    assert "--deploy" in found["kserve"]["written by"] and "--from-deployment" in found["kserve"]["read by"]
    assert "--deploy" not in " ".join(line["read by"] for line in lines)
    assert "--from-deployment" not in " ".join(line["written by"] for line in lines)


def test_what_readers_want_to_be_known_is_said_once_with_the_name_of_the_file(capsys):
    trace = Record(name="t.csv", notices=("3 lines dropped", "sorted"))
    announce(Record(values=lambda: [trace, Record(other=1), trace]))
    assert capsys.readouterr().err == "dmodels: t.csv: 3 lines dropped\ndmodels: t.csv: sorted\n"


def test_what_a_file_to_write_lacks_is_told_behind_its_option(monkeypatch, tmp_path):
    for given, lacks in (
        (tmp_path, "a folder; the name of a file is accepted"),
        (tmp_path / "x.gif", "a name that ends in .png, .pdf or .svg is accepted"),
    ):
        with pytest.raises(InputError) as told:
            check_output("plot", given, ".png", ".pdf", ".svg")
        assert str(told.value) == f"--plot {given}: {lacks}"
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(InputError) as told:
        check_output("plot", tmp_path / "x.png", ".png", ".svg")
    assert str(told.value) == f"--plot {tmp_path / 'x.png'} needs matplotlib: pip install 'dmodels[report]'"


def test_the_index_is_drawn_over_the_ends_of_its_windows(monkeypatch, tmp_path):
    drawn, save = [], style.save
    monkeypatch.setattr(style, "save", lambda made, *more, **how: (drawn.append(made), save(made, *more, **how)))
    windows = Record(end_s=np.array([10.0, 20.0, 30.0]), index=Record(poa_hat=np.array([1.5, 2.5, 4.5])))
    _draw(Record(windows=windows, regime=np.array([0, 1, 2])), tmp_path / "x.svg")
    line = drawn[0].axes[0].lines[0]
    assert line.get_xdata().tolist() == [10, 20, 30] and line.get_ydata().tolist() == [1.5, 2.5, 4.5]


def test_a_sweep_without_a_point_that_fits_says_what_all_points_have_in_common(capsys):
    found = Record(explanation="None of 4 points.", best=[])
    _show_sweep(found, {"tp": [1, 2]}, {"model": "qwen3-8b", "tp": 1, "pp": 3})
    assert capsys.readouterr().out == "None of 4 points.\nOf every point: model = qwen3-8b, pp = 3\n"


def test_numbers_stand_at_the_right_where_a_column_has_nothing_else():
    rows = [["a", 1.0, "-", 3], ["b", 20, 4.0, "5"]]
    grid = render._grid("", ["name", "number", "mixed", "text"], rows)
    assert [column.justify for column in grid.columns] == ["left", "right", "left", "left"]


def test_a_model_by_the_name_of_its_publisher_is_the_catalogues():
    entry = catalog.models()["llama-3.1-8b"]
    found = _model_facts(entry["hf_id"], catalog.model(entry["hf_id"]))
    assert found["name"] == "llama-3.1-8b" and (found["hf_id"], found["source"]) == (entry["hf_id"], entry["source"])
    assert found["params_count"] == 8_030_261_248 and found["kv_bytes_per_token"] == 131_072


@pytest.mark.parametrize("machines", [1, 4, 5])
def test_efficiencies_of_every_machine_are_shown_four_to_a_table(machines):
    cells = [
        {"gpu": f"gpu{k}", "backend": "vllm", "precision": "bf16", "bandwidth_frac": 0.51234 + k, "flops_frac": 0.25}
        for k in range(machines)
    ]
    errors = {metric: Record(count=9, median=0.01, p90=0.02) for metric in ("ttft", "tpot")}
    found = Record(before=errors, after=errors, held_out=errors, table=cells, sweeps=[], outliers=[])
    found.spread80 = {"ttft": (0.51239, 2.0), "tpot": (0.75, 1.5)}
    first, *tables, factors = _fit_tables(found)
    assert first[2] == [[name, 9, *["1.0 %"] * 3, *["2.0 %"] * 3] for name in ("ttft", "tpot")]
    heads, rows = [head for _, head, _ in tables], [row for _, _, row in tables]
    assert [name for head in heads for name in head[1:]] == [f"gpu{k} vllm bf16" for k in range(machines)]
    assert [len(head) for head in heads] == {1: [2], 4: [5], 5: [5, 2]}[machines]
    bandwidth, flops = ([value for row in rows for value in row[k][1:]] for k in (0, 1))
    assert bandwidth == [round(0.512 + k, 3) for k in range(machines)] and flops == [0.25] * machines
    assert all([values[0] for values in row] == ["bandwidth_frac", "flops_frac"] for row in rows)
    assert factors[2] == [["ttft", 0.512, 2.0], ["tpot", 0.75, 1.5]]
