"""The web side both servers share: SGLang's routes, slots with a queue, aborts, the key.

A server gives it one coroutine, `generate`, and gets what SGLang has around it:
requests beyond the slots wait in order; a full queue refuses; a rid is unique
while in flight; `/abort_request` ends every rid that begins with the one given;
a client that goes away cancels its request, so that nothing is generated for
nobody. Binds to loopback only: there is no protection here worth the name.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from draftmill.serving import answers
from draftmill.serving.answers import Card, Generated
from draftmill.serving.protocol import GenerateRequest, Limits, duplicate_rid, read_generate
from draftmill.serving.refusals import METHOD_NOT_ALLOWED, NOT_FOUND, QUEUE_FULL, UNAUTHORIZED, Refusal, invalid

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LOOPBACK = "127.0.0.1"

LARGEST_BODY_BYTES = 64 << 20
"""A prompt of a million ids is about 8 MB of JSON; aiohttp's own limit is 1 MiB."""

KEEPALIVE_S = 5.0
"""Idle connections are closed after this, as SGLang does (recorded): clients must bear it."""

SHUTDOWN_S = 0.2
"""How long a request in flight may still take when the server ends; then it is cancelled."""

BACKLOG = 2048
"""Connections that may wait to be accepted, as uvicorn has it: a client opens one per request in flight."""

NEEDS_NO_KEY = frozenset({"/health", "/health_generate", "/ready", "/metrics"})


@dataclass(slots=True)
class Flight:
    """A request on its way. `ids` are the ids so far, left here by an engine that is cancelled and knows them."""

    request: GenerateRequest
    started_s: float
    running: bool = False
    aborted: bool = False
    work: asyncio.Future[Generated | Refusal] | None = None
    ids: list[int] = field(default_factory=list)

    def abort(self) -> None:
        """Ends it; its client gets an answer with finish reason `abort`."""
        self.aborted = True
        if self.work is not None:
            self.work.cancel()


