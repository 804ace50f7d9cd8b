"""Where the options end: the last value that is accepted, and the first that is not; and what goes with what."""

from __future__ import annotations

import re
from importlib import import_module
from types import SimpleNamespace

import pytest

from dmodels.cli import fit_operators
from dmodels.cli.schema import flags, from_flags
from dmodels.cli.simulate import CONTROLS, ROUTERS
from dmodels.cli.sweep_axes import read_axes
from dmodels.core.errors import InputError

#: Of every command what it cannot do without.
NEEDED = {
    "size": {"--model": "llama-3.1-8b", "--gpu": "h100_sxm"},
    "step": {"--model": "llama-3.1-8b", "--gpu": "h100_sxm"},
    "poa": {"log": "requests.csv"},
    "watch": {"files": ["metrics.txt"]},
    "predict": {"rows": "rows.csv"},
    "fit": {"rows": ["rows.csv"]},
}
COUNT = (["1", "3"], ["0", "-1", "1.5", "x"])
TIME = (["1 ms", "2 s"], ["0 s", "-1 s", "5", "2 req/s"])
WAIT = (["0 ms", "2 s"], ["-1 ms", "5"])
RATE = (["0.1 req/s", "6 req/min"], ["0 req/s", "-1 req/s", "3 s"])
SHARE = (["0.01", "0.99"], ["0", "1", "-0.1", "x"])
PRICE = (["0.01 $/h"], ["0 $/h", "-1 $/h", "2 s"])
DEGREES = (["1", "1,2,8"], ["0", "1,0", "1.5", ","])
#: Command -> option -> (accepted, refused).
EDGES = {
    "plan": {
        **{name: TIME for name in ("--ttft", "--tpot", "--e2e")},
        **{name: COUNT for name in ("--node-gpus", "--max-num-seqs", "--max-num-batched-tokens")},
        **{name: DEGREES for name in ("--tp", "--pp")},
        "--rate": RATE,
        "--percentile": (["0.5", "50 %", "0.999"], ["0.49", "1", "100 %"]),
        "--wide-ep": (["0", "16,32"], ["-1", "1.5"]),
        "--thresholds": (["1", "2048,4096"], ["0", "-5"]),
        "--max-gpus": (["1", "7"], ["0.9", "0"]),
        "--budget": PRICE,
        "--headroom": (["0", "10", "20 %"], ["-0.1", "10.1"]),
        "--spare": (["0", "1000"], ["-1", "1001", "0.5"]),
        "--confidence": (["0.5", "0.975", "90 %"], ["0.49", "0.976"]),
        "--size-for": (["trace", "next"], ["never"]),
        "--measured-tp": (["0", "8"], ["-1"]),
        "--gpus": (["h100_sxm=0", "h100_sxm=32,l40s=16"], ["h100_sxm=-1", "h100_sxm", "=3"]),
        "--region": ([["east: h100_sxm=32 at 2.1 $/h"]], [["h100_sxm=32"], ["east: h100_sxm"], [": h100_sxm=1"]]),
        "--class": (
            [["a: to 8000, ttft 2 s"], ["a: from 0"], ["b: team=x, priority -1000"], ["b: percentile 0.5"]],
            [["a"], ["a: to 0"], ["a: from -1"], ["b: priority 1001"], ["b: percentile 0.4"], ["b: ttft 0 s"]],
        ),
    },
    "simulate": {
        **{name: (["1", "100000"], ["0", "100001"]) for name in ("--instances", "--slots", "--short-slots")},
        **{name: (["0", "9"], ["-1", "100001"]) for name in ("--short-instances",)},
        "--rate": RATE,
        "--threshold": (["0.5", "8192"], ["0", "-1", "inf"]),
        "--spill": (["0", "inf"], ["-1"]),
        "--iteration": (["1 ms,0 ms"], ["0 ms,1 ms", "1 ms", "1 ms,2 ms,3 ms"]),
        "--chunk": COUNT,
        "--percentile": SHARE,
        "--precision": SHARE,
        "--requests": (["1000", "20000000"], ["999", "20000001"]),
        "--seed": (["0", str(2**32 - 1)], ["-1", str(2**32)]),
        "--prefill": (["own", "shared", "packed"], ["none"]),
    },
    "pools": {
        "--rate": RATE,
        "--thresholds": (["4096", "1024,2048"], [","]),
        "--pools": (["2"], ["1", "0"]),
        "--headroom": (["1.1,1.2,1.3"], ["1.1,1.2", "0,1,1"]),
        "--iteration": (["1 ms,2 ms"], ["0 ms,2 ms", "1 ms,0 ms"]),
        "--compress": (["0.5,2000,0"], ["0,2000,1", "0.5,0,1"]),
    },
    "route": {
        "--requests": COUNT,
        "--workers": (["1", "10000"], ["0", "10001"]),
        "--prefixes": COUNT,
        "--runs": COUNT,
        **{name: (["0 ms", "1 ms,2 ms"], ["-1 ms", "1 ms,2 ms,3 ms"]) for name in ("--a", "--b", "--d")},
        "--saturation": (["0.5", "1,2"], ["0", "1,2,3", "inf"]),
        "--beta": (["0.5"], ["0", "inf"]),
        "--omega": WAIT,
        "--tau": (["0", "2"], ["-1", "inf"]),
        "--seed": (["0"], ["-1"]),
    },
    "size": {
        **{name: COUNT for name in ("--tp", "--pp", "--dp", "--ep", "--context", "--block-tokens", "--max-num-seqs")},
        "--utilization": (["0.01", "1"], ["0", "1.01"]),
    },
    "step": {
        **{name: COUNT for name in ("--tp", "--dp", "--ep")},
        **{name: (["0.5"], ["0", "inf", "-1"]) for name in ("--input", "--output", "--concurrency")},
    },
    "poa": {
        "--window": COUNT,
        "--step": COUNT,
        "--capacity": (["0.5"], ["0", "inf"]),
        "--baseline": TIME,
        "--limit": (["0"], ["-1"]),
    },
    "watch": {"--hours": (["0.5"], ["0", "inf"]), "--rate": RATE},
    "predict": {name: (["0", "8"], ["-1", "1.5"]) for name in ("--tp", "--dp", "--ep")},
    "fit": {"--steps": COUNT, "--tp": (["0", "8"], ["-1", "1.5"])},
}


