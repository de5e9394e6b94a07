"""A fake vLLM server that answers by script or by seed, and breaks as a real one does.

What it does wrong is what was recorded of vLLM 0.32.0, and what a client must
survive: `drain` (new requests get 200 with abort and no ids), `kill_engine` (500
for all in flight, then the port refuses), `terminate` (the port refuses, what is
in flight is never answered), `stall` (`/health` says 200, no token comes),
budgets clipped in silence, 503 when busy.

    async with VllmFake(Seeded(seed=7), slots=4) as fake:
        ...ask fake.url...
        fake.stall()

Binds to loopback only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Any

from aiohttp import web

from draftmill.serving import facade, vllm_protocol
from draftmill.serving.answers import Generated
from draftmill.serving.fake_answers import Answers, Seeded, finished
from draftmill.serving.fake_scores import Scorer, as_vllm
from draftmill.serving.protocol import GenerateRequest
from draftmill.serving.refusals import METHOD_NOT_ALLOWED, NOT_FOUND, UNAUTHORIZED, Refusal
from draftmill.serving.vllm_protocol import BUSY, DEAD, NO_TOKENIZER, VllmLimits

TICK_S = 0.01
"""Ids are let out at most this often: sleeping for each of them would measure the loop, not the latency."""

DRAINED = Generated((), {"type": "abort"})
"""What a draining server answers new requests with."""


class State(StrEnum):
    """What the server is doing."""

    SERVING = "serving"
    DRAINING = "draining"  # SIGTERM with --shutdown-timeout: what is in flight finishes
    TERMINATED = "terminated"  # SIGTERM without: nobody is ever answered
    DEAD = "dead"  # the engine process is gone


@dataclass(slots=True, eq=False)
class VllmFlight:
    """A request on its way. Two may have the same id: vLLM does not mind."""

    request: GenerateRequest
    running: bool = False
    work: asyncio.Future[Generated] | None = None


@dataclass(slots=True)
class VllmFake:
    """Use as `async with`. `asked` holds the body of every completion request, in the order of arrival.

    `scorer` (fake_scores): it gives log-probabilities of a prompt; `scored_from`: where in it the generated ids begin.
    """

    answers: Answers = field(default_factory=Seeded)
    model: str = "fake-model"
    version: str = "0.32.0"
    limits: VllmLimits = field(default_factory=VllmLimits)
    slots: int = 64
    queue_limit: int | None = None
    per_id_s: float = 0.0
    eos_id: int = 2
    api_key: str | None = None
    tokenizer: Callable[[dict[str, Any]], list[int]] | None = None
    scorer: Scorer | None = None
    scored_from: Callable[[tuple[int, ...]], int] = len
    port: int = 0
    state: State = State.SERVING
    tokens: int = 0
    asked: list[dict[str, Any]] = field(default_factory=list)
    flights: set[VllmFlight] = field(default_factory=set)
    _going: asyncio.Event = field(default_factory=asyncio.Event)
    _free: asyncio.Semaphore = field(init=False)
    _runner: web.AppRunner | None = None

    def __post_init__(self) -> None:
        self._free = asyncio.Semaphore(self.slots)
        self._going.set()

    @property
    def url(self) -> str:
        return f"http://{facade.LOOPBACK}:{self.port}"

    async def __aenter__(self) -> VllmFake:
        app = web.Application(client_max_size=facade.LARGEST_BODY_BYTES, middlewares=[self._door])
        app.add_routes(self._routes())
        self._runner = web.AppRunner(
            app,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=facade.KEEPALIVE_S,
            shutdown_timeout=facade.SHUTDOWN_S,
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, facade.LOOPBACK, self.port, backlog=facade.BACKLOG).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    # What happens to it

    def stall(self) -> None:
        """The engine stops making tokens; the pages answer as before."""
        self._going.clear()

    def resume(self) -> None:
        """The end of `stall`."""
        self._going.set()

    async def drain(self) -> None:
        """SIGTERM with --shutdown-timeout: returns when what is in flight is answered and the port refuses."""
        self.state = State.DRAINING
        works = [flight.work for flight in self.flights if flight.work is not None]
        await asyncio.gather(*works, return_exceptions=True)
        await self._refuse()

    async def terminate(self) -> None:
        """SIGTERM: the port refuses, and what is in flight hangs until its client goes away."""
        await self._refuse()
        self._end(State.TERMINATED)

    async def kill_engine(self) -> None:
        """The engine process dies: 500 for what is in flight, and the port refuses."""
        await self._refuse()
        self._end(State.DEAD)

    def _end(self, state: State) -> None:
        self.state = state
        for flight in self.flights:
            if flight.work is not None:
                flight.work.cancel()

    async def _refuse(self) -> None:
        if self._runner is not None:
            for site in list(self._runner.sites):
                await site.stop()

    # Its pages

    def _routes(self) -> list[web.RouteDef]:
        pages: dict[str, Callable[[], web.Response]] = {
            "/health": web.Response,
            "/ping": web.Response,
            "/load": lambda: web.json_response({"server_load": 0}),
            "/version": lambda: web.json_response({"version": self.version}),
            "/v1/models": lambda: web.json_response(vllm_protocol.listed(self.model, self.limits)),
            "/metrics": lambda: web.Response(text=self._metrics()),
        }
        return [
            *(web.get(path, _page(make)) for path, make in pages.items()),
            web.post("/v1/completions", self._completions),
            web.post("/tokenize", self._tokenize),
        ]

    @web.middleware
    async def _door(self, request: web.Request, handler: facade.Handler) -> web.StreamResponse:
        """The key, which guards /v1 only, and the words for a wrong path or method."""
        scheme, _, key = request.headers.get("Authorization", "").partition(" ")
        guarded = self.api_key is not None and request.path.startswith("/v1")
        if guarded and (scheme.lower() != "bearer" or key != self.api_key):
            return UNAUTHORIZED.response()
        try:
            return await handler(request)
        except web.HTTPNotFound:
            return NOT_FOUND.response()
        except web.HTTPMethodNotAllowed:
            return METHOD_NOT_ALLOWED.response()

    def _metrics(self) -> str:
        labels = f'{{engine="0",model_name="{self.model}"}}'
        running = sum(flight.running for flight in self.flights)
        series = {
            "num_requests_running": ("gauge", running),
            "num_requests_waiting": ("gauge", len(self.flights) - running),
            "generation_tokens_total": ("counter", self.tokens),
        }
        return "".join(
            f"# TYPE vllm:{name} {kind}\nvllm:{name}{labels} {value:.1f}\n" for name, (kind, value) in series.items()
        )

    async def _tokenize(self, http: web.Request) -> web.StreamResponse:
        body = vllm_protocol.read_object(await http.read())
        if isinstance(body, Refusal):
            return body.response()
        if body.get("model") not in (None, self.model):
            return vllm_protocol.wrong_model(body["model"], self.model).response()
        if self.tokenizer is None:
            return NO_TOKENIZER.response()
        ids = self.tokenizer(body)
        context = self.limits.context_length
        return web.json_response({"count": len(ids), "max_model_len": context, "tokens": ids, "token_strs": None})

    # Completions

    async def _completions(self, http: web.Request) -> web.StreamResponse:
        body = vllm_protocol.read_object(await http.read())
        if isinstance(body, Refusal):
            return body.response()
        self.asked.append(body)
        header_id = http.headers.get("X-Request-Id")
        request = vllm_protocol.read_completion(
            body, served=self.model, limits=self.limits, header_id=header_id, scores=self.scorer is not None
        )
        if isinstance(request, Refusal):
            return request.response()
        generated = await self._answer(request)
        if isinstance(generated, Refusal):
            return generated.response()
        told = vllm_protocol.completion(request, generated, model=self.model, version=self.version, eos_id=self.eos_id)
        if self.scorer is not None and (top := body.get("prompt_logprobs")) is not None:
            start = self.scored_from(request.prompt_ids)
            told["choices"][0]["prompt_logprobs"] = as_vllm(self.scorer, request.prompt_ids, top, start=start)
        return web.json_response(told)

    async def _answer(self, request: GenerateRequest) -> Generated | Refusal:
        if self.state is State.DRAINING:
            return DRAINED
        if self.state is State.DEAD:
            return DEAD
        if self.queue_limit is not None and len(self.flights) >= self.queue_limit:
            return BUSY
        flight = VllmFlight(request)
        self.flights.add(flight)
        try:
            return await self._fly(flight)
        finally:
            self.flights.discard(flight)

    async def _fly(self, flight: VllmFlight) -> Generated | Refusal:
        if self.state is State.TERMINATED:  # over a connection that was open before
            await asyncio.Event().wait()
        flight.work = asyncio.ensure_future(self._in_slot(flight))
        try:
            return await flight.work
        except asyncio.CancelledError:
            if self.state is State.TERMINATED:
                await asyncio.Event().wait()
            if self.state is State.DEAD:
                return DEAD
            raise  # the client went away

    async def _in_slot(self, flight: VllmFlight) -> Generated:
        async with self._free:
            flight.running = True
            generated = finished(flight.request, self.answers(flight.request))
            left = len(generated.output_ids)
            step = max(1, round(TICK_S / self.per_id_s)) if self.per_id_s else max(1, left)
            while left > 0:
                await self._going.wait()
                await asyncio.sleep(min(step, left) * self.per_id_s)
                self.tokens += min(step, left)
                left -= step
            return generated


def _page(make: Callable[[], web.Response]) -> facade.Handler:
    async def page(_: web.Request) -> web.StreamResponse:
        return make()

    return page
