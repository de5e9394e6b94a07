"""However an answer is cut into rounds, its ids joined are the ids it would have had at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.arrays import ids_array
from draftmill.generation.continuing import first_request, goes_on, is_cut, joined, slice_of, taken_up, total_of
from draftmill.recipe import Recipe
from draftmill.recipe_file import parse_recipe
from draftmill.records import Answer, Completion, Row

WHEN = datetime(2026, 1, 2, tzinfo=UTC)
PROMPT = [5, 6, 7]
END = 2


def build_row(budget: int, attempt: int = 0) -> Row:
    return Row("k", attempt, "p", "1", "default", 0, ids_array("p", PROMPT), budget, None, "s")


def build_answer(output_ids: list[int], prompt_len: int = len(PROMPT), **changes: Any) -> Answer:
    """Cut by length, and consistent, unless changed."""
    facts: dict[str, Any] = {
        "output_ids": ids_array("o", output_ids),
        "echo_ids": None,
        "prompt_tokens": prompt_len,
        "completion_tokens": len(output_ids),
        "finish_type": "length",
        "finish_length": len(output_ids),
        "matched": None,
        "engine": "e",
        "weight_version": None,
        "created_at": WHEN,
    }
    return Answer(**(facts | changes))


@dataclass
class Model:
    """A server whose model says `ids`, whatever the rounds; `room`: ids that fit behind the prompt."""

    ids: list[int]
    room: int
    asked: int = 0

    def __call__(self, sent: Row) -> Answer:
        self.asked += 1
        assert sent.prompt_ids.tolist()[: len(PROMPT)] == PROMPT
        done = len(sent.prompt_ids) - len(PROMPT)
        assert sent.prompt_ids.tolist()[len(PROMPT) :] == self.ids[:done]
        assert 0 < sent.max_new_tokens <= self.room - done
        new = self.ids[done : done + sent.max_new_tokens]
        stopped = new[-1:] == [END]
        ended = {"finish_type": "stop", "finish_length": None, "matched": END} if stopped else {}
        return build_answer(new, len(sent.prompt_ids), **ended)


def drive(row: Row, prior: Answer | None, slice_tokens: int | None, model: Any) -> list[Completion]:
    """All rounds of a row, as the pool makes them."""
    rounds: list[Completion] = []
    step: tuple[Row, Answer | None] | None = (row, prior)
    while step is not None:
        now, so_far = step
        sent = first_request(now, so_far, slice_tokens)
        rounds.append(joined(now, so_far, model(sent), sent=sent))
        step = goes_on(now, rounds[-1], slice_tokens)
    return rounds


CASES = {"length": st.integers(1, 40), "total": st.integers(1, 50), "slice_tokens": st.integers(1, 12)}


@given(**CASES, start=st.integers(0, 39))
def test_any_rounds_give_the_ids_of_one_long_answer(length: int, total: int, slice_tokens: int, start: int) -> None:
    """From the start, or from where an earlier run, with any slices, was cut off."""
    said = [*range(100, 100 + length - 1), END]
    prior = build_answer(said[:start]) if 0 < start < min(length, total) else None
    num_prior = 0 if prior is None else start
    model = Model(said, room=total)
    rounds = drive(build_row(total, attempt=3), prior, slice_tokens, model)
    (whole,) = drive(build_row(total), None, None, Model(said, room=total))
    last = rounds[-1]
    assert replace(last.answer, output_ids=None) == replace(whole.answer, output_ids=None)
    assert last.answer.output_ids.tolist() == whole.answer.output_ids.tolist() == said[:total]
    assert last.row.prompt_ids.tolist() == PROMPT
    assert [made.row.attempt for made in rounds] == [*range(3, 3 + model.asked)]
    assert model.asked == -(-(len(said[:total]) - num_prior) // slice_tokens)
    for made in rounds[:-1]:
        assert is_cut(made)
        assert len(made.answer.output_ids) == made.row.max_new_tokens < total
    assert last.row.max_new_tokens <= total


@given(**CASES, data=st.data())
def test_a_server_that_misbehaves_ends_the_rounds_and_is_never_laundered(
    length: int, total: int, slice_tokens: int, data: st.DataObject
) -> None:
    """Whatever is wrong with a round is wrong with the row, and nothing is asked on from it."""
    fault = data.draw(st.sampled_from(["clipped", "echo", "prompt_tokens", "completion_tokens", "abort", "empty"]))
    model, bad_round = Model([*range(100, 100 + length)], room=total), data.draw(st.integers(1, 4))

    def server(sent: Row) -> Answer:
        answer = model(sent)
        if model.asked != bad_round:
            return answer
        if fault in ("clipped", "empty"):
            kept = 0 if fault == "empty" else len(answer.output_ids) - 1
            cut = answer.output_ids[:kept]
            return replace(answer, output_ids=cut, completion_tokens=kept, finish_length=kept)
        wrong: dict[str, Any] = {
            "echo": {"echo_ids": ids_array("e", [1])},
            "prompt_tokens": {"prompt_tokens": data.draw(st.integers(0, len(sent.prompt_ids) - 1))},
            "completion_tokens": {"completion_tokens": len(answer.output_ids) + 1},
            "abort": {"finish_type": "abort", "finish_length": None},
        }
        return replace(answer, **wrong[fault])

    # A row that ends before its budget ends with an id of its own: here it just has no more to say.
    row = build_row(min(total, length))
    rounds = drive(row, None, slice_tokens, server)
    assert len(rounds) <= bad_round
    if len(rounds) == bad_round:
        last = rounds[-1].answer
        assert goes_on(row, rounds[-1], slice_tokens) is None
        if fault == "echo":
            assert last.echo_ids is not None
        if fault == "prompt_tokens":
            assert last.prompt_tokens is not None
            assert 0 <= last.prompt_tokens != len(PROMPT)
        if fault == "completion_tokens":
            assert last.completion_tokens == len(last.output_ids) + 1
        if fault == "abort":
            assert last.finish_type == "abort"


def test_without_continuing_the_row_is_sent_and_kept_as_it_is() -> None:
    row = build_row(64)
    answer = build_answer([8] * 64)
    assert first_request(row, None, None) == row
    made = joined(row, None, answer, sent=row)
    assert made == Completion(row, answer)
    assert goes_on(row, made, None) is None


def test_a_joined_answer_is_one_whole_answer_of_the_row() -> None:
    row, prior = build_row(10, attempt=1), build_answer([8, 9, 8, 9])
    sent = first_request(row, prior, 4)
    assert (sent.prompt_ids.tolist(), sent.max_new_tokens) == ([*PROMPT, 8, 9, 8, 9], 4)
    made = joined(row, prior, build_answer([10, 11, 12, 13], prompt_len=7), sent=sent)
    assert made.answer.output_ids.tolist() == [8, 9, 8, 9, 10, 11, 12, 13]
    assert (made.answer.prompt_tokens, made.answer.completion_tokens, made.answer.finish_length) == (3, 8, 8)
    assert (made.row.attempt, made.row.max_new_tokens) == (1, 8)
    following = goes_on(row, made, 4)
    assert following is not None
    assert (following[0].attempt, following[0].max_new_tokens) == (2, 10)
    assert following[1] is made.answer
    assert first_request(*following, 4).max_new_tokens == 2


def test_counts_that_a_server_does_not_give_stay_unknown() -> None:
    row, prior = build_row(10), build_answer([8])
    sent = first_request(row, prior, 4)
    answer = build_answer([9] * 4, prompt_tokens=None, completion_tokens=None, finish_length=None)
    made = joined(row, prior, answer, sent=sent).answer
    assert (made.prompt_tokens, made.completion_tokens, made.finish_length) == (None, None, None)


def test_an_answer_with_too_many_ids_is_not_cut_but_wrong() -> None:
    row = build_row(10)
    sent = first_request(row, None, 4)
    made = joined(row, None, build_answer([9] * 5), sent=sent)
    assert len(made.answer.output_ids) > made.row.max_new_tokens
    assert goes_on(row, made, 4) is None


@pytest.mark.parametrize("prior", [None, build_answer([5])])
def test_an_answer_whose_last_id_ends_the_turn_has_ended(prior: Answer | None) -> None:
    """Also where the server names the budget, which was used up by that very id."""
    row = build_row(10)
    sent = first_request(row, prior, 4)
    answer = build_answer([8, END, 8, END], prompt_len=len(sent.prompt_ids))
    made = joined(row, prior, answer, sent=sent, end_ids=(END,))
    assert (made.answer.finish_type, made.answer.finish_length, made.answer.matched) == ("stop", None, END)
    assert goes_on(row, made, 4) is None
    asked_on = joined(row, prior, answer, sent=sent, end_ids=(8,))
    assert (asked_on.answer.finish_type, asked_on.answer.matched) == ("length", None)
    assert goes_on(row, asked_on, 4) is not None
    empty = joined(row, None, build_answer([]), sent=first_request(row, None, 4), end_ids=(END,))
    assert empty.answer.finish_type == "length"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (("w1", "w1", "w1"), "w1"),
        (("w1", "w2", "w2"), "w1+w2"),
        (("w1", "w2", "w1"), "w1+w2+w1"),
        (("w1", "w1", None), None),
        ((None, "w1", "w1"), None),
        ((None, None, None), None),
    ],
)
def test_a_row_names_every_weight_version_that_answered(said: tuple[str | None, ...], expected: str | None) -> None:
    versions = iter(said)

    def server(sent: Row) -> Answer:
        return build_answer([9] * sent.max_new_tokens, len(sent.prompt_ids), weight_version=next(versions))

    assert drive(build_row(12), None, 4, server)[-1].answer.weight_version == expected


@pytest.mark.parametrize(
    ("version", "servers", "goes_on_from_it"),
    [
        ("w1", {"w1"}, True),
        ("w1", {"w1", "w2"}, True),
        ("w1", {"w2"}, False),
        ("w1+w2", {"w2"}, False),
        ("w1", {None}, True),
        ("w1", {None, "w2"}, True),
        (None, {"w2"}, True),
        (None, {None}, True),
    ],
)
def test_ids_of_other_weights_than_the_servers_name_are_not_gone_on_from(
    version: str | None, servers: set[str | None], goes_on_from_it: bool
) -> None:
    prior = build_answer([8, 9], weight_version=version)
    taken = taken_up(build_row(10), prior, end_ids=(END,), weight_versions=servers)
    assert taken == (prior if goes_on_from_it else None)


def test_an_earlier_answer_that_has_ended_is_the_row_and_one_without_room_begins_anew() -> None:
    ways = {"end_ids": (END,), "weight_versions": {"w2"}}
    row, whole = build_row(10, attempt=2), build_answer([8, 9, END], weight_version="w1")
    taken = taken_up(row, whole, **ways)
    assert isinstance(taken, Completion)
    assert (taken.row, taken.answer.finish_type, taken.answer.matched) == (row, "stop", END)
    assert taken.answer.output_ids.tolist() == [8, 9, END]
    assert taken.answer.weight_version == "w1"
    for ids in ([], [8] * 10, [8] * 11):
        assert taken_up(row, build_answer(ids), **ways) is None
    assert taken_up(row, build_answer([8] * 9), **ways) is not None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (None, 64)),
        ({"on_truncated": "quarantine"}, (None, 64)),
        ({"on_truncated": "continue"}, (64, 320)),
        ({"on_truncated": "continue", "continue_times": 1}, (64, 128)),
        ({"continue_times": 9}, (None, 64)),
    ],
)
def test_what_the_recipe_says(changes: dict[str, Any], expected: tuple[int | None, int]) -> None:
    data = {
        "dataset": "d",
        "prompts": {"path": "p"},
        "model": {"name": "m", "context_length": 4096},
        "sampling": {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 64},
    }
    recipe: Recipe = parse_recipe(data | changes, origin="the test")
    assert (slice_of(recipe), total_of(recipe)) == expected
