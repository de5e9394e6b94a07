"""The server's own tokenization: `POST /tokenize`, which SGLang and vLLM have alike.

Why: the ids that are sent come from this machine's tokenizer and template.
Where the server's differ, its model sees other prompts than in chat; the gate
asks and compares.

Promises: ids as the server gave them; a Fault where none came, REJECTED when the
server itself says that it does not take this text, any other kind when it says
nothing about the text; None where it offers no such page. Raises GateRefused
when the key is refused, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import aiohttp
import orjson

from draftmill.arrays import Ids, ids_array
from draftmill.engines._pages import SHORT, check_key
from draftmill.engines._wire import UNREADABLE, http_fault, line, unreadable, words
from draftmill.reach import no_connection
from draftmill.records import Fault, FaultKind

_OF_THE_TEXT = frozenset({400, 422, 500})
"""What a template's refusal, a missing tokenizer and a page that knows no `messages` are answered with."""

_OF_THE_MODEL = 404
"""What vLLM answers for a model that it does not serve; anybody's 404 when the error is not the engine's own."""

_NO_PAGE = frozenset({404, 405, 501})


async def tokenize(
    http: aiohttp.ClientSession,
    url: str,
    messages: list[dict[str, Any]],
    *,
    tools: list[dict[str, Any]] | None,
    template_kwargs: dict[str, Any],
    model: str,
) -> Ids | Fault | None:
    """The ids of a conversation with the generation prompt behind it.

    A server without a tokenizer refuses every text, one whose template refuses
    these messages takes a bare text: that tells them apart, not their words.
    """
    body: dict[str, Any] = {"model": model, "messages": messages, "add_generation_prompt": True}
    body |= {"tools": tools} if tools else {}
    body |= {"chat_template_kwargs": template_kwargs} if template_kwargs else {}
    status, ids = await _ask(http, url, body)
    if status not in _OF_THE_TEXT or not _is_refused(ids):
        return ids
    bare = await tokenize_text(http, url, "a", model=model)
    if _is_refused(bare):
        return None
    return bare if isinstance(bare, Fault) else ids


async def tokenize_text(http: aiohttp.ClientSession, url: str, text: str, *, model: str) -> Ids | Fault | None:
    """The ids of a bare text, no special ids added."""
    _, ids = await _ask(http, url, {"model": model, "prompt": text, "add_special_tokens": False})
    return ids


def _is_refused(ids: Ids | Fault | None) -> bool:
    return isinstance(ids, Fault) and ids.kind is FaultKind.REJECTED


async def _ask(http: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> tuple[int | None, Ids | Fault | None]:
    """The status, None where no answer came, and what it says."""
    try:
        async with http.post(f"{url}/tokenize", json=body, timeout=SHORT, allow_redirects=False) as answer:
            status, headers, raw = answer.status, answer.headers, await answer.read()
    except aiohttp.ClientConnectorError as error:
        return None, Fault(FaultKind.CONNECT, no_connection(error))
    except TimeoutError:
        return None, Fault(FaultKind.UNANSWERED, "/tokenize does not answer in time")
    except (aiohttp.ClientError, OSError) as error:
        return None, Fault(FaultKind.RESET, line(f"{type(error).__name__}: {error}"))
    except (TypeError, ValueError, RecursionError) as error:  # no JSON: a date among template_kwargs, say
        return None, Fault(FaultKind.REJECTED, line(f"{type(error).__name__}: {error}"))
    check_key(url, status, "/tokenize")
    if status != 200:
        return status, _fault(status, headers, raw)
    try:
        return status, ids_array("tokens", orjson.loads(raw)["tokens"])
    except UNREADABLE as error:
        return status, unreadable(f"HTTP 200, but no ids from /tokenize ({type(error).__name__}: {error})")


def _fault(status: int, headers: Mapping[str, str], raw: bytes) -> Fault | None:
    """REJECTED is what the engine's own page says of the text; a proxy's page of HTML says nothing of it."""
    error = _error(raw)
    if (status in _OF_THE_TEXT and error is not None) or (status == _OF_THE_MODEL and isinstance(error, dict)):
        return Fault(FaultKind.REJECTED, line(f"HTTP {status}: {words(raw)}"))
    if status in _NO_PAGE:
        return None
    fault = http_fault(status, headers, raw)
    return replace(fault, kind=FaultKind.UNREADABLE) if fault.kind is FaultKind.REJECTED else fault


def _error(raw: bytes) -> object | None:
    """What an engine's JSON calls its error, in any of the shapes; None where there is none."""
    try:
        body = orjson.loads(raw)
        return next((body[key] for key in ("error", "message", "detail") if key in body), None)
    except UNREADABLE:
        return None
