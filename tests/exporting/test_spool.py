"""Examples on disk: as they were, in the order of their hashes or as they came."""

from __future__ import annotations

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


@given(lengths=st.lists(st.integers(1, 9), max_size=40), buckets=st.integers(1, 7), buffer=st.integers(1, 60))
def test_nothing_changes_but_the_order(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], buckets: int, buffer: int
) -> None:
    examples = [build_example(number, length) for number, length in enumerate(lengths)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "BUFFER_IDS", buffer)
        found = Spool(tmp_path_factory.mktemp("spool") / "part", buckets=buckets)
        for example in examples:
            found.add(order_of(example.row_key), example)
        came = [plain(example) for example in found.examples()]
    wanted = examples if buckets == 1 else sorted(examples, key=lambda example: order_of(example.row_key))
    assert came == [plain(example) for example in wanted]


def test_one_bucket_is_in_memory_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "BUFFER_IDS", 50)
    found = Spool(tmp_path / "part", buckets=8)
    for number in range(400):
        found.add(order_of(number), build_example(number))
    files = list((tmp_path / "part").iterdir())
    assert len(files) == 8
    assert max(file.stat().st_size for file in files) < sum(file.stat().st_size for file in files) / 4
    assert len(list(found.examples())) == 400
