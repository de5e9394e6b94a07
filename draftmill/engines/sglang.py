"""SGLang's native `/generate`: ids in, ids out.

Every sampling parameter is sent, so that neither the engine's defaults nor a
server's `preferred_sampling_params` fill one in. HTTP 200 is not yet an answer:
aborts come as 200 with partial ids. Facts and versions: docs/engines.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import aiohttp
import orjson

from draftmill.arrays import Ids, ids_array
from draftmill.engines import _pages, _tokenize
from draftmill.engines._scores import scores
from draftmill.engines._wire import (
    UNREADABLE,
    count,
    echo,
    http_fault,
    is_stable,
    line,
    not_an_answer,
    sampling_values,
    stopper,
    text,
    unreadable,
)
from draftmill.errors import GateRefused
from draftmill.recipe import Sampling
from draftmill.records import Answer, Fault, FaultKind, Pulse, Row, Scores, ServerReport

CONTEXT_RESERVE = 2
"""Tokens. SGLang clips a budget to context - prompt - 2 without a word (0.5.23, recorded)."""

PROMPT_RESERVE = 6
"""Tokens. The longest prompt SGLang takes is context - 6 (0.5.23, recorded)."""

GENERATE = "/generate"

NUM_TOP = 64
"""Likeliest ids asked for at each position: most nuclei are within them, and an id costs 2 kB of JSON."""

HEALTH_TIMEOUT_S = 25.0
"""Seconds. `/health` generates a token and takes 20 s to say that the scheduler is stuck."""

tokenize, tokenize_text = _tokenize.tokenize, _tokenize.tokenize_text

_ABORT_TIMEOUT = aiohttp.ClientTimeout(total=3)

_FACTS = (
    "version",
    "model_path",
    "tokenizer_path",
    "skip_tokenizer_init",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "revision",
    "weight_version",
    "tool_call_parser",
    "default_chat_template_kwargs",
    "enable_strict_thinking",
    "enable_custom_logit_processor",
    "watermark_default_enabled",
    "watermark_enforce_all",
    "speculative_algorithm",
    "speculative_accept_threshold_single",
    "speculative_accept_threshold_acc",
    "max_running_requests",
    "max_queued_requests",
    "max_total_num_tokens",
    "tp_size",
    "dp_size",
    "device",
    "enable_deterministic_inference",
    "sampling_defaults",
    "preferred_sampling_params",
    "notes",  # what draftmill's own development engines say of themselves
)
"""What provenance keeps of `/server_info`: a list of what may pass, since it also holds the API key, twice."""


def payload(row: Row, sampling: Sampling, *, rid: str, model: str) -> bytes:
    """The body of one row's request, as JSON. `model` is not sent: SGLang serves one and asks for none."""
    return orjson.dumps(
        {
            "input_ids": row.prompt_ids,
            "rid": rid,
            "stream": False,
            "return_prompt_token_ids": True,
            "sampling_params": {
                **sampling_values(sampling),
                "max_new_tokens": row.max_new_tokens,
                "min_new_tokens": 0,
            },
        },
        option=orjson.OPT_SERIALIZE_NUMPY,
    )


def read(status: int, headers: Mapping[str, str], body: bytes, *, row: Row, rid: str, engine: str) -> Answer | Fault:
    """One HTTP answer as an Answer, or as the Fault it is."""
    if status != 200:
        return http_fault(status, headers, body)
    try:
        data = orjson.loads(body)
        meta = data["meta_info"]
        finish = meta["finish_reason"]
        if meta["id"] != rid:
            return unreadable(f"the answer is for request {meta['id']!r}, not {rid!r}")
        answer = Answer(
            output_ids=ids_array("output_ids", data["output_ids"]),
            echo_ids=echo(data.get("prompt_token_ids"), row.prompt_ids),
            prompt_tokens=count(meta, "prompt_tokens"),
            completion_tokens=count(meta, "completion_tokens"),
            finish_type=_finish_type(finish),
            finish_length=count(finish, "length"),
            matched=stopper("matched", finish.get("matched")),
            engine=engine,
            weight_version=text(meta, "weight_version"),
            created_at=datetime.now(UTC),
        )
        if answer.finish_type == "abort":
            return Fault(FaultKind.ABORTED, line(str(finish.get("message") or "aborted")), answer=answer)
        return answer
    except UNREADABLE as error:
        return not_an_answer(GENERATE, error)


