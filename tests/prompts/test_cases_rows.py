"""Rows whose values are the trouble: nulls, words that look like values, odd ids, other columns, content in parts."""

from __future__ import annotations

import json

import pytest

from draftmill.dataset.schema import table_rows
from tests.prompts.made import (
    QWEN25,
    assistant,
    chat,
    conversations,
    holds,
    ids,
    jsonl,
    last_texts,
    load,
    raw,
    render,
    roles,
    system,
    user,
)


def test_values_that_are_no_text_are_never_made_one(tmp_path):
    nan, inf = float("nan"), float("inf")
    path = jsonl(
        tmp_path / "odd.jsonl",
        {"prompt": "first", "score": nan},
        {"prompt": None},
        {"prompt": nan},
        {"prompt": "fourth", "score": inf, "other": -inf},
        chat(user(None)),
        {"messages": None},
        {"prompt": ""},
        {"prompt": " \n\t"},
        {"prompt": 42},
        {"prompt": ["in a list"]},
        {"prompt": False},
        {"prompt": "nan"},
        {"prompt": "null"},
    )
    loaded = load(path)
    assert last_texts(loaded) == ["first", "fourth", "nan", "null"]
    holds(
        loaded,
        good=[1, 4, 12, 13],
        bad={
            2: "prompt is empty (null)",
            3: "prompt is NaN",
            5: "user content is null",
            6: "messages is empty (null)",
            7: "prompt is empty",
            8: "prompt is only white space",
            9: "prompt is a number",
            10: "prompt is a list with text",
            11: "prompt is a boolean",
        },
    )


def test_other_columns_of_any_type_never_matter(tmp_path):
    rows = [
        '{"prompt": "one of two", "prompt": "the last key counts"}',
        '{"prompt": "b", "id": 98765432109876543210987}',
        '{"prompt": "c", "id": 9007199254740993}',
        '{"prompt": "d", "id": -9223372036854775809, "price": 1e400}',
        '{"prompt": "e", "created": "2023-02-30", "updated": "2024-05-01T10:00:00Z"}',
        '{"prompt": "f", "created": 1714557600, "updated": ["yesterday"]}',
        '{"prompt": "2024-01-01"}',
        '{"prompt": "007"}',
        '{"prompt": "1e5"}',
        '{"prompt": "true"}',
    ]
    loaded = load(raw(tmp_path / "types.jsonl", "\n".join(rows).encode()))
    assert last_texts(loaded) == ["the last key counts", "b", "c", "d", "e", "f", "2024-01-01", "007", "1e5", "true"]
    assert loaded.table["prompt_id"].to_pylist()[1:4] == [
        "98765432109876543210987",
        "9007199254740993",
        "-9223372036854775809",
    ]
    assert loaded.rejected.num_rows == 0


def test_ids_of_any_kind_and_twice_the_same(tmp_path):
    given = [1, "1", 1.0, None, "twice", "twice", "", 0, "a/b c?.jsonl", "x" * 300, {"n": 1}, True, "twice"]
    rows = [{"id": own, "prompt": f"prompt {4 if n == 12 else n}"} for n, own in enumerate(given)]
    loaded = load(jsonl(tmp_path / "ids.jsonl", *rows, {"prompt": "without"}))
    assert loaded.table["prompt_id"].to_pylist() == [
        "1",
        "1",
        "1.0",
        "ids.jsonl:4",
        "twice",
        "twice",
        "ids.jsonl:7",
        "0",
        "a/b c?.jsonl",
        "x" * 300,
        '{"n": 1}',
        "true",
        "twice",
        "ids.jsonl:14",
    ]
    rows = table_rows(render(loaded, tmp_path, QWEN25).rows)
    # The prompt's ids are what counts: the fifth and the thirteenth are one, though three share a name.
    assert len({row.row_key for row in rows}) == 13
    assert rows[4].row_key == rows[12].row_key != rows[5].row_key


