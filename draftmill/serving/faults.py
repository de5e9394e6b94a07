"""How the fake server misbehaves: one name a fault, and the rules that say when.

Each fault is something that was seen, or must be survived: proxies, resets,
broken bodies, and the silent ones, in which a 200 carries ids that are not what
the model produced. The silent ones keep `completion_tokens` equal to the number
of ids, unless the count is the fault: a client must find the fault itself.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from draftmill.serving.answers import aborted, aborted_in_queue, ran_out, stopped
from draftmill.serving.fake_answers import Markers, prompt_number
from draftmill.serving.protocol import GenerateRequest

NAN = "NaN happened"
"""What SGLang 0.5.23 reports as matched when the logits were broken."""

LOOP_IDS = 4
"""Ids of the cycle in which an answer is caught: a few words, as in loops that were seen."""

NO_VOCABULARY = 10_000_000
"""An id beyond any model's vocabulary, for a fake that does not know its own."""


class Fault(StrEnum):
    """What goes wrong with one request."""

    # instead of an answer
    ERROR_500 = "error_500"
    BAD_GATEWAY = "bad_gateway"
    UNAVAILABLE = "unavailable"
    RATE_LIMITED = "rate_limited"
    RESET_BEFORE = "reset_before"
    RESET_REUSED = "reset_reused"  # of a connection that served before; a request on a new one is answered well
    HANG = "hang"
    # while the answer is sent
    RESET_MIDWAY = "reset_midway"
    RESET_AFTER = "reset_after"
    TRUNCATED_JSON = "truncated_json"
    FOREIGN_JSON = "foreign_json"
    # in the answer
    ABORTED = "aborted"
    ABORTED_IN_QUEUE = "aborted_in_queue"
    WRONG_ECHO = "wrong_echo"
    FEWER_PROMPT_TOKENS = "fewer_prompt_tokens"
    OTHER_RID = "other_rid"
    WRONG_COUNT = "wrong_count"
    ID_OUT_OF_RANGE = "id_out_of_range"
    NO_OUTPUT_IDS = "no_output_ids"
    NAN = "nan"
    STRIPPED_MARKER = "stripped_marker"  # of the reasoning: each one that the model produced
    PROMPT_TAIL_FIRST = "prompt_tail_first"
    OPENED_AGAIN = "opened_again"
    NO_END = "no_end"
    TRIMMED = "trimmed"  # the last id is gone, but counted
    EMPTIED = "emptied"  # nothing came, nothing is counted, and yet it stopped
    PAST_END = "past_end"  # as speculative decoding did: ids behind the one that ended the turn
    FORCED_CLOSE = "forced_close"  # a thinking budget closes the reasoning, and the model closes it again
    NEXT_TURN = "next_turn"  # the end was missed, and a turn like the prompt's begins inside the answer
    NO_CONTENT = "no_content"
    LOOPED = "looped"  # the last ids again and again, until the budget is used up
    CLIPPED_BUDGET = "clipped_budget"
    OTHER_WEIGHTS = "other_weights"


@dataclass(frozen=True, slots=True)
class Act:
    """A fault with its size.

    `amount`: ids of the prompt for PROMPT_TAIL_FIRST and NEXT_TURN, of the answer for PAST_END; seconds of Retry-After
    for RATE_LIMITED.
    """

    fault: Fault
    amount: int = 1


Rule = Callable[[int, GenerateRequest], Act | Fault | None]
"""(number of the request, from 1; the request) -> what goes wrong with it, None for nothing."""


def always(fault: Act | Fault) -> Rule:
    """Every request goes wrong in the same way."""
    return lambda number, request: fault


def nth(acts: Mapping[int, Act | Fault]) -> Rule:
    """The requests with these numbers go wrong."""
    return lambda number, request: acts.get(number)


def by_chance(chances: Mapping[Fault, float], *, seed: int = 0) -> Rule:
    """Each request goes wrong with these probabilities, which add up to at most 1.

    Depends on seed, prompt and how often the prompt was asked, not on the order of requests: a retry gets a new draw.
    """
    asked: Counter[int] = Counter()

    def rule(_: int, request: GenerateRequest) -> Fault | None:
        prompt = prompt_number(seed, request.prompt_ids)
        asked[prompt] += 1
        draw = random.Random(prompt + asked[prompt]).random()
        for fault, chance in chances.items():
            if draw < chance:
                return fault
            draw -= chance
        return None

    return rule


@dataclass(frozen=True, slots=True)
class Scene:
    """What a fault may need to know beside the body it spoils."""

    request: GenerateRequest
    markers: Markers
    vocabulary: int | None
    amount: int


def spoil(body: dict[str, Any], fault: Fault, scene: Scene) -> None:
    """Changes the body of a good answer in place. Faults that are not in the answer change nothing."""
    if (change := _CHANGES.get(fault)) is not None:
        change(body, scene)


def _with_ids(body: dict[str, Any], ids: list[int]) -> None:
    body["output_ids"] = ids
    body["meta_info"]["completion_tokens"] = len(ids)


