"""`dmodels poa LOG`: a log with faults is read, counted and shown; the JSON holds the library's numbers."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from dmodels.cli import main
from dmodels.cli import poa as command
from dmodels.core.flags import Flag, describe
from dmodels.games.anarchy import poa_index
from dmodels.report import routing_figures, style
from dmodels.report.text import table
from tests.audit.shown import terminal_tables


def rows(n=200, workers=3, seed=0):
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(0.05, n))
    latency = 2.0 + rng.exponential(0.05, n)
    return [
        {
            "id": f"r{i}",
            "arrival": float(arrival[i]),
            "completion": float(arrival[i] + latency[i]),
            "worker": f"decode-{rng.integers(workers)}",
            "latency": float(latency[i]),
            "ttft": 0.1,
            "overlap": rng.uniform(size=workers).tolist(),
        }
        for i in range(n)
    ]


def write(path, records):
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in records), encoding="utf-8")
    return str(path)


def test_json_holds_the_librarys_numbers(tmp_path, capsys):
    records = rows()
    assert main(["poa", write(tmp_path / "log.jsonl", records), "--window", "100", "--step", "100", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    records.sort(key=lambda r: r["completion"])
    worker = [int(r["worker"][-1]) for r in records[:100]]
    index = poa_index([r["latency"] for r in records[:100]], worker, [r["overlap"] for r in records[:100]])
    first = result["windows"][0]
    assert first["poa_hat"] == pytest.approx(float(index.poa_hat)) and len(result["windows"]) == 2
    assert first["end_s"] == records[99]["completion"] and first["start_s"] == records[0]["completion"]
    told = [float(index.observed_s), float(index.optimum_s)]
    assert [first["observed_s"], first["optimum_s"]] == pytest.approx(told) and told[0] != pytest.approx(told[1])
    assert first["loads"] == [worker.count(j) for j in range(3)] and first["ttft_p99_s"] == pytest.approx(0.1)
    assert first["routing"] * first["constant"] * first["queueing"] == pytest.approx(first["poa_hat"])
    assert first["driver"] == "constant" and first["regime"] == "below"
    assert result["log"]["rows"] == result["log"]["kept"] == 200


def test_bad_rows_are_counted_by_kind_and_shown_up_to_the_limit(tmp_path, capsys):
    good = rows(60)
    bad = [
        {**good[0], "id": "late", "completion": good[0]["arrival"] - 1},
        good[1],
        {**good[2], "id": "w", "worker": "nowhere"},
        {**good[3], "id": "skew", "latency": 400.0},
        {**good[4], "id": "nan", "arrival": "NaN"},
        {k: v for k, v in good[5].items() if k != "worker"},
        '{"id": "cut',
        "[1, 2]",
        {**good[6], "id": "o", "overlap": [2.0, 0, 0]},
        {**good[7], "id": "far", "arrival": good[59]["arrival"] + 500, "completion": good[59]["arrival"] + 502},
    ]
    args = ["poa", write(tmp_path / "log.jsonl", good + bad), "--window", "30", "--limit", "4", "--json"]
    for j in range(3):
        args += ["--worker", f"decode-{j}"]
    assert main(args) == 0
    log = json.loads(capsys.readouterr().out)["result"]["log"]
    assert log["problems"] == {
        "completion before arrival": 1,
        "duplicated id": 1,
        "unknown worker": 1,
        "clock skew": 1,
        "bad number": 2,
        "missing field": 1,
        "unreadable": 2,
        "gap": 1,
    }
    assert log["rows"] == 70 and log["kept"] == 62 and len(log["reports"]) == 4
    assert log["reports"][0].startswith("row 61: completion")


def test_the_table_goes_to_stdout_and_reports_to_stderr(tmp_path, capsys):
    assert main(["poa", write(tmp_path / "log.jsonl", [*rows(50), "rubbish"]), "--window", "25"]) == 0
    seen = capsys.readouterr()
    assert "PoA-hat" in seen.out and "row 51" in seen.err and "row 51" not in seen.out
    assert "1 of 51 rows left out; unreadable: 1" in seen.err


@pytest.mark.parametrize(
    ("text", "says"), [("", "none of 0 rows"), ("rubbish\n{}\n", "none of 2 rows"), ('{"id": 1}', "no arrival")]
)
def test_a_log_without_a_usable_row_is_one_line_and_exit_code_2(tmp_path, capsys, text, says):
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    assert main(["poa", str(path)]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


def test_a_missing_file_and_a_bad_window_are_one_line(tmp_path, capsys):
    assert main(["poa", str(tmp_path / "none.jsonl")]) == 2
    assert main(["poa", write(tmp_path / "log.jsonl", rows(5)), "--window", "0"]) == 2
    assert "--window 0" in capsys.readouterr().err
    assert main(["poa", write(tmp_path / "log.jsonl", rows(5)), "--capacity", "nan"]) == 2
    assert "--capacity nan" in capsys.readouterr().err


def test_plot_and_python(tmp_path, capsys):
    path = write(tmp_path / "log.jsonl", rows(60))
    assert main(["poa", path, "--window", "20", "--plot", str(tmp_path / "poa.png"), "--calibrate"]) == 0
    assert (tmp_path / "poa.png").stat().st_size > 5000
    capsys.readouterr()
    assert main(["poa", path, "--show-python"]) == 0
    assert "analyse(" in capsys.readouterr().out


def test_calibration_takes_the_constant_out(tmp_path, capsys):
    path = write(tmp_path / "log.jsonl", rows(300))
    for flag, low, high in (((), 5.0, 50.0), (("--calibrate",), 0.9, 1.2)):
        assert main(["poa", path, "--window", "50", "--json", *flag]) == 0
        found = [w["poa_hat"] for w in json.loads(capsys.readouterr().out)["result"]["windows"]]
        assert low < min(found) and max(found) < high


def told_by_hand():
    """Two windows of a log, every number of its own."""
    windows = SimpleNamespace(start_s=[1.0, 2.0], end_s=[3.0, 4.0], ttft_p99_s=[0.5, 0.6], routing=[1.1, 1.2])
    windows.constant, windows.queueing = [1.3, 1.4], [1.5, 1.6]
    flags = np.array([0, int(Flag.OVERLOAD)])
    index = SimpleNamespace(poa_hat=[2.0, 7.0], observed_s=[8.0, 9.0], optimum_s=[4.0, 5.0], flags=flags)
    index.loads, windows.index = [[1, 2], [3, 4]], index

    class Log(SimpleNamespace):
        def __len__(self):
            return 1200

    log = Log(rows_count=1234, workers=["x", "y"], problems={"gap": 30, "clock skew": 4}, reports=["row 1: gap"])
    log.notices = ["sorted"]
    return SimpleNamespace(windows=windows, log=log, regime=[0, 2], driver=["constant", "routing"], baseline_s=0.055)


def test_windows_have_these_parts_and_columns(capsys):
    found = told_by_hand()
    first, second = command._windows(found)
    told = {"start_s": 1.0, "end_s": 3.0, "ttft_p99_s": 0.5, "routing": 1.1, "constant": 1.3, "queueing": 1.5}
    told |= {"poa_hat": 2.0, "observed_s": 8.0, "optimum_s": 4.0, "loads": [1, 2]}
    assert first == told | {"regime": "below", "driver": "constant", "flags": "ok"} and list(first)[:10] == list(told)
    assert (second["regime"], second["driver"], second["flags"]) == ("saturated", "routing", describe(Flag.OVERLOAD))
    title, head, rows = table("", [first], command.COLUMNS)
    assert dict(zip(head, rows[0], strict=True)) == {
        "end [s]": 3.0,
        "PoA-hat": 2.0,
        "TTFT P99 [s]": 0.5,
        "regime": "below",
        "driver": "constant",
        "routing x": 1.1,
        "constant x": 1.3,
        "queueing x": 1.5,
        "flags": "ok",
    }
    command._show(found)
    out, err = capsys.readouterr()
    ((title, lines),) = terminal_tables(out).items()
    assert title == "1,200 requests on 2 workers" and [line["PoA-hat"] for line in lines] == ["2", "7"]
    assert err.splitlines() == ["row 1: gap", "sorted", "34 of 1,234 rows left out; gap: 30, clock skew: 4"]
    log = {"rows": 1234, "kept": 1200, "workers": ["x", "y"], "problems": {"gap": 30, "clock skew": 4}}
    log |= {"reports": ["row 1: gap"], "notices": ["sorted"]}
    assert command._result(found) == {"log": log, "windows": [first, second]}
    found.log.problems = {}
    command._show(found)
    assert capsys.readouterr().err.splitlines() == ["row 1: gap", "sorted"]


def test_what_is_asked_of_a_log_is_stated_with_the_baseline_that_was_found(handed, monkeypatch, tmp_path):
    monkeypatch.setattr(command, "_draw", lambda *given: given)
    assert main(["poa", "t.csv", "--plot", str(tmp_path / "x.svg")]) == 0
    stated = handed.inputs(told_by_hand())
    assert (stated["baseline_s"], stated["log"], stated["limit"], stated["capacity"]) == (0.055, "t.csv", 20, 64.0)
    assert handed.call.target == "dmodels.studies.router_log:analyse"
    assert (handed.result, handed.show, handed.feasible) == (command._result, command._show, None)
    assert handed.write("found") == ("found", tmp_path / "x.svg")


def test_the_index_is_drawn_with_its_regimes_to_the_file(monkeypatch):
    done = []
    monkeypatch.setattr(routing_figures, "index_over_time", lambda *given: ("drawn", *given))
    monkeypatch.setattr(style, "paper", lambda drawn: ("on paper", drawn))
    monkeypatch.setattr(style, "save", lambda *given: done.append(given))
    command._draw(told_by_hand(), None)
    assert done == []
    command._draw(told_by_hand(), "x.svg")
    assert done == [(("on paper", ("drawn", [3.0, 4.0], [2.0, 7.0], [0, 2])), "x.svg")]
