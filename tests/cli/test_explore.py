"""`dmodels explore` over loopback: with a plain client, and in a browser where there is one."""

from __future__ import annotations

import asyncio
import html
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from dmodels.cli import main
from dmodels.core.errors import InputError

SCENARIO = f"""
[model]
name = "llama-3.1-70b"
[gpu]
name = ["h100", "h200"]
[workload]
trace = "{Path(__file__).parents[2] / "examples" / "data" / "azure_conv_5min.csv"}"
[traffic]
rate = "60 req/s"
[space]
tp = [4, 8]
thresholds = [2048]
split = false
"""


@pytest.fixture(scope="module")
def scenario(tmp_path_factory):
    path = tmp_path_factory.mktemp("explore") / "small.toml"
    path.write_text(SCENARIO)
    return path


@pytest.fixture(scope="module")
def address(scenario):
    """The address that the command prints; afterwards it is interrupted as a person would."""
    call = "import sys; from dmodels.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", call, "explore", str(scenario), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        said = server.stdout.readline()
        found = re.match(r"(http://127\.0\.0\.1:\d+)/", said)
        assert found, said + server.stderr.read()
        yield found[1]
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=30) == 0
        assert "Traceback" not in server.stderr.read()


def get(url: str, headers: dict | None = None, **settings) -> tuple[int, str]:
    """(status, text)"""
    query = "?" + urllib.parse.urlencode(settings) if settings else ""
    request = urllib.request.Request(url + query, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def answer(address: str, **settings) -> dict:
    status, text = get(f"{address}/answer.json", **settings)
    assert status == 200, text
    return json.loads(text)["result"]


def test_the_page_has_a_dial_for_everything_and_the_answer_already(address):
    status, page = get(address)
    assert status == 200
    turned = ("rate", "isl", "osl", "cached", "ttft", "tpot", "headroom", "spare", "gpus")
    for name in (*turned, "price_h100_sxm", "price_h200_sxm"):
        assert f'<label for="{name}">' in page and f'data-for="{name}"' in page
    labels = dict(re.findall(r'<label for="(\w+)">([^<]*)<', page))
    units = {"rate": "req/s", "isl": "tokens", "osl": "tokens", "ttft": "ms", "tpot": "ms", "cached": "%"}
    for name in ("price_h100_sxm", "price_h200_sxm"):
        assert labels[name] == f"price of {name.removeprefix('price_')} [USD/h]"
    assert all(labels[name].endswith(f" [{unit}]") for name, unit in units.items()), labels
    assert page.count('type="range"') == 11
    assert re.findall('<select id="([a-z]+)"', page) == ["gpu", "weights", "kv"]
    ends = re.findall(r'data-for="(\w+)" .*?data-low="([^"]*)" data-high="([^"]*)".*?value="(\d+)"', page)
    assert len(ends) == 11 and all(0 <= float(low) < float(high) for _, low, high, _ in ends)
    places = {name: int(place) for name, _, _, place in ends}
    both_ways = ("rate", "isl", "osl", "ttft", "tpot", "price_h100_sxm", "price_h200_sxm")
    assert all(0 < places[name] < 1000 for name in both_ways), places
    assert "As at the start." in page and '<a href="/">Reset</a>' in page
    assert "Deploy " in page and page.count("<svg") >= 3
    assert re.findall(r'src="([^"]*)"', page) == ["/explore.js"]
    assert 'fetch("/answer?"' in get(f"{address}/explore.js")[1]


def test_at_rest_it_says_what_the_report_says(address, scenario, tmp_path, capsys):
    assert (
        main(["report", str(scenario), "--json", "--no-sensitivity", "--no-ensure", "--out", str(tmp_path / "p.html")])
        == 0
    )
    reported = json.loads(capsys.readouterr().out)["result"]
    assert answer(address) == reported
    shown = dict(re.findall(r'name="(\w+)" value="([\d.]*)"', get(address)[1]))
    assert shown["gpus"] == ""  # any number
    assert answer(address, **shown) == reported  # as the form sends it, rounded for people


def test_every_dial_moves_the_plan_the_right_way(address):
    base = answer(address)["recommended"]["usd_per_hour"]
    cost = lambda **settings: answer(address, **settings)["recommended"]["usd_per_hour"]
    assert cost(rate=120) > 1.5 * base
    assert cost(isl=2300) > base > cost(isl=600)
    assert cost(osl=800) > base
    assert cost(tpot=40) > base >= cost(tpot=160)
    assert cost(ttft=1000) >= base
    assert cost(price_h100_sxm=1.0, price_h200_sxm=1.0) < base
    assert cost(cached=60) < base < cost(headroom=100)
    assert cost(spare=1) > base
    assert cost(weights="fp8", kv="fp8") < base
    only = answer(address, gpu="h200_sxm")["recommended"]
    assert {pool["gpu"] for pool in only["pools"]} == {"h200_sxm"} and only["usd_per_hour"] >= base


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"rate": "abc"}, "rate 'abc': accepted are numbers of req/s"),
        ({"rate": "-3"}, "rate -3 req/s: accepted are positive numbers"),
        ({"rate": "nan"}, "rate nan req/s: accepted are positive numbers"),
        ({"isl": "0"}, "isl 0 tokens: accepted are positive numbers"),
        ({"tpot": "0"}, "SLO tpot_s = 0: accepted are numbers above 0"),
        ({"price_h100_sxm": "-1"}, "price of h100_sxm -1 USD/h: accepted are positive numbers"),
        ({"gpu": "h1000"}, "GPU 'h1000' is unknown; the nearest are h100_sxm, h200_sxm"),
        ({"spare": "1.5"}, "spare 1.5 per pool: accepted are whole numbers from 0"),
        ({"cached": "100"}, "cached share 1: accepted are shares from 0 to below 1"),
        ({"headroom": "-1"}, "headroom = -0.01: accepted are shares"),
        ({"gpus": "0"}, "max_gpus = 0: accepted are numbers from 1"),
        ({"weights": "int3"}, "precision 'int3' is unknown; the nearest are int8"),
        ({"speed": "3"}, "speed is unknown; accepted are cached, gpu, gpus, headroom, isl, kv, osl"),
    ],
)
def test_bad_values_are_one_line(address, settings, says):
    status, text = get(f"{address}/answer", **settings)
    assert status == 422 and text.startswith(says) and "\n" not in text
    status, page = get(address, **settings)  # the page itself stays usable
    assert status == 422 and 'type="range"' in page


