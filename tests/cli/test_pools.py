"""`dmodels pools`: the paper's table from a bundled workload, raw traces, JSON, and one line for bad input."""

import json
from types import SimpleNamespace as Record

import pytest

from dmodels.cli import main, pools
from tests.audit.shown import terminal_tables


def _run(capsys, *argv):
    code = main(["pools", *argv])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_papers_fleets_as_json(capsys):
    code, out, _ = _run(capsys, "--json")
    answer = json.loads(out)
    row = next(row for row in answer["result"]["thresholds"] if row["threshold_tokens"] == 8192)
    assert code == 0 and answer["result"]["single"]["fleet_instances"] == 361
    assert (row["short_instances"], row["long_instances"], row["fleet_instances"]) == (72, 229, 301)
    assert answer["inputs"]["rate_rps"] == 1000 and answer["inputs"]["headroom"]["single"] == 1.08


def test_a_raw_trace_as_a_table(capsys, shared_data):
    trace = str(shared_data / "azure_2023_conv.csv")
    code, out, err = _run(capsys, "--trace", trace, "--rate", "200 req/s", "--price", "2.21 $/h")
    assert code == 0 and err == "" and "Best thresholds" in out and "GPUs" in out


def test_the_printed_call_gives_the_printed_numbers(capsys):
    _, code, _ = _run(capsys, "--show-python", "--workload", "lmsys-paper", "--context", "65536")
    scope = {}
    exec(code, scope)
    assert float(scope["answer"].savings.homo_instances_count) == 265


