"""Rows of every shape found in public files, and the words for those that are no prompt."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.prompts.shapes import PromptParts, to_prompt
from draftmill.prompts.source_row import RowFault
from draftmill.rendering.conversation import Conversation


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def parts(row: dict[str, Any], **fields: str) -> PromptParts:
    found = to_prompt(row, fields=fields)
    assert isinstance(found, PromptParts), found
    return found


def fault(row: dict[str, Any], **fields: str) -> str:
    found = to_prompt(row, fields=fields)
    assert isinstance(found, RowFault), found
    return found.detail


@pytest.mark.parametrize(
    ("row", "shape", "text"),
    [
        ({"messages": [user("m")]}, "messages", "m"),
        ({"messages": json.dumps([user("m")])}, "messages", "m"),
        ({"conversations": [{"from": "human", "value": "c"}]}, "conversations", "c"),
        ({"conversations": [user("c")]}, "conversations", "c"),
        ({"conversation": [user("lmsys")]}, "conversation", "lmsys"),
        ({"prompt": "p"}, "prompt", "p"),
        ({"prompt": [user("list")]}, "prompt", "list"),
        ({"instruction": "i", "input": ""}, "instruction", "i"),
        ({"instruction": "i", "input": None}, "instruction", "i"),
        ({"instruction": "i", "input": "more"}, "instruction", "i\n\nmore"),
        ({"instruction": "i", "text": "### Instruction: i ### Response: r"}, "instruction", "i"),
        ({"text": "t"}, "text", "t"),
        ({"turns": ["first", "second"]}, "turns", "first"),
        ({"messages": None, "prompt": "filled with nulls"}, "prompt", "filled with nulls"),
    ],
)
def test_the_shape_is_decided_by_the_row(row, shape, text):
    found = parts(row)
    assert (found.shape, found.messages) == (shape, [user(text)])


def test_fields_map_odd_names_and_go_first():
    row = {"dialogue": [user("d")], "prompt": "p", "sys": "s"}
    assert parts(row, messages="dialogue").messages == [user("d")]
    assert parts({"messages": [user("m")], "question": "q"}, prompt="question").messages == [user("q")]
    assert parts(row, system="sys").messages == [{"role": "system", "content": "s"}, user("p")]


@pytest.mark.parametrize("text", ["nan", "null", "NA", "None", "true", "2024-01-01", "007", "1e5", " spaced ", "a\0b"])
def test_text_stays_as_typed(text):
    assert parts({"prompt": text}).messages == [user(text)]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({}, "no prompt column; found: none"),
        ({"question": "q"}, "no prompt column; found: 'question'; known: messages"),
        ({"input": "only input"}, "no prompt column"),
        ({"prompt": None}, "prompt is empty (null)"),
        ({"prompt": float("nan")}, "prompt is NaN"),
        ({"prompt": 42}, "prompt is a number"),
        ({"prompt": True}, "prompt is a boolean"),
        ({"prompt": {}}, "prompt is an object"),
        ({"prompt": ["text"]}, "prompt is a list with text"),
        ({"prompt": []}, "prompt is empty"),
        ({"prompt": ""}, "prompt is empty"),
        ({"prompt": "  \n "}, "prompt is only white space"),
        ({"messages": None}, "messages is empty (null)"),
        ({"messages": []}, "messages is empty"),
        ({"messages": {}}, "messages is an object, expected a list"),
        ({"messages": "a plain string"}, "messages is text that is not JSON"),
        ({"messages": "{}"}, "messages is an object"),
        ({"messages": ["text"]}, "a message is text"),
        ({"messages": [{"content": "c"}]}, "a message without role"),
        ({"messages": [{"role": "user"}]}, "a user message without content"),
        ({"messages": [{"role": "user", "content": None}]}, "user content is null"),
        ({"messages": [{"role": "user", "text": "odd"}]}, "without content; its keys: 'role', 'text'"),
        ({"messages": [user("")]}, "user content is empty"),
        ({"messages": [user("q"), {"role": "assistant", "content": "a"}, user("")]}, "user content is empty"),
        ({"messages": [{"role": "banana", "content": "c"}]}, "unknown role 'banana'; known: system"),
        ({"messages": [{"role": 3, "content": "c"}]}, "unknown role 3"),
        ({"messages": [{"role": "system", "content": "s"}]}, "no user message"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, "no user message"),
        ({"messages": [{"role": "user", "content": "c", "name": 7}]}, "name is a number, expected text"),
        ({"conversations": [{"from": "human", "text": "t"}]}, "a user message without value"),
        ({"conversations": [{"from": "tool", "value": "t"}, {"from": "human", "value": "h"}]}, "begins with a tool"),
        ({"instruction": 1}, "instruction is a number"),
        ({"instruction": "i", "input": 1}, "input is a number"),
        ({"turns": []}, "turns is empty"),
        ({"turns": "t"}, "turns is text, expected a list of texts"),
        ({"turns": [1]}, "turn 1 is a number"),
        ({"turns": ["first", ""]}, "turn 2 is empty"),
        ({"prompt": "p", "system": 5}, "system is a number"),
        ({"prompt": "half \ud800 character"}, "a lone surrogate"),
    ],
)
def test_what_is_no_prompt_is_said_in_words(row, words):
    assert words in fault(row)


@pytest.mark.parametrize(
    ("name", "role"),
    [("User", "user"), ("human", "user"), ("HUMAN", "user"), ("developer", "developer"), ("user", "user")],
)
def test_roles_are_folded_and_aliases_mapped(name, role):
    found = parts({"messages": [{"role": name, "content": "c"}, user("q")]})
    assert found.messages[0]["role"] == role


@pytest.mark.parametrize("name", ["gpt", "assistant", "ASSISTANT", "chatgpt", "bing", "bard", "model"])
def test_every_name_of_the_assistant_is_kept_inside_and_dropped_at_the_end(name):
    row = {"conversations": [{"from": "human", "value": "1"}, {"from": name, "value": "a"}] * 2}
    assert [m["role"] for m in parts(row).messages] == ["user", "assistant", "user"]


@pytest.mark.parametrize("answer", ["done", "", None, [{"type": "image_url"}]])
def test_the_answer_that_ends_a_conversation_is_dropped_whatever_it_is(answer):
    row = {"messages": [user("q"), {"role": "assistant", "content": "a"}, {"role": "assistant", "content": answer}]}
    assert parts(row).messages == [user("q")]


def test_order_is_the_templates_business():
    row = {"messages": [user("a"), user("b"), {"role": "system", "content": "middle"}, user("c")]}
    assert [m["role"] for m in parts(row).messages] == ["user", "user", "system", "user"]


def test_text_parts_are_joined_with_nothing_between():
    content = [{"type": "text", "text": "first "}, {"type": "text", "text": "second"}]
    assert parts({"messages": [{"role": "user", "content": content}]}).messages == [user("first second")]


@pytest.mark.parametrize("name", ["messages", "conversations", "prompt"])
def test_messages_as_an_object_of_lists(name):
    """As `datasets` keeps a Sequence of objects."""
    found = parts({name: {"role": ["system", "user"], "content": ["s", "q"], "name": None}})
    assert found.messages == [{"role": "system", "content": "s"}, user("q")]
    assert f"{name} is an object" in fault({name: {"role": ["user"], "content": []}})


@pytest.mark.parametrize(
    "part",
    ["t", {"text": "t"}, {"text": "t", "type": None, "image_url": None}, {"type": "input_text", "text": "t"}],
)
def test_a_part_that_can_only_be_text_is_text(part):
    assert parts({"messages": [{"role": "user", "content": [part]}]}).messages == [user("t")]


@pytest.mark.parametrize(
    "turn",
    [
        {"role": "user", "value": "q"},
        {"from": "human", "content": "q"},
        {"role": "user", "content": None, "from": None, "value": "q"},
        {"role": None, "content": None, "from": "human", "value": "q"},
    ],
)
def test_the_two_ways_of_writing_a_turn_may_be_mixed(turn):
    assert parts({"conversations": [turn]}).messages == [user("q")]


def test_user_turns_without_answers_are_asked_one_after_the_other():
    """`turns: all` asks at every assistant turn; with `last` nothing could stand between the first and the second."""
    row = {"turns": ["one", "two"]}
    assert parts(row).messages == [user("one")]
    found = to_prompt(row, fields={}, turns="all")
    assert isinstance(found, PromptParts)
    assert found.messages == [user("one"), {"role": "assistant", "content": ""}, user("two")]
    assert len(Conversation.of(found.messages, None)) == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([], "user content is empty"),
        ([{"type": "text", "text": ""}], "user content is empty"),
        ([{"type": "text", "text": "t"}, {"type": "image_url"}], "of type 'image_url'; only text"),
        ([{"type": "input_audio"}], "of type 'input_audio'"),
        ([{"type": "text", "text": None}], "the text of a content part is null"),
        ([{"type": "text", "content": "wrong key"}], "the text of a content part is null"),
        ([{"text": "no type, but more than a text", "url": "u"}], "of type None"),
        ([5], "a content part is a number"),
        ([None], "a content part is null"),
        ({"type": "text", "text": "t"}, "content is an object"),
        (5, "content is a number"),
    ],
)
def test_media_and_unknown_parts_are_rejected(content, words):
    assert words in fault({"messages": [{"role": "user", "content": content}]})


def test_nulls_and_metadata_do_not_change_a_prompt():
    filled = {"role": "user", "content": "q", "name": None, "tool_calls": None, "weight": float("nan")}
    assert parts({"messages": [filled]}).canonical == parts({"prompt": "q"}).canonical


def call(arguments: Any) -> dict[str, Any]:
    made = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    assistant = {"role": "assistant", "content": None, "tool_calls": [made]}
    return {"messages": [user("w"), assistant, {"role": "tool", "tool_call_id": "1", "content": "21"}]}


def test_arguments_as_text_and_as_object_are_the_same_prompt():
    as_text, as_object = parts(call('{"city": "Paris"}')), parts(call({"city": "Paris"}))
    assert as_text.canonical == as_object.canonical
    assert as_text.messages[1]["content"] == ""
    assert as_text.messages[1]["tool_calls"][0]["function"]["arguments"] == {"city": "Paris"}


def test_empty_arguments_are_an_empty_object():
    assert parts(call("")).canonical == parts(call({})).canonical == parts(call(None)).canonical


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"city": "Par', "arguments of a tool call are not JSON"),
        ('"Paris"', "arguments of a tool call are text"),
        ([1], "arguments of a tool call are a list"),
    ],
)
def test_arguments_that_are_no_object_are_rejected(arguments, words):
    assert words in fault(call(arguments))


def test_a_null_inside_arguments_is_the_authors():
    assert parts(call({"unit": None})).messages[1]["tool_calls"][0]["function"]["arguments"] == {"unit": None}


def test_the_old_function_call_is_rejected_by_name():
    old = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    assert "function_call" in fault({"messages": [user("w"), old, user("and?")]})
    assert "unknown role 'function'" in fault({"messages": [user("w"), {"role": "function", "content": "1"}]})


TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"default": None}}}


@pytest.mark.parametrize("none", [None, [], "", " ", "[]", "null"])
def test_no_tools_has_many_spellings(none):
    assert parts({"prompt": "p", "tools": none}).canonical == parts({"prompt": "p"}).canonical


def test_tools_as_json_text_are_parsed():
    as_text, as_list = parts({"prompt": "p", "tools": json.dumps([TOOL])}), parts({"prompt": "p", "tools": [TOOL]})
    assert as_text.tools == as_list.tools == [TOOL]


def test_nulls_that_arrow_filled_into_tools_go_and_the_schemas_own_stay():
    function = {"name": "f", "strict": None, "parameters": {"properties": {"a": {"default": None}}}}
    filled = {"type": "function", "id": None, "function": {**function}}
    filled["function"]["parameters"] = {"properties": {"a": {"default": None, "enum": None}, "of_another": None}}
    wanted = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"default": None}}}}}]
    assert parts({"prompt": "p", "tools": [filled]}).tools == wanted


def test_tool_calls_as_json_text_are_parsed():
    row = call({"city": "Paris"})
    as_text = json.loads(json.dumps(row))
    as_text["messages"][1]["tool_calls"] = json.dumps(row["messages"][1]["tool_calls"])
    assert parts(as_text).canonical == parts(row).canonical
    as_text["messages"][1]["tool_calls"] = "[half"
    assert "tool_calls is text that is not JSON" in fault(as_text)


def test_a_row_nested_beyond_reason_is_a_fault():
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    assert "nested too deeply" in fault({"prompt": "p", "tools": [deep]})


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ("not json", "tools is text that is not JSON"),
        ({}, "tools is an object"),
        (["x"], "a tool is text"),
        ([None], "null"),
    ],
)
def test_tools_that_are_none_are_rejected(tools, words):
    assert words in fault({"prompt": "p", "tools": tools})


def test_a_second_system_prompt_is_rejected_and_the_same_one_is_not():
    row = {"messages": [{"role": "system", "content": "s"}, user("q")]}
    assert parts({**row, "system": "s"}).messages == row["messages"]
    assert "two system prompts" in fault({**row, "system": "other"})


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["user", "gpt", "{}", "[]"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "from", "value", "type", "text", "tool_calls"]), inner)
    ),
    max_leaves=10,
)
COLUMNS = ["messages", "conversations", "prompt", "instruction", "input", "system", "tools", "text", "turns", "x"]


@given(st.dictionaries(st.sampled_from(COLUMNS), ANYTHING))
def test_any_row_is_a_prompt_or_a_fault_in_words(row):
    found = to_prompt(row, fields={})
    if isinstance(found, RowFault):
        assert found.detail
    else:
        assert json.loads(found.canonical) == {"messages": found.messages, "tools": found.tools}
        assert any(message["role"] == "user" for message in found.messages)
        assert found.messages[-1]["role"] != "assistant"


@given(st.dictionaries(st.sampled_from(COLUMNS), ANYTHING), st.text())
def test_a_neighbour_column_never_matters(row, other):
    assert to_prompt({**row, "metadata": other}, fields={}) == to_prompt(
        {**row, "metadata": None}, fields={}
    ) or not any(row.get(name) is not None for name in COLUMNS)


def test_keys_keep_the_order_they_have_in_the_file() -> None:
    """Templates print tools and arguments as JSON: other orders are other ids than the author's own rendering."""
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
    call = {"type": "function", "function": {"name": "f", "arguments": {"z": 1, "a": 2}}}
    asked = {"role": "user", "content": "q"}
    row = {"messages": [asked, {"role": "assistant", "content": None, "tool_calls": [call]}, asked], "tools": [tool]}
    found = json.loads(parts(row).canonical)
    assert json.dumps(found["tools"]) == json.dumps([tool])
    assert json.dumps(found["messages"][1]["tool_calls"]) == json.dumps([call])
    assert list(found["messages"][0]) == ["role", "content"]
