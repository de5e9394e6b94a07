"""SGLang's error answers as values: status and body, in the shapes a real server was recorded with.

There are four shapes, and a client has to read them all:
`{"error": {"message"}}` from SGLang's own checks, `{"error": "..."}` from the
reader of sampling parameters and from the key check, `{"object": "error", ...}`
from the web layer, and bare text. Texts are SGLang 0.5.23's, word for word where
they were recorded; `tests/golden/sglang` holds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aiohttp import web


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that was not taken: `body` is JSON, or plain text when it is a string."""

    status: int
    body: dict[str, Any] | str

    def response(self) -> web.Response:
        """As aiohttp sends it; a new one each time, since a response is sent once."""
        if isinstance(self.body, str):
            return web.Response(status=self.status, text=self.body)
        return web.json_response(self.body, status=self.status)


NOT_FOUND = Refusal(404, {"detail": "Not Found"})
METHOD_NOT_ALLOWED = Refusal(405, {"detail": "Method Not Allowed"})
UNAUTHORIZED = Refusal(401, {"error": "Unauthorized"})
INTERNAL_ERROR = Refusal(500, "Internal Server Error")
QUEUE_FULL = Refusal(
    503,
    {"object": "error", "message": "The request queue is full.", "type": "503", "param": None, "code": 503},
)


def invalid(message: str) -> Refusal:
    """Refused by SGLang's own checks of a request."""
    return Refusal(400, {"error": {"message": message}})


def unreadable(message: str) -> Refusal:
    """Refused by the reader of ids and sampling parameters, which speaks of types."""
    return Refusal(400, {"error": message})


def malformed(*, kind: str, loc: tuple[object, ...], message: str, shown: object, context: object = None) -> Refusal:
    """Refused by the web layer before SGLang saw the request: a list of one validation error, as text."""
    fault: dict[str, object] = {"type": kind, "loc": loc, "msg": message, "input": shown}
    if context is not None:
        fault["ctx"] = context
    text = f"1 validation error:\n  {fault}\n\n    POST /generate [{fault}]"
    body = {"object": "error", "message": text, "type": "Bad Request", "param": None, "code": 400}
    return Refusal(400, body)
