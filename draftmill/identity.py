"""What makes a prompt or a row the same as yesterday's.

Canonical JSON raises on anything without a stable form, so that a key never
depends on a process. What counts is written here once (`row_identity`); what is
left out on purpose: budget, structure, engine, URLs, paths, tokenizer revision
and template (their effect is in the ids).
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

from draftmill.arrays import Ids
from draftmill.recipe import Model, Sampling
from draftmill.records import HistoryMode


def canonical_json(value: Any) -> str:
    """JSON with sorted keys, no spaces, non-ASCII as it is; the order of keys never counts.

    1 and 1.0 are two values: templates print them differently.
    Raises ValueError for what JSON cannot hold stably: NaN, infinities, keys
    that are no strings, objects, lone surrogates.
    """
    return _written(value, sort_keys=True)


def ordered_json(value: Any) -> str:
    """As `canonical_json`, with the keys in the order they have: templates print tools and arguments in that order."""
    return _written(value, sort_keys=False)


def _written(value: Any, *, sort_keys: bool) -> str:
    _check(value, "$")
    text = json.dumps(value, ensure_ascii=False, sort_keys=sort_keys, separators=(",", ":"), allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"a lone surrogate, which UTF-8 cannot hold, at {error.start}") from None
    return text


def _check(value: Any, path: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ValueError(f"{path}: a key of type {type(key).__name__}; JSON's keys are strings")
            _check(item, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        if set(map(type, value)) == {int}:
            return  # ids, of which there may be many
        for index, item in enumerate(value):
            _check(item, f"{path}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{path}: {value} has no JSON form")
    elif not isinstance(value, str | int | float | bool | None):
        raise ValueError(f"{path}: {type(value).__name__} has no stable JSON form")


def sha256(data: bytes | str) -> str:
    """Hex SHA-256 of bytes, or of a text's UTF-8."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def digest(value: Any) -> str:
    """Hex SHA-256 of a value's canonical JSON."""
    return sha256(canonical_json(value))


def prompt_key(
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    variant: str,
    later: list[list[dict[str, Any]]] | None = None,
) -> str:
    """Identity of a prompt: its canonical messages and tools, and the variant's name.

    `later`: of a later turn of a conversation, what the source asks behind each turn before it.
    """
    prompt = {"messages": messages, "tools": tools or [], "variant": variant}
    return digest({**prompt, "later": later} if later else prompt)


def row_identity(model: Model, sampling: Sampling) -> dict[str, Any]:
    """The part of a row's identity that all rows of a variant share (docs/recipe.md marks the keys)."""
    return {
        "model": {"name": model.name, "revision": model.revision, "quantization": model.quantization},
        "sampling": {
            "temperature": _number(sampling.temperature),
            "top_p": _number(sampling.top_p),
            "top_k": sampling.top_k,
            "min_p": _number(sampling.min_p),
            "repetition_penalty": _number(sampling.repetition_penalty),
            "presence_penalty": _number(sampling.presence_penalty),
            "frequency_penalty": _number(sampling.frequency_penalty),
            "stop_token_ids": sorted(set(sampling.stop_token_ids)),
        },
    }


def _number(value: float) -> float:
    # 1, 1.0 and, by the addition, -0.0 and 0.0 are one setting and one text.
    return float(value) + 0.0


def turn_key(
    first_ids_P: Ids,
    later: list[list[dict[str, Any]]],
    shared: dict[str, Any],
    *,
    history: HistoryMode,
    shown_ids_S: Ids,
    sample: int,
) -> str:
    """Identity of a later turn, whose own prompt ids depend on what was generated.

    `first_ids_P`: the first turn's prompt ids; `later`: what the source asks behind each turn before this one;
    `shown_ids_S`: the turn's prompt with a stand-in for each generated turn, which holds all else that the template
    writes.
    """
    turn = {"later": later, "turn": len(later), "history": history.value, "shown_ids": shown_ids_S.tolist()}
    return digest({**shared, "prompt_ids": first_ids_P.tolist(), **turn, "sample": sample})


def row_key(prompt_ids_P: Ids, shared: dict[str, Any], sample: int) -> str:
    """Identity of a row: its prompt ids, `row_identity` and the sample's index."""
    return digest({**shared, "prompt_ids": prompt_ids_P.tolist(), "sample": sample})