def asked(command, typed):
    """The question of these options."""
    question = import_module(f"dmodels.cli.{command}").command.question
    paths = {name: leaf.path for leaf in flags(question) for name in (*leaf.names, ".".join(leaf.path))}
    return from_flags(question, {paths[name]: value for name, value in (NEEDED.get(command, {}) | typed).items()})


@pytest.mark.parametrize(("command", "option"), [(c, o) for c, options in EDGES.items() for o in options])
def test_an_option_ends_where_it_means_nothing(command, option):
    accepted, refused = EDGES[command][option]
    for value in accepted:
        asked(command, {option: value})
    for value in refused:
        with pytest.raises(InputError) as error:
            asked(command, {option: value})
        said = str(error.value)
        assert "\n" not in said and not re.search(r"(: |^)[A-Z][a-z]+ (should|must|has|error)", said), said


#: Options that mean something only beside another.
BESIDE = {"--isl": {"--osl": "9"}, "--osl": {"--isl": "9"}}
#: Of which there may be no end, or which are held against what a trace needs.
ENDLESS = {"--max-gpus", "--spill", "--thresholds", "--context"}
UNITS = ("", " s", " req/s", " $/h", " GB/s")


@pytest.mark.parametrize("command", sorted(EDGES))
def test_what_is_no_number_and_what_has_no_end_is_refused_by_whoever_takes_a_number(command):
    question, taken = import_module(f"dmodels.cli.{command}").command.question, 0

    def accepts(name, value):
        try:
            asked(command, BESIDE.get(name, {}) | {name: value})
        except InputError:
            return False
        return True

    names = [leaf.names[0] if leaf.names else ".".join(leaf.path) for leaf in flags(question)]
    for name in set(names) - ENDLESS - NEEDED.get(command, {}).keys():
        units = [unit for unit in UNITS if accepts(name, f"1{unit}") and not accepts(name, f"x{unit}")]
        taken += bool(units)
        wrong = [(name, f"{number}{unit}") for unit in units for number in ("nan", "inf", "-inf")]
        assert [one for one in wrong if accepts(*one)] == []
    assert taken >= {"watch": 2, "poa": 4, "predict": 3, "fit": 2}.get(command, 6)