def test_words_come_without_pictures_and_say_what_changed(address):
    words, drawn = get(f"{address}/answer", rate=120)[1], get(f"{address}/pictures", rate=120)[1]
    assert "<svg" not in words and drawn.count("<svg") >= 5 and "<table" not in drawn
    start, now = answer(address)["recommended"], answer(address, rate=120)["recommended"]
    more, usd = now["bought_gpus"] - start["bought_gpus"], now["usd_per_hour"] - start["usd_per_hour"]
    assert f"Against the start: {more:+d} GPUs, +${usd:,.2f}/h" in words
    said = answer(address, rate=120)["summary"][0]
    assert said.startswith("Deploy ") and html.escape(said) in words  # of the dials, not of the start
    assert "At the start there was a fleet." in get(f"{address}/answer", gpus=1)[1]


def test_there_are_no_more_gpus_than_the_dial_says(address):
    most = answer(address)["recommended"]["bought_gpus"]
    assert answer(address, gpus=most)["recommended"]["bought_gpus"] <= most
    assert answer(address, gpus=4)["feasible"] is False


def test_infeasible_shows_what_binds(address):
    status, text = get(f"{address}/answer", tpot=1)
    assert status == 200 and "TPOT without load binds" in text and "smallest fix" in text


def test_the_report_of_the_dials_is_a_page_of_its_own(address):
    status, page = get(f"{address}/report", rate=90)
    assert status == 200 and "What could go wrong" in page and "90 req/s" in page and "/report?rate=90" in page


