"""What engines share on the wire: sampling values, faults by HTTP status, a server's words, checked values.

Why apart: how a fault is named must not depend on the engine. A status or a
type decides, never a word in a message; whatever a server sends, the result is
an Answer or a Fault, and its text is one line that every table, log and
manifest can hold. The body of a refused key is never quoted: proxies repeat the
key in it.

Refuses, by ValueError: values of other types than the protocol's, and numbers
that no count or id can be. `orjson` refuses NaN and half characters, and reads
integers beyond 64 bits as floats, which are no ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

from draftmill.arrays import MAX_ID, Ids, ids_array
from draftmill.identity import canonical_json
from draftmill.recipe import Sampling
from draftmill.records import Fault, FaultKind

WORDS_KEPT = 500
"""Characters of a server's error text that are kept: enough to read, not a page of HTML."""

UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)
"""What looking for an answer in a foreign body can raise."""

_KINDS = {
    401: FaultKind.UNAUTHORIZED,
    403: FaultKind.UNAUTHORIZED,
    404: FaultKind.WRONG_SERVER,
    405: FaultKind.WRONG_SERVER,
    408: FaultKind.SERVER_ERROR,
    429: FaultKind.OVERLOADED,
    503: FaultKind.OVERLOADED,
}


def sampling_values(sampling: Sampling) -> dict[str, Any]:
    """Every value of the recipe's sampling but the budget, by the names that SGLang and vLLM share.

    All of them, always: what is absent, a server fills in.
    """
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "stop": [],
        "stop_token_ids": sorted(sampling.stop_token_ids),
        "ignore_eos": False,
    }


def http_fault(status: int, headers: Mapping[str, str], body: bytes) -> Fault:
    """The fault that a status other than 200 is."""
    by_class = FaultKind.SERVER_ERROR if status >= 500 else FaultKind.REJECTED
    # Below 400 and not 200: a redirect to a login page, say. No answer of an engine looks so.
    kind = _KINDS.get(status, by_class if status >= 400 else FaultKind.WRONG_SERVER)
    quoted = "" if kind is FaultKind.UNAUTHORIZED else f": {words(body)}"
    return Fault(kind, f"HTTP {status}{quoted}", retry_after_s=retry_after_s(headers))


def not_an_answer(path: str, error: BaseException) -> Fault:
    """The fault of a 200 in which no answer of `path` was found."""
    return unreadable(f"HTTP 200, but not an answer of {path} ({type(error).__name__}: {error})")


def unreadable(text: str) -> Fault:
    """The fault of an answer that is not ours, in these words."""
    return Fault(FaultKind.UNREADABLE, line(text))


def words(body: bytes) -> str:
    """The message in any of the shapes that servers and proxies answer errors in, on one line."""
    text = body.decode("utf-8", "replace")
    try:
        data = orjson.loads(body)
        if isinstance(data, dict):
            error = next((data[key] for key in ("error", "message", "detail") if key in data), None)
            text = f"no message, but {', '.join(data)}" if error is None else str(error)
            if isinstance(error, dict) and "message" in error:
                text = str(error["message"])
    except (ValueError, RecursionError):
        pass
    return line(text)


def line(text: str) -> str:
    """A server's words as every table and manifest can hold them: one line, not endless, UTF-8."""
    return " ".join(text.split())[:WORDS_KEPT].encode("utf-8", "replace").decode()


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """`Retry-After` in seconds from now: a number, or an HTTP date (RFC 9110, 10.2.3). None when it says nothing.

    A date counts from the server's own `Date`, so that clocks need not agree.
    """
    value = headers.get("Retry-After", "").strip()
    if value.isdecimal():
        return float(value)
    asked = _http_date(value)
    if asked is None:
        return None
    now = _http_date(headers.get("Date", "")) or datetime.now(UTC)
    return max(0.0, (asked - now).total_seconds())


def _http_date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


def echo(echoed: Any, prompt_ids_P: Ids) -> Ids | None:
    """The prompt the server says it used; None when it is the one sent.

    A missing echo is no equal echo: an empty array differs from every prompt.
    """
    echo_ids = ids_array("prompt_token_ids", echoed if echoed is not None else [])
    same = len(echo_ids) == len(prompt_ids_P) and bool((echo_ids == prompt_ids_P).all())
    return None if same else echo_ids


def count(data: dict[str, Any], key: str) -> int | None:
    """A count of ids, or None where there is none. Raises ValueError for anything else."""
    value = data.get(key)
    if value is not None and (type(value) is not int or not 0 <= value <= MAX_ID):
        raise ValueError(f"{key} is {value!r}, not a count")
    return value


def text(data: dict[str, Any], key: str) -> str | None:
    """A text, or None where there is none. Raises ValueError for anything else."""
    value = data.get(key)
    if value is not None and not (isinstance(value, str) and is_stable(value)):
        raise ValueError(f"{key} is {value!r}, not a text")
    return value


def stopper(name: str, value: Any) -> int | str | None:
    """What stopped an answer: an id, a string, or None. Raises ValueError for anything else."""
    if value is not None and type(value) not in (int, str):
        raise ValueError(f"{name} is {value!r}, neither an id nor a string")
    if type(value) is int and abs(value) > MAX_ID:
        raise ValueError(f"{name} is an id beyond 32 bits")
    return value  # type: ignore[no-any-return]


def is_stable(value: Any) -> bool:
    """Whether a manifest can hold it: no NaN, no half characters."""
    try:
        canonical_json(value)
    except (ValueError, RecursionError):
        return False
    return True
