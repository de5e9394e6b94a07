"""Where assistant turns are asked anew, and behind which messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill import identity
from draftmill.rendering.conversation import Conversation, cuts

ROLES = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}


def messages(roles: str) -> list[dict[str, Any]]:
    """`messages("sua")`: a system, a user and an assistant message, each with its place as content."""
    return [{"role": ROLES[role], "content": str(place)} for place, role in enumerate(roles)]


def contents(asked: list[dict[str, Any]]) -> str:
    return "".join(message["content"] for message in asked)


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ("u", (1,)),
        ("ua", (1,)),
        ("uau", (1, 3)),
        ("uaua", (1, 3)),
        ("suauau", (2, 4, 6)),
        ("uaau", (1, 4)),  # one turn in two messages
        ("uuau", (2, 4)),
        ("auau", (2, 4)),  # a greeting before anything was asked stays
        ("uatau", (1,)),  # the tool's result belongs to the recorded call
        ("uauatau", (1, 3)),
        ("atuau", (3, 5)),  # what stands before the first turn stays, results too
        ("uaus", (1, 4)),
        ("s", ()),
    ],
)
def test_every_recorded_answer_is_a_turn_and_one_more_where_none_ends_it(roles: str, expected: tuple[int, ...]) -> None:
    assert cuts(messages(roles)) == expected


def test_a_turn_is_asked_behind_the_generated_ones() -> None:
    conversation = Conversation.of(messages("suaauau"), None)
    said = [{"role": "assistant", "content": name} for name in "XY"]
    assert contents(conversation.asked(0, [])) == "01"
    assert contents(conversation.asked(1, said)) == "01X4"
    assert contents(conversation.asked(2, said)) == "01X4Y6"
    assert [contents(behind) for behind in conversation.later(2)] == ["4", "6"]


def test_a_turn_is_known_by_what_the_source_asks() -> None:
    one, other = (Conversation.of(messages("uau"), None) for _ in range(2))
    other.messages[1]["content"] = "another recorded answer"
    assert one.prompt_key(0, "v") == identity.prompt_key(messages("u"), None, "v")
    assert one.prompt_key(1, "v") == other.prompt_key(1, "v") != one.prompt_key(0, "v")
    assert one.prompt_key(1, "v") != one.prompt_key(1, "w")
    # Neither a plain prompt of the same messages, nor one whose turns stand elsewhere.
    assert one.prompt_key(1, "v") != identity.prompt_key([one.messages[0], one.messages[2]], None, "v")
    assert Conversation.parse(identity.canonical_json({"messages": one.messages, "tools": None})) == one


def test_where_the_turns_stand_counts() -> None:
    """The same questions, answered at other places: two conversations."""
    one, other = (Conversation.of(messages(roles), None) for roles in ("uauauu", "uauuau"))
    for source in (one, other):
        for number, message in enumerate(each for each in source.messages if each["role"] == "user"):
            message["content"] = f"question {number}"
    assert [len(behind) for behind in one.later(2)] == [1, 2]
    assert [len(behind) for behind in other.later(2)] == [2, 1]
    assert one.prompt_key(0, "v") == other.prompt_key(0, "v")
    assert one.prompt_key(2, "v") != other.prompt_key(2, "v")


@given(st.text("suat", max_size=12))
def test_no_recorded_answer_and_no_result_behind_one_is_ever_asked_upon(roles: str) -> None:
    conversation = Conversation.of(messages("u" + roles), None)
    said = [{"role": "assistant", "content": "generated"}] * len(conversation)
    first = len(conversation.asked(0, []))
    for turn in range(len(conversation)):
        behind = conversation.asked(turn, said)
        assert [message for message in behind if message["content"] == "generated"] == said[:turn]
        later = conversation.later(turn)
        assert len(later) == turn
        assert all(behind for behind in later)
        assert {message["role"] for behind in later for message in behind} <= {"system", "user"}
        assert behind[:first] == conversation.messages[:first]
        assert behind[-1]["role"] != "assistant"
