"""`dmodels transfer`: a scenario in, tables, JSON and a figure out; bad scenarios are one line and exit code 2."""

import io
import json
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from dmodels.cli import command, main, transfer
from dmodels.control.netkv import POLICIES
from dmodels.report import style, transfer_figures

SMALL = """
[simulation]
runs = 2
warmup = "3 s"
measure = "8 s"
contexts = [4096, 65536]
[traffic]
rate = "4 req/s"
"""


@pytest.fixture
def scenario(tmp_path):
    def write(text=SMALL):
        path = tmp_path / "scenario.toml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


def test_json_holds_inputs_and_all_five_answers(scenario, capsys, tmp_path, monkeypatch):
    """And a figure is written; the tables are audited with every answer (`tests/audit/tables.py`)."""
    figure, drawn, save = tmp_path / "sheet.png", [], style.save
    monkeypatch.setattr(style, "save", lambda made, *more, **how: (drawn.append(made), save(made, *more, **how)))
    assert main(["transfer", scenario(), "--json", "--out", str(figure)]) == 0
    assert figure.read_bytes()[:4] == b"\x89PNG" and figure.stat().st_size > 20_000
    document = json.loads(capsys.readouterr().out)
    assert document["inputs"]["traffic"]["rate"] == 4 and document["inputs"]["fabric"]["tiers"][3] == 12.5e9 / 8
    result = document["result"]
    assert "stale telemetry, tiers 2:1" in [axes.get_title() for axes in drawn[0].axes]  # the pods' uplinks are halved
    assert result["kv_bytes_per_token"] == 327680
    share = {(r["context_tokens"], r["tier"]): r for r in result["share"]}
    assert share[65536, 3]["transfer_s"] == pytest.approx(65536 * 327680 / (4 * 12.5e9 / 8), rel=1e-4)
    assert len(result["policies"]) == len(POLICIES) and all(r["served_frac"] == 1 for r in result["policies"])
    by_name = {r["policy"]: r for r in result["policies"]}
    assert by_name["NETKV_FULL"]["transfer_mean_s"] < by_name["CACHE_LOAD"]["transfer_mean_s"]
    saved = {r["upgrade"]: r["ttft_saved_frac"] for r in result["upgrades"]}
    assert saved["as it is"] == 0 and saved["pod uplinks x2 speed"] > saved["rack uplinks x2 speed"] > 0
    assert result["staleness"][0]["bandwidth_tolerance"] == pytest.approx(1 / 3)  # 2:1, idle
    assert result["oblivious_choice"][0]["ratio_limit"] == pytest.approx(1.0)  # half a hit across a 2:1 gap


def test_a_dead_tier_is_a_sentence_and_exit_code_1(scenario, capsys):
    text = SMALL + '[fabric]\ntiers = ["450 GB/s", "50 Gbit/s", "25 Gbit/s", "0 Gbit/s"]\n'
    assert main(["transfer", scenario(text)]) == 1
    shown = capsys.readouterr().out
    assert "pod uplinks have no bandwidth" in shown
    titles = [shown.index(head) for head in ("Share of TTFT", "Policies on", "Which upgrade pays", "How stale telem")]
    assert titles == sorted(titles)  # as the help of the command names them
    for dtype, bits in (("fp8", 8), ("fp4", 4.5)):  # four bits, and a scale of 8 for 16 numbers
        assert main(["transfer", scenario(text + f'[model]\nkv_dtype = "{dtype}"\n'), "--json"]) == 1
        assert json.loads(capsys.readouterr().out)["result"]["kv_bytes_per_token"] == 327680 * bits / 16


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[fabric\n", "not TOML"),
        ('[fabric]\ntiers = ["1 GB/s", "1 GB/s"]', "fabric.tiers"),
        ('[fabric]\nnic = "50 Gb"', "unit 'Gb' is not one of"),
        ("[fabric]\nnic = 50", "has no unit"),
        ("[fabric]\npods = 0", "fabric.pods = 0:"),
        ("[fabric]\nspeed = 1", "fabric.speed is unknown"),
        ("[pools]\nprefill_instances = 16", "one instance at least must decode"),
        ("[telemetry]\nbackground = 1.0", "telemetry.background"),
        ("[traffic]\nmin_tokens = 9\nmax_tokens = 5", "min_tokens 9 is above max_tokens 5"),
        ("[traffic]\nmin_tokens = 5e7\nmax_tokens = 6e7", "accepted: bounds that some prompt"),
        ('[model]\nname = "llama-99"', "'llama-99' is unknown"),
        ('[traffic]\nworkload = "nothing"', "'nothing'"),
    ],
)
def test_bad_scenarios_are_one_line_and_exit_code_2(scenario, capsys, text, says):
    assert main(["transfer", scenario(text)]) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1 and "Traceback" not in err