def test_no_split_saves_where_pages_are_given_out_on_demand(capsys):
    for name in ("azure-paper", "azure-conv", "mooncake"):
        _, out, _ = _run(capsys, "--workload", name, "--json")
        assert all(row["paged_frac"] <= 1e-12 for row in json.loads(out)["result"]["thresholds"])


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--rate", "5"], "a unit is missing"),
        (["--rate", "-5 req/s"], "--rate -5 req/s"),
        (["--workload", "azure-con"], "the nearest are azure-conv"),
        (["--thresholds", "0"], "accepted are 1 to 65536"),
        (["--thresholds", "many"], "--thresholds many: input should be a valid number"),
        (["--headroom", "1,2"], "--headroom: a value is missing"),
        (["--context", "4096"], "the longest request"),
        (["--context", "4e6"], "what an instance holds"),
        (["--blocks", "-1"], "--blocks -1.0: input should be greater than 0"),
        (["--pools", "1"], "--pools 1: input should be greater than or equal to 2"),
        (["--trace", "nowhere.csv"], "nowhere.csv: No such file"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(capsys, argv, says):
    code, out, err = _run(capsys, *argv)
    assert code == 2 and out == "" and says in err and err.count("\n") == 1


HEAD = "time_s,input_tokens,output_tokens\n"


@pytest.mark.parametrize("text", ["", HEAD, HEAD + "1,0,5\n", HEAD + "2,3,5\n1,3,5\n", HEAD + "2,3,5\n2,3,5\n"])
def test_a_bad_trace_is_one_line_and_exit_code_2(capsys, tmp_path, text):
    path = tmp_path / "t.csv"
    path.write_text(text)
    code, out, err = _run(capsys, "--trace", str(path))
    assert code == 2 and out == "" and err.count("\n") == 1 and "t.csv" in err


def studied(**more):
    """A study of two thresholds whose numbers all differ."""
    savings = Record(short_instances_count=[1, 2], long_instances_count=[3, 4], dual_instances_count=[5, 6])
    savings.ideal_frac, savings.routed_frac, savings.realized_frac = [0.11, 0.12], [0.13, 0.14], [0.15, 0.16]
    savings.flags, savings.homo_instances_count = [0, 1], 7.0
    short = Record(request_frac=[0.21, 0.22], work_frac=[0.23, 0.24])
    best = Record(threshold_tokens=(1024.0, 65536.0), slots_count=(64.0, 8.0), work_frac=(0.25, 0.75), saved_frac=0.311)
    known = {"savings": savings, "short": short, "threshold_tokens": [1024, 2048], "slots_short": [32, 33]}
    known |= {"law_frac": [0.31, 0.32], "paged_frac": [-1e-17, 0.34], "compressed_frac": [0.35, 0.36]}
    known |= {"compressed_instances_count": [8, 9], "usd_per_year": [1e4, 2e4], "single_usd_per_year": 43210.4}
    known |= {"context_tokens": 65536.0, "slots_single": 16.0, "rate_rps": 1000.0, "forgiving_tokens": 17.0}
    return Record(**known | {"best": [best], "notes": ["so", "then"]} | more)


def test_the_rows_of_thresholds_part_by_part():
    first, second = pools._rows(studied())
    assert first == {
        "threshold_tokens": 1024,
        "slots_count": 32,
        "request_frac": 0.21,
        "work_frac": 0.23,
        "short_instances": 1,
        "long_instances": 3,
        "fleet_instances": 5,
        "paper_eq7_frac": 0.11,
        "paper_eq8_frac": 0.13,
        "exact_frac": 0.31,
        "with_headroom_and_ceilings_frac": 0.15,
        "paged_frac": -1e-17,
        "compressed_frac": 0.35,
        "compressed_instances": 8,
        "fleet_usd_per_year": 1e4,
        "flags": 0,
    }
    assert second["threshold_tokens"] == 2048 and second["flags"] == 1


def test_the_document_of_pools_part_by_part():
    found = pools._result(studied())
    single = {"context_tokens": 65536.0, "slots_count": 16.0, "fleet_instances": 7.0, "fleet_usd_per_year": 43210.4}
    best = {"pools_count": 2, "threshold_tokens": (1024.0, 65536.0), "slots_count": (64.0, 8.0)}
    best |= {"work_frac": (0.25, 0.75), "exact_frac": 0.311}
    assert found.pop("thresholds") == pools._rows(studied())
    assert found == {"single": single, "best": [best], "forgiving_tokens": 17.0, "reasons": ["so", "then"]}


@pytest.mark.parametrize(("price", "compress"), [(None, None), (2.5, (0.5, 2000.0, 0.1))])
def test_thresholds_are_shown_with_what_was_asked_for(price, compress, capsys):
    """Columns of money and of a compressor where there is one; what pages save is no less than nothing."""
    asked = pools.PoolsAsked(price_usd_per_hour=price, compress=compress, gpus_per_instance=2)
    pools._show(studied(), asked)
    out = capsys.readouterr().out
    (title, (first, second)), (best, (line,)) = terminal_tables(out).items()
    whole = "azure-paper at 1,000 req/s. One pool of 65,536 tokens: 16 slots, 7 instances = 14 GPUs"
    assert title == whole + (", 43,210 $/year" if price else "")
    told = {"threshold": "1,024", "slots": "32", "requests": "21.0%", "work": "23.0%", "short": "1", "long": "3"}
    told |= {"instances": "5", "saved: Eq. 7": "11.0%", "exact": "31.0%", "with headroom": "15.0%", "if paged": "0.0%"}
    if compress:
        told |= {"compressed": "35.0%", "instances then": "8", "$/year": "10,000"}
    assert first == told and list(first) == list(told) and second["if paged"] == "34.0%"
    shown = {"pools": "2", "contexts": "1,024 / 65,536", "slots": "64 / 8", "work": "25.0% / 75.0%"}
    assert best == "Best thresholds, of all" and line == shown | {"saved: exact": "31.1%"}
    assert list(line) == [*shown, "saved: exact"] and out.splitlines()[-2:] == ["- so", "- then"]


def test_a_study_of_pools_states_what_was_asked_and_what_its_trace_said(handed, monkeypatch):
    noted = Record(notices=("sorted", "cut"))
    monkeypatch.setattr(pools.Code, "values", lambda made: [noted, Record()])
    monkeypatch.setattr(pools, "_show", lambda study, asked: (study, asked.traffic))
    assert main(["pools", "--trace", "t.csv", "--compress", "0.5,9,1"]) == 0
    stated = handed.inputs(studied())
    assert stated["notices"] == ["sorted", "cut"] and "iteration" not in stated
    assert (stated["workload"], stated["trace"], stated["rate_rps"], stated["context_tokens"]) == (
        None,
        "t.csv",
        1000.0,
        65536.0,
    )
    assert stated["headroom"] == {"single": 1.08, "short": 1.05, "long": 1.02}
    assert (stated["base_s"], stated["per_sequence_s"]) == pytest.approx((8e-3, 6.5e-4))
    assert stated["compress"] == (0.5, 9.0, 1.0)
    assert (handed.call.target, handed.result) == ("dmodels.studies.pools:pool_study", pools._result)
    assert handed.show("study") == ("study", "t.csv") and handed.feasible is handed.write is None
    for more, workload in ((["--workload", "mooncake"], "mooncake"), ([], "azure-paper")):
        assert main(["pools", *more]) == 0 and handed.inputs(studied())["workload"] == workload
    assert main(["pools", "--trace", "t.csv", "--workload", "mooncake"]) == 2