def test_each_row_has_its_own_shape(tmp_path):
    path = jsonl(
        tmp_path / "mixed.jsonl",
        {"prompt": "a"},
        {"instruction": "b", "input": "more"},
        {"text": "c"},
        chat(user("d")),
        {"conversations": [{"from": "human", "value": "e"}]},
        {"question": "f", "answer": "x"},
        {"conversation": [user("g")]},
        {"query": "h", "response": "y"},
        {"prompt": [user("i")]},
        {"foo": "nothing"},
        {"input": "alone"},
        {"turns": ["l", "second"]},
    )
    loaded = load(path)
    assert last_texts(loaded) == ["a", "b\n\nmore", "c", "d", "e", "g", "i", "l"]
    no_column = "no prompt column; found: "
    bad = {6: "'question', 'answer'", 8: "'query', 'response'", 10: "'foo'", 11: "'input'"}
    holds(loaded, good=[1, 2, 3, 4, 5, 7, 9, 12], bad={line: no_column + names for line, names in bad.items()})
    assert loaded.files[0].shapes == {
        "prompt": 2,
        "instruction": 1,
        "text": 1,
        "messages": 1,
        "conversations": 1,
        "conversation": 1,
        "turns": 1,
    }
    asked = load(path, fields={"prompt": "question"})
    assert last_texts(asked)[0] == "b\n\nmore"
    assert "f" in last_texts(asked)


def test_content_in_parts(tmp_path):
    def text(value: object) -> dict[str, object]:
        return {"type": "text", "text": value}

    contents = [
        [text("one")],
        [text("left "), text("right")],
        [text("see"), {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}],
        [],
        ["bare"],
        [text(None)],
        None,
        [{"type": "text", "content": "wrong key"}],
        text("not in a list"),
        [text("a"), {"type": "input_audio", "input_audio": {"data": "AAAA"}}],
        [{"text": "no type"}],
        [text("")],
    ]
    rows = [chat(user(content)) for content in contents]
    rows[6] = chat(system([text("rules in parts")]), user("plain"))
    loaded = load(jsonl(tmp_path / "parts.jsonl", *rows))
    assert last_texts(loaded) == ["one", "left right", "bare", "plain", "no type"]
    assert conversations(loaded)[3][0] == system("rules in parts")
    holds(
        loaded,
        good=[1, 2, 5, 7, 11],
        bad={
            3: "a content part of type 'image_url'",
            4: "user content is empty",
            6: "the text of a content part is null",
            8: "the text of a content part is null",
            9: "content is an object",
            10: "a content part of type 'input_audio'",
            12: "user content is empty",
        },
    )
    # The template sees text only: the ids of a prompt in parts are those of the same prompt as text.
    as_text = load(jsonl(tmp_path / "text.jsonl", {"id": "parts.jsonl:2", **chat(user("left right"))}))
    found, wanted = (ids(render(each, tmp_path, QWEN25)) for each in (loaded, as_text))
    assert found["parts.jsonl:2"] == wanted["parts.jsonl:2"]


@pytest.mark.parametrize("name", ["messages", "conversations", "conversation", "prompt"])
def test_every_list_of_messages_takes_the_same_turns(tmp_path, name):
    turns = [{"from": "system", "value": "s"}, user("q"), {"from": "gpt", "value": "dropped"}]
    assert roles(load(jsonl(tmp_path / "a.jsonl", {name: turns}))) == [["system", "user"]]


def test_a_prompt_that_looks_like_json_is_text(tmp_path):
    text = json.dumps([user("quoted")])
    assert last_texts(load(jsonl(tmp_path / "a.jsonl", {"prompt": text}))) == [text]


def test_user_turns_without_answers_are_the_conversation_whose_answers_are_asked_anew(tmp_path):
    asked = ["first", "second", "third"]
    turns = [user(asked[0]), assistant("a"), user(asked[1]), assistant("b"), user(asked[2])]
    loaded = load(jsonl(tmp_path / "bench.jsonl", {"turns": asked}, chat(*turns)), turns="all")
    bench, recorded = table_rows(render(loaded, tmp_path, QWEN25, turns="all").rows)
    assert bench.turn == 2
    assert (bench.row_key, bench.prompt_key) == (recorded.row_key, recorded.prompt_key)
