"""Asking on: an answer that its budget cut is continued from the ids so far. Pure.

With `on_truncated: continue` a row's own `max_new_tokens` is its total budget
(`render`), and one request asks for at most `slice_tokens` more ids. A round is
an attempt of its own: it sends prompt + ids so far, and its completion holds
all ids joined, so that each round's completion is whole, is kept at once, and
is where the next round, or the next run, goes on. Joined it is judged as one.

Promises: the ids joined are those sent and those returned, in order; the total
budget is never exceeded; each round that goes on has brought all it asked for,
so there are at most total / slice of them; a row of two weight versions names
both. Refuses to go on from an answer that is not certainly the row's own, that
has ended its turn, or that an earlier run had from other weights.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from draftmill.arrays import Ids, ids_array
from draftmill.recipe import Recipe
from draftmill.records import Answer, Completion, Row

STOP, LENGTH = "stop", "length"
"""The finish types of an answer that ended by itself, and of one that its budget cut."""


def slice_of(recipe: Recipe) -> int | None:
    """Tokens that one request of a continued row asks for; None where rows are not continued."""
    return recipe.sampling.max_new_tokens if recipe.on_truncated == "continue" else None


def total_of(recipe: Recipe) -> int:
    """Tokens that all requests of one row may ask for together, where the context has room."""
    return recipe.sampling.max_new_tokens * (1 if slice_of(recipe) is None else 1 + recipe.continue_times)


def taken_up(
    row: Row, prior: Answer, *, end_ids: Collection[int], weight_versions: Collection[str | None]
) -> Answer | Completion | None:
    """What an earlier run's answer is to a row: where it goes on, its very completion, or None: it begins anew.

    `weight_versions`: what the servers say of themselves; a version that is not
    told is taken for the same. A prior that fills the budget begins anew too.
    """
    whole = ended(prior, end_ids)
    if whole.finish_type == STOP:
        return Completion(row, whole)
    same = same_weights(prior.weight_version, weight_versions)
    return prior if same and 0 < len(prior.output_ids) < row.max_new_tokens else None


def same_weights(version: str | None, weight_versions: Collection[str | None]) -> bool:
    """Whether what came of this weight version may be gone on from with these; not told is taken for the same."""
    return None in {version, *weight_versions} or version in weight_versions


def first_request(row: Row, prior: Answer | None, slice_tokens: int | None) -> Row:
    """The row as it is sent: prompt and ids so far, and the budget of this request in tokens.

    `slice_tokens` None: all that is left of the row's budget at once. A prior
    that leaves no budget is a programmer's error.
    """
    left = row.max_new_tokens - (0 if prior is None else len(prior.output_ids))
    assert left > 0, "nothing is left of the row's budget"
    bounds = [left, *(bound for bound in (slice_tokens, row.room) if bound is not None)]
    prompt_ids = row.prompt_ids if prior is None else _join("prompt_ids", row.prompt_ids, prior.output_ids)
    return replace(row, prompt_ids=prompt_ids, max_new_tokens=min(bounds))


def joined(row: Row, prior: Answer | None, answer: Answer, *, sent: Row, end_ids: Collection[int] = ()) -> Completion:
    """The row's completion, as if all its ids had come at once; `sent`: the row as it was sent.

    Its budget is what it was allowed so far. An echo or a count that is wrong
    for the request stays wrong for the row, so that `judge` names it. Parts of
    different weight versions make the row's "w1+w2".
    """
    if prior is None:
        # What the context left of a later turn's budget is `room`: no larger budget would bring more.
        budget = sent.max_new_tokens if row.room is None else row.max_new_tokens
        return Completion(replace(row, max_new_tokens=budget), ended(answer, end_ids))
    num_prior = len(prior.output_ids)
    whole = replace(
        answer,
        output_ids=_join("output_ids", prior.output_ids, answer.output_ids),
        prompt_tokens=_plus(answer.prompt_tokens, -num_prior),
        completion_tokens=_plus(answer.completion_tokens, num_prior),
        finish_length=_plus(answer.finish_length, num_prior),
        weight_version=both_weights(prior.weight_version, answer.weight_version),
    )
    return Completion(replace(row, max_new_tokens=num_prior + sent.max_new_tokens), ended(whole, end_ids))


def ended(answer: Answer, end_ids: Collection[int]) -> Answer:
    """The answer; as one that stopped, where a server names the budget although the last id ends the turn.

    Many versions of SGLang look at the budget before they look at the id.
    """
    output_ids = answer.output_ids
    if answer.finish_type != LENGTH or not len(output_ids) or int(output_ids[-1]) not in end_ids:
        return answer
    return replace(answer, finish_type=STOP, finish_length=None, matched=int(output_ids[-1]))


def goes_on(row: Row, completion: Completion, slice_tokens: int | None) -> tuple[Row, Answer] | None:
    """The row's next attempt and its answer so far; None when this completion is its last.

    The last it is when it ended by itself, when its total budget is used up,
    and when the server granted less than was asked: it has no room for more.
    """
    num_ids = len(completion.answer.output_ids)
    if slice_tokens is None or not is_cut(completion):
        return None
    if num_ids < completion.row.max_new_tokens or num_ids >= row.max_new_tokens:
        return None
    return replace(row, attempt=row.attempt + 1), completion.answer


def is_cut(completion: Completion) -> bool:
    """Whether its ids may be asked on from: cut by length, of this very prompt, and all that was counted is there."""
    row, answer = completion.row, completion.answer
    num_ids = len(answer.output_ids)
    return (
        answer.finish_type == LENGTH
        and answer.echo_ids is None
        and answer.prompt_tokens in (None, len(row.prompt_ids))
        and answer.completion_tokens in (None, num_ids)
        and answer.finish_length in (None, num_ids)
        and 0 < num_ids <= row.max_new_tokens
    )


def _join(name: str, first: Ids, second: Ids) -> Ids:
    return ids_array(name, np.concatenate([first, second]))


def _plus(count: int | None, number: int) -> int | None:
    # Never below 0, which no prompt's count is: a negative number would read as one that was not given.
    return None if count is None else max(0, count + number)


def both_weights(first: str | None, second: str | None) -> str | None:
    """Weight versions in the order they answered; None where one of them was not told."""
    if first is None or second is None:
        return None
    return first if first == second or first.endswith(f"+{second}") else f"{first}+{second}"
