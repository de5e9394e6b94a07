"""Tables as other tools write them: messages as structs or as JSON text, prompts as lists, a saved dataset."""

from __future__ import annotations

import datetime as dt
import json
import math
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from draftmill.errors import RecipeError
from tests.prompts.made import (
    CODER,
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
    render,
    roles,
    system,
    user,
)


def parquet(file: Path, rows: list[dict[str, Any]]) -> str:
    """Arrow decides the types: each struct gets all keys that any row has."""
    pq.write_table(pa.Table.from_pylist(rows), file)
    return str(file)


CALL = {"id": "call_1", "type": "function", "function": {"name": "forecast", "arguments": '{"town": "Graz"}'}}
STRUCTS = [
    chat(user("plain question"), when=dt.datetime(2024, 5, 1, tzinfo=dt.UTC), score=math.nan),
    chat(system("rules"), {**user("with rules"), "name": "ann"}),
    chat(
        user("w"),
        assistant("", tool_calls=[CALL], reasoning_content="look it up"),
        {"role": "tool", "tool_call_id": "call_1", "content": "19"},
    ),
    {"messages": None},
    chat(),
    chat(user("last one")),
]


@pytest.mark.parametrize("template", [QWEN25, QWEN3, CODER])
def test_nulls_that_arrow_fills_in_change_no_ids(tmp_path, template):
    written = [{**row, "id": f"row {number}"} for number, row in enumerate(STRUCTS)]
    table = load(parquet(tmp_path / "structs.parquet", written))
    holds(table, good=[1, 2, 3, 6], bad={4: "messages is empty (null)", 5: "messages is empty"})
    assert roles(table) == [["user"], ["system", "user"], ["user", "assistant", "tool"], ["user"]]
    plain = load(jsonl(tmp_path / "lines.jsonl", *({k: v for k, v in row.items() if k != "when"} for row in written)))
    assert ids(render(table, tmp_path, template)) == ids(render(plain, tmp_path, template))
    assert table.table["messages"].to_pylist() == plain.table["messages"].to_pylist()


def test_tools_of_several_kinds_in_one_column(tmp_path):
    """Every tool's schema gets the properties of every other, as nulls; every call the arguments of every other."""

    def tool(name: str, **properties: Any) -> dict[str, Any]:
        return {
            "type": "function",
            "function": {"name": name, "parameters": {"type": "object", "properties": properties}},
        }

    def calls(**arguments: Any) -> dict[str, Any]:
        return assistant("", tool_calls=[{"type": "function", "function": {"name": "f", "arguments": arguments}}])

    rows = [
        {"id": "a", **chat(user("a"), calls(town="Graz"), user("?"), tools=[tool("f", town={"type": "string"})])},
        {"id": "b", **chat(user("b"), calls(page=2), user("?"), tools=[tool("f", page={"type": "integer"})])},
    ]
    table, plain = load(parquet(tmp_path / "tools.parquet", rows)), load(jsonl(tmp_path / "tools.jsonl", *rows))
    assert table.table["messages"].to_pylist() == plain.table["messages"].to_pylist()
    assert ids(render(table, tmp_path, QWEN25)) == ids(render(plain, tmp_path, QWEN25))


def test_messages_as_json_text(tmp_path):
    path = parquet(
        tmp_path / "text.parquet",
        [
            {"messages": json.dumps([user("json 0")])},
            {"messages": json.dumps([system("rules"), user("json 1")])},
            {"messages": json.dumps([user("json 2")], indent=1)},
            {"messages": "[{'role': 'user', 'content': 'python'}]"},
            {"messages": "no json at all"},
            {"messages": ""},
            {"messages": None},
            {"messages": json.dumps(user("not in a list"))},
        ],
    )
    loaded = load(path)
    assert last_texts(loaded) == ["json 0", "json 1", "json 2"]
    holds(
        loaded,
        good=[1, 2, 3],
        bad={
            4: "messages is text that is not JSON",
            5: "messages is text that is not JSON",
            6: "messages is text that is not JSON",
            7: "messages is empty (null)",
            8: "messages is an object, expected a list",
        },
    )


def test_prompts_as_lists_of_messages(tmp_path):
    rows = [
        {"data_source": "math", "prompt": [user("How many clips?")], "reward_model": {"style": "rule"}},
        {"data_source": "math", "prompt": [system("Think."), user("How much an hour?")], "reward_model": None},
        {"data_source": "math", "prompt": [], "reward_model": None},
    ]
    loaded = load(parquet(tmp_path / "verl.parquet", rows))
    assert conversations(loaded) == [rows[0]["prompt"], rows[1]["prompt"]]
    holds(loaded, good=[1, 2], bad={3: "prompt is empty"})


@pytest.fixture
def saved(tmp_path: Path) -> str:
    """A dataset as `save_to_disk` leaves it."""
    splits = {
        name: datasets.Dataset.from_list([{"prompt": f"{name} {number}"} for number in range(size)])
        for name, size in (("train", 6), ("test", 2))
    }
    folder = tmp_path / "saved"
    datasets.DatasetDict(splits).save_to_disk(str(folder))
    return str(folder)


def test_a_saved_dataset_is_its_split_and_not_its_state_file(saved):
    loaded = load(saved)
    assert last_texts(loaded) == [f"train {number}" for number in range(6)]
    assert loaded.rejected.num_rows == 0
    assert last_texts(load(saved, split="test")) == ["test 0", "test 1"]


def test_a_split_that_is_not_there_is_told_with_those_that_are(saved):
    with pytest.raises(RecipeError) as caught:
        load(saved, split="validation")
    assert "train" in str(caught.value)
    assert "test" in str(caught.value)