def test_it_answers_this_machine_only(address):
    from dmodels.cli.explore_server import listening

    assert get(address, headers={"Host": "elsewhere.example"})[0] == 400
    assert get(address, headers={"Sec-Fetch-Site": "cross-site"})[0] == 403  # what a page elsewhere asks for
    assert get(address, headers={"Sec-Fetch-Site": "same-origin"})[0] == 200
    with listening(0) as open_:
        assert open_.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("path", ["/", "/answer", "/pictures", "/answer.json", "/explore.js", "/answer?rate=abc"])
def test_every_reply_says_what_a_browser_may_do_with_it(address, path):
    """Load nothing from elsewhere, run the page's own script alone, take a text for what it is, keep no copy."""
    try:
        with urllib.request.urlopen(f"{address}{path}", timeout=60) as reply:
            head, kind = reply.headers, reply.headers["Content-Type"]
    except urllib.error.HTTPError as error:
        head, kind = error.headers, "error"
    assert (head["X-Content-Type-Options"], head["Cache-Control"]) == ("nosniff", "no-store")
    rules = dict(rule.strip().split(" ", 1) for rule in head["Content-Security-Policy"].split(";"))
    assert rules["default-src"] == "'none'" and rules["script-src"] == "'self'" and rules["frame-ancestors"] == "'none'"
    kinds = {"/answer.json": "application/json", "/explore.js": "text/javascript", "/answer?rate=abc": "error"}
    assert kind.startswith(kinds.get(path, "text/html"))


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: 127"])
def test_a_connection_that_asks_nothing_is_ended(monkeypatch, sent):
    """Of slow connections enough would take all places; one that waits for its answer stays as long as that takes."""
    import uvicorn
    from starlette.responses import PlainTextResponse

    from dmodels.cli import explore_server

    monkeypatch.setattr(explore_server, "IDLE_S", 0.2)
    slow, server = PlainTextResponse("at last"), uvicorn.Server

    async def app(scope, receive, send):
        if scope["type"] == "http":
            await asyncio.sleep(0.7)
            await slow(scope, receive, send)

    made = []
    monkeypatch.setattr(uvicorn, "Server", lambda config: made.append(server(config)) or made[0])
    with explore_server.listening(0) as listener:
        serving = threading.Thread(target=explore_server.serve, args=(app, listener))
        serving.start()
        with socket.create_connection(listener.getsockname(), timeout=60) as idle:
            idle.sendall(sent)
            assert idle.recv(100) == b""
        status, text = get(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        assert (status, text) == (200, "at last")
        made[0].should_exit = True
        serving.join(timeout=60)


def test_caches_are_offered_as_engines_can_be_started_with_them(address):
    page = get(address)[1]
    offered = re.findall(r'<option value="([^"]+)"', page[page.index('name="kv"') :].partition("</select>")[0])
    assert offered == ["bf16", "fp8"]
    for kv in offered:
        assert get(f"{address}/answer.json", kv=kv)[0] == 200


def test_an_answer_is_found_once_for_its_words_and_its_pictures_and_not_kept_for_ever(monkeypatch):
    """A page that is left open would fill the memory; and what is asked for of late is still there."""
    from dmodels.cli import explore_server

    made = []
    monkeypatch.setattr(explore_server, "turned", lambda asked, dials: dials)
    monkeypatch.setattr(explore_server, "read_dials", lambda asked, given: given.get("rate"))
    monkeypatch.setattr(explore_server, "plan", lambda dials, ensure: made.append((dials, ensure)) or dials)
    for part in ("answer_fragment", "pictures_fragment"):
        monkeypatch.setattr(explore_server.explore_page, part, lambda *shown: "")
    parts = {route.path: route.endpoint for route in explore_server.application("asked", "a.toml").routes}
    ask = lambda path, rate: parts[path](SimpleNamespace(query_params={"rate": rate}))
    ask("/answer", "1"), ask("/pictures", "1")
    assert made == [(None, False), ("1", False)]  # at rest, and of the dials
    for k in range(200):
        ask("/answer", f"2{k}")
    ask("/answer", "2180")
    assert len(made) == 202
    ask("/answer", "1")
    assert len(made) == 203


def test_a_port_in_use_is_one_line():
    from dmodels.cli.explore_server import listening

    with listening(0) as first:
        first.listen()
        with pytest.raises(InputError, match=r"--port \d+: .*--port 0 takes any free one"):
            listening(first.getsockname()[1])
    with pytest.raises(InputError, match="--port 99999"):
        listening(99999)


def test_turning_a_dial_compiles_nothing(tmp_path, caplog):
    from dataclasses import replace

    import jax

    from dmodels.cli.plan_inputs import from_scenario
    from dmodels.report.explore_page import answer_fragment
    from dmodels.studies import plan as plans
    from dmodels.studies.explore import at_rest, turned

    plan = partial(plans.plan, ensure=False)
    scenario = tmp_path / "named.toml"
    scenario.write_text(re.sub("trace = .*", 'name = "azure-conv"', SCENARIO))
    asked = from_scenario(scenario).call().run()
    rest = at_rest(asked)
    start = plan(asked)
    show = lambda **settings: answer_fragment(plan(turned(asked, replace(rest, **settings))), start)
    show()
    with jax.log_compiles():
        for field, factor in (
            ("rate_rps", 1.3),
            ("isl_tokens", 0.7),
            ("osl_tokens", 1.9),
            ("ttft_s", 0.6),
            ("tpot_s", 1.7),
        ):
            show(**{field: factor * getattr(rest, field)})
        show(price_usd_per_hour={"h100_sxm": 1.0, "h200_sxm": 9.0})
    assert [r.message for r in caplog.records if "Compiling" in r.message] == []


def test_in_a_narrow_dark_browser_nothing_is_clipped(address, chromium, faults):
    page = chromium.new_page(viewport={"width": 390, "height": 900}, color_scheme="dark")
    page.goto(address)
    assert faults(page) == []
    page.close()


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), pytest.param(390, "dark", marks=pytest.mark.slow)]
)  # both in `make browser`
def test_in_a_browser_the_plan_follows_the_sliders(address, chromium, faults, width, scheme):
    page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    raised = []
    page.on("pageerror", lambda error: raised.append(str(error)))
    page.goto(address)
    assert faults(page) == []
    before = page.inner_text("#answer .answer")
    page.locator('input[data-for="rate"]').fill("900")
    page.locator("#answer:not(.old)").get_by_text(f"for {page.input_value('#rate')} req/s").first.wait_for()
    assert page.inner_text("#answer .answer") != before and "Answered in" in page.inner_text("#status")
    assert faults(page) == []
    page.fill("#tpot", "1")
    page.get_by_text("TPOT without load binds").first.wait_for()
    assert faults(page) == [] and "tpot=1" in page.url
    page.fill("#tpot", "-1")
    page.get_by_text("SLO tpot_s = -0.001: accepted are numbers above 0").wait_for()
    assert page.inner_text("#answer .answer") and faults(page) == []
    page.fill("#tpot", "80")
    page.locator('input[data-for="headroom"]').fill("500")
    page.locator("#answer:not(.old)").get_by_text("Against the start: +").first.wait_for()
    page.locator("#pictures:not(.old) svg").first.wait_for()
    assert page.input_value("#headroom") == "50" and faults(page) == []
    assert "headroom=50" in page.get_attribute("a[download]", "href")
    page.select_option("#gpu", "h200_sxm")
    page.get_by_text("h200_sxm tp").first.wait_for()
    assert raised == []
    page.close()