def test_missing_files_and_wrong_endings(scenario, capsys, tmp_path):
    assert main(["transfer", str(tmp_path / "none.toml")]) == 2
    assert main(["transfer", scenario(), "--out", str(tmp_path / "a.txt")]) == 2
    assert ".png" in capsys.readouterr().err


def test_show_python_prints_what_runs(scenario, capsys):
    path = scenario()
    assert main(["transfer", path, "--show-python"]) == 0
    space, printed = {}, capsys.readouterr().out
    assert "'rate'" in printed and "pods" not in printed  # what the file says, and nothing that goes without saying
    exec(printed, space)
    assert space["answer"].kv_bytes_per_token == 327680


def test_ports_within_a_rack_have_the_speed_of_the_second_tier():
    from dmodels.studies.transfer import TransferScenario

    tiers = {"tiers": ["450 GB/s", "50 Gbit/s", "25 Gbit/s", "12.5 Gbit/s"]}
    port = lambda fabric: TransferScenario.model_validate({"fabric": fabric}).fabric.port
    assert (port({}), port(tiers), port(tiers | {"port": "400 Gbit/s"})) == (50e9, None, 50e9)


TIERS = ["450 GB/s", "50 Gbit/s", "25 Gbit/s", "12.5 Gbit/s"]
UPGRADED = {
    "KV cache in 8 bits": ("model", 'kv_dtype = "fp8"'),
    "host ports and NIC x2": ("fabric", 'nic = "100 Gbit/s"\nport = "800 Gbit/s"'),
    "rack uplinks x2 speed": ("fabric", f'tiers = {[*TIERS[:2], "50 Gbit/s", TIERS[3]]}\nport = "400 Gbit/s"'),
    "pod uplinks x2 speed": ("fabric", f'tiers = {[*TIERS[:3], "25 Gbit/s"]}\nport = "400 Gbit/s"'),
    "pod uplinks x2 number": ("fabric", "pod_uplinks = 256"),
}


@pytest.mark.parametrize("upgrade", UPGRADED)
def test_an_upgrade_is_worth_what_a_study_of_the_upgraded_cluster_says(scenario, capsys, upgrade):
    def asked(table="", line=""):
        text = SMALL.replace('"4 req/s"', '"12 req/s"')  # where a little more bandwidth shows
        more = {"fabric": 'nic = "50 Gbit/s"'} if "NIC" in upgrade else {}
        more |= {table: line} if table else {}
        text += "".join(f"[{name}]\n{lines}\n" for name, lines in more.items())
        assert main(["transfer", scenario(text), "--json"]) == 0
        return {row["upgrade"]: row for row in json.loads(capsys.readouterr().out)["result"]["upgrades"]}

    before, after = asked(), asked(*UPGRADED[upgrade])
    said, found = before[upgrade], after["as it is"]
    assert {key: said[key] for key in ("ttft_mean_s", "transfer_mean_s", "slo_frac")} == pytest.approx(
        {key: found[key] for key in ("ttft_mean_s", "transfer_mean_s", "slo_frac")}, rel=1e-9
    )
    assert said["ttft_saved_frac"] == pytest.approx(1 - found["ttft_mean_s"] / before["as it is"]["ttft_mean_s"])
    if "number" not in upgrade:
        assert found["transfer_mean_s"] < before["as it is"]["transfer_mean_s"]