class Facade:
    """A server of the SGLang protocol around `generate`. Started by `open`, ended by `close`.

    `flights` are the requests it has taken and not answered yet, by rid. `gives_scores`: whether log-probabilities of a
    prompt may be asked for.
    """

    gives_scores = False

    def __init__(self, card: Card, limits: Limits, *, queue_limit: int | None = None) -> None:
        self.card = card
        self.limits = limits
        self.port = 0
        self._queue_limit = queue_limit
        self.flights: dict[str, Flight] = {}
        self._slots = asyncio.Semaphore(card.slots)
        self._runner: web.AppRunner | None = None

    async def generate(self, flight: Flight) -> Generated | Refusal:
        """What the engine makes of a request. Cancelled when it is aborted or its client goes away."""
        raise NotImplementedError

    async def tokenize(self, body: dict[str, Any]) -> dict[str, Any] | Refusal:
        """The answer to `/tokenize`; a server without a tokenizer has none."""
        return NOT_FOUND

    def loaded(self) -> bool:
        """Whether the weights are in; while they are not, `/ready` and `/health` say 503."""
        return True

    async def healthy(self) -> bool:
        """Whether the engine can generate, found out by generating."""
        return True

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    async def open(self, port: int = 0) -> None:
        """Listens on a loopback port; 0 takes a free one."""
        self._runner = web.AppRunner(
            self._app(),
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=KEEPALIVE_S,
            shutdown_timeout=SHUTDOWN_S,
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, LOOPBACK, port, backlog=BACKLOG)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Stops listening and cancels what is in flight. May be called twice."""
        runner, self._runner = self._runner, None
        if runner is not None:
            for flight in list(self.flights.values()):
                if flight.work is not None:
                    flight.work.cancel()
            await runner.cleanup()

    async def cut(self) -> None:
        """Ends as a process that is killed does: the port refuses at once, every connection closes unanswered."""
        if self._runner is None or self._runner.server is None:
            return
        for site in list(self._runner.sites):
            await site.stop()
        for connection in self._runner.server.connections:
            if connection.transport is not None:
                connection.transport.abort()
        await self.close()

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=LARGEST_BODY_BYTES, middlewares=[self._door])
        app.add_routes(self.routes())
        return app

    def routes(self) -> list[web.RouteDef]:
        """Path by path; a subclass adds its own."""
        pages: dict[str, Callable[[], web.Response]] = {
            "/": lambda: web.json_response("SGLang is running"),
            "/ping": web.Response,
            "/ready": lambda: web.Response(status=200 if self.loaded() else 503),
            "/model_info": lambda: web.json_response(answers.model_info(self.card)),
            "/server_info": lambda: web.json_response(answers.server_info(self.card, self.limits)),
            "/v1/models": lambda: web.json_response(answers.v1_models(self.card, self.limits)),
            "/v1/loads": lambda: web.json_response(self._loads()),
        }
        pages["/get_model_info"], pages["/get_server_info"] = pages["/model_info"], pages["/server_info"]

        return [
            *(web.get(path, _page(make)) for path, make in pages.items()),
            web.get("/health", self._health),
            web.get("/health_generate", self._health),
            web.post("/generate", self.on_generate),
            web.post("/abort_request", self._abort),
            web.post("/tokenize", self._tokenize),
            web.post("/v1/tokenize", self._tokenize),
        ]

    @web.middleware
    async def _door(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The key, and SGLang's words for a wrong path or method."""
        key, shown = self.card.api_key, request.headers.get("Authorization")
        if key is not None and request.path not in NEEDS_NO_KEY and shown != f"Bearer {key}":
            return UNAUTHORIZED.response()
        try:
            return await handler(request)
        except web.HTTPNotFound:
            return NOT_FOUND.response()
        except web.HTTPMethodNotAllowed:
            return METHOD_NOT_ALLOWED.response()

    async def on_generate(self, http: web.Request) -> web.StreamResponse:
        """`POST /generate`."""
        answer = await self.answer(await self.read(http))
        return answer.response() if isinstance(answer, Refusal) else web.json_response(answer)

    async def read(self, http: web.Request) -> GenerateRequest | Refusal:
        """The request in an HTTP request, or why it is refused."""
        is_json = http.content_type == "application/json"
        return read_generate(
            await http.read(),
            is_json=is_json,
            limits=self.limits,
            preferred=self.card.preferred,
            scores=self.gives_scores,
        )

    async def answer(self, request: GenerateRequest | Refusal) -> dict[str, Any] | Refusal:
        """Takes a request through queue and engine."""
        if isinstance(request, Refusal):
            return request
        if request.rid in self.flights:
            return duplicate_rid(request.rid)
        if self._queue_limit is not None and len(self.flights) >= self.card.slots + self._queue_limit:
            return QUEUE_FULL
        flight = Flight(request, time.monotonic())
        self.flights[request.rid] = flight
        try:
            generated = await self._fly(flight)
        finally:
            del self.flights[request.rid]
        if isinstance(generated, Refusal):
            return generated
        return answers.generate_answer(request, generated, self.card, started_s=flight.started_s)

    async def _fly(self, flight: Flight) -> Generated | Refusal:
        flight.work = asyncio.ensure_future(self._in_slot(flight))
        try:
            return await flight.work
        except asyncio.CancelledError:
            if not flight.aborted:  # the client went away, or the server ends
                raise
        finish = answers.aborted() if flight.running else answers.aborted_in_queue()
        return Generated(tuple(flight.ids), finish, text="")

    async def _in_slot(self, flight: Flight) -> Generated | Refusal:
        async with self._slots:
            flight.running = True
            return await self.generate(flight)

    def _loads(self) -> dict[str, Any]:
        running = sum(flight.running for flight in self.flights.values())
        return answers.v1_loads(self.card, running=running, waiting=len(self.flights) - running)

    async def _health(self, _: web.Request) -> web.StreamResponse:
        return web.Response(status=200 if self.loaded() and await self.healthy() else 503)

    async def _abort(self, http: web.Request) -> web.StreamResponse:
        body = await _object(http)
        if isinstance(body, Refusal):
            return body.response()
        self.abort(body.get("rid") or "", everything=body.get("abort_all") is True)
        return web.Response()

    def abort(self, prefix: str, *, everything: bool) -> None:
        """Ends the flights whose rid begins with `prefix`; an empty one ends nothing without `everything`."""
        for rid, flight in list(self.flights.items()):
            if everything or (prefix and rid.startswith(prefix)):
                flight.abort()

    async def _tokenize(self, http: web.Request) -> web.StreamResponse:
        body = await _object(http)
        answer = body if isinstance(body, Refusal) else await self.tokenize(body)
        return answer.response() if isinstance(answer, Refusal) else web.json_response(answer)


def _page(make: Callable[[], web.Response]) -> Handler:
    async def page(_: web.Request) -> web.StreamResponse:
        return make()

    return page


async def _object(http: web.Request) -> dict[str, Any] | Refusal:
    """The JSON object in a request's body."""
    try:
        body = await http.json()
    except ValueError:
        return invalid("the body is not JSON.")
    return body if isinstance(body, dict) else invalid("the body is not a JSON object.")
