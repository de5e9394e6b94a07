"""Conversations whose order and roles are the trouble: what is no prompt for anybody, and what a template refuses."""

from __future__ import annotations

from typing import Any

import pytest

from draftmill.records import Reason
from tests.prompts.made import (
    GEMMA,
    MISTRAL,
    QWEN3,
    QWEN25,
    assistant,
    chat,
    conversations,
    holds,
    ids,
    jsonl,
    last_texts,
    load,
    refused,
    render,
    roles,
    system,
    user,
)

ROWS: list[dict[str, Any]] = [
    chat(),
    {"id": 7},
    chat(system("only rules")),
    chat(user("one"), system("in the middle"), user("two")),
    chat(user("one"), user("two in a row")),
    chat(assistant("hello"), user("late")),
    chat(user("q"), assistant("answered")),
    chat(user("q2"), assistant("")),
    chat(user("q3"), assistant(None)),
    chat({"role": "developer", "content": "dev"}, user("with developer")),
    chat({"role": "User", "content": "capital"}),
    chat({"role": "human", "content": "alias"}),
    chat({"content": "nobody"}),
    chat({"role": "user"}),
    chat(system("s1"), system("s2"), user("two rules")),
    chat(user("q"), assistant("a"), user("")),
    chat(user("q"), assistant("a1"), assistant("a2"), user("behind both")),
    chat({**user("named"), "name": "bob", "weight": 0}),
    chat(user("q4"), assistant("The answer is")),
    chat({"role": "banana", "content": "who?"}),
    chat(system(""), user("empty rules")),
    chat(assistant("alone")),
]
GOOD = [4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 17, 18, 19, 21]


def test_what_is_no_prompt_for_any_template(tmp_path):
    loaded = load(jsonl(tmp_path / "roles.jsonl", *ROWS))
    holds(
        loaded,
        good=GOOD,
        bad={
            1: "messages is empty",
            2: "no prompt column; found: 'id'",
            3: "no user message",
            13: "a message without role",
            14: "a user message without content",
            16: "user content is empty",
            20: "unknown role 'banana'",
            22: "no user message",
        },
    )
    found = dict(zip(GOOD, roles(loaded), strict=True))
    assert found[4] == ["user", "system", "user"]
    assert found[6] == ["assistant", "user"]
    # An answer at the end is what the model gives anew, a half one too.
    assert [found[line] for line in (7, 8, 9, 19)] == [["user"]] * 4
    assert found[10] == ["developer", "user"]
    assert found[11] == found[12] == ["user"]
    assert found[21] == ["system", "user"]
    assert conversations(loaded)[GOOD.index(18)] == [{**user("named"), "name": "bob"}]


@pytest.mark.parametrize("template", [QWEN25, QWEN3])
def test_a_template_that_takes_any_order_takes_them_all(tmp_path, template):
    rendered = render(load(jsonl(tmp_path / "roles.jsonl", *ROWS)), tmp_path, template)
    assert rendered.rejected == []
    assert rendered.rows.num_rows == len(GOOD)


@pytest.mark.parametrize("template", [MISTRAL, GEMMA])
def test_a_strict_template_says_why_row_by_row(tmp_path, template):
    loaded = load(jsonl(tmp_path / "roles.jsonl", *ROWS))
    rendered = render(loaded, tmp_path, template)
    words = refused(rendered)
    assert {5, 6, 15, 17} <= words.keys()
    assert {7, 8, 9, 11, 12, 18, 19}.isdisjoint(words)
    assert rendered.rows.num_rows == len(GOOD) - len(words)
    for line in (5, 6, 17):
        assert words[line].startswith(f"{Reason.PROMPT_INVALID}: ")
        assert "roles must alternate" in words[line]


SHAREGPT: list[dict[str, Any]] = [
    {"conversations": [{"from": speaker, "value": text} for speaker, text in turns]}
    for turns in (
        [("human", "h0"), ("gpt", "g")],
        [("user", "u1"), ("assistant", "a")],
        [("USER", "u2"), ("ASSISTANT", "a")],
        [("system", "s"), ("human", "h3")],
        [("gpt", "welcome"), ("human", "h4")],
        [("human", "h5"), ("chatgpt", "a")],
        [("human", "h6"), ("bing", "a"), ("human", "h6b")],
        [("human", None)],
        [("human", "")],
        [("human", "h9"), ("gpt", None)],
        [],
        [],
        [("human", "h12"), ("human", "h12b"), ("gpt", "a")],
        [],
        [],
        [("human", "h15"), ("gpt", "a"), ("human", "h15b")],
        [("tool", "t"), ("human", "h16")],
        [],
    )
]
SHAREGPT[11] = {"conversations": None}
SHAREGPT[13] = {"conversations": [{"from": "human", "text": "another key"}]}
SHAREGPT[14] = {"conversations": [{"role": "user", "value": "mixed"}]}
SHAREGPT[15]["conversations"][1]["weight"] = 1.0
SHAREGPT[17] = {"conversations": "a sentence"}


def test_conversations_as_they_were_scraped(tmp_path):
    loaded = load(jsonl(tmp_path / "scraped.jsonl", *SHAREGPT))
    assert last_texts(loaded) == ["h0", "u1", "u2", "h3", "h4", "h5", "h6b", "h9", "h12b", "mixed", "h15b"]
    holds(
        loaded,
        good=[1, 2, 3, 4, 5, 6, 7, 10, 13, 15, 16],
        bad={
            8: "user content is null",
            9: "user content is empty",
            11: "conversations is empty",
            12: "conversations is empty (null)",
            14: "a user message without value; its keys: 'from', 'text'",
            17: "the conversation begins with a tool message",
            18: "conversations is text that is not JSON",
        },
    )
    found = dict(zip(loaded.table["line"].to_pylist(), roles(loaded), strict=True))
    assert found[5] == ["assistant", "user"]
    assert found[7] == found[16] == ["user", "assistant", "user"]
    assert found[13] == ["user", "user"]


def test_scraped_and_plain_conversations_are_the_same_prompt(tmp_path):
    scraped = {"id": "a", "conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}
    plain = {"id": "b", **chat(user("q"), assistant("a"))}
    found = ids(render(load(jsonl(tmp_path / "both.jsonl", scraped, plain)), tmp_path, QWEN25))
    assert found["a"] == found["b"]
