"""The local server of `dmodels explore`: a Starlette application that answers this machine only."""

from __future__ import annotations

import asyncio
import math
import socket
import threading
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from dmodels.core.errors import InputError
from dmodels.report import explore_page, html, plan_json
from dmodels.report.plan_page import plan_page
from dmodels.studies.explore import Dials, at_rest, turned
from dmodels.studies.plan import Plan, Question, plan, sensitivity

from . import render

LOOPBACK = "127.0.0.1"
#: Seconds that a connection stays open without asking anything, or in the midst of asking.
IDLE_S = 10
#: The page needs its own script and style and nothing else from anywhere.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def application(asked: Question, scenario: str) -> Starlette:
    """The pages about one question. Requests that name another host are refused (a page elsewhere could send them)."""
    turn = threading.Lock()  # one answer at a time: the machine has no more to give, and figures share settings

    @lru_cache(maxsize=64)  # the words of an answer are asked for first, then its pictures, then perhaps its report
    def at(settings: tuple[tuple[str, str], ...]) -> Plan:
        return plan(turned(asked, read_dials(asked, dict(settings))), ensure=False)

    def answered(request: Request) -> Plan:
        return at(tuple(sorted(request.query_params.items())))

    start = at(())

    def whole(request: Request) -> Response:
        with turn:
            began = time.perf_counter()
            shown: Plan | None = None
            try:
                dials, shown = read_dials(asked, request.query_params), answered(request)
                status, code = f"Answered in {1e3 * (time.perf_counter() - began):.0f} ms.", 200
            except InputError as error:
                dials, status, code = at_rest(asked), str(error), 422
            return HTMLResponse(explore_page.explore_page(asked, dials, start, shown, status), code, _HEADERS)

    def fragment(request: Request) -> Response:
        with turn:
            return HTMLResponse(explore_page.answer_fragment(answered(request), start), headers=_HEADERS)

    def pictures(request: Request) -> Response:
        with turn:
            return HTMLResponse(explore_page.pictures_fragment(answered(request)), headers=_HEADERS)

    def document(request: Request) -> Response:
        with turn:
            answer = answered(request)
            given, found = plan_json.inputs(answer), plan_json.result(answer, [])
            return Response(render.as_json("explore", given, found), 200, _HEADERS, "application/json")

    def report(request: Request) -> Response:
        with turn:
            answer = answered(request)
            changes = sensitivity(answer) if answer.best is not None else []
            again = f"dmodels explore {scenario}  # then open /report?{request.url.query}"
            return HTMLResponse(plan_page(answer, changes, again), headers=_HEADERS)

    def script(request: Request) -> Response:
        return Response(html.shipped("explore.js"), 200, _HEADERS, "text/javascript")

    def refused(request: Request, error: Exception) -> Response:
        return PlainTextResponse(str(error), 422, _HEADERS)

    routes = [("/", whole), ("/answer", fragment), ("/pictures", pictures), ("/answer.json", document)]
    routes.append(("/report", report))
    return Starlette(
        routes=[*(Route(path, endpoint) for path, endpoint in routes), Route("/explore.js", script)],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=[LOOPBACK, "localhost"]),
            Middleware(_OwnPagesOnly),
        ],
        exception_handlers={InputError: refused},
    )


class _OwnPagesOnly:
    """Refuses what a page of another site asks for: it could not read the answer, but could keep the machine busy."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asks = self.app
        if scope["type"] == "http" and Headers(scope=scope).get("sec-fetch-site") == "cross-site":
            asks = PlainTextResponse("asked by a page of another site", 403, _HEADERS)
        await asks(scope, receive, send)


def read_dials(asked: Question, given: Mapping[str, str]) -> Dials:
    """The dials in an address; what it leaves out stays at rest."""
    rest = at_rest(asked)
    numbers = {dial.name for dial in explore_page.FIELDS.values()}
    known = {*explore_page.CHOICES, *numbers, *(f"price_{name}" for name in asked.gpus)}
    for name in given:
        if name not in known:
            raise InputError(f"{name} is unknown; accepted are {', '.join(sorted(known))}")
    values: dict[str, Any] = {}
    for field, dial in explore_page.FIELDS.items():
        still, text = getattr(rest, field), given.get(dial.name)
        values[field] = still if text is None else _number(dial.name, text or "inf", dial.unit) / dial.factor
        if math.isclose(values[field], still, rel_tol=1e-4):  # as shown, with five digits: not turned
            values[field] = still
    values |= {name: given.get(name, "") for name in explore_page.CHOICES}
    prices = {
        name: _number(f"price_{name}", given[f"price_{name}"], "USD/h") if f"price_{name}" in given else price
        for name, price in rest.price_usd_per_hour.items()
    }
    return Dials(**values, price_usd_per_hour=prices)


def listening(port: int) -> socket.socket:
    """A socket on the loopback address; 0 takes any free port."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((LOOPBACK, port))
        made.listen()  # before the address is printed, so that who follows it at once is not refused
    except (OSError, OverflowError) as error:
        made.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"--port {port}: {reason.lower()}; --port 0 takes any free one") from None
    return made


def serve(app: Starlette, listener: socket.socket) -> None:
    """Answer until interrupted."""
    import uvicorn

    uvicorn.Server(
        uvicorn.Config(
            app,
            http=_prompt(),
            log_level="warning",
            access_log=False,
            timeout_keep_alive=IDLE_S,
            limit_concurrency=32,
        )
    ).run(sockets=[listener])


def _prompt() -> type[asyncio.Protocol]:
    """The server's HTTP that ends connections which ask nothing whole for `IDLE_S`: slow ones would take all places."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Prompt(H11Protocol):
        late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            answered = self.cycle
            super().data_received(data)
            if self.cycle is not answered:  # a whole question came: the next one has its own time
                self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            if self.late is not None:
                self.late.cancel()

        def _wait(self) -> None:
            if self.late is not None:
                self.late.cancel()
            self.late = self.loop.call_later(IDLE_S, self._end)

        def _end(self) -> None:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()
            else:
                self._wait()

    return Prompt


def _number(name: str, text: str, unit: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{name} {text!r}: accepted are numbers of {unit}") from None
