"""The server of `dmodels explore` in the test's own process: its pages are called as a server calls them."""

from __future__ import annotations

import asyncio
import errno
import json
import math
import signal
import socket
import sys
from contextlib import contextmanager
from types import SimpleNamespace as Record

import pytest

from dmodels.cli import explore, explore_server, interrupts, main, render
from dmodels.core.errors import InputError
from dmodels.studies.explore import Dials

REST = Dials(5.0, 1000.0, 200.0, 2.0, 0.08, "", {"a": 2.0, "b": 3.0}, 0.25, 0.1, 1.0, 64.0)
#: The dials as the page shows those that are at rest.
SHOWN = {"rate": "5", "isl": "1000", "osl": "200", "ttft": "2000", "tpot": "80", "cached": "25", "headroom": "10"}
SHOWN |= {"spare": "1", "gpus": "64", "price_a": "2", "price_b": "3"}


@pytest.fixture
def at_rest(monkeypatch):
    monkeypatch.setattr(explore_server, "at_rest", lambda asked: REST)
    return Record(gpus={"a": None, "b": None})


def replied(app, path, host="127.0.0.1", scheme="http", **headers):
    """(status, headers, text) of a GET."""
    path, _, query = path.partition("?")
    said = {"host": host} | {name.replace("_", "-"): value for name, value in headers.items()}
    scope = {"type": scheme, "method": "GET", "path": path, "raw_path": path.encode(), "query_string": query.encode()}
    scope |= {"headers": [(name.encode(), value.encode()) for name, value in said.items()], "http_version": "1.1"}
    scope |= {"scheme": "http", "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1), "root_path": ""}
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    head = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], head, b"".join(part.get("body", b"") for part in sent[1:]).decode()


@pytest.fixture
def pages(monkeypatch, at_rest):
    """The application of a plan that is only named; each page says what it was made of."""
    faked = {
        "plan": lambda question, ensure: Record(
            told=f"plan of {question}", best=None if question == "at 9.0" else "fleet"
        ),
        "turned": lambda asked, dials: f"at {dials.rate_rps}",
        "sensitivity": lambda answer: [f"changes of {answer.told}"],
        "plan_page": lambda answer, changes, again: f"report of {answer.told}, {changes}, {again}",
    }
    for name, fake in faked.items():
        monkeypatch.setattr(explore_server, name, fake)
    told = lambda plan: plan and plan.told
    page = lambda asked, dials, start, shown, status: json.dumps([dials.rate_rps, told(start), told(shown), status])
    monkeypatch.setattr(explore_server.explore_page, "explore_page", page)
    monkeypatch.setattr(explore_server.explore_page, "answer_fragment", lambda *plans: " | ".join(map(told, plans)))
    monkeypatch.setattr(explore_server.explore_page, "pictures_fragment", lambda plan: f"pictures of {plan.told}")
    monkeypatch.setattr(explore_server.plan_json, "inputs", lambda plan: {"inputs of": plan.told})
    monkeypatch.setattr(
        explore_server.plan_json, "result", lambda plan, changes: {"result of": plan.told, "c": changes}
    )
    monkeypatch.setattr(explore_server.html, "shipped", lambda name: f"the file {name}")
    monkeypatch.setattr(render, "as_json", lambda command, inputs, result: json.dumps([command, inputs, result]))
    return explore_server.application(at_rest, "a plan.toml")


def test_every_page_is_of_the_plan_that_its_address_asks_for(pages):
    said = {}
    for path in ("/answer", "/pictures", "/answer.json", "/report", "/explore.js"):
        status, head, said[path] = replied(pages, f"{path}?rate=7")
        assert status == 200 and head.items() >= {n.lower(): v for n, v in explore_server._HEADERS.items()}.items()
        kind = {"/answer.json": "application/json", "/explore.js": "text/javascript"}.get(path, "text/html")
        assert head["content-type"].partition(";")[0] == kind
    assert said["/answer"] == "plan of at 7.0 | plan of at 5.0"  # beside the one at the start
    assert said["/pictures"] == "pictures of plan of at 7.0"
    assert json.loads(said["/answer.json"]) == [
        "explore",
        {"inputs of": "plan of at 7.0"},
        {"result of": "plan of at 7.0", "c": []},
    ]
    again = "dmodels explore a plan.toml  # then open /report?rate=7"
    assert said["/report"] == f"report of plan of at 7.0, ['changes of plan of at 7.0'], {again}"
    assert said["/explore.js"] == "the file explore.js"
    assert ", [], " in replied(pages, "/report?rate=9")[2]  # nothing is feasible: nothing to vary
    assert replied(pages, "/other")[0] == 404


