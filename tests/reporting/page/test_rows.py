"""Rows as the page takes them, and the budget they must fit in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.reporting.page.reading import ShownRow
from draftmill.reporting.page.rows import BLOCK_ROWS, INDEX_BYTES, PIECE_BYTES, blocks_within, row_json
from tests.reporting.report_dataset import CLOSE, END, OPEN, STRUCTURE


def shown(ids: list[int], **changes: Any) -> ShownRow:
    span = {"start": 2, "end": len(ids), "reasoning_end": 4, "finish_reason": "stop", "stop_id": END}
    columns = {
        "row_key": "ab" * 32,
        "prompt_id": "p",
        "variant": "default",
        "sample": 0,
        "attempt": 1,
        "prompt_len": 2,
        "spans": [span],
        "finish_reason": "stop",
    }
    return ShownRow(columns | changes, np.array(ids, np.int32))


def test_a_row_by_hand() -> None:
    row = row_json(shown([9, OPEN, 10, 11, CLOSE, 12, END]), {"default": STRUCTURE})
    assert row["ids"] == [9, OPEN, 10, 11, CLOSE, 12, END]
    assert row["parts"] == [[2, "prompt"], [4, "reasoning"], [5, "marker"], [6, "content"], [7, "end"]]
    assert row["masks"] == {"completion": [[2, 7]], "reasoning": [[2, 5]], "content": [[5, 7]]}
    assert (row["reason"], row["detail"], row["attempt"]) == (None, "", 1)


def test_a_secret_in_a_detail_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVIDER_API_KEY", "sk-0123456789")
    row = row_json(shown([9, OPEN, CLOSE, END], reason="aborted", detail="said sk-0123456789"), {"default": STRUCTURE})
    assert row["detail"] == "said [PROVIDER_API_KEY]"


@given(st.lists(st.integers(1, 500), max_size=350), st.integers(0, 150_000))
def test_the_budget_is_kept_and_used(sizes: list[int], max_bytes: int) -> None:
    def needed(blocks: list[list[dict[str, Any]]]) -> int:
        rows = [row for block in blocks for row in block]
        ids = {token_id for row in rows for token_id in row["ids"]}
        return sum(row["bytes"] + INDEX_BYTES for row in rows) + len(ids) * PIECE_BYTES

    rows = [{"ids": [number % 7], "bytes": size} for number, size in enumerate(sizes)]
    blocks = blocks_within(iter(rows), max_bytes, lambda block: sum(row["bytes"] for row in block))
    taken = [row for block in blocks for row in block]
    assert needed(blocks) <= max_bytes
    assert taken == rows[: len(taken)]
    assert all(len(block) == BLOCK_ROWS for block in blocks[:-1])
    assert needed([rows]) > max_bytes or taken == rows
