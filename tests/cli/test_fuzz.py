"""Two thousand bad command lines, files and scenarios, and five hundred bad calls: never a traceback, never a hang.

The seed is fixed. Every command starts from a question that it answers, of which some options, a value of the scenario
or some bytes of a file are then spoiled.
"""

from __future__ import annotations

import random
import shutil
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest

from dmodels.cli import COMMANDS, app, main
from dmodels.core.errors import InputError
from dmodels.models.latency import LatencyCurve

EXAMPLES = Path(__file__).parents[2] / "examples"
LONGEST_S = 60
#: Share of questions to slow commands that are read but not answered.
SKIPPED = 0.9

#: What is typed by mistake, by chance or to break things.
VALUES = """-1 0 nan inf -inf 1e400 1e12 99999999999999999999 0x10 1_000 abc 1;2 1,,2 , [1] {} true None é ' " \\ $(id)
../.. /dev/null /dev/zero /proc/self/mem missing.csv missing/out.png tp=1 ttft=1 rate=1:0:log:3 1:2:lin:x 5s 5_s
as-published BF16 fp9 -3ms 1e-320 9e99 =1+1 *.csv ~ . h100_sxm,h100_sxm gpus llama""".split()
#: What is typed on purpose: sizes at and about powers of two, quantities with units, names.
VALUES += """1 2 5 8 16 32 63 64 65 100 128 1000 4096 0.1 0.5 0.95 1,2,4 fp8 nvfp4 sglang trtllm deepseek-v3 l40s
b200_sxm azure-conv""".split()
VALUES += ["10 ms", "2 s", "1 d", "64 GiB", "40 GB/s", "100 req/s", "2 $/h"]
VALUES += [
    "jobs: from 8000, ttft 60 s",
    "jobs: from 8000, speed 3",
    "jobs: team=x",
    "us: h100=8 at 2 $/h",
    "us: x",
    "20%",
]
VALUES += ["", " ", "1 parsec", "-3 ms", "0 req/s", "1e300 req/s", "5 $/h", "inf s", "nan ms", "8 ms,", "8 ms,nan ms"]

#: A question for each command, with nothing missing.
QUESTIONS = {
    "plan": "--gpu h100_sxm --tp 4 --no-split --no-sensitivity --no-ensure --thresholds 2048",
    "report": "plan.toml --no-sensitivity --no-ensure",
    "size": "--model qwen3-8b --gpu h100_sxm",
    "step": "--model qwen3-8b --gpu h100_sxm",
    "catalog": "h100_sxm",
    "simulate": "--requests 1000 --rate 5_req/s",
    "transfer": "transfer.toml",
    "pools": "--pools 2",
    "split": "split.toml",
    "place": "place.toml",
    "sweep": "sweep.toml --axis rate=10",
    "poa": "log.csv",
    "route": "--runs 2 --requests 8",
    "predict": "rows.csv",
    "fit": "rows.csv --steps 1",
    "fit operators": "missing",
    "watch": "metrics.txt",
    "formats": "",
    "claims": "",
    "init": "split",
    "completion": "bash",
}
#: Options that answer something else, or at great length.
NEVER = {"--help", "--run", "--verify", "--ensure"}
#: Commands whose answers take seconds: most questions are only read, and the library call is printed.
SLOW = {"plan", "report", "split", "place", "transfer", "sweep", "fit", "simulate", "poa"}


def files(folder: Path) -> None:
    """The files that the questions name."""
    for name in ("plan", "split", "place", "sweep"):
        text = (EXAMPLES / f"{name}.toml").read_text(encoding="utf-8")
        (folder / f"{name}.toml").write_text(text.replace("data/", ""), encoding="utf-8")
    (folder / "transfer.toml").write_text("[simulation]\nruns = 2\nmeasure = '1 s'\nwarmup = '1 s'\n")
    for name, ours in (("router_log.csv", "log.csv"), ("measured.csv", "rows.csv")):
        shutil.copy(EXAMPLES / "data" / name, folder / ours)
    for name in ("mooncake_head.jsonl", "azure_conv_5min.csv", "my_gpus.toml"):
        shutil.copy(EXAMPLES / "data" / name, folder / name)
    (folder / "metrics.txt").write_text('vllm:num_requests_running{model_name="m"} 3\n')
    shutil.copy(EXAMPLES / "data/our-model/config.json", folder / "config.json")


