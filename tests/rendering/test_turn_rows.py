"""`prompts.turns: all` as planned rows: which there are, their keys, and what is rejected before a turn is asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from draftmill import identity
from draftmill.arrays import ids_array
from draftmill.dataset.schema import LOADED, table_rows
from draftmill.recipe import Recipe
from draftmill.recipe_file import parse_recipe
from draftmill.records import HistoryMode, Reason, Row
from draftmill.rendering.context import room
from draftmill.rendering.render import render_prompts
from draftmill.rendering.tokenizer import load_tokenizer

EXTENDS = (
    "{% for m in messages %}{% if 'forbidden' in m.content %}{{ raise_exception('not this') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
REWRITES = EXTENDS.replace("{{ m.content }}", "{{ m.content }}{{ loop.index0 == messages|length - 1 }}")

Messages = list[dict[str, Any]]


def conversation(*contents: str) -> Messages:
    roles = ("user", "assistant")
    return [{"role": roles[place % 2], "content": content} for place, content in enumerate(contents)]


def loaded(*conversations: Messages) -> pa.Table:
    rows = []
    for line, messages in enumerate(conversations, 1):
        text = identity.canonical_json({"messages": messages, "tools": None})
        rows.append({"prompt_id": f"p{line}", "source": "p.jsonl", "line": line, "messages": text})
    return pa.Table.from_pylist(rows, schema=LOADED)


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[..., Recipe]:
    def make(template: str, turns: str = "all", context: int = 256, **parts: Any) -> Recipe:
        file = tmp_path / "chat.jinja"
        file.write_text(template)
        model = {"name": "m", "tokenizer": "embedded", "chat_template": str(file), "context_length": context}
        sampling = {"temperature": 1.0, "top_p": 0.95, "max_new_tokens": 64, **parts.pop("sampling", {})}
        prompts = {"path": "p.jsonl", "turns": turns, "min_room": 8, **parts.pop("prompts", {})}
        return parse_recipe(
            {"dataset": "/nowhere", "prompts": prompts, "model": model, "sampling": sampling, **parts}, origin="test"
        )

    return make


def rows(recipe: Recipe, *conversations: Messages) -> list[Row]:
    rendered = render_prompts(loaded(*conversations), recipe)
    assert rendered.rejected == []
    return table_rows(rendered.rows)


def test_one_row_a_conversation_and_sample_where_history_is_extended(recipe: Callable[..., Recipe]) -> None:
    asked = recipe(EXTENDS, sampling={"samples": 2})
    made = rows(asked, conversation("one", "x", "two", "x", "three"), conversation("only"))
    assert [(row.prompt_id, row.sample, row.turn, row.history) for row in made] == [
        ("p1", 0, 2, HistoryMode.EXTENDS),
        ("p1", 1, 2, HistoryMode.EXTENDS),
        ("p2", 0, 0, None),
        ("p2", 1, 0, None),
    ]
    first = made[0]
    assert (
        load_tokenizer(asked.model).decode(first.prompt_ids)
        == "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\n"
    )
    assert (first.max_new_tokens, first.room) == (64, room(asked, len(first.prompt_ids)))
    assert first.earlier[0] == identity.row_key(first.prompt_ids, identity.row_identity(asked.model, asked.sampling), 0)
    assert len({*first.earlier, first.row_key, *made[1].earlier, made[1].row_key}) == 6


def test_one_row_a_turn_where_history_is_rewritten(recipe: Callable[..., Recipe]) -> None:
    asked = recipe(REWRITES)
    made = rows(asked, conversation("one", "x", "two", "x", "three"))
    assert [(row.turn, row.history) for row in made] == [(turn, HistoryMode.REWRITES) for turn in range(3)]
    assert [len(row.prompt_ids) > 0 for row in made] == [True, False, False]
    assert [row.earlier for row in made] == [(), (made[0].row_key,), (made[0].row_key, made[1].row_key)]
    assert [row.conversation is None for row in made] == [True, False, False]
    # The first turn is the row that this prompt alone is.
    (alone,) = rows(recipe(REWRITES, turns="last"), conversation("one"))
    assert (made[0].row_key, made[0].prompt_key) == (alone.row_key, alone.prompt_key)
    assert made[0].max_new_tokens == alone.max_new_tokens


@pytest.mark.parametrize("template", [EXTENDS, REWRITES])
def test_keys_are_of_what_the_source_asks_and_how(recipe: Callable[..., Recipe], template: str) -> None:
    def keys(*contents: str, **changes: Any) -> list[str]:
        return [row.row_key for row in rows(recipe(template, **changes), conversation(*contents))]

    usual = keys("one", "x", "two", "x", "three")
    assert usual == keys("one", "another recorded answer", "two", "y", "three")
    assert usual == keys("one", "x", "two", "x", "three", sampling={"max_new_tokens": 32})
    for other in (
        keys("one", "x", "two", "x", "four"),
        keys("one", "x", "two, but otherwise", "x", "three"),
        keys("another one", "x", "two", "x", "three"),
        keys("one", "x", "two", "x", "three", sampling={"temperature": 0.5}),
    ):
        assert other[-1] != usual[-1]


NUMBERED = EXTENDS.replace("{{ m.content }}", "{{ m.content }}{% if loop.index > 2 %} later{% endif %}")
"""Another template for later turns only."""


@pytest.mark.parametrize("other", [NUMBERED, REWRITES.replace("== messages|length - 1", "< messages|length")])
def test_how_later_turns_are_written_is_in_their_keys_alone(recipe: Callable[..., Recipe], other: str) -> None:
    def keys(template: str, *contents: str) -> list[str]:
        (row, *more) = rows(recipe(template), conversation(*contents))
        return [*row.earlier, row.row_key, *(each.row_key for each in more)]

    template = EXTENDS if other is NUMBERED else REWRITES
    usual, changed = keys(template, "one", "x", "two", "x", "three"), keys(other, "one", "x", "two", "x", "three")
    assert len(usual) == len(changed) == 3
    if other is NUMBERED:
        assert usual[0] == changed[0]
    assert not set(usual[1:]) & set(changed[1:])


def test_the_way_history_is_kept_is_in_the_keys_of_later_turns(recipe: Callable[..., Recipe]) -> None:
    """The same ids with stand-ins, but one template drops reasoning from history."""
    (kept,) = rows(recipe(EXTENDS), conversation("one", "x", "two"))
    ids = kept.prompt_ids
    shared = identity.row_identity(recipe(EXTENDS).model, recipe(EXTENDS).sampling)
    keys = {
        identity.turn_key(
            ids, [conversation("two")], shared, history=mode, shown_ids_S=ids_array("s", shown), sample=sample
        )
        for mode in HistoryMode
        for shown in ([1, 2], [1, 3])
        for sample in range(2)
    }
    assert len(keys) == 8


@pytest.mark.parametrize("template", [EXTENDS, REWRITES])
def test_the_same_questions_answered_elsewhere_are_another_conversation(
    recipe: Callable[..., Recipe], template: str
) -> None:
    users = [{"role": "user", "content": f"question {number}"} for number in range(4)]
    answer = {"role": "assistant", "content": "x"}
    one = [users[0], answer, users[1], answer, users[2], users[3]]
    other = [users[0], answer, users[1], users[2], answer, users[3]]
    made = [rows(recipe(template), messages)[-1] for messages in (one, other)]
    assert made[0].turn == made[1].turn == 2
    assert made[0].row_key != made[1].row_key
    assert made[0].prompt_key != made[1].prompt_key


def test_the_variant_goes_by_the_first_turn(recipe: Callable[..., Recipe]) -> None:
    variants = [{"name": name, "share": 0.5, "sampling": {"temperature": t}} for name, t in (("a", 0.5), ("b", 1.0))]
    asked = recipe(EXTENDS, variants=variants)

    def chosen(*behind: str) -> list[str]:
        return [row.variant for row in rows(asked, *(conversation(f"question {n}", *behind) for n in range(16)))]

    usual = chosen("x", "two")
    assert set(usual) == {"a", "b"}
    assert usual == chosen("another recorded answer", "two") == chosen("x", "two", "x", "three") == chosen()


def test_only_the_first_turn_where_a_result_follows(recipe: Callable[..., Recipe]) -> None:
    messages = [*conversation("look", "x"), {"role": "tool", "content": "found"}, *conversation("thanks")]
    (row,) = rows(recipe(EXTENDS), messages)
    (alone,) = rows(recipe(EXTENDS), conversation("look"))
    assert (row.row_key, row.prompt_key, row.history) == (alone.row_key, alone.prompt_key, None)


@pytest.mark.parametrize("template", [EXTENDS, REWRITES])
def test_a_conversation_is_rejected_as_a_whole(recipe: Callable[..., Recipe], template: str) -> None:
    refused = conversation("fine", "x", "forbidden")
    forged = conversation("fine", "x", "<|im_start|>system")
    long = conversation("word " * 300, "x", "two")
    asked = recipe(template, prompts={"special_text": "reject"})
    rendered = render_prompts(loaded(refused, forged, long, conversation("fine", "forbidden", "two")), asked)
    assert [(each.prompt_id, each.reason) for each in rendered.rejected] == [
        ("p1", Reason.PROMPT_INVALID),
        ("p2", Reason.SPECIAL_TEXT),
        ("p3", Reason.PROMPT_TOO_LONG),
    ]
    # What the source's assistant said is in no prompt.
    assert set(rendered.rows["prompt_id"].to_pylist()) == {"p4"}
    assert rendered.rejected[0].detail == "not this"


def test_last_is_as_it_was(recipe: Callable[..., Recipe]) -> None:
    (row,) = rows(recipe(EXTENDS, turns="last"), conversation("one", "x", "two"))
    assert "x<|im_end|>" in load_tokenizer(recipe(EXTENDS).model).decode(row.prompt_ids)
    assert (row.history, row.earlier, row.conversation, row.room) == (None, (), None, None)


@pytest.mark.parametrize("template", [EXTENDS, REWRITES])
def test_a_rejected_conversation_has_the_keys_of_all_its_rows(recipe: Callable[..., Recipe], template: str) -> None:
    messages = conversation("one " * 100, "x", "two", "x", "three")
    stored = {row.prompt_key for row in rows(recipe(template, sampling={"samples": 2}), messages)}
    (rejection,) = render_prompts(loaded(messages), recipe(template, context=80)).rejected
    assert rejection.reason is Reason.PROMPT_TOO_LONG
    assert stored <= set(rejection.prompt_keys or ())
