"""`dmodels place`: a mistake in the scenario is one line with the field's path; the answer as text, JSON and page."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace as Record

import numpy as np
import pytest

from dmodels.cli import main
from dmodels.cli.place import POOLED
from dmodels.report.text import table

EXAMPLE = Path(__file__).parents[2] / "examples" / "place.toml"

WRONG = {  # what the message says: (what is replaced, by what, where the message points)
    "a unit is missing": ('size = "320 GiB"', 'size = "320"', "tiers.hbm.size"),
    "has no unit": ('size = "512 GiB"', "size = 1", "tiers.dram.size"),
    "the nearest are": ("[tiers.dram]", "[tiers.ram]", "tiers.ram"),
    "is missing": ('bandwidth = "50 GB/s"', "", "tiers.dram.bandwidth"),
    "less than or equal to 1": ("hit_rate = 0.15", "hit_rate = 34", "target.hit_rate"),
    "greater than or equal to 1": ("workers = 8", "workers = 0", "sharing.workers"),
    "greater than or equal to 0": ("price = 5.0", "price = -5.0", "tiers.dram.price"),
    "first_token needs hit_rate": ("hit_rate = 0.15", 'first_token = "1 s"', "target"),
    "no engine runs the layout": ("tp = 4", "tp = 3", "parallel = tp 3"),
    "'h1000' is unknown": ('name = "h100_sxm"', 'name = "h1000"', "h1000"),
}


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Path:
    """120 requests: 30 prompts of eight blocks behind a common head, asked for four times each."""
    path = tmp_path_factory.mktemp("trace") / "small.jsonl"
    order = np.random.default_rng(0).permutation(np.repeat(np.arange(30), 4))
    rows = [
        {
            "timestamp": 500 * i,
            "input_length": 512 * 9,
            "output_length": 100,
            "hash_ids": [0, *(1 + 8 * int(p) + k for k in range(8))],
        }
        for i, p in enumerate(order)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def scenario(tmp_path, **changes) -> Path:
    """The example with sizes that suit a small trace, and texts replaced."""
    text = EXAMPLE.read_text()
    for old, new in {
        "320 GiB": "8 GiB",
        "512 GiB": "8 GiB",
        "256 GiB": "1 GiB",
        "hit_rate = 0.15": "hit_rate = 0.7",
        **changes,
    }.items():
        assert old in text
        text = text.replace(old, new, 1)
    path = tmp_path / "place.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("says", WRONG)
def test_a_mistake_is_one_line_with_the_path_of_the_field(says, tmp_path, capsys, trace):
    old, new, where = WRONG[says]
    text = EXAMPLE.read_text()
    assert old in text
    path = tmp_path / "place.toml"
    path.write_text(text.replace(old, new, 1))
    assert main(["place", str(path), "--trace", str(trace)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and where in error
    assert says in error


def test_a_trace_is_needed_and_must_have_blocks(tmp_path, capsys):
    without = tmp_path / "place.toml"
    without.write_text(EXAMPLE.read_text().replace('file = "data/mooncake_head.jsonl"', ""))
    assert main(["place", str(without)]) == 2
    assert "trace.file is missing; give it there or as --trace" in capsys.readouterr().err
    plain = tmp_path / "plain.csv"
    plain.write_text("time_s,input_tokens,output_tokens\n0,100,10\n1,100,10\n")
    assert main(["place", str(EXAMPLE), "--trace", str(plain)]) == 2
    assert "has no prefix blocks" in capsys.readouterr().err
    assert main(["place", str(EXAMPLE), "--trace", str(tmp_path / "none.jsonl")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["place", str(EXAMPLE), "--trace", str(plain), "--out", "x.doc"]) == 2


def test_the_answer_as_json_and_a_page(tmp_path, capsys, trace):
    page = tmp_path / "out" / "place.html"
    arguments = ["place", str(scenario(tmp_path)), "--trace", str(trace), "--json", "--out", str(page)]
    assert main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    result = document["result"]
    assert document["inputs"]["tiers"]["hbm"]["size"] == 8 * 2**30 and document["inputs"]["trace"]["file"] == str(trace)
    use = result["use"]
    assert (use["requests_count"], use["accesses_count"], use["blocks_count"], use["once_frac"]) == (120, 1080, 241, 0)
    assert use["ceiling_frac"] == pytest.approx(1 - 241 / 1080)
    assert result["cheapest"]["hit_frac"] >= 0.7 and result["cheapest"]["usd"] > 0
    assert len(result["sharing"]["layouts"]) == 3
    assert all(row["bound_s"] <= row["selfish_s"] <= row["isolated_s"] for row in result["pooled"])
    text = page.read_text()
    assert text.count("<svg") == 7 and "The pool as a game" in text and "What to buy" in text


def test_the_example_reads_the_trace_beside_it(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["place", str(EXAMPLE)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("600 requests, 16,495 block accesses") and "cheapest mix" in printed


def test_a_trace_named_as_a_flag_is_looked_for_where_the_command_runs(tmp_path, capsys, trace, monkeypatch):
    """Though one of that name lies beside the scenario, where one that the scenario names would be found first."""
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "mine.jsonl").write_text("of somebody else")
    (here / "mine.jsonl").write_bytes(Path(trace).read_bytes())
    monkeypatch.chdir(here)
    assert main(["place", str(scenario(tmp_path)), "--trace", "mine.jsonl", "--show-python"]) == 0
    assert "'mine.jsonl'" in capsys.readouterr().out.replace('"', "'")


def test_an_infeasible_target_exits_with_one_and_says_the_ceiling(tmp_path, capsys, trace):
    changes = {"hit_rate = 0.15": "hit_rate = 0.9", "workers = 8": "workers = 1"}
    assert main(["place", str(scenario(tmp_path, **changes)), "--trace", str(trace)]) == 1
    printed = capsys.readouterr().out
    assert "Infeasible: no memory reaches a hit rate of 90.0%: 22.3% of the block accesses are first uses" in printed
    assert "target.hit_rate = 0.776" in printed


def test_show_python_prints_a_call_that_gives_the_same(tmp_path, capsys, trace):
    path = scenario(tmp_path)
    assert main(["place", str(path), "--trace", str(trace), "--show-python"]) == 0
    shown = capsys.readouterr().out
    names = {}
    exec(compile(shown, "shown", "exec"), names)
    assert main(["place", str(path), "--trace", str(trace), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["result"]["first_token_s"] == names["answer"].first_token_s


def test_what_a_central_placement_saves_is_told_from_the_least_to_the_most():
    games = Record(name="all", isolated_s=4e-3, selfish_s=3e-3, coordinated_s=2e-3, bound_s=1e-3, pooling_frac=0.25)
    games.coordination_frac, games.coordination_most_frac = 0.0512, 0.3333
    _, head, [row] = table("", [games], POOLED)
    told = {"requests": "all", "alone [ms]": 4, "pool, each for itself [ms]": 3, "pool, run centrally [ms]": 2}
    told |= {"no less than [ms]": 1, "pooling saves": "25.0%", "central placement saves": "5.1% to 33.3%"}
    assert dict(zip(head, row, strict=True)) == told


def test_a_gib_costs_less_the_slower_its_tier():
    """By default; dollars per GiB as of 2025: DDR5 modules 3 to 10, NVMe 0.05 to 0.3, what is rented elsewhere none."""
    from dmodels.cli.place_scenario import PRICES

    assert PRICES["hbm"] > 3 * PRICES["dram"] and 3 <= PRICES["dram"] <= 10
    assert 0.05 <= PRICES["ssd"] <= 0.3 and PRICES["remote"] == 0
