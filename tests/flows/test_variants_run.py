"""A recipe with thinking on for some prompts and off for others, through a whole run on a Qwen3-shaped model."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from draftmill.errors import RecipeError
from draftmill.serving.answers import Card
from draftmill.serving.fake import FakeServer
from draftmill.serving.fake_answers import FakeAnswer, Markers
from draftmill.serving.protocol import GenerateRequest, Limits
from draftmill.variants import variant_of

OPEN, CLOSE, END = 151667, 151668, 151645
VARIANTS = [
    {"name": "think", "share": 0.6},
    {"name": "fast", "share": 0.4, "template_kwargs": {"enable_thinking": False}, "sampling": {"temperature": 0.25}},
]
PROMPTS = [f"question {n}" for n in range(24)]


@pytest.fixture
def hybrid(mill: Any, shaped_folder: Any) -> Any:
    """A mill on a model whose template opens nothing with thinking on, and closes an empty block with it off."""
    mill.prompts(PROMPTS)
    mill.changes = {"model__tokenizer": shaped_folder("qwen3", "Qwen-Qwen3-0.6B"), "variants": VARIANTS}
    return mill


def answer(request: GenerateRequest) -> FakeAnswer:
    """As a hybrid model answers: its own block, unless the prompt has closed an empty one."""
    closed = CLOSE in request.prompt_ids
    said = 1000 + sum(request.prompt_ids) % 30000
    return FakeAnswer([said, said + 1, END] if closed else [OPEN, said, CLOSE, said + 1, END])


def serving(answers: Any = answer) -> FakeServer:
    card = Card(model="SmolLM2-135M-Instruct", version="0.5.23", slots=8)
    return FakeServer(answers, card=card, limits=Limits(4096, 151936), markers=Markers(end_id=END))


async def test_each_prompt_is_asked_and_judged_its_own_way(hybrid: Any) -> None:
    recipe = hybrid.recipe()
    wanted = {text: variant_of(recipe, [{"role": "user", "content": text}], None) for text in PROMPTS}
    async with serving() as fake:
        hybrid.url = fake.url
        data = await hybrid.refresh()
        temperatures = Counter(entry.sampling_params["temperature"] for entry in fake.log)
    rows = hybrid.rows()
    assert data["summary"]["rows"]["ok"] == len(PROMPTS) == len(rows)
    assert {row["prompt_id"]: row["variant"] for row in rows} == wanted
    shares = Counter(wanted.values())
    assert min(shares.values()) >= 4  # both ways are really taken
    # One canary for each variant.
    assert temperatures == {1.0: shares["think"] + 1, 0.25: shares["fast"] + 1}
    for row in rows:
        closed_by_model = row["input_ids"].index(CLOSE, row["prompt_len"]) if row["variant"] == "think" else None
        assert row["reasoning_end"] == closed_by_model
    assert set(hybrid.manifest.structures) == set(hybrid.manifest.identity) == {"think", "fast"}
    thinking = {name: structure["thinking"] for name, structure in hybrid.manifest.structures.items()}
    assert thinking == {"think": "opened_by_model", "fast": "closed_by_prompt"}


async def test_the_same_again_asks_nothing_and_another_share_only_those_that_go_over(hybrid: Any) -> None:
    moved = [{**VARIANTS[0], "share": 0.8}, {**VARIANTS[1], "share": 0.2}]
    async with serving() as fake:
        hybrid.url = fake.url
        await hybrid.refresh()
        again = await hybrid.refresh()
        before = Counter(row["variant"] for row in hybrid.rows())
        data = await hybrid.refresh(variants=moved, removed="drop")
    assert again["summary"]["requests"] == 0
    after = Counter(row["variant"] for row in hybrid.rows())
    assert after["think"] - before["think"] == data["summary"]["requests"] == before["fast"] - after["fast"] > 0


async def test_a_variant_that_the_recipe_drops_keeps_its_rows_and_its_structure(hybrid: Any) -> None:
    async with serving() as fake:
        hybrid.url = fake.url
        await hybrid.refresh()
        await hybrid.refresh(variants=[{"name": "think", "share": 1}])
    assert set(hybrid.manifest.structures) == {"think", "fast"}
    kept = Counter(row["variant"] for row in hybrid.rows())
    assert kept["think"] == len(PROMPTS)
    assert kept["fast"] > 0  # removed: keep
    rerun = await hybrid.rerun(variants=[{"name": "think", "share": 1}])
    assert rerun["summary"]["rows"]["rejudged"] == 0


async def test_rows_of_a_variant_that_is_gone_are_judged_by_the_present_rules(hybrid: Any) -> None:
    """By the structure they were sealed with, which the manifest has."""
    short = [VARIANTS[0], {**VARIANTS[1], "sampling": {"temperature": 0.25, "max_new_tokens": 2}}]
    async with serving() as fake:
        hybrid.url = fake.url
        await hybrid.refresh(variants=short)
    cut = [row["prompt_id"] for row in hybrid.rows() if row["finish_reason"] == "length"]
    assert {row["variant"] for row in hybrid.rows() if row["prompt_id"] in cut} == {"fast"}
    rerun = await hybrid.rerun(variants=[{"name": "think", "share": 1}], on_truncated="quarantine")
    assert rerun["summary"]["rows"]["rejudged"] == len(cut) > 0
    assert {(row["prompt_id"], row["reason"]) for row in hybrid.rows("quarantine")} == {(i, "truncated") for i in cut}


async def test_two_variants_that_ask_the_same_are_refused(hybrid: Any) -> None:
    alike = [{"name": "a", "share": 0.5}, {"name": "b", "share": 0.5, "template_kwargs": {"enable_thinking": True}}]
    with pytest.raises(RecipeError, match="two variants ask the same") as refused:
        await hybrid.refresh(variants=alike, plan_only=True)
    assert refused.value.value == "a and b"


async def test_an_answer_of_the_wrong_way_is_caught(hybrid: Any) -> None:
    """A server that thinks where the prompt closed the block, and does not where it should."""

    def mixed_up(request: GenerateRequest) -> FakeAnswer:
        closed = CLOSE in request.prompt_ids
        return FakeAnswer([OPEN, 1000, CLOSE, 1001, END] if closed else [1000, 1001, END])

    async with serving(mixed_up) as fake:
        hybrid.url = fake.url
        with pytest.raises(Exception, match="reasoning_not_opened") as refused:
            await hybrid.refresh()
    assert "canary (think)" in str(refused.value)
    assert "canary (fast)" in str(refused.value)
