"""A sealed dataset as a report is made of, without a server: real tokenizer's ids, reasoning, bad rows, hostile text.

`sealed_dataset` builds as many rows as a test wants, in a second for 5,000.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from draftmill.dataset.manifest import Manifest
from draftmill.dataset.schema import QUARANTINE, SHARD
from draftmill.dataset.seal import Change, seal
from draftmill.dataset.storage import Storage, open_storage
from draftmill.judging.structure import Structure
from draftmill.recipe_file import parse_recipe
from draftmill.records import Thinking
from draftmill.rendering.tokenizer import load_tokenizer
from tests.mill import Mill
from tests.reporting import page_sample

HOSTILE = page_sample.HOSTILE.replace("\ud800", "")
"""Without what UTF-8 cannot hold."""

WHEN = datetime(2026, 11, 30, 22, 14, 3, tzinfo=UTC)

OPEN, CLOSE, END = 3, 4, 2
"""Ids of the embedded tokenizer that stand for <think>, </think> (it has none) and the end of a turn."""

SHARD_ROWS = 2000

STRUCTURE = Structure(
    name="think",
    thinking=Thinking.OPENED_BY_PROMPT,
    open_ids=(OPEN,),
    close_ids=(CLOSE,),
    end_ids=(END,),
    foreign_ids=(1,),
    tail_ids=(),
    blank_ids=(),
    highest_id=49151,
    evidence=(),
)

WORDS = (
    "The user asks how often the letter occurs. Let me spell it: s-t-r-a-w-b-e-r-r-y. \u4f60\u597d \U0001f642 That "
    "makes three, not two.\n\n```python\nprint('strawberry'.count('r'))\n```\nSo the answer is **three**. " + HOSTILE
)


@dataclass(frozen=True, slots=True)
class Made:
    """One row: its ids and what became of it. `reasoning`: ids up to and with the closing marker, 0 for none."""

    name: str
    prompt: Sequence[int]
    output: Sequence[int]
    reasoning: int | None = None
    finish: str | None = "stop"
    reason: str | None = None
    changes: dict[str, Any] = field(default_factory=dict)

    def columns(self, number: int) -> dict[str, Any]:
        start, ids = len(self.prompt), [*self.prompt, *self.output]
        close = start + self.reasoning - 1 if self.reasoning else None
        stop = ids[-1] if self.finish == "stop" else None
        span = {
            "start": start,
            "end": len(ids),
            "reasoning_end": close,
            "finish_reason": self.finish,
            "stop_id": stop,
        }
        return {
            "row_key": hashlib.sha256(self.name.encode()).hexdigest(),
            "prompt_key": hashlib.sha256(f"prompt {self.name}".encode()).hexdigest(),
            "prompt_id": self.name,
            "variant": "default",
            "sample": 0,
            "attempt": 0,
            "input_ids": ids,
            "prompt_len": start,
            "spans": [span],
            "reasoning_end": close,
            "max_new_tokens": 1024,
            "finish_reason": self.finish,
            "stop_id": stop,
            "engine": "sglang 0.5.23",
            "weight_version": None,
            "messages": None,
            "source": "prompts.jsonl",
            "created_at": WHEN + timedelta(seconds=number),
            "reason": self.reason,
            "detail": "the last 256 ids are one cycle" if self.reason else None,
            **self.changes,
        }


def sealed(
    folder: Path, rows: Sequence[Made], *, shard_rows: int = SHARD_ROWS, **change: Any
) -> tuple[Storage, Manifest]:
    """A dataset of these rows; `change`: other fields of a Change."""
    storage = open_storage(str(folder / "dataset"))
    records = [made.columns(number) for number, made in enumerate(rows)]
    good = [record for record in records if record["reason"] is None]
    bad = [record for record in records if record["reason"] is not None]
    shards = [good[start : start + shard_rows] for start in range(0, len(good), shard_rows)]
    given = {
        "recipe": parse_recipe(Mill(folder).data(), origin="test").model_dump(mode="json"),
        "structures": {"default": STRUCTURE.to_json()},
        "provenance": {"draftmill": "0.1.0", "servers": []},
        "counts": {"rows": {"planned": len(rows)}},
    }
    made = Change(
        good=[storage.put_table("shards", pa.Table.from_pylist(shard, SHARD)) for shard in shards],
        bad=[storage.put_table("quarantine", pa.Table.from_pylist(bad, QUARANTINE))] if bad else [],
        **{**given, **change},
    )
    return storage, seal(storage, made).manifest


def realistic(number: int = 5000) -> list[Made]:
    """Rows of about 300 ids: of every hundred 3 are cut inside their reasoning, 2 loop, 1 has an unknown id."""
    tokenizer = load_tokenizer(parse_recipe(Mill(Path(".")).data(), origin="test").model)
    words = list(tokenizer.encode(WORDS, add_special_tokens=False))
    prompt = [1, *tokenizer.encode("user\nHow many r are in strawberry?", add_special_tokens=False), OPEN]
    return [_realistic(n, words, prompt) for n in range(number)]


def _realistic(number: int, words: list[int], prompt: list[int]) -> Made:
    at, length = number % len(words), 40 + number * 7919 % 300
    text = ((words[at:] + words[:at]) * (1 + length // len(words)))[:length]
    name = HOSTILE if number == 0 else f"prompts.jsonl:{number}"
    match number % 100:
        case 0 | 1 | 2:
            return Made(name, prompt, text, finish="length", reason="truncated")
        case 3 | 4:
            return Made(name, prompt, [*text, CLOSE, *[40, 41] * 60, END], length + 1, reason="degenerate")
        case 5:
            return Made(name, prompt, [*text, CLOSE, 60_000, END], length + 1, reason="id_out_of_range")
        case _:
            half = length // 2
            return Made(name, prompt, [*text[:half], CLOSE, *text[half:], END], half + 1)
