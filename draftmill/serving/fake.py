"""A fake SGLang server that answers by script or by seed, and misbehaves on demand.

For tests, ours and yours, and for rehearsals: a hundred thousand rows in a
minute, resets, stuck requests, silent corruption, a server that is still
loading. Protocol, limits and error words are those of the facade, which is held
to a real server's recordings.

    async with FakeServer(Seeded(seed=7), rule=nth({3: Fault.RESET_MIDWAY})) as fake:
        ...ask fake.url...
        fake.log[2].fault

or, as a process: `python -m draftmill.serving.fake --port 30000 --fault error_500=0.1`.
`GET /fake/log` and `GET /fake/stats` tell what it was asked and what it sent.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any

from aiohttp import web

from draftmill.serving.answers import Card, Generated
from draftmill.serving.facade import Facade, Flight
from draftmill.serving.fake_answers import Answers, Markers, Seeded, finished
from draftmill.serving.faults import Act, Rule, Scene, spoil
from draftmill.serving.protocol import GenerateRequest, Limits
from draftmill.serving.refusals import INTERNAL_ERROR, NOT_FOUND, Refusal
from draftmill.serving.wire_faults import INSTEAD, instead, send

CARD = Card("fake-model", "0.5.23", slots=64, notes=("draftmill's fake server: no model is behind it",))
LIMITS = Limits(context_length=8192)

TICK_S = 0.01
"""Ids are let out at most this often: sleeping for each of them would measure the loop, not the latency."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds before the first id, and per id."""

    first_s: float = 0.0
    per_id_s: float = 0.0


@dataclass(slots=True)
class LogEntry:
    """One `/generate` request. `output_ids` as sent, faults included; times are seconds since the epoch.

    `status` None: nothing was answered (a reset, a hang, a client that went away).
    """

    number: int
    started_at: float
    rid: str | None = None
    input_ids: list[int] | None = None
    sampling_params: dict[str, Any] | None = None
    fault: str | None = None
    status: int | None = None
    output_ids: list[int] | None = None
    ended_at: float | None = None


class FakeServer(Facade):
    """Use as `async with`. `log` holds every `/generate` request in the order of arrival."""

    def __init__(
        self,
        answers: Answers | None = None,
        *,
        card: Card = CARD,
        limits: Limits = LIMITS,
        rule: Rule | None = None,
        latency: Latency | None = None,
        queue_limit: int | None = None,
        loading_s: float = 0.0,
        markers: Markers | None = None,
        tokenizer: Callable[[dict[str, Any]], list[int]] | None = None,
        port: int = 0,
    ) -> None:
        super().__init__(card, limits, queue_limit=queue_limit)
        self.log: list[LogEntry] = []
        self.rule = rule
        self._answers: Answers = Seeded() if answers is None else answers
        self._markers = markers or (answers.markers if isinstance(answers, Seeded) else Markers())
        self._latency = latency or Latency()
        self._loading_s = loading_s
        self._loaded_at = math.inf
        self._tokenizer = tokenizer
        self._port_wanted = port

    async def __aenter__(self) -> FakeServer:
        await self.open(self._port_wanted)
        self._loaded_at = time.monotonic() + self._loading_s
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def loaded(self) -> bool:
        return time.monotonic() >= self._loaded_at

    async def tokenize(self, body: dict[str, Any]) -> dict[str, Any] | Refusal:
        """By the `tokenizer` it was given, which takes the request's body; without one there is no such page."""
        if self._tokenizer is None:
            return NOT_FOUND
        ids = self._tokenizer(body)
        return {"tokens": ids, "count": len(ids), "max_model_len": self.limits.context_length}

    def routes(self) -> list[web.RouteDef]:
        return [*super().routes(), web.get("/fake/log", self._show_log), web.get("/fake/stats", self._show_stats)]

    async def on_generate(self, http: web.Request) -> web.StreamResponse:
        entry = LogEntry(len(self.log) + 1, time.time())
        self.log.append(entry)
        try:
            return await self._play(http, entry)
        finally:
            entry.ended_at = time.time()

    async def _play(self, http: web.Request, entry: LogEntry) -> web.StreamResponse:
        request = await self.read(http)
        act = None if isinstance(request, Refusal) else self._note(entry, request)
        if act is not None and act.fault in INSTEAD:
            response = await instead(http, act)
            entry.status = response.status if response.prepared or http.transport is not None else None
            return response
        body = await self.answer(request)
        if isinstance(body, Refusal):
            entry.status = body.status
            return body.response()
        if act is not None and isinstance(request, GenerateRequest):
            spoil(body, act.fault, Scene(request, self._markers, self.limits.vocabulary, act.amount))
        entry.output_ids = body.get("output_ids")
        response = await send(http, body, None if act is None else act.fault)
        entry.status = response.status
        return response

    def _note(self, entry: LogEntry, request: GenerateRequest) -> Act | None:
        """Writes the request into its log entry and asks the rule what goes wrong with it."""
        entry.rid, entry.input_ids, entry.sampling_params = request.rid, list(request.asked_ids), request.sampling
        chosen = None if self.rule is None else self.rule(entry.number, request)
        act = chosen if chosen is None or isinstance(chosen, Act) else Act(chosen)
        entry.fault = None if act is None else act.fault
        return act

    async def generate(self, flight: Flight) -> Generated | Refusal:
        """Lets the answer's ids out at the pace of the latency, so that an abort finds the ids so far."""
        try:
            answer = finished(flight.request, self._answers(flight.request))
        except KeyError:  # a prompt the script does not know
            return INTERNAL_ERROR
        if self._latency.first_s:
            await asyncio.sleep(self._latency.first_s)
        per_id_s = self._latency.per_id_s
        step = max(1, math.ceil(TICK_S / per_id_s)) if per_id_s else len(answer.output_ids)
        while per_id_s and len(flight.ids) < len(answer.output_ids):
            batch = answer.output_ids[len(flight.ids) : len(flight.ids) + step]
            await asyncio.sleep(per_id_s * len(batch))
            flight.ids.extend(batch)
        return answer

    async def _show_log(self, _: web.Request) -> web.StreamResponse:
        return web.json_response([asdict(entry) for entry in self.log])

    async def _show_stats(self, _: web.Request) -> web.StreamResponse:
        return web.json_response(self.stats())

    def stats(self) -> dict[str, Any]:
        """Counts of `/generate` requests: all, unfinished, by fault, by status."""
        return {
            "generate": len(self.log),
            "in_flight": sum(entry.ended_at is None for entry in self.log),
            "faults": dict(Counter(entry.fault for entry in self.log if entry.fault is not None)),
            "statuses": dict(Counter(str(entry.status) for entry in self.log if entry.ended_at is not None)),
        }


if __name__ == "__main__":
    from draftmill.serving.fake_command import main

    main()
