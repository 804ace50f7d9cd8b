"""`dmodels place`: a mistake in the scenario is one line with the field's path; the answer as text, JSON and page."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace as Record

import numpy as np
import pytest

from dmodels.cli import main, place
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


@pytest.mark.slow  # in CI as `make docs-check`: the gallery shows it
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


def placed(**more):
    """An answer whose numbers all differ; policies were replayed at sizes that LRU was evaluated at among others."""
    tier = {"blocks_count": 640, "block_mib": 512.0, "usd_per_gib": 5.0}
    tiers = [
        Record(tier="HBM", size_gib=320.0, read_s=1e-4, served_frac=0.2, **tier),
        Record(tier="remote", size_gib=math.inf, read_s=3e-3, served_frac=0.55, **tier),
    ]
    blocks, replayed = [1, 2, 3, 4, 5, 6, 7, 8], [2, 4, 6, 8]
    of = lambda k, many: np.array([k + x / 100 for x in many])
    curves = Record(blocks=np.array(blocks), replayed_blocks=np.array(replayed), belady_frac=of(1, blocks))
    curves.usable_frac, curves.shuffled_frac = of(2, blocks), of(5, blocks)
    curves.kvbm_usable_frac, curves.lfu_usable_frac = of(3, replayed), of(4, replayed)
    curves.recomputed_flop, curves.prefill_s = 1e12 * of(6, blocks), of(7, blocks) / 1e3
    known = {"feasible": True, "problem": "", "tiers": tiers, "curves": curves, "access_s": 0.0123, "vary": "vary"}
    known |= {"use": Record(requests_count=1200, accesses_count=34_000), "first_token_s": 0.4567, "mix": None}
    known |= {"recomputed_flop": 9e12, "promotion": "promotion", "purchases": [], "sharing": None, "pooled": []}
    return Record(**known | {"notes": ["a note"]} | more)


def rows_of(shown):
    title, head, rows = shown
    return title, [dict(zip(head, row, strict=True)) for row in rows]


def test_tiers_are_told_as_they_are_and_caches_by_every_second_size_and_the_largest():
    tiers, sizes = map(rows_of, place._tables(placed()))
    hbm = {"tier": "HBM", "size [GiB]": 320, "blocks": 640, "read a block [ms]": 0.1, "serves": 0.2}
    remote = {"tier": "remote", "size [GiB]": math.inf, "blocks": 640, "read a block [ms]": 3, "serves": 0.55}
    assert tiers[0] == "Tiers as they are" and tiers[1][0] == hbm | {"price [$/GiB]": 5}
    assert [list(row.values()) for row in tiers[1]][1] == [*remote.values(), 5]
    assert [list(row) for row in tiers[1]] == [[*hbm, "price [$/GiB]"]] * 2
    told = lambda n: {
        "blocks": n,
        "GiB": n / 2,
        "optimum": 1 + n / 100,
        "LRU": 2 + n / 100,
        "KVBM": 3 + n / 100,
        "LFU": 4 + n / 100,
        "Che, shuffled": 5 + n / 100,
        "recomputed [TFLOP/request]": 6 + n / 100,
        "prefill [ms]": 7 + n / 100,
    }
    assert sizes[0] == "By cache size" and [row["blocks"] for row in sizes[1]] == [2, 6, 8]
    for row in sizes[1]:
        assert row == pytest.approx(told(row["blocks"])) and list(row) == list(told(1))


def test_what_could_be_bought_shared_and_pooled_stands_in_this_order():
    buy = lambda name, **added: Record(
        name=name, added_gib=added, usd=12.5, hit_frac=0.3, first_token_s=0.25, saved_usd_per_hour=0.75, payback_h=17.0
    )
    layout = Record(name="apart", hit_frac=0.4, first_token_s=0.125, ceiling_frac=0.6, equal_blocks=99)
    layout.saved_usd_per_hour = 1.25
    games = Record(name="all", isolated_s=4e-3, selfish_s=3e-3, coordinated_s=2e-3, bound_s=1e-3, pooling_frac=0.25)
    games.coordination_frac, games.coordination_most_frac = 0.0512, 0.3333
    sharing = Record(workers=8, layouts=[layout])
    full = placed(purchases=[buy("SSD", SSD=1500.0)], mix=buy("mix", HBM=1.5, DRAM=20_000.0), sharing=sharing)
    full.pooled = [games]
    _, _, bought, shared, pooled = map(rows_of, place._tables(full))
    of = {"price [$]": 12.5, "hit rate": 0.3, "first token [ms]": 250, "saves [$/h]": 0.75, "paid back [h]": 17}
    assert bought == (
        "What to buy",
        [{"buy": "mix", "GiB": "1.5 HBM, 2e+04 DRAM"} | of, {"buy": "SSD", "GiB": "1,500 SSD"} | of],
    )
    assert list(bought[1][0]) == ["buy", "GiB", *of]
    layouts = {"layout": "apart", "hit rate": 0.4, "first token [ms]": 125, "ceiling": 0.6}
    layouts |= {"blocks for the pool's hits": 99, "saves [$/h]": 1.25}
    assert shared == ("HBM of 8 workers", [layouts]) and list(shared[1][0]) == list(layouts)
    assert pooled[0] == "The pool as a game: mean read of a block used before" and pooled[1][0]["requests"] == "all"
    assert [list(row) for row in pooled[1]] == [list(POOLED)]
    full.mix = None
    assert [row["buy"] for row in rows_of(place._tables(full)[2])[1]] == ["SSD"]
    assert rows_of(table("", [buy("no")], place.BUY))[1][0]["GiB"] == "nothing"


def test_an_answer_in_words_before_its_tables_and_behind_them(monkeypatch, capsys):
    """Hits are those of memory that ends: what lies far away is no cache of theirs."""
    said = (
        "1,200 requests, 34,000 block accesses: 20.0% hit in memory of limited size, mean access 12.3 ms, first token "
        "456.7 ms (load and prefill, no queue)."
    )
    monkeypatch.setattr(place.render, "show", lambda tables: print([title for title, *_ in tables]))
    place._show(placed(problem="no room"))
    titles = "['Tiers as they are', 'By cache size']"
    assert capsys.readouterr().out.splitlines() == [said, titles, "a note", "Infeasible: no room."]
    assert place._notes(placed(notes=[])) == []


def test_the_document_of_an_answer_part_by_part():
    found = placed(mix="the mix", pooled="pooled", sharing="sharing", purchases="purchases", problem="none")
    names = "feasible problem use tiers access_s first_token_s recomputed_flop curves vary promotion purchases sharing"
    result = place._result(found)
    assert result == {name: getattr(found, name) for name in (*names.split(), "pooled", "notes")} | {
        "cheapest": "the mix"
    }
    assert [*result] == [*names.split(), "pooled", "notes", "cheapest"]


def test_figures_are_drawn_and_pages_written_as_the_ending_says(monkeypatch, tmp_path):
    from dmodels.report import html, place_figures, style

    done = []
    monkeypatch.setattr(style, "save", lambda *given: done.append(given))
    monkeypatch.setattr(place_figures, "figure", lambda answer: ("figure of", answer.access_s))
    monkeypatch.setattr(place_figures, "drawings", lambda answer: ("drawings of", answer.access_s))
    monkeypatch.setattr(html, "drawn", lambda answer, drawings: ("drawn", answer.access_s, drawings))
    monkeypatch.setattr(html, "report", lambda *parts: done.append(parts) or "the page")
    found, page = placed(problem="no room"), tmp_path / "x.HTML"
    place._draw(found, None)
    assert done == []
    place._draw(found, tmp_path / "x.svg")
    assert done == [(("figure of", 0.0123), tmp_path / "x.svg")]
    place._draw(found, page)
    title, notes, drawn, tables = done[1]
    assert page.read_text() == "the page" and title == "Where KV blocks live" and len(tables) == 2
    assert notes == [place._summary(found), "a note", "Infeasible: no room."]
    assert drawn == ("drawn", 0.0123, ("drawings of", 0.0123))


def test_what_is_asked_is_answered_with_its_inputs_and_drawn(handed, monkeypatch, tmp_path):
    """And a target that cannot be met is no answer."""
    monkeypatch.setattr(place, "_draw", lambda *given: given)
    assert main(["place", str(EXAMPLE), "--out", str(tmp_path / "x.svg")]) == 0
    assert handed.call.target == "dmodels.studies.place:place" and handed.inputs(None)["sharing"]["workers"] == 8
    assert (handed.result, handed.show) == (place._result, place._show)
    assert [handed.feasible(placed(feasible=feasible)) for feasible in (True, False)] == [True, False]
    assert handed.write("answer") == ("answer", tmp_path / "x.svg")
