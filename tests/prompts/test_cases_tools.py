"""Tools and tool calls: arguments as text or as object, tools as text, none, or half."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from draftmill.records import Reason
from tests.prompts.made import (
    CODER,
    DEEPSEEK_R1,
    DEEPSEEK_V3,
    QWEN3,
    QWEN25,
    assistant,
    chat,
    holds,
    ids,
    jsonl,
    lines,
    load,
    raw,
    refused,
    render,
    user,
)

SCHEMA = {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}
TOOL = {"type": "function", "function": {"name": "forecast", "description": "By town", "parameters": SCHEMA}}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": '{"degrees": 19}'}


def called(arguments: Any, *, question: str = "w", content: str | None = None, tools: Any = (TOOL,)) -> dict[str, Any]:
    function = {"name": "forecast", "arguments": arguments}
    turn = assistant(content, tool_calls=[{"id": "call_1", "type": "function", "function": function}])
    return chat(user(question), turn, RESULT, tools=list(tools) if isinstance(tools, tuple) else tools)


OLD = assistant(None, function_call={"name": "forecast", "arguments": "{}"})
ROWS = [
    called('{"town": "Graz"}'),
    called({"town": "Graz"}),
    called('{"town": "Gr', question="half"),
    called('"Graz"', question="text"),
    called("", question="empty"),
    called('{"town": "Graz"}', content="", tools=json.dumps([TOOL])),
    chat(user("asked"), tools=[TOOL]),
    chat(user("no tools"), tools=[]),
    chat(user("no tools"), tools=None),
    chat(user("bad tools"), tools="not json"),
    chat(user("old"), OLD, {"role": "function", "name": "forecast", "content": "19"}),
    called('{"town": "Sölden <3", "n": 1.0, "a": [1, 2]}', question="odd"),
    chat(user("orphan"), {"role": "tool", "content": "a result nobody asked for"}),
    chat(user("no tools")),
]


def prompt(folder: Path, template: str, *rows: dict[str, Any]) -> dict[int, list[int]]:
    """Prompt ids by line."""
    loaded = load(jsonl(folder / "calls.jsonl", *rows))
    rendered = render(loaded, folder, template)
    assert rendered.rejected == []
    return {int(name.rpartition(":")[2]): found for name, found in ids(rendered).items()}


def test_which_rows_are_prompts(tmp_path):
    holds(
        load(jsonl(tmp_path / "calls.jsonl", *ROWS)),
        good=[1, 2, 5, 6, 7, 8, 9, 12, 13, 14],
        bad={
            3: "the arguments of a tool call are not JSON",
            4: "the arguments of a tool call are text, expected an object",
            10: "tools is text that is not JSON",
            11: "unknown role 'function'",
        },
    )


@pytest.mark.parametrize("template", [QWEN25, QWEN3, CODER])
def test_arguments_as_text_and_as_object_are_the_same_ids(tmp_path, template):
    found = prompt(tmp_path, template, ROWS[0], ROWS[1], ROWS[5], called(None), called(""))
    assert found[1] == found[2] == found[3]
    assert found[4] == found[5] != found[1]


@pytest.mark.parametrize("template", [QWEN25, QWEN3, CODER])
def test_null_content_beside_a_call_prints_nothing(tmp_path, template):
    found = prompt(tmp_path, template, called({"town": "Graz"}, content=None), called({"town": "Graz"}, content=""))
    assert found[1] == found[2]
    shown = load(jsonl(tmp_path / "none.jsonl", called({"town": "Graz"}, content="None")))
    assert ids(render(shown, tmp_path, template))["none.jsonl:1"] != found[1]


@pytest.mark.parametrize("template", [QWEN25, QWEN3, CODER])
def test_tools_reach_the_template_and_none_of_them_is_none(tmp_path, template):
    asked, *none = (chat(user("q"), **tools) for tools in ({"tools": [TOOL]}, {"tools": []}, {"tools": None}, {}))
    found = prompt(tmp_path, template, asked, *none)
    assert found[2] == found[3] == found[4]
    assert len(found[1]) > len(found[2]) + 20


def test_a_template_that_wants_text_gets_text(tmp_path):
    """DeepSeek-V3's joins the arguments to other text: an object would be refused, for every such row."""
    found = prompt(tmp_path, DEEPSEEK_V3, ROWS[0], ROWS[1], called({"town": "Linz"}))
    assert found[1] == found[2] != found[3]


def test_a_template_that_leaves_calls_out_is_not_asked_behind_one(tmp_path):
    loaded = load(jsonl(tmp_path / "calls.jsonl", ROWS[0], ROWS[6]))
    rendered = render(loaded, tmp_path, DEEPSEEK_R1)
    words = "the template does not print the tool calls of earlier turns"
    assert refused(rendered) == {1: f"{Reason.PROMPT_INVALID}: {words}"}
    assert rendered.rows["prompt_id"].to_pylist() == ["calls.jsonl:2"]


def test_bad_rows_do_not_stop_the_ones_beside_them(tmp_path):
    path = raw(tmp_path / "calls.jsonl", "\n".join(map(json.dumps, [ROWS[2], ROWS[0], ROWS[3]])).encode())
    assert lines(load(path)) == [2]
