"""Small structures and completions, whose ids a person can read.

1 `<open>`, 2 `</close>`, 3 end of turn, 4 another end, 5 a role marker, 6 bos,
7 a line break, 8 a space; 10 to 99 are words; 99 is the highest id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from draftmill.arrays import ids_array
from draftmill.judging.structure import Structure
from draftmill.recipe import Model
from draftmill.records import Answer, Completion, Row, Thinking
from draftmill.rendering.gguf import smollm2_gguf, tokenizer_folder
from draftmill.rendering.tokenizer import load_tokenizer

TAILS = {
    Thinking.OPENED_BY_PROMPT: (5, 10, 1, 7),
    Thinking.OPENED_BY_MODEL: (5, 10, 7),
    Thinking.CLOSED_BY_PROMPT: (5, 10, 1, 7, 2, 7),
    Thinking.NONE: (5, 10, 7),
}


@pytest.fixture(scope="session")
def structure_of() -> Callable[..., Structure]:
    """`structure_of(thinking)`, with other fields by name."""

    def make(thinking: Thinking, **fields: Any) -> Structure:
        plain = thinking is Thinking.NONE
        return Structure(
            **{
                "name": "plain" if plain else "think",
                "thinking": thinking,
                "open_ids": () if plain else (1,),
                "close_ids": () if plain else (2,),
                "end_ids": (3, 4),
                "foreign_ids": (5, 6),
                "tail_ids": TAILS[thinking],
                "blank_ids": (7, 8),
                "highest_id": 99,
                "evidence": (),
                **fields,
            }
        )

    return make


@pytest.fixture(scope="session")
def completion_of() -> Callable[..., Completion]:
    """`completion_of(prompt, output)`: as a well-behaved server answers, with other fields by name."""

    def make(prompt: Sequence[int], output: Sequence[int], **fields: Any) -> Completion:
        row = Row("k", 0, "p", "id", "default", 0, ids_array("p", list(prompt)), 1000, None, "s")
        finish = fields.get("finish_type", "stop")
        answer = {
            "output_ids": ids_array("o", list(output)),
            "echo_ids": None,
            "prompt_tokens": len(prompt),
            "completion_tokens": len(output),
            "finish_type": finish,
            "finish_length": len(output) if finish == "length" else None,
            "matched": output[-1] if finish == "stop" and len(output) else None,
            "engine": "e",
            "weight_version": None,
            "created_at": datetime(2026, 1, 1, tzinfo=UTC),
        }
        budget = fields.pop("max_new_tokens", 1000)
        row = Row(**{name: getattr(row, name) for name in Row.__slots__} | {"max_new_tokens": budget})
        return Completion(row, Answer(**{**answer, **fields}))

    return make


@pytest.fixture(scope="session")
def text_ids() -> Callable[[str], list[int]]:
    """`text_ids(text)`: ids of SmolLM2's tokenizer, as a model would write the text."""
    folder = tokenizer_folder(smollm2_gguf())
    tokenizer = load_tokenizer(Model(name=str(folder), context_length=8192))
    return lambda text: [*tokenizer(text, add_special_tokens=False)["input_ids"]]
