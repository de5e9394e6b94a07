"""JSON lines for the eye: the ids with what they read as. Not for training.

Everything called `derived_text` is decoded for people. Encoding it again gives other
ids than the model produced, which is why no trainer is to be fed with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fsspec import AbstractFileSystem

from draftmill.arrays import Ids
from draftmill.exporters._rows import line, read_lines, write_lines
from draftmill.exporting.examples import Example
from draftmill.exporting.masks import LossMask
from draftmill.exporting.vocabulary import Vocabulary


def write(folder: AbstractFileSystem, part: str, examples: Iterable[Example], *, vocabulary: Vocabulary) -> list[str]:
    """`PART.jsonl`. Raises DraftmillError where the tokenizer is not at hand."""
    tokenizer = vocabulary.load()

    def shown(example: Example) -> dict[str, Any]:
        def text(ids_T: Ids) -> str:
            return str(tokenizer.decode(ids_T.tolist(), skip_special_tokens=False))

        supervised_ids = example.input_ids_T[example.loss_mask_T == 1]
        return {
            "row_key": example.row_key,
            "prompt_id": example.prompt_id,
            "derived_text": text(example.input_ids_T),
            "derived_text_of_supervised": text(supervised_ids),
            "prompt_len": example.prompt_len,
            "reasoning_end": example.reasoning_end,
            **line(example),
        }

    path = f"{part}.jsonl"
    write_lines(folder, path, map(shown, examples))
    return [path]


def read(folder: AbstractFileSystem, part: str) -> Iterator[tuple[Ids, LossMask]]:
    """The ids and masks."""
    return read_lines(folder, f"{part}.jsonl")
