"""SGLang's native `/generate`: ids in, ids out.

Every sampling parameter is sent, so that neither the engine's defaults nor a
server's `preferred_sampling_params` fill one in. HTTP 200 is not yet an answer:
aborts come as 200 with partial ids. Facts and versions: docs/engines.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import aiohttp

from draftmill.arrays import MAX_ID, Ids, ids_array
from draftmill.errors import GateRefused
from draftmill.identity import canonical_json
from draftmill.recipe import Sampling
from draftmill.records import Answer, Fault, FaultKind, Row, ServerReport

CONTEXT_RESERVE = 2
"""Tokens. SGLang clips a budget to context - prompt - 2 without a word (0.5.23, recorded)."""

PROMPT_RESERVE = 6
"""Tokens. The longest prompt SGLang takes is context - 6 (0.5.23, recorded)."""

GENERATE = "/generate"

HEALTH_TIMEOUT_S = 25.0
"""Seconds. `/health` generates a token and takes 20 s to say that the scheduler is stuck."""

_SHORT = aiohttp.ClientTimeout(total=10)
_WORDS_KEPT = 500
"""Characters of a server's error text that are kept: enough to read, not a page of HTML."""

_FACTS = (
    "model_path",
    "tokenizer_path",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "revision",
    "tool_call_parser",
    "speculative_algorithm",
    "max_running_requests",
    "max_total_num_tokens",
    "tp_size",
    "dp_size",
    "device",
    "enable_deterministic_inference",
    "preferred_sampling_params",
    "notes",  # what draftmill's own development engines say of themselves
)
"""What provenance keeps of `/server_info`: a list of what may pass, since it also holds the API key, twice."""


def payload(row: Row, sampling: Sampling, *, rid: str) -> dict[str, Any]:
    """The body of one row's request."""
    return {
        "input_ids": row.prompt_ids.tolist(),
        "rid": rid,
        "stream": False,
        "return_prompt_token_ids": True,
        "sampling_params": {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "min_p": sampling.min_p,
            "repetition_penalty": sampling.repetition_penalty,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "max_new_tokens": row.max_new_tokens,
            "min_new_tokens": 0,
            "stop": [],
            "stop_token_ids": sorted(sampling.stop_token_ids),
            "ignore_eos": False,
        },
    }


def read(status: int, headers: Mapping[str, str], body: bytes, *, row: Row, rid: str, engine: str) -> Answer | Fault:
    """One HTTP answer as an Answer, or as the Fault it is."""
    if status != 200:
        return _http_fault(status, headers, body)
    try:
        data = json.loads(body)
        meta = data["meta_info"]
        finish = meta["finish_reason"]
        if meta["id"] != rid:
            return Fault(FaultKind.UNREADABLE, _line(f"the answer is for request {meta['id']!r}, not {rid!r}"))
        answer = Answer(
            output_ids=ids_array("output_ids", data["output_ids"]),
            echo_ids=_echo(data.get("prompt_token_ids"), row.prompt_ids),
            prompt_tokens=_count(meta, "prompt_tokens"),
            completion_tokens=_count(meta, "completion_tokens"),
            finish_type=_finish_type(finish),
            finish_length=_count(finish, "length"),
            matched=_matched(finish.get("matched")),
            engine=engine,
            weight_version=_text(meta, "weight_version"),
            created_at=datetime.now(UTC),
        )
        if answer.finish_type == "abort":
            return Fault(FaultKind.ABORTED, _line(str(finish.get("message") or "aborted")), answer=answer)
        return answer
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        words = f"HTTP 200, but not an answer of /generate ({type(error).__name__}: {error})"
        return Fault(FaultKind.UNREADABLE, _line(words))


def _echo(echoed: Any, prompt_ids_P: Ids) -> Ids | None:
    # A missing echo is no equal echo: an empty array differs from every prompt.
    echo_ids = ids_array("prompt_token_ids", echoed if echoed is not None else [])
    same = len(echo_ids) == len(prompt_ids_P) and bool((echo_ids == prompt_ids_P).all())
    return None if same else echo_ids


def _finish_type(finish: dict[str, Any]) -> str:
    kind = finish["type"]
    if kind not in ("stop", "length", "abort"):
        raise ValueError(f"finish_reason of type {kind!r}")
    return str(kind)


def _count(data: dict[str, Any], key: str) -> int | None:
    value = data.get(key)
    if value is not None and (type(value) is not int or not 0 <= value <= MAX_ID):
        raise ValueError(f"{key} is {value!r}, not a count")
    return value


def _matched(value: Any) -> int | str | None:
    if value is not None and type(value) not in (int, str):
        raise ValueError(f"matched is {value!r}, neither an id nor a string")
    if type(value) is int and abs(value) > MAX_ID:
        raise ValueError("matched is an id beyond 32 bits")
    return value  # type: ignore[no-any-return]


def _text(data: dict[str, Any], key: str) -> str | None:
    value = data.get(key)
    if value is not None and not (isinstance(value, str) and _is_stable(value)):
        raise ValueError(f"{key} is {value!r}, not a text")
    return value


def _is_stable(value: Any) -> bool:
    """Whether a manifest can hold it: no NaN, no half characters."""
    try:
        canonical_json(value)
    except (ValueError, RecursionError):
        return False
    return True