def test_a_terminal_hears_of_the_program_while_the_study_is_imported(monkeypatch, tmp_path):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    heard, run = [], command.Code.run

    def noted(code):
        heard.append("dmodels-progress" in {thread.name for thread in threading.enumerate()})
        return run(code)

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(command.Code, "run", noted)
    (tmp_path / "empty.toml").write_text("")
    assert main(["transfer", str(tmp_path / "empty.toml"), "--show-python"]) == 0
    assert heard[0]


#: Of each table a row whose numbers all differ, and what must stand under which head.
SHOWN = {
    "SHARE": (
        {"context_tokens": 4096, "tier": 2, "prefill_s": 0.5, "transfer_s": 0.25, "share_frac": 0.3}
        | {"pipelined_share_frac": 0.125},
        {"context": 4096, "tier": 2, "prefill s": 0.5, "transfer s": 0.25, "share %": 30, "layer by layer %": 12.5},
    ),
    "POLICIES": (
        {"policy": "LOAD", "served_frac": 0.9, "slo_frac": 0.8, "ttft_mean_s": 1.5, "ttft_se_s": 0.1}
        | {"ttft_p99_s": 4.0, "transfer_mean_s": 0.3, "tbt_mean_s": 0.02, "tier_2_frac": 0.4, "tier_3_frac": 0.6}
        | {"ttft_vs_first_frac": 0.07, "ttft_vs_first_se_frac": 0.03},
        {"policy": "LOAD", "served %": 90, "SLO %": 80, "TTFT s": 1.5, "TTFT +- s": 0.1, "P99 s": 4.0}
        | {"transfer s": 0.3, "TBT ms": 20, "tier 2 %": 40, "tier 3 %": 60, "saved %": 7, "saved +- %": 3},
    ),
    "UPGRADES": (
        {"upgrade": "as it is", "served_frac": 0.9, "ttft_mean_s": 1.5, "transfer_mean_s": 0.3}
        | {"ttft_saved_frac": 0.2},
        {"change": "as it is", "served %": 90, "TTFT s": 1.5, "transfer s": 0.3, "TTFT saved %": 20},
    ),
    "STALENESS": (
        {"fast_tier": 2, "slow_tier": 3, "far_hit_frac": 0.5, "bandwidth_tolerance": 0.25, "cost_tolerance": 0.125}
        | {"regret_at_twice_s": 0.4, "refresh_s": 7.0},
        {"tiers": "2 or 3", "hit on the slower": 0.5, "order of bandwidths": 0.25, "order of costs": 0.125}
        | {"regret at twice s": 0.4, "refresh s": 7.0},
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_every_number_stands_under_its_own_head(name):
    row, wanted = SHOWN[name]
    _, head, (cells,) = transfer.table("", [SimpleNamespace(**row)], getattr(transfer, name))
    assert dict(zip(head, cells, strict=True)) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("tiers", "ratio"), [((2, 3), 5.0), ((3, 1, 1, 3), 20.0), ((3,), 1.0), ((0, 2), 9.0), ((2, 4), 1.0)]
)
def test_the_picture_is_of_the_two_slowest_tiers_and_the_telemetrys_noise(tiers, ratio, monkeypatch):
    """A dead tier has no ratio."""
    drawn, saved = [], []
    monkeypatch.setattr(transfer_figures, "overview", lambda *given: drawn.append(given) or "sheet")
    monkeypatch.setattr(style, "save", lambda *given, **how: saved.append(given))
    found = SimpleNamespace(tier_bytes_per_s=[450.0, 200.0, 50.0, 10.0, 0.0], policies="policies", upgrades="upgrades")
    found.share = [SimpleNamespace(tier=tier) for tier in tiers]
    asked = SimpleNamespace(telemetry=SimpleNamespace(std=0.05, correlation_time=40.0))
    transfer._draw(found, asked, None)
    assert not saved
    transfer._draw(found, asked, Path("sheet.png"))
    assert drawn == [(found.share, "policies", "upgrades", ratio, 0.05, 40.0)] and saved == [
        ("sheet", Path("sheet.png"))
    ]


def test_what_is_not_served_is_that_of_the_policy_that_serves_least(monkeypatch, capsys):
    monkeypatch.setattr(transfer.render, "show", lambda tables: None)
    monkeypatch.setattr(transfer, "table", lambda *parts: parts)
    found = SimpleNamespace(problems=["a tier is dead"], share=[], upgrades=[], staleness=[])
    told = []
    for shares in ((1.0, 1.0), (1.0, 0.875, 0.9)):
        found.policies = [SimpleNamespace(served_frac=share) for share in shares]
        transfer._show(found)
        told.append(capsys.readouterr().out.splitlines())
    few = "note: as few as 87.5 % of the requests are served; means are over those alone"
    assert told == [["problem: a tier is dead"], ["problem: a tier is dead", few]]


def test_a_study_of_transfers_is_asked_for_stated_shown_and_drawn(handed, scenario, monkeypatch, tmp_path):
    monkeypatch.setattr(transfer, "_draw", lambda *given: given)
    out, found = tmp_path / "x.pdf", SimpleNamespace(to_dict=lambda: "a document")
    assert main(["transfer", scenario(), "--out", str(out)]) == 0
    answer, asked, path = handed.write("answer")
    assert (answer, path) == ("answer", out) and handed.inputs(found) == asked.model_dump()
    assert (handed.result(found), handed.show) == ("a document", transfer._show)
    for problems, shares, feasible in (([], (0.0, 0.5), True), ([], (0.0, 0.0), False), (["dead"], (1.0, 1.0), False)):
        policies = [SimpleNamespace(served_frac=share) for share in shares]
        assert handed.feasible(SimpleNamespace(problems=problems, policies=policies)) is feasible
    (given,) = handed.call.arguments
    assert handed.call.target == "dmodels.studies.transfer:study"
    assert given.target == "dmodels.studies.transfer:TransferScenario.model_validate"
    assert given.arguments[0]["traffic"]["rate"] == 4.0 and "pools" not in given.arguments[0]


def test_tables_of_transfers_have_their_columns_in_this_order(monkeypatch):
    heads = {
        "SHARE": "context, tier, prefill s, transfer s, share %, layer by layer %",
        "POLICIES": "policy, served %, SLO %, TTFT s, TTFT +- s, P99 s, transfer s, TBT ms, tier 2 %, tier 3 %, "
        "saved %, saved +- %",
        "UPGRADES": "change, served %, TTFT s, transfer s, TTFT saved %",
        "STALENESS": "tiers, hit on the slower, order of bandwidths, order of costs, regret at twice s, refresh s",
    }
    assert {name: ", ".join(getattr(transfer, name)) for name in heads} == heads
    shown = []
    monkeypatch.setattr(transfer.render, "show", shown.extend)
    monkeypatch.setattr(transfer, "table", lambda *parts: parts)
    parts = {"share": "s", "upgrades": "u", "staleness": "t", "problems": []}
    found = SimpleNamespace(**parts, policies=[SimpleNamespace(served_frac=1.0)])
    transfer._show(found)
    share = "Share of TTFT: KV sent after prefill, or layer by layer; one transfer at a time"
    assert shown == [
        (share, "s", transfer.SHARE),
        ("Policies on the same requests and the same ECMP draws", found.policies, transfer.POLICIES),
        ("Which upgrade pays: each change alone", "u", transfer.UPGRADES),
        ("How stale telemetry may be, for a prompt of median length", "t", transfer.STALENESS),
    ]
