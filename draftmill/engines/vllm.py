"""vLLM's `/v1/completions` with ids as the prompt: ids in, ids out.

Every sampling parameter is sent: what is absent, the model's
generation_config.json fills in, and `max_tokens` becomes 16. HTTP 200 is not yet
an answer: aborts come as 200 with partial or no ids. Read from a real 0.32.0
server; facts and flags: docs/engines.md.

vLLM says less than SGLang does. A null `stop_reason` is the model's main end
id, which is the last of `token_ids`; what a `length` was granted is the number
of ids that came. `usage` must count the same, so that the judge sees a lost id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import aiohttp
import orjson
from prometheus_client.parser import text_string_to_metric_families

from draftmill.arrays import Ids, ids_array
from draftmill.engines import _pages, _tokenize
from draftmill.engines._scores import scores
from draftmill.engines._wire import (
    UNREADABLE,
    count,
    echo,
    http_fault,
    line,
    not_an_answer,
    sampling_values,
    stopper,
    text,
    unreadable,
)
from draftmill.recipe import Sampling
from draftmill.records import Answer, Fault, FaultKind, Life, Pulse, Row, Scores, ServerReport

CONTEXT_RESERVE = 0
"""Tokens. Prompt and answer may fill the context: a budget is clipped to context - prompt (0.32.0, recorded)."""

PROMPT_RESERVE = 1
"""Tokens. The longest prompt vLLM takes is context - 1 (0.32.0, recorded)."""

GENERATE = "/v1/completions"

NUM_TOP = 20
"""Likeliest ids asked for at each position: as many as vLLM gives by default (--max-logprobs)."""

HEALTH_TIMEOUT_S = 25.0
"""Seconds. `/health` answers in milliseconds; a web process busy with thousands of requests gets time."""

TOKENS = "vllm:generation_tokens_total"
"""The counter in `/metrics`: `/health` says 200 while the engine is stopped, so only its growth is life."""

tokenize, tokenize_text = _tokenize.tokenize, _tokenize.tokenize_text

_FINISHES = ("stop", "length", "abort")


def payload(row: Row, sampling: Sampling, *, rid: str, model: str) -> bytes:
    """The body of one row's request, as JSON. vLLM ignores names it does not know: each is one of its own."""
    return orjson.dumps(
        {
            "model": model,
            "prompt": row.prompt_ids,
            "request_id": rid,
            "return_token_ids": True,
            "max_tokens": row.max_new_tokens,
            **sampling_values(sampling),
            "min_tokens": 0,
            "n": 1,
            "stream": False,
            "echo": False,
            "add_special_tokens": False,
            "skip_special_tokens": False,
        },
        option=orjson.OPT_SERIALIZE_NUMPY,
    )


def read(status: int, headers: Mapping[str, str], body: bytes, *, row: Row, rid: str, engine: str) -> Answer | Fault:
    """One HTTP answer as an Answer, or as the Fault it is."""
    if status != 200:
        return http_fault(status, headers, body)
    try:
        data = orjson.loads(body)
        if data["id"] != f"cmpl-{rid}":
            return unreadable(f"the answer is for request {data['id']!r}, not 'cmpl-{rid}'")
        (choice,) = data["choices"]
        finish, ids_O = _finish_type(choice), ids_array("token_ids", choice["token_ids"])
        answer = Answer(
            output_ids=ids_O,
            echo_ids=echo(choice.get("prompt_token_ids"), row.prompt_ids),
            prompt_tokens=count(data["usage"], "prompt_tokens"),
            completion_tokens=count(data["usage"], "completion_tokens"),
            finish_type=finish,
            finish_length=len(ids_O) if finish == "length" else None,
            matched=_matched(choice, finish, ids_O),
            engine=engine,
            weight_version=None,
            created_at=datetime.now(UTC),
        )
        if finish == "abort":
            return Fault(FaultKind.ABORTED, f"finish_reason abort after {len(ids_O)} ids", answer=answer)
        return answer
    except UNREADABLE as error:
        return not_an_answer(GENERATE, error)


def _finish_type(choice: dict[str, Any]) -> str:
    finish = choice["finish_reason"]
    if finish not in _FINISHES:
        raise ValueError(f"finish_reason {finish!r}")
    return str(finish)


def _matched(choice: dict[str, Any], finish: str, ids_O: Ids) -> int | str | None:
    """What stopped it. Null on a stop is the main end id, which stands last; anything given stays as it is."""
    reason = stopper("stop_reason", choice.get("stop_reason"))
    if reason is None and finish == "stop" and len(ids_O):
        return int(ids_O[-1])
    return reason


