"""The server's key never leaves the process: not in a check, an artifact, a manifest or an error.

Answers and pages come from outside, and proxies quote what they refuse. What is
kept of them is cut to lists elsewhere (engines/); this is the second lock:
wherever the key that was sent stands in a text, or a text was cut within it, a
placeholder takes its place.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

import aiohttp

from draftmill.records import ServerReport

PLACEHOLDER = "[the key]"

SHORTEST_SECRET = 8
"""Characters. `EMPTY`, `sglang` or `default` are given as keys where none is wanted, and are values of reports too."""

SECRET_NAMES = ("KEY", "KEY_ID", "TOKEN", "SECRET", "PASSWORD", "CREDENTIALS", "AUTH_STRING", "CONNECTION_URL")
"""How the names of environment variables end whose values are shown to nobody."""

T = TypeVar("T")


def sent_key(http: aiohttp.ClientSession) -> str | None:
    """The key that a session sends with every request, None when it sends none."""
    scheme, _, key = http.headers.get("Authorization", "").partition(" ")
    return key if scheme and key else None


def redacted(value: T, key: str | None) -> T:
    """The same text, or JSON value, without the key in any of its texts or names."""
    return value if key is None else _redacted(value, key)


def without_key(report: ServerReport, key: str | None) -> ServerReport:
    """The report as it may be stored and shown. A key that is a mere word stays a word: it may be a version's name."""
    if key is None or len(key) < SHORTEST_SECRET:
        return report
    return replace(report, **{field.name: redacted(getattr(report, field.name), key) for field in fields(report)})


def without_secrets(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """The same text without any value of an environment variable whose name is a secret's."""
    for name, value in environment.items():
        if len(value) >= SHORTEST_SECRET and name.upper().endswith(SECRET_NAMES):
            text = text.replace(value, f"[{name}]")
    return text


def secretless(value: T, environment: Mapping[str, str] = os.environ) -> T:
    """The same JSON value with all its texts and names as `without_secrets` leaves them."""
    return _secretless(value, environment)  # type: ignore[no-any-return]


def _secretless(value: Any, environment: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return without_secrets(value, environment)
    if isinstance(value, dict):
        return {_secretless(name, environment): _secretless(item, environment) for name, item in value.items()}
    return [_secretless(item, environment) for item in value] if isinstance(value, list | tuple) else value


def _redacted(value: Any, key: str) -> Any:
    if isinstance(value, str):
        return _without_its_beginning(value.replace(key, PLACEHOLDER), key)
    if isinstance(value, dict):
        return {_redacted(name, key): _redacted(item, key) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_redacted(item, key) for item in value)
    return value


def _without_its_beginning(text: str, key: str) -> str:
    """A server's words are cut to a length before they come here, perhaps within the key."""
    begun = next((size for size in range(len(key) - 1, SHORTEST_SECRET - 1, -1) if text.endswith(key[:size])), 0)
    return text[:-begun] + PLACEHOLDER if begun else text