def _http_fault(status: int, headers: Mapping[str, str], body: bytes) -> Fault:
    kinds = {401: FaultKind.UNAUTHORIZED, 403: FaultKind.UNAUTHORIZED, 404: FaultKind.WRONG_SERVER}
    kinds |= {405: FaultKind.WRONG_SERVER, 408: FaultKind.SERVER_ERROR}
    kinds |= {429: FaultKind.OVERLOADED, 503: FaultKind.OVERLOADED}
    # Below 400 and not 200: a redirect to a login page, say. No answer of /generate looks so.
    by_class = FaultKind.SERVER_ERROR if status >= 500 else FaultKind.REJECTED
    kind = kinds.get(status, by_class if status >= 400 else FaultKind.WRONG_SERVER)
    # Proxies quote the key they refuse.
    words = "" if kind is FaultKind.UNAUTHORIZED else f": {_words(body)}"
    return Fault(kind, f"HTTP {status}{words}", retry_after_s=_retry_after_s(headers))


def _words(body: bytes) -> str:
    """The message in any of the shapes SGLang and proxies answer errors in, on one line."""
    text = body.decode("utf-8", "replace")
    try:
        data = json.loads(text)
        if isinstance(data, dict):
            error = next((data[key] for key in ("error", "message", "detail") if key in data), None)
            text = f"no message, but {', '.join(data)}" if error is None else str(error)
            if isinstance(error, dict) and "message" in error:
                text = str(error["message"])
    except (ValueError, RecursionError):
        pass
    return _line(text)


def _line(text: str) -> str:
    """A server's words as every table and manifest can hold them: one line, not endless, UTF-8."""
    return " ".join(text.split())[:_WORDS_KEPT].encode("utf-8", "replace").decode()


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    value = headers.get("Retry-After", "")
    return float(value) if value.isdecimal() else None


async def is_ready(http: aiohttp.ClientSession, url: str) -> str | None:
    """None when `/health` says 200, else what was seen instead (refused, loading, stuck)."""
    try:
        async with http.get(f"{url}/health", timeout=aiohttp.ClientTimeout(total=HEALTH_TIMEOUT_S)) as answer:
            return None if answer.status == 200 else f"/health answers {answer.status}"
    except TimeoutError:
        return f"/health does not answer within {HEALTH_TIMEOUT_S:.0f} s"
    except aiohttp.ClientError as error:
        return _line(str(error)) or type(error).__name__


async def report(http: aiohttp.ClientSession, url: str) -> ServerReport:
    """`/server_info`, `/model_info` and `/v1/models` as one redacted report.

    Raises GateRefused when the server does not answer them as SGLang does.
    """
    server = await _get(http, url, "/server_info", "/get_server_info")
    model = await _get(http, url, "/model_info", "/get_model_info")
    models = await _get(http, url, "/v1/models")
    return combined(url, server, model, models)


def combined(url: str, server: dict[str, Any], model: dict[str, Any], models: dict[str, Any]) -> ServerReport:
    """The report out of the three pages' JSON. Raises GateRefused for fields of other types than SGLang's."""
    try:
        return _combined(url, server, model, _listed(models))
    except (ValueError, RecursionError) as error:
        raise _not_sglang(url, _line(str(error)), "the fields SGLang has, of its types") from None


def _combined(url: str, server: dict[str, Any], model: dict[str, Any], listed: dict[str, Any]) -> ServerReport:
    truncates = server.get("allow_auto_truncate")
    return ServerReport(
        url=url,
        name=_text(server, "engine_name") or "sglang",
        version=_text(server, "version"),
        model=_text(model, "served_model_name") or _text(listed, "id") or _text(server, "served_model_name"),
        weight_version=_text(model, "weight_version") or _text(server, "weight_version"),
        context_length=_count(listed, "max_model_len") or _count(server, "context_length"),
        max_prompt=_count(server, "max_req_input_len"),
        reasoning_parser=_text(server, "reasoning_parser") or _text(model, "reasoning_parser"),
        auto_truncate=None if truncates is None else bool(truncates),
        facts={key: server[key] for key in _FACTS if server.get(key) is not None and _is_stable(server[key])},
    )


def _listed(models: dict[str, Any]) -> dict[str, Any]:
    """The first model of `/v1/models`."""
    data = models.get("data")
    first = data[0] if isinstance(data, list) and data else {}
    return first if isinstance(first, dict) else {}


async def _get(http: aiohttp.ClientSession, url: str, *paths: str) -> dict[str, Any]:
    seen = ""
    for path in paths:
        try:
            async with http.get(url + path, timeout=_SHORT) as answer:
                if answer.status == 200:
                    data = json.loads(await answer.read())
                    if isinstance(data, dict):
                        return data
                seen = f"HTTP {answer.status} from {path}"
                if answer.status in (401, 403):
                    raise GateRefused(
                        f"{url} refuses the key",
                        value=seen,
                        expected="HTTP 200",
                        remedy="set engine.api_key_env to the name of the environment variable that holds the key",
                    )
        except (TimeoutError, aiohttp.ClientError, ValueError, RecursionError) as error:
            seen = f"{type(error).__name__} from {path}"
    raise _not_sglang(url, seen, f"JSON from {paths[0]}")


def _not_sglang(url: str, seen: str, expected: str) -> GateRefused:
    return GateRefused(
        f"{url} does not answer as an SGLang server does",
        value=seen,
        expected=expected,
        remedy="correct engine.urls or engine.kind; a router in front must pass these paths on",
    )


async def abort(http: aiohttp.ClientSession, url: str, rid: str) -> None:
    """Tell the server to stop generating for `rid`. Best effort: a server that is gone needs no abort."""
    try:
        async with http.post(
            f"{url}/abort_request", json={"rid": rid}, timeout=aiohttp.ClientTimeout(total=3)
        ) as answer:
            await answer.read()
    except (TimeoutError, aiohttp.ClientError):
        return
