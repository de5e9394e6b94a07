"""SpecForge: JSON lines for `data.prompts_path`.

Its reader (`specforge.data.prompt_builder.prepare_prompt_tasks`) takes a file for
tokenized when the first row has `input_ids` and `loss_mask`, cuts longer rows on the
right and leaves out rows with fewer supervised ids than it is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fsspec import AbstractFileSystem

from draftmill.arrays import Ids
from draftmill.exporters._rows import line, read_lines, write_lines
from draftmill.exporting.examples import Example
from draftmill.exporting.masks import LossMask
from draftmill.exporting.vocabulary import Vocabulary


def write(folder: AbstractFileSystem, part: str, examples: Iterable[Example], *, vocabulary: Vocabulary) -> list[str]:
    """`PART.jsonl`."""
    path = f"{part}.jsonl"
    write_lines(folder, path, map(line, examples))
    return [path]


def read(folder: AbstractFileSystem, part: str) -> Iterator[tuple[Ids, LossMask]]:
    """What its reader sees."""
    return read_lines(folder, f"{part}.jsonl")
