"""A fake SGLang server that answers by script or by seed, and misbehaves on demand.

For tests, ours and yours, and for rehearsals: a hundred thousand rows in a
minute, resets, stuck requests, silent corruption, a server that is still
loading. Protocol, limits and error words are those of the facade, which is held
to a real server's recordings. With a `scorer` (fake_scores) it gives log-probabilities of a prompt, too.

    async with FakeServer(Seeded(seed=7), rule=nth({3: Fault.RESET_MIDWAY})) as fake:
        ...ask fake.url...
        fake.log[2].fault

or, as a process: `python -m draftmill.serving.fake --port 30000 --fault error_500=0.1`.
`GET /fake/log` and `GET /fake/stats` tell what it was asked and what it sent;
`fake_events` has what happens to the server as a whole.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from weakref import WeakSet

from aiohttp import web

from draftmill.serving import fake_log
from draftmill.serving.answers import Card, Generated, ran_out
from draftmill.serving.facade import Flight
from draftmill.serving.fake_answers import Answers, Markers, Seeded, finished
from draftmill.serving.fake_events import Mortal
from draftmill.serving.fake_log import CURRENT, FIELDS, LogEntry
from draftmill.serving.fake_scores import Scorer, as_sglang
from draftmill.serving.faults import Act, Fault, Rule, Scene, spoil
from draftmill.serving.protocol import GenerateRequest, Limits
from draftmill.serving.refusals import INTERNAL_ERROR, NOT_FOUND, Refusal, invalid
from draftmill.serving.wire_faults import INSTEAD, RESETS, instead, send

CARD = Card("fake-model", "0.5.23", slots=64, notes=("draftmill's fake server: no model is behind it",))
LIMITS = Limits(context_length=8192)


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds before the first id, and per id."""

    first_s: float = 0.0
    per_id_s: float = 0.0

    def whole_s(self, count: int) -> float:
        """What an answer of `count` ids takes."""
        return self.first_s + count * self.per_id_s

    def ids_after(self, passed_s: float) -> int:
        """How many ids are out by then; none before the first, all of them where ids take no time."""
        if passed_s < self.first_s:
            return 0
        return int((passed_s - self.first_s) / self.per_id_s) if self.per_id_s else sys.maxsize


class FakeServer(Mortal):
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
        scorer: Scorer | None = None,
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
        self._scorer = scorer
        self.gives_scores = scorer is not None
        self._port_wanted = port
        self._used_before: WeakSet[asyncio.BaseTransport] = WeakSet()

    async def __aenter__(self) -> FakeServer:
        await self.open(self._port_wanted)
        return self

    async def open(self, port: int = 0) -> None:
        await super().open(port)
        self._loaded_at = time.monotonic() + self._loading_s

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
        entry = LogEntry(len(self.log) + 1)
        self.log.append(entry)
        CURRENT.set(entry)
        try:
            return await self._play(http, entry)
        finally:
            entry.ended_at = time.time()

    async def _play(self, http: web.Request, entry: LogEntry) -> web.StreamResponse:
        request = await self.read(http)
        act = None if isinstance(request, Refusal) else self._note(entry, request, used=self._is_used(http))
        if act is not None and act.fault in INSTEAD:
            response = await instead(http, act)
            entry.status = None if act.fault in RESETS else response.status
            return response
        body = await self.answer(request)
        if isinstance(body, Refusal):
            entry.status = body.status
            return body.response()
        if act is not None and isinstance(request, GenerateRequest):
            spoil(body, act.fault, Scene(request, self._markers, self.limits.vocabulary, act.amount))
        entry.sends(body.get("output_ids"))
        if self._scorer is not None and isinstance(request, GenerateRequest) and request.scored is not None:
            body["meta_info"] |= as_sglang(self._scorer, request)
        response = await send(http, body, None if act is None else act.fault)
        entry.status = response.status
        return response

    def _is_used(self, http: web.Request) -> bool:
        """Whether this connection has brought a `/generate` request before."""
        transport = http.transport
        if transport is None:
            return False
        used = transport in self._used_before
        self._used_before.add(transport)
        return used

    def _note(self, entry: LogEntry, request: GenerateRequest, *, used: bool) -> Act | None:
        """Writes the request into its log entry and asks the rule what goes wrong with it."""
        entry.asks(request)
        chosen = None if self.rule is None else self.rule(entry.number, request)
        act = chosen if chosen is None or isinstance(chosen, Act) else Act(chosen)
        if act is not None and act.fault is Fault.RESET_REUSED and not used:
            return None
        entry.fault = None if act is None else act.fault
        return act

    async def generate(self, flight: Flight) -> Generated | Refusal:
        """The answer after its latency, in one sleep; cut short, it leaves the ids that would be out by then."""
        began_s = time.monotonic()
        CURRENT.get().running_at = time.time()
        if flight.request.scored is not None:  # its ids are no prompt of a script
            return Generated((), ran_out(0))
        try:
            answer = finished(flight.request, self._answers(flight.request))
        except KeyError:  # a prompt the script does not know
            return INTERNAL_ERROR
        try:
            if whole_s := self._latency.whole_s(len(answer.output_ids)):
                await asyncio.sleep(whole_s)
            await self.going()
        except asyncio.CancelledError:
            flight.ids.extend(answer.output_ids[: self._latency.ids_after(time.monotonic() - began_s)])
            raise
        return answer

    async def _show_log(self, http: web.Request) -> web.StreamResponse:
        fields = http.query["fields"].split(",") if "fields" in http.query else FIELDS
        unknown = [name for name in fields if name not in FIELDS]
        if unknown:
            return invalid(f"the log has no {', '.join(unknown)}: it has {', '.join(FIELDS)}.").response()
        entries = self.log[int(http.query.get("after", 0)) :]
        return web.Response(body=fake_log.as_json(entries, fields), content_type="application/json")

    async def _show_stats(self, _: web.Request) -> web.StreamResponse:
        return web.json_response(self.stats())

    def stats(self) -> dict[str, Any]:
        """Counts of `/generate` requests: all, unfinished, by fault, by status."""
        return fake_log.stats(self.log)


if __name__ == "__main__":
    from draftmill.serving.fake_command import main

    main()