def score_payload(ids_T: Ids, start: int, *, rid: str, model: str) -> bytes:
    """The body of a request that scores ids_T[start:]; vLLM must generate one id. 0 < start < len(ids_T)."""
    return orjson.dumps(
        {
            "model": model,
            "prompt": ids_T,
            "request_id": rid,
            "return_token_ids": True,
            "prompt_logprobs": NUM_TOP,
            "max_tokens": 1,
            "temperature": 0.0,
            "n": 1,
            "stream": False,
            "echo": False,
            "add_special_tokens": False,
        },
        option=orjson.OPT_SERIALIZE_NUMPY,
    )


def read_scores(
    status: int, headers: Mapping[str, str], body: bytes, *, ids_T: Ids, start: int, rid: str
) -> Scores | Fault:
    """The log-probabilities of ids_T[start:], or the fault: UNREADABLE also where the server gave none."""
    if status != 200:
        return http_fault(status, headers, body)
    try:
        data = orjson.loads(body)
        if data["id"] != f"cmpl-{rid}":
            return unreadable(f"the answer is for request {data['id']!r}, not 'cmpl-{rid}'")
        (choice,) = data["choices"]
        if choice["prompt_token_ids"] != ids_T.tolist():
            raise ValueError("other ids were read than were sent")
        by_id = [{int(key): each["logprob"] for key, each in found.items()} for found in choice["prompt_logprobs"][1:]]
        ids_S = ids_T[start:].tolist()
        found_S = by_id[start - 1 :]
        scored = [(token_id, found[token_id]) for token_id, found in zip(ids_S, found_S, strict=True)]
        # An id outside of the likeliest stands beside them: as the least likely it is the one too many.
        return scores(ids_T[start:], scored, [list(found.items()) for found in found_S], num_top=NUM_TOP)
    except UNREADABLE as error:
        return not_an_answer(GENERATE, error)


async def is_ready(http: aiohttp.ClientSession, url: str) -> str | None:
    """None when `/health` says 200, else what was seen instead. The port refuses until everything is loaded."""
    return await _pages.readiness(http, url, patience_s=HEALTH_TIMEOUT_S)


async def pulse(http: aiohttp.ClientSession, url: str) -> Pulse:
    """A look at a silent server over a new connection, with the tokens it has generated ever, where it tells.

    A port that refuses is the sign that matters: after a SIGTERM vLLM leaves what is in flight unanswered for ever.
    """
    async with _pages.afresh(http) as new:
        seen = await _pages.health(new, url, patience_s=HEALTH_TIMEOUT_S)
        return replace(seen, tokens=await _tokens(new, url)) if seen.life is Life.ALIVE else seen


async def _tokens(http: aiohttp.ClientSession, url: str) -> int | None:
    """The counter TOKENS, over all engines of this server; None where `/metrics` does not have it."""
    try:
        async with http.get(f"{url}/metrics", timeout=_pages.SHORT, allow_redirects=False) as answer:
            metrics = await answer.text(errors="replace")
        ours = "".join(f"{series}\n" for series in metrics.splitlines() if series.startswith(TOKENS))
        families = text_string_to_metric_families(ours)  # of a few lines: the whole page takes it milliseconds
        values = [sample.value for family in families for sample in family.samples if sample.name == TOKENS]
        return int(sum(values)) if values else None
    except (TimeoutError, aiohttp.ClientError, OSError, OverflowError, *UNREADABLE):
        return None


async def report(http: aiohttp.ClientSession, url: str, *, model: str) -> ServerReport:
    """`/version` and `/v1/models` as a report. vLLM tells neither its flags nor a weight version.

    `model`: the name that requests will have; of several that are served, its entry is reported. Raises GateRefused
    when the server does not answer as vLLM does.
    """
    version = await _pages.page(http, url, "/version", engine="vLLM")
    models = await _pages.page(http, url, "/v1/models", engine="vLLM")
    return combined(url, version, models, model=model)


def combined(url: str, version: dict[str, Any], models: dict[str, Any], *, model: str | None = None) -> ServerReport:
    """The report out of the two pages' JSON. Raises GateRefused for fields of other types than vLLM's."""
    first, listed = _pages.listed_model(models), _pages.listed_model(models, model)
    try:
        # An adapter has no length of its own: it runs in the engine of the first.
        context = count(listed, "max_model_len") or count(first, "max_model_len")
        root = text(listed, "root")
        return ServerReport(
            url=url,
            name="vllm",
            version=text(version, "version"),
            model=text(listed, "id"),
            weight_version=None,
            context_length=context,
            max_prompt=None if context is None else max(0, context - PROMPT_RESERVE),
            reasoning_parser=None,
            auto_truncate=None,
            facts={} if root is None else {"model_path": root},
        )
    except (ValueError, RecursionError) as error:
        raise _pages.not_this_engine(url, "vLLM", line(str(error)), "the fields vLLM has, of its types") from None


async def abort(http: aiohttp.ClientSession, url: str, rid: str) -> None:
    """Nothing to send: vLLM ends a request when its connection closes, running or waiting (0.32.0, recorded)."""
