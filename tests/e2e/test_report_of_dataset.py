"""The report of a real dataset of 5,000 rows, made as a run makes it, in Chromium."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from playwright.async_api import expect

from draftmill.arrays import ids_array
from draftmill.dataset.seal import Change, seal
from draftmill.dataset.shards import dataset_rows
from draftmill.dataset.storage import Storage, open_storage
from draftmill.judging.structure import Structure
from draftmill.records import Answer, Completion, Reason, Row, Thinking, Verdict
from draftmill.reporting.page.make import write_report
from tests.e2e.report_tab import LARGEST_BYTES, opened
from tests.mill import Mill

ROWS, BAD, VOCABULARY = 5000, 40, 49_000
OPEN, CLOSE, END = 4, 5, 2


def pair(number: int, dice: np.random.Generator) -> tuple[Completion, Verdict]:
    """Reasoning, its end, an answer and the end of the turn; the first BAD rows are no good."""
    prompt = [1, *dice.integers(100, VOCABULARY, 40).tolist(), OPEN]
    length = int(dice.lognormal(5.2, 0.6)) + 20
    output = (100 + dice.zipf(1.2, length) % (VOCABULARY - 100)).tolist()
    output[length // 2], output[-1] = CLOSE, END
    key = f"{number * 7919:08x}" + "0" * 56
    row = Row(key, 0, key, f"prompt-{number}", "default", 0, ids_array("p", prompt), 2000, None, "prompts.jsonl")
    when = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number // 3)
    made = Answer(ids_array("o", output), None, len(prompt), length, "stop", None, END, "e", None, when)
    reason = Reason.DEGENERATE if number < BAD else None
    return Completion(row, made), Verdict(reason, "a loop" if reason else "", None, len(prompt) + length // 2, END)


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Storage:
    mill = Mill(tmp_path_factory.mktemp("mill"))
    made = open_storage(mill.dataset)
    dice = np.random.default_rng(8)
    pairs = [pair(number, dice) for number in range(ROWS)]
    good, bad = dataset_rows([completion for completion, _ in pairs], [verdict for _, verdict in pairs])
    structure = Structure("s", Thinking.OPENED_BY_PROMPT, (OPEN,), (CLOSE,), (END,), (), (), (), VOCABULARY, ())
    change = Change(
        good=[made.put_table("shards", good)],
        bad=[made.put_table("quarantine", bad)],
        structures={"default": structure.to_json()},
        recipe=mill.data(),
    )
    seal(made, change)
    return made


async def test_a_run_of_five_thousand_rows_can_be_looked_at(storage: Storage) -> None:
    made = write_report(storage)
    assert made.total == ROWS
    path = Path(made.place)
    assert path.stat().st_size == made.bytes < LARGEST_BYTES
    async with opened(path.as_uri()) as report:
        await expect(report.find("#outcome")).to_contain_text(f"{ROWS - BAD:,}")
        await expect(report.find("#reasons tbody tr")).to_have_count(1)
        await expect(report.find("#lengths figure svg")).to_have_count(4)
        await expect(report.find("#throughput figure svg")).to_have_count(1)
        await report.all_there()
        await report.find("#reasons a").first.click()
        await report.shows("00000000")
        await expect(report.find("#legend")).to_contain_text("reasoning")
        await report.press("m")
        await expect(report.find("#token")).to_contain_text("Mask completion")
        await report.find("#list").focus()
        await report.press("End", "Enter", "End")
        await expect(report.find("#token")).to_contain_text("end, raw piece <|im_end|>, supervised")
