"""What people mistype, and files as they have them: one line that names the field, exit code 2, before any work."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from dmodels.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = ["plan", "--gpu", "h100_sxm", "--tp", "4"]
SWEEP = ["sweep", str(EXAMPLES / "sweep.toml")]
ROWS = [(0.5 * i, 1000 + i % 7, 200) for i in range(40)]

#: Files that commands below are given, in the folder where they run.
FILES = {
    "bom.json": b"\xef\xbb\xbf" + (EXAMPLES / "data/our-model/config.json").read_bytes(),
    "other.json": b'{"a": 1}',
    "cut.json": b'{"effects": {"a',
    "list.json": b"[1, 2]",
    "twice.csv": b"name,price_usd_per_hour\nh100_sxm,2\nH100-SXM,3\n",
    "free.csv": b"name,price_usd_per_hour\nh100_sxm,0\n",
    "still.csv": b"name,hbm_bytes_per_s\nh100_sxm,0\n",
    "columns.csv": b"id,model_path,system,backend,isl,osl,concurrency,tp_size\na,Qwen/Qwen3-8B,h100_sxm,vllm,9,9,8,4\n",
    "huge.csv": b"time_s,input_tokens,output_tokens\n0,100,10\n1,200000000,10\n",
    "since1970.csv": b"time_s,input_tokens,output_tokens\n1700000000000,100,10\n1700000001000,100,10\n",
    "burst.toml": (EXAMPLES / "split.toml").read_bytes().replace(b"burst = 1.25", b"burst = inf"),
    "workers.toml": (EXAMPLES / "place.toml").read_bytes().replace(b"workers = 8", b"workers = 100000"),
}

REFUSED = [
    # numbers and units
    ([*SMALL, "--tp", "inf"], "--tp inf"),
    ([*SMALL, "--pp", "1000"], "pp [1000]: accepted are up to the model's 80 layers"),
    (["plan", "--tp", "1000000"], "tp [1000000]: accepted are up to the 8 GPUs of a node"),
    (["plan", "--isl", "0", "--osl", "10", "--rate", "1 req/s"], "--isl 0"),
    (["pools", "--price", "-1 $/h"], "--price -1 $/h"),
    (["pools", "--max-sequences", "inf"], "--max-sequences inf"),
    (["pools", "--thresholds", "0"], "thresholds = 0"),
    (["pools", "--trace", "huge.csv"], "the longest request = 200,000,010 tokens"),
    (["pools", "--trace", "since1970.csv"], "milliseconds are in a column called time_ms"),
    (["poa", str(EXAMPLES / "data/router_log.csv"), "--baseline", "0 ms"], "--baseline 0 ms"),
    (["route", "--beta", "0"], "--beta 0"),
    (["route", "--tau", "nan"], "--tau nan"),
    (["route", "--saturation", "-1"], "--saturation -1"),
    (["route", "--seed", "-1"], "--seed -1"),
    (["simulate", "--slots", "-1"], "--slots -1"),
    (["simulate", "--seed", "12345678901234567890"], "--seed"),
    (["split", "burst.toml"], "traffic.burst = inf"),
    # names
    (["plan", "--gpu", "tpu-v5e"], "GPU 'tpu-v5e' is unknown; known are a100_40gb_pcie"),
    (["nonsense"], "command 'nonsense' is unknown"),
    # what contradicts itself, or does nothing
    ([*SMALL, "--workload", "azure-conv", "--isl", "100", "--osl", "10"], "give one of name (--workload), trace"),
    ([*SMALL, "--repair"], "repair mends a trace"),
    ([*SMALL, "--prefix-hits", "--isl", "9", "--osl", "9", "--rate", "1 req/s"], "prefix_hits needs a trace"),
    ([*SWEEP, "--axis", "rate=10", "--figure", "x.png"], "--figure x.png: --plot is missing; accepted are "),
    ([*SWEEP, "--axis", "rate=10", "--figure", "x.png", "--plot", "heatmap"], "needs two axes"),
    ([*SWEEP, "--axis", "gpu=h100,h200", "--figure", "x.png", "--plot", "curves"], "needs an axis of numbers"),
    ([*SWEEP, "--axis", "rate=1:9:lin:99999999"], "accepted are up to 1,000,000"),
    # files
    (["catalog", "h100", "--gpu-file", "twice.csv"], "H100-SXM: stands twice"),
    (["catalog", "h100", "--gpu-file", "free.csv"], "price_usd_per_hour is '0'; a number above 0"),
    (["catalog", "h100", "--gpu-file", "still.csv"], "hbm_bytes_per_s is '0'; a number above 0"),
    (["predict", "columns.csv"], "batch_size is no column"),
    (["predict", "columns.csv", "--calibration", "other.json"], "other.json: not a calibration"),
    (["predict", "columns.csv", "--calibration", "cut.json"], "cut.json: not a calibration"),
    (["predict", "columns.csv", "--calibration", "list.json"], "list.json: not a calibration"),
    (["size", "--model", "/dev/zero", "--gpu", "h100"], "holds more than 64 MiB"),
    (["split", "/dev/zero"], "holds more than 64 MiB"),
    (["catalog", "--gpu-file", "/dev/zero"], "holds more than 64 MiB"),
    # outputs, before the work
    ([*SMALL, "--out", "/proc/x.html"], "--out /proc/x.html: cannot be written"),
    ([*SMALL, "--out", ""], "a folder; the name of a file is accepted"),
    (["split", str(EXAMPLES / "split.toml"), "--out", "x.gif"], "ends in .png, .svg or .html"),
    (["poa", str(EXAMPLES / "data/router_log.csv"), "--plot", "x.gif"], "ends in .png, .svg or .pdf"),
    (["transfer", "/dev/null", "--out", "x.html"], "ends in .png, .pdf or .svg"),
    (["predict", "columns.csv", "--out", "/proc/x.csv"], "--out /proc/x.csv: cannot be written"),
    (["fit", "columns.csv", "--out", "/proc/x.json"], "--out /proc/x.json: cannot be written"),
    ([*SWEEP, "--axis", "rate=10", "--out", "/proc/x.csv"], "--out /proc/x.csv: cannot be written"),
    # work that nobody would wait for
    (["route", "--workers", "100000"], "--workers 100000: input should be less than or equal to 10000"),
    (["route", "--requests", "100000000", "--runs", "1000"], "would take about"),
    (["simulate", "--requests", "20000000", "--instances", "100000"], "like --requests"),
    (["simulate", "--slots", "100000", "--instances", "100000"], "10,000,000,000 slots in all"),
    (["simulate", "--prefill-instances", "90000", "--instances", "90000"], "would take about"),
    (["place", "workers.toml", "--trace", str(EXAMPLES / "data/mooncake_head.jsonl")], "like workers = "),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DMODELS_DEBUG", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("argv", "said"), REFUSED, ids=lambda value: " ".join(Path(word).name for word in value[-2:]) if value else ""
)
def test_a_mistake_is_one_line_and_leaves_nothing(argv, said, folder, capsys):
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert said in err and err.count("\n") == 1 and out == ""
    assert {path.name for path in folder.iterdir()} == set(FILES)


def trace(header: str, comma: str, decimal: str = ".", factor: float = 1.0) -> str:
    rows = (comma.join((f"{factor * t:g}".replace(".", decimal), str(i), str(o))) for t, i, o in ROWS)
    return "\n".join([header.replace(",", comma), *rows]) + "\n"


PLAIN = "time_s,input_tokens,output_tokens"
SPELLINGS = {
    "semicolons": trace(PLAIN, ";").encode(),
    "decimal commas": trace(PLAIN, ";", ",").encode(),
    "tabs": trace(PLAIN, "\t").encode(),
    "capitals": trace("TIME_S,Input_Tokens,OUTPUT_TOKENS", ",").encode(),
    "byte order mark": b"\xef\xbb\xbf" + trace(PLAIN, ",").encode(),
    "gzip": gzip.compress(trace(PLAIN, ",").encode()),
    "milliseconds": trace("time_ms,input_tokens,output_tokens", ",", factor=1e3).encode(),
    "json": "\n".join(json.dumps({"Time_S": t, "input_tokens": i, "output_tokens": o}) for t, i, o in ROWS).encode(),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_trace_is_read_however_it_was_exported(spelling, tmp_path):
    from dmodels import read_trace

    path = tmp_path / "trace.csv"
    path.write_bytes(SPELLINGS[spelling])
    found = read_trace(path)
    assert found.time_s.tolist() == [t for t, _, _ in ROWS] and found.rate_rps == pytest.approx(2.0)
    assert [*zip(found.input_tokens, found.output_tokens, strict=True)] == [(i, o) for _, i, o in ROWS]


def test_whole_numbers_of_seconds_minutes_apart_raise_the_question(tmp_path):
    from dmodels import read_trace

    path = tmp_path / "trace.csv"
    path.write_text(trace(PLAIN, ",", factor=1e3))
    assert "if these are milliseconds (2 req/s), say time_ms" in read_trace(path).notices[0]


def test_an_architecture_that_nobody_knows_is_named(folder, capsys):
    config = json.loads(FILES["bom.json"].decode("utf-8-sig"))
    for kind, told in (("foo", "model_type 'foo' is not known"), ("llama", "")):
        Path("config.json").write_text(json.dumps(config | {"model_type": kind}))
        assert main(["size", "--model", "config.json", "--gpu", "h100_sxm"]) == 0
        err = capsys.readouterr().err
        assert told in err and err.count("\n") == bool(told)


def test_a_config_with_a_mark_and_a_boundless_context_is_sized(folder, capsys):
    """Memory binds long before 10^12 tokens: the longest sequence is that of the same model with a context of 10^6."""
    config = json.loads(FILES["bom.json"].decode("utf-8-sig"))
    found = []
    for context in (10**6, 10**12):
        Path("config.json").write_text(json.dumps(config | {"max_position_embeddings": context}), encoding="utf-8-sig")
        assert main(["size", "--model", "config.json", "--gpu", "h100_sxm", "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out)["result"]["longest_context_tokens"])
    assert found[0] == found[1] > 65536


@pytest.mark.slow
def test_slo_axes_bound_what_a_sweep_finds(folder, capsys):
    axes = ["--axis", "ttft=300 ms,3 s", "--axis", "tp=4", "--axis", "rate=50 req/s"]
    assert main([*SWEEP, *axes, "--json"]) == 0
    best = {row["ttft_slo_s"]: row for row in json.loads(capsys.readouterr().out)["result"]["best"]}
    assert all(row["ttft_s"] <= slo for slo, row in best.items())
    assert best[0.3]["gpus"] > best[3.0]["gpus"]


@pytest.mark.slow
def test_a_router_of_a_thousand_workers_answers_with_an_interval(folder, capsys):
    assert main(["route", "--workers", "1000", "--runs", "2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert 1 <= result["lower"] <= result["upper"] < 1.1
