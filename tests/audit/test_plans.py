"""Random questions to `dmodels plan`, and an auditor of the answers: no figure may contradict another.

In `make test` fifty, in `make test-all` two thousand; the answers of other tests of commands are audited where
they are made (`tests/cli/conftest.py`).
"""

from __future__ import annotations

import itertools
import math
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.audit.asking import Answered, ask
from tests.audit.findings import Findings, number
from tests.audit.plans import audit_plan
from tests.audit.shown import audit_page, terminal_tables
from tests.audit.terminal import audit_shown

pytestmark = pytest.mark.usefixtures("short_replays")

#: Batches of random questions, and questions in each.
THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
BATCHES, EACH = 10, 200 if THOROUGH else 5
MODELS = ["llama-3.1-8b", "llama-3.1-70b", "llama-3.1-70b-fp8", "qwen3-32b", "gpt-oss-120b", "qwen3-30b-a3b"]
MODELS += ["gemma-3-27b", "deepseek-v3", "nemotron-h-8b", "phi-4"]
GPUS = ["h100_sxm", "h200_sxm", "b200_sxm", "mi300x", "l40s", "a100_80gb_sxm", "gb300", "h20"]


#: Option -> its name among the inputs, and its value there.
ASKED = {
    "--tp": ("tp", lambda text: [int(degree) for degree in text.split(",")]),
    "--backend": ("backend", str),
    "--max-num-seqs": ("max_num_seqs_count", float),
    "--max-num-batched-tokens": ("max_num_batched_tokens", float),
    "--kv": ("kv", lambda text: [text]),
    "--node-gpus": ("node_gpus", int),
    "--max-gpus": ("max_gpus", float),
    "--budget": ("max_usd_per_hour", lambda text: float(text.split()[0])),
    "--headroom": ("headroom_frac", float),
    "--spare": ("spare_count", int),
    "--confidence": ("confidence", float),
}


@st.composite
def questions(draw) -> dict[str, str]:
    """Option -> value of a command line; "" for a switch."""
    gpus = draw(st.lists(st.sampled_from(GPUS), min_size=1, max_size=2, unique=True))
    asked = {
        "--model": draw(st.sampled_from(MODELS)),
        "--gpu": ",".join(gpus),
        "--tp": draw(st.sampled_from(["1", "2", "4", "8", "1,2", "2,4", "4,8"])),
        "--rate": f"{draw(st.sampled_from([0.3, 1, 4, 11, 20, 37, 80, 250]))} req/s",
        "--ttft-p99": f"{draw(st.sampled_from([0.6, 1, 2, 5, 15]))} s",
        "--tpot-p99": f"{draw(st.sampled_from([25, 50, 80, 150]))} ms",
        "--backend": draw(st.sampled_from(["vllm", "vllm", "sglang", "trtllm"])),
        "--max-num-seqs": draw(st.sampled_from(["256", "256", "64", "1024"])),
    }
    if draw(st.booleans()):
        asked |= {"--workload": draw(st.sampled_from(["azure-conv", "azure-code", "mooncake"]))}
        asked |= {"--thresholds": draw(st.sampled_from(["2048", "1024,4096"]))}
    else:
        asked |= {"--isl": draw(st.sampled_from(["200", "1500", "6000"]))}
        asked |= {"--osl": draw(st.sampled_from(["20", "150", "800"]))}
    for switch, often in (("--no-split", 0.4), ("--no-sensitivity", 0.85)):  # which takes longest
        if draw(st.floats(0, 1)) < often:
            asked[switch] = ""
    if draw(st.integers(0, 5)) == 0:
        asked["--kv"] = "fp8"
    if draw(st.integers(0, 3)) == 0:  # what there is, and what is kept in hand
        more = [("--node-gpus", "8"), ("--max-gpus", "16"), ("--budget", "40 $/h"), ("--headroom", "0.25")]
        asked |= [dict([pair]) for pair in [*more, ("--spare", "1"), ("--confidence", "0.8")]][draw(st.integers(0, 5))]
    if "fp8" in (asked.get("--kv"), *asked["--model"].split("-")) or asked["--model"] in (
        "deepseek-v3",
        "gpt-oss-120b",
    ):
        asked["--gpu"] = asked["--gpu"].replace("a100_80gb_sxm", "h100_pcie")  # which has units for it
    return asked


def words(asked: dict[str, str]) -> list[str]:
    """A question as its command line has it; a switch has no value."""
    return [word for pair in asked.items() for word in pair if word]


