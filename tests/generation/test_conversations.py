"""Turns on top of turns: each asked once, as soon as the one it stands on has come, and none on a bad one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from draftmill.arrays import ids_array
from draftmill.generation.conversations import Conversations, Outcome
from draftmill.generation.tickets import Asked
from draftmill.records import Answer, Completion, Failure, HistoryMode, Reason, Row, Said, Span, Verdict
from draftmill.rendering.next_turn import Over

EXTENDS, REWRITES = HistoryMode.EXTENDS, HistoryMode.REWRITES
BAD, CUT, END, NEXT = 66, 67, 2, 9


def row(*turns: str, history: HistoryMode | None = EXTENDS, attempt: int = 0) -> Row:
    """`row("a", "b")`: the second turn of a conversation."""
    *earlier, key = turns
    ids = ids_array("p", [7] if history is EXTENDS or not earlier else [])
    common = ("p", "id", "default", 0, ids, 32, None, "s")
    return Row(key, attempt, *common, history=history, earlier=tuple(earlier), conversation="{}")


def answer(ids: Sequence[int]) -> Answer:
    finish = "length" if ids[-1] == CUT else "stop"
    return Answer(
        ids_array("o", ids), None, None, None, finish, None, None, "e", None, datetime(2026, 1, 1, tzinfo=UTC)
    )


@dataclass
class Server:
    """Answers each turn with an id of its own, or as `says`; `log`: the keys asked, in order."""

    says: dict[str, list[int] | str | None] = field(default_factory=dict)
    log: list[tuple[str, int]] = field(default_factory=list)
    sent: dict[str, list[int]] = field(default_factory=dict)
    first: list[str] = field(default_factory=list)
    weights: dict[str, str] = field(default_factory=dict)

    async def ask(self, row: Row, first: bool) -> Asked:
        self.log.append(row.key)
        self.sent[row.row_key] = row.prompt_ids.tolist()
        if first:
            self.first.append(row.row_key)
        await asyncio.sleep(0)
        match self.says.get(row.row_key, [ord(row.row_key[0]), END]):
            case str(words):
                return Asked(failures=[Failure(row, words, 1)])
            case None:
                return Asked(pending=[row])
            case ids:
                said = replace(answer(ids), weight_version=self.weights.get(row.row_key))
                return Asked(completions=[Completion(row, said)], tokens=len(ids))


def judge(completions: Sequence[Completion]) -> list[Verdict]:
    return [
        Verdict(Reason.DEGENERATE if BAD in completion.answer.output_ids else None, "", None, None, END)
        for completion in completions
    ]


def next_turn(row: Row, said: Sequence[Said]) -> Row | Over:
    """The ids so far and a 9; nothing behind 12 ids."""
    before = said[-1:] if row.history is EXTENDS else said
    prompt_ids = [said[-1].prompt_ids] if row.history is EXTENDS else [ids_array("p", [8])]
    ids = np.concatenate([*prompt_ids, *(turn.output_ids for turn in before), ids_array("p", [NEXT])])
    spans = (*said[-1].earlier, said[-1].span) if row.history is EXTENDS else ()
    return Over("no room") if len(ids) > 12 else replace(row, prompt_ids=ids_array("p", ids), spans=spans)


async def converse(rows: Sequence[Row], server: Server, **options: Any) -> Outcome:
    options = {"known": {}, "sealed": {}, "weight_versions": {None}} | options
    made = Conversations(rows, ask=server.ask, judge=judge, next_turn=next_turn, **options)
    return await made.outcome()


def keys(completions: Sequence[Completion]) -> list[str]:
    return [completion.row.row_key for completion in completions]


async def test_one_row_with_all_its_turns() -> None:
    server = Server()
    out = await converse([row("a", "b", "c")], server)
    assert [key for key, _ in server.log] == ["a", "b", "c"]
    assert server.sent["c"] == [7, 97, END, NEXT, 98, END, NEXT]
    (made,) = out.generated
    assert (made.row.row_key, made.row.whole, made.row.conversation) == ("c", None, None)
    assert [(span.start, span.end) for span in made.row.spans] == [(1, 3), (4, 6)]
    assert [(completion.row.row_key, completion.row.whole) for completion in out.earlier] == [("a", "c"), ("b", "c")]
    assert (out.output_tokens, out.prompt_tokens) == (6, 1 + 4 + 7)


async def test_a_row_for_each_turn() -> None:
    server = Server()
    rows = [row("a", history=REWRITES), row("a", "b", history=REWRITES), row("a", "b", "c", history=REWRITES)]
    out = await converse(rows, server)
    assert server.sent == {"a": [7], "b": [8, 97, END, NEXT], "c": [8, 97, END, 98, END, NEXT]}
    assert (keys(out.generated), out.earlier) == (["a", "b", "c"], [])


@pytest.mark.parametrize("history", [EXTENDS, REWRITES])
async def test_shared_turns_are_asked_once(history: HistoryMode) -> None:
    server = Server()
    rows = [row("a", "b", history=history), row("a", "c", history=history), row("a", history=history)]
    out = await converse(rows, server)
    assert sorted(key for key, _ in server.log) == ["a", "b", "c"]
    assert keys(out.generated) == ["b", "c", "a"]
    assert server.first == ["a"]


async def test_what_is_known_is_not_asked() -> None:
    server = Server()
    turn = replace(row("a"), whole="c")
    out = await converse([row("a", "b", "c")], server, known={("a", 0): Completion(turn, answer([77, END]))})
    assert [key for key, _ in server.log] == ["b", "c"]
    assert server.sent["b"] == [7, 77, END, NEXT]
    assert (keys(out.generated), keys(out.earlier)) == (["c"], ["b"])


async def test_a_finished_row_is_resumed_and_another_attempt_is_not() -> None:
    whole = Completion(replace(row("a", "b"), spans=(Span(1, 3, None, "stop", END),)), answer([77, END]))
    server = Server()
    out = await converse([row("a", "b")], server, known={("b", 0): whole})
    assert (keys(out.resumed), server.log) == (["b"], [])
    out = await converse([row("a", "b", attempt=1)], server, known={("b", 0): whole})
    assert (keys(out.generated), server.log) == (["b"], [("a", 1), ("b", 1)])


async def test_sealed_turns_are_stood_on() -> None:
    server = Server()
    sealed = {"a": Said(ids_array("p", [7]), (), ids_array("o", [55, END]), Span(1, 3, None, "stop", END))}
    rows = [row("a", "b", history=REWRITES), row("a", "b", "c", history=REWRITES)]
    await converse(rows, server, sealed=sealed)
    assert server.sent == {"b": [8, 55, END, NEXT], "c": [8, 55, END, 98, END, NEXT]}
    out = await converse(rows, Server())
    assert [failure.words for failure in out.failures] == [
        "turn 1 of this conversation is gone with the object that held it"
    ] * 2


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ([BAD, END], "turn 2 of this conversation is degenerate"),
        ([60, CUT], "turn 2 of this conversation was cut by length"),
        ("HTTP 500", "turn 2 of this conversation failed: HTTP 500"),
        ([60] * 8 + [END], "nothing can be asked behind turn 2: no room"),
    ],
)
async def test_nothing_is_asked_behind_it(said: Any, words: str) -> None:
    server = Server({"b": said})
    out = await converse([row("a", "b", "c", "d")], server)
    assert [key for key, _ in server.log] == ["a", "b"]
    if isinstance(said, str):
        assert [failure.words for failure in out.failures] == ["HTTP 500"]
    else:
        (made,) = out.generated
        assert (made.row.row_key, made.answer.output_ids.tolist(), len(made.row.spans)) == ("d", said, 1)
    server = Server({"b": said})
    turns = [row(*"abcd"[: n + 1], history=REWRITES) for n in range(4)]
    out = await converse(turns, server)
    assert [failure.words for failure in out.failures][-2:] == [words, words]
    assert [key for key, _ in server.log] == ["a", "b"]


@pytest.mark.parametrize("history", [EXTENDS, REWRITES])
async def test_a_stopped_run_leaves_the_rest_pending(history: HistoryMode) -> None:
    rows = [row("a", "b", history=history)]
    if history is REWRITES:
        rows = [row("a", history=history), *rows]
    out = await converse(rows, Server({"b": None}))
    assert ([pending.row_key for pending in out.pending], out.failures) == (["b"], [])
    assert keys(out.generated) == ([] if history is EXTENDS else ["a"])


async def test_a_row_that_ended_early_is_never_stood_on_as_whole() -> None:
    """Another conversation goes on from the same turns: what is known of the shorter one is only its first turn."""
    early = Completion(row("a", "b"), answer([77, END]))
    server = Server()
    out = await converse([row("a", "b"), row("a", "b", "c")], server, known={("b", 0): early})
    assert (server.log, keys(out.resumed)) == ([], ["b", "c"])
    assert all(completion.row.spans == () for completion in out.resumed)


async def test_an_error_ends_all() -> None:
    class Broken(Exception):
        pass

    async def ask(row: Row, first: bool) -> Asked:
        if row.row_key == "b":
            raise Broken
        await asyncio.sleep(3600)
        raise AssertionError

    rows = [row("a", history=None), row("b", history=None)]
    made = Conversations(rows, ask=ask, judge=judge, next_turn=next_turn, known={}, sealed={}, weight_versions={None})
    with pytest.raises(Broken):
        await made.outcome()


async def test_what_is_known_is_judged_as_the_variant_that_asks_today() -> None:
    seen: list[str] = []

    def judge_by_variant(completions: Sequence[Completion]) -> list[Verdict]:
        seen.extend(completion.row.variant for completion in completions)
        return judge(completions)

    turn = replace(row("a"), variant="of yesterday", whole="b")
    known = {("a", 0): Completion(turn, answer([77, END]))}
    made = Conversations(
        [row("a", "b")],
        ask=Server().ask,
        judge=judge_by_variant,
        next_turn=next_turn,
        known=known,
        sealed={},
        weight_versions={None},
    )
    assert (keys((await made.outcome()).generated), seen) == (["b"], ["default"])


def turn_of(*turns: str, ids: Sequence[int], attempt: int = 0, budget: int = 32, weights: str | None = None) -> Any:
    """`turn_of("a", "b", ids=...)`: as an earlier run has it, for `known`: a turn of a larger conversation."""
    made = replace(row(*turns, attempt=attempt), whole="z", max_new_tokens=budget, prompt_ids=ids_array("p", [7]))
    spans, prompt = [], [7]
    for key in turns[:-1]:
        spans.append(Span(len(prompt), len(prompt) + 2, None, "stop", END))
        prompt += [ord(key), END, NEXT]
    made = replace(made, prompt_ids=ids_array("p", prompt), spans=tuple(spans))
    return made.key, Completion(made, replace(answer(ids), weight_version=weights))


@pytest.mark.parametrize(
    ("attempts", "taken"),
    [
        ([(0, [BAD, END]), (1, [77, END])], 77),
        ([(0, [77, END]), (1, [BAD, END])], 77),  # a newer bad one does not shadow a good one
        ([(0, [77, END]), (1, [78, END])], 78),
    ],
)
async def test_a_grown_conversation_goes_on_from_the_newest_good_attempt(attempts: Any, taken: int) -> None:
    server = Server()
    known = dict(turn_of("a", ids=ids, attempt=attempt) for attempt, ids in attempts)
    out = await converse([row("a", "b")], server, known=known)
    assert server.log == [("b", 0)]
    assert server.sent["b"] == [7, taken, END, NEXT]
    assert keys(out.generated) == ["b"]


async def test_a_bad_turn_is_not_asked_again_because_its_conversation_has_grown() -> None:
    server = Server()
    out = await converse([row("a", "b")], server, known=dict([turn_of("a", ids=[BAD, END])]))
    assert (server.log, keys(out.resumed)) == ([], ["b"])


async def test_a_row_that_is_asked_again_takes_none_of_the_attempts_before() -> None:
    server = Server()
    known = dict([turn_of("a", ids=[77, END]), turn_of("a", "b", ids=[BAD, END])])
    await converse([row("a", "b", "c", attempt=1)], server, known=known)
    assert server.log == [("a", 1), ("b", 1), ("c", 1)]


async def test_a_turn_cut_at_a_smaller_budget_is_asked_as_its_next_attempt() -> None:
    server = Server()
    known = dict([turn_of("a", ids=[77, END]), turn_of("a", "b", ids=[60, CUT], budget=16)])
    out = await converse([row("a", "b", "c")], server, known=known)
    assert server.log == [("b", 1), ("c", 0)]
    assert server.sent["b"] == [7, 77, END, NEXT]
    assert [completion.row.key for completion in out.earlier] == [("b", 1)]
    server = Server()
    out = await converse([row("a", "b", "c")], server, known=dict([turn_of("a", "b", ids=[60, CUT])]))
    assert (server.log, keys(out.resumed)) == ([], ["c"])


async def test_a_turn_that_is_a_row_to_ask_is_stood_on_as_that() -> None:
    """Another conversation is these turns and no more, and is asked again for its larger budget."""
    server = Server()
    known = dict([turn_of("a", ids=[60, CUT], budget=16)])
    out = await converse([row("a", "b"), row("a", attempt=1)], server, known=known)
    assert server.log == [("a", 1), ("b", 0)]
    assert (keys(out.generated), out.earlier) == (["b", "a"], [])


@pytest.mark.parametrize(
    ("weights", "servers", "log"),
    [
        ("one", {"two"}, [("a", 1), ("b", 0)]),
        ("one", {"one", "two"}, [("b", 0)]),
        ("one+two", {"two"}, [("a", 1), ("b", 0)]),
        ("one+two", {"one", "two"}, [("b", 0)]),
        (None, {"two"}, [("b", 0)]),
        ("one", {None}, [("b", 0)]),
    ],
)
async def test_turns_of_other_weights_are_not_gone_on_from(weights: Any, servers: Any, log: Any) -> None:
    server = Server()
    known = dict([turn_of("a", ids=[77, END], weights=weights)])
    await converse([row("a", "b")], server, known=known, weight_versions=servers)
    assert server.log == log


async def test_a_row_names_the_weights_of_all_its_turns_in_order() -> None:
    server = Server(weights={"a": "one", "b": "two", "c": "two"})
    out = await converse([row("a", "b", "c")], server, weight_versions={"one", "two"})
    assert [made.answer.weight_version for made in (*out.earlier, *out.generated)] == ["one", "one+two", "one+two"]
    # As the journal has them each names its own; what is joined already is not joined twice.
    known = dict(
        [
            turn_of("a", ids=[ord("a"), END], weights="one"),
            turn_of("a", "b", ids=[ord("b"), END], weights="two"),
            turn_of("a", "b", "c", ids=[ord("c"), END], weights="one+two"),
        ]
    )
    out = await converse([row("a", "b", "c")], Server(), known=known, weight_versions={"two"})
    assert [made.answer.weight_version for made in out.resumed] == ["one+two"]
    server = Server(weights=dict.fromkeys("abcd", "two"))
    out = await converse([row("a", "b", "d")], server, known=known, weight_versions={"two"})
    assert server.log == [("a", 1), ("b", 1), ("d", 0)]
    assert [made.answer.weight_version for made in out.generated] == ["two"]


async def test_an_early_end_without_a_fault_is_told() -> None:
    server = Server({"b": [60] * 8 + [END]})
    rows = [row("a", "b", "c"), row("a", "b", "d"), row("a", "e")]
    out = await converse(rows, server)
    assert [(ended.row_key, end.turn, end.words) for ended, end in out.ended] == [
        ("c", 2, "no room"),
        ("d", 2, "no room"),
    ]
    assert keys(out.generated) == ["c", "d", "e"]
    for said in ([BAD, END], [60, CUT], "HTTP 500"):
        assert (await converse(rows, Server({"b": said}))).ended == []
