"""Asking on: an answer that its budget cut is continued from the ids so far. Pure.

With `on_truncated: continue` a row's own `max_new_tokens` is its total budget
(`render`), and one request asks for at most `slice_tokens` more ids. A round is
an attempt of its own: it sends prompt + ids so far, and its completion holds
all ids joined, so that each round's completion is whole, is kept at once, and
is where the next round, or the next run, goes on. Joined it is judged as one.

Promises: the ids joined are those sent and those returned, in order; the total
budget is never exceeded; each round that goes on has brought all it asked for,
so there are at most total / slice of them. Refuses to go on from an answer that
is not certainly the row's own: another prompt's, or of other counts.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from draftmill.arrays import Ids, ids_array
from draftmill.recipe import Recipe
from draftmill.records import Answer, Completion, Row

LENGTH = "length"
"""The finish type of an answer that its budget cut."""


def slice_of(recipe: Recipe) -> int | None:
    """Tokens that one request of a continued row asks for; None where rows are not continued."""
    return recipe.sampling.max_new_tokens if recipe.on_truncated == "continue" else None


def total_of(recipe: Recipe) -> int:
    """Tokens that all requests of one row may ask for together, where the context has room."""
    return recipe.sampling.max_new_tokens * (1 if slice_of(recipe) is None else 1 + recipe.continue_times)


def first_request(row: Row, prior_ids: Ids | None, slice_tokens: int | None) -> Row:
    """The row as it is sent: prompt and ids so far, and the budget of this request in tokens.

    `slice_tokens` None: all that is left of the row's budget at once. A prior
    that leaves no budget is a programmer's error.
    """
    left = row.max_new_tokens - (0 if prior_ids is None else len(prior_ids))
    assert left > 0, "nothing is left of the row's budget"
    budget = left if slice_tokens is None else min(slice_tokens, left)
    prompt_ids = row.prompt_ids if prior_ids is None else _join("prompt_ids", row.prompt_ids, prior_ids)
    return replace(row, prompt_ids=prompt_ids, max_new_tokens=budget)


def joined(row: Row, prior_ids: Ids | None, answer: Answer, *, sent: Row) -> Completion:
    """The row's completion, as if all its ids had come at once; `sent`: the row as it was sent.

    Its budget is what it was allowed so far. An echo or a count that is wrong
    for the request stays wrong for the row, so that `judge` names it.
    """
    if prior_ids is None:
        return Completion(replace(row, max_new_tokens=sent.max_new_tokens), answer)
    num_prior = len(prior_ids)
    whole = replace(
        answer,
        output_ids=_join("output_ids", prior_ids, answer.output_ids),
        prompt_tokens=_plus(answer.prompt_tokens, -num_prior),
        completion_tokens=_plus(answer.completion_tokens, num_prior),
        finish_length=_plus(answer.finish_length, num_prior),
    )
    return Completion(replace(row, max_new_tokens=num_prior + sent.max_new_tokens), whole)


def goes_on(
    row: Row, completion: Completion, slice_tokens: int | None, *, end_ids: Collection[int] = ()
) -> tuple[Row, Ids] | None:
    """The row's next attempt and its ids so far; None when this completion is its last.

    The last it is when it ended by itself, when its total budget is used up,
    and when the server granted less than was asked: it has no room for more.
    `end_ids`: ids that end a turn; behind one nothing is asked on, also where a
    server names the budget although the turn ended with its last id.
    """
    output_ids = completion.answer.output_ids
    if slice_tokens is None or not is_cut(completion) or int(output_ids[-1]) in end_ids:
        return None
    if len(output_ids) < completion.row.max_new_tokens or len(output_ids) >= row.max_new_tokens:
        return None
    return replace(row, attempt=row.attempt + 1), output_ids


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
