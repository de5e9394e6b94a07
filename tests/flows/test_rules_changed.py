"""A rule changes: the next night judges what is stored again by itself, without a request, and only once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tasks.rejudge
from draftmill.dataset.manifest import manifest_path, read_manifest
from draftmill.dataset.schema import SHARD
from draftmill.dataset.seal import Change, seal
from draftmill.dataset.storage import Outcome, Storage, open_storage
from draftmill.errors import GateRefused
from draftmill.reporting.since import TWO_SETS
from draftmill.reporting.verification import verify_dataset
from draftmill.serving.answers import Card
from draftmill.serving.fake import FakeServer
from draftmill.serving.fake_answers import FakeAnswer, Markers
from draftmill.serving.protocol import GenerateRequest, Limits

OPEN, CLOSE, END, OTHER_END = 151667, 151668, 151645, 151643
EIGHT = [f"question {n}" for n in range(8)]
CANARY = 1

TEMPLATE = """{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
OPENS_THINKING = TEMPLATE.replace("<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n")


@pytest.fixture
def qwen(mill: Any, shaped_folder: Callable[[str, str], str]) -> Any:
    """A mill on a tokenizer with think markers, whose template opens none."""
    mill.prompts(EIGHT)
    mill.changes = {"model__tokenizer": shaped_folder("qwen3", TEMPLATE), "structure": "plain"}
    return mill


@pytest.fixture
def judgings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The manifests whose rows were really judged again, not known from a receipt."""
    found: list[int] = []
    judge = tasks.rejudge.rejudge_rows

    def counting(storage: Any, manifest: Any, judge_table: Any) -> Any:
        found.append(manifest.version)
        return judge(storage, manifest, judge_table)

    monkeypatch.setattr(tasks.rejudge, "rejudge_rows", counting)
    return found


def serving(answers: Callable[[GenerateRequest], FakeAnswer]) -> FakeServer:
    card = Card(model="SmolLM2-135M-Instruct", version="0.5.23", slots=8)
    return FakeServer(answers, card=card, limits=Limits(4096, 151936), markers=Markers(end_id=END))


def said(request: GenerateRequest) -> int:
    return 1000 + sum(request.prompt_ids) % 30000


def ended_two_ways() -> Callable[[GenerateRequest], FakeAnswer]:
    """Every second answer ends with an id that nobody said ends a turn."""
    ends: Iterator[int] = iter([END] * CANARY + [END, OTHER_END] * 100)
    return lambda request: FakeAnswer([said(request), next(ends)])


def longer_and_shorter(request: GenerateRequest) -> FakeAnswer:
    return FakeAnswer([said(request)] * (1 + sum(request.prompt_ids) % 4) + [END])


def also_ends_with(mill: Any, *ids: int) -> None:
    """As when somebody adds the model's own generation_config.json."""
    config = {"eos_token_id": [END, *ids]}
    Path(mill.changes["model__tokenizer"], "generation_config.json").write_text(json.dumps(config))


def names(mill: Any, kind: str = "shards") -> list[str]:
    return sorted(row["prompt_id"] for row in mill.rows(kind))


async def test_half_the_rows_in_quarantine_then_the_rule_fixed(qwen: Any, judgings: list[int]) -> None:
    """The sixth night: 0 requests, the rows come back, and the next night asks and judges nothing."""
    async with serving(ended_two_ways()) as fake:
        qwen.url = fake.url
        first = await qwen.refresh()
        assert (first["exit_code"], first["summary"]["reasons"]) == (3, {"no_end_of_turn": 4})
        before = len(fake.log)
        also_ends_with(qwen, OTHER_END)
        planned = await qwen.refresh(plan_only=True)
        words = "  rules changed (structure): 8 stored rows"
        assert f"{words} are judged again first, 0 requests; the numbers below are those before it" in planned["plan"]
        assert (qwen.manifest.version, judgings) == (1, [])
        data = await qwen.refresh()
        assert len(fake.log) == before
    rows = data["summary"]["rows"]
    assert (data["exit_code"], rows["rejudged"], rows["kept"], rows["held"]) == (0, 4, 8, 0)
    assert (data["summary"]["sealed"], data["summary"]["manifest"]) == (True, 2)
    assert (names(qwen), names(qwen, "quarantine")) == (EIGHT, [])
    assert f"{words} judged again, 0 requests: 4 are good now, 0 bad" in data["plan"]
    assert {made.manifest for ref in qwen.manifest.shards for made in ref.made} == {1}  # judged anew, made then
    again = await qwen.refresh()
    assert (again["summary"]["sealed"], qwen.manifest.version, judgings) == (False, 2, [1])
    assert (again["summary"]["rows"]["rejudged"], again["summary"]["requests"]) == (0, 0)
    assert verify_dataset(qwen.dataset).faults == []


async def test_a_stricter_rule_holds_what_it_refuses_and_the_new_prompts_are_asked(
    qwen: Any, judgings: list[int]
) -> None:
    async with serving(longer_and_shorter) as fake:
        qwen.url = fake.url
        await qwen.refresh(sampling__max_new_tokens=3)
        cut = sorted(row["prompt_id"] for row in qwen.rows() if row["finish_reason"] == "length")
        assert 0 < len(cut) < 8
        before = len(fake.log)
        qwen.prompts([*EIGHT, "new"])
        data = await qwen.refresh(sampling__max_new_tokens=3, on_truncated="quarantine")
        assert len(fake.log) - before - CANARY == 1
    rows = data["summary"]["rows"]
    assert (data["exit_code"], rows["rejudged"], rows["held"], rows["kept"]) == (3, len(cut), len(cut), 8 - len(cut))
    assert set(names(qwen, "quarantine")) - {"new"} == set(cut)
    assert (qwen.manifest.version, verify_dataset(qwen.dataset).faults) == (3, [])
    again = await qwen.refresh(sampling__max_new_tokens=3, on_truncated="quarantine")
    assert (again["exit_code"], again["summary"]["requests"], judgings) == (0, 0, [1])


async def test_a_rule_that_refuses_every_row_throws_none_away(qwen: Any) -> None:
    async with serving(longer_and_shorter) as fake:
        qwen.url = fake.url
        await qwen.refresh(sampling__max_new_tokens=1)
        before = len(fake.log)
        data = await qwen.refresh(sampling__max_new_tokens=1, on_truncated="quarantine")
        assert (data["exit_code"], names(qwen), names(qwen, "quarantine")) == (3, [], EIGHT)
        data = await qwen.refresh(sampling__max_new_tokens=1)
        assert len(fake.log) == before
    assert (data["exit_code"], names(qwen), names(qwen, "quarantine")) == (0, EIGHT, [])


async def test_rules_that_move_no_row_are_asked_once_and_by_a_rerun_whenever_it_is_told_to(
    qwen: Any, judgings: list[int]
) -> None:
    async with serving(longer_and_shorter) as fake:
        qwen.url = fake.url
        await qwen.refresh()
    for _ in range(3):
        data = await qwen.refresh(degenerate=300)
        assert (data["summary"]["sealed"], data["summary"]["rows"]["rejudged"]) == (False, 0)
    assert judgings == [1]
    await qwen.refresh(degenerate=301)
    assert judgings == [1, 1]
    await qwen.rerun(degenerate=301)
    assert (judgings, qwen.manifest.version) == ([1, 1, 1], 1)


async def test_after_a_night_without_a_server_the_plan_still_knows_what_else_changed(qwen: Any) -> None:
    """Judging needs no server, asking does: what is sealed before it must not pass for a run with the new recipe."""
    async with serving(ended_two_ways()) as fake:
        qwen.url = fake.url
        await qwen.refresh()
    also_ends_with(qwen, OTHER_END)
    with pytest.raises(GateRefused):
        await qwen.refresh(sampling__temperature=0.5)
    assert (qwen.manifest.version, names(qwen)) == (2, EIGHT)
    data = await qwen.refresh(plan_only=True, sampling__temperature=0.5)
    assert any(line.startswith("    sampling.temperature: 1.0 -> 0.5") for line in data["plan"])
    assert not [line for line in data["plan"] if "rules changed" in line]


async def test_rows_of_an_older_template_are_not_judged_by_the_new_ones_structure(qwen: Any) -> None:
    """Old rows stay until their successors are good, though by the new structure none of them would be."""

    closings: Iterator[list[int]] = iter([[CLOSE]] * CANARY + [[CLOSE], []] * 100)

    def thinks(request: GenerateRequest) -> FakeAnswer:
        if OPEN not in request.prompt_ids:
            return FakeAnswer([said(request), END])
        return FakeAnswer([said(request), *next(closings), said(request) + 1, END])

    template = qwen.folder / "template.jinja"
    template.write_text(OPENS_THINKING)
    fixed = {"model__chat_template": str(template), "structure": "think"}
    async with serving(thinks) as fake:
        qwen.url = fake.url
        await qwen.refresh()
        old = {row["prompt_id"]: row["row_key"] for row in qwen.rows()}
        data = await qwen.refresh(**fixed)
    rows = data["summary"]["rows"]
    assert (rows["rejudged"], rows["generated"], rows["quarantined"], names(qwen)) == (0, 8, 4, EIGHT)
    waiting = sorted(row["prompt_id"] for row in qwen.rows() if row["row_key"] in old.values())
    assert waiting == names(qwen, "quarantine")
    assert verify_dataset(qwen.dataset).faults == []
    again = await qwen.refresh(**fixed, degenerate=300)
    assert (again["summary"]["rows"]["rejudged"], names(qwen)) == (0, EIGHT)


def meanwhile(monkeypatch: pytest.MonkeyPatch, version: int, other: Callable[[Storage], None]) -> None:
    """Another machine seals in the moment before our first commit of this version."""
    create, left = Storage.create, [other]

    def lost(self: Storage, path: str, data: bytes) -> Outcome:
        if left and path == manifest_path(version):
            left.pop()(self)
        return create(self, path, data)

    monkeypatch.setattr(Storage, "create", lost)


def brings_a_cut_row(storage: Storage) -> None:
    """As a run on the first version does, with its rules: one more row, cut by length."""
    first = read_manifest(storage, 1)
    rows = pa.concat_tables([storage.read_table(ref.path) for ref in first.shards]).to_pylist()
    row = next(row for row in rows if row["finish_reason"] == "length")
    row |= {"row_key": "0" * 64, "prompt_key": "1" * 64, "prompt_id": "the other machine's"}
    shard = storage.put_table("shards", pa.Table.from_pylist([row], SHARD))
    words = {name: getattr(first, name) for name in ("identity", "structures", "provenance", "rejected", "counts")}
    recipe = first.recipe | {"card": {"theirs": True}}
    failed = [{"row_key": "2" * 64, "prompt_id": "", "source": "", "detail": "theirs"}]
    seal(storage, Change(good=[shard], recipe=recipe, failed=failed, **words))


async def test_rows_that_another_machine_seals_while_ours_are_judged_are_judged_too(
    qwen: Any, judgings: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(longer_and_shorter) as fake:
        qwen.url = fake.url
        await qwen.refresh(sampling__max_new_tokens=3)
    cut = [row["prompt_id"] for row in qwen.rows() if row["finish_reason"] == "length"]
    meanwhile(monkeypatch, 2, brings_a_cut_row)
    data = await qwen.refresh(sampling__max_new_tokens=3, on_truncated="quarantine")
    assert names(qwen, "quarantine") == sorted([*cut, "the other machine's"])
    assert data["summary"]["rows"]["rejudged"] == len(cut) + 1
    storage = open_storage(qwen.dataset)
    assert judgings == [1, 3]
    assert [read_manifest(storage, version).judged_alike for version in (1, 2, 3, 4)] == [True, True, False, True]
    # What else the manifest says is the word of the one it was built on.
    lost = read_manifest(storage, 3)
    assert (lost.recipe["card"], lost.failed[0]["detail"]) == ({"theirs": True}, "theirs")
    assert lost.recipe["on_truncated"] == "quarantine"
    assert (qwen.manifest.version, verify_dataset(qwen.dataset).faults) == (4, [])


async def test_rows_that_another_machine_seals_by_the_old_rules_before_ours_are_judged_the_next_night(
    qwen: Any, judgings: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = {"sampling__max_new_tokens": 3, "on_truncated": "quarantine"}
    async with serving(longer_and_shorter) as fake:
        qwen.url = fake.url
        await qwen.refresh(sampling__max_new_tokens=3)
        qwen.prompts([*EIGHT, "new"])
        meanwhile(monkeypatch, 3, brings_a_cut_row)
        await qwen.refresh(**strict)
    assert "the other machine's" in names(qwen)
    assert (qwen.manifest.version, qwen.manifest.judged_alike) == (4, False)
    found = verify_dataset(qwen.dataset)
    assert found.faults == []
    assert any("the next judges all rows again" in words for words in found.not_verified)
    planned = await qwen.refresh(plan_only=True, **strict)
    assert any(f"rules changed ({TWO_SETS})" in line for line in planned["plan"])
    await qwen.refresh(**strict)
    assert "the other machine's" in names(qwen, "quarantine")
    assert (qwen.manifest.version, qwen.manifest.judged_alike, judgings) == (5, True, [1, 4])
    await qwen.refresh(**strict)
    assert (qwen.manifest.version, judgings) == (5, [1, 4])