def test_the_page_says_how_long_its_answer_took_or_why_there_is_none(pages, monkeypatch):
    clock = iter([10.0, 10.25])
    monkeypatch.setattr(explore_server, "time", Record(perf_counter=lambda: next(clock, 0.0)))
    status, head, text = replied(pages, "/?rate=7")
    assert (status, json.loads(text)) == (200, [7.0, "plan of at 5.0", "plan of at 7.0", "Answered in 250 ms."])
    assert head["cache-control"] == "no-store"
    status, head, text = replied(pages, "/?rate=x")
    wrong = "rate 'x': accepted are numbers of req/s"
    assert (status, json.loads(text)) == (422, [5.0, "plan of at 5.0", None, wrong])
    assert head["cache-control"] == "no-store"
    status, head, text = replied(pages, "/answer?rate=x")
    assert (status, text, head["x-content-type-options"]) == (422, wrong, "nosniff")


def test_only_this_machine_and_pages_of_its_own_are_answered(pages):
    for host, status in (("127.0.0.1", 200), ("localhost:8765", 200), ("elsewhere.example", 400), ("127.0.0.2", 400)):
        assert replied(pages, "/explore.js", host)[0] == status
    for site, status in (("cross-site", 403), ("same-origin", 200), ("none", 200)):
        found, head, text = replied(pages, "/explore.js", sec_fetch_site=site)
        assert found == status and head["cache-control"] == "no-store"
        assert status == 200 or text == "asked by a page of another site"
    assert replied(pages, "/explore.js", "elsewhere.example", sec_fetch_site="cross-site")[0] == 400
    began = []

    async def inner(scope, receive, send):
        began.append(scope["type"])

    asyncio.run(explore_server._OwnPagesOnly(inner)({"type": "lifespan"}, None, None))
    assert began == ["lifespan"]  # which has no headers


def test_sixty_four_answers_are_kept(pages, monkeypatch):
    made = []
    monkeypatch.setattr(explore_server, "plan", lambda question, ensure: made.append(ensure) or Record(told=question))
    app = explore_server.application(Record(gpus={}), "a.toml")
    ask = lambda *rates: [replied(app, f"/pictures?rate={rate}") for rate in rates] and len(made)
    assert ask(1) == 2 and ask(*range(2, 65)) == 65 == ask(64, 1)  # the start has gone
    assert ask(65) == 66 == ask(1) and ask(2) == 67
    assert replied(app, "/pictures?rate=2&isl=9")[2] == replied(app, "/pictures?isl=9&rate=2")[2] and len(made) == 68
    assert set(made) == {False}  # a page that follows sliders waits for no replay


def test_what_an_address_leaves_out_stays_at_rest_and_what_it_shows_is_not_turned(at_rest):
    read = lambda **given: explore_server.read_dials(at_rest, given)
    assert read() == REST == read(**SHOWN)
    close = {"rate": "5.0004", "ttft": "1999.9", "gpus": "64.006"}  # as shown, with five digits
    assert read(**close) == REST and read(rate="5.001").rate_rps == 5.001
    typed = {"rate": "7", "isl": "1540", "osl": "43.5", "ttft": "1500", "tpot": "", "cached": "40", "headroom": "35"}
    typed |= {"spare": "3", "gpus": "", "price_a": "9.5", "gpu": "b", "weights": "fp8", "kv": "bf16"}
    assert read(**typed) == Dials(
        7.0, 1540.0, 43.5, 1.5, math.inf, "b", {"a": 9.5, "b": 3.0}, 0.4, 0.35, 3.0, math.inf, "fp8", "bf16"
    )
    for given, said in (
        ({"price_b": "two"}, "price_b 'two': accepted are numbers of USD/h"),
        ({"cached": "x"}, "cached 'x': accepted are numbers of %"),
        (
            {"price_c": "2"},
            "price_c is unknown; accepted are cached, gpu, gpus, headroom, isl, kv, osl, price_a, price_b, rate, "
            "spare, tpot, ttft, weights",
        ),
    ):
        with pytest.raises(InputError) as told:
            read(**given)
        assert str(told.value) == said


def test_a_port_is_of_the_loopback_address_and_free_again_at_once(monkeypatch):
    with explore_server.listening(0) as made:
        assert made.getsockname()[0] == "127.0.0.1" and made.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
        with socket.create_connection(made.getsockname(), timeout=60):
            pass  # who follows the address at once is not refused
        port = made.getsockname()[1]
        with pytest.raises(InputError) as told:
            explore_server.listening(port)
    reason = f"{OSError(errno.EADDRINUSE, '').strerror or 'Address already in use'}".lower()
    assert str(told.value) == f"--port {port}: {reason}; --port 0 takes any free one"
    with pytest.raises(InputError, match=r"^--port 99999: .*port must be 0-65535.*; --port 0 takes any free one"):
        explore_server.listening(99999)


