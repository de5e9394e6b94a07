"""A dataset, a prompt file, and the recipe that joins them: what most tests of runs begin with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftmill.dataset.manifest import Manifest, newest
from draftmill.dataset.storage import open_storage

MODEL = "SmolLM2-135M-Instruct"


@dataclass
class Mill:
    """`place`: the dataset's URL, else in the folder; `url`: the server's; `changes`: of every recipe."""

    folder: Path
    url: str = "http://127.0.0.1:9"
    changes: dict[str, Any] = field(default_factory=dict)
    place: str | None = None

    @property
    def dataset(self) -> str:
        return self.place or str(self.folder / "dataset")

    def prompts(self, texts: Sequence[str]) -> None:
        lines = [json.dumps({"id": text, "messages": [{"role": "user", "content": text}]}) for text in texts]
        (self.folder / "prompts.jsonl").write_text("\n".join(lines) + "\n")

    def data(self, **changes: Any) -> dict[str, Any]:
        """The recipe as plain data: `data(engine__retries=0)`."""
        data: dict[str, Any] = {
            "dataset": self.dataset,
            "prompts": {"path": str(self.folder / "prompts.jsonl"), "min_room": 8},
            "model": {"name": MODEL, "tokenizer": "embedded", "context_length": 2048},
            "sampling": {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 32},
            "engine": {"urls": [self.url], "in_flight": 8, "retries": 1, "wait_s": 0},
            "chunk_rows": 4,
            "breaker": "off",
        }
        for key, value in (self.changes | changes).items():
            part, _, name = key.rpartition("__")
            (data.setdefault(part, {}) if part else data)[name] = value
        return data

    @property
    def manifest(self) -> Manifest | None:
        return newest(open_storage(self.dataset))

    def rows(self, kind: str = "shards") -> list[dict[str, Any]]:
        """The manifest's rows, never what merely lies in the folder."""
        storage, manifest = open_storage(self.dataset), self.manifest
        refs = getattr(manifest, kind) if manifest else []
        return [row for ref in refs for row in storage.read_table(ref.path).to_pylist()]
