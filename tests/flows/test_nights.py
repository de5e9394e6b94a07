"""Nights: a dataset refreshed again and again while prompts, template, sampling and model change under it.

What a night asks is read from the fake server's log, what it left from the
manifest's rows, and `verify` has the last word each time.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from prefect.artifacts import Artifact

import tasks.seal
from draftmill.rendering.prepare import CANARY_MESSAGES
from draftmill.rendering.tokenizer import load_tokenizer
from draftmill.reporting.verification import verify_dataset
from draftmill.serving.fake import FakeServer
from draftmill.serving.faults import Fault
from tasks.receipts import artifact_key

SIX = [f"prompt {n}" for n in range(6)]
CANARY = CANARY_MESSAGES[0]["content"]

TEMPLATE = """{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
LOUD_AS_QUIET = TEMPLATE.replace("{{ message.content }}", "{{ message.content | replace('!', '.') }}")
"""A template with a fault that only some prompts meet."""


class Night:
    """What a refresh asked, in the prompts' own words, and its data."""

    def __init__(self, mill: Any, fake: FakeServer) -> None:
        self._mill, self._fake = mill, fake
        self._tokenizer = load_tokenizer(mill.recipe().model)

    def asked(self, start: int, *, answered: bool = False) -> list[str]:
        """The prompts of the requests from this number on, sorted, without the gate's canary."""
        entries = [entry for entry in self._fake.log[start:] if not answered or entry.status == 200]
        texts = [self._tokenizer.decode(entry.input_ids) for entry in entries]
        words = [re.search(r"<\|im_start\|>user\n(.*?)<\|im_end\|>", text, re.DOTALL)[1] for text in texts]
        return sorted(word for word in words if word != CANARY)

    async def __call__(self, **changes: Any) -> tuple[list[str], dict[str, Any]]:
        """One refresh: what it asked, and its numbers of rows. What it leaves is whole."""
        start = len(self._fake.log)
        data = await self._mill.refresh(**changes)
        faults = verify_dataset(self._mill.dataset).faults
        assert faults == []
        return self.asked(start), data["summary"]["rows"] | {"lines": data["plan"], "code": data["exit_code"]}


def held_by(mill: Any) -> dict[str, str]:
    """Prompt -> reason of the rows in quarantine."""
    return {row["prompt_id"]: row["reason"] for row in mill.rows("quarantine")}


def good(mill: Any) -> list[str]:
    return sorted(row["prompt_id"] for row in mill.rows())


@contextmanager
def bad_answers(fake: FakeServer, of: Sequence[str], mill: Any) -> Iterator[None]:
    """Answers to these prompts have no end while the block runs."""
    tokenizer = load_tokenizer(mill.recipe().model)

    def rule(number: int, request: Any) -> Fault | None:
        text = tokenizer.decode(request.prompt_ids)
        return Fault.NO_END if any(f"\n{prompt}<" in text for prompt in of) else None

    fake.rule = rule
    yield
    fake.rule = None


@pytest.fixture
async def first_night(mill: Any, fake_server: Any) -> Any:
    """`night, fake`: six prompts are in."""
    mill.prompts(SIX)
    async with fake_server() as fake:
        mill.url = fake.url
        night = Night(mill, fake)
        assert (await night())[0] == SIX
        yield night, fake


async def test_new_prompts_are_asked_and_no_others(mill: Any, first_night: Any) -> None:
    night, _ = first_night
    mill.prompts(["new b", *SIX[::-1], "new a"])
    asked, rows = await night()
    assert asked == ["new a", "new b"]
    assert (rows["kept"], rows["ok"], good(mill)) == (6, 2, sorted([*SIX, "new a", "new b"]))
    assert "  new prompts: 2" in rows["lines"]
    page = await Artifact.aget(artifact_key(mill.dataset, "summary"))
    assert "\n".join(rows["lines"]) in page.data
    assert (await night())[0] == []


async def test_after_a_crash_with_a_grown_source_the_unfinished_and_the_new_ones(
    mill: Any, fake_server: Any, start_run: Any
) -> None:
    mill.prompts(SIX)
    async with fake_server() as fake:
        mill.url = fake.url
        night = Night(mill, fake)
        fake.rule = lambda number, request: Fault.HANG if number > 4 else None  # the canary and three rows
        process = await start_run(mill.recipe_file(engine__in_flight=2))
        while len(fake.log) < 6:
            assert process.returncode is None
            await asyncio.sleep(0.02)
        await asyncio.sleep(1.5)  # the journal commits every second
        process.kill()
        await process.wait()
        finished = night.asked(0, answered=True)
        assert len(finished) == 3
        assert mill.manifest is None
        fake.rule = None
        mill.prompts(["new", *SIX])
        asked, rows = await night()
    assert asked == sorted({"new", *SIX} - set(finished))
    assert (rows["resumed"], rows["generated"], good(mill)) == (3, 4, sorted(["new", *SIX]))
    assert "  of these generated already by an unfinished run, 0 requests: 3" in rows["lines"]


@pytest.mark.parametrize(("removed", "left", "words"), [("keep", SIX, "kept"), ("drop", SIX[:4], "dropped")])
async def test_a_prompt_removed(mill: Any, first_night: Any, removed: str, left: list[str], words: str) -> None:
    night, _ = first_night
    mill.prompts(SIX[:4])
    asked, rows = await night(removed=removed)
    assert (asked, good(mill), rows["kept"]) == ([], left, 4)
    assert (rows["carried"], rows["dropped"]) == ((2, 0) if removed == "keep" else (0, 2))
    assert f"  gone from the source: 2, {words} (removed: {removed})" in rows["lines"]
    mill.prompts(SIX)
    assert (await night(removed=removed))[0] == []  # what was generated once comes back


async def test_a_template_fixed(mill: Any, fake_server: Any) -> None:
    """Only prompts whose ids it changes are asked; an old row stays until its successor is good."""
    template = mill.folder / "template.jinja"
    template.write_text(LOUD_AS_QUIET)
    mill.changes = {"model__chat_template": str(template)}
    mill.prompts(["loud!", "louder!", "quiet", "still"])
    async with fake_server() as fake:
        mill.url = fake.url
        night = Night(mill, fake)
        assert (await night())[0] == ["loud.", "louder.", "quiet", "still"]
        old = {row["prompt_id"]: row["row_key"] for row in mill.rows()}
        template.write_text(TEMPLATE)
        with bad_answers(fake, ["louder!"], mill):
            asked, rows = await night()
        new = {row["prompt_id"]: row["row_key"] for row in mill.rows()}
        assert asked == ["loud!", "louder!"]
        assert {name for name in old if new[name] != old[name]} == {"loud!"}
        assert held_by(mill) == {"louder!": "no_end_of_turn"}
        assert (rows["kept"], rows["ok"], rows["superseded"], rows["carried"]) == (2, 1, 1, 1)
        assert any(line.startswith("    chat template: ") for line in rows["lines"])
        assert "  known prompts under another key: other ids, sampling, model or revision: 2" in rows["lines"]
        await mill.rerun(generate=True, reasons=["no_end_of_turn"])
    assert good(mill) == ["loud!", "louder!", "quiet", "still"]
    assert old["louder!"] not in {row["row_key"] for row in mill.rows()}
    assert mill.rows("quarantine") == []


async def test_max_new_tokens_raised(mill: Any, fake_server: Any) -> None:
    mill.prompts(SIX)
    async with fake_server() as fake:
        mill.url = fake.url
        night = Night(mill, fake)
        await night(sampling__max_new_tokens=7)
        cut = sorted(row["prompt_id"] for row in mill.rows() if row["finish_reason"] == "length")
        assert 0 < len(cut) < 6
        asked, rows = await night(sampling__max_new_tokens=32)
    assert (asked, rows["kept"], good(mill)) == (cut, 6 - len(cut), SIX)
    assert {row["finish_reason"] for row in mill.rows()} == {"stop"}
    assert "    sampling.max_new_tokens: 7 -> 32 (only rows cut by length are asked again)" in rows["lines"]
    assert f"  cut by length at a smaller budget: asked again with more: {len(cut)}" in rows["lines"]


async def test_a_revision_bumped(mill: Any, first_night: Any) -> None:
    """All are asked anew, and each old row stays until its successor is good."""
    night, fake = first_night
    old = {row["prompt_id"]: row["row_key"] for row in mill.rows()}
    with bad_answers(fake, SIX[:2], mill):
        asked, rows = await night(model__revision="r2")
    new = {row["prompt_id"]: row["row_key"] for row in mill.rows()}
    assert (asked, sorted(new)) == (SIX, SIX)
    assert [name for name in SIX if new[name] == old[name]] == SIX[:2]
    assert (rows["ok"], rows["quarantined"], rows["superseded"], rows["carried"]) == (4, 2, 4, 2)
    assert any(line.startswith("    model.revision: not set -> r2 (part of a row's identity") for line in rows["lines"])
    assert (await night(model__revision="r2"))[0] == []  # held, not asked again by a night
    await mill.rerun(generate=True, reasons=["no_end_of_turn"], model__revision="r2")
    assert not set(old.values()) & {row["row_key"] for row in mill.rows()}
    assert (good(mill), mill.rows("quarantine")) == (SIX, [])


async def test_prompt_files_in_another_order_or_split_change_nothing(mill: Any, first_night: Any) -> None:
    night, _ = first_night
    lines = (mill.folder / "prompts.jsonl").read_text().splitlines()
    (mill.folder / "prompts.jsonl").write_text("\n".join(lines[::-1]) + "\n")
    assert (await night())[0] == []
    folder = mill.folder / "parts"
    folder.mkdir()
    for number, part in enumerate((lines[3:5], lines[:3], lines[5:])):
        (folder / f"{number}.jsonl").write_text("\n".join(part) + "\n")
    asked, rows = await night(prompts__path=str(folder))
    assert (asked, rows["kept"], mill.manifest.version) == ([], 6, 1)


async def test_two_samples_after_one_ask_the_second_ones_only(mill: Any, first_night: Any) -> None:
    night, _ = first_night
    asked, rows = await night(sampling__samples=2)
    assert (asked, rows["kept"], rows["ok"]) == (SIX, 6, 6)
    assert Counter(row["sample"] for row in mill.rows()) == {0: 6, 1: 6}
    assert "  further samples of known prompts: 6" in rows["lines"]
    assert (await night(sampling__samples=2))[0] == []


async def test_rejected_and_quarantined_rows_are_remembered_and_not_paid_for_again(mill: Any, fake_server: Any) -> None:
    """Case S9."""
    mill.prompts([*SIX, "word " * 600, SIX[0]])
    path = mill.folder / "prompts.jsonl"
    path.write_text(path.read_text() + json.dumps({"messages": []}) + "\n{torn")
    async with fake_server() as fake:
        mill.url = fake.url
        night = Night(mill, fake)
        with bad_answers(fake, SIX[:2], mill):
            asked, first = await night(model__context_length=512)
        assert (asked, first["rejected"], first["quarantined"]) == (SIX, 4, 2)
        asked, rows = await night(model__context_length=512)
        assert (asked, rows["kept"], rows["held"], rows["rejected"]) == ([], 4, 2, 4)
        assert held_by(mill) == dict.fromkeys(SIX[:2], "no_end_of_turn")
        assert mill.manifest.version == 1
        said = next(line for line in rows["lines"] if "rejected" in line)
        assert said == "  rejected, cannot be sent: 4 (duplicate 1, prompt_invalid 2, prompt_too_long 1)"
        assert "  held in quarantine, not asked again: 2 (no_end_of_turn 2)" in rows["lines"]


async def test_five_new_sixteen_kept_two_removed(mill: Any, fake_server: Any) -> None:
    """Case S12."""
    eighteen = [f"prompt {n:02}" for n in range(18)]
    mill.prompts(eighteen)
    async with fake_server() as fake:
        mill.url = fake.url
        night = Night(mill, fake)
        await night()
        five = [f"prompt new {n}" for n in range(5)]
        mill.prompts([*five, *eighteen[2:]])
        planned = await mill.refresh(plan_only=True, removed="drop")
        asked, rows = await night(removed="drop")
    assert (asked, rows["kept"], rows["dropped"], rows["ok"]) == (five, 16, 2, 5)
    assert good(mill) == sorted([*five, *eighteen[2:]])
    assert (
        planned["plan"]
        == rows["lines"]
        == [
            "plan on manifest 1: 21 rows, 5 to ask",
            "  changed since manifest 1:",
            "    removed: keep -> drop (what becomes of stored rows)",
            "  new prompts: 5",
            "  kept as they are: 16",
            "  gone from the source: 2, dropped (removed: drop)",
        ]
    )


async def test_a_plan_for_a_dataset_that_is_not_there_says_what_was_found(mill: Any) -> None:
    mill.prompts([*SIX, SIX[0]])
    data = await mill.refresh(plan_only=True)
    assert data["plan"] == [
        "plan for a new dataset: 7 rows, 6 to ask",
        "  new prompts: 6",
        "  kept as they are: 0",
        "  rejected, cannot be sent: 1 (duplicate 1)",
    ]


@pytest.mark.parametrize("removed", ["keep", "drop"])
async def test_a_smaller_context_takes_no_row_of_a_prompt_that_is_still_there(
    mill: Any, fake_server: Any, removed: str
) -> None:
    """What cannot be sent now was answered before; with `drop` only a prompt that is gone takes its rows along."""
    long, gone = ["many words " * 30 + str(n) for n in range(3)], "to be removed"
    mill.prompts([*SIX, *long, gone])
    async with fake_server() as fake:
        mill.url = fake.url
        await mill.refresh(sampling__samples=2)
        mill.prompts([*SIX, *long])
        rows = (await mill.refresh(removed=removed, model__context_length=80))["summary"]["rows"]
        counts = [rows[name] for name in ("planned", "kept", "rejected", "carried", "dropped")]
        left = 2 * (removed == "drop")
        # Of the long prompts two samples each, of the others the second one: none is asked any more.
        assert counts == [9, 6, 3, 14 - left, left]
        back = await mill.refresh(sampling__samples=2, removed=removed)
    assert (back["summary"]["requests"], back["summary"]["rows"]["kept"]) == (0, 18)


async def test_what_an_interrupted_rerun_made_comes_with_the_next_night(
    mill: Any, fake_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: Any) -> None:
        raise RuntimeError("the machine is off")

    mill.prompts(SIX)
    async with fake_server() as fake:
        mill.url = fake.url
        fake.rule = lambda number, request: Fault.NO_END if number > 1 else None
        await mill.refresh()
        assert (len(mill.rows()), len(mill.rows("quarantine"))) == (0, 6)
        fake.rule = None
        with monkeypatch.context() as patched:
            patched.setattr(tasks.seal, "commit_change", dies)
            with pytest.raises(RuntimeError, match="off"):
                await mill.rerun(generate=True, reasons=sorted({row["reason"] for row in mill.rows("quarantine")}))
        before = len(fake.log)
        data = await mill.refresh()
        assert (len(fake.log) - before, data["summary"]["rows"]["resumed"]) == (0, 6)
        assert [row["attempt"] for row in mill.rows()] == [1] * 6
        again = await mill.refresh()
    assert (again["summary"]["rows"]["kept"], again["summary"]["sealed"]) == (6, False)