def test_the_server_keeps_its_places_free_and_its_mouth_shut(monkeypatch):
    import uvicorn

    seen = {}
    config = lambda app, **how: seen.update(how, app=app) or "config"
    server = lambda given: Record(run=lambda sockets: seen.update(given=given, sockets=sockets))
    monkeypatch.setattr(uvicorn, "Config", config)
    monkeypatch.setattr(uvicorn, "Server", server)
    explore_server.serve("app", "socket")
    assert issubclass(seen.pop("http"), asyncio.Protocol)
    idle, places = seen.pop("timeout_keep_alive"), seen.pop("limit_concurrency")
    assert idle == explore_server.IDLE_S == 10 and places == 32  # a browser opens six connections at once
    assert seen == {"app": "app", "given": "config", "sockets": ["socket"], "log_level": "warning", "access_log": False}


class Timer:
    def __init__(self, seconds, then):
        self.seconds, self.then, self.stopped = seconds, then, False

    def cancel(self):
        self.stopped = True


def test_a_connection_has_its_time_for_each_whole_question(monkeypatch):
    from uvicorn.protocols.http.h11_impl import H11Protocol

    made = explore_server._prompt()
    one, timers, closed = made.__new__(made), [], []
    one.loop = Record(call_later=lambda seconds, then: timers.append(Timer(seconds, then)) or timers[-1])
    one.cycle, one.transport = None, Record(close=lambda: closed.append(1))
    monkeypatch.setattr(H11Protocol, "connection_made", lambda self, transport: None)
    monkeypatch.setattr(H11Protocol, "data_received", lambda self, data: setattr(self, "cycle", data or self.cycle))
    monkeypatch.setattr(H11Protocol, "connection_lost", lambda self, error: None)
    one.connection_lost(None)  # before it was made
    one.connection_made("transport")
    one.data_received(None)  # a part of a question
    assert [(timer.seconds, timer.stopped) for timer in timers] == [(explore_server.IDLE_S, False)]
    one.data_received(first := Record(response_complete=False))
    one.data_received(first)
    assert [timer.stopped for timer in timers] == [True, False]
    timers[-1].then()  # it waits for its answer
    assert len(timers) == 3 and not closed and timers[1].stopped
    first.response_complete = True
    timers[-1].then()
    assert closed == [1] and len(timers) == 3
    one.connection_lost(None)
    assert all(timer.stopped for timer in timers)
    one.cycle = None
    one._end()
    assert closed == [1, 1]


def test_the_command_serves_until_it_is_interrupted(monkeypatch, tmp_path, capsys):
    """The address is printed when it can be followed, and an interrupt then ends it well."""
    file, done = tmp_path / "plan.toml", []
    file.write_text("")
    listener = Record(getsockname=lambda: ("127.0.0.1", 4321))

    def served(app, by):
        done.append(("serve", app, by))
        raise KeyboardInterrupt

    @contextmanager
    def life():
        done.append("working")
        yield
        done.append("ready")

    notice = Record(name="t.csv", notices=("sorted",))
    made = Record(run=lambda: "question", values=lambda: [notice])
    monkeypatch.setattr(explore.PlanInputs, "call", lambda asked: made)
    monkeypatch.setattr(explore, "check_installed", lambda *names: done.append(names))
    monkeypatch.setattr(explore, "sign_of_life", life)
    monkeypatch.setattr(explore, "leave_to_the_server", lambda: done.append("left"))
    monkeypatch.setattr(explore_server, "listening", lambda port: done.append(port) or listener)
    monkeypatch.setattr(explore_server, "application", lambda question, scenario: (question, scenario))
    monkeypatch.setattr(explore_server, "serve", served)
    flushed = []
    monkeypatch.setattr(
        explore, "print", lambda *a, **how: flushed.append(how.pop("flush", False)) or print(*a, **how), raising=False
    )
    needed = ("dmodels explore", "starlette", "uvicorn", "matplotlib")
    for more, port in (([], 8765), (["--port", "0"], 0)):
        done.clear()
        assert main(["explore", str(file), *more]) == 0
        out, err = capsys.readouterr()
        assert out == "http://127.0.0.1:4321/  (Ctrl-C stops)\n" and flushed.pop()  # who reads a pipe waits for it
        preparing = "dmodels: preparing (compiling each model once) ..."
        assert err.splitlines() == ["dmodels: t.csv: sorted", preparing]
        app = ("question", str(file))
        assert done == [needed, "working", port, "ready", "left", ("serve", app, listener)]
    monkeypatch.setattr(explore_server, "serve", lambda app, by: done.append("ended"))
    assert main(["explore", str(file)]) == 0 and done[-1] == "ended"


def test_an_interrupt_is_left_to_the_server(monkeypatch):
    seen = []
    monkeypatch.setattr(signal, "set_wakeup_fd", lambda *given, **how: seen.append((given, how)))
    interrupts.leave_to_the_server()
    assert seen == [((-1,), {})] and sys.modules["signal"] is interrupts.signal
