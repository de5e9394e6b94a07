"""What every exporter promises: its files give back the ids and masks that went in, in order, in bounded memory."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import fsspec
import numpy as np
import pytest
from fsspec import AbstractFileSystem
from hypothesis import given
from hypothesis import strategies as st

from draftmill import plugins
from draftmill.arrays import MAX_ID
from draftmill.exporting.examples import Example
from draftmill.exporting.tally import PartTally
from draftmill.exporting.vocabulary import Vocabulary
from draftmill.records import Span

ANY_NAME = "row \u2028 \x00 \u202e </script>"
"""A prompt id as a source may have it."""


class Letters:
    """A tokenizer as far as an exporter needs one."""

    def decode(self, ids: list[int], *, skip_special_tokens: bool) -> str:
        assert not skip_special_tokens
        return "".join(chr(97 + index % 26) for index in ids)


VOCABULARY: Any = Vocabulary(MAX_ID + 1, {"ends_turn": [2]}, Letters)


EXPORTERS = [plugins.load("exporters", name) for name in plugins.names("exporters")]

each_exporter = pytest.mark.parametrize("exporter", EXPORTERS, ids=plugins.names("exporters"))


def build_example(ids: list[int], mask: list[int], name: str = ANY_NAME) -> Example:
    start = mask.index(1) if 1 in mask else 0
    spans = (Span(start, len(ids), None, "stop", ids[-1]), Span(start, len(ids), start, "length", None))
    return Example(name, name, np.array(ids, np.int32), np.array(mask, np.uint8), start, None, spans)


ROWS = st.lists(
    st.lists(st.tuples(st.integers(0, MAX_ID), st.integers(0, 1)), min_size=1, max_size=40).map(
        lambda pairs: build_example([index for index, _ in pairs], [bit for _, bit in pairs])
    ),
    max_size=12,
)


@each_exporter
@given(rows=ROWS)
def test_what_goes_in_comes_back(exporter: ModuleType, tmp_path_factory: pytest.TempPathFactory, rows: Any) -> None:
    check(exporter, local(tmp_path_factory.mktemp("export")), rows)


@each_exporter
@pytest.mark.parametrize("number", [0, 1, 600])
def test_on_object_storage_too(exporter: ModuleType, number: int) -> None:
    memory = fsspec.filesystem("memory")
    folder = fsspec.filesystem("dir", path=f"/export-{exporter.__name__}-{number}", fs=memory)
    check(exporter, folder, [build_example([5, 6, number], [0, 1, 1])] * number)
    memory.store.clear()


@each_exporter
def test_parts_lie_side_by_side(exporter: ModuleType, tmp_path: Path) -> None:
    folder, parts = local(tmp_path), {"train": [1, 2, 3], "validation": [4, 5]}
    paths = {
        part: set(exporter.write(folder, part, iter([build_example(ids, [1] * len(ids))]), vocabulary=VOCABULARY))
        for part, ids in parts.items()
    }
    assert not paths["train"] & paths["validation"]
    assert {part: [ids.tolist() for ids, _ in exporter.read(folder, part)] for part in parts} == {
        part: [ids] for part, ids in parts.items()
    }


@each_exporter
def test_few_rows_are_in_memory_at_once(exporter: ModuleType, tmp_path: Path) -> None:
    ends: list[weakref.finalize] = []
    most = 0

    def rows() -> Iterator[Example]:
        nonlocal most
        for number in range(2000):
            example = build_example([number] * 8, [1] * 8)
            ends.append(weakref.finalize(example.input_ids_T, int))
            if number % 100 == 0:
                gc.collect()
                most = max(most, sum(end.alive for end in ends))
            yield example

    exporter.write(local(tmp_path), "train", rows(), vocabulary=VOCABULARY)
    assert 0 < most < 600


def local(path: Path) -> AbstractFileSystem:
    return fsspec.filesystem("dir", path=str(path), fs=fsspec.filesystem("file"))


def check(exporter: ModuleType, folder: AbstractFileSystem, rows: list[Example]) -> None:
    written, found = PartTally(), PartTally()
    paths = exporter.write(folder, "train", written.passing(rows), vocabulary=VOCABULARY)
    assert all(folder.exists(path) for path in paths)
    for ids_T, mask_T in exporter.read(folder, "train"):
        found.add(ids_T, mask_T)
    assert found.numbers == written.numbers
    assert found.numbers.rows == len(rows)