def _finish_type(finish: dict[str, Any]) -> str:
    kind = finish["type"]
    if kind not in ("stop", "length", "abort"):
        raise ValueError(f"finish_reason of type {kind!r}")
    return str(kind)


def score_payload(ids_T: Ids, start: int, *, rid: str, model: str) -> bytes:
    """The body of a request that scores ids_T[start:] and generates nothing. 0 < start < len(ids_T)."""
    return orjson.dumps(
        {
            "input_ids": ids_T,
            "rid": rid,
            "stream": False,
            "return_logprob": True,
            "logprob_start_len": start - 1,  # the first of the list is what comes before, without a value (recorded)
            "top_logprobs_num": NUM_TOP,
            "sampling_params": {"temperature": 1.0, "max_new_tokens": 0},
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
        meta = orjson.loads(body)["meta_info"]
        if meta["id"] != rid:
            return unreadable(f"the answer is for request {meta['id']!r}, not {rid!r}")
        if count(meta, "prompt_tokens") != len(ids_T):
            raise ValueError(f"{meta.get('prompt_tokens')} ids of {len(ids_T)} were read")
        scored = [(item[1], item[0]) for item in meta["input_token_logprobs"][1:]]
        tops = [[(item[1], item[0]) for item in choices] for choices in meta["input_top_logprobs"][1:]]
        return scores(ids_T[start:], scored, tops, num_top=NUM_TOP)
    except UNREADABLE as error:
        return not_an_answer(GENERATE, error)


async def is_ready(http: aiohttp.ClientSession, url: str) -> str | None:
    """None when `/health` says 200, else what was seen instead (refused, loading, stuck)."""
    return await _pages.readiness(http, url, patience_s=HEALTH_TIMEOUT_S)


async def pulse(http: aiohttp.ClientSession, url: str) -> Pulse:
    """A look at a silent server over a new connection. `/health` generates a token, so a 200 is a sign of life."""
    async with _pages.afresh(http) as new:
        return await _pages.health(new, url, patience_s=HEALTH_TIMEOUT_S)


async def report(http: aiohttp.ClientSession, url: str, *, model: str) -> ServerReport:
    """`/server_info`, `/model_info` and `/v1/models` as one redacted report.

    `model` chooses nothing: the one model that is served answers `/generate`, whatever else is listed. Raises
    GateRefused when the server does not answer as SGLang does.
    """
    server = await _pages.page(http, url, "/server_info", "/get_server_info", engine="SGLang")
    served = await _pages.page(http, url, "/model_info", "/get_model_info", engine="SGLang")
    models = await _pages.page(http, url, "/v1/models", engine="SGLang")
    return combined(url, server, served, models)


def combined(url: str, server: dict[str, Any], model: dict[str, Any], models: dict[str, Any]) -> ServerReport:
    """The report out of the three pages' JSON. Raises GateRefused for fields of other types than SGLang's."""
    try:
        return _combined(url, server, model, _pages.listed_model(models))
    except (ValueError, RecursionError) as error:
        raise _not_sglang(url, line(str(error))) from None


def _combined(url: str, server: dict[str, Any], model: dict[str, Any], listed: dict[str, Any]) -> ServerReport:
    truncates = server.get("allow_auto_truncate")
    return ServerReport(
        url=url,
        name=text(server, "engine_name") or "sglang",
        version=text(server, "version"),
        model=text(model, "served_model_name") or text(listed, "id") or text(server, "served_model_name"),
        weight_version=text(model, "weight_version") or text(server, "weight_version"),
        context_length=count(listed, "max_model_len") or count(server, "context_length"),
        max_prompt=count(server, "max_req_input_len"),
        reasoning_parser=text(server, "reasoning_parser") or text(model, "reasoning_parser"),
        auto_truncate=None if truncates is None else bool(truncates),
        facts={key: server[key] for key in _FACTS if server.get(key) is not None and is_stable(server[key])},
    )


def _not_sglang(url: str, seen: str) -> GateRefused:
    return _pages.not_this_engine(url, "SGLang", seen, "the fields SGLang has, of its types")


async def abort(http: aiohttp.ClientSession, url: str, rid: str) -> None:
    """Tell the server to stop generating for `rid`. Best effort: a server that is gone needs no abort."""
    try:
        async with http.post(
            f"{url}/abort_request", json={"rid": rid}, timeout=_ABORT_TIMEOUT, allow_redirects=False
        ) as answer:
            await answer.read()
    except (TimeoutError, aiohttp.ClientError, OSError):
        return
