"""SGLang's sampling parameters: names, types, ranges, defaults.

Why a reader of its own: a parameter that is silently ignored samples from
another distribution than the one asked for. So an unknown name is refused
(`max_tokens` is the classic one), a wrong type is refused, and what is absent
takes SGLang's default, not the model's and not llama.cpp's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from draftmill.serving.refusals import Refusal, invalid, unreadable

DEFAULT_MAX_NEW_TOKENS = 128

INTEGER, NUMBER, FLAG, IDS, ANY = "i64", "f64", "a boolean", "a sequence", ""

FIELDS: dict[str, tuple[str, Any]] = {
    "max_new_tokens": (INTEGER, DEFAULT_MAX_NEW_TOKENS),
    "stop": (ANY, None),
    "stop_token_ids": (IDS, None),
    "stop_regex": (ANY, None),
    "temperature": (NUMBER, 1.0),
    "top_p": (NUMBER, 1.0),
    "top_k": (INTEGER, -1),
    "min_p": (NUMBER, 0.0),
    "frequency_penalty": (NUMBER, 0.0),
    "presence_penalty": (NUMBER, 0.0),
    "repetition_penalty": (NUMBER, 1.0),
    "min_new_tokens": (INTEGER, 0),
    "n": (INTEGER, 1),
    "json_schema": (ANY, None),
    "regex": (ANY, None),
    "ebnf": (ANY, None),
    "structural_tag": (ANY, None),
    "ignore_eos": (FLAG, False),
    "skip_special_tokens": (FLAG, True),
    "spaces_between_special_tokens": (FLAG, True),
    "no_stop_trim": (FLAG, False),
    "stream_interval": (INTEGER, None),
    "logit_bias": (ANY, None),
    "sampling_seed": (INTEGER, None),
    "custom_params": (ANY, None),
    "beam_width": (INTEGER, None),
    "watermark": (ANY, None),
    "choice": (ANY, None),
}
"""Every name SGLang 0.5.23 knows, in its order: type and default."""

NULL_IS_A_VALUE = frozenset({"max_new_tokens"})
"""A null here means something (as much as fits); elsewhere it is the same as absent."""


def read_sampling(given: Any, preferred: dict[str, Any] | None = None) -> dict[str, Any] | Refusal:
    """All parameters of a request: given, else the server's `preferred`, else SGLang's default."""
    given = {} if given is None else given
    if not isinstance(given, dict):
        return Refusal(500, "Internal Server Error")
    for name, value in given.items():
        if name not in FIELDS:
            known = ", ".join(f"`{field}`" for field in FIELDS)
            return unreadable(f"unknown field `{name}`, expected one of {known}")
        if (fault := _type_fault(value, FIELDS[name][0])) is not None:
            return unreadable(fault)
    parameters = {name: default for name, (_, default) in FIELDS.items()}
    parameters |= preferred or {}
    parameters |= {
        name: FIELDS[name][1] if value is None and name not in NULL_IS_A_VALUE else value
        for name, value in given.items()
    }
    fault = next((fault for check in _RANGES if (fault := check(parameters)) is not None), None)
    return parameters if fault is None else invalid(fault)


def _type_fault(value: Any, kind: str) -> str | None:
    """SGLang's words for a value of another type than `kind`; None when it fits. Null always does."""
    if value is None or kind == ANY:
        return None
    if kind == IDS:
        if not isinstance(value, list):
            return f"invalid type: {_described(value)}, expected a sequence"
        return next((fault for item in value if (fault := _type_fault(item, INTEGER)) is not None), None)
    fits = {INTEGER: type(value) is int, NUMBER: type(value) in (int, float), FLAG: type(value) is bool}
    return None if fits[kind] else f"invalid type: {_described(value)}, expected {kind}"


def _described(value: Any) -> str:
    """A JSON value in the words of the Rust reader behind SGLang."""
    if isinstance(value, bool):
        return f"boolean `{str(value).lower()}`"
    if isinstance(value, int):
        return f"integer `{value}`"
    if isinstance(value, float):
        return f"floating point `{value}`"
    if isinstance(value, str):
        return f'string "{value}"'
    return "map" if isinstance(value, dict) else "sequence"


def _finite(name: str, low: float, high: float, words: str, *, open_below: bool = False) -> Callable[..., str | None]:
    def check(parameters: dict[str, Any]) -> str | None:
        value = parameters[name]
        good = low <= value <= high and value != math.inf and not (open_below and value == low)
        return None if good else f"{name} must be {words}, got {value}."

    return check


def _top_k(parameters: dict[str, Any]) -> str | None:
    """Temperature 0 sets top_k to 1 before the check, so that any value passes then."""
    top_k = parameters["top_k"]
    if top_k == -1 or top_k >= 1 or parameters["temperature"] == 0:
        return None
    return f"top_k must be -1 (disable) or at least 1, got {top_k}."


def _budget(parameters: dict[str, Any]) -> str | None:
    budget = parameters["max_new_tokens"]
    return None if budget is None or budget >= 0 else f"max_new_tokens must be at least 0, got {budget}."


_RANGES: tuple[Callable[..., str | None], ...] = (
    _finite("temperature", 0, math.inf, "a non-negative finite number"),
    _finite("top_p", 0, 1, "in (0, 1]", open_below=True),
    _finite("min_p", 0, 1, "in [0, 1]"),
    _finite("frequency_penalty", -2, 2, "in [-2, 2]"),
    _finite("presence_penalty", -2, 2, "in [-2, 2]"),
    _finite("repetition_penalty", 0, 2, "in [0, 2]"),
    _top_k,
    _budget,
)