def answered(asked: dict[str, str], *more: str) -> Answered:
    """The answer to a question, audited in all its forms."""
    found = ask(["plan", *words(asked), *more])
    audit_plan(found.document)
    audit_shown(found.document, found.text)
    findings, inputs = Findings(), found.document["inputs"]
    findings.same("status", found.status, 0 if found.document["result"]["feasible"] else 1)
    findings.same("rate", inputs["rate_rps"], float(asked["--rate"].split()[0]))
    findings.same("model", inputs["model"], asked["--model"])
    findings.same("GPUs", inputs["gpus"], asked["--gpu"].split(","))
    findings.same("TTFT asked", inputs["slo_ttft_ms"], 1e3 * float(asked["--ttft-p99"].split()[0]))
    findings.same("TPOT asked", inputs["slo_tpot_ms"], float(asked["--tpot-p99"].split()[0]))
    for option, (name, value) in ASKED.items():
        if option in asked:
            findings.same(option, inputs[name], value(asked[option]))
    findings.same("the percentile, where none is asked about", inputs["slo_percentile"], 0.99)
    if "--isl" in asked:
        findings.same("lengths", inputs["mean_input_tokens"], float(asked["--isl"]))
        findings.same("lengths", inputs["mean_output_tokens"], float(asked["--osl"]))
        for pool in (found.document["result"]["recommended"] or {"pools": []})["pools"]:
            _fixed_lengths(pool, int(asked["--isl"]), int(asked["--osl"]), findings)
    findings.end()
    return found


def _fixed_lengths(pool: dict, prompt: int, answer: int, findings: Findings) -> None:
    """Where all requests are alike: the context holds one, rounded up to 1,024; after its first token come the others,
    each in its time."""
    least = prompt if pool["role"] == "prefill" else prompt + answer
    most = prompt + answer + 1023
    findings.ordered("a request, the context, a request rounded up", least, pool["max_model_len_tokens"], most)
    if pool["role"] == "serve":
        rest = (answer - 1) * pool["tpot_ms"]
        findings.ordered("the tokens after the first, and E2E", rest, pool["e2e_ms"], rel=1e-3)
        findings.ordered("E2E, and its parts at their worst", pool["e2e_ms"], pool["ttft_ms"] + rest, rel=0.1)


