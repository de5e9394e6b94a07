"""Examples on disk: as they were, in the order of their hashes or as they came."""

from __future__ import annotations

import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.exporting import spool
from draftmill.exporting.examples import Example
from draftmill.exporting.hashes import order_of
from draftmill.exporting.spool import Spool
from draftmill.records import Span


def build_example(number: int, length: int = 3) -> Example:
    ids = np.full(length, number, np.int32)
    spans = (Span(1, length, None, "stop", 2), Span(1, length, 1, "length", None))
    return Example(f"key {number}", f"prompt {number}", ids, (np.arange(length) > 0).astype(np.uint8), 1, None, spans)


def plain(example: Example) -> Any:
    return (
        example.row_key,
        example.prompt_id,
        example.input_ids_T.tolist(),
        example.loss_mask_T.tolist(),
        (example.prompt_len, example.reasoning_end, example.spans),
    )


@given(
    lengths=st.lists(st.integers(1, 9), max_size=40),
    buckets=st.integers(1, 7),
    buffer=st.integers(1, 5000),
    bucket_ids=st.integers(1, 60),
    at_most=st.integers(2, 5),
)
def test_nothing_changes_but_the_order(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    buckets: int,
    buffer: int,
    bucket_ids: int,
    at_most: int,
) -> None:
    examples = [build_example(number, length) for number, length in enumerate(lengths)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "BUFFER_IDS", buffer)
        patch.setattr(spool, "BUCKET_IDS", bucket_ids)
        patch.setattr(spool, "BUCKETS_AT_MOST", at_most)
        found = Spool(tmp_path_factory.mktemp("spool") / "part", buckets=buckets)
        for example in examples:
            found.add(order_of(example.row_key), example)
        came = [plain(example) for example in found.examples()]
    wanted = examples if buckets == 1 else sorted(examples, key=lambda example: order_of(example.row_key))
    assert came == [plain(example) for example in wanted]


def test_a_bucket_too_large_for_memory_is_scattered_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "BUCKET_IDS", 60)
    monkeypatch.setattr(spool, "BUCKETS_AT_MOST", 4)
    found = Spool(tmp_path / "part", buckets=1000)
    for number in range(400):
        found.add(order_of(number), build_example(number))
    read: list[int] = []
    monkeypatch.setattr(Spool, "_sorted", noting(Spool._sorted, read))
    came = [example.row_key for example in found.examples()]
    assert came == [f"key {number}" for number in sorted(range(400), key=order_of)]
    assert sum(read) == 400
    assert max(read) * 3 <= 2 * 60


def test_equal_orders_are_never_scattered_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "BUCKET_IDS", 1)
    found = Spool(tmp_path / "part", buckets=2)
    for number in range(5):
        found.add(order_of("the same"), build_example(number))
    assert [example.row_key for example in found.examples()] == [f"key {number}" for number in range(5)]


def noting(real: Any, read: list[int]) -> Any:
    """`Spool._sorted`, noting how many rows it had in memory."""

    def rows(self: Spool, bucket: int) -> Any:
        came = list(real(self, bucket))
        read.append(len(came))
        yield from came

    return rows


def test_waiting_rows_do_not_keep_what_they_were_read_with(tmp_path: Path) -> None:
    read = np.arange(1000, dtype=np.int32)
    alive = weakref.ref(read)
    found = Spool(tmp_path / "part", buckets=2)
    found.add(order_of(1), replace(build_example(1), input_ids_T=read[:3]))
    del read
    assert alive() is None


def test_one_bucket_is_in_memory_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "BUFFER_IDS", 50)
    found = Spool(tmp_path / "part", buckets=8)
    for number in range(400):
        found.add(order_of(number), build_example(number))
    files = list((tmp_path / "part").iterdir())
    assert len(files) == 8
    assert max(file.stat().st_size for file in files) < sum(file.stat().st_size for file in files) / 4
    assert len(list(found.examples())) == 400