#: Flags of `simulate` that go together, and that do not.
TOGETHER = [
    *({"--policy": name} for name in ROUTERS),
    *({"--policy": name, "--prefill-instances": "2"} for name in (*CONTROLS, "taichi")),
    {"--prefill-instances": "2", "--standby-instances": "3"},
    {"--short-instances": "2", "--trace": "t.csv"},
    {"--model": "m", "--gpu": "g", "--tp": "2"},
    {"--gpu": "g", "--replay": "log.csv"},
    {"--plan": "p.json"},
    {"--model": "m", "--gpu": "g", "--isl": "10", "--osl": "5"},
]
APART = [
    ({"--trace": "t.csv", "--workload": "mooncake"}, "give one of them"),
    *(({"--policy": name}, "policy") for name in (*CONTROLS, "taichi")),
    *(({"--policy": name, "--prefill-instances": "2"}, "policy") for name in ROUTERS),
    ({"--standby-instances": "3"}, "--prefill-instances from 1"),
    ({"--prefill-instances": "2", "--short-instances": "2"}, "one pool"),
    ({"--prefill-instances": "2", "--trace": "t.csv"}, "bundled --workload"),
    ({"--policy": "taichi", "--prefill-instances": "2", "--standby-instances": "1"}, "taichi is 0"),
    ({"--model": "m", "--gpu": "g", "--slots": "4"}, "slots: accepted without"),
    ({"--model": "m", "--gpu": "g", "--prefill-instances": "4"}, "prefill_instances: accepted without"),
    ({"--model": "m"}, "both --model and --gpu"),
    ({"--gpu": "g"}, "both --model and --gpu"),
    ({"--plan": "p.json", "--gpu": "g"}, "saved plan"),
    ({"--plan": "p.json", "--replay": "log.csv"}, "not with a plan"),
    ({"--model": "m", "--gpu": "g", "--isl": "10"}, "both --isl and --osl"),
    ({"--kv-dtype": "fp8"}, "without one"),
    ({"--replay": "log.csv"}, "is missing"),
]


@pytest.mark.parametrize("typed", TOGETHER, ids=lambda typed: " ".join(typed.values()))
def test_what_goes_together(typed):
    assert asked("simulate", typed).server.asked_for == bool({"--gpu", "--plan"} & typed.keys())


@pytest.mark.parametrize(("typed", "says"), APART, ids=lambda x: " ".join(x.values()) if isinstance(x, dict) else "")
def test_what_does_not(typed, says):
    with pytest.raises(InputError, match=re.escape(says)):
        asked("simulate", typed)


#: What a core does in ten minutes: a simulated request in some microseconds and more on many instances, five times
#: over; a cluster's worker in a tenth of a second.
AFFORDABLE = [
    {"--requests": "20000000"},
    {"--requests": "20000000", "--instances": "5000"},
    {"--requests": "20000000", "--instances": "100000", "--trace": "t.csv"},
    {"--requests": "2000000", "--instances": "90000"},
    {"--instances": "4900", "--prefill-instances": "100"},
    {"--instances": "100000", "--slots": "1000"},
]
TOO_MUCH = [
    {"--requests": "20000000", "--instances": "12000"},
    {"--requests": "20000000", "--instances": "6000", "--short-instances": "6000"},
    {"--requests": "4000000", "--instances": "100000"},
    {"--instances": "9000", "--prefill-instances": "100"},
    {"--instances": "5000", "--prefill-instances": "2000", "--standby-instances": "2000"},
    {"--instances": "100000", "--slots": "1001"},
    {"--short-instances": "100000", "--short-slots": "1001"},
]


@pytest.mark.parametrize("typed", AFFORDABLE, ids=lambda typed: " ".join(typed.values()))
def test_what_takes_minutes_is_done(typed):
    asked("simulate", typed)


@pytest.mark.parametrize("typed", TOO_MUCH, ids=lambda typed: " ".join(typed.values()))
def test_what_nobody_waits_for_is_refused_and_what_is_accepted_is_said(typed):
    with pytest.raises(InputError) as error:
        asked("simulate", typed)
    if told := re.search(
        r"would take about (\d+) min; accepted is up to (\d+) min, like --requests (\d+)", str(error.value)
    ):
        fits = typed | {"--requests": told[3]}
        asked("simulate", fits)
        with pytest.raises(InputError):
            asked("simulate", typed | {"--requests": str(int(1.01 * int(told[3])))})
        longer = int(typed["--requests"]) / int(told[3])
        assert int(told[1]) / int(told[2]) == pytest.approx(longer, abs=0.06)


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ({"--isl": "10"}, "both input_tokens and output_tokens"),
        ({"--isl": "10", "--osl": "5", "--trace": "t.csv"}, "give one of name"),
        ({"--workload": "mooncake", "--telemetry": "a.json"}, "give one of name"),
        ({"--repair": True}, "no trace is given"),
        ({"--prefix-hits": True, "--isl": "10", "--osl": "5"}, "fixed lengths and telemetry have none"),
        ({"--cached-share": "0.5"}, "of fixed lengths"),
        ({"--measured": ["m.json"], "--calibration": "c.json"}, "not both"),
        ({"--tuned": True, "--calibration": "c.json"}, "have their own"),
        ({"--tuned": True, "--measured": ["m.json"]}, "have their own"),
    ],
)
def test_a_plan_has_one_traffic_and_one_calibration(typed, says):
    with pytest.raises(InputError, match=re.escape(says)):
        asked("plan", typed)


