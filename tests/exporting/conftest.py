"""Datasets of a few rows, sealed for real, with every kind of answer an export has to do with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from draftmill.dataset.manifest import Manifest
from draftmill.dataset.schema import SHARD
from draftmill.dataset.seal import Change, seal
from draftmill.dataset.storage import open_storage
from draftmill.identity import sha256
from draftmill.judging.structure import Structure
from draftmill.records import Thinking

WHEN = datetime(2026, 1, 2, tzinfo=UTC)
THINK, CLOSE, END = 7, 8, 2

STRUCTURES = {
    name: Structure("think", thinking, (THINK,), (CLOSE,), (END,), (1,), (), (), 999, ())
    for name, thinking in {
        "think": Thinking.OPENED_BY_PROMPT,
        "fast": Thinking.CLOSED_BY_PROMPT,
        "plain": Thinking.NONE,
    }.items()
}


@dataclass(frozen=True)
class Made:
    """A row: `prompt` ids, then `reasoning` closed by CLOSE (None: there is none), `content`, END unless cut."""

    name: str
    prompt: int = 3
    reasoning: int | None = 2
    content: int | None = 2
    variant: str = "think"
    sample: int = 0
    prompt_key: str | None = None
    prompt_id: str | None = None
    first_id: int = 100
    messages: str | None = None

    @property
    def ids(self) -> list[int]:
        ids = [*range(self.first_id, self.first_id + self.prompt)]
        ids += [50] * (self.reasoning or 0)
        if self.content is None:
            return ids
        return [*ids, *([CLOSE] if self.reasoning is not None else []), *[60] * self.content, END]

    @property
    def columns(self) -> dict[str, Any]:
        ids, cut = self.ids, self.content is None
        closed = None if cut or self.reasoning is None else self.prompt + self.reasoning
        ended = {"reasoning_end": closed, "finish_reason": "length" if cut else "stop", "stop_id": None if cut else END}
        return {
            "row_key": sha256(self.name),
            "prompt_key": sha256(f"prompt {self.prompt_key or self.name}"),
            "prompt_id": self.prompt_id or self.name,
            "variant": self.variant,
            "sample": self.sample,
            "attempt": 0,
            "input_ids": np.array(ids, np.int32),
            "prompt_len": self.prompt,
            "spans": [{"start": self.prompt, "end": len(ids), **ended}],
            **ended,
            "max_new_tokens": 64,
            "engine": "sglang 0.5.23",
            "weight_version": None,
            "messages": self.messages,
            "source": "prompts.jsonl",
            "created_at": WHEN,
        }


@dataclass
class Datasets:
    """`make(rows)`: a dataset of one manifest, each list of rows a shard; its URL."""

    root: str
    urls: list[str] = field(default_factory=list)

    def make(
        self,
        *shards: list[Made],
        model: str = "some/model",
        onto: str | None = None,
        turns: str = "last",
        highest_id: int = 999,
    ) -> str:
        url = onto or f"{self.root}/dataset-{len(self.urls)}"
        self.urls.append(url)
        storage = open_storage(url)
        good = [storage.put_table("shards", _table(rows)) for rows in shards]
        structures = {
            name: replace(structure, highest_id=highest_id).to_json() for name, structure in STRUCTURES.items()
        }
        seal(storage, Change(good=good, recipe=_recipe(url, model, turns), structures=structures))
        return url


def _table(rows: list[Made]) -> pa.Table:
    columns = [row.columns for row in rows]
    return pa.table({name: [row[name] for row in columns] for name in SHARD.names}, schema=SHARD)


def _recipe(url: str, model: str, turns: str) -> dict[str, Any]:
    return {
        "dataset": url,
        "prompts": {"path": "/nowhere/prompts.jsonl", "turns": turns},
        "model": {"name": model, "context_length": 2048, "tokenizer": "embedded"},
        "sampling": {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 64},
    }


@pytest.fixture
def datasets(tmp_path: Any) -> Datasets:
    return Datasets(str(tmp_path))


@pytest.fixture
def newest() -> Callable[[str], Manifest]:
    from draftmill.dataset.status import existing

    return lambda url: existing(open_storage(url))
