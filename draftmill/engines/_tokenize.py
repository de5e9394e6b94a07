"""The server's own tokenization: `POST /tokenize`, which SGLang and vLLM have alike.

Why: the ids that are sent come from this machine's tokenizer and template.
Where the server's differ, its model sees other prompts than in chat; the gate
asks and compares.

Promises: ids as the server gave them; its refusal as a text; None where it
offers no such page. Raises GateRefused when the key is refused, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from draftmill.arrays import Ids, ids_array
from draftmill.engines._pages import SHORT, check_key
from draftmill.engines._wire import UNREADABLE, line, words

JSON = {"Content-Type": "application/json"}

_OF_THE_TEXT = (400, 500)
"""What a template's refusal and a missing tokenizer are answered with (vLLM 400, SGLang both)."""


@dataclass(frozen=True, slots=True)
class _Refused:
    """A body that `/tokenize` made no ids of. `status` None: no answer came at all."""

    status: int | None
    words: str
    missing: bool = False


async def tokenize(
    http: aiohttp.ClientSession,
    url: str,
    messages: list[dict[str, Any]],
    *,
    tools: list[dict[str, Any]] | None,
    template_kwargs: dict[str, Any],
    model: str,
) -> Ids | str | None:
    """The ids of a conversation with the generation prompt behind it.

    A server without a tokenizer refuses every text, one whose template refuses
    these messages takes a bare text: that tells them apart, not their words.
    """
    body: dict[str, Any] = {"model": model, "messages": messages, "add_generation_prompt": True}
    body |= {"tools": tools} if tools else {}
    body |= {"chat_template_kwargs": template_kwargs} if template_kwargs else {}
    ids = await _ask(http, url, body)
    if isinstance(ids, _Refused) and ids.status in _OF_THE_TEXT:
        bare = await _ask(http, url, _bare("a", model))
        if isinstance(bare, _Refused) and bare.status == ids.status:
            return None
    return _told(ids)


async def tokenize_text(http: aiohttp.ClientSession, url: str, text: str, *, model: str) -> Ids | str | None:
    """The ids of a bare text, no special ids added."""
    return _told(await _ask(http, url, _bare(text, model)))


def _bare(text: str, model: str) -> dict[str, Any]:
    return {"model": model, "prompt": text, "add_special_tokens": False}


def _told(ids: Ids | _Refused) -> Ids | str | None:
    if not isinstance(ids, _Refused):
        return ids
    return None if ids.missing else ids.words


async def _ask(http: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> Ids | _Refused:
    try:
        data = orjson.dumps(body)
        async with http.post(
            f"{url}/tokenize", data=data, headers=JSON, timeout=SHORT, allow_redirects=False
        ) as answer:
            status, raw = answer.status, await answer.read()
    except (TimeoutError, aiohttp.ClientError, OSError, orjson.JSONEncodeError) as error:
        return _Refused(None, line(f"{type(error).__name__}: {error}"))
    check_key(url, status, "/tokenize")
    if status != 200:
        missing = status in (405, 501) or (status == 404 and not _is_typed_error(raw))
        return _Refused(status, line(f"HTTP {status}: {words(raw)}"), missing)
    try:
        return ids_array("tokens", orjson.loads(raw)["tokens"])
    except UNREADABLE as error:
        return _Refused(status, line(f"HTTP 200, but no ids from /tokenize ({type(error).__name__}: {error})"))


def _is_typed_error(raw: bytes) -> bool:
    """Whether a 404 is the page's own (vLLM: another model is served), not that of a missing page."""
    try:
        return isinstance(orjson.loads(raw)["error"], dict)
    except UNREADABLE:
        return False