def _abort(body: dict[str, Any], _: Scene) -> None:
    ids = body["output_ids"]
    _with_ids(body, ids[: len(ids) // 2])
    body["meta_info"]["finish_reason"] = aborted()


def _abort_in_queue(body: dict[str, Any], _: Scene) -> None:
    _with_ids(body, [])
    meta = body["meta_info"]
    meta["finish_reason"] = aborted_in_queue()
    for key in ("prompt_tokens", "cached_tokens", "num_retractions", "reasoning_tokens", "dp_rank"):
        meta.pop(key, None)
    body.pop("prompt_token_ids", None)


def _wrong_echo(body: dict[str, Any], scene: Scene) -> None:
    first, *rest = scene.request.asked_ids
    body["prompt_token_ids"] = [first ^ 1, *rest]


def _fewer_prompt_tokens(body: dict[str, Any], _: Scene) -> None:
    body["meta_info"]["prompt_tokens"] -= 1


def _other_rid(body: dict[str, Any], _: Scene) -> None:
    body["meta_info"]["id"] += "-of-another"


def _wrong_count(body: dict[str, Any], _: Scene) -> None:
    body["meta_info"]["completion_tokens"] += 1


def _id_out_of_range(body: dict[str, Any], scene: Scene) -> None:
    ids = body["output_ids"]
    beyond = NO_VOCABULARY if scene.vocabulary is None else scene.vocabulary
    _with_ids(body, [beyond, *ids[1:]])


def _no_output_ids(body: dict[str, Any], _: Scene) -> None:
    del body["output_ids"]


def _nan(body: dict[str, Any], _: Scene) -> None:
    body["meta_info"]["finish_reason"] = stopped(NAN)


def _stripped_marker(body: dict[str, Any], scene: Scene) -> None:
    both = (scene.markers.open_id, scene.markers.close_id)
    _with_ids(body, [index for index in body["output_ids"] if index not in both])


def _prompt_tail_first(body: dict[str, Any], scene: Scene) -> None:
    _with_ids(body, [*scene.request.prompt_ids[-scene.amount :], *body["output_ids"]])


def _opened_again(body: dict[str, Any], scene: Scene) -> None:
    opening = [] if scene.markers.open_id is None else [scene.markers.open_id]
    _with_ids(body, [*opening, *body["output_ids"]])


def _no_end(body: dict[str, Any], _: Scene) -> None:
    _with_ids(body, body["output_ids"][:-1])


def _trimmed(body: dict[str, Any], _: Scene) -> None:
    body["output_ids"] = body["output_ids"][:-1]


def _emptied(body: dict[str, Any], _: Scene) -> None:
    _with_ids(body, [])


def _past_end(body: dict[str, Any], scene: Scene) -> None:
    ids = body["output_ids"]
    _with_ids(body, [*ids, *ids[: scene.amount]])


def _forced_close(body: dict[str, Any], scene: Scene) -> None:
    ids: list[int] = body["output_ids"]
    if (close_id := scene.markers.close_id) is not None and close_id in ids:
        forced_at = ids.index(close_id) // 2
        _with_ids(body, [*ids[:forced_at], close_id, *ids[forced_at:]])


def _next_turn(body: dict[str, Any], scene: Scene) -> None:
    ids = body["output_ids"]
    _with_ids(body, [*ids[:-1], *scene.request.prompt_ids[: scene.amount], *ids[-1:]])


def _no_content(body: dict[str, Any], scene: Scene) -> None:
    ids, close_id = body["output_ids"], scene.markers.close_id
    num_thought = ids.index(close_id) + 1 if close_id in ids else 0
    _with_ids(body, [*ids[:num_thought], *ids[-1:]])


def _looped(body: dict[str, Any], scene: Scene) -> None:
    said, budget = body["output_ids"][:-1], scene.request.budget
    _with_ids(body, (said + said[-LOOP_IDS:] * budget)[:budget])
    body["meta_info"]["finish_reason"] = ran_out(budget)


def _clipped_budget(body: dict[str, Any], _: Scene) -> None:
    ids = body["output_ids"]
    _with_ids(body, ids[: len(ids) // 2])
    body["meta_info"]["finish_reason"] = ran_out(len(ids) // 2)


def _other_weights(body: dict[str, Any], _: Scene) -> None:
    body["meta_info"]["weight_version"] = f"{body['meta_info']['weight_version']}-other"


_CHANGES: dict[Fault, Callable[[dict[str, Any], Scene], None]] = {
    Fault.ABORTED: _abort,
    Fault.ABORTED_IN_QUEUE: _abort_in_queue,
    Fault.WRONG_ECHO: _wrong_echo,
    Fault.FEWER_PROMPT_TOKENS: _fewer_prompt_tokens,
    Fault.OTHER_RID: _other_rid,
    Fault.WRONG_COUNT: _wrong_count,
    Fault.ID_OUT_OF_RANGE: _id_out_of_range,
    Fault.NO_OUTPUT_IDS: _no_output_ids,
    Fault.NAN: _nan,
    Fault.STRIPPED_MARKER: _stripped_marker,
    Fault.PROMPT_TAIL_FIRST: _prompt_tail_first,
    Fault.OPENED_AGAIN: _opened_again,
    Fault.NO_END: _no_end,
    Fault.TRIMMED: _trimmed,
    Fault.EMPTIED: _emptied,
    Fault.PAST_END: _past_end,
    Fault.FORCED_CLOSE: _forced_close,
    Fault.NEXT_TURN: _next_turn,
    Fault.NO_CONTENT: _no_content,
    Fault.LOOPED: _looped,
    Fault.CLIPPED_BUDGET: _clipped_budget,
    Fault.OTHER_WEIGHTS: _other_weights,
}