def spoiled_line(draw: random.Random, command: str) -> list[str]:
    """The command's question with one to three options that hold anything."""
    words = [word.replace("_req/s", " req/s") for word in QUESTIONS[command].split()]
    options = [p for p in app.click_command(command).params if not NEVER & {*p.opts, *p.secondary_opts}]
    for option in draw.sample(options, min(draw.choice((1, 1, 2, 3)), len(options))):
        value = draw.choice(VALUES)
        if not option.opts[0].startswith("-"):
            words = [value, *words[1:]]
        else:
            words += [option.opts[0]] if getattr(option, "is_flag", False) else [option.opts[0], value]
    return [*command.split(), *words]


def spoiled_scenario(draw: random.Random, command: str, folder: Path) -> list[str]:
    """A scenario with one value, key or line that holds anything."""
    path = folder / QUESTIONS[command].split()[0]
    lines = path.read_text(encoding="utf-8").splitlines()
    at = draw.choice([i for i, line in enumerate(lines) if "=" in line or line.startswith("[")])
    key, _, _ = lines[at].partition("=")
    value = draw.choice(VALUES)
    kinds = (f"{key.strip()} = {value}", f'{key.strip()} = "{value}"', f"{key.strip()} = [{value}]", value, "", "[x")
    lines[at] = draw.choice(kinds)
    path.write_text("\n".join(lines), encoding="utf-8")
    return [*command.split(), *QUESTIONS[command].split()]


#: Files with a command that reads each.
READERS = {
    "azure_conv_5min.csv": "pools --pools 2 --trace azure_conv_5min.csv",
    "mooncake_head.jsonl": "pools --pools 2 --trace mooncake_head.jsonl",
    "config.json": "size --model config.json --gpu h100_sxm",
    "my_gpus.toml": "catalog new_gpu --gpu-file my_gpus.toml",
    "log.csv": "poa log.csv",
    "rows.csv": "predict rows.csv",
    "metrics.txt": "watch metrics.txt",
    "split.toml": "split split.toml",
}


def spoiled_file(draw: random.Random, folder: Path) -> list[str]:
    """A file cut off, with other bytes somewhere, or with a cell that holds anything."""
    name = draw.choice(sorted(READERS))
    content = bytearray((folder / name).read_bytes()[:20_000])
    for _ in range(draw.choice((1, 1, 3))):
        at = draw.randrange(len(content))
        how = draw.randrange(4)
        if how == 0:
            del content[at:]
            content += b"\n"
        elif how == 1:
            content[at : at + 4] = bytes(draw.randrange(256) for _ in range(4))
        else:
            end = min((i for i in (content.find(c, at) for c in b",\n:=") if i > 0), default=len(content))
            content[at:end] = draw.choice(VALUES).encode()
    (folder / name).write_bytes(content)
    return READERS[name].split()


