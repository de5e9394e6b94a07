"""Log-probabilities of a prompt, as the fakes give them: of a model that is sure of what its script says.

A `Scorer` tells the likeliest ids at a place; how SGLang and vLLM write them was
recorded. `sure_of` makes one of the fake's own answers: an audit of rows that the
fake answered finds them its own, any other id is a million times less likely.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from draftmill.serving.fake_answers import Answers
from draftmill.serving.protocol import GenerateRequest

Scorer = Callable[[tuple[int, ...], int], dict[int, float]]
"""(ids, start of the generated ones) -> for the place behind them: id -> log-probability of the likeliest."""

SURE = math.log(0.9)
"""Of the id that the script has next."""

UNLIKELY = -14.0
"""Nats, of any id that is not among the likeliest."""

OTHERS = 30
"""Ids beside the likeliest one: more than anyone asks for."""


def sure_of(answers: Answers) -> Scorer:
    """A model that would answer as `answers` does; behind an id that it would not have said, it goes on by place."""

    def likeliest(ids: tuple[int, ...], start: int) -> dict[int, float]:
        script = answers(GenerateRequest("", ids[:start], ids[:start], 0, {}, False)).output_ids
        place = len(ids) - start
        first = script[place] if place < len(script) else script[-1]
        others = [token_id for token_id in range(3, 4 + OTHERS) if token_id != first][:OTHERS]
        return {first: SURE} | {token_id: math.log(0.1 / 2 ** (n + 1)) for n, token_id in enumerate(others)}

    return likeliest


def _places(scorer: Scorer, ids: tuple[int, ...], start: int) -> list[tuple[int, float, list[tuple[int, float]]]]:
    """Of each id from `start` on: itself, its log-probability, the likeliest ones from the likeliest on."""
    found = []
    for place in range(start, len(ids)):
        best = scorer(ids[:place], start)
        order = sorted(best.items(), key=lambda item: -item[1])
        found.append((ids[place], best.get(ids[place], UNLIKELY), order))
    return found


def as_sglang(scorer: Scorer, request: GenerateRequest) -> dict[str, Any]:
    """The keys of `meta_info`. The first item stands for `logprob_start_len` itself and has no value (recorded)."""
    assert request.scored is not None
    first, top = request.scored
    places = _places(scorer, request.prompt_ids, first + 1)
    return {
        "input_token_logprobs": [
            [None, request.prompt_ids[first], None],
            *([logprob, token_id, None] for token_id, logprob, _ in places),
        ],
        "input_top_logprobs": [
            None,
            *([[logprob, token_id, None] for token_id, logprob in order[:top]] for _, _, order in places),
        ],
        "output_token_logprobs": [],
        "output_top_logprobs": [],
    }


def as_vllm(scorer: Scorer, ids: Sequence[int], top: int, *, start: int) -> list[dict[str, Any] | None]:
    """`prompt_logprobs`: null for the first id; an id outside of the likeliest stands beside them (recorded).

    `start`: where the generated ids begin, which the request does not say; those before are given as sure.
    """
    told: list[dict[str, Any] | None] = [None]
    told += [{str(token_id): _vllm(SURE, 1)} for token_id in ids[1:start]]
    for token_id, logprob, order in _places(scorer, tuple(ids), start):
        listed = {str(other): _vllm(value, rank) for rank, (other, value) in enumerate(order[:top], 1)}
        told.append({str(token_id): _vllm(logprob, 1 + sum(value > logprob for _, value in order)), **listed})
    return told


def _vllm(logprob: float, rank: int) -> dict[str, Any]:
    return {"logprob": logprob, "rank": rank, "decoded_token": None}
