"""One row's question to a server, asked again a few times when the network or the server fails it."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import ModuleType

import aiohttp

from draftmill.arrays import Ids
from draftmill.errors import GateRefused
from draftmill.generation.exchange import post
from draftmill.generation.retry import OUTCOMES, Outcome
from draftmill.records import Fault, FaultKind, Scores
from draftmill.redaction import redacted, sent_key

PAUSES_S = (0.5, 2.0, 5.0)
"""Seconds before each further try: an audit is repeated in minutes, nothing is lost when it ends."""

ANSWER_TIMEOUT_S = 600.0
"""Seconds. A prompt of 100,000 ids is read in far less by any server that could generate such rows."""

AGAIN = frozenset({Outcome.RETRY_HERE, Outcome.RETRY_ELSEWHERE, Outcome.WAIT})

NO_MORE = frozenset({FaultKind.CONNECT, FaultKind.OVERLOADED, FaultKind.UNAUTHORIZED, FaultKind.WRONG_SERVER})
"""Faults that are the server's, not the row's: after the last try nothing more is asked there."""


@dataclass(slots=True)
class _Sent:
    sent_s: float
    reused: bool = False


@dataclass(frozen=True, slots=True)
class Asker:
    """What asking needs. `model`: by the recipe's name, as every row was asked."""

    protocol: ModuleType
    http: aiohttp.ClientSession
    model: str

    async def scores(self, url: str, ids_T: Ids, start: int) -> Scores | Fault:
        """The log-probabilities of ids_T[start:] by the server at `url`, or the last fault."""
        for pause_s in (*PAUSES_S, None):
            result = await self._once(url, ids_T, start)
            if isinstance(result, Scores) or pause_s is None or OUTCOMES[result.kind] not in AGAIN:
                return result
            await asyncio.sleep(pause_s)
        raise AssertionError("the last try returns")

    async def check(self, url: str, ids_P: Ids) -> None:
        """Raises GateRefused when the server does not give the log-probabilities of a prompt that it takes."""
        result = await self.scores(url, ids_P, len(ids_P) - 1)
        if isinstance(result, Fault):
            raise no_logprobs(url, result.words)

    async def _once(self, url: str, ids_T: Ids, start: int) -> Scores | Fault:
        rid = uuid.uuid4().hex
        body = self.protocol.score_payload(ids_T, start, rid=rid, model=self.model)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                got = await post(self.http, url + self.protocol.GENERATE, body, sent=_Sent(time.monotonic()))
        except TimeoutError:
            return Fault(FaultKind.UNANSWERED, f"no answer in {ANSWER_TIMEOUT_S:.0f} s")
        result = got if isinstance(got, Fault) else self._read(*got, ids_T=ids_T, start=start, rid=rid)
        return (
            replace(result, words=redacted(result.words, sent_key(self.http))) if isinstance(result, Fault) else result
        )

    def _read(
        self, status: int, headers: Mapping[str, str], body: bytes, *, ids_T: Ids, start: int, rid: str
    ) -> Scores | Fault:
        result: Scores | Fault = self.protocol.read_scores(status, headers, body, ids_T=ids_T, start=start, rid=rid)
        return result


def no_logprobs(url: str, seen: str) -> GateRefused:
    """The error for an engine that cannot be audited with."""
    return GateRefused(
        f"{url}: this engine gives no log-probabilities of a prompt",
        value=seen,
        expected="those of SGLang (return_logprob) or vLLM (prompt_logprobs, at most --max-logprobs)",
        remedy="name a server that serves the same weights and gives them: `draftmill audit DATASET --url URL`; "
        "draftmill's own engine cannot",
    )