@contextmanager
def no_longer_than(seconds: int, what: object):
    def late(*_):
        raise AssertionError(f"{what}: still running after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def line_of(number: int, folder: Path) -> list[str]:
    """The command line with this number, its files spoiled."""
    draw = random.Random(number)
    files(folder)
    kind = draw.random()
    if kind < 0.2:
        return spoiled_file(draw, folder)
    if kind < 0.4:
        line = spoiled_scenario(draw, draw.choice(["report", "split", "place", "sweep"]), folder)
    else:
        line = spoiled_line(draw, draw.choice(sorted(QUESTIONS)))
    return [*line, "--show-python"] if line[0] in SLOW and draw.random() < SKIPPED else line


def check_lines(numbers, folder: Path, monkeypatch, capsys) -> None:
    monkeypatch.delenv("DMODELS_DEBUG", raising=False)
    wrong = []
    for number in numbers:
        place = folder / str(number)
        place.mkdir()
        monkeypatch.chdir(place)
        argv = line_of(number, place)
        there = {path for path in place.rglob("*")}
        with no_longer_than(LONGEST_S, (number, argv)):
            code = main(argv)
        out, err = capsys.readouterr()
        told = f"{number}: {argv}: {code} {err[-300:]}"
        drafts = [path for path in place.rglob("*") if path.name.startswith(".")]
        new = {path for path in place.rglob("*") if path.is_file()} - there
        if code not in (0, 1, 2) or "Traceback" in err or drafts or (code == 2 and (out or new)):
            wrong.append(told + f" {drafts} {new if code == 2 else ''}")
        elif code == 2 and not err.splitlines()[-1].startswith("dmodels: "):
            wrong.append(told)
        shutil.rmtree(place)
    assert not wrong, "\n".join([f"{len(wrong)} wrong", *wrong])


def test_every_command_is_fuzzed():
    assert {*QUESTIONS, "explore"} == {*COMMANDS}


def test_bad_lines_end_in_one_line(tmp_path, monkeypatch, capsys):
    check_lines(range(40), tmp_path, monkeypatch, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(40, 2000, 98))
def test_many_bad_lines_end_in_one_line(first, tmp_path, monkeypatch, capsys):
    check_lines(range(first, min(first + 98, 2000)), tmp_path, monkeypatch, capsys)


CURVE = LatencyCurve([1.0, 2.0], [0.0, 0.0], [0.0, 0.0], [64.0, 64.0], [2.0, 2.0])
#: What a caller of the library hands over by mistake.
THINGS = (None, -1, 0, float("nan"), float("inf"), "", "abc", "5", b"x", [], [1, "a"], {}, (), object(), True, 10**30)


def calls():
    """Public functions that check what they are given, with arguments that are right."""
    import dmodels
    from dmodels import catalog
    from dmodels.core.units import parse
    from dmodels.fit.calibration import read
    from dmodels.fit.predict import predict_file
    from dmodels.games.anarchy.log import read_log
    from dmodels.studies.router_costs import grouped_game

    return [
        (catalog.gpu, ["h100_sxm", None]),
        (catalog.model, ["qwen3-8b"]),
        (catalog.workload, ["azure-conv"]),
        (catalog.fabric, ["ib_ndr"]),
        (catalog.claim, ["TB-1"]),
        (parse, ["5 s", "s"]),
        (dmodels.read_trace, [str(EXAMPLES / "data/azure_conv_5min.csv")]),
        (read_log, [str(EXAMPLES / "data/router_log.csv")]),
        (read, [str(EXAMPLES / "data/my_gpus.toml")]),
        (predict_file, ["missing.csv"]),
        (lambda requests, prefixes: grouped_game(requests, prefixes, CURVE, 0.1), [8, 2]),
    ]


def check_calls(numbers) -> None:
    wrong = []
    for number in numbers:
        draw = random.Random(number)
        function, arguments = draw.choice(calls())
        arguments = list(arguments)
        arguments[draw.randrange(len(arguments))] = draw.choice(THINGS)
        try:
            with no_longer_than(LONGEST_S, (function, arguments)):
                function(*arguments)
        except (InputError, OSError, TypeError):  # the last: what type checkers see
            pass
        except Exception as error:
            wrong.append(f"{number}: {function.__name__}{arguments!r:.100}: {error!r}")
    assert not wrong, "\n".join([f"{len(wrong)} wrong", *wrong])


def test_bad_calls_are_input_errors():
    check_calls(range(60))


@pytest.mark.slow
def test_many_bad_calls_are_input_errors():
    check_calls(range(60, 500))