# one a second meet: the simulator's median of TPOT is 2 % above the form's, and its E2E 0.5 % below
@pytest.mark.parametrize(("rate", "rel"), [("0.001", 0.0025), ("1", 0.02)])
@pytest.mark.parametrize(
    ("model", "tp", "isl", "osl", "more"),
    [
        ("llama-3.1-8b", "1", 1500, 20, ("--backend", "vllm")),
        ("llama-3.1-70b", "4", 200, 20, ("--backend", "trtllm")),
        ("qwen3-30b-a3b", "2", 6000, 150, ("--backend", "sglang")),
        ("llama-3.1-70b", "8", 1500, 800, ("--weights", "fp8")),
    ],
)
def test_a_median_request_lasts_as_long_as_its_parts(model, tp, isl, osl, more, rate, rel):
    """At the median, where requests hardly meet and are all alike, nothing but the tokens follows the first one."""
    lengths = [
        "--isl",
        str(isl),
        "--osl",
        str(osl),
        "--percentile",
        "0.5",
        "--ttft-p99",
        "15 s",
        "--tpot-p99",
        "150 ms",
    ]
    question = ["plan", "--model", model, "--tp", tp, "--gpu", "h100_sxm", "--rate", f"{rate} req/s", *lengths, *more]
    found = ask([*question, "--no-split", "--no-sensitivity"])
    (pool,) = found.document["result"]["recommended"]["pools"]
    assert pool["e2e_ms"] == pytest.approx(pool["ttft_ms"] + (osl - 1) * pool["tpot_ms"], rel=rel)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_answer_contradicts_itself(batch):
    """Also: what changes when an input does, and what the fleet serves, by asking again after each fifth answer. Of the
    questions about a workload every second one is answered without replays in `make test`."""
    feasible, named = itertools.count(), itertools.count()
    again = itertools.cycle((changed_rate, changed_slo, runs_already))
    for _ in range(batch):
        next(again)

    @seed(batch)
    @settings(max_examples=EACH, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(questions())
    def audited(asked):
        if not THOROUGH and "--workload" in asked and next(named) % 2:
            asked |= {"--no-ensure": ""}
        found = answered(asked)
        if found.document["result"]["feasible"] and next(feasible) % 5 == 0:
            next(again)(asked, found)

    audited()
    assert next(feasible) > 0, "nothing that was asked is feasible"


def cheapest(found: Answered) -> float | None:
    least = found.document["result"]["cheapest"]
    return least and least["usd_per_hour"]


def told(found: Answered, what: str, factor: float) -> list[float | None]:
    """What the answer says the plan costs when an input changes; [] where it was not asked to."""
    changes = found.document["result"]["sensitivity"]
    return [c["usd_per_hour"] for c in changes if (c["what"], c["factor"]) == (what, factor)]


def by_the_forms(asked: dict[str, str], found: Answered) -> tuple[dict[str, str], Answered]:
    """The question and its answer without replays, which the table of other inputs is without, and which may take an
    instance more for less, as its requests arrive at other times."""
    asked = asked | {"--no-ensure": ""}
    return asked, answered(asked) if found.document["result"]["ensured"] else found


def changed_rate(asked: dict[str, str], found: Answered) -> None:
    rate = float(asked["--rate"].split()[0])
    asked, found = by_the_forms(asked, found)
    less = answered(asked | {"--rate": f"{0.8 * rate!r} req/s", "--no-sensitivity": ""})
    assert cheapest(less) <= cheapest(found) * (1 + 1e-9)
    for said in told(found, "request rate", 0.8):
        assert said == pytest.approx(cheapest(less), rel=1e-9), "sensitivity to the rate, by planning again"


def changed_slo(asked: dict[str, str], found: Answered) -> None:
    twice = 2 * float(asked["--ttft-p99"].split()[0])
    asked, found = by_the_forms(asked, found)
    later = answered(asked | {"--ttft-p99": f"{twice!r} s", "--no-sensitivity": ""})
    assert cheapest(later) <= cheapest(found) * (1 + 1e-9)
    for said in told(found, "TTFT SLO", 2.0):
        assert said == pytest.approx(cheapest(later), rel=1e-9), "sensitivity to the SLO, by planning again"


def script(best: dict, less: int = 0) -> str:
    """The recommended fleet as its operator writes it down, `less` instances of the first pool switched off."""
    lines = []
    for k, pool in enumerate(best["pools"]):
        count = pool["pool_instances"] - (less if k == 0 else 0)
        lines.append(f"# {pool['name']}: {count} x {pool['gpus_per_instance']} {pool['gpu']} ({pool['layout']})")
        lines += [f"# {pool['name']}: start {count} of", pool["command"]]
    if "threshold_tokens" in best["router"]:
        lines.append(f"# route requests of up to {best['router']['threshold_tokens']} tokens")
    return "\n".join(lines) + "\n"


def runs_already(asked: dict[str, str], found: Answered) -> None:
    """The launch lines, read back as a fleet that runs: it serves the rate, and as much more as was promised."""
    result = found.document["result"]
    best, room = result["recommended"], result["rate_headroom_frac"]
    unlike = {"--kv", "--node-gpus", "--headroom", "--spare", "--confidence", "--no-ensure"}
    if any(p["command"].startswith("#") for p in best["pools"]) or unlike & asked.keys():
        return
    now = running(asked, script(best))
    rate = found.document["inputs"]["rate_rps"] * (1 - result["refused_frac"])
    assert (now["rate_rps"], now["refused_frac"]) == (pytest.approx(rate), pytest.approx(result["refused_frac"]))
    assert (now["gpus"], now["usd_per_hour"]) == (best["fleet_gpus"], pytest.approx(best["usd_per_hour"]))
    off = any("The closed forms are off here" in note for note in result["notes"])
    if result["ensured"] is None and off:  # what runs is judged by replays, and the plan says that it is not
        return
    assert now["keeps_slo"]

    def at_growth(growth: float) -> list[dict]:
        """What runs, of which a sample is replayed, with so many times the requests."""
        more = asked | {"--rate": f"{found.document['inputs']['rate_rps'] * growth!r} req/s"}
        return running(more, script(best))["pools"]

    if now["serves_rps"] < rate * (1 + room) * (1 - 1e-2):
        much = f"the headroom {room:.0%} is more than {now['serves_rps'] / rate - 1:.0%}"
        assert result["ensured"] is not None and not any(late(asked, p, 1.15) for p in at_growth(1 + room)), much
    if result["ensured"] is None:  # in replays fewer may hold than by the formulas
        return
    beyond = (1 + room + 0.0201) * (1 + 1e-2)
    if room < 1.2 and best["kind"] == "one pool" and now["serves_rps"] > rate * beyond:
        assert late(asked, at_growth(beyond)[0], 1 / 1.15), f"nothing is near a limit at the headroom {room:.0%}"
    binding = best["pools"][0]["binding"]
    # a fleet that lacks only the margin for other days does keep its SLOs
    others = "all service", "memory", "the margin for other days"
    if binding not in others and best["kind"] != "prefill/decode split":
        less = running(asked, script(best, less=1))
        assert not less["keeps_slo"], f"{binding} does not bind"
        broken = late(asked, less["pools"][0])
        assert binding == "throughput" or broken == set(binding.split(" and ")), f"{binding} binds, {less}"


def late(asked: dict[str, str], pool: dict, share: float = 1.0) -> set[str]:
    """The SLOs of which a pool takes more than a `share`; a pool that only computes prompts has no TPOT."""
    bounds, units = {"TTFT": "--ttft-p99", "TPOT": "--tpot-p99"}, {"s": 1.0, "ms": 1e-3}
    bounds = bounds if pool["name"] != "prefill" else {"TTFT": "--ttft-p99"}
    most = {name: float(asked[of].split()[0]) * units[asked[of].split()[1]] for name, of in bounds.items()}
    taken = {name: pool[f"{name.lower()}_s"] for name in bounds}
    return {name for name in bounds if taken[name] is None or taken[name] > share * most[name]}


def running(asked: dict[str, str], text: str) -> dict:
    """What a fleet of this script serves of what was asked; the plan beside it is of no interest."""
    asked = {option: value for option, value in asked.items() if option != "--ensure"}
    asked |= {"--no-ensure": "", "--no-sensitivity": ""}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "serve.sh"
        path.write_text(text)
        return ask(["plan", *words(asked), "--from-deployment", path]).document["result"]["running_now"]


@pytest.mark.parametrize(
    ("binding", "lengths", "slos"),
    [("TTFT", ("4000", "20"), ("0.5 s", "200 ms")), ("TPOT", ("200", "400"), ("10 s", "9 ms"))],
)
def test_what_binds_breaks_with_an_instance_less(binding, lengths, slos):
    asked = {"--model": "llama-3.1-8b", "--gpu": "h100_sxm", "--tp": "1", "--rate": "20 req/s", "--no-split": ""}
    asked |= {"--isl": lengths[0], "--osl": lengths[1], "--ttft-p99": slos[0], "--tpot-p99": slos[1]}
    asked |= {"--no-sensitivity": "", "--ensure": ""}
    found = answered(asked)
    assert found.document["result"]["recommended"]["pools"][0]["binding"] == binding
    runs_already(asked, found)


def test_plans_hold_what_one_instance_is_said_to_hold(tmp_path):
    """`size` tells the room for a cache and what a token takes: requests a little shorter fit a plan, longer ones do
    not, and no server is started with a context that it could not hold."""
    layout = ["--model", "llama-3.1-70b", "--tp", "2"]
    sized = ["size", *layout, "--gpu", "h100_sxm", "--max-num-seqs", "256"]  # the plan's
    part = ask(sized).document["result"]["per_gpu"]
    most = int(part["kv_budget_bytes"] / part["kv_bytes_per_token"])
    question = ["plan", *layout, "--gpu", "h100_sxm", "--rate", "0.01 req/s", "--ttft-p99", "60 s", "--tpot-p99", "1 s"]
    question += ["--osl", "32", "--no-split", "--no-sensitivity"]
    fits = ask([*question, "--isl", str(most - 64)]).document["result"]
    (pool,) = fits["recommended"]["pools"]
    assert most - 32 <= pool["max_model_len_tokens"] <= most
    assert pool["slots_count"] == pytest.approx(1.0, abs=0.1)
    trace = tmp_path / "some_long.csv"  # almost all requests fit many times, one of them not once
    lengths = [int(1.2 * most) if k == 50 else 500 for k in range(400)]
    rows = [f"{100 * k},{length},32" for k, length in enumerate(lengths)]
    trace.write_text("\n".join(["time_s,input_tokens,output_tokens", *rows]))
    few = ["--trace", trace, "--no-ensure", "--thresholds", "1024", "--no-split", "--no-sensitivity"]
    rare = ask(["plan", *layout, "--gpu", "h100_sxm", "--ttft-p99", "60 s", *few]).document["result"]
    assert rare["rejections"][0]["binding"] == "memory for KV"
    longer = ask([*question, "--isl", str(int(1.2 * most))]).document["result"]
    assert not longer["feasible"] and longer["rejections"][0]["binding"] == "memory for KV"


#: What binds -> questions in which it does, alone or with others.
FALLEN = {
    "memory": [{"--tp": "1,2,4,8", "--gpu": "h100_sxm,h200_sxm", "--isl": "100000", "--osl": "1000"}],
    "TTFT": [{"--tp": "2,4", "--isl": "10000", "--osl": "100", "--ttft-p99": "0.05 s"}],
    "TPOT": [{"--tp": "2,4", "--isl": "1000", "--osl": "100", "--tpot-p99": "3 ms"}],
    "TTFT or TPOT": [{"--tp": "2", "--isl": "10000", "--osl": "100", "--ttft-p99": "0.05 s", "--tpot-p99": "3 ms"}],
    "GPU budget": [
        {"--tp": "4", "--rate": "20 req/s", "--isl": "2000", "--osl": "500", **limits}
        for limits in (
            {"--max-gpus": "4"},
            {"--max-gpus": "6", "--gpus": "h100_sxm=2"},
            {"--max-gpus": "3", "--gpus": "h100_sxm=5", "--budget": "9 $/h"},
        )
    ],
    "money": [{"--tp": "4", "--rate": "20 req/s", "--isl": "2000", "--osl": "500", "--budget": "9 $/h"}],
}
#: What a part of a fix says -> the option that it changes, and to what from what it was.
FIXES: dict[str, tuple[str, Callable[[float, str], str]]] = {
    r"([\d,]+) GPUs per instance": ("--tp", lambda gpus, _: f"{gpus:.0f}"),
    r"a TTFT SLO of ([\d.,]+) ms": ("--ttft-p99", lambda ms, _: f"{ms / 1e3!r} s"),
    r"a TPOT SLO of ([\d.,]+) ms": ("--tpot-p99", lambda ms, _: f"{ms!r} ms"),
    r"([\d,]+) more GPUs?": ("--max-gpus", lambda more, was: f"{float(was) + more:.0f}"),
    r"([\d,]+) more h100_sxm GPUs?": ("--gpus", lambda more, was: f"h100_sxm={float(was.split('=')[1]) + more:.0f}"),
    r"\$([\d,.]+)/h more": ("--budget", lambda more, was: f"{float(was.split()[0]) + more!r} $/h"),
}


def repaired(asked: dict[str, str], fix: str) -> list[tuple[dict[str, str], dict[str, str] | None]]:
    """For each part of a fix: what it changes, and the same with less, where it counts GPUs or dollars."""
    found = []
    for part in re.split(r", or ", fix)[0].split(" and "):
        match, option, change = next(
            (match, *how) for pattern, how in FIXES.items() if (match := re.fullmatch(pattern, part))
        )
        amount, was = number(match[1]), asked.get(option, "")
        less = (
            amount / 2 if option == "--tp" else amount - 1 if option in ("--max-gpus", "--gpus", "--budget") else None
        )
        found.append(({option: change(amount, was)}, less and {option: change(less, was)}))
    return found


@pytest.mark.parametrize(("binding", "more"), [(binding, q) for binding, several in FALLEN.items() for q in several])
def test_the_smallest_fix_does_and_less_does_not(binding, more):
    """Of every layout that fell, asked again with what its fix says, and with less of each part or without it."""
    asked = {"--model": "llama-3.1-70b", "--gpu": "h100_sxm", "--rate": "0.01 req/s"}
    asked |= {"--ttft-p99": "60 s", "--tpot-p99": "1000 ms", **more, "--no-split": "", "--no-sensitivity": ""}
    fell = [r for r in answered(asked).document["result"]["rejections"] if r["binding"].startswith(binding[:4])]
    assert fell
    for rejection in fell:
        gpu, tp = re.match(r"(\S+) tp(\d+)", rejection["layout"]).groups()
        parts = repaired(asked, rejection["fix"])
        whole = asked | {"--gpu": gpu, "--tp": tp}
        for change, _ in parts:
            whole |= change
        cases = [(whole, True)] + [(whole | less, False) for _, less in parts if less]
        for change, _ in parts if len(parts) > 1 else []:
            (option,) = change
            cases.append((whole | {option: asked[option]}, False))
        for again, does in cases:
            found = answered(again).document["result"]
            assert found["feasible"] is does, f"with {again}: {rejection}"


def test_where_the_gpus_are_too_few_the_fleet_of_the_fewest_is_named():
    """Here a split, of two pools; with as many GPUs as it needs there is a plan, with one less there is none."""
    asked = {"--rate": "20 req/s", "--gpu": "h100_sxm,h200_sxm", "--tp": "2,4", "--tpot-p99": "30 ms"}
    asked |= {"--thresholds": "4096", "--no-sensitivity": "", "--no-ensure": "", "--max-gpus": "4"}

    def answer(gpus: float) -> dict:
        return ask(["plan", *words(asked | {"--max-gpus": f"{gpus:.0f}"})]).document["result"]

    fewest, *others = answer(4)["rejections"]
    assert fewest["layout"].startswith("prefill/decode split (") and (fewest["have"], others != []) == ("4 GPUs", True)
    need = number(fewest["need"].removesuffix(" GPUs"))
    assert need == sum(math.prod(map(int, each)) for each in re.findall(r"(\d+) x \S+ tp(\d+)", fewest["layout"]))
    assert fewest["fix"] == f"{need - 4:.0f} more GPUs"
    assert all(number(other["need"].removesuffix(" GPUs")) > need for other in others)
    assert answer(need)["feasible"] and not answer(need - 1)["feasible"]
    assert not any("(" in one["layout"] for one in answer(need)["rejections"])  # what can be bought lacks no GPU


@pytest.mark.parametrize(
    ("kind", "slo"), [("one pool", "80 ms"), ("prefill/decode split", "30 ms")], ids=lambda text: text[:3]
)
def test_a_page_says_what_the_document_says(kind, slo, tmp_path):
    """With two GPU types."""
    small = ["--gpu", "h100_sxm,h200_sxm", "--tp", "2,4", "--thresholds", "4096", "--no-sensitivity", "--tpot-p99", slo]
    page = tmp_path / "plan.html"
    found = ask(["plan", "--rate", "20 req/s", *small, "--no-ensure", "--out", page])
    assert found.document["result"]["recommended"]["kind"] == kind
    audit_plan(found.document)
    audit_shown(found.document, found.text)
    audit_page(found.document, page.read_text(encoding="utf-8"))


def test_requests_beyond_the_context_are_counted_wherever_lengths_change(tmp_path):
    """Of 100 requests two are refused, and three cut off; a fifth longer, four more and the three are refused, too; a
    fifth shorter, all fit. Phi-4 takes 16,384 tokens."""
    kinds = (
        [(20_000, 100)] * 2
        + [(16_000, 1000)] * 3
        + [(15_000, 100)] * 4
        + [(2000, 100), (1000, 100)] * 45
        + [(2000, 100)]
    )
    order = [kinds[37 * k % 100] for k in range(400)]
    path = tmp_path / "some_long.csv"
    rows = [f"{0.2 * k},{prompt},{answer}" for k, (prompt, answer) in enumerate(order)]
    path.write_text("\n".join(["time_s,input_tokens,output_tokens", *rows]))
    asked = ["plan", "--model", "phi-4", "--gpu", "h100_sxm", "--tp", "1,2", "--trace", path, "--ttft-p99", "5 s"]
    found = ask([*asked, "--tpot-p99", "80 ms", "--no-split", "--thresholds", "4096", "--no-ensure"])
    audit_plan(found.document)
    audit_shown(found.document, found.text)
    result, inputs = found.document["result"], found.document["inputs"]
    assert (result["refused_frac"], result["cut_off_frac"]) == (pytest.approx(0.02), pytest.approx(0.03))
    refused = {c["factor"]: c["refused_frac"] for c in result["sensitivity"] if c["what"] == "input length"}
    assert refused == {0.8: pytest.approx(0.0), 1.2: pytest.approx(0.09)}
    a_second = inputs["rate_rps"] * (95 * 100 + 3 * 384) / 100
    rows = next(rows for title, rows in terminal_tables(found.text).items() if "Alternatives" in title)
    dollars = result["recommended"]["usd_per_hour"] / 3600 / a_second * 1e6
    assert number(rows[0]["USD/Mtoken out"]) == pytest.approx(dollars, rel=1e-2)