def test_margins_and_traffic_that_are_accepted():
    asked("plan", {"--isl": "1", "--osl": "1", "--cached-share": "0.99"})
    asked("plan", {"--prefix-hits": True})
    asked("plan", {"--trace": "t.csv", "--repair": True, "--prefix-hits": True})
    assert asked("plan", {}).workload.name == "azure-conv"
    margin = asked("plan", {"--headroom": "20 %", "--confidence": "0.9", "--spare": "2"}).margin
    assert (margin.headroom, margin.spare, margin.confidence) == (0.2, 2, 0.9)
    assert asked("plan", {}).margin.call() is None is not margin.call()


@pytest.mark.parametrize(
    ("axis", "says"),
    [
        ("rate=10:20:log:1000001", "1,000,001 values; accepted are up to 1,000,000"),
        ("rate=20:10:lin:4", "LOW below HIGH"),
        ("rate=1:2:lin:1", "COUNT from 2"),
        ("rate=1:2:cube:3", "LOW:HIGH:log:COUNT or LOW:HIGH:lin:COUNT"),
        ("rate=1:2:3", "LOW:HIGH:log:COUNT or LOW:HIGH:lin:COUNT"),
        ("rate=0:2:lin:3", "--axis rate: 0 is out of range; accepted are positive numbers"),
        ("rate=inf", "accepted are positive numbers"),
        ("tp=1.5", "--axis tp: 1.5 is out of range; accepted are whole numbers from 1"),
        ("tp=0", "accepted are whole numbers from 1"),
        ("percentile=1", "accepted are shares below 1"),
        ("tp=two", "'two' is not a number"),
        ("percentile=50 %", "'50 %' is not a number"),
        ("rate=5 s", "--axis rate: "),
        ("tp=2,1,2", "a value stands twice"),
        ("tp= ", "is empty"),
        ("tp", "accepted is NAME=VALUES"),
        ("tq=1", "axis 'tq' is unknown; the nearest are tp"),
    ],
)
def test_axes_that_no_sweep_has(axis, says):
    with pytest.raises(InputError, match=re.escape(says)) as told:
        read_axes([axis])
    name = axis.partition("=")[0]
    heads = [f"--axis {axis}:", f"--axis {axis!r}:", f"--axis {name}:", f"axis {name!r} is unknown;"]
    assert str(told.value).startswith(tuple(f"{head} " for head in heads))


def test_axes_at_their_ends():
    ends = read_axes(["percentile=0.5,0.999", "rate=1:2:lin:2", "tp=1:64:log:100", "kv=fp8,as-published"])
    assert ends["percentile"] == [0.5, 0.999] and ends["rate_rps"] == [1.0, 2.0] and ends["tp"][:4] == [1, 2, 3, 4]
    assert ends["tp"] == sorted(set(ends["tp"])) and ends["tp"][-1] == 64 and ends["kv"][0] == "fp8"


def test_errors_of_kernels_are_shown_in_per_cent_by_what_was_held_out(capsys):
    of = {"kind": "gemm", "shapes_count": 40, "shapes_median": 0.0312, "shapes_p90": 0.118, "pair_count": 0}
    of |= {"gpu_count": 7, "gpu_median": 0.25, "gpu_p90": 0.604}
    found = SimpleNamespace(
        summary=lambda kind: [of], coefficients=SimpleNamespace(provenance={"rows": {"gemm": 1234}})
    )
    found.skipped = [("a.parquet", "no such GPU")]
    fit_operators._show(found)
    shown = capsys.readouterr().out.replace("│", "|")
    row = next(line for line in shown.splitlines() if "gemm" in line)
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        "gemm",
        "1,234",
        "3.1 % (12 %)",
        "-",
        "25.0 % (60 %)",
    ]
    fit_operators._write(found, None)
    assert capsys.readouterr().err == "dmodels: a.parquet: skipped, no such GPU\n"
    stated = fit_operators._result(found)
    assert stated["skipped"] == [{"table": "a.parquet", "reason": "no such GPU"}] and stated["rows"] == {"gemm": 1234}
