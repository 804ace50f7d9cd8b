"""`dmodels pools`: the paper's table from a bundled workload, raw traces, JSON, and one line for bad input."""

import json

import pytest

from dmodels.cli import main


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
